//! Runs as an index shows them: what each was, and the history of each of its numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fathom_telemetry::rundir::{RunDir, RunDirError};
use fathom_telemetry::schema::{Headline, Target};
use fathom_telemetry::{Flag, FlagCode};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::format;

/// What an index needs of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Brief {
    /// Its directory.
    #[serde(skip_deserializing)]
    pub path: PathBuf,
    /// Start, RFC 3339 UTC.
    pub started: String,
    /// End, RFC 3339 UTC; absent where the run did not finish.
    pub finished: Option<String>,
    /// The subcommand.
    pub command: String,
    /// What was measured.
    pub target: Target,
    /// The machine's name, where the run knows it.
    #[serde(rename(deserialize = "environment"), deserialize_with = "host")]
    pub host: Option<String>,
    /// Whether the numbers come from a model.
    pub simulated: bool,
    /// What its owner calls it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its numbers.
    pub headlines: Vec<Headline>,
    /// Its jobs.
    #[serde(deserialize_with = "jobs")]
    pub jobs: JobCounts,
}

/// How many jobs there are, and how many of them carry flags.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct JobCounts {
    /// All of them.
    pub all: usize,
    /// With flags, void ones among them.
    pub flagged: usize,
    /// Void.
    pub void: usize,
}

fn jobs<'de, D: Deserializer<'de>>(from: D) -> Result<JobCounts, D::Error> {
    /// What else a job holds is passed over.
    #[derive(Deserialize)]
    struct Job {
        #[serde(default)]
        flags: Vec<Flag>,
    }
    let jobs = Vec::<Job>::deserialize(from)?;
    let with = |is: fn(&Flag) -> bool| jobs.iter().filter(|j| j.flags.iter().any(is)).count();
    Ok(JobCounts {
        all: jobs.len(),
        flagged: with(stands_against),
        void: with(|f| f.void),
    })
}

fn host<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let environment = Value::deserialize(from)?;
    let name = environment.pointer("/kernel/host").and_then(Value::as_str);
    Ok(name.map(str::to_owned))
}

impl Brief {
    /// The run in `path`.
    ///
    /// # Errors
    /// Where it is none, or of a later fathom.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        let (dir, mut brief) = RunDir::open_as::<Self>(path)?;
        brief.path = dir.path().to_owned();
        Ok(brief)
    }

    /// `2026-03-01 12:00:00 UTC`.
    pub fn started_words(&self) -> String {
        format::moment(&self.started)
    }

    /// `drive=A note=after the update`.
    pub fn labels_words(&self) -> String {
        let words = self.labels.iter().map(|(k, v)| format!("{k}={v}"));
        words.collect::<Vec<_>>().join(" ")
    }

    /// What stands against it: `3 of 10 numbers, 5 of 7 jobs flagged, 1 void`; nothing where nothing does.
    pub fn flags_words(&self) -> String {
        let numbers = self.headlines.iter().filter(|h| is_flagged(h)).count();
        let mut words = Vec::new();
        if self.finished.is_none() {
            words.push("not finished".to_owned());
        }
        if numbers > 0 {
            words.push(format!("{numbers} of {} numbers", self.headlines.len()));
        }
        if self.jobs.flagged > 0 {
            words.push(format!(
                "{} of {} jobs flagged",
                self.jobs.flagged, self.jobs.all
            ));
        }
        if self.jobs.void > 0 {
            words.push(format!("{} void", self.jobs.void));
        }
        words.join(", ")
    }
}

/// A model's numbers say so elsewhere.
fn stands_against(flag: &Flag) -> bool {
    flag.code != FlagCode::Simulated && !flag.code.describes()
}

pub(crate) fn is_flagged(h: &Headline) -> bool {
    h.flags.iter().any(stands_against)
}

/// Runs of one command on one target of one host.
pub(crate) struct Group<'a> {
    /// The oldest first.
    pub(crate) runs: Vec<&'a Brief>,
}

/// A number over the runs of a group.
pub(crate) struct Series<'a> {
    pub(crate) points: Vec<Point<'a>>,
    /// Of the newest run that has the number, also where it has no value.
    pub(crate) last: &'a Headline,
    /// The value of the newest run with the label `baseline`.
    pub(crate) baseline: Option<f64>,
}

/// A number of a run.
pub(crate) struct Point<'a> {
    pub(crate) started: &'a str,
    pub(crate) value: f64,
    pub(crate) flagged: bool,
}

/// In the order of their first runs.
pub(crate) fn groups(runs: &[Brief]) -> Vec<Group<'_>> {
    let alike = |a: &Brief, b: &Brief| {
        fn of(r: &Brief) -> [&str; 3] {
            [
                r.host.as_deref().unwrap_or_default(),
                &r.command,
                r.target.place(),
            ]
        }
        of(a) == of(b)
    };
    let mut all: Vec<Group<'_>> = Vec::new();
    for run in runs {
        match all.iter_mut().find(|g| alike(g.runs[0], run)) {
            Some(group) => group.runs.push(run),
            None => all.push(Group { runs: vec![run] }),
        }
    }
    all
}

impl<'a> Group<'a> {
    /// `survey of /srv/data on db1`.
    pub(crate) fn title(&self) -> String {
        let run = self.runs[0];
        let of = format!("{} of {}", run.command, run.target.place());
        match (&run.host, run.simulated) {
            (Some(host), false) => format!("{of} on {host}"),
            _ => of,
        }
    }

    /// Each number once, in the order of the newest run, then what only older ones have.
    pub(crate) fn series(&self) -> Vec<Series<'a>> {
        let mut seen: Vec<&str> = Vec::new();
        let mut all = Vec::new();
        for last in self.runs.iter().rev().flat_map(|r| &r.headlines) {
            if seen.contains(&last.id.as_str()) {
                continue;
            }
            seen.push(&last.id);
            let of = |r: &&'a Brief| {
                let h = r.headlines.iter().find(|h| h.id == last.id)?;
                Some((h, h.estimate.as_ref()?.value))
            };
            all.push(Series {
                points: self
                    .runs
                    .iter()
                    .filter_map(|r| {
                        of(r).map(|(h, value)| Point {
                            started: &r.started,
                            value,
                            flagged: is_flagged(h),
                        })
                    })
                    .collect(),
                last,
                baseline: self
                    .runs
                    .iter()
                    .rev()
                    .find(|r| r.labels.contains_key("baseline"))
                    .and_then(of)
                    .map(|(_, value)| value),
            });
        }
        all
    }
}

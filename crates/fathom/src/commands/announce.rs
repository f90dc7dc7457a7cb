//! What is said before anything starts, and all that `--dry-run` says: the phases with time and bytes, and the whole.

use fathom_bench::cost::{Phase, RunCost};
use fathom_bench::foresight;
use fathom_sim::SimTarget;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::shopping::columns;
use crate::exit::{DONE, Outcome};
use crate::screen;

/// What a run will take.
pub(super) struct Foreseen<'a> {
    /// What runs, such as "quick profile".
    pub(super) what: &'a str,
    /// Its phases.
    pub(super) cost: &'a RunCost,
    /// As typed: a model takes its own time, and nothing is written for it.
    pub(super) target: &'a str,
    /// Hosts that run it at the same time.
    pub(super) hosts: u32,
}

/// What `--dry-run --json` prints.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Announced {
    /// Of all phases, ns; of the model where the target is one.
    pub(super) time_ns: u64,
    /// The same here, where a model simulates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_here_ns: Option<u64>,
    /// Bytes, at most, on each host.
    pub(super) written_at_most: u64,
    hosts: u32,
    phases: Vec<AnnouncedPhase>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AnnouncedPhase {
    name: String,
    /// At most.
    jobs: u32,
    time_ns: u64,
    written_at_most: u64,
}

impl Announced {
    fn of(foreseen: &Foreseen<'_>, here: Option<&Here>) -> Self {
        let cost = foreseen.cost;
        let phase = |p: &Phase| AnnouncedPhase {
            name: p.name.clone(),
            jobs: p.jobs,
            time_ns: p.time.0,
            written_at_most: p.written_at_most.0,
        };
        Self {
            time_ns: cost.time().0,
            time_here_ns: here.map(|h| h.1.0),
            written_at_most: match here {
                Some(_) => 0,
                None => cost.written_at_most().0,
            },
            hosts: foreseen.hosts,
            phases: cost.phases.iter().map(phase).collect(),
        }
    }
}

/// Time of each phase here, and of all of them.
type Here = (Vec<Nanos>, Nanos);

impl<'a> Foreseen<'a> {
    /// On one host, where no scratch file is filled.
    pub(super) fn of(what: &'a str, cost: &'a RunCost, target: &'a str) -> Self {
        Self {
            what,
            cost,
            target,
            hosts: 1,
        }
    }

    /// The same on so many hosts.
    pub(super) fn on(self, hosts: u32) -> Self {
        Self { hosts, ..self }
    }

    /// One line.
    pub(super) fn line(&self) -> String {
        self.sentence(self.here().as_ref())
    }

    /// The phases, then the line: what `--dry-run` prints; or all of it as data.
    pub(super) fn dry_run(&self, json: bool) -> Outcome {
        let here = self.here();
        if json {
            screen::json(&Announced::of(self, here.as_ref()))?;
            return Ok(DONE);
        }
        screen::print(&format!(
            "{}\n{}",
            columns(&self.table(here.as_ref())),
            self.sentence(here.as_ref())
        ));
        Ok(DONE)
    }

    fn here(&self) -> Option<Here> {
        let simulated = SimTarget::is_simulated(self.target);
        let found = simulated.then(|| foresight::here(self.cost, self.target));
        let (each, all) = found?.ok()?;
        // Hosts of a model are simulated one after another.
        let hosts = u64::from(self.hosts.max(1));
        let each = each.into_iter().map(|t| Nanos(t.0 * hosts)).collect();
        Some((each, Nanos(all.0 * hosts)))
    }

    fn sentence(&self, here: Option<&Here>) -> String {
        let (what, jobs) = (self.what, jobs(self.cost.jobs()));
        let (time, bytes) = (time(self.cost.time()), self.cost.written_at_most());
        if let Some((_, all)) = here {
            return format!(
                "{what}, simulated: about {} here, writes nothing ({jobs}, {time} of the model's time)\n",
                self::time(*all)
            );
        }
        let filling = match self.cost.filled() {
            Bytes(0) => String::new(),
            fills => format!(", filling a scratch file of {fills} included"),
        };
        let in_all = match jobs.as_str() {
            "" => String::new(),
            jobs => format!("{jobs} in "),
        };
        let each = match self.hosts {
            0 | 1 => String::new(),
            n => format!(" on each of {n} hosts"),
        };
        let files = match self.cost.files {
            0 => String::new(),
            n => format!(" in at most {n} files at a time, removed at the end"),
        };
        format!(
            "{what}: {in_all}about {time}{filling}; at most {bytes} will be written{each}{files}\n"
        )
    }

    fn table(&self, here: Option<&Here>) -> Vec<Vec<String>> {
        let (head, last) = match here {
            Some(_) => ("model's time", "here"),
            None => ("time", "written at most"),
        };
        let mut table = vec![["phase", "jobs", head, last].map(str::to_owned).to_vec()];
        for (k, phase) in self.cost.phases.iter().enumerate() {
            table.push(vec![
                phase.name.clone(),
                match phase.jobs {
                    0 => "-".into(),
                    n => n.to_string(),
                },
                time(phase.time),
                match here {
                    Some((each, _)) => each.get(k).map_or_else(String::new, |t| time(*t)),
                    None => phase.written_at_most.to_string(),
                },
            ]);
        }
        table
    }
}

fn jobs(n: u32) -> String {
    match n {
        0 => String::new(),
        1 => "1 job".into(),
        n => format!("at most {n} jobs"),
    }
}

/// Seconds, with a digit where there are few, or hours.
pub(super) fn time(t: Nanos) -> String {
    match t.as_secs_f64() {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 5400.0 => format!("{s:.0} s"),
        s => format!("{:.1} h", s / 3600.0),
    }
}

//! What conditioning found: the course of the load, the verdict, burst and base, temperature, internal writes.

use fathom_bench::parts::{axis, facts, line_chart};
use fathom_bench::results::{self, Evidence, ExperimentResult, Shown};
use fathom_bench::steadiness::why;
use fathom_io::target::purge::Method;
use fathom_stats::regimes::Regimes;
use fathom_stats::steady::{Steadiness, Verdict};
use fathom_telemetry::schema::{Cell, Finding, Mark, Run, Section};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use super::recovery::Recovery;
use super::{Collected, ConditionOptions, ConditionPlan, ConditionResult};
use crate::purge::PurgeResult;

/// The plan in words.
pub(super) fn plan_text(o: &ConditionOptions) -> String {
    let load: Vec<String> = o.load.iter().map(|(n, t)| format!("{n}={t}")).collect();
    let on = match o.devices {
        1 => String::new(),
        n => format!(" on each of {n} hosts"),
    };
    format!(
        "range {}{on}, purge {}, {} passes, {} % full, overwrite {}, deletes {} %, idle {}, then [{}] in rounds of {}, seed {}",
        o.range.0,
        match o.purge {
            true => o.purging.method.name(),
            false => "none",
        },
        o.passes,
        o.fill,
        o.overwrite,
        o.deletes,
        o.idle,
        load.join(" "),
        o.round,
        o.seed
    )
}

impl ExperimentResult for ConditionPlan {
    const EXPERIMENT: &'static str = "condition-plan";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let section = |id: &str, title: &str, text: String| Section {
            id: id.into(),
            title: title.into(),
            text,
            ..Section::default()
        };
        let plan = section("condition-plan", "Plan", plan_text(&self.options));
        shown.sections.push(plan);
        if self.skipped > 0 {
            let text = format!("{} pieces were done by an earlier run", self.skipped);
            let resumed = section("condition-resumed", "Resumed", text);
            shown.sections.push(resumed);
        }
        shown.findings.extend(self.state(evidence.run()));
    }
}

impl ConditionPlan {
    /// In what state the range is now; `None` where this run did no piece of it.
    fn state(&self, run: &Run) -> Option<Finding> {
        let o = &self.options;
        let of_plan = |i: &usize| run.jobs[*i].experiment == super::EXPERIMENT;
        let jobs: Vec<usize> = (0..run.jobs.len()).filter(of_plan).collect();
        let total = super::pieces(o).len();
        let done = super::done(self, run);
        let whole = done >= total;
        let mut words = Vec::new();
        // A device that cannot discard was asked, and was not purged.
        let discarded = |i: &usize| {
            let trim = run.jobs[*i].trim.as_ref();
            run.jobs[*i].name == super::PURGE && trim.is_some_and(|t| t.bytes > 0)
        };
        let purge: Option<PurgeResult> = results::result(run);
        match purge.map(|p| p.purged.method) {
            Some(method) if method != Method::Discard => words.push(format!("purged by {method}")),
            _ if jobs.iter().any(discarded) => words.push("purged".to_owned()),
            _ => {}
        }
        match o.passes {
            0 => {}
            1 => words.push(format!("{} % written once in sequence", o.fill)),
            n => words.push(format!("{} % written {n} times in sequence", o.fill)),
        }
        if o.overwrite > 0.0 {
            words.push(format!("overwritten {} times at random", o.overwrite));
        }
        if o.deletes > 0.0 {
            words.push(format!("{} % deleted", o.deletes));
        }
        if o.idle > Nanos::ZERO {
            words.push(format!("left idle for {}", o.idle));
        }
        let range = match o.devices {
            1 => o.range.to_string(),
            n => format!("{} on each of {n} hosts", o.range),
        };
        let text = match whole {
            true => format!("{range} are conditioned: {}.", words.join(", ")),
            false => format!(
                "The conditioning of {range} is not complete: {done} of {total} pieces are done."
            ),
        };
        let pace = whole.then(|| last_pass(run, &jobs, o.passes)).flatten();
        let pace = pace.map_or(String::new(), |rate| {
            format!(" The last pass ran at {}/s.", Bytes(rate))
        });
        (done > self.skipped).then(|| Finding {
            id: "condition-state".into(),
            text: text + &pace,
            confidence: "strong".into(),
            jobs,
            evidence: vec!["condition-plan".into()],
            refuted_by: "A write by anybody else since.".into(),
            ..Finding::default()
        })
    }
}

/// Bytes per second of the last sequential pass.
fn last_pass(run: &Run, jobs: &[usize], passes: u32) -> Option<u64> {
    let name = format!("pass-{passes}-");
    let of = jobs.iter().map(|i| &run.jobs[*i]);
    let (mut bytes, mut ns) = (0, 0);
    for job in of.filter(|j| j.name.starts_with(&name)) {
        // Pieces on several hosts are work done, not measured.
        if !job.hosts.is_empty() {
            return None;
        }
        bytes += job.write.as_ref().map_or(0, |w| w.bytes);
        ns += job.wall_ns;
    }
    (ns > 0).then(|| (bytes as f64 / ns as f64 * 1e9) as u64)
}

/// The verdict in a word, and its reasons in sentences.
fn words(s: &Steadiness) -> (&'static str, Vec<String>) {
    match &s.verdict {
        Verdict::Steady => ("steady", Vec::new()),
        Verdict::NotSteady(r) => ("not steady", r.iter().map(|r| r.sentence()).collect()),
        Verdict::Undecided(r) => ("undecided", r.iter().map(|r| r.sentence()).collect()),
    }
}

impl ExperimentResult for ConditionResult {
    const EXPERIMENT: &'static str = "condition";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        let Some(s) = &self.load.verdict else { return };
        let (word, reasons) = words(s);
        shown.sections.push(self.section(s, word, &reasons));
        shown.findings.push(self.verdict(s, word, &reasons));
        let collected = self.load.collected();
        let cause = match (&self.regimes, &collected) {
            (Some(r), _) => Some(self.two_levels(r, collected.as_ref())),
            (None, Some(c)) => Some(self.garbage(c)),
            (None, None) => None,
        };
        shown.findings.extend(cause);
    }
}

impl ConditionResult {
    /// What stands against everything that is measured next.
    pub(super) fn flag(&self) -> Option<Flag> {
        let (word, reasons) = words(self.load.verdict.as_ref()?);
        (word != "steady").then(|| {
            Flag::new(
                FlagCode::NotSteady,
                format!(
                    "after {} rounds: {}",
                    self.load.course.len(),
                    reasons.join("; ")
                ),
                "condition for longer, or quote what is measured next as not steady",
            )
        })
    }

    /// The course of the load, the verdict, and the two regimes where there are two.
    fn section(&self, s: &Steadiness, word: &str, reasons: &[String]) -> Section {
        let load = &self.load;
        let seconds = self.round.as_secs_f64();
        let points = load
            .course
            .iter()
            .enumerate()
            .map(|(i, v)| ((i + 1) as f64 * seconds, *v))
            .collect();
        let mut title = "Throughput of the load over time".to_owned();
        if word != "steady" {
            title = format!("{title}: {word}");
        }
        let mut chart = line_chart(
            "condition-course",
            &title,
            axis("time", "s", false),
            axis("throughput", "bytes/s", false),
            vec![("load".into(), points)],
        );
        let mut rows: Vec<(&str, Cell)> = vec![
            ("fathom's verdict", word.into()),
            ("rounds", load.course.len().to_string().into()),
            (
                "PTS rule",
                s.pts
                    .map_or("not reached".into(), |p| {
                        format!("met at round {}", p.first + 5)
                    })
                    .into(),
            ),
            ("temperature", ends(&load.celsius, "°C", 0).into()),
            (
                "internal writes per byte written",
                ends(&load.ratios, "", 2).into(),
            ),
        ];
        if let Some(r) = &self.regimes {
            chart.marks.push(Mark {
                x: Some(r.onset_seconds),
                y: None,
                label: "burst ends".into(),
            });
            let two = describe(r, self.recovery.as_ref()).into_iter();
            rows.extend(two.map(|(name, text)| (name, text.into())));
        }
        let mut text = format!(
            "Rounds of {} until the level stays within 10 % over a test of {}.",
            self.round, self.test
        );
        if !reasons.is_empty() {
            text += &format!(" {}.", reasons.join("; "));
        }
        Section {
            id: "condition-load".into(),
            title: "Steady state of the load".into(),
            text,
            charts: vec![chart],
            tables: vec![facts("condition-verdict", "Verdict", rows)],
            flags: self.flag().into_iter().collect(),
        }
    }

    fn verdict(&self, s: &Steadiness, word: &str, reasons: &[String]) -> Finding {
        let level = s
            .level
            .map_or(String::new(), |l| format!(" at {}/s", Bytes(l as u64)));
        let why = if reasons.is_empty() {
            ".".into()
        } else {
            format!(": {}.", reasons.join("; "))
        };
        Finding {
            id: "condition-verdict".into(),
            text: format!(
                "After {} rounds of {} the load is {word}{level}{why}",
                self.load.course.len(),
                self.round
            ),
            advice: if word == "steady" {
                String::new()
            } else {
                "condition for longer before numbers are quoted as sustained".into()
            },
            confidence: "strong".into(),
            jobs: self.load.jobs.clone(),
            evidence: vec!["condition-course".into()],
            refuted_by: "More rounds of the same load, with whose results it is judged otherwise."
                .into(),
            ..Finding::default()
        }
    }

    /// A fall without a cliff, beside internal writes that rose.
    fn garbage(&self, c: &Collected) -> Finding {
        let [first, last] = c.rate.map(|v| Bytes(v as u64));
        let [before, after] = c.ratio;
        Finding {
            id: "garbage-collection".into(),
            text: format!(
                "The load fell smoothly from {first}/s to {last}/s while internal writes per byte rose from {before:.2} to \
                 {after:.2}: garbage collection set in; no cache or credit was used up at once.",
            ),
            advice: "plan sustained work by the last rate; more spare area keeps it higher".into(),
            confidence: "strong".into(),
            jobs: self.load.jobs.clone(),
            evidence: vec!["condition-course".into()],
            refuted_by: "The same fall with internal writes that stay where they were.".into(),
            ..Finding::default()
        }
    }

    fn two_levels(&self, r: &Regimes, collected: Option<&Collected>) -> Finding {
        let collected = collected.map_or(String::new(), |c| {
            format!(
                "; internal writes per byte rose from {:.2} to {:.2} meanwhile, so garbage collection has its part in it",
                c.ratio[0], c.ratio[1]
            )
        });
        let recovery = self.recovery.as_ref().map_or(String::new(), |p| {
            format!(" Idle time that gives it back: {}.", p.sentence())
        });
        Finding {
            id: "burst-and-base".into(),
            text: format!(
                "The load ran at {}/s until {} were transferred, then at {}/s: {}{collected}.{recovery}",
                Bytes(r.burst_per_second as u64),
                Bytes(r.burst_amount as u64),
                Bytes(r.base_per_second as u64),
                why(r),
            ),
            advice: "plan sustained work by the second number".into(),
            // Without a temperature what used it up is a guess.
            confidence: if r.onset_celsius.is_some() {
                "strong"
            } else {
                "moderate"
            }
            .into(),
            jobs: self.load.jobs.clone(),
            evidence: vec!["condition-course".into()],
            refuted_by: "A longer run in which the first rate comes back without idle time.".into(),
            ..Finding::default()
        }
    }
}

/// First and last of what a disk reported over the rounds; a hole says that it did not.
fn ends(values: &[Option<f64>], unit: &str, digits: usize) -> String {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let space = if unit.is_empty() { "" } else { " " };
    match (known.first(), known.last()) {
        (Some(first), Some(last)) => {
            format!("{first:.digits$} to {last:.digits$}{space}{unit} (first and last round)")
        }
        _ => "not reported by this device".into(),
    }
}

/// The two regimes as rows of a table.
fn describe(r: &Regimes, recovery: Option<&Recovery>) -> Vec<(&'static str, String)> {
    let per_second = |v: f64| format!("{}/s", Bytes(v as u64));
    let estimate = if r.base_per_second > 0.0 {
        format!(
            "about {:.1} s (estimated from size and base rate; --recovery TIME measures it)",
            r.reserve / r.base_per_second
        )
    } else {
        "unknown".into()
    };
    vec![
        ("burst", per_second(r.burst_per_second)),
        ("base", per_second(r.base_per_second)),
        (
            "transferred before the fall",
            Bytes(r.burst_amount as u64).to_string(),
        ),
        ("cache or credit", Bytes(r.reserve as u64).to_string()),
        ("fall after", format!("{:.2} s", r.onset_seconds)),
        ("cause", why(r)),
        (
            "idle time to refill",
            recovery.map_or(estimate, Recovery::sentence),
        ),
    ]
}

//! Purging as a step of other experiments: which way, what came of it, and how that is shown.

use std::fmt;

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::facts;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::runner::Runner;
use fathom_io::target::purge::{Compared, Method, PurgeError, Purged, Samples};
use fathom_telemetry::schema::{Finding, Section};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

/// The way in which a target is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purging {
    /// The way.
    pub method: Method,
    /// Whether somebody named it, so that another one would not do.
    pub named: bool,
}

impl Default for Purging {
    /// What every target can be asked for, and what runs before there was a choice did.
    fn default() -> Self {
        Self {
            method: Method::Discard,
            named: false,
        }
    }
}

impl Purging {
    /// Whether it is a job of discards.
    pub fn is_job(self) -> bool {
        self.method == Method::Discard
    }

    /// Bytes that it writes to the target, as far as anybody knows: nought but where everything is overwritten.
    pub fn written(self, range: Bytes) -> Bytes {
        match self.method {
            Method::Zeroes | Method::SanitizeOverwrite => range,
            _ => Bytes(0),
        }
    }
}

impl fmt::Display for Purging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.method.fmt(f)
    }
}

/// A purge that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PurgeResult {
    /// What it was done for: `condition`, or a test of the specification.
    pub before: String,
    /// How.
    pub purged: Purged,
}

/// How a purge ended that did not fail for good.
pub(crate) enum Ended {
    /// The target is empty.
    Done,
    /// It is not, and why.
    Not(String),
    /// Somebody asked to end.
    Interrupted,
}

/// Purges by a way that is no job, and keeps what was done.
pub(crate) fn by_device(
    runner: &mut Runner<'_>,
    before: &str,
    how: Purging,
    range: Bytes,
) -> Result<Ended, NotebookError> {
    match runner.purge(how.method, range) {
        Ok(purged) => {
            keep(runner, before, purged)?;
            Ok(Ended::Done)
        }
        Err(PurgeError::Interrupted { method, why }) => {
            let detail = format!("the purge by {method} was interrupted: {why}");
            let flag = Flag::new(FlagCode::Interrupted, detail, "run the same command again");
            runner.book.run_mut().flags.push(flag);
            Ok(Ended::Interrupted)
        }
        Err(e) => Ok(Ended::Not(e.to_string())),
    }
}

/// Keeps what a job of discards came to, where there are samples of before: `index` is the job.
pub(crate) fn by_job(
    runner: &mut Runner<'_>,
    before: &str,
    range: Bytes,
    samples: Option<&Samples>,
    index: usize,
) -> Result<(), NotebookError> {
    let cut = |f: &Flag| f.code == FlagCode::Interrupted;
    if runner.job(index).flags.iter().any(cut) {
        return Ok(());
    }
    let Some(compared) = samples.and_then(|s| runner.compare(s)) else {
        return Ok(());
    };
    let job = runner.job(index);
    let trims = job.trim.as_ref().map_or(0, |t| t.ios);
    let purged = Purged {
        method: Method::Discard,
        bytes: range,
        reached: Vec::new(),
        took: Nanos(job.wall_ns),
        answer: match trims {
            1 => "the device took one discard".into(),
            n => format!("the device took {n} discards"),
        },
        found_going_on: false,
        promise: None,
        samples: Some(compared),
    };
    keep(runner, before, purged)
}

/// Saves it, with what stands against it.
pub(crate) fn keep(
    runner: &mut Runner<'_>,
    before: &str,
    purged: Purged,
) -> Result<(), NotebookError> {
    let result = PurgeResult {
        before: before.to_owned(),
        purged,
    };
    let flag = result.flag();
    runner.book.run_mut().flags.extend(flag);
    runner.book.found(&result)
}

impl PurgeResult {
    /// What stands against it.
    fn flag(&self) -> Option<Flag> {
        let read_as_before = |c: &Compared| c.same > 0;
        let samples = self.purged.samples.filter(read_as_before)?;
        Some(Flag::new(
            FlagCode::NotChecked,
            format!(
                "the purge by {} left old data: {}",
                self.purged.method,
                samples.sentence()
            ),
            "purge in another way (--purge format, sanitize-block or zeroes)",
        ))
    }

    fn sentence(&self) -> String {
        let p = &self.purged;
        let verified = match &p.samples {
            Some(c) => format!("{}.", c.sentence()),
            None => "what it reads as now was not compared.".to_owned(),
        };
        let also = match p.reached.as_slice() {
            [] => String::new(),
            all => format!(", and {} with it", all.join(", ")),
        };
        let how = match p.found_going_on {
            true => format!(
                "was found being purged by {}, and waited for {}",
                p.method, p.took
            ),
            false => format!("was purged by {} in {}", p.method, p.took),
        };
        format!(
            "The target ({}{also}) {how}: {}; {verified}",
            p.bytes, p.answer
        )
    }
}

impl ExperimentResult for PurgeResult {
    const EXPERIMENT: &'static str = "purge";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        let p = &self.purged;
        let id = format!("purge-{}", self.before);
        let mut rows = vec![
            ("way", p.method.name().into()),
            ("emptied", p.bytes.to_string().into()),
            ("took", p.took.to_string().into()),
            ("answer", p.answer.clone().into()),
        ];
        if !p.reached.is_empty() {
            rows.push(("other namespaces emptied", p.reached.join(", ").into()));
        }
        let promise = match &p.promise {
            Some(what) => format!("deallocated blocks read as {what}"),
            None => "none".into(),
        };
        rows.push(("promise of the drive", promise.into()));
        if let Some(c) = &p.samples {
            rows.push(("samples", c.sentence().into()));
        }
        shown.sections.push(Section {
            id: id.clone(),
            title: format!("Purge before {}", self.before),
            text: "How the target was emptied, and what samples of it read as before and after."
                .into(),
            tables: vec![facts(&format!("{id}-facts"), "Purge", rows)],
            flags: self.flag().into_iter().collect(),
            ..Section::default()
        });
        shown.findings.push(Finding {
            id: id.clone(),
            text: self.sentence(),
            confidence: match &p.samples {
                Some(c) if c.held > 0 => "strong",
                _ => "moderate",
            }
            .into(),
            evidence: vec![id],
            refuted_by: "Old data, read from a place that was not sampled.".into(),
            ..Finding::default()
        });
    }
}

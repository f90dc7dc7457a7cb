//! What the course of a long job says of it: whether its level still moved, and whether it had two regimes.
//!
//! Only jobs that take what they can get are judged: the level of a schedule is the schedule's.

use fathom_io::driver::PlannedJob;
use fathom_stats::regimes::{Cause, Regimes, Window, regimes};
use fathom_stats::steady::{Question, Verdict, steadiness};
use fathom_telemetry::schema::{Finding, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use crate::results::{Evidence, ExperimentResult, Shown};

/// Windows that are kept of a job: a day of 100 ms.
pub(crate) const WINDOWS_MAX: usize = 864_000;
/// Shorter jobs describe a moment and are not judged.
pub(crate) const TIME_MIN: Nanos = Nanos::from_secs(10);
/// Rounds that a course is cut into.
const ROUNDS: usize = 40;
/// Largest drift over as much time again.
const TOLERANCE: f64 = 0.10;

/// Flags a job whose level still moved, and notes how warm the disk was; `celsius` are temperatures and the windows in which
/// they were read. Returns what is to be kept where it had a burst and a base.
pub(crate) fn judge(
    job: &mut Job,
    planned: &PlannedJob,
    course: &[f64],
    celsius: &[(usize, f64)],
    index: usize,
) -> Option<RegimesResult> {
    if let (Some(first), Some(last)) = (celsius.first(), celsius.last()) {
        job.engine_notes.push(format!(
            "disk at {:.0} °C at the start, {:.0} °C at the end",
            first.1, last.1
        ));
    }
    let spec = &planned.job.spec;
    let paced = spec.rate.is_some() || spec.burst.is_some() || spec.think.0 > 0;
    // Data of a trace comes when the trace says.
    if paced || planned.job.feed.is_some() || job.wall_ns < TIME_MIN.0 || !job.errors.is_empty() {
        return None;
    }
    let Rounds {
        windows: per_round,
        seconds,
        amounts: rounds,
    } = Rounds::of(course, spec.window)?;
    job.flags.extend(unsteady(&rounds, seconds));
    let windows: Vec<Window> = rounds
        .iter()
        .enumerate()
        .map(|(i, amount)| Window {
            amount: *amount,
            // The last that was read until the round's end.
            celsius: celsius
                .iter()
                .take_while(|c| c.0 < (i + 1) * per_round)
                .last()
                .map(|c| c.1),
        })
        .collect();
    Some(RegimesResult {
        job: index,
        regimes: regimes(&windows, seconds)?,
    })
}

/// A course in rounds of whole windows.
struct Rounds {
    /// Windows of each.
    windows: usize,
    /// Length of each.
    seconds: f64,
    amounts: Vec<f64>,
}

impl Rounds {
    /// The last window is rarely whole. `None` where there are too few.
    fn of(course: &[f64], window: Nanos) -> Option<Self> {
        let whole = course.get(..course.len().saturating_sub(1))?;
        let windows = whole.len() / ROUNDS;
        (windows > 0).then(|| Self {
            windows,
            seconds: window.as_secs_f64() * windows as f64,
            amounts: whole
                .chunks_exact(windows)
                .map(|c| c.iter().sum())
                .collect(),
        })
    }
}

fn unsteady(rounds: &[f64], seconds: f64) -> Option<Flag> {
    let question = Question::new(TOLERANCE, rounds.len() as f64);
    let Verdict::NotSteady(reasons) = steadiness(rounds, &question).verdict else {
        return None;
    };
    let why: Vec<String> = reasons.iter().map(|r| r.sentence()).collect();
    Some(Flag::new(
        FlagCode::NotSteady,
        format!(
            "not steady over {} rounds of {seconds:.1} s: {}",
            rounds.len(),
            why.join("; ")
        ),
        "condition the device first (fathom condition --until-steady), or run longer",
    ))
}

/// Flags a long load that something else than the driver drove, where its level still moved; `course` is the number of
/// operations in each window.
pub(crate) fn judge_load(job: &mut Job, course: &[f64], window: Nanos) {
    if job.wall_ns >= TIME_MIN.0 && job.errors.is_empty() {
        let rounds = Rounds::of(course, window);
        job.flags
            .extend(rounds.and_then(|r| unsteady(&r.amounts, r.seconds)));
    }
}

/// A long job that had a burst and a base.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegimesResult {
    job: usize,
    regimes: Regimes,
}

impl ExperimentResult for RegimesResult {
    const EXPERIMENT: &'static str = "regimes";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let (r, index) = (&self.regimes, self.job);
        let Some(job) = evidence.job(index) else {
            return;
        };
        shown.findings.push(Finding {
            id: format!("burst-and-base-{index}"),
            text: format!(
                "{} ran at {}/s until {} were transferred ({:.1} s), then at {}/s: {}.",
                job.name,
                Bytes(r.burst_per_second as u64),
                Bytes(r.burst_amount as u64),
                r.onset_seconds,
                Bytes(r.base_per_second as u64),
                why(r)
            ),
            advice: "plan sustained work by the second number".into(),
            confidence: "moderate".into(),
            jobs: vec![index],
            evidence: Vec::new(),
            refuted_by: "A longer run in which the first rate comes back without idle time.".into(),
            ..Finding::default()
        });
    }
}

/// Why the level fell.
pub fn why(r: &Regimes) -> String {
    match (r.cause, r.onset_celsius) {
        (Cause::Throttled, Some(c)) => format!("it was throttled at {c:.0} °C"),
        (Cause::UsedUp, Some(c)) => {
            format!("a cache or a credit was used up (the temperature was {c:.0} °C)")
        }
        _ => "a cache or a credit was used up, or the device slowed down: no temperature is known"
            .into(),
    }
}

//! Host idle recovery (PTS § 11): bursts of 4 KiB random writes with growing pauses; how much a pause gives back.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, table};
use fathom_io::JobSpec;
use fathom_io::job::{Arrival, Rw};
use fathom_telemetry::schema::{Headline, Section};

use super::steps::{CONDITIONING, Measured, Rounds, Steps, conditioning, load};
use super::tables::{convergence, headline, lines, mean_of, verification};
use super::{Found, Jobs, Loads, PtsOptions};

/// Pauses between bursts of 5 s, in seconds of the specification.
const PAUSES: [u32; 5] = [5, 10, 15, 25, 50];
/// A burst, in minutes.
const BURST: f64 = 5.0 / 60.0;

/// 4 KiB random writes of so many minutes.
fn writes(o: &PtsOptions, minutes: f64) -> JobSpec {
    JobSpec {
        threads: o.threads,
        qd: o.qd,
        ..load(o, Rw::RandWrite, 4 << 10, minutes)
    }
}

/// An hour of bursts and pauses of so many seconds, and what follows without pauses: names and loads.
fn hour(o: &PtsOptions, pause: u32) -> Vec<(String, JobSpec)> {
    let idle = f64::from(pause) / 60.0;
    // Idle but for one read at each end: the pause is kept by the same clock, also in virtual time.
    let pausing = JobSpec {
        rate: Some(1.0 / (0.999 * idle * o.unit.as_secs_f64())),
        arrival: Arrival::Constant,
        ..load(o, Rw::RandRead, 4 << 10, idle)
    };
    let mut all = Vec::new();
    for cycle in 1..=cycles(idle) {
        all.push((format!("{pause}s-burst-{cycle}"), writes(o, BURST)));
        all.push((format!("{pause}s-idle-{cycle}"), pausing.clone()));
    }
    all.push((format!("{pause}s-baseline"), writes(o, 30.0)));
    all
}

pub(super) fn loads(o: &PtsOptions) -> Loads {
    Loads {
        before: conditioning(o, CONDITIONING),
        round: vec![writes(o, 1.0)],
        after: PAUSES
            .iter()
            .flat_map(|p| hour(o, *p))
            .map(|l| l.1)
            .collect(),
    }
}

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition(CONDITIONING)? {
        return Ok(());
    }
    // Preconditioning by the same load until it is steady; its level is what pauses are held against.
    let rounds = steps.rounds(&["4 KiB write"], |steps, n| {
        let name = format!("precondition-{}", n + 1);
        let done = steps.job(&name, writes(steps.options, 1.0))?;
        Ok(done.map(|m| vec![m.iops]))
    })?;
    let mut states: Vec<(Vec<usize>, Option<usize>)> = Vec::new();
    for pause in PAUSES {
        let hour = hour(steps.options, pause);
        let all = hour.len();
        let jobs: Vec<usize> = steps.each(hour)?.iter().map(|m| m.job).collect();
        if jobs.len() + 1 < all {
            break;
        }
        // Bursts and pauses take turns; what follows them is the last.
        let after = jobs.get(all - 1).copied();
        states.push((jobs[..all - 1].iter().copied().step_by(2).collect(), after));
    }
    steps.keep(Jobs::Idle(states), Some(rounds))
}

/// Bursts with pauses of `idle` minutes in an hour.
fn cycles(idle: f64) -> usize {
    (60.0 / (BURST + idle)).round() as usize
}

pub(super) fn show(
    found: &Found<'_>,
    states: &[(Vec<usize>, Option<usize>)],
    rounds: &Rounds,
) -> (Section, Vec<Headline>) {
    let base = rounds.windows.first().map(|w| w.mean);
    let unit = found.options.unit.as_secs_f64();
    let states = states.iter().zip(PAUSES).map(|((jobs, after), pause)| {
        let after = after.and_then(|j| found.job(j)).map(|m| m.iops);
        (pause, found.jobs(jobs), after)
    });
    let states: Vec<(u32, Vec<Measured>, Option<f64>)> = states.collect();
    let mut at = 0.0;
    let mut courses = Vec::new();
    for (pause, bursts, _) in &states {
        let mut course = Vec::new();
        for m in bursts {
            course.push((at, m.iops));
            at += (BURST + f64::from(*pause) / 60.0) * unit;
        }
        at += 30.0 * unit;
        courses.push((format!("{pause} s idle"), course));
    }
    let level = |bursts: &[Measured]| mean_of(bursts, |m| m.iops);
    let section = Section {
        id: "pts-hir".into(),
        title: "PTS: host idle recovery".into(),
        text: "Bursts of 5 s of 4 KiB random writes with pauses of 5 to 50 s, an hour each, after preconditioning by the same load; half an hour of it without pauses after each.".into(),
        charts: vec![
            convergence("pts-hir-convergence", axis("IOPS", "IOPS", false), rounds),
            lines(
                "pts-hir-time",
                "IOPS of the bursts over time",
                axis("time", "s", false),
                axis("IOPS", "IOPS", false),
                courses,
            ),
        ],
        tables: vec![
            verification("pts-hir-verification", "IOPS", rounds),
            table(
                "pts-hir-table",
                "What pauses give back",
                &states,
                &[
                    ("pause", "s", &|s| s.0.into()),
                    ("bursts", "IOPS", &|s| level(&s.1).into()),
                    ("against no pause", "%", &|s| {
                        let both = level(&s.1).zip(base);
                        both.map(|(l, b)| 100.0 * (l / b - 1.0)).into()
                    }),
                    ("without pauses after it", "IOPS", &|s| s.2.into()),
                ],
            ),
        ],
        ..Section::default()
    };
    let headlines = states.iter().map(|(pause, bursts, _)| {
        headline(
            "PTS host idle recovery",
            &format!("hir-{pause}s"),
            &format!("4 KiB random write, {pause} s idle"),
            "IOPS",
            bursts,
            |m| m.iops,
        )
    });
    (section, headlines.collect())
}

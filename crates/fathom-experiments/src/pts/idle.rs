//! Host idle recovery (PTS § 11): bursts of 4 KiB random writes with growing pauses; how much a pause gives back.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, table};
use fathom_telemetry::schema::{Headline, Section};

use super::steps::{Measured, Rounds, Steps};
use super::tables::{convergence, headline, lines, mean_of, verification};
use super::{Found, Jobs};

/// Pauses between bursts of 5 s, in seconds of the specification.
const PAUSES: [u32; 5] = [5, 10, 15, 25, 50];
/// A burst, in minutes.
const BURST: f64 = 5.0 / 60.0;

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition("128k")? {
        return Ok(());
    }
    let write = |steps: &Steps<'_>| {
        vec![
            ("rw", "randwrite".to_owned()),
            ("bs", "4k".to_owned()),
            ("threads", steps.options.threads.to_string()),
            ("qd", steps.options.qd.to_string()),
        ]
    };
    // Preconditioning by the same load until it is steady; its level is what pauses are held against.
    let rounds = steps.rounds(&["4 KiB write"], |steps, n| {
        let options = write(steps);
        Ok(steps
            .job(&format!("precondition-{}", n + 1), 1.0, &options)?
            .map(|m| vec![m.iops]))
    })?;
    let unit = steps.options.unit.as_secs_f64();
    let mut states: Vec<(Vec<usize>, Option<usize>)> = Vec::new();
    'states: for pause in PAUSES {
        let idle = f64::from(pause) / 60.0;
        let mut jobs = Vec::new();
        for cycle in 0..cycles(idle) {
            let options = write(steps);
            let Some(m) = steps.job(&format!("{pause}s-burst-{}", cycle + 1), BURST, &options)?
            else {
                break 'states;
            };
            jobs.push(m.job);
            // Idle but for one read at each end: the pause is kept by the same clock, also in virtual time.
            let seconds = idle * unit;
            let rate = 1.0 / (0.999 * seconds);
            let pausing = [
                ("rw", "randread".to_owned()),
                ("bs", "4k".to_owned()),
                ("rate", format!("{rate:.9}")),
                ("arrival", "constant".to_owned()),
            ];
            if steps
                .job(&format!("{pause}s-idle-{}", cycle + 1), idle, &pausing)?
                .is_none()
            {
                break 'states;
            }
        }
        let options = write(steps);
        let after = steps.job(&format!("{pause}s-baseline"), 30.0, &options)?;
        states.push((jobs, after.map(|m| m.job)));
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

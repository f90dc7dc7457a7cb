//! Host idle recovery (PTS § 11): bursts of 4 KiB random writes with growing pauses; how much a pause gives back.

use fathom_telemetry::schema::{Cell, Section, Table};

use super::steps::Steps;
use super::tables::{cell, convergence, headline, lines, mean, verification};
use crate::notebook::NotebookError;
use crate::parts::{axis, column};

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
    let base = rounds.windows.first().map(|w| w.mean);
    let unit = steps.options.unit.as_secs_f64();
    let mut at = 0.0;
    let mut courses = Vec::new();
    let mut levels: Vec<(Vec<f64>, Vec<usize>, Option<f64>)> = Vec::new();
    'states: for pause in PAUSES {
        let idle = f64::from(pause) / 60.0;
        let cycles = (60.0 / (BURST + idle)).round() as usize;
        let (mut course, mut jobs) = (Vec::new(), Vec::new());
        for cycle in 0..cycles {
            let options = write(steps);
            let Some(m) = steps.job(&format!("{pause}s-burst-{}", cycle + 1), BURST, &options)?
            else {
                break 'states;
            };
            course.push((at, m.iops));
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
            at += (BURST + idle) * unit;
        }
        let options = write(steps);
        let after = steps.job(&format!("{pause}s-baseline"), 30.0, &options)?;
        at += 30.0 * unit;
        levels.push((
            course.iter().map(|c| c.1).collect(),
            jobs,
            after.map(|m| m.iops),
        ));
        courses.push((format!("{pause} s idle"), course));
    }
    let rows = levels
        .iter()
        .zip(PAUSES)
        .map(|(l, pause)| {
            let level = mean(&l.0);
            vec![
                Cell::Number(f64::from(pause)),
                cell(level),
                cell(level.zip(base).map(|(l, b)| 100.0 * (l / b - 1.0))),
                cell(l.2),
            ]
        })
        .collect();
    let section = Section {
        id: "pts-hir".into(),
        title: "PTS: host idle recovery".into(),
        text: "Bursts of 5 s of 4 KiB random writes with pauses of 5 to 50 s, an hour each, after preconditioning by the same load; half an hour of it without pauses after each.".into(),
        charts: vec![
            convergence("pts-hir-convergence", axis("IOPS", "1/s", false), &rounds),
            lines(
                "pts-hir-time",
                "IOPS of the bursts over time",
                axis("time", "s", false),
                axis("IOPS", "1/s", false),
                courses,
            ),
        ],
        tables: vec![
            verification("pts-hir-verification", "1/s", &rounds),
            Table {
                id: "pts-hir-table".into(),
                title: "What pauses give back".into(),
                columns: vec![
                    column("pause", "s"),
                    column("bursts", "1/s"),
                    column("against no pause", "%"),
                    column("without pauses after it", "1/s"),
                ],
                rows,
            },
        ],
        ..Section::default()
    };
    let headlines = levels
        .into_iter()
        .zip(PAUSES)
        .map(|((values, jobs, _), pause)| {
            headline(
                "PTS host idle recovery",
                &format!("hir-{pause}s"),
                &format!("4 KiB random write, {pause} s idle"),
                "1/s",
                &values,
                jobs,
            )
        })
        .collect();
    steps.report(section, headlines, Some(&rounds));
    Ok(())
}

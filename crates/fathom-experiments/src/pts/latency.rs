//! Latency (PTS § 9): 0.5, 4 and 8 KiB × reads, 65/35 and writes at one outstanding I/O, until steady.

use fathom_telemetry::schema::{Cell, Section, Table};

use super::steps::Steps;
use super::tables::{cell, convergence, headline, mean, size, verification};
use crate::notebook::NotebookError;
use crate::parts::{axis, column};

const SHARES: [u32; 3] = [100, 65, 0];
const SIZES: [u64; 3] = [8 << 10, 4 << 10, 512];

/// Mean and largest latency and the job of every cell.
type Round = [[Option<(f64, f64, usize)>; 3]; 3];

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition("128k")? {
        return Ok(());
    }
    let mut all: Vec<Round> = Vec::new();
    let rounds = steps.rounds(&["4 KiB write, mean latency"], |steps, n| {
        let mut round: Round = [[None; 3]; 3];
        for (s, share) in SHARES.iter().enumerate() {
            for (b, bs) in SIZES.iter().enumerate() {
                if !steps.allows(*bs) {
                    continue;
                }
                let Some(m) = steps.job(
                    &format!("{share}r-{}-{}", size(*bs).replace(' ', ""), n + 1),
                    1.0,
                    &[
                        ("rw", "randrw".into()),
                        ("read-share", share.to_string()),
                        ("bs", bs.to_string()),
                    ],
                )?
                else {
                    return Ok(None);
                };
                round[s][b] = Some((m.mean_ns, m.max_ns, m.job));
            }
        }
        all.push(round);
        Ok(Some(vec![round[2][1].map_or(0.0, |c| c.0)]))
    })?;
    let window = all.get(rounds.window()).unwrap_or_default();
    let means = |s: usize, b: usize| -> Vec<f64> {
        window.iter().filter_map(|r| Some(r[s][b]?.0)).collect()
    };
    let largest = |s: usize, b: usize| -> Option<f64> {
        window
            .iter()
            .filter_map(|r| Some(r[s][b]?.1))
            .reduce(f64::max)
    };
    let jobs = |s: usize, b: usize| -> Vec<usize> {
        window.iter().filter_map(|r| Some(r[s][b]?.2)).collect()
    };
    let table = |id: &str, title: &str, value: &dyn Fn(usize, usize) -> Option<f64>| Table {
        id: id.into(),
        title: title.into(),
        columns: std::iter::once(column("block size", ""))
            .chain(
                SHARES
                    .iter()
                    .map(|s| column(&format!("{s}/{}", 100 - s), "ns")),
            )
            .collect(),
        rows: SIZES
            .iter()
            .enumerate()
            .map(|(b, bs)| {
                std::iter::once(Cell::Text(size(*bs)))
                    .chain((0..3).map(|s| cell(value(s, b))))
                    .collect()
            })
            .collect(),
    };
    let section = Section {
        id: "pts-lat".into(),
        title: "PTS: latency".into(),
        text: "Random I/O of one thread with one outstanding; a minute per cell; means and maxima over the last five rounds.".into(),
        charts: vec![convergence(
            "pts-lat-convergence",
            axis("mean latency", "ns", false),
            &rounds,
        )],
        tables: vec![
            verification("pts-lat-verification", "ns", &rounds),
            table("pts-lat-mean", "Mean latency by block size and reads/writes", &|s, b| mean(&means(s, b))),
            table("pts-lat-max", "Largest latency by block size and reads/writes", &largest),
        ],
        ..Section::default()
    };
    let headlines = [(0, "4 KiB random read"), (2, "4 KiB random write")].map(|(s, label)| {
        headline(
            "PTS latency",
            &format!("lat-{}r-4k", SHARES[s]),
            label,
            "ns",
            &means(s, 1),
            jobs(s, 1),
        )
    });
    steps.report(section, headlines.into(), Some(&rounds));
    Ok(())
}

//! Throughput (PTS § 8): sequential reads and writes of 1 MiB and 128 KiB, each after a purge and its own
//! conditioning, until steady.

use fathom_telemetry::schema::{Cell, Section, Table};

use super::steps::Steps;
use super::tables::{cell, convergence, headline, mean, verification};
use crate::notebook::NotebookError;
use crate::parts::{axis, column};

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    let qd = (steps.options.threads * steps.options.qd).to_string();
    for (bs, label) in [("1m", "1 MiB"), ("128k", "128 KiB")] {
        steps.purge()?;
        if !steps.condition(bs)? {
            return Ok(());
        }
        let mut both: Vec<[(f64, usize); 2]> = Vec::new();
        let names = [format!("{label} read"), format!("{label} write")];
        let rounds = steps.rounds(&[names[0].as_str(), names[1].as_str()], |steps, n| {
            let mut round = [(0.0, 0); 2];
            for (slot, rw) in round.iter_mut().zip(["read", "write"]) {
                let Some(m) = steps.job(
                    &format!("{rw}-{bs}-{}", n + 1),
                    1.0,
                    &[("rw", rw.into()), ("bs", bs.into()), ("qd", qd.clone())],
                )?
                else {
                    return Ok(None);
                };
                *slot = (m.bytes_per_second, m.job);
            }
            both.push(round);
            Ok(Some(round.iter().map(|r| r.0).collect()))
        })?;
        let window = both.get(rounds.window()).unwrap_or_default();
        let values = |i: usize| -> Vec<f64> { window.iter().map(|r| r[i].0).collect() };
        let jobs = |i: usize| -> Vec<usize> { window.iter().map(|r| r[i].1).collect() };
        let section = Section {
            id: format!("pts-tp-{bs}"),
            title: format!("PTS: throughput, {label}"),
            text: format!(
                "Sequential, one thread × {qd} outstanding, after 2 × the range of sequential writes of {label}; a minute per cell; means over the last five rounds."
            ),
            charts: vec![convergence(
                &format!("pts-tp-{bs}-convergence"),
                axis("throughput", "bytes/s", false),
                &rounds,
            )],
            tables: vec![
                verification(&format!("pts-tp-{bs}-verification"), "bytes/s", &rounds),
                Table {
                    id: format!("pts-tp-{bs}-table"),
                    title: "Throughput".into(),
                    columns: vec![column("direction", ""), column("throughput", "bytes/s")],
                    rows: (0..2)
                        .map(|i| vec![Cell::Text(names[i].clone()), cell(mean(&values(i)))])
                        .collect(),
                },
            ],
            ..Section::default()
        };
        let headlines = (0..2)
            .map(|i| {
                headline(
                    "PTS throughput",
                    &format!("tp-{bs}-{}", ["read", "write"][i]),
                    &names[i],
                    "bytes/s",
                    &values(i),
                    jobs(i),
                )
            })
            .collect();
        steps.report(section, headlines, Some(&rounds));
    }
    Ok(())
}

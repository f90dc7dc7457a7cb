//! Throughput (PTS § 8): sequential reads and writes of 1 MiB and 128 KiB, each after a purge and its own
//! conditioning, until steady.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, table};
use fathom_telemetry::schema::{Headline, Section};

use super::steps::{Measured, Rounds, Steps};
use super::tables::{convergence, headline, mean_of, verification};
use super::{Found, Jobs};

/// Block sizes as a job has them, and for people.
const SIZES: [(&str, &str); 2] = [("1m", "1 MiB"), ("128k", "128 KiB")];

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    let qd = (steps.options.threads * steps.options.qd).to_string();
    for (bs, label) in SIZES {
        steps.purge()?;
        if !steps.condition(bs)? {
            return Ok(());
        }
        let mut both: Vec<[usize; 2]> = Vec::new();
        let names = ["read", "write"].map(|rw| format!("{label} {rw}"));
        let rounds = steps.rounds(&[&names[0], &names[1]], |steps, n| {
            let (mut jobs, mut rates) = ([0; 2], Vec::new());
            for (job, rw) in jobs.iter_mut().zip(["read", "write"]) {
                let Some(m) = steps.job(
                    &format!("{rw}-{bs}-{}", n + 1),
                    1.0,
                    &[("rw", rw.into()), ("bs", bs.into()), ("qd", qd.clone())],
                )?
                else {
                    return Ok(None);
                };
                *job = m.job;
                rates.push(m.bytes_per_second);
            }
            both.push(jobs);
            Ok(Some(rates))
        })?;
        steps.keep(Jobs::Throughput(bs.into(), both), Some(rounds))?;
    }
    Ok(())
}

pub(super) fn show(
    found: &Found<'_>,
    bs: &str,
    both: &[[usize; 2]],
    rounds: &Rounds,
) -> (Section, Vec<Headline>) {
    let qd = found.options.threads * found.options.qd;
    let label = SIZES.iter().find(|s| s.0 == bs).map_or(bs, |s| s.1);
    let window = both.get(rounds.window()).unwrap_or_default();
    let directions = ["read", "write"].iter().enumerate().map(|(i, rw)| {
        let jobs: Vec<usize> = window.iter().map(|r| r[i]).collect();
        (*rw, format!("{label} {rw}"), found.jobs(&jobs))
    });
    let directions: Vec<(&str, String, Vec<Measured>)> = directions.collect();
    let section = Section {
        id: format!("pts-tp-{bs}"),
        title: format!("PTS: throughput, {label}"),
        text: format!(
            "Sequential, one thread × {qd} outstanding, after 2 × the range of sequential writes of {label}; a minute per cell; means over the last five rounds."
        ),
        charts: vec![convergence(
            &format!("pts-tp-{bs}-convergence"),
            axis("throughput", "bytes/s", false),
            rounds,
        )],
        tables: vec![
            verification(&format!("pts-tp-{bs}-verification"), "bytes/s", rounds),
            table(
                &format!("pts-tp-{bs}-table"),
                "Throughput",
                &directions,
                &[
                    ("direction", "", &|d| d.1.as_str().into()),
                    ("throughput", "bytes/s", &|d| {
                        mean_of(&d.2, |m| m.bytes_per_second).into()
                    }),
                ],
            ),
        ],
        ..Section::default()
    };
    let headlines = directions.iter().map(|(rw, name, jobs)| {
        let id = format!("tp-{bs}-{rw}");
        headline("PTS throughput", &id, name, "bytes/s", jobs, |m| {
            m.bytes_per_second
        })
    });
    (section, headlines.collect())
}

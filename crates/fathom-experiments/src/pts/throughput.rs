//! Throughput (PTS § 8): sequential reads and writes of 1 MiB and 128 KiB, each after a purge and its own
//! conditioning, until steady.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, table};
use fathom_io::JobSpec;
use fathom_io::job::Rw;
use fathom_telemetry::schema::{Headline, Section};

use super::steps::{Measured, Rounds, Steps, conditioning, load};
use super::tables::{convergence, headline, mean_of, verification};
use super::{Found, Jobs, Loads, PtsOptions};

/// Block sizes: in bytes, as saved, and for people.
const SIZES: [(u64, &str, &str); 2] = [(1 << 20, "1m", "1 MiB"), (128 << 10, "128k", "128 KiB")];

/// Reads and writes of a size.
fn both(o: &PtsOptions, bs: u64) -> [(&'static str, JobSpec); 2] {
    [("read", Rw::Read), ("write", Rw::Write)].map(|(name, rw)| {
        let qd = o.threads * o.qd;
        let spec = JobSpec {
            qd,
            ..load(o, rw, bs, 1.0)
        };
        (name, spec)
    })
}

pub(super) fn loads(o: &PtsOptions) -> Loads {
    let sizes = SIZES.iter();
    Loads {
        before: sizes.clone().flat_map(|s| conditioning(o, s.0)).collect(),
        round: sizes.flat_map(|s| both(o, s.0).map(|b| b.1)).collect(),
        ..Loads::default()
    }
}

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    for (bytes, bs, label) in SIZES {
        steps.purge()?;
        if !steps.condition(bytes)? {
            return Ok(());
        }
        let mut all: Vec<[usize; 2]> = Vec::new();
        let names = ["read", "write"].map(|rw| format!("{label} {rw}"));
        let rounds = steps.rounds(&[&names[0], &names[1]], |steps, n| {
            let loads = both(steps.options, bytes);
            let loads = loads.map(|(rw, spec)| (format!("{rw}-{bs}-{}", n + 1), spec));
            let found = steps.each(loads)?;
            let [read, write] = found[..] else {
                return Ok(None);
            };
            all.push([read.job, write.job]);
            Ok(Some([read, write].map(|m| m.bytes_per_second).to_vec()))
        })?;
        steps.keep(Jobs::Throughput(bs.into(), all), Some(rounds))?;
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
    let label = SIZES.iter().find(|s| s.1 == bs).map_or(bs, |s| s.2);
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

//! Latency (PTS § 9): 0.5, 4 and 8 KiB × reads, 65/35 and writes at one outstanding I/O, until steady.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::axis;
use fathom_telemetry::schema::{Headline, Section};

use super::steps::{Rounds, Steps};
use super::tables::{by_size, convergence, headline, mean_of, size, verification};
use super::{Found, Jobs};

const SHARES: [u32; 3] = [100, 65, 0];
const SIZES: [u64; 3] = [8 << 10, 4 << 10, 512];

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition("128k")? {
        return Ok(());
    }
    let mut all: Vec<Vec<Option<usize>>> = Vec::new();
    let rounds = steps.rounds(&["4 KiB write, mean latency"], |steps, n| {
        let mut round = Vec::new();
        let mut tracked = 0.0;
        for share in SHARES {
            for bs in SIZES {
                if !steps.allows(bs) {
                    round.push(None);
                    continue;
                }
                let Some(m) = steps.job(
                    &format!("{share}r-{}-{}", size(bs).replace(' ', ""), n + 1),
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
                round.push(Some(m.job));
                if (share, bs) == (0, 4 << 10) {
                    tracked = m.mean_ns;
                }
            }
        }
        all.push(round);
        Ok(Some(vec![tracked]))
    })?;
    steps.keep(Jobs::Latency(all), Some(rounds))
}

pub(super) fn show(
    found: &Found<'_>,
    all: &[Vec<Option<usize>>],
    rounds: &Rounds,
) -> (Section, Vec<Headline>) {
    let cell = |s: usize, b: usize| found.window(all, rounds, s * SIZES.len() + b);
    let most = |s: usize, b: usize| cell(s, b).iter().map(|m| m.max_ns).reduce(f64::max);
    let cells: (&[u32], &[u64]) = (&SHARES, &SIZES);
    let section = Section {
        id: "pts-lat".into(),
        title: "PTS: latency".into(),
        text: "Random I/O of one thread with one outstanding; a minute per cell; means and maxima over the last five rounds.".into(),
        charts: vec![convergence(
            "pts-lat-convergence",
            axis("mean latency", "ns", false),
            rounds,
        )],
        tables: vec![
            verification("pts-lat-verification", "ns", rounds),
            by_size("pts-lat-mean", "Mean latency by block size and reads/writes", "ns", cells, |s, b| {
                mean_of(&cell(s, b), |m| m.mean_ns)
            }),
            by_size("pts-lat-max", "Largest latency by block size and reads/writes", "ns", cells, most),
        ],
        ..Section::default()
    };
    let headlines = [(0, "4 KiB random read"), (2, "4 KiB random write")].map(|(s, label)| {
        let id = format!("lat-{}r-4k", SHARES[s]);
        headline("PTS latency", &id, label, "ns", &cell(s, 1), |m| m.mean_ns)
    });
    (section, headlines.into())
}

//! Latency (PTS § 9): 0.5, 4 and 8 KiB × reads, 65/35 and writes at one outstanding I/O, until steady.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::axis;
use fathom_telemetry::schema::{Headline, Section};

use super::steps::{CONDITIONING, Rounds, Steps, cells, conditioning, grids, mixed};
use super::tables::{by_size, convergence, headline, mean_of, verification};
use super::{Found, Jobs, Loads, PtsOptions};

const SHARES: [u32; 3] = [100, 65, 0];
const SIZES: [u64; 3] = [8 << 10, 4 << 10, 512];

pub(super) fn loads(o: &PtsOptions) -> Loads {
    let round = cells(&SHARES, &SIZES).map(|(share, bs)| mixed(o, share, bs, 1, 1));
    Loads {
        before: conditioning(o, CONDITIONING),
        round: round.collect(),
        ..Loads::default()
    }
}

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    let o = steps.options;
    let load = |share, bs| mixed(o, share, bs, 1, 1);
    let tracked = (&["4 KiB write, mean latency"][..], &[(0, 4 << 10)][..]);
    match grids(steps, (&SHARES, &SIZES), load, tracked, |m| m.mean_ns)? {
        Some((all, rounds)) => steps.keep(Jobs::Latency(all), Some(rounds)),
        None => Ok(()),
    }
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

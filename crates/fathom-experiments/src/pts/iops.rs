//! IOPS (PTS § 7): seven shares of reads × eight block sizes, random, a minute each, until steady.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, chart, series};
use fathom_telemetry::schema::{Chart, ChartKind, Headline, Point, Section};

use super::steps::{CONDITIONING, Rounds, Steps, cells, conditioning, grids, mixed};
use super::tables::{by_size, convergence, headline, lines, mean_of, verification};
use super::{Found, Jobs, Loads, PtsOptions};

/// Shares of reads, percent, in the specification's order.
pub(super) const SHARES: [u32; 7] = [100, 95, 65, 50, 35, 5, 0];
/// Block sizes, in the specification's order.
pub(super) const SIZES: [u64; 8] = [
    1 << 20,
    128 << 10,
    64 << 10,
    32 << 10,
    16 << 10,
    8 << 10,
    4 << 10,
    512,
];
/// What steadiness is tracked by: share and size.
const TRACKED: [(u32, u64, &str); 3] = [
    (0, 4 << 10, "4 KiB write"),
    (65, 64 << 10, "64 KiB 65/35"),
    (100, 1 << 20, "1 MiB read"),
];

pub(super) fn loads(o: &PtsOptions) -> Loads {
    let round = cells(&SHARES, &SIZES).map(|(share, bs)| mixed(o, share, bs, o.threads, o.qd));
    Loads {
        before: conditioning(o, CONDITIONING),
        round: round.collect(),
        ..Loads::default()
    }
}

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    let o = steps.options;
    let load = |share, bs| mixed(o, share, bs, o.threads, o.qd);
    let tracked: Vec<(u32, u64)> = TRACKED.iter().map(|t| (t.0, t.1)).collect();
    let names = TRACKED.map(|t| t.2);
    let found = grids(steps, (&SHARES, &SIZES), load, (&names, &tracked), |m| {
        m.iops
    })?;
    match found {
        Some((all, rounds)) => steps.keep(Jobs::Iops(all), Some(rounds)),
        None => Ok(()),
    }
}

pub(super) fn show(
    found: &Found<'_>,
    all: &[Vec<Option<usize>>],
    rounds: &Rounds,
) -> (Section, Vec<Headline>) {
    let PtsOptions { threads, qd, .. } = found.options;
    let cell = |s: usize, b: usize| found.window(all, rounds, s * SIZES.len() + b);
    let value = |s: usize, b: usize| mean_of(&cell(s, b), |m| m.iops);
    let curve = |(s, share): (usize, &u32)| {
        let points = SIZES
            .iter()
            .enumerate()
            .filter_map(|(b, bs)| Some((*bs as f64, value(s, b)?)))
            .collect();
        (format!("{share}/{}", 100 - share), points)
    };
    let section = Section {
        id: "pts-iops".into(),
        title: "PTS: IOPS".into(),
        text: format!(
            "Random I/O of {threads} threads × {qd} outstanding after 2 × the range of 128 KiB sequential writes; a minute per cell; means over the last five rounds."
        ),
        charts: vec![
            convergence("pts-iops-convergence", axis("IOPS", "IOPS", true), rounds),
            lines(
                "pts-iops-by-size",
                "IOPS by block size",
                axis("block size", "bytes", true),
                axis("IOPS", "IOPS", true),
                SHARES.iter().enumerate().map(curve).collect(),
            ),
            map(value),
        ],
        tables: vec![
            verification("pts-iops-verification", "IOPS", rounds),
            by_size(
                "pts-iops-table",
                "IOPS by block size and reads/writes",
                "IOPS",
                (&SHARES, &SIZES),
                value,
            ),
        ],
        ..Section::default()
    };
    let headlines = [
        (0, 6, "4 KiB random read"),
        (2, 6, "4 KiB random, 65/35"),
        (6, 6, "4 KiB random write"),
    ]
    .map(|(s, b, label)| {
        let id = format!("iops-{}r-4k", SHARES[s]);
        headline("PTS IOPS", &id, label, "IOPS", &cell(s, b), |m| m.iops)
    });
    (section, headlines.into())
}

/// IOPS as colour over share of reads and block size.
fn map(value: impl Fn(usize, usize) -> Option<f64>) -> Chart {
    let mut points = Vec::new();
    for (s, share) in SHARES.iter().enumerate() {
        for (b, bs) in SIZES.iter().enumerate() {
            points.push(Point {
                x: f64::from(*share),
                y: Some(*bs as f64),
                z: value(s, b),
                ..Point::default()
            });
        }
    }
    Chart {
        z: Some(axis("IOPS", "IOPS", true)),
        ..chart(
            "pts-iops-map",
            "IOPS by block size and share of reads",
            ChartKind::Heatmap,
            axis("share of reads", "%", false),
            axis("block size", "bytes", true),
            vec![series("IOPS", points)],
        )
    }
}

//! IOPS (PTS § 7): seven shares of reads × eight block sizes, random, a minute each, until steady.

use fathom_telemetry::schema::{Chart, ChartKind, ChartSeries, Point, Section, Table};

use super::steps::Steps;
use super::tables::{cell, convergence, headline, lines, mean, size, verification};
use crate::notebook::NotebookError;
use crate::parts::{axis, column};

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

/// IOPS and jobs of every cell by round; a hole where the device cannot do the size.
type Cells = Vec<[[Option<(f64, usize)>; 8]; 7]>;

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition("128k")? {
        return Ok(());
    }
    let mut cells: Cells = Vec::new();
    let (threads, qd) = (steps.options.threads, steps.options.qd);
    let rounds = steps.rounds(&TRACKED.map(|t| t.2), |steps, n| {
        let mut round = [[None; 8]; 7];
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
                        ("threads", threads.to_string()),
                        ("qd", qd.to_string()),
                    ],
                )?
                else {
                    return Ok(None);
                };
                round[s][b] = Some((m.iops, m.job));
            }
        }
        cells.push(round);
        let value = |share: u32, bs: u64| {
            let s = SHARES.iter().position(|x| *x == share)?;
            let b = SIZES.iter().position(|x| *x == bs)?;
            Some(round[s][b]?.0)
        };
        Ok(Some(
            TRACKED
                .iter()
                .map(|(share, bs, _)| value(*share, *bs).unwrap_or(0.0))
                .collect(),
        ))
    })?;
    let window = cells.get(rounds.window()).unwrap_or_default();
    let values = |s: usize, b: usize| -> Vec<f64> {
        window.iter().filter_map(|r| Some(r[s][b]?.0)).collect()
    };
    let jobs = |s: usize, b: usize| -> Vec<usize> {
        window.iter().filter_map(|r| Some(r[s][b]?.1)).collect()
    };
    let columns = std::iter::once(column("block size", ""))
        .chain(
            SHARES
                .iter()
                .map(|s| column(&format!("{s}/{}", 100 - s), "1/s")),
        )
        .collect();
    let rows = SIZES
        .iter()
        .enumerate()
        .map(|(b, bs)| {
            std::iter::once(fathom_telemetry::schema::Cell::Text(size(*bs)))
                .chain((0..SHARES.len()).map(|s| cell(mean(&values(s, b)))))
                .collect()
        })
        .collect();
    let by_size = SHARES
        .iter()
        .enumerate()
        .map(|(s, share)| {
            let points = SIZES
                .iter()
                .enumerate()
                .filter_map(|(b, bs)| Some((*bs as f64, mean(&values(s, b))?)))
                .collect();
            (format!("{share}/{}", 100 - share), points)
        })
        .collect();
    let map = Chart {
        id: "pts-iops-map".into(),
        title: "IOPS by block size and share of reads".into(),
        kind: ChartKind::Heatmap,
        x: axis("share of reads", "%", false),
        y: axis("block size", "bytes", true),
        z: Some(axis("IOPS", "1/s", true)),
        categories: Vec::new(),
        series: vec![ChartSeries {
            name: "IOPS".into(),
            points: SHARES
                .iter()
                .enumerate()
                .flat_map(|(s, share)| {
                    let values = &values;
                    SIZES.iter().enumerate().map(move |(b, bs)| Point {
                        x: f64::from(*share),
                        y: Some(*bs as f64),
                        z: mean(&values(s, b)),
                        ..Point::default()
                    })
                })
                .collect(),
        }],
        marks: Vec::new(),
    };
    let section = Section {
        id: "pts-iops".into(),
        title: "PTS: IOPS".into(),
        text: format!(
            "Random I/O of {threads} threads × {qd} outstanding after 2 × the range of 128 KiB sequential writes; a minute per cell; means over the last five rounds."
        ),
        charts: vec![
            convergence("pts-iops-convergence", axis("IOPS", "1/s", true), &rounds),
            lines(
                "pts-iops-by-size",
                "IOPS by block size",
                axis("block size", "bytes", true),
                axis("IOPS", "1/s", true),
                by_size,
            ),
            map,
        ],
        tables: vec![
            verification("pts-iops-verification", "1/s", &rounds),
            Table {
                id: "pts-iops-table".into(),
                title: "IOPS by block size and reads/writes".into(),
                columns,
                rows,
            },
        ],
        ..Section::default()
    };
    let headlines = [
        (0, 6, "4 KiB random read"),
        (2, 6, "4 KiB random, 65/35"),
        (6, 6, "4 KiB random write"),
    ]
    .map(|(s, b, label)| {
        headline(
            "PTS IOPS",
            &format!("iops-{}r-4k", SHARES[s]),
            label,
            "1/s",
            &values(s, b),
            jobs(s, b),
        )
    });
    steps.report(section, headlines.into(), Some(&rounds));
    Ok(())
}

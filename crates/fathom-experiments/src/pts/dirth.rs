//! Demand intensity and response time histogram (PTS client 2.0 § 13): 4 KiB 65/35 over threads × depth, then the
//! distribution of response times at the least, a middle and the largest demand.

use fathom_telemetry::schema::{Cell, Section, Table};
use fathom_telemetry::{Histogram, histogram};

use super::steps::Steps;
use super::tables::{cell, convergence, headline, lines, mean, verification};
use crate::notebook::NotebookError;
use crate::parts::{axis, column};

const STEPS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// IOPS and mean latency of every threads × depth.
type Grid = [[(f64, f64); 6]; 6];

fn load(threads: u32, qd: u32) -> Vec<(&'static str, String)> {
    vec![
        ("rw", "randrw".into()),
        ("read-share", "65".into()),
        ("bs", "4k".into()),
        ("threads", threads.to_string()),
        ("qd", qd.to_string()),
    ]
}

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition("128k")? {
        return Ok(());
    }
    // The heaviest load conditions before the grid begins.
    for n in 0..5 {
        if steps
            .job(&format!("precondition-{}", n + 1), 1.0, &load(32, 32))?
            .is_none()
        {
            return Ok(());
        }
    }
    let mut grids: Vec<Grid> = Vec::new();
    let rounds = steps.rounds(&["1 × 1", "4 × 8", "32 × 32"], |steps, n| {
        let mut grid: Grid = [[(0.0, 0.0); 6]; 6];
        for (t, threads) in STEPS.iter().enumerate().rev() {
            for (q, qd) in STEPS.iter().enumerate().rev() {
                let name = format!("{threads}x{qd}-{}", n + 1);
                let Some(m) = steps.job(&name, 1.0, &load(*threads, *qd))? else {
                    return Ok(None);
                };
                grid[t][q] = (m.iops, m.mean_ns);
            }
        }
        grids.push(grid);
        Ok(Some(vec![grid[0][0].0, grid[2][3].0, grid[5][5].0]))
    })?;
    let window = grids.get(rounds.window()).unwrap_or_default();
    let over = |t: usize, q: usize, f: &dyn Fn(&(f64, f64)) -> f64| -> Option<f64> {
        mean(&window.iter().map(|g| f(&g[t][q])).collect::<Vec<_>>())
    };
    let at = |t: usize, q: usize| Some((over(t, q, &|c| c.0)?, over(t, q, &|c| c.1)?));
    // Largest demand: most IOPS with a mean response under 5 ms. The middle one is nearest to half of it.
    let places = || (0..6).flat_map(|t| (0..6).map(move |q| (t, q)));
    let largest = places()
        .filter_map(|p| Some((p, at(p.0, p.1)?)))
        .filter(|(_, v)| v.1 <= 5e6)
        .max_by(|a, b| a.1.0.total_cmp(&b.1.0));
    let middle = largest.and_then(|(_, top)| {
        places()
            .filter_map(|p| Some((p, at(p.0, p.1)?)))
            .min_by(|a, b| {
                (a.1.0 - top.0 / 2.0)
                    .abs()
                    .total_cmp(&(b.1.0 - top.0 / 2.0).abs())
            })
    });
    let mut points = Vec::new();
    for (name, place) in [
        ("least", Some((0, 0))),
        ("middle", middle.map(|m| m.0)),
        ("largest", largest.map(|m| m.0)),
    ] {
        let Some((t, q)) = place else { continue };
        let (threads, qd) = (STEPS[t], STEPS[q]);
        let Some(m) = steps.job(&format!("histogram-{name}"), 10.0, &load(threads, qd))? else {
            break;
        };
        let mut all = Histogram::new();
        for h in steps.merged(m.job).into_iter().flatten().flatten() {
            all.merge(h);
        }
        points.push((format!("{name} ({threads} × {qd})"), m, all));
    }
    let curves = STEPS
        .iter()
        .enumerate()
        .map(|(t, threads)| {
            let points = (0..6).filter_map(|q| at(t, q)).collect();
            (format!("{threads} threads"), points)
        })
        .collect();
    let shares = points
        .iter()
        .map(|(name, _, h)| {
            let total = h.count().max(1) as f64;
            let buckets = h.to_sparse().buckets;
            let line = buckets
                .iter()
                .map(|(b, n)| {
                    (
                        histogram::lower_bound(*b as usize) as f64,
                        100.0 * *n as f64 / total,
                    )
                })
                .collect();
            (name.clone(), line)
        })
        .collect();
    let percentiles = |h: &Histogram| {
        [0.5, 0.99, 0.999, 0.9999].map(|q| {
            cell(
                h.quantile_supported(q, fathom_telemetry::summary::SAMPLES_BEYOND)
                    .map(|v| v as f64),
            )
        })
    };
    let section = Section {
        id: "pts-dirth".into(),
        title: "PTS: demand intensity and response time histogram".into(),
        text: "4 KiB random, 65 % reads, 1 to 32 threads × 1 to 32 outstanding after conditioning; then ten minutes at three demands.".into(),
        charts: vec![
            convergence("pts-dirth-convergence", axis("IOPS", "1/s", true), &rounds),
            lines(
                "pts-dirth-demand",
                "Response time by demand",
                axis("IOPS", "1/s", false),
                axis("mean response", "ns", true),
                curves,
            ),
            lines(
                "pts-dirth-histogram",
                "Response time histogram",
                axis("response", "ns", true),
                axis("share of I/Os", "%", false),
                shares,
            ),
        ],
        tables: vec![
            verification("pts-dirth-verification", "1/s", &rounds),
            Table {
                id: "pts-dirth-grid".into(),
                title: "IOPS by threads and outstanding I/Os of each".into(),
                columns: std::iter::once(column("threads", ""))
                    .chain(STEPS.iter().map(|q| column(&format!("QD {q}"), "1/s")))
                    .collect(),
                rows: (0..6)
                    .map(|t| {
                        std::iter::once(Cell::Number(f64::from(STEPS[t])))
                            .chain((0..6).map(|q| cell(at(t, q).map(|v| v.0))))
                            .collect()
                    })
                    .collect(),
            },
            Table {
                id: "pts-dirth-response".into(),
                title: "Response times".into(),
                columns: vec![
                    column("demand", ""),
                    column("IOPS", "1/s"),
                    column("mean", "ns"),
                    column("p50", "ns"),
                    column("p99", "ns"),
                    column("p99.9", "ns"),
                    column("p99.99", "ns"),
                    column("largest", "ns"),
                ],
                rows: points
                    .iter()
                    .map(|(name, m, h)| {
                        let mut row = vec![
                            Cell::Text(name.clone()),
                            Cell::Number(m.iops),
                            Cell::Number(m.mean_ns),
                        ];
                        row.extend(percentiles(h));
                        row.push(Cell::Number(m.max_ns));
                        row
                    })
                    .collect(),
            },
        ],
        ..Section::default()
    };
    let headlines = points
        .iter()
        .map(|(name, m, _)| {
            let id = name.split(' ').next().unwrap_or(name);
            headline(
                "PTS demand",
                &format!("dirth-{id}"),
                &format!("4 KiB 65/35, {name}"),
                "1/s",
                &[m.iops],
                vec![m.job],
            )
        })
        .collect();
    steps.report(section, headlines, Some(&rounds));
    Ok(())
}

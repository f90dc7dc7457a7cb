//! Queue-depth sweep 1…256: the throughput-latency curve of 4 KiB random reads.

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{self, axis, column, estimate, headline, number, point, series};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, Finding, Mark, Point, Section, Table,
};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Nanos, Op};

/// One pattern over all depths.
pub(super) struct DepthSweep;

/// Depths over all threads.
const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

impl Experiment for DepthSweep {
    fn id(&self) -> &'static str {
        "depth-sweep"
    }

    fn jobs(&self, plan: &Plan) -> Result<Vec<JobSpec>, JobError> {
        DEPTHS
            .iter()
            .map(|depth| {
                let (qd, threads) = plan.shared_out(*depth);
                plan.job(
                    &format!("sweep-qd{depth}"),
                    &[
                        ("rw", "randread"),
                        ("bs", "4k"),
                        ("qd", &qd),
                        ("threads", &threads),
                    ],
                )
            })
            .collect()
    }

    fn analyse(&self, cells: &[Cell]) -> Analysis {
        let mut a = Analysis {
            section: Section {
                id: self.id().into(),
                title: "Queue depth: throughput against latency".into(),
                text: "4 KiB random reads with more and more outstanding I/Os. Left of the knee more depth buys throughput; right of it only waiting.".into(),
                ..Section::default()
            },
            ..Analysis::default()
        };
        let labelled = |c: &Cell, x: f64, y: Option<f64>| Point {
            x,
            y,
            label: Some(format!("QD {}", depth(c))),
            ..Point::default()
        };
        let mut curve_mean = Vec::new();
        let mut curve_p99 = Vec::new();
        let mut iops = Vec::new();
        let mut latency = Vec::new();
        let mut rows = Vec::new();
        for c in cells {
            let (n, l) = (c.iops(), c.mean_latency());
            if let Some(n) = n {
                curve_mean.push(Point {
                    low: l.and_then(|e| e.low),
                    high: l.and_then(|e| e.high),
                    ..labelled(c, n.value, l.map(|e| e.value))
                });
                // Labels on one of the two lines are enough.
                curve_p99.push(Point {
                    label: None,
                    ..labelled(c, n.value, c.percentile(Op::Read, 0.99))
                });
            }
            iops.push(point(depth(c), n));
            latency.push(point(depth(c), l));
            rows.push(vec![
                TableCell::Number(depth(c)),
                estimate(c.estimate(|j| Some(j.qd_achieved))),
                estimate(n),
                estimate(l),
                number(c.percentile(Op::Read, 0.99)),
                number(c.percentile(Op::Read, 0.999)),
            ]);
        }
        let knee = knee(cells);
        let marks = knee
            .and_then(|k| {
                Some(Mark {
                    x: Some(cells[k].iops()?.value),
                    y: None,
                    label: format!("90 % at QD {}", depth(&cells[k])),
                })
            })
            .into_iter()
            .collect();
        let line = |id: &str, title: &str, x, y, series, marks| Chart {
            marks,
            ..parts::chart(id, title, ChartKind::Line, x, y, series)
        };
        a.section.charts = vec![
            line(
                "depth-curve",
                "Throughput-latency curve",
                axis("IOPS", "IOPS", false),
                axis("latency", "ns", true),
                vec![series("mean", curve_mean), series("p99", curve_p99)],
                marks,
            ),
            line(
                "depth-iops",
                "IOPS by depth",
                axis("outstanding I/Os", "", true),
                axis("IOPS", "IOPS", false),
                vec![series("random read", iops)],
                Vec::new(),
            ),
            line(
                "depth-latency",
                "Mean latency by depth",
                axis("outstanding I/Os", "", true),
                axis("latency", "ns", true),
                vec![series("random read", latency)],
                Vec::new(),
            ),
        ];
        a.section.tables.push(Table {
            id: "depth-table".into(),
            title: "Depth sweep".into(),
            columns: vec![
                column("requested QD", ""),
                column("achieved QD", ""),
                column("IOPS", "IOPS"),
                column("mean", "ns"),
                column("p99", "ns"),
                column("p99.9", "ns"),
            ],
            rows,
        });
        a.findings.extend(good_for(cells));
        if let Some(k) = knee {
            a.section.title = match cells.get(k + 1) {
                Some(_) => format!("Throughput stops growing at QD {}", depth(&cells[k])),
                None => format!("Throughput still grows at QD {}", depth(&cells[k])),
            };
        }
        if let Some(k) = knee
            && let (Some(n), Some(l), Some(last)) = (
                cells[k].iops(),
                cells[k].mean_latency(),
                cells.last().and_then(Cell::mean_latency),
            )
        {
            a.headlines.push(headline(
                &cells[k],
                "Maximum IOPS, 4 KiB",
                &format!("random read at QD {} (the knee)", depth(&cells[k])),
                "knee-iops",
                "IOPS",
                Some(n),
            ));
            a.findings.push(Finding {
                id: "knee".into(),
                text: format!(
                    "{} outstanding random reads give {} IOPS, at least 90 % of the maximum, at {} each; at depth 256 each takes {}.",
                    depth(&cells[k]),
                    grouped(n.value),
                    Nanos(l.value as u64),
                    Nanos(last.value as u64)
                ),
                advice: format!("Keep about {} I/Os outstanding; more adds waiting, not throughput.", depth(&cells[k])),
                confidence: if n.relative_half_width().is_some_and(|w| w < 0.1) { "strong" } else { "moderate" }.into(),
                jobs: cells[k].indices(),
                evidence: vec!["depth-curve".into(), "depth-table".into()],
                refuted_by: "fathom curve, which searches the knee with more points and in open loop, finding it elsewhere.".into(),
                ..Finding::default()
            });
        }
        a
    }
}

/// Outstanding I/Os over all threads.
fn depth(c: &Cell) -> f64 {
    f64::from(c.spec.qd * c.spec.threads)
}

/// What transactions that read may ask for: the most IOPS whose 99th percentile stays below the first objective that
/// any depth meets. Void jobs carry nothing.
fn good_for(cells: &[Cell]) -> Option<Finding> {
    const OBJECTIVES: [Nanos; 3] = [
        Nanos::from_millis(1),
        Nanos::from_millis(10),
        Nanos::from_millis(100),
    ];
    let (objective, cell, iops) = OBJECTIVES.iter().find_map(|objective| {
        let within = |c: &&Cell| {
            let p99 = c.percentile(Op::Read, 0.99);
            p99.is_some_and(|p99| p99 < objective.0 as f64)
        };
        // The lower end of the interval: what may be promised.
        let promised = |c: &Cell| c.iops().map(|e| e.low.unwrap_or(e.value));
        let best = cells.iter().filter(within);
        let best = best.filter_map(|c| Some((c, promised(c)?)));
        let all: Vec<_> = best.collect();
        let most = all.iter().map(|b| b.1).reduce(f64::max)?;
        // More depth for the same throughput is only more waiting.
        let (cell, iops) = *all.iter().find(|b| b.1 >= 0.98 * most)?;
        Some((objective, cell, iops))
    })?;
    Some(Finding {
        id: "good-for-reads".into(),
        text: format!(
            "Random 4 KiB reads, as of transactions, up to {} IOPS with a p99 below {objective} ({} outstanding).",
            grouped(iops),
            depth(cell)
        ),
        confidence: if cell
            .iops()
            .is_some_and(|n| n.relative_half_width().is_some_and(|w| w < 0.1))
        {
            "strong"
        } else {
            "moderate"
        }
        .into(),
        jobs: cell.indices(),
        evidence: vec!["depth-curve".into(), "depth-table".into()],
        refuted_by: "fathom curve in open loop missing that percentile at this rate.".into(),
        good_for: true,
        ..Finding::default()
    })
}

/// The smallest depth that reaches 90 % of the largest IOPS.
fn knee(cells: &[Cell]) -> Option<usize> {
    let iops: Vec<Option<f64>> = cells.iter().map(|c| c.iops().map(|e| e.value)).collect();
    let max = iops.iter().flatten().copied().fold(0.0, f64::max);
    iops.iter()
        .position(|n| n.is_some_and(|n| max > 0.0 && n >= 0.9 * max))
}

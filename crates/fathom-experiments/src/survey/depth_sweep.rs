//! Queue-depth sweep 1…256: the throughput-latency curve of 4 KiB random reads.

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{self, axis, headline, point, series};
use fathom_io::{JobError, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Mark, Point, Section};
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
        let knee = knee(cells);
        a.section.charts = charts(cells, knee);
        a.section.tables.push(parts::table(
            "depth-table",
            "Depth sweep",
            cells,
            &[
                ("requested QD", "", &|c| depth(c).into()),
                ("achieved QD", "", &|c| {
                    c.estimate(|j| Some(j.qd_achieved)).into()
                }),
                ("IOPS", "IOPS", &|c| c.iops().into()),
                ("mean", "ns", &|c| c.mean_latency().into()),
                ("p99", "ns", &|c| c.percentile(Op::Read, 0.99).into()),
                ("p99.9", "ns", &|c| c.percentile(Op::Read, 0.999).into()),
            ],
        ));
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
            a.findings.push(enough(&cells[k], n, l, last));
        }
        a
    }
}

/// How much depth is enough: at the knee there are so many IOPS at such a latency, at the largest depth the other.
fn enough(knee: &Cell, iops: Estimate, latency: Estimate, last: Estimate) -> Finding {
    let sure = iops.relative_half_width().is_some_and(|w| w < 0.1);
    Finding {
        id: "knee".into(),
        text: format!(
            "{} outstanding random reads give {} IOPS, at least 90 % of the maximum, at {} each; at depth 256 each takes {}.",
            depth(knee),
            grouped(iops.value),
            Nanos(latency.value as u64),
            Nanos(last.value as u64)
        ),
        advice: format!(
            "Keep about {} I/Os outstanding; more adds waiting, not throughput.",
            depth(knee)
        ),
        confidence: if sure { "strong" } else { "moderate" }.into(),
        jobs: knee.indices(),
        evidence: vec!["depth-curve".into(), "depth-table".into()],
        refuted_by: "fathom curve, which searches the knee with more points and in open loop, finding it elsewhere.".into(),
        ..Finding::default()
    }
}

/// Latency against throughput with the knee, and both by depth.
fn charts(cells: &[Cell], knee: Option<usize>) -> Vec<Chart> {
    // Labels on one of the two lines are enough.
    let label = |c: &Cell| Some(format!("QD {}", depth(c)));
    let mean = cells.iter().filter_map(|c| {
        Some(Point {
            label: label(c),
            ..point(c.iops()?.value, c.mean_latency())
        })
    });
    let p99 = cells.iter().filter_map(|c| {
        Some(Point {
            y: c.percentile(Op::Read, 0.99),
            ..point(c.iops()?.value, None)
        })
    });
    let curve = vec![series("mean", mean.collect()), series("p99", p99.collect())];
    let knee = knee.and_then(|k| {
        Some(Mark {
            x: Some(cells[k].iops()?.value),
            y: None,
            label: format!("90 % at QD {}", depth(&cells[k])),
        })
    });
    let by_depth = |id: &str, title: &str, y, of: fn(&Cell) -> Option<Estimate>| {
        let x = axis("outstanding I/Os", "", true);
        let points = cells.iter().map(|c| point(depth(c), of(c))).collect();
        let read = vec![series("random read", points)];
        parts::chart(id, title, ChartKind::Line, x, y, read)
    };
    let rate = || axis("IOPS", "IOPS", false);
    let latency = || axis("latency", "ns", true);
    vec![
        Chart {
            marks: knee.into_iter().collect(),
            ..parts::chart(
                "depth-curve",
                "Throughput-latency curve",
                ChartKind::Line,
                rate(),
                latency(),
                curve,
            )
        },
        by_depth("depth-iops", "IOPS by depth", rate(), Cell::iops),
        by_depth(
            "depth-latency",
            "Mean latency by depth",
            latency(),
            Cell::mean_latency,
        ),
    ]
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

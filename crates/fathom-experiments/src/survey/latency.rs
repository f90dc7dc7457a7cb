//! 4 KiB latency with one outstanding I/O: sequential and random, read and write (Zhang et al. 2018, §II-B).

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{axis, column, estimate, headline, number, op_of, percentiles, point};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, ChartSeries, Finding, Section, Table,
};
use fathom_telemetry::{Nanos, Op};

/// Four patterns, one thread, depth 1.
pub(super) struct Latency;

const PATTERNS: [(&str, &str, &str); 4] = [
    ("read-4k-qd1", "read", "sequential read"),
    ("write-4k-qd1", "write", "sequential write"),
    ("randread-4k-qd1", "randread", "random read"),
    ("randwrite-4k-qd1", "randwrite", "random write"),
];

impl Experiment for Latency {
    fn id(&self) -> &'static str {
        "latency"
    }

    fn jobs(&self, plan: &Plan) -> Result<Vec<JobSpec>, JobError> {
        PATTERNS
            .iter()
            .map(|(stem, rw, _)| plan.job(stem, &[("rw", rw), ("bs", "4k"), ("qd", "1")]))
            .collect()
    }

    fn analyse(&self, cells: &[Cell]) -> Analysis {
        let mut a = Analysis {
            section: Section {
                id: self.id().into(),
                title: "Latency with one outstanding I/O".into(),
                text: "4 KiB requests, one at a time, so that nothing queues: the path of a single I/O through software and device.".into(),
                ..Section::default()
            },
            ..Analysis::default()
        };
        let mut mean = Vec::new();
        let mut tail = Vec::new();
        let mut rows = Vec::new();
        for (i, (cell, (stem, _, label))) in cells.iter().zip(PATTERNS).enumerate() {
            let op = op_of(cell);
            let latency = cell.latency(op);
            let mut h = headline(
                cell,
                "Latency, 4 KiB, one outstanding",
                label,
                &format!("{stem}-latency"),
                "ns",
                latency,
            );
            h.extra = percentiles(cell, op);
            mean.push(point(i as f64, latency));
            tail.push(fathom_telemetry::schema::Point {
                x: i as f64,
                y: cell.percentile(op, 0.99),
                ..Default::default()
            });
            let mut row = vec![TableCell::Text(label.into()), estimate(latency)];
            row.extend([0.5, 0.9, 0.99, 0.999, 0.9999].map(|q| number(cell.percentile(op, q))));
            rows.push(row);
            a.headlines.push(h);
        }
        a.section.charts.push(Chart {
            id: "latency-bars".into(),
            title: "Mean and 99th percentile".into(),
            kind: ChartKind::Bar,
            x: axis("pattern", "", false),
            y: axis("latency", "ns", false),
            z: None,
            categories: PATTERNS.iter().map(|p| p.2.to_owned()).collect(),
            series: vec![
                ChartSeries {
                    name: "mean".into(),
                    points: mean,
                },
                ChartSeries {
                    name: "p99".into(),
                    points: tail,
                },
            ],
            marks: Vec::new(),
        });
        a.section.tables.push(Table {
            id: "latency-table".into(),
            title: "Response latency".into(),
            columns: vec![
                column("pattern", ""),
                column("mean", "ns"),
                column("p50", "ns"),
                column("p90", "ns"),
                column("p99", "ns"),
                column("p99.9", "ns"),
                column("p99.99", "ns"),
            ],
            rows,
        });
        a.findings.extend(tail_finding(cells));
        a
    }
}

/// A tail far from the median is worth a sentence.
fn tail_finding(cells: &[Cell]) -> Option<Finding> {
    let cell = cells.iter().find(|c| c.stem.starts_with("randread"))?;
    let (p50, p999) = (
        cell.percentile(Op::Read, 0.5)?,
        cell.percentile(Op::Read, 0.999)?,
    );
    (p999 > 10.0 * p50).then(|| Finding {
        id: "read-tail".into(),
        text: format!(
            "One random read in a thousand takes more than {}, {:.0} times the median of {}.",
            Nanos(p999 as u64),
            p999 / p50,
            Nanos(p50 as u64)
        ),
        advice: "Look at the percentiles over time in the report: single spikes point to the device or a noisy neighbour, a steady level to the software path.".into(),
        confidence: "moderate".into(),
        jobs: cell.indices(),
        evidence: vec!["latency-table".into()],
        refuted_by: "The same percentiles on an idle machine, or by fathom stack, whose slowest I/Os are named with their cause.".into(),
        ..Finding::default()
    })
}

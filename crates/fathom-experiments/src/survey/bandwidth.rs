//! Bandwidth: 128 KiB sequential reads and writes with several threads.

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{axis, bars, column, estimate, headline};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::schema::{Cell as TableCell, Section, Table};

/// Two patterns of large requests.
pub(super) struct Bandwidth;

const PATTERNS: [(&str, &str, &str); 2] = [
    ("read-128k", "read", "sequential read"),
    ("write-128k", "write", "sequential write"),
];

impl Experiment for Bandwidth {
    fn id(&self) -> &'static str {
        "bandwidth"
    }

    fn jobs(&self, plan: &Plan) -> Result<Vec<JobSpec>, JobError> {
        let threads = plan.threads.to_string();
        PATTERNS
            .iter()
            .map(|(stem, rw, _)| {
                plan.job(
                    stem,
                    &[
                        ("rw", rw),
                        ("bs", "128k"),
                        ("qd", "16"),
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
                title: "Bandwidth".into(),
                text: "128 KiB sequential requests; each thread has its own part of the range."
                    .into(),
                ..Section::default()
            },
            ..Analysis::default()
        };
        let mut rows = Vec::new();
        for (cell, (stem, _, label)) in cells.iter().zip(PATTERNS) {
            let bandwidth = cell.bandwidth();
            a.headlines.push(headline(
                cell,
                "Bandwidth, 128 KiB",
                label,
                &format!("{stem}-bandwidth"),
                "bytes/s",
                bandwidth,
            ));
            rows.push(vec![
                TableCell::Text(label.into()),
                TableCell::Text(format!("{} × {}", cell.spec.threads, cell.spec.qd)),
                estimate(bandwidth),
                estimate(cell.mean_latency()),
            ]);
        }
        a.section.charts.push(bars(
            "bandwidth-bars",
            "Bandwidth",
            axis("bandwidth", "bytes/s", false),
            &PATTERNS.map(|p| p.2),
            cells.iter().map(Cell::bandwidth),
        ));
        a.section.tables.push(Table {
            id: "bandwidth-table".into(),
            title: "Bandwidth".into(),
            columns: vec![
                column("pattern", ""),
                column("threads × QD", ""),
                column("bandwidth", "bytes/s"),
                column("mean latency", "ns"),
            ],
            rows,
        });
        a
    }
}

//! Maximum IOPS: 4 KiB random reads and writes, deep queues, several threads.

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{axis, bars, column, estimate, headline};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::schema::{Cell as TableCell, Section, Table};

/// Two patterns at the depth that fills the device.
pub(super) struct Iops;

const PATTERNS: [(&str, &str, &str); 2] = [
    ("randread-4k-max", "randread", "random read"),
    ("randwrite-4k-max", "randwrite", "random write"),
];

impl Experiment for Iops {
    fn id(&self) -> &'static str {
        "iops"
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
                        ("bs", "4k"),
                        ("qd", "64"),
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
                title: "Maximum IOPS".into(),
                text: "4 KiB random requests at a depth where more would only wait longer.".into(),
                ..Section::default()
            },
            ..Analysis::default()
        };
        let mut rows = Vec::new();
        for (cell, (stem, _, label)) in cells.iter().zip(PATTERNS) {
            a.headlines.push(headline(
                cell,
                "Maximum IOPS, 4 KiB",
                label,
                &format!("{stem}-iops"),
                "IOPS",
                cell.iops(),
            ));
            rows.push(vec![
                TableCell::Text(label.into()),
                TableCell::Text(format!("{} × {}", cell.spec.threads, cell.spec.qd)),
                estimate(cell.iops()),
                estimate(cell.mean_latency()),
                estimate(cell.estimate(|j| Some(j.qd_achieved))),
                estimate(cell.estimate(|j| {
                    let n = j.read.as_ref().map_or(0, |d| d.ios)
                        + j.write.as_ref().map_or(0, |d| d.ios);
                    (n > 0 && j.cpu_ns > 0).then(|| j.cpu_ns as f64 / n as f64)
                })),
            ]);
        }
        a.section.charts.push(bars(
            "iops-bars",
            "Maximum IOPS",
            axis("IOPS", "IOPS", false),
            &PATTERNS.map(|p| p.2),
            cells.iter().map(Cell::iops),
        ));
        a.section.tables.push(Table {
            id: "iops-table".into(),
            title: "Maximum IOPS".into(),
            columns: vec![
                column("pattern", ""),
                column("threads × QD", ""),
                column("IOPS", "IOPS"),
                column("mean latency", "ns"),
                column("achieved QD", ""),
                column("CPU per I/O", "ns"),
            ],
            rows,
        });
        a
    }
}

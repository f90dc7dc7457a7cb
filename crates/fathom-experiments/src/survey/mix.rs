//! Read-share mix 0…100 %: what writes cost the reads beside them.

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{self, axis, column, estimate, headline, number, point, series};
use fathom_io::{JobError, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::Op;
use fathom_telemetry::schema::{Cell as TableCell, ChartKind, Point, Section, Table};

/// Five shares of reads at one depth.
pub(super) struct Mix;

const SHARES: [u32; 5] = [0, 30, 50, 70, 100];
const DEPTH: u32 = 16;

impl Experiment for Mix {
    fn id(&self) -> &'static str {
        "mix"
    }

    fn jobs(&self, plan: &Plan) -> Result<Vec<JobSpec>, JobError> {
        let (qd, threads) = plan.shared_out(DEPTH);
        SHARES
            .iter()
            .map(|share| {
                plan.job(
                    &format!("mix-{share}"),
                    &[
                        ("rw", "randrw"),
                        ("read-share", &share.to_string()),
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
                title: "Reads and writes mixed".into(),
                text: format!(
                    "4 KiB random requests, {DEPTH} outstanding, with a growing share of reads."
                ),
                ..Section::default()
            },
            ..Analysis::default()
        };
        let (mut iops, mut p50, mut reads, mut writes, mut rows) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for c in cells {
            let x = c.spec.read_share;
            iops.push(point(x, c.iops()));
            let p = |op, q| Point {
                x,
                y: c.percentile(op, q),
                ..Point::default()
            };
            p50.push(p(Op::Read, 0.5));
            reads.push(p(Op::Read, 0.99));
            writes.push(p(Op::Write, 0.99));
            let n = number;
            rows.push(vec![
                TableCell::Number(x),
                estimate(c.iops()),
                n(c.percentile(Op::Read, 0.5)),
                n(c.percentile(Op::Read, 0.99)),
                n(c.percentile(Op::Write, 0.5)),
                n(c.percentile(Op::Write, 0.99)),
            ]);
            if (x - 70.0).abs() < 0.5 {
                a.headlines.push(headline(
                    c,
                    "Maximum IOPS, 4 KiB",
                    "70 % reads, QD 16",
                    "mix-70-iops",
                    "IOPS",
                    c.iops(),
                ));
            }
        }
        if let [first, .., last] = cells
            && let (Some(writes), Some(reads)) = (first.iops(), last.iops())
        {
            a.section.title = title(&reads, &writes);
        }
        let chart = |id: &str, title: &str, y, series| {
            let x = axis("share of reads", "%", false);
            parts::chart(id, title, ChartKind::Line, x, y, series)
        };
        a.section.charts = vec![
            chart(
                "mix-iops",
                "IOPS by share of reads",
                axis("IOPS", "IOPS", false),
                vec![series("reads and writes", iops)],
            ),
            chart(
                "mix-latency",
                "Latency by share of reads",
                axis("latency", "ns", true),
                vec![
                    series("read p50", p50),
                    series("read p99", reads),
                    series("write p99", writes),
                ],
            ),
        ];
        a.section.tables.push(Table {
            id: "mix-table".into(),
            title: "Mix".into(),
            columns: vec![
                column("reads", "%"),
                column("IOPS", "IOPS"),
                column("read p50", "ns"),
                column("read p99", "ns"),
                column("write p50", "ns"),
                column("write p99", "ns"),
            ],
            rows,
        });
        a
    }
}

/// What the mix does, as far as the intervals show it.
fn title(reads: &Estimate, writes: &Estimate) -> String {
    let ends = |e: &Estimate| Some((e.low?, e.high?));
    match (ends(reads), ends(writes)) {
        (Some(r), Some(w)) if r.0 > w.1 || w.0 > r.1 => format!(
            "Writes alone get {:.0} % of the IOPS of reads alone",
            100.0 * writes.value / reads.value
        ),
        _ => "No difference shown between reads, writes and mixes".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_overlap_are_no_difference() {
        let e = |value: f64, half: f64| Estimate {
            value,
            low: Some(value - half),
            high: Some(value + half),
            samples: 3,
        };
        assert!(title(&e(100.0, 5.0), &e(94.0, 5.0)).starts_with("No difference"));
        assert_eq!(
            title(&e(100.0, 5.0), &e(50.0, 5.0)),
            "Writes alone get 50 % of the IOPS of reads alone"
        );
        assert!(title(&Estimate::single(9.0), &Estimate::single(1.0)).starts_with("No difference"));
    }
}

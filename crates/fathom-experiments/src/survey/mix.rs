//! Read-share mix 0…100 %: what writes cost the reads beside them.

use fathom_bench::cells::{Analysis, Cell, Experiment, Plan};
use fathom_bench::parts::{self, axis, headline, point, series};
use fathom_io::{JobError, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::Op;
use fathom_telemetry::schema::{ChartKind, Point, Section};

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
        let usual = |c: &&Cell| (c.spec.read_share - 70.0).abs() < 0.5;
        a.headlines.extend(cells.iter().filter(usual).map(|c| {
            headline(
                c,
                "Maximum IOPS, 4 KiB",
                "70 % reads, QD 16",
                "mix-70-iops",
                "IOPS",
                c.iops(),
            )
        }));
        if let [first, .., last] = cells
            && let (Some(writes), Some(reads)) = (first.iops(), last.iops())
        {
            a.section.title = title(&reads, &writes);
        }
        let chart = |id: &str, title: &str, y, series| {
            let x = axis("share of reads", "%", false);
            parts::chart(id, title, ChartKind::Line, x, y, series)
        };
        let iops = cells.iter().map(|c| point(c.spec.read_share, c.iops()));
        let latency = |name: &str, op, q| {
            let dot = |c: &Cell| Point {
                x: c.spec.read_share,
                y: c.percentile(op, q),
                ..Point::default()
            };
            series(name, cells.iter().map(dot).collect())
        };
        a.section.charts = vec![
            chart(
                "mix-iops",
                "IOPS by share of reads",
                axis("IOPS", "IOPS", false),
                vec![series("reads and writes", iops.collect())],
            ),
            chart(
                "mix-latency",
                "Latency by share of reads",
                axis("latency", "ns", true),
                vec![
                    latency("read p50", Op::Read, 0.5),
                    latency("read p99", Op::Read, 0.99),
                    latency("write p99", Op::Write, 0.99),
                ],
            ),
        ];
        a.section.tables.push(parts::table(
            "mix-table",
            "Mix",
            cells,
            &[
                ("reads", "%", &|c| c.spec.read_share.into()),
                ("IOPS", "IOPS", &|c| c.iops().into()),
                ("read p50", "ns", &|c| c.percentile(Op::Read, 0.5).into()),
                ("read p99", "ns", &|c| c.percentile(Op::Read, 0.99).into()),
                ("write p50", "ns", &|c| c.percentile(Op::Write, 0.5).into()),
                ("write p99", "ns", &|c| c.percentile(Op::Write, 0.99).into()),
            ],
        ));
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

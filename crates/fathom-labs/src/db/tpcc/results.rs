//! What the measurements say: tpmC, latency by transaction, consistency.

use fathom_bench::parts::{
    axis, chart, column, estimate, headline_of, line_chart, number, point, series, table, text,
};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell, Chart, ChartKind, Headline, Section, Table};
use fathom_telemetry::{Flag, FlagCode, Histogram};

use super::super::budget::more_cache;
use super::check::CONDITIONS;
use super::transactions::Kind;
use super::{Line, Repeat, TpccResult};
use crate::loads::quantile;

/// A database with what it rests on.
struct Shows<'a> {
    line: &'a Line,
    evidence: &'a Evidence<'a>,
}

impl Shows<'_> {
    fn name(&self) -> &str {
        &self.line.setting.name
    }

    /// New orders per minute.
    fn tpmc(&self) -> Option<Estimate> {
        let new_orders = |r: &Repeat| {
            r.job(self.evidence)?;
            let job = self.evidence.job(r.beside.kinds[0]?)?;
            Some(job.write.as_ref()?.iops * 60.0)
        };
        self.line.mean(new_orders)
    }

    /// Transactions per second, those that were rolled back included.
    fn rate(&self) -> Option<Estimate> {
        self.line.mean(|r| {
            let seconds = r.job(self.evidence)?.wall_ns as f64 / 1e9;
            Some(r.rate(self.evidence)? + r.beside.rolled_back as f64 / seconds)
        })
    }

    /// Share of new orders, percent.
    fn rolled_back(&self) -> Option<Estimate> {
        self.line.mean(|r| {
            let job = self.evidence.job(r.beside.kinds[0]?)?;
            let done = job.write.as_ref()?.ios + r.beside.rolled_back;
            (done > 0).then(|| r.beside.rolled_back as f64 / done as f64 * 100.0)
        })
    }

    fn latency(&self, kind: usize) -> Histogram {
        self.line
            .latency_of(self.evidence, |r| r.beside.kinds[kind])
    }

    /// What does not hold: a database that loses or invents something has no rate.
    fn contradiction(&self) -> Option<Flag> {
        let bad = |found: &[i64; 12]| {
            let bad = CONDITIONS.iter().zip(found).filter(|(_, n)| **n != 0);
            let bad: Vec<String> = bad.map(|((id, ..), _)| id.to_string()).collect();
            bad.join(", ")
        };
        let seen = &self.line.setting;
        let (before, after) = (bad(&seen.before), bad(seen.after.as_ref()?));
        (!before.is_empty() || !after.is_empty()).then(|| {
            Flag::new(
                FlagCode::IoErrors,
                format!(
                    "{}: consistency conditions that do not hold before: [{before}]; after: [{after}]",
                    seen.name
                ),
                "do not use these rates: the database lost or invented something",
            )
        })
    }

    fn headline(&self) -> Headline {
        Headline {
            flags: self
                .contradiction()
                .into_iter()
                .chain(more_cache(
                    self.name(),
                    self.line.setting.unlimited.as_deref(),
                ))
                .collect(),
            ..headline_of(
                "TPC-C-like, not audited",
                &format!("{}: new orders per minute (tpmC)", self.name()),
                &format!("tpcc-{}", self.name()),
                "",
                self.tpmc(),
                self.line.jobs(),
            )
        }
    }
}

/// Section and headlines.
pub(super) fn present(result: &TpccResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let all: Vec<Shows<'_>> = result
        .lines
        .iter()
        .map(|line| Shows { line, evidence })
        .collect();
    if all.is_empty() {
        return;
    }
    let o = &result.options;
    let about = |s: &Shows<'_>| {
        let seen = &s.line.setting;
        format!("{}: {}; {}.", seen.name, seen.version, seen.proof)
    };
    let mut section = Section {
        id: "tpcc".into(),
        title: "TPC-C-like, not audited".into(),
        text: format!(
            "{} warehouses, {} terminals without keying and think times (so the limit of 12.86 tpmC for each warehouse does not hold), deliveries {}, buffer pool {}. Databases in turns. {}",
            o.warehouses,
            o.terminals,
            match o.inline_deliveries {
                true => "by the terminals themselves",
                false => "in the background",
            },
            o.pool,
            all.iter().map(about).collect::<Vec<_>>().join(" ")
        ),
        charts: charts(&all),
        tables: vec![rates(&all), latencies(&all), consistency(&result.lines)],
        ..Section::default()
    };
    section
        .flags
        .extend(all.iter().filter_map(Shows::contradiction));
    for s in &all {
        if s.line.setting.after.is_some() && s.contradiction().is_none() {
            section.text.push_str(&format!(
                " {}: consistency conditions 1 to 12 hold before and after.",
                s.name()
            ));
        }
    }
    shown.sections.push(section);
    shown.headlines.extend(all.iter().map(Shows::headline));
}

fn charts(all: &[Shows<'_>]) -> Vec<Chart> {
    let bars = all.iter().enumerate();
    let bars = bars.map(|(i, s)| point(i as f64, s.tpmc())).collect();
    let over_time = |s: &Shows<'_>| {
        let points = s.line.repeats.last()?.course.points();
        // Seconds, from tenths.
        let seconds = points.chunks(10).map(|c| {
            let sum: f64 = c.iter().map(|p| p.1).sum();
            (c[0].0, sum / c.len() as f64 * 60.0)
        });
        Some((s.name().to_owned(), seconds.collect()))
    };
    vec![
        Chart {
            categories: all.iter().map(|s| s.name().to_owned()).collect(),
            ..chart(
                "tpcc-rates",
                "New orders per minute",
                ChartKind::Bar,
                axis("database", "", false),
                axis("tpmC", "", false),
                vec![series("tpmC", bars)],
            )
        },
        line_chart(
            "tpcc-over-time",
            "New orders per minute over time, last repeat",
            axis("time", "s", false),
            axis("tpmC", "", false),
            all.iter().filter_map(over_time).collect(),
        ),
    ]
}

fn rates(all: &[Shows<'_>]) -> Table {
    let device = |s: &Shows<'_>, i: usize| estimate(s.line.mean(|r| r.device(s.evidence)[i]));
    table(
        "tpcc-table",
        "Rates",
        all,
        &[
            ("database", "", &|s| text(s.name())),
            ("tpmC", "", &|s| estimate(s.tpmc())),
            ("transactions", "1/s", &|s| estimate(s.rate())),
            ("rolled back, as wanted", "%", &|s| {
                estimate(s.rolled_back())
            }),
            ("tried again", "%", &|s| {
                estimate(s.line.mean(|r| r.per(r.beside.again as f64 * 100.0)))
            }),
            ("device reads per transaction", "", &|s| device(s, 0)),
            ("device writes per transaction", "", &|s| device(s, 1)),
            ("processors that fathom's driver used", "", &|s| {
                estimate(s.line.mean(|r| {
                    let job = r.job(s.evidence)?;
                    Some(job.cpu_ns as f64 / job.wall_ns as f64)
                }))
            }),
        ],
    )
}

fn latencies(all: &[Shows<'_>]) -> Table {
    struct Row<'a> {
        name: &'a str,
        kind: Kind,
        latency: Histogram,
        /// Transactions of all kinds.
        total: u64,
    }
    let rows: Vec<Row<'_>> = all
        .iter()
        .flat_map(|s| {
            let each: Vec<Histogram> = (0..Kind::ALL.len()).map(|k| s.latency(k)).collect();
            let total = each.iter().map(Histogram::count).sum();
            Kind::ALL
                .into_iter()
                .zip(each)
                .map(move |(kind, latency)| Row {
                    name: s.name(),
                    kind,
                    latency,
                    total,
                })
        })
        .collect();
    table(
        "tpcc-latency",
        "Response times (deliveries from the moment they were queued)",
        &rows,
        &[
            ("database", "", &|r| text(r.name)),
            ("transaction", "", &|r| text(r.kind.name())),
            ("share", "%", &|r| {
                let share = r.latency.count() as f64 / r.total.max(1) as f64 * 100.0;
                number((r.total > 0).then_some(share))
            }),
            ("mean", "ns", &|r| number(r.latency.moments().mean())),
            ("p50", "ns", &|r| number(quantile(&r.latency, 0.5))),
            ("p90", "ns", &|r| number(quantile(&r.latency, 0.9))),
            ("p95", "ns", &|r| number(quantile(&r.latency, 0.95))),
            ("p99", "ns", &|r| number(quantile(&r.latency, 0.99))),
        ],
    )
}

fn consistency(all: &[Line]) -> Table {
    let word = |n: i64| match n {
        0 => "holds".to_owned(),
        -1 => "could not be asked".to_owned(),
        n => format!("{n} rows contradict it"),
    };
    let mut columns = vec![column("condition", ""), column("in words", "")];
    for m in all.iter().map(|l| &l.setting) {
        columns.push(column(&format!("{} before", m.name), ""));
        columns.push(column(&format!("{} after", m.name), ""));
    }
    let rows = CONDITIONS
        .iter()
        .enumerate()
        .map(|(i, (id, words, _))| {
            let mut row = vec![
                Cell::Text(format!("3.3.2.{id}")),
                Cell::Text((*words).into()),
            ];
            for m in all.iter().map(|l| &l.setting) {
                row.push(Cell::Text(word(m.before[i])));
                row.push(m.after.map_or(Cell::Hole(()), |a| Cell::Text(word(a[i]))));
            }
            row
        })
        .collect();
    Table {
        id: "tpcc-consistency".into(),
        title: "Consistency conditions".into(),
        columns,
        rows,
    }
}

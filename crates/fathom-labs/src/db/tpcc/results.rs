//! What the measurements say: tpmC, latency by transaction, consistency.

use fathom_experiments::Notebook;
use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, line_chart, number, point, series,
};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell as TableCell, Chart, ChartKind, Section, Table};
use fathom_telemetry::{Flag, FlagCode, Histogram};

use super::check::CONDITIONS;
use super::driver::Outcome;
use super::transactions::Kind;
use super::{Measured, TpccOptions};

fn tpmc(o: &Outcome) -> Option<f64> {
    (o.seconds > 0.0 && o.done[0] > 0).then(|| o.done[0] as f64 / o.seconds * 60.0)
}

fn mean(m: &Measured, f: impl Fn(&Outcome, Option<[u64; 2]>) -> Option<f64>) -> Option<Estimate> {
    let values: Vec<f64> = m.repeats.iter().filter_map(|(o, d)| f(o, *d)).collect();
    Estimate::mean_of(&values)
}

/// Puts everything into the notebook.
pub(super) fn report(book: &mut Notebook, options: &TpccOptions, all: &[Measured]) {
    if all.is_empty() {
        return;
    }
    let mut section = Section {
        id: "tpcc".into(),
        title: "TPC-C-like, not audited".into(),
        text: format!(
            "{} warehouses, {} terminals without keying and think times (so the limit of 12.86 tpmC for each warehouse does not hold), deliveries in the background, buffer pool {}. Databases in turns. {}",
            options.warehouses,
            options.terminals,
            options.pool,
            all.iter()
                .map(|m| format!("{}: {}; {}.", m.name, m.version, m.proof))
                .collect::<Vec<_>>()
                .join(" ")
        ),
        ..Section::default()
    };
    section.charts = charts(all);
    section.tables = vec![rates(all), latencies(all), consistency(all)];
    for m in all {
        let bad = |found: &[i64; 12]| -> Vec<String> {
            CONDITIONS
                .iter()
                .zip(found)
                .filter(|(_, n)| **n != 0)
                .map(|((id, ..), _)| id.to_string())
                .collect()
        };
        let before = bad(&m.before);
        let Some(after) = m.after.as_ref().map(bad) else {
            continue;
        };
        if after.is_empty() && before.is_empty() {
            section.text.push_str(&format!(
                " {}: consistency conditions 1 to 12 hold before and after.",
                m.name
            ));
            continue;
        }
        section.flags.push(Flag::new(
            FlagCode::IoErrors,
            format!(
                "{}: consistency conditions that do not hold before: [{}]; after: [{}]",
                m.name,
                before.join(", "),
                after.join(", ")
            ),
            "do not use these rates: the database lost or invented something",
        ));
    }
    let run = book.run_mut();
    run.sections.push(section);
    for m in all {
        run.headlines.push(headline_of(
            "TPC-C-like, not audited",
            &format!("{}: new orders per minute (tpmC)", m.name),
            &format!("tpcc-{}", m.name),
            "",
            mean(m, |o, _| tpmc(o)),
            Vec::new(),
        ));
    }
}

fn charts(all: &[Measured]) -> Vec<Chart> {
    let bars = all
        .iter()
        .enumerate()
        .map(|(i, m)| point(i as f64, mean(m, |o, _| tpmc(o))))
        .collect();
    let over_time = all
        .iter()
        .filter_map(|m| {
            let s = &m.repeats.last()?.0.series;
            // Seconds, from tenths.
            let points = s.chunks(10).map(|c| {
                let sum: f64 = c.iter().map(|p| p.1).sum();
                (c[0].0, sum / c.len() as f64)
            });
            Some((m.name.to_owned(), points.collect()))
        })
        .collect();
    vec![
        Chart {
            categories: all.iter().map(|m| m.name.to_owned()).collect(),
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
            over_time,
        ),
    ]
}

fn rates(all: &[Measured]) -> Table {
    let rows = all
        .iter()
        .map(|m| {
            let transactions = |o: &Outcome| o.done.iter().sum::<u64>() + o.rolled_back;
            let per = |which: usize| {
                mean(m, |o, d| {
                    let n = transactions(o);
                    (n > 0).then_some(d?[which] as f64 / n as f64)
                })
            };
            vec![
                TableCell::Text(m.name.into()),
                estimate(mean(m, |o, _| tpmc(o))),
                estimate(mean(m, |o, _| {
                    (o.seconds > 0.0).then(|| transactions(o) as f64 / o.seconds)
                })),
                estimate(mean(m, |o, _| {
                    let orders = o.done[0] + o.rolled_back;
                    (orders > 0).then(|| o.rolled_back as f64 / orders as f64 * 100.0)
                })),
                estimate(mean(m, |o, _| {
                    let n = transactions(o);
                    (n > 0).then(|| o.again as f64 / n as f64 * 100.0)
                })),
                estimate(per(0)),
                estimate(per(1)),
                estimate(mean(m, |o, _| (o.seconds > 0.0).then(|| o.cpu / o.seconds))),
            ]
        })
        .collect();
    Table {
        id: "tpcc-table".into(),
        title: "Rates".into(),
        columns: vec![
            column("database", ""),
            column("tpmC", ""),
            column("transactions", "1/s"),
            column("rolled back, as wanted", "%"),
            column("tried again", "%"),
            column("device reads per transaction", ""),
            column("device writes per transaction", ""),
            column("processors that fathom's driver used", ""),
        ],
        rows,
    }
}

fn latencies(all: &[Measured]) -> Table {
    let mut rows = Vec::new();
    for m in all {
        let total: u64 = m
            .repeats
            .iter()
            .map(|(o, _)| o.done.iter().sum::<u64>() + o.rolled_back)
            .sum();
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            let mut latency = Histogram::new();
            m.repeats
                .iter()
                .for_each(|(o, _)| latency.merge(&o.latency[i]));
            let q = |q| latency.quantile_supported(q, 10).map(|v| v as f64);
            rows.push(vec![
                TableCell::Text(m.name.into()),
                TableCell::Text(kind.name().into()),
                number((total > 0).then(|| latency.count() as f64 / total as f64 * 100.0)),
                number(latency.moments().mean()),
                number(q(0.5)),
                number(q(0.9)),
                number(q(0.95)),
                number(q(0.99)),
            ]);
        }
    }
    Table {
        id: "tpcc-latency".into(),
        title: "Response times (deliveries from the moment they were queued)".into(),
        columns: vec![
            column("database", ""),
            column("transaction", ""),
            column("share", "%"),
            column("mean", "ns"),
            column("p50", "ns"),
            column("p90", "ns"),
            column("p95", "ns"),
            column("p99", "ns"),
        ],
        rows,
    }
}

fn consistency(all: &[Measured]) -> Table {
    let word = |n: i64| match n {
        0 => "holds".to_owned(),
        -1 => "could not be asked".to_owned(),
        n => format!("{n} rows contradict it"),
    };
    let mut columns = vec![column("condition", ""), column("in words", "")];
    for m in all {
        columns.push(column(&format!("{} before", m.name), ""));
        columns.push(column(&format!("{} after", m.name), ""));
    }
    let rows = CONDITIONS
        .iter()
        .enumerate()
        .map(|(i, (id, words, _))| {
            let mut row = vec![
                TableCell::Text(format!("3.3.2.{id}")),
                TableCell::Text((*words).into()),
            ];
            for m in all {
                row.push(TableCell::Text(word(m.before[i])));
                row.push(
                    m.after
                        .map_or(TableCell::Hole(()), |a| TableCell::Text(word(a[i]))),
                );
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

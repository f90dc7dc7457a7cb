//! What the measurements say: the figures and tables of Zhang et al. 2018, section V, with intervals.

use std::collections::BTreeMap;

use fathom_experiments::Notebook;
use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, number, point, series,
};
use fathom_stats::Estimate;
use fathom_telemetry::Histogram;
use fathom_telemetry::schema::{Cell as TableCell, Chart, ChartKind, Finding, Section, Table};

use super::super::mariadb::Instance;
use super::{Cell, Experiment, FORMATS, Mix, OltpOptions, Repeat};

/// What was seen of the servers.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) version: String,
    /// Settings of a server that the user runs.
    pub(super) yours: Option<String>,
    aio: String,
    /// Open table spaces with O_DIRECT, and all.
    direct: (usize, usize),
    /// Bytes of the tables by page size and format.
    bytes: BTreeMap<(u64, usize), u64>,
}

impl Facts {
    /// Looks at a running server.
    pub(super) fn look(&mut self, instance: &Instance, cell: &Cell) {
        if self.aio.is_empty() {
            self.aio = instance.aio();
        }
        let (direct, all) = instance.direct_files();
        if all > 0 {
            self.direct = (direct, all);
        }
        let bytes = instance.table_bytes("sbtest");
        self.bytes.insert((cell.page, cell.format), bytes);
    }

    /// How the server does its I/O, and what of it was seen.
    fn in_words(&self) -> String {
        if let Some(settings) = &self.yours {
            return format!(
                "A server that was running, with its own settings: {settings}; what it counts includes what others ask of it."
            );
        }
        let (direct, open) = self.direct;
        let aio = if self.aio.is_empty() {
            "not asked"
        } else {
            &self.aio
        };
        format!(
            "Every commit is durable. Asynchronous I/O: {aio}; {direct} of {open} open table spaces with O_DIRECT. The server is started anew for each page, format and pool."
        )
    }
}

fn rates(repeats: &[Repeat]) -> Vec<f64> {
    repeats.iter().filter_map(|r| r.outcome.rate()).collect()
}

fn mean(repeats: &[Repeat], f: impl Fn(&Repeat) -> Option<f64>) -> Option<Estimate> {
    let values: Vec<f64> = repeats.iter().filter_map(f).collect();
    Estimate::mean_of(&values)
}

/// Per transaction.
fn per(r: &Repeat, n: u64) -> Option<f64> {
    (r.outcome.transactions > 0).then(|| n as f64 / r.outcome.transactions as f64)
}

/// The sweep's own axis: its name, its unit, and where a cell stands on it.
fn sweep(experiment: Experiment) -> (&'static str, &'static str, fn(&Cell) -> f64) {
    match experiment {
        Experiment::PageSize => ("page", "bytes", |c| c.page as f64),
        Experiment::Threads => ("threads", "", |c| f64::from(c.threads)),
        Experiment::Cache => ("buffer pool", "bytes", |c| c.pool as f64),
        Experiment::Compression => ("compression", "", |c| c.format as f64),
        Experiment::One => ("threads", "", |c| f64::from(c.threads)),
    }
}

/// Puts everything into the notebook.
pub(super) fn report(
    book: &mut Notebook,
    cells: &[Cell],
    all: &[Vec<Repeat>],
    options: &OltpOptions,
    facts: &Facts,
) {
    for (name, experiment) in Experiment::ALL {
        let mine: Vec<(&Cell, &[Repeat])> = cells
            .iter()
            .zip(all)
            .filter(|(c, r)| c.experiment == experiment && !r.is_empty())
            .map(|(c, r)| (c, r.as_slice()))
            .collect();
        if !mine.is_empty() {
            section(book, name, experiment, &mine, options, facts);
        }
    }
}

fn section(
    book: &mut Notebook,
    name: &str,
    experiment: Experiment,
    cells: &[(&Cell, &[Repeat])],
    options: &OltpOptions,
    facts: &Facts,
) {
    let mut section = Section {
        id: format!("oltp-{name}"),
        title: format!("InnoDB (MariaDB): {name}"),
        text: format!(
            "{}. sysbench's OLTP transactions on one table of {} rows ({} keys) by fathom's own driver over a unix socket. {} Repeats in turns.",
            facts.version,
            options.count,
            options.rows.name(),
            facts.in_words()
        ),
        ..Section::default()
    };
    if experiment != Experiment::One {
        section.charts.extend(charts(name, experiment, cells));
    }
    section.tables.push(rates_table(name, cells, facts));
    section.tables.push(counters_table(name, cells));
    if ![Experiment::Threads, Experiment::One].contains(&experiment) {
        section.tables.push(best(book, name, experiment, cells));
    }
    if cells
        .iter()
        .any(|(_, r)| r.iter().any(|x| x.sysbench.is_some()))
    {
        section.tables.push(cross_check(book, name, cells));
    }
    let run = book.run_mut();
    run.results.push(section);
    for (cell, repeats) in cells {
        run.headlines.push(headline_of(
            "InnoDB (MariaDB)",
            &format!("{}: transactions", cell.label()),
            &format!("oltp-{name}-{}", cell.label()),
            "1/s",
            Estimate::mean_of(&rates(repeats)),
            Vec::new(),
        ));
    }
}

fn mixes(cells: &[(&Cell, &[Repeat])]) -> Vec<Mix> {
    Mix::ALL
        .into_iter()
        .filter(|m| cells.iter().any(|(c, _)| c.mix == *m))
        .collect()
}

fn charts(name: &str, experiment: Experiment, cells: &[(&Cell, &[Repeat])]) -> Vec<Chart> {
    let (label, unit, at) = sweep(experiment);
    let lines = |value: &dyn Fn(&[Repeat]) -> Option<Estimate>| {
        mixes(cells)
            .into_iter()
            .map(|mix| {
                let points = cells
                    .iter()
                    .filter(|(c, _)| c.mix == mix)
                    .map(|(c, r)| point(at(c), value(r)))
                    .collect();
                series(mix.name(), points)
            })
            .collect::<Vec<_>>()
    };
    let kind = if experiment == Experiment::Compression {
        ChartKind::Bar
    } else {
        ChartKind::Line
    };
    let x = || axis(label, unit, experiment != Experiment::Compression);
    let categories = || match experiment {
        Experiment::Compression => FORMATS.iter().map(|f| f.0.to_owned()).collect(),
        _ => Vec::new(),
    };
    vec![
        Chart {
            categories: categories(),
            ..chart(
                &format!("oltp-{name}-rate"),
                &format!("Transactions by {label}"),
                kind,
                x(),
                axis("transactions", "1/s", false),
                lines(&|r| Estimate::mean_of(&rates(r))),
            )
        },
        Chart {
            categories: categories(),
            ..chart(
                &format!("oltp-{name}-latency"),
                &format!("Mean latency of a transaction by {label}"),
                kind,
                x(),
                axis("latency", "ns", false),
                lines(&|r| mean(r, |x| x.outcome.latency.moments().mean())),
            )
        },
    ]
}

fn rates_table(name: &str, cells: &[(&Cell, &[Repeat])], facts: &Facts) -> Table {
    let rows = cells
        .iter()
        .map(|(cell, repeats)| {
            let mut latency = Histogram::new();
            repeats
                .iter()
                .for_each(|r| latency.merge(&r.outcome.latency));
            let quantile = |q| latency.quantile_supported(q, 10).map(|v| v as f64);
            let bytes = facts.bytes.get(&(cell.page, cell.format));
            vec![
                TableCell::Text(cell.mix.name().into()),
                TableCell::Number(cell.page as f64),
                TableCell::Text(FORMATS[cell.format].0.into()),
                TableCell::Number(cell.pool as f64),
                TableCell::Number(f64::from(cell.threads)),
                number(bytes.map(|b| *b as f64)),
                estimate(Estimate::mean_of(&rates(repeats))),
                estimate(
                    Estimate::mean_of(&rates(repeats))
                        .map(|e| e.scale(cell.mix.statements() as f64)),
                ),
                number(quantile(0.5)),
                number(quantile(0.99)),
                number(Some(
                    repeats.iter().map(|r| r.outcome.again).sum::<u64>() as f64
                )),
            ]
        })
        .collect();
    Table {
        id: format!("oltp-{name}-table"),
        title: "Transactions".into(),
        columns: vec![
            column("transactions", ""),
            column("page", "bytes"),
            column("compression", ""),
            column("buffer pool", "bytes"),
            column("threads", ""),
            column("table", "bytes"),
            column("rate", "1/s"),
            column("statements", "1/s"),
            column("p50", "ns"),
            column("p99", "ns"),
            column("tried again", ""),
        ],
        rows,
    }
}

fn counters_table(name: &str, cells: &[(&Cell, &[Repeat])]) -> Table {
    let rows = cells
        .iter()
        .map(|(cell, repeats)| {
            vec![
                TableCell::Text(cell.label()),
                estimate(mean(repeats, |r| per(r, r.innodb.reads))),
                estimate(mean(repeats, |r| per(r, r.innodb.writes))),
                estimate(mean(repeats, |r| per(r, r.innodb.log_syncs?))),
                estimate(mean(repeats, |r| {
                    let [reads, _] = r.device?;
                    (r.innodb.reads > 100).then(|| reads as f64 / r.innodb.reads as f64)
                })),
                estimate(mean(repeats, |r| {
                    let [_, writes] = r.device?;
                    (r.innodb.writes > 100).then(|| writes as f64 / r.innodb.writes as f64)
                })),
            ]
        })
        .collect();
    Table {
        id: format!("oltp-{name}-counters"),
        title: "What the engine and the device counted (device over engine: 1 where they agree)"
            .into(),
        columns: vec![
            column("transactions", ""),
            column("reads per transaction", ""),
            column("writes per transaction", ""),
            column("log syncs per transaction", ""),
            column("device reads over engine's", ""),
            column("device writes over engine's", ""),
        ],
        rows,
    }
}

/// Which setting is best for which transactions, and whether that is more than noise.
fn best(
    book: &mut Notebook,
    name: &str,
    experiment: Experiment,
    cells: &[(&Cell, &[Repeat])],
) -> Table {
    let (label, _, _) = sweep(experiment);
    let setting = |c: &Cell| match experiment {
        Experiment::PageSize => format!("{} KiB", c.page >> 10),
        Experiment::Threads | Experiment::One => c.threads.to_string(),
        Experiment::Cache => format!("{} MiB", c.pool >> 20),
        Experiment::Compression => FORMATS[c.format].0.to_owned(),
    };
    let mut rows = Vec::new();
    for mix in mixes(cells) {
        let mut ranked: Vec<(&Cell, Estimate, &[Repeat])> = cells
            .iter()
            .filter(|(c, _)| c.mix == mix)
            .filter_map(|(c, r)| Some((*c, Estimate::mean_of(&rates(r))?, *r)))
            .collect();
        ranked.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        let Some((first, e, of_first)) = ranked.first().copied() else {
            continue;
        };
        // The best is named together with all that it was not shown to beat: repeats of one round belong together.
        let beaten = |other: &[Repeat]| {
            let ratios: Vec<f64> = rates(of_first)
                .iter()
                .zip(rates(other))
                .map(|(a, b)| a / b)
                .collect();
            Estimate::mean_of(&ratios)
                .and_then(|e| e.low)
                .is_some_and(|low| low > 1.0)
        };
        let like: Vec<String> = ranked[1..]
            .iter()
            .filter(|(_, _, r)| !beaten(r))
            .map(|(c, _, _)| setting(c))
            .collect();
        let verdict = if like.is_empty() {
            "better than all others".to_owned()
        } else {
            format!("no difference shown to {}", like.join(", "))
        };
        let text = if like.is_empty() {
            format!(
                "InnoDB does most {} transactions with a {label} of {}: {:.0} per second",
                mix.name(),
                setting(first),
                e.value
            )
        } else {
            format!(
                "InnoDB's {} transactions: {label} of {} measured best, {verdict}",
                mix.name(),
                setting(first)
            )
        };
        book.run_mut().findings.push(Finding {
            id: format!("oltp-{name}-best-{}", mix.name()),
            text,
            advice: match experiment {
                Experiment::PageSize if like.is_empty() => {
                    format!("innodb_page_size={}", first.page)
                }
                _ => String::new(),
            },
            confidence: if like.is_empty() { "strong" } else { "weak" }.into(),
            jobs: Vec::new(),
            evidence: vec![format!("oltp-{name}-best"), format!("oltp-{name}-rate")],
            ..Finding::default()
        });
        rows.push(vec![
            TableCell::Text(mix.name().into()),
            TableCell::Text(setting(first)),
            TableCell::Estimate(e),
            TableCell::Text(verdict),
        ]);
    }
    Table {
        id: format!("oltp-{name}-best"),
        title: format!("Best {label} by transactions"),
        columns: vec![
            column("transactions", ""),
            column("best", ""),
            column("rate", "1/s"),
            column("verdict (95 %)", ""),
        ],
        rows,
    }
}

fn cross_check(book: &mut Notebook, name: &str, cells: &[(&Cell, &[Repeat])]) -> Table {
    let mut rows = Vec::new();
    let mut logs = Vec::new();
    for (cell, repeats) in cells {
        let ratio = mean(repeats, |r| Some(r.outcome.rate()? / r.sysbench?));
        if let Some(r) = ratio {
            logs.push(r.value.ln());
        }
        rows.push(vec![
            TableCell::Text(cell.label()),
            estimate(Estimate::mean_of(&rates(repeats))),
            estimate(mean(repeats, |r| r.sysbench)),
            estimate(ratio),
        ]);
    }
    if let Some(e) = Estimate::mean_of(&logs) {
        let middle = e.value.exp();
        book.run_mut().findings.push(Finding {
            id: format!("oltp-{name}-cross-check"),
            text: format!(
                "fathom's driver and sysbench differ by {:+.1} % on the same instances (geometric mean of {} settings, in turns)",
                (middle - 1.0) * 100.0,
                logs.len()
            ),
            advice: String::new(),
            confidence: "strong".into(),
            jobs: Vec::new(),
            evidence: vec![format!("oltp-{name}-cross-check")],
            ..Finding::default()
        });
    }
    Table {
        id: format!("oltp-{name}-cross-check"),
        title: "fathom's driver and sysbench on the same instance, in turns".into(),
        columns: vec![
            column("transactions", ""),
            column("fathom", "1/s"),
            column("sysbench", "1/s"),
            column("fathom over sysbench", ""),
        ],
        rows,
    }
}

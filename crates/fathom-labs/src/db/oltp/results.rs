//! What the measurements say: the figures and tables of Zhang et al. 2018, section V, with intervals.

use std::collections::BTreeMap;

use fathom_experiments::Notebook;
use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, number, point, series,
};
use fathom_stats::Estimate;
use fathom_stats::compare::{Good, Verdict, geometric_mean, paired};
use fathom_telemetry::Histogram;
use fathom_telemetry::schema::{Cell as TableCell, Chart, ChartKind, Finding, Section, Table};

use super::super::mariadb::Instance;
use super::{Cell, Experiment, FORMATS, Mix, OltpOptions, Repeat};

/// InnoDB's page size where nobody says another, bytes.
const USUAL_PAGE: u64 = 16 << 10;

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
        let (table, said) = best(book, name, experiment, cells);
        section.tables.push(table);
        section.text.push_str(&said);
    }
    if cells
        .iter()
        .any(|(_, r)| r.iter().any(|x| x.sysbench.is_some()))
    {
        let (table, said) = cross_check(name, cells);
        section.tables.push(table);
        section.text.push_str(&said);
    }
    let run = book.run_mut();
    run.sections.push(section);
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

/// Which setting is best for which transactions, and whether that is more than noise; in words where nobody is told to
/// change anything.
fn best(
    book: &mut Notebook,
    name: &str,
    experiment: Experiment,
    cells: &[(&Cell, &[Repeat])],
) -> (Table, String) {
    let (label, _, _) = sweep(experiment);
    let setting = |c: &Cell| match experiment {
        Experiment::PageSize => format!("{} KiB", c.page >> 10),
        Experiment::Threads | Experiment::One => c.threads.to_string(),
        Experiment::Cache => format!("{} MiB", c.pool >> 20),
        Experiment::Compression => FORMATS[c.format].0.to_owned(),
    };
    let (mut rows, mut said) = (Vec::new(), String::new());
    for mix in mixes(cells) {
        let mut ranked: Vec<(&Cell, Estimate, &[Repeat])> = cells
            .iter()
            .filter(|(c, _)| c.mix == mix)
            .filter_map(|(c, r)| Some((*c, Estimate::mean_of(&rates(r))?, *r)))
            .collect();
        ranked.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        // One setting is no choice.
        let [(first, e, of_first), others @ ..] = &ranked[..] else {
            continue;
        };
        if others.is_empty() {
            continue;
        }
        // The best is named together with all that it was not shown to beat: repeats of one round belong together.
        let over = |other: &[Repeat]| {
            let ratios = rates(of_first).into_iter().zip(rates(other));
            paired(&ratios.map(|(a, b)| a / b).collect::<Vec<_>>(), Good::More)
        };
        let beaten = |other: &[Repeat]| over(other).is_some_and(|d| d.verdict == Verdict::Better);
        let like: Vec<String> = others
            .iter()
            .filter(|(_, _, r)| !beaten(r))
            .map(|(c, _, _)| setting(c))
            .collect();
        let verdict = if like.is_empty() {
            "better than all others".to_owned()
        } else {
            format!("no difference shown to {}", like.join(", "))
        };
        let text = format!(
            "InnoDB's {} transactions: {label} {} measured best with {:.0} per second, {verdict}",
            mix.name(),
            setting(first),
            e.value
        );
        // What a server has that nobody has set up otherwise.
        let usual = |c: &Cell| match experiment {
            Experiment::PageSize => c.page == USUAL_PAGE,
            Experiment::Compression => c.format == 0,
            _ => false,
        };
        let against = others.iter().find(|(c, _, _)| usual(c));
        let better = against.and_then(|(_, _, r)| over(r));
        match better.filter(|d| d.verdict == Verdict::Better) {
            Some(d) => book.run_mut().findings.push(Finding {
                id: format!("oltp-{name}-best-{}", mix.name()),
                text: format!(
                    "{text}; {:+.0} % against what is usual",
                    100.0 * d.relative.value
                ),
                advice: match experiment {
                    Experiment::PageSize => format!("innodb_page_size={}", first.page),
                    _ => FORMATS[first.format].1.to_owned(),
                },
                confidence: if like.is_empty() {
                    "strong"
                } else {
                    "moderate"
                }
                .into(),
                jobs: Vec::new(),
                evidence: vec![format!("oltp-{name}-best"), format!("oltp-{name}-rate")],
                gain: Some(d.relative),
                refuted_by: "Your own tables and transactions with both settings.".into(),
            }),
            None => said.push_str(&format!(" {text}.")),
        }
        rows.push(vec![
            TableCell::Text(mix.name().into()),
            TableCell::Text(setting(first)),
            TableCell::Estimate(*e),
            TableCell::Text(verdict),
        ]);
    }
    let table = Table {
        id: format!("oltp-{name}-best"),
        title: format!("Best {label} by transactions"),
        columns: vec![
            column("transactions", ""),
            column("best", ""),
            column("rate", "1/s"),
            column("verdict (95 %)", ""),
        ],
        rows,
    };
    (table, said)
}

fn cross_check(name: &str, cells: &[(&Cell, &[Repeat])]) -> (Table, String) {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for (cell, repeats) in cells {
        let ratio = mean(repeats, |r| Some(r.outcome.rate()? / r.sysbench?));
        ratios.extend(ratio.map(|r| r.value));
        rows.push(vec![
            TableCell::Text(cell.label()),
            estimate(Estimate::mean_of(&rates(repeats))),
            estimate(mean(repeats, |r| r.sysbench)),
            estimate(ratio),
        ]);
    }
    let said = geometric_mean(&ratios).map_or(String::new(), |middle| {
        format!(
            " fathom's driver and sysbench differ by {:+.1} % on the same instances (geometric mean of {} settings, in turns).",
            (middle - 1.0) * 100.0,
            ratios.len()
        )
    });
    let table = Table {
        id: format!("oltp-{name}-cross-check"),
        title: "fathom's driver and sysbench on the same instance, in turns".into(),
        columns: vec![
            column("transactions", ""),
            column("fathom", "1/s"),
            column("sysbench", "1/s"),
            column("fathom over sysbench", ""),
        ],
        rows,
    };
    (table, said)
}

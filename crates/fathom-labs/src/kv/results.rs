//! What the measurements of the key-value lab say: tables, charts, headlines, a finding.

use std::collections::BTreeMap;

use fathom_experiments::Notebook;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Axis, Cell as TableCell, Chart, ChartKind, ChartSeries, Column, Finding, Headline, Point,
    Section, Table,
};
use fathom_telemetry::{Flag, FlagCode, Histogram};

use super::{Cell, KvOptions, Repeat, Sweep};

pub(super) fn mean(repeats: &[Repeat], f: impl Fn(&Repeat) -> Option<f64>) -> Option<Estimate> {
    let values: Vec<f64> = repeats.iter().filter_map(f).collect();
    Estimate::mean_of(&values)
}

pub(super) fn rate(r: &Repeat) -> Option<f64> {
    (r.outcome.ops > 0).then(|| r.outcome.ops as f64 / r.outcome.seconds)
}

pub(super) fn per_op(r: &Repeat, n: u64) -> Option<f64> {
    (r.outcome.ops > 0).then(|| n as f64 / r.outcome.ops as f64)
}

/// What the raw device allows: every miss costs a read and, where leaves change, a write.
fn ceiling(cell: &Cell, r: &Repeat) -> Option<f64> {
    let misses = per_op(r, r.outcome.stats.misses).filter(|m| *m > 0.01)?;
    let updates = cell.workload.mix.update == 100;
    updates.then_some(r.raw? / 2.0 / misses)
}

/// Leaves moved between pool and device, each way counted, of the raw device's IOPS.
fn share(cell: &Cell, r: &Repeat) -> Option<f64> {
    Some(rate(r)? / ceiling(cell, r)? * 100.0)
}

fn estimate(e: Option<Estimate>) -> TableCell {
    e.map_or(TableCell::Hole(()), TableCell::Estimate)
}

fn number(v: Option<f64>) -> TableCell {
    v.map_or(TableCell::Hole(()), TableCell::Number)
}

fn column(label: &str, unit: &str) -> Column {
    Column {
        label: label.into(),
        unit: unit.into(),
    }
}

fn axis(label: &str, unit: &str) -> Axis {
    Axis {
        label: label.into(),
        unit: unit.into(),
        log: false,
    }
}

pub(super) fn label(cell: &Cell) -> String {
    if let Some(engine) = cell.engine {
        return format!("{}-{}", cell.workload.name, engine.name);
    }
    match cell.workload.sweep {
        Sweep::None => cell.workload.name.to_owned(),
        Sweep::Pages => format!("update-{}k", cell.page / 1024),
        Sweep::Caches => format!("update-{}pc", cell.cache),
    }
}

/// Puts everything into the notebook.
pub(super) fn report(
    book: &mut Notebook,
    cells: &[Cell],
    all: &[Vec<Repeat>],
    options: &KvOptions,
) {
    let mut section = Section {
        id: "kv".into(),
        title: "Key-value operations".into(),
        text: format!(
            "fathom's own B+tree, {} threads, 8-byte keys, {}, {}. The ceiling is what the raw device allows: its mixed IOPS (half reads, half writes of a page, the same depth, measured just before and just after) / 2 / misses per operation. Misses, waits and CPU time are of the measured part only.{}",
            options.threads,
            if options.buffered {
                "through the page cache"
            } else {
                "past the page cache"
            },
            if options.commit {
                "every commit logged and synced"
            } else {
                "durable with checkpoints every second, nothing logged"
            },
            if cfg!(debug_assertions) {
                " This fathom was built with assertions: an optimised one does more."
            } else {
                ""
            }
        ),
        ..Section::default()
    };
    let (mut rows, mut waits) = (Vec::new(), Vec::new());
    let mut headlines = Vec::new();
    let mut best: Option<Estimate> = None;
    for (cell, repeats) in cells.iter().zip(all) {
        if cell.engine.is_some() {
            continue;
        }
        let name = label(cell);
        let ops = mean(repeats, rate);
        let of_ceiling = mean(repeats, |r| share(cell, r));
        let mut latency = Histogram::new();
        repeats
            .iter()
            .for_each(|r| latency.merge(&r.outcome.latency));
        let quantile = |q| latency.quantile_supported(q, 10).map(|v| v as f64);
        rows.push(vec![
            TableCell::Text(name.clone()),
            TableCell::Number(cell.page as f64),
            number(repeats.last().map(|r| r.cached as f64)),
            number(
                repeats
                    .last()
                    .map(|r| r.leaves as f64 * cell.page as f64)
                    .filter(|b| *b > 0.0),
            ),
            estimate(ops),
            estimate(mean(repeats, |r| per_op(r, r.outcome.stats.misses))),
            estimate(mean(repeats, |r| r.raw)),
            estimate(mean(repeats, |r| ceiling(cell, r))),
            estimate(of_ceiling),
            number(quantile(0.5)),
            number(quantile(0.99)),
        ]);
        let ms = |f: fn(&fathom_kv::Stats) -> u64| {
            estimate(mean(repeats, |r| {
                per_op(r, f(&r.outcome.stats)).map(|ns| ns / 1000.0)
            }))
        };
        waits.push(vec![
            TableCell::Text(name.clone()),
            ms(|s| s.latch_wait_ns),
            ms(|s| s.frame_wait_ns),
            ms(|s| s.space_wait_ns),
            ms(|s| s.log_wait_ns),
            ms(|s| s.stall_ns),
            estimate(mean(repeats, |r| {
                let n = r.outcome.stats.checkpoints;
                (n > 0).then(|| r.outcome.stats.cut_ns as f64 / n as f64 / 1000.0)
            })),
            estimate(mean(repeats, |r| {
                per_op(r, 1).map(|x| x * r.outcome.cpu * 1e6)
            })),
            estimate(mean(repeats, |r| {
                per_op(r, 1).map(|x| x * r.outcome.kernel_cpu * 1e6)
            })),
        ]);
        let flags = flags(repeats, options);
        headlines.push(headline(
            &format!("kv-{name}-ops"),
            &format!("{name}: operations"),
            "1/s",
            ops,
            BTreeMap::new(),
            flags,
        ));
        if cell.workload.mix.update == 100 && of_ceiling.is_some() {
            headlines.push(headline(
                &format!("kv-{name}-of-ceiling"),
                &format!("{name}: of what the raw device allows"),
                "%",
                of_ceiling,
                BTreeMap::new(),
                Vec::new(),
            ));
            best = best.or(of_ceiling);
        }
    }
    section.tables.push(Table {
        id: "kv-table".into(),
        title: "Operations and their ceiling".into(),
        columns: vec![
            column("workload", ""),
            column("page", "bytes"),
            column("cache", "bytes"),
            column("leaves", "bytes"),
            column("operations", "1/s"),
            column("misses per operation", ""),
            column("raw mixed IOPS", "1/s"),
            column("ceiling", "1/s"),
            column("of the ceiling", "%"),
            column("p50", "ns"),
            column("p99", "ns"),
        ],
        rows,
    });
    section.tables.push(Table {
        id: "kv-waits".into(),
        title: "Waits and CPU time per operation, microseconds".into(),
        columns: [
            "workload",
            "latches",
            "free frames",
            "free places",
            "log",
            "stalls",
            "cut of a checkpoint",
            "CPU",
            "kernel threads' CPU",
        ]
        .iter()
        .map(|c| column(c, ""))
        .collect(),
        rows: waits,
    });
    let (dips, dipped) = super::dips::report(cells, all);
    section.tables.push(dips);
    section.charts.push(over_time(cells, all));
    section.charts.extend(sweeps(cells, all));
    let finding = best.map(|e| Finding {
        id: "kv-ceiling".into(),
        text: format!(
            "Random updates reach {:.0} % of what the raw device's mixed IOPS allow at the same depth",
            e.value
        ),
        advice: if e.value < 85.0 {
            "look at the table of waits: latches, stalls or the CPU take the rest".into()
        } else {
            "the device is the limit: a larger cache, or more threads if its depth is not reached, help".into()
        },
        confidence: match e.relative_half_width() {
            Some(w) if w < 0.1 => "strong",
            _ => "weak",
        }
        .into(),
        jobs: Vec::new(),
        evidence: vec!["kv-table".into(), "kv-waits".into()], ..Finding::default() });
    let run = book.run_mut();
    run.results.push(section);
    run.headlines.extend(headlines);
    run.findings.extend(finding);
    run.findings.extend(dipped);
}

/// The processors' share is of the whole machine: 1 is all of them.
fn flags(repeats: &[Repeat], options: &KvOptions) -> Vec<Flag> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
    let busy = repeats
        .iter()
        .map(|r| r.outcome.cpu / r.outcome.seconds / cores)
        .fold(0.0, f64::max);
    let mut flags = Vec::new();
    // Leaves that the engine asked for, and the device was not: half of them is more than a read that brings two.
    let asked: u64 = repeats.iter().map(|r| r.outcome.stats.misses).sum();
    let read: Option<u64> = repeats.iter().map(|r| Some(r.outcome.device?[0])).sum();
    if let Some(read) = read.filter(|r| options.buffered && asked > 1000 && r * 2 < asked) {
        flags.push(Flag::new(
            FlagCode::PageCacheAnswered,
            format!("{asked} leaves were read, of which the device saw {read}"),
            "leave out --buffered, or use a --size that is much larger than the memory",
        ));
    }
    if busy > 0.9 {
        flags.push(Flag::new(
            FlagCode::CpuBound,
            format!("{:.0} % of all processors were used", busy * 100.0),
            "the rate says as much of the processors as of the device: use fewer threads or a smaller cache",
        ));
    }
    flags
}

fn headline(
    id: &str,
    label: &str,
    unit: &str,
    estimate: Option<Estimate>,
    extra: BTreeMap<String, f64>,
    flags: Vec<Flag>,
) -> Headline {
    Headline {
        id: id.into(),
        label: label.into(),
        group: "Key-value".into(),
        unit: unit.into(),
        estimate,
        extra,
        jobs: Vec::new(),
        flags,
    }
}

fn chart(id: &str, title: &str, x: Axis, y: Axis, series: Vec<ChartSeries>) -> Chart {
    Chart {
        id: id.into(),
        title: title.into(),
        kind: ChartKind::Line,
        x,
        y,
        z: None,
        categories: Vec::new(),
        series,
        marks: Vec::new(),
    }
}

/// The last repeat of each line, at most 600 points.
fn over_time(cells: &[Cell], all: &[Vec<Repeat>]) -> Chart {
    const POINTS: usize = 600;
    let series = cells
        .iter()
        .zip(all)
        .filter_map(|(cell, repeats)| {
            let full = &repeats.last()?.outcome.series;
            let step = full.len().div_ceil(POINTS).max(1);
            let points = full
                .chunks(step)
                .map(|c| Point {
                    x: c[0].0,
                    y: Some(c.iter().map(|p| p.1).sum::<f64>() / c.len() as f64),
                    ..Point::default()
                })
                .collect();
            Some(ChartSeries {
                name: label(cell),
                points,
            })
        })
        .collect();
    chart(
        "kv-over-time",
        "Rate over time, last repeat",
        axis("time", "s"),
        axis("operations", "1/s"),
        series,
    )
}

fn sweeps(cells: &[Cell], all: &[Vec<Repeat>]) -> Vec<Chart> {
    let one = |sweep, id, title, x: Axis, at: fn(&Cell) -> f64| {
        let points: Vec<Point> = cells
            .iter()
            .zip(all)
            .filter(|(c, _)| c.workload.sweep == sweep)
            .map(|(c, repeats)| {
                let e = mean(repeats, rate);
                Point {
                    x: at(c),
                    y: e.map(|e| e.value),
                    low: e.and_then(|e| e.low),
                    high: e.and_then(|e| e.high),
                    ..Point::default()
                }
            })
            .collect();
        let series = vec![ChartSeries {
            name: "updates".into(),
            points,
        }];
        (!series[0].points.is_empty())
            .then(|| chart(id, title, x, axis("operations", "1/s"), series))
    };
    let pages = one(
        Sweep::Pages,
        "kv-pages",
        "Random updates by page size",
        axis("page", "bytes"),
        |c| c.page as f64,
    );
    let caches = one(
        Sweep::Caches,
        "kv-caches",
        "Random updates by cached share",
        axis("cached", "%"),
        |c| c.cache,
    );
    pages.into_iter().chain(caches).collect()
}

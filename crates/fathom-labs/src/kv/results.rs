//! What the measurements of the key-value lab say: tables, charts, headlines, a finding.

use fathom_experiments::Notebook;
use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, line_chart, number, point, series,
};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Axis, Cell as TableCell, Chart, ChartKind, Finding, Headline, Section, Table,
};
use fathom_telemetry::{Flag, FlagCode, Histogram};

use super::{Cell, KvOptions, Repeat, Sweep};

/// Share of the ceiling from which the device is the limit, percent.
const NEAR: f64 = 85.0;
/// Of headlines.
const GROUP: &str = "Key-value";

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
        // A miss that the page cache answers costs the device nothing: its IOPS are no limit then.
        let ceiling = |r: &Repeat| ceiling(cell, r).filter(|_| !options.buffered);
        // Leaves moved between pool and device, each way counted, of the raw device's IOPS.
        let of_ceiling = mean(repeats, |r| Some(rate(r)? / ceiling(r)? * 100.0));
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
            estimate(mean(repeats, ceiling)),
            estimate(of_ceiling),
            number(quantile(0.5)),
            number(quantile(0.99)),
        ]);
        let micros = |f: fn(&fathom_kv::Stats) -> u64| {
            estimate(mean(repeats, |r| {
                per_op(r, f(&r.outcome.stats)).map(|ns| ns / 1000.0)
            }))
        };
        waits.push(vec![
            TableCell::Text(name.clone()),
            micros(|s| s.latch_wait_ns),
            micros(|s| s.frame_wait_ns),
            micros(|s| s.space_wait_ns),
            micros(|s| s.log_wait_ns),
            micros(|s| s.stall_ns),
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
        headlines.push(Headline {
            flags: flags(repeats, options),
            ..headline_of(
                GROUP,
                &format!("{name}: operations"),
                &format!("kv-{name}-ops"),
                "1/s",
                ops,
                Vec::new(),
            )
        });
        if cell.workload.mix.update == 100 && of_ceiling.is_some() {
            headlines.push(headline_of(
                GROUP,
                &format!("{name}: of what the raw device allows"),
                &format!("kv-{name}-of-ceiling"),
                "%",
                of_ceiling,
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
    let finding = match best {
        Some(e) if e.value < NEAR => Some(below_ceiling(e)),
        Some(e) => {
            section.text.push_str(&format!(
                " Random updates reach {:.0} % of the ceiling: the device is the limit. A larger cache helps, or more threads where the device gains from depth.",
                e.value
            ));
            None
        }
        None => None,
    };
    let run = book.run_mut();
    run.sections.push(section);
    run.headlines.extend(headlines);
    run.findings.extend(finding);
    run.findings.extend(dipped);
}

/// What keeps updates from the ceiling is not the device.
fn below_ceiling(of: Estimate) -> Finding {
    let more = |share: f64| 100.0 / share - 1.0;
    let gain = Estimate {
        value: more(of.value),
        low: of.high.map(more),
        high: of.low.filter(|l| *l > 0.0).map(more),
        ..of
    };
    Finding {
        id: "kv-ceiling".into(),
        text: format!(
            "Random updates reach {:.0} % of what the raw device's mixed IOPS allow at the same depth",
            of.value
        ),
        advice: "look at the table of waits: latches, stalls or the CPU take the rest".into(),
        confidence: match of.relative_half_width() {
            Some(w) if w < 0.1 => "strong",
            _ => "weak",
        }
        .into(),
        jobs: Vec::new(),
        evidence: vec!["kv-table".into(), "kv-waits".into()],
        gain: Some(gain),
        refuted_by: "More repeats that come nearer to the ceiling: --repeats 10.".into(),
    }
}

/// The processors' share is of the whole machine: 1 is all of them.
fn flags(repeats: &[Repeat], options: &KvOptions) -> Vec<Flag> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
    let busy = repeats
        .iter()
        .map(|r| r.outcome.cpu / r.outcome.seconds / cores)
        .fold(0.0, f64::max);
    let mut flags = Vec::new();
    // Not all, because one read of the device may bring a neighbour that is asked for later.
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

/// The last repeat of each line, at most 600 points.
fn over_time(cells: &[Cell], all: &[Vec<Repeat>]) -> Chart {
    const POINTS: usize = 600;
    let lines = cells
        .iter()
        .zip(all)
        .filter_map(|(cell, repeats)| {
            let full = &repeats.last()?.outcome.series;
            let step = full.len().div_ceil(POINTS).max(1);
            let mean = |c: &[(f64, f64)]| c.iter().map(|p| p.1).sum::<f64>() / c.len() as f64;
            let points = full.chunks(step).map(|c| (c[0].0, mean(c))).collect();
            Some((label(cell), points))
        })
        .collect();
    line_chart(
        "kv-over-time",
        "Rate over time, last repeat",
        axis("time", "s", false),
        axis("operations", "1/s", false),
        lines,
    )
}

fn sweeps(cells: &[Cell], all: &[Vec<Repeat>]) -> Vec<Chart> {
    let one = |sweep, id, title, x: Axis, at: fn(&Cell) -> f64| {
        let points: Vec<_> = cells
            .iter()
            .zip(all)
            .filter(|(c, _)| c.workload.sweep == sweep)
            .map(|(c, repeats)| point(at(c), mean(repeats, rate)))
            .collect();
        let y = axis("operations", "1/s", false);
        (!points.is_empty()).then(|| {
            let lines = vec![series("updates", points)];
            chart(id, title, ChartKind::Line, x, y, lines)
        })
    };
    let pages = one(
        Sweep::Pages,
        "kv-pages",
        "Random updates by page size",
        axis("page", "bytes", false),
        |c| c.page as f64,
    );
    let caches = one(
        Sweep::Caches,
        "kv-caches",
        "Random updates by cached share",
        axis("cached", "%", false),
        |c| c.cache,
    );
    pages.into_iter().chain(caches).collect()
}

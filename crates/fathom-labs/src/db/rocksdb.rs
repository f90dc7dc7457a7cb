//! RocksDB by its own db_bench: run, parsed, and set beside what the device counted.
//!
//! Fills and reads have different seeds: db_bench draws the same keys in the same order from the same seed, and a
//! read phase that replays its fill finds everything where it was just put.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, line_chart, number, point, series,
};
use fathom_experiments::survey::{Outlook, Watcher};
use fathom_experiments::{Bench, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell as TableCell, Chart, ChartKind, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use super::{Around, DbOptions, directory};
use crate::LabError;
use crate::skipped::Skipped;
use fathom_system::lab_dir::LabDir;
use fathom_system::programs::{self, ChildGuard};

/// A workload of db_bench.
pub struct RocksWorkload {
    /// Its name there.
    pub name: &'static str,
    /// Whether it begins with an empty database.
    fills: bool,
    /// Whether it has several threads.
    many: bool,
}

const fn workload(name: &'static str, fills: bool, many: bool) -> RocksWorkload {
    RocksWorkload { name, fills, many }
}

/// The four of Han et al. 2021, and more. Reads come after a fill.
pub const WORKLOADS: [RocksWorkload; 8] = [
    workload("fillseq", true, false),
    workload("fillrandom", true, false),
    workload("overwrite", false, true),
    workload("readseq", false, true),
    workload("readrandom", false, true),
    workload("seekrandom", false, true),
    workload("readwhilewriting", false, true),
    workload("updaterandom", false, true),
];

/// What is measured.
#[derive(Debug, Clone)]
pub struct RocksOptions {
    /// What every database lab takes.
    pub db: DbOptions,
    /// Names of [`WORKLOADS`].
    pub workloads: Vec<String>,
    /// Keys.
    pub keys: u64,
    /// Bytes of a value.
    pub value: u32,
    /// Threads, where a workload has several.
    pub threads: u32,
    /// Bytes of the block cache.
    pub cache: Bytes,
}

const KEY: u64 = 16;

impl RocksOptions {
    fn data(&self) -> u64 {
        self.keys * (KEY + u64::from(self.value))
    }
}

fn chosen(options: &RocksOptions) -> Vec<&'static RocksWorkload> {
    WORKLOADS
        .iter()
        .filter(|w| options.workloads.iter().any(|n| n == w.name))
        .collect()
}

fn time(plan: &Plan, options: &RocksOptions) -> Nanos {
    options
        .db
        .time
        .unwrap_or(Nanos(plan.profile.job_time.0 * 3))
}

/// Time and bytes, at most.
pub fn outlook(plan: &Plan, options: &RocksOptions, fills: Bytes) -> Outlook {
    let mut o = super::embedded_outlook(plan, &options.db, &["update"], fills);
    let n = chosen(options).len() as u32 * plan.profile.repeats;
    o.jobs += n;
    o.time += Nanos(time(plan, options).0 * u64::from(n)) + Nanos::from_secs(u64::from(n) * 2);
    // Each byte is written to the log, flushed, and compacted a few times.
    o.written_at_most.0 += options.data() * 8 * u64::from(n);
    o
}

/// What db_bench printed for one workload.
#[derive(Debug, Clone, Default, PartialEq)]
struct Printed {
    micros: f64,
    ops: f64,
    seconds: f64,
    operations: f64,
    megabytes: Option<f64>,
    /// P50, P99, P99.9 in microseconds.
    percentiles: [Option<f64>; 3],
    /// Counters of `--statistics`.
    counters: BTreeMap<String, u64>,
    assertions: bool,
}

/// One measurement.
struct Repeat {
    printed: Printed,
    device: Option<[u64; 2]>,
    /// (seconds, operations per second), from its report file.
    series: Vec<(f64, f64)>,
}

fn parse(said: &str, workload: &str) -> Option<Printed> {
    let mut found = Printed {
        assertions: said.contains("Assertions are enabled"),
        ..Printed::default()
    };
    let line = said.lines().find(|l| {
        l.split_once(':')
            .is_some_and(|(name, rest)| name.trim() == workload && rest.contains("micros/op"))
    })?;
    let words: Vec<&str> = line.split_once(':')?.1.split_whitespace().collect();
    let before = |unit: &str| -> Option<f64> {
        let at = words.iter().position(|w| w.trim_end_matches(';') == unit)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    found.micros = before("micros/op")?;
    found.ops = before("ops/sec")?;
    found.seconds = before("seconds").unwrap_or(0.0);
    found.operations = before("operations").unwrap_or(0.0);
    found.megabytes = before("MB/s");
    if let Some(line) = said.lines().find(|l| l.starts_with("Percentiles:")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (into, name) in found.percentiles.iter_mut().zip(["P50:", "P99:", "P99.9:"]) {
            let at = words.iter().position(|w| *w == name);
            *into = at.and_then(|i| words.get(i + 1)?.parse().ok());
        }
    }
    for line in said.lines() {
        if let Some((name, n)) = line.split_once(" COUNT : ")
            && !name.contains(' ')
            && let Ok(n) = n.trim().parse()
        {
            found.counters.insert(name.to_owned(), n);
        }
    }
    Some(found)
}

fn parse_series(text: &str) -> Vec<(f64, f64)> {
    text.lines()
        .filter_map(|l| {
            let (at, rate) = l.split_once(',')?;
            Some((at.parse().ok()?, rate.parse().ok()?))
        })
        .collect()
}

fn probe() -> Result<(PathBuf, String), LabError> {
    let program = programs::find("db_bench").ok_or_else(|| LabError::Missing {
        what: "db_bench is not installed".into(),
        remedy: "apt-get install rocksdb-tools".into(),
    })?;
    let version = programs::first_line(&program, &["--version"]);
    Ok((program, version))
}

/// Measures and puts sections, headlines and findings into the notebook.
///
/// # Errors
/// Where the target is no directory, db_bench fails, or the run directory does.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &RocksOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let dir = directory(bench)?;
    let mut skipped = Vec::new();
    let found = match probe() {
        Ok(found) => {
            // A fill, its log, and what compactions have not removed yet.
            let place = LabDir::create(&dir, options.data() * 4 + (256 << 20));
            Some((found, place.map_err(LabError::from)?))
        }
        Err(e) => {
            skipped.push(Skipped::from_error("RocksDB", e));
            None
        }
    };
    super::embedded(bench, plan, &options.db, &["update"], book, watcher)?;
    let mut measured = Ok(());
    if let Some(((program, version), place)) = &found {
        let mut all = Rounds::new();
        measured = rounds(
            bench,
            plan,
            options,
            (program, place.path()),
            &mut all,
            watcher,
        );
        measured = measured.map_err(|e| super::with_room(place.path(), e));
        all.retain(|(_, repeats)| !repeats.is_empty());
        if !all.is_empty() {
            report(book, options, version, &all);
        }
    }
    drop(found);
    book.run_mut()
        .sections
        .extend(crate::skipped::skipped("rocksdb", &skipped));
    if bench.interrupted() {
        super::interrupted(book);
        return Ok(());
    }
    measured.map_err(NotebookError::from)
}

type Rounds = Vec<(&'static RocksWorkload, Vec<Repeat>)>;

fn rounds(
    bench: &dyn Bench,
    plan: &Plan,
    options: &RocksOptions,
    (program, place): (&Path, &Path),
    all: &mut Rounds,
    watcher: &mut dyn Watcher,
) -> Result<(), LabError> {
    *all = chosen(options).iter().map(|w| (*w, Vec::new())).collect();
    let total = all.len() as u32 * plan.profile.repeats;
    let device = CounterSource::locate(place).ok();
    let mut done = 0;
    for repeat in 0..plan.profile.repeats {
        let mut filled = false;
        for (workload, repeats) in &mut *all {
            if bench.interrupted() {
                return Ok(());
            }
            watcher.job(done, total, workload.name);
            let db = place.join("db");
            if workload.fills {
                let _ = std::fs::remove_dir_all(&db);
            } else if !filled {
                // Reads need something to read, where no fill was asked for.
                let fill = &WORKLOADS[1];
                one(bench, options, program, place, (fill, repeat, Nanos::ZERO))?;
            }
            filled = true;
            let around = Around::begin(device.as_ref());
            let limit = time(plan, options);
            let (printed, series) = one(bench, options, program, place, (workload, repeat, limit))?;
            repeats.push(Repeat {
                printed,
                device: around.end(),
                series,
            });
            done += 1;
        }
    }
    Ok(())
}

/// Never the seed of a fill for what comes after one, in any repeat.
fn seed(seed: u64, repeat: u32, workload: &RocksWorkload) -> u64 {
    (seed + u64::from(repeat)) * 1000 + 500 * u64::from(!workload.fills) + 1
}

/// Runs one workload; a fill has no limit of time, so that what is read later is complete.
fn one(
    bench: &dyn Bench,
    options: &RocksOptions,
    program: &Path,
    place: &Path,
    (workload, repeat, limit): (&RocksWorkload, u32, Nanos),
) -> Result<(Printed, Vec<(f64, f64)>), LabError> {
    let log = place.join("db_bench.log");
    let report = place.join("report.csv");
    for old in [&log, &report] {
        let _ = std::fs::remove_file(old);
    }
    let seed = seed(options.db.seed, repeat, workload);
    let mut command = Command::new(program);
    command
        .arg(format!("--benchmarks={},stats", workload.name))
        .arg(format!("--db={}", place.join("db").display()))
        .arg(format!("--num={}", options.keys))
        .arg(format!("--value_size={}", options.value))
        .arg(format!("--seed={seed}"))
        .arg(format!("--cache_size={}", options.cache.0))
        .arg(format!("--use_existing_db={}", u32::from(!workload.fills)))
        .arg(format!(
            "--threads={}",
            if workload.many { options.threads } else { 1 }
        ))
        .args([
            "--use_direct_io_for_flush_and_compaction",
            "--use_direct_reads",
            "--batch_size=8",
            "--max_write_buffer_number=64",
            "--compression_type=none",
            "--statistics",
            "--stats_level=3",
            "--histogram",
            "--report_interval_seconds=1",
        ])
        .arg(format!("--report_file={}", report.display()))
        .current_dir(place);
    if !workload.fills {
        let seconds = limit.as_secs_f64().ceil().max(1.0);
        command.arg(format!("--duration={seconds}"));
    }
    let mut kept = ChildGuard::start(command, &log)?;
    kept.succeed(&|| bench.interrupted())?;
    // Its files are closed when it has ended; the log may be written a moment later on some file systems.
    std::thread::sleep(Duration::from_millis(1));
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let printed = parse(&said, workload.name).ok_or_else(|| {
        LabError::Failed(format!(
            "db_bench said nothing about {} that is understood: {}",
            workload.name,
            programs::last_words(&log)
        ))
    })?;
    let series = std::fs::read_to_string(&report).unwrap_or_default();
    Ok((printed, parse_series(&series)))
}

fn mean(repeats: &[Repeat], f: impl Fn(&Repeat) -> Option<f64>) -> Option<Estimate> {
    let values: Vec<f64> = repeats.iter().filter_map(f).collect();
    Estimate::mean_of(&values)
}

fn report(book: &mut Notebook, options: &RocksOptions, version: &str, all: &Rounds) {
    let ns = |v: Option<f64>| v.map(|us| us * 1000.0);
    let mut rows = Vec::new();
    let mut counted = Vec::new();
    let mut headlines = Vec::new();
    for (w, repeats) in all {
        let ops = mean(repeats, |r| Some(r.printed.ops));
        let percentile = |i: usize| mean(repeats, |r| ns(r.printed.percentiles[i]));
        let per = |which: usize| {
            mean(repeats, |r| {
                let n = r.printed.operations;
                (n > 0.0).then_some(r.device?[which] as f64 / n)
            })
        };
        rows.push(vec![
            TableCell::Text(w.name.into()),
            TableCell::Number(f64::from(if w.many { options.threads } else { 1 })),
            estimate(ops),
            estimate(mean(repeats, |r| ns(Some(r.printed.micros)))),
            estimate(percentile(0)),
            estimate(percentile(1)),
            estimate(percentile(2)),
            estimate(mean(repeats, |r| r.printed.megabytes.map(|m| m * 1e6))),
            estimate(per(0)),
            estimate(per(1)),
        ]);
        let counter =
            |name: &str| mean(repeats, |r| r.printed.counters.get(name).map(|n| *n as f64));
        let written = counter("rocksdb.bytes.written").map_or(0.0, |e| e.value);
        let moved = ["rocksdb.flush.write.bytes", "rocksdb.compact.write.bytes"]
            .iter()
            .filter_map(|n| counter(n))
            .map(|e| e.value)
            .sum::<f64>();
        let (hit, miss) = (
            counter("rocksdb.block.cache.hit").map_or(0.0, |e| e.value),
            counter("rocksdb.block.cache.miss").map_or(0.0, |e| e.value),
        );
        counted.push(vec![
            TableCell::Text(w.name.into()),
            estimate(counter("rocksdb.bytes.written")),
            estimate(counter("rocksdb.flush.write.bytes")),
            estimate(counter("rocksdb.compact.write.bytes")),
            estimate(counter("rocksdb.compact.read.bytes")),
            number((written > 0.0).then(|| moved / written)),
            number((hit + miss > 0.0).then(|| hit / (hit + miss) * 100.0)),
            estimate(counter("rocksdb.stall.micros").map(|e| e.scale(1000.0))),
        ]);
        headlines.push(headline_of(
            "RocksDB",
            &format!("{}: operations", w.name),
            &format!("rocksdb-{}", w.name),
            "1/s",
            ops,
            Vec::new(),
        ));
        headlines.push(headline_of(
            "RocksDB",
            &format!("{}: mean time of an operation", w.name),
            &format!("rocksdb-{}-mean", w.name),
            "ns",
            mean(repeats, |r| ns(Some(r.printed.micros))),
            Vec::new(),
        ));
    }
    let assertions = all
        .iter()
        .flat_map(|(_, r)| r)
        .any(|r| r.printed.assertions);
    let flags = if assertions {
        vec![Flag::new(
            FlagCode::NotChecked,
            "this db_bench was built with assertions: it says itself that it is unnecessarily slow",
            "build RocksDB with DEBUG_LEVEL=0 for figures to compare with others",
        )]
    } else {
        Vec::new()
    };
    let bars = all
        .iter()
        .enumerate()
        .map(|(i, (_, r))| point(i as f64, mean(r, |r| Some(r.printed.ops))))
        .collect();
    let over_time: Vec<(String, Vec<(f64, f64)>)> = all
        .iter()
        .filter_map(|(w, r)| Some((w.name.to_owned(), r.last()?.series.clone())))
        .filter(|(_, s)| s.len() > 1)
        .collect();
    let mut charts = vec![Chart {
        categories: all.iter().map(|(w, _)| w.name.to_owned()).collect(),
        ..chart(
            "rocksdb-rates",
            "Operations by workload",
            ChartKind::Bar,
            axis("workload", "", false),
            axis("operations", "1/s", true),
            vec![series("operations", bars)],
        )
    }];
    if !over_time.is_empty() {
        charts.push(line_chart(
            "rocksdb-over-time",
            "Rate over time, last repeat",
            axis("time", "s", false),
            axis("operations", "1/s", true),
            over_time,
        ));
    }
    let section = Section {
        id: "rocksdb".into(),
        title: "RocksDB (db_bench)".into(),
        text: format!(
            "{version}. {} keys of 16 bytes with values of {} bytes, batches of 8, 64 write buffers at most, a block cache of {}, direct I/O for reads, flushes and compactions, no compression. Rates and percentiles are db_bench's own; reads never have the seed of their fill.",
            options.keys, options.value, options.cache
        ),
        charts,
        tables: vec![
            Table {
                id: "rocksdb-table".into(),
                title: "As db_bench printed it, and what the device counted".into(),
                columns: vec![
                    column("workload", ""),
                    column("threads", ""),
                    column("operations", "1/s"),
                    column("mean", "ns"),
                    column("p50", "ns"),
                    column("p99", "ns"),
                    column("p99.9", "ns"),
                    column("bandwidth", "bytes/s"),
                    column("device reads per operation", ""),
                    column("device writes per operation", ""),
                ],
                rows,
            },
            Table {
                id: "rocksdb-counters".into(),
                title: "RocksDB's own counters".into(),
                columns: vec![
                    column("workload", ""),
                    column("written by the user", "bytes"),
                    column("flushed", "bytes"),
                    column("compacted, written", "bytes"),
                    column("compacted, read", "bytes"),
                    column("write amplification", "x"),
                    column("block cache hits", "%"),
                    column("stalled", "ns"),
                ],
                rows: counted,
            },
        ],
        flags,
    };
    let run = book.run_mut();
    run.sections.push(section);
    run.headlines.extend(headlines);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "WARNING: Assertions are enabled; benchmarks unnecessarily slow
DB path: [db]
fillrandom   :      37.497 micros/op 26601 ops/sec 1.880 seconds 50000 operations;    2.9 MB/s
Microseconds per write:
Count: 50000 Average: 37.5003  StdDev: 700.51
Min: 4  Median: 8.4414  Max: 92199
Percentiles: P50: 8.44 P75: 10.75 P99: 31.72 P99.9: 10310.00 P99.99: 22000.00
rocksdb.bytes.written COUNT : 6550000
rocksdb.db.get.micros P50 : 0.000000 P95 : 0.000000 P99 : 0.000000 P100 : 0.000000 COUNT : 0 SUM : 0
";

    #[test]
    fn what_it_printed_is_what_is_reported() {
        let p = parse(SAID, "fillrandom").unwrap();
        assert_eq!((p.micros, p.ops, p.seconds), (37.497, 26601.0, 1.880));
        assert_eq!((p.operations, p.megabytes), (50000.0, Some(2.9)));
        assert_eq!(p.percentiles, [Some(8.44), Some(31.72), Some(10310.0)]);
        assert_eq!(p.counters.len(), 1);
        assert_eq!(p.counters["rocksdb.bytes.written"], 6_550_000);
        assert!(p.assertions);
        assert_eq!(parse(SAID, "readrandom"), None);
    }

    #[test]
    fn its_series_is_read_without_the_heading() {
        let s = parse_series("secs_elapsed,interval_qps\n1,26455\n2,30000\n");
        assert_eq!(s, [(1.0, 26455.0), (2.0, 30000.0)]);
    }

    #[test]
    fn reads_never_have_the_seed_of_a_fill() {
        let seeds = |fills: bool| -> std::collections::BTreeSet<u64> {
            let those = || WORKLOADS.iter().filter(|w| w.fills == fills);
            (0..10)
                .flat_map(|repeat| those().map(move |w| seed(7, repeat, w)))
                .collect()
        };
        let (fills, reads) = (seeds(true), seeds(false));
        assert_eq!((fills.len(), reads.len()), (10, 10));
        assert!(fills.is_disjoint(&reads));
    }
}

//! RocksDB by its own db_bench: run, parsed, and set beside what the device counted.
//!
//! Fills and reads have different seeds: db_bench draws the same keys in the same order from the same seed, and a
//! read phase that replays its fill finds everything where it was just put.

mod printed;
mod results;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use fathom_bench::cost::{FILL_RATE, RunCost};
use fathom_bench::measurement::{Measurement, Typed};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_io::JobError;
use fathom_io::clock::{children_cpu, monotonic};
use fathom_io::target::count;
use fathom_telemetry::schema::DeviceDelta;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{DbOptions, directory};
use crate::LabError;
use crate::confounders::SettingsSeen;
use crate::loads::{self, About};
use crate::skipped::{self, Skipped};
use fathom_system::lab_dir::LabDir;
use fathom_system::packages;
use fathom_system::programs::{self, ChildGuard};
use printed::{Printed, parse, parse_series};

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
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom db rocksdb /mnt/data --keys 10m\n  fathom db rocksdb /mnt/data --workload fillrandom,readrandom --threads 16\nReads have another seed than the fill before them. Without db_bench the embedded tree is measured alone."
)]
pub struct RocksOptions {
    /// What every database lab takes.
    #[command(flatten)]
    pub db: DbOptions,
    /// fillseq, fillrandom, overwrite, readseq, readrandom, seekrandom, readwhilewriting, updaterandom
    #[arg(long = "workload", value_delimiter = ',', value_name = "NAME,…", default_values = ["fillseq", "fillrandom", "overwrite", "readseq", "readrandom", "seekrandom", "readwhilewriting"], value_parser = PossibleValuesParser::new(WORKLOADS.map(|w| w.name)), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// Keys of 16 bytes [default: as many as --size holds with their values, or 500000]
    #[arg(long = "keys", conflicts_with = "size", value_name = "N")]
    #[serde(skip)]
    given: Option<Bytes>,
    /// Keys.
    #[arg(skip)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub value: u32,
    /// Threads, where a workload has several
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub threads: u32,
    /// Block cache
    #[arg(long, default_value = "8m")]
    pub cache: Bytes,
}

/// Bytes of a block of its tables.
const BLOCK: u64 = 4096;
/// Bytes of a key.
pub const KEY: u64 = 16;

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

/// What a workload takes with the start of its program. Fills, and reading everything in order, end with their keys: so
/// many per second where two processors do it on a fast device.
fn seconds(workload: &RocksWorkload, plan: &Plan, options: &RocksOptions) -> f64 {
    const START: f64 = 0.25;
    const FILLED: f64 = 400_000.0;
    const READ: f64 = 4_000_000.0;
    let (time, keys) = (time(plan, options).as_secs_f64(), options.keys as f64);
    let measuring = match workload.name {
        "readseq" => time.min(keys * f64::from(options.threads) / READ),
        _ if workload.fills => {
            let bytes = options.data() as f64 / FILL_RATE as f64;
            (keys / FILLED).max(2.0 * bytes)
        }
        _ => time,
    };
    START + measuring
}

/// What one measurement gave beside its job.
type Repeat = loads::Repeat<Printed>;
type Line = loads::Line<Setting, Printed>;

/// A workload with its threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Setting {
    workload: String,
    threads: u32,
}

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RocksResult {
    options: RocksOptions,
    version: String,
    lines: Vec<Line>,
    skipped: Vec<Skipped>,
    /// Fills end when everything is flushed and compacted.
    #[serde(default)]
    settles: bool,
    /// What RocksDB wrote of its own settings.
    #[serde(default)]
    settings: SettingsSeen,
}

impl Measurement for RocksOptions {
    const NAME: &'static str = "db-rocksdb";
    const IN_DIRECTORY: Option<&'static str> = super::MAKE_ONE;

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        let each = (KEY + u64::from(self.value), "a key with its value");
        let given = self.given.map(|k| k.0);
        self.keys = self.db.sized(typed, given, 500_000, each)?;
        match (1000..=10_000_000_000).contains(&self.keys) {
            true => Ok(()),
            false => Err(format!(
                "--keys: {} is out of range: expected 1000 to 10000000000",
                self.keys
            )),
        }
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let options = self;
        let mut o = super::embedded_cost(plan, &options.db, &["update"], fills);
        let chosen = chosen(options);
        let n = chosen.len() as u32 * plan.profile.repeats;
        let one: f64 = chosen.iter().map(|w| seconds(w, plan, options)).sum();
        let time = Nanos::from_secs_f64(one * f64::from(plan.profile.repeats));
        // Each byte is written to the log, flushed, and compacted a few times.
        let written = Bytes(options.data() * 8 * u64::from(n));
        o.phase("RocksDB").work(n, time, written);
        Ok(o)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let options = self;
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
        super::embedded(bench, plan, &options.db, &["update"], book, sink)?;
        let mut result = RocksResult {
            options: options.clone(),
            version: String::new(),
            lines: Vec::new(),
            skipped,
            settles: false,
            settings: SettingsSeen::default(),
        };
        let mut measured = Ok(());
        if let Some((program, place)) = &found {
            result.version.clone_from(&program.version);
            result.settles = program.settles;
            let mut lab = Lab {
                bench,
                plan,
                options,
                program,
                place,
                book,
                sink,
            };
            measured = lab.rounds(&mut result.lines);
            measured = measured.map_err(|e| super::with_room(place.path(), e));
            result.settings = SettingsSeen::of(settings(&place.path().join("db")), place.path());
        }
        drop(found);
        skipped::missing(book, &result.skipped, true);
        book.found(&result)?;
        if bench.interrupted() {
            super::interrupted(book);
            return Ok(());
        }
        measured.map_err(NotebookError::from)
    }
}

impl ExperimentResult for RocksResult {
    const EXPERIMENT: &'static str = "rocksdb";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
        shown
            .sections
            .extend(skipped::skipped("rocksdb", &self.skipped));
    }
}

/// What brings it, as Debian calls it.
pub(super) const PACKAGE: &str = "rocksdb-tools";

/// Its version, or what is missing.
pub(super) fn version() -> Result<String, LabError> {
    probe().map(|p| p.version)
}

/// db_bench.
struct Program {
    path: PathBuf,
    version: String,
    /// It can wait until everything is flushed and compacted.
    settles: bool,
}

fn probe() -> Result<Program, LabError> {
    let path = programs::find("db_bench").ok_or_else(|| LabError::Missing {
        what: "db_bench is not installed".into(),
        remedy: packages::install(PACKAGE),
    })?;
    let help = programs::output(Command::new(&path).arg("--help")).unwrap_or_default();
    Ok(Program {
        version: programs::first_line(&path, &["--version"]),
        settles: help.contains("waitforcompaction"),
        path,
    })
}

/// A measurement under way.
struct Lab<'a> {
    bench: &'a dyn Bench,
    plan: &'a Plan,
    options: &'a RocksOptions,
    program: &'a Program,
    place: &'a LabDir,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
}

impl Lab<'_> {
    /// Each round in the order of [`WORKLOADS`], for reads come after a fill.
    fn rounds(&mut self, lines: &mut Vec<Line>) -> Result<(), LabError> {
        let all = chosen(self.options);
        lines.extend(all.iter().map(|w| {
            Line::new(Setting {
                workload: w.name.to_owned(),
                threads: if w.many { self.options.threads } else { 1 },
            })
        }));
        let total = all.len() as u32 * self.plan.profile.repeats;
        let device = CounterSource::locate(self.place.path()).ok();
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            let mut filled = false;
            for (workload, line) in all.iter().zip(&mut *lines) {
                if self.bench.interrupted() {
                    return Ok(());
                }
                self.sink.job(done, total, workload.name);
                if workload.fills {
                    let _ = std::fs::remove_dir_all(self.place.path().join("db"));
                } else if !filled {
                    // Reads need something to read, where no fill was asked for.
                    self.one(&WORKLOADS[1], repeat, Nanos::ZERO)?;
                }
                filled = true;
                let before = device.as_ref().and_then(count);
                let limit = time(self.plan, self.options);
                let said = self.one(workload, repeat, limit)?;
                let device = device.as_ref().and_then(count).zip(before);
                let device = device.map(|(after, before)| after.since(&before));
                let repeat = self.keep(&line.setting, repeat, said, device);
                line.repeats.push(repeat);
                done += 1;
            }
        }
        Ok(())
    }

    fn keep(
        &mut self,
        setting: &Setting,
        repeat: u32,
        Said {
            printed,
            series,
            processors,
        }: Said,
        device: Option<DeviceDelta>,
    ) -> Repeat {
        let writes = ["fill", "overwrite", "update"];
        let op = match writes.iter().any(|w| setting.workload.starts_with(w)) {
            true => Op::Write,
            false => Op::Read,
        };
        let bytes = printed.megabytes.map_or(0.0, |m| m * 1e6 * printed.seconds);
        let mut load = printed.load(op, setting.threads, bytes as u64, &series);
        let of_wall = |share: f64| Nanos((share * load.wall.0 as f64) as u64);
        load.cpu = (of_wall(processors.0), of_wall(processors.1));
        load.noted
            .extend(cold(self.options, &setting.workload, &printed));
        let course = load.course.clone();
        let operations = load.operations();
        let about = About {
            experiment: "rocksdb",
            name: &format!("rocksdb-{}", setting.workload),
            repeat,
            engine: &self.program.version,
            spec: json!({ "setting": setting, "options": self.options }),
            device,
            ours: true,
        };
        Repeat {
            jobs: vec![load.keep(self.book, about)],
            operations,
            course,
            beside: printed,
        }
    }

    /// Runs one workload; a fill has no limit of time, so that what is read later is complete.
    fn one(&self, workload: &RocksWorkload, repeat: u32, limit: Nanos) -> Result<Said, LabError> {
        let (options, place) = (self.options, &self.place.plain());
        let log = place.join("db_bench.log");
        let report = place.join("report.csv");
        for old in [&log, &report] {
            let _ = std::fs::remove_file(old);
        }
        let seed = seed(options.db.seed, repeat, workload);
        // What a fill leaves to be flushed and compacted is its own, not that of the reads after it.
        let settled = match workload.fills && self.program.settles {
            true => ",flush,waitforcompaction",
            false => "",
        };
        let mut command = Command::new(&self.program.path);
        command
            .arg(format!("--benchmarks={}{settled},stats", workload.name))
            .arg(format!("--db={}", place.join("db").display()))
            .arg(format!("--num={}", options.keys))
            .arg(format!("--value_size={}", options.value))
            .arg(format!("--seed={seed}"))
            .arg(format!("--cache_size={}", options.cache.0))
            .arg(format!("--block_size={BLOCK}"))
            .arg(format!("--use_existing_db={}", u32::from(!workload.fills)))
            .arg(format!(
                "--threads={}",
                if workload.many { options.threads } else { 1 }
            ))
            .args([
                "--use_direct_io_for_flush_and_compaction",
                "--use_direct_reads",
                "--batch_size=8",
                "--sync=0",
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
        let (began, used) = (monotonic(), children_cpu());
        let mut kept = ChildGuard::start(command, &log)?;
        kept.succeed(&|| self.bench.interrupted())?;
        let (took, all) = (monotonic().since(began), children_cpu());
        let share = |all: Nanos, before: Nanos| (all - before).0 as f64 / took.0.max(1) as f64;
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
        Ok(Said {
            printed,
            series: parse_series(&series),
            processors: (share(all.0, used.0), share(all.1, used.1)),
        })
    }
}

/// What one run of db_bench gave.
struct Said {
    printed: Printed,
    /// Rates by seconds.
    series: Vec<(f64, f64)>,
    /// That it kept over all of its run: user, system.
    processors: (f64, f64),
}

/// Of RocksDB's own settings, which it writes beside its tables, those that shape what is measured; and that its log is not
/// synced, which each write says.
fn settings(db: &Path) -> Vec<(String, String)> {
    const TELLING: [&str; 7] = [
        "use_direct_reads",
        "use_direct_io_for_flush_and_compaction",
        "bytes_per_sync",
        "write_buffer_size",
        "max_write_buffer_number",
        "compression",
        "block_size",
    ];
    let files = std::fs::read_dir(db).into_iter().flatten().flatten();
    let newest = files
        .map(|f| f.path())
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("OPTIONS-"))
        })
        .max();
    let text = newest.and_then(|p| std::fs::read_to_string(p).ok());
    let Some(text) = text else {
        return Vec::new();
    };
    let told = TELLING.into_iter().filter_map(|name| {
        let mut lines = text.lines().filter_map(|l| l.trim().split_once('='));
        let (name, value) = lines.find(|(n, _)| *n == name)?;
        Some((name.to_owned(), value.to_owned()))
    });
    std::iter::once(("sync".to_owned(), "0".to_owned()))
        .chain(told)
        .collect()
}

/// The block cache begins empty with each program: lookups that fill it are measured with the others.
fn cold(options: &RocksOptions, workload: &str, printed: &Printed) -> Option<Flag> {
    const FEW: f64 = 10.0;
    let of = |name: &str| printed.counters.get(name).map_or(0.0, |n| *n as f64);
    let asked = of("rocksdb.block.cache.hit") + of("rocksdb.block.cache.miss");
    let holds = options.cache.0.min(options.data()) as f64 / BLOCK as f64;
    // What is read in order, once, is never found in it.
    let looks = asked > 0.0 && !workload.ends_with("seq");
    (looks && asked < FEW * holds).then(|| Flag {
        void: asked < holds,
        ..Flag::new(
            FlagCode::NotSteady,
            format!(
                "the block cache began empty: {asked:.0} lookups, and it holds {holds:.0} blocks"
            ),
            "give it more --time, or a smaller --cache",
        )
    })
}

/// Never the seed of a fill for what comes after one, in any repeat.
fn seed(seed: u64, repeat: u32, workload: &RocksWorkload) -> u64 {
    (seed + u64::from(repeat)) * 1000 + 500 * u64::from(!workload.fills) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_bench::measurement::defaults;

    #[test]
    fn lookups_that_only_fill_the_block_cache_are_void() {
        let options = RocksOptions {
            keys: 500_000,
            ..defaults()
        };
        let told = |workload: &str, hit: u64, miss: u64| {
            let counters = [("hit", hit), ("miss", miss)];
            let printed = Printed {
                counters: counters
                    .map(|(n, v)| (format!("rocksdb.block.cache.{n}"), v))
                    .into(),
                ..Printed::default()
            };
            cold(&options, workload, &printed).map(|f| f.void)
        };
        // It holds 2048 blocks.
        assert_eq!(told("readrandom", 1_000, 40_000), None);
        assert_eq!(told("readrandom", 1_000, 10_000), Some(false));
        assert_eq!(told("readrandom", 0, 2_000), Some(true));
        assert_eq!(told("readseq", 0, 2_000), None);
        assert_eq!(told("fillrandom", 0, 0), None);
    }

    #[test]
    fn settings_are_those_that_rocksdb_wrote_last() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(settings(dir.path()), []);
        for (name, size) in [("OPTIONS-000005", 8192), ("OPTIONS-000009", 4096)] {
            let text = format!(
                "[CFOptions \"default\"]\n  compression=kNoCompression\n  block_size={size}\n"
            );
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let told = settings(dir.path())
            .into_iter()
            .map(|(n, v)| format!("{n}={v}"));
        assert_eq!(
            told.collect::<Vec<_>>(),
            ["sync=0", "compression=kNoCompression", "block_size=4096"]
        );
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

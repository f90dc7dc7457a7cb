//! The key-value lab: fathom's own B+tree on the target, beside what the raw device can do at the same
//! depth in the same run.
//!
//! Workloads: random inserts and updates of 8-byte keys with empty values (O'Neill 2018), YCSB A to F
//! (Cooper et al. 2010), sweeps of page and cache size (Zhang et al. 2018). The tree lies in the first half of
//! the range, the raw device is measured in the second.

mod cost;
mod dips;
pub(crate) mod engines;
pub(crate) mod keys;
pub(crate) mod load;
mod results;
mod versus;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fathom_experiments::survey::{Outlook, Watcher};
use fathom_experiments::{Bench, BenchError, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_io::driver::{Destination, PlannedJob, Progress};
use fathom_io::{JobError, TargetError};
use fathom_kv::{Durability, Engine, FileStore, Options};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use crate::LabError;
use crate::prepare::prepare;
use crate::skipped::Skipped;
pub use cost::app_cost;
use engines::Setting;
pub use engines::{ENGINES, EngineKind};
use fathom_system::lab_dir::LabDir;
pub use keys::Keys;
pub use load::Mix;
use load::{Load, Outcome};

/// What is measured.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// Names of [`WORKLOADS`].
    pub workloads: Vec<String>,
    /// Threads.
    pub threads: u32,
    /// Keys that the tree is filled with; by default as many as fill 40 % of its half, at most 4 million.
    pub keys: Option<u64>,
    /// Bytes of a value; YCSB has 1000 where this is 0.
    pub value: u32,
    /// Bytes of a page.
    pub page: Bytes,
    /// Cached share of the leaves, percent.
    pub cache: f64,
    /// Whether every commit is logged.
    pub commit: bool,
    /// Whether the tree goes through the page cache; the raw device never does.
    pub buffered: bool,
    /// Distribution of keys, where the workload has none of its own.
    pub keys_drawn: Keys,
    /// Engines of [`ENGINES`] that are measured beside fathom's own, in turns.
    pub beside: Vec<String>,
    /// Time of one measurement; by the profile where it is not given.
    pub time: Option<Nanos>,
    /// Seed.
    pub seed: u64,
}

/// A workload by name.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    mix: Mix,
    keys: Option<Keys>,
    /// Begins with an empty tree.
    empty: bool,
    sweep: Sweep,
}

#[derive(Clone, Copy, PartialEq)]
enum Sweep {
    None,
    Pages,
    Caches,
}

const fn workload(name: &'static str, about: &'static str, shares: [u32; 4]) -> Workload {
    let [read, update, insert, scan] = shares;
    Workload {
        name,
        about,
        mix: Mix {
            read,
            update,
            insert,
            scan,
        },
        keys: Some(Keys::Zipf),
        empty: false,
        sweep: Sweep::None,
    }
}

/// All of them.
pub const WORKLOADS: [Workload; 10] = [
    Workload {
        keys: None,
        ..workload("update", "random updates", [0, 100, 0, 0])
    },
    Workload {
        keys: None,
        empty: true,
        ..workload(
            "insert",
            "random inserts into an empty tree",
            [0, 0, 100, 0],
        )
    },
    workload("a", "YCSB A: half reads, half updates", [50, 50, 0, 0]),
    workload("b", "YCSB B: 95 % reads, 5 % updates", [95, 5, 0, 0]),
    workload("c", "YCSB C: reads", [100, 0, 0, 0]),
    Workload {
        keys: Some(Keys::Latest),
        ..workload(
            "d",
            "YCSB D: reads of the latest, 5 % inserts",
            [95, 0, 5, 0],
        )
    },
    workload("e", "YCSB E: ranges, 5 % inserts", [0, 0, 5, 95]),
    workload(
        "f",
        "YCSB F: half reads, half read-modify-writes",
        [50, 0, 0, 0],
    ),
    Workload {
        keys: None,
        sweep: Sweep::Pages,
        ..workload(
            "pages",
            "random updates with pages of 4 to 64 KiB",
            [0, 100, 0, 0],
        )
    },
    Workload {
        keys: None,
        sweep: Sweep::Caches,
        ..workload(
            "caches",
            "random updates with 5 to 100 % cached",
            [0, 100, 0, 0],
        )
    },
];

const PAGES: [u64; 5] = [4096, 8192, 16384, 32768, 65536];
const CACHES: [f64; 5] = [5.0, 10.0, 25.0, 50.0, 100.0];

/// One line of the table.
struct Cell {
    /// `None` for fathom's own.
    engine: Option<&'static EngineKind>,
    workload: &'static Workload,
    page: u64,
    cache: f64,
    value: u32,
    keys: u64,
}

/// One measurement of it.
struct Repeat {
    outcome: Outcome,
    /// Mixed IOPS of the raw device: the mean of just before and just after.
    raw: Option<f64>,
    leaves: u64,
    /// Bytes of the cache.
    cached: u64,
}

fn cells(plan: &Plan, options: &KvOptions) -> Vec<Cell> {
    let mut cells = Vec::new();
    for name in &options.workloads {
        let Some(workload) = WORKLOADS.iter().find(|w| w.name == *name) else {
            continue;
        };
        let pages: &[u64] = match workload.sweep {
            Sweep::Pages => &PAGES,
            _ => &[options.page.0],
        };
        let caches: &[f64] = match workload.sweep {
            Sweep::Caches => &CACHES,
            _ => &[options.cache],
        };
        let ycsb = workload.name.len() == 1;
        let value = match options.value {
            0 if ycsb => 1000,
            v => v,
        };
        for page in pages {
            for cache in caches {
                let keys = if workload.empty {
                    0
                } else {
                    let per_key = 12 + u64::from(value);
                    let most = plan.limits.size / 2 * 2 / 5 / per_key;
                    options.keys.unwrap_or(most.min(4_000_000)).max(1)
                };
                let of = |engine| Cell {
                    engine,
                    workload,
                    page: *page,
                    cache: *cache,
                    value,
                    keys,
                };
                cells.push(of(None));
                // Sweeps are about the device: others have pages of their own.
                if workload.sweep == Sweep::None {
                    let asked = |e: &&EngineKind| options.beside.iter().any(|n| n == e.name);
                    cells.extend(ENGINES.iter().filter(asked).map(|e| of(Some(e))));
                }
            }
        }
    }
    cells
}

fn time(plan: &Plan, options: &KvOptions) -> (Nanos, Nanos) {
    let time = options.time.unwrap_or(Nanos(plan.profile.job_time.0 * 3));
    (Nanos(time.0 / 4), time)
}

/// Time and bytes, at most.
pub fn outlook(plan: &Plan, options: &KvOptions, fills: Bytes) -> Outlook {
    let (ramp, time) = time(plan, options);
    let n = cells(plan, options).len() as u32 * plan.profile.repeats;
    let one = ramp + time + plan.profile.job_time + plan.profile.ramp + plan.profile.ramp;
    // Nothing limits updates but the device: 200,000 pages per second are more than most can do.
    let seconds = Nanos(one.0 * u64::from(n));
    let written = seconds.as_secs_f64() * 200_000.0 * options.page.0 as f64;
    Outlook {
        jobs: n,
        time: seconds,
        written_at_most: Bytes(fills.0 + written as u64),
    }
}

/// The raw device at the depth of the tree's threads: half reads, half writes, in the second half of the range.
fn raw_job(plan: &Plan, cell: &Cell, options: &KvOptions) -> Result<fathom_io::JobSpec, JobError> {
    let half = plan.limits.size / 2 / cell.page * cell.page;
    let mut spec = plan.job(
        &format!("raw-{}k", cell.page / 1024),
        &[("rw", "randrw"), ("read-share", "50")],
    )?;
    spec.set("bs", &cell.page.to_string())?;
    spec.set("qd", &options.threads.to_string())?;
    (spec.offset, spec.size) = (Bytes(half), Some(Bytes(half)));
    spec.bytes = None;
    // Twice in each repeat.
    spec.time = spec.time.map(|t| Nanos(t.0 / 2));
    Ok(spec)
}

/// Measures and puts sections, headlines and findings into the notebook.
///
/// # Errors
/// Where the target has no bytes of its own, or the run directory fails. A failure of the engine is a
/// flag of the run.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &KvOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let file = file(bench, plan.direct && !options.buffered)?;
    let mut skipped = Vec::new();
    let mut cells = cells(plan, options);
    let beside = Beside::prepare(bench, &mut cells, options, &mut skipped)?;
    // What can be refused has been refused.
    prepare(bench, watcher)?;
    let total = cells.len() as u32 * plan.profile.repeats;
    let mut all: Vec<Vec<Repeat>> = cells.iter().map(|_| Vec::new()).collect();
    let mut failed = vec![false; cells.len()];
    let mut pools: BTreeMap<&str, u64> = BTreeMap::new();
    let mut done = 0;
    'repeats: for repeat in 0..plan.profile.repeats {
        // In turns, so that a drift of the device favours no line.
        let forward = repeat % 2 == 0;
        for k in 0..cells.len() {
            let c = if forward { k } else { cells.len() - 1 - k };
            let cell = &cells[c];
            if failed[c] {
                continue;
            }
            if bench.interrupted() {
                break 'repeats;
            }
            watcher.job(done, total, &results::label(cell));
            let measured = match cell.engine {
                None => {
                    // Half of it before and half after: a drift of the device is in both, and cancels.
                    let mut raw = |bench: &mut dyn Bench, when: &str, watcher: &mut dyn Watcher| {
                        raw(bench, plan, cell, options, (repeat, when), book, watcher)
                    };
                    let before = raw(bench, "before", watcher)?;
                    let measured = measure(&file, bench, plan, cell, options, repeat, watcher);
                    let after = if bench.interrupted() {
                        None
                    } else {
                        raw(bench, "after", watcher)?
                    };
                    measured.map(|m| Repeat {
                        raw: before.zip(after).map(|(b, a)| (b + a) / 2.0),
                        ..m
                    })
                }
                Some(engine) => {
                    let cache = pools.get(cell.workload.name).copied();
                    beside.measure(engine, bench, plan, cell, options, repeat, cache, watcher)
                }
            };
            done += 1;
            match measured {
                Ok(r) => {
                    if cell.engine.is_none() {
                        pools.entry(cell.workload.name).or_insert(r.cached);
                    }
                    all[c].push(r);
                }
                Err(e) if cell.engine.is_some() => {
                    failed[c] = true;
                    skipped.push(Skipped::from_error(&results::label(cell), e));
                }
                Err(e) => {
                    failed[c] = true;
                    book.run_mut().flags.push(Flag::new(
                        FlagCode::IoErrors,
                        format!("{} ended early: {e}", cell.workload.name),
                        "use a larger --size or fewer --keys; look at the kernel log",
                    ));
                }
            }
        }
    }
    if bench.interrupted() {
        book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{done} of {total} measurements were made"),
            "run again for the rest",
        ));
    }
    results::report(book, &cells, &all, options);
    if !options.beside.is_empty() {
        versus::beside(book, &cells, &all, options, &beside.versions);
    }
    let run = book.run_mut();
    run.sections.extend(crate::skipped::skipped("kv", &skipped));
    Ok(())
}

/// What other engines need: a directory, and what they said of themselves.
struct Beside {
    place: Option<LabDir>,
    versions: BTreeMap<&'static str, String>,
}

impl Beside {
    /// Asks each engine whether it is there, and leaves out the lines of those that are not.
    fn prepare(
        bench: &dyn Bench,
        cells: &mut Vec<Cell>,
        options: &KvOptions,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Self, NotebookError> {
        let mut beside = Self {
            place: None,
            versions: BTreeMap::new(),
        };
        let about = bench.describe();
        let asked = |e: &&EngineKind| options.beside.iter().any(|n| n == e.name);
        for engine in ENGINES.iter().filter(asked) {
            if about.kind != "directory" {
                skipped.push(Skipped::new(
                    engine.name,
                    format!("{} has no file system for its files", about.name),
                    "name a directory as the target",
                ));
                continue;
            }
            match (engine.probe)() {
                Ok(version) => {
                    beside.versions.insert(engine.name, version);
                }
                Err(e) => skipped.push(Skipped::from_error(engine.name, e)),
            }
        }
        cells.retain(|c| {
            c.engine
                .is_none_or(|e| beside.versions.contains_key(e.name))
        });
        if !beside.versions.is_empty()
            && let Some(dir) = about.path.as_deref().map(std::path::Path::new)
            && let Some(dir) = dir.parent()
        {
            let most = cells.iter().map(Cell::bytes).max().unwrap_or(0);
            // Copy on write and logs take as much again, and once more while nothing is reused.
            let place = LabDir::create(dir, most * 3 + (64 << 20));
            beside.place = Some(place.map_err(LabError::from)?);
        }
        Ok(beside)
    }

    #[allow(clippy::too_many_arguments)]
    fn measure(
        &self,
        engine: &EngineKind,
        bench: &dyn Bench,
        plan: &Plan,
        cell: &Cell,
        options: &KvOptions,
        repeat: u32,
        cache: Option<u64>,
        watcher: &mut dyn Watcher,
    ) -> Result<Repeat, LabError> {
        let Some(place) = &self.place else {
            return Err(LabError::Failed("there is no directory for it".into()));
        };
        let cache = cache.unwrap_or((cell.bytes() as f64 * cell.cache / 100.0) as u64);
        let cache = cache.max(Options::FRAMES_MIN * cell.page);
        let source = CounterSource::locate(place.path()).ok();
        let load = load_of(plan, cell, options, repeat, source.as_ref());
        let setting = Setting {
            dir: place.path(),
            cache,
            page: cell.page,
            commit: options.commit,
            load: &load,
            stop: &|| bench.interrupted(),
        };
        let outcome = (engine.measure)(&setting, &mut ticker(watcher))?;
        Ok(Repeat {
            outcome,
            raw: None,
            leaves: 0,
            cached: cache,
        })
    }
}

impl Cell {
    /// Of its keys and values.
    fn bytes(&self) -> u64 {
        self.keys * (12 + u64::from(self.value))
    }
}

/// Shows the rate.
pub(crate) fn ticker(watcher: &mut dyn Watcher) -> impl FnMut(f64) {
    let began = fathom_io::clock::monotonic();
    let mut ops = 0.0;
    let mut last = began;
    move |rate| {
        let now = fathom_io::clock::monotonic();
        // The line shows differences.
        ops += rate * now.since(last).as_secs_f64();
        last = now;
        watcher.progress(&Progress {
            elapsed: now.since(began),
            ios: ops as u64,
            ..Progress::default()
        });
    }
}

fn load_of<'a>(
    plan: &Plan,
    cell: &Cell,
    options: &KvOptions,
    repeat: u32,
    device: Option<&'a CounterSource>,
) -> Load<'a> {
    let (ramp, time) = time(plan, options);
    Load {
        mix: cell.workload.mix,
        keys: cell.workload.keys.unwrap_or(options.keys_drawn),
        count: cell.keys,
        value: cell.value,
        threads: options.threads,
        ramp: if cell.workload.empty {
            Nanos::ZERO
        } else {
            ramp
        },
        time,
        seed: options.seed + u64::from(repeat),
        device,
    }
}

/// The open file or device behind a target.
///
/// # Errors
/// Where there are no bytes that stay: a model, null:.
pub(crate) fn file(bench: &mut dyn Bench, direct: bool) -> Result<Arc<std::fs::File>, BenchError> {
    let about = bench.describe();
    let found = bench
        .real()
        .and_then(|real| match real.target().destination() {
            Destination::File {
                direct: d,
                buffered,
                ..
            } => (if direct { d } else { buffered }).clone(),
            _ => None,
        });
    found.ok_or_else(|| {
        BenchError::Target(TargetError::Unfit {
            target: about.name,
            message: "a tree needs bytes that stay: name a directory, a file or a block device"
                .into(),
        })
    })
}

fn raw(
    bench: &mut dyn Bench,
    plan: &Plan,
    cell: &Cell,
    options: &KvOptions,
    (repeat, when): (u32, &str),
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<Option<f64>, NotebookError> {
    let mut spec = raw_job(plan, cell, options).map_err(BenchError::from)?;
    spec.name = format!("{}-{when}-{}.{}", spec.name, cell.workload.name, repeat + 1);
    spec.seed = options.seed + u64::from(repeat);
    let job = spec.validate(&bench.limits()).map_err(BenchError::from)?;
    let planned = [PlannedJob {
        experiment: "kv".into(),
        repeat,
        ..PlannedJob::new(job)
    }];
    let jobs = book.measure(bench, &planned, &mut |p| watcher.progress(p))?;
    let rate = |j: &usize| {
        let job = &book.run().jobs[*j];
        let sum = [&job.read, &job.write].into_iter().flatten();
        (!job.is_void()).then(|| sum.map(|d| d.iops).sum())
    };
    Ok(jobs.first().and_then(rate))
}

#[allow(clippy::too_many_arguments)]
fn measure(
    file: &Arc<std::fs::File>,
    bench: &dyn Bench,
    plan: &Plan,
    cell: &Cell,
    options: &KvOptions,
    repeat: u32,
    watcher: &mut dyn Watcher,
) -> Result<Repeat, LabError> {
    let half = plan.limits.size / 2 / 65536 * 65536;
    let store = || Arc::new(FileStore::new(Arc::clone(file), half));
    let stop = || bench.interrupted();
    let mut kv = Options {
        page_bytes: cell.page,
        pool_bytes: 64 << 20,
        log_bytes: (half / 8).clamp(1 << 20, 256 << 20),
        durability: Durability::Checkpoint,
        checkpoint_every: Some(Duration::from_secs(1)),
        write_ahead: true,
    };
    // Filled without a log, and with a pool of its own; then opened as it is measured.
    let engine = Engine::create(store(), &kv)?;
    load::fill(&engine, cell.keys, cell.value, &stop)?;
    let leaves = engine.leaves();
    engine.close()?;
    kv.pool_bytes = if cell.workload.empty {
        // What an empty tree will grow to is not known: the share is of the half.
        (half as f64 * cell.cache / 100.0 / 4.0) as u64
    } else {
        (leaves as f64 * cell.cache / 100.0).ceil() as u64 * cell.page
    };
    if options.commit {
        kv.durability = Durability::Commit;
    }
    let engine = Engine::open(store(), &kv)?;
    let about = bench.describe();
    let source = about.path.as_deref().map(std::path::Path::new);
    let source = source.and_then(|p| CounterSource::locate(p).ok());
    let load = load_of(plan, cell, options, repeat, source.as_ref());
    let outcome = load::run(&engine, &load, &stop, &mut ticker(watcher))?;
    Ok(Repeat {
        outcome,
        raw: None,
        leaves: engine.leaves(),
        cached: engine.frames() * cell.page,
    })
}

//! The key-value lab: fathom's own B+tree on the target, beside what the raw device can do at the same
//! depth in the same run.
//!
//! Workloads: random inserts and updates of 8-byte keys with empty values (O'Neill 2018), YCSB A to F
//! (Cooper et al. 2010), sweeps of page and cache size (Zhang et al. 2018). The tree lies in the first half of
//! the range, the raw device is measured in the second.

mod cost;
mod dips;
pub(crate) mod engines;
pub(crate) mod hosted;
pub(crate) mod keys;
pub(crate) mod load;
mod on_model;
mod options;
mod results;
mod tree;
mod versus;
mod workloads;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fathom_bench::cost::RunCost;
use fathom_bench::progress::{ProgressSink, prepare};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{cut_short, seed, turns};
use fathom_bench::{Bench, BenchError, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_io::driver::{Destination, PlannedJob};
use fathom_io::{JobError, TargetError};
use fathom_kv::{Options, Stats};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::LabError;
use crate::clients::{ramp_max, ticker};
use crate::confounders::SettingsSeen;
use crate::loads::{self, About};
use crate::skipped::{self, Skipped};
pub use cost::app_cost;
use engines::Setting;
pub use engines::{ENGINES, EngineKind};
use fathom_system::lab_dir::LabDir;
pub use keys::Keys;
pub use load::Mix;
use load::{Load, Outcome};
pub use on_model::run_cost_on_model;
pub use options::KvOptions;
pub(crate) use options::page;
use tree::Setup;
use workloads::Sweep;
pub use workloads::{WORKLOADS, Workload};

const PAGES: [u64; 5] = [4096, 8192, 16384, 32768, 65536];
/// Ramp in which a cache is looked at often enough.
const LOOKED_AT: Nanos = Nanos::from_millis(400);
const CACHES: [f64; 5] = [5.0, 10.0, 25.0, 50.0, 100.0];

/// What one line of the table measures.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cell {
    /// Name of another engine; `None` for fathom's own.
    engine: Option<String>,
    /// Name of a workload.
    workload: String,
    page: u64,
    /// Cached share, percent.
    cache: f64,
    value: u32,
    keys: u64,
}

/// What the tree counted in a measurement.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counted {
    stats: Stats,
    /// CPU time of the kernel's own threads (kworker, kswapd), s.
    kernel_cpu: f64,
    leaves: u64,
    /// Bytes of the cache.
    cached: u64,
    /// I/Os that the device had at the same time, on average.
    depth: Option<u32>,
    /// Jobs of the raw device at that depth just after, and just before where the depth was known by then.
    raw: Vec<usize>,
}

type Line = loads::Line<Cell, Counted>;
type Repeat = loads::Repeat<Counted>;

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KvResult {
    options: KvOptions,
    lines: Vec<Line>,
    /// What other engines said of themselves.
    versions: BTreeMap<String, String>,
    skipped: Vec<Skipped>,
    /// This fathom was built with assertions.
    assertions: bool,
    /// Where the tree's file lies; nothing on a model and on a device.
    #[serde(default)]
    files: SettingsSeen,
}

impl ExperimentResult for KvResult {
    const EXPERIMENT: &'static str = "kv";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
        if !self.options.beside.is_empty() {
            versus::present(self, evidence, shown);
        }
        shown.sections.extend(skipped::skipped("kv", &self.skipped));
    }
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
                    options.keys.unwrap_or(0)
                } else {
                    let per_key = 12 + u64::from(value);
                    let most = options.data_max(plan.limits.size) / per_key;
                    options.keys.unwrap_or(most.min(4_000_000)).max(1)
                };
                let of = |engine: Option<&EngineKind>| Cell {
                    engine: engine.map(|e| e.name.to_owned()),
                    workload: workload.name.to_owned(),
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

impl KvOptions {
    /// Bytes that the tree has for itself: half of the range, in a model's memory no more than it may take.
    fn half(&self, size: u64) -> u64 {
        let half = size / 2 / 65536 * 65536;
        match self.model {
            None => half,
            Some(_) => half.min(on_model::RANGE_MAX),
        }
    }

    /// Bytes of keys and values, where their number is not given.
    fn data_max(&self, size: u64) -> u64 {
        let most = self.half(size) * 2 / 5;
        match self.model {
            None => most,
            Some(_) => most.min(on_model::DATA_MAX),
        }
    }

    /// What was asked for, as a job of the run keeps it.
    fn spec(&self, cell: &Cell, repeat: u32) -> serde_json::Value {
        let seed = seed(self.seed, "kv", &cell.workload, repeat);
        json!({ "cell": cell, "threads": self.threads, "commit": self.commit, "seed": seed })
    }
}

fn time(plan: &Plan, options: &KvOptions) -> (Nanos, Nanos) {
    let time = options.time.unwrap_or(Nanos(plan.profile.job_time.0 * 3));
    let ramp = Nanos(time.0 / 4);
    match options.model {
        Some(_) => (ramp, time),
        // Long enough to look at the cache.
        None => (ramp.max(LOOKED_AT), time),
    }
}

/// Time and bytes, at most.
pub fn run_cost(plan: &Plan, options: &KvOptions, fills: Bytes) -> RunCost {
    let (ramp, time) = time(plan, options);
    let cells = cells(plan, options);
    let n = cells.len() as u32 * plan.profile.repeats;
    let one = ramp + time + plan.profile.job_time + plan.profile.ramp + plan.profile.ramp;
    let filling: u64 = cells.iter().map(|c| c.filled_in().0).sum();
    let filling = Nanos(filling * u64::from(plan.profile.repeats));
    // Nothing limits updates but the device: 200,000 pages per second are more than most can do.
    let seconds = Nanos(one.0 * u64::from(n)) + filling;
    let written = seconds.as_secs_f64() * 200_000.0 * options.page.0 as f64;
    let mut cost = RunCost::filling(fills);
    cost.phase("the tree, and the raw target beside it")
        .work(n, seconds, Bytes(written as u64));
    cost
}

/// The raw device at a depth: half reads, half writes, in the second half of the range.
fn raw_job(
    plan: &Plan,
    cell: &Cell,
    depth: u32,
    on_model: bool,
) -> Result<fathom_io::JobSpec, JobError> {
    let half = plan.limits.size / 2 / cell.page * cell.page;
    let mut spec = plan.job(
        &format!("raw-{}k", cell.page / 1024),
        &[("rw", "randrw"), ("read-share", "50")],
    )?;
    spec.set("bs", &cell.page.to_string())?;
    // A core of a model's host does 0.3 million I/Os per second: one thread would be the limit.
    let threads = if on_model { depth.min(16) } else { 1 };
    spec.threads = threads;
    spec.set("qd", &depth.div_ceil(threads).to_string())?;
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
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let file = match options.model {
        Some(_) if bench.simulated() => None,
        _ if bench.hosts().is_some() => None,
        _ => Some(file(bench, plan.direct && !options.buffered)?),
    };
    let mut skipped = Vec::new();
    let mut cells = cells(plan, options);
    let beside = Beside::prepare((bench, plan), &mut cells, options, &mut skipped)?;
    // What can be refused has been refused.
    prepare(bench, sink)?;
    let lines = cells.into_iter().map(Line::new).collect();
    let mut lab = Lab {
        bench,
        plan,
        options,
        book,
        sink,
        file,
        beside,
        skipped,
        lines,
    };
    lab.rounds()?;
    skipped::missing(lab.book, &lab.skipped, false);
    let about = lab.bench.describe();
    // Of several hosts each has its own.
    let here = about.kind == "directory" && lab.bench.hosts().is_none();
    let dir = about.path.filter(|_| here);
    let dir = dir.as_deref().and_then(|f| Path::new(f).parent());
    let result = KvResult {
        options: options.clone(),
        files: dir.map_or_else(SettingsSeen::default, |dir| {
            SettingsSeen::of(Vec::new(), dir)
        }),
        versions: lab.beside.versions,
        skipped: lab.skipped,
        lines: lab.lines,
        assertions: cfg!(debug_assertions),
    };
    book.found(&result)
}

/// A measurement under way.
struct Lab<'a> {
    bench: &'a mut dyn Bench,
    plan: &'a Plan,
    options: &'a KvOptions,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
    /// None on a model, and where hosts have their own.
    file: Option<Arc<std::fs::File>>,
    beside: Beside,
    skipped: Vec<Skipped>,
    lines: Vec<Line>,
}

impl Lab<'_> {
    /// In turns, so that a drift of the device favours no line.
    fn rounds(&mut self) -> Result<(), NotebookError> {
        let n = self.lines.len();
        let total = n as u32 * self.plan.profile.repeats;
        let mut failed = vec![false; n];
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            for c in turns(n, repeat) {
                if failed[c] {
                    continue;
                }
                if self.bench.interrupted() {
                    self.book.run_mut().flags.push(cut_short(done, total));
                    return Ok(());
                }
                let cell = self.lines[c].setting.clone();
                self.sink.job(done, total, &cell.label());
                let measured = match cell.engine() {
                    None => self.own(&cell, repeat)?,
                    Some(engine) => self.other(engine, &cell, repeat),
                };
                done += 1;
                match measured {
                    Ok(r) => self.lines[c].repeats.push(r),
                    Err(e) => {
                        failed[c] = true;
                        self.failed(&cell, e);
                    }
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, cell: &Cell, e: LabError) {
        if cell.engine.is_some() {
            let skipped = Skipped::from_error(&cell.label(), e);
            return self.skipped.push(skipped);
        }
        self.book.run_mut().flags.push(Flag::new(
            FlagCode::IoErrors,
            format!("{} ended early: {e}", cell.workload),
            "use a larger --size or fewer --keys; look at the kernel log",
        ));
    }

    /// fathom's own tree, between two looks at the raw device: a drift of the device is in both, and cancels. The raw device
    /// gets the depth that the tree reached there, which is more than its threads: pages are written in the background.
    fn own(&mut self, cell: &Cell, repeat: u32) -> Result<Result<Repeat, LabError>, NotebookError> {
        let mut of_cell = self
            .lines
            .iter()
            .filter(|l| l.setting.label() == cell.label());
        let known = of_cell.find_map(|l| l.repeats.last()?.beside.depth);
        let mut raw = match known {
            Some(depth) => self.raw((cell, depth), repeat, "before")?,
            None => Vec::new(),
        };
        if self.bench.hosts().is_some() {
            let measured = self.hosted(cell, repeat)?;
            let reached = measured.as_ref().ok().and_then(|m| m.beside.depth);
            self.raw_after(&mut raw, (cell, reached.or(known)), repeat)?;
            return Ok(measured.map(|mut m| {
                m.beside.raw = raw;
                m
            }));
        }
        let measured = self.tree(cell, repeat);
        let reached = measured.as_ref().ok().and_then(|m| m.0.depth());
        self.raw_after(&mut raw, (cell, reached.or(known)), repeat)?;
        Ok(measured.map(|(outcome, leaves, cached)| {
            self.keep(cell, repeat, outcome, (leaves, cached), raw)
        }))
    }

    /// The raw device at the depth that was reached, else at that of the threads.
    fn raw_after(
        &mut self,
        raw: &mut Vec<usize>,
        (cell, depth): (&Cell, Option<u32>),
        repeat: u32,
    ) -> Result<(), NotebookError> {
        if !self.bench.interrupted() {
            let depth = depth.unwrap_or(self.options.threads);
            raw.extend(self.raw((cell, depth), repeat, "after")?);
        }
        Ok(())
    }

    /// The raw device at a depth.
    fn raw(
        &mut self,
        (cell, depth): (&Cell, u32),
        repeat: u32,
        when: &str,
    ) -> Result<Vec<usize>, NotebookError> {
        let mut spec = raw_job(self.plan, cell, depth, self.options.model.is_some())
            .map_err(BenchError::from)?;
        spec.name = format!("{}-{when}-{}.{}", spec.name, cell.workload, repeat + 1);
        spec.seed = seed(self.options.seed, "kv", &format!("raw-{when}"), repeat);
        let limits = self.bench.limits();
        let planned = [PlannedJob {
            experiment: "kv".into(),
            repeat,
            ..PlannedJob::new(spec.validate(&limits).map_err(BenchError::from)?)
        }];
        let sink = &mut *self.sink;
        self.book
            .measure(self.bench, &planned, &mut |p| sink.progress(p))
    }

    /// What came of the load, how many leaves the tree has, and the bytes of its cache.
    fn tree(&mut self, cell: &Cell, repeat: u32) -> Result<(Outcome, u64, u64), LabError> {
        let Some(file) = self.file.clone() else {
            return self.played(cell, repeat);
        };
        let bench = &*self.bench;
        let source = load::counters(bench);
        let setup = Setup {
            options: self.options,
            size: self.plan.limits.size,
            length: time(self.plan, self.options),
            together: false,
            device: source.as_ref(),
        };
        let stop = || bench.interrupted();
        let tick = &mut ticker(self.sink);
        setup.tree((cell, repeat), &file, &stop, &mut || (), tick)
    }

    /// Another engine, with a cache of as many bytes.
    fn other(&mut self, engine: &EngineKind, cell: &Cell, repeat: u32) -> Result<Repeat, LabError> {
        let Some(place) = &self.beside.place else {
            return Err(LabError::Failed("there is no directory for it".into()));
        };
        let mut own = self.lines.iter().filter(|l| l.setting.engine.is_none());
        let own = own.find(|l| l.setting.workload == cell.workload);
        let same = own.and_then(|l| Some(l.repeats.first()?.beside.cached));
        let cache = same.unwrap_or((cell.bytes() as f64 * cell.cache / 100.0) as u64);
        let cache = cache.max(Options::FRAMES_MIN * cell.page);
        let source = CounterSource::locate(place.path()).ok();
        let length = time(self.plan, self.options);
        let load = load_of(length, cell, self.options, repeat, source.as_ref());
        let bench = &*self.bench;
        let setting = Setting {
            dir: place.path(),
            cache,
            page: cell.page,
            fill: self.plan.limits.size / 2 / (1 << 20) * (1 << 20),
            commit: self.options.commit,
            load: &load,
            stop: &|| bench.interrupted(),
        };
        let outcome = (engine.measure)(&setting, &mut ticker(self.sink))?;
        Ok(self.keep(cell, repeat, outcome, (0, cache), Vec::new()))
    }

    fn keep(
        &mut self,
        cell: &Cell,
        repeat: u32,
        outcome: Outcome,
        (leaves, cached): (u64, u64),
        raw: Vec<usize>,
    ) -> Repeat {
        let spec = self.options.spec(cell, repeat);
        let depth = outcome.depth();
        let version = cell.engine.as_ref().map(|e| (e, &self.beside.versions[e]));
        let about = About {
            experiment: "kv",
            name: &format!("kv-{}", cell.label()),
            repeat,
            engine: &version.map_or("fathom-kv".into(), |(name, v)| format!("{name}: {v}")),
            spec,
            device: outcome.device,
            ours: true,
        };
        let course = outcome.load.course.clone();
        Repeat {
            jobs: vec![outcome.load.keep(self.book, about)],
            operations: outcome.operations,
            course,
            beside: Counted {
                stats: outcome.stats,
                kernel_cpu: outcome.kernel_cpu,
                leaves,
                cached,
                depth,
                raw,
            },
        }
    }
}

/// What other engines need: a directory, and what they said of themselves.
struct Beside {
    place: Option<LabDir>,
    versions: BTreeMap<String, String>,
}

impl Beside {
    /// Asks each engine whether it is there, and leaves out the lines of those that are not.
    fn prepare(
        (bench, plan): (&dyn Bench, &Plan),
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
                    beside.versions.insert(engine.name.to_owned(), version);
                }
                Err(e) => skipped.push(Skipped::from_error(engine.name, e)),
            }
        }
        cells.retain(|c| {
            let engine = c.engine.as_ref();
            engine.is_none_or(|e| beside.versions.contains_key(e))
        });
        if !beside.versions.is_empty()
            && let Some(dir) = about.path.as_deref().map(Path::new)
            && let Some(dir) = dir.parent()
        {
            let most = cells.iter().map(Cell::bytes).max().unwrap_or(0);
            // Copy on write and logs take as much again, and once more while nothing is reused.
            let most = (most * 3).max(plan.limits.size / 2);
            let place = LabDir::create(dir, most + (64 << 20));
            beside.place = Some(place.map_err(LabError::from)?);
        }
        Ok(beside)
    }
}

impl Cell {
    fn workload(&self) -> &'static Workload {
        let known = WORKLOADS.iter().find(|w| w.name == self.workload);
        known.unwrap_or(&WORKLOADS[0])
    }

    fn engine(&self) -> Option<&'static EngineKind> {
        let name = self.engine.as_deref()?;
        ENGINES.iter().find(|e| e.name == name)
    }

    /// Where keys come to what was filled, they lie anywhere among it, as YCSB's do.
    fn hashed(&self) -> bool {
        self.workload().mix.insert > 0
    }

    fn label(&self) -> String {
        if let Some(engine) = &self.engine {
            return format!("{}-{engine}", self.workload);
        }
        match self.workload().sweep {
            Sweep::None => self.workload.clone(),
            Sweep::Pages => format!("update-{}k", self.page / 1024),
            Sweep::Caches => format!("update-{}pc", self.cache),
        }
    }

    /// What it takes to fill a tree, to open and to close it, where two processors and a virtual disk do it.
    fn filled_in(&self) -> Nanos {
        const OPENED: Nanos = Nanos::from_millis(350);
        const KEY: u64 = 100;
        const BYTE: u64 = 4;
        OPENED + Nanos(self.keys * KEY + self.bytes() * BYTE)
    }

    /// Of its keys and values.
    fn bytes(&self) -> u64 {
        self.keys * (12 + u64::from(self.value))
    }
}

fn load_of<'a>(
    (ramp, time): (Nanos, Nanos),
    cell: &Cell,
    options: &KvOptions,
    repeat: u32,
    device: Option<&'a CounterSource>,
) -> Load<'a> {
    Load {
        mix: cell.workload().mix,
        keys: cell.workload().keys.unwrap_or(options.keys_drawn),
        count: cell.keys,
        value: cell.value,
        threads: options.threads,
        hashed: cell.hashed(),
        ramp: if cell.keys == 0 { Nanos::ZERO } else { ramp },
        ramp_max: Some(ramp_max(time)),
        time,
        rate: options.rate,
        // Engines are held against each other on the same keys.
        seed: seed(options.seed, "kv", &cell.workload, repeat),
        device,
    }
}

/// The open file or device behind a target.
///
/// # Errors
/// Where there are no bytes that stay: null:.
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
    found.ok_or_else(|| no_bytes(about.name))
}

/// That a target of this name keeps no bytes.
pub fn no_bytes(target: String) -> BenchError {
    BenchError::Target(TargetError::Unfit {
        target,
        message: "a tree needs bytes that stay: name a directory, a file, a block device, or a model (sim:NAME)".into(),
    })
}

//! How much of the data to keep in memory (Zhang et al. 2018, eq. 1, Figs. 12-13, Table I): latency, throughput and
//! requests per dollar against the cached share, for uniform, Zipf and Gaussian keys.
//!
//! Predicted from the device's latency and the hit share of the clock, and measured beside with fathom's own B+tree: on
//! real targets as it is, on models in virtual time (`played`).

mod on_model;
mod predict;
mod real;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed, percent, word};
use fathom_bench::progress::{ProgressSink, prepare};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{cut_short, seed, turns};
use fathom_bench::{Bench, BenchError, Notebook, NotebookError, Plan};
use fathom_io::driver::PlannedJob;
use fathom_io::{JobError, JobSpec};
use fathom_kv::{Durability, Engine, Options, Store};
use fathom_sim::SimTarget;
use fathom_sim::hits::Popularity;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Bytes, Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::kv;
use crate::kv::keys::{self, Drawer, Keys};
use crate::kv::load;
use predict::Costs;

/// Dollars per GB of DRAM, of an Optane 900P and of an Intel S3510 (Zhang et al. 2018, Table I).
const PRICES: (f64, f64, f64) = (13.13, 1.16, 0.68);

/// Dollars per GB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Of memory.
    pub dram: f64,
    /// Of the target.
    pub device: f64,
}

impl Prices {
    /// What a gigabyte of data costs of which a share (0..=1) is in memory too.
    fn of_data(self, share: f64) -> f64 {
        self.device + share * self.dram
    }
}

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom cache . --size 2g                          three kinds of keys, 3 to 50 % cached\n  fathom cache /mnt/data --keys zipf --page 16k --threads 16\n  fathom cache sim:intel-s3510 --dram-price 3 --device-price 0.08\nPredicted: t_io (1 - H) + t_load H, from the device's latency and the hit share of the cache (Zhang et al. 2018, eq. 1). Measured: fathom's own B+tree with each cache, in turns."
)]
pub struct CacheOptions {
    /// Distributions of keys: uniform, zipf, gaussian
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", default_value = "uniform,zipf,gaussian", value_parser = word(&Keys::NAMED))]
    pub keys: Vec<Keys>,
    /// Cached shares of the data, percent
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", default_value = "3,6,12.5,25,50", value_parser = inside)]
    pub shares: Vec<f64>,
    /// Bytes of data [default: a sixteenth of the range; 64m on models]
    #[arg(long, value_name = "BYTES")]
    pub data: Option<Bytes>,
    /// Bytes of a value, at most a quarter of a page
    #[arg(long, default_value_t = 100)]
    pub value: u32,
    /// Bytes of a page: 4k, 8k, 16k, 32k or 64k
    #[arg(long, default_value = "4k", value_parser = kv::page)]
    pub page: Bytes,
    /// Threads, each with one request at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// On models: what a request takes that the cache answers (on real targets it is measured)
    #[arg(long, value_name = "DURATION", default_value = "1us")]
    pub load: Nanos,
    /// Dollars per GB of memory [default: 13.13, Zhang et al. 2018, Table I]
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    #[serde(skip)]
    dram_price: Option<f64>,
    /// Dollars per GB of the target [default: the same table, 1.16 for Optane, else 0.68 for flash]
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    #[serde(skip)]
    device_price: Option<f64>,
    /// Dollars per GB.
    #[arg(skip)]
    pub prices: Prices,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
    /// Whether the target is a model.
    #[arg(skip)]
    #[serde(skip)]
    pub simulated: bool,
}

/// A share that leaves something in the cache and something out of it, percent.
fn inside(text: &str) -> Result<f64, String> {
    let share = percent(text).ok().filter(|s| *s > 0.0 && *s < 100.0);
    share.ok_or_else(|| {
        format!("{text} is no share: expected more than 0 and less than 100 percent")
    })
}

fn dollars(text: &str) -> Result<f64, String> {
    let price = text
        .parse()
        .ok()
        .filter(|p: &f64| *p > 0.0 && p.is_finite());
    price.ok_or_else(|| "expected dollars per GB, more than 0".into())
}

impl CacheOptions {
    /// Depths at which the device is measured: powers of two up to the threads, and the threads.
    fn depths(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..)
            .map(|i| 1 << i)
            .take_while(|d| *d < self.threads)
            .collect();
        all.push(self.threads);
        all
    }
}

/// The data of a run: what fits the range and the smallest cache.
#[derive(Debug, Clone, Copy)]
struct Data {
    keys: u64,
    bytes: u64,
    /// Where the region for the device's own measurement begins.
    apart: u64,
}

/// A model's tree lies in memory.
const MODEL_DATA_MAX: u64 = 64 << 20;

fn data(size: u64, o: &CacheOptions) -> Result<Data, JobError> {
    let simulated = o.simulated;
    let half = size / 2 / 65536 * 65536;
    // A store writes copy on write and keeps a log beside: two fifths of its half are safe.
    let most = half / 5 * 2;
    let usual = if simulated {
        MODEL_DATA_MAX
    } else {
        (size / 16).min(2 << 30)
    };
    let bytes = o.data.map_or(usual.min(most), |d| d.0);
    let least = o.shares.iter().copied().fold(100.0, f64::min);
    let needed = (Options::FRAMES_MIN as f64 * 100.0 / least).ceil() as u64 * o.page.0;
    let refused = |message: String| {
        let option = "--data".to_owned();
        Err(JobError::Value { option, message })
    };
    if bytes > most || (simulated && bytes > 4 * MODEL_DATA_MAX) {
        let most = if simulated { 4 * MODEL_DATA_MAX } else { most };
        return refused(format!(
            "{} is too much: expected at most {}, {}",
            Bytes(bytes),
            Bytes(most),
            if simulated {
                "for a model's tree lies in memory"
            } else {
                "a fifth of the range (--size)"
            }
        ));
    }
    if bytes < needed {
        return refused(format!(
            "a cache of {least} % of {} is less than {} pages of {}: expected data of {} or more (--data, --size), or larger --shares",
            Bytes(bytes),
            Options::FRAMES_MIN,
            o.page,
            Bytes(needed)
        ));
    }
    // A key of 8 bytes and its entry beside the value.
    Ok(Data {
        keys: bytes / (12 + u64::from(o.value)),
        bytes,
        apart: if simulated { 0 } else { half },
    })
}

/// One line: a distribution and a cached share in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Line {
    keys: Keys,
    share: f64,
}

/// One measurement of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Measured {
    /// Its job in the run.
    job: usize,
    /// Requests per second.
    rate: f64,
    /// Mean latency, ns.
    latency: f64,
    /// Share of requests that the cache answered.
    hits: f64,
    /// ns, where enough requests are slower.
    p99: Option<f64>,
    /// Whether the cache had been filled before.
    warm: bool,
}

/// One repeat: what predictions rest on, and what was measured beside.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Repeat {
    /// Depth and mean latency of a page's read, ns.
    io: Vec<(u32, f64)>,
    /// t_load by distribution, ns.
    load: Vec<(Keys, f64)>,
    lines: Vec<(usize, Measured)>,
}

/// Expected hit shares of a distribution, by cached share in percent.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hits {
    keys: Keys,
    of: Vec<(f64, f64)>,
}

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CacheResult {
    options: CacheOptions,
    leaves: u64,
    lines: Vec<Line>,
    repeats: Vec<Repeat>,
    /// Under independent requests, for every share that is shown.
    hits: Vec<Hits>,
    /// What the engine itself spends on a miss beyond a hit, ns.
    extra: f64,
    /// Processors that threads share; none where a model has one for each.
    cores: Option<f64>,
    /// Jobs of the device's own latency, and of what is compared with it.
    jobs: Vec<usize>,
}

impl ExperimentResult for CacheResult {
    const EXPERIMENT: &'static str = "cache";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        report::present(self, evidence, shown);
    }
}

impl CacheResult {
    /// Of a share that is shown.
    fn hits(&self, keys: Keys, share: f64) -> f64 {
        let known = self.hits.iter().filter(|h| h.keys == keys);
        let mut near = known.flat_map(|h| &h.of);
        near.find(|h| h.0 == share).map_or(0.0, |h| h.1)
    }

    fn costs(&self, repeat: &Repeat, keys: Keys) -> Option<Costs> {
        let load = repeat.load.iter().find(|l| l.0 == keys)?.1;
        (!repeat.io.is_empty()).then(|| Costs {
            load,
            extra: self.extra,
            io: repeat.io.clone(),
            threads: self.options.threads,
            cores: self.cores,
        })
    }
}

/// Shares of the lines of charts, percent: from the smallest measured to the largest, evenly in their logarithms.
fn steps_of(o: &CacheOptions) -> impl Iterator<Item = f64> + '_ {
    const STEPS: u32 = 24;
    let low = o.shares.iter().copied().fold(100.0, f64::min);
    let high = o.shares.iter().copied().fold(0.0, f64::max);
    (0..=STEPS).map(move |i| low * (high / low).powf(f64::from(i) / f64::from(STEPS)))
}

/// Expected hit shares for all shares that are shown.
fn expected(o: &CacheOptions, keys: u64, leaves: u64) -> Vec<Hits> {
    let of = |k: &Keys| {
        let popularity = Popularity::of(&keys::chances(*k, keys, leaves));
        let shares = o.shares.iter().copied().chain(steps_of(o));
        Hits {
            keys: *k,
            of: shares
                .map(|s| (s, popularity.hits(frames(leaves, s) as f64)))
                .collect(),
        }
    };
    o.keys.iter().map(of).collect()
}

fn frames(leaves: u64, share: f64) -> u64 {
    let frames = (leaves as f64 * share / 100.0).round() as u64;
    frames.max(Options::FRAMES_MIN)
}

fn lines(o: &CacheOptions) -> Vec<Line> {
    let of = |keys: &Keys| {
        let keys = *keys;
        o.shares.iter().map(move |share| Line {
            keys,
            share: *share,
        })
    };
    o.keys.iter().flat_map(of).collect()
}

/// Reads of a page, anywhere in as many bytes as the tree has, by threads that each wait for theirs: as the tree reads.
fn io_job(plan: &Plan, o: &CacheOptions, data: Data, depth: u32) -> Result<JobSpec, JobError> {
    let mut spec = plan.job(
        &format!("page-read-{depth}"),
        &[("rw", "randread"), ("engine", "preadv"), ("qd", "1")],
    )?;
    spec.set("bs", &o.page.0.to_string())?;
    spec.set("threads", &depth.to_string())?;
    spec.offset = Bytes(data.apart);
    spec.size = Some(Bytes(data.bytes / o.page.0 * o.page.0));
    Ok(spec)
}

impl Measurement for CacheOptions {
    const NAME: &'static str = "cache";

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        self.simulated = SimTarget::is_simulated(&typed.target);
        self.shares.sort_by(f64::total_cmp);
        self.shares.dedup();
        let most = self.page.0 / 4;
        if u64::from(self.value) > most {
            return Err(format!(
                "--value: {} bytes are too long: expected at most a quarter of a page ({most})",
                self.value
            ));
        }
        // A device that says nothing of itself is taken for flash.
        let optane = typed.target.to_ascii_lowercase().contains("optane");
        let (dram, xpoint, flash) = PRICES;
        let device = if optane { xpoint } else { flash };
        self.prices = Prices {
            dram: self.dram_price.unwrap_or(dram),
            device: self.device_price.unwrap_or(device),
        };
        self.seed = typed.seed;
        Ok(())
    }

    fn modifies(&self) -> bool {
        !self.simulated
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let data = data(plan.limits.size, self)?;
        let mut cost = RunCost::filling(fills);
        cost.phase("the device alone");
        for depth in self.depths() {
            cost.add(&io_job(plan, self, data, depth)?, plan.profile.repeats);
        }
        let cells = (lines(self).len() + self.keys.len()) as u32 * plan.profile.repeats;
        let one = plan.profile.job_time + plan.profile.ramp + plan.profile.job_time;
        if self.simulated {
            // The tree really runs there, whatever the model's time: a cell as long as so many reads of a model take here.
            const READS: u64 = 620_000;
            let reads = JobSpec {
                qd: 8,
                bytes: Some(Bytes(READS * 4096)),
                ..JobSpec::default()
            };
            cost.phase("the tree")
                .work(cells, Nanos::ZERO, Bytes(0))
                .on("sim:optane-900p".into())
                .simulated_as(&reads, cells);
        } else {
            // The tree: its leaves, its log and tables, and what checkpoints write meanwhile.
            cost.phase("loading the tree")
                .fill(Bytes(2 * data.bytes + (64 << 20)));
            let time = Nanos(one.0 * u64::from(cells));
            cost.phase("the tree").work(cells, time, Bytes(0));
        }
        Ok(cost)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let data = data(plan.limits.size, self).map_err(BenchError::from)?;
        let place: Box<dyn Place> = if bench.simulated() {
            Box::new(on_model::Virtual::fill(data, self, bench)?)
        } else {
            let file = crate::kv::file(bench, plan.direct)?;
            prepare(bench, sink)?;
            Box::new(real::Real::fill(file, data, plan, self, bench)?)
        };
        let mut found = CacheResult {
            options: self.clone(),
            leaves: place.leaves(),
            lines: lines(self),
            repeats: Vec::new(),
            hits: expected(self, data.keys, place.leaves()),
            extra: place.extra(),
            cores: place.cores(),
            jobs: Vec::new(),
        };
        let steps = steps(self, &found.lines);
        let total = steps.len() as u32 * plan.profile.repeats;
        let mut done = 0;
        for number in 0..plan.profile.repeats {
            let mut repeat = Repeat::default();
            // In turns, so that a drift of the device favours no line.
            for k in turns(steps.len(), number) {
                let step = steps[k];
                if bench.interrupted() {
                    break;
                }
                sink.job(done, total, &step.name(&found.lines));
                let mut at = At {
                    bench,
                    plan,
                    options: self,
                    data,
                    number,
                    book,
                    sink,
                };
                step.take(&*place, &mut found, &mut repeat, &mut at)?;
                done += 1;
            }
            if bench.interrupted() {
                break;
            }
            found.repeats.push(repeat);
        }
        if bench.interrupted() {
            book.run_mut().flags.push(cut_short(done, total));
        }
        book.found(&found)
    }
}

/// What a step needs.
struct At<'a> {
    bench: &'a mut dyn Bench,
    plan: &'a Plan,
    options: &'a CacheOptions,
    data: Data,
    number: u32,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
}

impl At<'_> {
    /// Of what asks for keys; a job has one by its name.
    fn seed(&self, of: &str) -> u64 {
        seed(self.options.seed, "cache", of, self.number)
    }

    /// Runs one job of the repeat; its index in the run.
    fn job(
        &mut self,
        mut spec: JobSpec,
        guide: Option<fathom_io::load::Guide>,
    ) -> Result<Option<usize>, NotebookError> {
        spec.seed = self.seed(&spec.name);
        spec.name = format!("{}.{}", spec.name, self.number + 1);
        let job = spec
            .validate(&self.bench.limits())
            .map_err(BenchError::from)?;
        let planned = [PlannedJob {
            experiment: "cache".into(),
            repeat: self.number,
            guide,
            ..PlannedJob::new(job)
        }];
        let sink = &mut *self.sink;
        let jobs = self
            .book
            .measure(self.bench, &planned, &mut |p| sink.progress(p))?;
        Ok(jobs.first().copied())
    }
}

/// One measurement of a repeat.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The device's own latency at a depth.
    Io(u32),
    /// Everything cached.
    Cached(Keys),
    /// A line by its number.
    Line(usize),
}

fn steps(o: &CacheOptions, lines: &[Line]) -> Vec<Step> {
    let io = o.depths().into_iter().map(Step::Io);
    let cached = o.keys.iter().map(|k| Step::Cached(*k));
    io.chain(cached)
        .chain((0..lines.len()).map(Step::Line))
        .collect()
}

impl Step {
    fn name(self, lines: &[Line]) -> String {
        match self {
            Self::Io(depth) => format!("page-read-{depth}"),
            Self::Cached(keys) => format!("{} 100 %", keys.name()),
            Self::Line(i) => format!("{} {} %", lines[i].keys.name(), lines[i].share),
        }
    }

    fn take(
        self,
        place: &dyn Place,
        found: &mut CacheResult,
        repeat: &mut Repeat,
        at: &mut At<'_>,
    ) -> Result<(), NotebookError> {
        match self {
            Self::Io(depth) => {
                let spec = io_job(at.plan, at.options, at.data, depth).map_err(BenchError::from)?;
                let Some(index) = at.job(spec, None)? else {
                    return Ok(());
                };
                found.jobs.push(index);
                let job = &at.book.run().jobs[index];
                let mean = job.direction(Op::Read).and_then(|d| d.service_ns.mean);
                repeat
                    .io
                    .extend(mean.filter(|_| !job.is_void()).map(|m| (depth, m)));
                repeat.io.sort_by_key(|d| d.0);
            }
            Self::Cached(keys) => {
                let (load, job) = place.cached(keys, at)?;
                found.jobs.extend(job);
                repeat.load.push((keys, load));
            }
            Self::Line(i) => {
                let line = found.lines[i];
                let before = found.repeats.last();
                let costs = found
                    .costs(repeat, line.keys)
                    .or_else(|| found.costs(before?, line.keys));
                let hint = costs.map(|c| c.at(found.hits(line.keys, line.share)).latency);
                let measured = place.measure(line, hint, at)?;
                found.jobs.extend(measured.map(|m| m.job));
                repeat.lines.extend(measured.map(|m| (i, m)));
            }
        }
        Ok(())
    }
}

/// Where the tree lies.
trait Place {
    fn leaves(&self) -> u64;
    /// See [`CacheResult::extra`].
    fn extra(&self) -> f64;
    /// See [`CacheResult::cores`].
    fn cores(&self) -> Option<f64>;
    /// Latency of a request with everything cached, ns, and its job where it was measured.
    fn cached(&self, keys: Keys, at: &mut At<'_>) -> Result<(f64, Option<usize>), NotebookError>;
    /// A line; none where nothing came of it. `hint` is the expected latency, ns.
    fn measure(
        &self,
        line: Line,
        hint: Option<f64>,
        at: &mut At<'_>,
    ) -> Result<Option<Measured>, NotebookError>;
}

fn kv_options(o: &CacheOptions, frames: u64, log: u64) -> Options {
    Options {
        page_bytes: o.page.0,
        pool_bytes: frames * o.page.0,
        log_bytes: log,
        durability: Durability::Checkpoint,
        checkpoint_every: None,
        write_ahead: true,
    }
}

/// Fills a tree in order, so that its leaves are full and alike; returns how many there are.
fn fill(
    store: Arc<dyn Store>,
    data: Data,
    o: &CacheOptions,
    stop: &dyn Fn() -> bool,
) -> Result<u64, LabError> {
    let options = fill_options(o, store.len());
    let engine = Engine::create(store, &options)?;
    load::fill(&engine, 0..data.keys, o.value, stop)?;
    let leaves = engine.leaves();
    engine.close()?;
    Ok(leaves)
}

/// With a pool of its own.
fn fill_options(o: &CacheOptions, store: u64) -> Options {
    kv_options(o, (32 << 20) / o.page.0, log_bytes(store))
}

fn log_bytes(store: u64) -> u64 {
    (store / 64).clamp(1 << 20, 16 << 20)
}

/// Asks for keys until the cache's pages are those that it keeps: when so many were loaded as it holds several times.
/// Threads beyond those that are measured make it shorter. Returns whether it came that far.
fn warm(
    engine: &Engine,
    line: Line,
    data: Data,
    seed: u64,
    threads: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<bool, LabError> {
    const ROUNDS: u64 = 4;
    /// A cache that holds nearly everything that is asked for turns over slowly: enough is enough.
    const PER_FRAME: u64 = 200;
    let frames = engine.frames();
    let everything = line.share >= 100.0;
    let leaves = engine.leaves().max(1);
    let (asked, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let drawer = Drawer::new(line.keys, data.keys);
    let before = engine.stats().misses;
    let one = |thread: u64| -> Result<(), LabError> {
        let mut random = SplitMix64::new(seed ^ SplitMix64::new(0x3a51 + thread).next_u64());
        let mut value = Vec::new();
        if everything {
            for leaf in (thread..leaves).step_by(threads as usize) {
                engine.get(leaf * data.keys / leaves, &mut value)?;
            }
            return Ok(());
        }
        while !ended.load(Ordering::Relaxed) {
            for _ in 0..64 {
                engine.get(drawer.draw(data.keys, &mut random), &mut value)?;
            }
            let n = asked.fetch_add(64, Ordering::Relaxed) + 64;
            let loaded = engine.stats().misses - before;
            if loaded >= ROUNDS * frames || n >= PER_FRAME * frames || stop() {
                ended.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..threads)
            .map(|t| fathom_io::threads::within(scope, move || one(t)))
            .collect::<Result<_, _>>()
            .map_err(|e| {
                ended.store(true, Ordering::Relaxed);
                LabError::Failed(e.to_string())
            })?;
        all.into_iter().try_for_each(|t| match t.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(everything || engine.stats().misses - before >= frames)
}

//! The RAID lab: what arrays give against what arithmetic promises, after Han et al. 2021.
//!
//! Levels over numbers of members, direct and through the page cache, sequential and random, reads and writes
//! of large blocks by many threads; small writes; arrays that lack a member, and that fill a new one. Who makes
//! the arrays is behind [`Backend`]; the experiment is the same for a model and for a kernel.

mod backend;
pub mod expect;
pub mod guest;
mod options;
mod proof;
mod results;
mod sim;
mod states;
pub mod within;

use fathom_bench::cost::RunCost;
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::runner::{Point, Runner};
use fathom_bench::schedule::turns;
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_io::job::{Rw, SyncPolicy};
use fathom_io::{JobError, JobSpec};
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

pub use backend::{ArrayBench, Backend, KernelArrays};
pub use options::RaidOptions;
pub use sim::SimArrays;
pub use within::WithinResult;

use fathom_system::array::{Shape, Traffic};

use crate::LabError;
use crate::page_cache;

/// Jobs of one experiment are called so in the run.
const EXPERIMENT: &str = "raid";

/// Buffered writes of a thread between two fdatasync.
const SYNC_EVERY: u32 = 16;

/// The state that an array is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// One member alone.
    Member,
    Whole,
    Degraded,
    Rebuilding,
}

/// One load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) rw: Rw,
    pub(crate) direct: bool,
    pub(crate) block: Bytes,
    /// All I/Os outstanding belong to one stream, not one to each thread.
    pub(crate) stream: bool,
}

impl Load {
    fn slug(&self) -> String {
        self.short().replace(' ', "-")
    }

    /// `direct randwrite 512k`, for narrow columns.
    pub(crate) fn short(&self) -> String {
        let way = if self.direct { "direct" } else { "buffered" };
        let stream = if self.stream { " stream" } else { "" };
        format!("{way} {} {}k{stream}", self.rw.word(), self.block.0 / 1024)
    }

    /// `direct random write, 512 KiB`.
    pub(crate) fn title(&self) -> String {
        let way = if self.direct { "direct" } else { "buffered" };
        let order = if self.rw.is_random() {
            "random"
        } else {
            "sequential"
        };
        let what = if self.rw.modifies() { "write" } else { "read" };
        let stream = if self.stream { ", one stream" } else { "" };
        format!("{way} {order} {what}, {}{stream}", self.block)
    }
}

/// What was measured of one load on one array.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) load: Load,
    pub(crate) point: Point,
    /// Bytes of members per byte asked, over all repeats.
    pub(crate) amplification: Option<[f64; 2]>,
    /// Processors' worth of kernel threads over all repeats, by name.
    pub(crate) threads: Vec<(String, f64)>,
}

/// What was measured of one array in one state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// `None` for one member alone.
    pub(crate) shape: Option<Shape>,
    pub(crate) state: State,
    pub(crate) loads: Vec<Measured>,
    pub(crate) settings: Vec<(String, String)>,
    /// Of a rebuild: bytes per second of the new member, and how long it would take or took, s.
    pub(crate) rebuild: Option<Rebuild>,
}

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RaidResult {
    options: RaidOptions,
    /// Of the arrays.
    about: String,
    /// The disk that several members lie on.
    shared_disk: Option<String>,
    all: Vec<Measurement>,
    checks: Vec<proof::Check>,
    tried: Vec<proof::Tried>,
}

impl ExperimentResult for RaidResult {
    const EXPERIMENT: &'static str = EXPERIMENT;

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
        proof::present(&self.checks, &self.tried, &self.options, shown);
    }
}

impl RaidResult {
    /// Bytes per second of a load on the whole array that `which` names, all threads together.
    pub(crate) fn rate(
        &self,
        evidence: &Evidence<'_>,
        which: impl Fn(Shape) -> bool,
        rw: Rw,
        direct: bool,
        block: Bytes,
    ) -> Option<(f64, Vec<usize>)> {
        let whole = |m: &&Measurement| m.state == State::Whole && m.shape.is_some_and(&which);
        let load = Load {
            rw,
            direct,
            block,
            stream: false,
        };
        let loads = &self.all.iter().find(whole)?.loads;
        let cell = evidence.cell(&loads.iter().find(|l| l.load == load)?.point);
        Some((cell.bandwidth()?.value, cell.indices()))
    }
}

/// How a rebuild went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rebuild {
    /// Share done under the foreground load.
    pub(crate) done: f64,
    /// In this time.
    pub(crate) time: Nanos,
    /// From its begin to its end, where it ended while somebody looked.
    pub(crate) ended: Option<Nanos>,
}

impl Rebuild {
    /// The whole of it at this pace.
    pub(crate) fn whole_seconds(&self) -> Option<f64> {
        (self.done > 0.0).then(|| self.time.as_secs_f64() / self.done)
    }
}

/// Arrays of the options that a level can have.
pub fn shapes(options: &RaidOptions) -> Vec<Shape> {
    let mut all = Vec::new();
    for level in &options.levels {
        for members in &options.members {
            for chunk in &options.chunks {
                let odd_pairs = *level == Level::Raid10 && members % 2 == 1;
                // A mirror has no chunk: once is enough.
                let again = *level == Level::Raid1 && *chunk != options.chunks[0];
                if *members >= level.members_min() && !odd_pairs && !again {
                    all.push(Shape {
                        level: *level,
                        members: *members,
                        chunk: *chunk,
                    });
                }
            }
        }
    }
    all
}

fn loads(options: &RaidOptions, state: State) -> Vec<Load> {
    let mut loads = Vec::new();
    let states = matches!(state, State::Degraded | State::Rebuilding);
    for rw in &options.patterns {
        for direct in &options.direct {
            // A missing member shows in random direct I/O: the rest would only repeat it.
            if !states || (*direct && rw.is_random()) {
                loads.push(Load {
                    rw: *rw,
                    direct: *direct,
                    block: options.block,
                    stream: false,
                });
            }
        }
    }
    // Only a stream fills whole stripes: threads with a part each write chunks of many.
    if options.patterns.contains(&Rw::Write) && options.direct.contains(&true) && !states {
        loads.push(Load {
            rw: Rw::Write,
            direct: true,
            block: options.block,
            stream: true,
        });
    }
    if let Some(small) = options.small
        && options.patterns.iter().any(|p| p.modifies())
        && !states
    {
        loads.push(Load {
            rw: Rw::RandWrite,
            direct: true,
            block: small,
            stream: false,
        });
    }
    loads
}

/// A load as a job over `size` bytes. On a real kernel, buffered reads visit each block once (a second visit would be
/// answered from memory), and buffered writes are made durable as they go.
fn spec(
    plan: &Plan,
    options: &RaidOptions,
    prefix: &str,
    load: Load,
    size: u64,
    real: bool,
) -> Result<JobSpec, JobError> {
    let mut spec = plan.job(
        &format!("{prefix}-{}", load.slug()),
        &[("rw", load.rw.word()), ("bs", &load.block.0.to_string())],
    )?;
    (spec.threads, spec.qd) = if load.stream {
        (1, options.threads)
    } else {
        (options.threads, 1)
    };
    spec.direct = load.direct;
    let size = Bytes(size / load.block.0.max(1) * load.block.0.max(1));
    spec.size = Some(size);
    if real && !load.direct {
        if load.rw.modifies() {
            spec.sync = SyncPolicy::fdatasync(SYNC_EVERY);
        } else {
            spec.random_map = load.rw.is_random();
            (spec.bytes, spec.ramp) = (Some(size), Nanos::ZERO);
        }
    }
    Ok(spec)
}

/// Time and bytes, at most; `model` is the simulated target whose arrays are made.
pub fn run_cost(plan: &Plan, options: &RaidOptions, model: Option<&str>) -> RunCost {
    let mut cost = RunCost::default();
    let mut add = |phase: &str, state, shape: Option<&Shape>| {
        cost.phase(phase);
        if let (Some(model), Some(shape)) = (model, shape) {
            cost.on(sim::name(model, shape, state));
        }
        for load in loads(options, state) {
            // What an array cannot run is a hole there.
            if let Ok(spec) = spec(plan, options, "cost", load, plan.limits.size, false) {
                cost.add(&spec, plan.profile.repeats);
            }
        }
    };
    add("one member", State::Member, None);
    for shape in shapes(options) {
        let name = format!("RAID {} of {}", shape.level.number(), shape.members);
        add(&name, State::Whole, Some(&shape));
        if shape.level.spare_members(shape.members) > 0 {
            if options.degraded {
                add(&format!("{name}, degraded"), State::Degraded, Some(&shape));
            }
            if options.rebuild {
                add(
                    &format!("{name}, rebuilding"),
                    State::Rebuilding,
                    Some(&shape),
                );
            }
        }
    }
    cost
}

/// Measures one member, then every array, and puts sections, headlines and findings into the notebook.
///
/// An array that cannot be made is a hole with the reason, not the end of the run.
///
/// # Errors
/// Where the member cannot be used, or the run directory fails.
pub fn run(
    backend: &mut dyn Backend,
    plan: &Plan,
    options: &RaidOptions,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let mut lab = Lab {
        plan,
        options,
        total: run_cost(plan, options, None).jobs(),
        done: 0,
        all: Vec::new(),
        checks: Vec::new(),
        tried: Vec::new(),
        interrupted: false,
    };
    let mut member = backend.member()?;
    let alone = lab.measure(
        Subject::Member(&mut *member),
        None,
        State::Member,
        book,
        sink,
    );
    member.close()?;
    lab.all.push(alone?);
    for shape in shapes(options) {
        if lab.interrupted {
            break;
        }
        if let Err(e) = lab.array(backend, shape, book, sink) {
            match e {
                LabError::Notebook(e) => return Err(*e),
                e => hole(book, &shape, &e.to_string()),
            }
        }
    }
    let arrays = lab.all.iter().filter(|m| m.shape.is_some()).count();
    if arrays == 0 && !lab.interrupted {
        none_measured(book);
    }
    if lab.interrupted {
        let detail = format!("{} of {} jobs were run", lab.done, lab.total);
        let flag = Flag::new(
            FlagCode::Interrupted,
            detail,
            "run it again: it begins anew",
        );
        book.run_mut().flags.push(flag);
    }
    book.run_mut().flags.extend(backend.stamps());
    book.run_mut().flags.extend(proof::lost(&lab.checks));
    book.found(&RaidResult {
        options: options.clone(),
        about: backend.about(),
        shared_disk: backend.shared_disk().map(str::to_owned),
        all: lab.all,
        checks: lab.checks,
        tried: lab.tried,
    })
}

fn hole(book: &mut Notebook, shape: &Shape, why: &str) {
    book.run_mut().flags.push(Flag::new(
        FlagCode::NotChecked,
        format!("{} was not measured: {why}", shape.title()),
        "the other arrays are not concerned",
    ));
}

/// Said of a run that has no array's number in it: what it has says nothing of arrays.
fn none_measured(book: &mut Notebook) {
    let flag = Flag::new(
        FlagCode::NotChecked,
        "no array could be measured",
        "see beside this why, or ask for other levels, members or another backend",
    );
    book.run_mut().flags.push(Flag { void: true, ..flag });
}

struct Lab<'a> {
    plan: &'a Plan,
    options: &'a RaidOptions,
    total: u32,
    done: u32,
    all: Vec<Measurement>,
    checks: Vec<proof::Check>,
    tried: Vec<proof::Tried>,
    interrupted: bool,
}

impl Lab<'_> {
    /// One array in all its states.
    fn array(
        &mut self,
        backend: &mut dyn Backend,
        shape: Shape,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        if let Some(why) = backend.cannot(&shape) {
            return Err(LabError::Refused(why));
        }
        let mut array = backend.make(&shape)?;
        let measured = self.states(&mut *array, shape, book, sink);
        let closed = array.close();
        measured?;
        closed
    }

    fn states(
        &mut self,
        array: &mut dyn ArrayBench,
        shape: Shape,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        self.fill(array, shape, book, sink)?;
        for (name, value) in &self.options.sets {
            array.itself().set(name, value)?;
        }
        self.on(array, shape, State::Whole, book, sink)?;
        self.tries(array, shape, book, sink)?;
        let redundant = shape.level.spare_members(shape.members) > 0;
        let wanted = self.options.degraded || self.options.rebuild;
        if !redundant || !array.itself().states() || !wanted || self.interrupted {
            return Ok(());
        }
        let whole = self.checksum(array, shape)?;
        array.itself().lose(0)?;
        self.check(array, shape, "without member 1", whole)?;
        if self.options.degraded {
            self.on(array, shape, State::Degraded, book, sink)?;
        }
        if !self.options.rebuild || self.interrupted {
            return Ok(());
        }
        let began = fathom_io::clock::monotonic();
        array.itself().rebuild()?;
        self.on(array, shape, State::Rebuilding, book, sink)?;
        if array.itself().device().is_none() {
            return Ok(());
        }
        let ended = self.wait_rebuilt(array, began)?;
        if let Some(r) = self.all.last_mut().and_then(|m| m.rebuild.as_mut()) {
            r.ended = ended;
        }
        if ended.is_some() {
            // Without the next member, data can only come from the one that was filled.
            let whole = self.checksum(array, shape)?;
            array.itself().lose(1)?;
            self.check(array, shape, "rebuilt, without member 2", whole)?;
        }
        Ok(())
    }

    fn on(
        &mut self,
        array: &mut dyn ArrayBench,
        shape: Shape,
        state: State,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        let settings = array.itself().settings();
        let before = array.itself().rebuilt();
        let first = book.run().jobs.len();
        let began = fathom_io::clock::monotonic();
        let mut loads = self.measure(Subject::Array(array), Some(shape), state, book, sink)?;
        loads.settings = settings;
        let time = if array.itself().device().is_some() {
            fathom_io::clock::monotonic().since(began)
        } else {
            Nanos(book.run().jobs[first..].iter().map(|j| j.wall_ns).sum())
        };
        loads.rebuild = (state == State::Rebuilding).then(|| Rebuild {
            // A rebuild that has ended says nothing any more.
            done: array.itself().rebuilt().unwrap_or(1.0) - before.unwrap_or(0.0),
            time,
            ended: None,
        });
        self.all.push(loads);
        Ok(())
    }

    /// Every load in every repeat, in alternating order (ABBA), so that a drift favours none.
    fn measure(
        &mut self,
        mut subject: Subject<'_>,
        shape: Option<Shape>,
        state: State,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<Measurement, LabError> {
        let prefix = match (shape, state) {
            (Some(s), State::Degraded) => format!("{}-degraded", s.slug()),
            (Some(s), State::Rebuilding) => format!("{}-rebuilding", s.slug()),
            (Some(s), _) => s.slug(),
            (None, _) => "member".to_owned(),
        };
        let size = self.loaded(subject.bench(), shape);
        let mut taken = Vec::new();
        for load in loads(self.options, state) {
            let real = !subject.bench().simulated();
            let spec = spec(self.plan, self.options, &prefix, load, size, real)?;
            taken.push((load, Point::new(spec), Usage::default()));
        }
        'repeats: for repeat in 0..self.plan.profile.repeats {
            for k in turns(taken.len(), repeat) {
                let (load, point, usage) = &mut taken[k];
                if !load.direct {
                    page_cache::forget(subject.bench());
                }
                let before = subject.usage();
                let mut runner = Runner::begin(
                    subject.bench(),
                    book,
                    sink,
                    EXPERIMENT,
                    self.options.seed,
                    self.total,
                )?
                .after(self.done);
                let going = runner.repeat(point)?;
                self.done = runner.done();
                usage.add(&before, &subject.usage());
                if !going {
                    self.interrupted |= subject.bench().interrupted();
                    break 'repeats;
                }
            }
        }
        let loads = taken
            .into_iter()
            .map(|(load, point, usage)| {
                let cell = book.evidence().cell(&point);
                let seconds: f64 = cell
                    .repeats
                    .iter()
                    .map(|(_, j)| j.wall_ns as f64 / 1e9)
                    .sum::<f64>()
                    + self.plan.profile.ramp.as_secs_f64() * cell.repeats.len() as f64;
                Measured {
                    load,
                    amplification: usage.traffic.and_then(|t| t.per_byte_asked()),
                    threads: usage.processors(seconds),
                    point,
                }
            })
            .collect();
        Ok(Measurement {
            shape,
            state,
            loads,
            settings: Vec::new(),
            rebuild: None,
        })
    }
}

/// What jobs run on.
enum Subject<'a> {
    Member(&'a mut dyn Bench),
    Array(&'a mut dyn ArrayBench),
}

impl Subject<'_> {
    fn bench(&mut self) -> &mut dyn Bench {
        match self {
            Self::Member(b) => *b,
            Self::Array(a) => a.bench(),
        }
    }

    /// What was used so far.
    fn usage(&mut self) -> Usage {
        match self {
            Self::Member(_) => Usage::default(),
            Self::Array(a) => Usage {
                traffic: Some(a.itself().traffic().unwrap_or_default()),
                threads: a.itself().threads(),
            },
        }
    }
}

/// Traffic and CPU time.
#[derive(Debug, Clone, Default)]
struct Usage {
    traffic: Option<Traffic>,
    threads: Vec<(String, Nanos)>,
}

impl Usage {
    /// Adds what was used between two moments.
    fn add(&mut self, before: &Self, after: &Self) {
        if let (Some(b), Some(a)) = (before.traffic, after.traffic) {
            let more = a.since(&b);
            let sum = self.traffic.get_or_insert_default();
            for way in 0..2 {
                sum.asked[way] += more.asked[way];
                sum.members[way] += more.members[way];
            }
        }
        for (name, time) in &after.threads {
            let earlier = before.threads.iter().find(|t| t.0 == *name);
            let more = time.since(earlier.map_or(Nanos::ZERO, |t| t.1));
            match self.threads.iter_mut().find(|t| t.0 == *name) {
                Some(t) => t.1 += more,
                None => self.threads.push((name.clone(), more)),
            }
        }
    }

    /// CPU time as processors' worth over `seconds`, the busiest first; idle threads are left out.
    fn processors(&self, seconds: f64) -> Vec<(String, f64)> {
        let mut all: Vec<(String, f64)> = self
            .threads
            .iter()
            .map(|(name, t)| (name.clone(), t.as_secs_f64() / seconds.max(1e-9)))
            .filter(|t| t.1 > 0.001)
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

#[cfg(test)]
mod tests;

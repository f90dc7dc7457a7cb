//! fathom's own tree on a model: the engine really runs, over memory, and its threads take turns in the model's time.
//!
//! A page that is not cached is a read of the model, made by the thread that needs it; pages that are written ahead, those of
//! a checkpoint, its table, the log and each sync are the model's too, in the engine's own sizes and batches. So whatever waits
//! in the engine (latches, group commit, checkpoints, room) waits in the model's time. What processors do is not modelled:
//! an operation takes a given time beside its I/Os, and the engine's own threads take none.

mod memory;
mod stage;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fathom_io::JobSpec;
use fathom_io::load::Guide;
use fathom_kv::turns::{self, Turns};
use fathom_kv::{Engine, KvError, Options, Stats};
use fathom_telemetry::schema::{DeviceDelta, Direction, Job};
use fathom_telemetry::{FlagCode, Nanos, Op, Record, Recorder};

use crate::LabError;
use crate::clients::{Arrivals, Windows};
use crate::kv::keys::Drawer;
use crate::kv::load::{Load, Outcome, is_filling, operation};
pub(crate) use memory::MemoryStore;
use stage::{BACKGROUND, Stage};

/// I/Os that a thread of the engine has under way, at most: a batch of pages.
const DEPTH: u32 = 16;
/// An error that is said once.
type First = Rc<RefCell<Option<LabError>>>;

/// A tree that is played.
pub(crate) struct Played {
    turns: Rc<Turns>,
    engine: Rc<Engine>,
    /// Threads of the job that are the engine's own; none where it never writes.
    background: u32,
}

impl Played {
    /// The tree that lies in memory.
    ///
    /// # Errors
    /// Where there is none, or an option is out of range.
    pub(crate) fn open(store: &Arc<MemoryStore>, options: &Options) -> Result<Self, LabError> {
        let turns = Rc::new(Turns::default());
        let background = options.checkpoint_every.map_or(0, |_| BACKGROUND);
        let (store, options) = (Arc::clone(store), options.clone());
        let opened = turns.play(move || Engine::open(store, &options).map(Rc::new));
        let engine = opened.map_err(stuck)??;
        Ok(Self {
            turns,
            engine,
            background,
        })
    }

    /// The engine; whoever uses it beside a play must not make it wait.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Makes a job of the model one that the tree is played in: a thread for each client, and those of the engine.
    pub(crate) fn terms(&self, spec: &mut JobSpec, load: &Load<'_>) {
        spec.threads = load.threads + self.background;
        spec.qd = if self.background > 0 { DEPTH } else { 1 };
        (spec.ramp, spec.time) = (load.ramp, Some(load.time));
        spec.window = crate::clients::WIDTH;
    }

    /// Puts a load on the tree while `job` runs on the model, whose [terms](Self::terms) and guide it needs; then the tree is gone.
    ///
    /// # Errors
    /// The first failure of an operation, or that of the job.
    pub(crate) fn load<T, E: From<LabError>>(
        self,
        load: Load<'static>,
        each: Nanos,
        job: impl FnOnce(Guide) -> Result<T, E>,
    ) -> Result<(T, Counted), E> {
        let shared = Rc::new(Shared {
            engine: Rc::clone(&self.engine),
            drawer: Drawer::new(load.keys, load.count),
            newest: AtomicU64::new(load.count),
            windows: Windows::default(),
            arrivals: RefCell::new(None),
            operations: Cell::new(0),
            before: Cell::new(None),
            over: Cell::new(false),
            failed: First::default(),
            load,
            each,
        });
        let clients: Vec<_> = (0..load.threads as usize)
            .map(|thread| {
                let shared = Rc::clone(&shared);
                self.turns.spawn(move || {
                    if let Err(e) = client(&shared, thread) {
                        shared.failed.borrow_mut().get_or_insert(e);
                    }
                })
            })
            .collect();
        let seats = load.threads + self.background;
        let begins = Rc::clone(&shared);
        let stage = Stage::new(Rc::clone(&self.turns), &clients, seats, move || {
            begins.before.set(Some(begins.count()));
        });
        self.turns.timed();
        let done = stage.during(job);
        drop(stage);
        let after = shared.count();
        // What is under way ends in no time.
        self.turns.instant();
        shared.over.set(true);
        let engine = self.engine;
        let counted = Counted::of(&shared, after);
        let failed = Rc::clone(&shared.failed);
        drop(shared);
        let ended = self.turns.play(move || {
            clients.into_iter().for_each(turns::join);
            drop(engine);
        });
        let done = done?;
        if let Some(e) = failed.borrow_mut().take() {
            return Err(e.into());
        }
        ended.map_err(|e| E::from(stuck(e)))?;
        Ok((done, counted))
    }
}

/// Makes a tree of keys in order in memory, so that its leaves are full and alike; returns how many there are.
///
/// # Errors
/// Where the store is too small.
pub(crate) fn fill(
    store: &Arc<MemoryStore>,
    options: &Options,
    keys: impl IntoIterator<Item = u64> + 'static,
    value: u32,
    stop: impl Fn() -> bool + 'static,
) -> Result<u64, LabError> {
    let (store, options) = (Arc::clone(store), options.clone());
    let filled = Turns::default().play(move || -> Result<u64, KvError> {
        let engine = Engine::create(store, &options)?;
        crate::kv::load::fill(&engine, keys.into_iter(), value, &stop)?;
        let leaves = engine.leaves();
        engine.close()?;
        Ok(leaves)
    });
    Ok(filled.map_err(stuck)??)
}

fn stuck(e: std::io::Error) -> LabError {
    LabError::Failed(format!("the tree on the model: {e}"))
}

/// What clients share.
struct Shared {
    engine: Rc<Engine>,
    drawer: Drawer,
    newest: AtomicU64,
    windows: Windows,
    arrivals: RefCell<Option<Arrivals>>,
    operations: Cell<u64>,
    /// Operations, counters and the share of the cache in use when measuring began.
    before: Cell<Option<(u64, Stats, f64)>>,
    over: Cell<bool>,
    failed: First,
    load: Load<'static>,
    /// Time of an operation beside its I/Os.
    each: Nanos,
}

impl Shared {
    fn count(&self) -> (u64, Stats, f64) {
        let engine = &self.engine;
        (self.operations.get(), engine.stats(), engine.filled())
    }

    /// When the next operation comes; in a closed loop at once.
    fn next(&self) -> u64 {
        let now = turns::now();
        let Some(rate) = self.load.rate else {
            return now;
        };
        let mut arrivals = self.arrivals.borrow_mut();
        let open = (rate, self.load.seed ^ 0xa441);
        let due = arrivals
            .get_or_insert_with(|| Arrivals::new(open, Nanos(now)))
            .take();
        drop(arrivals);
        turns::sleep_until(due.0);
        due.0
    }
}

/// One client asks for operation after operation.
fn client(shared: &Shared, thread: usize) -> Result<(), LabError> {
    let load = &shared.load;
    let mut random = load.random(thread);
    let bytes: Vec<u8> = (0..load.value).map(|_| random.next_u64() as u8).collect();
    let mut found = Vec::new();
    let mut recorder = Recorder::new(
        Nanos(turns::now()),
        crate::clients::WIDTH,
        &[Op::Read, Op::Write],
        None,
        shared.windows.clone(),
    );
    while !shared.over.get() {
        let came = shared.next();
        let taken = turns::now();
        turns::sleep_until(taken + shared.each.0);
        let op = operation(
            &*shared.engine,
            load,
            (&shared.drawer, &shared.newest),
            thread,
            &mut random,
            (&bytes, &mut found),
        )?;
        // What ends after the job was not measured.
        if shared.over.get() {
            break;
        }
        let now = Nanos(turns::now());
        recorder.advance(now);
        let len = 8 + load.value;
        recorder.record(&Record {
            intended: Nanos(came),
            submitted: Nanos(taken),
            completed: now,
            offset: 0,
            len,
            result: i64::from(len),
            op,
        });
        shared.operations.set(shared.operations.get() + 1);
    }
    recorder.finish();
    Ok(())
}

/// What a play has counted; its windows are whole when all clients have ended.
pub(crate) struct Counted {
    windows: Windows,
    operations: u64,
    stats: Stats,
    /// Its cache was still being filled when measuring began.
    cold: bool,
    load: Load<'static>,
}

impl Counted {
    fn of(shared: &Shared, after: (u64, Stats, f64)) -> Self {
        // One that was ended in its ramp has counted nothing.
        let (n, stats, filled) = shared.before.get().unwrap_or(after);
        let (operations, stats) = (after.0 - n, after.1.since(&stats));
        Self {
            // One that begins empty is measured as it grows.
            cold: shared.load.ramp_max.is_some()
                && shared.load.count > 0
                && is_filling(filled, &stats),
            windows: shared.windows.clone(),
            operations,
            stats,
            load: shared.load,
        }
    }

    /// The outcome, with the job of the model that the tree was played in.
    pub(crate) fn outcome(&self, job: &Job) -> Outcome {
        let load = &self.load;
        let first = load.ramp.0.div_ceil(crate::clients::WIDTH.0);
        let mut all = self.windows.gather(first);
        (all.clients, all.wall) = (load.threads, Nanos(job.wall_ns.max(1)));
        all.rate = load.rate;
        all.cold = self.cold.then_some("its cache was still being filled");
        all.noted = job.flags.clone();
        all.noted.retain(|f| f.code == FlagCode::Simulated);
        Outcome {
            load: all,
            operations: self.operations,
            stats: self.stats,
            kernel_cpu: 0.0,
            device: Some(device(job)),
        }
    }
}

/// What the model did, as a device's counters say it.
fn device(job: &Job) -> DeviceDelta {
    let none = Direction::default();
    let [read, write] = [&job.read, &job.write].map(|d| d.as_ref().unwrap_or(&none));
    let ticks = |d: &Direction| {
        (d.service_ns.mean.unwrap_or(0.0) * d.service_ns.samples as f64 / 1e6) as u64
    };
    DeviceDelta {
        name: "model".into(),
        read_ios: read.ios,
        read_bytes: read.bytes,
        read_ticks_ms: ticks(read),
        write_ios: write.ios,
        write_bytes: write.bytes,
        write_ticks_ms: ticks(write),
        flush_ios: job.sync.as_ref().map_or(0, |s| s.ios),
        process_read_bytes: read.bytes,
        ..DeviceDelta::default()
    }
}

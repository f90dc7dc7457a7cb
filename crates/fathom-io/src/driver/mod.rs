//! Runs a group of jobs at the same time and returns their measures.
//!
//! [`run_group`] does it on real ports with a thread per worker; [`run_virtual`]
//! does it in virtual time on any [`World`]. Both build the same workers and the
//! same results.

mod collect;
mod conditions;
mod errors;
pub mod live;
mod seat;
mod silence;
mod threads;
mod usage;
mod write_back;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fathom_telemetry::iolog::{IoRow, LogHandle};
use fathom_telemetry::schema::{DeviceDelta, Job};
use fathom_telemetry::{Nanos, Op, Recorder, Window, WindowSink};

use crate::files::Phase;
use crate::job::{Engine, ValidJob};
use crate::load::{Batches, Guide, Live, Outcome, Worker};
use crate::port::virtual_time::{self, VirtualPort, World};
use collect::Collector;
pub use errors::message as error_of_device;
pub use threads::run_group;
pub use usage::ThreadUsage;

/// What the names of this process' I/O threads begin with: the process is told, so that a trace by name
/// does not see another fathom's (the kernel keeps 15 characters, which the longest number leaves room in).
pub fn thread_prefix() -> String {
    format!("io{}-", std::process::id())
}

/// A job ready to run, and what the result should say of it.
#[derive(Debug, Clone)]
pub struct PlannedJob {
    /// What to do.
    pub job: ValidJob,
    /// Experiment that planned it; empty for a user's own job.
    pub experiment: String,
    /// Which repeat (0-based).
    pub repeat: u32,
    /// What guides it where its pattern is not enough.
    pub guide: Option<Guide>,
    /// What it does with files instead of I/O on the target, on hosts that have a directory for it.
    pub files: Option<Phase>,
}

impl PlannedJob {
    /// A user's own job.
    pub fn new(job: ValidJob) -> Self {
        Self {
            job,
            experiment: String::new(),
            repeat: 0,
            guide: None,
            files: None,
        }
    }

    /// Operations that the job will do.
    pub fn ops(&self) -> Vec<Op> {
        let mut ops = self.job.ops();
        for op in self.guide.iter().flat_map(|g| &g.ops) {
            if !ops.contains(op) {
                ops.push(*op);
            }
        }
        ops
    }

    /// Workers and the depth of each: the preadv engine reaches its depth by threads.
    pub fn seats(&self) -> (u32, u32) {
        let s = &self.job.spec;
        match s.engine {
            Engine::Preadv | Engine::Mmap => (s.threads * s.qd, 1),
            _ => (s.threads, s.qd),
        }
    }

    /// Ramp-up rounded up to whole windows, so that windows are either ramp or result.
    fn ramp(&self) -> Nanos {
        let s = &self.job.spec;
        Nanos(s.ramp.0.div_ceil(s.window.0) * s.window.0)
    }
}

/// Where the I/O goes.
#[derive(Clone)]
pub enum Destination {
    /// A file or block device, already checked by the safety rules and opened; `direct` and
    /// `buffered` are descriptors with and without O_DIRECT (either may be missing).
    File {
        /// Its path, for errors.
        path: PathBuf,
        /// Opened with O_DIRECT.
        direct: Option<Arc<std::fs::File>>,
        /// Opened without.
        buffered: Option<Arc<std::fs::File>>,
        /// The same namespace, open for NVMe commands, where a job wants them.
        commands: Option<Arc<fathom_host::Passthrough>>,
    },
    /// No I/O.
    Null,
}

/// A group that is ready waits until somebody says when it is due.
const HELD: u64 = u64::MAX;

/// Ends jobs early from outside (a signal); what was measured is kept. It may also say when a group begins.
#[derive(Debug, Clone, Default)]
pub struct Control {
    ended: Arc<AtomicBool>,
    /// When the next group is due and when the last one began, on the driver's clock, ns.
    begin: Arc<[AtomicU64; 2]>,
}

impl Control {
    /// A fresh one.
    pub fn new() -> Self {
        Self::default()
    }
    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.ended.clone()
    }
    /// Asks everything to end.
    pub fn interrupt(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
    /// Whether someone asked.
    pub fn interrupted(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
    /// Groups begin at this time of CLOCK_MONOTONIC, for groups on several machines that must begin together; one
    /// that is not ready by then begins later. `None`: as soon as they are ready.
    pub fn begin_at(&self, at: Option<Nanos>) {
        self.begin[0].store(at.map_or(0, |t| t.0), Ordering::Relaxed);
    }
    /// The next group waits, once it is ready ([`Observer::ready`]), until [`Control::begin_at`] says when it is due.
    pub fn hold(&self) {
        self.begin[0].store(HELD, Ordering::Relaxed);
    }
    /// When the last group on real ports began: its first I/O was due then.
    pub fn began(&self) -> Nanos {
        Nanos(self.begin[1].load(Ordering::Relaxed))
    }
    /// Waits until a group that is ready is due; returns the common start, and keeps it.
    pub fn start(&self, clock: &crate::clock::Clock, delay: Nanos) -> Nanos {
        // Threads spin from the decision to the start, so it is taken shortly before.
        const BEFORE: Nanos = Nanos::from_millis(2);
        while self.begin[0].load(Ordering::Relaxed) == HELD && !self.interrupted() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let due = match self.begin[0].load(Ordering::Relaxed) {
            HELD => Nanos::ZERO,
            due => Nanos(due),
        };
        let mut now = clock.now();
        while now + BEFORE < due && !self.interrupted() {
            let wait = due.since(now + BEFORE).min(Nanos::from_millis(20));
            std::thread::sleep(wait.into());
            now = clock.now();
        }
        let start = due.max(now + delay);
        self.begin[1].store(start.0, Ordering::Relaxed);
        start
    }
}

/// Where a group stands, for a progress display.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Since the start of the group.
    pub elapsed: Nanos,
    /// I/Os completed so far over all jobs.
    pub ios: u64,
    /// Bytes transferred so far.
    pub bytes: u64,
    /// p99 of response latency of the last thousand I/Os or more; `None` until there were as many.
    pub p99: Option<Nanos>,
}

/// A closed window of a job, all threads merged.
#[derive(Debug)]
pub struct ClosedWindow<'a> {
    /// Index of the job in the group.
    pub job: usize,
    /// Its start after the job's measured part began; negative in ramp-up, ns.
    pub start_ns: i64,
    /// When that part began, on the clock that the job ran by (of a fleet: the controller's).
    pub origin: Nanos,
    /// Its width.
    pub width: Nanos,
    /// What completed in it; numbered from the measured part on.
    pub window: &'a Window,
}

/// What one host of a fleet did; jobs are those of the fleet's group.
#[derive(Debug)]
pub enum OfHost<'a> {
    /// A window that counts.
    Window(&'a ClosedWindow<'a>),
    /// I/Os of a job, whose times are after `origin` on the controller's clock.
    Rows {
        /// Index of the job in the group.
        job: usize,
        /// What times are after.
        origin: Nanos,
        /// They.
        rows: &'a [IoRow],
    },
    /// Its own measure of a job.
    Job(usize, &'a Job),
}

/// Watches a group while it runs.
pub trait Observer {
    /// Everything is set up: the group begins as soon as it is due.
    fn ready(&mut self) {}
    /// A window was closed by every thread of the job.
    fn window(&mut self, _window: &ClosedWindow<'_>) {}
    /// What a host of a fleet did, beside what all of them did.
    fn of_host(&mut self, _host: usize, _what: &OfHost<'_>) {}
    /// About ten times a second.
    fn progress(&mut self, _progress: &Progress) {}
    /// A thread of a job (by its index in the group) has ended.
    fn thread_ended(&mut self, _job: usize, _usage: &ThreadUsage, _batches: &Batches) {}
}

/// Watches nothing.
impl Observer for () {}

/// What a group needs beside its jobs.
pub struct Setting<'a> {
    /// Where the I/O goes.
    pub destination: &'a Destination,
    /// Ends it early.
    pub control: &'a Control,
    /// Cumulative counters of the device behind the destination, where there is one.
    pub counters: Option<&'a dyn Fn() -> Option<DeviceDelta>>,
    /// Makes a log handle for (job in the group, thread) of jobs that record.
    pub log: Option<&'a dyn Fn(usize, u32) -> LogHandle>,
}

/// Why a group could not run at all. I/O errors are results, not these.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A thread could not set up its port, buffers or processor.
    #[error("job '{job}' could not start: {message}")]
    Start {
        /// The job.
        job: String,
        /// What failed and what to do.
        message: String,
    },
}

/// Runs jobs at the same time in virtual time on `world`, from `origin`. The engine is named `engine` in
/// the results.
pub fn run_virtual(
    jobs: &[PlannedJob],
    world: &mut dyn World,
    origin: Nanos,
    engine: &str,
    log: Option<&dyn Fn(usize, u32) -> LogHandle>,
    observer: &mut dyn Observer,
) -> Vec<Job> {
    let stop = Arc::new(AtomicBool::new(false));
    let shared = Rc::new(RefCell::new(Shared {
        collectors: Vec::new(),
        observer,
    }));
    let group = live::begin_group();
    let mut workers = Vec::new();
    for (i, planned) in jobs.iter().enumerate() {
        let (seats, depth) = planned.seats();
        let spec = &planned.job.spec;
        for thread in 0..seats {
            let handle = log.filter(|_| spec.record).map(|l| l(i, thread));
            let sink = Sink {
                shared: shared.clone(),
                job: i,
                thread,
            };
            let recorder = Recorder::new(origin, spec.window, &planned.ops(), handle, sink);
            let mut worker = Worker::new(
                &planned.job,
                thread,
                seats,
                depth,
                planned.ramp(),
                VirtualPort::new(depth),
                recorder,
                Arc::new(Live::default()),
                stop.clone(),
            );
            if let Some(make) = planned.guide.as_ref().and_then(|g| g.pilot.as_ref()) {
                worker.guide(make(thread));
            }
            workers.push(worker);
        }
        let mut collector = Collector::new(planned, (group, i), seats, depth);
        collector.begin(origin);
        collector.wait_for_all();
        shared.borrow_mut().collectors.push(collector);
    }
    for (sink, outcome) in virtual_time::run(world, workers, origin) {
        let Shared {
            collectors,
            observer,
        } = &mut *sink.shared.borrow_mut();
        collectors[sink.job].ended(sink.thread, &outcome, *observer);
        observer.thread_ended(sink.job, &ThreadUsage::default(), &outcome.batches);
    }
    let Shared {
        collectors,
        observer,
    } = &mut *shared.borrow_mut();
    std::mem::take(collectors)
        .into_iter()
        .map(|c| virtual_job(c, origin, engine, *observer))
        .collect()
}

/// The result of a job whose windows and outcome a model made without workers, all seats together.
pub fn assemble(
    planned: &PlannedJob,
    windows: Vec<Window>,
    outcome: &Outcome,
    origin: Nanos,
    engine: &str,
    observer: &mut dyn Observer,
) -> Job {
    let (seats, depth) = planned.seats();
    let mut c = Collector::new(planned, (live::begin_group(), 0), seats, depth);
    c.begin(origin);
    for thread in 1..seats {
        // Windows and I/Os are those of the first seat; depth was kept by all of them.
        c.ended(
            thread,
            &Outcome {
                issued: 0,
                ..outcome.clone()
            },
            observer,
        );
    }
    for w in windows {
        c.take(0, w, observer);
    }
    c.ended(0, outcome, observer);
    virtual_job(c, origin, engine, observer)
}

/// Virtual time has no CPU time and no device counters.
fn virtual_job(c: Collector, origin: Nanos, engine: &str, observer: &mut dyn Observer) -> Job {
    let cpu = (Nanos::ZERO, Nanos::ZERO);
    c.job(origin, engine, Vec::new(), cpu, None, observer)
}

/// Collectors and who watches them, shared by the recorders of one thread of execution.
struct Shared<'a> {
    collectors: Vec<Collector>,
    observer: &'a mut dyn Observer,
}

/// Passes a worker's windows on as they close, so that long virtual runs keep none in memory.
struct Sink<'a> {
    shared: Rc<RefCell<Shared<'a>>>,
    job: usize,
    thread: u32,
}

impl WindowSink for Sink<'_> {
    fn window(&mut self, window: Window) {
        let Shared {
            collectors,
            observer,
        } = &mut *self.shared.borrow_mut();
        collectors[self.job].take(self.thread, window, *observer);
    }
}

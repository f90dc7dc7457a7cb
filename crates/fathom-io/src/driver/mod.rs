//! Runs a group of jobs at the same time and returns their measures.
//!
//! [`run_group`] does it on real ports with a thread per worker; [`run_virtual`]
//! does it in virtual time on any [`World`]. Both build the same workers and the
//! same results.

mod collect;
mod threads;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fathom_telemetry::iolog::LogHandle;
use fathom_telemetry::schema::{DeviceDelta, Job};
use fathom_telemetry::{Nanos, Recorder, Window};

use crate::job::{Engine, ValidJob};
use crate::load::{Live, Worker};
use crate::port::virtual_time::{self, VirtualPort, World};
use collect::Collector;
pub use threads::run_group;

/// A job ready to run, and what the result should say of it.
#[derive(Debug, Clone)]
pub struct PlannedJob {
    /// What to do.
    pub job: ValidJob,
    /// Experiment that planned it; empty for a user's own job.
    pub experiment: String,
    /// Which repeat (0-based).
    pub repeat: u32,
}

impl PlannedJob {
    /// A user's own job.
    pub fn new(job: ValidJob) -> Self {
        Self {
            job,
            experiment: String::new(),
            repeat: 0,
        }
    }

    /// Workers and the depth of each: the preadv engine reaches its depth by threads.
    pub fn seats(&self) -> (u32, u32) {
        let s = &self.job.spec;
        match s.engine {
            Engine::Preadv => (s.threads * s.qd, 1),
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
    },
    /// No I/O.
    Null,
}

/// Ends jobs early from outside (a signal); what was measured is kept.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<AtomicBool>);

impl Control {
    /// A fresh one.
    pub fn new() -> Self {
        Self::default()
    }
    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
    /// Asks everything to end.
    pub fn interrupt(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Whether someone asked.
    pub fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
    /// p99 of response latency in the last closed window.
    pub p99: Option<Nanos>,
}

/// A closed window of a job, all threads merged.
#[derive(Debug)]
pub struct ClosedWindow<'a> {
    /// Index of the job in the group.
    pub job: usize,
    /// Its start after the job's measured part began; negative in ramp-up, ns.
    pub start_ns: i64,
    /// Its width.
    pub width: Nanos,
    /// What completed in it.
    pub window: &'a Window,
}

/// Watches a group while it runs.
pub trait Observer {
    /// A window was closed by every thread of the job.
    fn window(&mut self, _window: &ClosedWindow<'_>) {}
    /// About ten times a second.
    fn progress(&mut self, _progress: &Progress) {}
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
pub fn run_virtual<W: World>(
    jobs: &[PlannedJob],
    world: &mut W,
    origin: Nanos,
    engine: &str,
    log: Option<&dyn Fn(usize, u32) -> LogHandle>,
    observer: &mut dyn Observer,
) -> Vec<Job> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut collectors = Vec::new();
    let mut workers = Vec::new();
    for (i, planned) in jobs.iter().enumerate() {
        let (seats, depth) = planned.seats();
        let spec = &planned.job.spec;
        for thread in 0..seats {
            let handle = log.filter(|_| spec.record).map(|l| l(i, thread));
            let recorder =
                Recorder::new(origin, spec.window, &planned.job.ops(), handle, Vec::new());
            workers.push(Worker::new(
                &planned.job,
                thread,
                seats,
                depth,
                planned.ramp(),
                VirtualPort::new(depth),
                recorder,
                Arc::new(Live::default()),
                stop.clone(),
            ));
        }
        collectors.push(Collector::new(planned, i, seats, depth));
    }
    let mut results = virtual_time::run(world, workers, origin).into_iter();
    let mut done = Vec::new();
    for mut c in collectors {
        c.wait_for_all();
        for thread in 0..c.seats() {
            if let Some((windows, outcome)) = results.next() {
                for w in windows {
                    c.take(thread, w, observer);
                }
                c.ended(thread, &outcome, observer);
            }
        }
        done.push(c.job(
            origin,
            engine,
            Vec::new(),
            (Nanos::ZERO, Nanos::ZERO),
            None,
            observer,
        ));
    }
    done
}

//! Closed windows for whoever looks on while jobs run.
//!
//! Windows are told by the main loop after threads have handed them over: the path of an I/O knows
//! nothing of it. Who looks on slowly misses windows; nobody waits for him, and results miss nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

use fathom_telemetry::schema::Job;
use fathom_telemetry::{FlagCode, Nanos, Op, SparseHistogram, Window};

use super::PlannedJob;

/// Windows that may wait for the viewer.
const WAITING_MAX: usize = 4096;

/// Whether someone looks on: where nobody does, a window costs one look at this.
static WATCHED: AtomicBool = AtomicBool::new(false);
static VIEWER: Mutex<Option<SyncSender<LiveWindow>>> = Mutex::new(None);
static JUDGED: Mutex<Vec<Judged>> = Mutex::new(Vec::new());
/// Judged jobs that may wait for the viewer.
const JUDGED_MAX: usize = 1024;
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// What one thread of a job completed in one window: what a viewer shows, and no more.
#[derive(Debug, Clone)]
pub struct LiveWindow {
    /// Number of the job's group in this process: jobs of a group run at the same time.
    pub group: u64,
    /// The job's place in its group, from 0. Names need not be unique.
    pub index: usize,
    /// Name of the job.
    pub job: String,
    /// Thread of the job, or host of a fleet's, from 0.
    pub thread: u32,
    /// Threads, or hosts, of the job.
    pub threads: u32,
    /// The host's name, where hosts do the job.
    pub host: Option<String>,
    /// Whether latency counts from a schedule (response) or from submission (service).
    pub open_loop: bool,
    /// Start of the window after that of the group, ns.
    pub start: Nanos,
    /// Its length.
    pub width: Nanos,
    /// I/Os that completed in it, without error.
    pub ios: u64,
    /// Reads among them.
    pub reads: u64,
    /// Bytes that they transferred.
    pub bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Latency of all operations.
    pub latency: SparseHistogram,
}

/// What stands against a job that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Name of the job.
    pub job: String,
    /// Its flags, each kind once; those that only say where a number comes from are left out.
    pub flags: Vec<FlagCode>,
    /// Whether its numbers may not be used.
    pub void: bool,
}

impl Judged {
    /// Of a job with its flags.
    pub fn of(job: &Job) -> Self {
        let mut flags: Vec<FlagCode> = Vec::new();
        for flag in job.flags.iter().filter(|f| !f.code.describes()) {
            if !flags.contains(&flag.code) {
                flags.push(flag.code);
            }
        }
        Self {
            job: job.name.clone(),
            flags,
            void: job.is_void(),
        }
    }
}

/// Tells what stands against a job that is over, where someone looks on.
pub fn judge(job: &Job) {
    if watched() {
        let mut judged = JUDGED.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.len() < JUDGED_MAX {
            judged.push(Judged::of(job));
        }
    }
}

/// Takes what was told since this was asked last.
pub fn judged() -> Vec<Judged> {
    std::mem::take(&mut *JUDGED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// From now on every window of every group is told, until the receiver is dropped. `None` where
/// someone looks on already.
pub fn look_on() -> Option<Receiver<LiveWindow>> {
    let mut viewer = VIEWER.lock().unwrap_or_else(PoisonError::into_inner);
    if viewer.is_some() {
        return None;
    }
    let (to, from) = sync_channel(WAITING_MAX);
    *viewer = Some(to);
    WATCHED.store(true, Ordering::Relaxed);
    Some(from)
}

/// Whether someone looks on.
pub fn watched() -> bool {
    WATCHED.load(Ordering::Relaxed)
}

/// Tells a window of I/O that no driver issues, such as that of a live system, where someone looks on and has room for it.
pub fn tell_of(window: LiveWindow) {
    let mut viewer = VIEWER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(to) = &*viewer else { return };
    // A full channel loses what is only looked at; a closed one means that nobody looks any more.
    if let Err(TrySendError::Disconnected(_)) = to.try_send(window) {
        *viewer = None;
        WATCHED.store(false, Ordering::Relaxed);
    }
}

/// The number of a group that begins.
pub fn begin_group() -> u64 {
    GROUPS.fetch_add(1, Ordering::Relaxed)
}

/// Tells a window of a thread, or of a host, where someone looks on and has room for it.
pub fn tell(
    planned: &PlannedJob,
    (group, index): (u64, usize),
    (thread, threads): (u32, usize),
    host: Option<&str>,
    window: &Window,
) {
    if !WATCHED.load(Ordering::Relaxed) {
        return;
    }
    let spec = &planned.job.spec;
    let open_loop = spec.rate.is_some();
    let mut told = LiveWindow {
        group,
        index,
        job: spec.name.clone(),
        thread,
        threads: threads as u32,
        host: host.map(str::to_owned),
        open_loop,
        start: Nanos(window.index.saturating_mul(spec.window.0)),
        width: spec.window,
        ios: 0,
        reads: 0,
        bytes: 0,
        errors: 0,
        latency: SparseHistogram::default(),
    };
    for (op, d) in window.directions.iter().enumerate() {
        let Some(d) = d else { continue };
        told.ios += d.ios;
        told.bytes += d.bytes;
        told.errors += d.errors;
        if op == Op::Read as usize {
            told.reads += d.ios;
        }
        let latency = if open_loop { &d.response } else { &d.service };
        told.latency.merge(latency);
    }
    tell_of(told);
}

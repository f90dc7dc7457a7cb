//! Closed windows for whoever looks on while jobs run.
//!
//! Windows are told by the main loop after threads have handed them over: the path of an I/O knows
//! nothing of it. Who looks on slowly misses windows; nobody waits for him, and results miss nothing.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use fathom_telemetry::{Nanos, Window};

use super::PlannedJob;

/// Windows that may wait for the viewer.
const WAITING_MAX: usize = 4096;

static VIEWER: OnceLock<SyncSender<LiveWindow>> = OnceLock::new();

/// What one thread of a job completed in one window.
#[derive(Debug, Clone)]
pub struct LiveWindow {
    /// Name of the job.
    pub job: String,
    /// Thread of the job, from 0.
    pub thread: u32,
    /// Threads of the job.
    pub threads: u32,
    /// Whether latency counts from a schedule (response) or from submission (service).
    pub open_loop: bool,
    /// Start of the window after that of the job, ns.
    pub start: Nanos,
    /// Its length.
    pub width: Nanos,
    /// What completed in it.
    pub window: Window,
}

/// From now on every window of every group is told. `None` where someone looks on already.
pub fn look_on() -> Option<Receiver<LiveWindow>> {
    let (to, from) = sync_channel(WAITING_MAX);
    VIEWER.set(to).ok().map(|()| from)
}

/// Tells a window, where someone looks on and has room for it.
pub(super) fn tell(planned: &PlannedJob, thread: u32, threads: usize, window: &Window) {
    let Some(viewer) = VIEWER.get() else { return };
    let spec = &planned.job.spec;
    // A full or closed channel loses what is only looked at.
    let _ = viewer.try_send(LiveWindow {
        job: spec.name.clone(),
        thread,
        threads: threads as u32,
        open_loop: spec.rate.is_some(),
        start: Nanos(window.index.saturating_mul(spec.window.0)),
        width: spec.window,
        window: window.clone(),
    });
}

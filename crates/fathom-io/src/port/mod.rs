//! The narrow interface between the load logic and what serves I/O.
//!
//! A port has a fixed number of slots. The worker stages requests into free slots,
//! flushes them, and reaps completions by slot. Real ports also block
//! ([`Blocking`]); virtual ones are stepped by an event loop. Adding a port: one
//! file here and one line in [`crate::driver`].

pub mod null;
pub mod preadv;
pub mod uring;
pub mod virtual_time;

use fathom_telemetry::{Nanos, Op};

/// One I/O to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Byte offset in the target.
    pub offset: u64,
    /// Bytes; 0 for [`Op::Sync`].
    pub len: u32,
}

/// Why a port could not be made or failed as a whole (a single I/O's error is its result).
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct PortError {
    /// What failed, in words.
    pub what: String,
    /// The system's answer.
    #[source]
    pub source: std::io::Error,
}

impl PortError {
    /// With the system's last error.
    pub fn last(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: std::io::Error::last_os_error(),
        }
    }
}

/// What serves requests.
pub trait Port {
    /// Now, on this port's clock.
    fn now(&mut self) -> Nanos;

    /// Called once per closed window: a chance to correct the clock.
    fn tick(&mut self) {}

    /// Stages a request in a free slot (0..depth). It is not handed over before the next flush.
    fn stage(&mut self, slot: u32, request: Request);

    /// Samples of requests handed over, and how many of them were complete before the hand-over returned:
    /// such requests run one after another, whatever the depth. `None` where the port cannot tell.
    fn inline(&self) -> Option<(u64, u64)> {
        None
    }

    /// Takes every completion that is there: slot and result (bytes done, 0 for a sync or a
    /// discard, or negative errno).
    fn reap(&mut self, each: impl FnMut(u32, i64));
}

/// A port that a thread can wait on.
pub trait Blocking: Port {
    /// Hands staged requests over, then waits until `min` completions are there, or until the clock
    /// reads `until` (`Nanos::MAX`: no limit; a signal ends the wait too).
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError>;
}

/// Whether the file is a block device.
pub(crate) fn is_block_device(file: &std::fs::File) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    file.metadata()
        .is_ok_and(|m| m.file_type().is_block_device())
}

/// Below this distance a wait spins, so that the schedule is kept to the nanosecond, ns.
pub(crate) const SPIN_NS: u64 = 60_000;

/// Sleeps until shortly before `until`, then spins. With `Nanos::MAX` it naps for 10 ms, so that the
/// caller sees a stop.
pub(crate) fn wait_until(clock: &crate::clock::Clock, until: Nanos) {
    loop {
        let now = clock.now();
        if now >= until {
            return;
        }
        let left = until.since(now).0;
        if left > SPIN_NS {
            // Short naps, so that a stop is seen: a signal ends them too.
            let nap = (left - SPIN_NS).min(10_000_000);
            std::thread::sleep(std::time::Duration::from_nanos(nap));
            if left > 10_000_000 {
                return;
            }
        } else {
            std::hint::spin_loop();
        }
    }
}

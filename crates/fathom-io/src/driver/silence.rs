//! When a device that does not answer is given up: nobody waits for it without an end, and what was measured is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fathom_telemetry::{Flag, FlagCode, Nanos};

use super::PlannedJob;
use crate::load::Live;

/// Who interrupts a run waits so long for I/Os that do not end.
const GRACE: Nanos = Nanos::from_secs(2);
/// A device that has not answered for so long is given up: the kernel's own limits (30 s and a few repetitions) are over.
const GIVE_UP: Nanos = Nanos::from_secs(120);

/// The last sign of life of a group.
pub(super) struct Pulse {
    heard: Nanos,
    ios: u64,
    asked: Option<Nanos>,
}

/// A group that gives none any more.
pub(super) struct Silence {
    /// When the last I/O ended.
    pub(super) since: Nanos,
    lasted: Nanos,
}

impl Pulse {
    pub(super) fn new(start: Nanos) -> Self {
        Self {
            heard: start,
            ios: 0,
            asked: None,
        }
    }

    /// A thread said something.
    pub(super) fn heard(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// Somebody asked for the end.
    pub(super) fn asked(&mut self, now: Nanos) {
        self.asked = Some(now);
    }

    /// Looks whether I/Os ended.
    pub(super) fn felt(&mut self, now: Nanos, lives: &[Arc<Live>]) {
        let ios = lives.iter().map(|l| l.ios.load(Ordering::Relaxed)).sum();
        if ios != self.ios {
            (self.heard, self.ios) = (now, ios);
        }
    }

    /// Whether it is too long ago, of jobs that wait for nothing but I/O.
    pub(super) fn lost(&self, now: Nanos, start: Nanos, jobs: &[PlannedJob]) -> Option<Silence> {
        let lost = match self.asked {
            Some(asked) => now.since(self.heard.max(asked)) >= GRACE,
            None => {
                now.since(self.heard) >= GIVE_UP
                    && jobs.iter().all(|p| is_waiting(p, now.since(start)))
            }
        };
        lost.then(|| Silence {
            since: self.heard,
            lasted: now.since(self.heard),
        })
    }
}

/// Whether a job has I/Os outstanding at any moment: one that does not pause by itself, or whose time is over.
fn is_waiting(planned: &PlannedJob, elapsed: Nanos) -> bool {
    let spec = &planned.job.spec;
    let pauses = spec.rate.is_some()
        || spec.think > Nanos::ZERO
        || spec.burst.is_some()
        || planned.job.feed.is_some()
        || planned.guide.is_some();
    let over = spec.time.is_some_and(|t| elapsed > t + planned.ramp());
    over || !pauses
}

impl Silence {
    /// What stands against the numbers of before.
    pub(super) fn flags(&self, interrupted: bool) -> Vec<Flag> {
        let remedy = "look at the kernel log: the device, a path to it or a map above it is suspended, or hangs";
        let lasted = self.lasted;
        let stalled = Flag::new(
            FlagCode::Stalled,
            format!(
                "the device had not answered for {lasted}: I/Os were still outstanding, and what ended in the last window is not counted"
            ),
            remedy,
        );
        let given_up = (!interrupted).then(|| {
            let detail = format!("the device did not answer within {GIVE_UP} and was given up");
            Flag::new(FlagCode::IoErrors, detail, remedy)
        });
        std::iter::once(stalled).chain(given_up).collect()
    }
}

//! What decides when the next I/O of a thread may start.

use std::collections::VecDeque;

use fathom_telemetry::Nanos;

use super::super::arrivals::Arrivals;
use crate::job::ValidJob;
use crate::replay::{Feed, FeedHandle};

/// What decides when the next I/O may start.
pub(super) enum Pace {
    Closed,
    /// Slots that wait out their think time, by the moment they become ready (oldest first).
    Think {
        time: Nanos,
        ready: VecDeque<Nanos>,
    },
    Open(Arrivals),
    /// A trace says what and when.
    Trace(Box<Feed>),
    Burst {
        ios: u64,
        bytes: u64,
        idle: Nanos,
        left_ios: u64,
        left_bytes: u64,
        resume: Nanos,
    },
}

impl Pace {
    /// Of the `t`th of `n` threads.
    pub(super) fn of(job: &ValidJob, (t, n): (u64, u64), depth: u32) -> Self {
        let spec = &job.spec;
        if let Some(feed) = job.feed.as_ref().and_then(FeedHandle::take) {
            Self::Trace(Box::new(feed))
        } else if let Some(rate) = spec.rate {
            Self::Open(Arrivals::new(spec.arrival, rate, t, n, spec.seed))
        } else if let Some(b) = spec.burst {
            Self::Burst {
                ios: b.ios,
                bytes: b.bytes,
                idle: b.idle,
                left_ios: b.ios,
                left_bytes: b.bytes,
                resume: Nanos::ZERO,
            }
        } else if spec.think > Nanos::ZERO {
            Self::Think {
                time: spec.think,
                ready: VecDeque::with_capacity(depth as usize + 1),
            }
        } else {
            Self::Closed
        }
    }

    /// An I/O that starts later than this is late, ns.
    pub(super) fn late_limit(&self) -> u64 {
        match self {
            Self::Open(a) => ((a.mean_gap() / 100.0) as u64).max(10_000),
            _ => u64::MAX,
        }
    }
}

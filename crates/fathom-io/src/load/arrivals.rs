//! The schedule of an open loop, in nanoseconds.

use fathom_telemetry::Nanos;

use super::rng::Rng;
use crate::job::Arrival;

/// One thread's arrivals.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    process: Arrival,
    mean_gap: f64,
    /// Exact time of the next arrival after the origin, ns; a fraction is carried along so that
    /// rates hold over any length.
    next: f64,
    origin: Nanos,
    rng: Rng,
}

impl Arrivals {
    /// `rate` in I/Os per second over all `threads`. Poisson processes of the threads add up to one;
    /// constant gaps are staggered so that they interleave evenly.
    pub(super) fn new(process: Arrival, rate: f64, thread: u64, threads: u64, seed: u64) -> Self {
        let mean_gap = 1e9 * threads as f64 / rate;
        let mut rng = Rng::new(seed, 0x6172_7200 + thread);
        let next = match process {
            Arrival::Poisson => rng.exponential() * mean_gap,
            Arrival::Constant => mean_gap * thread as f64 / threads as f64,
        };
        Self {
            process,
            mean_gap,
            next,
            origin: Nanos::ZERO,
            rng,
        }
    }

    pub(super) fn start(&mut self, origin: Nanos) {
        self.origin = origin;
    }

    /// When the next I/O is due.
    #[inline]
    pub(super) fn peek(&self) -> Nanos {
        self.origin + Nanos(self.next as u64)
    }

    /// Moves on to the one after it.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.next += match self.process {
            Arrival::Poisson => self.rng.exponential() * self.mean_gap,
            Arrival::Constant => self.mean_gap,
        };
    }

    /// How many are due before `end` from now on, at most `limit`; moves on past them. Far behind
    /// schedule the rest is estimated by the rate: counting a billion arrivals one by one takes a minute.
    pub(super) fn due_before(&mut self, end: Nanos, limit: u64) -> u64 {
        const COUNTED: u64 = 1 << 20;
        let mut n = 0;
        while n < limit.min(COUNTED) && self.peek() < end {
            self.advance();
            n += 1;
        }
        if n == COUNTED && self.peek() < end {
            n += (end.since(self.peek()).0 as f64 / self.mean_gap) as u64;
        }
        n.min(limit)
    }

    pub(super) fn mean_gap(&self) -> f64 {
        self.mean_gap
    }
}

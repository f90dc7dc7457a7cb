//! The null port: requests complete at once and move no data. It measures the generator.

use fathom_telemetry::Nanos;

use super::{Alarm, Blocking, Port, PortError, Request};
use crate::clock::Clock;

/// Answers every I/O at once.
pub struct Null {
    clock: Clock,
    alarm: Alarm,
    staged: Vec<(u32, i64)>,
}

impl Null {
    /// With room for `depth` requests.
    pub fn new(depth: u32, clock: Clock) -> Self {
        Self {
            clock,
            alarm: Alarm::new(),
            staged: Vec::with_capacity(depth as usize),
        }
    }
}

impl Port for Null {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
    }
    #[inline]
    fn stage(&mut self, batch: impl Iterator<Item = (u32, Request)>) {
        self.staged
            .extend(batch.map(|(slot, r)| (slot, i64::from(r.len))));
    }
    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        for (slot, result) in self.staged.drain(..) {
            each(slot, result);
        }
    }
}

impl Blocking for Null {
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError> {
        if min == 0 || self.staged.is_empty() {
            self.alarm.wait_until(&self.clock, until);
        }
        Ok(())
    }
}

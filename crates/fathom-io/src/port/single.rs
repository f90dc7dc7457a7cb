//! One thread, one I/O at a time: what all engines have in common whose call returns when its I/O is done.

use fathom_telemetry::Nanos;

use super::{Alarm, Blocking, Port, PortError, Request};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::load::Performer;

/// Does one request after another.
pub trait Call {
    /// Does it; `data` is the buffer, at least as long as the request where that reads or writes. The result is as with
    /// [`Port::reap`].
    fn call(&mut self, r: Request, data: &mut [u8]) -> i64;

    /// See [`Port::drop_cache`].
    fn drop_cache(&mut self, _start: u64, _len: u64, _durable: bool) {}

    /// Whether buffers matter to it.
    fn carries_data(&self) -> bool {
        true
    }
}

impl Call for Box<dyn Performer> {
    fn call(&mut self, r: Request, data: &mut [u8]) -> i64 {
        self.perform(&r, data)
    }
    fn carries_data(&self) -> bool {
        (**self).carries_data()
    }
}

/// The port around a [`Call`].
pub struct Single<C> {
    own: C,
    clock: Clock,
    alarm: Alarm,
    buffers: Buffers,
    staged: Option<(u32, Request)>,
    done: Option<(u32, i64)>,
}

impl<C: Call> Single<C> {
    /// For one outstanding I/O.
    pub fn new(own: C, buffers: Buffers, clock: Clock) -> Self {
        Self {
            own,
            clock,
            alarm: Alarm::new(),
            buffers,
            staged: None,
            done: None,
        }
    }
}

impl<C: Call> Port for Single<C> {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
    }
    fn drop_cache(&mut self, start: u64, len: u64, durable: bool) {
        self.own.drop_cache(start, len, durable);
    }
    fn buffer(&mut self, slot: u32, len: u32) -> Option<&mut [u8]> {
        self.own
            .carries_data()
            .then(|| self.buffers.bytes(slot, len))
    }
    fn prepare(&mut self, slot: u32, len: u32) {
        if self.own.carries_data() {
            self.buffers.prepare_write(slot, len);
        }
    }
    #[inline]
    fn stage(&mut self, mut batch: impl Iterator<Item = (u32, Request)>) {
        debug_assert!(self.staged.is_none(), "one outstanding I/O");
        self.staged = batch.next();
    }
    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        if let Some((slot, result)) = self.done.take() {
            each(slot, result);
        }
    }
}

impl<C: Call> Blocking for Single<C> {
    #[inline]
    fn flush(&mut self, _min: u32, until: Nanos) -> Result<(), PortError> {
        match self.staged.take() {
            Some((slot, r)) => {
                let data = self.buffers.bytes(slot, r.len);
                self.done = Some((slot, self.own.call(r, data)));
            }
            None => self.alarm.wait_until(&self.clock, until),
        }
        Ok(())
    }
}

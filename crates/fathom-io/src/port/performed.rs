//! I/Os that a guide does itself, one at a time, in the place of an engine.

use fathom_telemetry::{Nanos, Op};

use super::{Alarm, Blocking, Port, PortError, Request};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::load::Performer;

/// One outstanding I/O, done by a [`Performer`].
pub struct Performed {
    own: Box<dyn Performer>,
    clock: Clock,
    alarm: Alarm,
    buffers: Buffers,
    staged: Option<(u32, Request)>,
    done: Option<(u32, i64)>,
}

impl Performed {
    /// With memory for one I/O.
    pub fn new(own: Box<dyn Performer>, buffers: Buffers, clock: Clock) -> Self {
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

impl Port for Performed {
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
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
    fn stage(&mut self, mut batch: impl Iterator<Item = (u32, Request)>) {
        debug_assert!(self.staged.is_none(), "one outstanding I/O");
        self.staged = batch.next();
    }
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        if let Some((slot, result)) = self.done.take() {
            each(slot, result);
        }
    }
}

impl Blocking for Performed {
    fn flush(&mut self, _min: u32, until: Nanos) -> Result<(), PortError> {
        match self.staged.take() {
            Some((slot, io)) => {
                let len = if io.op == Op::Sync { 0 } else { io.len };
                let result = self.own.perform(&io, self.buffers.bytes(slot, len));
                self.done = Some((slot, result));
            }
            None => self.alarm.wait_until(&self.clock, until),
        }
        Ok(())
    }
}

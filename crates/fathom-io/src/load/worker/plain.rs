//! The commonest load, without the questions that it need not ask at every I/O: a closed loop of one
//! pattern, bounded by time or by a number of I/Os. It draws the same random numbers in the same order as
//! the general way, so that a seed gives the same I/Os.

use fathom_telemetry::{Op, WindowSink};

use super::super::offsets::Uniform;
use super::{Pace, Worker};
use crate::port::Port;

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// Whether nothing but the number of I/Os left decides if a free slot may start one.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.pace, Pace::Closed)
            && self.pilot.is_none()
            && self.syncing.is_none()
            && self.bytes_left == u64::MAX
            && !self.once
    }

    /// Stages an I/O on every free slot.
    #[inline]
    pub(super) fn stage_plain(&mut self) {
        let n = self.ios_left.min(self.free.len() as u64);
        self.ios_left -= n;
        self.outcome.issued += n;
        let kept = self.free.len() - n as usize;
        self.staged.extend(self.free.drain(kept..).rev());
        for slot in &self.staged {
            let op = match self.mix {
                Some(threshold) if self.rng.bits() > threshold => Op::Write,
                _ => self.op,
            };
            let (offset, len) = match self.uniform {
                Some((places, len)) => (places.draw(&mut self.rng), len),
                None => {
                    let want = self.sizes.pick(&mut self.rng);
                    self.offsets.next(want, &mut self.rng)
                }
            };
            if op == Op::Write {
                self.port.prepare(*slot, len);
            }
            let s = &mut self.slots[*slot as usize];
            s.intended = self.now;
            (s.request.op, s.request.file) = (op, 0);
            (s.request.offset, s.request.len) = (offset, len);
            s.request.priority = 0;
        }
    }

    /// Places and length, where all I/Os are of one size and each place is equally likely.
    pub(super) fn uniform(&self) -> Option<(Uniform, u32)> {
        let len = self.sizes.only()?;
        Some((self.offsets.uniform(len)?, len))
    }
}

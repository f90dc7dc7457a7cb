//! The commonest load, without the questions that it need not ask at every I/O: a closed loop of one
//! pattern, bounded by time or by a number of I/Os. It draws the same random numbers in the same order as
//! the general way, so that a seed gives the same I/Os.

use fathom_telemetry::{Op, WindowSink};

use super::books::Alike;
use super::{Pace, Worker, block, note};
use crate::port::Port;

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// Whether nothing but the number of I/Os left decides if a free slot may start one.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.pace, Pace::Closed)
            && self.pilot.is_none()
            && self.syncing.is_none()
            && self.bytes_left == u64::MAX
            && !self.once
            && self.few == 0
            && self.take == 0
            && self.cold.is_none()
    }

    /// Takes the slots that may start an I/O now.
    #[inline]
    fn take_free(&mut self) {
        let n = self.ios_left.min(self.free.len() as u64);
        self.ios_left -= n;
        self.outcome.issued += n;
        let kept = self.free.len() - n as usize;
        self.staged.extend(self.free.drain(kept..).rev());
    }

    /// Stages an I/O on every free slot.
    #[inline]
    pub(super) fn stage_plain(&mut self) {
        self.take_free();
        for i in 0..self.staged.len() {
            let (slot, io) = (self.staged[i], self.own());
            if io.op == Op::Write {
                self.port.prepare(slot, io.len);
            }
            note(&mut self.slots, slot, io, self.now);
        }
    }

    /// Draws a read on every free slot and hands it over, in one pass; `before` are outstanding.
    #[inline]
    pub(super) fn issue_reads(&mut self, before: u32) {
        self.take_free();
        if self.staged.is_empty() {
            return;
        }
        self.account_depth(before);
        let staged = self.staged.len() as u32;
        self.outcome.batches.submit(staged, before + staged);
        let (now, slots) = (self.now, &mut self.slots);
        let mut start = |slot: &u32, place| {
            let io = block(Op::Read, place);
            note(slots, *slot, io, now);
            (*slot, io)
        };
        let (batch, rng, pattern) = (self.staged.iter(), &mut self.rng, &mut self.pattern);
        // One loop for each, so that what is asked once need not be asked at every I/O.
        match pattern.alike {
            Some(p) => self.port.stage(batch.map(|slot| start(slot, p.draw(rng)))),
            None => self
                .port
                .stage(batch.map(|slot| start(slot, pattern.draw(rng)))),
        }
        let now = self.port.now();
        self.mark_submitted(now);
    }

    /// Takes every completion that is there. Those of one batch mostly went through the same moments: they are
    /// counted and booked together.
    #[inline]
    pub(super) fn reap_plain(&mut self, before: u32) {
        let (port, mut books) = self.books();
        let mut alike = Alike {
            first: books.record(0, 0),
            n: 0,
            bytes: 0,
        };
        let slots = books.slots;
        port.reap(|slot, result| {
            let s = &slots[slot as usize];
            if result == i64::from(s.request.len) && alike.has(s) {
                alike.n += 1;
                alike.bytes += u64::from(s.request.len);
                books.free.push(slot);
                books.log(slot, result);
            } else {
                books.book_other(&mut alike, slot, result);
            }
        });
        books.book_alike(&mut alike);
        let (done, failed) = (books.done, books.failed);
        self.settle(before, done, failed);
    }
}

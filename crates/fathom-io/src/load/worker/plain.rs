//! The commonest load, without the questions that it need not ask at every I/O: a closed loop of one
//! pattern, bounded by time or by a number of I/Os. It draws the same random numbers in the same order as
//! the general way, so that a seed gives the same I/Os.

use fathom_telemetry::{Nanos, Op, Record, WindowSink};

use super::super::offsets::Uniform;
use super::{Pace, Slot, Worker};
use crate::port::{Port, Request};

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// Whether nothing but the number of I/Os left decides if a free slot may start one.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.pace, Pace::Closed)
            && self.pilot.is_none()
            && self.syncing.is_none()
            && self.bytes_left == u64::MAX
            && !self.once
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
            note(&mut self.slots, *slot, self.now, op, (offset, len));
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
        let (now, slots, rng) = (self.now, &mut self.slots, &mut self.rng);
        let batch = self.staged.iter();
        match self.uniform {
            Some((places, len)) => self.port.stage(batch.map(|slot| {
                let at = (places.draw(rng), len);
                (*slot, note(slots, *slot, now, Op::Read, at))
            })),
            None => self.port.stage(batch.map(|slot| {
                let want = self.sizes.pick(rng);
                let at = self.offsets.next(want, rng);
                (*slot, note(slots, *slot, now, Op::Read, at))
            })),
        }
        let now = self.port.now();
        self.mark_submitted(now);
    }

    /// Takes every completion that is there. Those of one batch mostly went through the same moments: they are
    /// counted in registers and booked together.
    #[inline]
    pub(super) fn reap_plain(&mut self, before: u32) {
        let (port, mut books) = self.books();
        let mut run: Option<Record> = None;
        let (mut n, mut bytes) = (0, 0);
        port.reap(|slot, result| {
            let s = &books.slots[slot as usize];
            if let Some(r) = &run
                && result == i64::from(s.request.len)
                && (s.intended, s.submitted) == (r.intended, r.submitted)
                && s.request.op == r.op
            {
                n += 1;
                bytes += u64::from(s.request.len);
                books.free.push(slot);
                if let Some(log) = books.recorder.log() {
                    log.push(&Record {
                        offset: s.request.offset,
                        len: s.request.len,
                        // As above, in words that need no look at signs.
                        result: i64::from(s.request.len),
                        ..*r
                    });
                }
                return;
            }
            if let Some(r) = run.take() {
                books.book_alike(&r, n, bytes);
            }
            let record = books.record(slot, result);
            if record.result == i64::from(record.len) {
                (n, bytes) = (1, u64::from(record.len));
                books.free.push(slot);
                if let Some(log) = books.recorder.log() {
                    log.push(&record);
                }
                run = Some(record);
            } else {
                books.book(slot, &record);
            }
        });
        if let Some(r) = run {
            books.book_alike(&r, n, bytes);
        }
        let (done, failed) = (books.done, books.failed);
        self.settle(before, done, failed);
    }

    /// Places and length, where all I/Os are of one size and each place is equally likely.
    pub(super) fn uniform(&self) -> Option<(Uniform, u32)> {
        let len = self.sizes.only()?;
        Some((self.offsets.uniform(len)?, len))
    }
}

/// Writes down what a slot does from now on.
#[inline]
fn note(slots: &mut [Slot], slot: u32, now: Nanos, op: Op, (offset, len): (u64, u32)) -> Request {
    let s = &mut slots[slot as usize];
    s.intended = now;
    // Field by field: a copy as a whole would wait for the narrow stores that made it.
    (s.request.op, s.request.file) = (op, 0);
    (s.request.offset, s.request.len) = (offset, len);
    s.request.priority = 0;
    Request {
        op,
        offset,
        len,
        file: 0,
        priority: 0,
    }
}

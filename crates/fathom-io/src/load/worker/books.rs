//! What a completion changes, in one place for a worker's own way and a guided one. Knows no port's ways.

use std::sync::atomic::Ordering;

use fathom_telemetry::{Nanos, Op, Record, Recorder, WindowSink};

use super::outcome::{ErrorCount, count_error};
use super::syncing::Syncing;
use super::{Pace, Slot, Worker};
use crate::job::OnError;
use crate::port::{Port, Request};

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// The port, and what a completion changes.
    #[inline]
    pub(super) fn books(&mut self) -> (&mut P, Books<'_, S>) {
        let books = Books {
            now: self.now,
            recorder: &mut self.recorder,
            slots: &self.slots,
            free: &mut self.free,
            pace: &mut self.pace,
            syncing: &mut self.syncing,
            plain: self.plain,
            total_bytes: &mut self.total_bytes,
            errors: &mut self.outcome.errors,
            done: 0,
            failed: false,
        };
        (&mut self.port, books)
    }

    /// Closes the books of a batch: `before` I/Os were outstanding, `done` completed without error.
    #[inline]
    pub(super) fn settle(&mut self, before: u32, done: u64, failed: bool) {
        if done == 0 && !failed {
            return;
        }
        self.total_ios += done;
        self.outcome.last_completion = self.outcome.last_completion.max(self.now);
        if failed && self.on_error == OnError::Stop {
            self.ending = true;
            self.stop.store(true, Ordering::Relaxed);
        }
        self.live.ios.store(self.total_ios, Ordering::Relaxed);
        self.live.bytes.store(self.total_bytes, Ordering::Relaxed);
        self.outcome.batches.complete(before - self.outstanding());
        self.account_depth(before);
    }
}

/// What a completion changes, apart from the port that hands it over.
pub(super) struct Books<'a, S> {
    now: Nanos,
    pub(super) recorder: &'a mut Recorder<S>,
    pub(super) slots: &'a [Slot],
    pub(super) free: &'a mut Vec<u32>,
    pace: &'a mut Pace,
    syncing: &'a mut Option<Syncing>,
    plain: bool,
    total_bytes: &'a mut u64,
    errors: &'a mut Vec<ErrorCount>,
    /// Completed without error.
    pub(super) done: u64,
    pub(super) failed: bool,
}

/// I/Os of one batch that went through the same moments and transferred all that was asked, counted one by one to be
/// booked together.
pub(super) struct Alike {
    /// When and what; other I/Os have other places.
    pub(super) first: Record,
    pub(super) n: u64,
    pub(super) bytes: u64,
}

impl Alike {
    /// Whether a slot's I/O, which ends now, went through the same moments.
    #[inline]
    pub(super) fn has(&self, s: &Slot) -> bool {
        let r = &self.first;
        (s.request.op, s.submitted, s.intended) == (r.op, r.submitted, r.intended)
    }
}

impl<S: WindowSink> Books<'_, S> {
    /// The record of a slot's I/O that ended now.
    #[inline]
    pub(super) fn record(&self, slot: u32, result: i64) -> Record {
        let s = &self.slots[slot as usize];
        let Request {
            op, offset, len, ..
        } = s.request;
        // A discard transfers nothing: the kernel's success is 0. A sync has no length to transfer.
        let (len, result) = match op {
            Op::Trim if result == 0 => (len, i64::from(len)),
            Op::Sync => (0, result),
            _ => (len, result),
        };
        Record {
            intended: s.intended,
            submitted: s.submitted,
            completed: self.now,
            offset,
            len,
            result,
            op,
        }
    }

    /// Takes a completion as the port gives it.
    #[inline(always)]
    pub(super) fn enter(&mut self, slot: u32, result: i64) {
        let record = self.record(slot, result);
        self.book(slot, &record);
    }

    /// Takes it for the log alone, where there is one.
    #[inline]
    pub(super) fn log(&mut self, slot: u32, result: i64) {
        if self.recorder.logs() {
            let record = self.record(slot, result);
            self.recorder.log(&record);
        }
    }

    /// Books what was counted, and begins to count with this one, unless it failed.
    // Never inlined: it is rare, and what it changes would be kept in registers that the common case wants.
    #[inline(never)]
    pub(super) fn book_other(&mut self, alike: &mut Alike, slot: u32, result: i64) {
        self.book_alike(alike);
        let record = self.record(slot, result);
        if record.result != i64::from(record.len) {
            return self.book(slot, &record);
        }
        *alike = Alike {
            first: record,
            n: 1,
            bytes: u64::from(record.len),
        };
        self.free.push(slot);
        self.recorder.log(&record);
    }

    /// Books what was counted; slots are free and the log has each already.
    #[inline]
    pub(super) fn book_alike(&mut self, alike: &mut Alike) {
        if alike.n == 0 {
            return;
        }
        self.recorder
            .record_alike(&alike.first, alike.n, alike.bytes);
        self.done += std::mem::take(&mut alike.n);
        *self.total_bytes += std::mem::take(&mut alike.bytes);
    }

    #[inline(always)]
    pub(super) fn book(&mut self, slot: u32, r: &Record) {
        self.recorder.record(r);
        if r.result >= i64::from(r.len) {
            self.done += 1;
            *self.total_bytes += r.result as u64;
        } else {
            self.failed = true;
            count_error(self.errors, r);
        }
        self.free.push(slot);
        if self.plain {
            return;
        }
        match self.pace {
            Pace::Trace(feed) => feed.completed(slot, self.now),
            Pace::Think { time, ready } if r.op != Op::Sync => ready.push_back(self.now + *time),
            _ => {}
        }
        if r.op == Op::Sync
            && let Some(sync) = self.syncing
        {
            sync.done();
        }
    }
}

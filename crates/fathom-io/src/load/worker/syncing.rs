//! Calls that make writes durable between them: when the next is due, and what it flushes.

use fathom_telemetry::WindowSink;

use super::Worker;
use crate::job::{Flush, JobSpec};
use crate::port::{Port, Request};

/// One kind of call.
struct Call {
    flush: Flush,
    /// Writes before each, and before the next.
    every: u32,
    left: u32,
}

/// A job's calls and their state.
pub(super) struct Syncing {
    /// No call follows the last write.
    open_end: bool,
    calls: Box<[Call]>,
    /// Writes before the next of any kind: of the last step, and left.
    step: u32,
    left: u32,
    /// It waits for outstanding I/O to drain, then runs alone.
    due: Option<Flush>,
    running: bool,
    /// File of the last write, and, where calls have a range, what was written there since the last.
    file: u16,
    ranged: bool,
    written: Option<(u64, u64)>,
}

impl Syncing {
    /// Where the job writes and asks for any.
    pub(super) fn of(spec: &JobSpec) -> Option<Self> {
        let call = |(flush, every)| Call {
            flush,
            every,
            left: every,
        };
        let step = spec.sync.calls().map(|c| c.1).min()?;
        spec.rw.writes().then(|| Self {
            open_end: spec.sync.open_end,
            calls: spec.sync.calls().map(call).collect(),
            step,
            left: step,
            due: None,
            running: false,
            file: 0,
            ranged: spec.sync.range.1 > 0,
            written: None,
        })
    }

    /// Whether one waits for its turn.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The call, where it may start: `idle` says that nothing is outstanding.
    fn start(&mut self, idle: bool) -> Option<Request> {
        let flush = self.due.filter(|_| idle && !self.running)?;
        self.running = true;
        let written = self.written.take().unwrap_or_default();
        let range = match flush {
            Flush::Range(_) => written,
            Flush::All | Flush::Data => (0, 0),
        };
        Some(Request::sync(self.file, flush, range))
    }

    /// A write was started; whether a call is due before the next. Of several, the first.
    #[inline]
    pub(super) fn wrote(&mut self, io: &Request) -> bool {
        if self.ranged {
            self.widen(io);
        }
        self.file = io.file;
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.turn();
        true
    }

    /// At least one call is due: the first of them is made.
    #[cold]
    fn turn(&mut self) {
        for c in &mut self.calls {
            c.left -= self.step;
            if c.left == 0 {
                c.left = c.every;
                self.due = self.due.or(Some(c.flush));
            }
        }
        self.step = self.calls.iter().map(|c| c.left).min().unwrap_or(u32::MAX);
        self.left = self.step;
    }

    fn widen(&mut self, io: &Request) {
        let (from, to) = (io.offset, io.offset + u64::from(io.len));
        let before = self.written.filter(|_| self.file == io.file);
        let (low, high) = before.unwrap_or((from, to));
        self.written = Some((low.min(from), high.max(to)));
    }

    /// The call has returned.
    pub(super) fn done(&mut self) {
        self.due = None;
        self.running = false;
    }
}

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// A call is due: it starts once nothing is outstanding, unless the job ends with the write before it and wants none.
    #[cold]
    pub(super) fn sync(&mut self) {
        let led_out = self.pilot.as_mut().is_some_and(|p| {
            p.ready(self.now);
            p.ended
        });
        let out = self.ios_left == 0 || self.bytes_left == 0 || led_out;
        let idle = self.free.len() == self.depth as usize;
        let Some(s) = &mut self.syncing else { return };
        if s.open_end && out {
            s.done();
        } else if let Some(call) = s.start(idle) {
            self.stage_one(call, self.now);
        }
    }
}

//! Puts the I/Os of a trace in the order of their times, within a window of bounded size.
//!
//! Most traces are nearly sorted: by completion, by processor, by thread. What comes later than the window
//! reaches is moved to the time of its predecessor and counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::formats::{Format, Source};
use super::{TraceError, TraceIo};

/// By time, then in the order of the file.
#[derive(PartialEq, Eq)]
struct Late(u64, u64, TraceIo);

impl Ord for Late {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A source in order.
pub(super) struct Ordered {
    source: Box<dyn Source>,
    window: usize,
    /// What came in order.
    queue: VecDeque<TraceIo>,
    /// What came later than something with a greater time.
    late: BinaryHeap<Reverse<Late>>,
    sequence: u64,
    last: u64,
    ended: bool,
    /// I/Os whose time had to be changed.
    pub(super) moved: u64,
}

impl Ordered {
    pub(super) fn new(format: Format, source: Box<dyn Source>) -> Self {
        Self {
            source,
            window: match format {
                // Threads take turns with thousands of rows each.
                Format::Fathom => 1 << 18,
                _ => 1 << 14,
            },
            queue: VecDeque::new(),
            late: BinaryHeap::new(),
            sequence: 0,
            last: 0,
            ended: false,
            moved: 0,
        }
    }

    pub(super) fn device(&self, index: u32) -> String {
        self.source.device(index)
    }

    /// The next I/O; times never go back.
    pub(super) fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        while !self.ended && self.queue.len() + self.late.len() < self.window {
            match self.source.next()? {
                Some(io) if self.queue.back().is_none_or(|b| b.at <= io.at) => {
                    self.queue.push_back(io);
                }
                Some(io) => {
                    self.sequence += 1;
                    self.late.push(Reverse(Late(io.at.0, self.sequence, io)));
                }
                None => self.ended = true,
            }
        }
        let late_first = match (self.queue.front(), self.late.peek()) {
            (Some(q), Some(Reverse(l))) => l.0 < q.at.0,
            (None, Some(_)) => true,
            _ => false,
        };
        let io = if late_first {
            self.late.pop().map(|l| l.0.2)
        } else {
            self.queue.pop_front()
        };
        Ok(io.map(|mut io| {
            if io.at.0 < self.last {
                self.moved += 1;
                io.at.0 = self.last;
            }
            self.last = io.at.0;
            io
        }))
    }
}

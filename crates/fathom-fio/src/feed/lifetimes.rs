//! How often each block was trimmed, and how it ended (`block_error_percentiles`).

use std::sync::{Arc, Mutex, PoisonError};

use fathom_io::load::PilotIo;
use fathom_telemetry::Op;

/// How often each block was trimmed, and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lifetimes {
    blocks: Vec<(State, u32)>,
}

/// What happened to a block, in the order of fio's output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    #[default]
    Unwritten,
    Trimmed,
    TrimFailed,
    WriteFailed,
}

/// fio keeps no more blocks than these.
pub(crate) const BLOCKS_MOST: u64 = 8192;

impl Lifetimes {
    /// The sum over blocks by state: unwritten, trimmed, written (fio never says it), trim failure, write failure.
    pub fn states(&self) -> [(&'static str, u64); 5] {
        let count = |state| self.blocks.iter().filter(|b| b.0 == state).count() as u64;
        [
            ("unwritten", count(State::Unwritten)),
            ("trimmed", count(State::Trimmed)),
            ("written", 0),
            ("trim failure", count(State::TrimFailed)),
            ("write failure", count(State::WriteFailed)),
        ]
    }

    /// Trims that a block lived through, at these percentiles of the blocks that were touched; failed ones are last.
    pub fn percentiles(&self, list: &[f64]) -> Vec<(f64, u32)> {
        let mut touched: Vec<(bool, u32)> = self
            .blocks
            .iter()
            .filter(|b| b.0 != State::Unwritten)
            .map(|b| (b.0 > State::Trimmed, b.1))
            .collect();
        touched.sort_unstable();
        let at = |p: f64| (p * touched.len() as f64 / 100.0) as usize;
        let Some(last) = touched.len().checked_sub(1) else {
            return Vec::new();
        };
        let all = list.iter();
        all.map(|p| (*p, touched[at(*p).min(last)].1)).collect()
    }
}

/// Those of a task.
pub(crate) type SharedLifetimes = Arc<Mutex<Lifetimes>>;

/// What a thread notes of its blocks; it is the task's when the job has ended.
pub(super) struct Blocks {
    own: Lifetimes,
    start: u64,
    size: u64,
    all: SharedLifetimes,
}

impl Blocks {
    /// Of a range in blocks of `size`.
    pub(super) fn new(range: (u64, u64), size: u64, all: SharedLifetimes) -> Self {
        let count = (range.1 - range.0) / size.max(1);
        Self {
            own: Lifetimes {
                blocks: vec![Default::default(); count as usize],
            },
            start: range.0,
            size: size.max(1),
            all,
        }
    }

    pub(super) fn done(&mut self, io: &PilotIo, good: bool) {
        let at = io.offset.saturating_sub(self.start) / self.size;
        let Some(block) = self.own.blocks.get_mut(at as usize) else {
            return;
        };
        match io.op {
            _ if block.0 > State::Trimmed => {}
            Op::Trim if good => *block = (State::Trimmed, block.1 + 1),
            Op::Trim => block.0 = State::TrimFailed,
            Op::Write if !good => block.0 = State::WriteFailed,
            _ => {}
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        *all = std::mem::take(&mut self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_those_of_touched_blocks() {
        let all = SharedLifetimes::default();
        let mut blocks = Blocks::new((4096, 4096 * 5), 4096, all.clone());
        let io = |op, n: u64| PilotIo {
            op,
            offset: 4096 * (1 + n),
            len: 4096,
            file: 0,
            priority: 0,
        };
        for _ in 0..3 {
            blocks.done(&io(Op::Trim, 0), true);
        }
        blocks.done(&io(Op::Trim, 1), true);
        blocks.done(&io(Op::Write, 1), false);
        blocks.done(&io(Op::Trim, 1), true);
        blocks.done(&io(Op::Trim, 2), false);
        drop(blocks);
        let life = all.lock().unwrap().clone();
        assert_eq!(
            life.states().map(|s| s.1),
            [1, 1, 0, 1, 1],
            "{:?}",
            life.states()
        );
        assert_eq!(
            life.percentiles(&[1.0, 50.0, 99.0]),
            [(1.0, 3), (50.0, 0), (99.0, 1)]
        );
        assert!(Lifetimes::default().percentiles(&[50.0]).is_empty());
    }
}

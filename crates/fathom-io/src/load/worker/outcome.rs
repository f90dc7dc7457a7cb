//! What a worker shows while it runs, how it waits, and what it leaves behind.

use std::sync::atomic::{AtomicBool, AtomicU64};

use fathom_telemetry::{Nanos, Op, Record};

/// What a thread shows while it runs; read by the progress display.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Live {
    /// I/Os completed without error, ramp-up included.
    pub ios: AtomicU64,
    /// Bytes transferred.
    pub bytes: AtomicU64,
    /// Set once the thread has left its loop.
    pub done: AtomicBool,
}

/// How to wait for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until `min` completions are there, or the clock reads `until`.
    For {
        /// Completions wanted; 0 where only time is waited for.
        min: u32,
        /// Latest moment.
        until: Nanos,
    },
    /// Nothing is outstanding and nothing will be issued.
    Finished,
}

/// In place of an errno: a read below the known size returned nothing. So reads a disk that was removed, and a file that
/// somebody has cut short.
pub const NOTHING_READ: i32 = -1;

/// Errors of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCount {
    /// Operation.
    pub op: Op,
    /// errno; 0 for a short transfer, [`NOTHING_READ`] for none at all.
    pub errno: i32,
    /// Byte offset of the first.
    pub first_offset: u64,
    /// How many.
    pub count: u64,
}

/// How many I/Os were handed over and taken back at once, in classes of 0, 1-4, 5-8, 9-16, 17-32, 33-64 and
/// more; and how many were handed over while 1, 2-3, 4-7, … 64 and more were outstanding. The measured part only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batches {
    /// Hand-overs by their size.
    pub submitted: [u64; 7],
    /// Looks at completions that found some, by how many.
    pub completed: [u64; 7],
    /// I/Os by the depth that they made.
    pub depth: [u64; 7],
}

impl Batches {
    #[inline]
    fn class(n: u32) -> usize {
        match n.saturating_sub(1) / 4 {
            0 => usize::from(n > 0),
            q => (q.ilog2() as usize + 2).min(6),
        }
    }
    #[inline]
    pub(super) fn submit(&mut self, n: u32, outstanding: u32) {
        self.submitted[Self::class(n)] += 1;
        self.depth[(outstanding | 1).ilog2().min(6) as usize] += u64::from(n);
    }
    #[inline]
    pub(super) fn complete(&mut self, n: u32) {
        self.completed[Self::class(n)] += 1;
    }
    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        let mine = [&mut self.submitted, &mut self.completed, &mut self.depth];
        for (a, b) in mine
            .into_iter()
            .zip([&other.submitted, &other.completed, &other.depth])
        {
            a.iter_mut().zip(b).for_each(|(x, y)| *x += y);
        }
    }
}

/// What a worker leaves behind beside its windows.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// When measuring began (after ramp-up).
    pub measured_from: Nanos,
    /// Last completion.
    pub last_completion: Nanos,
    /// ns at each number of outstanding I/Os, from 0 to the depth.
    pub depth_ns: Vec<u64>,
    /// Errors and short transfers.
    pub errors: Vec<ErrorCount>,
    /// Open loop: started late.
    pub late: u64,
    /// Open loop: never started.
    pub unissued: u64,
    /// Open loop: largest lateness, ns.
    pub lateness_max: u64,
    /// I/Os issued, ramp-up included.
    pub issued: u64,
    /// Sampled I/Os, and how many of them completed inside their submission ([`Port::inline`]).
    pub inline: (u64, u64),
    /// I/Os per hand-over and per look at completions.
    pub batches: Batches,
}

#[cold]
pub(super) fn count_error(errors: &mut Vec<ErrorCount>, r: &Record) {
    let errno = match (r.result, r.op) {
        (0, Op::Read) => NOTHING_READ,
        (result, _) => i32::try_from(-result).unwrap_or(0).max(0),
    };
    match errors.iter_mut().find(|e| e.op == r.op && e.errno == errno) {
        Some(e) => e.count += 1,
        None => errors.push(ErrorCount {
            op: r.op,
            errno,
            first_offset: r.offset,
            count: 1,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fall_into_their_classes() {
        for (n, class) in [
            (0, 0),
            (1, 1),
            (4, 1),
            (5, 2),
            (8, 2),
            (9, 3),
            (16, 3),
            (17, 4),
            (32, 4),
            (33, 5),
            (64, 5),
            (65, 6),
            (4000, 6),
        ] {
            assert_eq!(Batches::class(n), class, "{n}");
        }
        let mut b = Batches::default();
        b.submit(3, 3);
        b.submit(1, 64);
        b.complete(32);
        let mut sum = b;
        sum.add(&b);
        assert_eq!(
            (
                sum.submitted[1],
                sum.depth[1],
                sum.depth[6],
                sum.completed[4]
            ),
            (4, 6, 2, 2)
        );
    }
}

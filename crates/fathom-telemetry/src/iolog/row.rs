//! A record on its way to the encoder.

use std::sync::mpsc::SyncSender;

use crate::record::{Op, Record};
use crate::units::Nanos;

/// A record on its way to the encoder, times relative to the job's origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Row {
    pub(super) intended: u64,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) done: u32,
    pub(super) errno: u16,
    pub(super) job: u16,
    pub(super) thread: u16,
    pub(super) op: u16,
}

impl Row {
    /// Error, job, thread and operation as one number, for fast comparison (one load: they are neighbours).
    #[inline]
    pub(super) fn who(&self) -> u64 {
        u64::from(self.errno)
            | u64::from(self.job) << 16
            | u64::from(self.thread) << 32
            | u64::from(self.op) << 48
    }

    /// Bytes asked for and done as one number.
    #[inline]
    pub(super) fn size(&self) -> u64 {
        u64::from(self.len) | u64::from(self.done) << 32
    }

    /// The row with these [`Self::who`] and [`Self::size`].
    pub(super) fn from_bits(who: u64, size: u64) -> Self {
        Self {
            errno: who as u16,
            job: (who >> 16) as u16,
            thread: (who >> 32) as u16,
            op: (who >> 48) as u16,
            len: size as u32,
            done: (size >> 32) as u32,
            ..Self::default()
        }
    }
}

/// The record that a row was made of.
pub(super) fn record_of(row: &Row, origin: Nanos) -> Record {
    let at = |t: u64| Nanos(t.wrapping_add(origin.0));
    Record {
        intended: at(row.intended),
        submitted: at(row.submitted),
        completed: at(row.completed),
        offset: row.offset,
        len: row.len,
        result: if row.errno > 0 {
            -i64::from(row.errno)
        } else {
            i64::from(row.done)
        },
        op: Op::from_index(usize::from(row.op)).unwrap_or(Op::Read),
    }
}

/// A full (or last) chunk of one handle's rows, and the way back.
pub(super) struct Chunk {
    pub(super) rows: Vec<Row>,
    /// What its times are after.
    pub(super) origin: Nanos,
    pub(super) home: SyncSender<Vec<Row>>,
}

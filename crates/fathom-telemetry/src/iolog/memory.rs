//! Records kept in memory: for an analysis that needs every I/O of a short job at once, such as
//! joining them with kernel events.
//!
//! A thread's end is the same [`LogHandle`] as that of the Parquet log, so the path of an I/O does
//! not change. It must not know what the records are for.

use std::sync::{Arc, Mutex, PoisonError};

use super::handle::{LogHandle, Row};
use crate::record::{Op, Record};
use crate::units::Nanos;

/// All records of one thread, in the order of their completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRecords {
    /// The job's number, as given to [`MemoryLog::handle`].
    pub job: u16,
    /// The thread's number.
    pub thread: u16,
    /// The kernel's number of the thread; absent without `/proc`.
    pub tid: Option<u32>,
    /// The records, on the driver's clock.
    pub records: Vec<Record>,
    /// Records that found no room.
    pub lost: u64,
}

pub(super) type Shelf = Arc<Mutex<Vec<ThreadRecords>>>;

/// A log in memory.
#[derive(Debug, Default)]
pub struct MemoryLog {
    shelf: Shelf,
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// A thread's end with room for `capacity` records (48 bytes each, allocated and touched here).
    pub fn handle(&self, job: u16, thread: u16, capacity: usize) -> LogHandle {
        LogHandle::in_memory(job, thread, capacity, Arc::clone(&self.shelf))
    }

    /// What closed handles have left, by job and thread; the log is empty afterwards.
    pub fn take(&self) -> Vec<ThreadRecords> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = std::mem::take(&mut *shelf);
        all.sort_by_key(|t| (t.job, t.thread));
        all
    }
}

/// The kernel's number of the calling thread.
pub(super) fn own_tid() -> Option<u32> {
    // `/proc/thread-self` is a link to `PID/task/TID`.
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_pushed_and_what_had_no_room_is_counted() {
        let log = MemoryLog::new();
        let record = |i: u64| Record {
            intended: Nanos(1000 * i),
            submitted: Nanos(1000 * i + 10),
            completed: Nanos(1000 * i + 900),
            offset: 4096 * i,
            len: 4096,
            result: if i == 2 { -5 } else { 4096 },
            op: if i.is_multiple_of(2) {
                Op::Read
            } else {
                Op::Write
            },
        };
        let mut handle = log.handle(3, 1, 4);
        handle.set_origin(Nanos(500));
        (1..=6).for_each(|i| handle.push(&record(i)));
        handle.close();
        let taken = log.take();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].job, taken[0].thread, taken[0].lost), (3, 1, 2));
        assert!(taken[0].tid.is_some_and(|t| t > 0));
        assert_eq!(taken[0].records, (1..=4).map(record).collect::<Vec<_>>());
        assert!(log.take().is_empty());
    }
}

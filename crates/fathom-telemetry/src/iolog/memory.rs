//! Records kept in memory: for an analysis that needs every I/O of a short job at once, such as
//! joining them with kernel events.
//!
//! A thread's end is the same [`LogHandle`] as that of the Parquet log, so the path of an I/O does
//! not change. It must not know what the records are for.

use std::sync::{Arc, PoisonError};

use super::handle::LogHandle;
use super::shelf::{Shelf, ThreadRecords};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Op, Record};
    use crate::units::Nanos;

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

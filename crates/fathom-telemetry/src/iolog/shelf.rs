//! Where the rows of a log in memory go.

use std::sync::{Arc, Mutex};

use crate::record::Record;

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

/// Of all threads.
pub(super) type Shelf = Arc<Mutex<Vec<ThreadRecords>>>;

/// The kernel's number of the calling thread.
pub(super) fn own_tid() -> Option<u32> {
    // `/proc/thread-self` is a link to `PID/task/TID`.
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

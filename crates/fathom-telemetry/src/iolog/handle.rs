//! A thread's end of the I/O log: the only part that the path of an I/O touches.
//!
//! `push` is one comparison and one 48-byte store; channels are touched once per
//! chunk. It must not know how rows are encoded.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::encoder::Message;
use super::row::{Chunk, Row, record_of};
use super::shelf::{self, Shelf, ThreadRecords};
use crate::record::Record;
use crate::units::Nanos;

/// A thread's end of the I/O log. Dropping it closes it.
pub struct LogHandle {
    rows: Vec<Row>,
    /// Rows that `rows` may hold; 0 while no chunk was free.
    limit: usize,
    lost: u64,
    origin: Nanos,
    job: u16,
    thread: u16,
    /// Chunks that came back, the last one on top: it is still in the caches.
    spare: Vec<Vec<Row>>,
    free: Receiver<Vec<Row>>,
    home: SyncSender<Vec<Row>>,
    messages: SyncSender<Message>,
    open_handles: Arc<AtomicUsize>,
    /// Where the rows go at the end, for a log in memory.
    shelf: Option<Shelf>,
    /// The thread that pushes, for a log in memory.
    tid: Option<u32>,
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHandle")
            .field("job", &self.job)
            .field("thread", &self.thread)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl LogHandle {
    pub(super) fn new(
        (job, thread, origin): (u16, u16, Nanos),
        messages: SyncSender<Message>,
        open_handles: Arc<AtomicUsize>,
        chunk_rows: usize,
        chunks: usize,
    ) -> Self {
        // `resize` writes every page now, so that no page fault falls into the measurement.
        let chunk = || {
            let mut rows = Vec::with_capacity(chunk_rows);
            rows.resize(chunk_rows, Row::default());
            rows.clear();
            rows
        };
        let (home, free) = sync_channel(chunks);
        let mut spare = Vec::with_capacity(chunks);
        spare.extend((1..chunks).map(|_| chunk()));
        Self {
            rows: chunk(),
            limit: chunk_rows,
            spare,
            lost: 0,
            origin,
            job,
            thread,
            free,
            home,
            messages,
            open_handles,
            shelf: None,
            tid: None,
        }
    }

    /// A handle whose rows stay in memory: one chunk, nobody at the other end of its channels.
    pub(super) fn in_memory(job: u16, thread: u16, capacity: usize, shelf: Shelf) -> Self {
        let mut rows = Vec::with_capacity(capacity);
        rows.resize(capacity, Row::default());
        rows.clear();
        let (home, free) = sync_channel(1);
        let (messages, _) = sync_channel(1);
        Self {
            rows,
            limit: capacity,
            spare: Vec::new(),
            lost: 0,
            origin: Nanos::ZERO,
            job,
            thread,
            free,
            home,
            messages,
            open_handles: Arc::new(AtomicUsize::new(1)),
            shelf: Some(shelf),
            tid: None,
        }
    }

    /// Adds one record; never blocks and never allocates. Counted as lost where the writer is behind.
    #[inline]
    pub fn push(&mut self, record: &Record) {
        if self.rows.len() >= self.limit && !self.next_chunk() {
            return;
        }
        let relative = |t: Nanos| t.0.wrapping_sub(self.origin.0);
        let row = Row {
            intended: relative(record.intended),
            submitted: relative(record.submitted),
            completed: relative(record.completed),
            offset: record.offset,
            len: record.len,
            done: record.result.clamp(0, i64::from(u32::MAX)) as u32,
            errno: (-record.result).clamp(0, i64::from(u16::MAX)) as u16,
            job: self.job,
            thread: self.thread,
            op: record.op as u16,
        };
        self.rows.push(row);
    }

    /// Moves the origin of stored times; the recorder sets it to the job's start, which is not known
    /// when handles are made.
    pub fn set_origin(&mut self, origin: Nanos) {
        self.origin = origin;
        if self.shelf.is_some() {
            // The recorder does this on its own thread, before the first I/O.
            self.tid = shelf::own_tid();
        }
    }

    /// Records lost so far by this handle.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the next record has a place; for tests, which must not lose.
    #[cfg(test)]
    pub(super) fn has_room(&mut self) -> bool {
        if self.rows.len() < self.limit {
            return true;
        }
        let lost = self.lost;
        let room = self.next_chunk();
        self.lost = lost;
        room
    }

    /// Hands over the last records and the count of lost ones; may wait for the writer.
    pub fn close(self) {
        drop(self);
    }

    /// Hands over a full chunk and takes an empty one. `false` (and one more lost) where none is free.
    #[cold]
    fn next_chunk(&mut self) -> bool {
        if self.shelf.is_some() {
            self.lost += 1;
            return false;
        }
        if self.limit > 0 {
            let chunk = Chunk {
                rows: std::mem::take(&mut self.rows),
                origin: self.origin,
                home: self.home.clone(),
            };
            self.limit = 0;
            if let Err(TrySendError::Full(Message::Chunk(chunk))) =
                self.messages.try_send(Message::Chunk(chunk))
            {
                // More handles than the log was made for: these rows go, the chunk stays.
                self.lost += chunk.rows.len() as u64;
                self.reuse(chunk.rows);
                return true;
            }
        }
        while let Ok(rows) = self.free.try_recv() {
            self.spare.push(rows);
        }
        match self.spare.pop() {
            Some(rows) => {
                self.reuse(rows);
                true
            }
            None => {
                self.lost += 1;
                false
            }
        }
    }

    fn reuse(&mut self, mut rows: Vec<Row>) {
        rows.clear();
        self.limit = rows.capacity();
        self.rows = rows;
    }
}

impl Drop for LogHandle {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.take() {
            let origin = self.origin;
            let done = ThreadRecords {
                job: self.job,
                thread: self.thread,
                tid: self.tid,
                records: self.rows.iter().map(|row| record_of(row, origin)).collect(),
                lost: self.lost,
            };
            shelf
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(done);
            return;
        }
        if !self.rows.is_empty() {
            let _ = self.messages.send(Message::Chunk(Chunk {
                rows: std::mem::take(&mut self.rows),
                origin: self.origin,
                home: self.home.clone(),
            }));
        }
        let _ = self.messages.send(Message::Closed {
            job: self.job,
            lost: self.lost,
            origin: self.origin,
        });
        self.open_handles.fetch_sub(1, Ordering::Release);
    }
}

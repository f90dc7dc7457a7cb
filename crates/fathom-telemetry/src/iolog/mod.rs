//! One row per I/O in Parquet, with bounded memory.
//!
//! I/O threads fill preallocated chunks of records ([`LogHandle`]) and hand them to
//! one encoder thread, which writes `io.parquet`; the chunks come back the same way.
//! Where no chunk is free the record is counted as lost: the log never makes an I/O
//! wait. The file's columns are described in `docs/run-directory.md`.
//!
//! The pages are encoded here and not by the `parquet` crate, for speed (see
//! `page.rs`) and because that crate keeps the description of every row group in
//! memory until the end: not bounded for a run of hours.

mod delta;
mod dictionary;
mod encoder;
mod footer;
mod handle;
mod memory;
mod page;
mod read;
mod row;
mod rows;
mod shelf;
mod thrift;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::identity::Identity;
use crate::units::Nanos;
use encoder::{Encoder, Message};
use fathom_files::{Existing, Output};
pub use handle::LogHandle;
pub use memory::MemoryLog;
pub use read::{IoLogReader, IoRow};
use row::Row;
pub use rows::RowLog;
pub use shelf::ThreadRecords;

/// Name of the log in a run directory.
pub const FILE_NAME: &str = "io.parquet";

/// Memory of all chunks together. With a row group being encoded (at most 12 MiB) the log stays well
/// under 40 MiB, so that a whole run stays under 64 MB. For one thread it is 0.35 s of slack at a
/// million I/Os per second.
const CHUNK_BUDGET_BYTES: usize = 16 << 20;
/// Largest chunk: the encoder makes one page of it without copying.
const CHUNK_ROWS_MAX: usize = page::PAGE_ROWS;
/// Smallest chunk; below, handing over costs more than filling.
const CHUNK_ROWS_MIN: usize = 64;
/// Chunks per handle: one being filled, one or more under way.
const CHUNKS_MIN: usize = 3;
const CHUNKS_MAX: usize = 64;

/// Why the log could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum IoLogError {
    /// The file could not be created.
    #[error("cannot create the I/O log {path}: {source}; choose another directory with --out")]
    Create {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Writing failed; what was complete until then is kept.
    #[error(
        "cannot write the I/O log {path}: {source}; later I/Os are missing from it: free some space or choose another directory with --out"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The log was finished too early: a programmer's error.
    #[error("the I/O log was finished while {0} handles were open; their last records are missing")]
    HandlesOpen(usize),
    /// The encoder thread ended early: a programmer's error.
    #[error("the thread that writes the I/O log ended early; no log was kept")]
    EncoderGone,
    /// The file could not be opened or is not a Parquet file.
    #[error("cannot read the I/O log {path}: {reason}; expected an io.parquet written by fathom")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// What became of the log.
#[derive(Debug, Default)]
pub struct LogSummary {
    /// Rows in the file.
    pub rows: u64,
    /// Records that are missing, by job; no entry where nothing is.
    pub lost_by_job: BTreeMap<u16, u64>,
    /// Size of the file.
    pub bytes: u64,
    /// Why writing stopped early; the rows before are in the file.
    pub error: Option<IoLogError>,
}

/// The log of a run, while it is written.
#[derive(Debug)]
pub struct IoLog {
    path: PathBuf,
    out: Option<Output>,
    messages: SyncSender<Message>,
    thread: Option<JoinHandle<LogSummary>>,
    open_handles: Arc<AtomicUsize>,
    chunk_rows: usize,
    chunks: usize,
}

impl IoLog {
    /// Begins a log at `path`: written beside it, and put in its place in
    /// [`Self::finish`]. `handles_expected` is the largest number of handles open at the same time; the
    /// memory is shared out among them.
    ///
    /// # Errors
    /// [`IoLogError::Create`], where the file or the thread could not be made.
    pub fn create(
        path: &Path,
        meta: Identity,
        handles_expected: usize,
    ) -> Result<Self, IoLogError> {
        let failed = |source| IoLogError::Create {
            path: path.to_owned(),
            source,
        };
        let out = Output::create(path, Existing::None).map_err(failed)?;
        let file = out.handle().map_err(failed)?;
        let (chunk_rows, chunks) = share(handles_expected);
        // Every chunk fits, and every handle's last message: sending never blocks while no more handles
        // are open than expected.
        let (messages, inbox) = sync_channel(handles_expected.max(1) * (chunks + 2) + 2);
        let mut encoder = Encoder::new(file, meta).map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name("fathom-iolog".to_owned())
            .spawn(move || encoder.run(&inbox))
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            out: Some(out),
            messages,
            thread: Some(thread),
            open_handles: Arc::default(),
            chunk_rows,
            chunks,
        })
    }

    /// A thread's end. `job` is the job's index in `run.json`, `thread` its thread's number; times are
    /// stored relative to `origin` (the start of the job's measured part), as in the series.
    pub fn handle(&self, job: u16, thread: u16, origin: Nanos) -> LogHandle {
        self.open_handles.fetch_add(1, Ordering::Relaxed);
        LogHandle::new(
            (job, thread, origin),
            self.messages.clone(),
            Arc::clone(&self.open_handles),
            self.chunk_rows,
            self.chunks,
        )
    }

    /// What a job is called in the log; to be said before its handles are made.
    pub fn name(&self, job: u16, name: &str) {
        let name = name.to_owned();
        // An encoder that is gone shows in the end.
        let _ = self.messages.send(Message::Name { job, name });
    }

    /// Writes what is left and gives the file its name. Every handle must be closed before.
    ///
    /// # Errors
    /// [`IoLogError::EncoderGone`]. Where the log had to stop early, its beginning is kept, or no file at
    /// all, and the reason is in [`LogSummary::error`].
    pub fn finish(mut self) -> Result<LogSummary, IoLogError> {
        let open = self.open_handles.load(Ordering::Acquire);
        let mut summary = self.end()?;
        if summary.bytes == 0 {
            return match summary.error {
                Some(_) => Ok(summary),
                None => Err(IoLogError::EncoderGone),
            };
        }
        let placed = self.out.take().map_or(Ok(()), Output::commit);
        placed.map_err(|source| IoLogError::Write {
            path: self.path.clone(),
            source,
        })?;
        if open > 0 && summary.error.is_none() {
            summary.error = Some(IoLogError::HandlesOpen(open));
        }
        Ok(summary)
    }

    /// Writes what is left, and hands the file over that has no name and goes with its last descriptor.
    ///
    /// # Errors
    /// As [`Self::finish`]; where the log had to stop early the file holds its beginning.
    pub fn finish_unnamed(mut self) -> Result<(LogSummary, File), IoLogError> {
        let summary = self.end()?;
        let file = self.out.as_ref().map(Output::handle);
        match file {
            Some(Ok(file)) => Ok((summary, file)),
            _ => Err(IoLogError::EncoderGone),
        }
    }

    /// Ends the encoder.
    fn end(&mut self) -> Result<LogSummary, IoLogError> {
        let thread = self.thread.take().ok_or(IoLogError::EncoderGone)?;
        // A failure to send shows in joining.
        let _ = self.messages.send(Message::Finish);
        thread.thread().unpark();
        let mut summary = thread.join().map_err(|_| IoLogError::EncoderGone)?;
        if let Some(IoLogError::Write { path, .. }) = &mut summary.error {
            path.clone_from(&self.path);
        }
        Ok(summary)
    }
}

impl Drop for IoLog {
    /// An abandoned log leaves nothing behind.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.messages.send(Message::Abort);
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Rows per chunk and chunks per handle, for so many handles.
fn share(handles: usize) -> (usize, usize) {
    let per_handle = CHUNK_BUDGET_BYTES / size_of::<Row>() / handles.max(1);
    let rows = (per_handle / 4).clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX);
    let rows = 1 << rows.ilog2();
    (rows, (per_handle / rows).clamp(CHUNKS_MIN, CHUNKS_MAX))
}

/// Where the encoder writes: a file that can be cut back to its last good row group.
trait Store: io::Write {
    /// Cuts to `len` bytes and goes on from there.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// How far it was written.
    fn end(&mut self) -> io::Result<u64>;
}

impl Store for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        io::Seek::seek(self, io::SeekFrom::Start(len)).map(|_| ())
    }
    fn end(&mut self) -> io::Result<u64> {
        io::Seek::stream_position(self)
    }
}

#[cfg(test)]
mod tests;

//! A log of rows that are there already, such as those that came from another host: written by who has them, without
//! threads and chunks. It holds no memory between jobs, so that there may be one for each of a thousand hosts.

use std::fs::File;
use std::path::{Path, PathBuf};

use fathom_files::{Existing, Output};

use super::encoder::Encoder;
use super::page::PAGE_ROWS;
use super::row::Row;
use super::{IoLogError, IoRow, LogSummary};
use crate::identity::Identity;
use crate::units::Nanos;

/// The log while it is written.
pub struct RowLog {
    path: PathBuf,
    out: Output,
    encoder: Encoder<File>,
    page: Vec<Row>,
    /// What the times of the page are after.
    origin: Nanos,
}

impl RowLog {
    /// Begins a log at `path`: written beside it, and put in its place in [`Self::finish`].
    ///
    /// # Errors
    /// [`IoLogError::Create`].
    pub fn create(path: &Path, identity: Identity) -> Result<Self, IoLogError> {
        let failed = |source| IoLogError::Create {
            path: path.to_owned(),
            source,
        };
        let out = Output::create(path, Existing::None).map_err(failed)?;
        let file = out.handle().map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            out,
            encoder: Encoder::new(file, identity).map_err(failed)?,
            page: Vec::new(),
            origin: Nanos::ZERO,
        })
    }

    /// What a job is called; before its rows.
    pub fn name(&mut self, job: u16, name: &str) {
        self.encoder.name(job, name.to_owned());
    }

    /// Adds a row of `job`, whatever number it says, whose times are after `origin` on the log's clock. Rows of one job
    /// and one thread come after each other.
    pub fn push(&mut self, job: u16, row: &IoRow, origin: Nanos) {
        let changes = |last: &Row| (last.job, last.thread) != (job, row.thread);
        if self.page.len() == PAGE_ROWS || self.page.last().is_some_and(changes) {
            self.encode();
        }
        self.origin = origin;
        self.page.push(Row {
            intended: row.intended_ns as u64,
            submitted: row.submitted_ns as u64,
            completed: row.completed_ns as u64,
            offset: row.offset,
            len: row.len,
            done: row.done,
            errno: row.error.clamp(0, i32::from(u16::MAX)) as u16,
            job,
            thread: row.thread,
            op: row.op as u16,
        });
    }

    /// Brings all rows so far into the file.
    pub fn settle(&mut self) {
        self.encode();
        self.page = Vec::new();
        self.encoder.settle();
    }

    fn encode(&mut self) {
        self.encoder.rows(&self.page, self.origin);
        self.page.clear();
    }

    /// Gives the file its name. Where it had to end early, its beginning is kept, or no file at all, and the reason is
    /// in [`LogSummary::error`].
    ///
    /// # Errors
    /// [`IoLogError::Write`], where the file cannot be named.
    pub fn finish(mut self) -> Result<LogSummary, IoLogError> {
        self.encode();
        let mut summary = self.encoder.finish();
        if let Some(IoLogError::Write { path, .. }) = &mut summary.error {
            path.clone_from(&self.path);
        }
        if summary.bytes > 0 {
            let path = self.path;
            self.out
                .commit()
                .map_err(|source| IoLogError::Write { path, source })?;
        }
        Ok(summary)
    }
}

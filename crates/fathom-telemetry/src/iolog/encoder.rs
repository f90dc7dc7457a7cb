//! The thread that turns chunks into row groups and row groups into a file.
//!
//! Memory is bounded by the chunks in circulation, one page of gathered rows and one
//! row group. An error of the file stops the log, never the run: what comes after is
//! counted as lost, what was complete before stays readable.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use super::footer::{MAGIC, RowGroups};
use super::page::{Common, PAGE_ROWS, RowGroup};
use super::row::{Chunk, Row};
use super::{IoLogError, LogSummary, Store};
use crate::identity::{Host, Identity};
use crate::units::Nanos;

/// A row group ends at the first of these. Large ones keep the footer small; the bytes bound memory.
const GROUP_ROWS: u64 = 1 << 20;
const GROUP_BYTES: usize = 6 << 20;
/// And of so many jobs: what is the same within a job must fit a dictionary.
const GROUP_JOBS: usize = 1 << 14;

/// Pauses while nothing comes: short against the slack that the chunks give (14 ms at 25 million rows a
/// second), long enough to leave an idle CPU in its idle state.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// Space that a log leaves behind where it fills its disk: what is worth more than its end (the series,
/// `run.json`, the report) finds room there.
const LEFT_BYTES: u64 = 2 << 20;

/// What reaches the encoder.
pub(super) enum Message {
    Chunk(Chunk),
    /// What a job is called; before its rows.
    Name {
        job: u16,
        name: String,
    },
    Closed {
        job: u16,
        lost: u64,
        origin: Nanos,
    },
    /// No more will come: write the footer.
    Finish,
    /// The log was abandoned.
    Abort,
}

/// State of the encoder thread.
pub(super) struct Encoder<S> {
    store: S,
    meta: Identity,
    /// Bytes of the file that are good.
    written: u64,
    groups: RowGroups,
    group: RowGroup,
    /// Rows of the unfinished group by job, which are lost if it cannot be written.
    group_jobs: BTreeMap<u16, u64>,
    /// The same of the groups that are in the file.
    kept_jobs: Vec<BTreeMap<u16, u64>>,
    /// Small chunks of one job gather here to make whole pages.
    stage: Vec<Row>,
    names: BTreeMap<u16, String>,
    origins: BTreeMap<u16, u64>,
    lost: BTreeMap<u16, u64>,
    error: Option<io::Error>,
}

impl<S: Store> Encoder<S> {
    /// Writes the beginning of the file.
    pub(super) fn new(mut store: S, meta: Identity) -> io::Result<Self> {
        store.write_all(MAGIC)?;
        Ok(Self {
            store,
            meta,
            written: MAGIC.len() as u64,
            groups: RowGroups::default(),
            group: RowGroup::default(),
            group_jobs: BTreeMap::new(),
            kept_jobs: Vec::new(),
            stage: Vec::new(),
            names: BTreeMap::new(),
            origins: BTreeMap::new(),
            lost: BTreeMap::new(),
            error: None,
        })
    }

    /// Takes messages until the log is finished or abandoned.
    ///
    /// It looks for them now and then instead of being woken: waking costs the I/O thread a system call,
    /// and the scheduler likes to run the woken thread at once in the waker's place (100 µs per chunk were
    /// seen). [`super::IoLog`] unparks it when it waits itself.
    pub(super) fn run(&mut self, inbox: &Receiver<Message>) -> LogSummary {
        let mut pause = PAUSE_MIN;
        loop {
            let message = match inbox.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    thread::park_timeout(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
                Err(TryRecvError::Disconnected) => break,
            };
            pause = PAUSE_MIN;
            match message {
                Message::Chunk(chunk) => {
                    self.rows(&chunk.rows, chunk.origin);
                    // A handle that is gone needs it no more.
                    let _ = chunk.home.try_send(chunk.rows);
                }
                Message::Name { job, name } => self.name(job, name),
                Message::Closed { job, lost, origin } => {
                    self.origins.insert(job, origin.0);
                    self.missed(job, lost);
                }
                Message::Finish => break,
                Message::Abort => return LogSummary::default(),
            }
        }
        self.finish()
    }

    pub(super) fn name(&mut self, job: u16, name: String) {
        self.names.insert(job, name);
    }

    /// Counts records of a job that never came here.
    pub(super) fn missed(&mut self, job: u16, lost: u64) {
        if lost > 0 {
            *self.lost.entry(job).or_default() += lost;
        }
    }

    /// Takes rows in order, of one handle and so of one job, whose times are after `origin`.
    pub(super) fn rows(&mut self, rows: &[Row], origin: Nanos) {
        let Some(Row { job, .. }) = rows.first().copied() else {
            return;
        };
        if self.stage.first().is_some_and(|first| first.job != job) {
            self.flush_stage();
        }
        self.origins.insert(job, origin.0);
        // Only a page that is worth its headers goes without the copy.
        if self.stage.is_empty() && (PAGE_ROWS / 2..=PAGE_ROWS).contains(&rows.len()) {
            if self.takes(job, rows.len()) {
                self.page_of(rows);
            }
            return;
        }
        let mut rest = rows;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PAGE_ROWS - self.stage.len()));
            rest = later;
            if self.takes(job, now.len()) {
                self.stage.extend_from_slice(now);
                if self.stage.len() == PAGE_ROWS {
                    self.flush_stage();
                }
            }
        }
    }

    /// Counts rows to the unfinished group, or as lost where the log has stopped.
    fn takes(&mut self, job: u16, rows: usize) -> bool {
        let works = self.error.is_none();
        let counts = if works {
            &mut self.group_jobs
        } else {
            &mut self.lost
        };
        *counts.entry(job).or_default() += rows as u64;
        works
    }

    fn flush_stage(&mut self) {
        let stage = std::mem::take(&mut self.stage);
        self.page_of(&stage);
        self.stage = stage;
        self.stage.clear();
    }

    fn page_of(&mut self, rows: &[Row]) {
        let Some(Row { job, .. }) = rows.first() else {
            return;
        };
        let none = Host::default();
        let host = self.meta.host.as_ref().unwrap_or(&none);
        let origin = self.origins.get(job).copied().unwrap_or_default();
        let common = Common {
            job_name: self.names.get(job).map_or("", String::as_str),
            origin_epoch_ns: self.meta.clock_zero_ns.saturating_add_unsigned(origin),
            run_id: &self.meta.run_id,
            host: &host.name,
            host_index: host.index,
        };
        self.group.add_page(rows, &common);
        let full = self.group.rows() >= GROUP_ROWS || self.group.bytes() >= GROUP_BYTES;
        if full || self.group_jobs.len() >= GROUP_JOBS {
            // The stage is empty here: `group_jobs` counts this group's rows and no others.
            self.flush_group();
        }
    }

    fn flush_group(&mut self) {
        let rows = self.group.rows();
        if rows == 0 || self.error.is_some() {
            return;
        }
        let store = &mut self.store;
        match self.group.finish(|bytes| store.write_all(bytes)) {
            Ok(columns) => {
                self.groups.add(self.written, rows, &columns);
                self.written += columns.iter().map(|c| c.bytes).sum::<u64>();
                self.kept_jobs.push(std::mem::take(&mut self.group_jobs));
            }
            Err(e) => self.stop(e),
        }
    }

    /// Ends the log at its last good row group, or at one before it.
    fn stop(&mut self, e: io::Error) {
        self.error = Some(e);
        let jobs = std::mem::take(&mut self.group_jobs);
        self.lose(jobs);
        let reached = self.store.end().unwrap_or(self.written);
        while self.groups.count() > 1 && reached.saturating_sub(self.written) < LEFT_BYTES {
            self.take_back();
        }
        // Where this fails, it is tried again at the end.
        let _ = self.store.cut(self.written);
    }

    fn lose(&mut self, jobs: BTreeMap<u16, u64>) {
        for (job, n) in jobs {
            *self.lost.entry(job).or_default() += n;
        }
    }

    /// Gives up the last row group; whether there was one.
    fn take_back(&mut self) -> bool {
        let Some(at) = self.groups.take_back() else {
            return false;
        };
        self.written = at;
        let jobs = self.kept_jobs.pop().unwrap_or_default();
        self.lose(jobs);
        true
    }

    /// Brings everything into the file and gives its memory back.
    pub(super) fn settle(&mut self) {
        if !self.stage.is_empty() {
            self.flush_stage();
        }
        self.flush_group();
        self.stage = Vec::new();
        self.group = RowGroup::default();
    }

    pub(super) fn finish(&mut self) -> LogSummary {
        self.settle();
        let (rows, bytes) = loop {
            let footer = self.groups.footer(&self.meta, &self.origins);
            // Cutting also makes room for the footer where the disk is full.
            let closed = match self.error {
                Some(_) => self.store.cut(self.written),
                None => Ok(()),
            }
            .and_then(|()| self.store.write_all(&footer))
            .and_then(|()| self.store.flush());
            match closed {
                // A log of nothing is not worth its name.
                Ok(()) if self.error.is_some() && self.groups.count() == 0 => break (0, 0),
                Ok(()) => break (self.groups.rows(), self.written + footer.len() as u64),
                Err(e) => {
                    self.error.get_or_insert(e);
                    if !self.take_back() {
                        break (0, 0);
                    }
                }
            }
        };
        LogSummary {
            rows,
            lost_by_job: std::mem::take(&mut self.lost),
            bytes,
            error: self.error.take().map(|source| IoLogError::Write {
                path: PathBuf::new(),
                source,
            }),
        }
    }
}

//! What a job does where pattern, sizes and distribution are not enough: replay, verification, patterns.
//!
//! A pilot decides which I/O comes next, fills buffers and looks at what came back; when, how deep and how it
//! is measured stays with the [`Worker`](super::Worker). It runs on the thread that issues the I/O.

use std::fs::File;
use std::sync::Arc;

use fathom_telemetry::{Nanos, Op, Record};

pub use crate::port::Request as PilotIo;

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// What the job itself says.
    Own,
    /// This.
    Start(PilotIo),
    /// Ask again then, or at the next completion.
    At(Nanos),
    /// Ask again at the next completion.
    Drain,
    /// Nothing more.
    End,
}

/// The page cache has no part in what comes next, where that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// A pass over the range begins again.
    Again,
    /// What was written is read back: it is made durable first, and read from the device.
    ReadBack,
}

/// Guides one thread of a job. Every method has a default that changes nothing.
pub trait Pilot: Send {
    /// Measuring begins at `origin`.
    fn start(&mut self, _origin: Nanos) {}
    /// Whether the pilot alone says when the load is complete ([`Next::End`]); the job's amounts do not count then.
    fn decides_end(&self) -> bool {
        false
    }
    /// The next I/O. It is called once per I/O: what it returned with [`Next::Start`] will be issued.
    fn next(&mut self, _now: Nanos) -> Next {
        Next::Own
    }
    /// Another thread of the job that has to be asked again because of what this one has just done; one after another,
    /// `None` for no more. Only in virtual time.
    fn called(&mut self) -> Option<u32> {
        None
    }
    /// Whether the I/O that [`Pilot::next`] has just returned waits for its turn in an open loop's schedule.
    fn paced(&self) -> bool {
        true
    }
    /// Whether a pass has begun with the I/O that [`Pilot::next`] has just returned; said once.
    fn passed(&mut self) -> Option<Pass> {
        None
    }
    /// The I/O begins: its time of submission counts from here, and what is waited for here is part of it.
    fn begins(&mut self, _io: &PilotIo) {}
    /// Puts content into the buffer of a write; `false` leaves it to the job's own.
    fn fill(&mut self, _io: &PilotIo, _data: &mut [u8]) -> bool {
        false
    }
    /// Takes a completion and returns its result: bytes, or a negative errno. `data` is empty where the port moves none.
    fn done(&mut self, _io: &PilotIo, record: &Record, _data: &[u8]) -> i64 {
        record.result
    }
}

/// Does I/Os in the place of an engine, one at a time, on the thread that issues them.
pub trait Performer: Send {
    /// Whether buffers matter to it.
    fn carries_data(&self) -> bool {
        true
    }
    /// Does it. The result is as [`Record::result`]: bytes done (0 for syncs and trims), or a negative errno.
    fn perform(&mut self, io: &PilotIo, data: &mut [u8]) -> i64;
}

/// Makes the performer of a thread, with the files of its job.
pub type MakePerformer =
    Arc<dyn Fn(u32, Vec<Arc<File>>) -> Result<Box<dyn Performer>, String> + Send + Sync>;

/// Makes the pilot of a thread.
pub type MakePilot = Arc<dyn Fn(u32) -> Box<dyn Pilot> + Send + Sync>;

/// What a thread does before its first I/O (an I/O priority, say); it is told its number in the job.
pub type Enter = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// A job's pilots and what they need.
#[derive(Clone, Default)]
pub struct Guide {
    /// One per thread; `None` where the job's own pattern is enough.
    pub pilot: Option<MakePilot>,
    /// Operations beside those of the job's pattern.
    pub ops: Vec<Op>,
    /// Files beside the destination, opened as the job's `direct` says.
    pub files: Vec<Arc<File>>,
    /// What its threads do first; only on real ports.
    pub enter: Option<Enter>,
    /// What its threads do last before they begin, when all that they need is open.
    pub last: Option<Enter>,
    /// Does the I/O in the place of the job's engine; the job has a depth of one per thread then.
    pub performer: Option<MakePerformer>,
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Guide {{ ops: {:?}, files: {} }}",
            self.ops,
            self.files.len()
        )
    }
}

/// A pilot's place in its worker.
pub(super) struct PilotSeat {
    pub(super) pilot: Box<dyn Pilot>,
    /// Asked for and not issued yet; `None` inside stands for the job's own choice.
    held: Option<Option<PilotIo>>,
    /// Do not ask before; cleared by completions.
    pub(super) until: Option<Nanos>,
    pub(super) ended: bool,
    pub(super) landed: Vec<(u32, i64)>,
}

impl PilotSeat {
    pub(super) fn new(pilot: Box<dyn Pilot>, depth: u32) -> Self {
        Self {
            pilot,
            held: None,
            until: None,
            ended: false,
            landed: Vec::with_capacity(depth as usize),
        }
    }

    /// Whether an I/O may be issued.
    pub(super) fn ready(&mut self, now: Nanos) -> bool {
        if self.held.is_some() {
            return true;
        }
        if self.ended || self.until.is_some_and(|t| now < t) {
            return false;
        }
        self.until = None;
        match self.pilot.next(now) {
            Next::Own => self.held = Some(None),
            Next::Start(io) => self.held = Some(Some(io)),
            Next::At(t) => self.until = Some(t),
            Next::Drain => self.until = Some(Nanos::MAX),
            Next::End => self.ended = true,
        }
        self.held.is_some()
    }

    /// Takes what [`PilotSeat::ready`] found.
    pub(super) fn take(&mut self) -> Option<PilotIo> {
        self.held.take().flatten()
    }
}

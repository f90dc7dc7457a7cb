//! Traces of other systems, played again: read in any of the public formats, laid out on a target, fed to
//! a worker at the recorded times.
//!
//! A trace is read twice: once to check every record and to say what it holds (nothing has been opened
//! or written then), once to play it. Both passes stream; memory does not grow with the trace.

mod facts;
mod feed;
pub mod formats;
mod layout;
mod order;

use std::path::PathBuf;

use fathom_telemetry::{Nanos, Op};

pub use facts::{DeviceFacts, TraceFacts, survey};
pub use feed::{Feed, FeedHandle, Fidelity, Pacing, Playing, Score, Share, start};
pub use formats::{Events, Format, Source, open, trace_file};
pub use layout::{Fit, LONGEST, Layout};

/// One I/O of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIo {
    /// When it was issued, on the trace's own clock.
    pub at: Nanos,
    /// Which of the trace's devices: see [`Source::device`].
    pub device: u32,
    /// What it did.
    pub op: Op,
    /// Byte offset on that device.
    pub offset: u64,
    /// Bytes; 0 for a sync.
    pub len: u64,
    /// Until its completion, where the trace says.
    pub latency: Option<Nanos>,
}

/// Why a trace cannot be read or played.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}; check the path")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A record that is not what its format says.
    #[error("{path}, {place}: expected {expected}, found {found}; nothing was written")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// `line 17` or `byte 4800`.
        place: String,
        /// What should stand there.
        expected: String,
        /// What does.
        found: String,
    },
    /// No format fits.
    #[error(
        "{path}: not a trace that fathom knows: expected {expected}; name the format with --format"
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// All formats.
        expected: String,
    },
    /// The I/O log of a run cannot be read.
    #[error(transparent)]
    Log(#[from] fathom_telemetry::iolog::IoLogError),
    /// It does not fit what was asked for.
    #[error("{0}")]
    Unfit(String),
}

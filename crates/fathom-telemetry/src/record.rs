//! One I/O as the driver saw it.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// What an I/O did. The first three are the directions of the result; `Sync` is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Op {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Discard or hole punch.
    Trim = 2,
    /// fsync or fdatasync.
    Sync = 3,
}

impl Op {
    /// Every operation, in the order of its number.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Trim, Self::Sync];

    /// Lower-case name as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Sync => "sync",
        }
    }

    /// From its number (as stored in the I/O log).
    pub const fn from_index(i: usize) -> Option<Self> {
        match i {
            0 => Some(Self::Read),
            1 => Some(Self::Write),
            2 => Some(Self::Trim),
            3 => Some(Self::Sync),
            _ => None,
        }
    }
}

/// One I/O. Times are nanoseconds on the driver's clock; a job's records share one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it should have started: the schedule in open loop, the moment its slot became free in closed loop.
    pub intended: Nanos,
    /// When it was handed to the kernel (or the model).
    pub submitted: Nanos,
    /// When its completion was seen.
    pub completed: Nanos,
    /// Byte offset in the target.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u32,
    /// Bytes done (≥ 0) or the negative errno.
    pub result: i64,
    /// What it did.
    pub op: Op,
}

impl Record {
    /// Service latency: from submission.
    #[inline]
    pub fn service(&self) -> Nanos {
        self.completed.since(self.submitted)
    }
    /// Response latency: from the intended start.
    #[inline]
    pub fn response(&self) -> Nanos {
        self.completed.since(self.intended)
    }
    /// Submission latency: from the intended start to the hand-over.
    #[inline]
    pub fn submit(&self) -> Nanos {
        self.submitted.since(self.intended)
    }
    /// The errno, where it failed.
    pub fn errno(&self) -> Option<i32> {
        (self.result < 0).then(|| (-self.result) as i32)
    }
}

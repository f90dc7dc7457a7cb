//! What a host does with files of a directory that fathom made: phases whose operations are counted, as mdtest has them,
//! and steps that look at what other hosts did. Who does it is elsewhere; these are the words for it.

use fathom_telemetry::{Nanos, Op};
use serde::{Deserialize, Serialize};

/// Bytes of a block that [`Step::Write`] writes.
pub const BLOCK: usize = 4096;
/// Bytes of a record that [`Step::Append`] appends.
pub const RECORD: usize = 64;

/// What is done with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Made, and written where it has bytes.
    Create,
    /// Its attributes are asked for, by its name.
    Stat,
    /// A whole directory is read; a pass is an operation.
    List,
    /// Opened, read and closed.
    Read,
    /// Gets another name in the same directory.
    Rename,
    /// Removed.
    Remove,
}

impl Operation {
    /// As in names of jobs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }

    /// Whether it can be done again with the same files.
    pub const fn repeats(self) -> bool {
        matches!(self, Self::Stat | Self::Read)
    }

    /// How it is counted in a job.
    pub const fn op(self) -> Op {
        match self {
            Self::Create | Self::Rename | Self::Remove => Op::Write,
            Self::Stat | Self::List | Self::Read => Op::Read,
        }
    }
}

/// A phase of metadata operations, as all hosts or one of them do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// What is done.
    pub operation: Operation,
    /// In one directory of all hosts; else each host has its own.
    pub shared: bool,
    /// Of each file.
    pub bytes: u32,
    /// That each host makes, at most; of other operations, those that are there.
    pub files: u64,
    /// Hosts that do it at the same time: what all of them make needs room in one place.
    #[serde(default)]
    pub hosts: u64,
    /// Place of the host whose files they are.
    #[serde(default)]
    pub of: usize,
}

/// How a file is opened by [`Step::Open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// For reading, through the page cache.
    Buffered,
    /// For reading, past it.
    Direct,
    /// For reading, with its first block mapped.
    Mapped,
    /// For writing and locking.
    Write,
    /// For appending.
    Append,
}

/// Kinds of locks, each exclusive and on the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// flock(2).
    Flock,
    /// fcntl(2), of a process.
    Posix,
    /// fcntl(2), of an open file.
    Ofd,
}

/// One thing that a host does. Names have no directory. At most one file is open; it is closed at the end at the latest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Makes an empty file.
    Create(String),
    /// Opens a file, in place of the one that is open.
    Open(String, Access),
    /// Closes the open file, with its locks.
    Close,
    /// Writes a block of this word at the beginning of the open file, and syncs it.
    Write(u64),
    /// As this writer, appends so many records, each by a call of its own, and syncs the file.
    Append(u64, u64),
    /// Sets the time of modification of a file, in seconds since 1970.
    Touch(String, u64),
    /// Gives a file another name.
    Rename(String, String),
    /// Removes a file.
    Remove(String),
    /// A process of its own opens a file and locks it.
    Hold(String, LockKind),
    /// Kills that process.
    Kill,
    /// Does nothing.
    Pause(Nanos),
    /// Looks until it is so, once at least, and for so long at most.
    Until(Look, Nanos),
}

/// What a host looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// The open file begins with this word.
    Word(u64),
    /// The file, opened for this look, does.
    Reopened(String, u64),
    /// The open file has so many bytes.
    Size(u64),
    /// The file has so many bytes, by its name.
    SizeOf(String, u64),
    /// It was modified at this second, by its name.
    Modified(String, u64),
    /// There is a file of this name.
    There(String),
    /// There is none.
    Gone(String),
    /// The directory lists the name.
    Listed(String),
    /// The one name is gone, and the other is there.
    Renamed(String, String),
    /// The file, opened for this look, holds so many different records.
    Records(String, u64),
    /// The open file can be locked; the lock stays.
    Locked(LockKind),
}

/// Steps of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Until all hosts are ready.
    pub before: Vec<Step>,
    /// From the common start on.
    pub then: Vec<Step>,
}

/// What came of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When it began, ns; of a look, the last one.
    pub began: u64,
    /// When it ended, ns.
    pub ended: u64,
    /// Whether it is so, or was done.
    pub so: bool,
    /// How often it was looked.
    pub looks: u64,
    /// When the last look began that said no, ns.
    pub last_no: Option<u64>,
    /// What was counted: files, records, entries of a directory.
    pub counted: u64,
    /// Why it was not possible.
    pub error: Option<String>,
}

/// What came of a host's steps, on the clock of who asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenBy {
    /// Of [`Steps::before`].
    pub before: Vec<Seen>,
    /// Of [`Steps::then`].
    pub then: Vec<Seen>,
    /// Its times are known to this.
    pub bound: Nanos,
}

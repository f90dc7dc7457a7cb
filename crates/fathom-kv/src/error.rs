//! Why the engine could not do something, in one sentence each.

use std::io;

/// Why the engine could not do it.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The store failed.
    #[error("{what} at byte {offset} failed: {source}; look at the kernel log")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A page is not what was written.
    #[error(
        "page {page} at byte {offset} is damaged ({found}): expected what was written there; restore the store from a copy"
    )]
    Damaged {
        /// Logical page, or position of an overflow page.
        page: u64,
        /// Where.
        offset: u64,
        /// What is wrong with it.
        found: &'static str,
    },
    /// No store of this engine.
    #[error("no intact header was found in the store: create a new one, or name another file")]
    NoStore,
    /// An option out of range.
    #[error("{0}")]
    Options(String),
    /// The system refused a thread.
    #[error("{0}")]
    Thread(String),
    /// A value too long for the log.
    #[error(
        "a value of {len} bytes is too long: at most {max} fit this store; make it with a larger log"
    )]
    TooLong {
        /// Bytes of the value.
        len: u64,
        /// Most that is possible.
        max: u64,
    },
    /// No page is left.
    #[error(
        "the store is full: all of its {pages} pages are in use; make it larger, or store fewer keys"
    )]
    Full {
        /// Pages of the store.
        pages: u64,
    },
    /// All frames are latched.
    #[error(
        "every one of the {frames} frames of the pool is in use: use a larger pool, or fewer threads"
    )]
    Frames {
        /// Frames of the pool.
        frames: u64,
    },
    /// An earlier failure ended the engine's work.
    #[error("the engine stopped after an earlier failure: {0}")]
    Stopped(String),
    /// The tree contradicts itself.
    #[error("the tree is inconsistent: {0}")]
    Inconsistent(String),
}

/// What every operation returns.
pub(crate) type Result<T> = std::result::Result<T, KvError>;

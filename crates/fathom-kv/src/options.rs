//! How a store is made and used.

use std::time::Duration;

use crate::error::{KvError, Result};

/// When a change is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the operation returns: logged and synced, together with others that wait (group commit).
    Commit,
    /// With the next checkpoint; nothing is logged.
    Checkpoint,
}

/// How a store is made and used.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a page: a power of two, 4 KiB to 64 KiB. A store keeps the size it was made with.
    pub page_bytes: u64,
    /// Bytes of cached leaves; at least 64 pages are cached.
    pub pool_bytes: u64,
    /// Bytes of the log. The longest value is an eighth of it. A store keeps the size it was made with.
    pub log_bytes: u64,
    /// When a change is durable.
    pub durability: Durability,
    /// Time between checkpoints; without, they are made when store or log need room, and when asked for.
    pub checkpoint_every: Option<Duration>,
    /// Whether a thread writes changed pages before their frames are needed; without, who needs a frame does.
    pub write_ahead: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            pool_bytes: 64 << 20,
            log_bytes: 64 << 20,
            durability: Durability::Commit,
            checkpoint_every: Some(Duration::from_secs(1)),
            write_ahead: true,
        }
    }
}

impl Options {
    /// Frames that a pool has at least.
    pub const FRAMES_MIN: u64 = 64;

    pub(crate) fn check(&self) -> Result<()> {
        if !self.page_bytes.is_power_of_two() || !(4096..=65536).contains(&self.page_bytes) {
            return Err(KvError::Options(format!(
                "pages of {} bytes are not possible: expected 4096, 8192, 16384, 32768 or 65536",
                self.page_bytes
            )));
        }
        if self.log_bytes < 128 << 10 {
            return Err(KvError::Options(format!(
                "a log of {} bytes is too small: expected 128 KiB or more",
                self.log_bytes
            )));
        }
        Ok(())
    }
}

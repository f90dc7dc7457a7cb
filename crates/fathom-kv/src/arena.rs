//! Grows without moving: what was pushed can be read by number without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const CHUNK: usize = 4096;
type Chunk<T> = OnceLock<Box<[OnceLock<T>]>>;

pub(crate) struct Arena<T> {
    chunks: Box<[Chunk<T>]>,
    len: AtomicU32,
}

impl<T> Arena<T> {
    /// Holds at least `most` items.
    pub(crate) fn new(most: u64) -> Self {
        let chunks = most.div_ceil(CHUNK as u64).max(1) as usize;
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            len: AtomicU32::new(0),
        }
    }
    /// Pushed so far (one that is being pushed counts).
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }
    /// Adds an item; `None` where there is no room.
    pub(crate) fn push(&self, item: T) -> Option<u32> {
        let most = (self.chunks.len() * CHUNK).min(u32::MAX as usize) as u32;
        let update = |n: u32| (n < most).then_some(n + 1);
        let n = self
            .len
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update)
            .ok()?;
        let chunk = self.chunks[n as usize / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        chunk[n as usize % CHUNK].set(item).ok()?;
        Some(n)
    }
    /// By number.
    #[inline]
    pub(crate) fn get(&self, n: u32) -> Option<&T> {
        self.chunks.get(n as usize / CHUNK)?.get()?[n as usize % CHUNK].get()
    }
}

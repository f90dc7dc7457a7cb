//! The frames: memory of cached pages with a latch each, replaced by the clock.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::buf::PageBuf;

/// The frame is empty.
pub(crate) const NO_PAGE: u32 = u32::MAX;

/// What a frame holds.
pub(crate) struct Content {
    pub(crate) page: u32,
    pub(crate) buf: PageBuf,
}

/// Memory of one page.
pub(crate) struct Frame {
    pub(crate) latch: RwLock<Content>,
    /// Used since the hand came by.
    pub(crate) used: AtomicBool,
    /// Epoch of changes that are not on the store; 0 where there are none. Changed under the latch only.
    pub(crate) dirty: AtomicU64,
}

/// See the module.
pub(crate) struct Pool {
    pub(crate) frames: Box<[Frame]>,
    hand: AtomicUsize,
    pub(crate) dirty: AtomicU64,
}

impl Pool {
    pub(crate) fn new(frames: usize, page_bytes: usize) -> Self {
        let frame = |_| Frame {
            latch: RwLock::new(Content {
                page: NO_PAGE,
                buf: PageBuf::new(page_bytes),
            }),
            used: AtomicBool::new(false),
            dirty: AtomicU64::new(0),
        };
        Self {
            frames: (0..frames).map(frame).collect(),
            hand: AtomicUsize::new(0),
            dirty: AtomicU64::new(0),
        }
    }
    /// The next frame under the hand.
    pub(crate) fn next(&self) -> usize {
        self.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len()
    }
    /// Notes that a frame changed in `epoch` (0: it is on the store).
    pub(crate) fn mark(&self, frame: &Frame, epoch: u64) {
        let before = frame.dirty.swap(epoch, Ordering::AcqRel);
        match (before, epoch) {
            (0, 1..) => self.dirty.fetch_add(1, Ordering::Relaxed),
            (1.., 0) => self.dirty.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

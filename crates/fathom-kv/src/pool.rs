//! The frames: memory of cached pages with a latch each, replaced by the clock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, RwLock};
use std::thread::Thread;

use crate::buf::PageBuf;
use crate::turns;

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

impl Frame {
    /// Whether it has changes of `epoch` or before that are not on the store.
    pub(crate) fn changed_by(&self, epoch: u64) -> bool {
        (1..=epoch).contains(&self.dirty.load(Ordering::Acquire))
    }
}

pub(crate) struct Pool {
    pub(crate) frames: Box<[Frame]>,
    hand: AtomicUsize,
    /// Who writes changed pages before the hand comes to them.
    pub(crate) writer: OnceLock<Thread>,
    /// The hand has gone on since the writer looked; in a simulation, where it is no thread.
    nudged: AtomicBool,
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
            writer: OnceLock::new(),
            nudged: AtomicBool::new(false),
            dirty: AtomicU64::new(0),
        }
    }
    /// Share of the frames that the hand has come to: the first time round all before it are free.
    pub(crate) fn filled(&self) -> f64 {
        let seen = self.hand.load(Ordering::Relaxed) as f64;
        (seen / self.frames.len() as f64).min(1.0)
    }
    /// The next frame under the hand.
    pub(crate) fn next(&self) -> usize {
        let at = self.hand.fetch_add(1, Ordering::Relaxed);
        if at.is_multiple_of(self.window() / 2) {
            self.nudge();
        }
        at % self.frames.len()
    }
    /// Wakes the writer.
    pub(crate) fn nudge(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        } else if turns::is_player() {
            self.nudged.store(true, Ordering::Relaxed);
            turns::say(self.word());
        }
    }
    /// The writer waits until it is nudged; at once where it was since it looked.
    pub(crate) fn wait_for_nudge(&self) {
        if !turns::is_player() {
            return std::thread::park();
        }
        if !self.nudged.swap(false, Ordering::Relaxed) {
            turns::wait_for(self.word(), None);
            self.nudged.store(false, Ordering::Relaxed);
        }
    }
    fn word(&self) -> usize {
        std::ptr::from_ref(&self.nudged).addr()
    }
    /// Frames that the hand will come to next, the nearest first.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = usize> {
        // Those under the hand itself are contended.
        let first = self.hand.load(Ordering::Relaxed) + self.window() / 8;
        (first..first + self.window()).map(|at| at % self.frames.len())
    }
    /// How far ahead changed pages are written: long enough for a write, and so short that few pages change again before
    /// the hand comes.
    fn window(&self) -> usize {
        const MOST: usize = 1024;
        (self.frames.len() / 4).clamp(2, MOST)
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

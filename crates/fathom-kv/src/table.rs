//! The table of pages: where each is on the store, in which epoch it got there, and which frame holds it.
//!
//! A page is never overwritten where a durable checkpoint names it. Each entry has a lock of its own,
//! held for nanoseconds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arena::Arena;
use crate::error::{KvError, Result};
use crate::space::Space;
use crate::sync::lock;

/// Not written yet.
pub(crate) const NOWHERE: u64 = u64::MAX >> 1;
/// In no frame.
pub(crate) const NO_FRAME: u32 = u32::MAX;

/// What changes of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Where {
    /// Place on the store.
    pub(crate) place: u64,
    /// Epoch in which it was put there.
    epoch: u64,
    /// Where it was before that epoch.
    before: u64,
    /// Frame that holds it, or is about to.
    pub(crate) frame: u32,
}

/// One page.
pub(crate) struct Entry {
    /// Smallest key that may be in it; it never changes.
    pub(crate) low: u64,
    /// Whether it has ever held a value that lies outside of it.
    pub(crate) overflows: AtomicBool,
    pub(crate) at: Mutex<Where>,
}

pub(crate) struct Table {
    entries: Arena<Entry>,
}

impl Table {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            entries: Arena::new(most),
        }
    }
    pub(crate) fn len(&self) -> u32 {
        self.entries.len()
    }
    /// A new page.
    pub(crate) fn add(&self, low: u64, place: u64, epoch: u64, overflows: bool) -> Result<u32> {
        let at = Where {
            place,
            epoch,
            before: NOWHERE,
            frame: NO_FRAME,
        };
        let entry = Entry {
            low,
            overflows: AtomicBool::new(overflows),
            at: Mutex::new(at),
        };
        self.entries.push(entry).ok_or(KvError::Full {
            pages: u64::from(self.len()),
        })
    }
    pub(crate) fn get(&self, page: u32) -> Result<&Entry> {
        self.entries.get(page).ok_or_else(|| {
            KvError::Inconsistent(format!("page {page} is named but does not exist"))
        })
    }
}

impl Entry {
    /// Where the page has to be written in `epoch`: in place if nothing durable is there.
    pub(crate) fn relocate(&self, epoch: u64, space: &Space) -> Result<u64> {
        let mut at = lock(&self.at);
        if at.place != NOWHERE && at.epoch == epoch {
            return Ok(at.place);
        }
        let new = space.take()?;
        if at.place != NOWHERE {
            space.retire(epoch, at.place);
        }
        (at.before, at.place, at.epoch) = (at.place, new, epoch);
        Ok(new)
    }
    /// Place in the checkpoint of `epoch`, with the overflow mark in the highest bit.
    pub(crate) fn saved(&self, epoch: u64) -> u64 {
        let at = lock(&self.at);
        let place = if at.epoch <= epoch {
            at.place
        } else {
            at.before
        };
        place | u64::from(self.overflows.load(Ordering::Relaxed)) << 63
    }
}

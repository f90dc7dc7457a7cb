//! Keeps changes and the cut of a checkpoint apart: a change passes one of many slots, so that changes do
//! not meet each other; the cut closes them all for a moment.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::sync::{Waits, read, write_at_last};
use crate::turns;

const SLOTS: usize = 64;

/// On a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Slot(RwLock<()>);

pub(crate) struct Gate {
    slots: Box<[Slot]>,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
        }
    }
    /// For one change. Whoever is inside must not wait for a latch of a frame: those who hold one wait here.
    pub(crate) fn pass(&self, waits: &Waits) -> RwLockReadGuard<'_, ()> {
        // Players of a simulation share a thread.
        let mine = turns::player().map_or_else(|| MINE.get(), |p| p % SLOTS);
        read(&self.slots[mine].0, waits)
    }
    /// Waits for all changes inside and keeps others out.
    pub(crate) fn close(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        // SLOTS are closed in one order by one checkpoint at a time.
        self.slots.iter().map(|s| write_at_last(&s.0)).collect()
    }
}

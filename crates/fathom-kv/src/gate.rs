//! Keeps changes and the cut of a checkpoint apart: a change passes one of many slots, so that changes do
//! not meet each other; the cut closes them all for a moment.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::sync::{Waits, read};

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
        read(&self.slots[MINE.get()].0, waits)
    }
    /// Waits for all changes inside and keeps others out.
    pub(crate) fn close(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        fn close(s: &Slot) -> RwLockWriteGuard<'_, ()> {
            // SLOTS are closed in one order by one checkpoint at a time.
            s.0.write().unwrap_or_else(PoisonError::into_inner)
        }
        let mut all = Vec::with_capacity(SLOTS);
        for s in &self.slots {
            all.push(close(s));
        }
        all
    }
}

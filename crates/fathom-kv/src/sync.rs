//! Locks that go on after a panic elsewhere: what they guard is checked by checksums, not by poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::{TryLockError, atomic::AtomicU64, atomic::Ordering};

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn try_write<T>(l: &RwLock<T>) -> Option<RwLockWriteGuard<'_, T>> {
    match l.try_write() {
        Ok(g) => Some(g),
        Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Takes the lock; where it had to wait, adds one and the ns to the counters.
pub(crate) fn read<'a, T>(l: &'a RwLock<T>, waits: &Waits) -> RwLockReadGuard<'a, T> {
    match l.try_read() {
        Ok(g) => g,
        Err(TryLockError::Poisoned(p)) => p.into_inner(),
        Err(TryLockError::WouldBlock) => {
            waits.time(|| l.read().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

/// As [`read`], for writing.
pub(crate) fn write<'a, T>(l: &'a RwLock<T>, waits: &Waits) -> RwLockWriteGuard<'a, T> {
    match try_write(l) {
        Some(g) => g,
        None => waits.time(|| l.write().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// How often, and for how long, something was waited for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) count: AtomicU64,
    pub(crate) ns: AtomicU64,
}

impl Waits {
    /// Runs `f` and counts the time it took.
    pub(crate) fn time<T>(&self, f: impl FnOnce() -> T) -> T {
        let began = fathom_io::clock::monotonic();
        let value = f();
        let took = fathom_io::clock::monotonic().0.saturating_sub(began.0);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(took, Ordering::Relaxed);
        value
    }
}

//! Locks that go on after a panic elsewhere: what they guard is checked by checksums, not by poisoning. Whoever has to
//! wait in a simulation gives its turn up (`turns`).

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::sync::{TryLockError, atomic::AtomicU64, atomic::Ordering};
use std::time::Duration;

use crate::turns;

/// Held for nanoseconds and never over I/O: in a simulation it is always free.
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

fn try_read<T>(l: &RwLock<T>) -> Option<RwLockReadGuard<'_, T>> {
    match l.try_read() {
        Ok(g) => Some(g),
        Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Tries until it has it; `None` where the caller is no player of a simulation.
fn in_turns<G>(mut attempt: impl FnMut() -> Option<G>) -> Option<G> {
    let mut got = None;
    turns::wait_until(|| {
        got = attempt();
        got.is_some()
    });
    got
}

/// Takes the lock; where it had to wait, adds one and the ns to the counters.
pub(crate) fn read<'a, T>(l: &'a RwLock<T>, waits: &Waits) -> RwLockReadGuard<'a, T> {
    let wait = || {
        in_turns(|| try_read(l)).unwrap_or_else(|| l.read().unwrap_or_else(PoisonError::into_inner))
    };
    try_read(l).unwrap_or_else(|| waits.time(wait))
}

/// As [`read`], for writing.
pub(crate) fn write<'a, T>(l: &'a RwLock<T>, waits: &Waits) -> RwLockWriteGuard<'a, T> {
    try_write(l).unwrap_or_else(|| waits.time(|| write_at_last(l)))
}

/// The same, uncounted.
pub(crate) fn write_at_last<T>(l: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    in_turns(|| try_write(l)).unwrap_or_else(|| l.write().unwrap_or_else(PoisonError::into_inner))
}

/// Something that others wait for under a lock.
#[derive(Default)]
pub(crate) struct Signal(Condvar);

impl Signal {
    fn word(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Gives the lock back, waits, and takes it again.
    pub(crate) fn wait<'a, T>(
        &self,
        m: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        if !turns::is_player() {
            return self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        turns::wait_for(self.word(), None);
        lock(m)
    }

    /// The same for so long at most; whether that was over.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        m: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        if !turns::is_player() {
            let waited = self.0.wait_timeout(guard, most);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            return (guard, timeout.timed_out());
        }
        drop(guard);
        let said = turns::wait_for(self.word(), Some(most));
        (lock(m), said == Some(false))
    }

    /// Whoever waits goes on.
    pub(crate) fn notify(&self) {
        self.0.notify_all();
        turns::say(self.word());
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
        let began = turns::now();
        let value = f();
        let took = turns::now().saturating_sub(began);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(took, Ordering::Relaxed);
        value
    }
}

//! `lockfile`: jobs that use the same file take turns.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use fathom_telemetry::Op;

/// Who excludes whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turns {
    /// One I/O at a time.
    Exclusive,
    /// Several reads, or one of the others.
    ReadWrite,
}

/// The lock of one file.
#[derive(Debug, Default)]
pub struct FileLock {
    /// Reads under way; `None` while something else is.
    readers: Mutex<Readers>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Readers {
    reading: u32,
    writing: bool,
}

impl FileLock {
    fn take(&self, shared: bool) {
        let busy = |r: &mut Readers| r.writing || (!shared && r.reading > 0);
        let held = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.change.wait_while(held, busy);
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        if shared {
            held.reading += 1;
        } else {
            held.writing = true;
        }
    }

    fn give(&self, shared: bool) {
        let mut held = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if shared {
            held.reading = held.reading.saturating_sub(1);
        } else {
            held.writing = false;
        }
        drop(held);
        self.change.notify_all();
    }
}

/// A thread's part: the locks of its files. What it holds when it ends is given back.
pub(super) struct Taking {
    turns: Turns,
    files: Vec<Arc<FileLock>>,
    held: Option<(usize, bool)>,
}

impl Taking {
    pub(super) fn new(turns: Turns, files: Vec<Arc<FileLock>>) -> Self {
        Self {
            turns,
            files,
            held: None,
        }
    }

    /// Waits for its turn.
    pub(super) fn begin(&mut self, file: u16, op: Op) {
        let shared = self.turns == Turns::ReadWrite && op == Op::Read;
        if let Some(lock) = self.files.get(usize::from(file)) {
            lock.take(shared);
            self.held = Some((usize::from(file), shared));
        }
    }

    pub(super) fn end(&mut self) {
        if let Some((file, shared)) = self.held.take() {
            self.files[file].give(shared);
        }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;

    /// Writers are alone, readers are not, and everybody gets a turn.
    #[test]
    fn turns_are_kept() {
        for (turns, most) in [(Turns::Exclusive, 1), (Turns::ReadWrite, 4)] {
            let lock = Arc::new(FileLock::default());
            let inside = AtomicI32::new(0);
            let seen = AtomicI32::new(0);
            std::thread::scope(|s| {
                for n in 0..4 {
                    let (lock, inside, seen) = (lock.clone(), &inside, &seen);
                    s.spawn(move || {
                        let mut taking = Taking::new(turns, vec![lock]);
                        for i in 0..200 {
                            let writes = (i + n) % 8 == 0;
                            taking.begin(0, if writes { Op::Write } else { Op::Read });
                            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                            seen.fetch_max(now, Ordering::SeqCst);
                            assert!(now <= most && (now == 1 || !writes));
                            std::thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            taking.end();
                        }
                    });
                }
            });
            assert_eq!(inside.into_inner(), 0);
            assert!(seen.into_inner() >= 1);
        }
    }
}

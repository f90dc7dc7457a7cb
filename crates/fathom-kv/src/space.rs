//! Places of pages: which are free, and which become free once a checkpoint no longer names them.

use std::sync::Mutex;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crate::error::{KvError, Result};
use crate::sync::{Waits, lock};

const SHARDS: usize = 16;

pub(crate) struct Space {
    total: u64,
    /// Places never used begin here.
    fresh: AtomicU64,
    shards: [Mutex<Vec<u64>>; SHARDS],
    turn: AtomicUsize,
    free: AtomicI64,
    /// Replaced in the epoch beside them: an older checkpoint still names them.
    retired: [Mutex<Vec<(u64, u64)>>; SHARDS],
    waits: Waits,
}

impl Space {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            fresh: AtomicU64::new(0),
            shards: Default::default(),
            turn: AtomicUsize::new(0),
            free: AtomicI64::new(total as i64),
            retired: Default::default(),
            waits: Waits::default(),
        }
    }
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
    /// Places that can be taken now.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed).max(0) as u64
    }
    /// How often and long the lists of free places were waited for.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }
    /// Takes a free place.
    pub(crate) fn take(&self) -> Result<u64> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for i in 0..SHARDS {
            let shard = &self.shards[(first + i) % SHARDS];
            let mut list = match shard.try_lock() {
                Ok(g) => g,
                Err(TryLockError::Poisoned(p)) => p.into_inner(),
                Err(TryLockError::WouldBlock) => self.waits.time(|| lock(shard)),
            };
            if let Some(place) = list.pop() {
                self.free.fetch_sub(1, Ordering::Relaxed);
                return Ok(place);
            }
        }
        let update = |n: u64| (n < self.total).then_some(n + 1);
        match self
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
        {
            Ok(place) => {
                self.free.fetch_sub(1, Ordering::Relaxed);
                Ok(place)
            }
            Err(_) => Err(KvError::Full { pages: self.total }),
        }
    }
    /// Gives back a place that no checkpoint names.
    pub(crate) fn give(&self, place: u64) {
        let shard = self.turn.fetch_add(1, Ordering::Relaxed) % SHARDS;
        lock(&self.shards[shard]).push(place);
        self.free.fetch_add(1, Ordering::Relaxed);
    }
    /// A place that the checkpoint of `epoch` will be the first not to name.
    pub(crate) fn retire(&self, epoch: u64, place: u64) {
        lock(&self.retired[place as usize % SHARDS]).push((epoch, place));
    }
    /// The checkpoint of `epoch` is durable.
    pub(crate) fn release(&self, epoch: u64) {
        for shard in &self.retired {
            let mut freed = Vec::new();
            lock(shard).retain(|(e, place)| {
                if *e <= epoch {
                    freed.push(*place);
                }
                *e > epoch
            });
            freed.into_iter().for_each(|p| self.give(p));
        }
    }
    /// After recovery: exactly these are used.
    pub(crate) fn restore(&self, used: &[bool]) {
        let fresh = used.iter().rposition(|u| *u).map_or(0, |n| n as u64 + 1);
        self.fresh.store(fresh, Ordering::Relaxed);
        self.free
            .store((self.total - fresh) as i64, Ordering::Relaxed);
        (0..fresh)
            .filter(|p| !used[*p as usize])
            .for_each(|p| self.give(p));
    }
}

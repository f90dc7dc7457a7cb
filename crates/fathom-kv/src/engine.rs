//! The engine as its users see it: options, operations, and the thread that makes checkpoints.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::core::Core;
use crate::error::{KvError, Result};
use crate::hands::Hand;
use crate::leaf::{Leaf, NO_PAGE};
use crate::log::{Change, Log, Room};
use crate::options::{Durability, Options};
use crate::recover;
use crate::stats::Stats;
use crate::store::Store;
use crate::sync::{Signal, lock};

/// What the thread that makes checkpoints is told, and tells.
#[derive(Default)]
struct Bell {
    wanted: bool,
    stop: bool,
    /// Checkpoints begun and ended.
    begun: u64,
    ended: u64,
}

struct Shared {
    core: Arc<Core>,
    bell: Mutex<Bell>,
    ring: Signal,
    done: Signal,
}

/// An open tree from 64-bit keys to values; shared by reference between threads.
pub struct Engine {
    shared: Arc<Shared>,
    durability: Durability,
    keeper: Option<Hand>,
    writer: Option<Hand>,
}

impl Engine {
    /// Makes an empty tree; whatever the store held is lost.
    ///
    /// # Errors
    /// Where an option is out of range, or the store fails.
    pub fn create(store: Arc<dyn Store>, options: &Options) -> Result<Self> {
        options.check()?;
        Self::start(recover::create(store, options)?, options)
    }

    /// Opens a tree as the last checkpoint and the log say; page and log sizes are the store's own.
    ///
    /// # Errors
    /// Where there is no tree, or it is damaged.
    pub fn open(store: Arc<dyn Store>, options: &Options) -> Result<Self> {
        options.check()?;
        Self::start(recover::open(store, options)?, options)
    }

    fn start(core: Arc<Core>, options: &Options) -> Result<Self> {
        let shared = Arc::new(Shared {
            core,
            bell: Mutex::default(),
            ring: Signal::default(),
            done: Signal::default(),
        });
        let mine = Arc::clone(&shared);
        let every = options.checkpoint_every;
        let keeper = Hand::start("kv-checkpoint", move || keep(&mine, every))?;
        // Complete before more can fail: dropping it ends the thread that there is.
        let mut me = Self {
            shared,
            durability: options.durability,
            keeper: Some(keeper),
            writer: None,
        };
        if options.write_ahead {
            let mine = Arc::clone(&me.shared);
            let writer = Hand::start("kv-writer", move || write_ahead(&mine))?;
            if let Hand::Thread(writer) = &writer {
                let _ = me.core().pool.writer.set(writer.thread().clone());
            }
            me.writer = Some(writer);
        }
        Ok(me)
    }

    fn core(&self) -> &Core {
        &self.shared.core
    }

    /// Copies the value of a key; `false` (and an empty `value`) where there is none.
    ///
    /// # Errors
    /// Where the store fails or a page is damaged.
    pub fn get(&self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let content = self.core().leaf_for_read(key)?;
        match Leaf(&content.buf).get(key) {
            Some(v) => self.core().copy(v, value).map(|()| true),
            None => Ok(false),
        }
    }

    /// Stores a value, 0 bytes or more; returns whether there was one.
    ///
    /// # Errors
    /// Where the value is too long, the store is full or fails. The change may then be lost or not.
    pub fn put(&self, key: u64, value: &[u8]) -> Result<bool> {
        self.change(key, Change::Put(value), value.len())
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub fn delete(&self, key: u64) -> Result<bool> {
        self.change(key, Change::Delete, 0)
    }

    fn change(&self, key: u64, change: Change<'_>, len: usize) -> Result<bool> {
        let core = self.core();
        let max = Log::longest(&core.layout);
        if len as u64 > max {
            return Err(KvError::TooLong {
                len: len as u64,
                max,
            });
        }
        core.working()?;
        let logged = self.durability == Durability::Commit;
        self.make_room(core.overflow_pages(len), || self.shrinks(key, change))?;
        let admitted = logged.then(|| self.admit(len)).transpose()?;
        let done = core.change(key, change, logged);
        drop(admitted);
        let (existed, position) = done?;
        if let Some(position) = position {
            let wait = || core.log.wait(position, &*core.store, &core.counters);
            core.counters.log.time(wait)?;
            crate::stats::add(&core.counters.commits, 1);
        }
        Ok(existed)
    }

    /// Waits for a checkpoint where the store could not take all changed pages, and the change's.
    /// The last pages are for changes that take no more room than there was (`shrinks`).
    fn make_room(&self, pages: u64, shrinks: impl FnOnce() -> Result<bool>) -> Result<()> {
        /// For splits and changes that are under way.
        const RESERVE: u64 = 32;
        const LAST: u64 = 24;
        let core = self.core();
        let needed = || core.pool.dirty.load(Ordering::Relaxed) + RESERVE + pages;
        if core.space.free() < needed() + core.space.total() / 16 {
            lock(&self.shared.bell).wanted = true;
            self.shared.ring.notify();
        }
        // The checkpoint under way may have begun before pages were replaced that the next one frees.
        for _ in 0..3 {
            if core.space.free() >= needed() {
                return Ok(());
            }
            core.counters.stall.time(|| self.checkpoint())?;
        }
        if core.space.free() >= needed() {
            return Ok(());
        }
        if core.space.free() + LAST >= needed() && shrinks()? {
            return Ok(());
        }
        Err(KvError::Full {
            pages: core.space.total(),
        })
    }

    /// Whether the leaf will not need more bytes than it has, and no chain.
    fn shrinks(&self, key: u64, change: Change<'_>) -> Result<bool> {
        let Change::Put(new) = change else {
            return Ok(true);
        };
        let content = self.core().leaf_for_read(key)?;
        let old = Leaf(&content.buf).get(key);
        Ok(matches!(old, Some(crate::leaf::Value::Here(v)) if v.len() >= new.len()))
    }

    fn admit(&self, len: usize) -> Result<Admitted<'_>> {
        let core = self.core();
        loop {
            match core.log.admit(len) {
                Room::None => core.counters.stall.time(|| self.checkpoint())?,
                Room::Soon => {
                    lock(&self.shared.bell).wanted = true;
                    self.shared.ring.notify();
                    break;
                }
                Room::Enough => break,
            }
        }
        Ok(Admitted {
            log: &core.log,
            len,
        })
    }

    /// Calls `each` with up to `limit` keys from `first` on and their values, in order; returns how many
    /// there were. Each leaf is seen as of one moment, the whole range is not.
    ///
    /// # Errors
    /// As [`Engine::get`].
    pub fn scan(
        &self,
        first: u64,
        limit: usize,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<usize> {
        let core = self.core();
        let mut value = Vec::new();
        let mut seen = 0;
        let mut content = core.leaf_for_read(first)?;
        loop {
            let leaf = Leaf(&content.buf);
            let start = leaf.find(first).unwrap_or_else(|i| i);
            for i in start..leaf.count() {
                if seen == limit {
                    return Ok(seen);
                }
                core.copy(leaf.value(i), &mut value)?;
                each(leaf.key(i), &value);
                seen += 1;
            }
            let right = leaf.right();
            if seen == limit || right == NO_PAGE {
                return Ok(seen);
            }
            // One latch at a time: what moves right meanwhile is met there.
            drop(content);
            content = core.read_page(right)?;
        }
    }

    /// Makes all changes durable that returned before the call.
    ///
    /// # Errors
    /// Where the store failed: the engine takes no more changes then.
    pub fn checkpoint(&self) -> Result<()> {
        let mut bell = lock(&self.shared.bell);
        // One that has begun may have missed the latest changes.
        let target = bell.begun + 1;
        bell.wanted = true;
        self.shared.ring.notify();
        while bell.ended < target && !bell.stop {
            self.core().working()?;
            bell = self.shared.done.wait(&self.shared.bell, bell);
        }
        self.core().working()
    }

    /// Counters since the tree was opened.
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let mut s = core.counters.read();
        let inner = core.index.waits();
        s.latch_waits += inner.count.load(Ordering::Relaxed);
        s.latch_wait_ns += inner.ns.load(Ordering::Relaxed);
        let space = core.space.waits();
        s.space_waits = space.count.load(Ordering::Relaxed);
        s.space_wait_ns = space.ns.load(Ordering::Relaxed);
        s
    }

    /// Leaves of the tree.
    pub fn leaves(&self) -> u64 {
        u64::from(self.core().table.len())
    }

    /// Frames of the pool.
    pub fn frames(&self) -> u64 {
        self.core().pool.frames.len() as u64
    }

    /// Share of the pool's frames that have been handed out since the tree was opened; 1 from when one had to be taken back.
    pub fn filled(&self) -> f64 {
        self.core().pool.filled()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.core().layout.page_bytes
    }

    /// Pages that the store has room for, and how many of them are free.
    pub fn space(&self) -> (u64, u64) {
        (self.core().space.total(), self.core().space.free())
    }

    /// Walks the whole tree and counts; nothing may change meanwhile.
    ///
    /// # Errors
    /// Where the tree contradicts itself, with the contradiction.
    pub fn check(&self) -> Result<crate::Census> {
        self.core().check()
    }

    /// Ends with a checkpoint. (Dropping ends without: what is not logged since the last one is lost.)
    ///
    /// # Errors
    /// Where the checkpoint fails.
    pub fn close(self) -> Result<()> {
        self.checkpoint()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        lock(&self.shared.bell).stop = true;
        self.shared.ring.notify();
        if let Some(keeper) = self.keeper.take() {
            keeper.join();
        }
        if let Some(writer) = self.writer.take() {
            self.core().pool.nudge();
            writer.join();
        }
    }
}

/// Writes changed pages ahead of the hand, whenever it has gone on.
fn write_ahead(shared: &Shared) {
    while !lock(&shared.bell).stop {
        // Who comes to the page meets a failure again, and reports it.
        if !shared.core.clean_ahead().unwrap_or(false) {
            shared.core.pool.wait_for_nudge();
        }
    }
}

/// Room in the log for one change.
struct Admitted<'a> {
    log: &'a Log,
    len: usize,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.log.leave(self.len);
    }
}

/// The thread that makes checkpoints, as long as it lives. Who waits for one must not wait for a dead one.
struct Keeping<'a>(&'a Shared);

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "the thread that makes checkpoints broke off";
            let _ = self.0.core.failed.set(why.to_owned());
        }
        // Under the lock, so that nobody begins to wait after it.
        let _bell = lock(&self.0.bell);
        self.0.done.notify();
    }
}

/// Makes checkpoints when they are due or asked for.
fn keep(shared: &Shared, every: Option<Duration>) {
    let _alive = Keeping(shared);
    let mut bell = lock(&shared.bell);
    loop {
        let mut due = false;
        while !bell.wanted && !bell.stop && !due {
            bell = match every {
                Some(every) => {
                    let (b, over) = shared.ring.wait_timeout(&shared.bell, bell, every);
                    due = over;
                    b
                }
                None => shared.ring.wait(&shared.bell, bell),
            };
        }
        if bell.stop {
            return;
        }
        bell.wanted = false;
        bell.begun += 1;
        drop(bell);
        if shared.core.failed.get().is_none()
            && let Err(e) = shared.core.checkpoint()
        {
            let _ = shared.core.failed.set(e.to_string());
        }
        bell = lock(&shared.bell);
        bell.ended = bell.begun;
        shared.done.notify();
    }
}

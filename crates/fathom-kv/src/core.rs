//! Leaves through the pool: found, loaded, evicted, changed, split.
//!
//! Order of locks: latch of a leaf, then gate, then latch of an inner node, then the lock of a table entry.
//! A second frame is only ever tried for, so nobody waits in a circle; batches of pages to be written, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLockReadGuard, RwLockWriteGuard};

use crate::buf::{is_sealed, seal};
use crate::error::{KvError, Result};
use crate::gate::Gate;
use crate::index::Index;
use crate::leaf::{Leaf, LeafMut, Value, split_for};
use crate::log::{Change, Log};
use crate::meta::{Layout, io};
use crate::pool::{Content, Frame, NO_PAGE, Pool};
use crate::space::Space;
use crate::stats::{Counters, add};
use crate::store::Store;
use crate::sync::{lock, read, try_write, write};
use crate::table::{NO_FRAME, NOWHERE, Table};
use crate::turns;

/// Rounds of the hand after which a frame is given up.
const ROUNDS: usize = 10_000;
/// Pages that one thread writes at the same time.
const BATCH: usize = 16;

/// Everything that operations share.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) layout: Layout,
    pub(crate) id: u64,
    pub(crate) table: Table,
    pub(crate) pool: Pool,
    pub(crate) space: Space,
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) gate: Gate,
    /// Of changes made now; the checkpoint of the one before is durable or under way.
    pub(crate) epoch: AtomicU64,
    pub(crate) counters: Counters,
    /// Why nothing can be changed any more; every change asks, so it must cost a load and no lock.
    pub(crate) failed: OnceLock<String>,
}

/// A leaf under its shared latch.
pub(crate) type Reading<'a> = RwLockReadGuard<'a, Content>;

/// A leaf under its exclusive latch.
pub(crate) struct Writing<'a> {
    pub(crate) frame: &'a Frame,
    index: u32,
    pub(crate) content: RwLockWriteGuard<'a, Content>,
}

impl Writing<'_> {
    pub(crate) fn leaf(&self) -> Leaf<'_> {
        Leaf(&self.content.buf)
    }
    fn leaf_mut(&mut self) -> LeafMut<'_> {
        LeafMut(&mut self.content.buf)
    }
}

impl Core {
    /// Whether changes are still taken: not after a checkpoint failed.
    pub(crate) fn working(&self) -> Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(KvError::Stopped(why.clone())),
        }
    }
    /// The leaf that holds, or would hold, a key.
    pub(crate) fn leaf_for_read(&self, key: u64) -> Result<Reading<'_>> {
        let mut page = self.index.leaf(key)?;
        loop {
            let content = self.read_page(page)?;
            let leaf = Leaf(&content.buf);
            if !leaf.is_left_of(key) {
                return Ok(content);
            }
            page = leaf.right();
        }
    }
    /// The same, to change it.
    pub(crate) fn leaf_for_write(&self, key: u64) -> Result<Writing<'_>> {
        let mut page = self.index.leaf(key)?;
        loop {
            let writing = self.write_page(page)?;
            if !writing.leaf().is_left_of(key) {
                return Ok(writing);
            }
            page = writing.leaf().right();
        }
    }
    /// A page under its shared latch.
    pub(crate) fn read_page(&self, page: u32) -> Result<Reading<'_>> {
        let mut missed = false;
        loop {
            let index = lock(&self.table.get(page)?.at).frame;
            if index == NO_FRAME {
                missed |= self.load(page)?.is_some();
                continue;
            }
            let frame = &self.pool.frames[index as usize];
            let content = read(&frame.latch, &self.counters.latch);
            // It may have been evicted between the two.
            if content.page == page {
                if !missed {
                    frame.used.store(true, Ordering::Relaxed);
                    add(&self.counters.hits, 1);
                }
                return Ok(content);
            }
        }
    }
    fn write_page(&self, page: u32) -> Result<Writing<'_>> {
        loop {
            let index = lock(&self.table.get(page)?.at).frame;
            if index == NO_FRAME {
                match self.load(page)? {
                    Some(writing) => return Ok(writing),
                    None => continue,
                }
            }
            let frame = &self.pool.frames[index as usize];
            let content = write(&frame.latch, &self.counters.latch);
            if content.page == page {
                frame.used.store(true, Ordering::Relaxed);
                add(&self.counters.hits, 1);
                return Ok(Writing {
                    frame,
                    index,
                    content,
                });
            }
        }
    }
    /// Reads a page into a frame; `None` where someone else is doing so.
    fn load(&self, page: u32) -> Result<Option<Writing<'_>>> {
        let mut w = self.claim()?;
        let entry = self.table.get(page)?;
        let place = {
            let mut at = lock(&entry.at);
            if at.frame != NO_FRAME {
                return Ok(None);
            }
            at.frame = w.index;
            at.place
        };
        w.content.page = page;
        add(&self.counters.misses, 1);
        if let Err(e) = self.fill(&mut w.content, page, place) {
            w.content.page = NO_PAGE;
            lock(&entry.at).frame = NO_FRAME;
            return Err(e);
        }
        // Not marked as used: the hand comes to it last, and whoever asks for it again before marks it.
        Ok(Some(w))
    }
    fn fill(&self, content: &mut Content, page: u32, place: u64) -> Result<()> {
        if place == NOWHERE {
            return Err(KvError::Inconsistent(format!(
                "page {page} has no place on the store"
            )));
        }
        let offset = self.layout.page(place);
        self.store
            .read(offset, &mut content.buf)
            .map_err(|e| io("reading a leaf", offset, e))?;
        let found = if is_sealed(&content.buf, place) {
            Leaf(&content.buf).fault(page)
        } else {
            Some("its checksum does not match")
        };
        match found {
            None => Ok(()),
            Some(found) => Err(KvError::Damaged {
                page: u64::from(page),
                offset,
                found,
            }),
        }
    }
    /// An empty frame under its exclusive latch; evicts the first page that was not used since the last round.
    fn claim(&self) -> Result<Writing<'_>> {
        let n = self.pool.frames.len();
        if let Some(w) = self.sweep(2 * n)? {
            return Ok(w);
        }
        self.counters.frame.time(|| {
            for _ in 0..ROUNDS {
                self.let_others();
                if let Some(w) = self.sweep(2 * n)? {
                    return Ok(w);
                }
            }
            Err(KvError::Frames { frames: n as u64 })
        })
    }
    /// Others may free a frame meanwhile.
    fn let_others(&self) {
        let mut looked = false;
        if !turns::wait_until(|| std::mem::replace(&mut looked, true)) {
            std::thread::yield_now();
        }
    }
    fn sweep(&self, steps: usize) -> Result<Option<Writing<'_>>> {
        for _ in 0..steps {
            let index = self.pool.next();
            let frame = &self.pool.frames[index];
            if frame.used.load(Ordering::Relaxed) {
                frame.used.store(false, Ordering::Relaxed);
                continue;
            }
            let Some(content) = try_write(&frame.latch) else {
                continue;
            };
            let mut w = Writing {
                frame,
                index: index as u32,
                content,
            };
            let page = w.content.page;
            if page != NO_PAGE {
                if self.clean(&mut w)? {
                    add(&self.counters.evicted, 1);
                }
                lock(&self.table.get(page)?.at).frame = NO_FRAME;
                w.content.page = NO_PAGE;
            }
            return Ok(Some(w));
        }
        Ok(None)
    }
    /// Writes a changed page to where its epoch wants it; `false` where it had not changed.
    pub(crate) fn clean(&self, w: &mut Writing<'_>) -> Result<bool> {
        let Some(offset) = self.sealed(w)? else {
            return Ok(false);
        };
        self.store
            .write(offset, &w.content.buf)
            .map_err(|e| io("writing a leaf", offset, e))?;
        self.pool.mark(w.frame, 0);
        Ok(true)
    }
    /// The same for several at the same time, whose latches are released; returns how many were written.
    fn clean_all(&self, batch: &mut Vec<Writing<'_>>) -> Result<u64> {
        let mut offsets = Vec::with_capacity(batch.len());
        for w in &mut *batch {
            offsets.push(self.sealed(w)?);
        }
        let pages: Vec<(u64, &[u8])> = offsets
            .iter()
            .zip(&*batch)
            .filter_map(|(offset, w)| Some(((*offset)?, &w.content.buf[..])))
            .collect();
        let n = pages.len() as u64;
        if let Some((first, _)) = pages.first() {
            self.store
                .write_many(&pages)
                .map_err(|e| io("writing leaves", *first, e))?;
        }
        batch.drain(..).for_each(|w| self.pool.mark(w.frame, 0));
        Ok(n)
    }
    /// Makes a page ready to be written; where, or `None` where it had not changed.
    fn sealed(&self, w: &mut Writing<'_>) -> Result<Option<u64>> {
        let epoch = w.frame.dirty.load(Ordering::Acquire);
        if epoch == 0 {
            return Ok(None);
        }
        let entry = self.table.get(w.content.page)?;
        let place = entry.relocate(epoch, &self.space)?;
        seal(&mut w.content.buf, place);
        Ok(Some(self.layout.page(place)))
    }
    /// A latched frame, where it holds a page that was changed in `epoch` or before: that may have ended since somebody
    /// looked without the latch.
    fn still_changed<'a>(
        &'a self,
        index: usize,
        content: RwLockWriteGuard<'a, Content>,
        epoch: u64,
    ) -> Option<Writing<'a>> {
        let frame = &self.pool.frames[index];
        let index = index as u32;
        (frame.changed_by(epoch) && content.page != NO_PAGE).then_some(Writing {
            frame,
            index,
            content,
        })
    }
    /// Writes what was changed in `epoch` or before and is in a frame whose number `next` gives, until it gives none.
    pub(crate) fn clean_frames(
        &self,
        epoch: u64,
        mut next: impl FnMut() -> Option<usize>,
    ) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(index) = next() {
            let frame = &self.pool.frames[index];
            if !frame.changed_by(epoch) {
                continue;
            }
            let content = match try_write(&frame.latch) {
                Some(content) => content,
                None => {
                    // Nobody shall wait for a page of the batch while this waits for another.
                    add(&self.counters.flushed, self.clean_all(&mut batch)?);
                    write(&frame.latch, &self.counters.latch)
                }
            };
            batch.extend(self.still_changed(index, content, epoch));
            if batch.len() == BATCH {
                add(&self.counters.flushed, self.clean_all(&mut batch)?);
            }
        }
        add(&self.counters.flushed, self.clean_all(&mut batch)?);
        Ok(())
    }
    /// Writes changed pages that the hand comes to next, so that whoever needs a frame finds it clean; `false` where
    /// there was nothing to do.
    pub(crate) fn clean_ahead(&self) -> Result<bool> {
        const ANY: u64 = u64::MAX;
        let mut batch = Vec::with_capacity(BATCH);
        for index in self.pool.ahead() {
            let frame = &self.pool.frames[index];
            if frame.used.load(Ordering::Relaxed) || !frame.changed_by(ANY) {
                continue;
            }
            if let Some(content) = try_write(&frame.latch) {
                batch.extend(self.still_changed(index, content, ANY));
            }
            if batch.len() == BATCH {
                break;
            }
        }
        let n = self.clean_all(&mut batch)?;
        add(&self.counters.evicted, n);
        Ok(n > 0)
    }
    /// Before a page changes in `epoch`: a version that the checkpoint under way still wants is written.
    fn touch(&self, w: &mut Writing<'_>, epoch: u64) -> Result<()> {
        let dirty = w.frame.dirty.load(Ordering::Acquire);
        if dirty != 0 && dirty < epoch && self.clean(w)? {
            add(&self.counters.flushed, 1);
        }
        self.pool.mark(w.frame, epoch);
        Ok(())
    }
    /// Applies a change; returns whether the key was there, and the position in the log to wait for.
    pub(crate) fn change(
        &self,
        key: u64,
        change: Change<'_>,
        logged: bool,
    ) -> Result<(bool, Option<u64>)> {
        let chained = match change {
            Change::Put(v) if self.overflow_pages(v.len()) > 0 => Some(self.write_chain(v)?),
            _ => None,
        };
        let done = self.change_leaf(key, change, chained, logged);
        if let (Err(_), Some(Value::Elsewhere { len, place })) = (&done, chained) {
            // Nothing names the chain: its places can be used again (what cannot be read is lost until
            // the next opening).
            let mut places = Vec::new();
            let _ = self.chain(len, place, |p, _| places.push(p));
            places.into_iter().for_each(|p| self.space.give(p));
        }
        done
    }
    fn change_leaf(
        &self,
        key: u64,
        change: Change<'_>,
        chained: Option<Value<'_>>,
        logged: bool,
    ) -> Result<(bool, Option<u64>)> {
        let mut w = self.leaf_for_write(key)?;
        let _inside = self.gate.pass(&self.counters.latch);
        let epoch = self.epoch.load(Ordering::Acquire);
        let old = w.leaf().get(key);
        let existed = old.is_some();
        let mut replaced = Vec::new();
        if let Some(Value::Elsewhere { len, place }) = old {
            self.chain(len, place, |p, _| replaced.push(p))?;
        }
        if existed || matches!(change, Change::Put(_)) {
            self.touch(&mut w, epoch)?;
        }
        match change {
            Change::Delete => {
                w.leaf_mut().remove(key);
            }
            Change::Put(v) => self.put(&mut w, key, chained.unwrap_or(Value::Here(v)), epoch)?,
        }
        replaced
            .into_iter()
            .for_each(|p| self.space.retire(epoch, p));
        let position = logged.then(|| self.log.append(key, change));
        Ok((existed, position))
    }
    fn put(&self, w: &mut Writing<'_>, key: u64, value: Value<'_>, epoch: u64) -> Result<()> {
        let entry = self.table.get(w.content.page)?;
        if matches!(value, Value::Elsewhere { .. }) {
            entry.overflows.store(true, Ordering::Relaxed);
        }
        if w.leaf_mut().put(key, value) {
            return Ok(());
        }
        let mut right = self.claim()?;
        let at = split_for(w.leaf(), key);
        // Marks are copied generously: a leaf that is asked for chains in vain costs one read at opening.
        let overflows = entry.overflows.load(Ordering::Relaxed);
        let page = self.table.add(at.key, NOWHERE, epoch, overflows)?;
        w.leaf_mut().split(&mut right.content.buf, page, at);
        right.content.page = page;
        self.pool.mark(right.frame, epoch);
        right.frame.used.store(true, Ordering::Relaxed);
        lock(&self.table.get(page)?.at).frame = right.index;
        add(&self.counters.splits, 1);
        self.index.insert(at.key, page)?;
        let fits = if key >= at.key {
            right.leaf_mut().put(key, value)
        } else {
            w.leaf_mut().put(key, value)
        };
        if fits {
            return Ok(());
        }
        Err(KvError::Inconsistent(format!(
            "key {key} does not fit into a leaf that was just split"
        )))
    }
}

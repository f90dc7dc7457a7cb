//! The checkpoint: a cut between two epochs, then everything of the older one goes to the store while
//! operations go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buf::{PageBuf, put, seal};
use crate::core::Core;
use crate::error::Result;
use crate::hands;
use crate::leaf::TABLE;
use crate::meta::{BLOCK, ENTRIES, Header, io};
use crate::stats::add;
use crate::turns;

/// Threads that write pages at the same time.
const WRITERS: usize = 4;
/// Blocks of the table in one write.
const BATCH: usize = 64;

impl Core {
    /// Makes everything durable that was changed before the call. One at a time: the caller sees to it.
    pub(crate) fn checkpoint(self: &Arc<Self>) -> Result<()> {
        let began = turns::now();
        // Half `epoch % 2` of the log will be used again: nothing of the last epoch but one may be left.
        self.log.flush(&*self.store, &self.counters)?;
        let closed = turns::now();
        let (epoch, pages, log_start) = {
            let _cut = self.gate.close();
            let epoch = self.epoch.fetch_add(1, Ordering::AcqRel);
            (epoch, self.table.len(), self.log.rotate(epoch + 1))
        };
        add(&self.counters.cut_ns, turns::now() - closed);
        self.write_dirty(epoch)?;
        self.write_table(epoch, pages)?;
        let sync = || self.store.sync().map_err(|e| io("syncing the store", 0, e));
        sync()?;
        let header = Header {
            layout: self.layout,
            id: self.id,
            epoch,
            pages: u64::from(pages),
            log_start,
        };
        header.write(&*self.store)?;
        sync()?;
        self.space.release(epoch);
        add(&self.counters.checkpoints, 1);
        add(&self.counters.checkpoint_ns, turns::now() - began);
        Ok(())
    }
    /// Writes what was changed in `epoch` or before.
    fn write_dirty(self: &Arc<Self>, epoch: u64) -> Result<()> {
        let next = Arc::new(AtomicUsize::new(0));
        let end = self.pool.frames.len();
        let (me, counter) = (Arc::clone(self), Arc::clone(&next));
        let work = move || {
            me.clean_frames(epoch, || {
                let i = counter.fetch_add(1, Ordering::Relaxed);
                (i < end).then_some(i)
            })
        };
        if self.pool.dirty.load(Ordering::Relaxed) < 2 * WRITERS as u64 {
            return work();
        }
        // All or none: with fewer, a checkpoint would be another one.
        let stop = || next.store(end, Ordering::Relaxed);
        hands::together(WRITERS, work, &stop)
    }
    fn write_table(&self, epoch: u64, pages: u32) -> Result<()> {
        let blocks = u64::from(pages).div_ceil(ENTRIES) as usize;
        let mut b = PageBuf::new(BATCH.min(blocks) * BLOCK as usize);
        let mut page = 0;
        for batch in (0..blocks).step_by(BATCH) {
            let count = BATCH.min(blocks - batch);
            b.fill(0);
            for i in 0..count {
                let block = &mut b[i * BLOCK as usize..(i + 1) * BLOCK as usize];
                block[12] = TABLE;
                for e in 1..=ENTRIES as usize {
                    if page == pages {
                        break;
                    }
                    let entry = self.table.get(page)?;
                    put(block, e * 16, &entry.low.to_le_bytes());
                    put(block, e * 16 + 8, &entry.saved(epoch).to_le_bytes());
                    page += 1;
                }
                seal(block, table_seed(epoch, batch + i));
            }
            let offset = self.layout.table(epoch) + batch as u64 * BLOCK;
            self.store
                .write(offset, &b[..count * BLOCK as usize])
                .map_err(|e| io("writing the table of pages", offset, e))?;
        }
        Ok(())
    }
}

/// A block of another epoch, or another one, is not taken for this.
pub(crate) fn table_seed(epoch: u64, block: usize) -> u64 {
    epoch << 32 | block as u64
}

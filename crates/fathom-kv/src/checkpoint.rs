//! The checkpoint: a cut between two epochs, then everything of the older one goes to the store while
//! operations go on.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buf::{PageBuf, put, seal};
use crate::core::Core;
use crate::error::{KvError, Result};
use crate::leaf::TABLE;
use crate::meta::{BLOCK, ENTRIES, Header, io};
use crate::stats::add;

/// Threads that write pages at the same time.
const WRITERS: usize = 4;
/// Blocks of the table in one write.
const BATCH: usize = 64;

impl Core {
    /// Makes everything durable that was changed before the call. One at a time: the caller sees to it.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let now = || fathom_io::clock::monotonic().0;
        let began = now();
        // Half `epoch % 2` of the log will be used again: nothing of the last epoch but one may be left.
        self.log.flush(&*self.store, &self.counters)?;
        let closed = now();
        let (epoch, pages, log_start) = {
            let _cut = self.gate.close();
            let epoch = self.epoch.fetch_add(1, Ordering::AcqRel);
            (epoch, self.table.len(), self.log.rotate(epoch + 1))
        };
        add(&self.counters.cut_ns, now() - closed);
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
        add(&self.counters.checkpoint_ns, now() - began);
        Ok(())
    }
    /// Writes what was changed in `epoch` or before.
    fn write_dirty(&self, epoch: u64) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || {
            self.clean_frames(epoch, || {
                let i = next.fetch_add(1, Ordering::Relaxed);
                (i < self.pool.frames.len()).then_some(i)
            })
        };
        if self.pool.dirty.load(Ordering::Relaxed) < 2 * WRITERS as u64 {
            return work();
        }
        std::thread::scope(|scope| {
            // All or none: with fewer, a checkpoint would be another one.
            let mut writers = Vec::new();
            for _ in 0..WRITERS {
                match fathom_io::threads::within(scope, work) {
                    Ok(writer) => writers.push(writer),
                    Err(e) => {
                        next.store(self.pool.frames.len(), Ordering::Relaxed);
                        return Err(KvError::Thread(e.to_string()));
                    }
                }
            }
            for w in writers {
                // A panic goes on where the checkpoint was asked for.
                match w.join() {
                    Ok(done) => done?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(())
        })
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

//! Makes a store, or brings one back to what was acknowledged: last checkpoint, then the log.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::buf::{PageBuf, get64, is_sealed, seal};
use crate::checkpoint::table_seed;
use crate::core::Core;
use crate::error::{KvError, Result};
use crate::gate::Gate;
use crate::index::Index;
use crate::leaf::{Leaf, LeafMut, NO_PAGE, Value};
use crate::log::{self, Log};
use crate::meta::{BLOCK, ENTRIES, Header, Layout, io};
use crate::options::Options;
use crate::pool::Pool;
use crate::space::Space;
use crate::stats::Counters;
use crate::store::Store;
use crate::table::{NOWHERE, Table};

/// After an opening, epochs go on from a number that no frame of the log has seen. Odd, so that neither the
/// header nor the table of the last checkpoint is overwritten.
const LEAP: u64 = 3;

/// A new, empty tree; what the store held is lost.
pub(crate) fn create(store: Arc<dyn Store>, options: &Options) -> Result<Arc<Core>> {
    let layout = Layout::new(store.len(), options.page_bytes, options.log_bytes)?;
    let write = |offset: u64, b: &[u8]| {
        store
            .write(offset, b)
            .map_err(|e| io("making the store", offset, e))
    };
    let sync = || store.sync().map_err(|e| io("syncing the store", 0, e));
    // First an older tree's headers go: it would be half overwritten.
    write(0, &PageBuf::new(2 * BLOCK as usize))?;
    sync()?;
    let id = crate::turns::now();
    let mut page = PageBuf::new(layout.page_bytes as usize);
    LeafMut(&mut page).format(0, 0, None, NO_PAGE);
    seal(&mut page, 0);
    write(layout.page(0), &page)?;
    let space = Space::new(layout.places);
    let place = space.take()?;
    let table = Table::new(layout.places);
    table.add(0, place, 1, false)?;
    let index = Index::new(&[(0, 0)], layout.places)?;
    let parts = (table, space, index);
    let core = Arc::new(core(store, layout, id, options, parts, 1, 0));
    core.checkpoint()?;
    Ok(core)
}

/// The tree of a store.
pub(crate) fn open(store: Arc<dyn Store>, options: &Options) -> Result<Arc<Core>> {
    let header = Header::read(&*store)?;
    let layout = header.layout;
    let mut places = Vec::new();
    let mut leaves = Vec::new();
    let table = Table::new(layout.places);
    for (page, (low, saved)) in read_table(&*store, &header)?.into_iter().enumerate() {
        let place = saved & NOWHERE;
        if place >= layout.places {
            return Err(KvError::Inconsistent(format!(
                "page {page} lies at place {place}, which does not exist"
            )));
        }
        let overflows = saved >> 63 == 1;
        table.add(low, place, header.epoch, overflows)?;
        leaves.push((low, page as u32));
        places.push((page as u32, place, overflows));
    }
    leaves.sort_unstable();
    if leaves.first().is_none_or(|l| l.0 != 0) || leaves.windows(2).any(|w| w[0].0 == w[1].0) {
        return Err(KvError::Inconsistent(
            "the leaves of the table do not cover all keys once".into(),
        ));
    }
    let index = Index::new(&leaves, layout.places)?;
    let space = Space::new(layout.places);
    let epoch = header.epoch + LEAP;
    let parts = (table, space, index);
    let core = Arc::new(core(
        store,
        layout,
        header.id,
        options,
        parts,
        epoch,
        header.log_start,
    ));
    let mut used = vec![false; layout.places as usize];
    let mut twice = None;
    let mut mark = |place: u64| {
        if std::mem::replace(&mut used[place as usize], true) {
            twice = Some(place);
        }
    };
    for (page, place, overflows) in places {
        mark(place);
        if !overflows {
            continue;
        }
        let content = core.read_page(page)?;
        let leaf = Leaf(&content.buf);
        for i in 0..leaf.count() {
            if let Value::Elsewhere { len, place } = leaf.value(i) {
                core.chain(len, place, |p, _| mark(p))?;
            }
        }
    }
    if let Some(place) = twice {
        return Err(KvError::Inconsistent(format!(
            "place {place} is named by two pages"
        )));
    }
    core.space.restore(&used);
    // No checkpoint may come between, or the rest of the log would be lost; there is room, because the
    // same changes had room when they were made.
    log::replay(&*core.store, &header, |key, change| {
        core.change(key, change, false).map(|_| ())
    })?;
    // Also where nothing was replayed: the next log must not follow on an older one of the same epoch.
    core.checkpoint()?;
    Ok(core)
}

fn core(
    store: Arc<dyn Store>,
    layout: Layout,
    id: u64,
    options: &Options,
    (table, space, index): (Table, Space, Index),
    epoch: u64,
    log_start: u64,
) -> Core {
    let frames = (options.pool_bytes / layout.page_bytes).max(Options::FRAMES_MIN) as usize;
    Core {
        log: Log::new(layout, id, epoch, log_start),
        pool: Pool::new(frames, layout.page_bytes as usize),
        store,
        layout,
        id,
        table,
        space,
        index,
        gate: Gate::new(),
        epoch: AtomicU64::new(epoch),
        counters: Counters::default(),
        failed: OnceLock::new(),
    }
}

fn read_table(store: &dyn Store, header: &Header) -> Result<Vec<(u64, u64)>> {
    let mut entries = Vec::with_capacity(header.pages as usize);
    let mut b = PageBuf::new(BLOCK as usize);
    for block in 0..header.pages.div_ceil(ENTRIES) {
        let offset = header.layout.table(header.epoch) + block * BLOCK;
        store
            .read(offset, &mut b)
            .map_err(|e| io("reading the table of pages", offset, e))?;
        if !is_sealed(&b, table_seed(header.epoch, block as usize)) {
            return Err(KvError::Damaged {
                page: block,
                offset,
                found: "its checksum does not match",
            });
        }
        let left = header.pages - block * ENTRIES;
        for e in 1..=left.min(ENTRIES) as usize {
            entries.push((get64(&b, e * 16), get64(&b, e * 16 + 8)));
        }
    }
    Ok(entries)
}

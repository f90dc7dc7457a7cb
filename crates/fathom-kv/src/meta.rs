//! Where things lie on the store, and the header that names the last checkpoint.
//!
//! Two headers of 4 KiB, the log in two halves, two tables of pages, then the pages. The checkpoint of
//! epoch `e` uses header and table `e % 2`; changes of epoch `e` are logged in half `e % 2`.

use crate::buf::{ALIGN, PageBuf, get64, is_sealed, put, seal};
use crate::error::{KvError, Result};
use crate::store::Store;

const MAGIC: u64 = u64::from_le_bytes(*b"fathomKV");
const VERSION: u64 = 1;
pub(crate) const BLOCK: u64 = ALIGN as u64;
/// Entries of 16 bytes in a block of the table, after its 16 bytes of header.
pub(crate) const ENTRIES: u64 = BLOCK / 16 - 1;

/// Sizes that never change once a store is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) page_bytes: u64,
    /// Of one half.
    pub(crate) log_bytes: u64,
    /// Of one table.
    table_bytes: u64,
    pub(crate) places: u64,
}

impl Layout {
    pub(crate) fn new(len: u64, page_bytes: u64, log_bytes: u64) -> Result<Self> {
        let log_bytes = (log_bytes / 2).next_multiple_of(BLOCK);
        let rest = len.saturating_sub(2 * BLOCK + 2 * log_bytes + page_bytes);
        // Each place costs its bytes and an entry in both tables.
        let places = rest.saturating_sub(4 * BLOCK) * ENTRIES / (page_bytes * ENTRIES + 2 * BLOCK);
        let places = places.min(u64::from(u32::MAX) - 1);
        if places < 64 {
            return Err(KvError::Options(format!(
                "a store of {len} bytes is too small for 64 pages of {page_bytes} bytes and a log of {}: make it larger",
                2 * log_bytes
            )));
        }
        Ok(Self {
            page_bytes,
            log_bytes,
            table_bytes: places.div_ceil(ENTRIES) * BLOCK,
            places,
        })
    }
    pub(crate) fn log(&self, epoch: u64) -> u64 {
        2 * BLOCK + epoch % 2 * self.log_bytes
    }
    pub(crate) fn table(&self, epoch: u64) -> u64 {
        2 * BLOCK + 2 * self.log_bytes + epoch % 2 * self.table_bytes
    }
    pub(crate) fn page(&self, place: u64) -> u64 {
        let first = 2 * BLOCK + 2 * self.log_bytes + 2 * self.table_bytes;
        first.next_multiple_of(self.page_bytes) + place * self.page_bytes
    }
}

/// A durable checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) layout: Layout,
    /// Tells this store's log from that of one that was here before.
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    /// Entries of the table.
    pub(crate) pages: u64,
    /// Position in the stream of log records where the log of the next epoch begins.
    pub(crate) log_start: u64,
}

impl Header {
    pub(crate) fn write(&self, store: &dyn Store) -> Result<()> {
        let mut b = PageBuf::new(ALIGN);
        let l = &self.layout;
        let fields = [
            0,
            MAGIC,
            VERSION,
            l.page_bytes,
            l.log_bytes,
            l.table_bytes,
            l.places,
            self.epoch,
            self.pages,
            self.log_start,
            self.id,
        ];
        for (i, f) in fields.iter().enumerate() {
            put(&mut b, i * 8, &f.to_le_bytes());
        }
        seal(&mut b, self.epoch % 2);
        let offset = self.epoch % 2 * BLOCK;
        store
            .write(offset, &b)
            .map_err(|source| io("writing a header", offset, source))
    }
    /// The newest intact one.
    pub(crate) fn read(store: &dyn Store) -> Result<Self> {
        let mut newest: Option<Self> = None;
        let mut b = PageBuf::new(ALIGN);
        for side in 0..2 {
            let offset = side * BLOCK;
            store
                .read(offset, &mut b)
                .map_err(|source| io("reading a header", offset, source))?;
            if get64(&b, 8) != MAGIC || get64(&b, 16) != VERSION || !is_sealed(&b, side) {
                continue;
            }
            let field = |i: usize| get64(&b, i * 8);
            let h = Self {
                layout: Layout {
                    page_bytes: field(3),
                    log_bytes: field(4),
                    table_bytes: field(5),
                    places: field(6),
                },
                epoch: field(7),
                pages: field(8),
                log_start: field(9),
                id: field(10),
            };
            let end = h.layout.page(h.layout.places);
            if newest.is_none_or(|n| n.epoch < h.epoch) && end <= store.len() {
                newest = Some(h);
            }
        }
        newest.ok_or(KvError::NoStore)
    }
}

/// An error of the store.
pub(crate) fn io(what: &'static str, offset: u64, source: std::io::Error) -> KvError {
    KvError::Io {
        what,
        offset,
        source,
    }
}

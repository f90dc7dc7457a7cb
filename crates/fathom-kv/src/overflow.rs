//! Values that do not fit into a leaf: chains of pages that are written once and never changed.
//!
//! Layout: checksum 8, unused 4, kind 1, unused 3, place of the next page 8, unused 8, then data.

use crate::buf::{PageBuf, get64, is_sealed, put, seal};
use crate::core::Core;
use crate::error::{KvError, Result};
use crate::leaf::{OVERFLOW, Value};
use crate::meta::io;
use crate::stats::add;

const HEADER: usize = 32;
/// No page follows.
const END: u64 = u64::MAX;

impl Core {
    /// Pages that a value needs outside of its leaf.
    pub(crate) fn overflow_pages(&self, len: usize) -> u64 {
        if len <= crate::leaf::longest(self.layout.page_bytes as usize) {
            return 0;
        }
        (len as u64).div_ceil(self.layout.page_bytes - HEADER as u64)
    }
    /// Writes a chain; nothing names it yet.
    pub(crate) fn write_chain(&self, value: &[u8]) -> Result<Value<'static>> {
        let mut places = Vec::new();
        let written = self.write_pages(value, &mut places);
        if let Err(e) = written {
            places.into_iter().for_each(|p| self.space.give(p));
            return Err(e);
        }
        Ok(Value::Elsewhere {
            len: value.len() as u64,
            place: places[0],
        })
    }
    fn write_pages(&self, value: &[u8], places: &mut Vec<u64>) -> Result<()> {
        for _ in 0..self.overflow_pages(value.len()) {
            places.push(self.space.take()?);
        }
        let page_bytes = self.layout.page_bytes as usize;
        let mut b = PageBuf::new(page_bytes);
        for (i, part) in value.chunks(page_bytes - HEADER).enumerate() {
            let next = places.get(i + 1).copied().unwrap_or(END);
            b[12] = OVERFLOW;
            put(&mut b, 16, &next.to_le_bytes());
            put(&mut b, HEADER, part);
            b[HEADER + part.len()..].fill(0);
            seal(&mut b, places[i]);
            let offset = self.layout.page(places[i]);
            self.store
                .write(offset, &b)
                .map_err(|e| io("writing an overflow page", offset, e))?;
            add(&self.counters.overflow_writes, 1);
        }
        Ok(())
    }
    /// Calls `each` with the place and the data of every page of a chain.
    pub(crate) fn chain(
        &self,
        len: u64,
        place: u64,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<()> {
        let mut b = PageBuf::new(self.layout.page_bytes as usize);
        let (mut left, mut place) = (len as usize, place);
        while left > 0 {
            if place >= self.layout.places {
                return Err(KvError::Inconsistent(format!(
                    "a value continues at place {place}, which does not exist"
                )));
            }
            let offset = self.layout.page(place);
            self.store
                .read(offset, &mut b)
                .map_err(|e| io("reading an overflow page", offset, e))?;
            add(&self.counters.overflow_reads, 1);
            if b[12] != OVERFLOW || !is_sealed(&b, place) {
                return Err(KvError::Damaged {
                    page: place,
                    offset,
                    found: "its checksum does not match",
                });
            }
            let n = left.min(b.len() - HEADER);
            each(place, &b[HEADER..HEADER + n]);
            left -= n;
            place = get64(&b, 16);
        }
        Ok(())
    }
    /// Copies a value.
    pub(crate) fn copy(&self, value: Value<'_>, to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        match value {
            Value::Here(v) => to.extend_from_slice(v),
            Value::Elsewhere { len, place } => {
                self.chain(len, place, |_, data| to.extend_from_slice(data))?;
            }
        }
        Ok(())
    }
}

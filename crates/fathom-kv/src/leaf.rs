//! A leaf as bytes: header, sorted slots of key and cell, cells from the end of the page.
//!
//! Layout (little endian): checksum 8, page 4, kind 1, flags 1, count 2, low 8, high 8, right 4,
//! heap 4, garbage 4, unused 4; then 12 bytes per slot: key 8, offset 2, length 2.

use crate::buf::{get16, get32, get64, put};

const HEADER: usize = 48;
const SLOT: usize = 12;
/// Kind of a page, at byte 12.
pub(crate) const LEAF: u8 = 1;
pub(crate) const OVERFLOW: u8 = 2;
pub(crate) const TABLE: u8 = 3;
/// Length of a cell that says where the value is.
const ELSEWHERE: u16 = u16::MAX;
/// Bytes of such a cell.
const REFERENCE: usize = 16;
/// No leaf to the right.
pub(crate) const NO_PAGE: u32 = u32::MAX;

/// A value in its leaf, or where it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    Here(&'a [u8]),
    /// Length, and the place of its first overflow page.
    Elsewhere {
        len: u64,
        place: u64,
    },
}

impl Value<'_> {
    fn bytes(&self) -> usize {
        match self {
            Value::Here(v) => v.len(),
            Value::Elsewhere { .. } => REFERENCE,
        }
    }
}

/// Longest value that is kept in a leaf: a page holds at least three.
pub(crate) fn longest(page_bytes: usize) -> usize {
    page_bytes / 4
}

/// A leaf to read.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a>(pub(crate) &'a [u8]);

impl<'a> Leaf<'a> {
    pub(crate) fn count(&self) -> usize {
        usize::from(get16(self.0, 14))
    }
    pub(crate) fn page(&self) -> u32 {
        get32(self.0, 8)
    }
    pub(crate) fn low(&self) -> u64 {
        get64(self.0, 16)
    }
    /// Keys from here on are in the leaf to the right.
    pub(crate) fn high(&self) -> Option<u64> {
        (self.0[13] & 1 != 0).then(|| get64(self.0, 24))
    }
    pub(crate) fn right(&self) -> u32 {
        get32(self.0, 32)
    }
    /// Whether the key belongs further right.
    pub(crate) fn is_left_of(&self, key: u64) -> bool {
        self.high().is_some_and(|h| key >= h)
    }
    pub(crate) fn key(&self, i: usize) -> u64 {
        get64(self.0, HEADER + i * SLOT)
    }
    pub(crate) fn value(&self, i: usize) -> Value<'a> {
        let at = HEADER + i * SLOT + 8;
        let (offset, len) = (usize::from(get16(self.0, at)), get16(self.0, at + 2));
        match len {
            0 => Value::Here(&[]),
            ELSEWHERE => Value::Elsewhere {
                len: get64(self.0, offset),
                place: get64(self.0, offset + 8),
            },
            n => Value::Here(&self.0[offset..offset + usize::from(n)]),
        }
    }
    /// Slot of the key, or where it would be.
    pub(crate) fn find(&self, key: u64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(&key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
    pub(crate) fn get(&self, key: u64) -> Option<Value<'a>> {
        self.find(key).ok().map(|i| self.value(i))
    }
    fn heap(&self) -> usize {
        get32(self.0, 36) as usize
    }
    fn garbage(&self) -> usize {
        get32(self.0, 40) as usize
    }
    fn gap(&self) -> usize {
        self.heap().saturating_sub(HEADER + self.count() * SLOT)
    }
    /// What is wrong with a page that came from the store, where something is: offsets outside would make
    /// later reads panic.
    pub(crate) fn fault(&self, page: u32) -> Option<&'static str> {
        if self.0[12] != LEAF {
            return Some("it is no leaf");
        }
        if self.page() != page {
            return Some("it is another page");
        }
        let slots = HEADER + self.count() * SLOT;
        if slots > self.heap() || self.heap() > self.0.len() {
            return Some("its slots and cells overlap");
        }
        let inside = |i: usize| {
            let at = HEADER + i * SLOT + 8;
            let bytes = match get16(self.0, at + 2) {
                0 => return true,
                ELSEWHERE => REFERENCE,
                n => usize::from(n),
            };
            let offset = usize::from(get16(self.0, at));
            offset >= self.heap() && offset + bytes <= self.0.len()
        };
        (!(0..self.count()).all(inside)).then_some("a cell lies outside")
    }
}

/// A leaf to change.
pub(crate) struct LeafMut<'a>(pub(crate) &'a mut [u8]);

impl LeafMut<'_> {
    /// An empty leaf for keys from `low` to below `high`.
    pub(crate) fn format(self, page: u32, low: u64, high: Option<u64>, right: u32) -> Self {
        let len = self.0.len() as u32;
        self.0[..HEADER].fill(0);
        put(self.0, 8, &page.to_le_bytes());
        self.0[12] = LEAF;
        self.0[13] = u8::from(high.is_some());
        put(self.0, 16, &low.to_le_bytes());
        put(self.0, 24, &high.unwrap_or(0).to_le_bytes());
        put(self.0, 32, &right.to_le_bytes());
        put(self.0, 36, &len.to_le_bytes());
        self
    }
    pub(crate) fn read(&self) -> Leaf<'_> {
        Leaf(self.0)
    }
    fn set_count(&mut self, n: usize) {
        put(self.0, 14, &(n as u16).to_le_bytes());
    }
    /// Puts a value; `false` where there is no room even after compaction (nothing has changed then).
    pub(crate) fn put(&mut self, key: u64, value: Value<'_>) -> bool {
        let found = self.read().find(key);
        let bytes = value.bytes();
        if let Ok(i) = found {
            let old = self.read().value(i).bytes();
            if old == bytes && bytes > 0 {
                let offset = usize::from(get16(self.0, HEADER + i * SLOT + 8));
                self.cell(offset, value);
                self.slot(i, key, offset, value);
                return true;
            }
            if bytes == 0 {
                self.add_garbage(old);
                self.slot(i, key, 0, value);
                return true;
            }
            if self.read().gap() + self.read().garbage() + old < bytes {
                return false;
            }
            if self.read().gap() < bytes {
                // The old cell must not survive compaction: make it empty first.
                self.slot(i, key, 0, Value::Here(&[]));
                self.compact();
            } else {
                self.add_garbage(old);
            }
            let offset = self.take(bytes);
            self.cell(offset, value);
            self.slot(i, key, offset, value);
            return true;
        }
        let Err(i) = found else { return false };
        if self.read().gap() < SLOT + bytes {
            if self.read().gap() + self.read().garbage() < SLOT + bytes {
                return false;
            }
            self.compact();
        }
        let n = self.read().count();
        let at = HEADER + i * SLOT;
        self.0.copy_within(at..HEADER + n * SLOT, at + SLOT);
        self.set_count(n + 1);
        let offset = if bytes > 0 { self.take(bytes) } else { 0 };
        self.cell(offset, value);
        self.slot(i, key, offset, value);
        true
    }
    /// Removes a key; `false` where it was not there.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Ok(i) = self.read().find(key) else {
            return false;
        };
        let old = self.read().value(i).bytes();
        self.add_garbage(old);
        let n = self.read().count();
        let at = HEADER + i * SLOT;
        self.0.copy_within(at + SLOT..HEADER + n * SLOT, at);
        self.set_count(n - 1);
        true
    }
    /// Moves the upper half of the bytes (nothing, where `key` comes after all others of the last leaf) to
    /// `right`, an empty frame that becomes page `page`; returns the smallest key of `right`.
    pub(crate) fn split(&mut self, right: &mut [u8], page: u32, at: Split) -> u64 {
        let (high, next) = (self.read().high(), self.read().right());
        let mut other = LeafMut(right).format(page, at.key, high, next);
        let n = self.read().count();
        for i in at.slot..n {
            let leaf = self.read();
            let fits = other.put(leaf.key(i), leaf.value(i));
            debug_assert!(fits, "half a leaf fits into a leaf");
        }
        self.set_count(at.slot);
        self.0[13] |= 1;
        put(self.0, 24, &at.key.to_le_bytes());
        put(self.0, 32, &page.to_le_bytes());
        self.compact();
        at.key
    }
    fn slot(&mut self, i: usize, key: u64, offset: usize, value: Value<'_>) {
        let at = HEADER + i * SLOT;
        let len = match value {
            Value::Here(v) => v.len() as u16,
            Value::Elsewhere { .. } => ELSEWHERE,
        };
        put(self.0, at, &key.to_le_bytes());
        put(self.0, at + 8, &(offset as u16).to_le_bytes());
        put(self.0, at + 10, &len.to_le_bytes());
    }
    fn cell(&mut self, offset: usize, value: Value<'_>) {
        match value {
            Value::Here([]) => {}
            Value::Here(v) => put(self.0, offset, v),
            Value::Elsewhere { len, place } => {
                put(self.0, offset, &len.to_le_bytes());
                put(self.0, offset + 8, &place.to_le_bytes());
            }
        }
    }
    fn take(&mut self, bytes: usize) -> usize {
        let heap = self.read().heap() - bytes;
        put(self.0, 36, &(heap as u32).to_le_bytes());
        heap
    }
    fn add_garbage(&mut self, bytes: usize) {
        let sum = (self.read().garbage() + bytes) as u32;
        put(self.0, 40, &sum.to_le_bytes());
    }
    /// Puts the cells together again.
    fn compact(&mut self) {
        let copy = self.0.to_vec();
        let old = Leaf(&copy);
        put(self.0, 36, &(copy.len() as u32).to_le_bytes());
        put(self.0, 40, &0u32.to_le_bytes());
        for i in 0..old.count() {
            let value = old.value(i);
            let bytes = value.bytes();
            let offset = if bytes > 0 { self.take(bytes) } else { 0 };
            self.cell(offset, value);
            self.slot(i, old.key(i), offset, value);
        }
    }
}

/// Where a leaf is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// First slot of the right half.
    slot: usize,
    /// Smallest key of the right half.
    pub(crate) key: u64,
}

/// Half of the bytes to each side; keys that come in order leave full leaves behind.
pub(crate) fn split_for(leaf: Leaf<'_>, key: u64) -> Split {
    let n = leaf.count();
    if leaf.right() == NO_PAGE && n > 0 && key > leaf.key(n - 1) {
        return Split { slot: n, key };
    }
    let size = |i| SLOT + leaf.value(i).bytes();
    let total: usize = (0..n).map(size).sum();
    let (mut sum, mut slot) = (0, 0);
    while slot + 1 < n && sum + size(slot) <= total / 2 {
        sum += size(slot);
        slot += 1;
    }
    let slot = slot.max(1).min(n.saturating_sub(1)).max(1);
    Split {
        slot,
        key: if slot < n { leaf.key(slot) } else { key },
    }
}

//! Dictionary columns: few distinct values (job, thread, operation, length, error),
//! stored as runs of indices.
//!
//! A page that holds one value costs four bytes. A row group with more distinct
//! values than fit goes on in plain 32-bit pages.

use std::collections::HashMap;

use super::thrift::put_varint;

/// Distinct values per row group. Indices then fit 15 bits; more would not be smaller than plain
/// values by much.
const ENTRIES_MAX: usize = 1 << 15;
/// Slots of the cache in front of the map; a power of two.
const CACHE: usize = 64;
/// Equal indices worth a run of their own inside packed ones.
const RUN_MIN: usize = 32;

/// The values of one column in one row group.
#[derive(Debug)]
pub(super) struct Dictionary {
    values: Vec<u32>,
    index: HashMap<u32, u16>,
    /// (value, index + 1): spares hashing while a job has few block sizes.
    cache: [(u32, u32); CACHE],
    /// Indices of the page, kept to spare the allocation.
    indices: Vec<u16>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            index: HashMap::new(),
            cache: [(0, 0); CACHE],
            indices: Vec::new(),
        }
    }
}

impl Dictionary {
    /// Values so far, in the order of their indices.
    pub(super) fn values(&self) -> &[u32] {
        &self.values
    }

    /// Begins a row group.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.index.clear();
        self.cache = [(0, 0); CACHE];
    }

    /// Appends a page of `count` times the same value; `false` (and nothing) where the dictionary is full.
    pub(super) fn constant_page(&mut self, out: &mut Vec<u8>, value: u32, count: usize) -> bool {
        let Some(i) = self.index_of(value) else {
            return false;
        };
        let width = width_of(i);
        out.push(width);
        run(out, width, i, count);
        true
    }

    /// Appends a page of any values; `false` (and nothing) where the dictionary is full.
    pub(super) fn page(&mut self, out: &mut Vec<u8>, values: impl Iterator<Item = u32>) -> bool {
        let mut indices = std::mem::take(&mut self.indices);
        indices.clear();
        let mut fits = true;
        for v in values {
            let Some(i) = self.index_of(v) else {
                fits = false;
                break;
            };
            indices.push(i);
        }
        if fits {
            let width = width_of(indices.iter().copied().max().unwrap_or(0));
            out.push(width);
            hybrid(out, width, &indices);
        }
        self.indices = indices;
        fits
    }

    /// `None` where the dictionary is full.
    #[inline]
    fn index_of(&mut self, v: u32) -> Option<u16> {
        let slot = (v.wrapping_mul(0x9e37_79b1) >> 26) as usize % CACHE;
        let (cached, index) = self.cache[slot];
        if cached == v && index > 0 {
            return Some((index - 1) as u16);
        }
        let i = match self.index.get(&v) {
            Some(i) => *i,
            None if self.values.len() < ENTRIES_MAX => {
                let i = self.values.len() as u16;
                self.values.push(v);
                self.index.insert(v, i);
                i
            }
            None => return None,
        };
        self.cache[slot] = (v, u32::from(i) + 1);
        Some(i)
    }
}

/// At least 1: a width of 0 is legal, but not every reader knows.
fn width_of(largest: u16) -> u8 {
    (16 - largest.leading_zeros()).max(1) as u8
}

fn run(out: &mut Vec<u8>, width: u8, index: u16, count: usize) {
    put_varint(out, (count as u64) << 1);
    out.extend_from_slice(&index.to_le_bytes()[..usize::from(width).div_ceil(8)]);
}

/// The RLE/bit-packing hybrid: packed groups of eight, and runs where they pay.
fn hybrid(out: &mut Vec<u8>, width: u8, indices: &[u16]) {
    let (mut packed_from, mut i) = (0, 0);
    // Runs are looked for at whole groups only, since packed values before a run come in groups.
    while let Some(next) = indices.get(i..i + RUN_MIN) {
        let one = next[0];
        if next.iter().fold(0, |differ, x| differ | (x ^ one)) != 0 {
            i += 8;
            continue;
        }
        packed(out, width, &indices[packed_from..i]);
        let length = indices[i..].iter().take_while(|x| **x == one).count();
        run(out, width, one, length);
        i += length;
        packed_from = i;
    }
    packed(out, width, &indices[packed_from..]);
}

fn packed(out: &mut Vec<u8>, width: u8, indices: &[u16]) {
    if indices.is_empty() {
        return;
    }
    let groups = indices.len().div_ceil(8);
    put_varint(out, (groups as u64) << 1 | 1);
    out.reserve(groups * usize::from(width));
    // The last group is padded with zeros.
    for group in indices.chunks(8) {
        // Eight indices of at most 15 bits.
        let mut bits = 0u128;
        for (i, index) in group.iter().enumerate() {
            bits |= u128::from(*index) << (i * usize::from(width));
        }
        out.extend_from_slice(&bits.to_le_bytes()[..usize::from(width)]);
    }
}

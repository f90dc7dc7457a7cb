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
const RUN_MIN: usize = 24;

/// The values of one column in one row group.
#[derive(Debug)]
pub(super) struct Dictionary {
    values: Vec<u32>,
    index: HashMap<u32, u16>,
    /// (value, index + 1): spares hashing while a job has few block sizes.
    cache: [(u32, u32); CACHE],
    /// Indices of the page that is being built.
    indices: Vec<u16>,
    /// Value of the whole page so far, while it has only one.
    only: Option<u32>,
    count: usize,
    overflow: bool,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            index: HashMap::new(),
            cache: [(0, 0); CACHE],
            indices: Vec::new(),
            only: None,
            count: 0,
            overflow: false,
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

    /// Begins a page.
    pub(super) fn begin(&mut self) {
        self.indices.clear();
        self.only = None;
        self.count = 0;
        self.overflow = false;
    }

    /// Adds the next values of the page.
    #[inline]
    pub(super) fn block(&mut self, mut values: impl ExactSizeIterator<Item = u32> + Clone) {
        let n = values.len();
        if n == 0 || self.overflow {
            return;
        }
        let one = match self.only {
            Some(v) => v,
            None if self.count == 0 => values.clone().next().unwrap_or_default(),
            None => return self.mixed(values),
        };
        // No early exit: the usual answer is yes, and this way it is a vector loop.
        if values.clone().fold(0, |differ, v| differ | (v ^ one)) == 0 {
            self.only = Some(one);
            self.count += n;
            return;
        }
        if self.count > 0 {
            let Some(i) = self.index_of(one) else { return };
            self.indices.resize(self.count, i);
        }
        self.only = None;
        self.mixed(&mut values);
    }

    fn mixed(&mut self, values: impl ExactSizeIterator<Item = u32>) {
        self.count += values.len();
        for v in values {
            let Some(i) = self.index_of(v) else { return };
            self.indices.push(i);
        }
    }

    /// `None` (and the page becomes plain) where the dictionary is full.
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
            None => {
                self.overflow = true;
                return None;
            }
        };
        self.cache[slot] = (v, u32::from(i) + 1);
        Some(i)
    }

    /// Appends the page's indices to `out`; `false` where the page must be plain.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some(v) = self.only {
            let Some(i) = self.index_of(v) else {
                return false;
            };
            let width = width_of(i);
            out.push(width);
            run(out, width, i, self.count);
            return true;
        }
        if self.overflow {
            return false;
        }
        let width = width_of(self.indices.iter().copied().max().unwrap_or(0));
        out.push(width);
        hybrid(out, width, &self.indices);
        true
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
    while i < indices.len() {
        let length = indices[i..]
            .iter()
            .take_while(|x| **x == indices[i])
            .count();
        // Packed values come in groups of eight: take what completes the last group from the run.
        let fill = (i - packed_from).next_multiple_of(8) - (i - packed_from);
        if length >= RUN_MIN + fill {
            packed(out, width, &indices[packed_from..i + fill]);
            run(out, width, indices[i], length - fill);
            packed_from = i + length;
        }
        i += length;
    }
    packed(out, width, &indices[packed_from..]);
}

fn packed(out: &mut Vec<u8>, width: u8, indices: &[u16]) {
    if indices.is_empty() {
        return;
    }
    let groups = indices.len().div_ceil(8);
    put_varint(out, (groups as u64) << 1 | 1);
    let end = out.len() + groups * usize::from(width);
    let (mut acc, mut bits) = (0u64, 0);
    for i in indices {
        acc |= u64::from(*i) << bits;
        bits += u32::from(width);
        while bits >= 32 {
            out.extend_from_slice(&(acc as u32).to_le_bytes());
            acc >>= 32;
            bits -= 32;
        }
    }
    // The last group is padded with zeros.
    out.extend_from_slice(&acc.to_le_bytes());
    out.resize(end, 0);
}

//! Blocks that prove what was written: header, checksum, pattern; and the list of what is to be read back.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::Path;

use fathom_io::load::PilotIo;
use fathom_io::load::rng::mix;
use fathom_telemetry::say;

use super::pattern::Pattern;
use super::sums::{Sum, crc32c, noise};
use crate::aux_files::{Outputs, is_text};

/// Bytes of the header, laid out as fio's.
const HEADER: usize = 48;
/// Bytes of the header of fio up to 3.35.
const OLD_HEADER: usize = 40;
/// What a header begins with.
const MAGIC: u16 = 0xacca;
const VERSION: u8 = 0x81;
/// Where the header's own checksum stands.
const CRC_AT: usize = 44;
/// "Illegal byte sequence": fio's error for data that is not what it should be.
pub(crate) const MISMATCH: i64 = -84;

/// How blocks are verified.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    pub(crate) sum: Sum,
    /// A header every so many bytes; 0 for one per block.
    pub(crate) interval: u32,
    /// Where in each interval the header stands.
    pub(crate) offset: u32,
    pub(crate) pattern: Option<Pattern>,
    /// Compressible share of what stands beside the header, percent.
    pub(crate) compress: u64,
    /// Read back after so many blocks; 0 for at the end.
    pub(crate) backlog: u64,
    /// Blocks to read back then.
    pub(crate) batch: u64,
    /// Read back what was written.
    pub(crate) read_back: bool,
    /// Writes are not done; what an earlier run wrote is read.
    pub(crate) only: bool,
    /// A block must come from the last write to its place.
    pub(crate) sequence: bool,
}

/// Where a block that does not hold is kept, in fio's names.
pub(crate) struct Dump<'a> {
    pub(crate) outputs: &'a Outputs,
    pub(crate) file: &'a Path,
    pub(crate) offset: u64,
}

impl Dump<'_> {
    /// Writes `FILE.OFFSET.KIND`; where that fails the mismatch itself is still reported.
    pub(crate) fn write(&self, kind: &str, data: &[u8]) {
        let base = self.file.file_name().unwrap_or(self.file.as_os_str());
        let name = format!("{}.{}.{kind}", base.to_string_lossy(), self.offset);
        let path = self.outputs.path(&name);
        let kept = self.outputs.create(&path, is_text).and_then(|mut out| {
            out.write_all(data)?;
            out.commit()
        });
        if let Err(e) = kept {
            say!("fathom: a block that does not hold was not kept: {e}");
        }
    }
}

/// A block that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    len: u32,
    /// Trimmed since: it must be zeros.
    pub(crate) trimmed: bool,
    /// Which write it was; `None` where another to the same place was under way with it: nobody knows which was last.
    pub(crate) number: Option<u64>,
}

/// A write under way.
#[derive(Debug, Clone, Copy)]
struct Flying {
    place: (u16, u64),
    len: u32,
    number: u64,
    clashes: bool,
}

impl Flying {
    fn meets(&self, (file, offset): (u16, u64), len: u32) -> bool {
        let end = |at: u64, len: u32| at + u64::from(len);
        self.place.0 == file
            && self.place.1 < end(offset, len)
            && offset < end(self.place.1, self.len)
    }
}

/// What was written and not yet read back.
#[derive(Debug, Default)]
pub(crate) struct History {
    blocks: BTreeMap<(u16, u64), Written>,
    flying: Vec<Flying>,
    /// Being read back.
    checking: BTreeMap<(u16, u64), Written>,
    batch: VecDeque<(u16, u64)>,
    /// Places in the order of their writes; used where no write overlaps another.
    order: VecDeque<(u16, u64)>,
    in_order: bool,
    number: u64,
}

impl History {
    /// Reads back in the order of the writes; as in fio otherwise by place.
    pub(crate) fn in_order(in_order: bool) -> Self {
        Self {
            in_order,
            ..Self::default()
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }
    pub(crate) fn forget(&mut self) {
        self.blocks.clear();
        self.batch.clear();
        self.order.clear();
    }
    /// A write that has completed; what it overlaps is gone.
    pub(crate) fn wrote(&mut self, io: &PilotIo, number: Option<u64>) {
        self.forget_place(io);
        self.blocks.insert(
            (io.file, io.offset),
            Written {
                len: io.len,
                trimmed: false,
                number,
            },
        );
        if self.in_order {
            self.order.push_back((io.file, io.offset));
        }
    }
    /// Nothing that was written before is there any more.
    fn forget_place(&mut self, io: &PilotIo) {
        let end = io.offset + u64::from(io.len);
        let before = self
            .blocks
            .range(..(io.file, io.offset))
            .next_back()
            .filter(|(k, w)| k.0 == io.file && k.1 + u64::from(w.len) > io.offset)
            .map(|(k, _)| *k);
        let inside: Vec<(u16, u64)> = self
            .blocks
            .range((io.file, io.offset)..(io.file, end))
            .map(|(k, _)| *k)
            .collect();
        for k in before.into_iter().chain(inside) {
            self.blocks.remove(&k);
        }
    }
    /// A trim that has completed: nothing is known of the range any more, or that it is zeros where that is asked for.
    pub(crate) fn trimmed(&mut self, io: &PilotIo, zeros: bool) {
        let place = (io.file, io.offset);
        let clean = |f: &Flying| !f.meets(place, io.len);
        match self.blocks.get_mut(&place) {
            Some(w) if zeros && w.len == io.len && self.flying.iter().all(clean) => {
                w.trimmed = true
            }
            _ => self.forget_place(io),
        }
    }
    /// Blocks that are known, and writes under way.
    pub(crate) fn logged(&self) -> u64 {
        (self.blocks.len() + self.flying.len()) as u64
    }
    /// The block at a place that was written and not trimmed since, as a trim.
    pub(crate) fn trim(&self, (file, offset): (u16, u64)) -> Option<PilotIo> {
        let w = self.blocks.get(&(file, offset)).filter(|w| !w.trimmed)?;
        Some(PilotIo {
            op: fathom_telemetry::Op::Trim,
            offset,
            len: w.len,
            file,
            priority: 0,
        })
    }
    /// Starts to read back `n` blocks.
    pub(crate) fn begin_batch(&mut self, n: usize) {
        self.batch = if self.in_order {
            let n = n.min(self.order.len());
            self.order.drain(..n).collect()
        } else {
            self.blocks.keys().copied().take(n).collect()
        };
    }
    /// The next block to read back, of the batch or of all.
    pub(crate) fn next(&mut self, all: bool) -> Option<PilotIo> {
        loop {
            let key = match self.batch.pop_front() {
                Some(k) => k,
                None if all && self.in_order && !self.order.is_empty() => self.order.pop_front()?,
                None if all => *self.blocks.keys().next()?,
                None => return None,
            };
            if let Some(w) = self.blocks.remove(&key) {
                self.checking.insert(key, w);
                return Some(PilotIo {
                    op: fathom_telemetry::Op::Read,
                    file: key.0,
                    offset: key.1,
                    len: w.len,
                    priority: 0,
                });
            }
        }
    }
    pub(crate) fn in_batch(&self) -> bool {
        !self.batch.is_empty()
    }
    /// The write's number, when its buffer is filled.
    pub(crate) fn start(&mut self, io: &PilotIo) -> u64 {
        let n = self.number;
        self.number += 1;
        let mut this = Flying {
            place: (io.file, io.offset),
            len: io.len,
            number: n,
            clashes: false,
        };
        for other in self
            .flying
            .iter_mut()
            .filter(|f| f.meets(this.place, io.len))
        {
            (other.clashes, this.clashes) = (true, true);
        }
        // What was there is being overwritten: neither what waits to be read back nor what is being read is it any more.
        self.forget_place(io);
        self.checking.retain(|k, w| !this.meets(*k, w.len));
        self.flying.push(this);
        n
    }
    /// The write's number, where nothing else was written there meanwhile.
    pub(crate) fn landed(&mut self, io: &PilotIo) -> Option<u64> {
        let here = |f: &Flying| f.place == (io.file, io.offset) && f.len == io.len;
        let i = self.flying.iter().position(here)?;
        let f = self.flying.swap_remove(i);
        (!f.clashes).then_some(f.number)
    }
    /// What this read reads back, where it does.
    pub(crate) fn checked(&mut self, io: &PilotIo) -> Option<Written> {
        self.checking.remove(&(io.file, io.offset))
    }
    /// Completed writes, for the state file.
    pub(crate) fn writes(&self) -> u64 {
        self.number
    }
}

impl Check {
    fn step(&self, len: usize) -> usize {
        match self.interval as usize {
            0 => len,
            n if n <= len => n,
            _ => len,
        }
    }
    /// Smallest block that can hold header and checksum.
    pub(crate) fn smallest(&self) -> usize {
        match self.sum {
            Sum::Pattern | Sum::Null => 1,
            s => HEADER + s.room() + 1,
        }
    }

    /// Makes a block that can be verified.
    pub(crate) fn fill(&self, io: &PilotIo, data: &mut [u8], number: u64, thread: u16) {
        if self.sum == Sum::Null {
            return;
        }
        let seed = mix(io.offset ^ mix(number ^ u64::from(thread) << 48));
        match &self.pattern {
            Some(p) => p.fill(data, io.offset),
            None => {
                let random = data.len() * (100 - self.compress.min(100) as usize) / 100;
                let (noisy, zeros) = data.split_at_mut(random);
                noise(noisy, seed);
                zeros.fill(0);
            }
        }
        if self.sum == Sum::Pattern {
            return;
        }
        let step = self.step(data.len());
        let mut at = io.offset;
        for part in data.chunks_mut(step) {
            self.stamp(part, at, seed, number, thread);
            at += part.len() as u64;
        }
    }

    fn stamp(&self, part: &mut [u8], offset: u64, seed: u64, number: u64, thread: u16) {
        let size = HEADER + self.sum.room();
        if part.len() < size + self.offset as usize {
            return;
        }
        let mut out = [0; 128];
        let n = self.sum.of(&part[size..], &mut out);
        let length = (part.len() as u32).to_le_bytes();
        let h = &mut part[..size];
        h.fill(0);
        h[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        h[2] = VERSION;
        h[3] = self.sum.code();
        h[4..8].copy_from_slice(&length);
        h[8..16].copy_from_slice(&seed.to_le_bytes());
        h[16..24].copy_from_slice(&offset.to_le_bytes());
        h[32..40].copy_from_slice(&number.to_le_bytes());
        h[40..42].copy_from_slice(&thread.to_le_bytes());
        let crc = crc32c(&h[..CRC_AT]);
        h[CRC_AT..HEADER].copy_from_slice(&crc.to_le_bytes());
        h[HEADER..HEADER + n].copy_from_slice(&out[..n]);
        swap(part, self.offset as usize, size);
    }

    /// Whether a block is what it should be; `number` is the write that it should come from, where that is known.
    pub(crate) fn holds(&self, io: &PilotIo, data: &[u8], number: Option<u64>) -> bool {
        match self.sum {
            Sum::Null => return true,
            Sum::Pattern => {
                let mut want = vec![0; data.len()];
                if let Some(p) = &self.pattern {
                    p.fill(&mut want, io.offset);
                }
                return self.pattern.is_none() || want == data;
            }
            _ => {}
        }
        let step = self.step(data.len());
        let mut at = io.offset;
        let mut copy = Vec::new();
        for part in data.chunks(step) {
            copy.clear();
            copy.extend_from_slice(part);
            if !self.part_holds(&mut copy, io.offset, at, number) {
                return false;
            }
            at += part.len() as u64;
        }
        true
    }

    fn part_holds(&self, part: &mut [u8], block: u64, offset: u64, number: Option<u64>) -> bool {
        // Headers of fio up to 3.35 are shorter and have no version.
        let old = part.get(self.offset as usize + 2) != Some(&VERSION);
        let header = if old { OLD_HEADER } else { HEADER };
        let size = header + self.sum.room();
        if part.len() < size + self.offset as usize {
            return true;
        }
        swap(part, self.offset as usize, size);
        let length = part.len() as u32;
        let (h, data) = part.split_at(size);
        let word = |at: usize| {
            h[at..]
                .first_chunk::<8>()
                .map_or(0, |b| u64::from_le_bytes(*b))
        };
        let crc_at = header - 4;
        let kind = if old {
            h[2..4] == u16::from(self.sum.code()).to_le_bytes()
        } else {
            h[3] == self.sum.code()
        };
        let good = h[0..2] == MAGIC.to_le_bytes()
            && kind
            && h[4..8] == length.to_le_bytes()
            && word(16) == offset
            && number.is_none_or(|n| !old && word(32) == n)
            && h[crc_at..header] == crc32c(&h[..crc_at]).to_le_bytes();
        if !good {
            return false;
        }
        let mut out = [0; 128];
        let n = self.sum.of(data, &mut out);
        if h[header..header + n] != out[..n] {
            return false;
        }
        match (&self.pattern, self.sum) {
            (Some(p), Sum::Meta | Sum::PatternHeader) => {
                // The pattern runs through the whole block; only what the header covers is not seen.
                let from = (offset - block) as usize;
                let mut want = vec![0; from + part.len()];
                p.fill(&mut want, block);
                swap(part, self.offset as usize, size);
                let hidden = self.offset as usize..self.offset as usize + size;
                part.iter()
                    .zip(&want[from..])
                    .enumerate()
                    .all(|(i, (a, b))| a == b || hidden.contains(&i) || i < size)
            }
            _ => true,
        }
    }
}

/// Header and what stands at `offset` change places.
fn swap(part: &mut [u8], offset: usize, size: usize) {
    if offset >= size && offset + size <= part.len() {
        let (a, b) = part.split_at_mut(offset);
        a[..size].swap_with_slice(&mut b[..size]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::Op;

    fn io(offset: u64, len: u32) -> PilotIo {
        PilotIo {
            op: Op::Write,
            file: 0,
            offset,
            len,
            priority: 0,
        }
    }

    #[test]
    fn every_kind_of_block_holds_and_a_flipped_bit_or_another_place_does_not() {
        for name in [
            "md5",
            "crc64",
            "crc32",
            "crc32c",
            "crc16",
            "crc7",
            "sha1",
            "sha256",
            "sha512",
            "sha3-224",
            "sha3-256",
            "sha3-384",
            "sha3-512",
            "xxhash",
            "meta",
            "pattern",
            "pattern_hdr",
        ] {
            for (interval, offset) in [(0, 0), (512, 0), (1024, 256)] {
                let sum = Sum::named(name).unwrap();
                let patterned = matches!(sum, Sum::Meta | Sum::Pattern | Sum::PatternHeader);
                let c = Check {
                    sum,
                    interval,
                    offset,
                    pattern: patterned.then(|| Pattern::parse("0xdeadbeef%o").unwrap()),
                    compress: 30,
                    backlog: 0,
                    batch: 0,
                    read_back: true,
                    only: false,
                    sequence: true,
                };
                let mut block = vec![0; 4096];
                c.fill(&io(8192, 4096), &mut block, 7, 1);
                assert!(
                    c.holds(&io(8192, 4096), &block, Some(7)),
                    "{name} {interval}"
                );
                assert!(
                    !c.holds(&io(4096, 4096), &block, Some(7)),
                    "{name}: misplaced"
                );
                if sum != Sum::Pattern {
                    assert!(!c.holds(&io(8192, 4096), &block, Some(8)), "{name}: stale");
                }
                block[4000] ^= 1;
                assert!(
                    !c.holds(&io(8192, 4096), &block, Some(7)),
                    "{name}: flipped"
                );
            }
        }
    }

    #[test]
    fn what_was_overwritten_is_not_read_back() {
        let mut h = History::default();
        for (offset, len) in [(0, 4096), (4096, 4096), (2048, 4096)] {
            let n = h.start(&io(offset, len));
            h.wrote(&io(offset, len), Some(n));
        }
        let back = h.next(true).unwrap();
        assert_eq!((back.offset, back.len), (2048, 4096));
        assert_eq!(h.checked(&back).and_then(|w| w.number), Some(2));
        assert!(h.next(true).is_none());
    }

    #[test]
    fn of_two_writes_to_one_place_at_once_nobody_knows_which_is_there() {
        let mut h = History::default();
        let block = io(0, 4096);
        h.start(&block);
        h.start(&io(4096, 512));
        h.start(&block);
        for _ in 0..2 {
            let number = h.landed(&block);
            assert_eq!(number, None);
            h.wrote(&block, number);
        }
        assert_eq!(h.landed(&io(4096, 512)), Some(1));
        let back = h.next(true).unwrap();
        // And what is being read is not checked once it is written anew.
        h.start(&block);
        assert_eq!(h.checked(&back), None);
    }
}

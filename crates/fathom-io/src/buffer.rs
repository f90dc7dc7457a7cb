//! I/O memory of one thread: one aligned allocation, a slot each, and what writes put into it.
//!
//! Written data is incompressible and unique per 512-byte sector by default, so
//! that devices which compress or deduplicate show what they do with real data.
//!
//! Each page that is written is a page of random bytes, whose words were combined (exclusive or) with a random
//! number of the page's own. Two pages have no word in common then, and no compressor finds one in the other; it
//! costs little more than a copy from the processor's nearest cache.

use crate::load::rng::{Rng, mix};

/// Page alignment suits every direct I/O and registered buffers.
const ALIGN: usize = 4096;

/// What writes put into their buffers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Content {
    /// Compressible share, 0..=1.
    pub compress: f64,
    /// Compressible and other bytes alternate in so many.
    pub chunk: usize,
    /// Share of blocks that duplicate others, 0..=1.
    pub duplicate: f64,
    /// Duplicates are of so many blocks; 0 for the block before.
    pub duplicate_of: u64,
    /// The blocks that are repeated are those of every job.
    pub shared: bool,
    /// A slot carries the same data in each of its writes.
    pub same: bool,
    /// A write changes the first eight bytes of each sector of its slot, and nothing else.
    pub scramble: bool,
    /// Seed.
    pub seed: u64,
}

impl Content {
    /// What the block of this number among those that are repeated is made of.
    fn original(&self, number: u64) -> u64 {
        let whose = if self.shared { 0 } else { mix(self.seed) };
        mix(!number ^ whose)
    }
}

/// One contiguous, page-aligned allocation of `slots` × `slot_len` bytes.
pub struct Buffers {
    base: *mut u8,
    layout: std::alloc::Layout,
    slot_len: usize,
    slots: u32,
    content: Option<Content>,
    /// A page of random bytes, the same in every job.
    page: Box<[u64; WORDS]>,
    /// What makes the last block that was none's duplicate what it is.
    last: u64,
    /// Blocks that are none's duplicate so far.
    originals: u64,
    rng: Rng,
    leaked: bool,
}

// SAFETY: the allocation is owned by this value alone and has no thread affinity.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates; fills slots with data where the job writes.
    pub fn new(slots: u32, block_max: u32, content: Option<Content>) -> std::io::Result<Self> {
        let slot_len = (block_max as usize).next_multiple_of(ALIGN);
        let layout =
            std::alloc::Layout::from_size_align(slot_len.max(ALIGN) * slots.max(1) as usize, ALIGN)
                .map_err(|e| {
                    std::io::Error::other(format!("buffers of {slots} × {block_max} bytes: {e}"))
                })?;
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        }
        // SAFETY: the range is ours; the advice changes no content.
        unsafe { libc::madvise(base.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        let seed = content.map_or(0, |c| c.seed);
        let mut common = Rng::new(0, 0x6461_7400);
        let mut buffers = Self {
            base,
            layout,
            slot_len,
            slots: slots.max(1),
            content,
            page: Box::new(std::array::from_fn(|_| common.bits())),
            last: mix(seed),
            originals: 0,
            rng: Rng::new(seed, 0x6275_6600),
            leaked: false,
        };
        if let Some(c) = content {
            for slot in 0..buffers.slots {
                buffers.fill(&c, slot, slot_len);
            }
            buffers.originals = 0;
        } else {
            // Touch the pages now rather than in the first I/Os.
            for slot in 0..buffers.slots {
                buffers
                    .slot_mut(slot)
                    .iter_mut()
                    .step_by(ALIGN)
                    .for_each(|b| *b = 1);
            }
        }
        Ok(buffers)
    }

    /// Address of a slot.
    #[inline]
    pub fn slot(&self, slot: u32) -> *mut u8 {
        debug_assert!(slot < self.slots);
        // SAFETY: `slot` is below `slots`, so the result stays inside the allocation.
        unsafe { self.base.add(slot as usize * self.slot_len) }
    }

    /// The whole allocation, for registration.
    pub fn whole(&self) -> (*mut u8, usize) {
        (self.base, self.layout.size())
    }

    /// Gives the memory up for good: someone may still write to it.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }

    /// The first `len` bytes of a slot (fewer where the slot is shorter). Nothing may be in flight on it.
    pub fn bytes(&mut self, slot: u32, len: u32) -> &mut [u8] {
        let len = (len as usize).min(self.slot_len);
        &mut self.slot_mut(slot)[..len]
    }

    fn slot_mut(&mut self, slot: u32) -> &mut [u8] {
        // SAFETY: slots do not overlap, the memory is initialised and borrowed through `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.slot(slot), self.slot_len) }
    }

    /// Makes the slot's content fit for the next write of `len` bytes.
    #[inline]
    pub fn prepare_write(&mut self, slot: u32, len: u32) {
        let len = (len as usize).min(self.slot_len);
        match self.content {
            Some(c) if c.scramble => self.scramble(slot, len),
            Some(c) => self.fill(&c, slot, len),
            None => {}
        }
    }

    /// Changes the first bytes of each sector: no sector is written twice.
    #[inline]
    fn scramble(&mut self, slot: u32, len: usize) {
        let key = self.rng.bits();
        for (n, sector) in (0..).zip(self.slot_mut(slot)[..len].chunks_mut(SECTOR)) {
            let mark = mix(key.wrapping_add(n)).to_le_bytes();
            let len = sector.len().min(mark.len());
            sector[..len].copy_from_slice(&mark[..len]);
        }
    }

    /// Fills a slot.
    #[inline]
    fn fill(&mut self, c: &Content, slot: u32, len: usize) {
        let key = if c.same {
            mix(c.seed ^ u64::from(slot))
        } else {
            self.key(c)
        };
        // SAFETY: slots do not overlap, the memory is initialised and borrowed through `&mut self`, and the page is
        // another allocation.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.slot(slot), len) };
        for (n, part) in (0..).zip(bytes.chunks_mut(ALIGN)) {
            imprint(part, &self.page, mix(key.wrapping_add(n)));
        }
        if c.compress > 0.0 {
            for chunk in bytes.chunks_mut(c.chunk.max(1)) {
                let random = (chunk.len() as f64 * (1.0 - c.compress)) as usize;
                chunk[random..].fill(0);
            }
        }
    }

    /// What the next block is made of: that of another block where it is a duplicate.
    fn key(&mut self, c: &Content) -> u64 {
        if c.duplicate > 0.0 && self.rng.unit() < c.duplicate {
            return match c.duplicate_of {
                0 => self.last,
                n => c.original(self.rng.below(n)),
            };
        }
        // Those that are repeated come first, once each.
        let known = self.originals < c.duplicate_of && c.duplicate > 0.0;
        self.last = if known {
            c.original(self.originals)
        } else {
            self.rng.bits()
        };
        self.originals += 1;
        self.last
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { std::alloc::dealloc(self.base, self.layout) };
    }
}

/// The smallest block of a device: what deduplicates looks at no less.
const SECTOR: usize = 512;
/// Words of a page.
const WORDS: usize = ALIGN / 8;

/// `page`, each word combined with `key`, into `out`, which may be shorter.
#[inline]
fn imprint(out: &mut [u8], page: &[u64; WORDS], key: u64) {
    let mut words = out.chunks_exact_mut(8);
    for (word, random) in words.by_ref().zip(page) {
        word.copy_from_slice(&(random ^ key).to_le_bytes());
    }
    let rest = words.into_remainder();
    let last = key.to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(content: Content, writes: usize) -> Vec<Vec<u8>> {
        let mut b = Buffers::new(2, 8192, Some(content)).unwrap();
        (0..writes)
            .map(|i| {
                let slot = (i % 2) as u32;
                b.prepare_write(slot, 8192);
                b.slot_mut(slot).to_vec()
            })
            .collect()
    }

    const PLAIN: Content = Content {
        compress: 0.0,
        chunk: 4096,
        duplicate: 0.0,
        duplicate_of: 1,
        shared: false,
        same: false,
        scramble: false,
        seed: 3,
    };

    #[test]
    fn scrambled_sectors_differ_though_most_of_a_buffer_stays() {
        let scrambled = Content {
            scramble: true,
            ..PLAIN
        };
        let blocks = written(scrambled, 50);
        let mut seen = std::collections::HashSet::new();
        for sector in blocks.iter().flat_map(|b| b.chunks(512)) {
            assert!(seen.insert(sector.to_vec()));
        }
        // The same slot, one write later.
        let (first, next) = (&blocks[0], &blocks[2]);
        let changed = (0..first.len()).filter(|i| first[*i] != next[*i]);
        assert!(changed.clone().all(|i| i % 512 < 8));
        assert!(changed.count() > 8192 / 512 * 7);
    }

    #[test]
    fn no_two_written_sectors_are_alike() {
        let mut seen = std::collections::HashSet::new();
        for block in written(PLAIN, 50) {
            for sector in block.chunks(512) {
                assert!(seen.insert(sector.to_vec()));
            }
        }
    }

    /// What no compressor can shorten has no eight bytes twice.
    #[test]
    fn no_words_repeat_from_write_to_write() {
        let mut seen = std::collections::HashSet::new();
        for block in written(PLAIN, 50) {
            for at in 0..block.len() - 8 {
                // Wherever it begins: a compressor looks at every byte.
                if at % 8 == 0 || at % 64 == 1 {
                    assert!(seen.insert(block[at..at + 8].to_vec()), "{at}");
                }
            }
        }
    }

    #[test]
    fn compressible_data_has_its_share_of_zeros_in_each_chunk() {
        for chunk in [512, 4096] {
            let half = Content {
                compress: 0.6,
                chunk,
                ..PLAIN
            };
            for part in written(half, 1)[0].chunks(chunk) {
                let zeros = part.iter().filter(|b| **b == 0).count() as f64 / chunk as f64;
                assert!((zeros - 0.6).abs() < 0.03, "{zeros}");
            }
        }
        let nothing = Content {
            compress: 1.0,
            ..PLAIN
        };
        assert!(written(nothing, 2)[1].iter().all(|b| *b == 0));
    }

    #[test]
    fn duplicates_have_their_share_and_the_rest_stays_unique() {
        for duplicate_of in [0, 1, 8] {
            let content = Content {
                duplicate: 0.3,
                duplicate_of,
                ..PLAIN
            };
            let blocks = written(content, 400);
            let unique: std::collections::HashSet<_> = blocks.iter().collect();
            let duplicates = 1.0 - unique.len() as f64 / 400.0;
            assert!(
                (duplicates - 0.3).abs() < 0.08,
                "{duplicate_of}: {duplicates}"
            );
        }
    }

    #[test]
    fn the_same_data_is_that_of_its_slot() {
        let blocks = written(
            Content {
                same: true,
                ..PLAIN
            },
            6,
        );
        assert!(blocks[0] == blocks[2] && blocks[1] == blocks[5] && blocks[0] != blocks[1]);
    }
}

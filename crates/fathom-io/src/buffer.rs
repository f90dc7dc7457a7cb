//! I/O memory of one thread: one aligned allocation, a slot each, and what writes put into it.
//!
//! Written data is incompressible and unique per 512-byte sector by default, so
//! that devices which compress or deduplicate show what they do with real data.

use crate::load::rng::{Rng, mix};

/// Page alignment suits every direct I/O and registered buffers.
const ALIGN: usize = 4096;
/// Sectors are stamped at this distance, so that no two written sectors are alike.
const SECTOR: usize = 512;

/// What writes put into their buffers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Content {
    /// Compressible share, 0..=1.
    pub compress: f64,
    /// Share of blocks that duplicate others, 0..=1.
    pub duplicate: f64,
    /// Seed.
    pub seed: u64,
}

/// One contiguous, page-aligned allocation of `slots` × `slot_len` bytes.
pub struct Buffers {
    base: *mut u8,
    layout: std::alloc::Layout,
    slot_len: usize,
    slots: u32,
    content: Option<Content>,
    template: Vec<u8>,
    counter: u64,
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
        let mut buffers = Self {
            base,
            layout,
            slot_len,
            slots: slots.max(1),
            content,
            template: Vec::new(),
            counter: 0,
            rng: Rng::new(seed, 0x6275_6600),
            leaked: false,
        };
        if let Some(c) = content {
            for slot in 0..buffers.slots {
                let mut rng = Rng::new(c.seed, 0x6461_7400 + u64::from(slot));
                fill(buffers.slot_mut(slot), c.compress, &mut rng);
            }
            if c.duplicate > 0.0 {
                buffers.template = vec![0; slot_len];
                fill(
                    &mut buffers.template,
                    c.compress,
                    &mut Rng::new(0, 0x6475_7000),
                );
            }
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
        let Some(c) = self.content else {
            return;
        };
        let len = len as usize;
        if c.duplicate > 0.0 && self.rng.unit() < c.duplicate {
            let template = std::mem::take(&mut self.template);
            self.slot_mut(slot)[..len].copy_from_slice(&template[..len]);
            self.template = template;
            return;
        }
        let restore = c.duplicate > 0.0;
        let stamp = self.counter;
        self.counter += (len / SECTOR + 1) as u64;
        let key = mix(c.seed);
        let random = 1.0 - c.compress;
        let mut rng = restore.then(|| Rng::new(c.seed, stamp));
        let bytes = &mut self.slot_mut(slot)[..len];
        if let Some(rng) = &mut rng {
            // A duplicate may have been here: make the content unique again.
            fill(bytes, 1.0 - random, rng);
        }
        for (stamp, sector) in (stamp..).zip(bytes.chunks_mut(SECTOR)) {
            if let Some(first) = sector.first_chunk_mut::<8>() {
                *first = mix(stamp ^ key).to_le_bytes();
            }
        }
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

/// Fills each page: first the random part, then zeros for the compressible share.
fn fill(bytes: &mut [u8], compress: f64, rng: &mut Rng) {
    for page in bytes.chunks_mut(ALIGN) {
        let random = ((page.len() as f64) * (1.0 - compress)) as usize;
        let (noise, zeros) = page.split_at_mut(random);
        for word in noise.chunks_mut(8) {
            let bits = rng.bits().to_le_bytes();
            word.copy_from_slice(&bits[..word.len()]);
        }
        zeros.fill(0);
    }
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

    #[test]
    fn no_two_written_sectors_are_alike() {
        let mut seen = std::collections::HashSet::new();
        for block in written(
            Content {
                compress: 0.0,
                duplicate: 0.0,
                seed: 3,
            },
            50,
        ) {
            for sector in block.chunks(512) {
                assert!(seen.insert(sector.to_vec()));
            }
        }
    }

    #[test]
    fn compressible_data_has_its_share_of_zeros() {
        let block = &written(
            Content {
                compress: 0.6,
                duplicate: 0.0,
                seed: 3,
            },
            1,
        )[0];
        let zeros = block.iter().filter(|b| **b == 0).count() as f64 / 8192.0;
        assert!((zeros - 0.6).abs() < 0.03, "{zeros}");
    }

    #[test]
    fn duplicates_have_their_share_and_the_rest_stays_unique() {
        let blocks = written(
            Content {
                compress: 0.0,
                duplicate: 0.3,
                seed: 3,
            },
            400,
        );
        let unique: std::collections::HashSet<_> = blocks.iter().collect();
        let duplicates = 1.0 - (unique.len() - 1) as f64 / 400.0;
        assert!((duplicates - 0.3).abs() < 0.08, "{duplicates}");
    }
}

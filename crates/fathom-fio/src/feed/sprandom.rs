//! `sprandom`: writes a drive once so that its blocks are as valid as after a long random load, region by region.
//!
//! In the steady state of random writes the share of a drive whose erase blocks have a validity v is inversely proportional to v
//! (P. Desnoyers, "Analytic Models of SSD Write Performance", ACM Transactions on Storage 8(2), 2012, equation for greedy
//! cleaning); the least validity is that of the block that garbage collection takes, 1 - 1/WA, with a write amplification of
//! about 0.5/OP + 0.7. fio (3.41) writes regions of one size in the order of the drive's physical space, and, before each, a
//! part of the one before it again: that leaves the parts of each region valid that the curve asks for.

use std::collections::VecDeque;

use super::random::{Purpose, Seeds, ShiftRegister, Stream};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    pub(crate) regions: u64,
    /// Physical over logical size, less one.
    pub(crate) provisioning: f64,
    /// Of the drive's cache: a region is written again only after the next, which is not smaller.
    pub(crate) cache: u64,
}

impl Terms {
    /// Bytes that are written in all, a whole number of blocks.
    pub(crate) fn physical(&self, logical: u64, block: u64) -> u64 {
        let size = logical + (logical as f64 * self.provisioning).ceil() as u64;
        size - size % block.max(1)
    }

    /// Why a target of this size cannot be written so.
    pub(crate) fn refused(&self, logical: u64, block: u64) -> Option<String> {
        let region = self.physical(logical, block) / self.regions.max(1);
        if region < block {
            return Some(format!(
                "{} regions of {logical} bytes have no room for a block of {block}: choose fewer (spr_num_regions)",
                self.regions
            ));
        }
        (self.cache > region).then(|| {
            format!(
                "spr_cs={} is more than a region of {region} bytes: choose fewer regions (spr_num_regions)",
                self.cache
            )
        })
    }

    /// Share of each region that is to be invalid in the end, in the order in which they are written.
    fn invalid(&self) -> Vec<f64> {
        let n = self.regions.max(1) as usize;
        let amplification = 0.5 / self.provisioning + 0.7;
        let least = 1.0 - 1.0 / amplification;
        let step = (least - 1.0) / (n.max(2) - 1) as f64;
        // Points at equal distances of validity, placed by the share of the drive up to each.
        let mut place = 0.0;
        let points: Vec<(f64, f64)> = (0..n)
            .map(|i| {
                let validity = 1.0 + i as f64 * step;
                place += 1.0 / validity;
                (place, validity)
            })
            .collect();
        // The same curve at equal distances of the share.
        let (first, last) = (points[0].0, points[n - 1].0);
        let distance = (last - first) / (n.max(2) - 1) as f64;
        let mut below = 0;
        let mut shares: Vec<f64> = (0..n)
            .map(|i| {
                let x = (first + i as f64 * distance).min(last);
                while below + 2 < n && points[below + 1].0 < x {
                    below += 1;
                }
                let (x1, y1) = points[below];
                let (x2, y2) = points[(below + 1).min(n - 1)];
                let part = if x2 > x1 { (x - x1) / (x2 - x1) } else { 0.0 };
                1.0 - (y1 + (y2 - y1) * part.clamp(0.0, 1.0))
            })
            .collect();
        // The least valid region is the oldest.
        shares.reverse();
        shares
    }
}

/// The order of blocks.
pub(super) struct Spread {
    /// Share of each region in parts of [`PARTS`].
    invalid: Vec<u64>,
    cache: bool,
    region: usize,
    /// Blocks of a region, and what is left of the one under way.
    blocks: u64,
    left: u64,
    /// Chosen from the region under way, and to be written again.
    chosen: VecDeque<u64>,
    again: VecDeque<u64>,
    order: ShiftRegister,
    stream: Stream,
}

/// Parts in which fio counts shares.
const PARTS: u64 = 10_000;

impl Spread {
    /// For a target of `logical` bytes.
    pub(super) fn new(terms: Terms, logical: u64, block: u64, seeds: Seeds) -> Self {
        let block = block.max(1);
        let blocks = terms.physical(logical, block) / terms.regions.max(1) / block;
        Self {
            invalid: terms
                .invalid()
                .iter()
                .map(|share| (share * PARTS as f64).round() as u64)
                .collect(),
            cache: terms.cache > 0,
            region: 0,
            blocks,
            left: blocks,
            chosen: VecDeque::new(),
            again: VecDeque::new(),
            order: ShiftRegister::new((logical / block).max(1), seeds.of(Purpose::Block)),
            stream: Stream::new(seeds.of(Purpose::Spread)),
        }
    }

    /// Perhaps the block will be written again.
    fn choose(&mut self, block: u64) {
        let share = self.invalid.get(self.region).copied().unwrap_or(0);
        if self.stream.below(PARTS + 1) <= share {
            self.chosen.push_back(block);
        }
    }

    /// The next block; `None` when all is written.
    pub(super) fn next(&mut self) -> Option<u64> {
        // With a cache, a region is written again only when the next is complete.
        if (!self.cache || self.left == 0)
            && let Some(block) = self.again.pop_front()
        {
            self.choose(block);
            return Some(block);
        }
        if self.left == 0 {
            if self.region >= self.invalid.len() {
                return None;
            }
            self.region += 1;
            // What is written again has its place in the new region.
            let again = self.chosen.len() as u64;
            self.left = self.blocks.saturating_sub(again);
            self.again = std::mem::take(&mut self.chosen);
        }
        let Some(block) = self.order.next() else {
            return self.again.pop_front().filter(|_| self.cache);
        };
        self.left -= 1;
        self.choose(block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    /// Which region a block was written in last is where it is valid: the drive of the model appends.
    fn validity(terms: Terms, logical: u64, seeds: Seeds) -> (Vec<f64>, u64) {
        let mut spread = Spread::new(terms, logical, BLOCK, seeds);
        let per_region = spread.blocks as usize;
        let mut written = Vec::new();
        while let Some(block) = spread.next() {
            written.push(block);
        }
        let mut last = vec![usize::MAX; (logical / BLOCK) as usize];
        for (at, block) in written.iter().enumerate() {
            last[*block as usize] = at;
        }
        let mut valid = vec![0.0; terms.regions as usize];
        for at in last.iter().filter(|at| **at != usize::MAX) {
            let region = (at / per_region).min(valid.len() - 1);
            valid[region] += 1.0 / per_region as f64;
        }
        assert!(
            last.iter().all(|at| *at != usize::MAX),
            "every block is written"
        );
        (valid, written.len() as u64)
    }

    #[test]
    fn regions_are_as_valid_as_in_the_steady_state() {
        for (provisioning, regions, cache) in [(0.1, 50, 0), (0.25, 100, 0), (0.15, 40, 1 << 16)] {
            let terms = Terms {
                regions,
                provisioning,
                cache,
            };
            let logical = 512 << 20;
            let wanted: Vec<f64> = terms.invalid().iter().map(|i| 1.0 - i).collect();
            assert!(wanted.is_sorted(), "older regions are less valid");
            let least = 1.0 - 1.0 / (0.5 / provisioning + 0.7);
            assert!((wanted[0] - least).abs() < 1e-9, "{} is {least}", wanted[0]);
            let (valid, written) = validity(
                terms,
                logical,
                Seeds {
                    seed: 7,
                    thread: 1,
                    fixed: false,
                },
            );
            let most = terms.physical(logical, BLOCK) / BLOCK;
            // The job ends with what the physical size has room for.
            assert!(written > most * 95 / 100, "{written} of {most}");
            if cache == 0 {
                // The last ones are what the end leaves.
                for (i, (v, w)) in valid
                    .iter()
                    .zip(&wanted)
                    .enumerate()
                    .take(regions as usize - 3)
                {
                    assert!((v - w).abs() < 0.05, "region {i}: {v} instead of {w}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_is_refused_in_words() {
        let terms = |regions, cache| Terms {
            regions,
            provisioning: 0.1,
            cache,
        };
        assert_eq!(terms(50, 0).refused(32 << 20, BLOCK), None);
        assert!(terms(2000, 32 << 10).refused(32 << 20, BLOCK).is_some());
        assert!(terms(50, 32 << 20).refused(32 << 20, BLOCK).is_some());
        assert!(terms(1 << 20, 0).refused(32 << 20, BLOCK).is_some());
    }
}

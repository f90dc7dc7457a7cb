//! Where the next I/O of a guided job goes: sequences with holes, runs, zones, maps over mixed sizes.

use fathom_io::job::Distribution;
use fathom_io::load::Spots;
use fathom_io::load::permutation::Permutation;
use fathom_io::load::rng::Rng;

use super::zones::Zones;
use crate::translate::recipe::{Draw, Recipe, Sizes, Strided};

/// Blocks that were visited in this pass. With fio's default generator the next one is drawn, or the first free one
/// after it; with `lfsr` all are walked in a random order.
struct Map {
    order: Option<Permutation>,
    index: u64,
    seen: Vec<u64>,
    /// Words of `seen` that are full, a bit each.
    full: Vec<u64>,
    blocks: u64,
    left: u64,
}

impl Map {
    fn new(blocks: u64, walk: Option<u64>) -> Self {
        let words = blocks.div_ceil(64) as usize;
        let mut seen = vec![0; words];
        if let Some(last) = seen.last_mut()
            && !blocks.is_multiple_of(64)
        {
            // What lies beyond the end is never free.
            *last = u64::MAX << (blocks % 64);
        }
        Self {
            order: walk.map(|seed| Permutation::new(blocks.max(1), seed)),
            index: 0,
            seen,
            full: vec![0; words.div_ceil(64)],
            blocks,
            left: blocks,
        }
    }
    fn mark(&mut self, b: u64) {
        let word = (b / 64) as usize;
        self.seen[word] |= 1 << (b % 64);
        if self.seen[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.left -= 1;
    }
    /// The first free block at or after `b`, from the beginning where there is none.
    fn free_from(&self, b: u64) -> u64 {
        let first = (b / 64) as usize;
        let here = !self.seen[first] & (u64::MAX << (b % 64));
        if here != 0 {
            return first as u64 * 64 + u64::from(here.trailing_zeros());
        }
        let mut word = first + 1;
        loop {
            if word >= self.seen.len() {
                word = 0;
            }
            let open = !self.full[word / 64] & (u64::MAX << (word % 64));
            let next = word / 64 * 64 + open.trailing_zeros() as usize;
            if open == 0 || next >= self.seen.len() {
                word = (word / 64 + 1) * 64;
                continue;
            }
            let free = !self.seen[next];
            return next as u64 * 64 + u64::from(free.trailing_zeros());
        }
    }
    fn is_seen(&self, b: u64) -> bool {
        self.seen[(b / 64) as usize] >> (b % 64) & 1 == 1
    }
    /// A block that was not visited, and how many free ones follow, at most `want` in all, which depends on the block.
    fn take(
        &mut self,
        rng: &mut Rng,
        want: impl FnOnce(u64, &mut Rng) -> u64,
    ) -> Option<(u64, u64)> {
        if self.left == 0 {
            return None;
        }
        let b = match &self.order {
            None => self.free_from(rng.below(self.blocks)),
            Some(order) => loop {
                let b = order.at(self.index);
                self.index += 1;
                if !self.is_seen(b) {
                    break b;
                }
            },
        };
        let (mut n, want) = (0, want(b, rng));
        while n < want && b + n < self.blocks && !self.is_seen(b + n) {
            self.mark(b + n);
            n += 1;
        }
        Some((b, n))
    }
}

/// One file of a job.
pub(super) struct Place {
    start: u64,
    end: u64,
    /// First byte of the zone under way.
    zone: u64,
    last: [u64; 3],
    last_start: [Option<u64>; 3],
    /// One for all directions, in the place of reads, or one for each where their units differ.
    maps: [Option<Map>; 3],
    zones: Option<Zones>,
    passes: u64,
    /// It began again since this was asked last.
    wrapped: bool,
    step: u64,
    spots: Option<[Spots; 3]>,
    seed: u64,
}

/// Largest map, in blocks.
const MAP_MAX: u64 = 1 << 32;

impl Place {
    pub(super) fn new(recipe: &Recipe, start: u64, end: u64, seed: u64) -> Self {
        let mut p = Self {
            start,
            end,
            zone: start,
            last: [start; 3],
            last_start: [None; 3],
            maps: [const { None }; 3],
            zones: recipe.zoned.map(|z| Zones::new(z, start, end)),
            passes: 0,
            wrapped: false,
            step: 0,
            spots: None,
            seed,
        };
        let range = p.end - p.start;
        p.spots = Some([0, 1, 2].map(|i: usize| {
            let (dist, center) = match &recipe.draw[i] {
                Draw::By(d, c) => (*d, *c),
                _ => (Distribution::Uniform, None),
            };
            let blocks = (range / recipe.align[i].max(1)).max(1);
            Spots::new(dist, blocks, seed, center.is_none())
        }));
        p.reset(recipe);
        p
    }

    /// Whether it began again since this was asked last.
    pub(super) fn wrapped(&mut self) -> bool {
        std::mem::take(&mut self.wrapped)
    }

    /// Zones that were emptied to be written again.
    pub(super) fn zone_resets(&self) -> u64 {
        self.zones.as_ref().map_or(0, |z| z.resets)
    }

    /// Back to the beginning of a pass.
    pub(super) fn reset(&mut self, recipe: &Recipe) {
        self.last = [self.start; 3];
        self.zone = self.start;
        self.last_start = [None; 3];
        self.new_map(recipe);
    }

    fn area(&self, recipe: &Recipe) -> (u64, u64) {
        match recipe.strided {
            Some(z) => (self.zone, (self.zone + z.range).min(self.end)),
            None => (self.start, self.end),
        }
    }

    fn new_map(&mut self, recipe: &Recipe) {
        self.maps = [const { None }; 3];
        // The same order again in every loop.
        if !recipe.repeats {
            self.passes += 1;
        }
        if recipe.map && recipe.zoned.is_none() {
            let (a, b) = self.area(recipe);
            for i in (0..3).filter(|i| recipe.does[*i]) {
                let blocks = (b - a) / recipe.align[i].max(1);
                let slot = map_of(recipe, i);
                if blocks > 0 && blocks <= MAP_MAX && self.maps[slot].is_none() {
                    let seed = self
                        .seed
                        .wrapping_add(self.passes)
                        .wrapping_add((slot as u64) << 32);
                    self.maps[slot] = Some(Map::new(blocks, recipe.walks.then_some(seed)));
                }
            }
        }
    }

    /// Moves to the next zone once `done` bytes were done in this one.
    fn zones(&mut self, recipe: &Recipe, z: Strided, done: &mut u64, direction: usize) {
        if *done >= z.size {
            *done = 0;
            self.zone += z.range + z.skip;
            if self.zone >= self.end {
                self.zone = self.start;
            }
            self.last = [self.zone; 3];
            self.new_map(recipe);
        }
        if self.last[direction] >= self.zone + z.range {
            self.last[direction] = self.zone;
        }
    }

    /// The next I/O of one of these sizes; `None` at the end of a sequential pass. `again`: it begins again then.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn next(
        &mut self,
        recipe: &Recipe,
        direction: usize,
        sizes: &Sizes,
        jump: bool,
        random: bool,
        again: bool,
        zone_bytes: &mut u64,
        rng: &mut Rng,
    ) -> Option<(u64, u64)> {
        if let Some(z) = recipe.strided {
            self.zones(recipe, z, zone_bytes, direction);
        }
        if recipe.pairs && direction == 1 {
            // The trim before it says where and how much.
            let at = self.last_start[2]?;
            let len = self.last[2] - at;
            self.last_start[1] = Some(at);
            self.last[1] = at + len;
            return Some((at, len));
        }
        let found = if let Some(z) = &mut self.zones {
            let want = size(sizes, u64::MAX, rng).unwrap_or(0);
            match direction {
                0 => z.read(random, want, again, rng),
                _ => Some(z.write(random, want, rng)),
            }
        } else if random {
            self.random(recipe, direction, sizes, rng)
        } else if recipe.random && !jump && recipe.identical {
            let at = self.last_start[direction].unwrap_or(self.start);
            size(sizes, self.end - at, rng).map(|n| (at, n))
        } else {
            self.sequential(recipe, direction, sizes, again || recipe.random, rng)
        };
        let (at, len) = found?;
        self.last_start[direction] = Some(at);
        self.last[direction] = at + len;
        *zone_bytes += len;
        Some((at, len))
    }

    fn sequential(
        &mut self,
        recipe: &Recipe,
        direction: usize,
        sizes: &Sizes,
        again: bool,
        rng: &mut Rng,
    ) -> Option<(u64, u64)> {
        let (start, end) = self.area(recipe);
        let mut pos = self.last[direction].max(start);
        if pos > start && recipe.hole != 0 {
            let moved = pos as i128 + i128::from(recipe.hole);
            if moved < i128::from(start) {
                // Backwards past the beginning: on from the end.
                pos = (i128::from(end) + i128::from(recipe.hole)).max(i128::from(start)) as u64;
            } else {
                pos = moved as u64;
            }
        }
        if pos >= end {
            if !again {
                return None;
            }
            pos = start;
            self.wrapped = true;
        }
        if let Some(len) = size(sizes, end - pos, rng) {
            return Some((pos, len));
        }
        if !again {
            return None;
        }
        self.wrapped = true;
        size(sizes, end - start, rng).map(|len| (start, len))
    }

    fn random(
        &mut self,
        recipe: &Recipe,
        direction: usize,
        sizes: &Sizes,
        rng: &mut Rng,
    ) -> Option<(u64, u64)> {
        let (start, end) = self.area(recipe);
        let align = recipe.align[direction].max(1);
        let slot = map_of(recipe, direction);
        if self.maps[slot].is_some() {
            for _ in 0..2 {
                let (map, mut len) = (self.maps[slot].as_mut()?, 0);
                let found = map.take(rng, |b, rng| {
                    let room = end - (start + b * align);
                    // The last block may be short of the smallest size.
                    len = size(sizes, room, rng).unwrap_or(room);
                    len.div_ceil(align)
                });
                if let Some((b, n)) = found {
                    return Some((start + b * align, (n * align).min(len)));
                }
                self.new_map(recipe);
                self.wrapped = true;
            }
            return None;
        }
        // The place comes first, as in fio: near the end only smaller blocks fit.
        let room = (end - start).checked_sub(sizes.min())?;
        let blocks = room / align + 1;
        let block = match &recipe.draw[direction] {
            Draw::By(_, center) => {
                let spot = self
                    .spots
                    .as_ref()
                    .map_or(0, |s| s[direction].pick(blocks, rng));
                match center {
                    Some(c) => (spot + (c * blocks as f64) as u64) % blocks,
                    None => spot,
                }
            }
            Draw::Zoned(zones) => {
                let (a, b) = zone(zones, rng, |share| (share * blocks as f64) as u64);
                let b = b.min(blocks).max(a + 1);
                a + rng.below(b - a)
            }
            Draw::ZonedBytes(zones) => {
                let (a, b) = zone(zones, rng, |bytes| bytes / align);
                let b = b.min(blocks).max(a + 1);
                a + rng.below(b - a)
            }
            Draw::Sequence(list, stride) => {
                let i = self.step;
                self.step += 1;
                let n = list.len() as u64;
                let base = if *stride { i / n * n } else { 0 };
                base + list[(i % n) as usize]
            }
        };
        let at = start + block.min(blocks - 1) * align;
        size(sizes, end - at, rng).map(|len| (at, len))
    }
}

/// Which map a direction uses: all of them one, where their units are alike.
fn map_of(recipe: &Recipe, direction: usize) -> usize {
    let mut used = (0..3).filter(|i| recipe.does[*i]).map(|i| recipe.align[i]);
    let first = used.next();
    if used.all(|a| Some(a) == first) {
        0
    } else {
        direction
    }
}

/// Begin and end of the zone that the dice choose.
fn zone<T: Copy>(zones: &[(f64, T)], rng: &mut Rng, place: impl Fn(T) -> u64) -> (u64, u64) {
    let total: f64 = zones.iter().map(|z| z.0).sum();
    let dice = rng.unit() * total;
    let mut sum = 0.0;
    let mut begin = 0;
    for (share, end) in zones {
        sum += share;
        if dice < sum {
            return (begin, place(*end));
        }
        begin = place(*end);
    }
    (0, begin.max(1))
}

/// Draws of a size that fits: more than any weight in whole percent needs.
const DRAWS_MAX: u32 = 5_000;

/// A block size that fits into `room`: as in fio it is drawn until one does, and of weighted sizes the next one is taken
/// where the drawn one does not. `None` where not even the smallest fits.
fn size(sizes: &Sizes, room: u64, rng: &mut Rng) -> Option<u64> {
    if sizes.min() > room {
        return None;
    }
    match sizes {
        Sizes::One(n) => Some(*n),
        Sizes::Range(a, b) => {
            let mut drawn = (0..DRAWS_MAX).map(|_| (1 + rng.below((b / a).max(1))) * a);
            drawn.find(|n| *n <= room).or(Some(*a))
        }
        Sizes::Split(list) => {
            let total: f64 = list.iter().map(|s| s.1).sum();
            let mut draw = || {
                let mut dice = rng.unit() * total;
                let fits = list.iter().find(|(n, w)| {
                    dice -= w;
                    dice < 0.0 && *n <= room
                });
                fits.map(|s| s.0)
            };
            (0..DRAWS_MAX).find_map(|_| draw()).or(Some(sizes.min()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_every_block_once_whatever_the_generator() {
        let mut rng = Rng::new(5, 6);
        for blocks in [1, 63, 64, 65, 4096, 5000, 10_001] {
            for walk in [None, Some(7)] {
                let mut m = Map::new(blocks, walk);
                let mut seen = vec![false; blocks as usize];
                let mut want = 1;
                while let Some((b, n)) = m.take(&mut rng, |_, _| want) {
                    for i in b..b + n {
                        assert!(
                            !std::mem::replace(&mut seen[i as usize], true),
                            "{blocks} {i}"
                        );
                    }
                    want = want % 5 + 1;
                }
                assert!(seen.iter().all(|s| *s), "{blocks}");
            }
        }
    }
}

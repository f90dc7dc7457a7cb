//! Where the next I/O of a guided job goes, as fio decides it: sequences with holes, runs, zones, maps over mixed sizes.

use std::sync::Arc;

use fathom_telemetry::Op;

use super::device::{Device, Found, OnDevice};
use super::random::{Purpose, Seeds, ShiftRegister, Stream, Streams};
use super::skew::{Skew, name_hash};
use super::zones::Zones;
use crate::translate::recipe::{Draw, Recipe, Sizes, Strided};

/// Blocks that were visited in this pass; where one is drawn again, the first free one after it is taken.
struct Map {
    seen: Vec<u64>,
    /// Words of `seen` that are full, a bit each.
    full: Vec<u64>,
    blocks: u64,
    left: u64,
}

impl Map {
    fn new(blocks: u64) -> Self {
        let words = blocks.div_ceil(64) as usize;
        let mut map = Self {
            seen: vec![0; words],
            full: vec![0; words.div_ceil(64)],
            blocks,
            left: 0,
        };
        map.all_free();
        map
    }
    fn reset(&mut self) {
        self.seen.fill(0);
        self.full.fill(0);
        self.all_free();
    }
    /// Of a map whose bits are all clear.
    fn all_free(&mut self) {
        self.left = self.blocks;
        if let Some(last) = self.seen.last_mut()
            && !self.blocks.is_multiple_of(64)
        {
            // What lies beyond the end is never free.
            *last = u64::MAX << (self.blocks % 64);
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
    fn free_from(&self, b: u64) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        let first = (b / 64) as usize;
        let here = !self.seen[first] & (u64::MAX << (b % 64));
        if here != 0 {
            return Some(first as u64 * 64 + u64::from(here.trailing_zeros()));
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
            return Some(next as u64 * 64 + u64::from(free.trailing_zeros()));
        }
    }
    fn is_seen(&self, b: u64) -> bool {
        self.seen[(b / 64) as usize] >> (b % 64) & 1 == 1
    }
    /// Marks up to `n` blocks from `b`, as far as they are free; how many they were.
    fn take(&mut self, b: u64, n: u64) -> u64 {
        let mut taken = 0;
        while taken < n && b + taken < self.blocks && !self.is_seen(b + taken) {
            self.mark(b + taken);
            taken += 1;
        }
        taken
    }
}

/// How blocks are drawn, and what keeps them from coming twice.
enum Drawn {
    /// Any, and again.
    Any,
    Mapped(Map),
    Walked(ShiftRegister),
    Skewed(Skew),
}

/// One file of a job.
pub(super) struct Place {
    start: u64,
    end: u64,
    /// First byte of the zone under way; of the range, where there are none.
    zone: u64,
    last: [u64; 3],
    last_start: [Option<u64>; 3],
    drawn: Drawn,
    /// Blocks of each direction's alignment, the last of which holds the smallest size.
    blocks: [u64; 3],
    zones: Option<Zones>,
    /// The same on a device with zones of its own.
    device: Option<OnDevice>,
    busy: bool,
    /// It began again since this was asked last.
    wrapped: bool,
}

/// Largest map, in blocks.
const MAP_MAX: u64 = 1 << 32;

/// What is asked of a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) direction: usize,
    /// I/Os of this direction before.
    pub(super) issued: u64,
    /// A sequence inside a random pattern is at its end.
    pub(super) jump: bool,
    pub(super) random: bool,
    /// A sequential pass begins again at its end.
    pub(super) again: bool,
    /// Random blocks begin again when all are done.
    pub(super) renewed: bool,
}

impl Place {
    /// A range of the file of this name.
    pub(super) fn new(
        recipe: &Recipe,
        (start, end): (u64, u64),
        name: &[u8],
        seeds: Seeds,
        device: Option<Arc<Device>>,
    ) -> Self {
        let size = recipe.strided.map_or(end - start, |z| z.range);
        let blocks = size / recipe.smallest();
        let seed = seeds.of(Purpose::Block);
        let drawn = match &recipe.draw[0] {
            Draw::By(by, center) => {
                let smallest = recipe.sizes[0].min().min(recipe.sizes[1].min());
                let places = (end - start).div_ceil(smallest.max(1));
                let own = u64::from(name_hash(name)).wrapping_mul(seeds.thread);
                let own = if seeds.fixed {
                    own
                } else {
                    own.wrapping_mul(seed)
                };
                Skew::new(*by, places, *center, true, own).map(Drawn::Skewed)
            }
            _ => None,
        };
        let drawn = match drawn {
            Some(skewed) => skewed,
            None if !recipe.random || blocks == 0 => Drawn::Any,
            None if recipe.walks() => Drawn::Walked(ShiftRegister::new(blocks, seed)),
            None if recipe.map && recipe.zoned.is_none() && blocks <= MAP_MAX => {
                Drawn::Mapped(Map::new(blocks))
            }
            None => Drawn::Any,
        };
        Self {
            start,
            end,
            zone: start,
            last: [start; 3],
            last_start: [None; 3],
            drawn,
            blocks: [0, 1, 2].map(|i: usize| {
                let align = recipe.align[i].max(1);
                let beyond = recipe.sizes[i].min().saturating_sub(align);
                size.saturating_sub(beyond) / align
            }),
            device: recipe
                .zoned
                .zip(device.clone())
                .map(|(z, d)| OnDevice::new(z, d, (start, end), recipe.does[1])),
            busy: false,
            zones: recipe
                .zoned
                .filter(|_| device.is_none())
                .map(|z| Zones::new(z, start, end)),
            wrapped: false,
        }
    }

    /// Whether an I/O went there in this pass.
    pub(super) fn is_begun(&self) -> bool {
        self.last_start.iter().any(Option::is_some)
    }

    /// Whether it began again since this was asked last.
    pub(super) fn wrapped(&mut self) -> bool {
        std::mem::take(&mut self.wrapped)
    }

    /// Zones that were emptied to be written again.
    pub(super) fn zone_resets(&self) -> u64 {
        let own = self.zones.as_ref().map_or(0, |z| z.resets);
        own + self.device.as_ref().map_or(0, |d| d.resets)
    }

    /// Whether there was nothing because of what must complete first.
    pub(super) fn is_busy(&mut self) -> bool {
        std::mem::take(&mut self.busy)
    }

    /// Whether its zones hold nothing to be read.
    pub(super) fn is_empty(&self) -> bool {
        self.device.as_ref().is_some_and(OnDevice::is_empty)
    }

    /// An I/O of it has completed.
    pub(super) fn done(&mut self, recipe: &Recipe, offset: u64, op: Op, good: bool) {
        if let Some(d) = &mut self.device {
            d.done(offset, op, good, recipe.sizes[1].min());
        }
    }

    /// Back to the beginning of a pass.
    pub(super) fn reset(&mut self) {
        self.zone = self.start;
        self.anew();
    }

    /// Nothing was visited, from the beginning of the zone under way.
    fn anew(&mut self) {
        self.last = [self.zone; 3];
        self.last_start = [None; 3];
        match &mut self.drawn {
            Drawn::Mapped(map) => map.reset(),
            Drawn::Walked(register) => register.reset(),
            Drawn::Any | Drawn::Skewed(_) => {}
        }
    }

    /// Moves to the next zone once `done` bytes were done in this one.
    fn zones(&mut self, z: Strided, done: &mut u64, direction: usize) {
        if *done >= z.size {
            *done = 0;
            self.zone += z.range + z.skip;
            if self.zone >= self.end {
                self.zone = self.start;
            }
            self.last[direction] = self.zone;
        }
        if self.last[direction] >= self.zone + z.range {
            self.last[direction] = self.zone;
        }
        if done.is_multiple_of(z.range.max(1)) {
            self.anew();
        }
    }

    /// The next I/O; `None` at the end of a pass.
    pub(super) fn next(
        &mut self,
        recipe: &Recipe,
        turn: Turn,
        zone_bytes: &mut u64,
        streams: &mut Streams,
    ) -> Option<(u64, u64)> {
        let direction = turn.direction;
        if let Some(z) = recipe.strided {
            self.zones(z, zone_bytes, direction);
        }
        if recipe.pairs && direction == 1 {
            // The trim before it says where and how much.
            let at = self.last_start[2]?;
            let len = self.last[2] - at;
            self.last_start[1] = Some(at);
            self.last[1] = at + len;
            return Some((at, len));
        }
        let which = match (recipe.by_motion, turn.random) {
            (false, _) => direction,
            (true, random) => usize::from(random),
        };
        let found = if let Some(d) = &mut self.device {
            let want = recipe
                .size(which, u64::MAX, &mut streams.sizes[which])
                .unwrap_or(0);
            let found = match direction {
                0 => d.read(turn.random, want, turn.again, &mut streams.block),
                2 => d.trim(turn.random, turn.again, &mut streams.block),
                _ => {
                    let smallest = recipe.sizes[1].min().min(want).max(1);
                    d.write(turn.random, (want, smallest), &mut streams.block)
                }
            };
            self.busy = found == Found::Busy;
            match found {
                Found::At(at, len) => Some((at, len)),
                Found::Busy | Found::None => None,
            }
        } else if let Some(z) = &mut self.zones {
            let want = recipe
                .size(which, u64::MAX, &mut streams.sizes[which])
                .unwrap_or(0);
            match direction {
                0 => z.read(turn.random, want, turn.again, &mut streams.block),
                _ => Some(z.write(turn.random, want, &mut streams.block)),
            }
        } else if turn.random {
            self.random(recipe, turn, which, streams)
        } else if recipe.random && !turn.jump && recipe.identical {
            let at = self.last_start[direction].unwrap_or(self.start);
            recipe
                .size(which, self.end - at, &mut streams.sizes[which])
                .map(|n| (at, n))
        } else {
            let stream = &mut streams.sizes[which];
            match self.sequential(recipe, turn, which, stream) {
                // Where a sequence inside a random pattern ends, the next place is drawn.
                None if recipe.random => self.random(recipe, turn, which, streams),
                found => found,
            }
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
        turn: Turn,
        which: usize,
        stream: &mut Stream,
    ) -> Option<(u64, u64)> {
        let (start, end) = (self.zone, self.end);
        let mut pos = self.last[turn.direction].max(start);
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
            if !turn.again {
                return None;
            }
            pos = start;
            self.wrapped = true;
        }
        if let Some(len) = recipe.size(which, end - pos, stream) {
            return Some((pos, len));
        }
        if !turn.again {
            return None;
        }
        self.wrapped = true;
        recipe
            .size(which, end - start, stream)
            .map(|len| (start, len))
    }

    fn random(
        &mut self,
        recipe: &Recipe,
        turn: Turn,
        which: usize,
        streams: &mut Streams,
    ) -> Option<(u64, u64)> {
        let mut block = self.block(recipe, turn, streams);
        if block.is_none() && turn.renewed {
            self.anew();
            self.wrapped = true;
            block = self.block(recipe, turn, streams);
        }
        let (start, end) = (self.zone, self.end);
        let block = block?;
        let at = start + block * recipe.align[turn.direction].max(1);
        if at >= end {
            return None;
        }
        let len = recipe.size(which, end - at, &mut streams.sizes[which])?;
        let Drawn::Mapped(map) = &mut self.drawn else {
            return Some((at, len));
        };
        if !turn.random {
            return Some((at, len));
        }
        // A map goes with blocks as large as the smallest size.
        let unit = recipe.align[turn.direction].max(1);
        let taken = map.take(block, if len == unit { 1 } else { len.div_ceil(unit) });
        Some((at, len.min(taken.max(1) * unit)))
    }

    /// The next block by its number, in units of the direction's alignment.
    fn block(&mut self, recipe: &Recipe, turn: Turn, streams: &mut Streams) -> Option<u64> {
        let direction = turn.direction;
        let align = recipe.align[direction].max(1);
        let blocks = self.blocks[direction];
        if blocks == 0 {
            return None;
        }
        if let Drawn::Skewed(skew) = &mut self.drawn {
            return Some(skew.next());
        }
        let (first, n) = match &recipe.draw[direction] {
            Draw::By(..) => (0, blocks),
            Draw::Zoned(table) => {
                let (from, to) = table[(streams.zone.percent() - 1) as usize];
                (from * blocks / 100, blocks * (to - from) / 100)
            }
            Draw::ZonedBytes(table) => {
                let (from, to) = table[(streams.zone.percent() - 1) as usize];
                if to / align > blocks {
                    return None;
                }
                (from / align, to / align - from / align)
            }
            Draw::Sequence(list, stride) => {
                let (n, i) = (list.len() as u64, turn.issued);
                let base = if *stride { i / n * n } else { 0 };
                let block = base + list[(i % n) as usize];
                return (block < blocks).then_some(block);
            }
        };
        match &mut self.drawn {
            Drawn::Walked(register) => register.next().map(|b| first + b),
            Drawn::Mapped(map) => {
                let b = first + streams.block.below(n);
                if b < map.blocks && !map.is_seen(b) {
                    Some(b)
                } else {
                    map.free_from(b.min(map.blocks - 1))
                }
            }
            Drawn::Any | Drawn::Skewed(_) => Some(first + streams.block.below(n)),
        }
    }
}

/// Draws of a size that fits: more than any weight in whole percent needs.
const DRAWS_MAX: u32 = 5_000;

impl Recipe {
    /// A block size that fits into `room`: as in fio it is drawn until one does, and of weighted sizes the next one is
    /// taken where the drawn one does not. `None` where not even the smallest fits.
    fn size(&self, which: usize, room: u64, stream: &mut Stream) -> Option<u64> {
        let sizes = &self.sizes[which];
        if let Sizes::One(n) = sizes {
            return (*n <= room).then_some(*n);
        }
        let (smallest, largest) = (sizes.min(), sizes.max());
        if smallest > room {
            return None;
        }
        if smallest == largest {
            return Some(smallest);
        }
        for _ in 0..DRAWS_MAX {
            let drawn = match sizes {
                Sizes::One(n) => *n,
                Sizes::Range(..) => smallest + (largest as f64 * stream.unit()) as u64,
                Sizes::Split(list) => {
                    let (r, hundredth) = (stream.next(), stream.max() / 100);
                    let mut sum = 0;
                    let mut found = smallest;
                    for (n, percent) in list {
                        sum += percent;
                        found = *n;
                        if r / sum <= hundredth && *n <= room {
                            break;
                        }
                    }
                    found
                }
            };
            let odd = if self.unaligned { 0 } else { drawn % smallest };
            let whole = (drawn - odd).min(largest);
            if whole <= room {
                return Some(whole);
            }
        }
        Some(smallest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_every_block_once() {
        let mut stream = Stream::new(5);
        for blocks in [1, 63, 64, 65, 4096, 5000, 10_001] {
            let mut m = Map::new(blocks);
            for _ in 0..2 {
                let mut seen = vec![false; blocks as usize];
                let mut want = 1;
                while let Some(b) = m.free_from(stream.below(blocks)) {
                    for i in b..b + m.take(b, want) {
                        assert!(
                            !std::mem::replace(&mut seen[i as usize], true),
                            "{blocks} {i}"
                        );
                    }
                    want = want % 5 + 1;
                }
                assert!(seen.iter().all(|s| *s), "{blocks}");
                m.reset();
            }
        }
    }
}

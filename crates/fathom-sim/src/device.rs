//! One device in virtual time: queue slots, a serial pipeline, media units, a fixed latency.
//!
//! Commands arrive in the order of their time, so each resource is one number: when it is free
//! again. That makes a command cost a few additions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fathom_io::load::rng::{Rng, mix};
use fathom_telemetry::Op;

use crate::flash::FlashState;
use crate::model::{Mechanical, Model, Path};
use crate::spread::Spread;
use crate::thermal::ThermalState;

/// Bytes that one media unit holds in a row.
const PAGE: u64 = 4096;
/// Sequential streams that a device follows.
const STREAMS: usize = 64;
/// Bits of the hash of a stream's end: 6 % of random reads meet the hash of another one's.
const STREAM_BITS: u32 = 10;
/// Writes spoil no more reads than these, however many there were.
const MOST_SPOILT: f64 = 64.0;
/// Devices with more slots never run out of them.
const MANY_SLOTS: u32 = 1024;

/// Times of one direction, ready to use.
#[derive(Debug, Clone, Copy)]
struct Times {
    command_ns: f64,
    ns_per_byte: f64,
    media_ns: u64,
    fixed_ns: u64,
    /// Bytes of the last command, and its time in the pipeline, ns.
    last: (u32, u64),
}

impl Times {
    fn new(p: &Path) -> Self {
        Self {
            command_ns: p.command_ns,
            ns_per_byte: 1.0 / p.gb_per_s,
            media_ns: (p.media_us * 1e3).round() as u64,
            fixed_ns: (p.fixed_us * 1e3).round() as u64,
            last: (0, p.command_ns.round() as u64),
        }
    }
    /// Time in the pipeline, ns: kept, since most commands are as large as the one before and rounding is dear.
    #[inline]
    fn pipeline(&mut self, bytes: u32) -> u64 {
        if self.last.0 != bytes {
            let ns = self.command_ns + f64::from(bytes) * self.ns_per_byte;
            self.last = (bytes, ns.round() as u64);
        }
        self.last.1
    }
}

/// A device's state. Times are ns of virtual time.
#[derive(Debug, Clone)]
pub struct Device {
    /// Of reads, and of all else.
    times_of: [Times; 2],
    slots: Option<(usize, BinaryHeap<Reverse<u64>>)>,
    pipeline_free: u64,
    units: Box<[u64]>,
    pipeline_spread: Spread,
    media_spread: Spread,
    streams: Option<Box<Streams>>,
    arm: Option<Arm>,
    flash: Option<FlashState>,
    thermal: Option<Box<ThermalState>>,
    /// Where programming goes on next.
    program_unit: usize,
    /// Sequential reads to come whose read-ahead is lost.
    spoilt: f64,
    /// Moments that each one stands for.
    times: u64,
    /// Bytes read and written so far.
    moved: [u64; 2],
    rng: Rng,
}

/// How busy a device was when a command arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    slot: u64,
    controller: u64,
    moved: [u64; 2],
}

#[derive(Debug, Clone)]
struct Arm {
    m: Mechanical,
    size: u64,
    at: u64,
}

impl Device {
    /// A fresh device. `seed` and `number` (of a member of an array) make its scatter its own.
    pub fn new(model: &Model, seed: u64, number: u64) -> Self {
        let slots = (model.slots < MANY_SLOTS)
            .then(|| (model.slots as usize, BinaryHeap::with_capacity(64)));
        Self {
            times_of: [Times::new(&model.read), Times::new(&model.write)],
            slots,
            pipeline_free: 0,
            units: vec![0; model.units as usize].into(),
            pipeline_spread: Spread::new(model.pipeline_cv),
            media_spread: Spread::new(model.media_cv),
            streams: model.read_ahead.then(Box::default),
            arm: model.mechanical.map(|m| Arm {
                m,
                size: model.size(),
                at: 0,
            }),
            flash: model.flash.map(|f| FlashState::new(f, model.size())),
            thermal: model
                .thermal
                .map(|t| Box::new(ThermalState::new(t, t.ambient_c))),
            program_unit: 0,
            spoilt: 0.0,
            times: 1,
            moved: [0; 2],
            rng: Rng::new(seed, 0x5349_4d00 + number),
        }
    }

    /// Wear and space of its flash, where it has any.
    pub fn flash(&mut self) -> Option<&mut FlashState> {
        self.flash.as_mut()
    }

    /// Whether it refuses a command: writes, once it is worn out.
    #[inline]
    pub fn refuses(&self, op: Op) -> bool {
        op == Op::Write && self.flash.as_ref().is_some_and(FlashState::is_read_only)
    }

    /// Whether it may come to refuse commands.
    pub fn may_refuse(&self) -> bool {
        let flash = self.flash.as_ref();
        flash.is_some_and(FlashState::may_become_read_only)
    }

    /// Bytes read and written so far.
    pub fn moved(&self) -> [u64; 2] {
        self.moved
    }

    /// Its heat, where it is modelled.
    pub fn thermal(&self) -> Option<&ThermalState> {
        self.thermal.as_deref()
    }

    /// How busy it is at `at`, before a command that arrives then.
    pub(crate) fn before(&self, at: u64) -> Before {
        let slot = match &self.slots {
            Some((n, busy)) if busy.len() >= *n => busy.peek().map_or(at, |Reverse(f)| at.max(*f)),
            _ => at,
        };
        Before {
            slot,
            controller: self.pipeline_free,
            moved: self.moved,
        }
    }

    /// When a command that has just been served from `before` on, until `end`, left each part: waiting for a slot, waiting
    /// for the controller, the controller, the medium; `None` where it never came here.
    pub(crate) fn parts(&self, before: &Before, op: Op, end: u64) -> Option<[u64; 4]> {
        if self.moved == before.moved && matches!(op, Op::Read | Op::Write) {
            return None;
        }
        let fixed = self.times_of[usize::from(op != Op::Read)].fixed_ns;
        let slot = before.slot.min(end);
        let begun = slot.max(before.controller).min(end);
        let moved = self.pipeline_free.clamp(begun, end);
        Some([slot, begun, moved, end.saturating_sub(fixed).max(moved)])
    }

    /// From `at` on each command stands for `times` of them.
    pub fn sample(&mut self, at: u64, times: u64) {
        if let Some(t) = &mut self.thermal {
            t.settle(at, self.times);
        }
        self.times = times;
    }

    /// Takes a command that arrives at `at` (not before the previous one); returns when it is done.
    pub fn serve(&mut self, at: u64, op: Op, offset: u64, bytes: u32) -> u64 {
        self.serve_here(at, op, offset, bytes)
    }

    /// The same, compiled where it is called: for a loop around it.
    #[inline(always)]
    pub(crate) fn serve_here(&mut self, at: u64, op: Op, offset: u64, bytes: u32) -> u64 {
        if matches!(op, Op::Read | Op::Write) {
            self.moved[usize::from(op == Op::Write)] += u64::from(bytes) * self.times;
        }
        let begin = match &mut self.slots {
            Some((n, busy)) if busy.len() >= *n => {
                busy.pop().map_or(at, |Reverse(free)| free.max(at))
            }
            _ => at,
        };
        let times = &mut self.times_of[usize::from(op != Op::Read)];
        let mut serial = self.pipeline_spread.apply(
            times.pipeline(if op == Op::Trim { 0 } else { bytes }),
            &mut self.rng,
        );
        let (media_ns, fixed_ns) = (times.media_ns, times.fixed_ns);
        if let Some(f) = &mut self.flash {
            serial = match op {
                Op::Write => f.write(begin, offset, bytes, serial, self.times),
                Op::Trim => {
                    f.trim(bytes, self.times);
                    serial
                }
                _ => serial,
            };
            if op == Op::Write {
                self.spoilt = (self.spoilt + f.reads_spoilt()).min(MOST_SPOILT);
            }
        }
        if let Some(t) = &mut self.thermal {
            let factor = t.work(begin, serial, self.times);
            if factor > 1.0 {
                serial = (serial as f64 * factor) as u64;
            }
        }
        let moved = begin.max(self.pipeline_free) + serial;
        self.pipeline_free = moved;
        let mut skips = matches!(op, Op::Trim | Op::Sync);
        if op == Op::Read && self.follows(offset, bytes) {
            skips = self.spoilt < 1.0;
            if !skips {
                self.spoilt -= 1.0;
            }
        }
        let end = if skips || media_ns == 0 {
            moved
        } else {
            let worn = self.flash.as_ref().map_or(0, FlashState::retried_below);
            let again = op == Op::Read && worn > 0 && self.rng.bits() < worn;
            let media_ns = media_ns << u32::from(again);
            self.media(moved, media_ns, offset, bytes)
        } + fixed_ns;
        if op == Op::Write
            && let Some(f) = &self.flash
        {
            let ns = f.program_ns();
            if ns > 0 {
                self.program(moved, ns, bytes);
            }
        }
        if let Some((_, busy)) = &mut self.slots {
            busy.push(Reverse(end));
        }
        end
    }

    /// Pages go from the buffer to the units in turn: who reads there meanwhile waits.
    fn program(&mut self, at: u64, ns: u64, bytes: u32) {
        let k = self.units.len();
        let pages = u64::from(bytes).div_ceil(PAGE);
        let (each, rest) = (pages / k as u64, (pages % k as u64) as usize);
        let busy = if each > 0 { k } else { rest };
        for i in 0..busy {
            let n = each + u64::from(i < rest);
            let unit = &mut self.units[(self.program_unit + i) % k];
            *unit = at.max(*unit) + n * ns;
        }
        self.program_unit = (self.program_unit + rest) % k;
    }

    /// Occupies consecutive units, from the one that the first page lies on.
    #[inline(always)]
    fn media(&mut self, at: u64, media_ns: u64, offset: u64, bytes: u32) -> u64 {
        let k = self.units.len() as u64;
        if let Some(arm) = &mut self.arm {
            let time = media_ns + arm.travel(offset, bytes, &mut self.rng);
            let end = at.max(self.units[0]) + time;
            self.units[0] = end;
            return end;
        }
        let page = offset / PAGE;
        let mut number = ((u128::from(mix(page)) * u128::from(k)) >> 64) as u64;
        let mut left = u64::from(bytes).min(PAGE * k);
        let mut last = at;
        loop {
            let unit = &mut self.units[number as usize];
            *unit = at.max(*unit) + self.media_spread.apply(media_ns, &mut self.rng);
            last = last.max(*unit);
            if left <= PAGE {
                return last;
            }
            left -= PAGE;
            number += 1;
            if number == k {
                number = 0;
            }
        }
    }

    /// Whether a read continues a stream; remembers where it ends.
    #[inline]
    fn follows(&mut self, offset: u64, bytes: u32) -> bool {
        let end = offset + u64::from(bytes);
        self.streams.as_mut().is_some_and(|s| s.follow(offset, end))
    }
}

/// Where followed streams end; the oldest entry is replaced.
#[derive(Debug, Clone)]
struct Streams {
    ends: [u64; STREAMS],
    next: usize,
    /// How many ends have each hash: a random read mostly finds none, and then no end is looked at.
    hashes: [u8; 1 << STREAM_BITS],
}

impl Default for Streams {
    fn default() -> Self {
        let nowhere = u64::MAX;
        let mut hashes = [0; 1 << STREAM_BITS];
        hashes[Self::hash(nowhere)] = STREAMS as u8;
        Self {
            ends: [nowhere; STREAMS],
            next: 0,
            hashes,
        }
    }
}

impl Streams {
    #[inline]
    fn hash(end: u64) -> usize {
        (end.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - STREAM_BITS)) as usize
    }

    /// Whether a stream ends at `offset`; it, or a new one, ends at `end` then.
    #[inline]
    fn follow(&mut self, offset: u64, end: u64) -> bool {
        let found = match self.hashes[Self::hash(offset)] {
            0 => None,
            _ => self.ends.iter().position(|e| *e == offset),
        };
        let place = found.unwrap_or(self.next);
        self.hashes[Self::hash(self.ends[place])] -= 1;
        self.hashes[Self::hash(end)] += 1;
        self.ends[place] = end;
        if found.is_none() {
            self.next = (self.next + 1) % STREAMS;
        }
        found.is_some()
    }
}

impl Arm {
    /// Seek and rotation to `offset`, ns; nothing where the head already is.
    fn travel(&mut self, offset: u64, bytes: u32, rng: &mut Rng) -> u64 {
        let from = self.at;
        self.at = offset + u64::from(bytes);
        if from == offset {
            return 0;
        }
        let far = from.abs_diff(offset) as f64 / self.size as f64;
        let seek = self.m.track_seek_ms + (self.m.full_seek_ms - self.m.track_seek_ms) * far.sqrt();
        let turn = 60e3 / self.m.rpm * rng.unit();
        ((seek + turn) * 1e6) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Device {
        Device::new(&Model::named(name).unwrap(), 1, 0)
    }

    /// Random 4 KiB commands at `depth` in closed loop: operations per second.
    fn closed_loop(d: &mut Device, op: Op, depth: u64, n: u64) -> f64 {
        let (mut rng, mut done) = (Rng::new(3, 3), BinaryHeap::new());
        (0..depth).for_each(|_| done.push(Reverse(0)));
        let mut at = 0;
        for _ in 0..n {
            at = done.pop().unwrap().0;
            done.push(Reverse(d.serve(at, op, rng.below(1 << 22) * 4096, 4096)));
        }
        n as f64 / at as f64 * 1e9
    }

    #[test]
    fn an_idle_optane_answers_in_its_hardware_latency() {
        let mut d = device("optane-900p");
        let n = 1000;
        let mean = (0..n)
            .map(|i| d.serve(i * 100_000, Op::Read, i * 4096, 4096) - i * 100_000)
            .sum::<u64>()
            / n;
        assert!((7_800..8_000).contains(&mean), "{mean} ns");
    }

    #[test]
    fn the_pipeline_bounds_the_rate() {
        let iops = closed_loop(&mut device("optane-900p"), Op::Read, 64, 200_000);
        assert!((iops / 580e3 - 1.0).abs() < 0.01, "{iops}");
        let iops = closed_loop(&mut device("intel-s3510"), Op::Write, 64, 100_000);
        assert!((iops / 39_027.0 - 1.0).abs() < 0.02, "{iops}");
    }

    #[test]
    fn sequential_reads_of_nand_skip_the_media() {
        let mut d = device("intel-s3510");
        let t = |d: &mut Device, i: u64, offset| {
            d.serve(i * 1_000_000, Op::Read, offset, 4096) - i * 1_000_000
        };
        let random: u64 = (0..100).map(|i| t(&mut d, i, i * 81920)).sum();
        let row: u64 = (100..200).map(|i| t(&mut d, i, i * 4096)).sum();
        assert!(row * 2 < random, "{row} {random}");
    }

    #[test]
    fn streams_are_followed_as_if_every_end_were_looked_at() {
        let (mut rng, mut streams) = (Rng::new(5, 5), Streams::default());
        let (mut ends, mut next, mut followed) = ([u64::MAX; STREAMS], 0, 0);
        for _ in 0..20_000 {
            // Few places, so that streams meet, and some reads far away.
            let far = u64::from(rng.below(4) == 0) * rng.below(1 << 30) * 4096;
            let offset = far + rng.below(100) * 4096;
            let end = offset + (1 + rng.below(3)) * 4096;
            let found = ends.iter().position(|e| *e == offset);
            let place = found.unwrap_or(next);
            next = (next + usize::from(found.is_none())) % STREAMS;
            ends[place] = end;
            assert_eq!(streams.follow(offset, end), found.is_some());
            followed += u32::from(found.is_some());
        }
        assert!((2_000..18_000).contains(&followed), "{followed}");
    }

    #[test]
    fn a_disk_seeks_for_random_reads_only() {
        let (mut d, mut rng, mut at) = (device("hdd"), Rng::new(3, 3), 0);
        for _ in 0..500 {
            at = d.serve(at, Op::Read, rng.below(900_000_000) * 4096, 4096);
        }
        let iops = 500e9 / at as f64;
        assert!((60.0..120.0).contains(&iops), "{iops} IOPS");
    }
}

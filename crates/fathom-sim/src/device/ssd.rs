//! SSDs: slots, serial pipeline, parallel media units, write buffer with drain, read-ahead.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fathom_io::load::rng::{Rng, mix};
use fathom_telemetry::Op;

use super::nand::{Collector, SlcCache};
use super::thermal::Heat;
use super::{Condition, Lapse, Start};
use crate::math::Noise;
use crate::model::Model;

/// Bytes that one media unit serves at a time.
const PAGE: u64 = 4096;
/// Up to so many slots the device's own queue is modelled; NVMe queues are never full here.
const SLOTS_MODELLED: u32 = 256;
/// ns of a flush of a buffer that survives power loss, or is empty.
const FLUSH_NS: u64 = 2_000;

/// Next offsets of sequential streams, direct-mapped: tells sequential requests from random ones.
#[derive(Debug, Clone)]
pub(super) struct Streams(Box<[u64; 1024]>);

impl Streams {
    pub(super) fn new() -> Self {
        Self(Box::new([u64::MAX; 1024]))
    }
    /// Whether a request continues a stream; remembers where the stream goes on.
    #[inline]
    pub(super) fn follows(&mut self, offset: u64, len: u32) -> bool {
        let place = |at: u64| (at >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 54;
        let hit = self.0[place(offset)] == offset;
        let next = offset + u64::from(len);
        self.0[place(next)] = next;
        hit
    }
}

/// Service times of one direction for the length seen last (most jobs use one).
#[derive(Debug, Clone, Copy)]
struct Cost {
    command: f64,
    per_byte: f64,
    len: u32,
    ns: u64,
}

impl Cost {
    fn new(command: f64, gb_per_s: f64) -> Self {
        Self {
            command,
            per_byte: 1.0 / gb_per_s,
            len: 0,
            ns: command.round() as u64,
        }
    }
    #[inline]
    fn ns(&mut self, len: u32) -> u64 {
        if len != self.len {
            self.len = len;
            self.ns = (self.command + f64::from(len) * self.per_byte).round() as u64;
        }
        self.ns
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Ssd {
    rng: Rng,
    pub(super) lapse: Lapse,
    slots: usize,
    inflight: BinaryHeap<Reverse<u64>>,
    read: Cost,
    write: Cost,
    pipeline_noise: Noise,
    pipeline: u64,
    media_noise: Noise,
    units: Box<[u64]>,
    read_media: u64,
    write_media: u64,
    read_fixed: u64,
    write_fixed: u64,
    read_ahead: bool,
    streams: Streams,
    /// ns per byte of the drain at write amplification 1; 0 without a buffer.
    drain_per_byte: f64,
    buffer_bytes: f64,
    program: u64,
    drain: u64,
    disturbed_until: u64,
    collector: Option<Collector>,
    slc: Option<SlcCache>,
    heat: Option<Heat>,
    /// Of 2³²: reads that need a second try, by wear.
    retry: u64,
    rated: Option<f64>,
    worn: f64,
    host_written: f64,
    media_written: f64,
    amplification: f64,
}

impl Ssd {
    pub(super) fn new(model: &Model, start: &Start, rng: Rng) -> Self {
        // Models are checked when parsed; a missing section would be a device that costs nothing.
        let (rc, rb, wc, wb, pv) = model
            .pipeline
            .as_ref()
            .map_or((0.0, 1e3, 0.0, 1e3, 0.0), |p| {
                (
                    p.read_command_ns,
                    p.read_gb_per_s,
                    p.write_command_ns,
                    p.write_gb_per_s,
                    p.variation,
                )
            });
        let ns = |us: f64| (us * 1e3).round() as u64;
        let media = model.media.as_ref();
        let buffer = model.buffer.as_ref();
        let rated = model.endurance.as_ref().map(|e| e.rated_bytes);
        let retry = if model.nand.is_some() {
            // Illustrative: worn cells need a second read; 2 % of reads at the end of rated life.
            ((start.wear * start.wear * 0.02).min(0.5) * f64::from(u32::MAX)) as u64
        } else {
            0
        };
        Self {
            rng,
            lapse: Lapse::new(),
            slots: if model.slots <= SLOTS_MODELLED {
                model.slots as usize
            } else {
                0
            },
            inflight: BinaryHeap::new(),
            read: Cost::new(rc, rb),
            write: Cost::new(wc, wb),
            pipeline_noise: Noise::new(pv),
            pipeline: 0,
            media_noise: Noise::new(media.map_or(0.0, |m| m.variation)),
            units: vec![0; media.map_or(1, |m| m.units as usize)].into_boxed_slice(),
            read_media: ns(media.map_or(0.0, |m| m.read_us)),
            write_media: ns(media.map_or(0.0, |m| m.write_us)),
            read_fixed: ns(media.map_or(0.0, |m| m.read_fixed_us)),
            write_fixed: ns(media.map_or(0.0, |m| m.write_fixed_us)),
            read_ahead: media.is_some_and(|m| m.read_ahead),
            streams: Streams::new(),
            drain_per_byte: buffer.map_or(0.0, |b| 1.0 / b.drain_gb_per_s),
            buffer_bytes: buffer.map_or(0.0, |b| b.bytes as f64),
            program: ns(buffer.map_or(0.0, |b| b.program_us)),
            drain: 0,
            disturbed_until: 0,
            collector: model
                .nand
                .as_ref()
                .zip(buffer)
                .map(|(n, b)| Collector::new(n, b.drain_gb_per_s, model.capacity_bytes, start)),
            slc: model.slc_cache.as_ref().map(SlcCache::new),
            heat: model.thermal.as_ref().map(|t| Heat::new(t, start.airflow)),
            retry,
            rated,
            worn: rated.unwrap_or(0.0) * start.wear,
            host_written: 0.0,
            media_written: 0.0,
            amplification: 1.0,
        }
    }

    #[inline]
    pub(super) fn serve(&mut self, at: u64, op: Op, offset: u64, len: u32) -> u64 {
        let at = self.slot(at);
        let done = match op {
            Op::Read => self.read(at, offset, len),
            Op::Write => self.write(at, offset, len),
            Op::Trim => self.trim(at, offset, len),
            Op::Sync => at.max(self.pipeline) + FLUSH_NS,
        };
        if self.slots > 0 {
            self.inflight.push(Reverse(done));
        }
        done
    }

    /// When the command gets a slot.
    #[inline]
    fn slot(&mut self, at: u64) -> u64 {
        if self.slots == 0 {
            return at;
        }
        while self.inflight.peek().is_some_and(|d| d.0 <= at) {
            self.inflight.pop();
        }
        if self.inflight.len() < self.slots {
            return at;
        }
        self.inflight.pop().map_or(at, |d| d.0)
    }

    /// Passes the pipeline from `at`; returns when the first page and all of it have passed.
    #[inline]
    fn pass(&mut self, at: u64, ns: u64, len: u32, bits: u64) -> (u64, u64) {
        let mut ns = self.pipeline_noise.scale(ns, bits);
        let mut start = at.max(self.pipeline);
        if let Some(heat) = &mut self.heat {
            let (paused, slowed) = heat.pass(&self.lapse, start, ns);
            start += paused;
            ns = slowed;
        }
        self.pipeline = start + ns;
        let first = if u64::from(len) > PAGE {
            start + ns * PAGE / u64::from(len)
        } else {
            self.pipeline
        };
        (first, self.pipeline)
    }

    /// Occupies the media units of a request from `at`; returns when the last is done.
    #[inline]
    fn touch(&mut self, at: u64, offset: u64, len: u32, base: u64, bits: u64) -> u64 {
        let page = offset / PAGE;
        let k = self.units.len();
        let first = (((mix(page) >> 32) * k as u64) >> 32) as usize;
        let pages = (u64::from(len) + offset % PAGE).div_ceil(PAGE).max(1) as usize;
        if pages == 1 {
            let unit = &mut self.units[first];
            *unit = at.max(*unit) + self.media_noise.scale(base, bits);
            return *unit;
        }
        let mut last = at;
        for i in 0..pages.min(k) {
            let share = (pages - i).div_ceil(k) as u64;
            let unit = &mut self.units[(first + i) % k];
            let bits = bits.rotate_right(10 * (i as u32 % 6));
            *unit = at.max(*unit) + share * self.media_noise.scale(base, bits);
            last = last.max(*unit);
        }
        last
    }

    #[inline]
    fn read(&mut self, at: u64, offset: u64, len: u32) -> u64 {
        let bits = self.rng.bits();
        let cost = self.read.ns(len);
        let (first, end) = self.pass(at, cost, len, bits);
        let mut done = end;
        // Streams are only followed where they matter: it costs a cache line.
        if !(self.read_ahead && self.streams.follows(offset, len)) {
            let mut base = self.read_media;
            if self.retry > 0 && (bits >> 32) < self.retry {
                base *= 2;
            }
            done = done.max(self.touch(first, offset, len, base, bits >> 10));
        }
        if end < self.disturbed_until {
            done += self.disturbance(end, len, bits);
        }
        done + self.read_fixed
    }

    /// ns that a read waits for units that are being programmed.
    #[cold]
    fn disturbance(&mut self, at: u64, len: u32, bits: u64) -> u64 {
        let k = self.units.len() as u64;
        let touched = u64::from(len).div_ceil(PAGE).min(k);
        // One unit is programmed at a time, until the drain falls behind: then most are.
        let busy = if self.drain > at + self.program {
            k.div_ceil(2)
        } else {
            1
        };
        let unit = |shift: u32| (bits >> shift) & 0xffff;
        if unit(20) * k >= (touched * busy) << 16 {
            return 0;
        }
        ((self.disturbed_until - at).min(self.program) * unit(40)) >> 16
    }

    #[inline]
    fn write(&mut self, at: u64, offset: u64, len: u32) -> u64 {
        let bits = self.rng.bits();
        let cost = self.write.ns(len);
        let (first, end) = self.pass(at, cost, len, bits);
        let bytes = f64::from(len) * self.lapse.factor as f64;
        self.host_written += bytes;
        let mut done = end;
        if self.write_media > 0 {
            done = done.max(self.touch(first, offset, len, self.write_media, bits >> 10));
        }
        if self.drain_per_byte > 0.0 {
            done = done.max(self.buffer(end, offset, len, bytes));
        } else {
            self.media_written += bytes;
        }
        done + self.write_fixed
    }

    /// Puts a write into the buffer; returns when there is room for it.
    fn buffer(&mut self, at: u64, offset: u64, len: u32, bytes: f64) -> u64 {
        let idle = at.saturating_sub(self.drain) * self.lapse.factor;
        let sequential = self.streams.follows(offset, len);
        let mut per_byte = self.drain_per_byte;
        let mut amplification = 1.0;
        if let Some(slc) = &mut self.slc {
            per_byte = slc.write(bytes, idle, per_byte);
        }
        if let Some(c) = &mut self.collector {
            c.rest(idle);
            amplification = c.write(offset, len, bytes, sequential);
        }
        self.amplification = amplification;
        self.media_written += bytes * amplification;
        let per_byte = per_byte * amplification;
        self.drain = at.max(self.drain) + (f64::from(len) * per_byte).round() as u64;
        self.disturbed_until = self.disturbed_until.max(self.drain).max(at + self.program);
        let room = (self.buffer_bytes * per_byte) as u64;
        at.max(self.drain.saturating_sub(room))
    }

    fn trim(&mut self, at: u64, offset: u64, len: u32) -> u64 {
        let cost = self.write.command.round() as u64 + 1_000;
        let (_, end) = self.pass(at, cost, 0, 0);
        if let Some(c) = &mut self.collector {
            c.trim(offset, u64::from(len), self.lapse.factor as f64);
        }
        end + self.write_fixed
    }

    pub(super) fn busy_until(&self) -> u64 {
        self.pipeline
    }

    pub(super) fn condition(&self) -> Condition {
        Condition {
            host_written: self.host_written,
            media_written: self.media_written,
            write_amplification: self.amplification,
            life_used: self.rated.map(|r| (self.worn + self.media_written) / r),
            temperature_c: self.heat.as_ref().map(Heat::temperature),
            throttled: self.heat.as_ref().map_or(0, Heat::throttled),
        }
    }
}

//! Arrays as Linux md serves them: chunks, mirrors, parity, and the host's own limits.
//!
//! The host's numbers are fitted to Han et al. (Xeon Gold 6242, kernel 5.4, 512 KiB chunks); another
//! host has others.

use std::collections::VecDeque;

use fathom_io::load::rng::Rng;
use fathom_telemetry::Op;

use crate::device::Device;
use crate::model::Model;

/// Bytes of a chunk (Han 4.1: chunk = block).
pub const CHUNK: u64 = 512 << 10;
/// What the host of an array contributes. Fitted to Han et al.'s host; another has other values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrayHost {
    /// Requests of a chunk that the array has under way at once, direct and through the page cache; shorter ones
    /// count in proportion.
    pub tokens: [u32; 2],
    /// Most that the platform moves, GB/s, reading and writing (each copy of a mirror counts).
    pub platform_gb_per_s: [f64; 2],
    /// Page cache copies of readers, GB/s.
    pub page_cache_gb_per_s: f64,
    /// The one flusher of an array, GB/s.
    pub flusher_gb_per_s: f64,
    /// Serial time of the parity thread per 4 KiB of direct writes, ns, with one and two parities.
    pub parity_direct_ns: [f64; 2],
    /// The same for buffered writes: a constant part, and a part that is shared by the data members.
    pub parity_buffered_ns: [(f64, f64); 2],
}

impl Default for ArrayHost {
    fn default() -> Self {
        Self {
            tokens: [16, 7],
            platform_gb_per_s: [17.0, 16.5],
            page_cache_gb_per_s: 8.5,
            flusher_gb_per_s: 4.4,
            parity_direct_ns: [11_900.0, 16_500.0],
            parity_buffered_ns: [(4_440.0, 7_250.0), (5_260.0, 6_380.0)],
        }
    }
}

/// How members make up an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Stripes.
    Raid0,
    /// Mirrors.
    Raid1,
    /// Stripes with one parity.
    Raid5,
    /// Stripes with two parities.
    Raid6,
    /// Stripes over pairs of mirrors.
    Raid10,
}

impl Level {
    /// From its number.
    pub fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Raid0,
            1 => Self::Raid1,
            5 => Self::Raid5,
            6 => Self::Raid6,
            10 => Self::Raid10,
            _ => return None,
        })
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid10 => 10,
        }
    }

    /// Fewest members.
    pub fn members_min(self) -> u32 {
        match self {
            Self::Raid0 | Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid6 | Self::Raid10 => 4,
        }
    }

    /// Members' worth of data that `n` members hold.
    pub fn data_members(self, n: u32) -> u32 {
        match self {
            Self::Raid0 => n,
            Self::Raid1 => 1,
            Self::Raid5 => n - 1,
            Self::Raid6 => n - 2,
            Self::Raid10 => n / 2,
        }
    }
}

/// A request on its way into the array.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// What to do.
    pub op: Op,
    /// Byte offset in the array.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// Without the page cache.
    pub direct: bool,
}

/// An array's state.
#[derive(Debug, Clone)]
pub struct Raid {
    level: Level,
    host: ArrayHost,
    members: Vec<Device>,
    /// Tokens taken, in 1/256 (direct, buffered), and who waits for one.
    taken: [u32; 2],
    waiting: [VecDeque<(u32, Demand)>; 2],
    platform_free: [u64; 2],
    cache_free: u64,
    flusher_free: u64,
    parity_free: u64,
    rng: Rng,
}

/// Share of a token that a request takes, in 1/256: short requests do not hold a large buffer.
fn share(bytes: u32) -> u32 {
    ((u64::from(bytes) * 256 / CHUNK) as u32).clamp(2, 256)
}

impl Raid {
    /// `n` fresh members of a model.
    pub fn new(level: Level, n: u32, model: &Model, host: ArrayHost, seed: u64) -> Self {
        Self {
            level,
            host,
            members: (0..n)
                .map(|i| Device::new(model, seed, u64::from(i)))
                .collect(),
            taken: [0; 2],
            waiting: [VecDeque::new(), VecDeque::new()],
            platform_free: [0; 2],
            cache_free: 0,
            flusher_free: 0,
            parity_free: 0,
            rng: Rng::new(seed, 0x5241_4944),
        }
    }

    /// Members.
    pub fn members(&mut self) -> &mut [Device] {
        &mut self.members
    }

    /// Takes request `id` at `at`: returns its end, or keeps it until a token is free.
    pub fn arrive(&mut self, id: u32, at: u64, d: Demand) -> Option<u64> {
        let kind = usize::from(!d.direct);
        let most = 256 * self.host.tokens[kind];
        if self.taken[kind] + share(d.bytes) > most {
            self.waiting[kind].push_back((id, d));
            return None;
        }
        self.taken[kind] += share(d.bytes);
        Some(self.serve(at, d))
    }

    /// A request has ended at `at`; returns those that may start now, with their ends.
    pub fn leave(&mut self, at: u64, d: Demand, mut each: impl FnMut(u32, u64)) {
        let kind = usize::from(!d.direct);
        self.taken[kind] -= share(d.bytes);
        let most = 256 * self.host.tokens[kind];
        while let Some((id, next)) = self.waiting[kind].front().copied() {
            if self.taken[kind] + share(next.bytes) > most {
                break;
            }
            self.waiting[kind].pop_front();
            self.taken[kind] += share(next.bytes);
            each(id, self.serve(at, next));
        }
    }

    fn serve(&mut self, at: u64, d: Demand) -> u64 {
        match d.op {
            Op::Read => self.read(at, d),
            Op::Write if d.direct => self.write(at, d, 0),
            Op::Write => {
                let free = self.flusher_free.max(at);
                let flushed = free + (f64::from(d.bytes) / self.host.flusher_gb_per_s) as u64;
                self.flusher_free = flushed;
                let end = self.write(flushed, d, 1);
                if matches!(self.level, Level::Raid1 | Level::Raid10) {
                    // The flusher waits for all mirrors of what it wrote.
                    self.flusher_free = end;
                }
                end
            }
            op => self
                .members
                .iter_mut()
                .map(|m| m.serve(at, op, d.offset, 0))
                .max()
                .unwrap_or(at),
        }
    }

    fn platform(&mut self, at: u64, way: usize, bytes: u64) -> u64 {
        let free = &mut self.platform_free[way];
        *free = at.max(*free) + (bytes as f64 / self.host.platform_gb_per_s[way]) as u64;
        *free
    }

    fn read(&mut self, at: u64, d: Demand) -> u64 {
        let mut at = at;
        if !d.direct {
            self.cache_free = at.max(self.cache_free)
                + (f64::from(d.bytes) / self.host.page_cache_gb_per_s) as u64;
            at = self.cache_free;
        }
        let at = self.platform(at, 0, u64::from(d.bytes));
        let mut end = at;
        for (chunk, offset, bytes) in pieces(d.offset, d.bytes) {
            let (member, at_member) = self.place(chunk, offset);
            end = end.max(self.members[member].serve(at, Op::Read, at_member, bytes));
        }
        end
    }

    /// Member and offset that a piece is read from.
    fn place(&mut self, chunk: u64, offset: u64) -> (usize, u64) {
        let n = self.members.len() as u64;
        let within = offset % CHUNK;
        match self.level {
            Level::Raid1 => (self.rng.below(n) as usize, offset),
            Level::Raid10 => {
                let pair = chunk % (n / 2);
                let row = chunk / (n / 2);
                (
                    (pair * 2 + self.rng.below(2)) as usize,
                    row * CHUNK + within,
                )
            }
            _ => {
                let data = u64::from(self.level.data_members(n as u32));
                let row = chunk / data;
                // Parity rotates by one member per row (left-symmetric).
                let member = (chunk % data + n - row % n) % n;
                let member = if self.level == Level::Raid0 {
                    chunk % n
                } else {
                    member
                };
                (member as usize, row * CHUNK + within)
            }
        }
    }

    /// A write that reaches the array at `at`; `way` 0 direct, 1 buffered.
    fn write(&mut self, at: u64, d: Demand, way: usize) -> u64 {
        let n = self.members.len();
        match self.level {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => {
                let copies = match self.level {
                    Level::Raid0 => 1,
                    Level::Raid1 => n,
                    _ => 2,
                };
                let moved = self.platform(at, 1, u64::from(d.bytes) * copies as u64);
                // The flusher hands copies over while it goes on; a direct writer waits for them.
                let at = if way == 0 { moved } else { at };
                let mut end = moved;
                for (chunk, offset, bytes) in pieces(d.offset, d.bytes) {
                    let (first, at_member) = match self.level {
                        Level::Raid1 => (0, offset),
                        Level::Raid10 => {
                            let pairs = n as u64 / 2;
                            let row = chunk / pairs;
                            (2 * (chunk % pairs) as usize, row * CHUNK + offset % CHUNK)
                        }
                        _ => self.place(chunk, offset),
                    };
                    for m in first..first + copies {
                        end = end.max(self.members[m].serve(at, Op::Write, at_member, bytes));
                    }
                }
                end
            }
            Level::Raid5 | Level::Raid6 => self.write_parity(at, d, way),
        }
    }

    /// Read-modify-write: old data and parity are read, new ones written; one thread does the sums.
    fn write_parity(&mut self, at: u64, d: Demand, way: usize) -> u64 {
        let n = self.members.len();
        let two = usize::from(self.level == Level::Raid6);
        let data = f64::from(self.level.data_members(n as u32));
        let per_page = if way == 0 {
            self.host.parity_direct_ns[two]
        } else {
            self.host.parity_buffered_ns[two].0 + self.host.parity_buffered_ns[two].1 / data
        };
        let serial = per_page * f64::from(d.bytes) / 4096.0;
        self.parity_free = at.max(self.parity_free) + serial as u64;
        let mut end = self.parity_free;
        let full = u64::from(d.bytes) >= CHUNK * self.level.data_members(n as u32) as u64;
        for (chunk, offset, bytes) in pieces(d.offset, d.bytes) {
            let (member, at_member) = self.place(chunk, offset);
            // Data member and its parities; a full stripe needs no reading.
            // Both are booked on arrival: throughput is right, latency lacks the wait of the write for the read.
            for k in 0..2 + two {
                let m = &mut self.members[(member + k) % n];
                if !full {
                    end = end.max(m.serve(at, Op::Read, at_member, bytes));
                }
                end = end.max(m.serve(at, Op::Write, at_member, bytes));
            }
        }
        end
    }
}

/// Parts of a request by chunk: chunk number, offset, bytes.
fn pieces(offset: u64, bytes: u32) -> impl Iterator<Item = (u64, u64, u32)> {
    let end = offset + u64::from(bytes);
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let next = ((at / CHUNK + 1) * CHUNK).min(end);
            let piece = (at / CHUNK, at, (next - at) as u32);
            at = next;
            piece
        })
    })
}

//! Arrays as Linux md builds them: where data and parity lie, and what each request costs on the way.
//!
//! Limits of the platform, of requests in flight and of the parity thread are those
//! fitted to the server of Han 2021; they stand for no other machine.

use std::collections::VecDeque;

use fathom_io::port::Request;
use fathom_telemetry::Op;

use crate::device::Device;
use crate::host::{Host, Md};
use crate::model::Model;
use crate::processor::ns;

/// Requests from this size on are large: they need a token.
const LARGE: u32 = 64 << 10;
/// What a rebuild moves at once, bytes, and its pace per device, bytes/s (md's default upper limit).
const REBUILD_STEP: u64 = 512 << 10;
const REBUILD_RATE: u64 = 200_000_000;

/// RAID level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Stripe,
    Mirror,
    Parity,
    Parity2,
    StripedMirrors,
}

impl Level {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "0" => Self::Stripe,
            "1" => Self::Mirror,
            "5" => Self::Parity,
            "6" => Self::Parity2,
            "10" => Self::StripedMirrors,
            _ => return None,
        })
    }
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Stripe => 0,
            Self::Mirror => 1,
            Self::Parity => 5,
            Self::Parity2 => 6,
            Self::StripedMirrors => 10,
        }
    }
}

/// A checked array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    pub(crate) count: u32,
    chunk: u64,
    missing: u32,
    rebuilding: bool,
    device: u64,
}

impl Shape {
    pub(crate) fn new(
        level: Level,
        count: u32,
        chunk: u64,
        missing: u32,
        rebuilding: bool,
        model: &Model,
    ) -> Result<Self, String> {
        let name = format!("RAID {}", level.number());
        let least = match level {
            Level::Stripe | Level::Mirror => 2,
            Level::Parity => 3,
            Level::Parity2 | Level::StripedMirrors => 4,
        };
        if count < least {
            return Err(format!(
                "{name} needs at least {least} devices, and there {}: add devices or choose another level",
                if count == 1 {
                    "is 1".into()
                } else {
                    format!("are {count}")
                }
            ));
        }
        if count > 64 {
            return Err(format!(
                "{count} devices are not modelled: expected at most 64"
            ));
        }
        if level == Level::StripedMirrors && !count.is_multiple_of(2) {
            return Err(format!(
                "{name} needs an even number of devices, and there are {count}: add or remove one"
            ));
        }
        let survives = match level {
            Level::Stripe => 0,
            Level::Mirror => count - 1,
            Level::Parity => 1,
            Level::Parity2 => 2,
            Level::StripedMirrors => count / 2,
        };
        if missing > survives {
            return Err(format!(
                "{name} survives {survives} missing of {count} devices, not {missing}: lower 'degraded'"
            ));
        }
        if rebuilding && missing == 0 {
            return Err("nothing is missing that could be rebuilt: drop 'degraded=0'".into());
        }
        Ok(Self {
            level,
            count,
            chunk,
            missing,
            rebuilding,
            device: model.capacity_bytes / chunk * chunk,
        })
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.device * self.data_devices()
    }

    fn data_devices(&self) -> u64 {
        let n = u64::from(self.count);
        match self.level {
            Level::Stripe => n,
            Level::Mirror => 1,
            Level::Parity => n - 1,
            Level::Parity2 => n - 2,
            Level::StripedMirrors => n / 2,
        }
    }

    pub(crate) fn title(&self) -> String {
        let state = match (self.missing, self.rebuilding) {
            (0, _) => String::new(),
            (_, true) => " (rebuilding)".into(),
            (m, false) => format!(" ({m} missing)"),
        };
        format!("RAID {}{state}", self.level.number())
    }
}

/// A part of a request that lies in one chunk.
#[derive(Debug, Clone, Copy)]
struct Piece {
    stripe: u64,
    /// Which chunk of the stripe's data.
    index: u64,
    /// Byte within the chunk.
    within: u64,
    len: u64,
}

/// What happens to a request next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is done at this time.
    Done(u64),
    /// Call again at this time.
    Again(u64),
    /// It waits for a token.
    Queued,
}

#[derive(Debug, Clone)]
pub(crate) struct Array {
    shape: Shape,
    pub(crate) devices: Vec<Device>,
    absent: Vec<bool>,
    tokens: usize,
    token_limit: usize,
    queue: VecDeque<u32>,
    read_per_byte: f64,
    write_per_byte: f64,
    platform_read: u64,
    platform_write: u64,
    /// ns of the parity thread per 4 KiB: partial stripes, full stripes.
    parity_partial: u64,
    parity_full: u64,
    parity_thread: u64,
    /// 10⁹ bytes/s that write-back reaches beside the flusher's own limit.
    writeback_limit: f64,
    rebuild_at: u64,
    rebuilt: u64,
    pub(crate) lapse: u64,
}

impl Array {
    pub(crate) fn new(shape: &Shape, host: &Host, devices: Vec<Device>) -> Self {
        let md = host.raid.clone().unwrap_or(UNLIMITED);
        let n = shape.count as usize;
        let mut absent = vec![false; n];
        for i in 0..shape.missing as usize {
            // Of mirrored pairs only one half may be missing.
            let which = match shape.level {
                Level::StripedMirrors => n - 1 - 2 * i,
                _ => n - 1 - i,
            };
            absent[which] = true;
        }
        let data = shape.data_devices() as f64;
        let (partial, full) = match shape.level {
            Level::Parity2 => (
                md.parity2_direct_us,
                md.parity2_full_us + md.parity2_full_shared_us / data,
            ),
            _ => (
                md.parity_direct_us,
                md.parity_full_us + md.parity_full_shared_us / data,
            ),
        };
        let writeback_limit = match shape.level {
            Level::Stripe => f64::INFINITY,
            Level::Mirror => {
                1.0 / (1.0 / md.mirror_writeback_gb_per_s
                    + f64::from(shape.count) * md.mirror_copy_ns_per_byte)
            }
            Level::StripedMirrors => md.striped_mirror_writeback_gb_per_s,
            Level::Parity | Level::Parity2 => 4.096 / full,
        };
        Self {
            shape: shape.clone(),
            devices,
            absent,
            tokens: 0,
            token_limit: md.direct_tokens,
            queue: VecDeque::new(),
            read_per_byte: 1.0 / md.read_gb_per_s,
            write_per_byte: 1.0 / md.write_gb_per_s,
            platform_read: 0,
            platform_write: 0,
            parity_partial: ns(partial),
            parity_full: ns(full),
            parity_thread: 0,
            writeback_limit,
            rebuild_at: 0,
            rebuilt: 0,
            lapse: 1,
        }
    }

    /// 10⁹ bytes/s that write-back may reach.
    pub(crate) fn writeback_gb_per_s(&self, flusher: f64) -> f64 {
        flusher.min(self.writeback_limit)
    }

    /// A new request at `at`; `io` identifies it.
    pub(crate) fn begin(&mut self, io: u32, at: u64, request: &Request) -> Next {
        if request.len >= LARGE && matches!(request.op, Op::Read | Op::Write) {
            if self.tokens >= self.token_limit {
                self.queue.push_back(io);
                return Next::Queued;
            }
            self.tokens += 1;
        }
        self.go(at, request)
    }

    /// A request is over: another that waited may begin.
    pub(crate) fn finished(&mut self, request: &Request) -> Option<u32> {
        if request.len < LARGE || !matches!(request.op, Op::Read | Op::Write) {
            return None;
        }
        self.tokens = self.tokens.saturating_sub(1);
        let next = self.queue.pop_front();
        self.tokens += usize::from(next.is_some());
        next
    }

    /// A request with its token, at `at`.
    pub(crate) fn go(&mut self, at: u64, request: &Request) -> Next {
        self.rebuild(at);
        match request.op {
            Op::Read => self.read(at, request),
            Op::Write => match self.shape.level {
                Level::Parity | Level::Parity2 => self.parity_reads(at, request),
                _ => self.plain_write(at, request),
            },
            Op::Trim => self.trim(at, request),
            Op::Sync => {
                let mut done = at;
                for (d, gone) in self.devices.iter_mut().zip(&self.absent) {
                    if !gone {
                        done = done.max(d.serve(at, Op::Sync, 0, 0));
                    }
                }
                Next::Done(done)
            }
        }
    }

    /// The next stage of a request: 1 is the parity thread, 2 the writes behind it.
    pub(crate) fn resume(&mut self, at: u64, request: &Request, stage: u8) -> Next {
        let cost = self.parity_cost(request);
        match (request.op, stage) {
            (Op::Read, _) => {
                self.parity_thread = at.max(self.parity_thread) + cost;
                Next::Done(self.parity_thread)
            }
            (_, 1) => {
                self.parity_thread = at.max(self.parity_thread) + cost;
                Next::Again(self.parity_thread)
            }
            _ => self.parity_writes(at, request),
        }
    }

    fn pieces(&self, request: &Request) -> impl Iterator<Item = Piece> + use<> {
        let chunk = self.shape.chunk;
        let data = self.shape.data_devices();
        let striped = self.shape.level != Level::Mirror;
        let (mut at, end) = (request.offset, request.offset + u64::from(request.len));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let number = at / chunk;
            let within = at % chunk;
            let len = (chunk - within).min(end - at);
            at += len;
            Some(if striped {
                Piece {
                    stripe: number / data,
                    index: number % data,
                    within,
                    len,
                }
            } else {
                Piece {
                    stripe: number,
                    index: 0,
                    within,
                    len,
                }
            })
        })
    }

    /// Devices of a piece: its data first, then its copies or parities.
    fn places(&self, p: &Piece) -> ([usize; 3], usize) {
        let n = self.shape.count as usize;
        let turn = n - 1 - (p.stripe % n as u64) as usize;
        let i = p.index as usize;
        match self.shape.level {
            Level::Stripe | Level::Mirror => ([i, 0, 0], 1),
            Level::StripedMirrors => ([2 * i, 2 * i + 1, 0], 2),
            Level::Parity => ([(turn + 1 + i) % n, turn, 0], 2),
            Level::Parity2 => ([(turn + 2 + i) % n, turn, (turn + 1) % n], 3),
        }
    }

    fn read(&mut self, at: u64, request: &Request) -> Next {
        let mut done = at;
        let mut rebuild_data = false;
        for p in self.pieces(request) {
            let (places, _) = self.places(&p);
            let offset = p.stripe * self.shape.chunk + p.within;
            let len = p.len as u32;
            let from = match self.shape.level {
                Level::Mirror => self.least_busy(0, self.devices.len(), at),
                Level::StripedMirrors => self.least_busy(places[0], places[0] + 2, at),
                _ => places[0],
            };
            if !self.absent[from] {
                done = done.max(self.devices[from].serve(at, Op::Read, offset, len));
                continue;
            }
            // The rest of the stripe gives the missing part.
            rebuild_data = true;
            for (d, gone) in self.devices.iter_mut().zip(&self.absent) {
                if !gone {
                    done = done.max(d.serve(at, Op::Read, offset, len));
                }
            }
        }
        self.platform_read = at.max(self.platform_read)
            + (f64::from(request.len) * self.read_per_byte).round() as u64;
        done = done.max(self.platform_read);
        if rebuild_data {
            Next::Again(done)
        } else {
            Next::Done(done)
        }
    }

    /// md reads from the mirror with the least work ahead.
    fn least_busy(&self, from: usize, to: usize, at: u64) -> usize {
        (from..to)
            .filter(|i| !self.absent[*i])
            .min_by_key(|i| (self.devices[*i].busy_until().max(at), *i))
            .unwrap_or(from)
    }

    fn plain_write(&mut self, at: u64, request: &Request) -> Next {
        let mut done = at;
        let mut copies = 0;
        for p in self.pieces(request) {
            let offset = p.stripe * self.shape.chunk + p.within;
            let range = match self.shape.level {
                Level::Mirror => 0..self.devices.len(),
                Level::StripedMirrors => 2 * p.index as usize..2 * p.index as usize + 2,
                _ => p.index as usize..p.index as usize + 1,
            };
            for i in range {
                if !self.absent[i] {
                    copies += p.len;
                    done = done.max(self.devices[i].serve(at, Op::Write, offset, p.len as u32));
                }
            }
        }
        Next::Done(done.max(self.platform_writes(at, copies)))
    }

    fn platform_writes(&mut self, at: u64, bytes: u64) -> u64 {
        self.platform_write =
            at.max(self.platform_write) + (bytes as f64 * self.write_per_byte).round() as u64;
        self.platform_write
    }

    /// Whether a request covers the stripe of a piece wholly.
    fn full_stripe(&self, p: &Piece, request: &Request) -> bool {
        let width = self.shape.chunk * self.shape.data_devices();
        let start = p.stripe * width;
        request.offset <= start && request.offset + u64::from(request.len) >= start + width
    }

    /// Read-modify-write begins with reading old data and old parity of stripes not wholly covered.
    fn parity_reads(&mut self, at: u64, request: &Request) -> Next {
        let mut done = at;
        for p in self.pieces(request) {
            if self.full_stripe(&p, request) {
                continue;
            }
            let (places, n) = self.places(&p);
            let offset = p.stripe * self.shape.chunk + p.within;
            let len = p.len as u32;
            if self.absent[places[0]] {
                // The data device is missing: parity comes from all the others.
                for (d, gone) in self.devices.iter_mut().zip(&self.absent) {
                    if !gone {
                        done = done.max(d.serve(at, Op::Read, offset, len));
                    }
                }
                continue;
            }
            for i in &places[..n] {
                if !self.absent[*i] {
                    done = done.max(self.devices[*i].serve(at, Op::Read, offset, len));
                }
            }
        }
        Next::Again(done)
    }

    fn parity_cost(&self, request: &Request) -> u64 {
        self.pieces(request)
            .map(|p| {
                let pages = p.len.div_ceil(4096);
                if request.op == Op::Write && self.full_stripe(&p, request) {
                    pages * self.parity_full
                } else {
                    pages * self.parity_partial
                }
            })
            .sum()
    }

    fn parity_writes(&mut self, at: u64, request: &Request) -> Next {
        let mut done = at;
        let mut bytes = 0;
        let mut last_parity = u64::MAX;
        for p in self.pieces(request) {
            let (places, n) = self.places(&p);
            let offset = p.stripe * self.shape.chunk + p.within;
            // Parity of a stripe is written once, with its first piece.
            let parities = if p.stripe == last_parity { 1 } else { n };
            last_parity = p.stripe;
            for i in &places[..parities] {
                if !self.absent[*i] {
                    bytes += p.len;
                    done = done.max(self.devices[*i].serve(at, Op::Write, offset, p.len as u32));
                }
            }
        }
        Next::Done(done.max(self.platform_writes(at, bytes)))
    }

    fn trim(&mut self, at: u64, request: &Request) -> Next {
        let mut done = at;
        for p in self.pieces(request) {
            let (places, _) = self.places(&p);
            let offset = p.stripe * self.shape.chunk + p.within;
            let range = match self.shape.level {
                Level::Mirror => 0..self.devices.len(),
                Level::StripedMirrors => places[0]..places[0] + 2,
                _ => places[0]..places[0] + 1,
            };
            for i in range {
                if !self.absent[i] {
                    done = done.max(self.devices[i].serve(at, Op::Trim, offset, p.len as u32));
                }
            }
        }
        Next::Done(done)
    }

    /// Rebuild traffic that is due: reads from the survivors, writes to the new device.
    fn rebuild(&mut self, at: u64) {
        if !self.shape.rebuilding || self.rebuilt >= self.shape.device {
            return;
        }
        let pause = REBUILD_STEP * 1_000_000_000 / REBUILD_RATE;
        if self.rebuild_at == 0 || at > self.rebuild_at + 16 * pause {
            // Requests were away: no need to catch up one by one.
            let away = at.saturating_sub(self.rebuild_at.max(1)) / pause;
            if self.rebuild_at > 0 {
                self.rebuilt += away * REBUILD_STEP * self.lapse;
            }
            self.rebuild_at = at;
        }
        while self.rebuild_at <= at {
            let offset = self.rebuilt.min(self.shape.device - REBUILD_STEP);
            for (d, gone) in self.devices.iter_mut().zip(&self.absent) {
                let op = if *gone { Op::Write } else { Op::Read };
                d.serve(at, op, offset, REBUILD_STEP as u32);
            }
            self.rebuilt += REBUILD_STEP * self.lapse;
            self.rebuild_at += pause;
        }
        if self.rebuilt >= self.shape.device {
            self.absent.fill(false);
        }
    }
}

/// A host of which nothing is known but its devices.
const UNLIMITED: Md = Md {
    direct_tokens: 1024,
    read_gb_per_s: 60.0,
    write_gb_per_s: 60.0,
    parity_direct_us: 11.9,
    parity2_direct_us: 16.5,
    parity_full_us: 4.44,
    parity_full_shared_us: 7.25,
    parity2_full_us: 5.26,
    parity2_full_shared_us: 6.38,
    mirror_writeback_gb_per_s: 1.78,
    mirror_copy_ns_per_byte: 0.0131,
    striped_mirror_writeback_gb_per_s: 2.35,
};

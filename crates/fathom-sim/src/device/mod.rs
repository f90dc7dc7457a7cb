//! Devices: when a request that arrives now is done.
//!
//! Every resource is a "busy until" scalar, so that a request costs a few
//! additions; requests must arrive in order of time. Slow state (heat, wear, free
//! blocks) advances `lapse` times faster than the requests, so that a short window
//! can stand for a long time.

mod disk;
mod nand;
mod ssd;
mod thermal;

use fathom_io::load::rng::Rng;
use fathom_telemetry::Op;

use crate::math::Noise;
use crate::model::{Kind, Model};
pub(crate) use nand::State;

/// How a device's life begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Start {
    /// Share of the capacity that holds valid data.
    pub(crate) fill: f64,
    /// Share of the rated life that is used up.
    pub(crate) wear: f64,
    /// Fresh, or after long random writing.
    pub(crate) state: State,
    /// Whether air moves.
    pub(crate) airflow: bool,
}

/// Requests' clock and the slow clock that runs `lapse` times as fast from `origin`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lapse {
    origin: u64,
    slow_origin: u64,
    pub(crate) factor: u64,
}

impl Lapse {
    pub(crate) fn new() -> Self {
        Self {
            origin: 0,
            slow_origin: 0,
            factor: 1,
        }
    }
    /// ns on the slow clock.
    #[inline]
    pub(crate) fn slow(&self, at: u64) -> u64 {
        self.slow_origin + at.saturating_sub(self.origin) * self.factor
    }
    /// From `at` on, time lapses by this factor.
    pub(crate) fn set(&mut self, at: u64, factor: u64) {
        self.slow_origin = self.slow(at);
        self.origin = at;
        self.factor = factor;
    }
}

/// What the slow state of a device has come to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Condition {
    /// Bytes that hosts wrote.
    pub host_written: f64,
    /// Bytes that went to the media, garbage collection included.
    pub media_written: f64,
    /// Write amplification right now.
    pub write_amplification: f64,
    /// Share of the rated life used; `None` without rated life.
    pub life_used: Option<f64>,
    /// °C; `None` without a thermal model.
    pub temperature_c: Option<f64>,
    /// Times that it slowed down for heat.
    pub throttled: u64,
}

/// A device with its state.
#[derive(Debug, Clone)]
pub(crate) enum Device {
    Ssd(Box<ssd::Ssd>),
    Ram(Box<RamDisk>),
    Hdd(Box<disk::Disk>),
}

impl Device {
    /// `stream` tells devices of one simulation apart.
    pub(crate) fn new(model: &Model, start: &Start, seed: u64, stream: u64) -> Self {
        let rng = Rng::new(seed, 0x0064_6576_0000 + stream);
        match (model.kind, &model.ram, &model.hdd) {
            (Kind::Ram, Some(r), _) => Self::Ram(Box::new(RamDisk {
                read: (r.read_serial_us * 1e3) as u64,
                write: (r.write_serial_us * 1e3) as u64,
                noise: Noise::new(r.variation),
                busy: 0,
                rng,
                written: 0,
                factor: 1,
            })),
            (Kind::Hdd, _, Some(h)) => {
                Self::Hdd(Box::new(disk::Disk::new(h, model.capacity_bytes, rng)))
            }
            _ => Self::Ssd(Box::new(ssd::Ssd::new(model, start, rng))),
        }
    }

    /// When a request arriving at `at` is done.
    #[inline]
    pub(crate) fn serve(&mut self, at: u64, op: Op, offset: u64, len: u32) -> u64 {
        match self {
            Self::Ssd(s) => s.serve(at, op, offset, len),
            Self::Ram(r) => r.serve(at, op, len),
            Self::Hdd(d) => d.serve(at, op, offset, len),
        }
    }

    pub(crate) fn set_lapse(&mut self, at: u64, factor: u64) {
        match self {
            Self::Ssd(s) => s.lapse.set(at, factor),
            Self::Ram(r) => r.factor = factor,
            Self::Hdd(d) => d.factor = factor,
        }
    }

    /// When its pipeline is free again.
    pub(crate) fn busy_until(&self) -> u64 {
        match self {
            Self::Ssd(s) => s.busy_until(),
            Self::Ram(r) => r.busy,
            Self::Hdd(d) => d.busy,
        }
    }

    pub(crate) fn condition(&self) -> Condition {
        match self {
            Self::Ssd(s) => s.condition(),
            Self::Ram(r) => Condition {
                host_written: r.written as f64,
                media_written: r.written as f64,
                write_amplification: 1.0,
                ..Condition::default()
            },
            Self::Hdd(d) => Condition {
                host_written: d.written as f64,
                media_written: d.written as f64,
                write_amplification: 1.0,
                ..Condition::default()
            },
        }
    }
}

/// Memory: only its serial section; the processor's part is the host's.
#[derive(Debug, Clone)]
pub(crate) struct RamDisk {
    read: u64,
    write: u64,
    noise: Noise,
    busy: u64,
    rng: Rng,
    written: u64,
    factor: u64,
}

impl RamDisk {
    fn serve(&mut self, at: u64, op: Op, len: u32) -> u64 {
        let base = match op {
            Op::Read => self.read,
            Op::Write => {
                self.written += u64::from(len) * self.factor;
                self.write
            }
            Op::Trim | Op::Sync => return at,
        };
        self.busy = at.max(self.busy) + self.noise.scale(base, self.rng.bits());
        self.busy
    }
}

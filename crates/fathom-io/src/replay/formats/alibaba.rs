//! Alibaba's block traces of 2020: `device_id,opcode,offset,length,timestamp`, in bytes and µs.
//!
//! Each virtual disk is a device of its own (Li et al., IISWC 2020).

use std::path::Path;

use fathom_telemetry::{Nanos, Op};

use super::lines::Lines;
use super::{Devices, Source};
use crate::replay::{TraceError, TraceIo};

const LAYOUT: &str = "device_id,opcode,offset,length,timestamp";

pub(super) struct Alibaba {
    lines: Lines,
    devices: Devices,
    base: Option<u64>,
}

impl Alibaba {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        Ok(Self {
            lines: Lines::open(path)?,
            devices: Devices::default(),
            base: None,
        })
    }
}

impl Source for Alibaba {
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let l = &self.lines;
        let [device, opcode, offset, length, time] = l.fields::<5>(LAYOUT)?;
        l.number("device_id", device)?;
        let op = match opcode {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(l.bad("R or W as opcode", opcode)),
        };
        let micros = l.number("timestamp (µs)", time)?;
        // Times are since 1970 in µs: as ns they fit, but a damaged one may not.
        let base = *self
            .base
            .get_or_insert_with(|| micros.saturating_sub(86_400_000_000));
        let at = micros
            .checked_sub(base)
            .and_then(|t| t.checked_mul(1000))
            .ok_or_else(|| l.bad("a timestamp within 500 years after the first", time))?;
        Ok(Some(TraceIo {
            at: Nanos(at),
            op,
            offset: l.number("offset (bytes)", offset)?,
            len: l.number("length (bytes)", length)?,
            latency: None,
            device: self.devices.number(device),
        }))
    }
    fn device(&self, index: u32) -> String {
        self.devices.name(index)
    }
}

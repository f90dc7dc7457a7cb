//! SPC trace format, as in the UMass repository: `ASU,LBA,Size,Opcode,Timestamp[,…]`.
//!
//! LBA counts blocks of 512 bytes, Size is bytes, Timestamp seconds from the start of the trace; each
//! application storage unit is a device of its own (SPC Trace File Format Specification 1.0.1).

use std::path::Path;

use fathom_telemetry::{Nanos, Op};

use super::lines::{Lines, seconds};
use super::{Devices, Source};
use crate::replay::{TraceError, TraceIo};

const LAYOUT: &str = "ASU,LBA,Size,Opcode,Timestamp";

pub(super) struct Spc {
    lines: Lines,
    devices: Devices,
}

impl Spc {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        Ok(Self {
            lines: Lines::open(path)?,
            devices: Devices::default(),
        })
    }
}

impl Source for Spc {
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let l = &self.lines;
        let [asu, lba, size, opcode, time] = l.fields::<5>(LAYOUT)?;
        l.number("ASU", asu)?;
        let op = match opcode {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(l.bad("R or W as Opcode", opcode)),
        };
        let at = seconds(time).ok_or_else(|| l.bad("a Timestamp in seconds", time))?;
        let offset = l
            .number("LBA (blocks of 512 bytes)", lba)?
            .checked_mul(512)
            .ok_or_else(|| l.bad("an LBA below 2^55", lba))?;
        Ok(Some(TraceIo {
            at: Nanos(at),
            op,
            offset,
            len: l.number("Size (bytes)", size)?,
            latency: None,
            device: self.devices.number(asu),
        }))
    }
    fn device(&self, index: u32) -> String {
        format!("ASU {}", self.devices.name(index))
    }
}

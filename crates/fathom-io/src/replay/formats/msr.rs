//! MSR Cambridge block traces: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Timestamp and ResponseTime count 100 ns (Windows filetime); Offset and Size are bytes. Each disk of
//! each host is a device of its own (Narayanan et al., FAST 2008).

use std::path::Path;

use fathom_telemetry::{Nanos, Op};

use super::lines::Lines;
use super::{Devices, Source};
use crate::replay::{TraceError, TraceIo};

const LAYOUT: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

pub(super) struct Msr {
    lines: Lines,
    devices: Devices,
    name: Vec<u8>,
    base: Option<u64>,
}

impl Msr {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        Ok(Self {
            lines: Lines::open(path)?,
            devices: Devices::default(),
            name: Vec::new(),
            base: None,
        })
    }
}

impl Source for Msr {
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let l = &self.lines;
        let [time, host, disk, kind, offset, size, response] = l.fields::<7>(LAYOUT)?;
        let ticks = l.number("Timestamp (100 ns)", time)?;
        // Filetimes count from 1601 and do not fit 64 bits of ns: times count from the first record. A
        // record out of order may lie before it, by less than a day.
        let base = *self
            .base
            .get_or_insert_with(|| ticks.saturating_sub(864_000_000_000));
        let at = ticks
            .checked_sub(base)
            .and_then(|t| t.checked_mul(100))
            .ok_or_else(|| l.bad("a Timestamp within 500 years after the first", time))?;
        let op = match kind {
            b"Read" | b"read" | b"R" => Op::Read,
            b"Write" | b"write" | b"W" => Op::Write,
            _ => return Err(l.bad("Read or Write as Type", kind)),
        };
        let latency = l
            .number("ResponseTime (100 ns)", response)?
            .checked_mul(100)
            .ok_or_else(|| l.bad("a ResponseTime below 500 years", response))?;
        let io = TraceIo {
            at: Nanos(at),
            device: 0,
            op,
            offset: l.number("Offset (bytes)", offset)?,
            len: l.number("Size (bytes)", size)?,
            latency: Some(Nanos(latency)),
        };
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b'.');
        self.name.extend_from_slice(disk);
        Ok(Some(TraceIo {
            device: self.devices.number(&self.name),
            ..io
        }))
    }
    fn device(&self, index: u32) -> String {
        self.devices.name(index)
    }
}

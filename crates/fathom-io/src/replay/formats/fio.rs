//! fio's I/O log: version 2, whose `wait` lines add up to the time in µs, and version 3, whose lines begin
//! with the time in µs.
//!
//! `FILE ACTION [OFFSET LENGTH]`; actions add, open, close, read, write, trim, sync, datasync, wait.
//! Each file is a device of its own (HOWTO, "Trace file format"; `iolog.c`).

use std::path::Path;

use fathom_telemetry::{Nanos, Op};

use super::lines::Lines;
use super::{Devices, Source};
use crate::replay::{TraceError, TraceIo};

pub(super) struct Fio {
    lines: Lines,
    devices: Devices,
    timestamps: bool,
    /// Sum of the waits so far, µs.
    waited: u64,
}

impl Fio {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let mut lines = Lines::open(path)?;
        let expected = "'fio version 2 iolog' or 'fio version 3 iolog'";
        if !lines.advance()? {
            return Err(lines.malformed(expected, "an empty file"));
        }
        let timestamps = match lines.text() {
            b"fio version 2 iolog" => false,
            b"fio version 3 iolog" => true,
            other => return Err(lines.bad(expected, other)),
        };
        Ok(Self {
            lines,
            devices: Devices::default(),
            timestamps,
            waited: 0,
        })
    }
}

impl Source for Fio {
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        while self.lines.advance()? {
            let l = &self.lines;
            let mut words = l
                .text()
                .split(u8::is_ascii_whitespace)
                .filter(|w| !w.is_empty());
            let micros = if self.timestamps {
                let word = words.next().unwrap_or_default();
                l.number("a timestamp (µs)", word)?
            } else {
                self.waited
            };
            let (Some(file), Some(action)) = (words.next(), words.next()) else {
                return Err(l.bad("a file and an action", l.text()));
            };
            let first = words.next();
            let second = words.next();
            let amount = |what: &str, word: Option<&[u8]>| l.number(what, word.unwrap_or_default());
            let op = match action {
                b"add" | b"open" | b"close" => continue,
                b"wait" if !self.timestamps => {
                    let wait = amount("a wait (µs)", first)?;
                    self.waited = self
                        .waited
                        .checked_add(wait)
                        .filter(|w| *w < u64::MAX / 1000)
                        .ok_or_else(|| l.bad("waits below 500 years in all", l.text()))?;
                    continue;
                }
                b"read" => Op::Read,
                b"write" => Op::Write,
                b"trim" => Op::Trim,
                b"sync" | b"datasync" => Op::Sync,
                _ => {
                    return Err(l.bad(
                        if self.timestamps {
                            "an action (add, open, close, read, write, trim, sync or datasync)"
                        } else {
                            "an action (add, open, close, read, write, trim, sync, datasync or wait)"
                        },
                        action,
                    ));
                }
            };
            let (offset, len) = if op == Op::Sync {
                (0, 0)
            } else {
                (
                    amount("an offset (bytes)", first)?,
                    amount("a length (bytes)", second)?,
                )
            };
            let at = micros
                .checked_mul(1000)
                .ok_or_else(|| l.bad("a time below 500 years", l.text()))?;
            return Ok(Some(TraceIo {
                at: Nanos(at),
                op,
                offset,
                len,
                latency: None,
                device: self.devices.number(file),
            }));
        }
        Ok(None)
    }
    fn device(&self, index: u32) -> String {
        self.devices.name(index)
    }
}

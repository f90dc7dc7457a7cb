//! Several binary traces of blktrace as one, by time, as fio's manual has it (`merge_blktrace_file`).

use std::path::PathBuf;

use super::blktrace::{Cpu, QUEUE, RECORD, TC_DISCARD, TC_READ, TC_WRITE};
use crate::replay::TraceError;

/// One trace, and what becomes of it.
#[derive(Debug, Clone)]
pub struct Part {
    /// The file itself.
    pub path: PathBuf,
    /// Its times, percent of what they are.
    pub scale: u64,
    /// How often it is played, one pass after the other.
    pub passes: u64,
}

/// A trace that is read for as often as asked.
struct Cursor {
    part: Part,
    cpu: Cpu,
    pass: u64,
    /// The last time of the first pass: what a pass takes.
    length: u64,
    /// Of the I/O at hand, as it stands and as it will be.
    read: u64,
    time: u64,
}

impl Cursor {
    /// Goes to the next I/O that was queued; `false` at the end of all passes.
    fn next(&mut self) -> Result<bool, TraceError> {
        loop {
            let Some(event) = self.cpu.next()? else {
                if self.pass == 0 {
                    self.length = self.read;
                }
                self.pass += 1;
                if self.pass >= self.part.passes {
                    return Ok(false);
                }
                self.cpu = Cpu::open(&self.part.path)?;
                continue;
            };
            let transfers = event.action & (TC_READ | TC_WRITE | TC_DISCARD) != 0;
            if event.action & 0xffff == QUEUE && transfers {
                self.read = event.time;
                let late = self.pass.saturating_mul(self.length);
                let time = u128::from(event.time.saturating_add(late));
                self.time = (time * u128::from(self.part.scale) / 100) as u64;
                return Ok(true);
            }
        }
    }
}

/// The I/Os of all of them.
pub struct Merged {
    left: Vec<Cursor>,
}

impl Merged {
    /// Opens them.
    ///
    /// # Errors
    /// Where one cannot be read or is no trace of blktrace.
    pub fn open(parts: &[Part]) -> Result<Self, TraceError> {
        let mut left = Vec::new();
        for part in parts {
            let mut cursor = Cursor {
                part: part.clone(),
                cpu: Cpu::open(&part.path)?,
                pass: 0,
                length: 0,
                read: 0,
                time: 0,
            };
            if cursor.next()? {
                left.push(cursor);
            }
        }
        Ok(Self { left })
    }

    /// The record of the next I/O with its new time, the least byte first and without a payload.
    ///
    /// # Errors
    /// As [`Merged::open`].
    pub fn record(&mut self) -> Result<Option<[u8; RECORD]>, TraceError> {
        let Some(first) = (0..self.left.len()).min_by_key(|i| self.left[*i].time) else {
            return Ok(None);
        };
        let cursor = &mut self.left[first];
        let mut record = cursor.cpu.record();
        record[8..16].copy_from_slice(&cursor.time.to_le_bytes());
        record[46..48].fill(0);
        if !cursor.next()? {
            self.left.remove(first);
        }
        Ok(Some(record))
    }
}

/// Whether a file begins as a trace of blktrace.
pub fn is_blktrace(head: &[u8]) -> bool {
    super::blktrace::is_magic(head)
}

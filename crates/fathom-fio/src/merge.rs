//! `merge_blktrace_file`: several binary traces of blktrace become one, by time, as fio merges them.

use std::io::{Read, Write};
use std::path::Path;

use crate::output::Outputs;
use crate::section::Section;
use crate::{FioError, Script, names};

/// Bytes of a record (`struct blk_io_trace`), before its payload.
const RECORD: usize = 48;
const MAGIC: u32 = 0x6561_7400;
/// An I/O was queued.
const QUEUE: u32 = 1;
/// Reads, writes and discards among the categories above the action.
const TRANSFERS: u32 = 1 << 16 | 1 << 17 | 1 << 29;

/// Whether a file begins as a trace of this machine's byte order.
fn is_trace(head: &[u8]) -> bool {
    head.first_chunk()
        .is_some_and(|b| u32::from_le_bytes(*b) & 0xffff_ff00 == MAGIC)
}

/// One trace, read again for as often as asked.
struct Cursor {
    bytes: Vec<u8>,
    at: usize,
    record: [u8; RECORD],
    /// Of the record, as it was written and as it will be.
    time: u64,
    /// The last time of the first pass: what a pass takes.
    length: u64,
    pass: u64,
    passes: u64,
    /// Of its times, percent.
    scale: u64,
}

impl Cursor {
    /// The next I/O that was queued; `false` at the end of all passes.
    fn next(&mut self) -> bool {
        loop {
            let Some(record) = self.bytes[self.at..].first_chunk::<RECORD>() else {
                if self.length == 0 {
                    self.length = self.time;
                }
                self.pass += 1;
                self.at = 0;
                if self.pass >= self.passes {
                    return false;
                }
                continue;
            };
            self.record = *record;
            let word = |i: usize| {
                u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]])
            };
            let payload = u16::from_le_bytes([record[46], record[47]]);
            let action = word(28);
            let time = u64::from(word(8)) | u64::from(word(12)) << 32;
            self.at = (self.at + RECORD + usize::from(payload)).min(self.bytes.len());
            if action & 0xffff == QUEUE && action & TRANSFERS != 0 {
                let later = self.pass.wrapping_mul(self.length);
                self.time = time.wrapping_add(later).wrapping_mul(self.scale) / 100;
                return true;
            }
        }
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut record = self.record;
        record[8..16].copy_from_slice(&self.time.to_le_bytes());
        record[46..48].fill(0);
        out.write_all(&record)
    }
}

/// One number per trace, or the same for all.
fn numbers(s: &Section, option: &str, default: u64, count: usize) -> Result<Vec<u64>, FioError> {
    let text = s.get(option).unwrap_or("");
    let given: Vec<u64> = text
        .split(':')
        .filter_map(|t| t.trim().parse::<f64>().ok())
        .map(|n| n as u64)
        .collect();
    match given.len() {
        0 => Ok(vec![default; count]),
        n if n == count => Ok(given),
        n => Err(FioError::value(
            &s.name,
            option,
            format!("{n} numbers for {count} traces: expected one for each"),
        )),
    }
}

fn merged(s: &Section, target: &Path, outputs: &Outputs) -> Result<(), FioError> {
    let bad =
        |path: &str, why: String| FioError::value(&s.name, "read_iolog", format!("{path}: {why}"));
    let traces = names(s.get("read_iolog").unwrap_or(""));
    if traces.is_empty() {
        return Err(FioError::value(
            &s.name,
            "merge_blktrace_file",
            "it needs the traces that are to be merged: read_iolog=FIRST:SECOND",
        ));
    }
    let scales = numbers(s, "merge_blktrace_scalars", 100, traces.len())?;
    let passes = numbers(s, "merge_blktrace_iters", 1, traces.len())?;
    let mut left = Vec::new();
    for (i, path) in traces.iter().enumerate() {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|mut f| f.read_to_end(&mut bytes));
        read.map_err(|e| bad(path, e.to_string()))?;
        if !is_trace(&bytes) {
            return Err(bad(
                path,
                "it is no trace of blktrace with this machine's byte order".into(),
            ));
        }
        let mut cursor = Cursor {
            bytes,
            at: 0,
            record: [0; RECORD],
            time: 0,
            length: 0,
            pass: 0,
            passes: passes[i].max(1),
            scale: scales[i],
        };
        if cursor.next() {
            left.push(cursor);
        }
    }
    let mut write = || -> std::io::Result<()> {
        let out = outputs.create(target, is_trace)?;
        let mut out = std::io::BufWriter::new(out);
        while let Some(first) = (0..left.len()).min_by_key(|i| left[*i].time) {
            left[first].write(&mut out)?;
            if !left[first].next() {
                // fio puts the last in its place, which decides between equal times.
                left.swap_remove(first);
            }
        }
        out.into_inner().map_err(|e| e.into_error())?.commit()
    };
    write().map_err(|e| {
        let why = e.to_string();
        FioError::value(&s.name, "merge_blktrace_file", why)
    })
}

impl Script {
    /// Merges the traces of sections that ask for it, which replay the merged one from then on.
    ///
    /// # Errors
    /// A trace that cannot be read, or what stands where the merged one shall be.
    pub fn merge_traces(&mut self, outputs: &Outputs) -> Result<(), FioError> {
        for s in &mut self.sections {
            let Some(target) = s.get("merge_blktrace_file").filter(|t| !t.is_empty()) else {
                continue;
            };
            let target = target.to_owned();
            merged(s, Path::new(&target), outputs)?;
            s.add("read_iolog", Some(target.replace(':', "\\:")), false)?;
        }
        Ok(())
    }
}

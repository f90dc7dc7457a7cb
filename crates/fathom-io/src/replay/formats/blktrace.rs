//! Binary files of blktrace, one per processor, merged by time.
//!
//! Records of 48 bytes (`struct blk_io_trace`, `include/uapi/linux/blktrace_api.h`) followed by a payload.
//! An I/O begins when it is issued to the device (D) or queued (Q) and takes its latency from the
//! completion (C) of the same sector. Flushes become syncs, discards trims; FUA stays a write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use fathom_telemetry::{Nanos, Op};

use super::{Events, Source, read_error};
use crate::replay::{TraceError, TraceIo};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// Bytes of a record, before its payload.
pub(super) const RECORD: usize = 48;

pub(super) const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
/// The action's number; the bit above it says that a cgroup follows.
const ACTION: u32 = 0xff;

pub(super) const TC_READ: u32 = 1 << 16;
pub(super) const TC_WRITE: u32 = 1 << (1 + 16);
const TC_FLUSH: u32 = 1 << (2 + 16);
const TC_PC: u32 = 1 << (9 + 16);
const TC_NOTIFY: u32 = 1 << (10 + 16);
pub(super) const TC_DISCARD: u32 = 1 << (13 + 16);

/// I/Os that wait for their completion before they are passed on without.
const PENDING_MAX: usize = 65_536;
/// … and for how long, on the trace's clock.
const PENDING_TIME: u64 = 60_000_000_000;
/// Looked at when choosing between issued and queued.
const PROBE: usize = 1 << 20;

/// Whether a file begins with a record of blktrace.
pub(super) fn is_magic(head: &[u8]) -> bool {
    head.first_chunk::<4>().is_some_and(|b| {
        [u32::from_le_bytes(*b), u32::from_be_bytes(*b)]
            .iter()
            .any(|m| m & 0xffff_ff00 == MAGIC)
    })
}

/// The files of all processors that belong to `path`: `sda`, `sda.blktrace` or `sda.blktrace.0`.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let stem = match name.rsplit_once(".blktrace") {
        Some((s, _)) => s.to_owned(),
        None => name,
    };
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    };
    let prefix = format!("{stem}.blktrace.");
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().to_string_lossy().into_owned();
            let cpu = name.strip_prefix(&prefix)?.parse().ok()?;
            Some((cpu, e.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|f| f.1).collect()
}

/// What of a record matters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) time: u64,
    sector: u64,
    bytes: u32,
    pub(super) action: u32,
    device: u32,
}

/// One processor's file.
pub(super) struct Cpu {
    path: PathBuf,
    reader: BufReader<File>,
    at: u64,
    big: bool,
    /// The record of the last event, in the order of bytes in which it stands.
    record: [u8; RECORD],
}

impl Cpu {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|e| read_error(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(64 << 10, file),
            at: 0,
            big: false,
            record: [0; RECORD],
        })
    }

    fn malformed(&self, expected: &str, found: String) -> TraceError {
        TraceError::Malformed {
            path: self.path.clone(),
            place: format!("byte {}", self.at),
            expected: expected.to_owned(),
            found,
        }
    }

    /// As many bytes as there are, up to the buffer's length.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut n = 0;
        while n < buffer.len() {
            match self.reader.read(&mut buffer[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(read_error(&self.path, e)),
            }
        }
        Ok(n)
    }

    /// The record of the last event with the least byte first, whatever machine wrote it.
    pub(super) fn record(&self) -> [u8; RECORD] {
        let mut record = self.record;
        if self.big {
            let mut at = 0;
            for width in [4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2] {
                record[at..at + width].reverse();
                at += width;
            }
        }
        record
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let mut b = [0u8; RECORD];
        let n = self.fill(&mut b)?;
        if n == 0 {
            return Ok(None);
        }
        if n < RECORD {
            return Err(self.malformed(
                "a record of 48 bytes",
                format!("{n} bytes and the end of the file"),
            ));
        }
        if self.at == 0 {
            self.big = u32::from_be_bytes([b[0], b[1], b[2], b[3]]) & 0xffff_ff00 == MAGIC;
        }
        let big = self.big;
        let u32_at = |i: usize| {
            let x = [b[i], b[i + 1], b[i + 2], b[i + 3]];
            if big {
                u32::from_be_bytes(x)
            } else {
                u32::from_le_bytes(x)
            }
        };
        let u64_at = |i: usize| {
            let (low, high) = if big { (i + 4, i) } else { (i, i + 4) };
            u64::from(u32_at(low)) | u64::from(u32_at(high)) << 32
        };
        let magic = u32_at(0);
        if magic & 0xffff_ff00 != MAGIC {
            return Err(
                self.malformed("blktrace's magic number 0x656174", format!("{magic:#010x}"))
            );
        }
        if magic & 0xff != VERSION {
            return Err(self.malformed(
                "version 7 of blktrace's format",
                format!("version {}", magic & 0xff),
            ));
        }
        let payload = if big {
            u16::from_be_bytes([b[46], b[47]])
        } else {
            u16::from_le_bytes([b[46], b[47]])
        };
        let event = Event {
            time: u64_at(8),
            sector: u64_at(16),
            bytes: u32_at(24),
            action: u32_at(28),
            device: u32_at(36),
        };
        let mut rest = [0u8; 1024];
        let mut left = usize::from(payload);
        while left > 0 {
            let part = left.min(rest.len());
            let n = self.fill(&mut rest[..part])?;
            if n < part {
                return Err(self.malformed(
                    &format!("a payload of {payload} bytes after the record"),
                    "the end of the file".into(),
                ));
            }
            left -= part;
        }
        self.record = b;
        self.at += (RECORD + usize::from(payload)) as u64;
        Ok(Some(event))
    }
}

/// An I/O that waits for its completion.
struct Pending {
    io: TraceIo,
    done: bool,
}

pub(super) struct Blktrace {
    cpus: Vec<Cpu>,
    /// Next event of each file by time.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    start: u32,
    pending: VecDeque<Pending>,
    /// Number of the first pending I/O.
    first: u64,
    /// Number of the I/O under way at (device, sector, whether it writes).
    under_way: BTreeMap<(u32, u64, bool), u64>,
    devices: Vec<u32>,
    ended: bool,
}

impl Blktrace {
    pub(super) fn open(path: &Path, events: Events) -> Result<Self, TraceError> {
        let mut paths = files(path);
        if paths.is_empty() {
            paths = vec![path.to_owned()];
        }
        let start = match events {
            Events::Issue => ISSUE,
            Events::Queue => QUEUE,
            Events::Auto => probe(&paths)?,
        };
        let mut cpus = paths
            .iter()
            .map(|p| Cpu::open(p))
            .collect::<Result<Vec<_>, _>>()?;
        let mut heads = BinaryHeap::new();
        let mut events = Vec::new();
        for (i, cpu) in cpus.iter_mut().enumerate() {
            let event = cpu.next()?;
            heads.extend(event.map(|e| Reverse((e.time, i))));
            events.push(event);
        }
        Ok(Self {
            cpus,
            heads,
            events,
            start,
            pending: VecDeque::new(),
            first: 0,
            under_way: BTreeMap::new(),
            devices: Vec::new(),
            ended: false,
        })
    }

    /// The next event of all processors by time.
    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        let Some(Reverse((_, i))) = self.heads.pop() else {
            return Ok(None);
        };
        let event = self.events[i].take();
        self.events[i] = self.cpus[i].next()?;
        if let Some(next) = self.events[i] {
            self.heads.push(Reverse((next.time, i)));
        }
        Ok(event)
    }

    fn take(&mut self, e: &Event) {
        if e.action & (TC_NOTIFY | TC_PC) != 0 {
            return;
        }
        let kind = e.action & ACTION;
        let key = (e.device, e.sector, e.action & TC_WRITE != 0);
        if kind == COMPLETE {
            if let Some(number) = self.under_way.remove(&key)
                && let Some(p) = number
                    .checked_sub(self.first)
                    .and_then(|i| self.pending.get_mut(i as usize))
            {
                p.io.latency = Some(Nanos(e.time.saturating_sub(p.io.at.0)));
                p.done = true;
            }
            return;
        }
        if kind != self.start {
            return;
        }
        let op = if e.action & TC_DISCARD != 0 {
            Op::Trim
        } else if e.bytes == 0 && e.action & TC_FLUSH != 0 {
            Op::Sync
        } else if e.action & TC_WRITE != 0 {
            Op::Write
        } else {
            Op::Read
        };
        if e.bytes == 0 && op != Op::Sync {
            return;
        }
        let device = match self.devices.iter().position(|d| *d == e.device) {
            Some(i) => i,
            None => {
                self.devices.push(e.device);
                self.devices.len() - 1
            }
        } as u32;
        let number = self.first + self.pending.len() as u64;
        self.under_way.insert(key, number);
        self.pending.push_back(Pending {
            io: TraceIo {
                at: Nanos(e.time),
                device,
                op,
                offset: if op == Op::Sync {
                    0
                } else {
                    e.sector.saturating_mul(512)
                },
                len: u64::from(e.bytes),
                latency: None,
            },
            done: false,
        });
    }

    /// The oldest I/O, where it is complete or has waited long enough.
    fn ready(&mut self, now: u64) -> Option<TraceIo> {
        let front = self.pending.front()?;
        let long = now.saturating_sub(front.io.at.0) > PENDING_TIME;
        if !(front.done || long || self.ended || self.pending.len() > PENDING_MAX) {
            return None;
        }
        self.first += 1;
        let io = self.pending.pop_front()?.io;
        if self.under_way.len() > 2 * PENDING_MAX {
            let first = self.first;
            self.under_way.retain(|_, n| *n >= first);
        }
        Some(io)
    }
}

impl Source for Blktrace {
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        let mut now = 0;
        loop {
            if let Some(io) = self.ready(now) {
                return Ok(Some(io));
            }
            if self.ended {
                return Ok(None);
            }
            match self.event()? {
                Some(e) => {
                    now = e.time;
                    self.take(&e);
                }
                None => self.ended = true,
            }
        }
    }
    fn device(&self, index: u32) -> String {
        self.devices
            .get(index as usize)
            .map_or_else(String::new, |d| {
                // As the kernel packs it for user space: 12 bits of major above 20 of minor.
                format!("{},{}", d >> 20, d & 0xf_ffff)
            })
    }
}

/// Issued where the first part of any file has such an event, else queued.
fn probe(paths: &[PathBuf]) -> Result<u32, TraceError> {
    for path in paths {
        let mut cpu = Cpu::open(path)?;
        while cpu.at < PROBE as u64 {
            match cpu.next()? {
                Some(e) if e.action & TC_NOTIFY == 0 && e.action & ACTION == ISSUE => {
                    return Ok(ISSUE);
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    Ok(QUEUE)
}

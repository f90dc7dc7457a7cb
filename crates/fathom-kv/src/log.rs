//! The log: changes since the last checkpoint, and group commit.
//!
//! A change is appended under the latch of its leaf, so that the log has each key's changes in their
//! order. Whoever finds nobody writing writes for all that wait, in frames with checksum, epoch and
//! position; recovery stops at the first frame that does not follow the one before.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::buf::{PageBuf, checksum, get32, get64, put};
use crate::error::{KvError, Result};
use crate::meta::{BLOCK, Header, Layout, io};
use crate::stats::{Counters, add};
use crate::store::Store;
use crate::sync::{Signal, lock};

const MAGIC: u64 = u64::from_le_bytes(*b"fathomLG");
/// Magic, epoch, position, length, checksum.
const FRAME: usize = 40;
/// Operation, key, length.
const RECORD: usize = 13;

/// One change, as logged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
}

/// Records of one epoch that are not on the store yet.
struct Segment {
    epoch: u64,
    start: u64,
    bytes: Vec<u8>,
}

struct State {
    sealed: VecDeque<Segment>,
    open: Segment,
    /// Everything before this position is on the store.
    durable: u64,
    writing: bool,
    /// Bytes used of each half.
    used: [u64; 2],
    /// Admitted changes that have not been appended, and their bytes.
    admitted: u64,
    admitted_bytes: u64,
    failed: Option<String>,
}

pub(crate) struct Log {
    layout: Layout,
    id: u64,
    state: Mutex<State>,
    wake: Signal,
}

/// What to do before a change.
pub(crate) enum Room {
    Enough,
    /// A checkpoint should begin.
    Soon,
    /// A checkpoint must make room first.
    None,
}

fn frame_bytes(len: usize) -> u64 {
    ((FRAME + len) as u64).next_multiple_of(BLOCK)
}

impl Log {
    pub(crate) fn new(layout: Layout, id: u64, epoch: u64, start: u64) -> Self {
        Self {
            layout,
            id,
            state: Mutex::new(State {
                sealed: VecDeque::new(),
                open: Segment {
                    epoch,
                    start,
                    bytes: Vec::new(),
                },
                durable: start,
                writing: false,
                used: [0; 2],
                admitted: 0,
                admitted_bytes: 0,
                failed: None,
            }),
            wake: Signal::default(),
        }
    }
    /// Longest value that can be logged.
    pub(crate) fn longest(layout: &Layout) -> u64 {
        layout.log_bytes / 4 - (FRAME + RECORD) as u64
    }
    /// Reserves room for a change with a value of `len` bytes; [`Log::leave`] must follow, unless there is none.
    pub(crate) fn admit(&self, len: usize) -> Room {
        let mut s = lock(&self.state);
        let record = (len + RECORD) as u64;
        // In the worst case every change that is under way is written in a frame of its own.
        let worst = (s.admitted + 2) * (BLOCK + FRAME as u64) + s.admitted_bytes + record;
        let used = s.used[(s.open.epoch % 2) as usize] + s.open.bytes.len() as u64;
        if used + worst > self.layout.log_bytes {
            return Room::None;
        }
        s.admitted += 1;
        s.admitted_bytes += record;
        if used > self.layout.log_bytes / 2 {
            return Room::Soon;
        }
        Room::Enough
    }
    /// Ends what [`Log::admit`] began.
    pub(crate) fn leave(&self, len: usize) {
        let mut s = lock(&self.state);
        s.admitted -= 1;
        s.admitted_bytes -= (len + RECORD) as u64;
    }
    /// Appends; returns the position to wait for.
    pub(crate) fn append(&self, key: u64, change: Change<'_>) -> u64 {
        let (op, value): (u8, &[u8]) = match change {
            Change::Put(v) => (1, v),
            Change::Delete => (2, &[]),
        };
        let mut s = lock(&self.state);
        let b = &mut s.open.bytes;
        b.push(op);
        b.extend_from_slice(&key.to_le_bytes());
        b.extend_from_slice(&(value.len() as u32).to_le_bytes());
        b.extend_from_slice(value);
        s.open.start + s.open.bytes.len() as u64
    }
    /// Begins the next epoch; all changes are kept out meanwhile. Returns its first position.
    pub(crate) fn rotate(&self, epoch: u64) -> u64 {
        let mut s = lock(&self.state);
        let start = s.open.start + s.open.bytes.len() as u64;
        let next = Segment {
            epoch,
            start,
            bytes: Vec::new(),
        };
        let old = std::mem::replace(&mut s.open, next);
        if !old.bytes.is_empty() {
            s.sealed.push_back(old);
        }
        s.used[(epoch % 2) as usize] = 0;
        start
    }
    /// Makes everything appended so far durable.
    pub(crate) fn flush(&self, store: &dyn Store, counters: &Counters) -> Result<()> {
        let end = {
            let s = lock(&self.state);
            s.open.start + s.open.bytes.len() as u64
        };
        self.wait(end, store, counters)
    }
    /// Waits until the log is durable up to `position`, writing it where nobody else does.
    pub(crate) fn wait(&self, position: u64, store: &dyn Store, counters: &Counters) -> Result<()> {
        let mut s = lock(&self.state);
        loop {
            if let Some(why) = &s.failed {
                return Err(KvError::Stopped(why.clone()));
            }
            if s.durable >= position {
                return Ok(());
            }
            if s.writing {
                s = self.wake.wait(&self.state, s);
                continue;
            }
            s.writing = true;
            let end = s.open.start + s.open.bytes.len() as u64;
            let next = Segment {
                epoch: s.open.epoch,
                start: end,
                bytes: Vec::new(),
            };
            let mut batch: Vec<Segment> = s.sealed.drain(..).collect();
            batch.push(std::mem::replace(&mut s.open, next));
            let mut placed = Vec::new();
            for segment in batch.into_iter().filter(|b| !b.bytes.is_empty()) {
                let half = (segment.epoch % 2) as usize;
                placed.push((self.layout.log(segment.epoch) + s.used[half], segment));
                s.used[half] += frame_bytes(placed[placed.len() - 1].1.bytes.len());
            }
            drop(s);
            let written = self.write(&placed, store, counters);
            s = lock(&self.state);
            s.writing = false;
            match written {
                Ok(()) => s.durable = end,
                Err(e) => s.failed = Some(e.to_string()),
            }
            self.wake.notify();
        }
    }
    fn write(
        &self,
        batch: &[(u64, Segment)],
        store: &dyn Store,
        counters: &Counters,
    ) -> Result<()> {
        for (offset, segment) in batch {
            let bytes = frame_bytes(segment.bytes.len());
            let mut b = PageBuf::new(bytes as usize);
            put(&mut b, 0, &MAGIC.to_le_bytes());
            put(&mut b, 8, &segment.epoch.to_le_bytes());
            put(&mut b, 16, &segment.start.to_le_bytes());
            put(&mut b, 24, &(segment.bytes.len() as u64).to_le_bytes());
            put(&mut b, FRAME, &segment.bytes);
            let sum = self.sum(&b, segment.bytes.len());
            put(&mut b, 32, &sum.to_le_bytes());
            store
                .write(*offset, &b)
                .map_err(|e| io("writing the log", *offset, e))?;
            add(&counters.log_writes, 1);
            add(&counters.log_bytes, bytes);
        }
        store.sync().map_err(|e| io("syncing the log", 0, e))
    }
    fn sum(&self, frame: &[u8], len: usize) -> u64 {
        let head = checksum(self.id, &frame[..32]);
        checksum(head, &frame[FRAME..FRAME + len])
    }
}

/// Calls `each` with every change after the checkpoint of `header`, in order, up to the first that was lost.
pub(crate) fn replay(
    store: &dyn Store,
    header: &Header,
    mut each: impl FnMut(u64, Change<'_>) -> Result<()>,
) -> Result<u64> {
    let log = Log::new(header.layout, header.id, 0, 0);
    let mut position = header.log_start;
    for epoch in [header.epoch + 1, header.epoch + 2] {
        let mut at = 0;
        while let Some(frame) = read(store, &log, epoch, position, at)? {
            let len = get64(&frame, 24) as usize;
            let mut records = &frame[FRAME..FRAME + len];
            while records.len() >= RECORD {
                let (op, key) = (records[0], get64(records, 1));
                let value = get32(records, 9) as usize;
                if records.len() < RECORD + value {
                    return Err(KvError::Inconsistent(
                        "a log record is longer than its frame".into(),
                    ));
                }
                let (record, rest) = records.split_at(RECORD + value);
                let change = match op {
                    1 => Change::Put(&record[RECORD..]),
                    _ => Change::Delete,
                };
                each(key, change)?;
                records = rest;
            }
            position += len as u64;
            at += frame_bytes(len);
        }
    }
    Ok(position)
}

/// The frame at byte `at` of an epoch's half, where it is intact and the one that is expected.
fn read(
    store: &dyn Store,
    log: &Log,
    epoch: u64,
    position: u64,
    at: u64,
) -> Result<Option<PageBuf>> {
    let half = log.layout.log_bytes;
    if at + BLOCK > half {
        return Ok(None);
    }
    let offset = log.layout.log(epoch) + at;
    let mut head = PageBuf::new(BLOCK as usize);
    let failed = |e| io("reading the log", offset, e);
    store.read(offset, &mut head).map_err(failed)?;
    let len = get64(&head, 24);
    let expected = get64(&head, 0) == MAGIC
        && get64(&head, 8) == epoch
        && get64(&head, 16) == position
        && len <= half - FRAME as u64
        && at + frame_bytes(len as usize) <= half;
    if !expected {
        return Ok(None);
    }
    let mut frame = PageBuf::new(frame_bytes(len as usize) as usize);
    store.read(offset, &mut frame).map_err(failed)?;
    let intact = get64(&frame, 32) == log.sum(&frame, len as usize);
    Ok(intact.then_some(frame))
}

//! Where the bytes of a file are: written, reserved but unwritten, or nowhere.
//!
//! Reading holes or unwritten extents measures memset, not the device. FIEMAP tells both;
//! where a file system has none, SEEK_DATA and SEEK_HOLE at least tell the holes.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::Serialize;

use crate::devices::graph::{Graph, Node};
use crate::root::{HostRoot, number, text};
use crate::sys::{self, FIEMAP_BATCH, FiemapExtent};

const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELALLOC: u32 = 0x4;
const ENCODED: u32 = 0x8;
const INLINE: u32 = 0x200;
const UNWRITTEN: u32 = 0x800;

/// What is behind a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanKind {
    /// Data on the device.
    Written,
    /// Space on the device that reads as zeros without being read.
    Unwritten,
    /// No space at all.
    Hole,
}

/// A range of a file of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Byte range in the file.
    pub range: Range<u64>,
    /// What is behind it.
    pub kind: SpanKind,
    /// Byte offset of its first byte on the device of the file system, where that is
    /// one contiguous plain place.
    pub physical: Option<u64>,
}

/// How a map was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// FIEMAP: holes and unwritten extents are known.
    Fiemap,
    /// SEEK_DATA and SEEK_HOLE: unwritten extents may be taken for written ones.
    SeekHole,
}

/// A map of a file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ExtentsError {
    /// Neither FIEMAP nor SEEK_HOLE works here (block devices, some network file systems).
    #[error(
        "the file system tells nothing about unwritten blocks; fill the file before reading it"
    )]
    Unsupported,
    /// A system call failed.
    #[error("cannot map the blocks of the file: {0}; check the kernel log")]
    Io(#[from] io::Error),
}

/// Streams the spans of `range` in order, without gaps or overlap, in batches of bounded
/// memory. Dirty data is written out first.
#[derive(Debug)]
pub struct Spans<'a> {
    file: &'a File,
    method: Method,
    at: u64,
    end: u64,
    batch: VecDeque<Span>,
}

impl<'a> Spans<'a> {
    /// Spans of a byte range of a file, by the best method that works on it.
    pub fn new(file: &'a File, range: Range<u64>) -> Result<Self, ExtentsError> {
        // A hole reaches to the end of the file; beyond it there is nothing to map.
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(ExtentsError::Unsupported);
        }
        let mut spans = Self {
            file,
            method: Method::Fiemap,
            at: range.start,
            end: range.end.min(meta.len()),
            batch: VecDeque::new(),
        };
        match spans.fill() {
            Ok(()) => Ok(spans),
            Err(e) if is_unsupported(&e) => {
                spans.method = Method::SeekHole;
                spans.fill().map_err(|e| {
                    if is_unsupported(&e) {
                        ExtentsError::Unsupported
                    } else {
                        ExtentsError::Io(e)
                    }
                })?;
                Ok(spans)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// How the spans are obtained.
    pub fn method(&self) -> Method {
        self.method
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.at >= self.end {
            return Ok(());
        }
        match self.method {
            Method::Fiemap => self.fill_by_fiemap(),
            Method::SeekHole => self.fill_by_seek(),
        }
    }

    fn fill_by_fiemap(&mut self) -> io::Result<()> {
        let extents = sys::fiemap(self.file, self.at, self.end - self.at)?;
        let complete = extents.len() < FIEMAP_BATCH || extents.iter().any(|e| e.flags & LAST != 0);
        for extent in &extents {
            let start = extent.logical.clamp(self.at, self.end);
            let end = extent.logical.saturating_add(extent.length).min(self.end);
            if end <= start {
                continue;
            }
            self.push(start, SpanKind::Hole, None);
            let (kind, physical) = describe(extent, start);
            self.push(end, kind, physical);
        }
        if complete {
            self.push(self.end, SpanKind::Hole, None);
        }
        Ok(())
    }

    fn fill_by_seek(&mut self) -> io::Result<()> {
        match rustix::fs::seek(self.file, SeekFrom::Data(self.at)) {
            Ok(data) => self.push(data.min(self.end), SpanKind::Hole, None),
            Err(Errno::NXIO) => self.push(self.end, SpanKind::Hole, None),
            Err(e) => return Err(e.into()),
        }
        if self.at < self.end {
            let hole = rustix::fs::seek(self.file, SeekFrom::Hole(self.at))?;
            self.push(hole.min(self.end), SpanKind::Written, None);
        }
        Ok(())
    }

    /// Adds a span from where the last one ended.
    fn push(&mut self, end: u64, kind: SpanKind, physical: Option<u64>) {
        if end > self.at {
            self.batch.push_back(Span {
                range: self.at..end,
                kind,
                physical,
            });
            self.at = end;
        }
    }
}

impl Iterator for Spans<'_> {
    type Item = io::Result<Span>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() {
            let before = self.at;
            if let Err(e) = self.fill() {
                self.at = self.end;
                return Some(Err(e));
            }
            // A file system that returns nothing new would loop for ever.
            if self.batch.is_empty() && self.at == before {
                self.at = self.end;
            }
        }
        self.batch.pop_front().map(Ok)
    }
}

fn describe(extent: &FiemapExtent, start: u64) -> (SpanKind, Option<u64>) {
    let kind = if extent.flags & UNWRITTEN != 0 {
        SpanKind::Unwritten
    } else {
        SpanKind::Written
    };
    let plain = extent.flags & (UNKNOWN | DELALLOC | ENCODED | INLINE) == 0;
    let physical = plain.then(|| extent.physical + (start - extent.logical));
    (kind, physical)
}

fn is_unsupported(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL | libc::ENOSYS | libc::ESPIPE)
    )
}

/// How much of a range is really on the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Bytes with data.
    pub written_bytes: u64,
    /// Bytes that are reserved but unwritten.
    pub unwritten_bytes: u64,
    /// Bytes in holes, those beyond the end of the file included.
    pub hole_bytes: u64,
    /// First range without data.
    pub first_gap: Option<Range<u64>>,
    /// How it was found out.
    pub method: Method,
}

impl Coverage {
    /// Whether every byte of the range would be read from the device.
    pub fn is_complete(&self) -> bool {
        self.unwritten_bytes == 0 && self.hole_bytes == 0
    }
}

/// Measures a byte range of a file.
pub fn coverage(file: &File, range: Range<u64>) -> Result<Coverage, ExtentsError> {
    let spans = Spans::new(file, range.clone())?;
    let mut sum = Coverage {
        written_bytes: 0,
        unwritten_bytes: 0,
        hole_bytes: 0,
        first_gap: None,
        method: spans.method(),
    };
    let mut end = range.start;
    for span in spans {
        let span = span?;
        let bytes = span.range.end - span.range.start;
        end = span.range.end;
        match span.kind {
            SpanKind::Written => {
                sum.written_bytes += bytes;
                continue;
            }
            SpanKind::Unwritten => sum.unwritten_bytes += bytes,
            SpanKind::Hole => sum.hole_bytes += bytes,
        }
        sum.first_gap.get_or_insert(span.range);
    }
    if end < range.end {
        sum.hole_bytes += range.end - end;
        sum.first_gap.get_or_insert(end..range.end);
    }
    Ok(sum)
}

/// Byte offset on the file system's device of one byte of a file; `None` where it has no
/// plain place there (hole, inline, compressed, no FIEMAP).
pub fn physical_offset(file: &File, offset: u64) -> Result<Option<u64>, ExtentsError> {
    let mut spans = Spans::new(file, offset..offset.saturating_add(1))?;
    match spans.next() {
        Some(span) => Ok(span?.physical),
        None => Ok(None),
    }
}

/// Bytes of a range of a block device that nobody ever wrote, where what it is made of tells: the file of a loop device, the
/// account of a zram device. `None` where nothing tells. Of a zram device it is the least there can be, because the account
/// does not say where.
pub fn unwritten_of_device(device: &Path, range: Range<u64>) -> Option<u64> {
    let root = HostRoot::real();
    let graph = Graph::read(&root).ok()?;
    let mut node = graph.by_number(root.number_of_node(device)?)?;
    let mut range = range;
    // Loop devices on loop devices, as deep as anybody stacks them.
    for _ in 0..8 {
        let disk = graph.disk_of(node);
        let offset = node.start_bytes + number::<u64>(&disk.dir.join("loop/offset")).unwrap_or(0);
        range = range.start.checked_add(offset)?..range.end.checked_add(offset)?;
        if disk.name.starts_with("zram") {
            return unwritten_of_zram(disk, &range);
        }
        match disk.loop_backing?.block {
            Some(number) => node = graph.by_number(number)?,
            None => return unwritten_of_loop(disk, range),
        }
    }
    None
}

fn unwritten_of_loop(disk: &Node, range: Range<u64>) -> Option<u64> {
    let backing = disk.loop_backing?;
    let file = File::open(disk.loop_file.as_ref()?).ok()?;
    let meta = file.metadata().ok()?;
    // Another file may have taken its name. (The device number of btrfs differs from that of its files.)
    let device = crate::root::DeviceNumber::from_raw(meta.dev());
    if meta.ino() != backing.inode || !(device == backing.device || device.is_anonymous()) {
        return None;
    }
    let found = coverage(&file, range).ok()?;
    Some(found.unwritten_bytes + found.hole_bytes)
}

/// What it holds before compression is the first number of its `mm_stat`; pages on a backing device are not in it.
fn unwritten_of_zram(disk: &Node, range: &Range<u64>) -> Option<u64> {
    if text(&disk.dir.join("backing_dev")).is_some_and(|b| b != "none") {
        return None;
    }
    let held: u64 = text(&disk.dir.join("mm_stat"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some((range.end - range.start).saturating_sub(held))
}

//! Zones of a zoned device (ZNS, SMR): what they are, how they stand, and the four things that can be done with one.
//!
//! linux/blkzoned.h; NVMe Zoned Namespace Command Set 1.1; ZBC. The kernel speaks in sectors of 512 bytes, this module in bytes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::devices::head_of;
use crate::root::{HostRoot, names, number, text};
use crate::sys::{self, RawZone};

/// What may be written where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneKind {
    /// Anywhere: it has no write pointer.
    Conventional,
    /// At its write pointer only.
    SequentialRequired,
    /// Anywhere, better at its write pointer (host-aware).
    SequentialPreferred,
}

/// How a zone stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneState {
    /// It has no write pointer.
    NoPointer,
    /// Nothing is written.
    Empty,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by a command.
    ExplicitlyOpen,
    /// Partly written; it takes no resources of an open zone, but is active.
    Closed,
    /// Nothing more can be written before a reset.
    Full,
    /// It can be read only, for good.
    ReadOnly,
    /// Neither read nor written.
    Offline,
}

impl ZoneState {
    /// Its name on the screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoPointer => "without a pointer",
            Self::Empty => "empty",
            Self::ImplicitlyOpen => "implicitly open",
            Self::ExplicitlyOpen => "explicitly open",
            Self::Closed => "closed",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Offline => "offline",
        }
    }
}

/// A zone. Offsets are bytes of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Bytes of address space.
    pub size: u64,
    /// Bytes of it that can be written.
    pub capacity: u64,
    /// Where the next write must go; the end of the capacity where the zone is full, its start where it has no pointer.
    pub pointer: u64,
    /// What may be written where.
    pub kind: ZoneKind,
    /// How it stands.
    pub state: ZoneState,
}

impl Zone {
    fn of(raw: &RawZone) -> Self {
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        let (start, size) = (bytes(raw.start), bytes(raw.len));
        // Kernels before 5.9 tell no capacity.
        let capacity = match bytes(raw.capacity) {
            0 => size,
            c => c.min(size),
        };
        let end = start.saturating_add(capacity);
        let kind = match raw.kind {
            1 => ZoneKind::Conventional,
            3 => ZoneKind::SequentialPreferred,
            _ => ZoneKind::SequentialRequired,
        };
        let state = match raw.state {
            0 => ZoneState::NoPointer,
            1 => ZoneState::Empty,
            2 => ZoneState::ImplicitlyOpen,
            3 => ZoneState::ExplicitlyOpen,
            4 => ZoneState::Closed,
            0xE => ZoneState::Full,
            0xD => ZoneState::ReadOnly,
            _ => ZoneState::Offline,
        };
        // The pointer of a full zone is not defined, nor is that of one that takes no writes.
        let pointer = match state {
            ZoneState::NoPointer | ZoneState::Empty | ZoneState::Offline => start,
            ZoneState::Full => end,
            _ => bytes(raw.pointer).clamp(start, end),
        };
        Self {
            start,
            size,
            capacity,
            pointer,
            kind,
            state,
        }
    }

    /// First byte after what can be written.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.capacity)
    }

    /// Bytes that can still be written in order.
    pub fn room(&self) -> u64 {
        match self.state {
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => 0,
            _ => self.end() - self.pointer,
        }
    }

    /// Whether it has a write pointer.
    pub fn is_sequential(&self) -> bool {
        self.kind != ZoneKind::Conventional
    }

    /// Bytes that were written since its last reset; all that a zone without a pointer may hold.
    pub fn written(&self) -> u64 {
        match self.kind {
            ZoneKind::Conventional => self.capacity,
            _ => self.pointer - self.start,
        }
    }
}

/// What can be done with a zone beside reading and writing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneAction {
    /// Forget what is written; the pointer goes back to the start.
    Reset,
    /// Open it explicitly.
    Open,
    /// Close it: it stays active.
    Close,
    /// Fill it without writing: the pointer goes to the end.
    Finish,
}

/// What a device says of its zones as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneLimits {
    /// `host-managed` or `host-aware`.
    pub model: String,
    /// Bytes of every zone but the last.
    pub zone_bytes: u64,
    /// Zones that can be open at a time; `None` where there is no limit.
    pub max_open: Option<u32>,
    /// Zones that can be active (open or closed) at a time; `None` where there is no limit.
    pub max_active: Option<u32>,
    /// Bytes of the largest append; 0 where the kernel knows of none.
    pub append_bytes: u64,
}

/// The limits of a block device or partition; `None` where it has no zones.
pub fn limits(device: &Path) -> Option<ZoneLimits> {
    limits_in(&HostRoot::real(), device)
}

fn limits_in(root: &HostRoot, device: &Path) -> Option<ZoneLimits> {
    let own = queue(root, device)?;
    let model = text(&own.join("zoned")).filter(|m| m != "none")?;
    // The head of a multipath drive says nothing of some limits (Linux 6.1): its paths do.
    let mut queues = paths_below(root, &own);
    queues.push(own);
    let n = |name: &str| {
        let said = queues.iter().filter_map(|q| number::<u64>(&q.join(name)));
        said.filter(|n| *n > 0).min().unwrap_or(0)
    };
    let limit = |name: &str| u32::try_from(n(name)).ok().filter(|n| *n > 0);
    Some(ZoneLimits {
        model,
        zone_bytes: n("chunk_sectors") * 512,
        max_open: limit("max_open_zones"),
        max_active: limit("max_active_zones"),
        append_bytes: n("zone_append_max_bytes"),
    })
}

/// Queues of the hidden paths of a multipath head, by the head's.
fn paths_below(root: &HostRoot, queue: &Path) -> Vec<PathBuf> {
    let disk = queue.parent().and_then(Path::file_name);
    let class = root.sys.join("class/block");
    let below = |name: &String| head_of(name).is_some_and(|head| Some(head.as_ref()) == disk);
    let paths = names(&class).into_iter().filter(below);
    paths.map(|name| class.join(name).join("queue")).collect()
}

/// Bytes of the largest write that a block device does whole or not at all, 0 where it promises none; `None` where the kernel
/// knows of no such writes.
pub fn atomic_bytes(root: &HostRoot, device: &Path) -> Option<u64> {
    number(&queue(root, device)?.join("atomic_write_unit_max_bytes"))
}

/// The directory of its queue: a partition's is its disk's.
fn queue(root: &HostRoot, device: &Path) -> Option<PathBuf> {
    let name = fs::canonicalize(device).ok()?;
    let dir = fs::canonicalize(root.sys.join("class/block").join(name.file_name()?)).ok()?;
    let own = dir.join("queue");
    match own.is_dir() {
        true => Some(own),
        false => Some(dir.parent()?.join("queue")).filter(|q| q.is_dir()),
    }
}

/// Every zone of a device, in order.
///
/// # Errors
/// What the kernel says; where the device has no zones, too.
pub fn report(device: &File) -> io::Result<Vec<Zone>> {
    let mut all: Vec<Zone> = Vec::new();
    loop {
        let from = all.last().map_or(0, |z| (z.start + z.size) / 512);
        let part = sys::zone_report(device, from)?;
        let more: Vec<Zone> = part.iter().map(Zone::of).collect();
        // A zone of nothing would be asked for again for ever.
        let Some(last) = more.last().filter(|z| z.size > 0) else {
            return Ok(all);
        };
        let past = last.start / 512 + 1 > from;
        all.extend(more);
        if !past {
            return Ok(all);
        }
    }
}

/// Does something with the zone that begins at byte `start` and has `size` bytes. The device must be open for writing:
/// only a [`crate::Permit`] gives such a file.
///
/// # Errors
/// What the kernel says: ETOOMANYREFS where too many zones are open, EOVERFLOW where too many are active.
pub fn act(device: &File, action: ZoneAction, start: u64, size: u64) -> io::Result<()> {
    let n = match action {
        ZoneAction::Reset => 131,
        ZoneAction::Open => 134,
        ZoneAction::Close => 135,
        ZoneAction::Finish => 136,
    };
    sys::zone_action(device, n, start / 512, size / 512)
}

/// Bytes of a device's zones.
///
/// # Errors
/// Where it has none.
pub fn zone_bytes(device: &File) -> io::Result<u64> {
    match sys::zone_sectors(device)? {
        0 => Err(io::Error::other("it has no zones")),
        sectors => Ok(u64::from(sectors) * 512),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(state: u8, pointer: u64) -> RawZone {
        RawZone {
            start: 8192,
            len: 4096,
            pointer,
            kind: 2,
            state,
            capacity: 3072,
            ..RawZone::default()
        }
    }

    #[test]
    fn a_pointer_that_means_nothing_is_where_the_next_write_would_be() {
        let (start, end) = (8192 * 512, (8192 + 3072) * 512);
        let empty = Zone::of(&raw(1, 8192));
        assert_eq!((empty.start, empty.pointer), (start, start));
        assert_eq!((empty.room(), empty.written()), (3072 * 512, 0));
        // QEMU and drives say anything at all here.
        let full = Zone::of(&raw(0xE, u64::MAX / 512));
        assert_eq!((full.pointer, full.room()), (end, 0));
        assert_eq!(full.written(), 3072 * 512);
        let open = Zone::of(&raw(2, 8192 + 8));
        assert_eq!((open.pointer, open.written()), (start + 4096, 4096));
        let gone = Zone::of(&raw(0xF, 0));
        assert_eq!((gone.state, gone.room()), (ZoneState::Offline, 0));
        let mut conventional = raw(0, 0);
        conventional.kind = 1;
        let conventional = Zone::of(&conventional);
        assert!(!conventional.is_sequential());
        assert_eq!(conventional.written(), 3072 * 512);
    }
}

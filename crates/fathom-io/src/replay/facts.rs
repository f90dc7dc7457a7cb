//! The first pass over a trace: every record is checked, and what it holds is counted.

use std::path::Path;

use fathom_telemetry::{Nanos, Op};
use serde::{Deserialize, Serialize};

use super::formats::{Events, Format, open};
use super::order::Ordered;
use super::{TraceError, TraceIo};

/// Devices that are told apart; a trace with more is asked to be split.
const DEVICES_MAX: usize = 1 << 20;

/// One device of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// As the trace calls it.
    pub name: String,
    /// First byte behind everything that was touched.
    pub end: u64,
    /// I/Os.
    pub ios: u64,
}

/// What a trace holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceFacts {
    /// Its format.
    pub format: Format,
    /// I/Os by operation: read, write, trim, sync.
    pub ios: [u64; 4],
    /// Bytes by operation.
    pub bytes: [u64; 4],
    /// Time of the first I/O.
    pub first: Nanos,
    /// Time of the last I/O.
    pub last: Nanos,
    /// Longest read or write.
    pub longest: u64,
    /// I/Os that carry a latency.
    pub with_latency: u64,
    /// I/Os out of order beyond the window, moved to the time of their predecessor.
    pub moved: u64,
    /// In the order in which they appear.
    pub devices: Vec<DeviceFacts>,
    /// Whether every offset and length is a multiple of 512.
    pub aligned: bool,
}

impl TraceFacts {
    /// Of a trace of which nothing has been read.
    fn none(format: Format) -> Self {
        Self {
            format,
            ios: [0; 4],
            bytes: [0; 4],
            first: Nanos::ZERO,
            last: Nanos::ZERO,
            longest: 0,
            with_latency: 0,
            moved: 0,
            devices: Vec::new(),
            aligned: true,
        }
    }

    /// Takes in an I/O of a device that is known.
    ///
    /// # Errors
    /// One that ends beyond all addresses.
    fn count(&mut self, io: &TraceIo) -> Result<(), String> {
        let end = io.offset.checked_add(io.len).ok_or_else(|| {
            format!(
                "an I/O at byte {} of {} bytes ends beyond 2^64; nothing was written",
                io.offset, io.len
            )
        })?;
        if self.total() == 0 {
            self.first = io.at;
        }
        self.last = io.at;
        let op = io.op as usize;
        self.ios[op] += 1;
        self.bytes[op] = self.bytes[op].saturating_add(io.len);
        if matches!(io.op, Op::Read | Op::Write) {
            self.longest = self.longest.max(io.len);
        }
        self.with_latency += u64::from(io.latency.is_some());
        self.aligned &= (io.offset | io.len).is_multiple_of(512);
        let device = &mut self.devices[io.device as usize];
        device.ios += 1;
        device.end = device.end.max(end);
        Ok(())
    }

    /// All I/Os.
    pub fn total(&self) -> u64 {
        self.ios.iter().sum()
    }
    /// From the first to the last.
    pub fn duration(&self) -> Nanos {
        self.last.since(self.first)
    }
    /// Whether playing it changes the target.
    pub fn modifies(&self) -> bool {
        self.ios[Op::Write as usize] + self.ios[Op::Trim as usize] > 0
    }
    /// Operations that occur.
    pub fn ops(&self) -> Vec<Op> {
        Op::ALL
            .into_iter()
            .filter(|op| self.ios[*op as usize] > 0)
            .collect()
    }
}

/// Which I/Os of a trace count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Only this device.
    pub(super) device: Option<String>,
    /// Leave out writes and trims, and the syncs that follow them.
    pub(super) reads_only: bool,
}

impl Selection {
    pub(super) fn takes(&self, io: &TraceIo, wanted: Option<u32>) -> bool {
        wanted.is_none_or(|w| w == io.device) && !(self.reads_only && io.op != Op::Read)
    }
}

/// Reads all of a trace.
///
/// # Errors
/// The first record that is not what its format says; a trace without I/Os.
pub fn survey(
    path: &Path,
    format: Option<Format>,
    events: Events,
    device: Option<&str>,
    reads_only: bool,
    mut stop: impl FnMut() -> bool,
) -> Result<TraceFacts, TraceError> {
    let unfit = |what: String| TraceError::Unfit(format!("{}: {what}", path.display()));
    let (format, source) = open(path, format, events)?;
    let mut ordered = Ordered::new(format, source);
    let selection = Selection {
        device: device.map(str::to_owned),
        reads_only,
    };
    let mut wanted = None;
    let mut facts = TraceFacts::none(format);
    let mut seen = 0u64;
    while let Some(io) = ordered.next()? {
        seen += 1;
        if seen.is_multiple_of(1 << 16) && stop() {
            return Err(unfit(
                "interrupted while it was checked; nothing was written".into(),
            ));
        }
        let d = io.device as usize;
        if d >= DEVICES_MAX {
            return Err(unfit(format!(
                "more than {DEVICES_MAX} devices; split the trace"
            )));
        }
        while facts.devices.len() <= d {
            let index = facts.devices.len() as u32;
            let name = ordered.device(index);
            if selection.device.as_ref() == Some(&name) {
                wanted = Some(index);
            }
            facts.devices.push(DeviceFacts {
                name,
                ..DeviceFacts::default()
            });
        }
        if selection.device.is_some() && wanted.is_none() || !selection.takes(&io, wanted) {
            continue;
        }
        facts.count(&io).map_err(unfit)?;
    }
    facts.moved = ordered.moved;
    if let Some(name) = selection.device.filter(|_| wanted.is_none()) {
        let known = facts.devices.iter().take(8).map(|d| d.name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(unfit(format!(
            "it has no device '{name}': expected one of {known}"
        )));
    }
    if facts.total() == 0 {
        let kind = if reads_only { " that reads" } else { "" };
        return Err(unfit(format!("it holds no I/O{kind}; check the file")));
    }
    Ok(facts)
}

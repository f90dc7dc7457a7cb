//! A target with zones, and what a device promises of whole writes.

use std::io;
use std::os::unix::fs::FileExt;

use fathom_host::{HostRoot, Zone, ZoneAction, ZoneLimits, ZoneState, zones};
use fathom_telemetry::Bytes;

use super::{Destination, Holder, Target, Wanted};
use crate::buffer::Buffers;
use crate::job::Command;

impl Target {
    /// The limits of its zones; `None` where it has none.
    pub fn zone_limits(&self) -> Option<&ZoneLimits> {
        self.zones.as_ref()
    }

    /// Its zones as they stand now.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn zones(&self) -> io::Result<Vec<Zone>> {
        let Destination::File {
            direct, buffered, ..
        } = &self.destination
        else {
            return Ok(Vec::new());
        };
        match direct.as_ref().or(buffered.as_ref()) {
            Some(file) => zones::report(file),
            None => Ok(Vec::new()),
        }
    }

    /// Does something with a zone. Only of a device that was named after `--destroy`.
    ///
    /// # Errors
    /// What the kernel says; where the device may not be written.
    pub fn zone(&self, action: ZoneAction, zone: &Zone) -> io::Result<()> {
        match &self.holder {
            Holder::Device(permit) => zones::act(permit.file(), action, zone.start, zone.size),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Resets the zones between two bytes that hold nothing, after a write to one of them has failed: from Linux 6.12 on
    /// (block/blk-zoned.c, BLK_ZONE_WPLUG_NEED_WP_UPDATE) such a zone fails every other write, too, until it is reset or
    /// asked for. What the head of a multipath drive is asked does not reach the path that keeps this; a reset does.
    pub fn recover_zones(&self, start: u64, end: u64) {
        let inside = |z: &&Zone| z.start < end && z.end() > start;
        let empty = |z: &&Zone| z.is_sequential() && z.state == ZoneState::Empty;
        for z in self.zones().iter().flatten().filter(inside).filter(empty) {
            // Where that fails, the next write says so.
            let _ = self.zone(ZoneAction::Reset, z);
        }
    }

    /// Writes a block at a zone's write pointer. Only of a device that was named after `--destroy`.
    ///
    /// # Errors
    /// What the kernel says; where the device may not be written.
    pub fn write_block(&self, zone: &Zone) -> io::Result<()> {
        let (
            Holder::Device(_),
            Destination::File {
                direct: Some(file), ..
            },
        ) = (&self.holder, &self.destination)
        else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let mut block = Buffers::new(1, self.align.max(512), None)?;
        file.write_all_at(block.bytes(0, self.align.max(512)), zone.pointer)
            .inspect_err(|_| self.recover_zones(zone.start, zone.end()))
    }

    /// Opens the namespace for commands, too; bytes of the largest one that moves data.
    ///
    /// # Errors
    /// Why it takes none, or no appends, in a sentence.
    pub fn take_commands(&mut self) -> Result<u64, String> {
        let wanted = Wanted {
            modifies: matches!(self.holder, Holder::Device(_)),
            operations: vec![Command::Append],
            ..Wanted::default()
        };
        self.open_for_commands(&wanted)?;
        match &self.destination {
            Destination::File {
                commands: Some(device),
                ..
            } => Ok(device.most_bytes),
            _ => Err("it is no device".into()),
        }
    }

    /// Bytes of a range that no zone has written since its reset; `None` without zones.
    pub(super) fn unwritten_in_zones(&self, start: u64, end: u64) -> Option<u64> {
        self.zones.as_ref()?;
        let unwritten = |z: &Zone| {
            let from = (z.start + z.written()).max(start);
            (z.start + z.size).min(end).saturating_sub(from)
        };
        Some(self.zones().ok()?.iter().map(unwritten).sum())
    }

    /// Refuses jobs whose atomic writes the device does not promise.
    pub(super) fn atomic_as(&self, wanted: &Wanted) -> Result<(), String> {
        let (Some(most), Some(path), "block-device") = (wanted.atomic, &self.path, self.kind)
        else {
            return Ok(());
        };
        match zones::atomic_bytes(&HostRoot::real(), path) {
            None => Err(
                "atomic writes need Linux 6.11, whose sysfs names their size in queue/atomic_write_unit_max_bytes, and this kernel names none: drop --atomic (fathom devices shows what an NVMe drive itself promises)"
            .into()),
            Some(0) => Err(
                "the device promises no write to be whole (queue/atomic_write_unit_max_bytes is 0): drop --atomic".into(),
            ),
            Some(unit) if most.0 > unit => Err(format!(
                "writes of {most} are more than the {} that the device does whole or not at all: choose a smaller --bs, or drop --atomic",
                Bytes(unit)
            )),
            Some(_) => Ok(()),
        }
    }
}

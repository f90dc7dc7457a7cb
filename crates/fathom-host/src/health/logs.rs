//! Logs that tell more than numbers of the moment: errors, firmware, endurance groups, events.
//!
//! NVM Express Base Specification 2.0: Error Information (01h, figure 206), Firmware Slot (03h, 208), Endurance Group
//! (09h, 217), Persistent Event (0Dh, 223 to 226). Numbers are little endian.

use serde::Serialize;

use crate::root::HostRoot;
use crate::sys::{self, LogPage};

/// Entries and events that are kept, the newest.
const KEPT: usize = 16;
const ERRORS: u8 = 0x01;
const FIRMWARE: u8 = 0x03;
const ENDURANCE_GROUP: u8 = 0x09;
const EVENTS: u8 = 0x0D;
/// Bytes of events that are read: header and some dozens.
const EVENT_BYTES: usize = 4096;

/// The logs of a drive, each where it has them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Logs {
    /// Kernel name of the disk.
    pub disk: String,
    /// Firmware of its slots.
    pub firmware: Option<Firmware>,
    /// The newest errors.
    pub errors: Vec<ErrorEntry>,
    /// The endurance group of the namespace.
    pub endurance_group: Option<EnduranceGroup>,
    /// Its persistent event log.
    pub events: Option<Events>,
}

/// Firmware of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Firmware {
    /// Slot that runs.
    pub active: u8,
    /// Slot that runs after the next reset, where that is another one.
    pub next: Option<u8>,
    /// Slots that hold anything, and their revisions.
    pub slots: Vec<(u8, String)>,
}

/// An entry of the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorEntry {
    /// Its number; they count up over the drive's life.
    pub number: u64,
    /// Status of the command: type and code.
    pub status: u16,
    /// First block that it is about.
    pub block: u64,
    /// Namespace; 0 where it is about none.
    pub nsid: u32,
}

/// What drives count of the media that a set of namespaces shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EnduranceGroup {
    /// Spare that is left, percent.
    pub spare_percent: u8,
    /// Rated endurance that is used, percent.
    pub used_percent: u8,
    /// Bytes that hosts wrote, rounded up to a thousand million.
    pub host_written_bytes: u64,
    /// Bytes written to the media.
    pub media_written_bytes: u64,
    /// Data that could not be corrected: occurrences.
    pub media_errors: u64,
}

/// The persistent event log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Events {
    /// Events in the log.
    pub total: u32,
    /// Bytes of the log.
    pub bytes: u64,
    /// Hours switched on, as it has them.
    pub power_on_hours: u64,
    /// Times switched on.
    pub power_cycles: u64,
    /// The first ones in it.
    pub first: Vec<Event>,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Number of its type.
    pub kind: u8,
    /// The same in words.
    pub what: &'static str,
    /// Milliseconds, of the drive's clock: since 1970 where a host has set it.
    pub at_ms: u64,
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    page.get(at..at + 2)
        .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    page.get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// The slots; `None` where the page names no slot that runs.
pub fn firmware(page: &[u8; 512]) -> Option<Firmware> {
    let (active, next) = (page[0] & 7, page[0] >> 4 & 7);
    let slots = (1..=7u8).filter_map(|slot| {
        let at = 8 * usize::from(slot);
        let text = String::from_utf8_lossy(&page[at..at + 8]);
        let text = text.trim_matches(['\0', ' ']).to_owned();
        (!text.is_empty()).then_some((slot, text))
    });
    (active > 0).then(|| Firmware {
        active,
        next: Some(next).filter(|n| *n > 0 && *n != active),
        slots: slots.collect(),
    })
}

/// Entries that are valid, the newest first.
pub fn errors(page: &[u8]) -> Vec<ErrorEntry> {
    let entries = page.chunks_exact(64).map(|e| ErrorEntry {
        number: u64_at(e, 0),
        // The lowest bit is the phase.
        status: u16_at(e, 12) >> 1,
        block: u64_at(e, 16),
        nsid: u64_at(e, 24) as u32,
    });
    let mut found: Vec<_> = entries.filter(|e| e.number > 0).collect();
    found.sort_by_key(|e| std::cmp::Reverse(e.number));
    found
}

/// An endurance group.
pub fn endurance_group(page: &[u8; 512]) -> EnduranceGroup {
    let billions = |at| u64_at(page, at).saturating_mul(1_000_000_000);
    EnduranceGroup {
        spare_percent: page[3],
        used_percent: page[5],
        host_written_bytes: billions(64),
        media_written_bytes: billions(80),
        media_errors: u64_at(page, 128),
    }
}

/// Header and first events; `None` where the bytes are no such log.
pub fn events(page: &[u8]) -> Option<Events> {
    if page.len() < 512 || page[0] != EVENTS {
        return None;
    }
    let total = u64_at(page, 4) as u32;
    let mut first = Vec::new();
    let mut at = 512;
    while first.len() < KEPT.min(total as usize) && at + 24 <= page.len() {
        let kind = page[at];
        // No event has this type: the log ends here.
        if kind == 0 {
            break;
        }
        first.push(Event {
            kind,
            what: event(kind),
            at_ms: u64_at(page, at + 6) & 0xFFFF_FFFF_FFFF,
        });
        // The header's length is counted from its fourth byte on.
        at += usize::from(page[at + 2]) + 3 + usize::from(u16_at(page, at + 22));
    }
    Some(Events {
        total,
        bytes: u64_at(page, 8),
        power_on_hours: u64_at(page, 28),
        power_cycles: u64_at(page, 44),
        first,
    })
}

fn event(kind: u8) -> &'static str {
    match kind {
        0x01 => "health snapshot",
        0x02 => "firmware commit",
        0x03 => "clock set",
        0x04 => "power on or reset",
        0x05 => "hardware error",
        0x06 => "namespace changed",
        0x07 => "format began",
        0x08 => "format ended",
        0x09 => "sanitize began",
        0x0A => "sanitize ended",
        0x0B => "feature set",
        0x0C => "telemetry written",
        0x0D => "thermal excursion",
        0xDE.. => "of the vendor",
        _ => "unknown",
    }
}

/// Reads the logs of an NVMe disk; `None` for others, and where nothing can be asked (run as root).
pub fn read(root: &HostRoot, disk: &str) -> Option<Logs> {
    if !disk.starts_with("nvme") {
        return None;
    }
    let device = fathom_files::open::for_reading(&root.dev.join(disk), 0).ok()?;
    let mut logs = Logs {
        disk: disk.to_owned(),
        ..Logs::default()
    };
    let mut controller = [0u8; 4096];
    sys::nvme_identify(&device, 1, 0, &mut controller).ok()?;
    let page = |number| LogPage {
        number,
        ..LogPage::default()
    };
    let mut small = [0u8; 512];
    if sys::nvme_log(&device, page(FIRMWARE), &mut small).is_ok() {
        logs.firmware = firmware(&small);
    }
    // Entries that the drive keeps, less one.
    let kept = (usize::from(controller[262]) + 1).min(KEPT);
    let mut entries = vec![0; 64 * kept];
    if sys::nvme_log(&device, page(ERRORS), &mut entries).is_ok() {
        logs.errors = errors(&entries);
    }
    logs.endurance_group = group(root, disk, &device);
    // Bit 4 of LPA: the drive has a persistent event log.
    if controller[261] >> 4 & 1 == 1 {
        logs.events = read_events(&device);
    }
    Some(logs)
}

fn group(root: &HostRoot, disk: &str, device: &std::fs::File) -> Option<EnduranceGroup> {
    let nsid = crate::root::number(&root.sys.join("block").join(disk).join("nsid"))?;
    let mut identify = [0u8; 4096];
    sys::nvme_identify(device, 0, nsid, &mut identify).ok()?;
    let identifier = u16_at(&identify, 102);
    let asked = LogPage {
        number: ENDURANCE_GROUP,
        identifier,
        ..LogPage::default()
    };
    let mut page = [0u8; 512];
    let read = identifier > 0 && sys::nvme_log(device, asked, &mut page).is_ok();
    read.then(|| endurance_group(&page))
}

/// The log is read as it was when a context for reading was made, and that context is given back.
fn read_events(device: &std::fs::File) -> Option<Events> {
    let action = |specific| LogPage {
        number: EVENTS,
        specific,
        ..LogPage::default()
    };
    let mut page = vec![0; EVENT_BYTES];
    let read = sys::nvme_log(device, action(1), &mut page);
    // Somebody else's context is left alone.
    read.ok()?;
    let _ = sys::nvme_log(device, action(2), &mut [0; 512]);
    events(&page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_firmware_and_the_one_that_comes_next() {
        let mut page = [0u8; 512];
        assert_eq!(firmware(&page), None);
        page[0] = 0x21;
        page[8..16].copy_from_slice(b"5B2QGXA7");
        page[16..24].copy_from_slice(b"6B2Q    ");
        let f = firmware(&page).unwrap();
        assert_eq!((f.active, f.next), (1, Some(2)));
        assert_eq!(f.slots, [(1, "5B2QGXA7".into()), (2, "6B2Q".into())]);
        page[0] = 0x11;
        assert_eq!(firmware(&page).unwrap().next, None);
    }

    #[test]
    fn the_newest_error_comes_first_and_empty_entries_are_none() {
        let mut page = [0u8; 192];
        page[0] = 4;
        page[12..14].copy_from_slice(&(0x281u16 << 1 | 1).to_le_bytes());
        page[16] = 80;
        page[24] = 2;
        page[128] = 9;
        let all = errors(&page);
        assert_eq!((all.len(), all[0].number), (2, 9));
        let e = all[1];
        assert_eq!((e.number, e.status, e.block, e.nsid), (4, 0x281, 80, 2));
    }

    #[test]
    fn an_endurance_group_counts_in_thousand_millions() {
        let mut page = [0u8; 512];
        (page[3], page[5]) = (99, 7);
        (page[64], page[80], page[128]) = (3, 8, 1);
        let g = endurance_group(&page);
        assert_eq!(
            (g.spare_percent, g.used_percent, g.media_errors),
            (99, 7, 1)
        );
        assert_eq!(g.host_written_bytes, 3_000_000_000);
        assert_eq!(g.media_written_bytes, 8_000_000_000);
    }

    #[test]
    fn events_follow_each_other_by_their_lengths() {
        let mut page = vec![0u8; 1024];
        assert_eq!(events(&page), None);
        page[0] = 0x0D;
        page[4] = 2;
        page[8..16].copy_from_slice(&600u64.to_le_bytes());
        (page[28], page[44]) = (50, 6);
        // A header of 24 bytes and 8 of its own, then one more.
        (page[512], page[514], page[534]) = (0x0D, 21, 8);
        page[518..526].copy_from_slice(&(0xFF << 56 | 77u64).to_le_bytes());
        (page[544], page[546]) = (0x04, 21);
        let e = events(&page).unwrap();
        assert_eq!(
            (e.total, e.bytes, e.power_on_hours, e.power_cycles),
            (2, 600, 50, 6)
        );
        let kinds: Vec<_> = e.first.iter().map(|e| (e.what, e.at_ms)).collect();
        assert_eq!(kinds, [("thermal excursion", 77), ("power on or reset", 0)]);
    }
}

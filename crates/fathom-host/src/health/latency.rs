//! What a drive counts of its own latency: the latency monitor log C3h of the Open Compute Project (Datacenter NVMe SSD
//! Specification 2.0, section 4.8.10; layout as in nvme-cli's `ocp latency-monitor-log`). Numbers are little endian.

use serde::{Deserialize, Serialize};

/// Number of the log.
pub(super) const LOG: u8 = 0xC3;
const GUID: [u8; 16] = [
    0x92, 0x7A, 0xC0, 0x8C, 0xD0, 0x84, 0x6C, 0x9C, 0x70, 0x43, 0xE6, 0xD4, 0x58, 0x5E, 0xD4, 0x85,
];
/// Of the counters since power on: four buckets of four numbers of 32 bits, reserved, discards, writes, reads.
const COUNTERS: usize = 0xF0;
/// Of their longest latencies, three numbers of 16 bits each.
const LONGEST: usize = 0x190;
/// Unit of the thresholds, ms.
const UNIT: u32 = 5;

/// Slow commands of a drive since it was switched on, by its own clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Whether the monitor runs: where it does not, the numbers are of earlier.
    pub on: bool,
    /// By how slow they were, the least slow first.
    pub buckets: [Bucket; 4],
}

/// Commands that took at least so long, and less than the next bucket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Least latency, ms.
    pub from_ms: u32,
    /// Reads.
    pub reads: Slow,
    /// Writes.
    pub writes: Slow,
    /// Discards.
    pub discards: Slow,
}

impl Bucket {
    /// All kinds of commands by name.
    pub fn kinds(&self) -> [(&'static str, Slow); 3] {
        [
            ("reads", self.reads),
            ("writes", self.writes),
            ("discards", self.discards),
        ]
    }
}

/// Of one kind of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// Commands.
    pub count: u32,
    /// Latency of the longest, ms, where one was noted.
    pub longest_ms: Option<u16>,
}

/// The log; `None` where the page is none, by its mark.
pub fn latency(page: &[u8; 512]) -> Option<Latency> {
    if page[496..] != GUID {
        return None;
    }
    let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let slow = |bucket: usize, kind: usize| Slow {
        count: u32_at(COUNTERS + 16 * bucket + 4 * kind),
        longest_ms: Some(u16_at(LONGEST + 6 * bucket + 2 * (kind - 1)))
            .filter(|ms| *ms > 0 && *ms < u16::MAX),
    };
    Some(Latency {
        on: page[0] & 1 == 1,
        buckets: [0, 1, 2, 3].map(|b| Bucket {
            // A byte that counts from one unit on.
            from_ms: UNIT * (u32::from(page[6 + b]) + 1),
            reads: slow(b, 3),
            writes: slow(b, 2),
            discards: slow(b, 1),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_commands_are_counted_by_kind_and_bucket() {
        let mut page = [0u8; 512];
        assert_eq!(latency(&page), None);
        page[496..].copy_from_slice(&GUID);
        page[0] = 1;
        page[6..10].copy_from_slice(&[0, 1, 19, 199]);
        // Bucket 2: 7 reads, the longest of 130 ms; bucket 0: 300 writes; bucket 3: a discard, whose latency nobody noted.
        (page[0xF0 + 44], page[0x190 + 16]) = (7, 130);
        page[0xF0 + 8..0xF0 + 12].copy_from_slice(&300u32.to_le_bytes());
        page[0xF0 + 52] = 1;
        page[0x190 + 18..0x190 + 20].copy_from_slice(&[0xFF, 0xFF]);
        let l = latency(&page).unwrap();
        assert!(l.on);
        assert_eq!(l.buckets.map(|b| b.from_ms), [5, 10, 100, 1000]);
        let slow = |count, longest_ms| Slow { count, longest_ms };
        assert_eq!(l.buckets[2].reads, slow(7, Some(130)));
        assert_eq!(l.buckets[0].writes, slow(300, None));
        assert_eq!(l.buckets[3].discards, slow(1, None));
        assert_eq!(l.buckets[1].reads, slow(0, None));
    }
}

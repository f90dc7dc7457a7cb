//! Which operations a namespace offers beside reads and writes, and the reclaim unit handles of its writes (FDP).
//!
//! NVM Express Base Specification 2.1, figure 313 (CTRATT, ONCS); NVM Command Set 1.1, figure 114 (copy limits), sections
//! 3.3.1 (I/O Management Receive); TP 4146 (Flexible Data Placement).

use std::fs::File;

use serde::Serialize;

use crate::sys;

/// What a namespace offers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Compare.
    pub compare: bool,
    /// Write zeroes.
    pub write_zeroes: bool,
    /// Deallocate (dataset management).
    pub deallocate: bool,
    /// Verify: the drive reads without handing data over.
    pub verify: bool,
    /// Bytes of the largest copy of one range within the namespace; `None` where it has none.
    pub copy_bytes: Option<u64>,
    /// The namespace's reclaim unit handles, by number; empty without FDP.
    pub placements: Vec<Placement>,
}

/// A reclaim unit handle of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Placement identifier, which a write names.
    pub id: u16,
    /// Blocks that can still be written to its reclaim unit (RUAMW).
    pub available_blocks: u64,
}

impl Operations {
    /// From Identify of the controller and of the namespace; the handles are asked for.
    pub(crate) fn of(
        device: &File,
        nsid: u32,
        controller: &[u8; 4096],
        namespace: &[u8; 4096],
        block_bytes: u64,
    ) -> Self {
        // CTRATT: flexible data placement.
        const FDP: u32 = 1 << 19;
        let placements = match u32_at(controller, 96) & FDP {
            0 => Vec::new(),
            _ => placements(device, nsid),
        };
        Self {
            placements,
            ..Self::said(controller, namespace, block_bytes)
        }
    }

    fn said(controller: &[u8; 4096], namespace: &[u8; 4096], block_bytes: u64) -> Self {
        let offered = u16_at(controller, 520);
        let has = |bit: u16| offered >> bit & 1 == 1;
        // MSSRL for a range, MCL for all of them.
        let most = u32::from(u16_at(namespace, 74)).min(u32_at(namespace, 76));
        Self {
            compare: has(0),
            write_zeroes: has(3),
            deallocate: has(2),
            verify: has(7),
            copy_bytes: (has(8) && most > 0).then(|| u64::from(most) * block_bytes),
            placements: Vec::new(),
        }
    }

    /// Their names, for the screen.
    pub fn words(&self) -> Vec<&'static str> {
        let all = [
            (self.compare, "compare"),
            (self.write_zeroes, "write-zeroes"),
            (self.deallocate, "deallocate"),
            (self.verify, "verify"),
            (self.copy_bytes.is_some(), "copy"),
        ];
        all.into_iter().filter(|w| w.0).map(|w| w.1).collect()
    }
}

pub(super) fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

pub(super) fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from(u16_at(page, at)) | u32::from(u16_at(page, at + 2)) << 16
}

/// The status of the reclaim unit handles: 16 bytes, then 32 for each, which begin with its placement identifier.
fn placements(device: &File, nsid: u32) -> Vec<Placement> {
    const MOST: usize = 128;
    let mut page = [0u8; 16 + 32 * MOST];
    if sys::nvme_placements(device, nsid, &mut page[..16]).is_err() {
        return Vec::new();
    }
    let end = 16 + 32 * usize::from(u16_at(&page, 14)).min(MOST);
    // No more than there is: Linux 6.12 describes the buffer by an SGL, and QEMU refuses one that is longer.
    if sys::nvme_placements(device, nsid, &mut page[..end]).is_err() {
        return Vec::new();
    }
    let all = page[16..end].chunks_exact(32);
    all.map(|d| Placement {
        id: u16_at(d, 0),
        available_blocks: u64::from(u32_at(d, 8)) | u64::from(u32_at(d, 12)) << 32,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_bits_of_the_controller_and_limits_of_the_namespace() {
        let (mut c, mut ns) = ([0u8; 4096], [0u8; 4096]);
        assert_eq!(Operations::said(&c, &ns, 512), Operations::default());
        // As QEMU's drives: compare, deallocate, write zeroes, verify, copy.
        c[520..522].copy_from_slice(&0x018du16.to_le_bytes());
        ns[74] = 128;
        ns[76] = 64;
        let o = Operations::said(&c, &ns, 4096);
        assert_eq!(o.copy_bytes, Some(64 * 4096));
        assert_eq!(
            o.words(),
            ["compare", "write-zeroes", "deallocate", "verify", "copy"]
        );
    }
}

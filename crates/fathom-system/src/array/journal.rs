//! md's superblock 1.2 (`struct mdp_superblock_1`, linux/raid/md_p.h), which an array with a journal cannot do without:
//! the kernel knows a journal by its role in there only.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::erase;

use super::Shape;

/// Where data begin on a member.
pub(crate) const DATA_OFFSET: u64 = 1 << 20;
/// Where version 1.2 lies.
pub(crate) const AT: u64 = 4096;
const SECTOR: u64 = 512;
pub(crate) const MAGIC: u32 = 0xa92b_4efc;
/// `MD_FEATURE_JOURNAL`.
const FEATURE: u32 = 512;
/// `MD_DISK_ROLE_JOURNAL`.
const JOURNAL: u16 = 0xfffd;
/// Bytes before the roles.
const HEAD: usize = 256;
const CHECKSUM: usize = 216;

/// What a device is in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A member, by its number.
    Member(u32),
    /// The journal.
    Journal,
}

/// A superblock for one device. `used` are bytes of each member that hold data, `own` bytes of this device that do,
/// `nonce` tells arrays apart.
fn superblock(shape: &Shape, layout: u32, used: u64, own: u64, role: Role, nonce: u64) -> Vec<u8> {
    let n = shape.members;
    // A role for each member, and one for the journal.
    let roles = n as usize + 1;
    let mut b = vec![0u8; HEAD + 2 * roles];
    let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
    let number = match role {
        Role::Member(i) => i,
        Role::Journal => n,
    };
    put(0, &MAGIC.to_le_bytes());
    put(4, &1u32.to_le_bytes());
    put(8, &FEATURE.to_le_bytes());
    put(16, &nonce.to_le_bytes());
    put(24, b"fathom  ");
    put(32, b"fathom");
    put(72, &shape.level.number().to_le_bytes());
    put(76, &layout.to_le_bytes());
    put(80, &(used / SECTOR).to_le_bytes());
    put(88, &((shape.chunk.0 / SECTOR) as u32).to_le_bytes());
    put(92, &n.to_le_bytes());
    put(128, &(DATA_OFFSET / SECTOR).to_le_bytes());
    put(136, &(own / SECTOR).to_le_bytes());
    put(144, &(AT / SECTOR).to_le_bytes());
    put(160, &number.to_le_bytes());
    put(168, &nonce.to_le_bytes());
    put(176, &u64::from(number + 1).to_le_bytes());
    put(200, &1u64.to_le_bytes());
    // Nothing has to be synchronised: fathom fills the array itself.
    put(208, &u64::MAX.to_le_bytes());
    put(220, &(roles as u32).to_le_bytes());
    for i in 0..n as usize {
        put(HEAD + 2 * i, &(i as u16).to_le_bytes());
    }
    put(HEAD + 2 * n as usize, &JOURNAL.to_le_bytes());
    let sum = checksum(&b);
    b[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    b
}

/// Sum of its words (`calc_sb_1_csum`, drivers/md/md.c); the field itself counts as 0.
fn checksum(b: &[u8]) -> u32 {
    let mut sum: u64 = 0;
    let mut words = b.chunks_exact(4);
    for word in &mut words {
        sum += u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
    if let [low, high] = words.remainder() {
        sum += u64::from(u16::from_le_bytes([*low, *high]));
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// An array whose superblocks are to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Description {
    pub(crate) shape: Shape,
    /// md's number for it.
    pub(crate) layout: u32,
    /// Bytes of each member that hold data.
    pub(crate) used: u64,
    /// Tells arrays apart.
    pub(crate) nonce: u64,
}

impl Description {
    /// Writes the superblock of a device; `own` are bytes of it that are used.
    pub(crate) fn write(&self, device: &Path, role: Role, own: u64) -> io::Result<()> {
        let b = superblock(&self.shape, self.layout, self.used, own, role, self.nonce);
        // Whole blocks of 4 KiB, so that any device takes it.
        let mut block = vec![0; b.len().next_multiple_of(4096)];
        block[..b.len()].copy_from_slice(&b);
        let device = erase::claim(device)?;
        device.write_all_at(&block, AT)?;
        device.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_sim::raid::Level;
    use fathom_telemetry::Bytes;

    #[test]
    fn a_superblock_says_what_the_array_is_and_sums_up() {
        let shape = Shape {
            level: Level::Raid5,
            members: 4,
            chunk: Bytes::kib(64),
        };
        let b = superblock(&shape, 2, 15 << 20, 15 << 20, Role::Journal, 7);
        let at = |n: usize| u32::from_le_bytes(b[n..n + 4].try_into().unwrap());
        assert_eq!((at(0), at(4), at(8)), (MAGIC, 1, FEATURE));
        assert_eq!((at(72), at(76), at(88), at(92)), (5, 2, 128, 4));
        assert_eq!((at(160), at(220)), (4, 5), "number of this device, of all");
        assert_eq!(b.len(), 256 + 10);
        assert_eq!(&b[256..], [0, 0, 1, 0, 2, 0, 3, 0, 0xfd, 0xff]);
        let mut again = b.clone();
        again[CHECKSUM..CHECKSUM + 4].fill(0);
        assert_eq!(at(CHECKSUM), checksum(&again));
        assert_eq!(checksum(&[0xff; 8]), u32::MAX, "carries come back in");
    }
}

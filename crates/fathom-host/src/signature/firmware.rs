//! Members of firmware RAIDs: what controllers leave in the last sectors of a disk (libblkid's superblocks/*_raid.c).
//!
//! Those whose magic is long enough alone are in [`super::magic`]; here are the ones that need their checksum, and the
//! one that may be in many places.

use std::io;

use super::image::{Image, le16, le32};
use super::{ReadAt, Signature, SignatureClass};

/// All of them.
pub(super) fn find<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Vec<Signature>> {
    let mut found = Vec::new();
    let sectors = image.size() / 512;
    if let Some(at) = sectors.checked_sub(1).map(|s| s * 512)
        && let Some(sector) = image.bytes(at, 512)?
    {
        let all = [
            (is_silicon_image(&sector), "Silicon Image RAID", 0x60),
            (is_via(&sector), "VIA RAID", 0),
            (is_jmicron(&sector), "JMicron RAID", 0),
        ];
        let there = all.iter().filter(|(is_there, ..)| *is_there);
        found.extend(there.map(|(_, name, inside)| member(name, at + inside)));
    }
    found.extend(promise(image, sectors)?);
    Ok(found)
}

fn member(name: &str, offset: u64) -> Signature {
    Signature {
        name: name.to_string(),
        class: SignatureClass::Raid,
        offset,
        label: None,
    }
}

/// 32 bits of magic, the number of the disk, and the words up to and with the first checksum cancel out.
fn is_silicon_image(sector: &[u8]) -> bool {
    let sum = (0..=0x13e)
        .step_by(2)
        .fold(0u16, |sum, at| sum.wrapping_add(le16(sector, at)));
    le32(sector, 0x60) == 0x2f00_0000 && sector[0x116] < 8 && sum == 0
}

/// 16 bits of magic, a small version, a capacity of less than 2^48 sectors, and the sum of 50 bytes after them.
fn is_via(sector: &[u8]) -> bool {
    let sum = sector[..50]
        .iter()
        .fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    le16(sector, 0) == 0xaa55 && sector[2] <= 2 && le32(sector, 10) <= 0xffff && sum == sector[50]
}

/// 16 bits of magic, a RAID level, and the sum of all words is 0 or 1.
fn is_jmicron(sector: &[u8]) -> bool {
    let sum = (0..0x80)
        .step_by(2)
        .fold(0u16, |sum, at| sum.wrapping_add(le16(sector, at)));
    sector[..2] == *b"JM" && sector[0x30] <= 5 && sum <= 1
}

/// Promise's controllers leave it so many sectors before the end.
fn promise<R: ReadAt + ?Sized>(
    image: &Image<'_, R>,
    sectors: u64,
) -> io::Result<Option<Signature>> {
    const BEFORE_THE_END: [u64; 13] = [
        63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087,
    ];
    for at in BEFORE_THE_END
        .iter()
        .filter_map(|n| Some(sectors.checked_sub(*n)? * 512))
    {
        if image.has(at, b"Promise Technology, Inc.")? {
            return Ok(Some(member("Promise RAID", at)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;

    const SIZE: usize = 4 << 20;

    /// What is found where `sector` is the last one of a disk.
    fn found(sector: &[u8]) -> Vec<String> {
        let mut disk = vec![0u8; SIZE];
        disk[SIZE - 512..].copy_from_slice(sector);
        let found = scan(&disk[..], SIZE as u64).unwrap();
        found.into_iter().map(|s| s.name).collect()
    }

    fn sector(bytes: &[(usize, &[u8])]) -> [u8; 512] {
        let mut sector = [0u8; 512];
        for (at, bytes) in bytes {
            sector[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        sector
    }

    #[test]
    fn members_with_a_checksum_are_known_and_are_none_when_a_byte_differs() {
        let silicon = sector(&[
            (0x20, b"M50T4NJP"),
            (0x60, &[0, 0, 0, 0x2f]),
            (0x116, &[1]),
            (0x13e, &{
                let sum = [*b"M5", *b"0T", *b"4N", *b"JP", [0, 0x2f], [1, 0]]
                    .iter()
                    .fold(0u16, |s, w| s.wrapping_add(u16::from_le_bytes(*w)));
                sum.wrapping_neg().to_le_bytes()
            }),
        ]);
        let via = sector(&[
            (0, &[0x55, 0xaa, 1, 5, 0, 0x42, 0, 0x59, 0x1c, 0x1d]),
            (50, &[0xd9]),
        ]);
        let jmicron = sector(&[
            (0, b"JM"),
            (4, &0u16.wrapping_sub(0x4d4a + 5).to_le_bytes()),
            (0x30, &[5]),
        ]);
        for (sector, name, inside) in [
            (silicon, "Silicon Image RAID", 0x20),
            (via, "VIA RAID", 7),
            (jmicron, "JMicron RAID", 0x20),
        ] {
            assert_eq!(found(&sector), [name]);
            let mut damaged = sector;
            damaged[inside] ^= 0x10;
            assert_eq!(found(&damaged), [] as [&str; 0], "{name}");
        }
    }

    #[test]
    fn a_member_of_promise_is_known_in_each_of_its_places() {
        for before in [
            63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087,
        ] {
            let mut disk = vec![0u8; SIZE];
            let at = SIZE - before * 512;
            disk[at..at + 24].copy_from_slice(b"Promise Technology, Inc.");
            let found = scan(&disk[..], SIZE as u64).unwrap();
            assert_eq!(found, [member("Promise RAID", at as u64)]);
        }
    }
}

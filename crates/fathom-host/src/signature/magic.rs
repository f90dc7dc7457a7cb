//! Signatures that are a fixed string of at least four bytes at a fixed place.
//!
//! Offsets are those of the on-disk formats (kernel headers, libblkid's documentation);
//! negative ones count from the end of the disk.

use std::io;

use super::image::{Image, label};
use super::{ReadAt, Signature, SignatureClass};
use SignatureClass::{Encrypted, FileSystem, Lvm, PartitionTable, Raid, Swap, Volume};

struct Magic {
    name: &'static str,
    class: SignatureClass,
    offset: i64,
    bytes: &'static [u8],
    /// Place and length of a plain-text label, from the start of the disk.
    label: Option<(u64, usize)>,
}

const fn magic(
    name: &'static str,
    class: SignatureClass,
    offset: i64,
    bytes: &'static [u8],
) -> Magic {
    Magic {
        name,
        class,
        offset,
        bytes,
        label: None,
    }
}

const fn labelled(mut m: Magic, at: u64, len: usize) -> Magic {
    m.label = Some((at, len));
    m
}

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

#[rustfmt::skip]
const MAGICS: &[Magic] = &[
    labelled(magic("xfs", FileSystem, 0, b"XFSB"), 108, 12),
    // A secondary superblock would need the geometry; an external log announces itself.
    magic("xfs-log", Volume, 0, b"\xfe\xed\xba\xbe"),
    labelled(magic("btrfs", FileSystem, 64 * KIB + 64, b"_BHRfS_M"), 64 << 10 | 0x12b, 255),
    magic("btrfs", FileSystem, 64 * MIB + 64, b"_BHRfS_M"),
    magic("btrfs", FileSystem, (256 << 30) + 64, b"_BHRfS_M"),
    magic("bcachefs", FileSystem, 4 * KIB + 24, BCACHEFS),
    magic("bcachefs", FileSystem, 2 * MIB + 24, BCACHEFS),
    magic("bcachefs", FileSystem, -MIB + 24, BCACHEFS),
    magic("f2fs", FileSystem, KIB, b"\x10\x20\xf5\xf2"),
    magic("f2fs", FileSystem, 5 * KIB, b"\x10\x20\xf5\xf2"),
    magic("exfat", FileSystem, 3, b"EXFAT   "),
    magic("exfat", FileSystem, 12 * 512 + 3, b"EXFAT   "),
    magic("ntfs", FileSystem, 3, b"NTFS    "),
    magic("ntfs", FileSystem, -512 + 3, b"NTFS    "),
    magic("ReFS", FileSystem, 3, b"ReFS\0"),
    labelled(magic("vfat", FileSystem, 82, b"FAT32   "), 71, 11),
    labelled(magic("vfat", FileSystem, 54, b"FAT16   "), 43, 11),
    labelled(magic("vfat", FileSystem, 54, b"FAT12   "), 43, 11),
    magic("squashfs", FileSystem, 0, b"hsqs"),
    magic("squashfs", FileSystem, 0, b"sqsh"),
    magic("erofs", FileSystem, KIB, b"\xe2\xe1\xf5\xe0"),
    labelled(magic("iso9660", FileSystem, 32 * KIB + 1, b"CD001"), (32 << 10) + 40, 32),
    magic("udf", FileSystem, 32 * KIB + 1, b"BEA01"),
    magic("cramfs", FileSystem, 0, b"\x45\x3d\xcd\x28"),
    magic("cramfs", FileSystem, 0, b"\x28\xcd\x3d\x45"),
    magic("romfs", FileSystem, 0, b"-rom1fs-"),
    magic("jfs", FileSystem, 32 * KIB, b"JFS1"),
    magic("reiserfs", FileSystem, 64 * KIB + 52, b"ReIsEr"),
    magic("reiserfs", FileSystem, 8 * KIB + 52, b"ReIsEr"),
    magic("reiserfs", FileSystem, 8 * KIB + 20, b"ReIsErFs"),
    magic("reiser4", FileSystem, 64 * KIB, b"ReIsEr4"),
    magic("gfs2", FileSystem, 64 * KIB, b"\x01\x16\x19\x70"),
    magic("ocfs2", FileSystem, KIB, b"OCFSV2"),
    magic("ocfs2", FileSystem, 2 * KIB, b"OCFSV2"),
    magic("ocfs2", FileSystem, 4 * KIB, b"OCFSV2"),
    magic("ocfs2", FileSystem, 8 * KIB, b"OCFSV2"),
    magic("apfs", FileSystem, 32, b"NXSB"),
    magic("hfsplus", FileSystem, KIB, b"H+\x00\x04"),
    magic("hfsx", FileSystem, KIB, b"HX\x00\x05"),
    magic("vxfs", FileSystem, KIB, b"\xf5\xfc\x01\xa5"),
    magic("vxfs", FileSystem, 8 * KIB, b"\xa5\x01\xfc\xf5"),
    labelled(magic("befs", FileSystem, 32, b"BFS1"), 0, 32),
    labelled(magic("befs", FileSystem, 32, b"1SFB"), 0, 32),
    labelled(magic("befs", FileSystem, 512 + 32, b"BFS1"), 512, 32),
    labelled(magic("befs", FileSystem, 512 + 32, b"1SFB"), 512, 32),
    magic("bfs", FileSystem, 0, b"\xce\xfa\xad\x1b"),
    magic("hpfs", FileSystem, 8 * KIB, b"\x49\xe8\x95\xf9"),
    magic("nss", FileSystem, 4 * KIB, b"SPB5"),
    magic("ubifs", FileSystem, 0, b"\x31\x18\x10\x06"),
    magic("exfs", FileSystem, 0, b"EXFS"),
    magic("ocfs", FileSystem, 8 * KIB, b"OracleCFS"),
    magic("sysv", FileSystem, 1016, b"\x20\x7e\x18\xfd"),
    magic("sysv", FileSystem, 1016, b"\xfd\x18\x7e\x20"),
    magic("sysv", FileSystem, 9 * KIB + 1016, b"\x20\x7e\x18\xfd"),
    magic("sysv", FileSystem, 9 * KIB + 1016, b"\xfd\x18\x7e\x20"),
    magic("sysv", FileSystem, 15 * KIB + 1016, b"\x20\x7e\x18\xfd"),
    magic("sysv", FileSystem, 15 * KIB + 1016, b"\xfd\x18\x7e\x20"),
    magic("sysv", FileSystem, 18 * KIB + 1016, b"\x20\x7e\x18\xfd"),
    magic("sysv", FileSystem, 18 * KIB + 1016, b"\xfd\x18\x7e\x20"),
    magic("zonefs", FileSystem, 0, b"SFOZ"),
    magic("vmfs", FileSystem, 2 * MIB, b"\x5e\xf1\xab\x2f"),
    magic("vmfs-member", Volume, MIB, b"\x0d\xd0\x01\xc0"),
    magic("scoutfs", FileSystem, 64 * KIB + 4, b"\x8b\x42\x3c\x10"),

    magic("hibernation image", Swap, 0, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"),

    magic("LVM1", Lvm, 0, b"HM\x01\0"),
    magic("LVM1", Lvm, 0, b"HM\x02\0"),
    magic("LVM2", Lvm, 0x018, b"LVM2 001"),
    magic("LVM2", Lvm, 0x218, b"LVM2 001"),
    magic("LVM2", Lvm, 0x418, b"LVM2 001"),
    magic("LVM2", Lvm, 0x618, b"LVM2 001"),
    magic("LVM snapshot", Volume, 0, b"SnAp\x01\0\0\0"),

    labelled(magic("LUKS", Encrypted, 0, b"LUKS\xba\xbe"), 24, 48),
    magic("LUKS", Encrypted, 0x4000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x8000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x1_0000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x2_0000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x4_0000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x8_0000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x10_0000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x20_0000, b"SKUL\xba\xbe"),
    magic("LUKS", Encrypted, 0x40_0000, b"SKUL\xba\xbe"),
    magic("BitLocker", Encrypted, 3, b"-FVE-FS-"),
    magic("dm-verity", Volume, 0, b"verity\0\0"),
    magic("dm-integrity", Volume, 0, b"integrt\0"),

    magic("bcache", Volume, 4 * KIB + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    magic("bluestore", Volume, 0, b"bluestore block device"),
    magic("drbd", Volume, -4 * KIB + 60, b"\x83\x74\x02\x6b"),
    magic("drbd", Volume, -4 * KIB + 60, b"\x83\x74\x02\x6c"),
    magic("drbd", Volume, -4 * KIB + 60, b"\x83\x74\x02\x6d"),
    magic("drbd", Volume, 60, b"\x83\x74\x02\x6b"),
    magic("drbd", Volume, 60, b"\x83\x74\x02\x6c"),
    magic("drbd", Volume, 60, b"\x83\x74\x02\x6d"),
    magic("drbd-proxy", Volume, 0, b"DRBDdlh*"),
    magic("stratis", Volume, 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    magic("stratis", Volume, 9 * 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    magic("vdo", Volume, 0, b"dmvdo001"),
    magic("Oracle ASM", Volume, 32, b"ORCLDISK"),
    magic("mpool", FileSystem, 0, b"mpoolDev"),
    magic("drbdmanage", Volume, 0, b"$DRBDmgr=q"),
    magic("ubi", Volume, 0, b"UBI#"),

    magic("Intel RAID", Raid, -1024, b"Intel Raid ISM Cfg Sig. "),
    magic("Intel RAID", Raid, -8192, b"Intel Raid ISM Cfg Sig. "),
    magic("DDF RAID", Raid, -512, b"\xde\x11\xde\x11"),
    magic("DDF RAID", Raid, -512, b"\x11\xde\x11\xde"),
    magic("DDF RAID", Raid, -4096, b"\xde\x11\xde\x11"),
    magic("Highpoint RAID", Raid, 9 * 512 + 32, b"\xf0\x16\x78\x5a"),
    magic("Highpoint RAID", Raid, 9 * 512 + 32, b"\xfd\x16\x78\x5a"),
    magic("Highpoint RAID", Raid, -11 * 512, b"\xf3\x16\x78\x5a"),
    magic("Highpoint RAID", Raid, -11 * 512, b"\xfd\x16\x78\x5a"),
    magic("NVIDIA RAID", Raid, -1024, b"NVIDIA  "),
    magic("Adaptec RAID", Raid, -512, b"\x37\xfc\x4d\x1e"),
    magic("LSI RAID", Raid, -512, b"$XIDE$"),

    magic("GPT", PartitionTable, 512, b"EFI PART"),
    magic("GPT", PartitionTable, 1024, b"EFI PART"),
    magic("GPT", PartitionTable, 2048, b"EFI PART"),
    magic("GPT", PartitionTable, 4096, b"EFI PART"),
    magic("GPT", PartitionTable, -512, b"EFI PART"),
    magic("GPT", PartitionTable, -1024, b"EFI PART"),
    magic("GPT", PartitionTable, -2048, b"EFI PART"),
    magic("GPT", PartitionTable, -4096, b"EFI PART"),
    magic("BSD", PartitionTable, 512, b"\x57\x45\x56\x82"),
    magic("BSD", PartitionTable, 0, b"\x57\x45\x56\x82"),
    magic("BSD", PartitionTable, 64, b"\x57\x45\x56\x82"),
    magic("BSD", PartitionTable, 128, b"\x57\x45\x56\x82"),
    magic("SGI", PartitionTable, 0, b"\x0b\xe5\xa9\x41"),
    magic("AIX", PartitionTable, 0, b"\xc9\xc2\xd4\xc1"),
    magic("Solaris", PartitionTable, 512 + 12, b"\xee\xde\x0d\x60"),
    magic("UnixWare", PartitionTable, 29 * 512 + 4, b"\x0d\x60\xe5\xca"),
    magic("Ultrix", PartitionTable, 16 * KIB - 72, b"\x57\x29\x03\0\x01\0\0\0"),
];

/// All entries of the table that are on the disk.
pub(super) fn find<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Vec<Signature>> {
    let mut found = Vec::new();
    for m in MAGICS {
        let mut is_there = None;
        for offset in places(m.offset, image.size()) {
            if image.has(offset, m.bytes)? {
                is_there = Some(offset);
            }
        }
        let Some(offset) = is_there else { continue };
        let label = match m.label {
            Some((at, len)) => image.bytes(at, len)?.and_then(|b| label(&b)),
            None => None,
        };
        found.push(Signature {
            name: m.name.to_string(),
            class: m.class,
            offset,
            label,
        });
    }
    Ok(found)
}

/// Where an entry of the table may lie on a disk of `size` bytes. The last bytes of a file that fill no sector are none
/// of a device made of it, so what counts from the end may be in two places.
fn places(offset: i64, size: u64) -> impl Iterator<Item = u64> {
    let from_end = |size: u64| size.checked_sub(offset.unsigned_abs());
    let sectors = size / 512 * 512;
    let all = match u64::try_from(offset) {
        Ok(from_start) => [Some(from_start), None],
        Err(_) if sectors == size => [from_end(size), None],
        Err(_) => [from_end(sectors), from_end(size)],
    };
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_magic_is_long_enough_that_chance_does_not_write_it() {
        for m in MAGICS {
            assert!(m.bytes.len() >= 4, "{}", m.name);
        }
    }

    #[test]
    fn every_magic_alone_on_an_empty_disk_is_recognised_as_what_it_is() {
        let size = 5usize << 20;
        for m in MAGICS {
            let Some(at) = places(m.offset, size as u64)
                .next()
                .filter(|o| *o < size as u64 - 64)
            else {
                continue;
            };
            let mut disk = vec![0u8; size];
            let at = at as usize;
            disk[at..at + m.bytes.len()].copy_from_slice(m.bytes);
            let names: Vec<String> = super::super::scan(&disk[..], size as u64)
                .unwrap()
                .into_iter()
                .map(|s| s.name)
                .collect();
            assert_eq!(names, [m.name], "at {at}");
        }
    }
}

//! Signatures whose magic is short or movable, so that their structure must agree too.

use std::io;

use super::image::{Image, be16, be32, label, le16, le32};
use super::{ReadAt, Signature, SignatureClass};

/// All of them.
pub(super) fn find<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Vec<Signature>> {
    let mut found = Vec::new();
    found.extend(ext(image)?);
    found.extend(nilfs2(image)?);
    found.extend(minix(image)?);
    found.extend(hfs(image)?);
    found.extend(ufs(image)?);
    found.extend(core_storage(image)?);
    found.extend(swap(image)?);
    found.extend(udf(image)?);
    found.extend(boot_sector(image)?);
    found.extend(apple_map(image)?);
    found.extend(sun_label(image)?);
    found.extend(atari(image)?);
    found.extend(dasd(image)?);
    found.extend(md(image)?);
    found.extend(zfs(image)?);
    Ok(found)
}

fn signature(name: &str, class: SignatureClass, offset: u64) -> Signature {
    Signature {
        name: name.to_string(),
        class,
        offset,
        label: None,
    }
}

/// ext2, ext3, ext4 and their external journals: a magic of only 16 bits (fs/ext4/ext4.h).
fn ext<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let Some(sb) = image.bytes(1024, 1024)? else {
        return Ok(None);
    };
    let (blocks, log_block, revision, creator) =
        (le32(&sb, 4), le32(&sb, 24), le32(&sb, 76), le32(&sb, 72));
    if le16(&sb, 56) != 0xef53 || blocks == 0 || log_block > 6 || revision > 1 || creator > 4 {
        return Ok(None);
    }
    let (compat, incompat, ro_compat) = (le32(&sb, 92), le32(&sb, 96), le32(&sb, 100));
    let has_journal = compat & 0x4 != 0;
    // Features that ext3 did not have: extents and later ones; huge files and later ones.
    let modern = incompat & !0x17 != 0 || ro_compat & !0x7 != 0;
    let (name, class) = match (incompat & 0x8 != 0, modern, has_journal) {
        (true, _, _) => ("ext journal", SignatureClass::Volume),
        (_, true, _) => ("ext4", SignatureClass::FileSystem),
        (_, _, true) => ("ext3", SignatureClass::FileSystem),
        _ => ("ext2", SignatureClass::FileSystem),
    };
    let mut s = signature(name, class, 1024 + 56);
    s.label = label(&sb[120..136]);
    Ok(Some(s))
}

/// nilfs2: 16 bits of magic, so revision and block size must fit (nilfs2_ondisk.h).
fn nilfs2<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let backup = (image.size() / 512).checked_sub(8).map(|s| s * 512);
    for at in [Some(1024), backup].into_iter().flatten() {
        let Some(sb) = image.bytes(at, 1024)? else {
            continue;
        };
        let fits = le16(&sb, 6) == 0x3434
            && le32(&sb, 0) == 2
            && (24..=1024).contains(&le16(&sb, 8))
            && le32(&sb, 20) <= 6;
        if fits {
            return Ok(Some(signature(
                "nilfs2",
                SignatureClass::FileSystem,
                at + 6,
            )));
        }
    }
    Ok(None)
}

/// Minix in either byte order: 16 bits of magic; the state, zone size and the maps of zones must fit.
fn minix<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let Some(sb) = image.bytes(1024, 64)? else {
        return Ok(None);
    };
    // A mounted one has no bit of its state set.
    let is_it = |word: fn(&[u8], usize) -> u16| {
        let old = matches!(word(&sb, 16), 0x137f | 0x138f | 0x2468 | 0x2478)
            && word(&sb, 10) == 0
            && word(&sb, 18) <= 3
            && (1..=0xfff).contains(&word(&sb, 4))
            && word(&sb, 0) != 0;
        let v3 = word(&sb, 24) == 0x4d5a
            && word(&sb, 12) == 0
            && (1..=0xfff).contains(&word(&sb, 6))
            && matches!(word(&sb, 28), 512 | 1024 | 2048 | 4096);
        old || v3
    };
    Ok((is_it(le16) || is_it(be16))
        .then(|| signature("minix", SignatureClass::FileSystem, 1024 + 16)))
}

/// HFS, and HFS+ wrapped in one: 16 bits of magic, blocks of whole sectors and at most 32 MiB, a name that fits.
fn hfs<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let Some(mdb) = image.bytes(1024, 162)? else {
        return Ok(None);
    };
    let (block, name) = (be32(&mdb, 20), usize::from(mdb[36]));
    if mdb[..2] != *b"BD" || block == 0 || block % 512 != 0 || block > 32 << 20 || name > 27 {
        return Ok(None);
    }
    let wraps = matches!(&mdb[124..126], b"H+" | b"HX");
    let kind = if wraps { "hfsplus" } else { "hfs" };
    let mut s = signature(kind, SignatureClass::FileSystem, 1024);
    s.label = label(&mdb[37..37 + name]);
    Ok(Some(s))
}

/// UFS: one of its magics in either byte order, in one of four places.
fn ufs<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    const MAGICS: [u32; 6] = [
        0x1954_0119,
        0x0001_1954,
        0x0019_5612,
        0x0009_5014,
        0x0061_2195,
        0x0523_1994,
    ];
    for at in [0, 8, 64, 256].map(|kib| kib * 1024 + 1372) {
        if let Some(magic) = image.bytes(at, 4)?
            && (MAGICS.contains(&le32(&magic, 0)) || MAGICS.contains(&be32(&magic, 0)))
        {
            return Ok(Some(signature("ufs", SignatureClass::FileSystem, at)));
        }
    }
    Ok(None)
}

/// Apple's Core Storage, in which FileVault keeps what it encrypts: 16 bits of magic, version, type and checksum's kind.
fn core_storage<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let Some(sb) = image.bytes(0, 512)? else {
        return Ok(None);
    };
    let is_it =
        sb[88..90] == *b"CS" && le16(&sb, 8) == 1 && le16(&sb, 10) == 0x10 && le32(&sb, 90) == 1;
    Ok(is_it.then(|| signature("FileVault", SignatureClass::Encrypted, 88)))
}

/// Swap areas and hibernation images say so at the end of their first page, whatever its size was.
fn swap<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    const WORDS: [(&str, &[u8]); 6] = [
        ("swap", b"SWAPSPACE2"),
        ("swap", b"SWAP-SPACE"),
        ("hibernation image", b"LINHIB0001"),
        ("hibernation image", b"S1SUSPEND"),
        ("hibernation image", b"S2SUSPEND"),
        ("hibernation image", b"ULSUSPEND"),
    ];
    for at in [4, 8, 16, 32, 64].map(|kib| kib * 1024 - 10) {
        let Some(end) = image.bytes(at, 10)? else {
            continue;
        };
        if let Some((name, _)) = WORDS.iter().find(|(_, word)| end.starts_with(word)) {
            return Ok(Some(signature(name, SignatureClass::Swap, at)));
        }
    }
    Ok(None)
}

/// UDF: one of the volume descriptors from 32 KiB on says NSR02 or NSR03; on bridge discs
/// those of ISO 9660 come first (ECMA-167 part 2).
fn udf<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    for i in 0..64 {
        let at = (32 << 10) + i * 2048 + 1;
        if image.has(at, b"NSR02")? || image.has(at, b"NSR03")? {
            return Ok(Some(signature("udf", SignatureClass::FileSystem, at)));
        }
    }
    Ok(None)
}

/// The first sector: FAT without its optional name, an MBR, or boot code without partitions.
fn boot_sector<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let Some(sector) = image.bytes(0, 512)? else {
        return Ok(None);
    };
    if is_fat(&sector) {
        return Ok(Some(signature("vfat", SignatureClass::FileSystem, 0)));
    }
    if le16(&sector, 510) != 0xaa55 {
        return Ok(None);
    }
    let entries = || sector[446..510].as_chunks::<16>().0.iter();
    let plausible = |e: &&[u8; 16]| {
        let empty = e.iter().all(|b| *b == 0);
        let used = matches!(e[0], 0 | 0x80) && e[4] != 0 && le32(&e[..], 12) != 0;
        empty || used
    };
    // Four random entries pass with 2^-28 each; boot code before an empty table passes as
    // a table too, on purpose: a boot loader is somebody's.
    let is_table = entries().filter(plausible).count() == 4;
    Ok(is_table.then(|| signature("MBR", SignatureClass::PartitionTable, 510)))
}

/// A FAT parameter block (fatgen103): the strings of later versions are optional.
fn is_fat(sector: &[u8]) -> bool {
    let jump = (sector[0] == 0xeb && sector[2] == 0x90) || sector[0] == 0xe9;
    let cluster = sector[13];
    jump && matches!(le16(sector, 11), 512 | 1024 | 2048 | 4096)
        && cluster.is_power_of_two()
        && (1..=64).contains(&le16(sector, 14))
        && matches!(sector[16], 1 | 2)
        && (sector[21] >= 0xf8 || sector[21] == 0xf0)
        && (le16(sector, 19) == 0) != (le32(sector, 32) == 0)
        && le16(sector, 24) <= 255
        && le16(sector, 26) <= 255
}

/// Apple partition map: driver descriptor and first entry.
fn apple_map<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let is_map =
        image.has(0, b"ER")? && (image.has(512, b"PM\0\0")? || image.has(2048, b"PM\0\0")?);
    Ok(is_map.then(|| signature("Apple", SignatureClass::PartitionTable, 0)))
}

/// Sun disk label: a 16-bit magic, and all 16-bit words of the sector cancel out.
fn sun_label<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    let Some(sector) = image.bytes(0, 512)? else {
        return Ok(None);
    };
    let sum = (0..256).fold(0, |sum, i| sum ^ le16(&sector, i * 2));
    let is_label =
        sector[508..510] == [0xda, 0xbe] && sum == 0 && be32(&sector, 188) == 0x600d_deee;
    Ok(is_label.then(|| signature("Sun", SignatureClass::PartitionTable, 508)))
}

/// Atari's table has no magic: a size that fits, and four entries of which each is unused or a partition on the disk,
/// at least one of a usual kind. (The kernel and libblkid ask for less, and take one random terabyte in a hundred for it.)
fn atari<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    const KINDS: [&[u8]; 9] = [
        b"GEM", b"BGM", b"LNX", b"SWP", b"RAW", b"XGM", b"F32", b"MIX", b"UNX",
    ];
    let Some(sector) = image.bytes(0, 512)? else {
        return Ok(None);
    };
    let size = be32(&sector, 0x1c2);
    if size < 2 || u64::from(size) > image.size() / 512 {
        return Ok(None);
    }
    let on_disk = |at: usize| {
        let (start, length) = (be32(&sector, at), be32(&sector, at + 4));
        start > 0 && length > 0 && start.checked_add(length).is_some_and(|end| end <= size)
    };
    let bad_blocks = sector[0x1f6..0x1fe].iter().all(|b| *b == 0) || on_disk(0x1f6);
    let entries = || (0..4).map(|i| 0x1c6 + i * 12);
    let used = |at: usize| {
        matches!(sector[at], 0x01 | 0x81)
            && sector[at + 1..at + 4].iter().all(u8::is_ascii_alphanumeric)
            && on_disk(at + 4)
    };
    let usual = |at: usize| used(at) && KINDS.contains(&&sector[at + 1..at + 4]);
    let is_it = bad_blocks && entries().all(|e| sector[e] == 0 || used(e)) && entries().any(usual);
    Ok(is_it.then(|| signature("Atari", SignatureClass::PartitionTable, 0x1c6)))
}

/// Labels of the disks of IBM's mainframes, in their third block, in EBCDIC.
fn dasd<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    const VOL1: &[u8] = b"\xe5\xd6\xd3\xf1";
    for block in [512, 1024, 2048, 4096] {
        for (inside, word) in [
            (4, VOL1),
            (0, b"\xd3\xd5\xe7\xf1"),
            (0, b"\xc3\xd4\xe2\xf1"),
        ] {
            let at = 2 * block + inside;
            if image.has(at, word)? {
                return Ok(Some(signature("DASD", SignatureClass::PartitionTable, at)));
            }
        }
    }
    Ok(None)
}

/// Linux software RAID: metadata 0.90 and 1.0 near the end, 1.1 at the start, 1.2 at 4 KiB
/// (drivers/md/md.c: super_90_load, super_1_load).
fn md<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Vec<Signature>> {
    const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
    let mut found = Vec::new();
    let size = image.size();
    let old = (size & !0xffff).checked_sub(0x1_0000);
    if let Some(at) = old
        && let Some(sb) = image.bytes(at, 8)?
        && ((sb[..4] == MAGIC && le32(&sb, 4) == 0)
            || (be32(&sb, 0) == 0xa92b_4efc && be32(&sb, 4) == 0))
    {
        found.push(signature("md 0.90", SignatureClass::Raid, at));
    }
    let sectors = size / 512;
    let end = sectors.checked_sub(16).map(|s| (s & !7) * 512);
    for (name, at) in [("md 1.0", end), ("md 1.1", Some(0)), ("md 1.2", Some(4096))] {
        let Some(at) = at else { continue };
        if let Some(sb) = image.bytes(at, 64)?
            && sb[..4] == MAGIC
            && le32(&sb, 4) == 1
        {
            let mut s = signature(name, SignatureClass::Raid, at);
            s.label = label(&sb[32..64]);
            found.push(s);
        }
    }
    Ok(found)
}

/// ZFS: four labels of 256 KiB, two at either end; each holds a ring of uberblocks in its
/// second half, in slots of 1 to 8 KiB.
fn zfs<R: ReadAt + ?Sized>(image: &Image<'_, R>) -> io::Result<Option<Signature>> {
    const LABEL: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = image.size() / LABEL * LABEL;
    let labels = [
        Some(0),
        Some(LABEL),
        end.checked_sub(2 * LABEL),
        end.checked_sub(LABEL),
    ];
    for at in labels.into_iter().flatten() {
        let Some(ring) = image.bytes(at + LABEL / 2, LABEL as usize / 2)? else {
            continue;
        };
        for (i, slot) in ring.chunks_exact(1024).enumerate() {
            if slot[..8] == MAGIC.to_le_bytes() || slot[..8] == MAGIC.to_be_bytes() {
                let offset = at + LABEL / 2 + i as u64 * 1024;
                return Ok(Some(signature("ZFS", SignatureClass::Zfs, offset)));
            }
        }
    }
    Ok(None)
}

//! Every tool that puts something on a disk is run on an image, and what it made must be
//! recognised; random bytes never are.

mod common;

use std::fs::{self, File};

use common::{Disk, find, run, skip, try_run};
use fathom_host::signature::{Signature, SignatureClass, scan, size_of};
use proptest::prelude::*;

fn found_on(disk: &Disk) -> Vec<Signature> {
    let file = File::open(&disk.image).unwrap();
    scan(&file, size_of(&file).unwrap()).unwrap()
}

/// Runs a tool on a fresh image (`{}` stands for its path) and expects one signature.
fn recognised(mib: u64, command: &[&str], name: &str, class: SignatureClass, label: Option<&str>) {
    let disk = Disk::new(mib);
    if find(command[0]).is_none() {
        return skip(&format!("needs the program {} for {name}", command[0]));
    }
    let args: Vec<&str> = command[1..]
        .iter()
        .map(|a| if *a == "{}" { disk.image_str() } else { a })
        .collect();
    if let Err(e) = try_run(command[0], &args) {
        return skip(&format!("{command:?} failed: {e}"));
    }
    let found = found_on(&disk);
    let names: Vec<&str> = found.iter().map(|s| s.name.as_str()).collect();
    assert!(names.contains(&name), "{command:?} made {names:?}");
    let it = found.iter().find(|s| s.name == name).unwrap();
    assert_eq!(it.class, class);
    if label.is_some() {
        assert_eq!(it.label.as_deref(), label, "label of {name}");
    }
    // A second opinion: whatever libblkid sees must not go unseen here.
    let theirs = try_run(
        "blkid",
        &[
            "--probe",
            "--output",
            "value",
            "--match-tag",
            "TYPE",
            disk.image_str(),
        ],
    );
    if let Ok(theirs) = theirs {
        assert!(
            theirs.is_empty() || !found.is_empty(),
            "blkid sees {theirs}"
        );
    }
}

#[test]
fn file_systems_are_recognised() {
    use SignatureClass::FileSystem as Fs;
    recognised(
        8,
        &["mkfs.ext2", "-q", "-F", "-L", "two", "{}"],
        "ext2",
        Fs,
        Some("two"),
    );
    recognised(16, &["mkfs.ext3", "-q", "-F", "{}"], "ext3", Fs, None);
    recognised(
        16,
        &["mkfs.ext4", "-q", "-F", "-L", "my root", "{}"],
        "ext4",
        Fs,
        Some("my root"),
    );
    recognised(
        16,
        &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-b",
            "4096",
            "-O",
            "^has_journal",
            "{}",
        ],
        "ext4",
        Fs,
        None,
    );
    recognised(
        512,
        &["mkfs.xfs", "-q", "-f", "-L", "store", "{}"],
        "xfs",
        Fs,
        Some("store"),
    );
    recognised(
        128,
        &["mkfs.btrfs", "-q", "-f", "-L", "pool", "{}"],
        "btrfs",
        Fs,
        Some("pool"),
    );
    recognised(
        16,
        &["mkfs.vfat", "-n", "STICK", "{}"],
        "vfat",
        Fs,
        Some("STICK"),
    );
    recognised(4, &["mkfs.vfat", "-F", "12", "{}"], "vfat", Fs, None);
    recognised(
        64,
        &["mkfs.vfat", "-F", "32", "-n", "BIG", "{}"],
        "vfat",
        Fs,
        Some("BIG"),
    );
    recognised(16, &["mkfs.exfat", "{}"], "exfat", Fs, None);
    recognised(16, &["mkfs.ntfs", "-q", "-F", "-f", "{}"], "ntfs", Fs, None);
    recognised(128, &["mkfs.f2fs", "-q", "{}"], "f2fs", Fs, None);
    recognised(32, &["mkfs.jfs", "-q", "{}"], "jfs", Fs, None);
    recognised(
        64,
        &["mkfs.reiserfs", "-q", "-f", "-f", "{}"],
        "reiserfs",
        Fs,
        None,
    );
    recognised(256, &["mkfs.nilfs2", "-q", "{}"], "nilfs2", Fs, None);
    recognised(8, &["mkfs.minix", "{}"], "minix", Fs, None);
    recognised(8, &["mkfs.minix", "-3", "{}"], "minix", Fs, None);
    recognised(
        16,
        &["mke2fs", "-q", "-F", "-O", "journal_dev", "{}"],
        "ext journal",
        SignatureClass::Volume,
        None,
    );
}

#[test]
fn images_made_from_a_directory_are_recognised() {
    use SignatureClass::FileSystem as Fs;
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("hello"), vec![b'x'; 10_000]).unwrap();
    let from = tree.path().to_str().unwrap();
    recognised(
        1,
        &["mksquashfs", from, "{}", "-noappend", "-quiet"],
        "squashfs",
        Fs,
        None,
    );
    recognised(1, &["mkfs.erofs", "--quiet", "{}", from], "erofs", Fs, None);
    recognised(
        1,
        &["genisoimage", "-quiet", "-V", "DISC", "-o", "{}", from],
        "iso9660",
        Fs,
        Some("DISC"),
    );
    recognised(
        1,
        &["genisoimage", "-quiet", "-udf", "-o", "{}", from],
        "udf",
        Fs,
        None,
    );
    recognised(1, &["mkfs.cramfs", from, "{}"], "cramfs", Fs, None);
}

#[test]
fn members_of_other_storage_stacks_are_recognised() {
    use SignatureClass::{Encrypted, Swap, Volume};
    recognised(8, &["mkswap", "-q", "-L", "sw", "{}"], "swap", Swap, None);
    recognised(
        32,
        &[
            "cryptsetup",
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks1",
            "--pbkdf-force-iterations",
            "1000",
            "--key-file",
            "/proc/version",
            "{}",
        ],
        "LUKS",
        Encrypted,
        None,
    );
    recognised(
        32,
        &[
            "cryptsetup",
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks2",
            "--label",
            "vault",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "--key-file",
            "/proc/version",
            "{}",
        ],
        "LUKS",
        Encrypted,
        Some("vault"),
    );
    recognised(16, &["make-bcache", "-B", "{}"], "bcache", Volume, None);
    recognised(4, &["vdoformat", "--force", "{}"], "vdo", Volume, None);
}

#[test]
fn partition_tables_are_recognised_and_so_is_the_copy_of_gpt_at_the_end() {
    if find("sfdisk").is_none() {
        return skip("needs the program sfdisk");
    }
    let make = |script: &str| {
        let disk = Disk::new(16);
        let script_file = disk.beside("script");
        fs::write(&script_file, script).unwrap();
        let status = std::process::Command::new(find("sfdisk").unwrap())
            .args(["--quiet", disk.image_str()])
            .stdin(File::open(script_file).unwrap())
            .status()
            .unwrap();
        assert!(status.success());
        disk
    };
    let names =
        |disk: &Disk| -> Vec<String> { found_on(disk).into_iter().map(|s| s.name).collect() };
    assert_eq!(names(&make("label: dos\n,8M,83\n")), ["MBR"]);
    assert_eq!(
        names(&make("label: dos\n")),
        ["MBR"],
        "an empty table is a table"
    );
    assert_eq!(names(&make("label: sun\n,8M\n")), ["Sun"]);
    assert_eq!(names(&make("label: sgi\n,8M\n")), ["SGI"]);
    let gpt = make("label: gpt\n,8M\n");
    assert_eq!(names(&gpt), ["MBR", "GPT"]);
    gpt.write_at(0, &[0; 1 << 20]);
    assert_eq!(names(&gpt), ["GPT"], "only the copy at the end is left");
    gpt.write_at((16 << 20) - (1 << 20), &[0; 1 << 20]);
    assert_eq!(names(&gpt), [] as [&str; 0]);
}

#[test]
fn lvm_and_raid_metadata_written_by_hand_is_recognised() {
    // pvcreate and mdadm want device-mapper or md in the kernel, so their formats are written
    // here as their documentation gives them.
    let disk = Disk::new(4);
    let mut label = [0u8; 512];
    label[..8].copy_from_slice(b"LABELONE");
    label[8..16].copy_from_slice(&1u64.to_le_bytes());
    label[24..32].copy_from_slice(b"LVM2 001");
    disk.write_at(512, &label);
    assert_eq!(found_on(&disk)[0].class, SignatureClass::Lvm);

    let size = 4u64 << 20;
    let super_1 = |name: &str| {
        let mut sb = vec![0u8; 256];
        sb[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        sb[4..8].copy_from_slice(&1u32.to_le_bytes());
        sb[32..32 + name.len()].copy_from_slice(name.as_bytes());
        sb
    };
    for (at, name) in [(size - 8192, "md 1.0"), (0, "md 1.1"), (4096, "md 1.2")] {
        let disk = Disk::new(4);
        disk.write_at(at, &super_1("host:0"));
        let found = found_on(&disk);
        assert_eq!(
            (found[0].name.as_str(), found[0].label.as_deref()),
            (name, Some("host:0"))
        );
    }
    let disk = Disk::new(4);
    let mut old = vec![0u8; 64];
    old[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    old[8..12].copy_from_slice(&90u32.to_le_bytes());
    disk.write_at(size - 65536, &old);
    assert_eq!(found_on(&disk)[0].name, "md 0.90");
}

#[test]
fn each_of_the_four_zfs_labels_is_recognised_alone_and_in_both_byte_orders() {
    let size = 8u64 << 20;
    const LABEL: u64 = 256 << 10;
    for at in [0, LABEL, size - 2 * LABEL, size - LABEL] {
        for magic in [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()] {
            let disk = Disk::new(8);
            // The ring of uberblocks is anywhere in its use, slots are 1 KiB and more.
            disk.write_at(at + LABEL / 2 + 17 * 1024, &magic);
            let found = found_on(&disk);
            assert_eq!(
                (found.len(), found[0].class),
                (1, SignatureClass::Zfs),
                "label at {at}"
            );
        }
    }
}

#[test]
fn an_lvm_physical_volume_made_by_pvcreate_is_recognised_and_refused() {
    let _turn = common::turn();
    if !common::possible(&["pvcreate"]) {
        return;
    }
    let disk = Disk::new(16);
    let device = common::Loop::of(&disk.image);
    if let Err(e) = try_run("pvcreate", &["--yes", device.str()]) {
        return skip(&format!("pvcreate fails here: {e}"));
    }
    rustix::fs::sync();
    assert!(
        found_on(&disk)
            .iter()
            .any(|s| s.class == SignatureClass::Lvm)
    );
    let refused = fathom_host::open_for_write(&device.path, Some(device.str())).unwrap_err();
    assert!(
        refused.to_string().contains("LVM2 physical volume"),
        "{refused}"
    );
}

#[test]
fn raid_members_made_by_mdadm_are_recognised() {
    let _turn = common::turn();
    if !common::possible(&["mdadm"]) {
        return;
    }
    // Without md in the kernel mdadm fails, but leaves nodes behind under /dev.
    if !std::path::Path::new("/proc/mdstat").exists() {
        return skip(
            "this kernel has no software RAID (/proc/mdstat); its formats are tested by hand",
        );
    }
    for metadata in ["0.90", "1.0", "1.1", "1.2"] {
        let disk = Disk::new(16);
        let device = common::Loop::of(&disk.image);
        let option = format!("--metadata={metadata}");
        let made = try_run(
            "mdadm",
            &[
                "--create",
                "/dev/md/fathom-test",
                "--run",
                &option,
                "--level=1",
                "--raid-devices=2",
                device.str(),
                "missing",
            ],
        );
        if let Err(e) = made {
            return skip(&format!(
                "mdadm cannot make an array here: {}",
                e.lines().last().unwrap_or_default()
            ));
        }
        run("mdadm", &["--stop", "/dev/md/fathom-test"]);
        assert!(
            found_on(&disk)
                .iter()
                .any(|s| s.class == SignatureClass::Raid)
        );
    }
}

#[test]
fn an_empty_disk_and_disks_of_any_odd_size_hold_nothing() {
    for size in [
        0u64,
        1,
        511,
        512,
        513,
        4095,
        4096,
        65_536,
        100_000,
        1 << 20,
        (3 << 20) + 17,
    ] {
        let disk = vec![0u8; size as usize];
        assert_eq!(scan(&disk[..], size).unwrap(), [], "{size} bytes");
    }
}

#[test]
fn a_disk_that_is_shorter_than_it_says_is_an_error_and_not_an_empty_disk() {
    let disk = vec![0u8; 4096];
    assert!(scan(&disk[..], 1 << 20).is_err());
}

/// Fast noise from a seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn data_that_compresses_is_never_taken_for_anything() {
    // As compressible fills are made: a piece of noise, then zeros or one byte over and over, in every proportion.
    for seed in 1..=4000u64 {
        let (block, share) = (512 << (seed % 8), 1 + (seed / 8) as usize % 15);
        let pad = [0, 0, 0xff, 0x20, seed as u8][seed as usize % 5];
        let mut disk = noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 192 << 10);
        for piece in disk.chunks_mut(block) {
            let cut = piece.len() * share / 16;
            piece[cut..].fill(pad);
        }
        let found = scan(&disk[..], disk.len() as u64).unwrap();
        assert_eq!(found, [], "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_are_never_taken_for_anything(seed in any::<u64>(), size in 0usize..300_000) {
        let disk = noise(seed, size);
        prop_assert_eq!(scan(&disk[..], size as u64).unwrap(), []);
    }

    /// The harder case: the 16-bit magics are all there, so structure alone decides.
    #[test]
    fn random_bytes_around_the_short_magics_are_never_taken_for_anything(seed in any::<u64>()) {
        let mut disk = noise(seed, 256 << 10);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        disk[1024 + 6..1024 + 8].copy_from_slice(&[0x34, 0x34]);
        disk[0] = 0xeb;
        disk[2] = 0x90;
        let size = disk.len() as u64;
        let last = disk.len() - 512;
        let end = [b"JM", &[0x55, 0xaa][..], &[0, 0]][seed as usize % 3];
        disk[last..last + 2].copy_from_slice(end);
        disk[1024..1026].copy_from_slice(b"BD");
        disk[88..90].copy_from_slice(b"CS");
        prop_assert_eq!(scan(&disk[..], size).unwrap(), []);
    }
}

#[test]
fn a_thousand_mebibytes_of_noise_with_both_ends_looked_at_hold_nothing() {
    // Fixed seeds, other noise at either end each time: 400 disks of 2.5 MiB.
    for seed in 1..=400u64 {
        let disk = noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 5 << 19);
        assert_eq!(
            scan(&disk[..], disk.len() as u64).unwrap(),
            [],
            "seed {seed}"
        );
    }
}

/// A disk of 4 MiB with some bytes on it, and what is found there.
fn found_with(bytes: &[(usize, &[u8])]) -> Vec<String> {
    let mut disk = vec![0u8; 4 << 20];
    for (at, bytes) in bytes {
        disk[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    let found = scan(&disk[..], disk.len() as u64).unwrap();
    found.into_iter().map(|s| s.name).collect()
}

#[test]
fn what_libblkid_knows_beside_the_common_formats_is_recognised_from_its_bytes_alone() {
    const END: usize = 4 << 20;
    // As the formats of libblkid's superblocks/*.c and partitions/*.c say; those with a checksum have tests of their own.
    let minix = |word: fn(u16) -> [u8; 2]| {
        [64u16, 1000, 1, 1, 6, 0, 0, 0, 0x138f, 1]
            .map(word)
            .concat()
    };
    let minix3 = |word: fn(u16) -> [u8; 2]| {
        let mut sb = vec![0; 30];
        for (at, value) in [(6, 1), (8, 1), (24, 0x4d5a), (28, 4096)] {
            sb[at..at + 2].copy_from_slice(&word(value));
        }
        sb
    };
    let mut hfs = vec![0; 162];
    hfs[..2].copy_from_slice(b"BD");
    hfs[20..24].copy_from_slice(&4096u32.to_be_bytes());
    hfs[36..40].copy_from_slice(b"\x03Mac");
    let mut wrapper = hfs.clone();
    wrapper[124..126].copy_from_slice(b"H+");
    let atari = [
        (0x1c2, &100u32.to_be_bytes()[..]),
        (0x1c6, b"\x01GEM\0\0\0\x02\0\0\0\x20"),
    ];
    let mut vault = vec![0; 94];
    (vault[8], vault[10], vault[90]) = (1, 0x10, 1);
    vault[88..90].copy_from_slice(b"CS");
    let one = |at: usize, bytes: &[u8]| found_with(&[(at, bytes)]);
    for (found, name) in [
        (one(END - 512, b"\x37\xfc\x4d\x1e"), "Adaptec RAID"),
        (one(END - 512, b"$XIDE$"), "LSI RAID"),
        (one(END - 11 * 512, b"\xf3\x16\x78\x5a"), "Highpoint RAID"),
        (
            one(END - 63 * 512, b"Promise Technology, Inc."),
            "Promise RAID",
        ),
        (one(1024, &hfs), "hfs"),
        (one(1024, &wrapper), "hfsplus"),
        (one(8192, b"\x49\xe8\x95\xf9"), "hpfs"),
        (one(32, b"BFS1"), "befs"),
        (one(544, b"1SFB"), "befs"),
        (one(0, b"\xce\xfa\xad\x1b"), "bfs"),
        (one(4096, b"SPB5"), "nss"),
        (one(0, b"UBI#"), "ubi"),
        (one(0, b"\x31\x18\x10\x06"), "ubifs"),
        (one(1024, &minix(u16::to_le_bytes)), "minix"),
        (one(1024, &minix(u16::to_be_bytes)), "minix"),
        (one(1024, &minix3(u16::to_le_bytes)), "minix"),
        (one(1024, &minix3(u16::to_be_bytes)), "minix"),
        (one(8192, b"\xa5\x01\xfc\xf5"), "vxfs"),
        (found_with(&atari), "Atari"),
        (one(0, b"$DRBDmgr=q"), "drbdmanage"),
        (one(0, &vault), "FileVault"),
        (one(0, b"HM\x01\0"), "LVM1"),
        (one(64 * 1024 + 1372, b"\x19\x01\x54\x19"), "ufs"),
        (one(256 * 1024 + 1372, &0x0001_1954u32.to_be_bytes()), "ufs"),
        (one(8192 - 10, b"S2SUSPEND"), "hibernation image"),
        (one(1024, b"\xd3\xd5\xe7\xf1"), "DASD"),
    ] {
        assert_eq!(found, [name]);
    }
    // What only resembles them: an HFS with broken blocks, a table of Atari's beyond the disk.
    hfs[23] = 1;
    assert_eq!(one(1024, &hfs), [] as [&str; 0]);
    let beyond = [atari[0], (0x1c6, &b"\x01GEM\0\0\0\x02\0\0\xff\x20"[..])];
    assert_eq!(found_with(&beyond), [] as [&str; 0]);
}

#[test]
fn what_lies_at_the_end_of_a_file_is_found_although_its_last_sector_is_not_whole() {
    for (before, bytes, name) in [
        (4096 - 60, &b"\x83\x74\x02\x6b"[..], "drbd"),
        (512, &b"EFI PART"[..], "GPT"),
    ] {
        for (size, end) in [(100 << 10, 100 << 10), ((100 << 10) + 1, 100 << 10)] {
            for end in [size, end] {
                let mut disk = vec![0u8; size];
                disk[end - before..end - before + bytes.len()].copy_from_slice(bytes);
                let found = scan(&disk[..], size as u64).unwrap();
                assert_eq!((found.len(), found[0].name.as_str()), (1, name));
            }
        }
    }
}

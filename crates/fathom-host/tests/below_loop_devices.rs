//! A loop device shows a part of something: what lies around that part is looked at before a byte of it is written.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{Disk, Loop, mkfs_ext4, possible, run, turn};
use fathom_host::refusal::Refusal;
use fathom_host::{Permit, open_for_write};

fn open_confirmed(path: &Path) -> Result<Permit, Refusal> {
    open_for_write(path, path.to_str())
}

/// What stands in the way, and where; the disk is as it was afterwards.
fn refused(disk: &Disk, device: &Path) -> (String, String) {
    let before = disk.checksum();
    let refusal = open_confirmed(device).expect_err("was let through");
    assert_eq!(disk.checksum(), before, "the disk changed");
    match refusal {
        Refusal::Signature { place, what, .. } => (what, place.relative.unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

/// Writes through a device or file, past what others have cached of the one below.
fn write(path: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.sync_all().unwrap();
}

/// The first sectors of a physical volume, as pvcreate leaves them.
fn physical_volume(on: &Path) {
    let mut label = [0u8; 512];
    label[..8].copy_from_slice(b"LABELONE");
    label[24..32].copy_from_slice(b"LVM2 001");
    write(on, 512, &label);
}

/// Not where ext4 has a copy of its superblock.
const WINDOW: [&str; 4] = ["--offset", "12582912", "--sizelimit", "8388608"];

#[test]
fn a_loop_device_inside_a_file_that_holds_something_is_refused() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    run("mkfs.ext4", &["-q", "-F", disk.image_str()]);
    let inside = Loop::with(&disk.image, &WINDOW);
    let (what, place) = refused(&disk, &inside.path);
    assert!(what.contains("ext4"), "{what}");
    assert!(place.contains(disk.image_str()), "{place}");
    // The same inside a physical volume, whose logical volumes may be there.
    run("wipefs", &["--all", "--quiet", disk.image_str()]);
    open_confirmed(&inside.path).expect("the remedy works");
    physical_volume(&disk.image);
    assert!(refused(&disk, &inside.path).0.contains("LVM2"));
}

#[test]
fn a_loop_device_inside_a_device_that_holds_something_is_refused() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    let lower = Loop::of(&disk.image);
    let upper = Loop::with(&lower.path, &WINDOW);
    assert!(open_confirmed(&upper.path).is_ok());
    physical_volume(&lower.path);
    let (what, place) = refused(&disk, &upper.path);
    assert!(what.contains("LVM2"), "{what}");
    assert!(place.contains(lower.str()), "{place}");
    write(&lower.path, 0, &[0; 4096]);
    mkfs_ext4(lower.str());
    assert!(refused(&disk, &upper.path).0.contains("ext4"));
}

#[test]
fn a_loop_device_beside_one_that_holds_something_is_refused() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let first = Loop::with(&disk.image, &["--offset", "33554432"]);
    let second = Loop::with(&disk.image, &["--sizelimit", "33554432"]);
    assert!(open_confirmed(&second.path).is_ok());
    mkfs_ext4(first.str());
    let (what, place) = refused(&disk, &second.path);
    assert!(what.contains("ext4"), "{what}");
    assert!(place.contains(first.str()), "{place}");
}

#[test]
fn a_loop_device_cut_short_of_a_superblock_at_the_end_is_refused() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let mut superblock = [0u8; 64];
    superblock[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    superblock[4] = 1;
    disk.write_at((16 << 20) - 8192, &superblock);
    let short = Loop::with(&disk.image, &["--sizelimit", "15728640"]);
    let (what, place) = refused(&disk, &short.path);
    assert!(what.contains("md 1.0"), "{what}");
    assert!(place.contains(disk.image_str()), "{place}");
    // One over a file that has grown since shows no more of it.
    let grown = Disk::new(15);
    let device = Loop::of(&grown.image);
    grown.resize(16);
    grown.write_at((16 << 20) - 8192, &superblock);
    assert!(refused(&grown, &device.path).0.contains("md 1.0"));
}

#[test]
fn a_loop_device_over_a_partition_of_a_disk_that_holds_something_is_refused() {
    let _turn = turn();
    if !possible(&["addpart", "delpart"]) {
        return;
    }
    let disk = Disk::new(64);
    let mut whole = Loop::of(&disk.image);
    let Some(part) = whole.add_partition(8, 16) else {
        return;
    };
    let over = Loop::of(&part);
    assert!(open_confirmed(&over.path).is_ok());
    physical_volume(&whole.path);
    let (what, place) = refused(&disk, &over.path);
    assert!(what.contains("LVM2"), "{what}");
    assert!(place.contains(whole.str()), "{place}");
    // A table is there by right; of a disk that is looped as a whole it is not.
    let mut table = [0; 512];
    table[..8].copy_from_slice(b"EFI PART");
    write(&whole.path, 512, &table);
    assert!(open_confirmed(&over.path).is_ok());
    drop(over);
    let window = ["--offset", "41943040"];
    let beside = Loop::with(&whole.path, &window);
    assert!(refused(&disk, &beside.path).0.contains("GPT"));
}

#[test]
fn a_partition_of_a_loop_device_is_free_although_its_file_has_a_table() {
    let _turn = turn();
    if !possible(&["addpart", "delpart", "mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    disk.write_at(512, b"EFI PART");
    let mut whole = Loop::with(&disk.image, &["--sizelimit", "62914560"]);
    let (Some(first), Some(second)) = (whole.add_partition(8, 16), whole.add_partition(32, 16))
    else {
        return;
    };
    mkfs_ext4(second.to_str().unwrap());
    assert!(open_confirmed(&first).is_ok());
    assert!(refused(&disk, &second).0.contains("ext4"));
    physical_volume(&whole.path);
    assert!(refused(&disk, &first).0.contains("LVM2"));
}

#[test]
fn a_part_of_a_file_that_cannot_be_looked_at_is_refused() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(32);
    let (whole, part) = (Loop::of(&disk.image), Loop::with(&disk.image, &WINDOW));
    let moved = disk.beside("moved");
    std::fs::rename(&disk.image, &moved).unwrap();
    drop(part);
    assert!(open_confirmed(&whole.path).is_ok(), "it shows all of it");
    let part = Loop::with(&moved, &WINDOW);
    std::fs::remove_file(&moved).unwrap();
    let refusal = open_confirmed(&part.path).unwrap_err();
    assert!(matches!(refusal, Refusal::Unproven { .. }), "{refusal:?}");
    assert!(refusal.to_string().contains("moved"), "{refusal}");
}

//! Counters, block maps and target probes against real files and devices.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use common::{Disk, Loop, Mounted, mkfs_btrfs, mkfs_ext4, possible, skip, turn};
use fathom_host::extents::{
    Coverage, ExtentsError, Method, SpanKind, Spans, coverage, physical_offset,
};
use fathom_host::{
    CounterSource, Counters, Environment, NoCounters, Provenance, Scratch, TargetKind, create_file,
    probe_target,
};

const MIB: u64 = 1 << 20;

#[test]
fn the_device_counts_exactly_what_direct_writes_and_reads_send_to_it() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let source = CounterSource::locate(&device.path).unwrap();
    assert_eq!(
        (source.name(), source.disk()),
        (device.name(), device.name())
    );
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&device.path)
        .unwrap();
    let before = source.read().unwrap();
    let mut buffer = vec![0u8; 3 * 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let page = &mut buffer[start..start + 4096];
    for i in 0..10 {
        file.write_all_at(page, i * 8192).unwrap();
    }
    for i in 0..7 {
        file.read_exact_at(page, i * 8192).unwrap();
    }
    let delta = source.read().unwrap().since(&before);
    assert_eq!((delta.write_ios, delta.write_bytes), (10, 40_960));
    assert_eq!((delta.read_ios, delta.read_bytes), (7, 28_672));
    assert_eq!(delta.discard_ios, 0);
}

#[test]
fn a_file_is_counted_by_the_partition_or_disk_that_holds_it() {
    let _turn = turn();
    if !possible(&["mkfs.ext4", "addpart"]) {
        return;
    }
    let disk = Disk::new(64);
    let mut device = Loop::of(&disk.image);
    let Some(part) = device.add_partition(1, 48) else {
        return;
    };
    mkfs_ext4(part.to_str().unwrap());
    let Ok(mounted) = Mounted::new(part.to_str().unwrap(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    let scratch = Scratch::create(&mounted.at, MIB).unwrap();
    let source = CounterSource::locate(scratch.path()).unwrap();
    assert_eq!(source.name(), part.file_name().unwrap().to_str().unwrap());
    assert_eq!(source.disk(), device.name());
    let before = source.read().unwrap();
    scratch
        .file()
        .write_all_at(&vec![1; MIB as usize], 0)
        .unwrap();
    scratch.file().sync_all().unwrap();
    let delta = source.read().unwrap().since(&before);
    assert!(delta.write_bytes >= MIB, "{delta:?}");
}

#[test]
fn a_btrfs_is_counted_by_all_its_devices() {
    let _turn = turn();
    if !possible(&["mkfs.btrfs"]) {
        return;
    }
    let (one, two) = (Disk::new(128), Disk::new(128));
    let (first, second) = (Loop::of(&one.image), Loop::of(&two.image));
    mkfs_btrfs("raid1", [&first, &second]);
    let Ok(mounted) = Mounted::new(first.str(), one.beside("mnt"), &[]) else {
        return skip("btrfs cannot be mounted");
    };
    let path = mounted.at.join("file");
    fs::write(&path, vec![1; MIB as usize]).unwrap();
    let source = CounterSource::locate(&path).unwrap();
    let mut names: Vec<&str> = source.name().split('+').collect();
    names.sort_unstable();
    let mut expected = [first.name(), second.name()];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let before = source.read().unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let delta = source.read().unwrap().since(&before);
    assert!(delta.write_bytes >= 2 * MIB, "both copies count: {delta:?}");
}

#[test]
fn a_file_in_memory_has_no_counters() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return skip("needs /dev/shm");
    }
    match Counters::read(shm) {
        Err(NoCounters::Memory { fs_type }) => assert_eq!(fs_type, "tmpfs"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_overlay_is_counted_by_the_device_of_its_upper_layer() {
    let _turn = turn();
    if !possible(&["mount"]) {
        return;
    }
    let disk = Disk::new(1);
    for name in ["lower", "upper", "work"] {
        fs::create_dir(disk.beside(name)).unwrap();
    }
    let dir = |n| disk.beside(n).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        dir("lower"),
        dir("upper"),
        dir("work")
    );
    let Ok(mounted) = Mounted::new(
        "overlay",
        disk.beside("mnt"),
        &["-t", "overlay", "-o", &options],
    ) else {
        return skip("no overlay can be mounted here");
    };
    let below = CounterSource::locate(&disk.beside("upper"));
    let through = CounterSource::locate(&mounted.at);
    match (below, through) {
        (Ok(below), Ok(through)) => assert_eq!(below.name(), through.name()),
        (below, through) => assert_eq!(below.err(), through.err()),
    }
}

/// A file in a fresh file system, or a skip.
fn on_ext4(test: impl FnOnce(&Path)) {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    match Mounted::new(device.str(), disk.beside("mnt"), &[]) {
        Ok(mounted) => test(&mounted.at),
        Err(e) => skip(&format!("ext4 cannot be mounted: {e}")),
    }
}

#[test]
fn written_unwritten_and_missing_blocks_are_told_apart() {
    on_ext4(|dir| {
        let permit = create_file(&dir.join("file")).unwrap();
        let file = &permit.file;
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(&vec![1; MIB as usize], MIB).unwrap();
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 4 * MIB, 2 * MIB).unwrap();
        let whole = coverage(file, 0..8 * MIB).unwrap();
        assert_eq!(
            whole,
            Coverage {
                written_bytes: MIB,
                unwritten_bytes: 2 * MIB,
                hole_bytes: 5 * MIB,
                first_gap: Some(0..MIB),
                method: Method::Fiemap,
            }
        );
        let part = coverage(file, MIB + 4096..2 * MIB).unwrap();
        assert!(part.is_complete(), "{part:?}");
        let edge = coverage(file, 3 * MIB / 2..5 * MIB).unwrap();
        assert_eq!(
            (edge.written_bytes, edge.unwritten_bytes, edge.hole_bytes),
            (MIB / 2, MIB, 2 * MIB)
        );
        assert_eq!(edge.first_gap, Some(2 * MIB..4 * MIB));
        let beyond = coverage(file, 7 * MIB..10 * MIB).unwrap();
        assert_eq!(beyond.hole_bytes, 3 * MIB);
        let kinds: Vec<SpanKind> = Spans::new(file, 0..8 * MIB)
            .unwrap()
            .map(|s| s.unwrap().kind)
            .collect();
        use SpanKind::{Hole, Unwritten, Written};
        assert_eq!(kinds, [Hole, Written, Hole, Unwritten, Hole]);
    });
}

#[test]
fn a_fresh_scratch_file_is_unwritten_until_it_is_filled() {
    on_ext4(|dir| {
        let scratch = Scratch::create(dir, 4 * MIB).unwrap();
        let before = coverage(scratch.file(), 0..4 * MIB).unwrap();
        assert_eq!(before.unwritten_bytes, 4 * MIB);
        scratch
            .file()
            .write_all_at(&vec![7; 4 * MIB as usize], 0)
            .unwrap();
        assert!(coverage(scratch.file(), 0..4 * MIB).unwrap().is_complete());
    });
}

#[test]
fn a_file_in_hundreds_of_pieces_is_mapped_without_gaps_in_batches() {
    on_ext4(|dir| {
        let permit = create_file(&dir.join("file")).unwrap();
        let file = &permit.file;
        // More pieces than one call to the kernel returns (128).
        for i in 0..500u64 {
            file.write_all_at(&[1; 4096], i * 12_288).unwrap();
        }
        let len = 499 * 12_288 + 4096;
        let mut end = 0;
        let mut written = 0;
        for span in Spans::new(file, 0..len).unwrap() {
            let span = span.unwrap();
            assert_eq!(span.range.start, end, "no gap, no overlap");
            end = span.range.end;
            if span.kind == SpanKind::Written {
                written += span.range.end - span.range.start;
                assert!(span.physical.is_some());
            }
        }
        assert_eq!((end, written), (len, 500 * 4096));
    });
}

#[test]
fn the_physical_place_of_a_byte_is_where_the_device_has_it() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let Ok(mounted) = Mounted::new(device.str(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    let permit = create_file(&mounted.at.join("file")).unwrap();
    let file = &permit.file;
    let mut data = vec![0u8; 16 * 4096];
    data[5 * 4096..5 * 4096 + 13].copy_from_slice(b"find me here!");
    file.write_all_at(&data, 0).unwrap();
    file.set_len(MIB).unwrap();
    file.sync_all().unwrap();
    let at = physical_offset(file, 5 * 4096).unwrap().unwrap();
    assert_eq!(
        physical_offset(file, MIB / 2).unwrap(),
        None,
        "a hole is nowhere"
    );
    rustix::fs::sync();
    let mut bytes = [0; 13];
    File::open(&disk.image)
        .unwrap()
        .read_exact_at(&mut bytes, at)
        .unwrap();
    assert_eq!(&bytes, b"find me here!");
}

#[test]
fn where_there_is_no_fiemap_holes_are_still_found() {
    let shm = Path::new("/dev/shm");
    let Ok(dir) = tempfile::tempdir_in(shm) else {
        return skip("needs /dev/shm");
    };
    let permit = create_file(&dir.path().join("file")).unwrap();
    let file = &permit.file;
    file.set_len(8 * MIB).unwrap();
    file.write_all_at(&vec![1; MIB as usize], 2 * MIB).unwrap();
    let c = coverage(file, 0..8 * MIB).unwrap();
    assert_eq!(c.method, Method::SeekHole);
    assert_eq!((c.written_bytes, c.hole_bytes), (MIB, 7 * MIB));
    assert_eq!(c.first_gap, Some(0..2 * MIB));
}

#[test]
fn what_is_no_regular_file_has_no_map() {
    let null = File::open("/dev/null").unwrap();
    assert!(matches!(
        coverage(&null, 0..4096),
        Err(ExtentsError::Unsupported)
    ));
    assert!(matches!(
        coverage(&File::open("/").unwrap(), 0..4096),
        Err(ExtentsError::Unsupported)
    ));
}

#[test]
fn a_path_is_probed_for_what_it_is() {
    on_ext4(|dir| {
        match probe_target(dir).unwrap() {
            TargetKind::Directory {
                path,
                file_system,
                direct,
            } => {
                assert_eq!(path, dir);
                let fs = file_system.unwrap();
                assert_eq!((fs.fs_type.as_str(), fs.read_only), ("ext4", false));
                assert_eq!(fs.mounted_at, dir);
                assert!(
                    fs.space.total_bytes > 40 * MIB && fs.space.fits_bytes < fs.space.free_bytes
                );
                assert_eq!(direct.offset_align_bytes, 512);
            }
            other => panic!("{other:?}"),
        }
        let path = dir.join("file");
        create_file(&path).unwrap().file.set_len(MIB).unwrap();
        match probe_target(&path).unwrap() {
            TargetKind::File {
                size_bytes,
                provenance,
                direct,
                ..
            } => {
                assert_eq!(size_bytes, MIB);
                assert!(matches!(provenance, Provenance::Fathom(_)));
                assert!(direct.is_supported() && direct.offset_align_bytes.is_power_of_two());
            }
            other => panic!("{other:?}"),
        }
        match probe_target(&dir.join("new")).unwrap() {
            TargetKind::Missing {
                parent,
                file_system,
                ..
            } => {
                assert_eq!(parent.unwrap(), dir);
                assert_eq!(file_system.unwrap().fs_type, "ext4");
            }
            other => panic!("{other:?}"),
        }
        match probe_target(&dir.join("no/where")).unwrap() {
            TargetKind::Missing { parent, .. } => assert_eq!(parent, None),
            other => panic!("{other:?}"),
        }
    });
    match probe_target(Path::new("/dev/null")).unwrap() {
        TargetKind::Other { found, .. } => assert_eq!(found, "a character device"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_block_device_is_probed_and_its_capsule_holds_what_it_is_made_of() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::with(&disk.image, &["--sector-size", "4096", "--read-only"]);
    match probe_target(&device.path).unwrap() {
        TargetKind::BlockDevice {
            path,
            size_bytes,
            read_only,
            direct,
            ..
        } => {
            assert_eq!(path, device.path);
            assert_eq!((size_bytes, read_only), (16 * MIB, true));
            assert_eq!(
                (direct.offset_align_bytes, direct.memory_align_bytes),
                (4096, 4096)
            );
        }
        other => panic!("{other:?}"),
    }
    let storage = Environment::collect(Some(&device.path)).storage.unwrap();
    assert_eq!(storage.file_system, None);
    assert_eq!(storage.devices[0].name, device.name());
    assert_eq!(storage.devices[0].logical_block_bytes, Some(4096));
    assert!(
        storage.devices[0]
            .queue
            .as_ref()
            .unwrap()
            .scheduler
            .is_some()
    );
}

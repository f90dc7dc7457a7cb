//! The safety gate against real loop devices: each obstacle is refused by its own type, and
//! no byte of the disk changes.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{
    Disk, Loop, Mounted, find, mkfs_btrfs, mkfs_ext4, possible, run, skip, try_run, turn,
};
use fathom_host::refusal::{IdentityKind, Refusal};
use fathom_host::{Access, Permit, block_devices, open_for_write};

/// Opens with the right confirmation.
fn open_confirmed(path: &Path) -> Result<Permit, Refusal> {
    let real = path.canonicalize().unwrap();
    open_for_write(path, real.to_str())
}

/// The refusal for a confirmed open, after making sure that the disk is as it was.
fn refusal(disk: &Disk, path: &Path) -> Refusal {
    refusal_of(disk, || open_confirmed(path))
}

fn refusal_of(disk: &Disk, open: impl FnOnce() -> Result<Permit, Refusal>) -> Refusal {
    let before = disk.checksum();
    let refusal = open()
        .map(|p| p.path().to_path_buf())
        .expect_err("was let through");
    assert_eq!(disk.checksum(), before, "the disk changed");
    let sentence = refusal.to_string();
    assert!(
        !sentence.contains('\n') && sentence.contains(';'),
        "no remedy in: {sentence}"
    );
    refusal
}

#[test]
fn a_blank_device_with_the_right_confirmation_is_handed_over_exclusively() {
    let _turn = turn();
    if !possible(&["mkfs.ext4", "mount"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    let permit = open_confirmed(&device.path).unwrap();
    assert_eq!(permit.size_bytes(), 32 << 20);
    assert_eq!(permit.logical_block_bytes(), 512);
    assert_eq!(permit.path(), device.path);
    // While the permit lives, nobody else gets the device: no second fathom, no mount.
    let second = open_confirmed(&device.path).unwrap_err();
    assert!(matches!(second, Refusal::Busy { .. }), "{second:?}");
    // The driver opens it again its own way, and what it writes arrives.
    let direct = permit.reopen(libc::O_DIRECT).unwrap();
    drop(direct);
    permit.file().write_all_at(&[7; 4096], 8192).unwrap();
    permit.file().sync_all().unwrap();
    let mut back = [0; 4096];
    File::open(&disk.image)
        .unwrap()
        .read_exact_at(&mut back, 8192)
        .unwrap();
    assert_eq!(back, [7; 4096]);
}

#[test]
fn a_device_that_fathom_filled_with_random_bytes_is_still_blank() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(8);
    let device = Loop::of(&disk.image);
    let permit = open_confirmed(&device.path).unwrap();
    let mut noise = vec![0u8; 8 << 20];
    let mut state = 0x1234_5678_9abc_def0_u64;
    for chunk in noise.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    permit.file().write_all_at(&noise, 0).unwrap();
    permit.file().sync_all().unwrap();
    drop(permit);
    assert!(open_confirmed(&device.path).is_ok());
}

#[test]
fn without_or_with_a_wrong_confirmation_nothing_is_opened() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(8);
    let device = Loop::of(&disk.image);
    let expected = device.str().to_string();
    match refusal_of(&disk, || open_for_write(&device.path, None)) {
        Refusal::Unconfirmed {
            expected: e,
            kind: IdentityKind::FullPath,
            ..
        } => assert_eq!(e, expected),
        other => panic!("{other:?}"),
    }
    for wrong in [
        "S3R1AL",
        "",
        device.name(),
        "/dev/loop",
        &format!("{expected} "),
    ] {
        match refusal_of(&disk, || open_for_write(&device.path, Some(wrong))) {
            Refusal::WrongConfirmation { typed, .. } => assert_eq!(typed, wrong),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_link_is_followed_to_the_device_and_is_no_confirmation_itself() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    let link = disk.beside("link");
    symlink(&device.path, &link).unwrap();
    let by_link = refusal_of(&disk, || open_for_write(&link, link.to_str()));
    assert!(
        matches!(by_link, Refusal::WrongConfirmation { .. }),
        "{by_link:?}"
    );
    assert_eq!(
        open_for_write(&link, Some(device.str())).unwrap().path(),
        device.path
    );
    mkfs_ext4(device.str());
    let Ok(_mounted) = Mounted::new(device.str(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    assert!(matches!(refusal(&disk, &link), Refusal::Mounted { .. }));
}

#[test]
fn a_mounted_device_is_refused_and_the_sentence_names_the_mount_point() {
    let _turn = turn();
    if !possible(&["mkfs.ext4", "mount", "umount"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let mounted = match Mounted::new(device.str(), disk.beside("my disk"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    match refusal(&disk, &device.path) {
        Refusal::Mounted { place, at } => {
            assert_eq!(at, mounted.at);
            assert_eq!(place.relative, None);
        }
        other => panic!("{other:?}"),
    }
    drop(mounted);
    // Unmounted, its file system still protects it.
    match refusal(&disk, &device.path) {
        Refusal::Signature { what, .. } => assert_eq!(what, "ext4 file system"),
        other => panic!("{other:?}"),
    }
    run("wipefs", &["--all", "--quiet", device.str()]);
    assert!(open_confirmed(&device.path).is_ok(), "the remedy works");
}

#[test]
fn a_whole_disk_is_refused_while_one_of_its_partitions_is_mounted_and_the_other_partition_is_not() {
    let _turn = turn();
    if !possible(&["addpart", "delpart", "mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let mut device = Loop::of(&disk.image);
    let Some(first) = device.add_partition(1, 32) else {
        return;
    };
    let Some(second) = device.add_partition(40, 16) else {
        return;
    };
    mkfs_ext4(first.to_str().unwrap());
    let on_disk = refusal(&disk, &device.path);
    match &on_disk {
        Refusal::Signature { place, .. } => {
            assert!(
                place
                    .relative
                    .as_deref()
                    .unwrap()
                    .contains(first.to_str().unwrap())
            );
        }
        other => panic!("{other:?}"),
    }
    let mounted = Mounted::new(first.to_str().unwrap(), disk.beside("mnt"), &[]).unwrap();
    match refusal(&disk, &device.path) {
        Refusal::Mounted { place, at } => {
            assert_eq!(at, mounted.at);
            assert!(place.relative.unwrap().contains("its partition"));
        }
        other => panic!("{other:?}"),
    }
    let permit = open_confirmed(&second).expect("a free partition beside a mounted one");
    assert_eq!(permit.size_bytes(), 16 << 20);
}

#[test]
fn a_partition_is_refused_while_its_disk_is_mounted_or_belongs_to_something() {
    let _turn = turn();
    if !possible(&["addpart", "delpart", "mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let mut device = Loop::of(&disk.image);
    let Some(part) = device.add_partition(40, 16) else {
        return;
    };
    run("mkfs.ext4", &["-q", "-F", device.str(), "32m"]);
    match refusal(&disk, &part) {
        Refusal::Signature { place, .. } => assert!(place.relative.unwrap().contains("its disk")),
        other => panic!("{other:?}"),
    }
    match Mounted::new(device.str(), disk.beside("mnt"), &[]) {
        Ok(_mounted) => match refusal(&disk, &part) {
            Refusal::Mounted { place, .. } => assert!(place.relative.unwrap().contains("its disk")),
            other => panic!("{other:?}"),
        },
        Err(e) => skip(&format!("a disk with partitions cannot be mounted: {e}")),
    }
}

#[test]
fn a_partition_table_protects_the_disk_but_not_its_free_partitions() {
    let _turn = turn();
    if !possible(&["addpart", "delpart", "sfdisk"]) {
        return;
    }
    let disk = Disk::new(64);
    make_gpt(&disk);
    let mut device = Loop::of(&disk.image);
    match refusal(&disk, &device.path) {
        Refusal::Signature { what, .. } => assert!(what.contains("partition table"), "{what}"),
        other => panic!("{other:?}"),
    }
    let Some(part) = device.add_partition(1, 32) else {
        return;
    };
    assert!(open_confirmed(&part).is_ok());
}

fn make_gpt(disk: &Disk) {
    let mut child = Command::new(find("sfdisk").unwrap())
        .args(["--quiet", disk.image_str()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"label: gpt\n,32M\n")
        .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn swap_in_use_is_refused() {
    let _turn = turn();
    if !possible(&["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    run("mkswap", &["-q", device.str()]);
    if let Err(e) = try_run("swapon", &[device.str()]) {
        return skip(&format!("swap cannot be switched on: {e}"));
    }
    let refused = std::panic::catch_unwind(|| refusal(&disk, &device.path));
    run("swapoff", &[device.str()]);
    match refused.unwrap() {
        Refusal::Swap { swap, .. } => assert_eq!(swap, device.path),
        other => panic!("{other:?}"),
    }
    match refusal(&disk, &device.path) {
        Refusal::Signature { what, .. } => assert_eq!(what, "swap area"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_btrfs_member_is_refused_although_another_device_is_the_one_that_is_mounted() {
    let _turn = turn();
    if !possible(&["mkfs.btrfs"]) {
        return;
    }
    let (one, two) = (Disk::new(128), Disk::new(128));
    let (first, second) = (Loop::of(&one.image), Loop::of(&two.image));
    mkfs_btrfs("single", [&first, &second]);
    let mounted = match Mounted::new(first.str(), one.beside("mnt"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("btrfs cannot be mounted: {e}")),
    };
    assert!(matches!(
        refusal(&one, &first.path),
        Refusal::Mounted { .. }
    ));
    match refusal(&two, &second.path) {
        Refusal::ActiveFileSystem { fs_type, .. } => assert_eq!(fs_type, "btrfs"),
        other => panic!("{other:?}"),
    }
    drop(mounted);
    assert!(matches!(
        refusal(&two, &second.path),
        Refusal::Signature { .. }
    ));
}

#[test]
fn a_device_mounted_in_another_mount_namespace_is_refused() {
    let _turn = turn();
    if !possible(&["mkfs.ext4", "unshare"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let at = disk.beside("mnt");
    std::fs::create_dir(&at).unwrap();
    let script = format!(
        "mount {} {} && echo mounted && read line",
        device.str(),
        at.display()
    );
    let mut child = Command::new(find("unshare").unwrap())
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let refused = (line.trim() == "mounted")
        .then(|| std::panic::catch_unwind(|| refusal(&disk, &device.path)));
    drop(child.stdin.take());
    child.wait().unwrap();
    match refused {
        None => skip("no mount namespace can be made"),
        Some(refused) => match refused.unwrap() {
            Refusal::MountedElsewhere {
                at: told, process, ..
            } => {
                assert_eq!(told, at);
                assert_eq!(process, child.id());
            }
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn a_read_only_device_is_refused() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(8);
    let device = Loop::with(&disk.image, &["--read-only"]);
    assert!(matches!(
        refusal(&disk, &device.path),
        Refusal::ReadOnly { .. }
    ));
}

#[test]
fn a_loop_device_on_a_device_holds_it() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    let lower = Loop::of(&disk.image);
    let upper = Loop::of(&lower.path);
    match refusal(&disk, &lower.path) {
        Refusal::Held { holder, .. } => assert_eq!(holder, upper.name()),
        other => panic!("{other:?}"),
    }
    assert!(open_confirmed(&upper.path).is_ok(), "the upper one is free");
    mkfs_ext4(lower.str());
    let Ok(_mounted) = Mounted::new(lower.str(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    match refusal(&disk, &upper.path) {
        Refusal::Mounted { place, .. } => {
            assert!(place.relative.unwrap().contains("the device behind it"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_loop_devices_of_one_file_are_known_to_be_the_same_bytes() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    // The second half of the file is free, but its loop device shares no bytes only by luck.
    let first = Loop::with(&disk.image, &["--sizelimit", "33554432"]);
    let second = Loop::with(&disk.image, &["--offset", "33554432"]);
    mkfs_ext4(first.str());
    let Ok(_mounted) = Mounted::new(first.str(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    match refusal(&disk, &second.path) {
        Refusal::Mounted { place, .. } => {
            assert!(
                place
                    .relative
                    .unwrap()
                    .contains("another name for the same bytes")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_held_by_device_mapper_is_refused() {
    let _turn = turn();
    if !possible(&["dmsetup"]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let name = format!("fathom-test-{}", std::process::id());
    let table = format!("0 32768 linear {} 0", device.str());
    if let Err(e) = try_run("dmsetup", &["create", &name, "--table", &table]) {
        return skip(&format!(
            "this kernel has no device-mapper ({}); a described machine stands in for it",
            e.lines().next().unwrap_or_default()
        ));
    }
    let refused = std::panic::catch_unwind(|| refusal(&disk, &device.path));
    run("dmsetup", &["remove", &name]);
    match refused.unwrap() {
        Refusal::Held { kind, .. } => assert!(kind.contains(&name), "{kind}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_that_some_program_has_claimed_is_refused() {
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    use std::os::unix::fs::OpenOptionsExt;
    let disk = Disk::new(8);
    let device = Loop::of(&disk.image);
    let _claim = File::options()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&device.path)
        .unwrap();
    assert!(matches!(refusal(&disk, &device.path), Refusal::Busy { .. }));
}

#[test]
fn what_a_child_has_until_it_runs_is_waited_for_and_what_it_keeps_is_refused() {
    use std::os::unix::process::CommandExt;
    let _turn = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    let held = File::options().write(true).open(&device.path).unwrap();
    // Descriptors that close on exec are the child's, too, until it runs its program.
    let mut late = Command::new("true");
    // SAFETY: sleeps between fork and exec; nothing is allocated or locked.
    unsafe {
        late.pre_exec(|| {
            libc::usleep(150_000);
            Ok(())
        });
    }
    let started = std::thread::spawn(move || late.status().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(held);
    drop(open_confirmed(&device.path).unwrap());
    started.join().unwrap();
    // One that keeps it.
    let keeps = File::options().write(true).open(&device.path).unwrap();
    let mut child = Command::new("sleep")
        .arg("60")
        .stdout(Stdio::from(keeps))
        .spawn()
        .unwrap();
    let said = refusal(&disk, &device.path).to_string();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("open for writing by process"), "{said}");
}

#[test]
fn what_is_no_block_device_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    for (path, found) in [
        (dir.path(), "a directory"),
        (&file, "a regular file"),
        (Path::new("/dev/null"), "a character device"),
    ] {
        match open_for_write(path, path.to_str()).unwrap_err() {
            Refusal::NotBlockDevice { found: f, .. } => assert_eq!(f, found),
            other => panic!("{other:?}"),
        }
    }
    let missing = dir.path().join("missing");
    assert!(matches!(
        open_for_write(&missing, None).unwrap_err(),
        Refusal::Missing { .. }
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn the_list_of_devices_gives_the_same_verdict_as_the_gate() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let (free, used) = (Disk::new(8), Disk::new(32));
    let (free_loop, used_loop) = (Loop::of(&free.image), Loop::of(&used.image));
    run("mkfs.ext4", &["-q", "-F", "-L", "mine", used_loop.str()]);
    let before = (free.checksum(), used.checksum());
    let devices = block_devices().unwrap();
    assert_eq!((free.checksum(), used.checksum()), before);
    let find = |l: &Loop| devices.iter().find(|d| d.path == l.path).unwrap();
    let confirm = Access::Confirm {
        destroy: free_loop.str().to_string(),
    };
    assert_eq!(find(&free_loop).verdict.write, confirm);
    assert_eq!(find(&free_loop).size_bytes, 8 << 20);
    let used_device = find(&used_loop);
    let words: Vec<String> = used_device.uses.iter().map(ToString::to_string).collect();
    assert!(words.contains(&"ext4 \"mine\"".to_string()), "{words:?}");
    assert!(used_device.verdict.read.is_possible());
    match &used_device.verdict.write {
        Access::Refused { refusal, message } => {
            assert!(matches!(**refusal, Refusal::Signature { .. }));
            assert!(message.contains("wipefs"));
        }
        other => panic!("{other:?}"),
    }
}

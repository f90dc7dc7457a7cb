//! Scratch files come and go without a trace, are refused where they would hurt, and are
//! found again after a kill.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Disk, Loop, Mounted, mkfs_ext4, possible, run, skip, turn};
use fathom_host::refusal::Refusal;
use fathom_host::scratch::PREFIX;
use fathom_host::{Leftover, Scratch, leftovers, may_overwrite, remove_leftover};
use rustix::fs::FlockOperation;

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_scratch_file_has_its_size_its_name_and_its_mark_and_goes_when_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = Scratch::create(dir.path(), 1 << 20).unwrap();
    let name = scratch.path().file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with(&format!("{PREFIX}{}-", std::process::id())),
        "{name}"
    );
    assert_eq!(fs::metadata(scratch.path()).unwrap().len(), 1 << 20);
    assert_eq!(may_overwrite(scratch.path()), scratch.is_marked());
    scratch.file().write_all_at(b"data", 4096).unwrap();
    let mut back = [0; 4];
    scratch
        .reopen(0)
        .unwrap()
        .read_exact_at(&mut back, 4096)
        .unwrap();
    assert_eq!(&back, b"data");
    drop(scratch);
    assert_eq!(entries(dir.path()), [] as [&str; 0]);
}

#[test]
fn removing_says_so_and_two_scratch_files_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let one = Scratch::create(dir.path(), 4096).unwrap();
    let two = Scratch::create(dir.path(), 4096).unwrap();
    assert_ne!(one.path(), two.path());
    one.remove().unwrap();
    assert_eq!(entries(dir.path()).len(), 1);
    two.remove().unwrap();
    assert_eq!(entries(dir.path()).len(), 0);
}

#[test]
fn a_scratch_file_that_was_replaced_by_something_else_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = Scratch::create(dir.path(), 4096).unwrap();
    let path = scratch.path().to_path_buf();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "somebody else's").unwrap();
    drop(scratch);
    assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
}

#[test]
fn a_file_in_use_is_no_leftover() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = Scratch::create(dir.path(), 4096).unwrap();
    assert_eq!(leftovers(dir.path()).unwrap(), []);
    let claimed = Leftover {
        path: scratch.path().to_path_buf(),
        pid: 1,
        size_bytes: 4096,
        age: Duration::ZERO,
    };
    let refused = remove_leftover(&claimed).unwrap_err();
    assert!(matches!(refused, Refusal::FileInUse { .. }), "{refused:?}");
    assert!(scratch.path().exists());
}

/// The child of the next test: makes a scratch file and waits to be killed.
#[test]
#[ignore = "only run by another test, as a process to be killed"]
fn child_that_is_killed() {
    let dir = std::env::var("FATHOM_TEST_SCRATCH_DIR").unwrap();
    let scratch = Scratch::create(Path::new(&dir), 1 << 20).unwrap();
    println!("\nmade {}", scratch.path().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn after_sigkill_a_later_run_finds_the_leftover_and_can_remove_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "child_that_is_killed",
        ])
        .env("FATHOM_TEST_SCRATCH_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let made = lines
        .find_map(|l| l.unwrap().strip_prefix("made ").map(str::to_string))
        .unwrap();
    assert_eq!(leftovers(dir.path()).unwrap(), [], "it is alive");
    child.kill().unwrap();
    child.wait().unwrap();

    // Its I/O may hold the lock for a while longer; without marks nobody knows that it is gone.
    let held = fs::File::open(&made).unwrap();
    let mut mark = [0u8; 256];
    let marked = rustix::fs::fgetxattr(&held, "user.fathom.made", &mut mark[..]).is_ok();
    let long = Duration::from_millis(if marked { 300 } else { 0 });
    rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let found = std::thread::scope(|scope| {
        let until = scope.spawn(move || {
            std::thread::sleep(long);
            drop(held);
        });
        if !marked {
            until.join().unwrap();
        }
        leftovers(dir.path()).unwrap()
    });
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, Path::new(&made));
    assert_eq!((found[0].pid, found[0].size_bytes), (child.id(), 1 << 20));
    assert!(found[0].age < Duration::from_secs(60));
    remove_leftover(&found[0]).unwrap();
    assert_eq!(entries(dir.path()).len(), 0);
}

/// Locks may be local to each host of a shared file system: only the mark says that somebody else may be using a file.
#[test]
fn a_file_of_another_host_is_no_leftover_until_it_is_a_day_old() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let scratch = Scratch::create(dir.path(), 1 << 20).unwrap();
    let mark = "user.fathom.made";
    let mut text = [0u8; 256];
    let Ok(n) = rustix::fs::fgetxattr(scratch.file(), mark, &mut text[..]) else {
        return skip("no user attributes here");
    };
    let text = String::from_utf8_lossy(&text[..n]).into_owned();
    let (before, host) = text.split_once(" host=").expect("the mark names its host");
    assert_eq!(host.len(), 16, "{text}");
    let path = dir.path().join(".fathom-scratch-12-0123abcd");
    let make = |host: &str, hours: u64| {
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let text = format!("{before} host={host}");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::fsetxattr(&file, mark, text.as_bytes(), flags).unwrap();
        let then = std::time::SystemTime::now() - Duration::from_secs(hours * 3600);
        file.set_modified(then).unwrap();
        leftovers(dir.path()).unwrap().len()
    };
    assert_eq!(make(host, 0), 1, "this host's own");
    assert_eq!(make("0123456789abcdef", 0), 0, "it may be in use there");
    assert_eq!(make("0123456789abcdef", 23), 0);
    assert_eq!(make("0123456789abcdef", 25), 1);
    remove_leftover(&leftovers(dir.path()).unwrap()[0]).unwrap();
}

#[test]
fn files_that_only_look_like_leftovers_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    fs::write(&precious, "data").unwrap();
    let alike = dir.path().join(".fathom-scratch-12-0123abcd");
    fs::write(&alike, "no mark").unwrap();
    symlink(&precious, dir.path().join(".fathom-scratch-13-0123abcd")).unwrap();
    fs::create_dir(dir.path().join(".fathom-scratch-14-0123abcd")).unwrap();
    let made = dir.path().join("made-by-fathom");
    fathom_host::create_file(&made).unwrap();
    symlink(&made, dir.path().join(".fathom-scratch-15-0123abcd")).unwrap();
    for name in [
        ".fathom-scratch-",
        ".fathom-scratch-x-0123abcd",
        ".fathom-scratch-1-xyz",
        ".fathom-scratch",
    ] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let before = entries(dir.path());
    assert_eq!(leftovers(dir.path()).unwrap(), []);
    for path in [
        &alike,
        &precious,
        &dir.path().join(".fathom-scratch-13-0123abcd"),
    ] {
        let claimed = Leftover {
            path: path.clone(),
            pid: 12,
            size_bytes: 0,
            age: Duration::ZERO,
        };
        assert!(remove_leftover(&claimed).is_err(), "{}", path.display());
    }
    assert_eq!(entries(dir.path()), before);
}

#[test]
fn a_directory_that_is_missing_or_a_file_or_a_size_of_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let refusal = |dir: &Path, size| Scratch::create(dir, size).unwrap_err();
    assert!(matches!(
        refusal(&dir.path().join("no"), 4096),
        Refusal::Missing { .. }
    ));
    assert!(matches!(refusal(&file, 4096), Refusal::NotDirectory { .. }));
    assert!(matches!(refusal(dir.path(), 0), Refusal::Empty { .. }));
    assert_eq!(entries(dir.path()), ["file"]);
}

#[test]
fn an_absurd_size_is_refused_with_what_would_fit_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for size in [1 << 60, u64::MAX] {
        match Scratch::create(dir.path(), size).unwrap_err() {
            Refusal::NoSpace {
                fits_bytes,
                asked_bytes,
                ..
            } => {
                assert!(fits_bytes < asked_bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(entries(dir.path()).len(), 0);
}

#[test]
fn a_disk_that_would_get_nearly_full_is_refused_and_what_is_said_to_fit_does_fit() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let Ok(mounted) = Mounted::new(device.str(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    let before = (entries(&mounted.at), disk.checksum());
    let fits = match Scratch::create(&mounted.at, 60 << 20).unwrap_err() {
        Refusal::NoSpace {
            fits_bytes,
            free_bytes,
            total_bytes,
            ..
        } => {
            // As `df` counts: the blocks that ext4 keeps for root are in neither sum.
            let vfs = rustix::fs::statvfs(&mounted.at).unwrap();
            let used = (vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
            assert!(used + free_bytes <= total_bytes);
            assert!(
                free_bytes - fits_bytes >= (used + free_bytes) / 20,
                "a twentieth of what may be used stays free"
            );
            fits_bytes
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (entries(&mounted.at), disk.checksum()),
        before,
        "a refusal leaves nothing"
    );
    let sentence = Scratch::create(&mounted.at, 60 << 20)
        .unwrap_err()
        .to_string();
    assert!(
        sentence.contains("room for") && sentence.contains("not for 60 MiB"),
        "{sentence}"
    );
    let scratch = Scratch::create(&mounted.at, fits & !4095).unwrap();
    assert!(scratch.is_reserved());
    // Whoever fills the rest makes the next request fail, not this one.
    scratch
        .file()
        .write_all_at(&vec![1; fits as usize & !4095], 0)
        .unwrap();
    scratch.remove().unwrap();
    // A disk that others have filled: nothing fits.
    run(
        "fallocate",
        &["--length", "40M", mounted.at.join("full").to_str().unwrap()],
    );
    assert!(matches!(
        Scratch::create(&mounted.at, 20 << 20),
        Err(Refusal::NoSpace { .. })
    ));
}

#[test]
fn a_read_only_file_system_is_refused() {
    let _turn = turn();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let Ok(mounted) = Mounted::new(device.str(), disk.beside("mnt"), &["-o", "ro"]) else {
        return skip("ext4 cannot be mounted");
    };
    let before = disk.checksum();
    let refused = Scratch::create(&mounted.at, 4096).unwrap_err();
    assert!(matches!(refused, Refusal::ReadOnly { .. }), "{refused:?}");
    assert_eq!(disk.checksum(), before);
}

#[test]
fn a_file_system_without_xattrs_or_unnamed_files_gets_an_unmarked_scratch_file_that_still_goes() {
    let _turn = turn();
    if !possible(&["mkfs.vfat", "mkfs.ntfs"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    run("mkfs.vfat", &[device.str()]);
    let fat = Mounted::new(device.str(), disk.beside("fat"), &[]);
    let mounted = fat.or_else(|_| {
        // No FAT in this kernel: NTFS through FUSE has the same two gaps.
        run("mkfs.ntfs", &["-q", "-F", "-f", device.str()]);
        let at = disk.beside("ntfs");
        Mounted::new(
            device.str(),
            at,
            &["-t", "ntfs-3g", "-o", "streams_interface=none"],
        )
    });
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("neither vfat nor ntfs-3g can be mounted: {e}")),
    };
    let scratch = Scratch::create(&mounted.at, 1 << 20).unwrap();
    assert!(!scratch.is_marked());
    assert_eq!(leftovers(&mounted.at).unwrap(), []);
    scratch.remove().unwrap();
    assert_eq!(entries(&mounted.at).len(), 0);
}

#[test]
fn xattrs_switched_off_are_told_by_the_type() {
    // ramfs has no user xattrs and no limit on its size, and every kernel has it.
    let _turn = turn();
    if !possible(&["mount"]) {
        return;
    }
    let disk = Disk::new(1);
    let Ok(mounted) = Mounted::new("none", disk.beside("ram"), &["-t", "ramfs"]) else {
        return skip("ramfs cannot be mounted");
    };
    let path = mounted.at.join("file");
    let made = fathom_host::create_file(&path).unwrap();
    let file = File::open(&path).unwrap();
    let provenance = fathom_host::mark::provenance(&file).unwrap();
    assert_eq!(
        made.marked,
        matches!(provenance, fathom_host::Provenance::Fathom(_))
    );
    if !made.marked {
        assert_eq!(provenance, fathom_host::Provenance::Unmarkable);
        assert!(!may_overwrite(&path), "doubt is no permission");
    }
}

#[test]
fn a_directory_without_permission_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    if rustix::process::geteuid().is_root() {
        // Root may do everything, so a user who may not asks instead.
        let exe = dir.path().join("test-program");
        // Copied by another process: a descriptor for writing, inherited by a child of another
        // test, would make the program "busy".
        let me = std::env::current_exe().unwrap();
        run("cp", &[me.to_str().unwrap(), exe.to_str().unwrap()]);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&exe, fs::Permissions::from_mode(0o755)).unwrap();
        let Some(setpriv) = common::find("setpriv") else {
            return skip("needs the program setpriv");
        };
        let status = Command::new(setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&exe)
            .args(["--exact", "a_directory_without_permission_is_refused"])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let refused = Scratch::create(dir.path(), 4096).unwrap_err();
    assert!(matches!(refused, Refusal::Permission { .. }), "{refused:?}");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

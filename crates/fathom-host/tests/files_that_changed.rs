//! A mark speaks of a file as fathom left it: what somebody has put there since is theirs.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Disk, Loop, Mounted, possible, run, skip, turn};
use fathom_host::mark::ATTRIBUTE;
use fathom_host::refusal::Refusal;
use fathom_host::{
    FilePermit, Leftover, Scratch, create_file, leftovers, may_overwrite, open_file_for_write,
    remove_leftover,
};
use rustix::fs::{CWD, RenameFlags, XattrFlags};

const SIZE: usize = 8192;

/// A file that fathom made, wrote and gave back; `None` where there are no marks.
fn made(dir: &Path) -> Option<std::path::PathBuf> {
    let path = dir.join("made");
    let mut permit = create_file(&path).unwrap();
    permit.sized(SIZE as u64);
    permit.file.write_all_at(&[7; SIZE], 0).unwrap();
    if !permit.marked {
        skip("the directory for temporary files has no user xattrs");
        return None;
    }
    Some(path)
}

/// Why a file is refused; it is as it was afterwards.
fn why(path: &Path) -> String {
    let before = fs::read(path).unwrap();
    assert!(!may_overwrite(path));
    let refusal = open_file_for_write(path).expect_err("was let through");
    assert_eq!(fs::read(path).unwrap(), before, "the file changed");
    let sentence = refusal.to_string();
    match refusal {
        Refusal::ChangedFile { why, mark, .. } => {
            let path = path.display();
            assert!(sentence.contains("; remove it, or"), "{sentence}");
            let give = format!("setfattr -n {ATTRIBUTE} -v '{mark}' {path}");
            assert!(sentence.ends_with(&give), "{sentence}");
            why
        }
        other => panic!("{other:?}"),
    }
}

/// Does what the refusal says for whoever is sure.
fn give(path: &Path) {
    let Err(Refusal::ChangedFile { mark, .. }) = open_file_for_write(path) else {
        panic!("not refused");
    };
    rustix::fs::setxattr(path, ATTRIBUTE, mark.as_bytes(), XattrFlags::empty()).unwrap();
}

#[test]
fn a_file_that_changed_since_is_the_users() {
    type Change = fn(&Path);
    let in_place: Change = |path| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"SQLite format 3\0", 0).unwrap();
    };
    let changes: [(&str, Change); 6] = [
        ("a database in place", in_place),
        ("cp backup.tar FILE", |path| {
            let backup = path.with_file_name("backup.tar");
            fs::write(&backup, [9; SIZE]).unwrap();
            run("cp", &[backup.to_str().unwrap(), path.to_str().unwrap()]);
        }),
        ("more at its end", |path| {
            let mut file = File::options().append(true).open(path).unwrap();
            file.write_all(b"more").unwrap();
        }),
        ("less", |path| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(100).unwrap();
        }),
        ("a copy that keeps its time", |path| {
            let backup = path.with_file_name("backup.tar");
            fs::write(&backup, [9; SIZE]).unwrap();
            run(
                "cp",
                &["-p", backup.to_str().unwrap(), path.to_str().unwrap()],
            );
        }),
        ("touch", |path| {
            run("touch", &[path.to_str().unwrap()]);
        }),
    ];
    for (what, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = made(dir.path()) else { return };
        assert!(may_overwrite(&path), "{what}");
        change(&path);
        let why = why(&path);
        assert!(why.contains("fathom left it"), "{what}: {why}");
        // What is given is given as it is now, and only so.
        give(&path);
        assert!(open_file_for_write(&path).is_ok(), "{what}");
        in_place(&path);
        self::why(&path);
    }
}

#[test]
fn a_change_right_after_fathom_left_a_file_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    for _ in 0..100 {
        open_file_for_write(&path).unwrap();
        // Within the same tick of the kernel's clock more often than not.
        fs::write(&path, [1; SIZE]).unwrap();
        assert!(!may_overwrite(&path));
        give(&path);
    }
}

#[test]
fn a_change_is_seen_where_times_are_whole_seconds() {
    let _turn = turn();
    if !possible(&["mkfs.ext4", "mount"]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    run("mkfs.ext4", &["-q", "-F", "-I", "128", device.str()]);
    let Ok(mounted) = Mounted::new(device.str(), disk.beside("mnt"), &[]) else {
        return skip("ext4 cannot be mounted");
    };
    let Some(path) = made(&mounted.at) else {
        return;
    };
    for _ in 0..5 {
        open_file_for_write(&path).unwrap();
        fs::write(&path, [1; SIZE]).unwrap();
        assert!(!may_overwrite(&path));
        give(&path);
    }
}

#[test]
fn what_does_not_change_a_file_does_not_take_it_from_fathom() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    fs::read(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let other = dir.path().join("other");
    fs::hard_link(&path, dir.path().join("link")).unwrap();
    fs::rename(&path, &other).unwrap();
    for n in 0..3u8 {
        let permit = open_file_for_write(&other).unwrap();
        permit.file.write_all_at(&[n], 0).unwrap();
    }
    // Written through a mapping, which is noted at its own time.
    let permit = open_file_for_write(&other).unwrap();
    write_mapped(&permit.file);
    drop(permit);
    assert_eq!(fs::read(&other).unwrap()[..4], [5; 4]);
    assert!(may_overwrite(&other));
}

fn write_mapped(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: a fresh mapping of a file that has these bytes and stays as long as it.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<[u8; 4]>().write([5; 4]);
        libc::munmap(at, SIZE);
    }
}

#[test]
fn a_mark_without_size_and_time_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    for old in [
        "fathom 0.1.0 2026-01-01T00:00:00Z",
        "fathom 0.1.0 2026-01-01T00:00:00Z size=8192",
        "fathom run=1:1:boot",
        "fathom run=",
    ] {
        rustix::fs::setxattr(&path, ATTRIBUTE, old.as_bytes(), XattrFlags::empty()).unwrap();
        why(&path);
    }
    give(&path);
    assert!(open_file_for_write(&path).is_ok());
}

/// The child of the next test: writes to a file of its own and waits to be killed.
#[test]
#[ignore = "only run by another test, as a process to be killed"]
fn child_that_is_killed() {
    let dir = std::env::var("FATHOM_TEST_DIR").unwrap();
    let dir = Path::new(&dir);
    let permit = create_file(&dir.join("made")).unwrap();
    permit.file.write_all_at(&[7; SIZE], 0).unwrap();
    let scratch = Scratch::create(dir, SIZE as u64).unwrap();
    println!("\nready");
    std::thread::sleep(Duration::from_secs(60));
    drop((permit, scratch));
}

/// What a run that was killed in the middle leaves: its file, and its scratch file.
fn killed(dir: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "child_that_is_killed",
        ])
        .env("FATHOM_TEST_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "ready"));
    let path = dir.join("made");
    let is_marked = rustix::fs::getxattr(&path, ATTRIBUTE, &mut [0u8; 256][..]).is_ok();
    assert_eq!(may_overwrite(&path), is_marked, "its run is alive");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_file_of_a_killed_run_is_not_overwritten_until_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    fs::remove_file(&path).unwrap();
    killed(dir.path());
    assert!(why(&path).contains("did not end properly"));
    give(&path);
    assert!(open_file_for_write(&path).is_ok());
    // With a copy of something after the kill, or after it was given, it is refused as before.
    fs::remove_file(&path).unwrap();
    killed(dir.path());
    fs::write(&path, "years of work").unwrap();
    assert!(why(&path).contains("did not end properly"));
    give(&path);
    fs::write(&path, "years of play").unwrap();
    why(&path);
}

#[test]
fn a_leftover_that_became_something_else_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    fs::remove_file(path).unwrap();
    killed(dir.path());
    let found = leftovers(dir.path()).unwrap();
    let [leftover] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(!may_overwrite(&leftover.path));
    for content in [vec![1; SIZE + 1], vec![1; SIZE - 1]] {
        fs::write(&leftover.path, &content).unwrap();
        assert_eq!(leftovers(dir.path()).unwrap(), []);
        let refused = remove_leftover(leftover).unwrap_err();
        assert!(matches!(refused, Refusal::FileInUse { .. }), "{refused:?}");
        assert_eq!(fs::read(&leftover.path).unwrap(), content);
    }
    // A file of fathom's that only has such a name.
    let alike = dir.path().join(".fathom-scratch-1-0123abcd");
    fs::rename(dir.path().join("made"), &alike).unwrap();
    let claimed = Leftover {
        path: alike.clone(),
        ..leftover.clone()
    };
    assert!(remove_leftover(&claimed).is_err() && alike.exists());
    File::create(&leftover.path).unwrap();
    remove_leftover(leftover).expect("an empty one holds nothing");
}

#[test]
fn two_runs_at_one_file_leave_it_to_fathom_when_both_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    let open = || -> FilePermit { open_file_for_write(&path).unwrap() };
    let (one, two) = (open(), open());
    two.file.write_all_at(b"two", 0).unwrap();
    drop(two);
    one.file.write_all_at(b"one", 4096).unwrap();
    drop(one);
    assert!(may_overwrite(&path));
}

#[test]
fn a_file_that_somebody_replaced_during_the_run_is_theirs_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    for bytes in [0, SIZE * 3] {
        let permit = open_file_for_write(&path).unwrap();
        fs::write(&path, vec![3; bytes]).unwrap();
        drop(permit);
        why(&path);
        give(&path);
    }
}

#[test]
fn a_file_that_a_program_has_locked_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    let theirs = File::open(&path).unwrap();
    rustix::fs::flock(&theirs, rustix::fs::FlockOperation::LockExclusive).unwrap();
    match open_file_for_write(&path).unwrap_err() {
        Refusal::FileInUse { used, .. } => assert!(used.contains("locked"), "{used}"),
        other => panic!("{other:?}"),
    }
    drop(theirs);
    assert!(open_file_for_write(&path).is_ok());
}

#[test]
fn a_pipe_or_a_device_is_no_file_of_fathoms_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    run("mkfifo", &[pipe.to_str().unwrap()]);
    for path in [&pipe, Path::new("/dev/null"), dir.path()] {
        assert!(!may_overwrite(path));
        let refused = open_file_for_write(path).unwrap_err();
        assert!(matches!(refused, Refusal::NotRegularFile { .. }));
    }
}

#[test]
fn what_takes_the_name_while_a_file_is_opened_is_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(dir.path()) else { return };
    let theirs = dir.path().join("theirs");
    let content = vec![0xaa; SIZE];
    fs::write(&theirs, &content).unwrap();
    let is_theirs = |path: &Path| fs::read(path).unwrap() == content;
    let stop = AtomicBool::new(false);
    let (mut written, mut refused, mut swaps) = (0, 0, 0);
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut swaps = 0;
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &path, CWD, &theirs, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        });
        let until = std::time::SystemTime::now() + Duration::from_millis(1000);
        while std::time::SystemTime::now() < until {
            match open_file_for_write(&path) {
                Ok(permit) => {
                    permit.file.write_all_at(&[0x55; SIZE], 0).unwrap();
                    written += 1;
                }
                Err(Refusal::ForeignFile { .. } | Refusal::Changed { .. }) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        swaps = swapper.join().unwrap();
    });
    println!("{swaps} exchanges, {written} times written, {refused} times refused");
    assert!(written > 0 && refused > 0 && swaps > 1000);
    assert!(
        is_theirs(&path) != is_theirs(&theirs),
        "their bytes are lost"
    );
}

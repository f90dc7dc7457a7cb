//! Labs that are killed in the middle: what they mounted and made goes, by their keeper or by `fathom clean`.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::common::{Place, alone, skip};

/// Directory of the mount that this process works in; none where it has none yet. The first one, 0, it only looks at.
fn mount_of(pid: u32) -> Option<String> {
    let wanted = format!("/fathom-mount-{pid}-1");
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let dirs = mounts.lines().filter_map(|l| l.split(' ').nth(1));
    dirs.filter(|d| d.ends_with(&wanted))
        .map(str::to_owned)
        .next()
}

/// Loop devices over files in a directory.
fn loops_over(dir: &Path) -> usize {
    let dir = dir.display().to_string();
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    devices
        .filter_map(|d| fs::read_to_string(d.path().join("loop/backing_file")).ok())
        .filter(|f| f.contains(&dir))
        .count()
}

/// The process that watches over another one.
fn keeper_of(pid: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|p| fs::read_to_string(p.path().join("stat")).ok());
    stats
        .filter(|s| s.contains("(fathom-keeper)"))
        .find_map(|s| {
            let (number, rest) = s.split_once(" (fathom-keeper) ")?;
            let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
            (parent == pid).then(|| number.parse().ok())?
        })
}

fn within(seconds: u32, mut what: impl FnMut() -> bool) -> bool {
    (0..seconds * 20).any(|_| {
        let done = what();
        if !done {
            std::thread::sleep(Duration::from_millis(50));
        }
        done
    })
}

/// A lab in the middle of its work; `None`, said aloud, where this machine cannot run it.
fn begun(place: &Place) -> Option<Child> {
    let args = [
        "raid",
        ".",
        "--backend",
        "btrfs",
        "--levels",
        "1",
        "--members",
        "2",
        "--size",
        "128m",
        "--rw",
        "randread",
        "--only",
        "direct",
        "--small",
        "0",
        "--time",
        "60s",
    ];
    let mut child = place.start(&args);
    let pid = child.id();
    let mounted = within(60, || {
        mount_of(pid).is_some() || !Path::new(&format!("/proc/{pid}/fd/0")).exists()
    });
    if mounted && mount_of(pid).is_some() {
        return Some(child);
    }
    let _ = child.kill();
    let said = child.wait_with_output().unwrap();
    skip(String::from_utf8_lossy(&said.stderr).trim());
    None
}

#[test]
fn a_killed_lab_leaves_no_mount_and_its_files_are_found() {
    let _turn = alone();
    let place = Place::new();
    let Some(mut lab) = begun(&place) else {
        return;
    };
    let pid = lab.id();
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(
        within(10, || mount_of(pid).is_none()),
        "its keeper unmounts"
    );
    assert!(
        within(10, || loops_over(&place.dir) == 0),
        "loop devices go"
    );
    assert_eq!(place.names().len(), 2, "{:?}", place.names());
    // The kernel lets go of a file, and of its lock, a moment after its loop device is gone.
    let mut said = String::new();
    let clean = within(10, || {
        said += &place.fathom(&["clean", "."]).expect(0).stdout;
        place.names().is_empty()
    });
    assert!(clean && said.matches("removed ").count() == 2, "{said}");
}

#[test]
fn what_a_lab_killed_with_its_keeper_leaves_is_cleaned() {
    let _turn = alone();
    let place = Place::new();
    let Some(mut lab) = begun(&place) else {
        return;
    };
    let pid = lab.id();
    let keeper = keeper_of(pid).expect("somebody watches over the mount");
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &keeper.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    lab.kill().unwrap();
    lab.wait().unwrap();
    let dir = mount_of(pid).expect("nobody is there to unmount it");
    let said = place.fathom(&["clean", ".", "--dry-run"]).expect(0).stdout;
    assert!(
        said.contains(&format!("would remove mount {dir}")),
        "{said}"
    );
    let said = place.fathom(&["clean", "."]).expect(0).stdout;
    assert!(said.contains(&format!("removed mount {dir}")), "{said}");
    assert!(mount_of(pid).is_none() && !Path::new(&dir).exists());
    assert!(
        within(10, || loops_over(&place.dir) == 0),
        "loop devices go"
    );
    // They held the files in use a moment ago.
    let clean = within(10, || {
        place.fathom(&["clean", "."]).expect(0);
        place.names().is_empty()
    });
    assert!(clean, "{:?}", place.names());
}

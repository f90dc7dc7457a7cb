//! Labs that are killed in the middle: what they mounted and made goes, by their keeper or by `fathom clean`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::common::machine::{Disk, Loop, possible, try_run, turn};
use crate::common::{Place, alone, beside_others, skip};

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
fn begun(place: &Place, backend: &str) -> Option<Child> {
    let args = [
        "raid",
        ".",
        "--backend",
        backend,
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

/// Pools of ZFS.
fn pools() -> String {
    try_run("zpool", &["list", "-H", "-o", "name"]).unwrap_or_default()
}

#[test]
fn a_killed_lab_leaves_no_mount_and_its_files_are_found() {
    killed_alone("btrfs");
}

#[test]
fn a_killed_lab_leaves_no_pool() {
    killed_alone("zfs");
}

fn killed_alone(backend: &str) {
    let _turn = alone();
    let place = Place::new();
    let Some(mut lab) = begun(&place, backend) else {
        return;
    };
    let pid = lab.id();
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(
        within(10, || mount_of(pid).is_none()),
        "its keeper unmounts"
    );
    let pool = format!("fathom_{pid}");
    assert!(within(10, || !pools().contains(&pool)), "it destroys");
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
    killed_with_its_keeper("btrfs", |dir, _| format!("mount {dir}"));
}

#[test]
fn a_pool_of_a_lab_killed_with_its_keeper_is_cleaned() {
    killed_with_its_keeper("zfs", |_, pid| format!("pool fathom_{pid}"));
}

/// `left` is what nobody is there to undo, of a mount's directory and the number of the process.
fn killed_with_its_keeper(backend: &str, left: impl Fn(&str, u32) -> String) {
    let _turn = alone();
    let place = Place::new();
    let Some(mut lab) = begun(&place, backend) else {
        return;
    };
    let pid = lab.id();
    let keeper = keeper_of(pid).expect("somebody watches over the mount");
    let killed = Command::new("kill")
        .args(["-KILL", &keeper.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    lab.kill().unwrap();
    lab.wait().unwrap();
    let dir = mount_of(pid).expect("nobody is there to unmount it");
    let left = left(&dir, pid);
    let said = place.fathom(&["clean", ".", "--dry-run"]).expect(0).stdout;
    assert!(said.contains(&format!("would remove {left}")), "{said}");
    let said = place.fathom(&["clean", "."]).expect(0).stdout;
    assert!(said.contains(&format!("removed {left}")), "{said}");
    assert!(mount_of(pid).is_none() && !Path::new(&dir).exists());
    assert!(!pools().contains(&format!("fathom_{pid}")));
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

/// Numbers of processes end at 4194304 (proc(5)).
const OF_THE_DEAD: &str = "fathom_4194999";

#[test]
fn labels_of_killed_runs_are_cleaned_and_those_of_others_stay() {
    let _turns = (turn(), beside_others());
    if !possible(&["lvm"]) {
        return;
    }
    let place = Place::new();
    let disks: Vec<Disk> = (0..4).map(|_| Disk::new(32)).collect();
    let devices: Vec<Loop> = disks.iter().map(|d| Loop::of(&d.image)).collect();
    let living = format!("fathom_{}", std::process::id());
    let tagged = ["--addtag", "made-by-fathom"];
    let groups = [
        (&tagged[..], OF_THE_DEAD),
        // A name like fathom's that somebody gave.
        (&[], "fathom_4194998"),
        (&tagged, &living),
        (&tagged, "fathom_4194997-root"),
    ];
    for (device, (tag, name)) in devices.iter().zip(groups) {
        let device = device.str();
        let only = format!(
            "devices {{ filter=[\"a|^{device}$|\", \"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 }} backup {{ backup=0 archive=0 }} activation {{ udev_sync=0 monitoring=0 }}"
        );
        let lvm = |words: &[&str]| try_run("lvm", &[words, &["-y", "--config", &only]].concat());
        let made = lvm(&["pvcreate", device])
            .and_then(|_| lvm(&[&["vgcreate"], tag, &[name, device]].concat()));
        if let Err(e) = made {
            return skip(&format!("LVM makes no group here: {e}"));
        }
    }
    let sums = || disks.iter().map(Disk::checksum).collect::<Vec<_>>();
    let before = sums();
    let ours = format!("label of {OF_THE_DEAD} on {}", devices[0].str());
    let said = place.fathom(&["clean", ".", "--dry-run"]).expect(0).stdout;
    // PROC_PID_INIT_INO: elsewhere living processes seem dead, and nothing is looked for.
    if fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns != Path::new("pid:[4026531836]")) {
        return skip("this is a container");
    }
    assert!(said.contains(&format!("would remove {ours}")), "{said}");
    assert_eq!(sums(), before, "it was only looked at");
    let said = place.fathom(&["clean", "."]).expect(0).stdout;
    assert!(said.contains(&format!("removed {ours}")), "{said}");
    assert_eq!(said.matches("label of").count(), 1, "{said}");
    let after = sums();
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1..], before[1..], "somebody else's");
    let found = try_run("blkid", &["-p", devices[0].str()]);
    assert!(found.is_err(), "it is blank: {found:?}");
}

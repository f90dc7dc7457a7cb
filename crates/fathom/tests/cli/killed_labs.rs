//! Labs that are killed in the middle: what they mounted and made goes, by their keeper or by `fathom clean`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::machine::{Disk, Loop, Mounted, possible, try_run, turn};
use crate::common::{Place, alone, beside_others, skip, until, wait};

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
        .filter(|s| s.contains("(fathom-cleanup)"))
        .find_map(|s| {
            let (number, rest) = s.split_once(" (fathom-cleanup) ")?;
            let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
            // Its parent may be stopped, and not have waited for it.
            (parent == pid && !rest.starts_with('Z')).then(|| number.parse().ok())?
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

#[test]
fn a_killed_run_leaves_no_file_system_on_the_device_that_it_was_made_on() {
    let _turns = (turn(), alone());
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let (place, disk) = (Place::new(), Disk::new(96));
    let device = Loop::of(&disk.image);
    let words = ["curve", device.str(), "--destroy", device.str()];
    let long = ["--mkfs", "ext4", "--size", "16m", "--time", "60s"];
    let mut child = place.start(&[&words[..], &long].concat());
    let mounted = || fs::read_to_string("/proc/mounts").is_ok_and(|m| m.contains(device.str()));
    until("it is mounted", mounted);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(within(10, || !mounted()), "its keeper unmounts");
    let magic = || fs::read(&disk.image).unwrap()[1024 + 0x38..1024 + 0x3a].to_vec();
    assert!(within(10, || magic() == [0, 0]), "and erases");
}

/// Pools of ZFS.
fn pools() -> String {
    try_run("zpool", &["list", "-H", "-o", "name"]).unwrap_or_default()
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
    let began = Instant::now();
    let said = place.fathom(&["clean", ".", "--dry-run"]).expect(0).stdout;
    assert!(said.contains(&format!("would remove {left}")), "{said}");
    // Files below loop devices do not become free while one looks.
    assert!(began.elapsed() < Duration::from_secs(8));
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

/// The directory of a lab that was killed with nothing watching.
fn killed_copy(place: &Place) -> String {
    let mut lab = place.start(&["app", "copy", ".", "--bytes", "64m", "--repeats", "9"]);
    let dir = || {
        let all = place.names();
        all.into_iter().find(|n| n.starts_with(".fathom-lab-"))
    };
    until("it has files", || {
        dir().is_some_and(|d| fs::read_dir(place.dir.join(d)).is_ok_and(|d| d.count() > 1))
    });
    lab.kill().unwrap();
    lab.wait().unwrap();
    dir().unwrap()
}

#[test]
fn a_mount_in_a_directory_that_was_left_keeps_it_whole() {
    let _turns = (turn(), beside_others());
    if !possible(&["mount"]) {
        return;
    }
    let place = Place::new();
    let lab = place.dir.join(killed_copy(&place));
    let theirs = place.runs().with_file_name("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("file"), "kept").unwrap();
    let at = lab.join("at");
    let mounted = match Mounted::new(theirs.to_str().unwrap(), at, &["--bind"]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("needs a bind mount: {e}")),
    };
    let before = fs::read_dir(&lab).unwrap().count();
    let said = place.fathom(&["clean", "."]).expect(2);
    assert!(said.stderr.contains("/at: umount "), "{}", said.stderr);
    assert!(!said.stdout.contains("fathom-lab"), "{}", said.stdout);
    assert_eq!(fs::read(theirs.join("file")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(&lab).unwrap().count(), before, "with its mark");
    drop(mounted);
    let said = place.fathom(&["clean", "."]).expect(0);
    assert!(
        said.stdout.contains("removed ./.fathom-lab-"),
        "{}",
        said.stdout
    );
    let said = place.fathom(&["clean", "."]).expect(0);
    assert_eq!(said.stdout, "nothing left behind in .\n");
    assert_eq!(fs::read(theirs.join("file")).unwrap(), b"kept");
}

#[test]
fn what_could_not_be_looked_at_is_said() {
    let _turn = beside_others();
    if !possible(&["unshare"]) {
        return;
    }
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_fathom");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", program, "clean", "."]);
    command.current_dir(&place.dir).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = wait(command);
    if said.stderr.contains("unshare") {
        return skip(said.stderr.trim());
    }
    let said = said.expect(0).stdout;
    assert!(
        said.contains("not looked at") && said.contains("this is a container"),
        "{said}"
    );
    assert!(!said.contains("nothing left behind"), "{said}");
    // Somebody else than root, who sees nothing of root's.
    let mut command = Command::new(program);
    command
        .args(["clean", "/usr"])
        .current_dir("/")
        .uid(65534)
        .gid(65534);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(child) = command.spawn() else {
        return skip("nobody may not run this binary where it lies");
    };
    let said = crate::common::end(child).expect(0).stdout;
    assert!(said.contains("run fathom clean as root"), "{said}");
    assert!(!said.contains("nothing left behind"), "{said}");
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_killed_lab_leaves_no_mount_and_its_files_are_found() {
        killed_alone("btrfs");
    }

    #[test]
    fn a_killed_lab_leaves_no_pool() {
        killed_alone("zfs");
    }

    #[test]
    fn what_a_lab_killed_with_its_keeper_leaves_is_cleaned() {
        killed_with_its_keeper("btrfs", |dir, _| format!("mount {dir}"));
    }

    #[test]
    fn a_pool_of_a_lab_killed_with_its_keeper_is_cleaned() {
        killed_with_its_keeper("zfs", |_, pid| format!("pool fathom_{pid}"));
    }

    #[test]
    fn names_like_fathoms_in_the_kernel_are_others() {
        let _turns = (turn(), alone());
        if !possible(&["mkswap", "swapon", "swapoff"]) {
            return;
        }
        let place = Place::new();
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let memory = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let memory = memory
            .filter(|f| f[2] == "cgroup2" || (f[2] == "cgroup" && f[3].contains("memory")))
            .map(|f| f[1].to_owned());
        let living = format!("fathom-swap-{}", std::process::id());
        let mut dirs: Vec<std::path::PathBuf> = memory
            .flat_map(|m| ["fathom-mine-4194999", &*living].map(|n| Path::new(&m).join(n)))
            .collect();
        let tracefs = fathom_stack::tracefs::TraceFs::find();
        if let Ok(t) = &tracefs {
            let instances = t.root().join("instances");
            dirs.extend(["fathom-mine", "fathom-4194999-1-mine"].map(|n| instances.join(n)));
        }
        // Not all can be made everywhere.
        dirs.retain(|d| fs::create_dir(d).is_ok());
        if dirs.is_empty() {
            skip("no control groups and no trace instances here");
        }
        // A swap file that somebody gave such a name.
        let file = place.dir.join("fathom-swap-4194999");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        let name = file.to_str().unwrap();
        let on = try_run("mkswap", &[name]).and_then(|_| try_run("swapon", &[name]));
        let said = place.fathom(&["clean", "."]);
        let swaps = fs::read_to_string("/proc/swaps").unwrap();
        let _ = try_run("swapoff", &[name]);
        let there: Vec<bool> = dirs.iter().map(|d| d.exists()).collect();
        for dir in &dirs {
            let _ = fs::remove_dir(dir);
        }
        assert!(there.iter().all(|t| *t), "{dirs:?} {there:?}");
        match on {
            Ok(_) => assert!(swaps.contains("fathom-swap-4194999"), "{swaps}"),
            Err(e) => skip(&format!("no swap file here: {e}")),
        }
        assert!(!said.expect(0).stdout.contains("4194999"));
        assert!(file.exists());
    }

    #[test]
    fn swap_of_a_lab_killed_with_its_keeper_goes_off_wherever_it_is() {
        let _turns = (turn(), alone());
        if !possible(&[]) {
            return;
        }
        let place = Place::new();
        let mut lab = place.start(&[
            "app",
            "swap",
            ".",
            "--bytes",
            "32m",
            "--share",
            "50",
            "--time",
            "30s",
            "--repeats",
            "1",
        ]);
        let name = format!("fathom-swap-{}", lab.id());
        let on = || fs::read_to_string("/proc/swaps").unwrap().contains(&name);
        if !within(20, || on() || lab.try_wait().unwrap().is_some()) || !on() {
            let _ = lab.kill();
            let _ = lab.wait();
            return skip("no swap file or no memory controller here");
        }
        let line = fs::read_to_string("/proc/swaps").unwrap();
        let line = line.lines().find(|l| l.contains(&name)).unwrap().to_owned();
        assert!(!line.ends_with("32767"), "one step is enough: {line}");
        crate::common::send(lab.id(), libc::SIGSTOP);
        let keepers = std::iter::from_fn(|| {
            let keeper = keeper_of(lab.id())?;
            // SAFETY: a signal to a process that a child of ours has made.
            unsafe { libc::kill(keeper as i32, libc::SIGKILL) };
            within(5, || keeper_of(lab.id()) != Some(keeper)).then_some(keeper)
        });
        assert!(keepers.take(8).count() > 0, "somebody watches");
        lab.kill().unwrap();
        lab.wait().unwrap();
        assert!(on(), "nobody was left to switch it off");
        // From elsewhere: what is on is on for the whole machine.
        let elsewhere = Place::new();
        let said = elsewhere.fathom(&["clean", "."]).expect(0).stdout;
        assert!(
            said.contains("removed swap ") && said.contains(&name),
            "{said}"
        );
        assert!(said.contains("/.fathom-lab-"), "its directory, too: {said}");
        assert!(!on());
        place.fathom(&["clean", "."]).expect(0);
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
}

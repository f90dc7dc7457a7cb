//! Settings are found, proved and put back: on file systems of loop devices, and where fathom is killed meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::machine::{Disk, Loop, Mounted, mkfs_ext4, possible, turn};
use crate::common::{Place, Said, alone, beside_others, end, send, skip, until};

/// A file system on a loop device.
struct Ground {
    /// The queue's settings before the test: the device outlives it, and keeps what it was given.
    queue: Vec<(PathBuf, String)>,
    // Dropped in this order.
    mounted: Mounted,
    device: Loop,
    _disk: Option<Disk>,
    place: Place,
}

impl Ground {
    /// On `image`; `None` with a visible reason where that is not possible.
    fn on(image: &Path, disk: Option<Disk>, options: &[&str]) -> Option<Self> {
        let device = Loop::of(image);
        mkfs_ext4(device.str());
        let place = Place::new();
        let dir = queue_of(&device);
        // Another scheduler changes the rest: it comes first.
        let queue = ["scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec"];
        let queue = queue.iter().filter_map(|name| {
            let path = dir.join(name);
            let text = fs::read_to_string(&path).ok()?;
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
            Some((path, chosen.to_owned()))
        });
        let queue = queue.collect();
        match Mounted::new(device.str(), place.dir.join("mnt"), options) {
            Ok(mounted) => Some(Self {
                queue,
                place,
                mounted,
                device,
                _disk: disk,
            }),
            Err(e) => {
                skip(&format!("needs an ext4 on a loop device: {e}"));
                None
            }
        }
    }

    fn queue(&self, name: &str) -> PathBuf {
        queue_of(&self.device).join(name)
    }

    /// Every setting that there is: of the queue and of its scheduler, of write-back, of the mount.
    fn settings(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let dirs = [
            self.queue(""),
            self.queue("iosched"),
            PathBuf::from("/proc/sys/vm"),
        ];
        for entry in dirs.iter().filter_map(|d| fs::read_dir(d).ok()).flatten() {
            let path = entry.unwrap().path();
            let in_vm = path.starts_with("/proc");
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if (!in_vm || name.starts_with("dirty_"))
                && let Ok(text) = fs::read_to_string(&path)
            {
                all.insert(path, text);
            }
        }
        let at = self.mounted.at.canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|l| l.contains(at.to_str().unwrap()));
        all.insert(at, line.unwrap().to_owned());
        assert!(all.len() > 20, "{all:?}");
        all
    }

    fn tune(&self, args: &[&str]) -> Said {
        let mut all = vec!["tune", "mnt", "--json"];
        all.extend(args);
        self.place.fathom(&all)
    }
}

fn queue_of(device: &Loop) -> PathBuf {
    Path::new("/sys/block").join(device.name()).join("queue")
}

impl Drop for Ground {
    fn drop(&mut self) {
        for (path, value) in &self.queue {
            // What is as it was may be read-only.
            let _ = fs::write(path, value);
        }
    }
}

/// The finding of this name; where it is missing, everything that was tried is said.
#[track_caller]
fn finding<'a>(run: &'a Value, id: &str) -> &'a Value {
    let all = run["findings"].as_array().unwrap();
    let found = all.iter().find(|f| f["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {all:?}\n{:#}", run["sections"][0]["tables"][0]))
}

/// A gain that no noise makes, proved.
#[track_caller]
fn is_proved(f: &Value) {
    let gain = &f["gain"];
    assert!(gain["value"].as_f64().unwrap() >= 0.5, "{f:#}");
    assert!(gain["low"].as_f64().unwrap() > 0.0, "{f:#}");
    assert!(!f["jobs"].as_array().unwrap().is_empty());
    assert!(f["text"].as_str().unwrap().contains("had not seen"));
}

/// Notes of a process under /run.
fn notes(pid: u32) -> usize {
    let prefix = format!("fathom-setting-{pid}-");
    let names = fs::read_dir("/run").into_iter().flatten().flatten();
    names
        .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
        .count()
}

#[test]
fn a_model_is_tuned_by_its_options_and_unknown_names_are_refused() {
    let _turn = beside_others();
    let place = Place::new();
    let run = place
        .fathom(&[
            "tune",
            "sim:optane-900p,idle=busy,scheduler=20000",
            "--only",
            "scheduler,idle-states,completion",
            "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(
        run["findings"][0]["id"], "scheduler",
        "{:#}",
        run["findings"]
    );
    is_proved(&run["findings"][0]);
    let said = place
        .fathom(&["tune", "sim:optane-900p", "--only", "colour"])
        .refusal();
    assert!(
        said.contains("'colour'") && said.contains("scheduler"),
        "{said}"
    );
    let said = place.fathom(&["tune", "null:"]).refusal();
    assert!(said.contains("no settings"), "{said}");
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_bad_read_ahead_is_found_proved_and_put_back_unless_it_is_to_be_kept() {
        let _turn = alone();
        let _loop = turn();
        if !possible(&["mkfs.ext4", "mount"]) {
            return;
        }
        let disk = Disk::new(160);
        let image = disk.image.clone();
        let Some(ground) = Ground::on(&image, Some(disk), &[]) else {
            return;
        };
        // Every page of a buffered read becomes a request of its own.
        fs::write(ground.queue("read_ahead_kb"), "0").unwrap();
        let before = ground.settings();
        let args = ["--only", "read-ahead", "--pass", "60ms", "--size", "32m"];
        let run = ground.tune(&args).expect(0).json();
        let f = finding(&run, "read-ahead");
        is_proved(f);
        let path = ground.queue("read_ahead_kb").display().to_string();
        assert!(f["advice"].as_str().unwrap().ends_with(&path), "{f:#}");
        assert_eq!(ground.settings(), before, "every setting as it was");
        // The report shows it too.
        let tables = run["sections"][0]["tables"].as_array().unwrap();
        let settings = tables.iter().find(|t| t["id"] == "tune-settings").unwrap();
        for row in settings["rows"].as_array().unwrap() {
            assert_eq!(row[3], "as it was", "{row}");
        }
        // Only on demand does it stay.
        let mut keep = args.to_vec();
        keep.push("--keep");
        ground.tune(&keep).expect(0);
        let now = fs::read_to_string(ground.queue("read_ahead_kb")).unwrap();
        assert!(["128", "1024"].contains(&now.trim()), "{now}");
    }

    #[test]
    fn mount_options_are_tried_on_fathoms_own_loop_file_systems_only() {
        let _turn = alone();
        let _loop = turn();
        if !possible(&["mkfs.ext4", "mount"]) {
            return;
        }
        let files = Place::new();
        let args = ["--only", "mount-options", "--pass", "60ms", "--size", "8m"];
        let made = files.dir.join("made");
        let permit = fathom_host::create_file(&made).unwrap();
        permit.file.set_len(96 << 20).unwrap();
        if !fathom_host::may_overwrite(&made) {
            skip("needs a file system with user xattrs");
            return;
        }
        let Some(own) = Ground::on(&made, None, &["-o", "sync"]) else {
            return;
        };
        let before = own.settings();
        let run = own.tune(&args).expect(0).json();
        let f = finding(&run, "mount-options");
        is_proved(f);
        let advice = f["advice"].as_str().unwrap();
        assert!(advice.contains("remount"), "{f:#}");
        assert!(advice.contains(own.device.str()), "names the source: {f:#}");
        assert_eq!(own.settings(), before);
        // Somebody else's under the name of fathom's own device: what was typed as its source says nothing.
        let disk = Disk::new(96);
        let device = Loop::of(&disk.image);
        mkfs_ext4(device.str());
        let link = own.place.dir.join(own.device.name());
        std::os::unix::fs::symlink(&device.path, &link).unwrap();
        let at = own.place.dir.join("theirs");
        fs::create_dir(&at).unwrap();
        // mount(8) would name the device itself.
        rustix::mount::mount(
            &link,
            &at,
            "ext4",
            rustix::mount::MountFlags::SYNCHRONOUS,
            None::<&std::ffi::CStr>,
        )
        .unwrap();
        let theirs = Mounted { at };
        let mut named = vec!["tune", "theirs"];
        named.extend(args);
        let said = own.place.fathom(&named).refusal();
        assert!(said.contains("'mount-options' is nothing"), "{said}");
        drop((theirs, device));
        drop(own);
        // Somebody else's is left alone.
        let disk = Disk::new(96);
        let image = disk.image.clone();
        let Some(theirs) = Ground::on(&image, Some(disk), &["-o", "sync"]) else {
            return;
        };
        let said = theirs.tune(&args).refusal();
        assert!(
            said.contains("'mount-options' is nothing that is tried"),
            "{said}"
        );
    }

    #[test]
    fn a_run_that_is_stopped_or_killed_leaves_every_setting_as_it_was() {
        let _turn = alone();
        let _loop = turn();
        if !possible(&["mkfs.ext4", "mount"]) {
            return;
        }
        let disk = Disk::new(160);
        let image = disk.image.clone();
        let Some(ground) = Ground::on(&image, Some(disk), &[]) else {
            return;
        };
        let schedulers = fs::read_to_string(ground.queue("scheduler")).unwrap();
        if !(schedulers.contains("none") && schedulers.contains("mq-deadline")) {
            skip("needs a loop device with the schedulers none and mq-deadline");
            return;
        }
        // A scheduler takes others with it: its own parameters, and the number of requests.
        fs::write(ground.queue("scheduler"), "mq-deadline").unwrap();
        fs::write(ground.queue("nr_requests"), "96").unwrap();
        fs::write(ground.queue("iosched/fifo_batch"), "5").unwrap();
        let before = ground.settings();
        let changed = || {
            fs::read_to_string(ground.queue("scheduler"))
                .unwrap()
                .contains("[none]")
        };
        let start = || {
            let args = [
                "tune",
                "mnt",
                "--only",
                "scheduler",
                "--pass",
                "1500ms",
                "--size",
                "16m",
            ];
            let child = ground.place.start(&args);
            until("the scheduler is changed", changed);
            assert!(notes(child.id()) > 0, "the old value is noted first");
            child
        };

        let child = start();
        send(child.id(), libc::SIGTERM);
        end(child).expect(1);
        assert_eq!(ground.settings(), before, "after a signal");

        // Killed: the process that watches over it puts everything back at once.
        let mut child = start();
        send(child.id(), libc::SIGKILL);
        child.wait().unwrap();
        until("the settings are back", || notes(child.id()) == 0);
        assert_eq!(ground.settings(), before, "after a kill");

        // Both killed: what was noted is put back by the next run or by fathom clean.
        let mut child = start();
        let pid = child.id();
        let keepers = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let Ok(keepers) = keepers.map(|k| k.trim().parse::<u32>()) else {
            skip("needs a kernel that lists a process' children");
            send(pid, libc::SIGTERM);
            end(child).expect(1);
            return;
        };
        send(keepers.expect("one child"), libc::SIGKILL);
        send(pid, libc::SIGKILL);
        child.wait().unwrap();
        assert!(
            changed() && notes(pid) > 0,
            "nobody was left to put it back"
        );
        let said = ground.place.fathom(&["tune", "mnt", "--dry-run"]).expect(0);
        assert!(said.stderr.contains("would be put back"), "{}", said.stderr);
        let model = ["tune", "sim:optane-900p", "--only", "completion"];
        ground.place.fathom(&model).expect(0);
        assert!(changed() && notes(pid) > 0, "neither has to do with it");
        let said = ground.place.fathom(&["clean", ".", "--dry-run"]).expect(0);
        assert!(said.stdout.contains("would put back"), "{}", said.stdout);
        assert!(changed());
        let said = ground.place.fathom(&["clean", "."]).expect(0);
        assert!(said.stdout.contains("mq-deadline again"), "{}", said.stdout);
        assert_eq!(
            (ground.settings(), notes(pid)),
            (before, 0),
            "after fathom clean"
        );
    }
}

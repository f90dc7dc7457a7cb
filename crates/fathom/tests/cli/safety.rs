//! Real loop devices through the command line: what is in use is refused and keeps every byte; what is
//! free is written only after it was named.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::machine::{
    Disk, Loop, Mounted, mkfs_btrfs, mkfs_ext4, possible, run, try_run, turn,
};
use crate::common::{Place, Said, beside_others, names, skip};

/// Turns for loop devices and for the machine as a whole.
fn turns() -> (impl Drop, impl Drop) {
    (turn(), beside_others())
}

/// `fathom run` and `fathom survey` refuse to write to `target` with the same sentence, make nothing and
/// change no byte of the disks. Returns the sentence.
#[track_caller]
fn refused(disks: &[&Disk], target: &str, destroy: Option<&str>) -> String {
    let place = Place::new();
    let before: Vec<u64> = disks.iter().map(|d| d.checksum()).collect();
    let with = |mut args: Vec<&'static str>| -> Said {
        let target: &'static str = String::leak(target.to_owned());
        args.insert(1, target);
        if let Some(serial) = destroy {
            args.extend(["--destroy", String::leak(serial.to_owned())]);
        }
        place.fathom(&args)
    };
    let sentence = with(vec![
        "run",
        "--rw",
        "randwrite",
        "--size",
        "1m",
        "--ios",
        "100",
    ])
    .refusal();
    let from_survey = with(vec!["survey"]);
    assert_eq!(from_survey.code, Some(2), "{}", from_survey.stderr);
    assert!(
        from_survey
            .stderr
            .lines()
            .any(|l| l == format!("fathom: {sentence}")),
        "survey: {}\nrun: {sentence}",
        from_survey.stderr
    );
    let after: Vec<u64> = disks.iter().map(|d| d.checksum()).collect();
    assert_eq!(before, after, "bytes have changed");
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert!(!place.runs().exists());
    sentence
}

#[test]
fn an_empty_device_is_written_only_after_its_path_was_typed() {
    let _turns = turns();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let said = refused(&[&disk], device.str(), None);
    assert!(
        said.contains(&format!("--destroy {}", device.str())),
        "{said}"
    );
    for wrong in ["S3R1AL", device.name(), "/dev/loop", ""] {
        let said = refused(&[&disk], device.str(), Some(wrong));
        assert!(
            said.contains("does not name") && said.contains(device.str()),
            "{said}"
        );
    }
    let before = disk.checksum();
    let place = Place::new();
    let result = place
        .fathom(&[
            "run",
            device.str(),
            "--destroy",
            device.str(),
            "--rw",
            "randwrite",
            "--qd",
            "8",
            "--ios",
            "2000",
            "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(result["target"]["kind"], "block-device");
    assert_eq!(result["jobs"][0]["write"]["ios"], 2000);
    assert_eq!(result["jobs"][0]["write"]["errors"], 0);
    assert_ne!(disk.checksum(), before, "it was written");
    // Reading needs no permission and writes nothing. (Of what nobody wrote, and from the page cache of the image: void.)
    let written = disk.checksum();
    place
        .fathom(&["run", device.str(), "--rw", "randread", "--ios", "500"])
        .expect(1);
    assert_eq!(disk.checksum(), written);
}

#[test]
fn a_survey_of_a_free_device_runs_and_uses_all_of_it() {
    let _turns = turns();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let place = Place::new();
    let child = place.start(&["survey", device.str(), "--destroy", device.str()]);
    crate::common::until("two jobs are done", || {
        let file = names(&place.runs())
            .first()
            .map(|n| place.runs().join(n).join("run.json"));
        file.and_then(|f| fs::read_to_string(f).ok())
            .is_some_and(|text| text.contains("write-4k-qd1.1"))
    });
    crate::common::send(child.id(), libc::SIGINT);
    crate::common::end(child).expect(1);
    let result = place.the_run();
    assert_eq!(result["target"]["size_bytes"], 16 << 20);
    let jobs = result["jobs"].as_array().unwrap();
    let write = jobs.iter().find(|j| !j["write"].is_null()).unwrap();
    assert_eq!(write["write"]["errors"], 0);
    assert!(place.names().is_empty(), "a device needs no scratch file");
}

/// `app copy` in a file system that is made on a device for it.
fn copy_on<'a>(device: &'a str, destroy: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words = [
        "app",
        "copy",
        device,
        "--destroy",
        destroy,
        "--mkfs",
        "ext4",
    ];
    let short = ["--bytes", "1m", "--repeats", "1"];
    [&words[..], &short, more].concat()
}

#[test]
fn a_file_system_is_made_on_a_device_that_was_named_and_goes_with_the_run() {
    let _turns = turns();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(96);
    let device = Loop::of(&disk.image);
    let place = Place::new();
    let before = disk.checksum();
    // What is asked for is refused as by every other writer, and what would be done is only said.
    let said = place
        .fathom(&copy_on(device.str(), "S3R1AL", &[]))
        .refusal();
    assert!(said.contains("does not name"), "{said}");
    let said = place
        .fathom(&["db", "tpcc", device.str(), "--mkfs", "ext4"])
        .refusal();
    assert!(said.contains("--destroy"), "{said}");
    let foreseen = place
        .fathom(&copy_on(
            device.str(),
            device.str(),
            &["--dry-run", "--json"],
        ))
        .expect(0)
        .json();
    assert!(foreseen["time_ns"].as_u64().unwrap() > 0, "{foreseen}");
    assert!(!foreseen["phases"].as_array().unwrap().is_empty());
    assert_eq!(disk.checksum(), before, "bytes have changed");
    let run = place
        .fathom(&copy_on(device.str(), device.str(), &["--json"]))
        .expect(0)
        .json();
    assert_eq!(run["target"]["name"], device.str());
    let about = run["target"]["description"].as_str().unwrap();
    assert!(about.starts_with(&format!("ext4 on {}", device.str())));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(&format!("{} ", device.str())), "{mounts}");
    // Blank: the next run may have it, without a word about a file system.
    let bytes = fs::read(&disk.image).unwrap();
    assert_eq!(&bytes[1024 + 0x38..1024 + 0x3a], &[0, 0], "its magic");
    let small = Disk::new(16);
    let device = Loop::of(&small.image);
    let said = place
        .fathom(&copy_on(device.str(), device.str(), &[]))
        .refusal();
    assert!(said.contains("too little for ext4"), "{said}");
}

#[test]
fn a_mounted_device_is_refused_with_its_mount_point() {
    let _turns = turns();
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
    let said = refused(&[&disk], device.str(), Some(device.str()));
    assert!(
        said.contains("is mounted at") && said.contains(mounted.at.to_str().unwrap()),
        "{said}"
    );
    drop(mounted);
    let said = refused(&[&disk], device.str(), Some(device.str()));
    assert!(
        said.contains("ext4 file system") && said.contains("wipefs"),
        "{said}"
    );
}

#[test]
fn a_disk_is_refused_while_one_of_its_partitions_is_mounted() {
    let _turns = turns();
    if !possible(&["addpart", "delpart", "mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let mut device = Loop::of(&disk.image);
    let Some(part) = device.add_partition(1, 32) else {
        return;
    };
    let part = part.to_str().unwrap().to_owned();
    mkfs_ext4(&part);
    let mounted = match Mounted::new(&part, disk.beside("mnt"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    for target in [device.str(), &part] {
        let said = refused(&[&disk], target, Some(target));
        assert!(said.contains("is mounted at"), "{said}");
    }
    let said = refused(&[&disk], device.str(), Some(device.str()));
    assert!(said.contains(&format!("its partition {part}")), "{said}");
    drop(mounted);
}

#[test]
fn swap_in_use_is_refused() {
    let _turns = turns();
    if !possible(&["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    run("mkswap", &["-q", device.str()]);
    if let Err(e) = try_run("swapon", &[device.str()]) {
        return skip(&format!("swap cannot be switched on: {e}"));
    }
    let said = std::panic::catch_unwind(|| refused(&[&disk], device.str(), Some(device.str())));
    run("swapoff", &[device.str()]);
    let said = said.unwrap();
    assert!(
        said.contains("in use as swap") && said.contains("swapoff"),
        "{said}"
    );
    let said = refused(&[&disk], device.str(), Some(device.str()));
    assert!(said.contains("swap area"), "{said}");
}

#[test]
fn a_btrfs_member_is_refused_although_another_device_is_the_mounted_one() {
    let _turns = turns();
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
    let said = refused(&[&two], second.str(), Some(second.str()));
    assert!(said.contains("btrfs file system in use"), "{said}");
    drop(mounted);
}

#[test]
fn a_device_held_by_device_mapper_is_refused() {
    let _turns = turns();
    if !possible(&["dmsetup"]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let name = format!("fathom-cli-{}", std::process::id());
    let table = format!("0 32768 linear {} 0", device.str());
    if let Err(e) = try_run("dmsetup", &["create", &name, "--table", &table]) {
        return skip(&format!(
            "this kernel has no device-mapper ({})",
            e.lines().next().unwrap_or_default()
        ));
    }
    let said = std::panic::catch_unwind(|| refused(&[&disk], device.str(), Some(device.str())));
    run("dmsetup", &["remove", &name]);
    assert!(said.unwrap().contains(&name));
}

#[test]
fn a_device_that_another_loop_device_stands_on_is_refused() {
    let _turns = turns();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let lower = Loop::of(&disk.image);
    let upper = Loop::of(&lower.path);
    let said = refused(&[&disk], lower.str(), Some(lower.str()));
    assert!(
        said.contains("is part of") && said.contains(upper.name()),
        "{said}"
    );
}

#[test]
fn every_signature_protects_the_device_it_is_on() {
    let _turns = turns();
    if !possible(&[]) {
        return;
    }
    for (mib, program, args, word) in [
        (32, "mkfs.ext4", &["-q", "-F"][..], "ext4"),
        (400, "mkfs.xfs", &["-q", "-f"], "xfs"),
        (16, "mkfs.vfat", &[], "vfat"),
        (16, "mkswap", &["-q"], "swap"),
        (32, "pvcreate", &["-q", "-y", "-ff"], "LVM"),
    ] {
        if crate::common::machine::find(program).is_none() {
            skip(&format!("needs the program {program}"));
            continue;
        }
        let disk = Disk::new(mib);
        let device = Loop::of(&disk.image);
        let mut all = args.to_vec();
        all.push(device.str());
        if let Err(e) = try_run(program, &all) {
            skip(&format!("{program}: {}", e.lines().next().unwrap_or("")));
            continue;
        }
        let said = refused(&[&disk], device.str(), Some(device.str()));
        assert!(
            said.contains(word) && said.contains("wipefs"),
            "{program}: {said}"
        );
        run("wipefs", &["--all", "--quiet", device.str()]);
        Place::new()
            .fathom(&[
                "run",
                device.str(),
                "--destroy",
                device.str(),
                "--rw",
                "write",
                "--ios",
                "10",
            ])
            .expect(0);
    }
}

#[test]
fn a_link_is_followed_and_only_the_devices_own_path_confirms() {
    let _turns = turns();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let link = disk.beside("link");
    symlink(&device.path, &link).unwrap();
    let link = link.to_str().unwrap();
    let said = refused(&[&disk], link, Some(link));
    assert!(
        said.contains("does not name") && said.contains(device.str()),
        "{said}"
    );
    let said = refused(&[&disk], link, None);
    assert!(said.contains(&format!("--destroy {}", device.str())));
    Place::new()
        .fathom(&[
            "run",
            link,
            "--destroy",
            device.str(),
            "--rw",
            "randwrite",
            "--ios",
            "100",
        ])
        .expect(0);
}

#[test]
fn a_read_only_device_and_one_without_a_medium_are_refused() {
    let _turns = turns();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::with(&disk.image, &["--read-only"]);
    let said = refused(&[&disk], device.str(), Some(device.str()));
    assert!(said.contains("is read-only"), "{said}");
    let empty = Disk::new(0);
    let device = Loop::of(&empty.image);
    let place = Place::new();
    for rw in ["randread", "randwrite"] {
        let said = place
            .fathom(&[
                "run",
                device.str(),
                "--destroy",
                device.str(),
                "--rw",
                rw,
                "--time",
                "1s",
            ])
            .refusal();
        assert!(
            said.contains("empty") || said.contains("no bytes"),
            "{said}"
        );
    }
}

#[test]
fn a_file_system_that_is_nearly_full_gets_no_file() {
    let _turns = turns();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(64);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let mounted = match Mounted::new(device.str(), disk.beside("mnt"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    fs::write(mounted.at.join("precious"), vec![9; 20 << 20]).unwrap();
    let at = mounted.at.to_str().unwrap();
    let new = format!("{at}/new");
    let before = names(&mounted.at);
    let place = Place::new();
    for target in [at, &new] {
        for size in ["34m", "1g"] {
            let said = place
                .fathom(&["run", target, "--create", "--size", size, "--time", "1s"])
                .refusal();
            assert!(
                said.contains("95 % full") && said.contains("free some space"),
                "{said}"
            );
        }
    }
    let survey = place.fathom(&["survey", at, "--size", "1g"]).expect(2);
    assert!(survey.stderr.contains("95 % full"), "{}", survey.stderr);
    assert_eq!(names(&mounted.at), before);
    assert!(!place.runs().exists());
    // What does fit, works.
    place
        .fathom(&[
            "run", at, "--size", "8m", "--ios", "100", "--rw", "write", "--bs", "64k",
        ])
        .expect(0);
    assert_eq!(names(&mounted.at), before);
}

#[test]
fn a_read_only_file_system_gets_no_file() {
    let _turns = turns();
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let mounted = match Mounted::new(device.str(), disk.beside("mnt"), &["-o", "ro"]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    let at = mounted.at.to_str().unwrap();
    let new = format!("{at}/new");
    let before = disk.checksum();
    let place = Place::new();
    for target in [at, &new] {
        let said = place
            .fathom(&["run", target, "--create", "--size", "4m", "--time", "1s"])
            .refusal();
        assert!(said.contains("is read-only"), "{said}");
    }
    let survey = place.fathom(&["survey", at, "--size", "4m"]).expect(2);
    assert!(survey.stderr.contains("is read-only"), "{}", survey.stderr);
    assert_eq!(disk.checksum(), before);
    assert!(!place.runs().exists());
}

#[test]
fn the_running_systems_own_disk_is_never_writable() {
    let _turn = beside_others();
    let place = Place::new();
    let devices = place.fathom(&["devices", "--json"]).expect(0).json();
    let root = devices["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["at"] == "/")
        .and_then(|m| m["source"].as_str());
    let Some(source) = root.filter(|s| s.starts_with("/dev/")) else {
        return skip("the root file system is on no device here");
    };
    let said = place
        .fathom(&[
            "run",
            source,
            "--destroy",
            source,
            "--rw",
            "write",
            "--ios",
            "1",
        ])
        .refusal();
    assert!(
        said.contains("mounted") || said.contains("no permission"),
        "{said}"
    );
}

//! Devices that fail, fill up or go away in the middle: a clear error, and what was measured is kept.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::common::machine::{Disk, Loop, Mounted, mkfs_ext4, possible, run, turn};
use crate::common::{Place, Said, beside_others, codes, end, names, skip, until};
use crate::contract::promised;

/// Holds the result of a failed job to what scripts and people are promised.
#[track_caller]
fn told(place: &Place, said: &Said, direction: &str, errno: i32) -> Value {
    let result = place.the_run();
    promised(&result);
    assert!(result["finished"].is_string(), "it ended in order");
    let job = result["jobs"].as_array().unwrap().last().unwrap().clone();
    let error = &job["errors"][0];
    assert_eq!(error["op"], direction, "{error}");
    assert_eq!(error["errno"], errno, "{error}");
    assert!(error["count"].as_u64().unwrap() > 0);
    assert!(job[direction]["errors"].as_u64().unwrap() > 0);
    assert!(codes(&job["flags"]).contains(&"io-errors".to_owned()));
    let words = std::io::Error::from_raw_os_error(errno).to_string();
    let words = words.split(" (").next().unwrap();
    assert!(
        said.stdout.contains(words) && error["message"].as_str().unwrap().contains(words),
        "{words}: {}",
        said.stdout
    );
    assert!(place.the_run_dir().join("report.html").exists());
    job
}

#[test]
fn a_read_error_in_the_middle_ends_the_job_and_keeps_what_was_read() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    for engine in ["uring", "preadv"] {
        disk.resize(32);
        let place = Place::new();
        let child = place.start(&[
            "run",
            device.str(),
            "--rw",
            "randread",
            "--qd",
            "4",
            "--time",
            "60s",
            "--engine",
            engine,
        ]);
        until("it runs", || names(&place.runs()).len() == 1);
        std::thread::sleep(Duration::from_millis(500));
        // Behind the end of its file a loop device answers EIO, like a disk with bad blocks.
        disk.resize(1);
        let said = end(child).expect(1);
        let job = told(&place, &said, "read", libc::EIO);
        assert!(job["read"]["ios"].as_u64().unwrap() > 100, "{job}");
        assert!(!job["read"]["response_ns"]["mean"].is_null());
        assert!(job["wall_ns"].as_u64().unwrap() < 55_000_000_000);
    }
}

#[test]
fn errors_are_counted_and_the_job_goes_on_where_that_was_asked_for() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    disk.resize(16);
    let place = Place::new();
    fs::write(
        place.dir.join("jobs.toml"),
        "[global]\nios = 1000\non-error = \"continue\"\n[[job]]\nname = \"one\"\n[[job]]\nname = \"two\"\n",
    )
    .unwrap();
    let said = place
        .fathom(&["run", device.str(), "--jobs", "jobs.toml"])
        .expect(1);
    let job = told(&place, &said, "read", libc::EIO);
    assert_eq!(job["name"], "two", "the second job was run too");
    let (good, bad) = (
        job["read"]["ios"].as_u64().unwrap(),
        job["read"]["errors"].as_u64().unwrap(),
    );
    // Half of the device is there.
    assert!(good > 300 && bad > 300, "{good} good, {bad} bad");
}

#[test]
fn a_full_backing_store_ends_the_job_with_enospc() {
    let _turns = (turn(), beside_others());
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(48);
    let outer = Loop::of(&disk.image);
    mkfs_ext4(outer.str());
    let mounted = match Mounted::new(outer.str(), disk.beside("mnt"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    // A thin disk: it promises 256 MiB and has no 48.
    let thin = mounted.at.join("thin.img");
    fs::File::create(&thin).unwrap().set_len(256 << 20).unwrap();
    let device = Loop::of(&thin);
    let place = Place::new();
    let said = place
        .fathom(&[
            "run",
            device.str(),
            "--destroy",
            device.str(),
            "--rw",
            "write",
            "--bs",
            "128k",
            "--qd",
            "4",
        ])
        .expect(1);
    let job = told(&place, &said, "write", libc::ENOSPC);
    assert!(job["write"]["ios"].as_u64().unwrap() > 50, "{job}");
    // A survey ends there too, with the part before the error analysed and kept.
    let place = Place::new();
    let said = place
        .fathom(&["survey", device.str(), "--destroy", device.str()])
        .expect(1);
    assert!(said.stdout.contains("ended early"), "{}", said.stdout);
    let result = place.the_run();
    promised(&result);
    assert!(codes(&result["flags"]).contains(&"io-errors".to_owned()));
    assert!(!result["jobs"].as_array().unwrap().is_empty());
    drop(device);
}

#[test]
fn a_device_that_goes_away_ends_the_run() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(32);
    let device = Loop::of(&disk.image);
    let place = Place::new();
    let child = place.start(&[
        "run",
        device.str(),
        "--rw",
        "randread",
        "--qd",
        "2",
        "--time",
        "60s",
    ]);
    until("it runs", || names(&place.runs()).len() == 1);
    std::thread::sleep(Duration::from_millis(300));
    // A device in use is detached lazily; its medium is what can vanish at once.
    run("losetup", &["--detach", device.str()]);
    disk.resize(0);
    let said = end(child).expect(1);
    told(&place, &said, "read", libc::EIO);
}

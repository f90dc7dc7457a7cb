//! Latency by layer on devices that few test machines have: NVMe with and without its interrupt, device-mapper,
//! md. In a guest they are real to the kernel, so what is joined there is joined anywhere.

use std::path::Path;

use fathom_system::guest::modules::Modules;
use fathom_system::guest::{Backing, Disk, DiskModel, Guest, Machine};
use fathom_telemetry::Bytes;
use serde_json::Value;

mod common;

use common::{bring, skip, supply};

/// Runs a program in the guest that must succeed.
fn run(guest: &mut Guest, argv: &[&str]) {
    let done = guest.exec(argv, "/tmp").unwrap();
    assert_eq!(done.status, Some(0), "{argv:?}: {done:?}");
}

/// `fathom stack` on a device of the guest: its only case, which must account for every I/O.
fn layers(guest: &mut Guest, into: &Path, device: &str, more: &[&str]) -> Value {
    let mut argv = vec![
        "stack", device, "--rw", "randread", "--direct", "--qd", "1", "--time", "200ms", "--size",
        "32m", "--json",
    ];
    argv.extend(more);
    let (output, _) = guest.fathom(&argv, into).unwrap();
    assert_eq!(output.status, Some(0), "{device} {more:?}: {output:?}");
    let mut run: Value = serde_json::from_str(&output.out).unwrap();
    let case = run["cases"][0].take();
    assert_eq!(case["rung"], "full", "{device}");
    let d = &case["details"];
    assert_eq!(case["lost"], 0, "{device}: {case}");
    assert_eq!(d["contradicted"], 0, "{device}: {case}");
    let count = |key: &str| d[key].as_u64().unwrap();
    assert!(count("by_device") > 0, "{device}: {case}");
    assert_eq!(count("by_device"), count("submitted"), "{device}: {case}");
    let all = case["layers"].as_array().unwrap();
    let sum: f64 = all.iter().map(|l| l["mean_ns"].as_f64().unwrap()).sum();
    let mean = case["application_mean_ns"].as_f64().unwrap();
    assert!((sum - mean).abs() < 0.01 * mean, "{device}: {case}");
    assert!(all.iter().all(|l| l["mean_ns"].as_f64().unwrap() >= 0.0));
    println!("{device} {more:?}: {} I/Os", count("by_device"));
    case
}

fn has(case: &Value, part: &str) -> bool {
    let layers = case["layers"].as_array().unwrap();
    layers
        .iter()
        .any(|l| l["name"].as_str().unwrap().contains(part))
}

fn interrupts(case: &Value) -> usize {
    case["details"]["interrupt_cpus"].as_array().unwrap().len()
}

/// I/Os that were followed to requests of the disks below, by what those are called.
fn followed(case: &Value, disks: &[&str]) -> u64 {
    let sides = case["details"]["devices"].as_array().unwrap();
    sides
        .iter()
        .filter(|s| disks.contains(&s["name"].as_str().unwrap()))
        .map(|s| s["joined"].as_u64().unwrap())
        .sum()
}

/// Every I/O was followed through the device on top to the disks below, and the way through it has rows.
#[track_caller]
fn is_followed(case: &Value, disks: &[&str]) {
    assert_eq!(
        Some(followed(case, disks)),
        case["details"]["by_device"].as_u64(),
        "{case}"
    );
    for row in ["RAID maps it", "driver and doorbell", "RAID completes it"] {
        assert!(has(case, row), "{row}: {case}");
    }
    assert!(interrupts(case) > 0, "{case}");
    assert!(!has(case, "cannot be split"), "{case}");
}

#[test]
fn layers_of_stacked_devices_are_those_of_the_disk_below() {
    let Some(mut supply) = supply() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let disk = |name: &str, model| {
        let path = dir.path().join(name);
        std::fs::write(&path, vec![7u8; 64 << 20]).unwrap();
        let size = Bytes::mib(64);
        Disk {
            model,
            ..Disk::new(Backing::Part {
                path,
                offset: 0,
                size,
            })
        }
    };
    let mut machine = Machine::new(vec![
        disk("a", DiskModel::VirtioBlk),
        disk("b", DiskModel::VirtioBlk),
        disk("c", DiskModel::Nvme),
    ]);
    let modules = Modules::of(&supply.kernel);
    let (mapper, mirror) = (modules.has("dm_mod"), modules.has("raid1"));
    machine.modules = [("dm_mod", mapper), ("raid1", mirror)]
        .into_iter()
        .filter(|m| m.1)
        .map(|m| m.0.to_owned())
        .collect();
    let mut guest = supply.boot(&machine).unwrap();
    let guest = &mut guest;
    let into = dir.path().join("runs");

    let plain = layers(guest, &into, "/dev/nvme0n1", &["--engine", "preadv"]);
    assert!(
        has(&plain, "driver and doorbell") && interrupts(&plain) > 0,
        "{plain}"
    );

    // Poll queues are made when the driver takes the device.
    let sys = dir.path().join("sys");
    guest.fetch("/sys/class/nvme/nvme0/address", &sys).unwrap();
    let address = std::fs::read_to_string(sys.join("address")).unwrap();
    for (file, text) in [
        ("module/nvme/parameters/poll_queues", "1"),
        ("bus/pci/drivers/nvme/unbind", address.trim()),
        ("bus/pci/drivers/nvme/bind", address.trim()),
    ] {
        let file = format!("/sys/{file}");
        guest.put(&file, 0o600, text.as_bytes()).unwrap();
    }
    // Who binds it does not wait for its namespaces.
    let there = (0..100).any(|_| {
        let seen = guest.exec(&["fathom", "devices"], "/tmp").unwrap();
        seen.out.contains("nvme0n1") || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            false
        }
    });
    assert!(there, "the drive did not come back within 100 looks");
    let polled = layers(guest, &into, "/dev/nvme0n1", &["--iopoll"]);
    assert!(has(&polled, "polled completion"), "{polled}");
    assert_eq!(interrupts(&polled), 0, "{polled}");

    if !mapper {
        skip("the guest's kernel has no device-mapper");
    } else if bring(guest, "dmsetup") {
        let table = format!("0 {} linear /dev/vda 0", (64u64 << 20) / 512);
        let create = [
            "/sbin/dmsetup",
            "--noudevsync",
            "create",
            "lin",
            "--table",
            &table,
        ];
        run(guest, &create);
        let through = layers(guest, &into, "/dev/dm-0", &["--engine", "preadv"]);
        is_followed(&through, &["vda"]);
        run(guest, &["/sbin/dmsetup", "--noudevsync", "remove", "lin"]);
    }
    if !mirror {
        skip("the guest's kernel has no RAID 1");
    } else if bring(guest, "mdadm") {
        run(
            guest,
            &[
                "/sbin/mdadm",
                "--create",
                "/dev/md0",
                "--level=1",
                "--raid-devices=2",
                "--assume-clean",
                "--run",
                "--metadata=1.2",
                "/dev/vda",
                "/dev/vdb",
            ],
        );
        let through = layers(guest, &into, "/dev/md0", &["--engine", "preadv"]);
        is_followed(&through, &["vda", "vdb"]);
        run(guest, &["/sbin/mdadm", "--stop", "/dev/md0"]);
    }
}

//! Labs on what the other labs make: a tree on arrays of a guest's md, files in a file system on one, and a server in a machine
//! beside its host.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[path = "../../fathom-labs/tests/common/mod.rs"]
mod common;

/// A tree so small that an emulated processor fills it in seconds.
const LAB: &str = "kv --workload update --keys 5000 --time 200ms --repeats 1 --threads 4";

/// Runs fathom in `dir`; `None`, said aloud, where the machine is too busy for a guest to boot in time.
fn run(dir: &Path, words: &[&str], lab: &str) -> Option<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fathom"));
    command.args(words).args(["--lab", lab, "--json"]);
    command.envs(common::kernel().map(|p| ("FATHOM_GUEST_KERNEL", p)));
    let done = command.current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("did not answer within") || said.contains("speaks version") {
        common::skip(said.trim());
        return None;
    }
    assert_eq!(done.status.code(), Some(0), "{words:?}: {said}");
    Some(serde_json::from_slice(&done.stdout).unwrap())
}

fn table<'a>(run: &'a Value, id: &str) -> &'a Vec<Value> {
    let sections = run["sections"].as_array().unwrap();
    let mut all = sections
        .iter()
        .flat_map(|s| s["tables"].as_array().unwrap());
    all.find(|t| t["id"] == id)
        .and_then(|t| t["rows"].as_array())
        .unwrap_or_else(|| panic!("{id}: {}", run["flags"]))
}

#[test]
fn a_tree_is_measured_on_arrays_of_a_guest() {
    if common::supply().is_none() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let raid = [
        "raid",
        ".",
        "--backend",
        "guest",
        "--levels",
        "0,1",
        "--members",
        "2",
        "--size",
        "64m",
    ];
    let Some(json) = run(dir.path(), &raid, LAB) else {
        return;
    };
    let rows = table(&json, "raid-lab-kv-update-ops");
    for (row, array) in rows.iter().zip(["RAID 0 of 2", "RAID 1 of 2"]) {
        assert_eq!(row[0], array);
        assert!(row[3]["value"].as_f64().unwrap() > 0.0, "{row}");
        // The lab's own run came back from the guest.
        let kept = dir.path().join(row[4].as_str().unwrap());
        assert!(kept.join("run.json").exists(), "{}", kept.display());
    }
    assert_eq!(rows.len(), 2);
    // Beside this one those of the arrays.
    let runs = std::fs::read_dir(dir.path().join("fathom-runs")).unwrap();
    assert_eq!(runs.count(), 1 + 2);
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .filter(|n| n != "fathom-runs")
        .collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
}

#[test]
fn files_are_copied_on_a_file_system_of_an_array_of_a_guest() {
    if common::supply().is_none() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let raid = "raid . --backend guest --levels 0 --members 2 --size 64m --mkfs ext4";
    let words: Vec<&str> = raid.split(' ').collect();
    let Some(json) = run(dir.path(), &words, "app copy --bytes 1m --repeats 1") else {
        return;
    };
    let rows = table(&json, "raid-lab-app-copy-copy-bandwidth");
    assert!(rows[0][3]["value"].as_f64().unwrap() > 0.0, "{rows:?}");
    let kept = dir.path().join(rows[0][4].as_str().unwrap());
    let inner: Value =
        serde_json::from_slice(&std::fs::read(kept.join("run.json")).unwrap()).unwrap();
    let about = inner["target"]["description"].as_str().unwrap();
    assert!(about.contains("ext4 on /dev/md"), "{about}");
}

#[test]
fn servers_of_this_machine_are_measured_in_a_guest() {
    if common::supply().is_none() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = "SELECT abalance FROM little WHERE aid = 1;";
    let init = "CREATE TABLE little (aid int primary key, abalance int); INSERT INTO little VALUES (1, 2);";
    std::fs::write(dir.path().join("script.sql"), script).unwrap();
    std::fs::write(dir.path().join("init.sql"), init).unwrap();
    let lab = "db sql --database postgresql --script script.sql@2 --init init.sql --clients 1 --time 500ms --repeats 1";
    let vm = ["vm", ".", "--size", "1400m"];
    let Some(json) = run(dir.path(), &vm, lab) else {
        return;
    };
    let rows = table(&json, "vm-lab-table");
    let rate = rows.iter().find(|r| r[1] == "1/s").unwrap();
    for side in [2, 3, 4] {
        assert!(rate[side]["value"].as_f64().unwrap() > 0.0, "{rate}");
    }
    // Machine, host, host, machine: each a run of its own, beside this one.
    let runs = std::fs::read_dir(dir.path().join("fathom-runs")).unwrap();
    assert_eq!(runs.count(), 1 + 4);
    // Of an emulated processor nothing is said as if it were one.
    for finding in json["findings"].as_array().unwrap() {
        let text = finding["text"].as_str().unwrap();
        assert!(
            !text.contains("against the host") || finding["confidence"] == "low",
            "{text}"
        );
    }
}

#[test]
fn labs_that_a_machine_cannot_run_are_refused_with_the_way_to_do_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (words, expected) in [
        (
            &["vm", ".", "--lab", "db tpcc --no-such-option"][..],
            "unknown option",
        ),
        (&["vm", ".", "--lab", "survey"], "expected db mysql"),
        (
            &["vm", "sim:optane-900p", "--lab", "kv"],
            "expected a directory",
        ),
        (&["vm", ".", "--ssh", "a", "--lab", "kv"], "ssh a fathom kv"),
        (
            &[
                "raid",
                ".",
                "--backend",
                "btrfs",
                "--lab",
                "kv",
                "--mkfs",
                "xfs",
            ],
            "a file system already",
        ),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(words)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

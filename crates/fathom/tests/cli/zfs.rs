//! Arrays of ZFS on loop devices, where ZFS answers: as a kernel's module, or as the daemon that `./test` starts.

use crate::common::machine::{possible, try_run};
use crate::common::{Place, alone, skip};

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn every_level_of_zfs_is_measured_and_nothing_stays() {
        let _turn = alone();
        if !possible(&["zpool", "zfs"]) {
            return;
        }
        let place = Place::new();
        let args = [
            "raid",
            ".",
            "--backend",
            "zfs",
            "--levels",
            "0,1,5,6,10",
            "--members",
            "4",
            "--size",
            "128m",
            "--rw",
            "randread,write",
            "--bs",
            "128k",
            "--small",
            "0",
            "--threads",
            "2",
            "--time",
            "50ms",
            "--repeats",
            "1",
            "--json",
        ];
        let before = try_run("zpool", &["list", "-H", "-o", "name"]);
        let said = place.fathom(&args);
        let missing = ["does not answer zpool list", "do not fit", "loop devices"];
        if said.code == Some(2) && missing.iter().any(|m| said.stderr.contains(m)) {
            return skip(said.stderr.trim());
        }
        let json = said.expect(0).json();
        let tables = || {
            let sections = json["sections"].as_array().unwrap().iter();
            sections.flat_map(|s| s["tables"].as_array().unwrap())
        };
        for level in [0, 1, 5, 6, 10] {
            let id = format!("raid{level}-table");
            let table = tables().find(|t| t["id"] == *id);
            let rows = table.unwrap_or_else(|| panic!("{id}: {}", json["flags"]))["rows"]
                .as_array()
                .unwrap();
            // Direct and buffered reads and writes, and a stream of writes.
            assert_eq!(rows.len(), 5, "{rows:?}");
            let measured = |r: &&serde_json::Value| r[2]["value"].as_f64().is_some_and(|v| v > 0.0);
            assert_eq!(rows.iter().filter(measured).count(), 5, "{rows:?}");
        }
        let settings = tables().find(|t| t["id"] == "raid-settings").unwrap()["rows"].to_string();
        for word in ["raidz /dev", "raidz2 /dev", "mirror /dev", "recordsize"] {
            assert!(settings.contains(word), "{word}: {settings}");
        }
        assert_eq!(place.names(), Vec::<String>::new());
        assert_eq!(try_run("zpool", &["list", "-H", "-o", "name"]), before);
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains("fathom_"), "{mounts}");
    }
}

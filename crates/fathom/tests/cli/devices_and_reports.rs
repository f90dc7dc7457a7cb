//! `fathom devices`, and `fathom report` on runs that are there or not.

use std::fs;

use crate::common::machine::{Disk, Loop, possible, turn};
use crate::common::{Place, beside_others};

#[test]
fn the_list_of_devices_says_who_they_are_and_whether_they_may_be_written() {
    let _turns = (turn(), beside_others());
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let (free, used) = (Disk::new(8), Disk::new(32));
    let (free_device, used_device) = (Loop::of(&free.image), Loop::of(&used.image));
    crate::common::machine::mkfs_ext4(used_device.str());
    let before = (free.checksum(), used.checksum());
    let place = Place::new();
    let text = place.fathom(&["devices"]).expect(0).stdout;
    assert!(
        text.contains(&format!("with --destroy {}", free_device.str())),
        "{text}"
    );
    assert!(
        text.contains(used_device.str()) && text.contains("ext4 file system"),
        "{text}"
    );
    let list = place.fathom(&["devices", "--json"]).expect(0).json();
    let device = list["devices"]
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["path"] == free_device.str())
        .unwrap();
    for name in [
        "size_bytes",
        "model",
        "serial",
        "firmware",
        "queue",
        "uses",
        "verdict",
    ] {
        assert!(device.get(name).is_some(), "{name} in {device}");
    }
    assert!(!list["mounts"].as_array().unwrap().is_empty());
    assert_eq!((free.checksum(), used.checksum()), before, "only looked at");
    assert!(place.names().is_empty());
}

#[test]
fn the_newest_run_is_reported_where_none_is_named() {
    let _turn = beside_others();
    let place = Place::new();
    for name in ["one", "two"] {
        place
            .fathom(&[
                "run",
                "null:",
                "--ios",
                "100",
                "--name",
                name,
                "--out",
                "fathom-runs",
            ])
            .expect(0);
    }
    let said = place.fathom(&["report", "--json"]).expect(0).json();
    assert_eq!(said["name"], "two");
}

#[test]
fn a_run_of_a_later_fathom_or_a_broken_one_is_refused_in_a_sentence() {
    let _turn = beside_others();
    let place = Place::new();
    for (text, part) in [
        ("{", "is not a run of fathom"),
        ("{\"schema_version\": 1}", "is not a run of fathom"),
        (
            "{\"schema_version\": 999, \"tool_version\": \"9.0\"}",
            "use fathom 9.0 or later",
        ),
    ] {
        fs::write(place.dir.join("run.json"), text).unwrap();
        let sentence = place.fathom(&["report", "."]).refusal();
        assert!(sentence.contains(part), "{sentence}");
        assert_eq!(place.names(), ["run.json"]);
    }
}

#[test]
fn a_run_whose_series_is_missing_or_broken_does_not_panic() {
    let _turn = beside_others();
    let place = Place::new();
    place.fathom(&["run", "null:", "--ios", "1000"]).expect(0);
    let dir = place.the_run_dir();
    let series = dir.join("series.parquet");
    let whole = fs::read(&series).unwrap();
    for content in [None, Some(&whole[..whole.len() / 2]), Some(&b"PAR1"[..])] {
        match content {
            None => fs::remove_file(&series).unwrap(),
            Some(bytes) => fs::write(&series, bytes).unwrap(),
        }
        let said = place.fathom(&["report", dir.to_str().unwrap()]);
        assert!(
            matches!(said.code, Some(0 | 2)) && !said.stderr.contains("panicked"),
            "{:?} {}",
            said.code,
            said.stderr
        );
    }
}

#[test]
fn several_runs_make_one_page_with_their_differences() {
    let _turn = beside_others();
    let place = Place::new();
    for seed in ["1", "2"] {
        place
            .fathom(&[
                "run",
                "sim:optane-900p",
                "--rw",
                "randread",
                "--time",
                "1s",
                "--seed",
                seed,
            ])
            .expect(0);
    }
    let dirs: Vec<String> = crate::common::names(&place.runs())
        .iter()
        .map(|n| place.runs().join(n).display().to_string())
        .collect();
    let (a, b) = (dirs[0].as_str(), dirs[1].as_str());
    place.fathom(&["report", a, b, "--out", "both"]).expect(0);
    let page = fs::read_to_string(place.dir.join("both/comparison.html")).unwrap();
    for part in ["B against A", "\"A: job\"", "\"B: job\"", "SIMULATED"] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    let sentence = place.fathom(&["report", a, b, "--format", "csv"]).refusal();
    assert!(sentence.contains("fathom compare"), "{sentence}");

    place
        .fathom(&["report", a, "--out", "else where"])
        .expect(0);
    for (out, file, least) in [
        ("else where", "report.html", 2),
        ("both", "comparison.html", 4),
    ] {
        let page = fs::read_to_string(place.dir.join(out).join(file)).unwrap();
        let links: Vec<&str> = page
            .split("<a href=\"../")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(links.len() >= least, "{links:?}");
        for link in links {
            let link = link.replace("%20", " ");
            assert!(place.dir.join(&link).is_file(), "{link} leads nowhere");
        }
    }

    place.fathom(&["report", a, "--svg", "charts"]).expect(0);
    let charts = crate::common::names(&place.dir.join("charts"));
    assert!(charts.len() >= 5, "{charts:?}");
    for name in charts {
        let text = fs::read_to_string(place.dir.join("charts").join(&name)).unwrap();
        assert!(
            text.starts_with("<svg ") && text.contains(">SIMULATED<"),
            "{name}"
        );
    }
}

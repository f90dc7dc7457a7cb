//! `cache` and `paths`: predictions held to what is measured on models, and file systems that leave nothing behind.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Place, beside_others, end, names, send, skip, until};
use crate::contract::promised;

fn table<'a>(run: &'a Value, id: &str) -> &'a Value {
    run["sections"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|s| s["tables"].as_array().unwrap())
        .find(|t| t["id"] == id)
        .unwrap_or_else(|| panic!("no table {id}"))
}

fn column(table: &Value, label: &str) -> Vec<f64> {
    let columns = table["columns"].as_array().unwrap();
    let at = columns.iter().position(|c| c["label"] == label).unwrap();
    let value = |cell: &Value| cell.as_f64().or(cell["value"].as_f64());
    let rows = table["rows"].as_array().unwrap();
    rows.iter()
        .map(|r| value(&r[at]).unwrap_or_else(|| panic!("a hole in {label}: {r}")))
        .collect()
}

fn ids(run: &Value) -> Vec<&str> {
    let all = run["findings"].as_array().unwrap();
    all.iter().map(|f| f["id"].as_str().unwrap()).collect()
}

#[test]
fn cache_on_models_is_predicted_within_15_percent_and_matters_more_for_slower_devices() {
    let _turn = beside_others();
    let mut gains = Vec::new();
    for (model, threads) in [("sim:intel-s3510", "1"), ("sim:optane-900p", "4")] {
        let place = Place::new();
        let args = [
            "cache",
            model,
            "--threads",
            threads,
            "--data",
            "16m",
            "--value",
            "1000",
            "--shares",
            "3,12.5,50",
            "--repeats",
            "2",
            "--json",
        ];
        let run = place.fathom(&args).expect(0).json();
        promised(&run);
        for keys in ["uniform", "zipf", "gaussian"] {
            let lines = table(&run, &format!("cache-{keys}"));
            for off in column(lines, "prediction off") {
                assert!(off.abs() < 15.0, "{model} {keys}: {off} %\n{lines}");
            }
            let hits = column(lines, "hits").into_iter();
            for (seen, said) in hits.zip(column(lines, "hits, predicted")) {
                assert!(
                    (seen - said).abs() < 3.0,
                    "{model} {keys}: {seen} beside {said}"
                );
            }
            let finding = format!("cache-{keys}");
            assert!(ids(&run).contains(&finding.as_str()), "{:?}", ids(&run));
        }
        let rates = column(table(&run, "cache-gaussian"), "requests");
        gains.push(rates[2] / rates[0]);
        assert!(place.names().is_empty(), "a model leaves no file");
    }
    // Zhang et al. 2018, Figs. 12 and 13: from 3 to 50 % cached, flash gains more than Optane.
    assert!(gains[0] > gains[1] && gains[1] > 1.3, "{gains:?}");
}

/// A run of `kv` on a model that takes a second here.
const KV: [&str; 14] = [
    "kv",
    "sim:optane-900p",
    "--workload",
    "update,c,a",
    "--keys",
    "60000",
    "--size",
    "256m",
    "--time",
    "100ms",
    "--repeats",
    "2",
    "--seed",
    "3",
];

#[test]
fn kv_on_a_model_says_the_same_as_on_a_disk() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [&KV[..], &["--commit", "--json"]].concat();
    let run = place.fathom(&args).expect(0).json();
    promised(&run);
    assert_eq!(run["simulated"], true);
    let jobs = run["jobs"].as_array().unwrap();
    assert!(jobs.iter().all(|j| {
        let flags = j["flags"].as_array().unwrap();
        flags.iter().any(|f| f["code"] == "simulated")
    }));
    let lines = table(&run, "kv-table");
    let rates = column(lines, "operations");
    // A read that misses takes 13.5 us on this model, and 16 threads ask at a time; who commits waits for a sync, too.
    assert!(rates[1] > 300_000.0 && rates[1] < 1.3e6, "{rates:?}");
    assert!(rates[0] < rates[1] && rates[2] < rates[1], "{rates:?}");
    assert!(
        column(lines, "raw mixed IOPS").iter().all(|r| *r > 1e5),
        "{lines}"
    );
    assert!(
        column(lines, "depth at the device")
            .iter()
            .all(|d| *d >= 4.0),
        "{lines}"
    );
    assert!(column(table(&run, "kv-waits"), "log")[0] > 1.0);
    let section = &run["sections"][0];
    assert!(
        section["text"]
            .as_str()
            .unwrap()
            .contains("is not modelled"),
        "{section}"
    );
    assert!(place.names().is_empty(), "a model leaves no file");
}

#[test]
fn cache_says_what_it_needs_before_anything_is_begun() {
    let _turn = beside_others();
    let place = Place::new();
    for (args, said) in [
        (
            &["cache", "sim:optane-900p", "--shares", "0,50"][..],
            "less than 100 percent",
        ),
        (
            &["cache", "sim:optane-900p", "--data", "1m"],
            "expected data of",
        ),
        (
            &["cache", "sim:optane-900p", "--page", "5k"],
            "expected 4k, 8k",
        ),
        (
            &["cache", ".", "--size", "64m", "--data", "40m"],
            "a fifth of the range",
        ),
        (&["cache", "null:"], "a tree needs bytes that stay"),
        (&["kv", "null:"], "or a model (sim:NAME)"),
        (
            &["kv", "sim:optane-900p", "--beside", "redb"],
            "--beside: redb keeps files, and sim:optane-900p has none",
        ),
        (
            &["kv", "sim:optane-900p", "--buffered"],
            "leave --buffered out",
        ),
        (&["kv", "sim:no-such-model"], "no such model"),
        (
            &["paths", ".", "--make", "zfs"],
            "expected ext4, xfs, btrfs, or none",
        ),
        (&["paths", ".", "--memory", "200"], "0 to 100 %"),
    ] {
        let refused = place.fathom(args).expect(2);
        assert!(
            refused.stderr.contains(said),
            "{args:?}: {}",
            refused.stderr
        );
    }
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn paths_without_writes_announce_the_scratch_file_alone() {
    let _turn = beside_others();
    let place = Place::new();
    let args = ["paths", ".", "--no-writes", "--size", "48m", "--dry-run"];
    let said = place.fathom(&args).expect(0).stdout;
    assert!(said.contains("at most 48 MiB will be written"), "{said}");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn cache_on_a_file_measures_the_tree_and_says_how_far_it_was_off() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "cache", ".", "--size", "128m", "--data", "12m", "--value", "1000", "--shares", "12.5,50",
        "--keys", "zipf", "--time", "100ms", "--json",
    ];
    let run = place.fathom(&args).expect(0).json();
    promised(&run);
    let lines = table(&run, "cache-zipf");
    let (hits, rates) = (column(lines, "hits"), column(lines, "requests"));
    // How fast depends on the machine; what the cache answers does not.
    for (seen, said) in hits.iter().zip(column(lines, "hits, predicted")) {
        assert!((seen - said).abs() < 5.0, "{seen} beside {said}");
    }
    assert!(hits[1] > hits[0] && rates.iter().all(|r| *r > 0.0));
    assert!(
        column(lines, "prediction off")
            .iter()
            .all(|o| o.is_finite())
    );
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn paths_on_a_model_stand_beside_each_other() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "paths",
        "sim:intel-s3510",
        "--time",
        "200ms",
        "--repeats",
        "3",
        "--json",
    ];
    let run = place.fathom(&args).expect(0).json();
    promised(&run);
    for load in ["random", "read", "write"] {
        let rows = table(&run, &format!("paths-{load}"));
        assert_eq!(rows["rows"].as_array().unwrap().len(), 2);
        assert!(column(rows, "I/Os").iter().all(|r| *r > 0.0));
        let id = format!("paths-{load}-0");
        let headlines = run["headlines"].as_array().unwrap();
        assert!(headlines.iter().any(|h| h["id"] == *id), "{headlines:?}");
        // A faster path is a finding; that there is none is said.
        let none = format!("{id}-usual");
        let said = ids(&run);
        assert_ne!(
            said.contains(&id.as_str()),
            said.contains(&none.as_str()),
            "{said:?}"
        );
    }
    for f in run["findings"].as_array().unwrap() {
        let none = f["id"].as_str().unwrap().ends_with("-usual");
        assert_ne!(f["gain"]["value"].is_number(), none, "{f}");
    }
}

/// Mounts of loop devices over files in a place.
fn mounts(place: &Place) -> usize {
    let all = fs::read_to_string("/proc/mounts").unwrap();
    let below = |line: &&str| {
        let device = line.split(' ').next().and_then(|d| d.strip_prefix("/dev/"));
        let file = device.map(|d| format!("/sys/block/{d}/loop/backing_file"));
        file.and_then(|f| fs::read_to_string(f).ok())
            .is_some_and(|f| Path::new(&f).starts_with(&place.dir))
    };
    all.lines().filter(below).count()
}

fn can_mount() -> bool {
    // SAFETY: a system call without arguments.
    unsafe { libc::geteuid() == 0 && fs::metadata("/dev/loop-control").is_ok() }
}

#[test]
fn paths_on_a_directory_make_file_systems_and_take_them_away_again() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "paths",
        ".",
        "--size",
        "48m",
        "--make",
        "ext4",
        "--time",
        "60ms",
        "--repeats",
        "2",
        "--threads",
        "4",
        "--json",
    ];
    let run = place.fathom(&args).expect(0).json();
    promised(&run);
    let rows = table(&run, "paths-random");
    let names: Vec<&str> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r[0].as_str().unwrap())
        .collect();
    assert!(names.contains(&"file, buffered"), "{names:?}");
    if names.contains(&"ext4 on a loop device, direct") {
        assert!(names.contains(&"loop device, direct"), "{names:?}");
    } else {
        // What is not there is said.
        let why = table(&run, "paths-skipped-table");
        skip(&format!("no ext4 on a loop device here: {why}"));
    }
    assert_eq!(mounts(&place), 0);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn paths_that_are_killed_leave_no_mount_and_clean_finds_the_rest() {
    let _turn = beside_others();
    if !can_mount() {
        skip("needs root and loop devices");
        return;
    }
    let place = Place::new();
    let args = [
        "paths", ".", "--size", "48m", "--make", "ext4", "--time", "60s",
    ];
    let mut child = place.start(&args);
    until("a file system is mounted, or cannot be", || {
        mounts(&place) > 0 || child.try_wait().unwrap().is_some()
    });
    if mounts(&place) == 0 {
        skip("no ext4 on a loop device here");
        return;
    }
    send(child.id(), libc::SIGKILL);
    assert_eq!(end(child).code, None);
    until("the keeper unmounts", || mounts(&place) == 0);
    until("clean removes what is left", || {
        place.fathom(&["clean", "."]).expect(0);
        place.names().is_empty()
    });
}

#[test]
fn a_survey_takes_in_what_cache_and_paths_found_on_the_same_target() {
    let _turn = beside_others();
    let place = Place::new();
    let model = "sim:optane-900p";
    let runs = |command: &str| {
        let mut all = names(&place.runs()).into_iter();
        let name = all.find(|n| n.ends_with(command)).expect(command);
        place.runs().join(name).display().to_string()
    };
    let cache = [
        "cache",
        model,
        "--data",
        "16m",
        "--value",
        "1000",
        "--shares",
        "12.5,50",
        "--keys",
        "zipf",
        "--repeats",
        "2",
    ];
    place.fathom(&cache).expect(0);
    place
        .fathom(&["paths", model, "--time", "50ms", "--repeats", "3"])
        .expect(0);
    let (cache, paths) = (runs("cache"), runs("paths"));
    let with = [
        "survey", model, "--with", &cache, "--with", &paths, "--json",
    ];
    let run = place.fathom(&with).expect(0).json();
    promised(&run);
    assert!(ids(&run).contains(&"cache-1-cache-zipf"), "{:?}", ids(&run));
    let rows = &table(&run, "applications-2-1")["rows"];
    assert!(
        rows[0][0]
            .as_str()
            .unwrap()
            .starts_with("Best path: random"),
        "{rows}"
    );
    let other = ["survey", "sim:intel-s3510", "--with", &cache];
    let said = place.fathom(&other).refusal();
    assert!(said.contains("the same model"), "{said}");
}

//! What scripts may rely on: JSON on standard output, its names, its schema.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Place, beside_others};
use crate::schema::violations;

const DIRECTION: [&str; 5] = ["ios", "bytes", "iops", "bytes_per_second", "errors"];
const LATENCY: [&str; 9] = [
    "min", "mean", "stddev", "max", "p50", "p90", "p99", "p99_9", "p99_99",
];

#[track_caller]
fn has(value: &Value, names: &[&str]) {
    for name in names {
        assert!(value.get(name).is_some(), "{name} is missing in {value}");
    }
}

/// Every name that the design promises for any run.
#[track_caller]
pub(crate) fn promised(run: &Value) {
    assert_eq!(violations(run), Vec::<String>::new());
    has(
        run,
        &[
            "schema_version",
            "target",
            "simulated",
            "environment",
            "jobs",
            "findings",
            "flags",
        ],
    );
    for job in run["jobs"].as_array().unwrap() {
        has(
            job,
            &[
                "name",
                "spec",
                "wall_ns",
                "cpu_ns",
                "qd_achieved",
                "flags",
                "read",
                "write",
                "trim",
            ],
        );
        for direction in ["read", "write", "trim"] {
            if job[direction].is_null() {
                continue;
            }
            has(&job[direction], &DIRECTION);
            for latency in ["submit_ns", "service_ns", "response_ns"] {
                has(&job[direction][latency], &LATENCY);
            }
        }
    }
}

#[test]
fn json_on_standard_output_is_run_json_and_nothing_else() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place
        .fathom(&[
            "run", "data", "--create", "--size", "16m", "--rw", "randrw", "--time", "500ms",
            "--json",
        ])
        .expect(0);
    assert!(said.stdout.starts_with('{') && said.stdout.ends_with("}\n"));
    let mut run = said.json();
    let dir = run.as_object_mut().unwrap().remove("run_directory");
    let dir = dir.expect("scripts learn where the run is");
    let kept = fs::read_to_string(Path::new(dir.as_str().unwrap()).join("run.json")).unwrap();
    assert_eq!(run, serde_json::from_str::<Value>(&kept).unwrap());
    assert_eq!(run, place.the_run(), "what is printed is what is kept");
    promised(&run);
    assert_eq!(run["schema_version"], 2);
    assert_eq!(run["simulated"], false);
    assert_eq!(run["target"]["kind"], "file");
    let job = &run["jobs"][0];
    for direction in ["read", "write"] {
        let d = &job[direction];
        assert!(d["ios"].as_u64().unwrap() > 0, "{d}");
        assert_eq!(
            d["bytes"].as_u64().unwrap(),
            4096 * d["ios"].as_u64().unwrap()
        );
        let response = &d["response_ns"];
        // Where others use the disk, half a second may be a handful of I/Os, too few for a percentile.
        let known = ["min", "p50", "p90", "max"].map(|name| response[name].as_f64());
        let known: Vec<f64> = known.into_iter().flatten().collect();
        assert!(known[0] > 0.0 && known.is_sorted(), "{response}");
        let at = |name: &str| response[name].as_f64().unwrap();
        assert!(at("min") <= at("mean") && at("mean") <= at("max"));
    }
    assert!(job["trim"].is_null());
    // A percentile without ten samples beyond it is null, not a guess.
    for direction in ["read", "write"] {
        let ios = job[direction]["ios"].as_u64().unwrap();
        for (name, enough) in [("p50", 20), ("p90", 100), ("p99_99", 100_000)] {
            let value = &job[direction]["response_ns"][name];
            assert_eq!(value.is_null(), ios < enough, "{ios} I/Os, {name} {value}");
        }
    }
}

#[test]
fn the_environment_says_on_what_it_was_measured() {
    let _turn = beside_others();
    let place = Place::new();
    let run = place
        .fathom(&["run", ".", "--size", "4m", "--ios", "50", "--json"])
        .expect(0)
        .json();
    let e = &run["environment"];
    has(
        e,
        &[
            "cpu",
            "kernel",
            "memory",
            "numa",
            "storage",
            "temperatures",
            "virtualization",
            "tool_version",
            "build_target",
            "build_profile",
        ],
    );
    has(
        &e["cpu"],
        &["model", "idle", "governors", "mitigations", "threads"],
    );
    has(&e["kernel"], &["release", "command_line", "clocksource"]);
    has(&e["storage"], &["devices", "file_system"]);
    has(&e["storage"]["file_system"], &["fs_type", "mount_options"]);
    for device in e["storage"]["devices"].as_array().unwrap() {
        has(device, &["name", "model", "serial", "firmware", "queue"]);
    }
    assert_eq!(run["seed"], 1);
    let line: Vec<&str> = run["command_line"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a.as_str().unwrap())
        .collect();
    assert!(line.windows(2).any(|w| w == ["--ios", "50"]), "{line:?}");
}

#[test]
fn progress_and_messages_stay_off_standard_output() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place
        .fathom(&["run", ".", "--size", "8m", "--time", "300ms"])
        .expect(0);
    assert!(said.stdout.contains("IOPS"), "{}", said.stdout);
    assert!(!said.stdout.contains('\u{1b}'), "no colour into a pipe");
    let bar = said.stderr.contains(['\u{1b}', '\r']);
    assert!(!bar, "no bar without a terminal: {}", said.stderr);
}

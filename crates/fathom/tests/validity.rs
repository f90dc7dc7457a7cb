//! Numbers carry what stands against them: each flag raised by its real cause, through the real binary.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs `fathom run` in `dir`; returns its exit code and `run.json`.
fn run(dir: &Path, args: &[&str]) -> (i32, Value) {
    let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .current_dir(dir)
        .args(["run", "--create"])
        .args(args)
        .arg("--json")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    let json =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    (out.status.code().unwrap(), json)
}

fn codes(run: &Value) -> Vec<&str> {
    run["jobs"][0]["flags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["code"].as_str().unwrap())
        .collect()
}

/// Whether the device behind the build directory counts its I/O.
fn counted(run: &Value) -> bool {
    let counted = !codes(run).contains(&"not-checked");
    if !counted {
        println!("SKIP: the device behind the build directory has no counters");
    }
    counted
}

#[test]
fn reading_a_hole_voids_the_job() {
    let dir = place();
    std::fs::File::create(dir.path().join("sparse"))
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let (code, json) = run(dir.path(), &["sparse", "--time", "200ms"]);
    assert!(
        codes(&json).contains(&"unwritten-blocks-read"),
        "{:?}",
        codes(&json)
    );
    assert_eq!(code, 1, "a void measurement");
}

#[test]
fn reads_from_the_page_cache_are_told_from_reads_of_the_device() {
    let dir = place();
    let job = [
        "data", "--rw", "randread", "--size", "32m", "--qd", "4", "--time", "300ms",
    ];
    let (code, direct) = run(dir.path(), &job);
    assert_eq!(code, 0);
    assert!(!codes(&direct).contains(&"page-cache-answered"));
    let mut buffered = job.to_vec();
    buffered.push("--buffered");
    // The whole file into the page cache.
    std::fs::read(dir.path().join("data")).unwrap();
    let (code, cached) = run(dir.path(), &buffered);
    // Beside reads of others nobody can tell whose the device's were.
    if counted(&cached) && !codes(&cached).contains(&"foreign-io") {
        assert!(
            codes(&cached).contains(&"page-cache-answered"),
            "{:?}",
            codes(&cached)
        );
    }
    assert_eq!(
        code, 0,
        "who asks for the page cache gets its numbers, flagged"
    );
}

#[test]
fn io_of_others_on_the_device_is_flagged() {
    let dir = place();
    run(
        dir.path(),
        &["mine", "--rw", "write", "--bs", "1m", "--size", "32m"],
    );
    run(
        dir.path(),
        &["other", "--rw", "write", "--bs", "1m", "--size", "256m"],
    );
    let mut noise = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .current_dir(dir.path())
        .args([
            "run", "other", "--create", "--rw", "read", "--bs", "1m", "--qd", "4", "--time", "3s",
            "--json",
        ])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (_, json) = run(dir.path(), &["mine", "--time", "500ms"]);
    noise.wait().unwrap();
    if counted(&json) {
        assert!(codes(&json).contains(&"foreign-io"), "{:?}", codes(&json));
    }
}

#[test]
fn a_depth_that_is_not_reached_and_a_schedule_that_is_missed_are_said() {
    let dir = place();
    // One I/O at a time cannot follow a rate far above what it serves.
    let (_, json) = run(
        dir.path(),
        &[
            "data", "--size", "16m", "--rate", "1m", "--qd", "1", "--time", "300ms",
        ],
    );
    assert!(
        codes(&json).contains(&"missed-schedule"),
        "{:?}",
        codes(&json)
    );
    let open = &json["jobs"][0]["open_loop"];
    assert!(
        open["rate_achieved"].as_f64().unwrap() < 0.9e6 && open["unissued"].as_u64().unwrap() > 0
    );
    // Waiting for all of a batch before the next one lets the depth fall.
    let (_, json) = run(
        dir.path(),
        &[
            "data",
            "--size",
            "16m",
            "--qd",
            "64",
            "--batch",
            "64",
            "--rw",
            "randwrite",
            "--time",
            "300ms",
        ],
    );
    let achieved = json["jobs"][0]["qd_achieved"].as_f64().unwrap();
    assert_eq!(
        codes(&json).contains(&"depth-not-reached"),
        achieved < 0.9 * 64.0,
        "achieved {achieved}"
    );
}

#[test]
fn few_samples_hide_percentiles() {
    let dir = place();
    let (_, json) = run(dir.path(), &["data", "--size", "16m", "--ios", "500"]);
    let service = &json["jobs"][0]["read"]["service_ns"];
    assert!(service["p90"].is_u64() && service["p99"].is_null() && service["max"].is_u64());
    assert!(codes(&json).contains(&"too-few-samples"));
}

#[test]
fn a_log_on_the_tested_device_is_flagged() {
    let dir = place();
    let (_, json) = run(
        dir.path(),
        &["data", "--size", "16m", "--ios", "100", "--record"],
    );
    if counted(&json) {
        let flags: Vec<&str> = json["flags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["code"].as_str().unwrap())
            .collect();
        assert_eq!(flags, ["log-on-tested-device"]);
    }
}

//! What scripts may rely on.

use serde_json::Value;

use super::sample::sample_run;
use super::*;

fn has(value: &Value, keys: &[&str], of: &str) {
    for key in keys {
        assert!(value.get(key).is_some(), "{of} has no '{key}'");
    }
}

#[test]
fn the_names_promised_to_scripts_are_there() {
    let run = serde_json::to_value(sample_run()).unwrap();
    let names = [
        "schema_version",
        "target",
        "simulated",
        "environment",
        "jobs",
        "findings",
        "flags",
    ];
    has(&run, &names, "the run");
    let job = &run["jobs"][0];
    let names = [
        "name",
        "spec",
        "wall_ns",
        "cpu_ns",
        "qd_achieved",
        "flags",
        "read",
        "write",
        "trim",
    ];
    has(job, &names, "a job");
    for op in ["read", "write", "trim"] {
        let names = ["ios", "bytes", "iops", "bytes_per_second", "errors"];
        has(&job[op], &names, op);
        for latency in ["submit_ns", "service_ns", "response_ns"] {
            let names = [
                "min", "mean", "stddev", "max", "p50", "p90", "p99", "p99_9", "p99_99",
            ];
            has(&job[op][latency], &names, latency);
        }
    }
    // Without samples the figures are null, not missing and not 0.
    let empty = &job["read"]["submit_ns"];
    assert!(empty["p99"].is_null() && empty.get("p99").is_some());
    assert!(job["read"]["service_ns"]["p99_99"].is_u64());
}

#[test]
fn a_run_survives_json() {
    let run = sample_run();
    let text = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
}

#[test]
fn a_failed_cell_is_null_and_never_zero() {
    let run = serde_json::to_value(sample_run()).unwrap();
    assert!(run["results"][0]["charts"][0]["series"][0]["points"][1]["y"].is_null());
    assert!(run["results"][0]["tables"][0]["rows"][0][0].is_null());
}

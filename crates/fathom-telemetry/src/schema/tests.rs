//! What scripts may rely on.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
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
    assert!(run["sections"][0]["charts"][0]["series"][0]["points"][1]["y"].is_null());
    assert!(run["sections"][0]["tables"][0]["rows"][0][0].is_null());
}

/// The shape of an [`Estimate`], whose crate knows no JSON Schema: a value with its two-sided 95 %
/// interval; without at least two samples there is none.
#[derive(JsonSchema, serde::Serialize)]
#[schemars(rename = "Estimate")]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct EstimateShape {
    /// The best single value.
    value: f64,
    /// Lower end of the 95 % interval.
    low: Option<f64>,
    /// Upper end of the 95 % interval.
    high: Option<f64>,
    /// Independent samples (repeats) behind the value.
    samples: u32,
}

#[test]
fn the_shape_of_an_estimate_is_that_of_the_type() {
    // A new field does not compile here until the shape has it, too.
    let Estimate {
        value,
        low,
        high,
        samples,
    } = Estimate::single(1.5);
    let shape = EstimateShape {
        value,
        low,
        high,
        samples,
    };
    assert_eq!(
        serde_json::to_value(shape).unwrap(),
        serde_json::to_value(Estimate::single(1.5)).unwrap()
    );
}

/// `docs/run.schema.json` is made from the types; so no field can be missing in it.
#[test]
fn the_schema_file_is_that_of_the_types() {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<Run>();
    schema.insert("title".to_owned(), "run.json of fathom".into());
    let mut made = serde_json::to_string_pretty(&schema).unwrap();
    made.push('\n');
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(file, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(file).unwrap_or_default() == made,
        "run.json changed: UPDATE_SCHEMA=1 cargo test -p fathom-telemetry schema, and raise \
         SCHEMA_VERSION where a field disappeared or changed its meaning"
    );
}

/// Every flag is explained where the record is.
#[test]
fn every_flag_stands_in_the_table_of_flags() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let read = |name: &str| std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&read("run.schema.json")).unwrap();
    let page = read("run-directory.md");
    let codes = schema["$defs"]["FlagCode"]["oneOf"].as_array().unwrap();
    assert!(codes.len() > 15);
    for code in codes.iter().map(|c| c["const"].as_str().unwrap()) {
        let row = |l: &str| l.starts_with('|') && l.contains(&format!("`{code}`"));
        assert!(
            page.lines().any(row),
            "{code} is not in docs/run-directory.md"
        );
    }
}

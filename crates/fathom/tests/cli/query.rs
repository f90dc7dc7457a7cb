//! `fathom query` from outside: forms of output, ready-made queries, refusals, and DuckDB where it is.

use std::process::Command;

use crate::common::{Place, beside_others};

fn recorded() -> Place {
    let place = Place::new();
    place
        .fathom(&[
            "run", "null:", "--rw", "randrw", "--ios", "20000", "--record",
        ])
        .expect(0);
    place
}

#[test]
fn a_run_is_asked_in_sql_and_answers_as_table_json_and_csv() {
    let _turn = beside_others();
    let place = recorded();
    let dir = place.the_run_dir();
    let run = dir.to_str().unwrap();
    let totals = place.the_run();
    let sql = "SELECT op, count(*) AS ios, sum(done) AS bytes FROM io GROUP BY op";
    let rows = place
        .fathom(&["query", run, sql, "--json"])
        .expect(0)
        .json();
    for row in rows.as_array().unwrap() {
        let direction = &totals["jobs"][0][row["op"].as_str().unwrap()];
        assert_eq!(row["ios"], direction["ios"]);
        assert_eq!(row["bytes"], direction["bytes"]);
    }
    let csv = place.fathom(&["query", run, sql, "--csv"]).expect(0).stdout;
    assert!(csv.starts_with("op,ios,bytes\r\nread,"), "{csv}");
    let table = place.fathom(&["query", run, sql]).expect(0).stdout;
    assert!(table.starts_with("op "), "{table}");

    let named = place
        .fathom(&["query", run, "percentiles", "--json"])
        .expect(0)
        .json();
    // Merged from windows it is the job's own percentile, which run.json has.
    let p99 = &totals["jobs"][0]["read"]["service_ns"]["p99"];
    assert_eq!(&named[0]["p99_ns"], p99);
    let list = place.fathom(&["query", "--list"]).expect(0).stdout;
    assert!(list.contains("io-percentiles"), "{list}");
    let tables = place.fathom(&["query", run]).expect(0).stdout;
    assert!(tables.contains("service_histogram"), "{tables}");
}

#[test]
fn a_query_that_cannot_be_answered_is_refused_in_a_sentence() {
    let _turn = beside_others();
    let place = recorded();
    let dir = place.the_run_dir();
    let run = dir.to_str().unwrap();
    for (query, part) in [
        ("SELECT latency FROM io", "no such column"),
        ("DROP TABLE jobs", "cannot be changed"),
        ("percentile", "io-percentiles"),
        ("SELECT FROM io", "near \"FROM\""),
    ] {
        let sentence = place.fathom(&["query", run, query]).refusal();
        assert!(sentence.contains(part), "{sentence}");
    }
    let sentence = place.fathom(&["query", "nowhere"]).refusal();
    assert!(sentence.contains("neither a run directory"), "{sentence}");
}

/// Numbers that two engines may compute in another order.
fn close(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => a == b,
    }
}

#[test]
fn duckdb_answers_ready_made_queries_alike() {
    let _turn = beside_others();
    let duckdb = Command::new("duckdb").arg("--version").output();
    if !duckdb.is_ok_and(|o| o.status.success()) {
        crate::common::skip("no duckdb in PATH; its command line program enables this test");
        return;
    }
    let place = recorded();
    let dir = place.the_run_dir();
    let run = dir.to_str().unwrap();
    for name in [
        "percentiles",
        "totals",
        "jobs",
        "slowest",
        "threads",
        "errors",
    ] {
        let ours = place
            .fathom(&["query", run, name, "--csv"])
            .expect(0)
            .stdout;
        let script = place
            .fathom(&["query", run, name, "--duckdb"])
            .expect(0)
            .stdout;
        let theirs = Command::new("duckdb")
            .args(["-csv", "-c", &script])
            .output()
            .unwrap();
        assert!(theirs.status.success(), "{name}: {theirs:?}");
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            (ours.lines().collect(), theirs.lines().collect());
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (a, b) in ours.iter().zip(&theirs) {
            let same = a.split(',').zip(b.split(',')).all(|(a, b)| {
                // Quantiles of single I/Os are exact there, and the upper end of a bucket here.
                close(a, b) || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a >= b && a - b <= b / 128.0)
            });
            assert!(same || name == "jobs", "{name}:\n{a}\n{b}");
        }
    }
}

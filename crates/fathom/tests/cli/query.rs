//! `fathom query` from outside: forms of output, ready-made queries, refusals, and DuckDB where it is.

use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Place, beside_others, engines};

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

    let both = "SELECT run, count(*) AS ios, max(depth) AS depth FROM io GROUP BY run ORDER BY run";
    let both = place.fathom(&["query", run, run, both, "--json"]).expect(0);
    let both = both.json();
    assert_eq!(both.as_array().unwrap().len(), 2);
    assert_eq!(
        (&both[1]["run"], &both[1]["ios"]),
        (&json!(1), &json!(20000))
    );
    assert!(both[1]["depth"].as_u64().is_some_and(|d| d >= 1), "{both}");
    let nameless = ["query", run, run, "no-such-query"];
    assert!(
        place
            .fathom(&nameless)
            .refusal()
            .contains("no ready-made query")
    );

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
    let tables = place.fathom(&["query", run, "--json"]).expect(0).json();
    let columns = &tables
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["table"] == "jobs")
        .unwrap()["columns"];
    assert_eq!(columns[0], json!({"name": "job", "type": "integer"}));
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
    // A form of output alone asks nothing: neither is the option ignored nor something else printed.
    for option in ["--csv", "--duckdb"] {
        let sentence = place.fathom(&["query", run, option]).refusal();
        assert!(
            sentence.contains(option) && sentence.contains("io-percentiles"),
            "{sentence}"
        );
        place.fathom(&["query", "--list", option]).refusal();
    }
    let sentence = place.fathom(&["query", "nowhere"]).refusal();
    assert!(sentence.contains("neither a run directory"), "{sentence}");
}

/// Whether two engines mean the same by a column's value.
fn alike(column: &str, ours: &Value, theirs: &Value) -> bool {
    // Sums of whole numbers are so wide there that its JSON has them as text.
    let number = |v: &Value| v.as_f64().or_else(|| v.as_str()?.parse().ok());
    if let (Some(a), Some(b)) = (ours.as_f64(), number(theirs)) {
        // Sums may be added in another order. Quantiles of single I/Os are exact there, and the upper end of
        // a bucket here.
        let close = (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let quantile = column.starts_with('p') || column.contains("_p");
        return close || (quantile && a >= b && a - b <= b / 128.0);
    }
    let list = |v: &Value| serde_json::from_str::<Value>(v.as_str()?).ok();
    ours == theirs
        || (["flags", "jobs"].contains(&column)
            && list(ours).is_some()
            && list(ours) == list(theirs))
}

/// Runs a script and prints the rows of its last statement as JSON, as `duckdb -json` does.
const IN_PYTHON: &str = "
import duckdb, json, sys
con = duckdb.connect()
con.execute(sys.argv[1])
names = [c[0] for c in con.description]
json.dump([dict(zip(names, row)) for row in con.fetchall()], sys.stdout, default=str)
";

/// What DuckDB answers to a script: its program, or its Python module.
fn duckdb() -> Option<impl Fn(&str) -> Vec<u8>> {
    let works = |c: &mut Command| c.output().is_ok_and(|o| o.status.success());
    let program = works(Command::new("duckdb").arg("--version"));
    if !program && !works(engines().args(["-c", "import duckdb"])) {
        return None;
    }
    Some(move |script: &str| {
        let said = match program {
            true => Command::new("duckdb")
                .args(["-json", "-c", script])
                .output(),
            false => engines().args(["-c", IN_PYTHON, script]).output(),
        };
        let said = said.unwrap();
        assert!(said.status.success(), "{script}: {said:?}");
        said.stdout
    })
}

#[test]
fn duckdb_answers_every_ready_made_query_alike() {
    let _turn = beside_others();
    let Some(duckdb) = duckdb() else {
        crate::common::skip("neither a duckdb in PATH nor its Python module");
        return;
    };
    let place = recorded();
    let dir = place.the_run_dir();
    let run = dir.to_str().unwrap();
    let list = place
        .fathom(&["query", "--list", "--json"])
        .expect(0)
        .json();
    let ready = list.as_array().unwrap().iter();
    // Tables that no ready-made query shows as a whole.
    let whole = [
        "SELECT * FROM headlines ORDER BY id",
        "SELECT * FROM layers ORDER BY \"case\", rank",
        "SELECT * FROM device ORDER BY job",
        "SELECT * FROM findings ORDER BY rank",
    ];
    for name in ready.map(|q| q["name"].as_str().unwrap()).chain(whole) {
        let ours = place
            .fathom(&["query", run, name, "--json"])
            .expect(0)
            .json();
        let script = place
            .fathom(&["query", run, name, "--duckdb"])
            .expect(0)
            .stdout;
        let theirs: Value = serde_json::from_slice(&duckdb(&script)).unwrap_or_default();
        let ours = ours.as_array().unwrap();
        let none = Vec::new();
        let theirs = theirs.as_array().unwrap_or(&none);
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (a, b) in ours.iter().zip(theirs) {
            let (a, b) = (a.as_object().unwrap(), b.as_object().unwrap());
            assert_eq!(a.len(), b.len(), "{name}");
            for (column, value) in a {
                let other = b.get(column).unwrap_or(&Value::Null);
                assert!(
                    alike(column, value, other),
                    "{name}.{column}: {value} {other}"
                );
            }
        }
    }
}

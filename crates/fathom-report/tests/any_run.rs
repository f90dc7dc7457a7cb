//! No run directory makes a report panic or hang, and no word of one becomes markup or commands a terminal.

use std::fs;
use std::path::Path;

use fathom_report::{EXPORTERS, MemoryOutput, ReportData};
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::series::{JobOfSeries, SeriesWriter};
use fathom_telemetry::{Identity, Nanos};
use proptest::prelude::*;
use serde_json::Value;

#[path = "../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;
#[path = "../examples/sample_report/sample/mod.rs"]
mod sample;

use fuzz::{HOSTILE, cases, changed, changes, fuzz};

/// Tries of each test.
const FEW: u64 = 100;
/// Jobs of the run: enough for every kind of chart, and few enough for thousands of pages.
const JOBS: usize = 9;

/// A run with every kind of result; some words of its windows.
fn run(base: &Path) -> RunDir {
    let dir = RunDir::create(base, "survey").unwrap();
    let (mut run, series) = sample::survey(false);
    run.jobs.truncate(JOBS);
    dir.save(&run).unwrap();
    let mut writer = SeriesWriter::create(&dir.series_file(), Identity::default(), 1).unwrap();
    for (job, s) in series.0.iter().filter(|(job, _)| **job < JOBS) {
        let of = JobOfSeries {
            index: *job as u16,
            name: "",
            origin: Nanos::ZERO,
        };
        for window in &s.windows {
            writer.push(&of, s.width, window).unwrap();
        }
    }
    writer.finish().unwrap();
    dir
}

/// A change of what a document says.
#[derive(Debug, Clone)]
enum Edit {
    Set(&'static str),
    Word(&'static str),
    Remove,
    Twice,
}

fn edits() -> impl Strategy<Value = Vec<(u32, Edit)>> {
    let literal = prop::sample::select(vec![
        "null",
        "true",
        "0",
        "-1",
        "1e308",
        "-1e308",
        "1e-320",
        "18446744073709551615",
        "-9223372036854775808",
        "9007199254740993",
        "\"\"",
        "[]",
        "{}",
        "[[]]",
        "[0, -1, 1e308]",
        "{\"\": null}",
    ]);
    let edit = prop_oneof![
        4 => literal.prop_map(Edit::Set),
        4 => prop::sample::select(HOSTILE.to_vec()).prop_map(Edit::Word),
        1 => Just(Edit::Remove),
        1 => Just(Edit::Twice),
    ];
    prop::collection::vec((any::<u32>(), edit), 1..8)
}

fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(all) => all.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value whose number is `left`, counted from the top.
fn change(value: &mut Value, left: &mut u64, edit: &Edit) -> bool {
    if *left == 0 {
        match edit {
            Edit::Set(text) => *value = serde_json::from_str(text).unwrap(),
            Edit::Word(word) => match value {
                Value::String(s) => s.push_str(word),
                Value::Object(all) => drop(all.insert((*word).into(), Value::from(*word))),
                other => *other = Value::from(*word),
            },
            Edit::Remove => match value {
                Value::Array(all) => drop(all.pop()),
                Value::Object(all) => all.clear(),
                other => *other = Value::Null,
            },
            Edit::Twice => match value {
                Value::Array(all) => all.extend_from_within(..),
                Value::String(s) => *s = s.repeat(40),
                other => *other = Value::from(vec![other.take(), Value::Null]),
            },
        }
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(all) => all.iter_mut().any(|v| change(v, left, edit)),
        Value::Object(all) => all.values_mut().any(|v| change(v, left, edit)),
        _ => false,
    }
}

/// Everything that is made of a run; whether it could be read.
fn export(dir: &RunDir) -> bool {
    let Ok(data) = ReportData::open(dir.path()) else {
        return false;
    };
    for exporter in EXPORTERS {
        let mut out = MemoryOutput::default();
        if exporter.export(&data, &mut out).is_err() {
            continue;
        }
        for (name, bytes) in &out.files {
            harmless(name, &String::from_utf8_lossy(bytes));
        }
    }
    ask(dir);
    true
}

/// The same through SQL.
#[cfg(feature = "sql")]
fn ask(dir: &RunDir) {
    use fathom_report::query::{CsvRows, Queries, READY, TableRows};
    let Ok(queries) = Queries::open(&[dir.path().to_owned()]) else {
        return;
    };
    for ready in READY {
        let mut shown = Vec::new();
        let _ = queries.run(ready.sql, &mut TableRows::new(&mut shown));
        harmless(ready.name, &String::from_utf8_lossy(&shown));
        let _ = queries.run(ready.sql, &mut CsvRows::new(&mut Vec::new()));
    }
    // Words of a run are values, never parts of a statement.
    let mut all = Vec::new();
    let count = queries.run("SELECT count(*) FROM jobs", &mut CsvRows::new(&mut all));
    assert!(count.is_ok(), "the table of jobs is there");
}
#[cfg(not(feature = "sql"))]
fn ask(_: &RunDir) {}

fn harmless(name: &str, text: &str) {
    let data = name.ends_with(".json") || name.ends_with(".csv");
    if !data {
        let bad = text.chars().find(|c| {
            (c.is_control() && !matches!(c, '\n' | '\t'))
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        });
        assert!(bad.is_none(), "{name}: {bad:?}");
    }
    if [".html", ".svg", ".md"].iter().any(|e| name.ends_with(e)) {
        for markup in ["<script>alert", "<img src=x", "<svg onload", "]]></style>"] {
            assert!(!text.contains(markup), "{name}: {markup}");
        }
    }
    if name.ends_with(".md") {
        // In a code span nothing is a link.
        let mut prose = text.lines().filter(|l| !l.starts_with('`'));
        assert!(!prose.any(|l| l.contains("[a](javascript")), "{name}");
    }
}

#[test]
fn no_word_and_no_number_of_a_run_breaks_a_report_or_gets_out_of_its_place() {
    let base = tempfile::tempdir().unwrap();
    let dir = run(base.path());
    let file = dir.path().join("run.json");
    let whole: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(export(&dir));
    let parts = count(&whole);
    fuzz(cases(FEW), &edits(), |edits| {
        let mut run = whole.clone();
        for (share, edit) in edits {
            let mut left = (u64::from(*share) * parts) >> 32;
            change(&mut run, &mut left, edit);
        }
        fs::write(&file, run.to_string()).unwrap();
        export(&dir);
    });
}

#[test]
fn no_bytes_of_a_run_directory_break_a_report() {
    let base = tempfile::tempdir().unwrap();
    let dir = run(base.path());
    let files = ["run.json", "series.parquet"].map(|name| dir.path().join(name));
    let whole = files.each_ref().map(|f| fs::read(f).unwrap());
    fuzz(cases(FEW), &(0..2usize, changes()), |(n, changes)| {
        fs::write(&files[*n], changed(&whole[*n], changes)).unwrap();
        export(&dir);
        fs::write(&files[*n], &whole[*n]).unwrap();
    });
}

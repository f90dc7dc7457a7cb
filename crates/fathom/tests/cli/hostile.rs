//! Text of others (runs, models, job files, options, names of files) can neither command a terminal nor become markup.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Place, Said, beside_others, names, skip};

/// Escapes of a terminal, direction marks, markup for pages, tables, pictures and scripts.
const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\u{1b}[8m\u{9b}31m\u{202e}\u{2066}\u{7f}\r<script>alert(1)</script>\"'><img src=x onerror=alert(1)>]]>|`*_[a](javascript:alert(1))\u{85}end";

/// What may reach a screen without colour.
#[track_caller]
pub(crate) fn harmless(what: &str, text: &str) {
    let bad = text.chars().find(|c| {
        (c.is_control() && *c != '\n' && *c != '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    });
    assert!(bad.is_none(), "{what}: {bad:?} in {text:?}");
}

#[track_caller]
fn screen(args: &[&str], said: &Said) {
    harmless(&format!("{args:?}, standard output"), &said.stdout);
    harmless(&format!("{args:?}, standard error"), &said.stderr);
    assert!(
        matches!(said.code, Some(0..=2)),
        "{args:?}: {:?} {}",
        said.code,
        said.stderr
    );
    assert!(
        !said.stderr.contains("panicked"),
        "{args:?}: {}",
        said.stderr
    );
}

/// Every word in a run that is not one of the schema's own.
fn poison(value: &mut Value, key: &str) {
    const OWN: [&str; 9] = [
        "code", "kind", "op", "engine", "rw", "unit", "scale", "mark", "started",
    ];
    match value {
        Value::String(s) if !OWN.contains(&key) => s.push_str(HOSTILE),
        Value::Array(all) => all.iter_mut().for_each(|v| poison(v, key)),
        Value::Object(all) => all.iter_mut().for_each(|(k, v)| poison(v, k)),
        _ => {}
    }
}

/// Runs of which every word is hostile, and what to read in them.
struct Runs {
    place: Place,
    dirs: Vec<String>,
}

impl Runs {
    fn new() -> Self {
        let place = Place::new();
        place
            .fathom(&[
                "run", "null:", "--rw", "randrw", "--ios", "2000", "--record",
            ])
            .expect(0);
        place
            .fathom(&[
                "run",
                "sim:optane-900p",
                "--rw",
                "randread",
                "--time",
                "20ms",
            ])
            .expect(0);
        let mut dirs = Vec::new();
        for name in names(&place.runs()) {
            let file = place.runs().join(&name).join("run.json");
            let mut run: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let flag = json!({"code": "io-errors", "void": true, "detail": "seen", "remedy": "do"});
            let finding = json!({
                "text": "a finding", "confidence": "high", "advice": "change it", "refuted_by": "a test",
            });
            run["flags"].as_array_mut().unwrap().push(flag.clone());
            run["jobs"][0]["flags"].as_array_mut().unwrap().push(flag);
            let words = [
                "target",
                "jobs",
                "flags",
                "environment",
                "name",
                "command",
                "command_line",
            ];
            for key in words {
                let mut part = run[key].take();
                poison(&mut part, key);
                run[key] = part;
            }
            let mut found = finding;
            poison(&mut found, "");
            let kept = run["findings"].clone();
            run["findings"] = json!([found]);
            fs::write(&file, run.to_string()).unwrap();
            let path = place.runs().join(&name).display().to_string();
            if place.fathom(&["report", &path, "--json"]).code != Some(0) {
                // The finding lacks what a later schema asks for: the rest is hostile enough.
                run["findings"] = kept;
                fs::write(&file, run.to_string()).unwrap();
            }
            dirs.push(path);
        }
        Self { place, dirs }
    }
}

#[test]
fn no_word_of_a_run_commands_a_terminal() {
    let _turn = beside_others();
    let runs = Runs::new();
    let (a, b) = (runs.dirs[0].as_str(), runs.dirs[1].as_str());
    let select = "SELECT name, spec FROM jobs";
    for args in [
        &["report", a][..],
        &["report", b],
        &["report", a, "--format", "terminal"],
        &["report", a, "--json"],
        &["report", a, b, "--out", "several"],
        &["query", a, "SELECT name FROM jobs"],
        &["query", a, "SELECT name FROM jobs", "--json"],
        &["query", a, "SELECT name AS \"n\u{1b}[2J\u{9b}\" FROM jobs"],
        &["query", a, select, "--duckdb"],
        &["query", a, "SELECT \u{1b}[2J nothing"],
        &["query", a, "nonsense\u{1b}[2J"],
        &["query", a],
        &["compare", a, b],
        &["compare", a, b, "--json"],
        &["compare", a, b, "--markdown"],
        &["compare", a, a, "--jobs"],
        &["compare", a, a, a],
        &["compare", a, a, a, "--markdown"],
        &["sim", "fit", a],
        &["replay", a, "null:"],
    ] {
        screen(args, &runs.place.fathom(args));
    }
    let said = runs
        .place
        .fathom(&["report", a, "--format", "terminal"])
        .expect(0);
    assert!(
        said.stdout.contains("\\u001b"),
        "it is shown, not swallowed: {}",
        said.stdout
    );
    // JSON gives back what was there.
    let json = runs.place.fathom(&["report", a, "--json"]).expect(0).json();
    assert!(json["jobs"][0]["name"].as_str().unwrap().ends_with(HOSTILE));
    // CSV in a pipe is data.
    let csv = ["query", a, "SELECT name FROM jobs", "--csv"];
    assert!(runs.place.fathom(&csv).expect(0).stdout.contains('\u{1b}'));
}

#[test]
fn no_option_file_name_or_target_commands_a_terminal() {
    let _turn = beside_others();
    let place = Place::new();
    let hostile_file = "name\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}.toml";
    fs::write(
        place.dir.join(hostile_file),
        format!("[{HOSTILE:?}]\nrw = {HOSTILE:?}\n"),
    )
    .unwrap();
    let toml = |s: &str| toml::Value::String(s.to_owned()).to_string();
    let model = place
        .fathom(&["sim", "show", "optane-900p"])
        .expect(0)
        .stdout;
    let described = model
        .lines()
        .map(|l| match l.split_once('=') {
            Some((k, _)) if k.trim() == "description" => {
                format!("description = {}\n", toml(HOSTILE))
            }
            _ => format!("{l}\n"),
        })
        .collect::<String>();
    fs::write(place.dir.join("model.toml"), described).unwrap();
    fs::write(
        place.dir.join("wrong.toml"),
        format!("{} = 1\n", toml(HOSTILE)),
    )
    .unwrap();
    fs::write(place.dir.join("trace.csv"), format!("{HOSTILE},1,2\n")).unwrap();
    fs::write(
        place.dir.join("job.fio"),
        format!(
            "[global]\nioengine=null\nsize=1m\nrw=read\n[{}]\ndescription={0}\n",
            HOSTILE.replace(['\r', ']'], "")
        ),
    )
    .unwrap();
    fs::write(
        place.dir.join("wrong.fio"),
        format!("[x]\n{HOSTILE}=1\nrw={HOSTILE}\n"),
    )
    .unwrap();
    let option = format!("--{HOSTILE}");
    let fio_name = format!("--name={HOSTILE}");
    let fio_value = format!("--rw={HOSTILE}");
    let sim = format!("sim:{HOSTILE}");
    for args in [
        &[HOSTILE][..],
        &[&option],
        &["run", HOSTILE],
        &["run", "null:", &option],
        &["run", "null:", "--rw", HOSTILE],
        &["run", "null:", "--bs", HOSTILE],
        &["run", "null:", "--name", HOSTILE, "--ios", "1000"],
        &["run", "null:", "--name", HOSTILE, "--ios", "1000", "--json"],
        &["run", "null:", "--jobs", hostile_file],
        &["run", ".", "--size", HOSTILE],
        &["run", "null:", HOSTILE, HOSTILE],
        &["run", &sim],
        &["run", "sim:model.toml", "--time", "5ms"],
        &["run", "sim:wrong.toml", "--time", "5ms"],
        &["run", hostile_file, "--rw", "write"],
        &["survey", HOSTILE],
        &["survey", "null:", "--profile", HOSTILE],
        &["sim", "show", HOSTILE],
        &["sim", "check", HOSTILE],
        &["sim", "check", "model.toml"],
        &["sim", "check", "wrong.toml"],
        &["replay", "trace.csv", "null:"],
        &["replay", HOSTILE, "null:"],
        &["report", HOSTILE],
        &["compare", HOSTILE, HOSTILE],
        &["query", HOSTILE],
        &["query", "--list", HOSTILE],
        &["clean", HOSTILE],
        &["clean", "."],
        &["devices", HOSTILE],
        &["kv", ".", "--workload", HOSTILE],
        &["fio", "job.fio"],
        &["fio", "job.fio", "--output-format=json"],
        &["fio", "job.fio", "--output-format=terse"],
        &["fio", "job.fio", "--showcmd"],
        &["fio", "job.fio", "--convert"],
        &["fio", "wrong.fio"],
        &["fio", HOSTILE],
        &[
            "fio",
            &fio_name,
            "--rw=read",
            "--ioengine=null",
            "--size=1m",
        ],
        &["fio", "--name=x", &fio_value],
        &["fio", "--name=x", &option],
        &["fio", &option],
    ] {
        screen(args, &place.fathom(args));
    }
}

/// Files below a directory, with their text.
fn texts(dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn no_word_of_a_run_becomes_markup_in_what_is_exported() {
    let _turn = beside_others();
    let runs = Runs::new();
    let mut found = Vec::new();
    for (n, run) in runs.dirs.iter().enumerate() {
        for format in ["html", "markdown", "terminal", "svg"] {
            let out = format!("{format}-{n}");
            let args = ["report", run, "--format", format, "--out", &out];
            screen(&args, &runs.place.fathom(&args));
            let before = found.len();
            let dir = runs.place.dir.join(&out);
            if dir.is_dir() {
                texts(&dir, &mut found);
            } else if let Ok(text) = fs::read_to_string(&dir) {
                found.push((out.clone(), text));
            }
            if format != "svg" {
                assert!(found.len() > before, "{format} was written");
            }
        }
    }
    let several = ["report", &runs.dirs[0], &runs.dirs[1], "--out", "both"];
    screen(&several, &runs.place.fathom(&several));
    texts(&runs.place.dir.join("both"), &mut found);
    for (name, text) in found {
        for markup in ["<script>alert", "<img src=x", "]]><"] {
            // Text is text.
            let plain = name.ends_with(".txt") || name.ends_with(".json");
            assert!(plain || !text.contains(markup), "{name}: {markup}");
        }
        if !name.ends_with(".json") {
            harmless(&name, &text.replace("\r\n", "\n"));
        }
        if name.ends_with(".md") {
            assert!(!text.contains("[a](javascript"), "{name}");
        }
    }
}

#[test]
fn a_terminal_with_colours_gets_ours_and_no_other_sequence() {
    let _turn = beside_others();
    let runs = Runs::new();
    let dir = &runs.dirs[0];
    for words in [
        format!("report {dir} --format terminal"),
        format!("compare {dir} {dir}"),
        format!("query {dir} jobs-of-nobody"),
    ] {
        let log = runs.place.dir.join("typescript");
        let command = format!("{} {words}", env!("CARGO_BIN_EXE_fathom"));
        let done = Command::new("script")
            .args(["-q", "-e", "-c", &command])
            .arg(&log)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .current_dir(&runs.place.dir)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .status();
        if done.is_err() {
            return skip("there is no script(1) that lends a terminal");
        }
        let said = fs::read(&log).unwrap();
        let text = String::from_utf8_lossy(&said).into_owned();
        let (_, text) = text.split_once('\n').unwrap_or_default();
        let text = text.split("\nScript done").next().unwrap_or_default();
        let mut plain = text.replace('\r', "");
        for own in ["0", "1", "2", "1;31", "33", "36"] {
            plain = plain.replace(&format!("\u{1b}[{own}m"), "");
        }
        harmless(&words, &plain);
    }
}

#[test]
fn no_damaged_log_or_series_breaks_who_reads_it() {
    let _turn = beside_others();
    let place = Place::new();
    place
        .fathom(&[
            "run", "null:", "--rw", "randrw", "--ios", "3000", "--record",
        ])
        .expect(0);
    let dir = place.the_run_dir();
    let run = dir.to_str().unwrap();
    let mut refused = 0;
    for name in ["io.parquet", "series.parquet"] {
        let file = dir.join(name);
        let whole = fs::read(&file).unwrap();
        for seed in 0..6usize {
            let mut bytes = whole.clone();
            let at = [
                whole.len() - 30,
                whole.len() - 400,
                5,
                whole.len() / 2,
                whole.len() - 6,
                40,
            ][seed];
            match seed {
                3 => bytes.truncate(at),
                _ => bytes[at..at + 5].fill(0xff),
            }
            fs::write(&file, bytes).unwrap();
            let io = name.starts_with("io");
            let select = if io {
                "SELECT sum(completed_ns), count(*) FROM io"
            } else {
                "SELECT sum(ios), count(service_histogram) FROM series"
            };
            for args in [
                &["query", run, select][..],
                &["report", run, "--out", "page"],
                &["replay", run, "null:"],
            ] {
                let said = place.fathom(args);
                screen(args, &said);
                refused += u32::from(said.code == Some(2));
            }
        }
        fs::write(&file, whole).unwrap();
    }
    assert!(refused > 4, "{refused}");
}

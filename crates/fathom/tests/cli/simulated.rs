//! Models as targets: every measuring command takes one, every output says that it is one.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::machine::turn;
use crate::common::{Place, alone, beside_others, names};
use crate::contract::promised;
use crate::outputs;

fn runs(place: &Place) -> Vec<std::path::PathBuf> {
    names(&place.runs())
        .iter()
        .map(|n| place.runs().join(n))
        .collect()
}

#[test]
fn every_command_that_takes_a_target_takes_a_model_and_says_so_in_every_output() {
    let _turn = beside_others();
    let place = Place::new();
    for args in [
        &["run", "sim:optane-900p", "--qd", "4", "--time", "50ms"][..],
        &["survey", "sim:samsung-960pro"],
        &["curve", "sim:optane-900p", "--closed-only"],
        &["mix", "sim:intel-p3700", "--size", "1g"],
        &["burst", "sim:optane-900p", "--size", "1g"],
        &[
            "ab",
            "sim:optane-900p",
            "--threshold",
            "50%",
            "--a",
            "qd=1",
            "--b",
            "qd=2",
            "--time",
            "20ms",
        ],
        &[
            "pts",
            "sim:intel-s3510",
            "--tests",
            "lat",
            "--unit",
            "1s",
            "--size",
            "1g",
            "--yes",
        ],
        &[
            "raid",
            "sim:intel-p3700",
            "--levels",
            "5",
            "--members",
            "3,4",
            "--time",
            "20ms",
        ],
        &["vm", "sim:optane-900p", "--vms", "1,2", "--time", "20ms"],
        &["tune", "sim:optane-900p", "--only", "scheduler"],
        &[
            "reproduce",
            "shrout2017",
            "--on",
            "sim:optane-900p",
            "--time",
            "50ms",
        ],
    ] {
        let said = place.fathom(args).expect(0);
        assert!(
            said.stdout.contains("SIMULATED"),
            "{args:?}: {}",
            said.stdout
        );
    }
    assert_eq!(runs(&place).len(), 11);
    assert!(place.names().is_empty(), "a model leaves no file");
    for run in runs(&place) {
        let json: Value =
            serde_json::from_str(&fs::read_to_string(run.join("run.json")).unwrap()).unwrap();
        promised(&json);
        assert_eq!(json["simulated"], true);
        assert_eq!(json["target"]["kind"], "simulated");
        for job in json["jobs"].as_array().unwrap() {
            let flags = job["flags"].as_array().unwrap();
            assert!(flags.iter().any(|f| f["code"] == "simulated"), "{job}");
        }
        let html = fs::read_to_string(run.join("report.html")).unwrap();
        assert!(html.contains("SIMULATED"), "{}", run.display());
        for name in names(&run).iter().filter(|n| n.ends_with(".parquet")) {
            let bytes = fs::read(run.join(name)).unwrap();
            let said = bytes.windows(16).any(|w| w == b"fathom.simulated");
            assert!(
                said || json["command"] == "vm" && name == "io.parquet",
                "{name} of {}",
                run.display()
            );
        }
        place
            .fathom(&["report", run.to_str().unwrap(), "--format", "csv"])
            .expect(0);
        let mut sheets = 0;
        for name in names(&run).iter().filter(|n| n.ends_with(".csv")) {
            let text = fs::read_to_string(run.join(name)).unwrap();
            assert!(
                text.lines().next().unwrap().ends_with(",simulated"),
                "{name}: {text}"
            );
            sheets += 1;
        }
        assert!(sheets >= 3);
    }
}

#[test]
fn a_users_own_model_file_is_a_target() {
    let _turn = beside_others();
    let place = Place::new();
    let shown = place.fathom(&["sim", "show", "optane-900p"]).expect(0);
    let slower = shown.stdout.replace("media_us = 5.8", "media_us = 50");
    fs::write(place.dir.join("mine.toml"), slower).unwrap();
    place.fathom(&["sim", "check", "mine.toml"]).expect(0);
    let mean = |target: &str| {
        let run = place
            .fathom(&["run", target, "--time", "20ms", "--json"])
            .expect(0)
            .json();
        run["jobs"][0]["read"]["service_ns"]["mean"]
            .as_f64()
            .unwrap()
    };
    let more = mean("sim:mine.toml") - mean("sim:optane-900p");
    assert!(more > 40_000.0, "{more} ns more");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_one_sentence() {
    let _turn = beside_others();
    let place = Place::new();
    fs::write(place.dir.join("bad.toml"), "description = 3").unwrap();
    for (target, what) in [
        ("sim:optan-900p", "did you mean sim:optane-900p?"),
        ("sim:raid5:2xoptane-900p", "needs at least 3"),
        ("sim:raid10:5xoptane-900p", "even number"),
        ("sim:raid7:8xoptane-900p", "expected 0, 1, 5, 6 or 10"),
        ("sim:vm99:optane-900p", "vm1 to vm64"),
        ("sim:optane-900p,colour=red", "unknown option 'colour'"),
        ("sim:raid5:4xoptane-900p,degrade", "did you mean degraded?"),
        ("sim:bad.toml", "model bad.toml"),
        ("sim:missing.toml", "cannot be read"),
        ("sim:", "no such model"),
    ] {
        for command in ["run", "survey", "curve", "mix", "burst"] {
            let said = place.fathom(&[command, target]).expect(2);
            let message = &said.stderr;
            assert!(message.contains(what), "{command} {target}: {message}");
            assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        }
        assert!(names(&place.runs()).is_empty());
    }
}

#[test]
fn a_reproduction_is_a_run_with_rows_charts_and_a_report() {
    let _turn = beside_others();
    let place = Place::new();
    let out = place.runs();
    let out = out.to_str().unwrap();
    for paper in ["zhang2018", "han2021", "oneill2018", "shrout2017"] {
        let run = place
            .fathom(&["reproduce", paper, "--json", "--out", out])
            .expect(0)
            .json();
        assert_eq!(run["simulated"], true);
        let rows = run["rows"].as_array().unwrap();
        for row in rows {
            for key in ["id", "place", "what", "unit", "role", "note"] {
                assert!(row[key].is_string(), "{key}: {row}");
            }
            let told = row["ours"].is_number() || !row["note"].as_str().unwrap().is_empty();
            assert!(told, "a value without a counterpart has a reason: {row}");
        }
        // Every number comes from a job that is kept like those of any other experiment.
        let jobs = run["jobs"].as_array().unwrap();
        let least = if paper == "oneill2018" { 2 } else { 20 };
        assert!(jobs.len() >= least, "{paper}: {}", jobs.len());
        let mut called: Vec<&str> = jobs.iter().map(|j| j["name"].as_str().unwrap()).collect();
        called.sort_unstable();
        called.dedup();
        assert_eq!(called.len(), jobs.len(), "names are unique");
        for job in jobs {
            assert_eq!(job["experiment"], paper);
            let flags = job["flags"].as_array().unwrap();
            assert!(flags.iter().any(|f| f["code"] == "simulated"), "{job}");
        }
        let roles = |role: &str| rows.iter().filter(|r| r["role"] == role).count();
        assert!(roles("fit") > 0 && roles("prediction") > 0, "{paper}");
        let charts: usize = run["sections"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["charts"].as_array().unwrap().len())
            .sum();
        assert!(charts >= 2, "{paper}: {charts}");
    }
    for run in runs(&place) {
        let html = fs::read_to_string(run.join("report.html")).unwrap();
        assert!(html.contains("SIMULATED"));
    }
    place.fathom(&["reproduce", "nobody1900"]).expect(2);
    let near = place.fathom(&["reproduce", "zang2018"]).expect(2);
    assert!(
        near.stderr.contains("did you mean zhang2018?"),
        "{}",
        near.stderr
    );
    place
        .fathom(&["reproduce", "zhang2018", "--figure", "fig99"])
        .expect(2);
}

#[test]
fn the_papers_experiments_run_on_a_target_that_is_there() {
    let _turn = beside_others();
    // Labs have runs of their own: see below.
    for (paper, rows_least, jobs) in [
        ("zhang2018", 20, 4 + 2 + 2 + 9),
        ("han2021", 28, (8 + 2) * 2),
        ("oneill2018", 2, 1),
        ("shrout2017", 2, 4),
    ] {
        let place = Place::new();
        let out = place.runs();
        let on = ["reproduce", paper, "--on", ".", "--size", "40m"];
        let how = ["--time", "60ms", "--no-labs", "--repeats", "2", "--json"];
        let repeats = if paper == "han2021" { 2 } else { 1 };
        let how = if repeats == 2 {
            &how[..]
        } else {
            &["--time", "60ms", "--no-labs", "--json"][..]
        };
        let to = ["--out", out.to_str().unwrap()];
        let run = place.fathom(&[&on[..], how, &to].concat()).json();
        assert_eq!(run["simulated"], false);
        let rows = run["rows"].as_array().unwrap();
        assert!(rows.iter().all(|r| r["role"] == "measured"));
        // A busy machine may leave these very short loads without a result: how many have one is said, not asked for.
        let measured = rows.iter().filter(|r| r["ours"].is_number()).count();
        eprintln!("{paper}: {measured} values, {rows_least} on a quiet machine");
        for row in rows.iter().filter(|r| !r["ours"].is_number()) {
            assert!(!row["note"].as_str().unwrap().is_empty(), "{row}");
        }
        let loads = run["jobs"].as_array().unwrap();
        let loads = loads.iter().filter(|j| j["experiment"] == paper).count();
        assert_eq!(loads, jobs, "{paper}");
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
    let place = Place::new();
    let refused = place.fathom(&[
        "reproduce",
        "han2021",
        "--on",
        ".",
        "--figure",
        "Fig. 9",
        "--size",
        "8m",
        "--time",
        "10ms",
    ]);
    refused.expect(2);
    assert!(place.names().is_empty() && names(&place.runs()).is_empty());
}

#[test]
fn two_targets_show_what_a_paper_says_of_two_devices() {
    let _turn = beside_others();
    let place = Place::new();
    let short = "--size 2g --time 300ms --no-labs --json";
    let run = |paper: &str, on: [&str; 2], more: &str| {
        let line = format!("reproduce {paper} --on {} --on {} {more}", on[0], on[1]);
        let words: Vec<&str> = line.split(' ').collect();
        place.fathom(&words).json()
    };
    let row = |run: &Value, id: &str| {
        let rows = run["rows"].as_array().unwrap();
        rows.iter().find(|r| r["id"] == id).unwrap().clone()
    };
    // The models of the papers' devices in their places: what the papers say of both holds.
    let zhang = run("zhang2018", ["sim:optane-900p", "sim:intel-s3510"], short);
    for id in ["Z006", "Z045", "Z055", "Z058", "D001", "Z086", "Z013"] {
        let row = row(&zhang, id);
        let error = row["error_percent"].as_f64().unwrap();
        assert!(error.abs() < 10.0, "{row}");
    }
    let nand = "sim:samsung-960pro,fill=90,state=steady";
    let shrout = run("shrout2017", ["sim:optane-900p", nand], short);
    let lead = row(&shrout, "S014")["ours"].as_f64().unwrap();
    assert!((4.5..8.0).contains(&lead), "{lead}");
    // Exchanged they say the opposite.
    let other = run("zhang2018", ["sim:intel-s3510", "sim:optane-900p"], short);
    assert!(row(&other, "Z055")["ours"].as_f64().unwrap() < 1.0);
    // What is there runs labs on both.
    let dirs = ["a", "b"].map(|dir| place.base().join(dir));
    dirs.iter().for_each(|d| std::fs::create_dir(d).unwrap());
    let both = [dirs[0].to_str().unwrap(), dirs[1].to_str().unwrap()];
    let real = "--figure Real-world --size 8m --time 60ms --json";
    let copied = row(&run("shrout2017", both, real), "S009");
    assert!(copied["ours"].is_number(), "{copied}");
    assert!(copied["note"].as_str().unwrap().contains("interval"));
    let third = [
        "reproduce",
        "han2021",
        "--on",
        "a",
        "--on",
        "b",
        "--on",
        "c",
    ];
    assert!(place.fathom(&third).refusal().contains("third target"));
}

#[test]
fn one_figure_of_a_paper_runs_on_a_target_that_is_there() {
    let _turn = beside_others();
    let place = Place::new();
    let out = place.runs();
    let run = place
        .fathom(&[
            "reproduce",
            "zhang2018",
            "--on",
            ".",
            "--size",
            "16m",
            "--time",
            "200ms",
            "--figure",
            "Table III",
            "--no-labs",
            "--json",
            "--out",
            out.to_str().unwrap(),
        ])
        .json();
    let rows = run["rows"].as_array().unwrap();
    let shown = || rows.iter().filter(|r| r["ours"].is_number());
    // Two loads, each beside the values of two devices; a busy machine may leave them without a result.
    assert!([0, 2, 4].contains(&shown().count()), "{}", shown().count());
    for row in shown() {
        assert_eq!(row["role"], "measured");
        assert!(row["ours"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn values_of_labs_come_from_the_labs_and_lead_to_their_runs() {
    let _turn = beside_others();
    let place = Place::new();
    let out = place.runs();
    let out = out.to_str().unwrap();
    let shown = |run: &Value| {
        let rows = run["rows"].as_array().unwrap();
        rows.iter()
            .filter(|r| r["ours"].is_number())
            .cloned()
            .collect::<Vec<_>>()
    };
    // Arrays of a model, each published point of Fig. 4 and 5 among them.
    let on = [
        "reproduce",
        "han2021",
        "--on",
        "sim:optane-900p",
        "--time",
        "20ms",
        "--repeats",
        "1",
    ];
    let run = place
        .fathom(&[&on[..], &["--figure", "fig4", "--json", "--out", out]].concat())
        .expect(0)
        .json();
    let rows = shown(&run);
    assert_eq!(rows.len(), 12, "{rows:?}");
    for row in &rows {
        assert_eq!(row["role"], "prediction");
        assert!(
            row["note"].as_str().unwrap().contains("fathom raid, run "),
            "{row}"
        );
        // Loosely: the lab's method is not the paper's to the last detail.
        assert!(row["error_percent"].as_f64().unwrap().abs() < 60.0, "{row}");
    }
    // The lab's run can be given instead of made again.
    let lab = runs(&place)
        .into_iter()
        .find(|r| r.to_str().unwrap().contains("-raid"))
        .unwrap();
    let lab = lab.to_str().unwrap();
    let with = [
        "--no-labs",
        "--with",
        lab,
        "--figure",
        "fig5",
        "--json",
        "--out",
        out,
    ];
    let again = place.fathom(&[&on[..], &with].concat()).expect(0).json();
    assert_eq!(shown(&again).len(), 12);
    place
        .fathom(&["reproduce", "zhang2018", "--with", lab, "--out", out])
        .expect(2);
    // One machine beside the host.
    let vm = [
        "reproduce",
        "zhang2018",
        "--on",
        "sim:optane-900p",
        "--time",
        "20ms",
    ];
    let run = place
        .fathom(&[&vm[..], &["--figure", "Z066", "--json", "--out", out]].concat())
        .expect(0)
        .json();
    let rows = shown(&run);
    assert_eq!(rows.len(), 1);
    assert!(
        rows[0]["error_percent"].as_f64().unwrap().abs() < 10.0,
        "{rows:?}"
    );
}

/// Reads as a survey has them, of one kind only: a whole survey takes a minute of all processors to be fitted.
const SWEEP: &str = "[global]
rw = \"randread\"
size = \"4g\"
time = \"300ms\"
[[job]]
rw = \"read\"
[[job]]
rw = \"read\"
bs = \"128k\"
threads = 2
qd = 16
[[job]]
[[job]]
qd = 2
[[job]]
qd = 4
[[job]]
threads = 2
qd = 4
[[job]]
threads = 2
qd = 8
[[job]]
threads = 2
qd = 16
[[job]]
threads = 2
qd = 64
# The same as an earlier one, under another name.
[[job]]
rw = \"randrw\"
read-share = 100
threads = 2
qd = 8
";

#[test]
fn a_model_fitted_to_reads_is_a_target_and_knows_how_sure_it_is() {
    let _turns = (turn(), beside_others());
    let place = Place::new();
    fs::write(place.dir.join("sweep.toml"), SWEEP).unwrap();
    place
        .fathom(&["run", "sim:optane-900p", "--jobs", "sweep.toml"])
        .expect(0);
    let run = place.the_run_dir();
    // Its file is an output like any other: refused before anything is fitted.
    let fit = |file: &Path| {
        let args = ["sim", "fit", run.to_str().unwrap(), "--json", "--measure"];
        let how = ["--time", "100ms", "--out", "further", "--file"];
        place.fathom(&[&args[..], &how, &[file.to_str().unwrap()]].concat())
    };
    let made = outputs::ext4();
    let before = made.as_ref().map(|(disk, _)| disk.checksum());
    let (file, victim) = (place.dir.join("model.toml"), place.dir.join("victim"));
    fs::write(&victim, outputs::USERS).unwrap();
    for trap in outputs::traps(made.as_ref().map(|m| &m.1), &victim) {
        trap.set(&file);
        assert!(fit(&file).refusal().contains(trap.what));
        outputs::clear(&file);
    }
    if let Some((_, device)) = &made {
        assert!(fit(&device.path).refusal().contains("block device"));
    }
    assert!(fit(&victim).refusal().contains("victim"));
    assert_eq!(fs::read(&victim).unwrap(), outputs::USERS);
    assert_eq!(before, made.as_ref().map(|(disk, _)| disk.checksum()));
    place.fathom(&["sim", "fit", "nowhere"]).expect(2);
    let run_dir = run.to_str().unwrap();
    place
        .fathom(&["sim", "fit", run_dir, "--destroy", "X"])
        .expect(2);

    // One of an earlier fit is replaced. What narrows it most is measured, and fitted with the rest.
    fs::write(&file, "# Fitted by fathom sim fit to a survey\n").unwrap();
    let said = fit(&file).expect(0).json();
    let residuals = said["residuals"].as_array().unwrap();
    let of = |role: &str, quantity: &str| -> Vec<&serde_json::Value> {
        (residuals.iter())
            .filter(|r| r["role"] == role && r["quantity"] == quantity)
            .collect()
    };
    let error = |r: &serde_json::Value| r["error_percent"].as_f64().unwrap().abs();
    let held_out = of("prediction", "mean");
    let further = Path::new(said["measured"].as_str().unwrap());
    let further: serde_json::Value =
        serde_json::from_slice(&fs::read(place.dir.join(further).join("run.json")).unwrap())
            .unwrap();
    let measured = further["jobs"].as_array().unwrap().len();
    assert!((1..=4).contains(&measured), "{measured}");
    // Nine loads, one of them under two names, and what was measured further.
    assert!(held_out.len() >= 2);
    assert_eq!(of("fit", "mean").len() + held_out.len(), 9 + measured);
    for r in of("fit", "mean").iter().chain(&held_out) {
        assert!(error(r) < 5.0, "{r}");
    }
    for r in of("prediction", "p99") {
        assert!(error(r) < 25.0, "{r}");
        let ends = r["interval_ns"].as_array().unwrap();
        let [low, high] = [0, 1].map(|i| ends[i].as_f64().unwrap());
        let model = r["model_ns"].as_f64().unwrap();
        assert!(low < model && model < high, "{r}");
    }
    // No load is a fitted one and one that was held out.
    for r in &held_out {
        assert!(
            of("fit", "mean").iter().all(|f| f["what"] != r["what"]),
            "{r}"
        );
    }
    assert_eq!(said["unfit"], false);
    let rate = |v: &&serde_json::Value| v["key"] == "read.gb_per_s";
    let value = said["values"]
        .as_array()
        .unwrap()
        .iter()
        .find(rate)
        .unwrap();
    let [low, high] = ["low", "high"].map(|k| value[k].as_f64().unwrap());
    let near = low > 2.557 * 0.98 && high < 2.557 * 1.02;
    assert!(near && low < high, "{value}");

    // It is a target, and what it leaves open is part of a plan.
    let target = format!("sim:{}", file.display());
    place
        .fathom(&[
            "run",
            &format!("{target},draw=3"),
            "--time",
            "10ms",
            "--out",
            "elsewhere",
        ])
        .expect(0);
    let said = place
        .fathom(&["run", "sim:optane-900p,draw=1", "--time", "10ms"])
        .refusal();
    assert!(said.contains("not fitted"), "{said}");
    let plan = place
        .fathom(&[
            "plan",
            &target,
            "--rw",
            "randread",
            "--bs",
            "4k",
            "--latency",
            "100us",
            "--demand",
            "50000",
            "--time",
            "200ms",
            "--repeats",
            "2",
            "--json",
            "--out",
            "elsewhere",
        ])
        .expect(0)
        .json();
    let names = plan["jobs"].as_array().unwrap().iter();
    let names: Vec<&str> = names.filter_map(|j| j["name"].as_str()).collect();
    assert!(
        names.iter().any(|n| n.contains("as-likely-8-")),
        "{names:?}"
    );

    // What is far off says so with every number.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("unfit = false", "unfit = true")).unwrap();
    let said = place
        .fathom(&[
            "run",
            &target,
            "--time",
            "10ms",
            "--json",
            "--out",
            "elsewhere",
        ])
        .expect(0)
        .json();
    let flags = said["jobs"][0]["flags"].as_array().unwrap();
    assert!(
        flags.iter().any(|f| f["code"] == "model-unfit"),
        "{flags:?}"
    );
}

#[test]
fn scheduled_faults_are_seen_by_a_job_as_the_device_shows_them() {
    let _turn = beside_others();
    let place = Place::new();
    let job = |target: &str, code| {
        place
            .fathom(&[
                "run",
                target,
                "--size",
                "1g",
                "--qd",
                "4",
                "--time",
                "200ms",
                "--on-error",
                "continue",
                "--json",
            ])
            .expect(code)
            .json()["jobs"][0]
            .clone()
    };
    let max = |job: &Value| job["read"]["service_ns"]["max"].as_u64().unwrap();
    let errors = |job: &Value| job["read"]["errors"].as_u64().unwrap();
    assert!(max(&job("sim:optane-900p", 0)) < 1_000_000);
    assert!(max(&job("sim:optane-900p,stall=50ms+20ms", 0)) > 19_000_000);
    assert!(max(&job("sim:optane-900p,spike=50ms+20msx100", 0)) > 700_000);
    assert!(errors(&job("sim:optane-900p,error=0+100m", 1)) > 100);
    assert!(errors(&job("sim:optane-900p,dead=100ms", 1)) > 100);
    // An array hides what its redundancy covers.
    let hidden = job("sim:raid5:4xoptane-900p,error=0+100m", 0);
    assert_eq!(errors(&hidden), 0);
}

#[test]
fn formulas_answer_and_refuse_the_impossible() {
    let _turn = beside_others();
    let place = Place::new();
    let answer = |args: &[&str]| place.fathom(args).expect(0).json();
    let raid = answer(&["sim", "model", "raid", "5", "8", "--json"]);
    assert_eq!(raid["paper"]["write"], 1.75);
    let kv = answer(&["sim", "model", "kv", "--iops", "550000", "--json"]);
    assert_eq!(kv["ceiling"], 275_000.0);
    let cache = answer(&[
        "sim", "model", "cache", "--hits", "50", "--io", "10us", "--load", "2us", "--json",
    ]);
    assert_eq!(cache["mean_ns"], 6_000.0);
    let page = answer(&[
        "sim",
        "model",
        "page",
        "--seek",
        "5.8us",
        "--bandwidth",
        "2.557",
        "--json",
    ]);
    let ideal = page["ideal_bytes"].as_f64().unwrap();
    assert!((6_000.0..7_000.0).contains(&ideal), "{ideal}");
    place.fathom(&["sim", "model", "raid", "5", "2"]).expect(2);
    place.fathom(&["sim", "model", "page"]).expect(2);
    place
        .fathom(&["sim", "model", "cache", "--hits", "120", "--io", "1us"])
        .expect(2);
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_jobs_to_the_bit() {
        let _turn = alone();
        let place = Place::new();
        let jobs = || {
            place
                .fathom(&[
                    "run",
                    "sim:vm4:intel-s3510",
                    "--rw",
                    "randrw",
                    "--threads",
                    "4",
                    "--qd",
                    "8",
                    "--time",
                    "200ms",
                    "--seed",
                    "7",
                    "--json",
                ])
                .expect(0)
                .json()["jobs"]
                .clone()
        };
        assert_eq!(jobs(), jobs());
    }
}

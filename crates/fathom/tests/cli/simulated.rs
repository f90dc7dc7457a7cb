//! Models as targets: every measuring command takes one, every output says that it is one.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::machine::turn;
use crate::common::{Place, alone, beside_others, names};
use crate::contract::promised;
use crate::outputs;
use crate::reproduced::runs;

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

//! Others use the device while each command measures: nothing that is said is better than the jobs' flags.

use std::collections::BTreeSet;
use std::fs;
use std::process::Child;

use serde_json::Value;

use crate::common::{Place, Said, beside_others, codes, send, skip, until};

/// Commands that measure a file or a directory, each as small as it can be: a second each.
const COMMANDS: [&str; 11] = [
    "run . --rw randread --size 32m --time 200ms",
    "run . --rw randrw --qd 8 --size 32m --time 200ms",
    "curve . --size 32m --time 50ms --ramp 0s --repeats 2 --max-qd 4 --closed-only",
    "burst . --size 32m --time 50ms --ramp 0s --repeats 2 --burst 2m",
    "pages . --size 32m --time 50ms --ramp 0s --repeats 2 --app 10us",
    "kv . --size 64m --keys 20000 --time 200ms --repeats 2 --workload update",
    "condition made --create --size 32m --round 100ms --test 200ms --no-purge --passes 1 --overwrite 0 --until-steady rw=randread",
    "ab . --a qd=1 --b qd=8 --rw randread --size 32m --time 50ms --blocks 5 --threshold 999%",
    "replay ../t.spc . --size 32m",
    "stack . --size 16m --time 200ms --rw randread --direct --qd 1 --engine preadv",
    "app copy . --bytes 16m --repeats 2",
];

/// Those that take longer.
const LONG: [&str; 8] = [
    "mix . --size 32m --time 20ms --ramp 0s --repeats 2",
    "sizes . --size 32m --time 30ms --repeats 2",
    "slo . --size 32m --time 100ms --repeats 2 --rw randread --latency 20ms",
    "survey . --size 32m --time 20ms --ramp 0s --repeats 2",
    "cache . --size 64m --threads 2 --keys uniform --shares 10,20,40 --time 100ms --repeats 2",
    "compress . --size 32m --time 50ms --repeats 2 --no-writes",
    "tune . --only scheduler,read-ahead --size 32m --pass 50ms",
    "paths . --size 32m --threads 2 --time 50ms --repeats 2",
];

/// In SPC's format: unit, block, bytes, operation, seconds.
const TRACE: &str = "0,0,4096,R,0.000\n0,8,4096,W,0.1\n0,64,8192,R,0.2\n";

/// Another process that reads the same disk until it is dropped.
struct Other(Child);

impl Other {
    /// `None` where the disk of the place counts nothing.
    fn begin(place: &Place) -> Option<Self> {
        let elsewhere = place.runs().with_file_name("other-runs");
        let out = elsewhere.to_str().unwrap();
        let file = place.runs().with_file_name("others");
        let file = file.to_str().unwrap();
        let fill = ["--create", "--rw", "write", "--bs", "1m", "--size", "128m"];
        let made = place.fathom(&[&["run", file, "--out", out, "--json"], &fill[..]].concat());
        let made = made.expect(0).json();
        if codes(&made["jobs"][0]["flags"]).contains(&"not-checked".to_owned()) {
            return None;
        }
        let read = "--rw randread --bs 1m --qd 2 --rate 400 --time 160s";
        let mut words = vec!["run", file, "--out", out];
        words.extend(read.split(' '));
        let other = Self(place.start(&words));
        until("the other process reads", || {
            let io = fs::read_to_string(format!("/proc/{}/io", other.0.id())).unwrap_or_default();
            let read = io.lines().find_map(|l| l.strip_prefix("read_bytes: "));
            read.is_some_and(|n| n.parse::<u64>().unwrap() > 8 << 20)
        });
        Some(other)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        send(self.0.id(), libc::SIGKILL);
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_said_is_better_than_the_jobs_flags_while_others_use_the_device() {
    said_of(&COMMANDS);
}

#[test]
#[ignore = "takes a minute: bench/truth runs it"]
fn nothing_said_by_long_commands_is_better_than_the_jobs_flags() {
    said_of(&LONG);
}

fn said_of(commands: &[&str]) {
    let _turn = beside_others();
    let place = Place::new();
    let Some(_other) = Other::begin(&place) else {
        skip("the device behind the build directory has no counters");
        return;
    };
    fs::write(place.runs().with_file_name("t.spc"), TRACE).unwrap();
    for (i, command) in commands.iter().enumerate() {
        let out = place.runs().join(i.to_string());
        let mut words: Vec<&str> = command.split(' ').collect();
        words.extend(["--out", out.to_str().unwrap()]);
        let said = place.fathom(&words);
        let kept: Vec<_> = fs::read_dir(&out)
            .unwrap_or_else(|e| panic!("{command}: {e}: {}", said.stderr))
            .map(|e| e.unwrap().path().join("run.json"))
            .collect();
        assert_eq!(kept.len(), 1, "{command}: {}", said.stderr);
        let run: Value = serde_json::from_slice(&fs::read(&kept[0]).unwrap()).unwrap();
        not_better(command, &run, &said);
    }
}

/// Flags that say something against what carries them.
fn against(flags: &Value) -> BTreeSet<String> {
    let all = codes(flags).into_iter();
    all.filter(|c| c != "simulated" && c != "emulated")
        .collect()
}

fn void(flags: &Value) -> bool {
    flags.as_array().unwrap().iter().any(|f| f["void"] == true)
}

#[track_caller]
fn not_better(command: &str, run: &Value, said: &Said) {
    let jobs = run["jobs"].as_array().unwrap();
    let flagged = jobs.iter().filter(|j| !against(&j["flags"]).is_empty());
    let flagged = flagged.count();
    let seen = |j: &&Value| against(&j["flags"]).contains("foreign-io");
    assert!(
        jobs.iter().any(|j| seen(&j)),
        "{command}: no job knows of the others"
    );
    // What names no job may rest on any.
    let behind = |shown: &Value| -> Vec<&Value> {
        let named = shown["jobs"].as_array().unwrap();
        match named.is_empty() {
            true => jobs.iter().collect(),
            false => named
                .iter()
                .map(|i| &jobs[i.as_u64().unwrap() as usize])
                .collect(),
        }
    };
    let mut usable = 0;
    let headlines = run["headlines"].as_array().unwrap();
    for h in headlines {
        let its = behind(h);
        let (all, own) = (
            its.iter().flat_map(|j| against(&j["flags"])),
            against(&h["flags"]),
        );
        let missing: Vec<String> = all.filter(|c| !own.contains(c)).collect();
        assert!(missing.is_empty(), "{command}: {missing:?}: {h}");
        let empty = h["estimate"].is_null();
        assert!(
            empty || void(&h["flags"]) || its.iter().any(|j| !void(&j["flags"])),
            "{command}: rests on void jobs alone: {h}"
        );
        usable += usize::from(!empty && !void(&h["flags"]));
    }
    let told: String = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for f in run["findings"].as_array().unwrap() {
        let its = behind(f);
        let confidence = f["confidence"].as_str().unwrap();
        if its.iter().any(|j| !against(&j["flags"]).is_empty()) {
            assert_ne!(confidence, "strong", "{command}: {f}");
        }
        if its.iter().any(|j| void(&j["flags"])) {
            assert_eq!(confidence, "weak", "{command}: {f}");
        }
        // Where the terminal says it, it says how sure it is.
        let text = f["text"].as_str().unwrap();
        if let Some((_, after)) = told.split_once(text) {
            assert!(
                after
                    .trim_start_matches(['.', ' '])
                    .starts_with(&format!("({confidence} evidence)")),
                "{command}: {text}: {told}"
            );
        }
    }
    for s in run["sections"].as_array().unwrap() {
        let id = s["id"].as_str().unwrap();
        let own = against(&s["flags"]);
        let its = jobs.iter().filter(|j| {
            let experiment = j["experiment"].as_str().unwrap();
            !experiment.is_empty() && id == experiment
        });
        let all: BTreeSet<String> = its.flat_map(|j| against(&j["flags"])).collect();
        // Rounds that are judged together say in their verdict whether the level moved.
        let missing: Vec<_> = all
            .difference(&own)
            .filter(|c| *c != "not-steady")
            .collect();
        assert!(missing.is_empty(), "{command}: section {id}: {missing:?}");
    }
    for clear in ["All ", "The number ", "Every check"] {
        let clear = told.match_indices(clear).any(|(at, _)| {
            let sentence = told[at..].split(['.', ',']).next().unwrap();
            sentence.ends_with("passed every check") || sentence.ends_with("check passed")
        });
        assert!(!clear, "{command}: {told}");
    }
    let whole = format!("{0} of {0} numbers passed", headlines.len());
    assert!(!told.contains(&whole), "{command}: {told}");
    let counted = format!("{flagged} of {} jobs carry flags", jobs.len());
    assert!(
        headlines.is_empty() || told.contains(&counted),
        "{command}: {counted}: {told}"
    );
    // A flag alone fails nothing; a run without one usable number does.
    let dead = match headlines.is_empty() {
        true => jobs.iter().any(|j| void(&j["flags"])),
        false => usable == 0,
    };
    let code = said.code.unwrap();
    assert!(code != 0 || !dead, "{command}: exit code {code}");
    assert!(code < 2, "{command}: {}", said.stderr);
}

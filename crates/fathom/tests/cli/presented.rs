//! What is shown is made from results and jobs: a run without anything shown gives the same page again.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Place, alone, beside_others, skip};
use crate::db::{found, has};

/// Commands whose results are data, each as small as it can be.
const COMMANDS: [&str; 20] = [
    "survey sim:optane-900p --size 64m",
    "survey sim:optane-900p --size 64m --seed 2",
    "curve sim:intel-s3510 --size 64m --max-qd 16",
    "mix sim:optane-900p --size 64m",
    "burst sim:optane-900p --size 64m --burst 4m",
    "pages sim:optane-900p --size 64m",
    "sizes sim:optane-900p --size 64m --time 20ms",
    "slo sim:intel-s3510 --size 64m --time 200ms",
    "plan sim:intel-s3510 --size 64m --time 100ms --demand 20000 --growth 4 --beside sim:optane-900p --prices 90,400",
    "scale sim:optane-900p --hosts 4 --time 200ms",
    "neighbour sim:optane-900p --hosts 3 --time 200ms",
    // Long enough for a burst and a base.
    "run sim:samsung-960pro --rw write --bs 128k --qd 32 --time 300s",
    "ab sim:optane-900p --a qd=1 --b qd=8 --rw randread --time 20ms --blocks 5 --threshold 999%",
    "condition sim:samsung-960pro --size 256m --round 100ms --test 500ms --until-steady rw=randwrite",
    "pts sim:intel-s3510 --size 64m --unit 2ms --tests tp,lat,wsat,hir,dirth",
    "tune sim:samsung-960pro --only idle-states,scheduler",
    "compress sim:optane-900p --size 64m --time 250ms --repeats 2",
    "replay ../t.spc null: --size 64m",
    "reproduce shrout2017",
    "reproduce oneill2018 --on sim:optane-900p --time 20ms --no-labs",
];

/// Those that look at the whole machine.
const LOOKING: [&str; 2] = [
    "stack . --size 16m --time 200ms --rw randread --direct",
    "watch --time 200ms",
];

/// Those that need a device which only guests have, with the test there.
const IN_GUESTS: [(&str, &str); 1] = [(
    "zones DEVICE",
    include_str!("../../../fathom-system/tests/devices_in_guest/zones.rs"),
)];

#[test]
fn in_guests_pages_are_made_anew_too() {
    for (command, test) in IN_GUESTS {
        let name = command.split(' ').next().unwrap();
        assert!(test.contains(&format!("fathom {name} ")), "{command}");
        assert!(
            test.contains("fathom report . > /dev/null && cmp run.json"),
            "{command}"
        );
    }
}

/// In SPC's format: unit, block, bytes, operation, seconds.
const TRACE: &str = "0,0,4096,R,0.000\n0,8,4096,W,0.001\n0,64,8192,R,0.003\n";

/// Labs, each as small as it can be, with what they need.
const LABS: &[(&str, &[&str])] = &[
    (
        "metadata . --files 500 --threads 2 --time 500ms --repeats 2",
        &[],
    ),
    (
        "coherence . --rounds 2 --hosts h1,h2 --hosts-fathom @fathom",
        &[],
    ),
    (
        "kv . --size 64m --keys 20000 --time 300ms --repeats 2 --workload update,d --beside redb,lmdb,fjall",
        &[],
    ),
    (
        "db mysql . --experiment one,try --try innodb_flush_neighbors=0 --rows 2000 --threads 2 --time 300ms --repeats 2 --workload mixed",
        &["mariadbd", "my_print_defaults"],
    ),
    (
        "db tpcc . --database sqlite --terminals 4 --time 500ms --repeats 2 --no-embedded",
        &[],
    ),
    (
        "db sql . --database sqlite --builtin simple-update@3 --builtin select-only --clients 2 --time 500ms --repeats 2",
        &[],
    ),
    ("app copy . --bytes 4m --repeats 2", &[]),
    (
        "app swap . --bytes 64m --share 50 --time 300ms --repeats 2",
        &[],
    ),
    (
        "cache . --size 64m --threads 2 --keys uniform --shares 10,20,40 --time 200ms --repeats 2",
        &[],
    ),
    (
        "cache sim:optane-900p --size 64m --threads 2 --keys zipf --shares 10,40 --repeats 2",
        &[],
    ),
    (
        "paths . --size 32m --threads 2 --time 200ms --repeats 2 --make ext4",
        &[],
    ),
    (
        "raid sim:optane-900p --size 64m --levels 0,5 --members 3 --time 20ms --repeats 2",
        &[],
    ),
    ("vm sim:optane-900p --size 256m --vms 1,2 --repeats 2", &[]),
];

#[test]
fn a_run_without_anything_shown_gives_the_same_page() {
    for command in COMMANDS {
        let _turn = beside_others();
        presents_itself_again(command);
    }
}

fn presents_itself_again(command: &str) {
    let place = Place::new();
    fs::write(place.runs().with_file_name("t.spc"), TRACE).unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let said = place.fathom(&words);
    assert_eq!(said.code, Some(0), "{command}: {}", said.stderr);
    the_same_page(&place, &words);
    never_better_than_its_jobs(&place, &words);
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_run_of_the_whole_machine_without_anything_shown_gives_the_same_page() {
        let _turn = alone();
        for command in LOOKING {
            presents_itself_again(command);
        }
    }
}

#[test]
fn a_lab_without_anything_shown_gives_the_same_page() {
    for (command, needs) in LABS {
        let _turn = beside_others();
        if let Some(missing) = needs.iter().find(|p| !has(p)) {
            skip(&format!("{missing} is not installed"));
            continue;
        }
        let place = Place::new();
        let mut words: Vec<&str> = command.split(' ').collect();
        words.push("--json");
        if let Some(own) = words.iter_mut().find(|w| **w == "@fathom") {
            *own = env!("CARGO_BIN_EXE_fathom");
            words.extend(["--via", "env FATHOM_HOST={host}"]);
        }
        let Some(run) = found(place.fathom(&words)) else {
            continue;
        };
        // Behind each number there are jobs.
        for h in run["headlines"].as_array().unwrap() {
            assert!(!h["jobs"].as_array().unwrap().is_empty(), "{h}");
        }
        the_same_page(&place, &words);
        never_better_than_its_jobs(&place, &words);
    }
}

/// Says of every job that others used the disk meanwhile: then no headline may be without a flag, no finding strong, and
/// the page may not say that its numbers passed.
fn never_better_than_its_jobs(place: &Place, command: &[&str]) {
    let dir = place.the_run_dir();
    let file = dir.join("run.json");
    let mut run: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let jobs = run["jobs"].as_array_mut().unwrap();
    if jobs.is_empty() {
        return;
    }
    let flag = json!({
        "code": "foreign-io", "detail": "others used the disk", "remedy": "stop them", "void": false
    });
    for job in jobs {
        job["flags"].as_array_mut().unwrap().push(flag.clone());
    }
    fs::write(&file, run.to_string()).unwrap();
    let path = dir.to_str().unwrap();
    let shown: Value =
        serde_json::from_str(&place.fathom(&["report", path, "--json"]).stdout).unwrap();
    for h in shown["headlines"].as_array().unwrap() {
        let flags = h["flags"].as_array().unwrap();
        assert!(
            flags.iter().any(|f| f["code"] == "foreign-io"),
            "{command:?}: {h}"
        );
    }
    for f in shown["findings"].as_array().unwrap() {
        assert_ne!(f["confidence"], "strong", "{command:?}: {f}");
    }
    assert_eq!(place.fathom(&["report", path]).code, Some(0));
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    let all = shown["headlines"].as_array().unwrap().len();
    for clear in [
        format!("All {all} numbers passed"),
        "The number passed every check".to_owned(),
        "Every check passed".to_owned(),
    ] {
        assert!(!page.contains(&clear), "{command:?}: {clear}");
    }
}

/// Removes what is shown from the only run of a place, and makes its page anew.
pub(crate) fn the_same_page(place: &Place, command: &[&str]) {
    let dir = place.the_run_dir();
    let (file, page) = (dir.join("run.json"), dir.join("report.html"));
    let made = fs::read(&page).unwrap();
    let whole = fs::read(&file).unwrap();
    let mut run: Value = serde_json::from_slice(&whole).unwrap();
    let shown = ["sections", "findings"].map(|key| run[key].as_array().unwrap().len());
    assert!(shown[0] + shown[1] > 0, "{command:?}");
    for shown in ["sections", "headlines", "findings"] {
        run[shown] = json!([]);
    }
    // The page says how large its files are.
    let mut bare = run.to_string().into_bytes();
    bare.resize(whole.len(), b' ');
    fs::write(&file, bare).unwrap();
    fs::remove_file(&page).unwrap();
    let said = place.fathom(&["report", dir.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(
        fs::read(&page).unwrap() == made,
        "{command:?}: another page"
    );
}

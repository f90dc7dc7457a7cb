//! The index of runs from outside: labels, what is found by them, and the page.

use std::fs;

use serde_json::Value;

use crate::common::{Place, beside_others};

fn measured(place: &Place, more: &[&str]) {
    let job = ["run", "sim:optane-900p", "--qd", "4", "--time", "20ms"];
    place.fathom(&[&job[..], more].concat()).expect(0);
}

/// The runs that are found, as JSON.
fn found(place: &Place, more: &[&str]) -> Vec<Value> {
    let runs = place.runs();
    let words = [&["runs", runs.to_str().unwrap(), "--json"], more].concat();
    let said = place.command(&words).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    serde_json::from_slice(&said.stdout).unwrap()
}

#[test]
fn runs_are_labelled_found_and_compared_with_their_baseline() {
    let _turn = beside_others();
    let place = Place::new();
    measured(&place, &["--label", "drive=A", "--note", "<b>new</b>"]);
    measured(&place, &["--label", "drive=B", "--seed", "2"]);
    measured(&place, &["--seed", "3"]);
    let all = found(&place, &[]);
    assert_eq!(all.len(), 3);
    assert_eq!(all[0]["labels"]["note"], "<b>new</b>");
    assert_eq!(all[0]["jobs"]["all"], 1);
    assert!(all[2]["labels"].as_object().unwrap().is_empty());
    assert_eq!(found(&place, &["--where", "drive=B"]).len(), 1);
    assert!(found(&place, &["--where", "drive=B", "--where", "note=x"]).is_empty());

    // Afterwards: added, changed, removed.
    let path = |i: usize| all[i]["path"].as_str().unwrap();
    let runs = |words: &[&str]| {
        place
            .command(&[&["runs"], words].concat())
            .output()
            .unwrap()
    };
    assert!(
        runs(&[path(0), path(1), "--label", "baseline=main"])
            .status
            .success()
    );
    assert!(runs(&[path(0), "--label", "drive="]).status.success());
    let now = found(&place, &["--where", "baseline=main"]);
    assert_eq!(now.len(), 2);
    let first = now.iter().find(|r| r["path"] == all[0]["path"]).unwrap();
    assert!(first["labels"]["drive"].is_null());
    assert_eq!(first["headlines"], all[0]["headlines"]);

    // The newest that is so labelled, and never the run itself.
    let compared = |name: &str, run: &str| {
        place
            .command(&["compare", "--baseline", name, run, "--json"])
            .output()
            .unwrap()
    };
    let said = compared("main", path(2));
    let c: Value = serde_json::from_slice(&said.stdout).unwrap();
    let started = [1, 2].map(|i| all[i]["started"].as_str().unwrap());
    assert!(c["a"].as_str().unwrap().starts_with(started[0]), "{c}");
    assert!(c["b"].as_str().unwrap().starts_with(started[1]), "{c}");
    let said = compared("other", path(2));
    assert_eq!(said.status.code(), Some(2));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(
        said.contains("other") && said.contains("known: main"),
        "{said}"
    );
    for wrong in ["a b=c", "=c", "nothing", "a=b\nc"] {
        let said = runs(&[path(0), "--label", wrong]);
        assert_eq!(said.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn the_index_page_has_every_history_and_nobody_elses_page_is_replaced() {
    let _turn = beside_others();
    let place = Place::new();
    for seed in ["1", "2"] {
        let job = [
            "burst",
            "sim:optane-900p",
            "--size",
            "64m",
            "--burst",
            "4m",
            "--seed",
            seed,
        ];
        place.fathom(&job).expect(0);
    }
    let runs = place.runs();
    let page = || {
        place
            .command(&["runs", runs.to_str().unwrap(), "--html"])
            .output()
            .unwrap()
    };
    assert!(page().status.success());
    let file = runs.join("index.html");
    let html = fs::read_to_string(&file).unwrap();
    assert!(html.contains("SIMULATED") && html.contains("Burst of sim:optane-900p"));
    let numbers = found(&place, &[])[0]["headlines"].as_array().unwrap().len();
    assert_eq!(html.matches("<svg class=\"spark\"").count(), numbers);
    assert_eq!(html.matches("/report.html\">").count(), 2, "links to both");
    // Made anew, but not over what somebody else wrote.
    assert!(page().status.success());
    fs::write(&file, "mine").unwrap();
    assert_eq!(page().status.code(), Some(2));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

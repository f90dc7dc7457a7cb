//! Comparing from outside: exit codes that scripts rely on, refusals, and the order of turns.

use std::path::PathBuf;

use crate::common::{Place, alone, beside_others, names};

/// Runs a job whose rate is set from outside and returns its run directory.
fn paced(place: &Place, rate: &str, name: &str) -> PathBuf {
    let out = place.runs().join(name);
    let out_text = out.display().to_string();
    let job = ["--rate", rate, "--time", "600ms", "--window", "20ms"];
    let mut args = vec!["run", "null:", "--arrival", "constant", "--out", &out_text];
    args.extend(job);
    place.fathom(&args).expect(0);
    out.join(&names(&out)[0])
}

#[test]
fn a_run_that_lost_throughput_fails_with_exit_code_one_and_says_what_got_worse() {
    let _turn = alone();
    let place = Place::new();
    let (a, b) = (paced(&place, "20k", "a"), paced(&place, "10k", "b"));
    let (a, b) = (a.display().to_string(), b.display().to_string());
    // Another rate is another load: it is not compared.
    let said = place.fathom(&["compare", &a, &b]).expect(2);
    assert!(
        said.stdout.contains("the jobs differ in rate"),
        "{}",
        said.stdout
    );
    let same = place.fathom(&["compare", &a, &a]).expect(0);
    assert!(
        same.stdout.contains("no difference shown"),
        "{}",
        same.stdout
    );
    // The same load with half of its throughput: as a device that lost it would leave behind.
    let file = PathBuf::from(&b).join("run.json");
    let mut run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    run["jobs"][0]["spec"]["rate"] = 20_000.0.into();
    let spec_of_a: serde_json::Value =
        serde_json::from_slice(&std::fs::read(PathBuf::from(&a).join("run.json")).unwrap())
            .unwrap();
    run["jobs"][0]["spec"] = spec_of_a["jobs"][0]["spec"].clone();
    std::fs::write(&file, run.to_string()).unwrap();
    let said = place.fathom(&["compare", &a, &b, "--markdown"]).expect(1);
    assert!(said.stdout.contains("Worse: "), "{}", said.stdout);
    assert!(said.stdout.contains("| metric | A | B |"));
    let json = place
        .fathom(&["compare", &a, &b, "--json"])
        .expect(1)
        .json();
    let lost = json["rows"][0]["difference"]["relative"]["value"]
        .as_f64()
        .unwrap();
    assert!((lost + 0.5).abs() < 0.02, "{lost}");
    assert_eq!(json["overall"], "worse");
}

#[test]
fn what_is_no_run_and_no_condition_is_refused() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place.fathom(&["compare", "nothing", "here"]).refusal();
    assert!(said.contains("nothing"), "{said}");
    let said = place
        .fathom(&["compare", ".", ".", "--allow", "weather"])
        .refusal();
    assert!(said.contains("weather"), "{said}");
}

#[test]
fn two_settings_run_in_turns_and_the_slower_one_is_named() {
    let _turn = alone();
    let place = Place::new();
    let said = place
        .fathom(&[
            "ab",
            "null:",
            "--a",
            "rate=20k",
            "--b",
            "rate=10k",
            "--arrival",
            "constant",
            "--time",
            "60ms",
            "--ramp",
            "0",
            "--blocks",
            "5",
        ])
        .expect(1);
    assert!(said.stdout.contains("worse"), "{}", said.stdout);
    let run = place.the_run();
    let order: String = run["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|j| j["name"].as_str().unwrap().chars().next().unwrap())
        .collect();
    // Who begins is drawn by the seed: a neighbour that comes and goes in the same rhythm favours nobody.
    let blocks: Vec<&str> = (0..order.len())
        .step_by(4)
        .map(|i| &order[i..i + 4])
        .collect();
    assert_eq!(blocks.len(), 5, "{order}");
    assert!(
        blocks.iter().all(|b| ["abba", "baab"].contains(b)),
        "{order}"
    );
    assert!(
        blocks.contains(&"abba") && blocks.contains(&"baab"),
        "{order}"
    );
}

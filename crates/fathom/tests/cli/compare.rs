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
fn drives_that_a_regression_refuses_are_compared_for_who_buys_one() {
    let _turn = beside_others();
    let place = Place::new();
    let survey = |model: &str| {
        let out = place.runs().join(model);
        let target = format!("sim:{model}");
        place
            .fathom(&["survey", &target, "--out", out.to_str().unwrap()])
            .expect(0);
        out.join(&names(&out)[0]).display().to_string()
    };
    let (optane, p3700) = (survey("optane-900p"), survey("intel-p3700"));
    // Another capacity: refused where a regression is looked for.
    let strict = place.fathom(&["compare", &optane, &p3700]).expect(2);
    assert!(strict.stderr.contains("--allow size"), "{}", strict.stderr);
    let said = place
        .fathom(&[
            "compare",
            "--devices",
            &optane,
            &p3700,
            "--prices",
            "549,700",
        ])
        .expect(0)
        .stdout;
    for expected in [
        "sim:optane-900p",
        "size",
        "× slower (",
        "baseline",
        "for each unit of price",
        "sim:intel-p3700 is faster than sim:optane-900p in",
    ] {
        assert!(said.contains(expected), "{expected} not in\n{said}");
    }
    assert!(!said.contains('–'), "no silent dash:\n{said}");
    let json = place
        .fathom(&[
            "compare",
            "--devices",
            &optane,
            &p3700,
            "--baseline",
            "2",
            "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(json["runs"][0], "sim:optane-900p", "the order given");
    let knee = json["lines"].as_array().unwrap().iter();
    let knee = knee.clone().find(|l| l["id"] == "knee-iops").unwrap();
    assert!(knee["offers"][0]["times"]["value"].is_number(), "{knee}");
    // One run is enough beside what was published; its machine is another, so there is no verdict.
    let beside = |paper: &str, more: &[&str]| {
        let words = ["compare", "--devices", &optane, "--vs", paper];
        place.fathom(&[&words[..], more].concat()).expect(0)
    };
    for (paper, loads) in [("zhang2018", 10), ("oneill2018", 1), ("shrout2017", 1)] {
        let figures = beside(paper, &["--json"]).json()["published"]["figures"].clone();
        let figures = figures.as_array().unwrap().clone();
        assert_eq!(figures.len(), loads, "{paper}: {figures:?}");
        for f in figures
            .iter()
            .filter(|f| f["device"] == "Optane 900P" && paper == "zhang2018")
        {
            let times = f["offers"][0]["times"]["value"].as_f64().unwrap();
            assert!((0.9..1.1).contains(&times), "the model of that device: {f}");
            assert!(f["offers"][0]["verdict"].is_null(), "{f}");
        }
    }
    let said = beside("zhang2018", &[]).stdout;
    for expected in [
        "Optane 900P (Z013)",
        "× as good",
        "times as good as zhang2018 published, in 10 figures",
    ] {
        assert!(said.contains(expected), "{expected} not in\n{said}");
    }
    assert!(!said.contains('–'), "no silent dash:\n{said}");
    let wrong = ["compare", "--devices", &optane, "--vs", "zhang2019"];
    let wrong = place.fathom(&wrong).expect(2).stderr;
    assert!(wrong.contains("did you mean zhang2018?"), "{wrong}");
    // Models of one capacity are two devices, and every metric of three runs stands on the page of all.
    let s3510 = survey("intel-s3510");
    let strict = place.fathom(&["compare", &optane, &s3510]).expect(1).stdout;
    assert!(
        strict.contains("device differs: sim:optane-900p in A, sim:intel-s3510 in B"),
        "{strict}"
    );
    let three = [&optane[..], &s3510, &p3700];
    let pages = place.runs().join("page");
    let report = [&["report", "--out", pages.to_str().unwrap()][..], &three].concat();
    place.fathom(&report).expect(0);
    let page = std::fs::read_to_string(pages.join("comparison.html")).unwrap();
    assert!(!page.contains("conditions of both runs are the same"));
    let overview = page.split("id=\"overview-table").nth(1).unwrap();
    let overview = overview.split("</table>").next().unwrap();
    assert_eq!(overview.matches("<tr").count(), 1 + 10, "{overview}");
    let history = [&["compare"][..], &three].concat();
    let refused = place.fathom(&history).expect(2);
    assert!(
        refused.stderr.contains("--allow size"),
        "{}",
        refused.stderr
    );
    let allowed = place
        .fathom(&[&history[..], &["--allow", "size"]].concat())
        .expect(1)
        .stdout;
    for said in [&allowed, &page, &strict] {
        assert!(
            !said.contains('–') || said == &page,
            "no silent dash:\n{said}"
        );
        let percent = said.split_whitespace().filter(|w| {
            w.starts_with('+')
                && w.trim_start_matches('+')
                    .parse::<f64>()
                    .is_ok_and(|v| v >= 100.0)
        });
        assert_eq!(percent.count(), 0, "{said}");
    }
    assert!(allowed.contains("6.15 × at 2 (worse)"), "{allowed}");
    let nothing = paced(&place, "20k", "other");
    let said = place
        .fathom(&["compare", "--devices", &optane, nothing.to_str().unwrap()])
        .expect(2);
    assert!(
        said.stdout.contains("not measured by this run"),
        "{}",
        said.stdout
    );
    for args in [&["--prices", "1"][..], &["--baseline", "3"]] {
        let all = [&["compare", "--devices", &optane, &p3700][..], args].concat();
        place.fathom(&all).refusal();
    }
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

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
        let refused = place.fathom(&["compare", &a, &b, "--junit"]).expect(2);
        assert!(
            refused.stdout.contains("errors=\"1\"") && refused.stdout.contains("<error message=")
        );
        let three = place.fathom(&["compare", &a, &a, &a, "--junit"]).refusal();
        assert!(three.contains("expected two runs"), "{three}");
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
        let said = place
            .fathom(&["compare", &a, &b, "--junit"])
            .expect(1)
            .stdout;
        assert!(
            said.starts_with("<?xml") && !said.contains("failures=\"0\""),
            "{said}"
        );
        assert!(
            said.contains("<failure message=\"") && said.contains("worse"),
            "{said}"
        );
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
}

//! `fathom reproduce`: published figures on models, on targets that are there, and from labs.

use std::fs;

use serde_json::Value;

use crate::common::{Place, beside_others, names};

/// Run directories of a place.
pub(crate) fn runs(place: &Place) -> Vec<std::path::PathBuf> {
    names(&place.runs())
        .iter()
        .map(|n| place.runs().join(n))
        .collect()
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

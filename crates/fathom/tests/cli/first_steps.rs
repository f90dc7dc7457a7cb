//! What somebody meets who tries fathom for the first time.

use crate::common::{Place, beside_others};

#[test]
fn a_target_that_is_not_there_is_refused_before_anything_is_made() {
    let _turn = beside_others();
    let place = Place::new();
    for args in [
        &["survey", "typo"][..],
        &["survey", "typo", "--dry-run"],
        &["run", "typo", "--size", "8m", "--time", "100ms"],
        &["ab", "typo", "--size", "8m", "--a", "qd=1", "--b", "qd=2"],
        &["stack", "typo"],
    ] {
        let said = place.fathom(args).refusal();
        assert!(
            said.contains("typo: there is no such file") && said.contains("--create"),
            "{args:?}: {said}"
        );
        assert!(place.names().is_empty() && !place.runs().exists());
    }
}

#[test]
fn a_file_made_on_demand_stays_and_clean_knows_it() {
    let _turn = beside_others();
    let place = Place::new();
    let run = [
        "run", "mine", "--create", "--size", "8m", "--time", "100ms", "--rw", "read",
    ];
    place.fathom(&run).expect(0);
    std::fs::write(place.dir.join("theirs"), "precious").unwrap();
    let text = place.fathom(&["clean", "."]).expect(0).stdout;
    assert!(text.contains("kept ./mine (8 MiB)") && text.contains("nothing left behind"));
    let json = place.fathom(&["clean", ".", "--json"]).expect(0).json();
    assert_eq!(json["done"]["kept"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(json["stays"], serde_json::json!([]));
    let dry = place
        .fathom(&["clean", ".", "--kept", "--dry-run"])
        .expect(0);
    assert!(dry.stdout.contains("would remove ./mine"), "{}", dry.stdout);
    assert_eq!(place.names(), ["mine", "theirs"]);
    let json = place
        .fathom(&["clean", ".", "--kept", "--json"])
        .expect(0)
        .json();
    assert_eq!(json["done"]["removed"][0], "./mine (8 MiB)", "{json}");
    assert_eq!(place.names(), ["theirs"], "only what fathom made");
}

#[test]
fn models_are_shown_and_checked_as_json() {
    let _turn = beside_others();
    let place = Place::new();
    let model = place
        .fathom(&["sim", "show", "optane-900p", "--json"])
        .expect(0)
        .json();
    assert_eq!(model["capacity_gb"], 480, "{model}");
    let target = place
        .fathom(&["sim", "check", "sim:vm4:optane-900p", "--json"])
        .expect(0)
        .json();
    assert!(target["size_bytes"].as_u64() > Some(1 << 30), "{target}");
}

#[test]
fn what_cannot_be_compressed_is_measured_to_the_end() {
    let _turn = beside_others();
    let place = Place::new();
    let mut rng = 21u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        rng = rng
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (rng >> 56) as u8
    })
    .take(1 << 20)
    .collect();
    let sample = place.runs().with_file_name("noise");
    std::fs::write(&sample, noise).unwrap();
    let run = place
        .fathom(&[
            "compress",
            "sim:intel-s3510",
            "--sample",
            sample.to_str().unwrap(),
            "--time",
            "250ms",
            "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(
        run["flags"]
            .as_array()
            .map(|f| f.iter().filter(|f| f["void"] == true).count()),
        Some(0),
        "{}",
        run["flags"]
    );
}

#[test]
fn every_measuring_command_lists_its_phases_and_their_whole_before_it_starts() {
    let _turn = beside_others();
    let place = Place::new();
    let job = ["--size", "64m", "--rw", "randread"];
    let of = |before: &[&'static str], after: &[&'static str]| [before, &job, after].concat();
    for (command, phase, whole) in [
        (
            of(&["run", "."], &["--time", "2s"]),
            "job",
            "1 job in about 2.1 s, filling a scratch file of 64 MiB included; at most 64 MiB will be written",
        ),
        (
            of(&["ab", "."], &["--a", "qd=1", "--b", "qd=2"]),
            "A, in turns",
            "at most 32 jobs in about 36 s",
        ),
        (
            vec!["stack", ".", "--size", "64m", "--qd", "1", "--direct"],
            "randread-qd1-direct-uring",
            "at most 80 jobs in about 16 s",
        ),
        (
            vec!["reproduce", "shrout2017", "--on", ".", "--size", "64m"],
            "reads beside writes",
            "at most 640 MiB will be written",
        ),
        (
            vec!["reproduce", "zhang2018"],
            "the paper's loads",
            " here, writes nothing",
        ),
    ] {
        let args = [&command[..], &["--dry-run"]].concat();
        let said = place.fathom(&args).expect(0).stdout;
        let (table, line) = said.split_once("\n\n").expect(&said);
        assert!(
            table.starts_with("phase") && table.contains(&format!("\n{phase}")),
            "{args:?}: {said}"
        );
        assert!(line.contains(whole), "{args:?}: {said}");
    }
    assert!(place.names().is_empty() && !place.runs().exists());
}

#[test]
fn the_layers_of_a_model_are_shown_as_those_of_a_kernel_and_stamped() {
    let _turn = beside_others();
    let place = Place::new();
    let args = ["stack", "sim:optane-900p", "--qd", "1"];
    let said = place.fathom(&args).expect(0).stdout;
    assert!(said.starts_with("SIMULATED"), "{said}");
    assert!(
        said.contains("\nConclusion\n") && said.contains("rung model"),
        "{said}"
    );
    let run = place.the_run();
    assert_eq!(run["simulated"], true);
    assert_eq!(run["sections"][0]["id"], "stack", "{}", run["sections"]);
    for option in ["--what-if", "--record", "--rung=perf"] {
        let said = place
            .fathom(&["stack", "sim:optane-900p", option])
            .refusal();
        assert!(said.contains("is a model"), "{option}: {said}");
    }
}

#[test]
fn a_model_announces_that_it_writes_nothing_here() {
    let _turn = beside_others();
    let place = Place::new();
    for command in [
        "survey",
        "curve",
        "mix",
        "burst",
        "compress",
        "pages",
        "kv",
        "raid",
        "condition",
        "pts",
    ] {
        let said = place
            .fathom(&[command, "sim:optane-900p", "--dry-run"])
            .expect(0)
            .stdout;
        assert!(
            said.contains("simulated: about ")
                && said.contains(" here")
                && said.contains("writes nothing")
                && !said.contains("will be written"),
            "{command}: {said}"
        );
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let _turn = beside_others();
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = place.fathom(&["completions", shell]).expect(0).stdout;
        assert!(
            text.contains("survey") && text.contains("rated-tbw"),
            "{shell}"
        );
    }
    let list = place.fathom(&["man", "--list"]).expect(0).stdout;
    assert!(
        list.lines().count() > 25 && list.contains("db mysql"),
        "{list}"
    );
    assert!(!list.contains("guest-agent"), "{list}");
    for command in ["survey", "db mysql", "compare"] {
        assert!(list.lines().any(|l| l == command), "{command} in {list}");
        let args: Vec<&str> = std::iter::once("man").chain(command.split(' ')).collect();
        let page = place.fathom(&args).expect(0).stdout;
        let name = command.replace(' ', "-");
        assert!(page.contains(&format!(".TH fathom-{name}")), "{page}");
    }
    assert!(
        place
            .fathom(&["man", "nothing"])
            .refusal()
            .contains("--list")
    );
    let version = place.fathom(&["--version"]).expect(0).stdout;
    assert!(
        version.contains("features: ") && version.contains("build)"),
        "{version}"
    );
}

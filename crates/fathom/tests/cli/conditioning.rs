//! Conditioning and PTS from outside: what is announced and asked for, what is refused, a loop device to the end.

use std::fs::File;

use crate::common::machine::{Disk, Loop, possible, turn};
use crate::common::{Place, alone, beside_others};

#[test]
fn time_and_bytes_are_announced_and_much_has_to_be_agreed_to() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place
        .fathom(&[
            "condition",
            "new.bin",
            "--create",
            "--size",
            "64m",
            "--dry-run",
            "--rated-tbw",
            "64g",
        ])
        .expect(0);
    assert!(
        said.stdout.contains("128 MiB will be written")
            && said.stdout.contains("0.20 % of the rated endurance"),
        "{}",
        said.stdout
    );
    let asked = place.fathom(&[
        "condition",
        "new.bin",
        "--create",
        "--size",
        "64m",
        "--ask-above",
        "100m",
    ]);
    assert_eq!(asked.code, Some(2), "{}", asked.stderr);
    assert!(asked.stderr.contains("add --yes"), "{}", asked.stderr);
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert!(!place.runs().exists());
    let said = place
        .fathom(&["pts", "sim:intel-p3700", "--tests", "wsat,xsr", "--dry-run"])
        .expect(0);
    // Write saturation ends after four capacities here, long before its day; the recovery takes 22 h by definition.
    assert!(
        said.stdout.contains("22.0 h") && said.stdout.contains("22.9 h"),
        "{}",
        said.stdout
    );
}

#[test]
fn what_is_no_device_no_test_and_no_plan_is_refused() {
    let _turn = beside_others();
    let place = Place::new();
    for (args, expected) in [
        (
            &["pts", "sim:intel-p3700", "--tests", "speed"][..],
            "'speed' is not a test",
        ),
        (
            &["pts", ".", "--size", "64m"],
            "the specification tests devices",
        ),
        (
            &["condition", ".", "--size", "64m"],
            "a scratch file is removed at the end",
        ),
        (
            &[
                "condition",
                "sim:intel-p3700",
                "--until-steady",
                "randwrite",
            ],
            "expected options such as",
        ),
        (&["condition", "sim:intel-p3700", "--fill", "0"], "--fill"),
    ] {
        let said = place.fathom(args).refusal();
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    assert!(place.names().is_empty() && !place.runs().exists());
}

#[test]
fn a_model_is_tested_in_virtual_time_and_its_report_has_the_plots() {
    let _turn = beside_others();
    let place = Place::new();
    place
        .fathom(&[
            "pts",
            "sim:micron-mx500",
            "--tests",
            "lat",
            "--unit",
            "5ms",
            "--size",
            "64m",
        ])
        .expect(0);
    let run = place.the_run();
    assert_eq!(run["sections"][0]["id"], "pts-lat");
    assert_eq!(run["simulated"], true);
    let html = std::fs::read_to_string(place.the_run_dir().join("report.html")).unwrap();
    assert!(html.contains("Steady state convergence"));
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_loop_device_is_conditioned_and_a_file_beside_it_is_not_touched() {
        let _turns = (turn(), alone());
        let place = Place::new();
        if !possible(&[]) {
            return;
        }
        let disk = Disk::new(64);
        let device = Loop::of(&disk.image);
        let path = device.str().to_owned();
        let refused = place.fathom(&["condition", &path]).refusal();
        assert!(refused.contains("--destroy"), "{refused}");
        let run = place
            .fathom(&[
                "condition",
                &path,
                "--destroy",
                &path,
                "--passes",
                "1",
                "--fill",
                "50",
            ])
            .expect(0);
        assert!(
            run.stderr.contains("32 MiB will be written"),
            "{}",
            run.stderr
        );
        assert!(run.stdout.contains("\nConclusion\n"), "{}", run.stdout);
        let run = place.the_run();
        let state = run["findings"][0]["text"].as_str().unwrap();
        assert!(
            state.starts_with("64 MiB are conditioned: purged, 50 % written once in sequence.")
                && state.contains("The last pass ran at "),
            "{state}"
        );
        let written: u64 = run["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|j| j["write"]["bytes"].as_u64())
            .sum();
        assert_eq!(written, 32 << 20);
        // The purged half reads as nothing, the filled one does not.
        let read = |at: u64| {
            use std::os::unix::fs::FileExt;
            let mut b = vec![0u8; 4096];
            File::open(&device.path)
                .unwrap()
                .read_exact_at(&mut b, at)
                .unwrap();
            b
        };
        assert!(read(1 << 20).iter().any(|b| *b != 0));
        assert!(read(60 << 20).iter().all(|b| *b == 0));
        // The drive's own ways are not a loop device's; by zeroes what was written is gone, and samples say so.
        let purge = |way: &str| {
            let only = ["--passes", "0", "--purge", way];
            place.fathom(&[&["condition", &path, "--destroy", &path][..], &only].concat())
        };
        let refused = purge("sanitize-block").refusal();
        assert!(
            refused.contains("is no NVMe namespace; it offers --purge discard, zeroes"),
            "{refused}"
        );
        assert!(read(1 << 20).iter().any(|b| *b != 0));
        let said = purge("zeroes").expect(0).stdout;
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("was purged by zeroes")
                && said.contains("256 read as zeroes; none of the"),
            "{said}"
        );
        assert!(read(1 << 20).iter().all(|b| *b == 0));
    }
}

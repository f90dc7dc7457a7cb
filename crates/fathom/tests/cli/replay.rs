//! Replay from outside: what is written, what is refused, what is said.

use std::fs;

use crate::common::{Place, alone, beside_others};

/// An SPC trace of `n` I/Os, 1 ms apart, every third a write.
fn spc(n: u64) -> String {
    (0..n)
        .map(|i| {
            let op = if i % 3 == 0 { 'W' } else { 'R' };
            format!(
                "0,{},8192,{op},{}.{:03}\n",
                i * 16 % 4096,
                i / 1000,
                i % 1000
            )
        })
        .collect()
}

#[test]
fn a_malformed_trace_names_its_line_and_writes_nothing() {
    let _turn = beside_others();
    let place = Place::new();
    let trace = place.runs().with_file_name("bad.spc");
    fs::write(&trace, format!("{}0,1,4096,R\n", spc(5))).unwrap();
    let file = place.dir.join("mine.bin");
    fs::write(&file, vec![7u8; 1 << 20]).unwrap();
    for target in [".", "mine.bin", "new.bin"] {
        let said = place
            .fathom(&["replay", &trace.display().to_string(), target])
            .refusal();
        assert!(
            said.contains("line 6: expected 5 fields") && said.contains("nothing was written"),
            "{said}"
        );
    }
    assert_eq!(fs::read(&file).unwrap(), vec![7u8; 1 << 20]);
    assert_eq!(place.names(), ["mine.bin"]);
    assert!(!place.runs().exists());
}

#[test]
fn writes_follow_the_safety_rules_and_reads_need_no_permission() {
    let _turn = beside_others();
    let place = Place::new();
    let trace = place.runs().with_file_name("t.spc");
    fs::write(&trace, spc(60)).unwrap();
    let t = trace.display().to_string();
    let file = place.dir.join("mine.bin");
    let content: Vec<u8> = (0..4u32 << 20).map(|i| (i % 251) as u8).collect();
    fs::write(&file, &content).unwrap();
    let said = place.fathom(&["replay", &t, "mine.bin"]).refusal();
    assert!(said.contains("mine.bin"), "{said}");
    assert!(!place.runs().exists());
    let ran = place.fathom(&[
        "replay",
        &t,
        "mine.bin",
        "--reads-only",
        "--mode",
        "fast",
        "--keep-going",
    ]);
    assert!(ran.code.is_some_and(|c| c < 2), "{}", ran.stderr);
    let run = place.the_run();
    assert_eq!(run["jobs"][0]["read"]["ios"], 40);
    assert!(run["jobs"][0]["write"].is_null());
    assert!(fs::read(&file).unwrap() == content, "the file was changed");
}

#[test]
fn what_cannot_be_played_is_refused_in_one_sentence() {
    let _turn = beside_others();
    let place = Place::new();
    let trace = place.runs().with_file_name("t.spc");
    fs::write(&trace, spc(6)).unwrap();
    let t = trace.display().to_string();
    for (args, expected) in [
        (
            &["--mode", "dependent"][..],
            "does not say when its I/Os completed",
        ),
        (&["--speed", "0"], "--speed"),
        (&["--mode", "slow"], "expected timed, fast or dependent"),
        (&["--format", "csv"], "expected blktrace, fio"),
        (&["--device", "ASU 9"], "no device 'ASU 9'"),
        (&["--format", "msr"], "line 1: expected 7 fields"),
    ] {
        let mut all = vec!["replay", &t, "null:"];
        all.extend(args);
        let said = place.fathom(&all).refusal();
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let said = place.fathom(&["replay", "nothing.csv", "null:"]).refusal();
    assert!(said.contains("nothing.csv"), "{said}");
    let said = place.fathom(&["replay", &t, ".", "--dry-run"]).expect(0);
    assert!(said.stdout.contains("6 I/Os"), "{}", said.stdout);
    assert!(place.names().is_empty() && !place.runs().exists());
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_trace_plays_on_a_scratch_file_that_goes_away() {
        let _turn = alone();
        let place = Place::new();
        let trace = place.runs().with_file_name("t.spc");
        fs::write(&trace, spc(300)).unwrap();
        let t = trace.display().to_string();
        let said = place.fathom(&["replay", &t, "."]).expect(0);
        assert!(
            said.stderr.contains("300 I/Os of")
                && said.stderr.contains("at most 16.8 MiB will be written"),
            "{}",
            said.stderr
        );
        assert!(place.names().is_empty(), "{:?}", place.names());
        let run = place.the_run();
        let job = &run["jobs"][0];
        assert_eq!(job["read"]["ios"], 200);
        assert_eq!(job["write"]["ios"], 100);
        assert_eq!(job["write"]["bytes"], 100 * 8192);
        let score = run["headlines"][0]["estimate"]["value"].as_f64().unwrap();
        assert_eq!(run["headlines"][0]["id"], "replay-fidelity");
        assert!((0.0..=1.0).contains(&score));
        let wall = job["wall_ns"].as_u64().unwrap();
        assert!((299_000_000..600_000_000).contains(&wall), "{wall}");
    }
}

//! Commands on hosts whose jobs are played, led or done by a lab: each on two processes with a directory of its own.

use serde_json::Value;

use crate::common::{beside_others, end, names};
use crate::fleet_rig::Rig;

/// A rig of two hosts, each with a directory of its own.
fn two() -> (Rig, [std::path::PathBuf; 2]) {
    let rig = Rig::new();
    let dirs = ["h1", "h2"].map(|h| rig.place.dir.parent().unwrap().join(h));
    dirs.iter().for_each(|d| std::fs::create_dir(d).unwrap());
    (rig, dirs)
}

fn refused(rig: &Rig, line: &str, expected: &str) {
    let said = end(rig.command(line, "h1,h2").spawn().unwrap());
    assert_eq!(said.code, Some(2), "{line}: {}", said.stderr);
    assert!(said.stderr.contains(expected), "{line}: {}", said.stderr);
}

/// I/Os of a job, those after the first host's end counted.
fn all_ios(job: &Value) -> u64 {
    let hosts = job["hosts"].as_array().unwrap();
    let of = |h: &Value| h["ios"].as_u64().unwrap() + h["tail_ios"].as_u64().unwrap();
    hosts.iter().map(of).sum()
}

#[test]
fn devices_of_several_hosts_are_conditioned_at_once() {
    let _turn = beside_others();
    let (rig, dirs) = two();
    let line = "condition new.bin --create --size 4m --passes 2 --overwrite 0.5 --no-purge --json";
    let run = rig.run(line, "h1,h2");
    let text = run["findings"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("4 MiB on each of 2 hosts are conditioned"),
        "{text}"
    );
    let bytes = |stem: &str| -> u64 {
        let jobs = run["jobs"].as_array().unwrap().iter();
        let of = |h: &Value| h["bytes"].as_u64().unwrap() + h["tail_bytes"].as_u64().unwrap();
        jobs.filter(|j| j["name"].as_str().unwrap().starts_with(stem))
            .flat_map(|j| j["hosts"].as_array().unwrap())
            .map(of)
            .sum()
    };
    // Every byte of each host's file, twice; then half of each again.
    assert_eq!(bytes("pass-"), 2 * 2 * (4 << 20));
    // The last block of each of 16 pieces may reach beyond.
    let over = bytes("overwrite-");
    assert!((4 << 20..8 << 20).contains(&over), "{over}");
    for dir in &dirs {
        let file = std::fs::metadata(dir.join("new.bin")).unwrap();
        assert_eq!(file.len(), 4 << 20, "it stays, conditioned");
    }
    // Gone on with by the same hosts only.
    let done = run["run_directory"].as_str().unwrap().to_owned();
    let again = rig.run(&format!("{line} --resume {done}"), "h1,h2");
    assert!(
        again["jobs"].as_array().unwrap().is_empty(),
        "{}",
        again["jobs"]
    );
    let said = end(rig
        .command(&format!("{line} --resume {done}"), "h1")
        .spawn()
        .unwrap());
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    refused(
        &rig,
        "condition new.bin --size 4m --layout shared",
        "expected own or parts",
    );
    refused(&rig, "condition new.bin --dry-run", "add --size");
    refused(
        &rig,
        "condition . --size 4m",
        "a scratch file is removed at the end",
    );
}

#[test]
fn a_trace_is_dealt_to_hosts_or_played_by_each() {
    let _turn = beside_others();
    let (rig, dirs) = two();
    let trace = rig.place.dir.join("trace.csv");
    // 1,001 I/Os, 500 us apart.
    let lines: String = (0..1001u64)
        .map(|i| {
            format!(
                "0,{},4096,{},{}\n",
                i * 37 % 256 * 8,
                ["r", "w"][i as usize % 2],
                i as f64 * 5e-4
            )
        })
        .collect();
    std::fs::write(&trace, lines).unwrap();
    let line = format!("replay {} . --format spc --size 4m --json", trace.display());
    let dealt = rig.run(&line, "h1,h2");
    let job = &dealt["jobs"].as_array().unwrap()[dealt["jobs"].as_array().unwrap().len() - 1];
    assert_eq!(all_ios(job), 1001, "none twice, none lost: {job}");
    let found = &dealt["results"][0]["data"];
    assert_eq!(
        (&found["started"], &found["hosts"]),
        (&1001.into(), &2.into())
    );
    let each = rig.run(&format!("{line} --each-host"), "h1,h2");
    let jobs = each["jobs"].as_array().unwrap();
    assert_eq!(all_ios(&jobs[jobs.len() - 1]), 2 * 1001);
    // The same from a model's hosts, in virtual time.
    let said = rig.place.fathom(&[
        "replay",
        trace.to_str().unwrap(),
        "sim:optane-900p",
        "--format",
        "spc",
        "--hosts",
        "3",
        "--json",
    ]);
    let model = said.expect(0).json();
    assert_eq!(all_ios(&model["jobs"][0]), 1001);
    for dir in &dirs {
        assert_eq!(names(dir), Vec::<String>::new());
    }
    refused(
        &rig,
        &format!("{line} --layout parts"),
        "a trace has its own offsets",
    );
    refused(&rig, "replay /nowhere . --each-host", "/nowhere");
}

mod alone {
    use super::*;

    #[test]
    fn trees_of_several_hosts_are_loaded_at_once() {
        let _turn = crate::common::alone();
        let (rig, dirs) = two();
        let line = "kv . --workload update --size 64m --keys 20000 --threads 2 --time 1s --repeats 2 --json";
        let said = end(rig.command(line, "h1,h2").spawn().unwrap());
        // A busy machine may void it; what is said is the same.
        assert!(matches!(said.code, Some(0 | 1)), "{}", said.stderr);
        let run: Value = serde_json::from_str(&said.stdout).unwrap();
        let jobs = run["jobs"].as_array().unwrap();
        let trees: Vec<&Value> = jobs
            .iter()
            .filter(|j| j["name"].as_str().unwrap().starts_with("kv-"))
            .collect();
        assert_eq!(trees.len(), 2, "{}", said.stderr);
        for tree in trees {
            let hosts = tree["hosts"].as_array().unwrap();
            assert_eq!(hosts.len(), 2);
            let each: u64 = hosts.iter().map(|h| h["ios"].as_u64().unwrap()).sum();
            let sum: u64 = ["read", "write"]
                .iter()
                .filter_map(|d| tree[*d]["ios"].as_u64())
                .sum();
            assert_eq!(each, sum, "{tree}");
            assert!(hosts.iter().all(|h| h["ios"].as_u64() > Some(0)), "{tree}");
        }
        assert!(
            run["headlines"]
                .as_array()
                .unwrap()
                .iter()
                .any(|h| !h["jobs"].as_array().unwrap().is_empty())
        );
        for dir in &dirs {
            assert_eq!(names(dir), Vec::<String>::new());
        }
        refused(
            &rig,
            "kv . --size 64m --layout parts",
            "each host has a tree of its own",
        );
        refused(
            &rig,
            "kv . --size 64m --beside sqlite",
            "runs on this machine only",
        );
        refused(
            &rig,
            "kv sim:optane-900p --size 64m",
            "lies in the memory of this machine",
        );
    }
}

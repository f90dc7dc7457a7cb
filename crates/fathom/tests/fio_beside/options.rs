//! Options, a job for each: totals, keys and files are those of fio.

use std::collections::BTreeMap;

use serde_json::Value;

use super::common::{document, fathom, fio, scratch, skip};

const JOBS: &str = include_str!("options.fio");

/// What a job did, without its times.
fn print(job: &Value, version_matters: bool) -> String {
    let mut out = format!("group {} error {}", job["groupid"], job["error"]);
    for d in ["read", "write", "trim", "mixed"] {
        let v = &job[d];
        if v.is_null() {
            continue;
        }
        out += &format!("\n{d}");
        // How many I/Os a time has room for is no constant.
        if job["jobname"] != "ramped" {
            out += &format!(" {} {}", v["total_ios"], v["io_bytes"]);
        }
        for l in ["slat_ns", "clat_ns", "lat_ns"] {
            let shown: Vec<&String> = v[l]["percentile"]
                .as_object()
                .into_iter()
                .flat_map(|p| p.keys())
                .collect();
            out += &format!(" {l} {} {shown:?}", v[l]["N"] == 0);
        }
    }
    if version_matters {
        out += &format!("\nsync {}", job["sync"]["total_ios"]);
    }
    out
}

fn prints(document: &Value) -> BTreeMap<String, String> {
    let jobs = document["jobs"].as_array().unwrap();
    jobs.iter()
        .filter(|j| !j["jobname"].is_null())
        .map(|j| {
            let name = j["jobname"].as_str().unwrap().to_owned();
            // fio 3.33 counts no fdatasync.
            let print = print(j, name != "synced");
            (format!("{name} {}", j["job options"]["numjobs"]), print)
        })
        .collect()
}

#[test]
fn each_option_does_what_it_does_in_fio() {
    let args = ["options.fio", "--output-format=json"];
    let mut seen = Vec::new();
    for theirs in [false, true] {
        let dir = scratch();
        std::fs::write(dir.path().join("options.fio"), JOBS).unwrap();
        let out = if theirs {
            fio(dir.path(), &args)
        } else {
            Some(fathom(dir.path(), &args))
        };
        let Some(out) = out else {
            skip("each_option_does_what_it_does_in_fio");
            continue;
        };
        assert!(out.status.success(), "{out:?}");
        let v = document(&out);
        let find = |name: &str| {
            let jobs = v["jobs"].as_array().unwrap();
            jobs.iter().find(|j| j["jobname"] == name).unwrap().clone()
        };
        assert_eq!(find("described")["desc"], "a job of words");
        assert!(find("waits")["elapsed"].as_u64() >= find("described")["elapsed"].as_u64());
        assert!(find("thinking")["read"]["runtime"].as_u64() >= Some(3));
        let mut files: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        seen.push((prints(&v), files));
    }
    let (ours, theirs) = (&seen[0], seen.last().unwrap());
    assert_eq!(ours.1, theirs.1, "files that are left");
    for (name, print) in &theirs.0 {
        assert_eq!(ours.0.get(name), Some(print), "{name}");
    }
    assert!(!ours.0.keys().any(|n| n.starts_with("invisible")));
    assert_eq!(ours.0.len(), theirs.0.len());
}

#[test]
fn terse_has_the_fields_of_each_version() {
    for (version, fields) in [("2", 161), ("3", 121), ("4", 162), ("5", 180)] {
        let version = format!("--terse-version={version}");
        let args = [
            "--name=a",
            "--rw=read",
            "--size=64k",
            "--minimal",
            "--disk_util=0",
            &version,
        ];
        for theirs in [false, true] {
            let dir = scratch();
            let out = if theirs {
                fio(dir.path(), &args)
            } else {
                Some(fathom(dir.path(), &args))
            };
            let Some(out) = out else {
                skip("terse_has_the_fields_of_each_version");
                continue;
            };
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert_eq!(text.trim().split(';').count(), fields, "{version}: {text}");
        }
    }
}

#[test]
fn replayed_offsets_are_scaled_and_lengths_aligned() {
    let dir = scratch();
    std::fs::write(
        dir.path().join("log"),
        "fio version 2 iolog\nf add\nf open\nf read 0 1000\nf read 65536 1000\nf close\n",
    )
    .unwrap();
    let args = [
        "--name=a",
        "--read_iolog=log",
        "--replay_scale=4",
        "--replay_align=512",
        "--filename=f",
        "--size=64k",
        "--rw=read",
        "--output-format=json",
    ];
    let out = fathom(dir.path(), &args);
    let read = &document(&out)["jobs"][0]["read"];
    assert_eq!(
        (&read["total_ios"], &read["io_bytes"]),
        (&2.into(), &2048.into())
    );
    // 65536 / 4, and a block after it.
    let size = std::fs::metadata(dir.path().join("f")).unwrap().len();
    assert!(size < 65_536, "{size}");
}

#[test]
fn checksums_and_the_clock_are_tested_on_request() {
    let dir = scratch();
    let out = fathom(dir.path(), &["--crctest=crc32c,md5"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.starts_with("md5:\t") && text.contains("\ncrc32c:\t"),
        "{text}"
    );
    let out = fathom(dir.path(), &["--cpuclock-test"]);
    assert!(
        out.status.success() && out.stdout.ends_with(b"cs: Pass!\n"),
        "{out:?}"
    );
}

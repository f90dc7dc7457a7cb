//! Options, a job for each: totals, keys and files are those of fio.

use std::collections::BTreeMap;

use serde_json::Value;

use super::common::{document, fathom, fio, scratch, skip};

const JOBS: &str = include_str!("options.fio");

/// What a job did, without its times.
fn print(job: &Value, version_matters: bool) -> String {
    let mut out = format!("group {} error {}", job["groupid"], job["error"]);
    if job["jobname"] == "ramped" {
        // How many I/Os a time has room for is no constant.
        return out;
    }
    for d in ["read", "write", "trim", "mixed"] {
        let v = &job[d];
        if v.is_null() {
            continue;
        }
        out += &format!("\n{d}");
        out += &format!(" {} {}", v["total_ios"], v["io_bytes"]);
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
        "fio version 2 iolog\ng add\ng open\ng read 0 1000\ng wait 3000000 0\ng read 65536 1000\ng close\n",
    )
    .unwrap();
    let args = [
        "--name=a",
        "--read_iolog=log",
        "--replay_scale=4",
        "--replay_align=512",
        "--replay_time_scale=10",
        "--replay_redirect=f",
        "--size=64k",
        "--rw=read",
        "--output-format=json",
    ];
    let out = fathom(dir.path(), &args);
    let read = &document(&out)["jobs"][0]["read"];
    // Three seconds at a tenth.
    assert!(
        (250..2000).contains(&read["runtime"].as_u64().unwrap()),
        "{read}"
    );
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

/// Options that fio 3.33 has not, and some that need more than a job.
const NEWER: &str = "\
[global]
size=64k
bs=4k
stonewall
[whole]
rw=write
end_syncfs=1
[strides]
rw=randread
norandommap
random_distribution=sequence:0,2
random_sequence_stride=1
number_ios=4
[zones]
rw=randrw
zonemode=zbd
zonesize=16k
zonecapacity=8k
read_beyond_wp=1
job_max_open_zones=2
[strided]
zonemode=strided
zonesize=8k
zoneskip=8k
[hints]
ioengine=libaio
direct=1
cmdprio_percentage=50
cmdprio_hint=1
priohint=1
numa_cpu_nodes=0
[settling]
steadystate=iops:100%
steadystate_duration=1
steadystate_check_interval=1
[columns]
write_lat_log=columns
log_issue_time=1
write_hist_log=columns
log_hist_msec=100
log_hist_coarseness=6
[saved]
rw=write
verify=crc32c
do_verify=0
filename=state
[proven]
rw=write
verify=crc32c
verify_only
filename=state
";

#[test]
fn what_newer_versions_of_fio_know_works_too() {
    let dir = scratch();
    std::fs::write(dir.path().join("newer.fio"), NEWER).unwrap();
    let out = fathom(dir.path(), &["newer.fio", "--output-format=json"]);
    assert!(out.status.success(), "{out:?}");
    let v = document(&out);
    let find = |name: &str| {
        let jobs = v["jobs"].as_array().unwrap();
        jobs.iter().find(|j| j["jobname"] == name).unwrap()["read"].clone()
    };
    assert_eq!(find("strides")["total_ios"], 4);
    assert_eq!(find("strided")["io_bytes"], 65_536);
    // What was written is read; the writes that fio counts here are not done.
    assert_eq!(find("proven")["total_ios"], 16);
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let latency = text("columns_lat.7.log");
    let first = latency.lines().next().unwrap();
    assert_eq!(first.split(", ").count(), 6, "{first}");
    // 29 groups of 64 buckets, 64 to a column, after time, direction and block size.
    let histogram = text("columns_clat_hist.7.log");
    assert_eq!(
        histogram.lines().next().unwrap().split(", ").count(),
        3 + 29
    );
    // What was kept of a run tells a later one how far it came.
    let args = [
        "--name=saved",
        "--rw=read",
        "--bs=4k",
        "--size=64k",
        "--filename=state",
        "--verify=crc32c",
        "--verify_state_load=1",
    ];
    let state = dir.path().join("local-saved-7-verify.state");
    std::fs::rename(state, dir.path().join("local-saved-0-verify.state")).unwrap();
    assert!(fathom(dir.path(), &args).status.success());
}

#[test]
fn a_job_fills_what_room_there_is_and_may_leave_no_trace_in_the_cache() {
    let dir = scratch();
    let args = [
        "--name=a",
        "--rw=write",
        "--fill_device=1",
        "--size-cap=1m",
        "--output-format=json",
    ];
    let out = fathom(dir.path(), &args);
    assert_eq!(
        document(&out)["jobs"][0]["write"]["io_bytes"],
        1 << 20,
        "{out:?}"
    );
    let args = [
        "--name=b",
        "--rw=read",
        "--size=64k",
        "--ioengine=pvsync2",
        "--uncached=1",
        "--output-format=json",
    ];
    // Kernels before 6.14, and file systems that cannot, say EOPNOTSUPP.
    let v = document(&fathom(dir.path(), &args));
    let job = &v["jobs"][0];
    assert!(
        job["error"] == 95 || job["read"]["total_ios"] == 16,
        "{job}"
    );
}

//! Options, a job for each: totals, keys and files are those of fio.

use std::collections::BTreeMap;

use serde_json::Value;

use super::common::{both, both_in, document, fathom, fio, names, number, scratch, skip};

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

/// Records of blktrace: reads and writes that were queued, a millisecond apart.
fn block_trace(ios: &[(bool, u64, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, (writes, offset, len)) in ios.iter().enumerate() {
        let action: u32 = 1 | 1 << if *writes { 17 } else { 16 };
        let time = 5_000_000_000 + i as u64 * 1_000_000;
        out.extend(0x6561_7407u32.to_le_bytes());
        out.extend((i as u32 + 1).to_le_bytes());
        out.extend(time.to_le_bytes());
        out.extend((offset / 512).to_le_bytes());
        for word in [*len, action, 1, 7 << 20, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend([0; 4]);
    }
    out
}

#[test]
fn binary_files_of_blktrace_are_replayed() {
    let ios = [(false, 0, 4096), (false, 65_536, 8192), (true, 4096, 512)];
    let mut seen = Vec::new();
    for theirs in [false, true] {
        let dir = scratch();
        std::fs::write(dir.path().join("trace"), block_trace(&ios)).unwrap();
        let args = [
            "--name=a",
            "--read_iolog=trace",
            "--replay_redirect=f",
            "--rw=rw",
            "--size=128k",
            "--output-format=json",
        ];
        let out = if theirs {
            // fio wants the file to be there.
            std::fs::write(dir.path().join("f"), vec![1; 131_072]).unwrap();
            fio(dir.path(), &args)
        } else {
            Some(fathom(dir.path(), &args))
        };
        let Some(out) = out else {
            skip("binary_files_of_blktrace_are_replayed");
            continue;
        };
        let job = &document(&out)["jobs"][0];
        seen.push(
            ["read", "write"].map(|d| (job[d]["total_ios"].clone(), job[d]["io_bytes"].clone())),
        );
    }
    assert_eq!(seen[0], [(2.into(), 12_288.into()), (1.into(), 512.into())]);
    assert_eq!(seen.last(), seen.first());
}

#[test]
fn binary_files_of_blktrace_are_merged() {
    let one: Vec<_> = (0..20).map(|i| (i % 3 == 0, i * 4096, 4096)).collect();
    let two: Vec<_> = (0..7).map(|i| (i % 2 == 0, i * 8192, 512)).collect();
    // fio's own merging reads what it never set (3.33 ends with a short read, 3.42 has times of thousands of years): here are
    // the rules of its manual.
    let times = |more: &[&str]| -> Vec<(u64, u32)> {
        let dir = scratch();
        std::fs::write(dir.path().join("one"), block_trace(&one)).unwrap();
        std::fs::write(dir.path().join("two"), block_trace(&two)).unwrap();
        let mut args = vec![
            "--name=a",
            "--read_iolog=one:two",
            "--merge_blktrace_file=both",
            "--merge-blktrace-only",
        ];
        args.extend(more);
        let out = fathom(dir.path(), &args);
        assert!(out.status.success(), "{more:?}: {out:?}");
        let both = std::fs::read(dir.path().join("both")).unwrap();
        let (records, rest) = both.as_chunks::<48>();
        assert!(rest.is_empty());
        let time = |r: &[u8; 48]| u64::from_le_bytes(r[8..16].try_into().unwrap()) / 1_000_000;
        let bytes = |r: &[u8; 48]| u32::from_le_bytes(r[24..28].try_into().unwrap());
        let all: Vec<_> = records.iter().map(|r| (time(r), bytes(r))).collect();
        assert!(all.is_sorted_by_key(|r| r.0), "{more:?}: {all:?}");
        all
    };
    let of = |all: &[(u64, u32)], bytes: u32| -> Vec<u64> {
        all.iter().filter(|r| r.1 == bytes).map(|r| r.0).collect()
    };
    let plain = times(&[]);
    assert_eq!(of(&plain, 4096), (5000..5020).collect::<Vec<_>>());
    assert_eq!(of(&plain, 512), (5000..5007).collect::<Vec<_>>());
    let fast = times(&["--merge_blktrace_scalars=100:50"]);
    assert_eq!(of(&fast, 512), [2500, 2500, 2501, 2501, 2502, 2502, 2503]);
    let again = times(&["--merge_blktrace_iters=1:3"]);
    assert_eq!(of(&again, 512).len(), 21);
    assert_eq!(of(&again, 512)[7..9], [10_006, 10_007]);
    // Without the word it is replayed.
    let dir = scratch();
    std::fs::write(dir.path().join("one"), block_trace(&one)).unwrap();
    let args = [
        "--name=a",
        "--read_iolog=one:one",
        "--merge_blktrace_file=both",
        "--replay_redirect=f",
        "--replay_no_stall=1",
        "--rw=rw",
        "--size=128k",
        "--output-format=json",
    ];
    let job = document(&fathom(dir.path(), &args))["jobs"][0].clone();
    let ios = number(&job["read"]["total_ios"]) + number(&job["write"]["total_ios"]);
    assert_eq!(ios, 40.0);
    // One number for two traces is a mistake, and what others made stays.
    let wrong = [
        "--name=a",
        "--read_iolog=one:one",
        "--merge_blktrace_file=x",
        "--merge_blktrace_iters=2",
    ];
    assert_eq!(fathom(dir.path(), &wrong).status.code(), Some(1));
    std::fs::write(dir.path().join("theirs"), "kept").unwrap();
    let theirs = [
        "--name=a",
        "--read_iolog=one",
        "--merge_blktrace_file=theirs",
        "--merge-blktrace-only",
    ];
    assert_eq!(fathom(dir.path(), &theirs).status.code(), Some(1));
    assert_eq!(std::fs::read(dir.path().join("theirs")).unwrap(), b"kept");
}

/// fio takes the profile's own options and goes on without them.
#[test]
fn a_profile_is_the_jobs_that_it_stands_for() {
    let dir = scratch();
    let args = [
        "--profile=tiobench",
        "--size=1",
        "--threads=2",
        "--block=8192",
        "--output-format=json",
    ];
    let jobs = document(&fathom(dir.path(), &args))["jobs"].clone();
    let print: Vec<(String, f64, f64)> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|j| {
            let name = j["jobname"].as_str().unwrap().to_owned();
            let bytes = |d: &str| number(&j[d]["io_bytes"]);
            (name, bytes("read"), bytes("write"))
        })
        .collect();
    let both = f64::from(2 << 20);
    let wanted = [
        ("seqwrite", 0.0, both),
        ("randwrite", 0.0, both),
        ("seqread", both, 0.0),
        ("randread", both, 0.0),
    ];
    assert_eq!(print, wanted.map(|(n, r, w)| (n.to_owned(), r, w)));
    assert_eq!(names(dir.path()).len(), 4);
    assert_eq!(
        fathom(dir.path(), &["--profile=act"]).status.code(),
        Some(1)
    );
}

#[test]
fn latencies_are_held_against_what_act_asks() {
    let dir = scratch();
    let act = ["--profile=act", "--device-names=one,two", "--size=4m"];
    let out = fathom(
        dir.path(),
        &[&act[..], &["--prep", "--output-format=json"]].concat(),
    );
    let jobs = document(&out)["jobs"].clone();
    let written: f64 = (jobs.as_array().unwrap().iter())
        .map(|j| number(&j["write"]["io_bytes"]))
        .sum();
    assert_eq!(written, f64::from(16 << 20), "zeros and salt on both");
    let test = [
        "--test-duration=1s",
        "--threads-per-queue=2",
        "--output-format=normal,json",
    ];
    let out = fathom(dir.path(), &[&act[..], &test].concat());
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let jobs = document(&out)["jobs"].clone();
    // With group_reporting: 2,000 reads of 1.5 KiB and 12 writes of 128 KiB per second and device.
    let ios = |d: &str| -> f64 {
        let jobs = jobs.as_array().unwrap().iter();
        jobs.map(|j| number(&j[d]["total_ios"])).sum()
    };
    assert!((3800.0..=4200.0).contains(&ios("read")), "{}", ios("read"));
    assert!((22.0..=26.0).contains(&ios("write")), "{}", ios("write"));
    let hour = &jobs[0]["fathom"]["act"]["hours"][0];
    assert_eq!(number(&hour["ios"]), ios("read") + ios("write"));
    let passed = jobs[0]["fathom"]["act"]["passed"].as_bool().unwrap();
    let verdict = if passed { "PASSED" } else { "FAILED" };
    let line = format!("act: test complete, device(s): {verdict}");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn all_files_below_a_directory_are_read() {
    let args = ["--name=a", "--opendir=d", "--rw=read"];
    let seen = both_in("all_files_below_a_directory_are_read", &args, |dir| {
        std::fs::create_dir_all(dir.join("d/e")).unwrap();
        for name in ["d/one", "d/e/two"] {
            std::fs::write(dir.join(name), vec![1; 65_536]).unwrap();
        }
    });
    for (_, jobs) in seen {
        let read = &jobs[0]["read"];
        assert_eq!(
            (number(&read["total_ios"]), number(&read["io_bytes"])),
            (32.0, 131_072.0)
        );
    }
}

#[test]
fn atomic_writes_are_asked_for() {
    let dir = scratch();
    let args = [
        "--name=a",
        "--rw=write",
        "--size=64k",
        "--direct=1",
        "--atomic=1",
        "--ioengine=pvsync2",
        "--output-format=json",
    ];
    // Kernels before 6.11, and devices that cannot, say EOPNOTSUPP or EINVAL.
    let v = document(&fathom(dir.path(), &args));
    let job = &v["jobs"][0];
    let refused = job["error"] == 95 || job["error"] == 22;
    assert!(refused || job["write"]["total_ios"] == 16, "{job}");
}

#[test]
fn latencies_of_each_priority_add_up_to_those_of_all() {
    let args = [
        "--name=a",
        "--rw=randread",
        "--size=4m",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=4",
        "--cmdprio_percentage=50",
    ];
    for jobs in both("latencies_of_each_priority_add_up_to_those_of_all", &args) {
        let read = &jobs[0]["read"];
        let classes = read["prios"].as_array().unwrap();
        assert_eq!(classes.len(), 2, "{read}");
        let sum: f64 = classes.iter().map(|c| number(&c["clat_ns"]["N"])).sum();
        assert_eq!(sum, number(&read["total_ios"]));
        assert!(classes.iter().any(|c| c["prioclass"] == 1), "{read}");
    }
}

#[test]
fn compressed_logs_are_inflated_again() {
    let dir = scratch();
    let args = [
        "--name=a",
        "--ioengine=null",
        "--size=1m",
        "--write_bw_log=a",
        "--log_offset=1",
        "--log_compression=10k",
        "--log_store_compressed=1",
    ];
    let out = fathom(dir.path(), &args);
    assert!(out.status.success(), "{out:?}");
    let out = fathom(dir.path(), &["--inflate-log=a_bw.1.log.fz"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(text.lines().count(), 256, "{out:?}");
    assert!(
        text.lines().last().unwrap().contains(", 1044480, "),
        "{text}"
    );
}

#[test]
fn seeds_are_said_on_request_and_repeat_where_they_should() {
    let seeds = |option: &str| {
        let dir = scratch();
        let args = [
            "--debug=random",
            "--name=a",
            "--ioengine=null",
            "--size=32k",
            option,
        ];
        let out = fathom(dir.path(), &args);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let seed = text.lines().find(|l| l.contains("rand_seeds[0]="));
        seed.unwrap().rsplit('=').next().unwrap().to_owned()
    };
    assert_eq!(seeds("--randrepeat=1"), seeds("--randrepeat=1"));
    assert_ne!(seeds("--randrepeat=0"), seeds("--randrepeat=0"));
    assert_ne!(seeds("--randseed=1"), seeds("--randseed=2"));
}

#[test]
fn thresholds_of_a_steady_state_are_said_as_they_were_read() {
    for (limit, said) in [
        ("iops:10", "set steady state IOPS threshold to 10.000000"),
        ("iops:.1%", "set steady state threshold to 0.100000%"),
        ("bw_slope:10%", "set steady state threshold to 10.000000%"),
        ("bw:12k", "set steady state BW threshold to 12288"),
    ] {
        let option = format!("--ss={limit}");
        let args = ["--parse-only", "--debug=parse", "--ss_dur=10s", &option];
        let dir = scratch();
        let theirs = fio(dir.path(), &args);
        if theirs.is_none() {
            skip("thresholds_of_a_steady_state_are_said_as_they_were_read");
        }
        for out in [Some(fathom(dir.path(), &args)), theirs]
            .into_iter()
            .flatten()
        {
            assert!(out.status.success(), "{out:?}");
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(text.starts_with("fio: set debug option parse\n"), "{text}");
            assert!(text.contains("handle_option=steadystate, ptr="), "{text}");
            assert!(text.lines().any(|l| l.ends_with(said)), "{said}: {text}");
        }
    }
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
log_offset=1
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
    assert_eq!(first.split(", ").count(), 7, "{first}");
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

//! `fathom fio` as scripts use it: what stands where in its output, what it refuses, and, where fio
//! itself is installed, whether both say the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fathom(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fathom"))
        .arg("fio")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn scratch() -> tempfile::TempDir {
    // Not in memory: what direct I/O can do there differs.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn json(out: &Output) -> Value {
    assert!(out.status.success(), "{out:?}");
    assert!(
        out.stderr.is_empty(),
        "standard error: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).expect("nothing but JSON on standard output")
}

/// Every path of a document with its type, lists by their first element.
fn tree(v: &Value, path: &str, out: &mut BTreeMap<String, &'static str>) {
    match v {
        Value::Object(o) => o
            .iter()
            .for_each(|(k, v)| tree(v, &format!("{path}/{k}"), out)),
        Value::Array(a) => a
            .iter()
            .take(1)
            .for_each(|v| tree(v, &format!("{path}[]"), out)),
        Value::String(_) => drop(out.insert(path.into(), "text")),
        Value::Number(n) if n.is_f64() => drop(out.insert(path.into(), "float")),
        Value::Number(_) => drop(out.insert(path.into(), "integer")),
        _ => drop(out.insert(path.into(), "other")),
    }
}

#[test]
fn the_json_has_fios_names_types_and_nesting() {
    let dir = scratch();
    let args = [
        "--bs=4k",
        "--name=a",
        "--ioengine=psync",
        "--rw=randrw",
        "--size=2m",
        "--fsync=64",
        "--filename=f",
        "--output-format=json+",
    ];
    let ours = json(&fathom(dir.path(), &args));
    let job = &ours["jobs"][0];
    assert_eq!(ours["global options"]["bs"], "4k");
    assert_eq!(job["job options"]["rw"], "randrw");
    let total = |d: &str| job[d]["total_ios"].as_u64().unwrap();
    assert_eq!(total("read") + total("write"), 512);
    assert_eq!(job["fathom"]["jobs"][0]["engine"], "preadv");
    std::fs::remove_file(dir.path().join("f")).unwrap();
    let Ok(out) = Command::new("fio")
        .args(args)
        .current_dir(dir.path())
        .output()
    else {
        eprintln!("skipped: fio is not installed (apt-get install fio)");
        return;
    };
    let theirs: Value = serde_json::from_slice(&out.stdout).unwrap();
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    tree(&ours, "", &mut a);
    tree(&theirs, "", &mut b);
    // fio names no device behind an overlay; fathom does.
    let unnamed = theirs["disk_util"].as_array().is_none_or(Vec::is_empty);
    let measured = |k: &str| k.contains("/bins/") || unnamed && k.starts_with("/disk_util[]/");
    let missing: Vec<_> = b
        .iter()
        .filter(|(k, t)| !measured(k) && a.get(*k) != Some(t))
        .collect();
    assert!(missing.is_empty(), "not as in fio: {missing:?}");
    let added: Vec<_> = a
        .keys()
        .filter(|k| !measured(k) && !b.contains_key(*k) && !k.starts_with("/jobs[]/fathom/"))
        .collect();
    // fio has job_start since 3.36.
    assert!(added.iter().all(|k| *k == "/jobs[]/job_start"), "{added:?}");
}

#[test]
fn amounts_are_those_that_the_job_fixes() {
    let dir = scratch();
    for (args, bytes) in [
        (&["--rw=read", "--size=1m", "--bs=64k"][..], 1 << 20),
        (
            &["--rw=randread", "--size=1m", "--bs=4k", "--loops=2"],
            2 << 20,
        ),
        (&["--rw=randread", "--size=1m", "--io_size=256k"], 256 << 10),
        (&["--rw=read", "--size=1m", "--number_ios=10"], 40_960),
        (&["--rw=read", "--ioengine=null", "--filesize=1m"], 1 << 20),
        (
            &["--rw=read", "--filesize=1m", "--size=50%", "--bs=4k"],
            512 << 10,
        ),
    ] {
        let mut all = vec!["--name=a", "--filename=f", "--output-format=json"];
        all.extend(args);
        let out = json(&fathom(dir.path(), &all));
        assert_eq!(out["jobs"][0]["read"]["io_bytes"], bytes, "{args:?}");
    }
}

#[test]
fn clones_report_one_by_one_or_as_a_group() {
    let dir = scratch();
    let base = [
        "--name=a",
        "--numjobs=3",
        "--rw=randread",
        "--size=256k",
        "--output-format=json",
    ];
    let apart = json(&fathom(dir.path(), &base));
    assert_eq!(apart["jobs"].as_array().unwrap().len(), 3);
    assert!(dir.path().join("a.2.0").exists());
    let mut args = base.to_vec();
    args.push("--group_reporting");
    let together = json(&fathom(dir.path(), &args));
    assert_eq!(together["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(together["jobs"][0]["read"]["io_bytes"], 3 * (256 << 10));
}

#[test]
fn job_files_run_in_waves_and_write_logs() {
    let dir = scratch();
    std::fs::write(
        dir.path().join("job.fio"),
        "[global]\nsize=1m\nbs=4k\nfilename=f\n[w]\nrw=write\n[r]\nstonewall\nrw=randread\ntime_based\nruntime=300ms\n\
         write_bw_log=x\nwrite_lat_log=x\nlog_avg_msec=100\n",
    )
    .unwrap();
    let out = json(&fathom(dir.path(), &["job.fio", "--output-format=json"]));
    assert_eq!(out["jobs"][0]["write"]["total_ios"], 256);
    assert_eq!(out["jobs"][1]["groupid"], 1);
    let start = |i: usize| out["jobs"][i]["job_start"].as_u64().unwrap();
    assert!(start(1) >= start(0));
    let log = std::fs::read_to_string(dir.path().join("x_bw.2.log")).unwrap();
    let first: Vec<&str> = log.lines().next().unwrap().split(", ").collect();
    assert_eq!((first[0], first[2], first.len()), ("100", "0", 5));
    assert!(dir.path().join("x_clat.2.log").exists());
}

#[test]
fn terse_has_its_fields_where_scripts_look() {
    let dir = scratch();
    let args = [
        "--name=a",
        "--rw=read",
        "--size=1m",
        "--minimal",
        "--disk_util=0",
    ];
    let out = fathom(dir.path(), &args);
    let text = String::from_utf8(out.stdout).unwrap();
    let fields: Vec<&str> = text.trim().split(';').collect();
    assert_eq!((fields[0], fields[2], fields[5]), ("3", "a", "1024"));
    assert!(fields[7].parse::<u64>().unwrap() > 0, "IOPS");
    assert_eq!(fields[46], "0", "KiB written");
    let Ok(theirs) = Command::new("fio")
        .args(args)
        .current_dir(dir.path())
        .output()
    else {
        return;
    };
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    assert_eq!(theirs.trim().split(';').count(), fields.len());
}

#[test]
fn what_others_made_is_never_overwritten() {
    let dir = scratch();
    let file = dir.path().join("precious");
    std::fs::write(&file, vec![7u8; 65_536]).unwrap();
    for args in [
        &[
            "--name=a",
            "--rw=write",
            "--filename=precious",
            "--size=64k",
        ][..],
        // A larger read job would make fio extend it.
        &["--name=a", "--rw=read", "--filename=precious", "--size=1m"],
    ] {
        let out = fathom(dir.path(), args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stdout.is_empty());
        assert!(String::from_utf8_lossy(&out.stderr).contains("precious"));
        assert_eq!(std::fs::read(&file).unwrap(), vec![7u8; 65_536]);
    }
}

#[test]
fn unsupported_options_are_refused_by_name_or_left_out_on_request() {
    let dir = scratch();
    let args = ["--name=a", "--rw=randread", "--size=64k", "--fdp=1"];
    let out = fathom(dir.path(), &args);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("fdp=1 is not supported"));
    assert!(!dir.path().join("a.0.0").exists(), "nothing was made");
    let mut lenient = args.to_vec();
    lenient.extend(["--lenient", "--thread=1", "--clocksource=cpu"]);
    let out = fathom(dir.path(), &lenient);
    assert!(out.status.success());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("ignored: job 'a': fdp=1"), "{said}");
    assert!(
        said.contains("clocksource=cpu"),
        "what changes nothing is said: {said}"
    );
    // A default is no request.
    let out = fathom(
        dir.path(),
        &[
            "--name=a",
            "--rw=randread",
            "--size=64k",
            "--zonemode=none",
            "--output-format=json",
        ],
    );
    json(&out);
}

#[test]
fn a_link_named_fio_is_fio() {
    let dir = scratch();
    let link = dir.path().join("fio");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fathom"), &link).unwrap();
    let out = Command::new(&link).arg("--version").output().unwrap();
    assert!(String::from_utf8(out.stdout).unwrap().starts_with("fio-3."));
}

#[test]
fn converted_jobs_are_jobs_of_fathoms() {
    let dir = scratch();
    let args = [
        "--convert",
        "--name=a",
        "--rw=randrw",
        "--rwmixread=70",
        "--bs=8k",
        "--iodepth=16",
        "--ioengine=libaio",
        "--direct=1",
        "--size=1g",
        "--runtime=30",
        "--time_based",
        "--rate_iops=1000,500",
    ];
    let out = fathom(dir.path(), &args);
    let text = String::from_utf8(out.stdout).unwrap();
    let file = fathom_io::job::jobs_from_toml(&text).unwrap();
    let job = &file.jobs[0];
    assert_eq!((job.qd, job.bs.max().0, job.direct), (16, 8192, true));
    assert_eq!(job.rate, Some(1500.0));
    assert!((job.read_share - 66.67).abs() < 0.01, "{}", job.read_share);
}

#[test]
fn shares_of_block_sizes_are_converted() {
    let dir = scratch();
    let args = [
        "--convert",
        "--name=a",
        "--size=1g",
        "--bssplit=4k/90:64k/10",
    ];
    let text = String::from_utf8(fathom(dir.path(), &args).stdout).unwrap();
    let job = &fathom_io::job::jobs_from_toml(&text).unwrap().jobs[0];
    let sizes: Vec<(u64, f64)> = job.bs.0.iter().map(|(n, w)| (n.0, *w)).collect();
    assert_eq!(sizes, [(4096, 90.0), (65_536, 10.0)]);
}

#[test]
fn files_that_hold_no_block_end_a_job_however_they_are_chosen() {
    for service in [
        "roundrobin",
        "random",
        "sequential",
        "zipf:1.2",
        "normal:10",
    ] {
        let dir = scratch();
        let service = format!("--file_service_type={service}");
        let mut fathom = Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(["fio", "--name=a", "--rw=randread", "--bs=4k", "--nrfiles=4"])
            .args(["--size=8k", &service])
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while fathom.try_wait().unwrap().is_none() {
            if std::time::Instant::now() > until {
                fathom.kill().unwrap();
                panic!("{service} goes on for ever");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn job_file(dir: &Path, text: &str) -> String {
    let path = dir.join("job.fio");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn what_was_written_is_verified_and_a_flipped_bit_is_found() {
    let dir = scratch();
    for sum in [
        "md5", "crc32c", "sha512", "xxhash", "meta", "crc64", "pattern",
    ] {
        let extra = if matches!(sum, "meta" | "pattern") {
            "verify_pattern=0xcafe%o\n"
        } else {
            ""
        };
        let global = format!("[global]\nfilename=v\nsize=256k\nverify={sum}\n{extra}randseed=7\n");
        let write = job_file(
            dir.path(),
            &format!("{global}[w]\nrw=randwrite\niodepth=8\nioengine=libaio\n"),
        );
        let out = json(&fathom(dir.path(), &["--output-format=json", &write]));
        let job = &out["jobs"][0];
        assert_eq!(job["write"]["total_ios"], 64, "{sum}");
        assert_eq!(
            job["read"]["total_ios"], 64,
            "{sum}: everything is read back"
        );
        let read = job_file(dir.path(), &format!("{global}[r]\nrw=read\n"));
        assert_eq!(
            json(&fathom(dir.path(), &["--output-format=json", &read]))["jobs"][0]["error"],
            0
        );
        let mut data = std::fs::read(dir.path().join("v")).unwrap();
        data[100_000] ^= 4;
        std::fs::write(dir.path().join("v"), data).unwrap();
        let out = fathom(dir.path(), &["--output-format=json", &read]);
        assert_eq!(out.status.code(), Some(1), "{sum}");
        let v: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(v["jobs"][0]["error"], 84, "{sum}");
        assert!(
            String::from_utf8_lossy(&out.stderr).contains("verification"),
            "{sum}"
        );
        // Whoever flips a bit has made it theirs.
        let again = ["--name=w", "--filename=v", "--size=256k", "--rw=randwrite"];
        let out = fathom(dir.path(), &again);
        assert_eq!(out.status.code(), Some(2), "{sum}");
        let refusal = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(refusal.contains("written to after fathom"), "{refusal}");
        std::fs::remove_file(dir.path().join("v")).unwrap();
    }
}

#[test]
fn a_log_of_every_io_shows_where_each_went() {
    let dir = scratch();
    let offsets = |text: &str| -> Vec<(u64, u64, u64)> {
        let file = job_file(
            dir.path(),
            &format!("[t]\nioengine=null\nwrite_bw_log=t\nlog_offset=1\n{text}"),
        );
        json(&fathom(dir.path(), &["--output-format=json", &file]));
        std::fs::read_to_string(dir.path().join("t_bw.1.log"))
            .unwrap()
            .lines()
            .map(|l| {
                let f: Vec<u64> = l.split(", ").map(|v| v.parse().unwrap()).collect();
                (f[2], f[3], f[4])
            })
            .collect()
    };
    let holes = offsets("size=64k\nrw=read:4k\n");
    assert_eq!(
        holes.iter().map(|h| h.2).collect::<Vec<_>>(),
        (0..8).map(|i| i * 8192).collect::<Vec<_>>()
    );
    let back = offsets("size=32k\nrw=read:-8k\n");
    assert_eq!(
        back[1..4].iter().map(|b| b.2).collect::<Vec<_>>(),
        [24_576, 20_480, 16_384]
    );
    let runs = offsets("size=1m\nrw=randread:4\nnorandommap\n");
    let follow = runs.windows(2).filter(|w| w[1].2 == w[0].2 + 4096).count();
    assert!((185..=200).contains(&follow), "{follow} of 255 follow on");
    let pairs = offsets("size=64k\nrw=randtrimwrite\n");
    assert_eq!(pairs.len(), 32);
    assert!(
        pairs
            .chunks(2)
            .all(|p| p[0].0 == 2 && p[1].0 == 1 && p[0].2 == p[1].2)
    );
    let mixed = offsets("size=1m\nrw=randread\nbsrange=512-4k\n");
    let mut sectors: Vec<u64> = mixed
        .iter()
        .flat_map(|(_, b, o)| o / 512..(o + b) / 512)
        .collect();
    sectors.sort_unstable();
    assert_eq!(
        sectors,
        (0..2048).collect::<Vec<_>>(),
        "every sector once, at mixed sizes"
    );
    let zones =
        offsets("size=1m\nrw=read\nzonemode=strided\nzonesize=16k\nzonerange=64k\nio_size=64k\n");
    assert_eq!(
        (zones[3].2, zones[4].2),
        (12_288, 65_536),
        "on to the next zone after 16k"
    );
    let some = offsets("size=16m\nrw=randread\npercentage_random=25\nnorandommap\n");
    let jumps =
        some.windows(2).filter(|w| w[1].2 != w[0].2 + 4096).count() as f64 / some.len() as f64;
    assert!((jumps - 0.25).abs() < 0.03, "{jumps}");
    let sizes = offsets("size=1m\nrw=randrw\nbs=4k,8k\nnorandommap\n");
    assert!(
        sizes
            .iter()
            .all(|s| s.1 == if s.0 == 0 { 4096 } else { 8192 })
    );
    let zoned = offsets("size=40m\nrw=randread\nrandom_distribution=zoned:80/10:20/90\n");
    let hot = zoned.iter().filter(|z| z.2 < 4 << 20).count() as f64 / zoned.len() as f64;
    assert!((hot - 0.8).abs() < 0.02, "{hot}");
}

#[test]
fn a_written_log_is_replayed_with_the_same_ios() {
    let dir = scratch();
    let write = job_file(
        dir.path(),
        "[w]\nrw=randrw\nsize=256k\nfilename=f\nwrite_iolog=log\n",
    );
    let first = json(&fathom(dir.path(), &["--output-format=json", &write]));
    let read = job_file(
        dir.path(),
        "[r]\nread_iolog=log\nioengine=io_uring\niodepth=4\nreplay_no_stall=1\n",
    );
    let second = json(&fathom(dir.path(), &["--output-format=json", &read]));
    for direction in ["read", "write"] {
        for key in ["total_ios", "io_bytes"] {
            assert_eq!(
                first["jobs"][0][direction][key], second["jobs"][0][direction][key],
                "{direction} {key}"
            );
        }
    }
}

#[test]
fn jobs_spread_over_files_and_engines_do_the_same_work() {
    let dir = scratch();
    for engine in ["psync", "libaio", "io_uring", "mmap", "posixaio"] {
        let file = job_file(
            dir.path(),
            &format!(
                "[a]\nioengine={engine}\nrw=rw\nsize=1m\nnrfiles=4\nfsync=16\niodepth=4\nfilename_format={engine}.$filenum\n"
            ),
        );
        let v = json(&fathom(dir.path(), &["--output-format=json", &file]));
        let job = &v["jobs"][0];
        let bytes =
            job["read"]["io_bytes"].as_u64().unwrap() + job["write"]["io_bytes"].as_u64().unwrap();
        assert_eq!(bytes, 1 << 20, "{engine}");
        assert_eq!(
            std::fs::metadata(dir.path().join(format!("{engine}.3")))
                .unwrap()
                .len(),
            256 << 10
        );
    }
}

#[test]
fn a_steady_job_ends_before_its_time_and_says_so() {
    let dir = scratch();
    let file = job_file(
        dir.path(),
        "[a]\nioengine=null\nrw=read\nsize=1g\ntime_based\nruntime=20\nrate_iops=1000\nss=iops:20%\nss_dur=2\n",
    );
    let v = json(&fathom(dir.path(), &["--output-format=json", &file]));
    let s = &v["jobs"][0]["steadystate"];
    assert_eq!(
        (&s["attained"], &s["ss"]),
        (&1.into(), &"iops:20.000000%".into())
    );
    assert!(v["jobs"][0]["read"]["runtime"].as_u64().unwrap() < 10_000);
}

#[test]
fn a_model_answers_where_one_is_named_and_every_result_says_so() {
    let dir = scratch();
    let file = job_file(
        dir.path(),
        "[global]\nfilename=sim:optane-900p\nioengine=libaio\niodepth=4\ntime_based\nruntime=100ms\n[r]\nrw=randread\n[w]\nstonewall\nrw=randrw:4\nbs=4k,8k\n",
    );
    let v = json(&fathom(dir.path(), &["--output-format=json", &file]));
    for job in v["jobs"].as_array().unwrap() {
        assert_eq!(job["fathom"]["simulated"], "sim:optane-900p");
        assert!(job["read"]["total_ios"].as_u64().unwrap() > 100, "{job}");
        assert_eq!(job["fathom"]["jobs"][0]["engine"], "sim");
    }
    assert!(v["jobs"][1]["write"]["total_ios"].as_u64().unwrap() > 0);
}

#[test]
fn batches_are_counted_where_they_happen() {
    let dir = scratch();
    let args = [
        "--name=a",
        "--ioengine=null",
        "--rw=read",
        "--size=16m",
        "--iodepth=16",
        "--iodepth_batch=16",
        "--iodepth_batch_complete_min=16",
        "--output-format=json",
    ];
    let v = json(&fathom(dir.path(), &args));
    let job = &v["jobs"][0];
    for key in ["iodepth_submit", "iodepth_complete"] {
        let share = job[key]["16"].as_f64().unwrap();
        assert!(share > 99.0, "{key}: {}", job[key]);
    }
    assert!(
        job["iodepth_level"]["16"].as_f64().unwrap() > 99.0,
        "{}",
        job["iodepth_level"]
    );
}

#[test]
fn the_end_of_one_job_ends_those_that_exit_what_names() {
    let dir = scratch();
    let base = "[global]\nioengine=null\nrw=read\nsize=1g\ntime_based\nruntime=20\nrate_iops=1000\nexitall\n";
    for (what, long_ends) in [("group", false), ("all", true)] {
        let text = format!(
            "{base}exit_what={what}\n[short]\nruntime=300ms\n[same]\n[other]\nnew_group\nruntime={}\n",
            if long_ends { "20" } else { "900ms" }
        );
        let file = job_file(dir.path(), &text);
        let v = json(&fathom(dir.path(), &["--output-format=json", &file]));
        let runtime = |i: usize| v["jobs"][i]["read"]["runtime"].as_u64().unwrap();
        assert!(runtime(1) < 800, "{what}: {}", runtime(1));
        assert_eq!(runtime(2) < 800, long_ends, "{what}: {}", runtime(2));
    }
}

#[test]
fn priorities_limits_and_histograms_are_kept() {
    let dir = scratch();
    let file = job_file(
        dir.path(),
        "[p]\nioengine=libaio\nrw=randread\nsize=8m\niodepth=4\ncmdprio_percentage=20\ncmdprio_class=3\nwrite_lat_log=p\nlog_prio=1\n\
         write_hist_log=p\nlog_hist_msec=10\n",
    );
    let v = json(&fathom(dir.path(), &["--output-format=json", &file]));
    assert_eq!(v["jobs"][0]["read"]["total_ios"], 2048);
    let log = std::fs::read_to_string(dir.path().join("p_clat.1.log")).unwrap();
    let high = log.lines().filter(|l| l.ends_with("0x6000")).count() as f64 / 2048.0;
    assert!((high - 0.2).abs() < 0.04, "{high}");
    let histogram = std::fs::read_to_string(dir.path().join("p_clat_hist.1.log")).unwrap();
    let mut counted = 0;
    for line in histogram.lines() {
        let fields: Vec<u64> = line.split(", ").map(|f| f.parse().unwrap()).collect();
        assert_eq!(fields.len(), 3 + 29 * 64);
        assert_eq!((fields[1], fields[2]), (0, 4096));
        counted += fields[3..].iter().sum::<u64>();
    }
    assert_eq!(counted, 2048, "every I/O is in one line");
    let slow = job_file(
        dir.path(),
        "[s]\nioengine=psync\nrw=randread\nsize=1m\nmax_latency=1us\ndirect=1\n",
    );
    let out = fathom(dir.path(), &["--output-format=json", &slow]);
    assert_eq!(out.status.code(), Some(1));
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["jobs"][0]["error"], 110);
}

#[test]
fn zones_are_written_at_their_pointers() {
    let dir = scratch();
    let file = job_file(
        dir.path(),
        "[z]\nioengine=null\nrw=randwrite\nbs=64k\nsize=16m\nio_size=32m\nzonemode=zbd\nzonesize=1m\nmax_open_zones=4\nwrite_bw_log=z\nlog_offset=1\n",
    );
    json(&fathom(dir.path(), &["--output-format=json", &file]));
    let mut pointers = [0u64; 16];
    for line in std::fs::read_to_string(dir.path().join("z_bw.1.log"))
        .unwrap()
        .lines()
    {
        let offset: u64 = line.split(", ").nth(4).unwrap().parse().unwrap();
        let (zone, at) = ((offset >> 20) as usize, offset & ((1 << 20) - 1));
        assert!(
            at == pointers[zone] || at == 0 && pointers[zone] == 1 << 20,
            "{line}"
        );
        pointers[zone] = at + 65_536;
        let open = pointers.iter().filter(|p| **p > 0 && **p < 1 << 20);
        assert!(open.count() <= 4, "{pointers:?}");
    }
    // Zones are drawn: some twice, few not at all.
    let used = pointers.iter().filter(|p| **p > 0).count();
    assert!(used >= 8, "{pointers:?}");
    // Resets before a zone is full are those of a device.
    let resets = ["--zone_reset_threshold=.5", "--zone_reset_frequency=.1"];
    let job = "--name=z --ioengine=null --rw=write --size=4m --zonemode=zbd --zonesize=1m";
    let words: Vec<&str> = job.split(' ').chain(resets).collect();
    let refused = fathom(dir.path(), &words);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("emulated zones start again"), "{said}");
}

#[test]
fn blocks_that_fio_wrote_are_verified() {
    let dir = scratch();
    for sum in [
        "md5", "crc64", "crc32", "crc32c", "crc16", "crc7", "sha1", "sha256", "xxhash",
    ] {
        let verify = format!("--verify={sum}");
        let job = |rw: &'static str| {
            vec![
                "--name=v",
                "--filename=v",
                rw,
                "--size=64k",
                "--bs=4k",
                &verify,
                "--output-format=json",
            ]
        };
        let mut write = job("--rw=randwrite");
        write.push("--do_verify=0");
        let Ok(out) = Command::new("fio")
            .args(&write)
            .current_dir(dir.path())
            .output()
        else {
            eprintln!(
                "SKIP blocks_that_fio_wrote_are_verified: fio is not installed (apt-get install fio)"
            );
            return;
        };
        assert!(out.status.success(), "{sum}: {out:?}");
        json(&fathom(dir.path(), &job("--rw=read")));
        let mut data = std::fs::read(dir.path().join("v")).unwrap();
        data[30_000] ^= 1;
        std::fs::write(dir.path().join("v"), data).unwrap();
        let out = fathom(dir.path(), &job("--rw=read"));
        assert_eq!(out.status.code(), Some(1), "{sum}: a flipped bit");
        std::fs::remove_file(dir.path().join("v")).unwrap();
    }
}

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
    let Ok(out) = Command::new("fio").args(args).current_dir(dir.path()).output() else {
        eprintln!("skipped: fio is not installed (apt-get install fio)");
        return;
    };
    let theirs: Value = serde_json::from_slice(&out.stdout).unwrap();
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    tree(&ours, "", &mut a);
    tree(&theirs, "", &mut b);
    let measured = |k: &str| k.contains("/bins/");
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
        (&["--rw=randread", "--size=1m", "--bs=4k", "--loops=2"], 2 << 20),
        (&["--rw=randread", "--size=1m", "--io_size=256k"], 256 << 10),
        (&["--rw=read", "--size=1m", "--number_ios=10"], 40_960),
        (&["--rw=read", "--filesize=1m", "--size=50%", "--bs=4k"], 512 << 10),
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
    let args = ["--name=a", "--rw=read", "--size=1m", "--minimal", "--disk_util=0"];
    let out = fathom(dir.path(), &args);
    let text = String::from_utf8(out.stdout).unwrap();
    let fields: Vec<&str> = text.trim().split(';').collect();
    assert_eq!((fields[0], fields[2], fields[5]), ("3", "a", "1024"));
    assert!(fields[7].parse::<u64>().unwrap() > 0, "IOPS");
    assert_eq!(fields[46], "0", "KiB written");
    let Ok(theirs) = Command::new("fio").args(args).current_dir(dir.path()).output() else {
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
        &["--name=a", "--rw=write", "--filename=precious", "--size=64k"][..],
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
    let args = ["--name=a", "--rw=randread", "--size=64k", "--verify=md5"];
    let out = fathom(dir.path(), &args);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("verify=md5 is not supported"));
    assert!(!dir.path().join("a.0.0").exists(), "nothing was made");
    let mut lenient = args.to_vec();
    lenient.push("--lenient");
    assert!(fathom(dir.path(), &lenient).status.success());
    // A default is no request.
    let out = fathom(
        dir.path(),
        &["--name=a", "--rw=randread", "--size=64k", "--verify=0", "--output-format=json"],
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

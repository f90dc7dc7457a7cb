//! A quick part of `bench/fio-corpus`: jobs in the forms that public suites use, small, with the same I/Os, bytes and files
//! as in fio.

use std::path::Path;

use super::common::{document, fathom, fio, scratch, skip};

/// A form each: where it is common, and its options.
const FORMS: &[(&str, &str)] = &[
    (
        "object stores' benchmarks: clones with a directory, one after another",
        "--rw=randwrite --bs=16k --size=256k --numjobs=2 --direct=1 --ioengine=libaio --iodepth=16 --end_fsync=1 --norandommap",
    ),
    (
        "plots over depths: direct random reads of one file",
        "--rw=randread --bs=4k --size=256k --direct=1 --ioengine=libaio --iodepth=4 --invalidate=1 --refill_buffers",
    ),
    (
        "file systems' tests: a mix over several files, verified",
        "--rw=write --bs=8k --size=256k --nrfiles=4 --verify=crc32c --do_verify=1 --fallocate=none",
    ),
    (
        "databases' logs: small synchronous appends",
        "--rw=write --bs=2300 --size=46000 --fdatasync=1 --ioengine=sync",
    ),
    (
        "containers' benchmarks: passes of a sequential read",
        "--rw=read --bs=64k --size=256k --loops=3 --ioengine=psync --group_reporting --numjobs=2",
    ),
    (
        "RAID studies: whole stripes from an offset, in part",
        "--rw=write --bs=64k --offset=128k --size=256k --io_size=128k --filesize=384k --ioengine=io_uring --iodepth=2",
    ),
    (
        "caches' tests: skewed reads, so many",
        "--rw=randread --bs=4k --size=1m --random_distribution=zipf:1.2 --norandommap --number_ios=100",
    ),
];

/// Exit code, I/Os and bytes of each job, and the files that are left.
type Done = (Option<i32>, Vec<[u64; 3]>, Vec<String>);

fn done(dir: &Path, out: &std::process::Output) -> Done {
    let v = document(out);
    let of = |job: &serde_json::Value| {
        let sum = |key: &str| -> u64 {
            let directions = ["read", "write"].iter();
            directions.map(|d| job[d][key].as_u64().unwrap()).sum()
        };
        [
            sum("total_ios"),
            sum("io_bytes"),
            job["error"].as_u64().unwrap(),
        ]
    };
    let jobs = v["jobs"].as_array().unwrap().iter().map(of).collect();
    let entries = std::fs::read_dir(dir).unwrap();
    let mut files: Vec<String> = entries
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        // A state is each tool's own.
        .filter(|n| !n.ends_with(".state"))
        .collect();
    files.sort();
    (out.status.code(), jobs, files)
}

#[test]
fn forms_of_public_jobs_do_the_same_io() {
    for (form, options) in FORMS {
        let mut args = vec!["--name=job", "--output-format=json", "--thread"];
        args.extend(options.split(' '));
        let dir = scratch();
        let ours = done(dir.path(), &fathom(dir.path(), &args));
        assert_eq!(ours.0, Some(0), "{form}: {options}");
        let dir = scratch();
        match fio(dir.path(), &args) {
            Some(out) => assert_eq!(ours, done(dir.path(), &out), "{form}: {options}"),
            None => skip("forms_of_public_jobs_do_the_same_io"),
        }
    }
}

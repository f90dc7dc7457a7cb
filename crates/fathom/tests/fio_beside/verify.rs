//! Verification: its times, its verdicts.

use super::common::{both, fathom, number, scratch};

#[test]
fn what_is_read_back_has_a_runtime_of_its_own() {
    const TEST: &str = "what_is_read_back_has_a_runtime_of_its_own";
    // In memory: what was written is synced before it is read, and a disk may take longer for that than the writes took.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = format!("--filename={}", dir.path().join("a").display());
    for jobs in both(
        TEST,
        &[
            "--name=a",
            &file,
            "--rw=write",
            "--bs=4k",
            "--size=1m",
            "--verify=crc32c",
            "--rate=,4m",
        ],
    ) {
        let (read, write) = (&jobs[0]["read"], &jobs[0]["write"]);
        assert_eq!(
            (&read["total_ios"], &write["total_ios"]),
            (&256.into(), &256.into())
        );
        assert!(number(&write["runtime"]) > 200.0, "{write}");
        assert!(
            number(&read["runtime"]) < number(&write["runtime"]),
            "{read}"
        );
    }
}

#[test]
fn a_job_that_writes_for_a_time_writes_only() {
    for jobs in both(
        "a_job_that_writes_for_a_time_writes_only",
        &[
            "--name=a",
            "--rw=write",
            "--bs=4k",
            "--size=128k",
            "--verify=crc32c",
            "--time_based",
            "--runtime=300ms",
        ],
    ) {
        assert_eq!(jobs[0]["read"]["total_ios"], 0);
        assert!(number(&jobs[0]["write"]["total_ios"]) > 64.0);
    }
}

#[test]
fn what_is_whole_is_never_called_corrupt() {
    const TEST: &str = "what_is_whole_is_never_called_corrupt";
    let first = "--name=a --ioengine=libaio --bs=128k --filesize=4m --size=8m --iodepth=128 --create_on_open=1 \
                 --fallocate=none --verify=crc32c-intel --verify_backlog=1024 --direct=1 --rw=randwrite";
    // The same places are written again and again, many at once.
    let second = "--name=a --ioengine=libaio --bs=4k --size=64k --io_size=2m --norandommap --iodepth=32 --verify=md5 \
                  --verify_backlog=16 --direct=1 --rw=randwrite";
    let words = |line: &'static str| line.split_whitespace().collect::<Vec<&str>>();
    for jobs in both(TEST, &words(first)) {
        assert_eq!(jobs[0]["error"], 0, "{first}");
    }
    // fio itself calls that one corrupt now and then: its later write may land first (serialize_overlap is off).
    let out = fathom(scratch().path(), &words(second));
    assert!(out.status.success(), "{second}: {out:?}");
    let dir = scratch();
    let base = [
        "--name=a",
        "--bs=512",
        "--size=128k",
        "--norandommap",
        "--verify=crc32c",
    ];
    for extra in [
        &["--rw=randwrite", "--rate_iops=2000", "--verify_backlog=16"][..],
        &["--rw=randread"],
    ] {
        let out = fathom(dir.path(), &[&base[..], extra].concat());
        assert!(out.status.success(), "{extra:?}: {out:?}");
    }
}

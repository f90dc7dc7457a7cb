//! What options change in the order and the time of I/Os, and what of them is not served.

use super::common::{both, document, fathom, fio, scratch, skip};

const LOG: &str = "fio version 2 iolog
g add
g open
g write 0 4096
g read 0 4096
g read 4096 4096
g sync 0 0
g close
";

#[test]
fn what_a_log_holds_may_be_left_out() {
    let args = [
        "--name=a",
        "--read_iolog=log",
        "--replay_skip=write,sync",
        "--replay_redirect=f",
        "--size=64k",
        "--rw=read",
        "--output-format=json",
    ];
    // fio 3.33 does so with block traces only, later versions with logs of its own, too.
    let dir = scratch();
    std::fs::write(dir.path().join("log"), LOG).unwrap();
    let out = fathom(dir.path(), &args);
    let job = &document(&out)["jobs"][0];
    let done = (&job["read"]["total_ios"], &job["write"]["total_ios"]);
    assert_eq!(done, (&2.into(), &0.into()), "{job}");
    let out = fathom(dir.path(), &[&args[..2], &["--replay_skip=all"]].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("expected read, write, trim, sync"), "{out:?}");
}

#[test]
fn a_job_appends_to_its_file() {
    for theirs in [false, true] {
        let dir = scratch();
        let args = "--name=a --filename=f --bs=4k --size=64k --rw=write --output-format=json";
        let args: Vec<&str> = args.split(' ').collect();
        let run = |more: &[&str]| {
            let args = [&args, more].concat();
            if theirs {
                fio(dir.path(), &args)
            } else {
                Some(fathom(dir.path(), &args))
            }
        };
        let Some(out) = run(&[]) else {
            return skip("a_job_appends_to_its_file");
        };
        assert!(out.status.success(), "{out:?}");
        let file = dir.path().join("f");
        let before = std::fs::read(&file).unwrap();
        let out = run(&["--file_append=1"]).unwrap();
        assert!(out.status.success(), "{out:?}");
        let after = std::fs::read(&file).unwrap();
        assert_eq!(after.len(), 131_072, "{theirs}");
        assert!(after[..65_536] == before[..] && after[65_536..].iter().any(|b| *b != 0));
    }
}

#[test]
fn what_overlaps_goes_one_after_another() {
    let dir = scratch();
    let args = "--name=a --filename=f --bs=4k --size=4k --io_size=1m --rw=randwrite --norandommap --direct=1 \
                --ioengine=libaio --iodepth=8 --output-format=json";
    let mut args: Vec<&str> = args.split_whitespace().collect();
    let deep = |args: &[&str]| {
        let job = &document(&fathom(dir.path(), args))["jobs"][0];
        assert_eq!(job["write"]["total_ios"], 256, "{job}");
        job["iodepth_level"]["1"].as_f64().unwrap() < 50.0
    };
    assert!(deep(&args));
    args.push("--serialize_overlap=1");
    assert!(!deep(&args), "all writes touch one block");
}

#[test]
fn a_job_that_was_thinking_does_not_catch_up_where_that_is_asked_for() {
    let args = [
        "--name=a",
        "--filename=f",
        "--bs=4k",
        "--size=120k",
        "--rw=read",
        "--rate_iops=50",
        "--thinktime=500ms",
        "--thinktime_blocks=10",
        "--rate_ignore_thinktime=1",
    ];
    let test = "a_job_that_was_thinking_does_not_catch_up_where_that_is_asked_for";
    for jobs in both(test, &args) {
        let read = &jobs[0]["read"];
        assert_eq!(read["total_ios"], 30);
        // 0.6 s for 30 reads, and two pauses of half a second; with catching up 1.2 s.
        assert!(read["runtime"].as_u64() >= Some(1400), "{read}");
    }
}

#[test]
fn ranges_and_remainders_that_are_not_served_are_named() {
    let dir = scratch();
    let base = "--name=a --filename=f --bs=4k --size=64k";
    for (more, word) in [
        ("--rw=trim --num_range=4", "num_range"),
        (
            "--rw=write --zonemode=zbd --zonesize=16k --write_zone_remainder=1",
            "write_zone_remainder",
        ),
        (
            "--rw=write --verify=crc32c --verify_policy=fsynced",
            "verify_policy",
        ),
    ] {
        let args: Vec<&str> = base.split(' ').chain(more.split(' ')).collect();
        let out = fathom(dir.path(), &args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            out.status.code() == Some(2) && said.contains(word),
            "{out:?}"
        );
    }
    // Other values of what does work.
    let args = "--rw=write --verify=crc32c --verify_write_sequence=0";
    let args: Vec<&str> = base.split(' ').chain(args.split(' ')).collect();
    assert!(fathom(dir.path(), &args).status.success());
    let args = "--rw=write --verify=pattern --verify_pattern=%o --verify_pattern_interval=512";
    let args: Vec<&str> = base.split(' ').chain(args.split(' ')).collect();
    assert!(fathom(dir.path(), &args).status.success());
    let data = std::fs::read(dir.path().join("f")).unwrap();
    for (i, part) in data.chunks(512).enumerate() {
        assert_eq!(part[..8], (i as u64 * 512).to_le_bytes(), "{i}");
    }
}

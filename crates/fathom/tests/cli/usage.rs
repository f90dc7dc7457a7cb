//! Bad input: exit code 2 and one sentence that names the thing, what was expected, and what to do.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::common::{Place, beside_others, machine, names, skip};

/// Runs each line in a fresh place; its sentence must hold every part, and nothing may be made.
fn refused(cases: &[(&str, &[&str])]) {
    for (line, parts) in cases {
        let place = Place::new();
        fs::write(place.dir.join("empty"), "").unwrap();
        fs::write(place.dir.join("theirs"), vec![7; 8192]).unwrap();
        symlink("theirs", place.dir.join("link")).unwrap();
        fs::write(place.dir.join("bad.toml"), "[[job]]\nqdd = 3\n").unwrap();
        fs::write(place.dir.join("worse.toml"), "[[job]]\nqd = 3 4\n").unwrap();
        let before = place.names();
        let args: Vec<&str> = line.split(' ').collect();
        let sentence = place.fathom(&args).refusal();
        for part in *parts {
            assert!(
                sentence.contains(part),
                "fathom {line}\nsaid  {sentence}\nbut not {part}"
            );
        }
        assert_eq!(place.names(), before, "fathom {line} made something");
        assert!(!place.runs().exists(), "fathom {line} made a run");
        assert_eq!(fs::read(place.dir.join("theirs")).unwrap(), vec![7; 8192]);
    }
}

#[test]
fn options_that_do_not_exist_get_the_nearest_one() {
    let _turn = beside_others();
    refused(&[
        (
            "run null: --qdd 3",
            &["'--qdd'", "did you mean '--qd'", "fathom run --help"],
        ),
        ("run null: --blah", &["'--blah'", "fathom run --help"]),
        (
            "survey --profil full",
            &["'--profil'", "'--profile'", "fathom survey --help"],
        ),
        (
            "surveyy",
            &["'surveyy'", "did you mean 'survey'", "fathom --help"],
        ),
        (
            "run . --jobs bad.toml",
            &["bad.toml", "'qdd'", "did you mean 'qd'"],
        ),
    ]);
}

#[test]
fn arguments_that_are_missing_or_too_many_are_named() {
    let _turn = beside_others();
    refused(&[
        ("run", &["<TARGET> is missing", "fathom run --help"]),
        ("run null: more", &["'more' is one argument too many"]),
        ("run null: --time", &["--time <DURATION> needs a value"]),
        ("run null: --qd 1 --qd 2", &["--qd is given twice"]),
        (
            "run --jobs missing.toml",
            &["missing.toml", "check the path"],
        ),
        ("run --jobs worse.toml null:", &["worse.toml", "line 2"]),
        ("run --jobs . null:", &["cannot read the job file"]),
    ]);
}

#[test]
fn values_that_are_impossible_are_named_with_what_was_expected() {
    let _turn = beside_others();
    refused(&[
        (
            "run null: --qd 0",
            &["qd", "'0'", "expected a number from 1"],
        ),
        ("run null: --qd many", &["qd", "'many'", "expected"]),
        (
            "run null: --threads 0",
            &["threads", "expected a number from 1"],
        ),
        ("run null: --bs 0", &["bs", "expected"]),
        ("run null: --bs abc", &["bs", "'abc' is not a size", "4k"]),
        ("run null: --size 5q", &["size", "'5q' is not a size"]),
        ("run null: --size 0", &["size", "0 bytes", "1g"]),
        (
            "run null: --size 99999999999999999999g",
            &["size", "expected"],
        ),
        ("run null: --time -5s", &["'-5", "below 0"]),
        (
            "run null: --time 5parsecs",
            &["time", "'5parsecs'", "expected"],
        ),
        ("run null: --rw sideways", &["rw", "'sideways'", "randread"]),
        ("run null: --engine steam", &["engine", "'steam'", "uring"]),
        ("run null: --read-share 101", &["read-share", "0 to 100"]),
        ("run null: --rate 0", &["rate", "above 0"]),
        ("run null: --dist zipf:-1", &["dist", "expected"]),
        ("run null: --burst 64", &["burst", "64/10ms"]),
        ("run null: --cpus 3-1", &["cpus", "0-3"]),
        ("run null: --seed x", &["seed", "'x'"]),
        ("survey --size 5q", &["size", "'5q' is not a size"]),
        ("survey --size 1k", &["--size", "too small", "1m or more"]),
        ("survey --seed x", &["seed", "'x'"]),
        (
            "survey --profile hasty",
            &["'hasty'", "quick, standard, full"],
        ),
        ("report --format pdf", &["no run in fathom-runs"]),
    ]);
}

#[test]
fn jobs_that_do_not_fit_their_target_are_refused_before_anything_is_kept() {
    let _turn = beside_others();
    refused(&[
        (
            "run . --size 16m --bs 1000",
            &["bs: 1000 B", "multiple", "--buffered"],
        ),
        (
            "run new --create --size 16m --bs 1000",
            &["bs: 1000 B", "multiple", "--buffered"],
        ),
        (
            "run new --create --size 16m --offset 100",
            &["offset", "multiple"],
        ),
        (
            "run . --size 4k --bs 8k",
            &["size", "smaller than the block", "larger size"],
        ),
        (
            "run theirs --rw read --size 1m --bs 4k",
            &["size", "does not fit"],
        ),
        (
            "run . --size 16m --rw read --dist zipf:1.1",
            &["dist", "randread"],
        ),
        (
            "run . --size 16m --rate 1k --think 1ms",
            &["rate", "--think"],
        ),
        (
            "run . --size 16m --random-map --bs 4k,8k",
            &["random-map", "one block size"],
        ),
        (
            "run . --size 16m --iopoll --buffered",
            &["iopoll", "--buffered"],
        ),
        (
            "run . --size 16m --cpus 4095 --time 1s",
            &["processor 4095", "lscpu"],
        ),
        (
            "run . --size 9000t --time 1s",
            &["room for", "free some space"],
        ),
    ]);
}

#[test]
fn polling_is_refused_before_anything_is_made_where_nothing_can_be_polled() {
    let _turn = beside_others();
    let polls = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .any(|d| {
            std::fs::read_to_string(d.path().join("queue/io_poll")).is_ok_and(|s| s.trim() == "1")
        });
    if polls {
        println!("SKIP polling_is_refused…: a device here has poll queues");
        return;
    }
    refused(&[(
        "run . --size 16m --iopoll --time 1s",
        &["cannot be polled", "drop --iopoll", "poll_queues"],
    )]);
}

#[test]
fn targets_that_cannot_be_used_are_named_with_the_way_out() {
    let _turn = beside_others();
    refused(&[
        (
            "run nosuch --time 1s",
            &["nosuch", "no such file", "--size"],
        ),
        (
            "run no/such --size 1m",
            &["no/such", "no directory", "check the path"],
        ),
        ("survey nosuch/dir", &["nosuch/dir", "check the path"]),
        (
            "run empty --rw read --time 1s",
            &["the file is empty", "name one with data"],
        ),
        (
            "run sim:unobtainium --time 1s",
            &["sim:unobtainium", "no such model", "fathom sim list"],
        ),
        (
            "run /dev/null --time 1s",
            &["/dev/null", "a character device", "expected"],
        ),
        (
            "run theirs --rw randwrite --time 1s",
            &["theirs", "not made by fathom"],
        ),
        ("run link --rw randwrite --time 1s", &["not made by fathom"]),
        ("survey theirs", &["theirs", "not made by fathom"]),
        ("report nosuch", &["nosuch", "expected a run directory"]),
        ("report theirs", &["theirs", "is not a run"]),
        ("clean nosuch", &["nosuch", "name a directory"]),
        (
            "run . --size 4m --ios 1 --out theirs/x",
            &["theirs/x", "--out"],
        ),
    ]);
}

#[test]
fn a_report_of_unknown_kind_is_refused_with_the_kinds_there_are() {
    let _turn = beside_others();
    let place = Place::new();
    place.fathom(&["run", "null:", "--ios", "100"]).expect(0);
    let dir = place.the_run_dir();
    let before = names(&dir);
    let sentence = place
        .fathom(&["report", dir.to_str().unwrap(), "--format", "pdf"])
        .refusal();
    assert!(
        sentence.contains("'pdf'") && sentence.contains("html"),
        "{sentence}"
    );
    assert_eq!(names(&dir), before);
}

#[test]
fn a_directory_without_permission_is_refused_to_users_without_root() {
    let _turn = beside_others();
    if machine::find("setpriv").is_none() {
        return skip("needs the program setpriv");
    }
    let base = tempfile::Builder::new()
        .prefix("fathom-cli-")
        .tempdir()
        .unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The build's own directory may be closed to other users.
    let binary = base.path().join("fathom");
    fs::copy(env!("CARGO_BIN_EXE_fathom"), &binary).unwrap();
    let closed = base.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = std::process::Command::new(machine::find("setpriv").unwrap());
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&binary)
        .args([
            "run", ".", "--size", "1m", "--time", "100ms", "--out", "runs",
        ])
        .current_dir(&closed)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let said = crate::common::wait(command);
    if said.stderr.contains("setpriv:") {
        return skip("the user cannot be changed here");
    }
    let sentence = said.refusal();
    assert!(sentence.contains("no permission"), "{sentence}");
    assert!(names(&closed).is_empty());
}

#[test]
fn an_argument_that_is_not_text_is_no_panic() {
    use std::os::unix::ffi::OsStrExt;
    let _turn = beside_others();
    let place = Place::new();
    let strange = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    for first in [&[][..], &["run"], &["run", "null:", "--qd"], &["clean"]] {
        let mut command = place.command(first);
        command.arg(strange);
        let said = crate::common::wait(command).expect(2);
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let _turn = beside_others();
    let place = Place::new();
    for args in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["survey", "-h"],
    ] {
        let said = place.fathom(args).expect(0);
        assert!(!said.stdout.is_empty() && said.stderr.is_empty());
    }
    let said = place.fathom(&[]).expect(2);
    assert!(
        said.stderr.contains("Start with: fathom survey"),
        "{}",
        said.stderr
    );
}

//! Errors of I/O: which of them end a job, fail it, are counted and said.

use std::path::Path;
use std::process::Command;

use super::common::{document, fathom, fio, names, scratch, skip};

/// A file system of 1 MiB in memory, gone with the test.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn new(test: &str, at: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at);
        if mount.status().is_ok_and(|s| s.success()) {
            return Some(Self(at));
        }
        println!("SKIP {test}: no file system can be mounted here");
        None
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn errors_end_and_fail_a_job_as_in_fio() {
    const TEST: &str = "errors_end_and_fail_a_job_as_in_fio";
    let base = [
        "--name=a",
        "--rw=write",
        "--bs=64k",
        "--size=4m",
        "--ioengine=psync",
        "--fallocate=none",
        "--output-format=json",
    ];
    // Exit code, error, errors in all, I/Os begun; whether it is said.
    let all = (Some(0), 28, Some(48), 64);
    let one = (Some(1), 28, Some(1), 17);
    for (options, wanted, said) in [
        (&["--ignore_error=,ENOSPC"][..], all, false),
        (&["--ignore_error=EIO,28:ENXIO"], all, false),
        (&["--ignore_error=,ENOSPC", "--error_dump=1"], all, true),
        (&["--ignore_error=EIO,ERANGE"], one, true),
        (&["--continue_on_error=all"], one, true),
        (&[], (Some(1), 28, None, 17), true),
    ] {
        for theirs in [false, true] {
            let dir = scratch();
            let Some(_small) = Small::new(TEST, dir.path()) else {
                return;
            };
            let args = [&base[..], options].concat();
            let out = match theirs {
                false => Some(fathom(dir.path(), &args)),
                true => fio(dir.path(), &args),
            };
            let Some(out) = out else {
                skip(TEST);
                continue;
            };
            let job = &document(&out)["jobs"][0];
            let seen = (
                out.status.code(),
                job["error"].as_i64().unwrap(),
                job["total_err"].as_i64(),
                job["write"]["total_ios"].as_i64().unwrap(),
            );
            let who = if theirs { "fio" } else { "fathom" };
            assert_eq!(seen, wanted, "{who} {options:?}");
            assert_eq!(!out.stderr.is_empty(), said, "{who} {options:?}: {out:?}");
            assert_eq!(job["write"]["io_bytes"], 1 << 20, "{who} {options:?}");
        }
    }
}

#[test]
fn a_file_that_others_use_is_not_emptied() {
    let dir = scratch();
    let job = ["--name=one", "--rw=write", "--size=64k", "--filename=f"];
    let other = ["--name=two", "--rw=read", "--size=64k", "--filename=f"];
    let loops = ["--loops=2", "--unlink_each_loop=1"];
    let out = fathom(dir.path(), &[&job[..], &loops, &other].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(said.contains("job 'two' uses at the same time"), "{said}");
    let out = fathom(
        dir.path(),
        &[&job[..], &loops, &other, &["--stonewall"]].concat(),
    );
    assert!(out.status.success(), "{out:?}");
    assert_eq!(names(dir.path()), ["f"]);
}

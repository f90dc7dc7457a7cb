//! Output, signals, command line.

use std::path::Path;
use std::process::{Command, Output};

use super::common::{both, document, fathom, fio, number, scratch, skip};

#[test]
fn read_only_makes_no_file() {
    const TEST: &str = "read_only_makes_no_file";
    let args = [
        "--name=a",
        "--rw=read",
        "--size=64k",
        "--filename=new",
        "--readonly",
    ];
    for theirs in [false, true] {
        let dir = scratch();
        let run = if theirs {
            fio
        } else {
            |d: &Path, a: &[&str]| Some(fathom(d, a))
        };
        let Some(out) = run(dir.path(), &args) else {
            return skip(TEST);
        };
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        assert!(!dir.path().join("new").exists());
    }
}

/// Runs a job of both that a signal meets after 400 ms; its code and what it printed.
fn signalled(test: &str, signals: &[i32], args: &[&str]) -> Vec<(Option<i32>, String)> {
    let mut seen = Vec::new();
    for theirs in [false, true] {
        let dir = scratch();
        let mut command = if theirs {
            Command::new("fio")
        } else {
            let mut c = Command::new(env!("CARGO_BIN_EXE_fathom"));
            c.arg("fio");
            c
        };
        let started = command
            .args(args)
            .current_dir(dir.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn();
        let Ok(child) = started else {
            skip(test);
            continue;
        };
        // Its file is there: it has begun.
        for _ in 0..500 {
            if dir.path().join("a.0.0").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        for signal in signals {
            std::thread::sleep(std::time::Duration::from_millis(600));
            // SAFETY: the child is ours and not waited for yet.
            unsafe { libc::kill(child.id() as i32, *signal) };
        }
        let out = child.wait_with_output().unwrap();
        seen.push((
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
        ));
    }
    seen
}

#[test]
fn signals_end_a_run_or_ask_for_a_report() {
    let args = [
        "--name=a",
        "--rw=randread",
        "--size=64k",
        "--time_based",
        "--runtime=20",
        "--output-format=json",
    ];
    let signals = [libc::SIGUSR1, libc::SIGTERM];
    for (code, text) in signalled("signals_end_a_run_or_ask_for_a_report", &signals, &args) {
        assert_eq!(code, Some(128));
        assert_eq!(text.matches("\"fio version\"").count(), 2, "{text}");
    }
}

#[test]
fn forms_of_output_come_in_fios_order() {
    const TEST: &str = "forms_of_output_come_in_fios_order";
    let args = [
        "--name=a",
        "--rw=read",
        "--size=64k",
        "--output-format=normal,json,terse",
    ];
    let dir = scratch();
    let mut outs = vec![fathom(dir.path(), &args)];
    match fio(dir.path(), &args) {
        Some(out) => outs.push(out),
        None => skip(TEST),
    }
    for out in outs {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(at("a: (g=0)") < at("3;fio-3"), "{text}");
        assert!(at("3;fio-3") < at("\"jobs\"") && at("\"jobs\"") < at("Run status group"));
        // As the readers of Ceph's benchmarks find JSON: from what starts to the first empty line.
        let mut lines = text.lines().skip_while(|l| !l.starts_with("Starting"));
        assert!(lines.next().is_some(), "{text}");
        let json: Vec<&str> = lines
            .skip_while(|l| l.starts_with("3;"))
            .take_while(|l| !l.is_empty())
            .collect();
        let json: serde_json::Value = serde_json::from_str(&json.join("\n")).expect(&text);
        assert_eq!(json["jobs"][0]["jobname"], "a");
    }
}

#[test]
fn small_habits_are_fios() {
    const TEST: &str = "small_habits_are_fios";
    let dir = scratch();
    let dirs = [scratch(), scratch()];
    let each = |args: &[&str], judge: &dyn Fn(&Path, &Output)| {
        judge(dirs[0].path(), &fathom(dirs[0].path(), args));
        match fio(dirs[1].path(), args) {
            Some(out) => judge(dirs[1].path(), &out),
            None => skip(TEST),
        }
    };
    // A job's name may have directories.
    each(&["--name=x/y", "--rw=read", "--size=64k"], &|dir, out| {
        assert!(
            out.status.success() && dir.join("x/y.0.0").exists(),
            "{out:?}"
        );
    });
    // Long options may be cut short; engines have more names than one.
    each(
        &[
            "--name=a",
            "--rw=read",
            "--size=64k",
            "--ioeng=linuxaio",
            "--output-f=terse",
        ],
        &|_, out| assert!(out.stdout.starts_with(b"3;fio-3"), "{out:?}"),
    );
    each(&["--name=a", "--rw=read", "--no_such=1"], &|_, out| {
        assert_eq!(out.status.code(), Some(1), "{out:?}");
    });
    // A processor that the machine has not.
    for option in ["--cpus_allowed=0,60000", "--parse-only"] {
        each(
            &[
                "--name=a",
                "--rw=read",
                "--size=64k",
                "--cpus_allowed=60000",
                option,
            ],
            &|_, out| assert_eq!(out.status.code(), Some(1), "{out:?}"),
        );
    }
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 31) {
        each(
            &[
                "--name=a",
                "--rw=read",
                "--size=64k",
                "--cpumask=0x40000001",
            ],
            &|_, out| assert_eq!(out.status.code(), Some(1), "{out:?}"),
        );
    }
    // A command before the job that fails leaves the job out, and nothing else.
    let script = dir.path().join("job.fio");
    std::fs::write(
        &script,
        "[a]\nexec_prerun=false\nrw=read\nsize=64k\n[b]\nrw=read\nsize=64k\nexec_postrun=false\n",
    )
    .unwrap();
    each(
        &[script.to_str().unwrap(), "--output-format=json"],
        &|_, out| {
            assert!(out.status.success(), "{out:?}");
            let v = document(out);
            let ios = |i: usize| v["jobs"][i]["read"]["total_ios"].clone();
            assert_eq!((ios(0), ios(1)), (0.into(), 16.into()));
        },
    );
    // A log of histograms without a period stays empty.
    each(
        &["--name=h", "--rw=read", "--size=64k", "--write_hist_log=h"],
        &|dir, _| {
            let log = std::fs::metadata(dir.join("h_clat_hist.1.log")).unwrap();
            assert_eq!(log.len(), 0);
        },
    );
    // Terse percentiles are those of the total latency where they are asked for.
    each(
        &[
            "--name=t",
            "--rw=read",
            "--size=64k",
            "--minimal",
            "--lat_percentiles=1",
            "--clat_percentiles=0",
        ],
        &|_, out| {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(
                text.split(';').any(|f| f.starts_with("99.000000%=")),
                "{text}"
            );
        },
    );
    // Progress on request, also without a terminal.
    each(
        &[
            "--name=e",
            "--rw=read",
            "--size=64k",
            "--time_based",
            "--runtime=2",
            "--eta=always",
        ],
        &|_, out| {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(text.contains("Jobs: 1 (f=1)"), "{text}");
        },
    );
}

#[test]
fn a_trigger_ends_the_jobs_and_runs_its_command() {
    let job = [
        "--name=a",
        "--rw=read",
        "--size=64k",
        "--time_based",
        "--runtime=20",
        "--output-format=json",
    ];
    for (how, holds) in [
        ("--trigger-timeout=1", None),
        ("--trigger-file=now", Some("")),
        // What fio takes away is left where it holds something.
        ("--trigger-file=now", Some("words")),
    ] {
        let args = [&job[..], &[how, "--trigger=echo done > told"]].concat();
        for theirs in [false, true] {
            let dir = scratch();
            if let Some(text) = holds {
                std::fs::write(dir.path().join("now"), text).unwrap();
            }
            let out = if theirs {
                fio(dir.path(), &args)
            } else {
                Some(fathom(dir.path(), &args))
            };
            let Some(out) = out else {
                skip("a_trigger_ends_the_jobs_and_runs_its_command");
                continue;
            };
            assert_eq!(out.status.code(), Some(0), "{out:?}");
            let job = &document(&out)["jobs"][0];
            assert!(number(&job["job_runtime"]) < 10_000.0, "{job}");
            assert_eq!(job["error"], 0, "{job}");
            // fio does not wait for its command.
            let told = dir.path().join("told");
            for _ in 0..200 {
                if told.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(told.exists(), "{how}");
            let kept = !theirs && holds == Some("words");
            assert_eq!(dir.path().join("now").exists(), kept, "{how}");
        }
    }
}

#[test]
fn a_processor_is_kept_busy_in_the_place_of_io() {
    const TEST: &str = "a_processor_is_kept_busy_in_the_place_of_io";
    let args = [
        "--name=a",
        "--ioengine=cpuio",
        "--cpuload=50",
        "--cpuchunks=10000",
        "--runtime=600ms",
    ];
    for theirs in [false, true] {
        let dir = scratch();
        // fio says words before its document on standard output.
        let all = [&args[..], &["--output-format=json", "--output=out"]].concat();
        let out = if theirs {
            fio(dir.path(), &all)
        } else {
            Some(fathom(dir.path(), &all))
        };
        let Some(mut out) = out else {
            skip(TEST);
            continue;
        };
        assert!(out.status.success(), "{out:?}");
        out.stdout = std::fs::read(dir.path().join("out")).unwrap();
        let job = document(&out)["jobs"][0].clone();
        let read = &job["read"];
        // A cycle of 20 ms; under load it takes longer.
        let cycles = number(&read["total_ios"]);
        assert!((2.0..=31.0).contains(&cycles), "{cycles}");
        assert_eq!(
            (&read["io_bytes"], &read["runtime"]),
            (&0.into(), &0.into())
        );
        let busy = number(&job["usr_cpu"]) * number(&job["job_runtime"]) / 100.0;
        // Of 10 ms each at least one, as others may have the processor meanwhile.
        assert!(busy > cycles, "{busy} ms in {cycles} cycles");
    }
    // Without a share of the time it is none; with a job of I/O beside it, it ends with that.
    let both_end = [
        "--name=a",
        "--ioengine=cpuio",
        "--cpuload=20",
        "--exit_on_io_done=1",
        "--name=b",
        "--rw=read",
        "--size=64k",
    ];
    for (args, code) in [
        (&["--name=a", "--ioengine=cpuio", "--runtime=1"][..], 1),
        (&both_end, 0),
    ] {
        for theirs in [false, true] {
            let dir = scratch();
            let out = if theirs {
                fio(dir.path(), args)
            } else {
                Some(fathom(dir.path(), args))
            };
            if let Some(out) = out {
                assert_eq!(out.status.code(), Some(code), "{out:?}");
            }
        }
    }
}

#[test]
fn a_hand_over_is_part_of_the_submission() {
    const TEST: &str = "a_hand_over_is_part_of_the_submission";
    for engine in ["libaio", "io_uring"] {
        let engine = format!("--ioengine={engine}");
        let args = [
            "--name=a",
            "--rw=randread",
            "--size=2m",
            "--iodepth=8",
            "--direct=1",
            &engine,
        ];
        for jobs in both(TEST, &args) {
            let slat = number(&jobs[0]["read"]["slat_ns"]["mean"]);
            assert!((500.0..1e6).contains(&slat), "{engine}: {slat}");
        }
    }
}

#[test]
fn speeds_of_a_steady_state_are_bytes_per_second() {
    const TEST: &str = "speeds_of_a_steady_state_are_bytes_per_second";
    let args = [
        "--name=a",
        "--rw=randread",
        "--bs=4k",
        "--size=1m",
        "--time_based",
        "--runtime=4",
        "--rate_iops=1000",
        "--steadystate=iops:50%",
        "--steadystate_duration=2",
    ];
    for jobs in both(TEST, &args) {
        let data = &jobs[0]["steadystate"]["data"];
        let (bw, iops) = (number(&data["bw_mean"]), number(&data["iops"][0]));
        assert!((bw / (4096.0 * iops) - 1.0).abs() < 0.2, "{data}");
    }
}

//! The same job given to fio and to `fathom fio`: the same I/O reaches the device and the same numbers come out. Where fio
//! is not installed, what fathom does is still held to what fio is known to do.

use std::path::{Path, PathBuf};
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

/// What fio itself says; `None` where it is not installed.
fn fio(dir: &Path, args: &[&str]) -> Option<Output> {
    Command::new("fio")
        .args(args)
        .current_dir(dir)
        .output()
        .ok()
}

fn scratch() -> tempfile::TempDir {
    // Not in memory: what direct I/O can do there differs.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn skip(test: &str) {
    println!("SKIP {test}: fio is not installed (apt-get install fio)");
}

/// The document in an output, which fio may precede by notes.
fn document(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stdout);
    let begin = text.find('{').unwrap_or_else(|| panic!("{out:?}"));
    serde_json::from_str(&text[begin..]).unwrap()
}

/// Jobs of the same arguments by both, each in a directory of its own: fathom's first.
fn both(test: &str, args: &[&str]) -> Vec<Value> {
    let mut all = args.to_vec();
    all.push("--output-format=json");
    let dir = scratch();
    let ours = fathom(dir.path(), &all);
    assert!(ours.status.success(), "{args:?}: {ours:?}");
    let mut out = vec![document(&ours)["jobs"].clone()];
    match fio(scratch().path(), &all) {
        Some(theirs) => {
            assert!(theirs.status.success(), "{args:?}: {theirs:?}");
            out.push(document(&theirs)["jobs"].clone());
        }
        None => skip(test),
    }
    out
}

fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or_else(|| panic!("{v} is no number"))
}

/// A loop device of random data, gone with the test.
struct Loop {
    path: String,
    back: PathBuf,
}

impl Loop {
    fn new(test: &str, dir: &Path, mib: usize) -> Option<Self> {
        let back = dir.join("back");
        let mut seed = 7u64;
        let data: Vec<u8> = (0..mib << 17)
            .flat_map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_le_bytes()
            })
            .collect();
        std::fs::write(&back, data).unwrap();
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&back)
            .output();
        match made {
            Ok(out) if out.status.success() => {
                let path = String::from_utf8_lossy(&out.stdout).trim().to_owned();
                // Partitions of whatever had this number before.
                let _ = Command::new("partx").args(["-d", &path]).output();
                Some(Self { path, back })
            }
            _ => {
                println!("SKIP {test}: no loop device can be made here");
                None
            }
        }
    }

    /// Reads and writes that the device has done so far.
    fn count(&self) -> [u64; 2] {
        let name = self.path.trim_start_matches("/dev/");
        let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let field = |i: usize| text.split_whitespace().nth(i).unwrap().parse().unwrap();
        [field(0), field(4)]
    }

    /// Reads and writes that reach the device in a run of each tool: fathom's first.
    fn reached(&self, test: &str, args: &[&str]) -> Vec<[u64; 2]> {
        let dir = self.back.parent().unwrap();
        let file = format!("--filename={}", self.path);
        let mut all = vec!["--name=a", &file, "--output-format=json"];
        all.extend(args);
        let destroy = format!("--destroy={}", self.path);
        let mut out = Vec::new();
        for theirs in [false, true] {
            let before = self.count();
            let ended = if theirs {
                fio(dir, &all)
            } else {
                let mut mine = all.clone();
                mine.push(&destroy);
                Some(fathom(dir, &mine))
            };
            let Some(ended) = ended else {
                skip(test);
                continue;
            };
            assert!(ended.status.success(), "{args:?}: {ended:?}");
            let after = self.count();
            out.push([after[0] - before[0], after[1] - before[1]]);
        }
        out
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.path]).output();
    }
}

/// Within 2 %, or a few: fathom looks at a device before it uses it.
fn alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 32.max(b / 50)
}

#[test]
fn buffered_passes_begin_cold() {
    const TEST: &str = "buffered_passes_begin_cold";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 4) else {
        return;
    };
    for (args, reads) in [
        (&["--rw=randread", "--loops=3"][..], 3 * 1024),
        (&["--rw=randread", "--io_size=12m"], 3 * 1024),
        (
            &["--rw=read", "--loops=2", "--fadvise_hint=random"],
            2 * 1024,
        ),
        // What is mapped stays in the cache.
        (&["--rw=randread", "--ioengine=mmap", "--loops=2"], 1024),
    ] {
        for counts in device.reached(TEST, &[args, &["--bs=4k", "--size=4m"]].concat()) {
            assert!(alike(counts[0], reads), "{args:?}: {counts:?}");
        }
    }
    // A job for a time begins cold whenever it begins again.
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--size=128k",
        "--time_based",
        "--runtime=300ms",
    ];
    let before = device.count()[0];
    let file = format!("--filename={}", device.path);
    let out = fathom(
        dir.path(),
        &[&args[..], &["--name=a", &file, "--output-format=json"]].concat(),
    );
    let ios = document(&out)["jobs"][0]["read"]["total_ios"]
        .as_u64()
        .unwrap();
    let reads = device.count()[0] - before;
    assert!(ios > 64 && alike(reads, ios), "{reads} of {ios}");
}

#[test]
fn asynchronous_engines_hand_over_as_fio_does() {
    const TEST: &str = "asynchronous_engines_hand_over_as_fio_does";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 8) else {
        return;
    };
    let base = ["--bs=4k", "--iodepth=32", "--direct=1", "--size=8m"];
    for (args, requests) in [
        (&["--rw=read", "--ioengine=libaio"][..], 2048),
        (&["--rw=write", "--ioengine=io_uring"], 2048),
        (
            // Eight completions are waited for, and as many neighbours merged.
            &[
                "--rw=read",
                "--ioengine=libaio",
                "--iodepth_batch=16",
                "--iodepth_batch_complete_min=8",
            ],
            256,
        ),
        (
            &[
                "--rw=write",
                "--ioengine=libaio",
                "--iodepth_batch=8",
                "--iodepth_low=8",
            ],
            256,
        ),
    ] {
        for counts in device.reached(TEST, &[&base[..], args].concat()) {
            let n = counts[0].max(counts[1]);
            assert!(alike(n, requests), "{args:?}: {counts:?}");
        }
    }
}

#[test]
fn a_job_whose_neighbours_were_merged_says_so() {
    const TEST: &str = "a_job_whose_neighbours_were_merged_says_so";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 8) else {
        return;
    };
    for (extra, flagged) in [
        (&[][..], true),
        (&["--submit-batch=1", "--complete-max=1"], false),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args([
                "run",
                &device.path,
                "--rw=read",
                "--bs=4k",
                "--qd=32",
                "--json",
            ])
            .args(["--bytes=8m", "--out"])
            .arg(dir.path().join("runs"))
            .args(extra)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(
            text.contains("requests-merged"),
            flagged,
            "{extra:?}: {out:?}"
        );
    }
}

#[test]
fn groups_add_up_their_extremes() {
    let jobs = both(
        "groups_add_up_their_extremes",
        &[
            "--name=a",
            "--numjobs=2",
            "--rw=randread",
            "--bs=4k",
            "--size=1m",
            "--rate_iops=1000",
            "--runtime=1",
            "--time_based",
            "--group_reporting",
            "--iopsavgtime=200",
            "--bwavgtime=200",
        ],
    );
    for job in jobs {
        let read = &job[0]["read"];
        for (key, whole) in [
            ("iops_min", 2000.0),
            ("iops_max", 2000.0),
            ("bw_max", 8000.0),
        ] {
            let v = number(&read[key]);
            assert!((whole * 0.75..whole * 1.4).contains(&v), "{key}: {read}");
        }
    }
}

#[test]
fn sizes_are_shared_and_names_of_files_add_up() {
    const TEST: &str = "sizes_are_shared_and_names_of_files_add_up";
    let dir = scratch();
    let script = dir.path().join("job.fio");
    std::fs::write(
        &script,
        "[global]\nfilename=ga\nsize=96k\nname=everywhere\n[one]\nrw=read\n[two]\nfilename=gb\nfilename=gc\nrw=write\n\
         [three]\nname=own\nfilename=ga\nrw=read\n[four]\nfilesize=32k\nsize=48k\nfilename=gd:ge\nrw=read\n\
         [five]\nfilesize=64k\nsize=1m\nfilename=gf\nrw=read\n",
    )
    .unwrap();
    let seen = |jobs: &Value| -> Vec<(String, u64)> {
        jobs.as_array()
            .unwrap()
            .iter()
            .map(|j| {
                let ios = |d: &str| j[d]["total_ios"].as_u64().unwrap();
                (
                    j["jobname"].as_str().unwrap().to_owned(),
                    ios("read") + ios("write"),
                )
            })
            .collect()
    };
    let all = both(TEST, &[script.to_str().unwrap()]);
    assert_eq!(
        seen(&all[0])[..3],
        [("one".into(), 24), ("two".into(), 24), ("own".into(), 24)]
    );
    for theirs in &all[1..] {
        assert_eq!(seen(&all[0]), seen(theirs));
    }
    // Files that are there already share it, too.
    for jobs in both(
        TEST,
        &[
            "--name=a",
            "--filename=x:y",
            "--size=64k",
            "--loops=2",
            "--rw=read",
        ],
    ) {
        assert_eq!(jobs[0]["read"]["total_ios"], 32);
    }
}

#[test]
fn what_is_read_back_has_a_runtime_of_its_own() {
    const TEST: &str = "what_is_read_back_has_a_runtime_of_its_own";
    for jobs in both(
        TEST,
        &[
            "--name=a",
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
    for line in [first, second] {
        let args: Vec<&str> = line.split_whitespace().collect();
        for jobs in both(TEST, &args) {
            assert_eq!(jobs[0]["error"], 0, "{line}");
        }
    }
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

/// How much gzip shortens what a job wrote, as a share.
fn shortened(dir: &Path, file: &str) -> f64 {
    let path = dir.join(file);
    let out = Command::new("gzip").arg("-1c").arg(&path).output().unwrap();
    out.stdout.len() as f64 / std::fs::metadata(&path).unwrap().len() as f64
}

#[test]
fn written_data_compresses_as_it_was_asked_for() {
    const TEST: &str = "written_data_compresses_as_it_was_asked_for";
    for (extra, share) in [
        (&["--refill_buffers"][..], 1.0),
        // fathom's default is fresh data, too, at small blocks and deep queues.
        (&["--ioengine=libaio", "--iodepth=16", "--direct=1"], 1.0),
        (&["--buffer_compress_percentage=50"], 0.51),
        (
            &[
                "--buffer_compress_percentage=50",
                "--buffer_pattern=0xdeadbeef",
            ],
            0.53,
        ),
        (&["--zero_buffers"], 0.005),
        // Duplicates that are further apart than gzip sees: the share alone is asked for.
        (&["--dedupe_percentage=80"], 0.25),
        (&["--verify=crc32c", "--do_verify=0"], 1.0),
        (&["--scramble_buffers=0", "--refill_buffers=0"], 0.02),
    ] {
        let args = [
            &[
                "--name=a",
                "--filename=f",
                "--rw=write",
                "--bs=4k",
                "--size=2m",
                "--iodepth=1",
            ][..],
            extra,
            &["--output-format=json"],
        ]
        .concat();
        // What fio writes by default repeats itself: there fathom differs on purpose.
        let differs = extra.contains(&"--iodepth=16");
        for theirs in [false, true] {
            let dir = scratch();
            let out = match theirs {
                false => Some(fathom(dir.path(), &args)),
                true if differs => continue,
                true => fio(dir.path(), &args),
            };
            let Some(out) = out else {
                skip(TEST);
                continue;
            };
            assert!(out.status.success(), "{extra:?}: {out:?}");
            let found = shortened(dir.path(), "f");
            assert!(
                (found - share).abs() < 0.06,
                "{extra:?}: {found:.3}, fio: {theirs}"
            );
        }
    }
}

#[test]
fn a_working_set_has_so_many_blocks() {
    const TEST: &str = "a_working_set_has_so_many_blocks";
    let args = [
        "--name=a",
        "--filename=f",
        "--rw=write",
        "--bs=4k",
        "--size=4m",
        "--dedupe_percentage=90",
        "--dedupe_mode=working_set",
        "--dedupe_working_set_percentage=5",
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
        assert!(out.status.success(), "{out:?}");
        let data = std::fs::read(dir.path().join("f")).unwrap();
        let blocks: std::collections::HashSet<&[u8]> = data.chunks(4096).collect();
        // One in ten of 1024, those of the set among them.
        assert!((60..150).contains(&blocks.len()), "{}", blocks.len());
    }
}

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
        assert!(at("3;fio-3") < at("\"jobs\"") && at("\"jobs\"") < at("Run status group"));
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

#[test]
fn a_file_of_others_is_written_only_where_the_environment_names_it() {
    let dir = scratch();
    for name in ["named", "other"] {
        std::fs::write(dir.path().join(name), vec![7u8; 65_536]).unwrap();
    }
    std::os::unix::fs::symlink("other", dir.path().join("link")).unwrap();
    let real = dir.path().canonicalize().unwrap();
    let permits = format!("{0}/named:{0}/link", real.display());
    let write = |name: &str| {
        Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(["fio", "--name=a", "--rw=write", "--bs=4k", "--size=64k"])
            .arg(format!("--filename={name}"))
            .env("FATHOM_FIO_WRITE", &permits)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let content = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let out = write("named");
    if String::from_utf8_lossy(&out.stderr).contains("attributes") {
        println!("SKIP a_file_of_others_…: no extended attributes here");
        return;
    }
    assert!(out.status.success(), "{out:?}");
    assert_ne!(content("named"), vec![7u8; 65_536]);
    // It is the user's again: without the variable it is refused as before.
    let again = fathom(
        dir.path(),
        &["--name=a", "--rw=write", "--size=64k", "--filename=named"],
    );
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    // Neither another file nor one behind a link on the list.
    for name in ["other", "link"] {
        let out = write(name);
        assert_eq!(out.status.code(), Some(2), "{name}: {out:?}");
        assert_eq!(content("other"), vec![7u8; 65_536]);
    }
}

#[test]
fn a_device_that_the_environment_names_needs_no_word_on_the_command_line() {
    const TEST: &str = "a_device_that_the_environment_names_needs_no_word_on_the_command_line";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 2) else {
        return;
    };
    for (named, code) in [("/dev/null:/dev/nothing", 2), (device.path.as_str(), 0)] {
        let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(["fio", "--name=a", "--rw=write", "--bs=64k"])
            .arg(format!("--filename={}", device.path))
            .env("FATHOM_FIO_WRITE", named)
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(code), "{named}: {out:?}");
    }
}

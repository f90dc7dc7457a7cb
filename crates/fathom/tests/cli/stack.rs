//! Latency by layer from outside: its contract, what it says without privileges, and that nothing that it
//! switches on or changes is left behind, however it ends.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::machine::{Disk, Loop, Mounted, find, mkfs_ext4, possible, run as tool, turn};
use crate::common::{Place, Said, alone, end, names, send, skip, until, wait};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

fn instances_of(pid: u32) -> Vec<String> {
    let mut all = names(Path::new(INSTANCES));
    all.retain(|n| n.starts_with(&format!("fathom-{pid}-")));
    all
}

/// Whether the kernel may be traced here; says visibly why not.
fn traceable() -> bool {
    let probe = Path::new(INSTANCES).join(format!("fathom-probe-{}", std::process::id()));
    let may = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe));
    if let Err(e) = &may {
        skip(&format!("needs write access to {INSTANCES}: {e}"));
    }
    may.is_ok()
}

fn stack(place: &Place, target: &str, more: &[&str]) -> Said {
    let out = place.runs().display().to_string();
    let mut args = vec!["stack", target, "--out", &out];
    args.extend(more);
    place.fathom(&args)
}

const QUICK: [&str; 7] = ["--size", "32m", "--time", "300ms", "--qd", "1", "--json"];

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_else(|| panic!("{key}: {v}"))
}

fn sum_of_layers(case: &Value) -> f64 {
    let layers = case["layers"].as_array().unwrap();
    layers.iter().map(|l| number(l, "mean_ns")).sum()
}

/// Layers add up to the application's mean within 1 %, and every I/O is accounted for.
#[track_caller]
fn adds_up(case: &Value) {
    let sum = sum_of_layers(case);
    let mean = number(case, "application_mean_ns");
    assert!((sum - mean).abs() < 0.01 * mean, "{sum} of {mean}: {case}");
    assert!(number(case, "residual_ns").abs() < 0.01 * mean);
    assert!(number(case, "coverage") >= 0.999, "{case}");
    assert_eq!(case["lost"], 0);
}

fn layer<'a>(case: &'a Value, part: &str) -> Option<&'a Value> {
    let layers = case["layers"].as_array().unwrap();
    layers
        .iter()
        .find(|l| l["name"].as_str().unwrap().contains(part))
}

/// Starts a long one and waits until it traces.
fn tracing(place: &Place) -> std::process::Child {
    let out = place.runs().display().to_string();
    let child = place.start(&[
        "stack", ".", "--out", &out, "--size", "16m", "--time", "20s", "--qd", "1", "--rw",
        "randread", "--direct", "--engine", "preadv",
    ]);
    // The first pass is without tracing; two seconds or 20,000 I/Os end it.
    // (Instance 0 only asks whether it may.)
    until("it traces", || {
        instances_of(child.id()).iter().any(|n| !n.ends_with("-0"))
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    child
}

fn scheduler(disk: &str) -> String {
    let text = fs::read_to_string(format!("/sys/block/{disk}/queue/scheduler")).unwrap();
    text.split(['[', ']']).nth(1).unwrap().to_owned()
}

/// Where memory answers every job is void, and so is the run: its exit code says so, its layers are still true.
fn by_its_jobs(said: Said) -> Value {
    let run = said.json();
    let void = |j: &Value| {
        let flags = j["flags"].as_array().unwrap();
        flags.iter().any(|f| f["void"] == true)
    };
    let none = run["jobs"].as_array().unwrap().iter().all(void);
    said.expect(i32::from(none)).json()
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn the_json_has_what_scripts_rely_on_and_the_rows_hold_every_io() {
        let _turn = alone();
        if !traceable() {
            return;
        }
        let place = Place::new();
        let mut more = QUICK.to_vec();
        more.extend(["--rw", "randread", "--direct", "--record"]);
        let said = stack(&place, ".", &more).expect(0);
        let run = said.json();
        assert_eq!(run["rung"], "full");
        for key in [
            "untraced_mean_ns",
            "observer_cost_ns",
            "application_mean_ns",
        ] {
            number(&run, key);
        }
        adds_up(&run);
        for l in run["layers"].as_array().unwrap() {
            for key in ["mean_ns", "share"] {
                number(l, key);
            }
            // Ten samples stand beyond a percentile, or it is a hole: a slow disk makes few in this time.
            let ios = number(l, "ios");
            assert_eq!(l["p50_ns"].is_u64(), ios >= 20.0, "{l}");
            assert_eq!(l["p99_ns"].is_u64(), ios >= 1000.0, "{l}");
        }
        let cases = run["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 2, "both engines");
        for case in cases {
            adds_up(case);
            let slowest = case["details"]["slowest"].as_array().unwrap();
            let joined = number(case, "coverage") * number(&case["details"], "submitted");
            assert_eq!(slowest.len(), 10.min(joined.round() as usize));
            for slow in slowest {
                assert!(!slow["meanwhile"].as_array().unwrap().is_empty());
                let of: i64 = slow["layers"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|l| l[1].as_i64().unwrap())
                    .sum();
                let whole = slow["latency_ns"].as_i64().unwrap();
                assert!((of - whole).abs() * 100 <= whole, "{slow}");
            }
            let name = case["name"].as_str().unwrap();
            let rows = place.the_run_dir().join(format!("stack-{name}.parquet"));
            let bytes = fs::read(rows).unwrap();
            assert_eq!(
                (&bytes[..4], &bytes[bytes.len() - 4..]),
                (b"PAR1".as_slice(), b"PAR1".as_slice())
            );
        }
        let dir = place.the_run_dir();
        let report = fs::read_to_string(dir.join("report.html")).unwrap();
        for chart in [
            "stack-layers",
            "stack-distribution-randread-qd1-direct-uring",
        ] {
            assert!(report.contains(chart), "{chart}");
        }
        assert!(dir.join("stack.json").exists());
        assert!(place.names().is_empty(), "{:?}", place.names());
    }

    #[test]
    fn processors_that_are_kept_busy_belong_to_the_conditions_and_are_tested() {
        let _turn = alone();
        let place = Place::new();
        let mut more = QUICK.to_vec();
        more.extend(["--rw", "randread", "--engine", "preadv", "--buffered"]);
        more.extend(["--cpu", "busy", "--record=json"]);
        let said = stack(&place, ".", &more);
        if said.stderr.contains("lowest priority is refused") {
            return skip("SCHED_IDLE is not allowed here");
        }
        let run = said.expect(0).json();
        let case = &run["cases"][0];
        let notes = case["notes"].as_array().unwrap();
        let says = |n: &Value| n.as_str().unwrap().contains("every core kept busy");
        assert!(notes.iter().any(says), "{case}");
        let tested = run["what_if"].as_array().unwrap();
        assert_eq!(tested.len(), 1);
        assert!(says(&tested[0]["variant"]), "{}", tested[0]);
        assert!(tested[0]["gain_ns"]["value"].is_f64(), "{}", tested[0]);
        if run["rung"] == "full" {
            let name = format!("stack-{}.jsonl", case["name"].as_str().unwrap());
            let rows = fs::read_to_string(place.the_run_dir().join(name)).unwrap();
            let first: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
            assert!(first["submitted"].as_u64() < first["completed"].as_u64());
        }
    }

    #[test]
    fn without_privileges_the_reduced_result_is_labelled_and_no_failure() {
        let _turn = alone();
        let place = Place::new();
        let (Some(setpriv), true) = (find("setpriv"), possible(&[])) else {
            return;
        };
        // A directory that anyone may enter, on a disk.
        let dir = tempfile::Builder::new()
            .prefix("fathom-anyone-")
            .tempdir_in("/var/tmp")
            .unwrap();
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
        let copy = dir.path().join("fathom");
        fs::copy(env!("CARGO_BIN_EXE_fathom"), &copy).unwrap();
        let mut command = Command::new(setpriv);
        command
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--bounding-set=-all",
            ])
            .arg(&copy)
            .args([
                "stack", ".", "--rw", "randread", "--direct", "--engine", "preadv",
            ])
            .args(QUICK)
            .current_dir(dir.path());
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let run = wait(command).expect(0).json();
        drop(place);
        assert_eq!(run["rung"], "unprivileged");
        let case = &run["cases"][0];
        let why = case["why"].as_str().unwrap();
        assert!(why.contains("root") || why.contains("mount"), "{why}");
        let layers = case["layers"].as_array().unwrap();
        let sum: f64 = layers.iter().map(|l| number(l, "mean_ns")).sum();
        let mean = number(case, "application_mean_ns");
        assert!((sum - mean).abs() < 1e-3 * mean);
        assert!(case["coverage"].is_null(), "nothing is joined on this rung");
    }

    #[test]
    fn a_signal_leaves_no_trace_instance_and_keeps_what_was_measured() {
        let _turn = alone();
        if !traceable() {
            return;
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let place = Place::new();
            let child = tracing(&place);
            let pid = child.id();
            send(pid, signal);
            end(child).expect(1);
            assert_eq!(instances_of(pid), Vec::<String>::new());
            assert!(place.names().is_empty(), "{:?}", place.names());
            assert!(place.the_run_dir().join("report.html").exists());
        }
    }

    #[test]
    fn the_instance_of_a_killed_run_is_removed_by_the_next() {
        let _turn = alone();
        if !traceable() {
            return;
        }
        let place = Place::new();
        let child = tracing(&place);
        let pid = child.id();
        send(pid, libc::SIGKILL);
        assert_eq!(end(child).code, None);
        assert_eq!(
            instances_of(pid).len(),
            1,
            "a killed process cannot tidy up"
        );
        let next = Place::new();
        let mut more = QUICK.to_vec();
        more.extend(["--rw", "randread", "--direct", "--engine", "preadv"]);
        stack(&next, ".", &more).expect(0);
        assert_eq!(instances_of(pid), Vec::<String>::new());
    }

    #[test]
    fn a_tested_scheduler_is_put_back_at_the_end_on_a_signal_and_after_a_kill() {
        let _turn = alone();
        let _loop = turn();
        if !possible(&[]) || !traceable() {
            return;
        }
        let disk = Disk::new(64);
        disk.write_at(0, &[7; 1 << 20]);
        let device = Loop::of(Path::new(disk.image_str()));
        let name = device.name().to_owned();
        let before = scheduler(&name);
        let place = Place::new();
        let out = place.runs().display().to_string();
        let one = [
            "stack",
            device.str(),
            "--out",
            &out,
            "--rw",
            "randread",
            "--direct",
            "--engine",
            "preadv",
            "--qd",
            "1",
            "--time",
            "100ms",
            "--what-if",
            "--json",
        ];
        let run = by_its_jobs(place.fathom(&one));
        assert_eq!(scheduler(&name), before);
        let tested = run["what_if"].as_array().unwrap();
        let variant = |word: &str| {
            tested
                .iter()
                .find(|w| w["variant"].as_str().unwrap().contains(word))
                .unwrap_or_else(|| panic!("{word}: {tested:?}"))
        };
        for word in ["scheduler", "uring instead of preadv", "idle states"] {
            let w = variant(word);
            if w["why"].is_null() {
                let gain = &w["gain_ns"];
                assert_eq!(gain["samples"], 10, "pairs: {w}");
                assert!(number(gain, "low") <= number(gain, "value"));
                assert!(number(gain, "high") >= number(gain, "value"));
            }
        }
        assert!(
            variant("polled")["why"]
                .as_str()
                .unwrap()
                .contains("poll queues")
        );

        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let mut long = one.to_vec();
            // Passes of 60 ms: long enough to be met, short enough that the turn of this variant comes soon.
            long[12] = "600ms";
            let child = place.start(&long);
            until("another scheduler is tested", || scheduler(&name) != before);
            send(child.id(), signal);
            end(child);
            if signal == libc::SIGKILL && scheduler(&name) != before {
                let mut more = QUICK.to_vec();
                more.extend(["--rw", "randread", "--direct", "--engine", "preadv"]);
                let next = Place::new();
                let run = by_its_jobs(stack(&next, ".", &more));
                let said = run["restored"].to_string();
                assert!(said.contains(&name), "{said}");
            }
            assert_eq!(scheduler(&name), before, "after signal {signal}");
        }
        let left: Vec<String> = names(Path::new("/run"))
            .into_iter()
            .filter(|n| n.starts_with("fathom-setting-"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }

    #[test]
    fn stacks_of_devices_are_joined_or_said_to_be_unsplittable() {
        let _turn = alone();
        let _loop = turn();
        if !possible(&["mkfs.ext4"]) || !traceable() {
            return;
        }
        let disk = Disk::new(256);
        let device = Loop::of(Path::new(disk.image_str()));
        mkfs_ext4(device.str());
        let mut makers = vec![("ext4", None)];
        if find("mkfs.btrfs").is_some()
            && fs::read_to_string("/proc/filesystems")
                .unwrap()
                .contains("btrfs")
        {
            makers.push(("btrfs", Some("mkfs.btrfs")));
        } else {
            skip("needs btrfs");
        }
        for (name, maker) in makers {
            if let Some(program) = maker {
                tool(program, &["-q", "-f", device.str()]);
            }
            let mounted = match Mounted::new(device.str(), disk.beside(name), &[]) {
                Ok(m) => m,
                Err(e) => {
                    skip(&format!("cannot mount {name}: {e}"));
                    continue;
                }
            };
            for rw in ["randread", "randwrite"] {
                let place = Place::new();
                let mut more = QUICK.to_vec();
                more.extend(["--rw", rw, "--direct", "--engine", "preadv"]);
                let path = disk.beside(name).display().to_string();
                let run = by_its_jobs(stack(&place, &path, &more));
                let case = &run["cases"][0];
                adds_up(case);
                assert!(layer(case, "loop driver").is_some(), "{name} {rw}: {case}");
                let d = &case["details"];
                assert!(
                    d["by_device"].as_u64().unwrap() > 0 && d["by_memory"] == 0,
                    "{name} {rw}: {case}"
                );
                assert_eq!(
                    d["interrupt_cpus"].as_array().map(Vec::len),
                    Some(0),
                    "a loop device has none"
                );
                assert_eq!(d["contradicted"], 0);
            }
            drop(mounted);
        }
        // Memory says so.
        let place = Place::new();
        let mut more = QUICK.to_vec();
        more.extend(["--rw", "randread", "--buffered", "--engine", "preadv"]);
        let run = by_its_jobs(stack(&place, "/dev/shm", &more));
        adds_up(&run["cases"][0]);
        assert!(
            layer(&run["cases"][0], "file system in memory").is_some(),
            "{run}"
        );
        // And so does the page cache above a disk.
        let place = Place::new();
        let run = by_its_jobs(stack(&place, ".", &more));
        adds_up(&run["cases"][0]);
        assert!(layer(&run["cases"][0], "page cache").is_some(), "{run}");
    }

    #[test]
    fn zram_is_one_row_because_it_has_no_requests() {
        let _turn = alone();
        let size = Path::new("/sys/block/zram0/disksize");
        if !possible(&["mkfs.ext4"]) || !traceable() {
            return;
        }
        let idle = fs::read_to_string(size).is_ok_and(|t| t.trim() == "0");
        if !idle || fs::write(size, "128M").is_err() {
            skip("needs an unused /dev/zram0");
            return;
        }
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                // Whoever looks at every device (lsblk, another test) holds it for a moment.
                for _ in 0..50 {
                    if fs::write("/sys/block/zram0/reset", "1").is_ok() {
                        return;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
            }
        }
        let _reset = Reset;
        mkfs_ext4("/dev/zram0");
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("m");
        let Ok(mounted) = Mounted::new("/dev/zram0", at.clone(), &[]) else {
            skip("cannot mount a file system on zram");
            return;
        };
        let place = Place::new();
        let mut more = QUICK.to_vec();
        more.extend(["--rw", "randread", "--direct", "--engine", "preadv"]);
        let run = stack(&place, at.to_str().unwrap(), &more).expect(0).json();
        let case = &run["cases"][0];
        adds_up(case);
        assert!(layer(case, "cannot be split").is_some(), "{case}");
        assert!(case["notes"].to_string().contains("bios alone"), "{case}");
        drop(mounted);
        // As a bare device, io_uring gives each I/O to a worker: joined by its sector.
        let mut more = QUICK.to_vec();
        more.extend(["--rw", "randread", "--direct", "--engine", "uring"]);
        let run = stack(&Place::new(), "/dev/zram0", &more).expect(0).json();
        adds_up(&run["cases"][0]);
        assert_eq!(run["cases"][0]["details"]["by_memory"], 0);
    }

    #[test]
    fn where_tracefs_is_read_only_perf_events_are_used_and_said() {
        let _turn = alone();
        if !possible(&["unshare"]) || !traceable() {
            return;
        }
        let place = Place::new();
        let out = place.runs().display().to_string();
        // As in a container: a mount of its own that cannot be written.
        let script = format!(
            "mount -o remount,ro,bind /sys/kernel/tracing && exec {} stack . --out {out} --rw randread --direct --engine preadv {}",
            env!("CARGO_BIN_EXE_fathom"),
            QUICK.join(" ")
        );
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script])
            .current_dir(&place.dir);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let run = wait(command).expect(0).json();
        let case = &run["cases"][0];
        if run["rung"] == "unprivileged" {
            skip("needs perf_event_open");
            return;
        }
        assert_eq!(run["rung"], "perf-events");
        assert!(
            case["why"].as_str().unwrap().contains("read-only"),
            "{case}"
        );
        // Some kernels leave out perf events around a processor's idle time, so how many I/Os are joined is
        // theirs to say. What is joined adds up and contradicts nothing; what is not is said.
        let d = &case["details"];
        assert_eq!(d["contradicted"], 0, "{case}");
        let (coverage, submitted) = (number(case, "coverage"), number(d, "submitted"));
        assert!(submitted > 0.0 && (0.0..=1.0).contains(&coverage), "{case}");
        let joined = number(d, "by_device") + number(d, "by_memory");
        assert!((coverage - joined / submitted).abs() < 1e-9, "{case}");
        let sum = sum_of_layers(case);
        if joined > 0.0 {
            let mean = number(d, "joined_mean_ns");
            assert!((sum - mean).abs() < 0.01 * mean, "{case}");
        }
        for l in case["layers"].as_array().unwrap() {
            assert!(number(l, "mean_ns") >= 0.0, "{l}");
        }
        let said = case["notes"].to_string();
        assert_eq!(
            coverage < 0.99,
            said.contains("lack a boundary") && said.contains("tracefs"),
            "{case}"
        );
    }

    #[test]
    fn a_process_is_watched_from_the_host_and_put_together_with_a_guest() {
        let _turn = alone();
        if !traceable() {
            return;
        }
        let place = Place::new();
        for engine in ["preadv", "uring"] {
            let child = place.start(&[
                "run", ".", "--rw", "randread", "--size", "32m", "--qd", "4", "--engine", engine,
                "--time", "60s", "--name", "vmm",
            ]);
            // Its file is filled before it reads.
            let reads = format!("/proc/{}/io", child.id());
            until("it reads", || {
                let io = fs::read_to_string(&reads).unwrap_or_default();
                io.lines()
                    .find_map(|l| l.strip_prefix("read_bytes: ")?.parse::<u64>().ok())
                    .is_some_and(|n| n > 1 << 20)
            });
            let watched = Place::new();
            let pid = child.id().to_string();
            let said = stack(
                &watched,
                place.dir.to_str().unwrap(),
                &["--pid", &pid, "--time", "500ms", "--json"],
            );
            send(child.id(), libc::SIGTERM);
            end(child);
            let host = said.expect(0).json();
            let case = &host["cases"][0];
            // Four are under way when the watch begins, and four when it ends.
            let joined = number(&case["details"], "by_device");
            let submitted = number(&case["details"], "submitted");
            assert!(
                submitted - joined <= 8.0 + 0.01 * submitted,
                "{engine}: {case}"
            );
            let mean = number(case, "application_mean_ns");
            assert!((sum_of_layers(case) - mean).abs() < 0.01 * mean, "{case}");
            assert!(number(&case["details"], "device_span_ns") < mean);
            assert!(joined > 0.0);

            // The other side: no guest, but a result of the same form whose device takes as long again.
            let file = watched.the_run_dir().join("stack.json");
            let mut guest: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            guest["cases"][0]["name"] = "randread-qd1-direct-uring".into();
            guest["cases"][0]["application_mean_ns"] = (3.0 * mean).into();
            guest["cases"][0]["details"]["device_span_ns"] = (2.0 * mean).into();
            let other = watched.dir.join("guest.json");
            fs::write(&other, guest.to_string()).unwrap();
            let args = [
                "stack",
                "--combine",
                other.to_str().unwrap(),
                file.to_str().unwrap(),
                "--json",
            ];
            let both = watched.fathom(&args).expect(0).json();
            let rows = both["layers"].as_array().unwrap();
            let names: Vec<&str> = rows.iter().map(|l| l["name"].as_str().unwrap()).collect();
            assert_eq!(
                names,
                [
                    "guest software",
                    "virtualization",
                    "host software",
                    "device"
                ]
            );
            assert!((number(&rows[1], "mean_ns") - mean).abs() < 1.0);
            let wrong = [
                "stack",
                "--combine",
                file.to_str().unwrap(),
                other.to_str().unwrap(),
            ];
            assert!(watched.fathom(&wrong).refusal().contains("guest"));
        }
        let refused = place.fathom(&["stack", ".", "--pid", "4194303"]).refusal();
        assert!(refused.contains("no such process"), "{refused}");
        let nothing = place.fathom(&["stack", "null:"]).refusal();
        assert!(nothing.contains("no kernel"), "{nothing}");
    }
}

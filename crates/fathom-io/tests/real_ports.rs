//! Real ports on real files: io_uring and preadv, direct and buffered, and what goes wrong.

use std::path::Path;

use fathom_io::driver::{PlannedJob, Setting, run_group};
use fathom_io::job::JobSpec;
use fathom_io::{Control, Target, Wanted};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{FlagCode, Nanos};

/// Where direct I/O works: the build directory, not a tmpfs.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn spec(options: &[(&str, &str)]) -> JobSpec {
    let mut spec = JobSpec::default();
    for (name, text) in options {
        spec.set(name, text).unwrap();
    }
    spec
}

fn drive(target: &Target, control: &Control, spec: &JobSpec) -> Job {
    let job = PlannedJob::new(spec.validate(&target.limits()).unwrap());
    let setting = Setting {
        destination: target.destination(),
        control,
        counters: None,
        log: None,
    };
    run_group(&[job], &setting, &mut ()).unwrap().pop().unwrap()
}

fn scratch(dir: &Path, size: &str) -> Target {
    let wanted = Wanted {
        modifies: true,
        size: Some(size.parse().unwrap()),
        ..Wanted::default()
    };
    let target = Target::open(dir.to_str().unwrap(), &wanted).unwrap();
    let fill = spec(&[
        ("rw", "write"),
        ("bs", "1m"),
        ("qd", "4"),
        ("sync", "fdatasync:64"),
    ]);
    let job = drive(&target, &Control::new(), &fill);
    assert!(job.errors.is_empty(), "{:?}", job.errors);
    target
}

#[test]
fn every_engine_path_and_operation_does_what_was_asked() {
    let dir = place();
    let target = scratch(dir.path(), "16m");
    assert_eq!(
        target.unwritten(0, 16 << 20),
        Some(0),
        "the fill leaves no hole"
    );
    for engine in ["uring", "preadv", "libaio", "posixaio"] {
        for path in ["direct", "buffered"] {
            for (rw, sync) in [
                ("read", "none"),
                ("randread", "none"),
                ("randwrite", "none"),
                ("write", "fsync:16"),
                ("randwrite", "fdatasync:16"),
                ("randwrite", "fua"),
                ("randrw", "sync"),
            ] {
                let job = drive(
                    &target,
                    &Control::new(),
                    &spec(&[
                        ("engine", engine),
                        (path, ""),
                        ("rw", rw),
                        ("sync", sync),
                        ("qd", "4"),
                        ("ios", "64"),
                    ]),
                );
                let done: u64 = [&job.read, &job.write]
                    .into_iter()
                    .flatten()
                    .map(|d| d.ios)
                    .sum();
                assert_eq!(done, 64, "{engine} {path} {rw} {sync}: {:?}", job.errors);
                let syncs = job.sync.as_ref().map_or(0, |d| d.ios);
                assert!(syncs == 0 || sync.starts_with('f'), "{sync}");
                assert_eq!(job.engine, engine);
            }
        }
    }
    for call in ["preadv2", "preadv", "pread", "readv", "read"] {
        for sync in ["none", "fua", "sync"] {
            let job = drive(
                &target,
                &Control::new(),
                &spec(&[
                    ("engine", "preadv"),
                    ("call", call),
                    ("rw", "randrw"),
                    ("sync", sync),
                    ("qd", "3"),
                    ("ios", "60"),
                ]),
            );
            let done = job.read.as_ref().unwrap().ios + job.write.as_ref().unwrap().ios;
            assert_eq!(done, 60, "{call} {sync}: {:?}", job.errors);
        }
    }
    let trimmed = drive(
        &target,
        &Control::new(),
        &spec(&[
            ("rw", "trim"),
            ("bs", "1m"),
            ("size", "4m"),
            ("buffered", ""),
        ]),
    );
    assert_eq!(
        trimmed.trim.as_ref().unwrap().bytes,
        4 << 20,
        "{:?}",
        trimmed.errors
    );
    assert_eq!(
        target.unwritten(0, 16 << 20),
        Some(4 << 20),
        "trims punch holes"
    );
    let path = target.path().unwrap().to_owned();
    target.close().unwrap();
    assert!(!path.exists());
}

#[test]
fn written_data_is_incompressible_and_everywhere() {
    let dir = place();
    let target = scratch(dir.path(), "8m");
    let data = std::fs::read(target.path().unwrap()).unwrap();
    let sectors: std::collections::HashSet<&[u8]> = data.chunks(512).collect();
    assert_eq!(sectors.len(), data.len() / 512, "no two sectors are alike");
    let mut counts = [0u64; 256];
    data.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let entropy: f64 = counts
        .iter()
        .map(|n| *n as f64 / data.len() as f64)
        .map(|p| -p * p.log2())
        .sum();
    assert!(entropy > 7.999, "{entropy} bits per byte");
}

#[test]
fn a_file_that_shrank_voids_the_job_like_a_device_that_is_gone() {
    let dir = place();
    let target = scratch(dir.path(), "8m");
    std::fs::File::options()
        .write(true)
        .open(target.path().unwrap())
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    for engine in ["uring", "preadv"] {
        let job = drive(
            &target,
            &Control::new(),
            &spec(&[("engine", engine), ("rw", "read"), ("bs", "64k")]),
        );
        assert_eq!(
            job.read.as_ref().unwrap().bytes,
            4 << 20,
            "what was there is measured"
        );
        assert!(
            job.flags
                .iter()
                .any(|f| f.code == FlagCode::IoErrors && f.void),
            "{:?}",
            job.flags
        );
        assert_eq!(job.errors[0].first_offset, 4 << 20);
        assert!(job.errors[0].message.contains("below the known size"));
    }
}

#[test]
fn an_interruption_ends_a_deep_and_a_sleeping_job_soon_and_keeps_the_numbers() {
    let dir = place();
    let target = scratch(dir.path(), "16m");
    for options in [
        &[("qd", "64"), ("time", "30s")][..],
        &[("engine", "preadv"), ("qd", "8"), ("time", "30s")],
        &[("rate", "5"), ("time", "30s")],
        &[("burst", "4/20s"), ("time", "60s")],
        &[("think", "20s"), ("time", "60s")],
    ] {
        let control = Control::new();
        let stopper = control.clone();
        let t = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            stopper.interrupt();
        });
        let began = fathom_io::clock::monotonic();
        let job = drive(&target, &control, &spec(options));
        let took = fathom_io::clock::monotonic() - began;
        t.join().unwrap();
        assert!(took < Nanos::from_secs(5), "{options:?} took {took}");
        assert!(job.flags.iter().any(|f| f.code == FlagCode::Interrupted));
        assert!(job.read.as_ref().unwrap().ios > 0, "{options:?}");
    }
}

#[test]
fn a_processor_that_is_not_there_is_named() {
    let dir = place();
    let target = scratch(dir.path(), "1m");
    let job = PlannedJob::new(
        spec(&[("cpus", "4000"), ("size", "1m")])
            .validate(&target.limits())
            .unwrap(),
    );
    let control = Control::new();
    let setting = Setting {
        destination: target.destination(),
        control: &control,
        counters: None,
        log: None,
    };
    let e = run_group(&[job], &setting, &mut ())
        .unwrap_err()
        .to_string();
    assert!(e.contains("processor 4000"), "{e}");
}

//! What is full or not allowed: disks under `--out`, standard output, limits of the process, a file that is cut
//! short while it is mapped. Numbers are kept, and every end has its sentence.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::Value;

use crate::common::{Place, Said, beside_others, codes, end, names, skip, wait};

/// A disk of its own with so much room, where runs are kept.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(place: &Place, size: &str) -> Option<Self> {
        let dir = place.dir.join(format!("small-{size}"));
        fs::create_dir(&dir).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "small"])
            .arg(&dir)
            .stderr(Stdio::null())
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            skip("no tmpfs can be mounted here");
            return None;
        }
        Some(Self(dir))
    }

    fn str(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Directory of the only run.
    fn run(&self) -> PathBuf {
        let runs = names(&self.0);
        assert_eq!(runs.len(), 1, "{runs:?}");
        self.0.join(&runs[0])
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_recording_that_fills_its_disk_loses_no_number_and_says_what_is_missing() {
    let _turn = beside_others();
    let place = Place::new();
    for (size, log_kept) in [("300k", false), ("1m", false), ("9m", true)] {
        let Some(disk) = SmallDisk::new(&place, size) else {
            return;
        };
        let record = || {
            for dir in names(&disk.0) {
                fs::remove_dir_all(disk.0.join(dir)).unwrap();
            }
            place.fathom(&[
                "run",
                "null:",
                "--rw",
                "randread",
                "--qd",
                "32",
                "--ios",
                "3000000",
                "--record",
                "--out",
                disk.str(),
                "--json",
            ])
        };
        // On a busy machine the log's writer may lose so many records that the rest fits.
        let fits = |said: &crate::common::Said| {
            said.code == Some(0) && said.stdout.contains("its writer could not keep up")
        };
        let said = (0..8).map(|_| record()).find(|said| !fits(said));
        let said = said
            .expect("a writer that keeps up in one of eight runs")
            .expect(1);
        let run = said.json();
        assert_eq!(run["jobs"][0]["read"]["ios"], 3_000_000, "{size}");
        assert!(codes(&run["flags"]).contains(&"log-lost-records".to_owned()));
        assert!(codes(&run["jobs"][0]["flags"]).contains(&"log-lost-records".to_owned()));
        assert!(
            said.stderr.contains("No space left on device"),
            "{}",
            said.stderr
        );
        let dir = disk.run();
        let kept: Value = serde_json::from_slice(&fs::read(dir.join("run.json")).unwrap()).unwrap();
        assert_eq!(kept["jobs"], run["jobs"]);
        assert_eq!(kept["flags"], run["flags"]);
        let files = names(&dir);
        assert!(
            files.contains(&"series.parquet".to_owned()),
            "{size}: {files:?}"
        );
        assert!(!files.iter().any(|f| f.ends_with(".partial")), "{files:?}");
        assert_eq!(
            files.contains(&"io.parquet".to_owned()),
            log_kept,
            "{size}: {files:?}"
        );
        if log_kept {
            let count = [
                "query",
                dir.to_str().unwrap(),
                "SELECT count(*) AS n FROM io",
                "--json",
            ];
            let rows = place.fathom(&count).expect(0).json();
            let n = rows[0]["n"].as_u64().unwrap();
            assert!(n > 0 && n < 3_000_000, "{n}");
        }
        // The text, too, and the run can be read again.
        place
            .fathom(&["report", dir.to_str().unwrap(), "--json"])
            .expect(0);
    }
}

#[test]
fn a_survey_whose_disk_is_filled_by_others_ends_with_its_numbers() {
    let _turn = beside_others();
    let place = Place::new();
    let Some(disk) = SmallDisk::new(&place, "2m") else {
        return;
    };
    let mut command = place.command(&[
        "survey",
        "sim:optane-900p",
        "--size",
        "1g",
        "--out",
        disk.str(),
        "--json",
    ]);
    command.stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let ballast = disk.0.join("ballast");
    // Not before: a disk that is full when a run begins is refused.
    crate::common::until("the run begins", || {
        let dirs = names(&disk.0);
        dirs.iter()
            .any(|d| disk.0.join(d).join("run.json").exists())
    });
    // As much as there is, again and again.
    let mut file = File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    let said = end(child);
    fs::remove_file(&ballast).unwrap();
    let run = said.json();
    assert!(run["headlines"].as_array().unwrap().len() > 5);
    // Everything may have fitted into what was kept back; else it is said.
    let whole = disk.run().join("report.html").exists()
        && codes(&run["flags"]).iter().all(|c| c != "log-lost-records");
    assert_eq!(said.code, Some(i32::from(!whole)), "{}", said.stderr);
    let kept = fs::read(disk.run().join("run.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(
        kept["headlines"], run["headlines"],
        "run.json has room kept back for it"
    );
}

#[test]
fn a_disk_that_is_full_before_the_run_is_refused_and_nothing_is_left_there() {
    let _turn = beside_others();
    let place = Place::new();
    let Some(disk) = SmallDisk::new(&place, "64k") else {
        return;
    };
    let sentence = place
        .fathom(&[
            "run",
            "null:",
            "--ios",
            "1000",
            "--record",
            "--out",
            disk.str(),
        ])
        .refusal();
    assert!(sentence.contains("--out"), "{sentence}");
    assert_eq!(names(&disk.0), Vec::<String>::new());
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

#[test]
fn a_full_standard_output_is_an_error_whatever_was_printed() {
    let _turn = beside_others();
    let place = Place::new();
    place
        .fathom(&["run", "null:", "--ios", "2000", "--record"])
        .expect(0);
    let run = place.the_run_dir();
    let run = run.to_str().unwrap();
    fs::write(
        place.dir.join("job.fio"),
        "[x]\nioengine=null\nrw=read\nsize=1m\n",
    )
    .unwrap();
    let select = "SELECT * FROM io";
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["devices"],
        &["devices", "--json"],
        &["sim", "list"],
        &["sim", "list", "--json"],
        &["sim", "show", "optane-900p"],
        &["report", run],
        &["report", run, "--json"],
        &["report", run, "--format", "terminal"],
        &["query", run, select],
        &["query", run, select, "--json"],
        &["query", run, select, "--csv"],
        &["query", "--list"],
        &["compare", run, run],
        &["compare", run, run, "--json"],
        &["clean", "."],
        &["run", "null:", "--ios", "1000"],
        &["run", "null:", "--ios", "1000", "--json"],
        &["survey", "null:", "--dry-run"],
        &["fio", "job.fio"],
        &["fio", "job.fio", "--output-format=json"],
        &["fio", "job.fio", "--showcmd"],
        &["fio", "job.fio", "--convert"],
        &["fio", "--version"],
        &["fio", "--help"],
        &["fio", "--cmdhelp"],
    ] {
        let mut command = place.command(args);
        command.stdout(full());
        let said = wait(command);
        // (Two runs that cannot be compared are refused besides.)
        assert!(
            matches!(said.code, Some(1 | 2)),
            "{args:?}: {}",
            said.stderr
        );
        let last = said.stderr.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("fathom: standard output could not be written: No space left"),
            "{args:?}: {}",
            said.stderr
        );
    }
}

#[test]
fn a_reader_that_has_seen_enough_and_a_full_standard_error_are_no_errors() {
    let _turn = beside_others();
    let place = Place::new();
    for args in [
        &["sim", "list"][..],
        &["run", "null:", "--ios", "1000", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(args);
        command.stdout(writer);
        let said = wait(command).expect(0);
        assert_eq!(said.stderr, "", "{args:?}");
        let mut command = place.command(args);
        command.stderr(full());
        wait(command).expect(0);
    }
    let mut command = place.command(&["run", "null:", "--rw", "nonsense"]);
    command.stderr(full());
    wait(command).expect(2);
}

/// Limits one resource of a command.
fn limit(command: &mut Command, resource: Resource, most: u64) {
    let set = move || {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        Ok(setrlimit(resource, limit)?)
    };
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(set) };
}

#[test]
fn a_limit_of_file_sizes_is_a_sentence_and_not_a_signal() {
    let _turn = beside_others();
    let place = Place::new();
    let mut command = place.command(&["run", "null:", "--ios", "2000000", "--record", "--json"]);
    limit(&mut command, Resource::Fsize, 400 << 10);
    let said = wait(command).expect(1);
    assert_eq!(said.json()["jobs"][0]["read"]["ios"], 2_000_000);
    assert!(said.stderr.contains("File too large"), "{}", said.stderr);
    let mut command = place.command(&["run", ".", "--size", "8m", "--ios", "100"]);
    limit(&mut command, Resource::Fsize, 1 << 20);
    let said = wait(command);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("ulimit -f"), "{}", said.stderr);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn too_few_descriptors_are_named_and_never_called_a_lack_of_direct_io() {
    let _turn = beside_others();
    let place = Place::new();
    let mut named = 0;
    for most in 4..24 {
        let mut command = place.command(&["run", ".", "--size", "2m", "--ios", "50"]);
        limit(&mut command, Resource::Nofile, most);
        let said = wait(command);
        assert!(
            !said.stderr.contains("cannot do direct I/O"),
            "{most}: {}",
            said.stderr
        );
        assert!(
            !said.stderr.contains("no direct I/O here"),
            "{most}: {}",
            said.stderr
        );
        assert!(matches!(said.code, Some(0..=2)), "{most}: {}", said.stderr);
        named += u32::from(said.code != Some(0) && said.stderr.contains("ulimit -n"));
        assert!(place.names().is_empty(), "{most}: {:?}", place.names());
    }
    assert!(named > 0, "some limit is too low");
}

#[test]
fn a_missing_proc_is_named_with_the_command_that_mounts_it() {
    let _turn = beside_others();
    let place = Place::new();
    let mut command = Command::new("unshare");
    command
        .args([
            "-m",
            "sh",
            "-c",
            "umount -l /proc && exec \"$0\" run . --size 2m --ios 50",
        ])
        .arg(env!("CARGO_BIN_EXE_fathom"))
        .current_dir(&place.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let said = wait(command);
    if said.code == Some(1) && !said.stderr.contains("fathom") {
        return skip("no mount namespace without /proc can be made here");
    }
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(
        said.stderr.contains("mount -t proc proc /proc"),
        "{}",
        said.stderr
    );
    assert!(place.names().is_empty(), "{:?}", place.names());
}

/// Runs a command as a user without privileges who may have so many threads.
fn with_threads(place: &Place, args: &[&str], most: u64) -> Said {
    let mut command = place.command(args);
    // Nobody else is this user: its threads are the command's.
    command.uid(60_000 + std::process::id() % 5_000).gid(65_534);
    limit(&mut command, Resource::Nproc, most);
    wait(command)
}

#[test]
fn a_key_value_engine_that_gets_no_thread_ends_with_a_sentence() {
    let _turn = beside_others();
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become a user without other threads");
    }
    let place = Place::new();
    for dir in [place.dir.as_path(), place.dir.parent().unwrap()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let args = [
        "kv",
        ".",
        "--buffered",
        "--size",
        "64m",
        "--keys",
        "20000",
        "--time",
        "200ms",
        "--repeats",
        "1",
        "--workload",
        "update",
        "--threads",
        "2",
        "--json",
    ];
    let (mut refused, mut done) = (0, 0);
    for most in [1, 2, 3, 4, 5, 6, 8, 40] {
        let said = with_threads(&place, &args, most);
        if said.stderr.contains("Permission denied") {
            return skip("another user may not enter the test's directory");
        }
        let words = format!("{}{}", said.stdout, said.stderr);
        match said.code {
            Some(0) => done += 1,
            Some(1 | 2) => {
                refused += 1;
                // The last one is what io_uring says where the kernel gets no thread for it.
                let named = [
                    "thread could not be created",
                    "os error 11",
                    "Operation canceled",
                ];
                assert!(named.iter().any(|n| words.contains(n)), "{most}: {words}");
            }
            code => panic!("{most}: {code:?}: {words}"),
        }
        assert!(!said.stderr.contains("panicked"), "{most}: {}", said.stderr);
    }
    assert!(refused > 2 && done > 0, "{refused} refused, {done} done");
}

#[test]
fn a_file_that_is_cut_short_while_it_is_mapped_fails_its_ios_and_nothing_else() {
    let _turn = beside_others();
    let place = Place::new();
    let file = place.dir.join("theirs");
    fs::write(&file, vec![7; 32 << 20]).unwrap();
    let child = place.start(&[
        "run",
        "theirs",
        "--engine",
        "mmap",
        "--buffered",
        "--rw",
        "randread",
        "--time",
        "2s",
        "--on-error",
        "continue",
        "--json",
    ]);
    std::thread::sleep(Duration::from_millis(900));
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let said = end(child).expect(1);
    let run = said.json();
    let read = &run["jobs"][0]["read"];
    assert!(read["errors"].as_u64().unwrap() > 0, "{read}");
    assert!(codes(&run["jobs"][0]["flags"]).contains(&"io-errors".to_owned()));
}

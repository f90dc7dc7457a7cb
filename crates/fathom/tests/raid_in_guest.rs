//! `fathom raid` with md of a guest's kernel, over virtual disks that are held to a speed: data come back without a
//! member and after a rebuild, and throughput follows the models where the disks are the limit.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_labs::guest::{Guest, Supply, Tool};
use fathom_labs::raid::guest::{self as in_guest, Part};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Cell, Run, Table};

/// Members of every array.
const DISKS: usize = 4;
const DISK: Bytes = Bytes::mib(16);
/// Disks that are held to a speed, where throughput is looked at.
const SLOW: Range<usize> = 0..DISKS;
/// Disks that are not, where only data count: filling and reading back the others takes seconds each time.
const FAST: Range<usize> = DISKS..2 * DISKS;
/// The same with one more, of another size: a journal.
const WITH_JOURNAL: Range<usize> = DISKS..2 * DISKS + 1;
/// Bytes per second of each slow disk: so slow that processors are not the limit.
const LIMIT: f64 = (8 << 20) as f64;
/// A guest that boots slower than this runs on a machine that is busy with other things: throughput says nothing there.
const BUSY_SECONDS: f64 = 8.0;
/// Slower than this, and the rest would take minutes.
const TOO_BUSY_SECONDS: f64 = 20.0;

/// What `./test` made ready; `None`, said aloud, where a part is missing.
fn supply(test: &str) -> Option<Supply> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let binary =
        Some(target.join("x86_64-unknown-linux-musl/guest/fathom")).filter(|b| b.is_file());
    let kernel = Some(target.join("guest-kernel")).filter(|k| k.is_dir());
    match Supply::find(kernel.as_deref(), binary.as_deref()) {
        Ok(s) => Some(s),
        Err(e) => {
            println!("SKIP {test}: {e}");
            None
        }
    }
}

fn booted(test: &str, dir: &Path) -> Option<Guest> {
    let mut supply = supply(test)?;
    let parts: Vec<Part> = (0..WITH_JOURNAL.end)
        .map(|i| {
            let path = dir.join(format!("disk{i}"));
            let size = if i < FAST.end {
                DISK
            } else {
                Bytes(DISK.0 * 3 / 2)
            };
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(size.0).unwrap();
            Part {
                path,
                offset: 0,
                size,
                limit: SLOW.contains(&i).then_some(Bytes(LIMIT as u64)),
            }
        })
        .collect();
    // Modules of the device mapper beside those of md.
    match in_guest::boot(&mut supply, &parts, "dm") {
        Ok(g) if g.booted_in.as_secs_f64() < TOO_BUSY_SECONDS => Some(g),
        Ok(g) => {
            println!(
                "SKIP {test}: a guest needed {} to boot, this machine is too busy",
                g.booted_in
            );
            g.off();
            None
        }
        Err(e) if e.to_string().contains("did not answer within") => {
            println!("SKIP {test}: this machine is too busy: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Puts a program of this machine into the guest; `false`, said aloud, where it is not installed.
fn bring(guest: &mut Guest, test: &str, program: &str) -> bool {
    let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .map(|d| Path::new(d).join(program))
        .into_iter()
        .find(|p| p.is_file());
    let Some(found) = found else {
        println!("SKIP {test}: needs the program {program}");
        return false;
    };
    Tool::of(&found).unwrap().bring(guest).unwrap();
    true
}

/// The command line of the lab over these disks.
fn command(disks: Range<usize>, journal: bool, backend: &str, levels: &str) -> Vec<String> {
    let mut all = vec!["raid".to_owned()];
    all.extend(in_guest::arguments(disks, journal));
    let fixed = [
        "--backend",
        backend,
        "--levels",
        levels,
        "--members",
        "4",
        "--only",
        "direct",
        "--bs",
        "64k",
        "--chunk",
        "64k",
        "--small",
        "0",
        "--threads",
        "16",
        "--repeats",
        "1",
        "--no-degraded",
    ];
    all.extend(fixed.map(str::to_owned));
    all
}

fn lab(guest: &mut Guest, mut words: Vec<String>, more: &[&str], out: &Path) -> Run {
    words.extend(more.iter().map(|w| (*w).to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (_, run) = in_guest::run(guest, &words, out).unwrap();
    run
}

fn table<'a>(run: &'a Run, id: &str) -> &'a Table {
    let mut all = run.results.iter().flat_map(|s| &s.tables);
    all.find(|t| t.id == id)
        .unwrap_or_else(|| panic!("{id}: {:?}", run.flags))
}

fn text(cell: &Cell) -> &str {
    match cell {
        Cell::Text(t) => t,
        _ => "",
    }
}

fn value(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(n) => *n,
        Cell::Estimate(e) => e.value,
        _ => f64::NAN,
    }
}

/// Cells of a table's column, by name.
fn column(t: &Table, name: &str) -> usize {
    t.columns.iter().position(|c| c.label == name).unwrap()
}

/// What an array gave under one load.
struct Given {
    load: String,
    /// In multiples of one disk's limit.
    multiple: f64,
    /// What the three expectations say.
    expected: Vec<f64>,
    /// Share of the disks' limits that was used.
    busy: f64,
}

fn given(run: &Run, level: u32) -> Vec<Given> {
    let t = table(run, &format!("raid{level}-table"));
    let moved = table(run, "raid-amplification");
    let title = format!("RAID {level} of {DISKS}");
    // Bytes that disks moved for each byte that was asked for.
    let of = |load: &str| {
        let long = load
            .replace("randread 64k", "random read, 64 KiB")
            .replace("randwrite 64k", "random write, 64 KiB")
            .replace("write 64k", "sequential write, 64 KiB")
            .replace(" stream", ", one stream");
        let row = moved.rows.iter().find(|r| {
            text(&r[0]) == title
                && text(&r[column(moved, "load")]) == long
                && text(&r[column(moved, "state")]) == "whole"
        });
        row.map_or(f64::NAN, |r| {
            value(&r[column(moved, "read per byte")]) + value(&r[column(moved, "written per byte")])
        })
    };
    let line = |r: &Vec<Cell>| {
        let load = text(&r[column(t, "load")]).to_owned();
        let rate = value(&r[column(t, "measured")]);
        let expected = ["paper", "small-write", "full-stripe"].map(|e| value(&r[column(t, e)]));
        Given {
            multiple: rate / LIMIT,
            expected: expected.into(),
            busy: rate * of(&load) / (LIMIT * DISKS as f64),
            load,
        }
    };
    t.rows.iter().map(line).collect()
}

#[test]
fn arrays_in_a_guest_keep_data_and_follow_their_models() {
    const TEST: &str = "arrays_in_a_guest_keep_data_and_follow_their_models";
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(mut guest) = booted(TEST, dir.path()) else {
        return;
    };
    let out = dir.path();
    let boot = guest.booted_in.as_secs_f64();
    let busy = boot > BUSY_SECONDS;
    let levels = if busy { "5" } else { "1,5,6,10" };
    data_come_back(&mut guest, levels, out);
    members_in_use_or_unfit_are_refused(&mut guest, TEST);
    killed_runs_leave_no_array(&mut guest, TEST);
    if busy {
        println!(
            "SKIP {TEST}: throughput was not looked at: a guest needed {boot:.1} s to boot, this machine is busy"
        );
        return guest.off();
    }
    let short = ["--time", "200ms", "--no-rebuild"];
    // The same levels by the device mapper, as LVM has them.
    let more = [&["--rw", "randread"], &short[..]].concat();
    let levels = "0,1,5,10";
    let mapped = lab(&mut guest, command(FAST, false, "dm", levels), &more, out);
    // Writes to a parity array go to a journal first.
    let more = [&["--rw", "randwrite"], &short[..]].concat();
    let journaled = ["md", "dm"].map(|backend| {
        let words = command(WITH_JOURNAL, true, backend, "5");
        (backend, lab(&mut guest, words, &more, out))
    });
    let more = [
        "--rw",
        "randread,randwrite",
        "--time",
        "700ms",
        "--no-rebuild",
    ];
    let run = lab(
        &mut guest,
        command(SLOW, false, "md", "0,1,5,6,10"),
        &more,
        out,
    );
    let more = [
        "--rw",
        "write",
        "--time",
        "700ms",
        "--no-rebuild",
        "--set",
        "stripe_cache_size=4096",
    ];
    let large = lab(&mut guest, command(SLOW, false, "md", "5,6"), &more, out);
    guest.off();
    for (backend, run) in &journaled {
        has_a_journal(backend, run);
    }
    for level in [0, 1, 5, 10] {
        for g in given(&mapped, level) {
            println!("dm, RAID {level}, {}: {:.2} x", g.load, g.multiple);
            assert!(g.multiple > 0.0);
        }
    }
    for (run, level) in [(&run, 0), (&run, 1), (&run, 5), (&run, 6), (&run, 10)]
        .into_iter()
        .chain([(&large, 5), (&large, 6)])
    {
        for g in given(run, level) {
            let near = g
                .expected
                .iter()
                .any(|e| (g.multiple / e - 1.0).abs() <= 0.15);
            println!(
                "RAID {level}, {}: {:.2} x one disk's limit, disks {:.0} % busy, expected {:?}: {near}",
                g.load,
                g.multiple,
                g.busy * 100.0,
                g.expected
            );
            // Where the disks were the limit, a model says how much of it is left. How many whole stripes writes to a
            // parity array make is up to their speed: they lie between the models.
            let limited = (0.92..1.1).contains(&g.busy) && g.load.contains("rand");
            let (low, high) = (
                g.expected.iter().copied().fold(f64::MAX, f64::min),
                g.expected.iter().copied().fold(0.0, f64::max),
            );
            let between =
                (5..10).contains(&level) && (0.85 * low..1.15 * high).contains(&g.multiple);
            assert!(
                near || between || !limited,
                "RAID {level}, {}: {}",
                g.load,
                g.multiple
            );
        }
    }
}

/// The kernel says so, and what is written to data and parity is written to the journal, too.
fn has_a_journal(backend: &str, run: &Run) {
    let settings = table(run, "raid-settings");
    let said: Vec<String> = settings
        .rows
        .iter()
        .map(|r| format!("{} {}", text(&r[2]), text(&r[3])))
        .collect();
    let sign = match backend {
        "md" => said.contains(&"consistency_policy journal".to_owned()),
        // The last word of its status is the journal's health (dm-raid.rst): alive, write-through.
        _ => said
            .iter()
            .any(|s| s.starts_with("status ") && s.ends_with(" A")),
    };
    assert!(sign, "{backend}: {said:?}");
    let moved = table(run, "raid-amplification");
    let written = column(moved, "written per byte");
    for row in &moved.rows {
        let times = value(&row[written]);
        println!("{backend} with a journal, {}: {times:.2}", text(&row[1]));
        assert!(times > 3.0, "{backend}: {row:?}");
    }
}

/// Without a member and after the rebuild, whatever the machine did meanwhile.
fn data_come_back(guest: &mut Guest, levels: &str, out: &Path) {
    let more = ["--rw", "randread,randwrite", "--time", "200ms"];
    let run = lab(guest, command(FAST, false, "md", levels), &more, out);
    let count = levels.split(',').count();
    let checks = table(&run, "raid-checks");
    assert_eq!(checks.rows.len(), 2 * count, "{:?}", checks.rows);
    for row in &checks.rows {
        assert_eq!(text(&row[3]), "the same", "{row:?}");
    }
    let rebuilds = table(&run, "raid-rebuilds");
    assert_eq!(rebuilds.rows.len(), count);
    for row in &rebuilds.rows {
        assert!(value(&row[4]) > 0.0, "it ended: {row:?}");
    }
}

/// Runs the lab where it must be refused; what it said.
fn refused(guest: &mut Guest, words: &[String]) -> String {
    let mut argv = vec!["fathom"];
    argv.extend(words.iter().map(String::as_str));
    let output = guest.exec(&argv, "/tmp/refused").unwrap();
    assert_eq!(output.status, Some(2), "{output:?}");
    output.err
}

fn members_in_use_or_unfit_are_refused(guest: &mut Guest, test: &str) {
    let all = || command(FAST, false, "md", "1");
    let mut small = all();
    small.extend(["--size", "8m"].map(str::to_owned));
    assert!(refused(guest, &small).contains("too small"));
    let mixed = refused(guest, &command(WITH_JOURNAL, false, "md", "1"));
    assert!(mixed.contains("differ in size"), "{mixed}");
    let twice = [all(), vec!["/dev/vde".to_owned()]].concat();
    assert!(refused(guest, &twice).contains("named twice"));
    if !bring(guest, test, "mdadm") {
        return;
    }
    let mdadm = |guest: &mut Guest, words: &[&str]| {
        let argv = [&["/sbin/mdadm"], words].concat();
        let done = guest.exec(&argv, "/tmp").unwrap();
        assert_eq!(done.status, Some(0), "{argv:?}: {done:?}");
        done.out
    };
    let members = ["/dev/vde", "/dev/vdf"];
    let create = [
        "--create",
        "/dev/md0",
        "--level=1",
        "--raid-devices=2",
        "--assume-clean",
        "--run",
    ];
    mdadm(guest, &[&create[..], &members].concat());
    let used = refused(guest, &all());
    assert!(used.contains("/dev/vde") && used.contains("md0"), "{used}");
    let there = mdadm(guest, &["--detail", "/dev/md0"]);
    assert!(
        there.contains("clean") || there.contains("active"),
        "{there}"
    );
    mdadm(guest, &["--stop", "/dev/md0"]);
    let labelled = refused(guest, &all());
    assert!(labelled.contains("/dev/vde"), "{labelled}");
    mdadm(guest, &[&["--zero-superblock"], &members[..]].concat());
}

/// A run that is killed in the middle: its keeper takes apart what it made, and the next run finds its members free.
fn killed_runs_leave_no_array(guest: &mut Guest, test: &str) {
    if !bring(guest, test, "timeout") {
        return;
    }
    // The device mapper's members are in pieces there.
    for (backend, level) in [("md", "5"), ("dm", "10")] {
        let mut words = command(FAST, false, backend, level);
        words.extend(["--rw", "randread", "--time", "60s"].map(str::to_owned));
        let mut argv = vec!["/sbin/timeout", "-s", "KILL", "3", "/init"];
        argv.extend(words.iter().map(String::as_str));
        let killed = guest.exec(&argv, "/tmp/killed").unwrap();
        assert!(matches!(killed.status, None | Some(137)), "{killed:?}");
        let mut said = String::new();
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            let clean = ["fathom", "clean", "/tmp", "--dry-run"];
            said = guest.exec(&clean, "/tmp").unwrap().out;
            said.contains("nothing left behind")
        });
        assert!(gone, "{backend}: {said}");
    }
}

/// Names of what is in a directory.
fn names(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().flatten();
    all.map(|e| e.path()).collect()
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let said = |args: &[&str], path: &str| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args(args)
            .current_dir(dir.path())
            .env("PATH", path)
            .env_remove("FATHOM_GUEST_KERNEL")
            .env_remove("FATHOM_GUEST_BINARY")
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {out:?}");
        assert_eq!(names(dir.path()), Vec::<PathBuf>::new(), "{args:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let path = std::env::var("PATH").unwrap();
    let vm = ["vm", ".", "--size", "64m"];
    assert!(said(&vm, "/nowhere").contains("apt-get install qemu-system-x86"));
    let guest = ["raid", ".", "--backend", "guest", "--size", "32m"];
    assert!(said(&guest, "/nowhere").contains("apt-get install qemu-system-x86"));
    if fathom_labs::guest::qemu::version().is_ok() {
        let kernel = ["vm", ".", "--size", "64m", "--kernel", "/nowhere/vmlinuz"];
        let no_kernel = said(&kernel, &path);
        assert!(no_kernel.contains("linux-image-cloud-amd64"), "{no_kernel}");
    } else {
        println!("SKIP what_cannot_be_done_is_refused_and_leaves_nothing: QEMU is not installed");
    }
    let small = ["raid", ".", "--backend", "btrfs", "--size", "1m"];
    let small = said(&small, &path);
    assert!(
        small.contains("too small") || small.contains("btrfs-progs") || small.contains("modprobe"),
        "{small}"
    );
    let huge = ["vm", ".", "--size", "1000t"];
    let huge = said(&huge, &path);
    assert!(!huge.is_empty());
    let ssh = [
        "vm",
        ".",
        "--size",
        "64m",
        "--ssh",
        "a",
        "--set",
        "cache=none",
    ];
    assert!(said(&ssh, &path).contains("no setting of these machines"));
}

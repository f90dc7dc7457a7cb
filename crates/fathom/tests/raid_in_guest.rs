//! `fathom raid` with md of a guest's kernel, over virtual disks that are held to a speed: data come back without a
//! member and after a rebuild, and throughput follows the models where the disks are the limit.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_labs::raid::guest::{self as in_guest, Part};
use fathom_system::guest::Guest;
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Cell, Run, Table};

#[path = "../../fathom-labs/tests/common/mod.rs"]
mod common;

use common::{bring, skip};

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

fn booted(dir: &Path) -> Option<Guest> {
    let mut supply = common::supply()?;
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
    match in_guest::boot(&mut supply, &parts, "dm", None) {
        Ok(g) if g.booted_in.as_secs_f64() < TOO_BUSY_SECONDS => Some(g),
        Ok(g) => {
            skip(&format!(
                "a guest needed {} to boot, this machine is too busy",
                g.booted_in
            ));
            g.off();
            None
        }
        Err(e) if e.to_string().contains("did not answer within") => {
            skip(&format!("this machine is too busy: {e}"));
            None
        }
        Err(e) => panic!("{e}"),
    }
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

/// The same with another value of an option.
fn with(mut words: Vec<String>, option: &str, value: &str) -> Vec<String> {
    let at = words.iter().position(|w| w == option).unwrap();
    words[at + 1] = value.to_owned();
    words
}

fn lab(guest: &mut Guest, mut words: Vec<String>, more: &[&str], out: &Path) -> Run {
    words.extend(more.iter().map(|w| (*w).to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (_, run) = in_guest::run(guest, &words, out).unwrap();
    run
}

fn table<'a>(run: &'a Run, id: &str) -> &'a Table {
    let mut all = run.sections.iter().flat_map(|s| &s.tables);
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
    /// Bytes that disks moved for each byte that was asked for.
    moved: f64,
    /// Share of the disks' limits that was used.
    busy: f64,
}

fn given(run: &Run, level: u32) -> Vec<Given> {
    let t = table(run, &format!("raid{level}-table"));
    let moved = table(run, "raid-amplification");
    let title = format!("RAID {level} of {DISKS}");
    let of = |load: &str| {
        // `direct randwrite 64k stream`
        let words: Vec<&str> = load.split(' ').collect();
        let order = words[1].replacen("rand", "random ", 1);
        let order = order.replacen("write", "sequential write", usize::from(order == "write"));
        let stream = if words.len() > 3 { ", one stream" } else { "" };
        let long = format!(
            "{} {order}, {}{stream}",
            words[0],
            words[2].replace('k', " KiB")
        );
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
            moved: of(&load),
            busy: rate * of(&load) / (LIMIT * DISKS as f64),
            load,
        }
    };
    t.rows.iter().map(line).collect()
}

#[test]
fn arrays_in_a_guest_keep_data_and_follow_their_models() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(mut guest) = booted(dir.path()) else {
        return;
    };
    let out = dir.path();
    let boot = guest.booted_in.as_secs_f64();
    let busy = boot > BUSY_SECONDS;
    let levels = if busy { "5" } else { "1,5,6,10" };
    data_come_back(&mut guest, levels, out);
    members_in_use_or_unfit_are_refused(&mut guest);
    killed_runs_leave_no_array(&mut guest);
    if busy {
        skip(&format!(
            "throughput was not looked at: a guest needed {boot:.1} s to boot, this machine is busy"
        ));
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
        "2500ms",
        "--no-rebuild",
        "--set",
        "stripe_cache_size=4096",
    ];
    // Two whole stripes of RAID 5, three of RAID 6: how many are whole is not up to the speed of the machine. Few at a
    // time, so that what is under way at either end is little.
    let words = with(command(SLOW, false, "md", "5,6"), "--bs", "384k");
    let large = lab(&mut guest, with(words, "--threads", "4"), &more, out);
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
    for level in [5, 6] {
        large_writes_are_whole_stripes(level, &given(&large, level));
    }
    for level in [0, 1, 5, 6, 10] {
        for g in given(&run, level) {
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
            // Where the disks were the limit, a model says how much of it is left.
            let limited = (0.92..1.1).contains(&g.busy);
            assert!(near || !limited, "RAID {level}, {}: {}", g.load, g.multiple);
        }
    }
}

/// Throughput goes toward N-1 and N-2, far above what small writes get: parity is written once for a stripe, and nothing
/// is read.
fn large_writes_are_whole_stripes(level: u32, all: &[Given]) {
    assert_eq!(all.len(), 2, "threads, and one stream");
    for g in all {
        let said = format!(
            "RAID {level}, {}: {:.2} x one disk's limit, disks {:.0} % busy, {:.2} bytes moved for each, expected {:?}",
            g.load,
            g.multiple,
            g.busy * 100.0,
            g.moved,
            g.expected
        );
        println!("{said}");
        let (small, full) = (g.expected[1], g.expected[2]);
        // A whole stripe moves N/full bytes for each, a small write N/small. However fast the machine is:
        let [whole, single] = [full, small].map(|e| DISKS as f64 / e);
        assert!(
            g.moved > 0.98 * whole && g.moved < (whole + single) / 2.0,
            "{said}"
        );
        // Where the disks were the limit, by the guest's clock.
        if (0.9..1.15).contains(&g.busy) {
            let toward = (small + full) / 2.0..1.15 * full;
            assert!(toward.contains(&g.multiple), "{said}");
        } else {
            skip(&format!("the disks were not the limit: {said}"));
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

fn members_in_use_or_unfit_are_refused(guest: &mut Guest) {
    let all = || command(FAST, false, "md", "1");
    let mut small = all();
    small.extend(["--size", "8m"].map(str::to_owned));
    assert!(refused(guest, &small).contains("too small"));
    let mixed = refused(guest, &command(WITH_JOURNAL, false, "md", "1"));
    assert!(mixed.contains("differ in size"), "{mixed}");
    let twice = [all(), vec!["/dev/vde".to_owned()]].concat();
    assert!(refused(guest, &twice).contains("named twice"));
    if !bring(guest, "mdadm") {
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
fn killed_runs_leave_no_array(guest: &mut Guest) {
    if !bring(guest, "timeout") {
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
    if fathom_system::guest::qemu::version().is_ok() {
        let kernel = ["vm", ".", "--size", "64m", "--kernel", "/nowhere/vmlinuz"];
        let no_kernel = said(&kernel, &path);
        assert!(no_kernel.contains("fathom doctor --fetch"), "{no_kernel}");
    } else {
        skip("QEMU is not installed");
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

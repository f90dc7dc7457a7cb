//! `fathom raid` with md of a guest's kernel, over virtual disks that are held to a speed: data come back without a
//! member and after a rebuild, and throughput follows the models where the disks are the limit.

use std::path::{Path, PathBuf};

use fathom_labs::guest::{Guest, Supply};
use fathom_labs::raid::guest::{self as in_guest, Part};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Cell, Run, Table};

const DISKS: usize = 4;
const DISK: Bytes = Bytes::mib(16);
/// Bytes per second of each disk: so slow that processors are not the limit.
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
    let parts: Vec<Part> = (0..DISKS)
        .map(|i| {
            let path = dir.join(format!("disk{i}"));
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(DISK.0).unwrap();
            Part {
                path,
                offset: 0,
                size: DISK,
            }
        })
        .collect();
    // Modules of the device mapper beside those of md.
    match in_guest::boot(&mut supply, &parts, Some(Bytes(LIMIT as u64)), "dm") {
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

fn lab(guest: &mut Guest, backend: &str, levels: &str, more: &[&str], out: &Path) -> Run {
    let mut all = vec!["raid".to_owned()];
    all.extend(in_guest::arguments(DISKS));
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
    all.extend(fixed.iter().chain(more).map(|w| (*w).to_owned()));
    let words: Vec<&str> = all.iter().map(String::as_str).collect();
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
    let boot = guest.booted_in.as_secs_f64();
    let busy = boot > BUSY_SECONDS;
    let (levels, time) = if busy {
        println!(
            "SKIP {TEST}: throughput was not looked at: a guest needed {boot:.1} s to boot, this machine is busy"
        );
        ("5", "200ms")
    } else {
        ("0,1,5,6,10", "700ms")
    };
    let more = ["--rw", "randread,randwrite", "--time", time];
    let run = lab(&mut guest, "md", levels, &more, dir.path());
    // What was read back, without a member and after the rebuild, whatever the machine did meanwhile.
    let checks = table(&run, "raid-checks");
    let redundant = levels.split(',').filter(|l| *l != "0").count();
    assert_eq!(checks.rows.len(), 2 * redundant, "{:?}", checks.rows);
    for row in &checks.rows {
        assert_eq!(text(&row[3]), "the same", "{row:?}");
    }
    let rebuilds = table(&run, "raid-rebuilds");
    assert_eq!(rebuilds.rows.len(), redundant);
    for row in &rebuilds.rows {
        assert!(value(&row[4]) > 0.0, "it ended: {row:?}");
    }
    if busy {
        return guest.off();
    }
    let more = [
        "--rw",
        "write",
        "--time",
        time,
        "--no-rebuild",
        "--set",
        "stripe_cache_size=4096",
    ];
    let large = lab(&mut guest, "md", "5,6", &more, dir.path());
    // The same levels by the device mapper, as LVM has them.
    let more = ["--rw", "randread", "--time", "200ms"];
    let mapped = lab(&mut guest, "dm", "0,1,5", &more, dir.path());
    guest.off();
    for level in [0, 1, 5] {
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

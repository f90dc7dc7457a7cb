//! `fathom vm` on a directory of this machine: images on file systems in guests, and machines that run already.

use std::path::Path;
use std::process::{Command, Output};

use fathom_telemetry::schema::{Cell, Run};

#[path = "../../fathom-labs/tests/common/mod.rs"]
mod common;

fn fathom(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args(args)
        .current_dir(dir)
        .env_remove("FATHOM_GUEST_KERNEL")
        .output()
        .unwrap()
}

fn run_of(output: &Output) -> Run {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(cell: &Cell) -> &str {
    match cell {
        Cell::Text(t) => t,
        _ => "",
    }
}

/// What is left behind beside the run: files, and mounts of this process.
fn left(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().flatten();
    let names = files.map(|f| f.file_name().to_string_lossy().into_owned());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let place = dir.display().to_string();
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let loops = devices
        .filter_map(|d| std::fs::read_to_string(d.path().join("loop/backing_file")).ok())
        .filter(|f| f.contains(&place));
    names
        .filter(|n| n != "fathom-runs")
        .chain(loops)
        .chain(
            mounts
                .lines()
                .filter(|m| m.contains(&place))
                .map(str::to_owned),
        )
        .collect()
}

#[test]
fn images_on_file_systems_are_measured_in_guests_beside_the_bare_target() {
    if common::supply().is_none() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut args: Vec<String> = "vm . --size 1240m --vms 1 --fs ext4,xfs,btrfs --qd 4 --threads 1 --no-curve --no-floor --no-layers --time 200ms --repeats 1 --json"
        .split(' ')
        .map(str::to_owned)
        .collect();
    args.extend(common::kernel().map(|p| format!("--kernel={}", p.display())));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = fathom(dir.path(), &args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("has room for") {
        return common::skip(said.trim());
    }
    if said.contains("did not answer within") {
        return common::skip(&format!("this machine is too busy: {said}"));
    }
    let run = run_of(&output);
    assert_eq!(left(dir.path()), Vec::<String>::new());
    if let Some(skipped) = run.sections.iter().find(|s| s.id == "vm-files-skipped") {
        let rows = &skipped.tables[0].rows;
        let missing = [
            "root",
            "loop devices",
            "not installed",
            "this kernel has no",
        ];
        let excused = |r: &Vec<Cell>| missing.iter().any(|m| text(&r[1]).contains(m));
        assert!(rows.iter().all(excused), "{rows:?}");
        return common::skip(text(&rows[0][1]));
    }
    let files = run.sections.iter().find(|s| s.id == "vm-files");
    let files = files.unwrap_or_else(|| panic!("{:?}: {said}", run.flags));
    let rows = &files.tables[0].rows;
    assert_eq!(rows.len(), 4 * 4, "four places, four loads: {rows:?}");
    for on in ["raw", "ext4", "xfs", "btrfs"] {
        let of = |r: &&Vec<Cell>| text(&r[1]) == on;
        let measured = rows.iter().filter(of);
        let all = measured.filter(|r| matches!(&r[3], Cell::Estimate(e) if e.value > 0.0));
        assert_eq!(all.count(), 4, "{on}: {rows:?}");
    }
}

/// A program that starts what it is given stands for ssh, so that the agent of "the machine" runs here.
#[test]
fn machines_that_run_already_are_measured_beside_their_host() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let inside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let there = inside.path().display().to_string();
    let args = "vm . --size 64m --vms 1,2 --ssh A=1,B=2 --ssh-program env --qd 4 --threads 1 --no-curve --time 100ms --repeats 1 --json";
    let mut args: Vec<&str> = args.split(' ').collect();
    args.extend(["--ssh-fathom", env!("CARGO_BIN_EXE_fathom")]);
    args.extend(["--ssh-target", &there]);
    let run = run_of(&fathom(dir.path(), &args));
    for side in ["pe-", "ve-"] {
        let measured = |j: &&fathom_telemetry::schema::Job| {
            j.name.starts_with(side) && [&j.read, &j.write].into_iter().flatten().any(|o| o.ios > 0)
        };
        let jobs = run.jobs.iter().filter(measured);
        assert!(jobs.count() >= 4, "{side}: {:?}", run.flags);
    }
    let ids: Vec<&str> = run.sections.iter().map(|s| s.id.as_str()).collect();
    assert!(
        ids.contains(&"vm") && ids.contains(&"vm-machines"),
        "{ids:?}"
    );
    assert_eq!(left(dir.path()), Vec::<String>::new());
    assert_eq!(left(inside.path()), Vec::<String>::new());
}

//! md in a guest, where the host's kernel has none, or where members are to be held to a speed.
//!
//! The same lab runs in the guest, over disks that are parts of the host's members, each with its own limit; its
//! run directory comes back and is kept as this run's.

use std::ops::Range;
use std::path::{Path, PathBuf};

use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Bytes, Nanos};

use crate::LabError;
use crate::guest::Needs;
use fathom_system::array::lvm;
use fathom_system::guest::{
    Accelerator, Backing, Disk, Guest, Machine, Supply, Tools, emulated_flag,
};

/// Memory of the guest: buffers of many threads, the page cache, and the stripe cache of md.
const MEMORY: Bytes = Bytes::gib(1);

/// A disk of the guest.
#[derive(Debug, Clone)]
pub struct Part {
    /// A file or device of the host.
    pub path: PathBuf,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is.
    pub size: Bytes,
    /// Bytes per second that it is held to.
    pub limit: Option<Bytes>,
}

/// Boots a guest with a disk for each part, for arrays of `backend`: `md`, `dm` or `lvm`; `lab` is what another lab needs there.
///
/// # Errors
/// Where the kernel has no such driver, a program is missing that the backend needs, or the guest does not boot.
pub fn boot(
    supply: &mut Supply,
    parts: &[Part],
    backend: &str,
    lab: Option<&Needs>,
) -> Result<Guest, LabError> {
    let disks = parts
        .iter()
        .map(|p| Disk {
            bytes_per_s: p.limit.map(|l| l.0),
            ..Disk::new(Backing::Part {
                path: p.path.clone(),
                offset: p.offset,
                size: p.size,
            })
        })
        .collect();
    let mut machine = Machine::new(disks);
    machine.memory = MEMORY;
    machine.modules = ["md_mod", "raid0", "raid1", "raid10", "raid456"]
        .map(str::to_owned)
        .into();
    if matches!(backend, "dm" | "lvm") {
        machine
            .modules
            .extend(["dm_mod", "dm_raid"].map(str::to_owned));
    }
    if backend == "lvm" {
        machine.tools = Tools::default().program(&lvm::program()?)?;
    }
    if let Some(needs) = lab {
        needs.give(&mut machine);
        machine.memory = machine.memory.max(needs.memory());
    }
    Ok(supply.boot(&machine)?)
}

/// Names and serials of these disks of the guest, as arguments of `fathom raid` in it. The last may be a journal.
pub fn arguments(disks: Range<usize>, journal: bool) -> Vec<String> {
    let name = |i: usize| format!("/dev/{}", disk_name(i));
    let members = disks.start..disks.end - usize::from(journal);
    let mut all: Vec<String> = members.map(name).collect();
    if journal {
        all.push(format!("--write-journal={}", name(disks.end - 1)));
    }
    for i in disks {
        all.extend(["--destroy".to_owned(), Disk::serial(i)]);
    }
    all
}

/// `vda` to `vdz`, `vdaa`, …
fn disk_name(mut i: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(b'a' + (i % 26) as u8);
        if i < 26 {
            break;
        }
        i = i / 26 - 1;
    }
    letters.reverse();
    format!("vd{}", String::from_utf8_lossy(&letters))
}

/// A run that came back, and where it is kept.
pub type ChildGuard = (RunDir, Run);

/// Runs the lab in the guest; its run directory is brought into `out`.
///
/// # Errors
/// What the guest's fathom said where it made no run.
pub fn run(guest: &mut Guest, arguments: &[&str], out: &Path) -> Result<ChildGuard, LabError> {
    runs(guest, arguments, out).map(|(run, _)| run)
}

/// The same, with the runs of the labs that it started.
///
/// # Errors
/// As [`run`].
pub fn runs(
    guest: &mut Guest,
    arguments: &[&str],
    out: &Path,
) -> Result<(ChildGuard, Vec<ChildGuard>), LabError> {
    let (output, runs) = guest.fathom(arguments, out)?;
    let said = output
        .err
        .lines()
        .last()
        .unwrap_or("it said nothing")
        .trim()
        .to_owned();
    let mut opened = Vec::new();
    for dir in &runs {
        opened.push(RunDir::open(dir).map_err(|e| LabError::Failed(e.to_string()))?);
    }
    // Commands of two words have a hyphen where a space is typed.
    let typed = arguments.join("-");
    let asked = opened
        .iter()
        .position(|(_, run)| typed.starts_with(&format!("{}-", run.command)));
    let Some(asked) = asked else {
        let message = format!("in the guest: {}", said.trim_start_matches("fathom: "));
        return Err(match output.status {
            Some(2) => LabError::Refused(message),
            _ => LabError::Failed(message),
        });
    };
    Ok((opened.remove(asked), opened))
}

/// Makes the guest's run this run: who asked, on what, and what stands against every number.
pub fn adopt(run: &mut Run, supply: &Supply, guest: &Guest, name: &str, command_line: Vec<String>) {
    if let Accelerator::Tcg(why) = &supply.accelerator {
        let flag = emulated_flag(why);
        run.flags.push(flag.clone());
        for flags in run
            .jobs
            .iter_mut()
            .map(|j| &mut j.flags)
            .chain(run.headlines.iter_mut().map(|h| &mut h.flags))
        {
            flags.push(flag.clone());
        }
    }
    run.target.description = format!(
        "{} of a guest (Linux {}, {}, booted in {}) over {name}",
        run.target.description,
        supply.kernel.version,
        supply.qemu,
        Nanos(guest.booted_in.0)
    );
    run.target.name = name.to_owned();
    run.command_line = command_line;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_as_the_kernel_names_them() {
        let names: Vec<String> = [0, 1, 25, 26, 27, 52]
            .iter()
            .map(|i| disk_name(*i))
            .collect();
        assert_eq!(names, ["vda", "vdb", "vdz", "vdaa", "vdab", "vdba"]);
        let all = arguments(0..2, false);
        assert_eq!(
            all,
            [
                "/dev/vda",
                "/dev/vdb",
                "--destroy",
                "fathom-0",
                "--destroy",
                "fathom-1"
            ]
        );
        let journal = arguments(1..4, true);
        assert_eq!(
            journal[..3],
            ["/dev/vdb", "/dev/vdc", "--write-journal=/dev/vdd"]
        );
    }
}

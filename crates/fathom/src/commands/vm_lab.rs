//! `fathom vm --lab`: another lab on the host and in a machine over the same directory, in turns. A machine gets the programs
//! of this one that the lab needs, and a file system on its disk where the lab works in a directory.

use std::path::Path;

use fathom_bench::cost::RunCost;
use fathom_bench::cpu::CpuSetting;
use fathom_io::Control;
use fathom_labs::LabError;
use fathom_labs::vm::Hypervisor;
use fathom_labs::vm::qemu::{KNOBS, QemuMachines};
use fathom_labs::vm::within::Sides;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use super::announce::Announced;
use super::child;
use super::guests::{supply, without_bytes};
use super::measure::{Measuring, measure};
use super::raid_lab::Words;
use crate::cli::VmArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::signals;

/// Machine, host, host, machine: what drifts is in both, and cancels; what a machine has no room for is known first.
const TURNS: [bool; 4] = [true, false, false, true];

pub(super) fn run(args: &VmArgs, text: &str) -> Outcome {
    let words = words(args, text)?;
    let setup = args.options.setup_of(KNOBS)?;
    let needs = words.needs(args.lab_fs)?;
    let control = signals::control().map_err(refused)?;
    // Its options are held against what it takes before anything is made.
    let one = child::foreseen(&words.on(&args.measure.target), &control)
        .map_err(|said| refused(anyhow::anyhow!("--lab \"{text}\": {said}")))?;
    let supply = match args.measure.dry_run {
        true => None,
        false => Some(supply(&args.guest)?),
    };
    let what = Measuring {
        name: "vm",
        args: &args.measure,
        modifies: true,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    measure(&what, &|_, _| Ok(cost(&one)), |bench, plan, book, sink| {
        let path = bench
            .real()
            .and_then(|r| r.target().path().map(Path::to_owned));
        let (Some(path), Some(supply)) = (path, supply) else {
            return Err(without_bytes(bench));
        };
        let size = plan.limits.size;
        let mut machines = QemuMachines::new(supply, path, size, true, control.clone());
        let mut sides = Sides::default();
        for (i, inside) in TURNS.into_iter().enumerate() {
            if control.interrupted() {
                break;
            }
            let side = if inside { "machine" } else { "host" };
            sink.job(i as u32, TURNS.len() as u32, side);
            let ran = match inside {
                true => {
                    let out = &args.measure.out.out;
                    let typed = |node: &str| words.inside().on_device(node, args.lab_fs);
                    machines.lab(&setup, &needs, &typed, out)
                }
                false => on_host(args, &words, size, &control),
            };
            match ran {
                Ok((dir, run)) => sides.add(inside, run, dir.path()),
                Err(_) if control.interrupted() => break,
                Err(LabError::Refused(why)) if i == 0 => {
                    let why = format!("{why} (the machine's disk has {}: --size)", Bytes(size));
                    return Err(LabError::Refused(why).into());
                }
                Err(e) => book.run_mut().flags.push(Flag::new(
                    FlagCode::NotChecked,
                    format!("the lab on the {side} ended early: {e}"),
                    "the other turns are not concerned",
                )),
            }
        }
        if control.interrupted() {
            book.run_mut().flags.push(Flag::new(
                FlagCode::Interrupted,
                "not all turns were measured",
                "run it again: it begins anew",
            ));
        }
        let about = format!("{}; {}", machines.about(), setup.words());
        let stamps = machines.stamps();
        book.run_mut().flags.extend(sides.flags());
        book.found(&sides.result(&words.typed(), about, stamps))
    })
}

/// Of all turns, where one takes as much.
fn cost(one: &Announced) -> RunCost {
    let n = TURNS.len() as u64;
    let mut cost = RunCost::default();
    cost.phase("the lab on both sides").work(
        TURNS.len() as u32,
        Nanos(one.time_ns * n),
        Bytes(one.written_at_most * n),
    );
    cost
}

/// The lab on the host, over as many bytes as the machine's disk has.
fn on_host(
    args: &VmArgs,
    words: &Words,
    size: u64,
    control: &Control,
) -> Result<(RunDir, Run), LabError> {
    let mut typed = words.on(&args.measure.target);
    if words.is_sized() {
        typed.extend(["--size".to_owned(), size.to_string()]);
    }
    let ran = child::run(&typed, &args.measure.out.out, control);
    ran.map(|(run, dir)| (dir, run)).map_err(LabError::Failed)
}

/// The lab's words, where it can run in a machine over such a target.
fn words(args: &VmArgs, text: &str) -> Result<Words, Failure> {
    let words = Words::of(text)?;
    if !args.reach.hosts.is_empty() {
        return Err(refused(anyhow::anyhow!(
            "--lab with --ssh: run the lab in the machine itself (ssh {} fathom {text}), and hold its run against the host's with fathom compare",
            args.reach.hosts[0]
        )));
    }
    let target = &args.measure.target;
    if !Path::new(target).is_dir() {
        return Err(refused(anyhow::anyhow!(
            "--lab: {target}: expected a directory, where host and machine each get a scratch file"
        )));
    }
    Ok(words)
}

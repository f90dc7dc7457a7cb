//! `fathom vm --lab`: another lab on the host and in a machine over the same directory, in turns. Machines have nothing
//! in them but fathom's own binary, so that only the lab that needs no server runs there.

use std::path::Path;

use clap::{Args, FromArgMatches};
use fathom_bench::cost::RunCost;
use fathom_bench::cpu::CpuSetting;
use fathom_io::Control;
use fathom_labs::LabError;
use fathom_labs::vm::Hypervisor;
use fathom_labs::vm::qemu::{KNOBS, QemuMachines};
use fathom_labs::vm::within::Sides;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Flag, FlagCode, Nanos};

use super::child;
use super::guests::{supply, without_bytes};
use super::kv;
use super::measure::{Measuring, measure};
use super::raid_lab::Words;
use crate::cli::{KvArgs, VmArgs};
use crate::exit::{Failure, Outcome, refused};
use crate::{signals, usage};

/// Host, machine, machine, host: what drifts is in both, and cancels.
const TURNS: [bool; 4] = [false, true, true, false];

pub(super) fn run(args: &VmArgs, text: &str) -> Outcome {
    let words = words(args, text)?;
    let setup = args.options.setup_of(KNOBS)?;
    let supply = match args.measure.dry_run {
        true => None,
        false => Some(supply(&args.guest)?),
    };
    let control = signals::control().map_err(refused)?;
    let lab = parsed(&words, &args.measure.target, text)?;
    let what = Measuring {
        name: "vm",
        args: &args.measure,
        modifies: true,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    let cost = |plan: &_, fills| {
        let one = kv::run_cost(&lab, plan, fills)?;
        let n = TURNS.len() as u64;
        let mut cost = RunCost::default();
        cost.phase("the lab on both sides").work(
            TURNS.len() as u32,
            Nanos(one.time().0 * n),
            fathom_telemetry::Bytes(one.written_at_most().0 * n),
        );
        Ok(cost)
    };
    measure(&what, &cost, |bench, plan, book, sink| {
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
                    machines.lab(&setup, &words.name(), words.options(), out)
                }
                false => on_host(args, &words, size, &control),
            };
            match ran {
                Ok((dir, run)) => sides.add(inside, run, dir.path()),
                Err(_) if control.interrupted() => break,
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

/// The lab's options, held against what it takes before anything is made.
fn parsed(words: &Words, target: &str, text: &str) -> Result<KvArgs, Failure> {
    let said = |e: clap::Error| {
        let said = usage::sentence(&e, Some("kv")).unwrap_or_else(|| e.to_string());
        refused(anyhow::anyhow!("--lab \"{text}\": {said}"))
    };
    let kv = KvArgs::augment_args(clap::Command::new("kv"));
    let matches = kv.try_get_matches_from(words.on(target)).map_err(said)?;
    KvArgs::from_arg_matches(&matches).map_err(said)
}

/// The lab on the host, over as many bytes as the machine's disk has.
fn on_host(
    args: &VmArgs,
    words: &Words,
    size: u64,
    control: &Control,
) -> Result<(RunDir, Run), LabError> {
    let mut typed = words.on(&args.measure.target);
    if !words.options().iter().any(|w| w.starts_with("--size")) {
        typed.extend(["--size".to_owned(), size.to_string()]);
    }
    let ran = child::run(&typed, &args.measure.out.out, control);
    ran.map(|(run, dir)| (dir, run)).map_err(LabError::Failed)
}

/// The lab's words, where it can run in a machine over such a target.
fn words(args: &VmArgs, text: &str) -> Result<Words, Failure> {
    let words = Words::of(text)?;
    if !words.takes_devices() {
        return Err(unfit(text));
    }
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

fn unfit(text: &str) -> Failure {
    refused(anyhow::anyhow!(
        "--lab \"{text}\": a machine has nothing but fathom's own binary in it: expected kv with its options; databases are measured in a machine of your own, by its fathom"
    ))
}

//! `fathom vm`: what a hypervisor costs on a target.

use fathom_bench::cpu::CpuSetting;
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_labs::vm::qemu::{KNOBS, QemuMachines};
use fathom_labs::vm::{self, Hypervisor, Knob, Reach, Setup, SimMachines, SshMachines, VmOptions};
use fathom_sim::SimTarget;

use super::guests::{supply, without_bytes};
use super::measure::{Measuring, measure, shortened};
use crate::cli::VmArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::signals;

pub(crate) fn vm(args: &VmArgs) -> Outcome {
    if let Some(lab) = &args.lab {
        return super::vm_lab::run(args, lab);
    }
    let target = &args.measure.target;
    let simulated = SimTarget::is_simulated(target);
    if matches!(target.as_str(), "null" | "null:") {
        return Err(refused(anyhow::anyhow!(
            "{target}: a machine needs bytes for its disk: name a directory, a file, a block device or sim:MODEL"
        )));
    }
    if simulated {
        let mut machines = SimMachines::new(target, signals::control().map_err(refused)?)?;
        let options = options(args, machines.knobs(), args.qd)?;
        return run(args, &options, |bench, plan, book, sink| {
            vm::run(bench, &mut machines, plan, &options, book, sink)
        });
    }
    if !args.reach.ssh.is_empty() {
        return by_ssh(args);
    }
    let options = options(args, KNOBS, 4)?;
    // What guests are made of is asked for before anything is made or opened.
    let supply = if args.measure.dry_run {
        None
    } else {
        Some(supply(&args.guest)?)
    };
    let control = signals::control().map_err(refused)?;
    run(args, &options, |bench, plan, book, sink| {
        let (Some(supply), Some(real)) = (supply, bench.real()) else {
            return Ok(());
        };
        let path = real.target().path().map(std::path::Path::to_owned);
        let Some(path) = path else {
            return Err(without_bytes(bench));
        };
        let mut machines =
            QemuMachines::new(supply, path, plan.limits.size, options.writes, control);
        vm::run(bench, &mut machines, plan, &options, book, sink)
    })
}

/// Machines that run already.
fn by_ssh(args: &VmArgs) -> Outcome {
    let reach = Reach {
        program: args
            .reach
            .ssh_program
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        hosts: args.reach.ssh.clone(),
        fathom: args.reach.ssh_fathom.clone(),
        target: args.reach.ssh_target.clone(),
        destroy: args.reach.ssh_destroy.clone(),
    };
    reach.check()?;
    let mut options = options(args, &[], 4)?;
    options
        .machines
        .retain(|n| *n as usize <= reach.hosts.len());
    let control = signals::control().map_err(refused)?;
    run(args, &options, |bench, plan, book, sink| {
        let size = vm::part(plan, &options);
        let mut machines = SshMachines::new(reach, size, options.writes, control);
        vm::run(bench, &mut machines, plan, &options, book, sink)
    })
}

fn run(
    args: &VmArgs,
    options: &VmOptions,
    experiment: impl FnOnce(
        &mut dyn Bench,
        &Plan,
        &mut Notebook,
        &mut dyn ProgressSink,
    ) -> Result<(), NotebookError>,
) -> Outcome {
    let what = Measuring {
        name: "vm",
        args: &args.measure,
        modifies: options.writes,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    let shorter = |plan: &Plan| Plan {
        profile: match args.measure.length.ramp {
            None => shortened(plan.profile, args.measure.length.time, None),
            Some(_) => plan.profile,
        },
        ..plan.clone()
    };
    let target = args.measure.target.as_str();
    let model = SimTarget::is_simulated(target).then_some(target);
    measure(
        &what,
        &|plan, fills| Ok(vm::run_cost(&shorter(plan), options, fills, model)),
        |bench, plan, book, sink| experiment(bench, &shorter(plan), book, sink),
    )
}

fn options(args: &VmArgs, knobs: &[Knob], threads: u32) -> Result<VmOptions, Failure> {
    let tries: Result<Vec<Setup>, _> = args.tries.iter().map(|t| Setup::parse(t, knobs)).collect();
    let defaults = VmOptions::default();
    Ok(VmOptions {
        setup: Setup::parse(&args.set, knobs)?,
        tries: tries?,
        machines: args.vms.0.clone(),
        depth: args.qd,
        threads: args.threads.unwrap_or(threads),
        curve: if args.no_curve {
            Vec::new()
        } else {
            defaults.curve
        },
        writes: !args.no_writes,
        floor: !args.no_floor,
        layers: !args.no_layers,
        files: args.fs.clone(),
        blocks: args.blocks,
        seed: args.measure.seed,
    })
}

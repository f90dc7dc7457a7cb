//! `fathom vm`: what a hypervisor costs on a target.

use fathom_bench::cpu::CpuSetting;
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_labs::vm::qemu::{KNOBS, QemuMachines};
use fathom_labs::vm::{self, Hypervisor, SimMachines, SshMachines, VmOptions};
use fathom_sim::SimTarget;

use super::guests::{supply, without_bytes};
use super::measure::{Measuring, measure, shortened};
use crate::cli::VmArgs;
use crate::exit::{Outcome, refused};
use crate::signals;

pub(crate) fn vm(args: &VmArgs) -> Outcome {
    if let Some(lab) = &args.lab {
        return super::vm_lab::run(args, lab);
    }
    let target = &args.measure.target;
    let seed = args.measure.seed;
    let simulated = SimTarget::is_simulated(target);
    if matches!(target.as_str(), "null" | "null:") {
        return Err(refused(anyhow::anyhow!(
            "{target}: a machine needs bytes for its disk: name a directory, a file, a block device or sim:MODEL"
        )));
    }
    if simulated {
        let mut machines = SimMachines::new(target, signals::control().map_err(refused)?)?;
        let options = args
            .options
            .of(machines.knobs(), args.options.depth, seed)?;
        return run(args, &options, |bench, plan, book, sink| {
            vm::run(bench, &mut machines, plan, &options, book, sink)
        });
    }
    if !args.reach.hosts.is_empty() {
        return by_ssh(args);
    }
    let options = args.options.of(KNOBS, 4, seed)?;
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
    let reach = args.reach.clone();
    reach.check()?;
    let mut options = args.options.of(&[], 4, args.measure.seed)?;
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

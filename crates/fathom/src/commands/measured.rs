//! Commands that are nothing but an experiment: its own options beside those that every measuring command has.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use fathom_bench::Measurement;
use fathom_bench::cpu::CpuBench;
use fathom_bench::measurement::Typed;
use fathom_experiments::workload::WorkloadResult;
use fathom_sim::SimTarget;
use fathom_telemetry::Bytes;

use super::measure::{Measuring, checked};
use super::open::{directory, mention_leftovers};
use super::watch::read_profile;
use crate::cli::{CpuArgs, MeasureArgs, WorkloadArgs};
use crate::exit::{Failure, Outcome, refused};
use crate::job_args::preset;

/// Arguments of the command of an experiment.
pub(crate) struct Measured<M> {
    measure: MeasureArgs,
    cpu: CpuArgs,
    workload: WorkloadArgs,
    options: M,
}

impl<M: Measurement> Args for Measured<M> {
    fn augment_args(mut command: Command) -> Command {
        command = MeasureArgs::augment_args(command);
        if M::KEEPS_CPU {
            command = CpuArgs::augment_args(command);
        }
        if M::WEIGHTED {
            command = WorkloadArgs::augment_args(command);
        }
        command = M::augment_args(command);
        let has = |name: &str| command.get_arguments().any(|a| a.get_id() == name);
        match has("rw") && has("bs") && !has("preset") {
            true => command.arg(preset()),
            false => command,
        }
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<M: Measurement> FromArgMatches for Measured<M> {
    fn from_arg_matches(m: &ArgMatches) -> Result<Self, Error> {
        Ok(Self {
            measure: MeasureArgs::from_arg_matches(m)?,
            cpu: match M::KEEPS_CPU {
                true => CpuArgs::from_arg_matches(m)?,
                false => CpuArgs::default(),
            },
            workload: match M::WEIGHTED {
                true => WorkloadArgs::from_arg_matches(m)?,
                false => WorkloadArgs::default(),
            },
            options: M::from_arg_matches(m)?,
        })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The scratch file by which hosts find each other's directory.
const BEACON: Bytes = Bytes::mib(1);

/// Arguments of what works on files: refused where there can be none.
fn on_files(name: &str, args: &MeasureArgs, least: u32) -> Result<MeasureArgs, Failure> {
    let target = &args.target;
    if SimTarget::is_simulated(target) || target.starts_with("null") {
        return Err(refused(anyhow::anyhow!(
            "{target}: {name} works on files, and a model has no file system: name a directory"
        )));
    }
    if args.size.is_some() {
        return Err(refused(anyhow::anyhow!(
            "--size: {name} makes many files, not one of a size: leave it out"
        )));
    }
    if args.hosts.count()? < least {
        return Err(refused(anyhow::anyhow!(
            "--hosts: {name} is what one host sees of another's work: name at least {least}"
        )));
    }
    if !args.hosts.any() {
        directory(target, "is no directory: make a file system")?;
        mention_leftovers(target);
    }
    Ok(MeasureArgs {
        size: Some(BEACON),
        hosts: args.hosts.on_files()?,
        ..args.clone()
    })
}

/// What was typed beside the options of an experiment.
pub(super) fn typed(args: &MeasureArgs) -> Typed {
    // A file system is made on the device first: what is measured sees a directory.
    let target = match args.mkfs.kind {
        Some(_) => std::env::temp_dir().display().to_string(),
        None => args.target.clone(),
    };
    Typed {
        target,
        size: args.size,
        time: args.length.time,
        ramp: args.length.ramp,
        repeats: args.length.repeats,
        seed: args.seed,
        destroys: args.destroy.is_some() && args.mkfs.kind.is_none(),
    }
}

/// Runs the experiment.
pub(crate) fn run<M: Measurement>(args: &Measured<M>) -> Outcome {
    let refuse = |why: String| refused(anyhow::anyhow!(why));
    let mut measure_args = args.measure.clone();
    if let (Some(otherwise), None) = (M::IN_DIRECTORY, measure_args.mkfs.kind) {
        directory(&measure_args.target, otherwise)?;
    }
    let mut typed = typed(&measure_args);
    let mut options = args.options.clone();
    options.settle(&mut typed).map_err(refuse)?;
    options.check().map_err(refuse)?;
    measure_args.size = typed.size;
    let workload = args.workload.workload.as_deref();
    let workload = workload.map(read_profile).transpose()?;
    if let Some(least) = M::FILES_OF_HOSTS {
        measure_args = on_files(M::NAME, &measure_args, least)?;
    }
    let what = Measuring {
        name: M::NAME,
        args: &measure_args,
        modifies: options.modifies(),
        cpu: args.cpu.setting,
        recording: M::RECORDING,
        on_hosts: M::ON_HOSTS,
        on_zones: M::ON_ZONES,
    };
    checked(
        &what,
        &|plan, fills| Ok(options.run_cost(plan, fills)?),
        |bench| options.fits(bench).map_err(refuse),
        |bench, plan, book, sink, ()| {
            let mut kept = CpuBench::new(bench, what.cpu).only(M::KEEPS_CPU_OF);
            let measured = options.run(&mut kept, plan, book, sink);
            // Also of what ends early.
            workload.map_or(Ok(()), |profile| book.found(&WorkloadResult { profile }))?;
            measured
        },
    )
}

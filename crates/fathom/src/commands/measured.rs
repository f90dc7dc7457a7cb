//! Commands that are nothing but an experiment: its own options beside those that every measuring command has.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use fathom_bench::Measurement;
use fathom_bench::cpu::CpuSetting;
use fathom_experiments::workload::WorkloadResult;

use super::measure::{Measuring, measure};
use super::open::cpu_setting;
use super::watch::read_profile;
use crate::cli::{CpuArgs, MeasureArgs, WorkloadArgs};
use crate::exit::{Outcome, refused};
use crate::job_args::preset;

/// Arguments of the command of an experiment.
pub(crate) struct Measured<M> {
    measure: MeasureArgs,
    cpu: Option<CpuArgs>,
    workload: Option<WorkloadArgs>,
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
            cpu: M::KEEPS_CPU
                .then(|| CpuArgs::from_arg_matches(m))
                .transpose()?,
            workload: M::WEIGHTED
                .then(|| WorkloadArgs::from_arg_matches(m))
                .transpose()?,
            options: M::from_arg_matches(m)?,
        })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs the experiment.
pub(crate) fn run<M: Measurement>(args: &Measured<M>) -> Outcome {
    let options = &args.options;
    options.check().map_err(|e| refused(anyhow::anyhow!(e)))?;
    let workload = args.workload.as_ref().and_then(|w| w.workload.as_deref());
    let workload = workload.map(read_profile).transpose()?;
    let what = Measuring {
        name: M::NAME,
        args: &args.measure,
        modifies: options.modifies(),
        cpu: args
            .cpu
            .as_ref()
            .map_or(Ok(CpuSetting::AsIs), cpu_setting)?,
        recording: M::RECORDING,
        on_hosts: M::ON_HOSTS,
    };
    measure(
        &what,
        &|plan, fills| Ok(options.run_cost(plan, fills)?),
        |bench, plan, book, sink| {
            options.run(bench, plan, book, sink)?;
            workload.map_or(Ok(()), |profile| book.found(&WorkloadResult { profile }))
        },
    )
}

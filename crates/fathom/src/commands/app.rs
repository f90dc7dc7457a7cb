//! `fathom app`: what applications do with a directory.

use std::path::PathBuf;

use clap::Subcommand;
use fathom_bench::cpu::CpuSetting;
use fathom_labs::app::copy::{self, CopyOptions};
use fathom_labs::app::swap::{self, SwapOptions};
use fathom_labs::app::{MAKE_ONE, SCRATCH};
use fathom_telemetry::Nanos;

use super::measure::{Measuring, measure};
use super::measured::{self, Measured};
use super::open::directory;
use crate::cli::{CopyArgs, HostsArgs, LengthArgs, MeasureArgs, SwapLoadArgs};
use crate::exit::{DONE, Outcome, failed, refused};

/// What applications do with a directory.
#[derive(Subcommand)]
pub(crate) enum AppCommand {
    /// Ingest: read, write, copy and handle many files
    Copy(Box<CopyArgs>),
    /// A working set larger than memory, swapping to the target
    Swap(Box<Measured<SwapOptions>>),
}

pub(crate) fn app(command: &AppCommand) -> Outcome {
    match command {
        AppCommand::Copy(args) => copy(args),
        AppCommand::Swap(args) => measured::run(args),
    }
}

fn copy(args: &CopyArgs) -> Outcome {
    let (source, target) = match &args.places[..] {
        [source, target] => (Some(PathBuf::from(source)), target.clone()),
        [target, ..] => (None, target.clone()),
        [] => (None, ".".into()),
    };
    if args.mkfs.kind.is_none() {
        directory(&target, MAKE_ONE)?;
    }
    let options = CopyOptions {
        source,
        seed: args.seed,
        ..args.options.clone()
    };
    if options.bytes.0 < 1 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--bytes: {} are no set of files: expected 1m or more",
            options.bytes
        )));
    }
    let all = MeasureArgs {
        target,
        profile: args.profile.clone(),
        length: LengthArgs {
            repeats: args.repeats,
            ..LengthArgs::default()
        },
        size: Some(SCRATCH),
        dry_run: args.dry_run,
        seed: args.seed,
        destroy: args.destroy.clone(),
        mkfs: args.mkfs,
        hosts: HostsArgs::default(),
        out: args.out.clone(),
    };
    let what = Measuring {
        name: "app-copy",
        args: &all,
        modifies: true,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    measure(
        &what,
        &|plan, _| Ok(copy::run_cost(plan, &options)),
        |bench, plan, book, sink| copy::run(bench, plan, &options, book, sink),
    )
}

/// The process under test of `app swap`.
pub(crate) fn swap_load(args: &SwapLoadArgs) -> Outcome {
    let time = Nanos::from_millis(args.milliseconds);
    swap::load(args.bytes, args.threads, time, args.seed).map_err(failed)?;
    Ok(DONE)
}

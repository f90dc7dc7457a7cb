//! `fathom app`: what applications do with a directory.

use std::path::PathBuf;

use fathom_bench::cpu::CpuSetting;
use fathom_labs::app::copy::{self, CopyOptions};
use fathom_labs::app::swap::{self, SwapOptions};
use fathom_telemetry::{Bytes, Nanos};

use super::measure::{Measuring, measure};
use super::open::directory;
use crate::cli::{
    AppCommand, CopyArgs, HostsArgs, LengthArgs, MeasureArgs, SwapArgs, SwapLoadArgs,
};
use crate::exit::{DONE, Outcome, failed, refused};

/// The target's scratch file is not used here.
const SCRATCH: Bytes = Bytes(1 << 20);

/// Of a target that is something else.
const NO_DIRECTORY: &str = "is no directory: make a file system";

pub(crate) fn app(command: &AppCommand) -> Outcome {
    match command {
        AppCommand::Copy(args) => copy(args),
        AppCommand::Swap(args) => swap(args),
    }
}

fn measuring<'a>(name: &'static str, args: &'a MeasureArgs) -> Measuring<'a> {
    Measuring {
        name,
        args,
        modifies: true,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    }
}

fn copy(args: &CopyArgs) -> Outcome {
    let (source, target) = match &args.places[..] {
        [source, target] => (Some(PathBuf::from(source)), target.clone()),
        [target, ..] => (None, target.clone()),
        [] => (None, ".".into()),
    };
    directory(&target, NO_DIRECTORY)?;
    if args.bytes.0 < 1 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--bytes: {} are no set of files: expected 1m or more",
            args.bytes
        )));
    }
    let options = CopyOptions {
        source,
        bytes: args.bytes,
        threads: args.threads,
        seed: args.seed,
    };
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
        destroy: None,
        hosts: HostsArgs::default(),
        out: args.out.clone(),
    };
    measure(
        &measuring("app-copy", &all),
        &|plan, _| Ok(copy::run_cost(plan, &options)),
        |bench, plan, book, sink| copy::run(bench, plan, &options, book, sink),
    )
}

fn swap(args: &SwapArgs) -> Outcome {
    directory(&args.measure.target, NO_DIRECTORY)?;
    if let Some(share) = args.share.iter().find(|s| !(**s >= 5.0 && **s <= 100.0)) {
        return Err(refused(anyhow::anyhow!(
            "--share: {share} is out of range: expected 5 to 100 percent"
        )));
    }
    if args.bytes.0 < 32 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--bytes: {} are too few: expected 32m or more",
            args.bytes
        )));
    }
    let mut shares = args.share.clone();
    shares.sort_by(|a, b| b.total_cmp(a));
    let options = SwapOptions {
        bytes: args.bytes,
        shares,
        threads: args.threads,
        time: args.measure.length.time,
        seed: args.measure.seed,
    };
    let all = MeasureArgs {
        size: Some(SCRATCH),
        ..args.measure.clone()
    };
    measure(
        &measuring("app-swap", &all),
        &|plan, _| Ok(swap::run_cost(plan, &options)),
        |bench, plan, book, sink| swap::run(bench, plan, &options, book, sink),
    )
}

/// The process under test of `app swap`.
pub(crate) fn swap_load(args: &SwapLoadArgs) -> Outcome {
    let time = Nanos::from_millis(args.milliseconds);
    swap::load(args.bytes, args.threads, time, args.seed).map_err(failed)?;
    Ok(DONE)
}

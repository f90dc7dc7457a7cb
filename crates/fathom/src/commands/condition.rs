//! `fathom condition`: brings a device into a known state, in pieces that can be resumed.

use fathom_bench::cost::RunCost;
use fathom_experiments::condition::{self, ConditionOptions};
use fathom_sim::SimTarget;
use fathom_telemetry::Bytes;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;

use super::announce::Foreseen;
use super::finish::{self, meta};
use super::open::{Ask, Opened, foresee, open, profile};
use super::purge::{self, Purge};
use super::wear::{agree, endurance};
use crate::cli::ConditionArgs;
use crate::exit::{DONE, Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::signals;

pub(crate) fn condition(args: &ConditionArgs) -> Outcome {
    let profile = profile("full")?;
    let control = signals::control().map_err(refused)?;
    let ask = Ask {
        target: &args.target,
        profile: &profile,
        seed: args.seed,
        size: args.size,
        destroy: args.destroy.as_deref(),
        modifies: true,
        in_order: false,
        hosts: Some(&args.hosts),
    };
    let devices = args.hosts.ranges()?;
    let elsewhere = args.hosts.any();
    let word = if args.no_purge { "none" } else { &args.purge };
    // A drive that is at it takes no I/O, so that is waited for before anything looks at what is on it.
    let waits = (!args.dry_run).then_some(&control);
    let purge = purge::purge(word, (&args.target, elsewhere), args.size, waits)?;
    let options = |range: Bytes| ConditionOptions {
        purge: purge.how.is_some(),
        purging: purge.how.unwrap_or_default(),
        range,
        devices,
        seed: args.seed,
        ..args.options.clone()
    };
    if args.dry_run {
        return dry_run(args, &ask, &purge, options);
    }
    // What a resumed run must agree with is checked before the target is opened for writing, where it is known by then.
    let mut skip = match elsewhere {
        true => 0,
        false => {
            let range = Bytes(foresee(&ask)?.0.size);
            resumed(args, &args.target, &options(range))?
        }
    };
    let Opened {
        mut bench,
        limits,
        direct,
        environment,
        ..
    } = open(&ask, control)?;
    let about = bench.describe();
    stays(&args.target, &about.kind)?;
    let options = options(Bytes(limits.size));
    if elsewhere {
        skip = resumed(args, &about.name, &options)?;
    }
    said(args, &options, &purge, skip, |said| {
        say::text(&said.line());
        Ok(DONE)
    })?;
    let simulated = bench.simulated() || about.kind == "null";
    let written = condition::run_cost(&options)?.written_at_most();
    let written = Bytes(written.0.saturating_mul(devices.into()));
    agree(written, simulated, &args.wear)?;
    let meta = meta("condition", args.seed, &args.out, environment);
    let mut book = finish::notebook(&args.out, meta, &*bench, 0)?;
    let mut line = SurveyLine::new(0, Bytes(0));
    let measured = condition::run(
        &mut *bench,
        direct,
        &options,
        skip,
        purge.settled,
        &mut book,
        &mut line,
    );
    line.clear();
    finish::summarised(book, measured, bench, &args.out)
}

/// Says what would be done to a range of this size.
fn dry_run(
    args: &ConditionArgs,
    ask: &Ask<'_>,
    purge: &Purge,
    options: impl Fn(Bytes) -> ConditionOptions,
) -> Outcome {
    if args.hosts.any() && args.size.is_none() {
        return Err(refused(anyhow::anyhow!(
            "--dry-run: how large {} is on the hosts is known when they are reached: add --size",
            args.target
        )));
    }
    let options = options(Bytes(foresee(ask)?.0.size));
    said(args, &options, purge, 0, |said| said.dry_run(args.out.json))
}

/// Refuses what would not stay as it was conditioned.
fn stays(target: &str, kind: &str) -> Result<(), Failure> {
    match kind {
        "directory" => Err(refused(anyhow::anyhow!(
            "{target}: a scratch file is removed at the end, so nothing would stay conditioned: name a block device with --destroy, a file to be made (--size), or sim:MODEL"
        ))),
        _ => Ok(()),
    }
}

/// Pieces that the run to be resumed has done.
fn resumed(
    args: &ConditionArgs,
    target: &str,
    options: &ConditionOptions,
) -> Result<usize, Failure> {
    let Some(path) = &args.resume else {
        return Ok(0);
    };
    let (_, run) = RunDir::open(path).map_err(refused)?;
    condition::completed(&run, target, options).map_err(|e| refused(anyhow::anyhow!(e)))
}

/// Does something with what is foreseen.
fn said(
    args: &ConditionArgs,
    options: &ConditionOptions,
    purge: &Purge,
    skip: usize,
    act: impl FnOnce(Foreseen<'_>) -> Outcome,
) -> Outcome {
    let cost = condition::run_cost(options)?;
    let what = heading(args, options, purge, &cost, skip);
    act(Foreseen::of(&what, &cost, &args.target).on(args.hosts.count()?))
}

/// What is conditioned, and what it wears.
fn heading(
    args: &ConditionArgs,
    o: &ConditionOptions,
    purge: &Purge,
    cost: &RunCost,
    skip: usize,
) -> String {
    let words = o.load.iter().map(|(name, value)| format!("{name}={value}"));
    let load = match o.load.is_empty() {
        true => String::new(),
        false => format!(
            ", then '{}' until steady",
            words.collect::<Vec<_>>().join(" ")
        ),
    };
    let resumed = match skip {
        0 => String::new(),
        n => format!("; {n} pieces are done already"),
    };
    let worn = match SimTarget::is_simulated(&args.target) {
        true => String::new(),
        false => format!(" ({})", endurance(cost.written_at_most(), &args.wear)),
    };
    let on = match o.devices {
        1 => String::new(),
        n => format!(" on each of {n} hosts"),
    };
    let purged = match skip {
        0 => purge.words(),
        _ => String::new(),
    };
    format!("Conditioning {}{on}{purged}{load}{resumed}{worn}", o.range)
}

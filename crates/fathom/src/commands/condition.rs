//! `fathom condition`: brings a device into a known state, in pieces that can be resumed.

use fathom_bench::cost::RunCost;
use fathom_bench::{Notebook, RunMeta};
use fathom_experiments::condition::{self, ConditionOptions};
use fathom_io::JobSpec;
use fathom_sim::SimTarget;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::announce::Foreseen;
use super::finish::{self, command_line};
use super::open::{Ask, Opened, foresee, open, profile};
use super::purge::{self, Purge};
use super::wear::{agree, endurance};
use crate::cli::ConditionArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::signals;

pub(crate) fn condition(args: &ConditionArgs) -> Outcome {
    let load = load(&args.until_steady)?;
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
        passes: args.passes,
        fill: args.fill,
        overwrite: args.overwrite,
        deletes: args.deletes,
        idle: args.idle.unwrap_or(Nanos::ZERO),
        load: load.clone(),
        round: args.round,
        test: args.test,
        recovery: args.recovery.unwrap_or(Nanos::ZERO),
        range,
        devices,
        seed: args.seed,
    };
    if args.dry_run {
        if elsewhere && args.size.is_none() {
            return Err(refused(anyhow::anyhow!(
                "--dry-run: how large {} is on the hosts is known when they are reached: add --size",
                args.target
            )));
        }
        let options = options(Bytes(foresee(&ask)?.0.size));
        let cost = condition::run_cost(&options)?;
        let what = heading(args, &options, &purge, &cost, 0);
        return Foreseen::of(&what, &cost, &args.target)
            .on(args.hosts.count()?)
            .dry_run();
    }
    let resumed = |target: &str, range: Bytes| match &args.resume {
        Some(path) => {
            let (_, run) = RunDir::open(path).map_err(refused)?;
            condition::completed(&run, target, &options(range))
                .map_err(|e| refused(anyhow::anyhow!(e)))
        }
        None => Ok(0),
    };
    // What a resumed run must agree with is checked before the target is opened for writing, where it is known by then.
    let mut skip = match elsewhere {
        true => 0,
        false => resumed(&args.target, Bytes(foresee(&ask)?.0.size))?,
    };
    let Opened {
        mut bench,
        limits,
        direct,
        environment,
        ..
    } = open(&ask, control)?;
    let about = bench.describe();
    if about.kind == "directory" {
        return Err(refused(anyhow::anyhow!(
            "{}: a scratch file is removed at the end, so nothing would stay conditioned: name a block device with --destroy, a file to be made (--size), or sim:MODEL",
            args.target
        )));
    }
    if elsewhere {
        skip = resumed(&about.name, Bytes(limits.size))?;
    }
    let options = options(Bytes(limits.size));
    let cost = condition::run_cost(&options)?;
    let what = heading(args, &options, &purge, &cost, skip);
    let said = Foreseen::of(&what, &cost, &args.target).on(args.hosts.count()?);
    say::text(&said.line());
    let simulated = bench.simulated() || about.kind == "null";
    let written = Bytes(cost.written_at_most().0.saturating_mul(devices.into()));
    agree(written, simulated, &args.wear)?;
    let meta = RunMeta {
        name: "condition".into(),
        command: "condition".into(),
        command_line: command_line(),
        profile: None,
        seed: args.seed,
        labels: args.out.labels.given(),
        environment,
    };
    let mut book = Notebook::create(&args.out.out, meta, about, bench.simulated(), 0)?;
    let mut line = SurveyLine::new(0, Bytes(0));
    let settled = purge.settled;
    let measured = condition::run(
        &mut *bench,
        direct,
        &options,
        skip,
        settled,
        &mut book,
        &mut line,
    );
    line.clear();
    finish::finish(
        book,
        measured,
        bench,
        &args.out,
        fathom_report::terminal::summary,
    )
}

/// `rw=randwrite bs=4k qd=32` → options, each of them known.
fn load(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut spec = JobSpec::default();
    text.split_whitespace()
        .map(|word| {
            let (name, value) = word
                .trim_start_matches("--")
                .split_once('=')
                .ok_or_else(|| {
                    refused(anyhow::anyhow!(
                        "--until-steady: '{word}' is not possible: expected options such as \"rw=randwrite bs=4k qd=32\""
                    ))
                })?;
            spec.set(name, value)?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// What is conditioned, and what it wears.
fn heading(
    args: &ConditionArgs,
    o: &ConditionOptions,
    purge: &Purge,
    cost: &RunCost,
    skip: usize,
) -> String {
    let load = match o.load.is_empty() {
        true => String::new(),
        false => format!(", then '{}' until steady", args.until_steady),
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

//! `fathom pts`: the tests of the SNIA performance test specification.

use fathom_bench::cost::RunCost;
use fathom_bench::cpu::{CpuBench, CpuSetting};
use fathom_experiments::cpu;
use fathom_experiments::pts::{self, MINUTE, PtsOptions};
use fathom_sim::SimTarget;
use fathom_telemetry::Bytes;
use fathom_telemetry::say;

use super::announce::Foreseen;
use super::finish::{self, meta};
use super::open::{Ask, Opened, check_cpu, foresee, open, plan, profile};
use super::purge::{self, Purge};
use super::wear::{agree, endurance};
use crate::cli::PtsArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::signals;

pub(crate) fn pts(args: &PtsArgs) -> Outcome {
    let setting = args.cpu.setting;
    let (profile, short) = (profile("full")?, profile("quick")?);
    let control = signals::control().map_err(refused)?;
    let ask = Ask {
        target: &args.target,
        profile: &profile,
        seed: args.seed,
        size: args.size,
        destroy: args.destroy.as_deref(),
        modifies: true,
        in_order: false,
        hosts: None,
    };
    let waits = (!args.dry_run).then_some(&control);
    let purge = purge::purge(&args.purge, (&args.target, false), args.size, waits)?;
    let Some(purging) = purge.how else {
        return Err(refused(anyhow::anyhow!(
            "--purge: none is not possible: the specification purges before each test"
        )));
    };
    let options = |range: Bytes| PtsOptions {
        purging,
        range,
        seed: args.seed,
        ..args.options.clone()
    };
    if args.dry_run {
        let (limits, _) = foresee(&ask)?;
        let options = options(Bytes(limits.size));
        let cost = pts::run_cost(&options);
        let what = heading(args, &options, &purge, &cost);
        return Foreseen::of(&what, &cost, &args.target).dry_run(args.out.json);
    }
    let Opened {
        bench,
        limits,
        direct,
        environment,
        ..
    } = open(&ask, control)?;
    let about = bench.describe();
    is_device(&args.target, &about.kind)?;
    check_cpu(setting, &*bench)?;
    let options = options(Bytes(limits.size));
    let simulated = bench.simulated() || about.kind == "null";
    let cost = pts::run_cost(&options);
    let what = heading(args, &options, &purge, &cost);
    say::text(&Foreseen::of(&what, &cost, &args.target).line());
    agree(cost.written_at_most(), simulated, &args.wear)?;
    let mut bench = bench;
    let meta = meta("pts", args.seed, &args.out, environment);
    let mut book = finish::notebook(&args.out, meta, &*bench, 0)?;
    let mut line = SurveyLine::new(0, Bytes(0));
    let mut kept = CpuBench::new(&mut *bench, setting);
    let mut measured = pts::run(&mut kept, direct, &options, &mut book, &mut line);
    if measured.is_ok() && setting != CpuSetting::AsIs {
        // After the tests: only then is something written everywhere.
        let plan = plan(
            &Ask {
                profile: &short,
                ..ask
            },
            limits,
            direct,
            None,
        );
        measured = cpu::compare(&mut *bench, &plan, setting, args.seed, &mut book, &mut line);
    }
    line.clear();
    finish::summarised(book, measured, bench, &args.out)
}

fn is_device(target: &str, kind: &str) -> Result<(), Failure> {
    match kind {
        "block-device" | "simulated" | "null" => Ok(()),
        kind => Err(refused(anyhow::anyhow!(
            "{target}: the specification tests devices, not a {kind}: name a block device with --destroy, or sim:MODEL; for files there is fathom survey"
        ))),
    }
}

/// Which tests, how shortened, and what they wear.
fn heading(args: &PtsArgs, options: &PtsOptions, purge: &Purge, cost: &RunCost) -> String {
    let short = match options.unit == MINUTE {
        true => String::new(),
        false => format!(", a minute shortened to {}", options.unit),
    };
    let worn = match SimTarget::is_simulated(&args.target) {
        true => String::new(),
        false => format!(
            " (measuring ends earlier where it is steady, and writes as a device of 1 GB/s; {})",
            endurance(cost.written_at_most(), &args.wear)
        ),
    };
    let purged = purge.words().replace("after a purge", "each after a purge");
    format!("PTS {}{purged}{short}{worn}", options.tests.join(", "))
}

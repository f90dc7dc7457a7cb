//! `fathom stack`: latency by layer.

use std::path::Path;

use fathom_bench::cpu::CpuSetting;
use fathom_bench::{Bench, Notebook, RealBench, SimBench};
use fathom_experiments::stack::{self, Choice, Rung, StackOptions, StackPlan, StackReport};
use fathom_host::{TargetKind, probe_target};
use fathom_io::driver::Progress;
use fathom_io::job::Engine;
use fathom_io::{Observer, Target, TargetError, Wanted};
use fathom_sim::SimTarget;
use fathom_stack::rows::{self, Form};
use fathom_telemetry::say;
use fathom_telemetry::{Flag, FlagCode};

use super::announce::Foreseen;
use super::finish::{capsule, meta, notebook};
use super::open::{check_cpu, foresee_jobs};
use super::stack_sides::{self, end};
use crate::cli::StackArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};
use crate::{progress, signals};

pub(crate) fn stack(args: &StackArgs) -> Outcome {
    if let [guest, host] = &args.combine[..] {
        return stack_sides::combine(guest, host, args.out.json);
    }
    if let Some(pid) = args.pid {
        return stack_sides::of_process(pid, args);
    }
    let setting = args.cpu.setting;
    if SimTarget::is_simulated(&args.target) {
        return on_model(args, setting);
    }
    let control = signals::control().map_err(refused)?;
    if args.target == "null:" {
        return Err(refused(anyhow::anyhow!(
            "{}: there is no kernel below it to split latency in; name a directory, a file, a block device or sim:MODEL",
            args.target
        )));
    }
    let mut choice = choice(args);
    let mut skipped = Vec::new();
    spare_others(args, &mut choice, &mut skipped);
    if args.dry_run {
        return dry_run(args, choice, setting);
    }
    let target = opened(args, &mut choice, &mut skipped)?;
    choice.options.size.0 = choice.options.size.0.min(target.limits().size);
    let plan = StackPlan {
        cases: choice.cases()?,
        rung: args.options.rung,
        rows: args.record.is_some(),
        cpu: setting,
    };
    let meta = meta("stack", args.seed, &args.out, capsule(target.path()));
    let mut bench = RealBench::new(target, control);
    fill(&mut bench)?;
    let mut book = notebook(&args.out, meta, &bench, 0)?;
    let mut line = progress::Line::new(0);
    let mut watch = |name: &str, p: &Progress| {
        line.name(name);
        line.show(p);
    };
    let mut result = stack::run(&mut bench, &plan, &mut book, &mut watch);
    if let Ok(report) = &mut result {
        report.skipped.extend(skipped);
        if let (Some(spec), Some(first)) = (plan.cases.first(), report.cases.first()) {
            let details = first.details.as_ref();
            let (bench, book) = (&mut bench, &mut book);
            let tested = if args.options.what_if {
                stack::what_if(bench, setting, spec, details, book, &mut watch)
            } else if setting != CpuSetting::AsIs {
                stack::what_if_cpu(bench, setting, spec, book, &mut watch)
            } else {
                Ok(Vec::new())
            };
            match tested {
                Ok(tested) => report.what_if = tested,
                Err(e) => say!("fathom: the variants could not be tested: {e}"),
            }
        }
    }
    line.clear();
    let interrupted = bench.interrupted();
    if interrupted {
        book.run_mut().flags.push(cut_short());
    }
    let closed = Box::new(bench).close();
    let report = result?;
    closed?;
    write_rows(args, &report, &book);
    let timed = report.cases.iter().any(|c| c.application_mean_ns.is_some());
    let code = match timed && !interrupted {
        true => DONE,
        false => FAILED,
    };
    end(book, args, code, &report)
}

/// Files and devices of others are read only, unless their destruction was asked for.
fn spare_others(args: &StackArgs, choice: &mut Choice, skipped: &mut Vec<String>) {
    let others = matches!(
        probe_target(Path::new(&args.target)),
        Ok(TargetKind::File { .. } | TargetKind::BlockDevice { .. })
    );
    if others && args.destroy.is_none() && args.options.rw.is_none() {
        choice.patterns.retain(|p| !p.contains("write"));
        skipped.push(format!(
            "writes: {} was not made by fathom; name a directory for a scratch file, or give --destroy",
            args.target
        ));
    }
}

fn wanted(args: &StackArgs, choice: &Choice, direct: bool, buffered: bool) -> Wanted {
    Wanted {
        modifies: choice.patterns.iter().any(|p| p.contains("write")),
        direct,
        buffered,
        polled: args.options.iopoll,
        size: Some(args.options.size),
        destroy: args.destroy.clone(),
        create: super::open::may_create(),
        ..Wanted::default()
    }
}

/// The ways that were asked for.
fn both(args: &StackArgs, choice: &Choice) -> Wanted {
    let asked = |direct| choice.direct.contains(&direct);
    wanted(args, choice, asked(true), asked(false))
}

/// Says what would be done.
fn dry_run(args: &StackArgs, mut choice: Choice, setting: CpuSetting) -> Outcome {
    let (limits, fills) = foresee_jobs(&args.target, &both(args, &choice), None)?;
    choice.options.size.0 = choice.options.size.0.min(limits.size);
    let variants = match args.options.what_if {
        true => stack::VARIANTS,
        false => u32::from(setting != CpuSetting::AsIs),
    };
    let cost = stack::run_cost(&choice.cases()?, variants, fills);
    Foreseen::of("Latency by layer", &cost, &args.target).dry_run(args.out.json)
}

/// The open target; what cannot be had of it is left out of the choice, and said.
fn opened(
    args: &StackArgs,
    choice: &mut Choice,
    skipped: &mut Vec<String>,
) -> Result<Target, Failure> {
    let mut both = both(args, choice);
    // Past the block layer, too, where that is possible: what it costs stands beside it.
    if fathom_host::block_device_of(Path::new(&args.target)).is_some() {
        choice.direct = vec![true];
        choice.engines = vec![Engine::UringCmd];
        both = wanted(args, choice, true, false).of(&args.target);
    }
    let mut target = match Target::open(&args.target, &both) {
        // One of the two paths is still worth measuring.
        Err(e @ (TargetError::NoDirect { .. } | TargetError::Unfit { .. }))
            if both.direct && both.buffered =>
        {
            skipped.push(format!("some cases: {e}"));
            Target::open(&args.target, &wanted(args, choice, false, false))?
        }
        other => other?,
    };
    if choice.direct.contains(&true)
        && choice.engines.contains(&Engine::UringCmd)
        && let Err(why) = target.open_for_commands(&both)
    {
        choice.engines.retain(|e| *e != Engine::UringCmd);
        if choice.engines.is_empty() {
            return Err(refused(anyhow::anyhow!("{}: {why}", args.target)));
        }
        skipped.push(format!("NVMe commands: {why}"));
    }
    Ok(target)
}

/// A row for each I/O, where they were asked for.
fn write_rows(args: &StackArgs, report: &StackReport, book: &Notebook) {
    let form = match args.record.as_deref() {
        Some("json") => Form::Json,
        _ => Form::Parquet,
    };
    for (case, ios) in &report.rows {
        let name = format!("stack-{case}.{}", form.ending());
        if let Err(e) = rows::write(&book.dir().path().join(name), ios, form) {
            say!("fathom: {e}");
        }
    }
}

/// The layers of a model, of which nothing has to be traced.
fn on_model(args: &StackArgs, setting: CpuSetting) -> Outcome {
    let real = |what: &str| {
        refused(anyhow::anyhow!(
            "{what}: {} is a model, on which nothing is traced: leave it out, or name a real target",
            args.target
        ))
    };
    if args.options.what_if {
        return Err(refused(anyhow::anyhow!(
            "--what-if: {0} is a model: fathom tune {0} tries its settings",
            args.target
        )));
    }
    if args.record.is_some() {
        return Err(real("--record"));
    }
    if args.options.rung != Rung::Best {
        return Err(real("--rung"));
    }
    let control = signals::control().map_err(refused)?;
    let mut bench = SimBench::open(&args.target, control).map_err(refused)?;
    check_cpu(setting, &bench)?;
    let mut choice = choice(args);
    // A model knows no engines: one of each case.
    choice.engines.truncate(1);
    choice.options.size.0 = bench.limits().size;
    let mut cases = choice.cases()?;
    for spec in &mut cases {
        spec.name = spec.name.replace(&format!("-{}", spec.engine), "");
    }
    let cost = stack::model_cost(&cases);
    let said = Foreseen::of("Latency by layer", &cost, &args.target);
    if args.dry_run {
        return said.dry_run(args.out.json);
    }
    say::text(&said.line());
    let meta = meta("stack", args.seed, &args.out, capsule(None));
    let mut book = notebook(&args.out, meta, &bench, 0)?;
    let report = stack::on_model(&mut bench, &cases, &mut book, &mut |_, _| {})?;
    let code = if bench.interrupted() {
        book.run_mut().flags.push(cut_short());
        FAILED
    } else {
        DONE
    };
    end(book, args, code, &report)
}

fn cut_short() -> Flag {
    Flag::new(
        FlagCode::Interrupted,
        "ended early by a signal: what was measured until then is kept",
        "run it again: it begins anew",
    )
}

fn choice(args: &StackArgs) -> Choice {
    let options = StackOptions {
        seed: args.seed,
        ..args.options.clone()
    };
    Choice::new(
        options,
        fathom_host::takes_commands(Path::new(&args.target)),
    )
}

fn fill(bench: &mut RealBench) -> Result<(), crate::exit::Failure> {
    struct Show(progress::Line);
    impl Observer for Show {
        fn progress(&mut self, p: &Progress) {
            self.0.show(p);
        }
    }
    let mut line = progress::Line::new(0);
    line.name("filling the scratch file");
    let mut show = Show(line);
    let done = bench.prepare(&mut show);
    show.0.clear();
    done?;
    Ok(())
}

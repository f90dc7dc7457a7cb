//! `fathom survey`: the main job.

use fathom_experiments::applications;
use fathom_experiments::cpu::{self, CpuBench, CpuSetting};
use fathom_experiments::endurance::{self, Stated};
use fathom_experiments::survey::{self, Watcher};
use fathom_experiments::{Bench, Notebook, NotebookError, Plan, RunMeta};
use fathom_telemetry::Bytes;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;

use super::finish::{self, command_line};
use super::measure::with_cpu;
use super::open::{
    Ask, Opened, check_cpu, cpu_setting, foresee, mention_leftovers, open, plan, profile,
};
use crate::cli::SurveyArgs;
use crate::exit::{DONE, Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::{screen, signals};

/// See the module.
pub(crate) fn survey(args: &SurveyArgs) -> Outcome {
    let profile = profile(&args.profile)?;
    let setting = cpu_setting(&args.cpu)?;
    let workload = args
        .workload
        .as_deref()
        .map(super::watch::read_profile)
        .transpose()?;
    let control = signals::control().map_err(refused)?;
    mention_leftovers(&args.target);
    let ask = Ask {
        target: &args.target,
        profile: &profile,
        size: args.size,
        destroy: args.destroy.as_deref(),
        modifies: true,
    };
    if args.dry_run {
        let (limits, fills) = foresee(&ask)?;
        announce(&plan(&ask, limits, true), fills, setting, true)?;
        return Ok(DONE);
    }
    let Opened {
        mut bench,
        limits,
        direct,
        fills,
        environment,
    } = open(&ask, control)?;
    let plan = plan(&ask, limits, direct);
    check_cpu(setting, &*bench)?;
    let labs = labs(args, &*bench)?;
    let outlook = announce(&plan, fills, setting, false)?;
    let meta = RunMeta {
        name: "survey".into(),
        command: "survey".into(),
        command_line: command_line(),
        profile: Some(profile.name.into()),
        seed: args.seed,
        environment,
    };
    let mut book = Notebook::create(&args.out.out, meta, bench.describe(), bench.simulated(), 0)?;
    let mut line = SurveyLine::new(outlook, fills);
    let before = bench.health();
    let result = measure(&mut *bench, &plan, setting, args.seed, &mut book, &mut line);
    line.clear();
    let stated = Stated {
        rated: args.rated_tbw,
        daily: args.daily_writes,
    };
    let after = bench.health();
    endurance::report(book.run_mut(), before.as_ref(), after.as_ref(), stated);
    if let Some(profile) = &workload {
        fathom_experiments::workload::add_weighted(book.run_mut(), profile);
    }
    for (run, dir) in &labs {
        let whence = dir.path().display().to_string();
        applications::add(book.run_mut(), run, &whence);
    }
    finish::finish(
        book,
        result,
        bench,
        &args.out,
        fathom_report::terminal::summary,
    )
}

/// Runs of labs on the same device (`--with`).
fn labs(args: &SurveyArgs, bench: &dyn Bench) -> Result<Vec<(Run, RunDir)>, Failure> {
    let about = bench.describe();
    let mut all = Vec::new();
    for path in &args.with {
        let (dir, run) = RunDir::open(path).map_err(refused)?;
        applications::belongs(&run, &about, bench.simulated())
            .map_err(|why| refused(anyhow::anyhow!("--with {}: {why}", path.display())))?;
        all.push((run, dir));
    }
    Ok(all)
}

/// The survey; where a CPU setting was asked for, its comparison first and its latency under it.
fn measure(
    bench: &mut dyn Bench,
    plan: &Plan,
    setting: CpuSetting,
    seed: u64,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    if setting == CpuSetting::AsIs {
        return survey::run(bench, plan, seed, book, watcher);
    }
    cpu::compare(bench, plan, setting, seed, book, watcher)?;
    let mut kept = CpuBench::new(bench, setting).only("latency");
    survey::run(&mut kept, plan, seed, book, watcher)
}

/// Says time and bytes; returns the number of jobs.
fn announce(plan: &Plan, fills: Bytes, setting: CpuSetting, stop: bool) -> Result<u32, Failure> {
    let o = with_cpu(survey::outlook(plan, fills)?, plan, setting)?;
    let filling = if fills.0 > 0 {
        format!(" after filling a scratch file of {fills}")
    } else {
        String::new()
    };
    let text = format!(
        "{} profile: {} jobs in about {:.0} s{filling}; at most {} will be written\n",
        plan.profile.name,
        o.jobs,
        o.time.as_secs_f64(),
        o.written_at_most
    );
    if stop {
        screen::print(&text);
    } else {
        eprint!("{text}");
    }
    Ok(o.jobs)
}

//! `fathom survey`: the main job.

use fathom_experiments::survey::{self, Watcher};
use fathom_experiments::{Notebook, Plan, RunMeta};
use fathom_telemetry::Bytes;

use super::finish::{self, command_line};
use super::open::{Ask, Opened, foresee, mention_leftovers, open, plan, profile};
use crate::cli::SurveyArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::{screen, signals};

/// See the module.
pub(crate) fn survey(args: &SurveyArgs) -> Outcome {
    let profile = profile(&args.profile)?;
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
        announce(&plan(limits, profile, true), fills, true)?;
        return Ok(DONE);
    }
    let Opened {
        mut bench,
        limits,
        direct,
        fills,
        environment,
    } = open(&ask, control)?;
    let plan = plan(limits, profile, direct);
    let outlook = announce(&plan, fills, false)?;
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
    let result = survey::run(
        &mut *bench,
        &plan,
        args.seed,
        &mut book,
        &mut line as &mut dyn Watcher,
    );
    line.clear();
    let closed = bench.close();
    result?;
    closed?;
    let code = if book.run().flags.iter().any(|f| f.void) {
        FAILED
    } else {
        DONE
    };
    finish::finish(book, &args.out, code, fathom_report::terminal::summary)
}

/// Says time and bytes; returns the number of jobs.
fn announce(plan: &Plan, fills: Bytes, stop: bool) -> Result<u32, Failure> {
    let o = survey::outlook(plan, fills)?;
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

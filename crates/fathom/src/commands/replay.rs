//! `fathom replay`: a recorded trace played on a target.

use std::path::Path;

use fathom_experiments::replay::{self, Replay, ReplayOptions};
use fathom_io::Wanted;
use fathom_io::job::Limits;
use fathom_io::replay::{Layout, Pacing, Share, TraceFacts};
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::announce::Foreseen;
use super::finish::{self, meta};
use super::open::{environment, foresee_jobs, mention_leftovers, open_direct, open_on};
use crate::cli::ReplayArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::signals;

/// Largest scratch file that is made without being asked for.
const SCRATCH_MAX: u64 = 4 << 30;

pub(crate) fn replay(args: &ReplayArgs) -> Outcome {
    let control = signals::control().map_err(refused)?;
    if !args.hosts.any() {
        mention_leftovers(&args.target);
    }
    let options = options(args)?;
    // Everything in the trace is checked before anything is opened for writing, or made.
    let checked = options.checked(|| control.interrupted()).map_err(refused)?;
    let facts = &checked.playing.facts;
    let size = scratch_size(args, facts);
    let layout =
        |limits: &Limits, direct| Layout::new(facts, limits, direct, options.lba).map_err(refused);
    let wanted = |direct| Wanted {
        modifies: facts.modifies(),
        direct,
        buffered: !direct,
        size: Some(size),
        destroy: args.destroy.clone(),
        create: super::open::may_create(),
        ..Wanted::default()
    };
    if args.dry_run {
        let direct = !options.buffered;
        let (limits, fills) = foresee_jobs(&args.target, &wanted(direct), Some(&args.hosts))?;
        let layout = layout(&limits, direct)?;
        let (what, cost) = (heading(&checked, &layout), checked.run_cost(fills));
        return Foreseen::of(&what, &cost, &args.target)
            .on(limits.hosts)
            .dry_run(args.out.json);
    }
    let (mut bench, direct) = match options.buffered {
        true => (
            open_on(&args.hosts, &args.target, &wanted(false), control)?,
            false,
        ),
        false => open_direct(&args.hosts, &args.target, &wanted, control)?,
    };
    let mut limits = bench.limits();
    if let Some(size) = args.size {
        limits.size = limits.size.min(size.0);
    }
    let layout = layout(&limits, direct)?;
    // Of each host, where there are several.
    let fills = match bench.fills() {
        Bytes(0) => Bytes(0),
        _ => Bytes(bench.limits().size),
    };
    let (what, cost) = (heading(&checked, &layout), checked.run_cost(fills));
    let said = Foreseen::of(&what, &cost, &args.target).on(limits.hosts);
    say::text(&said.line());
    let meta = meta("replay", 1, &args.out, environment(&*bench));
    let mut book = finish::notebook(&args.out, meta, &*bench, options.record.into())?;
    if bench.shares_disk_with(&options.trace) {
        say!(
            "fathom: the trace lies on the device that it is played on; its own reads are part of the load"
        );
    }
    let mut line = SurveyLine::new(1, fills);
    let measured = replay::run(&mut *bench, direct, &layout, &checked, &mut book, &mut line);
    line.clear();
    finish::summarised(book, measured, bench, &args.out)
}

/// How it is played.
fn options(args: &ReplayArgs) -> Result<ReplayOptions, Failure> {
    if args.options.mode == Pacing::Dependent && args.hosts.count()? > 1 && !args.each_host {
        return Err(refused(anyhow::anyhow!(
            "--mode dependent: hosts do not wait for each other's I/Os: add --each-host, or use --mode timed or fast"
        )));
    }
    Ok(ReplayOptions {
        share: match args.each_host {
            true => Share::Whole,
            false => Share::Turns(0, 1),
        },
        ..args.options.clone()
    })
}

/// As large as the trace reaches, within reason and the free space.
fn scratch_size(args: &ReplayArgs, facts: &TraceFacts) -> Bytes {
    if let Some(size) = args.size {
        return size;
    }
    if matches!(args.target.as_str(), "null" | "null:") {
        return Bytes(1 << 40);
    }
    let reach: u64 = facts
        .devices
        .iter()
        .fold(0u64, |n, d| n.saturating_add(d.end))
        .clamp(16 << 20, SCRATCH_MAX);
    let free = fathom_host::space(Path::new(&args.target)).map_or(u64::MAX, |s| s.fits_bytes);
    Bytes(reach.min(free / 2).next_multiple_of(1 << 20))
}

/// What is played, and where it goes.
fn heading(replay: &Replay<'_>, layout: &Layout) -> String {
    let f = &replay.playing.facts;
    let pace = match replay.options.mode {
        Pacing::Timed => String::new(),
        Pacing::Fast => ", as fast as possible".into(),
        Pacing::Dependent => ", at the pace of its dependencies".into(),
    };
    format!(
        "{} I/Os of {} recorded over {:.1} s{pace}; {} reach over {}, {}",
        f.total(),
        replay.options.trace.display(),
        Nanos(f.duration().0).as_secs_f64(),
        match f.devices.len() {
            1 => "they".to_owned(),
            n => format!("{n} devices"),
        },
        layout.span,
        layout.words(),
    )
}

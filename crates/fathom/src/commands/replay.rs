//! `fathom replay`: a recorded trace played on a target.

use std::path::Path;

use fathom_bench::cost::{FILL_RATE, RunCost};
use fathom_bench::{Bench, BenchError, Notebook};
use fathom_experiments::replay::{self, ReplayOptions};
use fathom_host::{TargetKind, probe_target};
use fathom_io::job::Limits;
use fathom_io::replay::{Events, Format, Layout, Pacing, Score, Share, TraceFacts, survey};
use fathom_io::{Control, TargetError, Wanted};
use fathom_sim::SimTarget;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};

use super::announce::Foreseen;
use super::finish::{self, meta, out_on_target};
use super::open::{environment, mention_leftovers, open_bench, open_on};
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
    // Everything in the trace is checked before anything is opened for writing, or made.
    let options = options(args, &control)?;
    let size = scratch_size(args, &options.facts);
    if args.dry_run {
        return dry_run(args, &options, size);
    }
    let (mut bench, direct) = opened(args, &options, size, control)?;
    let mut limits = bench.limits();
    if let Some(size) = args.size {
        limits.size = limits.size.min(size.0);
    }
    let layout = Layout::new(&options.facts, &limits, direct, args.lba).map_err(refused)?;
    // Of each host, where there are several.
    let fills = match bench.fills() {
        Bytes(0) => Bytes(0),
        _ => Bytes(bench.limits().size),
    };
    let what = heading(&options, &layout);
    let cost = cost(&options, fills);
    let said = Foreseen::of(&what, &cost, &args.target).on(limits.hosts);
    say::text(&said.line());
    let mut book = notebook(args, &*bench)?;
    let mut line = SurveyLine::new(1, fills);
    let measured = replay::run(&mut *bench, direct, &layout, &options, &mut book, &mut line);
    line.clear();
    finish::finish(
        book,
        measured,
        bench,
        &args.out,
        fathom_report::terminal::summary,
    )
}

/// How it is played, with what the first pass over the trace found.
fn options(args: &ReplayArgs, control: &Control) -> Result<ReplayOptions, Failure> {
    let score = score(args)?;
    let facts = check(args, &score, control)?;
    if score.pacing == Pacing::Dependent && facts.with_latency * 2 < facts.total() {
        return Err(refused(anyhow::anyhow!(
            "--mode dependent: the trace does not say when its I/Os completed ({} of {} do): use --mode timed or fast",
            facts.with_latency,
            facts.total()
        )));
    }
    if score.pacing == Pacing::Dependent && args.hosts.count()? > 1 && !args.each_host {
        return Err(refused(anyhow::anyhow!(
            "--mode dependent: hosts do not wait for each other's I/Os: add --each-host, or use --mode timed or fast"
        )));
    }
    Ok(ReplayOptions {
        score: Score {
            format: facts.format,
            ..score
        },
        fit: args.lba,
        qd: args.qd,
        time: args.time,
        record: args.record,
        keep_going: args.keep_going,
        facts,
    })
}

/// Says what would be done.
fn dry_run(args: &ReplayArgs, options: &ReplayOptions, size: Bytes) -> Outcome {
    let existing = existing(args)?;
    let limits = Limits {
        size: existing.unwrap_or(size).0,
        direct_align: 512,
        hosts: args.hosts.count()?,
    };
    let direct = !args.buffered;
    let layout = Layout::new(&options.facts, &limits, direct, args.lba).map_err(refused)?;
    let fills = match existing {
        Some(_) => Bytes(0),
        None => size,
    };
    Foreseen::of(
        &heading(options, &layout),
        &cost(options, fills),
        &args.target,
    )
    .on(limits.hosts)
    .dry_run()
}

/// The open target, and whether the page cache is passed by.
fn opened(
    args: &ReplayArgs,
    options: &ReplayOptions,
    size: Bytes,
    control: Control,
) -> Result<(Box<dyn Bench>, bool), Failure> {
    let wanted = |direct| Wanted {
        modifies: options.facts.modifies(),
        direct,
        buffered: !direct,
        size: Some(size),
        destroy: args.destroy.clone(),
        create: super::open::may_create(),
        ..Wanted::default()
    };
    let direct = !args.buffered;
    if args.hosts.any() {
        let bench = open_on(&args.hosts, &args.target, &wanted(direct), control)?;
        return Ok((bench, direct));
    }
    match open_bench(&args.target, &wanted(direct), control.clone()) {
        Err(BenchError::Target(TargetError::NoDirect { .. })) if direct => {
            say!("fathom: no direct I/O here; playing through the page cache");
            let bench = open_bench(&args.target, &wanted(false), control)?;
            Ok((bench, false))
        }
        other => Ok((other?, direct)),
    }
}

/// The notebook of the run, with what is to be known of where its files lie.
fn notebook(args: &ReplayArgs, bench: &dyn Bench) -> Result<Notebook, Failure> {
    let meta = meta("replay", 1, &args.out, environment(bench));
    let mut book = Notebook::create(
        &args.out.out,
        meta,
        bench.describe(),
        bench.simulated(),
        usize::from(args.record),
    )?;
    if bench.shares_disk_with(Path::new(&args.trace)) {
        say!(
            "fathom: the trace lies on the device that it is played on; its own reads are part of the load"
        );
    }
    if args.record && out_on_target(bench, &args.out.out) {
        book.run_mut().flags.push(Flag::new(
            FlagCode::LogOnTestedDevice,
            "the I/O log is written to the device under test",
            "choose another device with --out",
        ));
    }
    Ok(book)
}

fn score(args: &ReplayArgs) -> Result<Score, Failure> {
    if !(args.speed > 0.0 && args.speed.is_finite() && args.speed <= 1e6) {
        return Err(refused(anyhow::anyhow!(
            "--speed: {} is not possible: expected a factor above 0, such as 10",
            args.speed
        )));
    }
    Ok(Score {
        path: args.trace.clone(),
        format: args.format.unwrap_or(Format::Spc),
        events: match args.events.as_str() {
            "issue" => Events::Issue,
            "queue" => Events::Queue,
            _ => Events::Auto,
        },
        device: args.device.clone(),
        reads_only: args.reads_only,
        pacing: args.mode,
        speed: args.speed,
        idle_max: args.max_idle,
        share: match args.each_host {
            true => Share::Whole,
            false => Share::Turns(0, 1),
        },
    })
}

/// The first pass.
fn check(args: &ReplayArgs, score: &Score, control: &Control) -> Result<TraceFacts, Failure> {
    survey(
        &score.path,
        args.format,
        score.events,
        score.device.as_deref(),
        score.reads_only,
        || control.interrupted(),
    )
    .map_err(refused)
}

/// Size of what exists already; `None` where a scratch file would be made.
fn existing(args: &ReplayArgs) -> Result<Option<Bytes>, Failure> {
    let target = args.target.as_str();
    if matches!(target, "null" | "null:") {
        return Ok(Some(Bytes(1 << 40)));
    }
    if SimTarget::is_simulated(target) {
        let model = SimTarget::parse(target).map_err(refused)?;
        return Ok(Some(Bytes(model.size())));
    }
    if args.hosts.any() {
        // Nobody is asked before anything is agreed to.
        return Ok(None);
    }
    Ok(match probe_target(Path::new(target)).map_err(refused)? {
        TargetKind::File { size_bytes, .. } | TargetKind::BlockDevice { size_bytes, .. } => {
            Some(Bytes(size_bytes))
        }
        _ => None,
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
fn heading(o: &ReplayOptions, layout: &Layout) -> String {
    let f = &o.facts;
    let pace = match o.score.pacing {
        Pacing::Timed => String::new(),
        Pacing::Fast => ", as fast as possible".into(),
        Pacing::Dependent => ", at the pace of its dependencies".into(),
    };
    format!(
        "{} I/Os of {} recorded over {:.1} s{pace}; {} reach over {}, {}",
        f.total(),
        o.score.path.display(),
        Nanos(f.duration().0).as_secs_f64(),
        match f.devices.len() {
            1 => "they".to_owned(),
            n => format!("{n} devices"),
        },
        layout.span,
        layout.words(),
    )
}

/// Played as fast as possible, a trace takes what its bytes take.
fn cost(o: &ReplayOptions, fills: Bytes) -> RunCost {
    let f = &o.facts;
    let changed = f.bytes[Op::Write as usize].saturating_add(f.bytes[Op::Trim as usize]);
    let moved = changed.saturating_add(f.bytes[Op::Read as usize]);
    let fast = Nanos::from_secs_f64(moved as f64 / FILL_RATE as f64);
    let mut cost = RunCost::filling(fills);
    cost.phase("playing the trace").work(
        1,
        replay::expected_time(o).unwrap_or(fast),
        Bytes(changed),
    );
    cost
}

//! `fathom survey`: the main job.

use std::path::Path;

use fathom_experiments::survey::profile::{PROFILES, Profile};
use fathom_experiments::survey::{self, Watcher};
use fathom_experiments::{Bench, Notebook, Plan, RealBench, RunMeta};
use fathom_host::{TargetKind, probe_target, space};
use fathom_io::job::Limits;
use fathom_io::{Target, Wanted};
use fathom_telemetry::Bytes;

use super::finish::{self, capsule, command_line};
use crate::cli::SurveyArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::{screen, signals};

/// See the module.
pub(crate) fn survey(args: &SurveyArgs) -> Outcome {
    let profile = Profile::named(&args.profile).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
        refused(anyhow::anyhow!(
            "--profile: '{}' is not one of {}",
            args.profile,
            names.join(", ")
        ))
    })?;
    let control = signals::control().map_err(refused)?;
    mention_leftovers(&args.target);
    let size = size(args, &profile)?;
    let place = probe(&args.target)?;
    if args.dry_run {
        let limits = Limits {
            size: place.size.unwrap_or(size).0,
            direct_align: 512,
        };
        let plan = plan(limits, profile, true);
        announce(&plan, if place.fills { size } else { Bytes(0) }, true)?;
        return Ok(DONE);
    }
    let wanted = |direct| Wanted {
        modifies: true,
        direct,
        buffered: false,
        size: Some(size),
        destroy: args.destroy.clone(),
    };
    // Where direct I/O is impossible (some tmpfs, FUSE) the survey still runs, and says what it measures.
    let (target, direct) = match Target::open(&args.target, &wanted(true)) {
        Err(fathom_io::TargetError::Unfit { message, .. }) if message.contains("direct I/O") => {
            eprintln!("fathom: no direct I/O here; measuring through the page cache");
            (Target::open(&args.target, &wanted(false))?, false)
        }
        other => (other?, true),
    };
    let limits = limits(&target, args.size, size);
    let plan = plan(limits, profile, direct);
    let fills = if target.needs_fill() {
        Bytes(limits.size)
    } else {
        Bytes(0)
    };
    let outlook = announce(&plan, fills, false)?;
    let environment = capsule(target.path());
    let mut bench = RealBench::new(target, control);
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
        &mut bench,
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

/// What there is to know before anything is opened or made.
struct Place {
    /// Size of an existing file or device.
    size: Option<Bytes>,
    /// Whether a scratch file would be filled.
    fills: bool,
}

fn probe(target: &str) -> Result<Place, Failure> {
    if target.starts_with("null") {
        return Ok(Place {
            size: None,
            fills: false,
        });
    }
    Ok(match probe_target(Path::new(target)).map_err(refused)? {
        TargetKind::File { size_bytes, .. } | TargetKind::BlockDevice { size_bytes, .. } => Place {
            size: Some(Bytes(size_bytes)),
            fills: false,
        },
        _ => Place {
            size: None,
            fills: true,
        },
    })
}

fn size(args: &SurveyArgs, profile: &Profile) -> Result<Bytes, Failure> {
    if let Some(size) = args.size {
        if size.0 < 1 << 20 {
            return Err(refused(anyhow::anyhow!(
                "--size: {size} is too small for a survey: expected 1m or more"
            )));
        }
        return Ok(size);
    }
    let path = Path::new(&args.target);
    let free = if path.is_dir() {
        space(path).map(|s| s.fits_bytes).unwrap_or(u64::MAX)
    } else {
        u64::MAX
    };
    Ok(profile.scratch_size(free))
}

/// The whole of what exists, or the part that was asked for.
fn limits(target: &Target, asked: Option<Bytes>, size: Bytes) -> Limits {
    let mut limits = target.limits();
    if target.is_null() || asked.is_some() {
        limits.size = limits.size.min(size.0);
    }
    limits
}

fn plan(limits: Limits, profile: Profile, direct: bool) -> Plan {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as u32;
    Plan {
        limits,
        profile,
        threads: cores.clamp(1, 4),
        direct,
    }
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

/// Scratch files of killed runs are named, with the command that removes them.
fn mention_leftovers(target: &str) {
    let dir = Path::new(target);
    let Ok(found) = fathom_host::leftovers(dir) else {
        return;
    };
    if !found.is_empty() {
        let bytes: u64 = found.iter().map(|l| l.size_bytes).sum();
        eprintln!(
            "fathom: {} scratch file(s) of killed runs hold {} here; remove them with: fathom clean {}",
            found.len(),
            Bytes(bytes),
            dir.display()
        );
    }
}

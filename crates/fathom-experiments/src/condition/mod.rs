//! Conditioning: brings a device into a state in which its numbers mean something, in pieces that can be resumed.
//!
//! Purge, workload-independent passes, a realistic partial fill (fill level, random overwrites of mixed sizes,
//! deletes, idle time), then the workload itself until fathom's own verdict calls it steady. The plan is a list
//! of jobs that follows from options and size alone, so an interrupted one goes on at the piece that it was at.

use fathom_host::Health;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::load::rng::mix as mix_bits;
use fathom_io::{JobError, JobSpec};
use fathom_stats::regimes::{Regimes, Window, regimes};
use fathom_stats::steady::{Question, Steadiness, Verdict, Written, steadiness_so_far};
use fathom_telemetry::schema::{Job, Run, Section};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use crate::bench::{Bench, BenchError};
use crate::notebook::{Notebook, NotebookError};
use crate::outlook::written_at_most;
use crate::survey::Watcher;

mod recovery;
mod report;

pub(crate) use report::why;

/// Pieces that one pass is cut into: an interruption loses one at most.
const PIECES: u64 = 16;
/// Sizes of a file system's overwrites with their weights, percent.
const MIXED: &str = "4k:55,8k:15,16k:10,64k:12,128k:8";
/// Rounds of the workload after which conditioning gives up.
pub const ROUNDS_MAX: u32 = 100;
/// Experiment name of the jobs.
const EXPERIMENT: &str = "condition";
/// Experiment name of the load's rounds.
const LOAD: &str = "condition-load";

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionOptions {
    /// Discard everything first.
    pub purge: bool,
    /// Sequential passes of 128 KiB over the filled part: 2 by the specification.
    pub passes: u32,
    /// Part of the range that holds data, percent; the rest stays discarded.
    pub fill: u32,
    /// Random overwrites of mixed sizes, times the filled part.
    pub overwrite: f64,
    /// Share of the filled part that is then deleted in pieces of 1 MiB, percent.
    pub deletes: f64,
    /// Idle time after that.
    pub idle: Nanos,
    /// The workload that is run until it is steady: options of a job.
    pub load: Vec<(String, String)>,
    /// Length of a round of it.
    pub round: Nanos,
    /// Length of the planned test, over which the level must stay within 10 %.
    pub test: Nanos,
    /// Time that may be spent on measuring how much idle time gives a used-up cache or credit back; nought estimates it.
    pub recovery: Nanos,
    /// Tested range.
    pub range: Bytes,
    /// Seed of everything random.
    pub seed: u64,
}

/// Time and bytes before the start, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionOutlook {
    /// Written by passes and overwrites, exactly.
    pub written: Bytes,
    /// Pieces before the workload.
    pub pieces: usize,
    /// Time of the workload's rounds and idle time, at most.
    pub time_at_most: Nanos,
}

/// One piece of the plan: a name and options of a job.
type Piece = (String, Vec<(&'static str, String)>);

/// Filled part, in whole MiB.
fn filled(o: &ConditionOptions) -> u64 {
    ((o.range.0 as f64 * f64::from(o.fill) / 100.0) as u64 >> 20 << 20).max(1 << 20)
}

/// Idle but for one read at each end: kept by the same clock, also in virtual time.
fn pause(time: Nanos, range: u64) -> Vec<(&'static str, String)> {
    vec![
        ("rw", "randread".into()),
        ("time", format!("{}ns", time.0)),
        ("rate", format!("{:.9}", 1.0 / (0.999 * time.as_secs_f64()))),
        ("arrival", "constant".into()),
        ("size", range.to_string()),
    ]
}

fn pieces(o: &ConditionOptions) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    let whole = filled(o);
    if o.purge {
        let bs = (64u64 << 20).min(o.range.0);
        out.push((
            "purge".into(),
            vec![
                ("rw", "trim".into()),
                ("bs", bs.to_string()),
                ("on-error", "continue".into()),
                ("size", o.range.0.to_string()),
            ],
        ));
    }
    let part = ((whole / PIECES) >> 20 << 20).max(1 << 20);
    for pass in 1..=o.passes {
        let mut at = 0;
        while at < whole {
            // The last piece takes the rest.
            let size = if whole - at < 2 * part {
                whole - at
            } else {
                part
            };
            out.push((
                format!("pass-{pass}-at-{at}"),
                vec![
                    ("rw", "write".into()),
                    ("bs", "128k".into()),
                    ("qd", "32".into()),
                    ("offset", at.to_string()),
                    ("size", size.to_string()),
                ],
            ));
            at += size;
        }
    }
    let overwritten = (whole as f64 * o.overwrite) as u64;
    for i in 0..PIECES {
        let bytes = overwritten / PIECES / 4096 * 4096;
        if bytes == 0 {
            break;
        }
        out.push((
            format!("overwrite-{}", i + 1),
            vec![
                ("rw", "randwrite".into()),
                ("bs", MIXED.into()),
                ("align", "4k".into()),
                ("qd", "32".into()),
                ("bytes", bytes.to_string()),
                ("size", whole.to_string()),
            ],
        ));
    }
    let deleted = (whole as f64 * o.deletes / 100.0) as u64 >> 20 << 20;
    if deleted > 0 {
        out.push((
            "deletes".into(),
            vec![
                ("rw", "randtrim".into()),
                ("bs", "1m".into()),
                ("bytes", deleted.to_string()),
                ("on-error", "continue".into()),
                ("size", whole.to_string()),
            ],
        ));
    }
    if o.idle > Nanos::ZERO {
        out.push(("idle".into(), pause(o.idle, whole)));
    }
    out
}

/// The job of a piece, without what depends on the run.
fn spec_of(name: &str, options: &[(&str, String)]) -> Result<JobSpec, JobError> {
    let mut spec = JobSpec {
        name: name.into(),
        ..JobSpec::default()
    };
    for (option, text) in options {
        spec.set(option, text)?;
    }
    Ok(spec)
}

/// Says time and bytes.
pub fn outlook(o: &ConditionOptions) -> ConditionOutlook {
    let all = pieces(o);
    let written = all
        .iter()
        .filter_map(|(name, options)| spec_of(name, options).ok())
        .map(|spec| written_at_most(&spec).0)
        .fold(0, u64::saturating_add);
    let rounds = if o.load.is_empty() {
        0
    } else {
        u64::from(ROUNDS_MAX)
    };
    ConditionOutlook {
        written: Bytes(written),
        pieces: all.len(),
        time_at_most: Nanos(
            o.idle
                .0
                .saturating_add(o.round.0.saturating_mul(rounds))
                .saturating_add(o.recovery.0),
        ),
    }
}

/// The plan in words that must be equal for a run to be continued.
fn plan_text(o: &ConditionOptions) -> String {
    let load: Vec<String> = o.load.iter().map(|(n, t)| format!("{n}={t}")).collect();
    format!(
        "range {}, purge {}, {} passes, {} % full, overwrite {}, deletes {} %, idle {}, then [{}] in rounds of {}, seed {}",
        o.range.0,
        o.purge,
        o.passes,
        o.fill,
        o.overwrite,
        o.deletes,
        o.idle,
        load.join(" "),
        o.round,
        o.seed
    )
}

/// Pieces that an earlier run of the same plan on the same target has completed.
///
/// # Errors
/// In one sentence, where the run is no such run.
pub fn completed(run: &Run, target: &str, o: &ConditionOptions) -> Result<usize, String> {
    if run.command != EXPERIMENT {
        return Err(format!(
            "--resume: {} is a run of '{}', not of condition",
            run.name, run.command
        ));
    }
    let plan = run.results.iter().find(|s| s.id == "condition-plan");
    if run.target.name != target || plan.is_none_or(|p| p.text != plan_text(o)) {
        return Err(format!(
            "--resume: that run conditioned {} otherwise ({}): repeat its options, or leave out --resume",
            run.target.name,
            plan.map_or("unknown plan", |p| p.text.as_str())
        ));
    }
    let whole = |j: &&fathom_telemetry::schema::Job| {
        j.experiment == EXPERIMENT && !j.flags.iter().any(|f| f.code == FlagCode::Interrupted)
    };
    let before = run.jobs.iter().filter(whole).count();
    // A run that was itself continued begins where the one before had ended.
    let skipped = run
        .results
        .iter()
        .find(|s| s.id == "condition-resumed")
        .and_then(|s| s.text.split(' ').next()?.parse::<usize>().ok())
        .unwrap_or(0);
    Ok((before + skipped).min(pieces(o).len()))
}

/// Conditions the target; the first `skip` pieces were done before.
pub fn run(
    bench: &mut dyn Bench,
    direct: bool,
    o: &ConditionOptions,
    skip: usize,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let plan = |id: &str, title: &str, text: String| Section {
        id: id.into(),
        title: title.into(),
        text,
        ..Section::default()
    };
    book.run_mut()
        .results
        .push(plan("condition-plan", "Plan", plan_text(o)));
    if skip > 0 {
        let text = format!("{skip} pieces were done by an earlier run");
        book.run_mut()
            .results
            .push(plan("condition-resumed", "Resumed", text));
    }
    let all = pieces(o);
    let total = all.len() as u32 + if o.load.is_empty() { 0 } else { ROUNDS_MAX };
    let mut written = 0u64;
    for (i, (name, options)) in all.iter().enumerate() {
        if i < skip {
            continue;
        }
        let step = Step {
            name,
            options,
            number: i as u32,
            total,
            experiment: EXPERIMENT,
        };
        let Some(index) = one(bench, direct, o, &step, book, watcher)? else {
            return Ok(());
        };
        let job = &mut book.run_mut().jobs[index];
        written += job.write.as_ref().map_or(0, |w| w.bytes);
        if let Some(e) = job.errors.first() {
            let detail = format!("{name}: {} failed: {}", e.op.name(), e.message);
            let discards = name == "purge" || name == "deletes";
            if discards {
                // A device that cannot discard is no failed measurement.
                job.flags.clear();
            }
            book.run_mut().flags.push(if discards {
                Flag::new(
                    FlagCode::NotChecked,
                    format!("discarding is not possible here ({detail}); conditioning went on"),
                    "purge with the vendor's tool (nvme format, hdparm), then condition without --purge",
                )
            } else {
                Flag::new(FlagCode::IoErrors, detail, "look at the kernel log; what was done until then is kept")
            });
            if !discards {
                return Ok(());
            }
        }
    }
    if o.load.is_empty() {
        return Ok(());
    }
    let options: Vec<(&str, String)> = o
        .load
        .iter()
        .map(|(n, t)| (n.as_str(), t.clone()))
        .collect();
    let mut load = Load {
        health: bench.health(),
        ..Load::default()
    };
    let floor = 2 * filled(o);
    for round in 0..ROUNDS_MAX {
        let number = all.len() as u32 + round;
        let name = format!("load-{}", round + 1);
        let step = Step {
            name: &name,
            options: &options,
            number,
            total,
            experiment: LOAD,
        };
        let Some(index) = one(bench, direct, o, &step, book, watcher)? else {
            break;
        };
        if !load.take(&book.run().jobs[index], bench.health()) {
            break;
        }
        let mut question = Question::new(0.10, o.test.as_secs_f64() / o.round.as_secs_f64());
        // Only a load that writes changes the device: reads have no floor.
        if load.written > 0 {
            question.written = Some(Written {
                // What an earlier run wrote before the interruption counts too.
                bytes: written + load.written + if skip > 0 { outlook(o).written.0 } else { 0 },
                floor,
            });
        }
        question.write_ratio = load.ratios_of_all().unwrap_or_default();
        let s = steadiness_so_far(&load.course, &question);
        let done = s.verdict == Verdict::Steady;
        load.verdict = Some(s);
        if done {
            break;
        }
    }
    let regimes = load.regimes(o.round.as_secs_f64());
    let recovery = match &regimes {
        Some(r) if o.recovery > Nanos::ZERO && !bench.interrupted() => {
            let at = all.len() as u32 + ROUNDS_MAX;
            recovery::measure(bench, direct, o, (&options, at), r, book, watcher)?
        }
        _ => None,
    };
    report::report(o, &load, regimes.as_ref(), recovery.as_ref(), book);
    Ok(())
}

/// The load's rounds as they were seen.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Bytes per second of each round.
    pub(crate) course: Vec<f64>,
    /// Temperature at the end of each round, °C.
    celsius: Vec<Option<f64>>,
    /// Media over host writes of each round.
    ratios: Vec<Option<f64>>,
    /// Bytes written in all rounds.
    written: u64,
    /// The disk's word before the next round.
    health: Option<Health>,
    /// fathom's verdict.
    verdict: Option<Steadiness>,
}

impl Load {
    /// Takes a round; `false` where it failed.
    fn take(&mut self, job: &Job, health: Option<Health>) -> bool {
        if !job.errors.is_empty() {
            return false;
        }
        let data = || [&job.read, &job.write].into_iter().flatten();
        self.written += job.write.as_ref().map_or(0, |w| w.bytes);
        self.course.push(data().map(|d| d.bytes_per_second).sum());
        self.celsius.push(health.as_ref().and_then(|h| h.celsius));
        let ratio = health.as_ref().zip(self.health.as_ref());
        self.ratios
            .push(ratio.and_then(|(now, before)| now.write_ratio_since(before)));
        self.health = health;
        true
    }

    /// The write ratio of every round, where the disk told all of them.
    fn ratios_of_all(&self) -> Option<Vec<f64>> {
        self.ratios.iter().copied().collect()
    }

    /// Rate and internal writes per byte written, each at first and at last, where the one fell while the other rose.
    fn collected(&self) -> Option<[(f64, f64); 2]> {
        const RISE_MIN: f64 = 1.2;
        const FALL_MIN: f64 = 0.15;
        let ratios = self.ratios_of_all()?;
        let part = (self.course.len() / 4).max(1);
        let ends = |x: &[f64]| -> Option<(f64, f64)> {
            let mean = |x: &[f64]| x.iter().sum::<f64>() / part as f64;
            Some((mean(x.get(..part)?), mean(x.get(x.len() - part..)?)))
        };
        let (rate, ratio) = (ends(&self.course)?, ends(&ratios)?);
        let set_in = ratio.1 >= RISE_MIN * ratio.0 && rate.1 <= (1.0 - FALL_MIN) * rate.0;
        set_in.then_some([rate, ratio])
    }

    /// Burst and base, where there are two levels.
    fn regimes(&self, seconds: f64) -> Option<Regimes> {
        let windows: Vec<Window> = self
            .course
            .iter()
            .zip(&self.celsius)
            .map(|(v, celsius)| Window {
                amount: v * seconds,
                celsius: *celsius,
            })
            .collect();
        regimes(&windows, seconds)
    }
}

struct Step<'a> {
    name: &'a str,
    options: &'a [(&'a str, String)],
    number: u32,
    total: u32,
    experiment: &'a str,
}

/// One job; `None` where someone asked to end.
fn one(
    bench: &mut dyn Bench,
    direct: bool,
    o: &ConditionOptions,
    step: &Step<'_>,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<Option<usize>, NotebookError> {
    if bench.interrupted() {
        book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{} of at most {} pieces were done", step.number, step.total),
            "go on with --resume and this run's directory",
        ));
        return Ok(None);
    }
    let mut spec = spec_of(step.name, step.options).map_err(BenchError::from)?;
    spec.direct = direct;
    spec.seed = mix_bits(o.seed ^ mix_bits(u64::from(step.number))) >> 1;
    if step.experiment == LOAD {
        spec.size.get_or_insert(Bytes(filled(o)));
        spec.time = Some(o.round);
        spec.window = Nanos((o.round.0 / 5).clamp(1_000_000, 100_000_000));
    }
    watcher.job(step.number, step.total, &spec.name);
    let planned = PlannedJob {
        experiment: step.experiment.into(),
        ..PlannedJob::new(spec.validate(&bench.limits()).map_err(BenchError::from)?)
    };
    let mut show = |p: &Progress| watcher.progress(p);
    let done = book.measure(bench, &[planned], &mut show)?;
    Ok(done.first().copied())
}

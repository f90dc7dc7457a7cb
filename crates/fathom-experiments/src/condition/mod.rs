//! Conditioning: brings a device into a state in which its numbers mean something, in pieces that can be resumed.
//!
//! Purge, workload-independent passes, a realistic partial fill (fill level, random overwrites of mixed sizes,
//! deletes, idle time), then the workload itself until fathom's own verdict calls it steady. The plan is a list
//! of jobs that follows from options and size alone, so an interrupted one goes on at the piece that it was at.

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::percent;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results;
use fathom_bench::runner::Runner;
use fathom_bench::schedule;
use fathom_host::Health;
use fathom_io::target::purge::{Method, Settled};
use fathom_io::{JobError, JobSpec};
use fathom_stats::regimes::{Regimes, Window, regimes};
use fathom_stats::steady::{Question, Steadiness, Verdict, Written, steadiness_so_far};
use fathom_telemetry::schema::{HostShare, Job, Run};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use crate::purge::{self, Ended, PurgeResult, Purging};

mod recovery;
mod report;

/// Pieces that one pass is cut into: an interruption loses one at most.
const PIECES: u64 = 16;
/// Sizes of a file system's overwrites with their weights, percent.
const MIXED: &str = "4k:55,8k:15,16k:10,64k:12,128k:8";
/// Rounds of the workload after which conditioning gives up.
pub const ROUNDS_MAX: u32 = 100;
/// Experiment name of the jobs.
const EXPERIMENT: &str = "condition";
/// The piece that empties the range: a job where that is done by discards.
const PURGE: &str = "purge";
/// Experiment name of the load's rounds.
const LOAD: &str = "condition-load";

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
pub struct ConditionOptions {
    /// Empty everything first.
    #[arg(skip)]
    pub purge: bool,
    /// In which way.
    #[arg(skip)]
    #[serde(default)]
    pub purging: Purging,
    /// Sequential passes of 128 KiB over the filled part
    #[arg(long, default_value_t = 2)]
    pub passes: u32,
    /// Part of the range that holds data, percent
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub fill: u32,
    /// Random overwrites of mixed sizes (4 to 128 KiB), times the filled part
    #[arg(long, default_value = "0", value_parser = times)]
    pub overwrite: f64,
    /// Part that is deleted after that in pieces of 1 MiB, percent
    #[arg(long, default_value = "0", value_parser = percent)]
    pub deletes: f64,
    /// Idle time after that
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0",
        hide_default_value = true
    )]
    pub idle: Nanos,
    /// A load that is run in rounds until its level is steady: options as in run, such as "rw=randwrite bs=4k qd=32"
    #[arg(long = "until-steady", value_name = "OPTIONS", default_value = "", value_parser = load)]
    pub load: std::vec::Vec<(String, String)>,
    /// Length of its rounds
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub round: Nanos,
    /// Length of the test that is planned: the level must stay within 10 % over it
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub test: Nanos,
    /// Time to spend on measuring how much idle time gives a used-up cache or credit back; without it that is estimated
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0",
        hide_default_value = true
    )]
    pub recovery: Nanos,
    /// Tested range.
    #[arg(skip)]
    pub range: Bytes,
    /// Devices of so many hosts that are conditioned at the same time, the same range of each.
    #[arg(skip)]
    #[serde(default = "one")]
    pub devices: u32,
    /// Seed of everything random.
    #[arg(skip)]
    pub seed: u64,
}

/// A factor from 0 on.
fn times(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok();
    number
        .filter(|v| (0.0..=1000.0).contains(v))
        .ok_or_else(|| format!("'{text}' is not possible: expected 0 to 1000"))
}

/// `rw=randwrite bs=4k qd=32` → options, each of them known.
fn load(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut spec = JobSpec::default();
    let option = |word: &str| {
        let cut = word.trim_start_matches("--").split_once('=');
        let (name, value) = cut.ok_or_else(|| {
            format!(
                "'{word}' is not possible: expected options such as \"rw=randwrite bs=4k qd=32\""
            )
        })?;
        spec.set(name, value).map_err(|e| e.to_string())?;
        Ok((name.to_owned(), value.to_owned()))
    };
    text.split_whitespace().map(option).collect()
}

/// Of runs before there were hosts.
fn one() -> u32 {
    1
}

impl ConditionOptions {
    /// Bytes of all devices together, of so many of each: jobs' totals are split over the hosts.
    fn of_all(&self, each: u64) -> u64 {
        each.saturating_mul(u64::from(self.devices))
    }
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

/// Discards of everything.
fn discards(o: &ConditionOptions) -> Vec<(&'static str, String)> {
    let bs = (64u64 << 20).min(o.range.0);
    vec![
        ("rw", "trim".into()),
        // Discards of devices through io_uring need Linux 6.12.
        ("engine", "preadv".into()),
        ("bs", bs.to_string()),
        ("on-error", "continue".into()),
        ("size", o.range.0.to_string()),
    ]
}

fn pieces(o: &ConditionOptions) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    let whole = filled(o);
    if o.purge {
        out.push((PURGE.into(), discards(o)));
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
                ("bytes", o.of_all(bytes).to_string()),
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
                ("engine", "preadv".into()),
                ("bs", "1m".into()),
                ("bytes", o.of_all(deleted).to_string()),
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

/// Of everything before the load, on one device.
fn of_pieces(o: &ConditionOptions) -> Result<RunCost, JobError> {
    let mut cost = RunCost::default();
    let one = ConditionOptions {
        devices: 1,
        ..o.clone()
    };
    for (name, options) in &pieces(&one) {
        // Pieces of one pass are one phase.
        let pass = name.split("-at-").next().unwrap_or(name);
        let phase = match pass.strip_prefix("overwrite-") {
            Some(_) => "overwrites".to_owned(),
            None => pass.replace('-', " "),
        };
        if name == PURGE && !o.purging.is_job() {
            let phase = format!("purge by {}", o.purging);
            cost.phase(&phase)
                .work(0, Nanos::ZERO, o.purging.written(o.range));
            continue;
        }
        cost.phase(&phase).add(&spec_of(name, options)?, 1);
    }
    Ok(cost)
}

/// Says time and bytes of each device; the load runs until it is steady, and is known at most.
///
/// # Errors
/// Where a piece is no job.
pub fn run_cost(o: &ConditionOptions) -> Result<RunCost, JobError> {
    let mut cost = of_pieces(o)?;
    if !o.load.is_empty() {
        let mut spec = JobSpec::default();
        for (option, text) in &o.load {
            spec.set(option, text)?;
        }
        (spec.time, spec.size) = (Some(o.round), Some(Bytes(filled(o))));
        cost.phase("load until steady, at most")
            .add(&spec, ROUNDS_MAX);
    }
    if o.recovery > Nanos::ZERO {
        cost.phase("recovery").work(1, o.recovery, Bytes(0));
    }
    Ok(cost)
}

/// What is to be done; saved before the first piece, so that a run that was killed can be continued.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConditionPlan {
    /// What was asked for.
    pub options: ConditionOptions,
    /// Pieces that an earlier run had done.
    pub skipped: usize,
}

impl ConditionPlan {
    /// Whether a run of these options goes on with what this one did: only how the load is judged may differ.
    fn continues(&self, o: &ConditionOptions) -> bool {
        let judged_alike = ConditionOptions {
            test: o.test,
            recovery: o.recovery,
            ..self.options.clone()
        };
        judged_alike == *o
    }
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
    let plan: Option<ConditionPlan> = results::result(run);
    let Some(plan) = plan.filter(|p| run.target.name == target && p.continues(o)) else {
        return Err(format!(
            "--resume: that run conditioned {} otherwise ({}): repeat its options, or leave out --resume",
            run.target.name,
            results::result::<ConditionPlan>(run)
                .map_or_else(|| "unknown plan".into(), |p| report::plan_text(&p.options))
        ));
    };
    Ok(done(&plan, run).min(pieces(o).len()))
}

/// Pieces that are done at the end of a run: one that was itself continued begins where the one before had ended.
fn done(plan: &ConditionPlan, run: &Run) -> usize {
    let whole = |j: &&Job| j.experiment == EXPERIMENT && !is_cut(j);
    let jobs = run.jobs.iter().filter(whole).count();
    let purged: Option<PurgeResult> = results::result(run);
    let beside = purged.is_some_and(|p| p.purged.method != Method::Discard);
    plan.skipped + jobs + usize::from(beside)
}

/// Whether a piece was interrupted.
fn is_cut(job: &Job) -> bool {
    job.flags.iter().any(|f| f.code == FlagCode::Interrupted)
}

/// Conditions the target; the first `skip` pieces were done before. A purge that was found going on, and waited for, counts.
///
/// # Errors
/// Where the bench or the run directory fails; an interruption is no error.
pub fn run(
    bench: &mut dyn Bench,
    direct: bool,
    o: &ConditionOptions,
    skip: usize,
    settled: Option<Settled>,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    book.found(&ConditionPlan {
        options: o.clone(),
        skipped: skip,
    })?;
    let all = pieces(o);
    let total = all.len() as u32 + if o.load.is_empty() { 0 } else { ROUNDS_MAX };
    let mut steps = Steps {
        runner: Runner::unprepared(bench, book, sink, EXPERIMENT, o.seed, total).after(skip as u32),
        direct,
        settled,
        o,
    };
    let written = do_pieces(&mut steps, &all[skip.min(all.len())..])?;
    if let Some(written) = written.filter(|_| !o.load.is_empty()) {
        // What an earlier run wrote before the interruption counts too.
        let before = if skip > 0 {
            o.of_all(of_pieces(o).map_err(BenchError::from)?.written_at_most().0)
        } else {
            0
        };
        let found = judge(&mut steps, written + before)?;
        steps.runner.book.run_mut().flags.extend(found.flag());
        steps.runner.book.found(&found)?;
    }
    if steps.runner.bench.interrupted() {
        let mut flag = schedule::cut_short(steps.runner.done(), total);
        flag.remedy = "go on with --resume and this run's directory".into();
        steps.runner.book.run_mut().flags.push(flag);
    }
    Ok(())
}

/// Passes, overwrites, deletes: returns the bytes written, or `None` where it has to end.
fn do_pieces(steps: &mut Steps<'_>, all: &[Piece]) -> Result<Option<u64>, NotebookError> {
    let mut written = 0;
    for (name, options) in all {
        if name == PURGE && !steps.o.purging.is_job() {
            match steps.purge()? {
                Some(true) => continue,
                Some(false) => {}
                None => return Ok(None),
            }
        }
        let range = steps.o.range;
        let samples = match name == PURGE {
            true => steps.runner.samples(range),
            false => None,
        };
        let Some(index) = steps.one(name, options, EXPERIMENT)? else {
            return Ok(None);
        };
        let job = &mut steps.runner.book.run_mut().jobs[index];
        // What hosts did after the first had ended is work done, too: no rate is taken from a piece on several hosts.
        let tails: u64 = job.hosts.iter().map(|h| h.tail_bytes).sum();
        written += job.write.as_ref().map_or(0, |w| w.bytes + tails);
        let worked = |h: &HostShare| h.bytes + h.tail_bytes > 0;
        if !job.hosts.is_empty() && job.hosts.iter().all(worked) {
            let unmeasured = [FlagCode::OutOfStep, FlagCode::TooFewSamples];
            let of_rates = job.flags.iter_mut();
            let of_rates = of_rates.filter(|f| unmeasured.contains(&f.code));
            of_rates.for_each(|f| f.void = false);
        }
        let Some(failed) = steps.runner.failure(index) else {
            purge::by_job(
                &mut steps.runner,
                EXPERIMENT,
                range,
                samples.as_ref(),
                index,
            )?;
            continue;
        };
        let detail = format!("{name}: {failed}");
        let run = steps.runner.book.run_mut();
        if name != PURGE && name != "deletes" {
            run.flags.push(Flag::new(
                FlagCode::IoErrors,
                detail,
                "look at the kernel log; what was done until then is kept",
            ));
            return Ok(None);
        }
        // A device that cannot discard is no failed measurement.
        run.jobs[index]
            .flags
            .retain(|f| f.code == FlagCode::HostLost);
        run.flags.push(Flag::new(
            FlagCode::NotChecked,
            format!("discarding is not possible here ({detail}); conditioning went on"),
            "purge in another way (--purge; or the vendor's tool, then --purge none)",
        ));
    }
    Ok(Some(written))
}

/// Runs the load until it is steady; `before` are the bytes written until now.
fn judge(steps: &mut Steps<'_>, before: u64) -> Result<ConditionResult, NotebookError> {
    let o = steps.o;
    let options: Vec<(&str, String)> = o
        .load
        .iter()
        .map(|(n, t)| (n.as_str(), t.clone()))
        .collect();
    let mut load = Load {
        health: steps.runner.bench.health(),
        ..Load::default()
    };
    for round in 0..ROUNDS_MAX {
        let Some(index) = steps.one(&format!("load-{}", round + 1), &options, LOAD)? else {
            break;
        };
        let health = steps.runner.bench.health();
        if !load.take(index, steps.runner.job(index), health) {
            break;
        }
        let mut question = Question::new(0.10, o.test.as_secs_f64() / o.round.as_secs_f64());
        // Only a load that writes changes the device: reads have no floor.
        if load.written > 0 {
            question.written = Some(Written {
                bytes: before + load.written,
                floor: o.of_all(2 * filled(o)),
            });
        }
        question.write_ratio = load.ratios_of_all().map(|(_, r)| r).unwrap_or_default();
        let s = steadiness_so_far(&load.course, &question);
        let done = s.verdict == Verdict::Steady;
        load.verdict = Some(s);
        if done {
            break;
        }
    }
    let regimes = load.regimes(o.round.as_secs_f64());
    let recovery = match &regimes {
        Some(r) if o.recovery > Nanos::ZERO && !steps.runner.bench.interrupted() => {
            recovery::measure(steps, &options, r)?
        }
        _ => None,
    };
    Ok(ConditionResult {
        round: o.round,
        test: o.test,
        load,
        regimes,
        recovery,
    })
}

/// What the load showed once the pieces were done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConditionResult {
    /// Length of a round.
    round: Nanos,
    /// Length of the planned test.
    test: Nanos,
    load: Load,
    /// Burst and base, where there are two levels.
    regimes: Option<Regimes>,
    /// What idle time gives back, where it was measured.
    recovery: Option<recovery::Recovery>,
}

/// The load's rounds as they were seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Its rounds' jobs.
    jobs: Vec<usize>,
    /// Bytes per second of each round.
    pub(crate) course: Vec<f64>,
    /// Temperature at the end of each round, °C.
    celsius: Vec<Option<f64>>,
    /// Media over host writes of each round.
    ratios: Vec<Option<f64>>,
    /// Bytes written in all rounds.
    written: u64,
    /// The disk's word before the next round.
    #[serde(skip)]
    health: Option<Health>,
    /// fathom's verdict.
    verdict: Option<Steadiness>,
}

impl Load {
    /// Takes a round; `false` where it failed.
    fn take(&mut self, index: usize, job: &Job, health: Option<Health>) -> bool {
        if !job.errors.is_empty() {
            return false;
        }
        self.jobs.push(index);
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

    /// The write ratio of every round since the disk first told it (two words make one ratio), and how many came before.
    fn ratios_of_all(&self) -> Option<(usize, Vec<f64>)> {
        let first = self.ratios.iter().position(Option::is_some)?;
        let all: Option<Vec<f64>> = self.ratios[first..].iter().copied().collect();
        Some((first, all?))
    }

    /// Garbage collection that set in: the rate fell while internal writes rose.
    fn collected(&self) -> Option<Collected> {
        const RISE_MIN: f64 = 1.2;
        const FALL_MIN: f64 = 0.15;
        let (first, ratios) = self.ratios_of_all()?;
        let part = (ratios.len() / 10).max(3).min(ratios.len());
        let ends = |x: &[f64]| {
            let mean = |x: &[f64]| x.iter().sum::<f64>() / part as f64;
            [mean(&x[..part]), mean(&x[x.len() - part..])]
        };
        let (rate, ratio) = (ends(&self.course[first..]), ends(&ratios));
        let set_in = ratio[1] >= RISE_MIN * ratio[0] && rate[1] <= (1.0 - FALL_MIN) * rate[0];
        set_in.then_some(Collected { rate, ratio })
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

/// Means of the first and of the last tenth of the rounds (three at least).
struct Collected {
    /// Bytes per second.
    rate: [f64; 2],
    /// Internal writes per byte written.
    ratio: [f64; 2],
}

/// Runs the steps of a plan.
pub(crate) struct Steps<'a> {
    pub(crate) runner: Runner<'a>,
    direct: bool,
    settled: Option<Settled>,
    pub(crate) o: &'a ConditionOptions,
}

impl Steps<'_> {
    /// Empties the range by a way that is no job; whether that was done, or `None` where the run has to end. A way that nobody
    /// named may fail: discards are next.
    fn purge(&mut self) -> Result<Option<bool>, NotebookError> {
        let (how, range) = (self.o.purging, self.o.range);
        let counts = |s: &Settled| match how.named {
            true => s.method == Some(how.method),
            false => s.method.is_some(),
        };
        if let Some(s) = self.settled.filter(counts) {
            let method = s.method.unwrap_or(how.method);
            purge::keep(&mut self.runner, EXPERIMENT, s.as_purge(method, range))?;
            return Ok(Some(true));
        }
        let failed = match purge::by_device(&mut self.runner, EXPERIMENT, how, range)? {
            Ended::Done => return Ok(Some(true)),
            Ended::Interrupted => return Ok(None),
            Ended::Not(failed) => failed,
        };
        let flags = &mut self.runner.book.run_mut().flags;
        if how.named {
            let remedy = "choose another way (--purge); what was there may be gone in part";
            flags.push(Flag::new(FlagCode::IoErrors, failed, remedy));
            return Ok(None);
        }
        let remedy = "name a way (--purge), or leave it out (--purge none)";
        let detail = format!("{failed}; everything was discarded instead");
        flags.push(Flag::new(FlagCode::NotChecked, detail, remedy));
        Ok(Some(false))
    }

    /// One job; `None` where someone asked to end.
    pub(crate) fn one(
        &mut self,
        name: &str,
        options: &[(&str, String)],
        experiment: &str,
    ) -> Result<Option<usize>, NotebookError> {
        let o = self.o;
        let mut spec = spec_of(name, options).map_err(BenchError::from)?;
        spec.direct = self.direct;
        if experiment == LOAD {
            spec.size.get_or_insert(Bytes(filled(o)));
            spec.time = Some(o.round);
            spec.window = Nanos((o.round.0 / 5).clamp(1_000_000, 100_000_000));
        }
        self.runner.of(experiment);
        self.runner.attempt(spec, name, 0)
    }
}

//! The load curve: closed loop over depth and threads, then open loop at shares of the maximum found.
//!
//! Points are chosen by what the last ones showed: depth doubles until throughput stands still, then the
//! gaps beside the best power close; open-loop rates are tenths of the maximum, then closer around the
//! knee. Repeats follow in alternating order, so that drift favours no point.

mod portrait;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Cell, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, defaults, percent};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_bench::runner::Runner;
use fathom_io::job::{BlockSizes, Rw};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Op};
use serde::{Deserialize, Serialize};

use crate::block_layer;
use crate::knee::{Load, mean};

/// Rounds that close the gaps around the knee in open loop; each adds at most two rates.
pub(crate) const OPEN_ROUNDS: u32 = 2;
/// Rounds that close the gaps around the best depth in closed loop.
const CLOSED_ROUNDS: u32 = 4;
/// A doubling that gains less than this has not helped; two in a row end the sweep.
const GAIN: f64 = 0.03;
/// Neighbours of the best depth are close enough at this ratio.
const CLOSE_DEPTHS: f64 = 1.06;
/// Rates of the open loop as shares of the maximum; the last one cannot be kept up, to show what then happens.
const SHARES: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05];
/// Buffers of the open loop's slots take at most this much, bytes.
const SLOTS_BYTES: u64 = 256 << 20;
/// Threads of a curve, at most.
const THREADS_MAX: u32 = 4;

/// What a curve is drawn of.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom curve                           random 4 KiB reads of a scratch file\n  fathom curve /dev/nvme0n1 --rw randread --profile standard\n  fathom curve . --rw randrw --read-share 70 --dry-run"
)]
pub struct CurveOptions {
    /// Pattern and direction, as in run
    #[arg(long, default_value = "randread")]
    pub rw: Rw,
    /// Block size
    #[arg(long, default_value = "4k")]
    pub bs: BlockSizes,
    /// Share of reads where the pattern mixes, percent
    #[arg(long, default_value = "70", value_parser = percent)]
    pub read_share: f64,
    /// Largest depth over all threads
    #[arg(long = "max-qd", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth_max: u32,
    /// Leave out the open loop
    #[arg(long = "closed-only", action = clap::ArgAction::SetFalse)]
    pub open: bool,
}

impl Default for CurveOptions {
    fn default() -> Self {
        defaults()
    }
}

/// The points of a curve: where each stands in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CurveResult {
    /// What it was drawn of.
    pub options: CurveOptions,
    /// By depth.
    pub closed: Vec<Point>,
    /// By rate.
    pub open: Vec<Point>,
}

impl ExperimentResult for CurveResult {
    const EXPERIMENT: &'static str = "curve";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let measured = Measured {
            closed: evidence.cells(&self.closed),
            open: evidence.cells(&self.open),
        };
        shown.add(portrait::analyse(
            &measured,
            &self.options,
            evidence.run().seed,
        ));
    }
}

/// What there is to analyse.
pub(crate) struct Measured {
    /// By depth.
    pub(crate) closed: Vec<Cell>,
    /// By rate.
    pub(crate) open: Vec<Cell>,
}

impl Measurement for CurveOptions {
    const NAME: &'static str = "curve";
    const ON_HOSTS: bool = true;
    const KEEPS_CPU: bool = true;
    const WEIGHTED: bool = true;

    fn modifies(&self) -> bool {
        self.rw.modifies()
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let doublings = self.depth_max.max(1).ilog2() + 1;
        let one = closed(plan, self, 1)?;
        // What the middle of the sweep asks for is what most of it takes.
        let one = closed(plan, self, self.depth_max.clamp(1, 16)).unwrap_or(one);
        let repeats = plan.profile.repeats;
        let mut o = RunCost::filling(fills);
        // The knee is most often found before the greatest depth, and a round closes one gap.
        o.phase("closed loop").add_up_to(
            &one,
            (doublings + 2 * CLOSED_ROUNDS) * repeats,
            (doublings + CLOSED_ROUNDS).saturating_sub(3).max(1) * repeats,
        );
        if self.open {
            let rates = SHARES.len() as u32;
            o.phase("open loop").add_up_to(
                &one,
                (rates + 2 * OPEN_ROUNDS) * repeats,
                (rates + OPEN_ROUNDS) * repeats,
            );
        }
        o.join(block_layer::run_cost(plan, &[one.clone(), one]));
        Ok(o)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut runner = self.begin(bench, plan, book, sink)?;
        let mut depths = Vec::new();
        let mut rates = Vec::new();
        let mut going = sweep(&mut runner, plan, self, &mut depths)?;
        if going && self.open {
            going = rates_of(&mut runner, plan, self, &depths, &mut rates)?;
        }
        if going {
            let closed = depths.len();
            let mut all = depths;
            all.append(&mut rates);
            runner.fill_up(&mut all, plan.profile.repeats)?;
            rates = all.split_off(closed);
            depths = all;
        }
        let rate_at = |p: &Point| seen(&runner, p).map_or(0.0, |l| l.rate);
        let most = depths
            .iter()
            .max_by(|a, b| rate_at(a).total_cmp(&rate_at(b)));
        // What the block layer costs is asked where nothing waits, and where the most goes through it.
        let both_ways: Vec<JobSpec> = depths
            .iter()
            .take(1)
            .chain(most.filter(|p| depth_of(&p.spec) > 1))
            .map(|p| p.spec.clone())
            .collect();
        runner.end();
        depths.sort_by_key(|p| depth_of(&p.spec));
        let rate = |p: &Point| p.spec.rate.unwrap_or(0.0);
        rates.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        book.found(&CurveResult {
            options: self.clone(),
            closed: depths,
            open: rates,
        })?;
        block_layer::run(bench, plan, &both_ways, book, sink)
    }
}

/// The closed loop: doubles the depth until that no longer helps, then closes in on the best power.
fn sweep(
    runner: &mut Runner<'_>,
    plan: &Plan,
    options: &CurveOptions,
    points: &mut Vec<Point>,
) -> Result<bool, NotebookError> {
    let mut depth = 1;
    let mut last = 0.0;
    let mut idle = 0;
    while depth <= options.depth_max {
        if !add_depth(runner, plan, options, points, depth)? {
            return Ok(false);
        }
        let rate = points
            .last()
            .and_then(|p| seen(runner, p))
            .map_or(0.0, |l| l.rate);
        idle = if rate < last * (1.0 + GAIN) {
            idle + 1
        } else {
            0
        };
        if idle == 2 {
            break;
        }
        last = f64::max(rate, last);
        depth *= 2;
    }
    for _ in 0..CLOSED_ROUNDS {
        let mut known: Vec<Load> = points.iter().filter_map(|p| seen(runner, p)).collect();
        known.sort_by(|a, b| a.set.total_cmp(&b.set));
        let mut added = false;
        for depth in depths_beside_best(&known) {
            let before = points.len();
            if !add_depth(runner, plan, options, points, depth)? {
                return Ok(false);
            }
            added |= points.len() > before;
        }
        if !added {
            break;
        }
    }
    Ok(true)
}

/// Measures a depth once, where it is not there yet.
fn add_depth(
    runner: &mut Runner<'_>,
    plan: &Plan,
    options: &CurveOptions,
    points: &mut Vec<Point>,
    depth: u32,
) -> Result<bool, NotebookError> {
    let spec = closed(plan, options, depth).map_err(BenchError::from)?;
    if points.iter().any(|p| p.spec.name == spec.name) {
        return Ok(true);
    }
    let mut point = Point::new(spec);
    let going = runner.repeat(&mut point)?;
    points.push(point);
    Ok(going)
}

/// The depths half way (in ratio) between the best and its neighbours, where these are not close yet.
fn depths_beside_best(known: &[Load]) -> Vec<u32> {
    let Some(best) =
        (0..known.len()).max_by(|a, b| known[*a].power().total_cmp(&known[*b].power()))
    else {
        return Vec::new();
    };
    let mut depths = Vec::new();
    for beside in [best.checked_sub(1), Some(best + 1)].into_iter().flatten() {
        let Some(other) = known.get(beside) else {
            continue;
        };
        let (low, high) = (
            known[best].set.min(other.set),
            known[best].set.max(other.set),
        );
        if high / low > CLOSE_DEPTHS {
            depths.push((low * high).sqrt().round() as u32);
        }
    }
    depths
}

/// The open loop: tenths of the maximum, then closer around the knee.
fn rates_of(
    runner: &mut Runner<'_>,
    plan: &Plan,
    options: &CurveOptions,
    depths: &[Point],
    points: &mut Vec<Point>,
) -> Result<bool, NotebookError> {
    let seen_depths: Vec<(Load, &JobSpec)> = depths
        .iter()
        .filter_map(|p| Some((seen(runner, p)?, &p.spec)))
        .collect();
    let capacity = seen_depths.iter().map(|l| l.0.rate).fold(0.0, f64::max);
    // The fewest threads that (almost) reach the maximum: the open loop needs no more.
    let Some(threads) = seen_depths
        .iter()
        .filter(|l| l.0.rate >= 0.98 * capacity && capacity > 0.0)
        .map(|l| l.1.threads)
        .min()
    else {
        return Ok(true);
    };
    let mut shares = SHARES.to_vec();
    for round in 0..=OPEN_ROUNDS {
        for share in shares.drain(..) {
            let spec = open(plan, options, threads, share, capacity).map_err(BenchError::from)?;
            let mut point = Point::new(spec);
            let going = runner.repeat(&mut point)?;
            points.push(point);
            if !going {
                return Ok(false);
            }
        }
        if round < OPEN_ROUNDS {
            let known: Vec<Load> = points.iter().filter_map(|p| seen(runner, p)).collect();
            shares = between_best(&known, capacity);
        }
    }
    Ok(true)
}

/// Shares of the maximum half way between the best power and its neighbours.
pub(crate) fn between_best(known: &[Load], capacity: f64) -> Vec<f64> {
    let mut known: Vec<&Load> = known.iter().collect();
    known.sort_by(|a, b| a.set.total_cmp(&b.set));
    let Some(best) =
        (0..known.len()).max_by(|a, b| known[*a].power().total_cmp(&known[*b].power()))
    else {
        return Vec::new();
    };
    [best.checked_sub(1), Some(best + 1)]
        .into_iter()
        .flatten()
        .filter_map(|i| known.get(i))
        .map(|other| (other.set + known[best].set) / 2.0 / capacity)
        .collect()
}

fn base(plan: &Plan, options: &CurveOptions, name: &str) -> Result<JobSpec, JobError> {
    let mut spec = plan.job(
        name,
        &[("rw", options.rw.word()), ("bs", &options.bs.to_string())],
    )?;
    spec.read_share = options.read_share;
    Ok(spec)
}

/// A point of the closed loop: one rule along the curve, a thread for each outstanding I/O until the threads are used up. A
/// step from one thread to several would be one of the processors', and look as if latency fell with the load. Depths of
/// several threads are whole multiples of the threads.
fn closed(plan: &Plan, options: &CurveOptions, depth: u32) -> Result<JobSpec, JobError> {
    let threads = plan.threads.clamp(1, THREADS_MAX).min(depth.max(1));
    let qd = (f64::from(depth) / f64::from(threads)).round().max(1.0) as u32;
    let mut spec = base(plan, options, &format!("curve-qd{}", qd * threads))?;
    (spec.qd, spec.threads) = (qd, threads);
    Ok(spec)
}

/// A point of the open loop: Poisson arrivals, and slots enough that the schedule is the only limit.
fn open(
    plan: &Plan,
    options: &CurveOptions,
    threads: u32,
    share: f64,
    capacity: f64,
) -> Result<JobSpec, JobError> {
    let mut spec = base(plan, options, &format!("curve-open-{:.2}", 100.0 * share))?;
    let slots = slots(options.bs.max());
    (spec.qd, spec.threads) = ((slots / threads).max(1), threads);
    spec.rate = Some(share * capacity);
    Ok(spec)
}

/// Requests of this size that an open loop can have under way: enough that none waits for a buffer.
pub(crate) fn slots(bs: Bytes) -> u32 {
    (SLOTS_BYTES / bs.0.max(1)).clamp(1, 4096) as u32
}

pub(crate) fn depth_of(spec: &JobSpec) -> u32 {
    spec.qd * spec.threads
}

/// A point's mean over the repeats so far.
fn seen(runner: &Runner<'_>, point: &Point) -> Option<Load> {
    let cell = runner.cell(point);
    mean(loads(&cell, Latency::Response).iter())
}

/// Which latency.
#[derive(Clone, Copy)]
pub(crate) enum Latency {
    /// From the intended start.
    Response,
    /// From the hand-over.
    Service,
}

/// What the valid repeats of a cell measured.
pub(crate) fn loads(cell: &Cell, latency: Latency) -> Vec<Load> {
    let set = cell
        .spec
        .rate
        .unwrap_or_else(|| f64::from(depth_of(&cell.spec)));
    cell.valid()
        .filter_map(|job| {
            Some(Load {
                set,
                rate: job.iops(),
                latency: latency_of(job, latency)?,
            })
        })
        .collect()
}

/// Mean latency over reads, writes and trims, ns.
fn latency_of(job: &Job, latency: Latency) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0.0);
    for d in Op::ALL[..3].iter().filter_map(|op| job.direction(*op)) {
        let l = match latency {
            Latency::Response => &d.response_ns,
            Latency::Service => &d.service_ns,
        };
        if let Some(mean) = l.mean {
            sum += mean * d.ios as f64;
            n += d.ios as f64;
        }
    }
    (n > 0.0).then(|| sum / n)
}

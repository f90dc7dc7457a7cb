//! Capacity under a service level objective: the most requests per second whose percentile of the response stays within a limit.
//!
//! An open loop: requests come when they come (Poisson), and what makes one wait counts from the moment when it was due. A closed
//! loop slows down with the device, and would find its latency good (coordinated omission). Rates are shares of what a closed
//! loop does, then closer around the largest that holds.

mod present;
mod presets;

pub(crate) use present::{Judged, Step, words};

use clap::Args;
use clap::builder::PossibleValuesParser;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Cell, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::Measurement;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::Point;
use fathom_bench::runner::Runner;
use fathom_io::job::Rw;
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::summary::{LatencySummary, SAMPLES_BEYOND};
use fathom_telemetry::{Bytes, Histogram};
use fathom_telemetry::{Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::curve::slots;
pub use presets::{PRESETS, Preset};

/// First rates, as shares of what a closed loop does.
const LADDER: [f64; 6] = [0.1, 0.25, 0.5, 0.7, 0.85, 1.0];
/// Rates between the largest that holds and the next, or beyond what was tried.
const CLOSER: u32 = 4;
/// Rates that are tried, at most.
pub(crate) const MOST_RUNGS: u32 = LADDER.len() as u32 + CLOSER;
/// Rates that a search mostly does without.
pub(crate) const SPARED: u32 = 2;
/// Rates so near each other are told apart by nobody.
const NEAR: f64 = 1.05;
/// Beyond rates that hold all, and below rates of which none does, the next is so many times as far.
const BEYOND: f64 = 1.5;
/// Share of a rate that has to be answered for it to be carried.
const ANSWERED: f64 = 0.95;
/// Standard deviations that chance hardly ever takes away from a rate.
const SCATTER: f64 = 3.0;
/// Standard deviations of a 95 % interval.
const Z: f64 = 1.96;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom slo                              8 KiB, 70 % reads: how many with a 99th percentile of at most 5 ms\n  fathom slo /srv/db --preset log         commits per second with a 99th percentile of at most 10 ms\n  fathom slo /dev/nvme0n1 --preset ai-loading --latency 20ms\n  fathom slo . --rw randread --bs 16k --percentile 99.9 --latency 1ms"
)]
pub struct SloOptions {
    /// Load and objective by name, or one of fathom.toml; what follows replaces parts of it
    #[arg(long, default_value = "oltp", value_parser = PossibleValuesParser::new(PRESETS.iter().map(|p| p.name)))]
    pub preset: String,
    /// read, write, rw, randread, randwrite or randrw
    #[arg(long)]
    pub rw: Option<Rw>,
    /// Block size, or sizes with weights: 4k:70,64k:30
    #[arg(long, value_name = "SIZE")]
    pub bs: Option<String>,
    /// Share of reads of rw and randrw
    #[arg(long, value_name = "PERCENT")]
    pub read_share: Option<String>,
    /// none, fsync[:N] or fdatasync[:N]: after every N writes
    #[arg(long, value_name = "POLICY")]
    pub sync: Option<String>,
    /// Percentile of the objective: 50, 90, 99, 99.9 or 99.99
    #[arg(long, value_name = "PERCENT")]
    pub percentile: Option<f64>,
    /// What it may be at most
    #[arg(long, value_name = "DURATION")]
    pub latency: Option<Nanos>,
    /// Outstanding requests of the closed loop that says where rates begin
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qd: u32,
    /// Before the names of jobs, where one run has them on several targets
    #[arg(skip)]
    #[serde(skip)]
    pub prefix: String,
}

/// What is promised: of requests of each direction, this percentile is at most so long.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Objective {
    pub(crate) percentile: f64,
    pub(crate) limit: Nanos,
}

impl SloOptions {
    fn preset(&self) -> &'static Preset {
        let named = PRESETS.iter().find(|p| p.name == self.preset);
        named.unwrap_or(&PRESETS[0])
    }

    pub(crate) fn objective(&self) -> Objective {
        let preset = self.preset();
        Objective {
            percentile: self.percentile.unwrap_or(preset.percentile),
            limit: self.latency.unwrap_or(preset.limit),
        }
    }

    pub(crate) fn rw(&self) -> Rw {
        self.rw.unwrap_or(self.preset().rw)
    }

    /// Block sizes, share of reads, sync: each given, or the preset's.
    fn parts(&self) -> [&str; 3] {
        let preset = self.preset();
        [
            self.bs.as_deref().unwrap_or(preset.bs),
            self.read_share.as_deref().unwrap_or(preset.reads),
            self.sync.as_deref().unwrap_or(preset.sync),
        ]
    }

    /// The load, without depth or rate.
    fn load(&self, plan: &Plan, name: &str) -> Result<JobSpec, JobError> {
        let ([bs, reads, sync], rw) = (self.parts(), self.rw());
        let mut options = vec![("rw", rw.word()), ("bs", bs)];
        if rw.reads() && rw.writes() {
            options.push(("read-share", reads));
        }
        if rw.writes() {
            options.push(("sync", sync));
        }
        plan.job(&format!("{}{name}", self.prefix), &options)
    }

    pub(crate) fn closed(&self, plan: &Plan) -> Result<JobSpec, JobError> {
        let mut spec = self.load(plan, "closed-loop")?;
        spec.qd = self.qd;
        Ok(spec)
    }

    pub(crate) fn at(&self, plan: &Plan, rate: f64) -> Result<Rung, JobError> {
        let mut spec = self.load(plan, &format!("rate-{rate:.1}"))?;
        spec.rate = Some(rate);
        spec.qd = slots(spec.bs.max());
        Ok(Rung {
            rate,
            point: Point::new(spec),
        })
    }
}

impl Measurement for SloOptions {
    const NAME: &'static str = "slo";
    const ON_HOSTS: bool = true;
    const KEEPS_CPU: bool = true;

    fn check(&self) -> Result<(), String> {
        let objective = self.objective();
        if objective.of(&LatencySummary::default()).is_none() {
            return Err(format!(
                "--percentile {}: expected 50, 90, 99, 99.9 or 99.99",
                objective.percentile
            ));
        }
        if objective.limit == Nanos::ZERO {
            return Err("--latency 0: expected a time above 0, such as 5ms".into());
        }
        Ok(())
    }

    fn modifies(&self) -> bool {
        self.rw().modifies()
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let mut cost = RunCost::filling(fills);
        cost.phase("capacity").add(&self.closed(plan)?, 1);
        // Beside what a closed loop does, rates are at most so much more. The search ends before the last of them, mostly.
        cost.phase("rates");
        let repeats = plan.profile.repeats;
        let (most, mostly) = (MOST_RUNGS * repeats, (MOST_RUNGS - SPARED) * repeats);
        cost.add_up_to(&self.closed(plan)?, most, mostly);
        Ok(cost)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut runner = self.begin(bench, plan, book, sink)?;
        let result = self.search(&mut runner, plan, None)?;
        runner.end();
        book.found(&result)
    }
}

impl SloOptions {
    /// Looks for the largest rate that holds. A `demand` is one of the rates, unless it is far beyond what a closed loop does.
    ///
    /// # Errors
    /// Where the bench or the run directory fails.
    pub(crate) fn search(
        &self,
        runner: &mut Runner<'_>,
        plan: &Plan,
        demand: Option<f64>,
    ) -> Result<SloResult, NotebookError> {
        let spec = self.closed(plan).map_err(BenchError::from)?;
        let closed = runner.one(spec, "closed-loop", 0)?;
        let most = closed.map_or(0.0, |job| runner.job(job).iops());
        let mut rungs = Vec::new();
        if most > 0.0 {
            let demand = demand.filter(|d| *d <= BEYOND * most);
            let mut rates: Vec<f64> = LADDER.iter().map(|share| share * most).collect();
            // One rate for two that nobody tells apart.
            rates.retain(|r| demand.is_none_or(|d| (r / d).max(d / r) > NEAR));
            rates.extend(demand);
            rates.sort_by(f64::total_cmp);
            let rates = rates.iter().map(|rate| self.at(plan, *rate));
            rungs = rates.collect::<Result<_, _>>().map_err(BenchError::from)?;
            self.climb(runner, plan, &mut rungs)?;
        }
        Ok(SloResult {
            objective: self.objective(),
            load: self.words(),
            source: self.source(),
            closed,
            rungs,
        })
    }

    /// Tries the rates, then closer around the largest that holds.
    fn climb(
        &self,
        runner: &mut Runner<'_>,
        plan: &Plan,
        rungs: &mut Vec<Rung>,
    ) -> Result<(), NotebookError> {
        let repeats = plan.profile.repeats;
        let mut points: Vec<Point> = rungs.iter().map(|r| r.point.clone()).collect();
        let going = runner.fill_up(&mut points, repeats)?;
        for (rung, point) in rungs.iter_mut().zip(points) {
            rung.point = point;
        }
        if !going {
            return Ok(());
        }
        let objective = self.objective();
        for _ in 0..CLOSER {
            let verdicts = rungs
                .iter()
                .map(|r| r.holds(&runner.cell(&r.point), objective));
            let Some(rate) = next(rungs, &verdicts.collect::<Vec<_>>()) else {
                break;
            };
            let mut rung = self.at(plan, rate).map_err(BenchError::from)?;
            let going = runner.fill_up(std::slice::from_mut(&mut rung.point), repeats)?;
            let at = rungs.partition_point(|r| r.rate < rate);
            rungs.insert(at, rung);
            if !going {
                break;
            }
        }
        Ok(())
    }

    /// `randrw of 8k, 70 % reads`.
    pub(crate) fn words(&self) -> String {
        let ([bs, reads, sync], rw) = (self.parts(), self.rw());
        let mut words = format!("{} of {bs}", rw.word());
        if rw.reads() && rw.writes() {
            words += &format!(", {reads} % reads");
        }
        if rw.writes() && sync != "none" {
            words += &format!(", {sync}");
        }
        words
    }

    /// Where the load and the objective come from.
    fn source(&self) -> String {
        let own = self.rw.is_some()
            || self.bs.is_some()
            || self.read_share.is_some()
            || self.sync.is_some();
        let preset = self.preset();
        match own {
            true => "the command line".into(),
            false => format!("{}: {}", preset.name, preset.source),
        }
    }
}

/// The rate to be tried next, by what those that were tried have shown; none where nothing is left to be told.
fn next(rungs: &[Rung], holds: &[Option<bool>]) -> Option<f64> {
    let carried = carried(holds);
    let low = carried.map(|k| rungs[k].rate);
    let high = rungs.get(carried.map_or(0, |k| k + 1)).map(|r| r.rate);
    match (low, high) {
        (Some(low), Some(high)) => (high / low > NEAR).then(|| (low * high).sqrt()),
        (Some(low), None) => Some(low * BEYOND),
        (None, Some(high)) => Some(high / BEYOND / BEYOND),
        (None, None) => None,
    }
}

/// The largest rate that holds together with all below it. Too few requests at low rates to show anything say nothing
/// against it.
fn carried(holds: &[Option<bool>]) -> Option<usize> {
    let broken = holds.iter().position(|h| *h == Some(false));
    (0..broken.unwrap_or(holds.len()))
        .rev()
        .find(|k| holds[*k] == Some(true))
}

/// A rate and its repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rung {
    /// Requests per second that come.
    pub(crate) rate: f64,
    pub(crate) point: Point,
}

impl Objective {
    /// The percentile of a job, ns: the outer `None` where no such percentile is kept.
    fn of(&self, summary: &LatencySummary) -> Option<Option<u64>> {
        let known = [
            (50.0, summary.p50),
            (90.0, summary.p90),
            (99.0, summary.p99),
            (99.9, summary.p99_9),
            (99.99, summary.p99_99),
        ];
        let found = known.iter().find(|k| (k.0 - self.percentile).abs() < 1e-9);
        found.map(|k| k.1)
    }

    /// Whether responses keep within the limit, by the interval that their number gives the percentile; `None` where it
    /// contains the limit, or where they are too few.
    fn kept(&self, responses: &Histogram) -> Option<bool> {
        let (q, n) = (self.percentile / 100.0, responses.count() as f64);
        if n * (1.0 - q) < SAMPLES_BEYOND as f64 {
            return None;
        }
        let half = Z * (q * (1.0 - q) / n).sqrt();
        let limit = self.limit.0;
        if responses.quantile((q + half).min(1.0))? <= limit {
            return Some(true);
        }
        (responses.quantile((q - half).max(0.0))? > limit).then_some(false)
    }
}

impl Rung {
    /// Whether the rate is answered within the objective in every repeat; `None` where that was not shown.
    pub(crate) fn holds(&self, cell: &Cell, objective: Objective) -> Option<bool> {
        let jobs: Vec<_> = cell.valid().collect();
        if jobs.is_empty() || jobs.len() < cell.repeats.len() {
            return None;
        }
        // Of requests at random moments, chance brings fewer now and then (Poisson's standard deviation).
        let came = jobs.iter().map(|j| {
            let seconds = Nanos(j.wall_ns).as_secs_f64().max(1e-9);
            let chance = SCATTER * (self.rate / seconds).sqrt();
            j.iops() >= ANSWERED * self.rate - chance
        });
        let came: Vec<bool> = came.collect();
        if !came.contains(&true) {
            return Some(false);
        }
        let mut all = Some(!came.contains(&false)).filter(|all| *all);
        for op in [Op::Read, Op::Write, Op::Sync] {
            let Some(responses) = &cell.merged[op as usize] else {
                continue;
            };
            if responses.is_empty() {
                continue;
            }
            // What one repeat says for itself must not contradict what all say together.
            let each = jobs
                .iter()
                .filter_map(|j| objective.of(&j.direction(op)?.response_ns)?);
            let within: Vec<bool> = each.map(|v| v <= objective.limit.0).collect();
            match objective.kept(responses) {
                Some(false) if !within.contains(&true) => return Some(false),
                Some(true) if !within.contains(&false) => {}
                _ => all = None,
            }
        }
        all
    }
}

/// The rates that were tried, and where each stands in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SloResult {
    pub(crate) objective: Objective,
    /// For people.
    pub(crate) load: String,
    pub(crate) source: String,
    /// The job that rates began from.
    closed: Option<usize>,
    /// By rate, ascending.
    pub(crate) rungs: Vec<Rung>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_bench::measurement::defaults;
    use fathom_bench::profile::Profile;
    use fathom_io::job::Limits;

    #[test]
    fn a_rate_is_carried_with_all_below_it() {
        let (yes, no, open) = (Some(true), Some(false), None);
        assert_eq!(carried(&[yes, yes, no, no]), Some(1));
        assert_eq!(
            carried(&[yes, no, yes]),
            Some(0),
            "luck above a broken rate is none"
        );
        assert_eq!(
            carried(&[open, yes, open, no]),
            Some(1),
            "too few at a low rate"
        );
        assert_eq!(carried(&[no, yes]), None);
        assert_eq!(carried(&[open]), None);
        assert_eq!(carried(&[]), None);
    }

    #[test]
    fn percentiles_that_are_not_kept_are_refused() {
        let with = |percentile| SloOptions {
            percentile: Some(percentile),
            ..defaults()
        };
        for known in [50.0, 90.0, 99.0, 99.9, 99.99] {
            with(known).check().unwrap();
        }
        for unknown in [0.0, 95.0, 100.0, f64::NAN] {
            assert!(with(unknown).check().unwrap_err().contains("--percentile"));
        }
        let now = SloOptions {
            latency: Some(Nanos::ZERO),
            ..defaults()
        };
        assert!(now.check().unwrap_err().contains("--latency"));
    }

    #[test]
    fn an_interval_that_contains_the_limit_shows_nothing() {
        let objective = Objective {
            percentile: 99.0,
            limit: Nanos(1000),
        };
        let of = |below: u64, above: u64| {
            let mut h = Histogram::new();
            h.record_n(500, below);
            h.record_n(5000, above);
            objective.kept(&h)
        };
        assert_eq!(of(10_000, 0), Some(true));
        assert_eq!(of(9_950, 50), Some(true), "half of a percent");
        assert_eq!(of(9_900, 100), None, "just about one percent");
        assert_eq!(of(9_700, 300), Some(false));
        assert_eq!(of(500, 0), None, "five beyond the percentile");
    }

    #[test]
    fn every_preset_is_a_load_that_can_run() {
        let plan = Plan {
            limits: Limits {
                size: 1 << 30,
                direct_align: 512,
                hosts: 1,
            },
            profile: Profile::named("quick").unwrap(),
            seed: 1,
            threads: 1,
            direct: true,
            wears: true,
            commands: false,
        };
        for preset in PRESETS {
            let options = SloOptions {
                preset: preset.name.into(),
                ..defaults()
            };
            options.check().unwrap();
            for spec in [
                options.closed(&plan).unwrap(),
                options.at(&plan, 1000.0).unwrap().point.spec,
            ] {
                assert_eq!(spec.rw, preset.rw);
                spec.validate(&plan.limits).unwrap();
            }
            assert!(options.source().contains(preset.name));
        }
    }
}

//! What a load needs: how much of it a target carries, how far that is from what is asked, how long that lasts while it grows, and which of
//! several targets carries it at which price.
//!
//! Capacity is that of [`crate::slo`]: the largest rate of an open loop whose percentile keeps within a limit. What is
//! claimed is checked at rates that were not looked at while it was found, on every target.

mod load;
mod present;

use clap::Args;
use fathom_bench::SimBench;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::Measurement;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::profile::Profile;
use fathom_bench::progress::ProgressSink;
use fathom_bench::runner::Runner;
use fathom_io::JobError;
use fathom_sim::{SimError, SimTarget};
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::slo::{MOST_RUNGS, Rung, SPARED, SloOptions, SloResult};
use load::Load;

/// Shares of the first target's capacity at which all are held against what was said of them.
const HELD_OUT: [f64; 3] = [0.35, 0.65, 0.95];
/// Other models, as likely as a fitted one, whose capacity is looked for too.
const LIKELY: u32 = 8;
/// Devices side by side that are tried, at most.
const WIDEST: u32 = 24;

/// What is planned.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  fathom plan sim:intel-s3510 --demand 12000 --growth 5      8 KiB, 70 % reads, p99 of at most 5 ms\n  fathom plan /srv/db --load fathom-runs/20261120T120000Z-watch --growth 3\n  fathom plan /srv/db --demand 4000 --beside sim:intel-p3700 --beside sim:raid10:4xintel-s3510 --prices 0,900,640\n  fathom plan sim:model.toml --preset log --demand 300"
)]
pub struct PlanOptions {
    /// Load and objective.
    #[command(flatten)]
    slo: SloOptions,
    /// What the load is, and how much of it comes: a run of fathom watch, a trace that fathom replay reads, or a job file (.toml)
    #[arg(long, value_name = "FILE", value_parser = load::read)]
    load: Option<Load>,
    /// Requests per second that are asked for, instead of those of --load
    #[arg(long, value_name = "RATE")]
    demand: Option<f64>,
    /// By how much that grows, percent a month
    #[arg(long, value_name = "PERCENT")]
    growth: Option<f64>,
    /// A model or an array of models to be held beside the target (sim:…); may be given several times
    #[arg(long, value_name = "SIM")]
    beside: Vec<String>,
    /// Prices of the target and of each --beside, in that order, all in one currency
    #[arg(long, value_name = "PRICE", value_delimiter = ',')]
    prices: Vec<f64>,
}

impl PlanOptions {
    /// Load and objective: what the command line says, then what was read, then the preset.
    fn slo(&self) -> SloOptions {
        let mut slo = self.slo.clone();
        if let Some(load) = &self.load {
            slo.rw.get_or_insert(load.rw);
            slo.bs.get_or_insert_with(|| load.bs.clone());
            slo.read_share.get_or_insert_with(|| load.reads.clone());
            slo.sync.get_or_insert_with(|| load.sync.clone());
        }
        slo
    }

    fn demand(&self) -> Option<Demand> {
        let given = self
            .demand
            .map(|rate| (rate, "the command line".to_owned()));
        let read = || {
            let load = self.load.as_ref()?;
            Some((load.rate?, load.source.clone()))
        };
        let (rate, from) = given.or_else(read)?;
        Some(Demand { rate, from })
    }
}

/// Requests per second that are asked for, and who says so.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Demand {
    rate: f64,
    from: String,
}

/// What was found of one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Planned {
    /// As it was named.
    target: String,
    /// What it is.
    description: String,
    /// Whether its numbers come from a model.
    simulated: bool,
    price: Option<f64>,
    found: SloResult,
    /// Rates that were not tried while capacity was looked for.
    held_out: Vec<Rung>,
    /// The same of other models that are as likely, where the target is a fitted one.
    #[serde(default)]
    likely: Vec<SloResult>,
    /// Where one is not enough: so many of them side by side, at the rate that is asked for.
    wider: Vec<Wider>,
}

/// Devices that share the requests (RAID 0).
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Wider {
    devices: u32,
    rung: Rung,
}

/// The plan: every target, the one that was named first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanResult {
    demand: Demand,
    /// Percent a month.
    growth: Option<f64>,
    targets: Vec<Planned>,
}

/// The plan of another target: what it can hold, and that it is no file.
fn plan_of(bench: &dyn Bench, plan: &Plan) -> Plan {
    Plan {
        limits: bench.limits(),
        direct: true,
        ..plan.clone()
    }
}

/// Whether a target is a fitted model, whose fit leaves something open.
fn is_open(target: &str) -> bool {
    let known = SimTarget::is_simulated(target).then(|| SimTarget::parse(target));
    let fit = known.and_then(|t| t.ok()?.model.fit);
    fit.is_some_and(|f| !f.parameters.is_empty())
}

fn sim_error(e: SimError) -> NotebookError {
    BenchError::from(e).into()
}

impl Measurement for PlanOptions {
    const NAME: &'static str = "plan";
    const KEEPS_CPU: bool = true;

    fn check(&self) -> Result<(), String> {
        self.slo().check()?;
        let positive = |option: &str, v: Option<f64>| match v {
            Some(v) if !(v > 0.0 && v.is_finite()) => {
                Err(format!("{option} {v}: expected a number above 0"))
            }
            _ => Ok(()),
        };
        positive("--demand", self.demand)?;
        positive("--growth", self.growth)?;
        let Some(demand) = self.demand() else {
            return Err("nothing says how much is asked for: give --demand 5000 (requests per second), or --load FILE that has a rate".into());
        };
        positive(&format!("the rate of {}:", demand.from), Some(demand.rate))?;
        for target in &self.beside {
            if !SimTarget::is_simulated(target) {
                return Err(format!(
                    "--beside {target}: expected a model (sim:NAME or sim:FILE.toml): measure another real target with a run of its own"
                ));
            }
            SimTarget::parse(target).map_err(|e| format!("--beside {target}: {e}"))?;
        }
        let targets = self.beside.len() + 1;
        if !self.prices.is_empty() && self.prices.len() != targets {
            return Err(format!(
                "--prices: {} given for {targets} targets: expected one for each, in their order",
                self.prices.len()
            ));
        }
        match self.prices.iter().find(|p| !(**p >= 0.0 && p.is_finite())) {
            Some(p) => Err(format!("--prices {p}: expected amounts of 0 or more")),
            None => Ok(()),
        }
    }

    fn modifies(&self) -> bool {
        self.slo().rw().modifies()
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let closed = self.slo().closed(plan)?;
        let mut cost = RunCost::filling(fills);
        // One more is the rate that is asked for.
        let repeats = plan.profile.repeats;
        let of = |rungs: u32| 1 + (rungs + 1) * repeats;
        let (most, mostly) = (of(MOST_RUNGS), of(MOST_RUNGS - SPARED));
        let held_out = HELD_OUT.len() as u32 * repeats;
        cost.phase("capacity").add_up_to(&closed, most, mostly);
        cost.phase("rates that are held out").add(&closed, held_out);
        // Models beside it take no time of this target's.
        for name in &self.beside {
            cost.phase(&format!("capacity of {name}"))
                .on(name.clone())
                .work(most + held_out, Nanos::ZERO, Bytes(0));
            cost.simulated_as(&closed, mostly + held_out);
        }
        Ok(cost)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut slo = self.slo();
        let Some(demand) = self.demand() else {
            return Ok(());
        };
        let mut targets = Vec::new();
        let mut rates = None;
        {
            let mut runner = self.begin(bench, plan, book, sink)?;
            let first = self.one(&slo, &mut runner, plan, demand.rate, &mut rates)?;
            runner.end();
            targets.push(first);
        }
        let control = bench.control();
        for (i, name) in self.beside.iter().enumerate() {
            slo.prefix = format!("{}-", i + 2);
            if control.interrupted() {
                break;
            }
            let mut other = SimBench::open(name, control.clone()).map_err(sim_error)?;
            let plan = plan_of(&other, plan);
            let mut runner = self.begin(&mut other, &plan, book, sink)?;
            let one = self.one(&slo, &mut runner, &plan, demand.rate, &mut rates)?;
            runner.end();
            targets.push(one);
        }
        for (i, target) in targets.iter_mut().enumerate() {
            target.price = self.prices.get(i).copied();
            slo.prefix = format!("{}-", i + 1);
            if is_open(&target.target) && !control.interrupted() {
                self.likely(&slo, target, (plan, &control), (book, sink))?;
            }
            let short = target.judged(&book.evidence()).short_of(demand.rate);
            if let Some(times) = short.filter(|_| !control.interrupted()) {
                self.widen(&slo, target, times, &demand, (plan, &control), (book, sink))?;
            }
        }
        book.found(&PlanResult {
            demand,
            growth: self.growth,
            targets,
        })
    }
}

impl PlanOptions {
    /// Capacity of a target, then rates between those that were tried: shares of what the first one carries.
    fn one(
        &self,
        slo: &SloOptions,
        runner: &mut Runner<'_>,
        plan: &Plan,
        demand: f64,
        rates: &mut Option<[f64; 3]>,
    ) -> Result<Planned, NotebookError> {
        let found = slo.search(runner, plan, Some(demand))?;
        let capacity = found.judged(&runner.book.evidence()).capacity();
        if rates.is_none() {
            *rates = capacity.map(|c| HELD_OUT.map(|share| share * c.value));
        }
        let mut held_out: Vec<Rung> = Vec::new();
        for rate in rates.iter().flatten() {
            let mut rung = slo.at(plan, *rate).map_err(BenchError::from)?;
            rung.point.spec.name = format!("{}held-out-{rate:.1}", slo.prefix);
            held_out.push(rung);
        }
        let mut points: Vec<_> = held_out.iter().map(|r| r.point.clone()).collect();
        runner.fill_up(&mut points, plan.profile.repeats)?;
        for (rung, point) in held_out.iter_mut().zip(points) {
            rung.point = point;
        }
        let target = runner.bench.describe();
        Ok(Planned {
            target: target.place().to_owned(),
            description: target.description,
            simulated: runner.bench.simulated(),
            price: None,
            found,
            held_out,
            likely: Vec::new(),
            wider: Vec::new(),
        })
    }

    /// Capacity of models that are as likely as a fitted one: what the fit leaves open is part of the answer.
    fn likely(
        &self,
        slo: &SloOptions,
        target: &mut Planned,
        (plan, control): (&Plan, &fathom_io::Control),
        (book, sink): (&mut Notebook, &mut dyn ProgressSink),
    ) -> Result<(), NotebookError> {
        let once = Profile {
            repeats: 1,
            ..plan.profile
        };
        for draw in 1..=LIKELY {
            let name = format!("{},draw={draw}", target.target);
            let mut bench = SimBench::open(&name, control.clone()).map_err(sim_error)?;
            let plan = Plan {
                profile: once,
                ..plan_of(&bench, plan)
            };
            let slo = SloOptions {
                prefix: format!("{}as-likely-{draw}-", slo.prefix),
                ..slo.clone()
            };
            let mut runner = self.begin(&mut bench, &plan, book, sink)?;
            target.likely.push(slo.search(&mut runner, &plan, None)?);
            runner.end();
            if control.interrupted() {
                break;
            }
        }
        Ok(())
    }

    /// Tries so many of a single model side by side, from `times` on, until they hold what is asked for.
    fn widen(
        &self,
        slo: &SloOptions,
        target: &mut Planned,
        times: f64,
        demand: &Demand,
        (plan, control): (&Plan, &fathom_io::Control),
        (book, sink): (&mut Notebook, &mut dyn ProgressSink),
    ) -> Result<(), NotebookError> {
        let Some(model) = target.target.strip_prefix("sim:") else {
            return Ok(());
        };
        let first = times.ceil().max(2.0) as u32;
        for devices in first..first + 3 {
            let name = format!("sim:raid0:{devices}x{model}");
            // Of what is an array already no other is made.
            if devices > WIDEST || SimTarget::parse(&name).is_err() {
                break;
            }
            let mut array = SimBench::open(&name, control.clone()).map_err(sim_error)?;
            let plan = plan_of(&array, plan);
            let mut rung = slo.at(&plan, demand.rate).map_err(BenchError::from)?;
            rung.point.spec.name = format!("{}{devices}-side-by-side", slo.prefix);
            let mut runner = self.begin(&mut array, &plan, book, sink)?;
            runner.fill_up(std::slice::from_mut(&mut rung.point), plan.profile.repeats)?;
            let holds = rung.holds(&runner.cell(&rung.point), slo.objective());
            runner.end();
            target.wider.push(Wider { devices, rung });
            if holds == Some(true) {
                break;
            }
        }
        Ok(())
    }
}

//! What a host feels of others that load the same target: its latency at a steady, modest rate, alone and beside 1, 2, 3 …
//! hosts that ask for as much as they can get.
//!
//! The host that is measured runs an open loop: its I/Os are due at moments of its own, and what makes it wait counts
//! from them. Its rate is a share of what it does alone with one request at a time, so that it waits for itself but little.

mod present;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, one_direction};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::Point;
use fathom_bench::runner::Runner;
use fathom_bench::schedule;
use fathom_io::job::{BlockSizes, HostSpan, Rw};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

use crate::curve::slots;
use crate::scale::steps;

/// Share of what the measured host does alone, closed loop, one at a time.
const LOAD: f64 = 0.5;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom neighbour /mnt/shared --hosts n1,n2,n3,n4                    4 KiB of n1 beside 64 KiB of the others\n  fathom neighbour /mnt/shared --hosts nodes.txt --load randwrite --qd 32 --rate 500\n  fathom neighbour sim:samsung-960pro --hosts 8"
)]
pub struct NeighbourOptions {
    /// What the measured host, the first one, does: randread or randwrite, read or write
    #[arg(long, default_value = "randread")]
    pub rw: Rw,
    /// Size of its requests
    #[arg(long, default_value = "4k", value_name = "SIZE")]
    pub bs: BlockSizes,
    /// Its requests per second [default: half of what it does alone, one at a time]
    #[arg(long, value_name = "IOPS")]
    pub rate: Option<f64>,
    /// What the others do
    #[arg(long, default_value = "randread")]
    pub load: Rw,
    /// Size of their requests
    #[arg(long, default_value = "64k", value_name = "SIZE")]
    pub load_bs: BlockSizes,
    /// Outstanding requests of each of them
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qd: u32,
}

impl NeighbourOptions {
    fn alone(&self, plan: &Plan) -> Result<JobSpec, JobError> {
        let bs = self.bs.to_string();
        let mut spec = plan.job("alone", &[("rw", self.rw.word()), ("bs", &bs)])?;
        spec.on_hosts = Some(HostSpan::new(1, 1));
        Ok(spec)
    }

    /// A step for each number of neighbours; none runs yet.
    fn beside(&self, plan: &Plan, rate: f64) -> Result<Vec<Beside>, JobError> {
        let (load_bs, qd) = (self.load_bs.to_string(), self.qd.to_string());
        let options = [("rw", self.load.word()), ("bs", &load_bs), ("qd", &qd)];
        let step = |n: u32| {
            let mut measured = self.alone(plan)?;
            measured.name = format!("beside-{n}");
            measured.rate = Some(rate);
            measured.qd = slots(self.bs.max());
            let load = match n {
                0 => None,
                n => {
                    let mut load = plan.job(&format!("load-{n}"), &options)?;
                    load.on_hosts = Some(HostSpan::new(2, n + 1));
                    // What a job may write is said for one host.
                    load.bytes = load.bytes.map(|b| Bytes(b.0.saturating_mul(u64::from(n))));
                    Some(Point::new(load))
                }
            };
            Ok(Beside {
                neighbours: n,
                measured: Point::new(measured),
                load,
            })
        };
        let hosts = plan.limits.hosts;
        let counts = steps("neighbour", hosts, &[])?;
        let counts = counts.into_iter().filter(|n| *n < hosts);
        let mut counts: Vec<u32> = [0].into_iter().chain(counts).collect();
        if counts.last() != Some(&(hosts - 1)) {
            counts.push(hosts - 1);
        }
        counts.into_iter().map(step).collect()
    }
}

impl Measurement for NeighbourOptions {
    const NAME: &'static str = "neighbour";
    const ON_HOSTS: bool = true;

    fn check(&self) -> Result<(), String> {
        one_direction("--rw", self.rw)?;
        one_direction("--load", self.load)?;
        match self.rate {
            Some(rate) if !(rate > 0.0 && rate <= 1e9) => Err(format!(
                "--rate: {rate} is no rate: expected I/Os per second above 0"
            )),
            _ => Ok(()),
        }
    }

    fn modifies(&self) -> bool {
        self.rw.modifies() || self.load.modifies()
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let mut cost = RunCost::filling(fills);
        if self.rate.is_none() {
            cost.phase("the neighbour's rate");
            cost.add(&self.alone(plan)?, 1);
        }
        cost.phase("alone and beside each other");
        for step in self.beside(plan, self.rate.unwrap_or(1.0))? {
            cost.add(&step.measured.spec, plan.profile.repeats);
            if let Some(load) = &step.load {
                cost.add_beside(&load.spec, plan.profile.repeats);
            }
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
        let mut runner = self.begin(bench, plan, book, sink)?;
        let mut alone = None;
        let rate = match self.rate {
            Some(rate) => Some(rate),
            None => {
                let spec = self.alone(plan).map_err(BenchError::from)?;
                alone = runner.one(spec, "alone", 0)?;
                alone.and_then(|job| half(&runner, job))
            }
        };
        let mut steps = Vec::new();
        if let Some(rate) = rate {
            steps = self.beside(plan, rate).map_err(BenchError::from)?;
            take_turns(&mut runner, &mut steps, plan.profile.repeats)?;
        }
        runner.end();
        book.found(&NeighbourResult {
            options: self.clone(),
            alone,
            steps,
        })
    }
}

/// Half of a job's rate; none where nothing was completed.
fn half(runner: &Runner<'_>, job: usize) -> Option<f64> {
    let rate = runner.job(job).iops();
    (rate > 0.0).then_some(rate * LOAD)
}

fn take_turns(
    runner: &mut Runner<'_>,
    steps: &mut [Beside],
    repeats: u32,
) -> Result<(), NotebookError> {
    for round in 0..repeats {
        for k in schedule::turns(steps.len(), round) {
            let step = &mut steps[k];
            let load = step.load.iter().map(|p| p.spec.clone());
            let group: Vec<JobSpec> = [step.measured.spec.clone()]
                .into_iter()
                .chain(load)
                .collect();
            let Some(jobs) = runner.group(&group, round)? else {
                return Ok(());
            };
            step.measured.jobs.extend(jobs.first());
            if let Some(load) = &mut step.load {
                load.jobs.extend(jobs.get(1));
            }
            if runner.ended() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The measured host beside so many.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Beside {
    neighbours: u32,
    measured: Point,
    load: Option<Point>,
}

/// Where each number of neighbours stands in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NeighbourResult {
    options: NeighbourOptions,
    /// The job that the rate was taken from.
    alone: Option<usize>,
    /// By number of neighbours, ascending.
    steps: Vec<Beside>,
}

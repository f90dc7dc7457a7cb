//! How throughput and latency grow with the number of hosts that load one target.
//!
//! The same load on 1, 2, 3, 4, 6, 8 … hosts of a fleet, in turns. The universal scalability law
//! ([`fathom_stats::scalability`]) is fitted to all numbers of hosts, and, to see whether it holds, to all but the largest: what it
//! then says of the largest was not used to find it.

mod present;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, one_direction};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::Point;
use fathom_io::JobError;
use fathom_io::job::{BlockSizes, HostSpan, Rw};
use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom scale /mnt/shared --hosts n1,n2,n3,n4         random reads on 1, 2, 3 and 4 hosts\n  fathom scale /mnt/shared --hosts nodes.txt --rw write --bs 1m --qd 4\n  fathom scale sim:samsung-960pro --hosts 8            eight simulated hosts that share a model"
)]
pub struct ScaleOptions {
    /// read, write, randread or randwrite
    #[arg(long, default_value = "randread")]
    pub rw: Rw,
    /// Size of a request
    #[arg(long, default_value = "4k", value_name = "SIZE")]
    pub bs: BlockSizes,
    /// Outstanding requests of each host
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qd: u32,
    /// Numbers of hosts, such as 1,2,4 [default: 1, 2, 3, 4, 6, 8, 12 … and all]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: Vec<u32>,
}

/// Numbers of hosts, ascending: those that were `asked` for, or 1, 2, 3, 4, 6, 8, 12 … and all.
///
/// # Errors
/// With fewer than two hosts, or fewer than asked for.
pub(crate) fn steps(name: &str, hosts: u32, asked: &[u32]) -> Result<Vec<u32>, JobError> {
    let refused = |option: &str, message: String| JobError::Value {
        option: option.into(),
        message,
    };
    if hosts < 2 {
        return Err(refused(
            "--hosts",
            format!("{name} compares numbers of hosts: name at least two"),
        ));
    }
    if let Some(more) = asked.iter().find(|s| **s > hosts) {
        return Err(refused(
            "--steps",
            format!("{more} of {hosts} hosts: name more with --hosts"),
        ));
    }
    let mut steps = asked.to_vec();
    if steps.is_empty() {
        let doubled = (0..u32::BITS - 1).map(|p| 1u32 << p);
        let usual = doubled.flat_map(|n| [n, n + n / 2]);
        steps = usual.filter(|n| *n <= hosts).chain([hosts]).collect();
    }
    steps.sort_unstable();
    steps.dedup();
    Ok(steps)
}

impl ScaleOptions {
    /// A point for each number of hosts.
    fn points(&self, plan: &Plan) -> Result<Vec<Point>, JobError> {
        let (bs, qd) = (self.bs.to_string(), self.qd.to_string());
        let options = [("rw", self.rw.word()), ("bs", &bs), ("qd", &qd)];
        let point = |n: &u32| {
            let mut spec = plan.job(&format!("hosts-{n}"), &options)?;
            spec.on_hosts = Some(HostSpan::new(1, *n));
            // What a job may write is said for one host.
            spec.bytes = spec.bytes.map(|b| Bytes(b.0.saturating_mul(u64::from(*n))));
            Ok(Point::new(spec))
        };
        let steps = steps(Self::NAME, plan.limits.hosts, &self.steps)?;
        steps.iter().map(point).collect()
    }
}

impl Measurement for ScaleOptions {
    const NAME: &'static str = "scale";
    const ON_HOSTS: bool = true;

    fn check(&self) -> Result<(), String> {
        one_direction("--rw", self.rw)
    }

    fn modifies(&self) -> bool {
        self.rw.modifies()
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        Ok(RunCost::of(
            fills,
            &self.points(plan)?,
            plan.profile.repeats,
        ))
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let points = self.points(plan).map_err(BenchError::from)?;
        let points = self.measure(points, (bench, plan), book, sink)?;
        book.found(&ScaleResult {
            options: self.clone(),
            points,
        })
    }
}

/// Where each number of hosts stands in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScaleResult {
    options: ScaleOptions,
    /// By number of hosts, ascending.
    points: Vec<Point>,
}

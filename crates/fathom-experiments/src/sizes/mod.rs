//! The size ladder: one request after another in sizes that double, and the size from which on bytes cost more than
//! requests do.
//!
//! Where a request of n bytes takes t₀ + n/b, throughput divided by latency is largest at n = t₀·b: the knee. Below it a
//! request pays for itself, above it for its bytes; at it half of the bandwidth is reached (Hockney and Jesshope, "Parallel
//! Computers", 1981, call it n½). No such law is assumed: the knee is taken from the measured sizes around the best.

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
use fathom_io::job::Rw;
use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom sizes                            random reads of 4 KiB to 4 MiB, one at a time\n  fathom sizes . --rw write --to 16m      writes of a scratch file\n  fathom sizes /dev/nvme0n1 --rw read --qd 8"
)]
pub struct SizesOptions {
    /// read, write, randread or randwrite
    #[arg(long, default_value = "randread")]
    pub rw: Rw,
    /// Smallest request
    #[arg(long, default_value = "4k", value_name = "SIZE")]
    pub from: Bytes,
    /// Largest request; at most a sixteenth of the range is used
    #[arg(long, default_value = "4m", value_name = "SIZE")]
    pub to: Bytes,
    /// Outstanding requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub qd: u32,
}

impl SizesOptions {
    /// A point for each size.
    fn points(&self, plan: &Plan) -> Result<Vec<Point>, JobError> {
        let most = self.to.0.min(plan.limits.size / 16).max(self.from.0);
        let sizes = std::iter::successors(Some(self.from.0), |n| n.checked_mul(2));
        let point = |size: u64| {
            let (bs, qd) = (size.to_string(), self.qd.to_string());
            let options = [("rw", self.rw.word()), ("bs", &bs), ("qd", &qd)];
            Ok(Point::new(plan.job(&format!("size-{bs}"), &options)?))
        };
        sizes.take_while(|n| *n <= most).map(point).collect()
    }
}

impl Measurement for SizesOptions {
    const NAME: &'static str = "sizes";
    const ON_HOSTS: bool = true;
    const KEEPS_CPU: bool = true;

    fn check(&self) -> Result<(), String> {
        one_direction("--rw", self.rw)?;
        if !self.from.0.is_power_of_two() || self.from.0 < 512 || self.to.0 < 4 * self.from.0 {
            return Err(format!(
                "--from {} and --to {}: expected a power of two from 512 on, and at least four times as much",
                self.from, self.to
            ));
        }
        Ok(())
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
        book.found(&SizesResult {
            options: self.clone(),
            points,
        })
    }
}

/// The ladder: where each size stands in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SizesResult {
    options: SizesOptions,
    /// By size, ascending.
    points: Vec<Point>,
}

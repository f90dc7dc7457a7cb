//! Zones of a zoned device (ZNS, SMR): what they are, throughput by the number of open zones, appends against writes, the time
//! of resets and finishes, reads of what was written, and what the device says beyond its limits.
//!
//! Every job is one that `fathom run` could do: writes at the write pointers with one I/O in each open zone, appends as NVMe
//! commands, resets and finishes as operations with a latency of their own. Zones are reset between jobs, untimed.

mod present;
mod work;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::Measurement;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::Point;
use fathom_host::{Zone, ZoneLimits, ZoneState};
use fathom_io::JobError;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom zones /dev/nvme0n2 --report                what zones there are, and reads of what is written\n  fathom zones /dev/nvme0n2 --destroy SERIAL-ns2    resets zones, writes, appends, resets again\n  fathom zones /dev/sdb --destroy SERIAL --size 64g only the zones of the first 64 GiB"
)]
pub struct ZonesOptions {
    /// Report the zones and read what is written in them; nothing is written or reset
    #[arg(long)]
    pub report: bool,
    /// Size of a write or append; less where the device takes less at once
    #[arg(long, default_value = "128k", value_name = "SIZE")]
    pub bs: Bytes,
    /// Size of a random read
    #[arg(long, default_value = "4k", value_name = "SIZE")]
    pub read_bs: Bytes,
    /// Most zones written at the same time; fewer where the device has a lower limit
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub most_open: u32,
    /// Most appends under way in one zone
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub most_appends: u32,
    /// Leave what was written in the zones instead of resetting them at the end
    #[arg(long)]
    pub keep: bool,
}

/// 1, 2, 4, … and `most` itself.
fn doubling(most: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1u32), |n| n.checked_mul(2));
    let mut all: Vec<u32> = powers.take_while(|n| *n < most).collect();
    all.push(most.max(1));
    all
}

/// How many zones are reset and finished for a distribution, at most.
const MANAGED: u32 = 64;

impl ZonesOptions {
    fn write_points(&self, plan: &Plan, bs: u64, most: u32) -> Result<Vec<Point>, JobError> {
        let point = |n: u32| {
            let (bs, n) = (bs.to_string(), n.to_string());
            let options = [("rw", "write"), ("bs", &bs), ("qd", &n), ("open-zones", &n)];
            Ok(Point::new(plan.job(&format!("open-{n}"), &options)?))
        };
        doubling(most).into_iter().map(point).collect()
    }

    /// A write of one zone past the block layer, then appends to one zone by their depth.
    fn append_points(&self, plan: &Plan, bs: u64) -> Result<Vec<Point>, JobError> {
        let bs = bs.to_string();
        let common = [
            ("rw", "write"),
            ("engine", "uring-cmd"),
            ("bs", &bs),
            ("open-zones", "1"),
        ];
        let mut all = vec![Point::new(plan.job("write-command", &common)?)];
        for depth in doubling(self.most_appends) {
            let depth = depth.to_string();
            let more = [("command", "append"), ("qd", &depth)];
            let options: Vec<_> = common.iter().copied().chain(more).collect();
            let name = format!("append-{depth}");
            all.push(Point::new(plan.job(&name, &options)?));
        }
        Ok(all)
    }

    fn read_points(&self, plan: &Plan, bs: u64) -> Result<Vec<Point>, JobError> {
        let job = |name: &str, rw: &str, bs: u64| {
            let bs = bs.to_string();
            Ok(Point::new(plan.job(name, &[("rw", rw), ("bs", &bs)])?))
        };
        Ok(vec![
            job("read-sequential", "read", bs)?,
            job("read-random", "randread", self.read_bs.0)?,
        ])
    }

    /// Operations on zones: resets of written ones, finishes of hardly written ones, resets of those.
    fn managing_points(&self, plan: &Plan) -> Result<Vec<Point>, JobError> {
        let job = |name: &str, command: &str| {
            let ios = MANAGED.to_string();
            let options = [
                ("rw", "trim"),
                ("engine", "preadv"),
                ("command", command),
                ("ios", &ios),
            ];
            let mut spec = plan.job(name, &options)?;
            // Nothing is written by them, and each zone comes once.
            (spec.bytes, spec.ramp) = (None, Nanos::ZERO);
            Ok(Point::new(spec))
        };
        Ok(vec![
            job("reset-written", "zone-reset")?,
            job("finish", "zone-finish")?,
            job("reset-finished", "zone-reset")?,
        ])
    }
}

impl Measurement for ZonesOptions {
    const NAME: &'static str = "zones";
    const ON_ZONES: bool = true;

    fn check(&self) -> Result<(), String> {
        for (name, size) in [("--bs", self.bs), ("--read-bs", self.read_bs)] {
            if !size.0.is_power_of_two() || size.0 < 512 || size.0 > 16 << 20 {
                return Err(format!(
                    "{name}: {size} is not possible: expected a power of two from 512 bytes to 16 MiB"
                ));
            }
        }
        Ok(())
    }

    fn fits(&self, bench: &dyn Bench) -> Result<(), String> {
        match bench.zones() {
            Some(_) => Ok(()),
            None => Err(format!(
                "{} has no zones: name a zoned block device (fathom devices says 'zoned host-managed' or 'host-aware')",
                bench.describe().name
            )),
        }
    }

    fn modifies(&self) -> bool {
        !self.report
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let mut cost = RunCost::filling(fills);
        let repeats = plan.profile.repeats;
        let bs = self.bs.0.min(plan.limits.size);
        if !self.report {
            cost.phase("writes and appends");
            let mut all = self.write_points(plan, bs, self.most_open)?;
            all.extend(self.append_points(plan, bs)?);
            for point in &all {
                cost.add(&point.spec, repeats);
            }
            cost.phase("resets and finishes");
            for point in self.managing_points(plan)? {
                cost.add(&point.spec, repeats);
                // What they are done to is written by a job before each.
                cost.add_beside(&all[0].spec, repeats);
            }
            cost.phase("filling for reads");
            cost.add(&all[0].spec, 1);
        }
        cost.phase("reads");
        for point in self.read_points(plan, bs)? {
            cost.add(&point.spec, repeats);
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
        let most = self.run_cost(plan, Bytes(0)).map_err(BenchError::from)?;
        let result = work::run(self, (bench, plan), book, sink, most.jobs())?;
        book.found(&result)
    }
}

/// What zones a device has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    /// Its limits.
    pub limits: ZoneLimits,
    /// All zones, and those without a write pointer.
    pub zones: u64,
    /// See above.
    pub conventional: u64,
    /// Bytes of a zone that can be written; of the first one with a write pointer.
    pub capacity: u64,
    /// Zones by their state, before anything was done.
    pub states: Vec<(ZoneState, u64)>,
    /// Bytes written since their last resets, before anything was done.
    pub written: u64,
}

impl Found {
    fn of(limits: ZoneLimits, zones: &[Zone]) -> Self {
        let mut states: Vec<(ZoneState, u64)> = Vec::new();
        for z in zones {
            match states.iter_mut().find(|s| s.0 == z.state) {
                Some(s) => s.1 += 1,
                None => states.push((z.state, 1)),
            }
        }
        let sequential = || zones.iter().filter(|z| z.is_sequential());
        Self {
            limits,
            zones: zones.len() as u64,
            conventional: (zones.len() - sequential().count()) as u64,
            capacity: sequential().next().map_or(0, |z| z.capacity),
            states,
            written: sequential().map(Zone::written).sum(),
        }
    }
}

/// What the device said when one more was asked of it than it allows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Beyond {
    /// Of open or of active zones.
    pub active: bool,
    /// The limit.
    pub limit: u32,
    /// How many were open or active when it said no; `limit` where it kept its word.
    pub reached: u32,
    /// Its error number and what that means; `None` where it allowed one more.
    pub said: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZonesResult {
    options: ZonesOptions,
    found: Found,
    /// Bytes of a write, as the device takes it.
    bs: u64,
    /// Zones that the jobs used, and what is left in them.
    used: u64,
    left_written: bool,
    /// By zones open at a time, ascending.
    writes: Vec<Point>,
    /// A write of one zone as a command, then appends by depth; none where there are no appends.
    appends: Vec<Point>,
    /// Why there are none.
    no_appends: Option<String>,
    /// Resets and finishes.
    managed: Vec<Point>,
    /// Sequential, random; none where nothing is written.
    reads: Vec<Point>,
    /// What happened beyond the limits.
    beyond: Vec<Beyond>,
}

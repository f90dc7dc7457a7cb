//! What was seen of a load: means and percentiles of each direction, with what their number and their repeats leave open.

use std::collections::BTreeMap;

use fathom_bench::{Bench, SimBench};
use fathom_io::driver::PlannedJob;
use fathom_io::job::{Distribution, Rw, SyncPolicy};
use fathom_io::{Control, JobSpec};
use fathom_sim::SimTarget;

use super::{JUDGED, NEAR};
use fathom_sim::model::Model;
use fathom_telemetry::schema::Job;
use fathom_telemetry::summary::LatencySummary;
use fathom_telemetry::{Bytes, Nanos, Op};

/// What is looked at: name, percentile (the mean has none), and how close histograms and models tell it (standard deviation
/// of its logarithm).
pub(super) const QUANTITIES: [(&str, f64, f64); 5] = [
    ("mean", 0.0, 0.002),
    ("p50", 0.5, 0.004),
    ("p90", 0.9, 0.004),
    ("p99", 0.99, 0.006),
    ("p99.9", 0.999, 0.01),
];
/// Place of the mean and of the 99th percentile among them.
pub(super) const MEAN: usize = 0;
pub(super) const P99: usize = 3;
/// Latencies that follow each other are alike: they say as much as this share of their number would.
const ALIKE: f64 = 0.25;

/// One number of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub(super) op: Op,
    /// Place in [`QUANTITIES`].
    pub(super) what: usize,
    /// Logarithm of the latency in ns.
    pub(super) ln: f64,
    /// Standard deviation of that.
    pub(super) sd: f64,
}

impl Seen {
    /// How close it can be told at all.
    pub(super) fn close(&self) -> f64 {
        QUANTITIES[self.what].2
    }
}

/// A load with everything that was seen of it.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) spec: JobSpec,
    pub(super) seen: Vec<Seen>,
    /// Of all directions.
    pub(super) iops: f64,
    /// How many were seen.
    pub(super) requests: f64,
}

impl Load {
    /// The only direction; `None` where there are both.
    pub(super) fn op(&self) -> Option<Op> {
        let rw = self.spec.rw;
        match (rw.reads(), rw.writes()) {
            (true, false) => Some(Op::Read),
            (false, true) => Some(Op::Write),
            _ => None,
        }
    }

    pub(super) fn block(&self) -> f64 {
        self.spec.bs.max().0 as f64
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.spec.qd * self.spec.threads
    }

    /// Mean of the first direction, ns.
    pub(super) fn mean_ns(&self) -> f64 {
        let mean = self.seen.iter().find(|s| s.what == MEAN);
        mean.map_or(f64::NAN, |s| s.ln.exp())
    }

    /// `RandRead 4 KiB, 2 x 8`.
    pub(super) fn words(&self) -> String {
        let s = &self.spec;
        let share = match self.op() {
            None => format!(", {} % reads", s.read_share),
            Some(_) => String::new(),
        };
        let size = Bytes(s.bs.max().0);
        format!("{:?} {size}{share}, {} x {}", s.rw, s.threads, s.qd)
    }
}

/// What a summary says, in the order of [`QUANTITIES`]: logarithm and its standard deviation.
fn values(summary: &LatencySummary) -> [Option<(f64, f64)>; 5] {
    let n = summary.samples as f64 * ALIKE;
    let ln = |v: Option<u64>| v.filter(|v| *v > 0).map(|v| (v as f64).ln());
    let quantiles = [
        ln(summary.p50),
        ln(summary.p90),
        ln(summary.p99),
        ln(summary.p99_9),
        ln(summary.p99_99),
    ];
    let mut out = [None; 5];
    if let (Some(mean), Some(deviation)) = (summary.mean, summary.stddev)
        && mean > 0.0
    {
        out[MEAN] = Some((mean.ln(), deviation / mean / n.sqrt()));
    }
    for (i, (_, p, _)) in QUANTITIES.iter().enumerate().skip(1) {
        let Some(here) = quantiles[i - 1] else {
            continue;
        };
        // How steep the tail is there: against the logarithm of what lies beyond, towards the next one that is known.
        let beyond = |i: usize| [0.5f64, 0.1, 0.01, 0.001, 0.0001][i].ln();
        let steep = |a: usize, b: usize| {
            let (low, high) = (quantiles[a]?, quantiles[b]?);
            Some(((high - low) / (beyond(a) - beyond(b))).max(0.0))
        };
        let slope = steep(i - 1, i).or_else(|| steep(i.checked_sub(2)?, i - 1));
        let slope = slope.unwrap_or(0.2);
        out[i] = Some((here, slope * (p / ((1.0 - p) * n)).sqrt()));
    }
    out
}

/// Closed loops of direct I/O of one size without pauses, repeats put together.
pub(super) fn loads<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<Load> {
    let mut groups: BTreeMap<String, Vec<(&Job, JobSpec)>> = BTreeMap::new();
    for job in jobs {
        if let Some(spec) = closed_loop(job) {
            let key = format!(
                "{:?} {:?} {:04} {:04} {}",
                spec.rw, spec.bs, spec.threads, spec.qd, spec.read_share
            );
            groups.entry(key).or_default().push((job, spec));
        }
    }
    groups.into_values().filter_map(gathered).collect()
}

/// The repeats of one load.
fn gathered(group: Vec<(&Job, JobSpec)>) -> Option<Load> {
    let n = group.len() as f64;
    let mut seen = Vec::new();
    for op in [Op::Read, Op::Write] {
        let all: Vec<_> = (group.iter())
            .filter_map(|(job, _)| Some(values(&job.direction(op)?.service_ns)))
            .collect();
        for what in 0..QUANTITIES.len() {
            let each: Option<Vec<(f64, f64)>> = all.iter().map(|v| v[what]).collect();
            let Some(each) = each.filter(|e| !e.is_empty()) else {
                continue;
            };
            let r = each.len() as f64;
            let ln = each.iter().map(|e| e.0).sum::<f64>() / r;
            let within = each.iter().map(|e| e.1 * e.1).sum::<f64>() / r;
            let between = match each.len() {
                0..3 => 0.0,
                _ => each.iter().map(|e| (e.0 - ln).powi(2)).sum::<f64>() / (r - 1.0),
            };
            let sd = (within.max(between) / r).sqrt();
            seen.push(Seen { op, what, ln, sd });
        }
    }
    let iops = group.iter().map(|(job, _)| job.iops()).sum::<f64>() / n;
    let directions =
        |job: &Job| [Op::Read, Op::Write].map(|op| job.direction(op).map_or(0, |d| d.ios));
    let requests = group
        .iter()
        .flat_map(|(job, _)| directions(job))
        .sum::<u64>() as f64;
    let (_, spec) = group.into_iter().next()?;
    seen.iter().any(|s| s.what == MEAN).then_some(Load {
        spec,
        seen,
        iops,
        requests,
    })
}

fn closed_loop(job: &Job) -> Option<JobSpec> {
    let was: JobSpec = serde_json::from_value(job.spec.clone()).ok()?;
    let random = was.rw.is_random();
    let spec = JobSpec {
        // One load under one name: a point that was left out must be none that was fitted.
        rw: match (was.rw.reads() && was.rw.writes(), was.read_share) {
            (true, 100.0..) if random => Rw::RandRead,
            (true, 100.0..) => Rw::Read,
            (true, ..=0.0) if random => Rw::RandWrite,
            (true, ..=0.0) => Rw::Write,
            _ => was.rw,
        },
        bs: was.bs.clone(),
        qd: was.qd,
        threads: was.threads,
        ..JobSpec::default()
    };
    let spec = match spec.rw.reads() && spec.rw.writes() {
        true => JobSpec {
            read_share: was.read_share,
            ..spec
        },
        false => spec,
    };
    let data = (spec.rw.reads() || spec.rw.writes()) && was.bs.0.len() == 1;
    let closed = was.rate.is_none() && was.burst.is_none() && was.think == Nanos::ZERO;
    let plain = was.direct && was.sync == SyncPolicy::NONE && was.dist == Distribution::Uniform;
    // The driver and the experiments think in the depth that was asked for; so does the model.
    let deep = job.qd_requested == spec.qd * spec.threads && job.iops() > 0.0;
    let measured = !job.is_void() && job.experiment != "prepare";
    (data && closed && plain && deep && measured).then_some(spec)
}

/// Runs a load on a model for so long.
fn job_of(model: &Model, spec: &JobSpec, ns: u64, fast: bool, seed: u64) -> Option<Job> {
    let mut target = SimTarget::of(model.clone());
    (target.fast, target.exact) = (fast, true);
    let mut bench = SimBench::new(target, Control::new());
    let spec = JobSpec {
        time: Some(Nanos(ns.max(200_000))),
        ramp: Nanos(ns / 10),
        window: Nanos((ns / 10).max(1_000)),
        size: None,
        seed,
        ..spec.clone()
    };
    let planned = [PlannedJob::new(spec.validate(&bench.limits()).ok()?)];
    bench.run(&planned, None, &mut ()).ok()?.pop()
}

/// What a model shows of a load, number by number in its order, from about so many requests with random numbers of `seed`.
pub(super) fn simulated(
    model: &Model,
    load: &Load,
    requests: f64,
    seed: u64,
) -> Option<Vec<Option<(f64, f64)>>> {
    let n = requests.max(f64::from(load.outstanding()) * 30.0);
    let ns = (n / load.iops * 1e9) as u64;
    // The fast path is off by a few tenths of a percent: near enough on the way.
    let job = job_of(model, &load.spec, ns, requests < JUDGED, seed)?;
    let of = |op| job.direction(op).map(|d| values(&d.service_ns));
    let (read, write) = (of(Op::Read), of(Op::Write));
    let pick = |s: &Seen| match s.op {
        Op::Read => read?[s.what],
        _ => write?[s.what],
    };
    Some(load.seen.iter().map(pick).collect())
}

impl Load {
    /// A load as a model shows it, where nothing was measured.
    pub(super) fn of_model(model: &Model, spec: &JobSpec) -> Option<Self> {
        let short = job_of(model, spec, 20_000_000, true, 1)?;
        let ns = NEAR / short.iops().max(1.0) * 1e9;
        let job = job_of(model, spec, ns as u64, true, 1)?;
        gathered(vec![(&job, spec.clone())])
    }
}

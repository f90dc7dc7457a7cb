//! What experiments are made of: a plan of jobs, repeated, and cells of repeats to analyse.

use fathom_io::JobSpec;
use fathom_io::job::Limits;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Direction, Finding, Headline, Job, Section};
use fathom_telemetry::{Flag, Histogram, Nanos, Op};

use crate::profile::Profile;

/// What an experiment may count on when it plans.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of the target.
    pub limits: Limits,
    /// How long and how often.
    pub profile: Profile,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads for jobs that want several.
    pub threads: u32,
    /// Whether direct I/O is possible.
    pub direct: bool,
    /// Whether writing wears something out, so that it must be bounded; not so on `null:`.
    pub wears: bool,
    /// Whether it is an NVMe namespace that takes commands past the block layer, too, so that both ways can be compared.
    pub commands: bool,
}

impl Plan {
    /// A job of this plan: time, ramp and seed set, range of the whole target.
    pub fn job(
        &self,
        name: &str,
        options: &[(&str, &str)],
    ) -> Result<JobSpec, fathom_io::JobError> {
        let mut spec = JobSpec {
            name: name.to_owned(),
            time: Some(self.profile.job_time),
            ramp: self.profile.ramp,
            direct: self.direct,
            size: Some(fathom_telemetry::Bytes(self.limits.size)),
            ..JobSpec::default()
        };
        for (option, text) in options {
            spec.set(option, text)?;
        }
        if spec.rw.modifies() && self.wears {
            spec.bytes = Some(self.profile.write_cap(self.limits.size, spec.bs.max().0));
        }
        Ok(spec)
    }

    /// Outstanding I/Os of each thread, and threads, for `depth` in all. Shallow depths have one thread:
    /// several would only blur the depth; deep ones have several, so that no processor is the limit.
    pub fn shared_out(&self, depth: u32) -> (String, String) {
        const ONE_THREAD_BELOW: u32 = 8;
        let threads = if depth < ONE_THREAD_BELOW {
            1
        } else {
            self.threads.min(4).next_power_of_two()
        };
        ((depth / threads).to_string(), threads.to_string())
    }
}

/// One experiment of a survey.
pub trait Experiment: Sync {
    /// Stable name.
    fn id(&self) -> &'static str;
    /// The jobs of one repeat; names are stems that are unique in the experiment.
    fn jobs(&self, plan: &Plan) -> Result<Vec<JobSpec>, fathom_io::JobError>;
    /// Results from the repeats of every job, in the order of [`Experiment::jobs`].
    fn analyse(&self, cells: &[Cell]) -> Analysis;
}

/// What an experiment found.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    /// Charts and tables.
    pub section: Section,
    /// Numbers for the screen.
    pub headlines: Vec<Headline>,
    /// Sentences.
    pub findings: Vec<Finding>,
}

/// All repeats of one job.
pub struct Cell {
    /// Name without the number of the repeat.
    pub stem: String,
    /// The job.
    pub spec: JobSpec,
    /// Index in the run and measure of each repeat.
    pub repeats: Vec<(usize, Job)>,
    /// Response latency of all valid repeats, by operation.
    pub merged: [Option<Box<Histogram>>; 4],
}

impl Cell {
    /// Repeats whose numbers may be used. One in which nothing completed has none: a hole, not 0.
    pub fn valid(&self) -> impl Iterator<Item = &Job> {
        self.repeats
            .iter()
            .map(|r| &r.1)
            .filter(|j| !j.is_void() && data(j).any(|d| d.ios > 0))
    }

    /// Mean over valid repeats with its interval; `None` is a hole.
    pub fn estimate(&self, f: impl Fn(&Job) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.valid().filter_map(f).collect();
        Estimate::mean_of(&values)
    }

    /// Mean response latency of an operation, ns.
    pub fn latency(&self, op: Op) -> Option<Estimate> {
        self.estimate(|j| j.direction(op).and_then(|d| d.response_ns.mean))
    }

    /// I/Os per second over reads, writes and trims.
    pub fn iops(&self) -> Option<Estimate> {
        self.rate(Job::iops)
    }

    /// Bytes per second over reads, writes and trims.
    pub fn bandwidth(&self) -> Option<Estimate> {
        self.rate(|j| data(j).map(|d| d.bytes_per_second).sum())
    }

    /// A rate that was counted: no closer than whole I/Os allow.
    fn rate(&self, f: impl Fn(&Job) -> f64) -> Option<Estimate> {
        let mean = self.estimate(|j| Some(f(j)))?;
        let whole = self.valid().map(count_resolution).fold(0.0, f64::max);
        Some(mean.at_least(mean.value * whole))
    }

    /// Mean response latency over reads, writes and trims, ns.
    pub fn mean_latency(&self) -> Option<Estimate> {
        self.estimate(|j| {
            let n: u64 = data(j).map(|d| d.ios).sum();
            let sum: f64 = data(j)
                .filter_map(|d| Some(d.response_ns.mean? * d.ios as f64))
                .sum();
            (n > 0).then(|| sum / n as f64)
        })
    }

    /// A percentile over all repeats of an operation (histograms merged), ns, where enough samples lie beyond it.
    pub fn percentile(&self, op: Op, q: f64) -> Option<f64> {
        self.merged[op as usize]
            .as_ref()?
            .quantile_supported(q, fathom_telemetry::summary::SAMPLES_BEYOND)
            .map(|v| v as f64)
    }

    /// Indices of the jobs.
    pub fn indices(&self) -> Vec<usize> {
        self.repeats.iter().map(|r| r.0).collect()
    }

    /// What stands against the cell: one flag of each kind.
    pub fn flags(&self) -> Vec<Flag> {
        let mut flags: Vec<Flag> = Vec::new();
        for f in self.repeats.iter().flat_map(|r| &r.1.flags) {
            if !flags.iter().any(|g| g.code == f.code) {
                flags.push(f.clone());
            }
        }
        flags
    }

    /// How long one repeat measures.
    pub fn time(&self) -> Nanos {
        self.spec.time.unwrap_or(Nanos::ZERO)
    }
}

/// By which share of itself a job's rate may be wrong because I/Os are counted whole. Where all take the same time, all that
/// are outstanding may end at one moment, and as many fall to this side of an end of the measurement or to the other, in
/// every repeat alike. Where their times differ, those that follow each other drift apart as a walk does; once they have drifted
/// half of their time repeats show what ends where, and this is 0.
fn count_resolution(j: &Job) -> f64 {
    let ios: u64 = data(j).map(|d| d.ios).sum();
    let following = ios as f64 / f64::from(j.qd_requested.max(1));
    let alike = |d: &Direction| {
        let spread = d.service_ns.stddev.zip(d.service_ns.mean);
        d.ios == 0 || spread.is_some_and(|(s, m)| s * following.sqrt() <= 0.5 * m)
    };
    // An open loop's rate is that of its arrivals.
    match ios > 0 && j.open_loop.is_none() && data(j).all(alike) {
        true => f64::from(j.qd_requested.max(1)) / ios as f64,
        false => 0.0,
    }
}

fn data(j: &Job) -> impl Iterator<Item = &Direction> {
    [&j.read, &j.write, &j.trim].into_iter().flatten()
}

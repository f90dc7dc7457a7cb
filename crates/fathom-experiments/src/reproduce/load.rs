//! Loads on simulated targets: the papers' jobs, each run once and kept in the run like the jobs of any experiment.

use fathom_bench::{Bench, Notebook, SimBench};
use fathom_io::driver::PlannedJob;
use fathom_io::job::{BlockSizes, Rw};
use fathom_io::{Control, JobSpec};
use fathom_sim::SimTarget;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Nanos, Op};

use super::ReproduceError;

/// Where the loads of a reproduction run: the models, and the notebook that keeps the jobs.
pub struct Models<'a> {
    book: Option<&'a mut Notebook>,
    experiment: String,
    control: Control,
    /// What was measured already, by the job's name.
    known: Vec<(String, Measured)>,
}

impl<'a> Models<'a> {
    /// Jobs are kept in `book` under the name of the paper.
    pub fn kept_in(book: &'a mut Notebook, paper: &str, control: Control) -> Self {
        Self {
            book: Some(book),
            experiment: paper.to_owned(),
            control,
            known: Vec::new(),
        }
    }

    /// Only the values are wanted.
    pub fn unkept() -> Models<'static> {
        Models {
            book: None,
            experiment: String::new(),
            control: Control::new(),
            known: Vec::new(),
        }
    }

    /// Runs jobs at the same time on a bench and keeps them.
    pub(super) fn group(
        &mut self,
        bench: &mut dyn Bench,
        specs: &[JobSpec],
    ) -> Result<Vec<Job>, ReproduceError> {
        let limits = bench.limits();
        let planned = specs
            .iter()
            .map(|s| {
                Ok(PlannedJob {
                    experiment: self.experiment.clone(),
                    ..PlannedJob::new(s.validate(&limits)?)
                })
            })
            .collect::<Result<Vec<_>, ReproduceError>>()?;
        let failed = |e: &dyn std::fmt::Display| ReproduceError::Bench(e.to_string());
        if self.control.interrupted() {
            return Err(ReproduceError::Interrupted);
        }
        match &mut self.book {
            Some(book) => {
                let kept = book
                    .measure(bench, &planned, &mut |_| {})
                    .map_err(|e| failed(&e))?;
                Ok(kept.iter().map(|i| book.run().jobs[*i].clone()).collect())
            }
            None => bench.run(&planned, None, &mut ()).map_err(|e| failed(&e)),
        }
    }

    /// A bench of a simulated target.
    pub(super) fn open(&self, target: SimTarget) -> SimBench {
        SimBench::new(target, self.control.clone())
    }
}

/// A load on a simulated target.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) target: SimTarget,
    pub(super) rw: Rw,
    pub(super) block: u64,
    pub(super) threads: u32,
    pub(super) qd: u32,
    /// Percent, where reads and writes are mixed.
    pub(super) read_share: f64,
    pub(super) direct: bool,
    pub(super) size: u64,
    pub(super) ramp_ms: u64,
    pub(super) time_ms: u64,
}

impl Load {
    /// Random reads of 4 KiB, one thread, one outstanding, direct, 200 ms, over 20,000 MiB as in Zhang III-A.
    pub(super) fn on(name: &str) -> Result<Self, ReproduceError> {
        Ok(Self {
            target: SimTarget::parse(name)?,
            rw: Rw::RandRead,
            block: 4096,
            threads: 1,
            qd: 1,
            read_share: 50.0,
            direct: true,
            size: 20_000 << 20,
            ramp_ms: 10,
            time_ms: 200,
        })
    }
    pub(super) fn rw(self, rw: Rw) -> Self {
        Self { rw, ..self }
    }
    pub(super) fn block(self, block: u64) -> Self {
        Self { block, ..self }
    }
    pub(super) fn threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }
    pub(super) fn time(self, time_ms: u64) -> Self {
        Self { time_ms, ..self }
    }

    /// What the job is called: what runs where, and for how long.
    fn name(&self) -> String {
        let target = self.target.name.trim_start_matches("sim:");
        let target: String = target
            .chars()
            .map(|c| if ":,=/".contains(c) { '-' } else { c })
            .collect();
        let share = match self.rw {
            Rw::Mixed | Rw::RandMixed => format!("-{}", self.read_share),
            _ => String::new(),
        };
        format!(
            "{target}.{}{share}.{}k.{}x{}.{}.{}ms",
            self.rw,
            self.block >> 10,
            self.threads,
            self.qd,
            if self.direct { "direct" } else { "buffered" },
            self.time_ms
        )
    }

    /// Runs it on a fresh model; a load that ran already is not run again.
    pub(super) fn run(&self, models: &mut Models<'_>) -> Result<Measured, ReproduceError> {
        let name = self.name();
        if let Some((_, known)) = models.known.iter().find(|k| k.0 == name) {
            return Ok(*known);
        }
        let spec = JobSpec {
            name: name.clone(),
            rw: self.rw,
            bs: BlockSizes::one(self.block),
            threads: self.threads,
            qd: self.qd,
            read_share: self.read_share,
            direct: self.direct,
            size: Some(Bytes(self.size.min(self.target.size()))),
            time: Some(Nanos::from_millis(self.time_ms)),
            ramp: Nanos::from_millis(self.ramp_ms),
            window: Nanos::from_millis(10),
            ..JobSpec::default()
        };
        let mut bench = models.open(self.target.clone());
        let jobs = models.group(&mut bench, &[spec])?;
        let measured = jobs.first().map(Measured::of).unwrap_or_default();
        models.known.push((name, measured));
        Ok(measured)
    }
}

/// What a load gave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    pub(super) iops: f64,
    pub(super) mean_us: f64,
    pub(super) mb_per_s: f64,
}

impl Measured {
    /// Reads and writes together.
    pub(super) fn of(job: &Job) -> Self {
        let both = || {
            [Op::Read, Op::Write]
                .into_iter()
                .filter_map(|op| job.direction(op))
        };
        let iops: f64 = both().map(|d| d.iops).sum();
        let weighted: f64 = both()
            .map(|d| d.iops * d.service_ns.mean.unwrap_or(0.0))
            .sum();
        Self {
            iops,
            mean_us: weighted / iops.max(1e-9) / 1e3,
            mb_per_s: both().map(|d| d.bytes_per_second).sum::<f64>() / 1e6,
        }
    }
}

//! Loads of the table, and where those of the models run: kept in the run like the jobs of any experiment.

use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError, Notebook, SimBench};
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob};
use fathom_io::job::{Limits, Rw};
use fathom_io::{Control, JobSpec};
use fathom_sim::SimTarget;
use fathom_telemetry::schema::{Job, Target};
use fathom_telemetry::{Bytes, Op};

use super::ReproduceError;

/// Where loads run.
pub(super) trait Loads {
    /// What each group of a load gave.
    fn run(&mut self, load: &Load) -> Result<Vec<Seen>, ReproduceError>;
}

/// What a load gave, and what stands against it.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// NaN where every run is void.
    pub(super) measured: Measured,
    pub(super) note: String,
}

/// Where the loads of a reproduction run: the models, and the notebook that keeps the jobs.
pub struct Models<'a> {
    book: Option<&'a mut Notebook>,
    experiment: String,
    control: Control,
}

impl<'a> Models<'a> {
    /// Jobs are kept in `book` under the name of the paper.
    pub fn kept_in(book: &'a mut Notebook, paper: &str, control: Control) -> Self {
        Self {
            book: Some(book),
            experiment: paper.to_owned(),
            control,
        }
    }

    /// Only the values are wanted.
    pub fn unkept() -> Models<'static> {
        Models {
            book: None,
            experiment: String::new(),
            control: Control::new(),
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
}

impl Loads for Models<'_> {
    /// On a fresh model.
    fn run(&mut self, load: &Load) -> Result<Vec<Seen>, ReproduceError> {
        let Some(target) = load.target.clone() else {
            return Err(ReproduceError::Table(format!(
                "no model: {:?}",
                load.groups
            )));
        };
        let mut bench = Watched {
            inner: SimBench::new(target, self.control.clone()),
            lowest: f64::MAX,
        };
        let mut all = Vec::new();
        for jobs in &load.groups {
            let measured = self.group(&mut bench, jobs)?;
            let measured = measured.first().map(Measured::of).unwrap_or_default();
            all.push(Seen {
                measured: Measured {
                    lowest: bench.lowest,
                    ..measured
                },
                note: String::new(),
            });
        }
        Ok(all)
    }
}

/// A line's load, or one of its variants: groups of jobs one after another on one target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Load {
    /// The model; `None` on a target that is there.
    pub(super) target: Option<SimTarget>,
    /// Of two targets that are there, the second.
    pub(super) second: bool,
    /// Jobs of a group run at the same time; the first is the one that is looked at.
    pub(super) groups: Vec<Vec<JobSpec>>,
}

impl Load {
    /// `BASE | sim:MODEL option=value … + JOB ; GROUP`, each list in braces a variant; the word `second` in the place of a model is
    /// the second target.
    pub(super) fn all(text: &str) -> Result<Vec<Self>, ReproduceError> {
        match text.is_empty() {
            true => Ok(Vec::new()),
            false => variants(text).iter().map(|text| Self::one(text)).collect(),
        }
    }

    fn one(text: &str) -> Result<Self, ReproduceError> {
        let (base, own) = text.split_once('|').unwrap_or(("", text));
        let target = own.split_whitespace().find(|w| SimTarget::is_simulated(w));
        let target = target.map(SimTarget::parse).transpose()?;
        let second = own.split_whitespace().any(|w| w == "second");
        let job = |own: &str| -> Result<JobSpec, ReproduceError> {
            let mut spec = JobSpec {
                name: String::new(),
                ..JobSpec::default()
            };
            let words = base.split_whitespace().chain(own.split_whitespace());
            for (option, value) in words.filter_map(|w| w.split_once('=')) {
                if !option.starts_with("sim:") {
                    spec.set(option, value)?;
                }
            }
            if let Some(target) = &target {
                spec.size = spec.size.map(|s| s.min(Bytes(target.size())));
                if spec.name.is_empty() {
                    spec.name = called(target, &spec);
                }
            }
            Ok(spec)
        };
        let group = |jobs: &str| jobs.split(" + ").map(job).collect();
        let groups: Result<_, ReproduceError> = own.split(" ; ").map(group).collect();
        let groups = groups?;
        Ok(Self {
            target,
            second,
            groups,
        })
    }
}

/// Every text that the lists in braces stand for, the first list slowest.
fn variants(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('{') else {
        return vec![text.to_owned()];
    };
    let (list, after) = rest.split_once('}').unwrap_or((rest, ""));
    let with = |one: &str| variants(&format!("{before}{one}{after}"));
    list.split(',').flat_map(with).collect()
}

/// What a job on a model is called: what runs where, and for how long.
fn called(target: &SimTarget, spec: &JobSpec) -> String {
    let on = target.name.trim_start_matches("sim:");
    let on = on.replace([':', ',', '=', '/'], "-");
    let share = match spec.rw {
        Rw::Mixed | Rw::RandMixed => format!("-{}", spec.read_share),
        _ => String::new(),
    };
    format!(
        "{on}.{}{share}.{}k.{}x{}.{}.{}ms",
        spec.rw,
        spec.bs.max().0 >> 10,
        spec.threads,
        spec.qd,
        way(spec),
        spec.time.unwrap_or_default().0 / 1_000_000
    )
}

/// Around the page cache or through it.
pub(super) fn way(spec: &JobSpec) -> &'static str {
    if spec.direct { "direct" } else { "buffered" }
}

/// What a load gave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    pub(super) iops: f64,
    pub(super) mean_us: f64,
    pub(super) bytes_per_second: f64,
    pub(super) mb_per_s: f64,
    /// I/Os per second of the window with the fewest; only on models.
    pub(super) lowest: f64,
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
        let bytes_per_second: f64 = both().map(|d| d.bytes_per_second).sum();
        Self {
            iops,
            mean_us: weighted / iops.max(1e-9) / 1e3,
            bytes_per_second,
            mb_per_s: bytes_per_second / 1e6,
            lowest: f64::NAN,
        }
    }

    /// By its name in the table.
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        Some(match name {
            "iops" => self.iops,
            "us" => self.mean_us,
            "bytes" => self.bytes_per_second,
            "mb" => self.mb_per_s,
            "lowest" => self.lowest,
            _ => return None,
        })
    }
}

/// A bench, and the lowest rate of any window on it, I/Os per second.
struct Watched {
    inner: SimBench,
    lowest: f64,
}

/// Takes the lowest rate on the way of the windows.
struct Lowest<'a> {
    rate: &'a mut f64,
    next: &'a mut dyn Observer,
}

impl Observer for Lowest<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let ios: u64 = w.window.directions.iter().flatten().map(|d| d.ios).sum();
        *self.rate = self.rate.min(ios as f64 / w.width.as_secs_f64());
        self.next.window(w);
    }
}

impl Bench for Watched {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn describe(&self) -> Target {
        self.inner.describe()
    }
    fn simulated(&self) -> bool {
        self.inner.simulated()
    }
    fn control(&self) -> Control {
        self.inner.control()
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.inner.prepare(observer)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        let mut lowest = Lowest {
            rate: &mut self.lowest,
            next: observer,
        };
        self.inner.run(jobs, log, &mut lowest)
    }
}

//! Hosts that share one model: what a fleet would meet at an array of known truth, in virtual time.

use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError, SimBench};
use fathom_io::driver::{ClosedWindow, PlannedJob, Progress};
use fathom_io::job::{JobError, Limits};
use fathom_io::replay::{self, FeedHandle, Layout};
use fathom_io::{Control, Observer};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{self, Job};
use serde_json::{Value, json};

use super::merge::{self, Merger};
use super::rows::pass_on;
use super::split;
use crate::guest::remote::bench_error;
use crate::guest::spool::Spool;

/// More would only share what one already fills.
const HOSTS_MAX: u32 = 1_000;

/// Simulated hosts, h1 and so on, with one simulated target behind them.
pub struct ModelFleet {
    bench: SimBench,
    names: Vec<String>,
    layout: split::Layout,
    /// The host that pauses before each of its I/Os, and for how long.
    straggler: Option<(usize, Nanos)>,
}

impl ModelFleet {
    /// So many hosts on a target whose name begins with `sim:`. All of them use the model as one file; of layouts, parts and
    /// neighbours are what they are elsewhere.
    ///
    /// # Errors
    /// Unknown models; no hosts, or too many.
    pub fn open(
        target: &str,
        hosts: u32,
        layout: split::Layout,
        control: Control,
    ) -> Result<Self, BenchError> {
        if !(1..=HOSTS_MAX).contains(&hosts) {
            let message = format!("{hosts} simulated hosts: expected 1 to {HOSTS_MAX}");
            let option = "--hosts".into();
            return Err(JobError::Value { option, message }.into());
        }
        Ok(Self {
            bench: SimBench::open(target, control)?,
            names: (1..=hosts).map(|i| format!("h{i}")).collect(),
            layout,
            straggler: None,
        })
    }

    /// Its host at this place pauses before each I/O.
    #[must_use]
    pub fn with_straggler(mut self, place: usize, pause: Nanos) -> Self {
        self.straggler = Some((place, pause));
        self
    }
}

/// Sorts windows of all hosts' jobs, which run as one group, by host.
struct Sorting<'a> {
    merger: &'a mut Merger,
    /// Host and number of each job among that host's.
    whose: &'a [(usize, usize)],
    observer: &'a mut dyn Observer,
}

impl Observer for Sorting<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let (host, own) = self.whose[w.job];
        let own = ClosedWindow { job: own, ..*w };
        self.merger.take(host, &own, self.observer);
    }
    fn progress(&mut self, progress: &Progress) {
        self.observer.progress(progress);
    }
}

impl Bench for ModelFleet {
    fn limits(&self) -> Limits {
        Limits {
            hosts: self.names.len() as u32,
            ..self.bench.limits()
        }
    }
    fn describe(&self) -> schema::Target {
        let mut about = self.bench.describe();
        about.name = format!("{} on {} hosts", about.name, self.names.len());
        about.description = format!("shared by all hosts: {}", about.description);
        about
    }
    fn simulated(&self) -> bool {
        true
    }
    fn control(&self) -> Control {
        self.bench.control()
    }
    fn hosts(&self) -> Option<Value> {
        let about = self.bench.describe();
        let of = |name: &String| json!({ "host": name, "target": about });
        Some(self.names.iter().map(of).collect())
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.bench.prepare(observer)
    }

    fn run(
        &mut self,
        jobs: &[PlannedJob],
        _log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        let n = self.names.len();
        let limits = self.bench.limits();
        let mut whose = Vec::new();
        let mut own = Vec::new();
        let mut feeds = vec![Vec::new(); n];
        for (h, name) in self.names.iter().enumerate() {
            let here = split::of_host(jobs, (h, name), n, self.layout, limits)?;
            for (k, part) in here.into_iter().enumerate() {
                let (p, mut spec) = (part.planned, part.spec);
                if let Some((_, pause)) = self.straggler.filter(|s| s.0 == h) {
                    spec.think = pause;
                }
                whose.push((h, k));
                let mut job = spec.validate(&limits)?;
                if let Some(playing) = part.playing {
                    let layout = Layout::new(&playing.facts, &limits, spec.direct, playing.fit);
                    let layout = layout.map_err(|e| BenchError::Outside(e.to_string()))?;
                    let feed = replay::start(playing, layout);
                    feeds[h].push(feed.clone());
                    job = job.playing(feed)?;
                }
                own.push(PlannedJob {
                    experiment: p.experiment.clone(),
                    repeat: p.repeat,
                    ..PlannedJob::new(job)
                });
            }
        }
        let mut merger = Merger::new(jobs, n);
        let mut sorting = Sorting {
            merger: &mut merger,
            whose: &whose,
            observer,
        };
        let spool = Spool::of(&own).map_err(bench_error)?;
        let measured = match &spool {
            Some(s) => {
                let log = |job, thread| s.handle(job, thread);
                self.bench.run(&own, Some(&log), &mut sorting)?
            }
            None => self.bench.run(&own, None, &mut sorting)?,
        };
        let played = feeds.iter().map(|of| {
            let each = of.iter().map(|f: &FeedHandle| f.fidelity());
            each.map(Option::unwrap_or_default).collect()
        });
        merge::played(jobs, played.collect(), &self.names);
        let mut missing = Vec::new();
        if let Some(spool) = spool {
            let place = |own: usize| {
                let (host, own) = *whose.get(own)?;
                Some((host, merger.job_of(host, own)?))
            };
            let kept = spool.finish();
            let passed = kept.and_then(|k| pass_on(k, &place, 0, &self.names, observer));
            missing = passed.map_err(bench_error)?;
        }
        let mut parts: Vec<Option<Vec<Job>>> = vec![Some(Vec::new()); n];
        for ((host, _), job) in whose.iter().zip(measured) {
            parts[*host].get_or_insert_default().push(job);
        }
        let mut all = merger.finish(jobs, &parts, &self.names, observer);
        for (job, flag) in missing {
            all[job].flags.push(flag);
        }
        Ok(all)
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Box::new(self.bench).close()
    }
}

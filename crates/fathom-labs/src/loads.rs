//! Loads that something else than the driver drove, as jobs of the run: with windows, histograms and flags, so that
//! evidence, drift, comparison and report see them. And their repeats, as labs keep them.

use std::collections::BTreeMap;

use fathom_bench::Notebook;
use fathom_bench::results::Evidence;
use fathom_io::validity::used_by_others;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{DeviceDelta, Direction, Job};
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{
    DirectionTotal, DirectionWindow, Flag, FlagCode, Histogram, Nanos, Op, Window,
};
use serde::{Deserialize, Serialize};

/// What a load did.
pub(crate) struct Load {
    /// Operations outstanding at the same time.
    pub(crate) clients: u32,
    /// Measured time.
    pub(crate) wall: Nanos,
    /// CPU time over it, user and system.
    pub(crate) cpu: (Nanos, Nanos),
    /// Of the windows.
    pub(crate) width: Nanos,
    /// Of the measured part, numbered from its start.
    pub(crate) windows: Vec<Window>,
    /// Over time, ramp included.
    pub(crate) course: Course,
    /// Requests per second that came in an open loop.
    pub(crate) rate: Option<f64>,
    /// What had not warmed up when the ramp ended.
    pub(crate) cold: Option<&'static str>,
    /// Whether percentiles of its latency mean something.
    pub(crate) percentiles: bool,
    /// What stands against it from elsewhere.
    pub(crate) noted: Vec<Flag>,
    /// When its measured part began, where that is known.
    pub(crate) origin: Nanos,
}

/// How a load is named in the run.
pub(crate) struct About<'a> {
    pub(crate) experiment: &'a str,
    /// Without the number of the repeat.
    pub(crate) name: &'a str,
    pub(crate) repeat: u32,
    /// What was driven, with its version.
    pub(crate) engine: &'a str,
    /// What was asked for.
    pub(crate) spec: serde_json::Value,
    /// What the device counted meanwhile.
    pub(crate) device: Option<DeviceDelta>,
    /// Whether it is this process, or one that it started, that asks the device: not so of a user's server.
    pub(crate) ours: bool,
}

impl Load {
    /// Of a program that says in the end how often each latency was seen, by kind of operation: one window.
    pub(crate) fn of_histograms(
        kinds: &[(Op, Histogram)],
        bytes: u64,
        clients: u32,
        wall: Nanos,
        course: Course,
    ) -> Self {
        let mut window = Window::default();
        let all: u64 = kinds.iter().map(|k| k.1.count()).sum();
        for (op, latency) in kinds.iter().filter(|k| !k.1.is_empty()) {
            let seen = latency.to_sparse();
            window.directions[*op as usize] = Some(Box::new(DirectionWindow {
                ios: latency.count(),
                bytes: (bytes as f64 * latency.count() as f64 / all as f64) as u64,
                service: seen.clone(),
                response: seen,
                ..DirectionWindow::default()
            }));
        }
        Self::whole(window, clients, wall, course)
    }

    /// Of a program that only counts.
    pub(crate) fn counted(op: Op, n: u64, clients: u32, wall: Nanos, course: Course) -> Self {
        let mut window = Window::default();
        window.directions[op as usize] = Some(Box::new(DirectionWindow {
            ios: n,
            ..DirectionWindow::default()
        }));
        Self::whole(window, clients, wall, course)
    }

    fn whole(window: Window, clients: u32, wall: Nanos, course: Course) -> Self {
        Self {
            clients,
            wall,
            cpu: (Nanos::ZERO, Nanos::ZERO),
            width: Nanos(wall.0.max(1)),
            windows: vec![window],
            course,
            cold: None,
            rate: None,
            percentiles: true,
            noted: Vec::new(),
            origin: Nanos::ZERO,
        }
    }

    /// Completed in the measured part.
    pub(crate) fn operations(&self) -> u64 {
        let all = self.windows.iter().flat_map(|w| w.directions.iter());
        all.flatten().map(|d| d.ios).sum()
    }

    /// Response latency, operations together.
    pub(crate) fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        let windows = self.windows.iter().flat_map(|w| w.directions.iter());
        windows
            .flatten()
            .for_each(|d| all.merge_sparse(&d.response));
        all
    }

    fn direction(&self, op: Op) -> Option<Direction> {
        let mut total: Option<DirectionTotal> = None;
        for w in &self.windows {
            if let Some(d) = &w.directions[op as usize] {
                total.get_or_insert_default().add(d);
            }
        }
        Some(total?.over(self.wall))
    }

    /// As a job that is kept elsewhere.
    pub(crate) fn job(&self, about: About<'_>) -> Job {
        let [read, write, trim, sync] = Op::ALL.map(|op| self.direction(op));
        // Little's law: time spent in operations over time.
        let spent: f64 = [&read, &write, &trim, &sync]
            .into_iter()
            .flatten()
            .filter_map(|d| Some(d.response_ns.mean? * d.response_ns.samples as f64))
            .sum();
        let mut job = Job {
            name: format!("{}.{}", about.name, about.repeat + 1),
            experiment: about.experiment.to_owned(),
            repeat: about.repeat,
            spec: about.spec,
            engine: about.engine.to_owned(),
            wall_ns: self.wall.0,
            cpu_ns: (self.cpu.0 + self.cpu.1).0,
            cpu_user_ns: self.cpu.0.0,
            qd_requested: self.clients,
            qd_achieved: spent / self.wall.0.max(1) as f64,
            read,
            write,
            trim,
            sync,
            device: about.device,
            ..Job::default()
        };
        if let Some(cold) = self.cold {
            let mut flag = Flag::new(
                FlagCode::NotSteady,
                format!("when the longest ramp was over, {cold}"),
                "give it more --time, or a smaller pool",
            );
            flag.void = true;
            job.flags.push(flag);
        }
        job.flags.extend(self.noted.iter().cloned());
        job.flags.extend(self.late());
        job.flags.extend(thin(&job).filter(|_| self.percentiles));
        job.flags.extend(busy(&job));
        job.flags.extend(foreign(&job).filter(|_| about.ours));
        job
    }

    /// Not all that came was answered.
    fn late(&self) -> Option<Flag> {
        let came = self.rate? * self.wall.as_secs_f64();
        let done = self.operations() as f64;
        // Three standard deviations of what comes by chance.
        (done < came * 0.98 - 3.0 * came.sqrt()).then(|| {
            Flag::new(
                FlagCode::MissedSchedule,
                format!("{done:.0} of about {came:.0} requests were answered: more came than could be done"),
                "ask for a lower --rate; latencies grow as long as this goes on",
            )
        })
    }

    /// Keeps it in the run; returns the index of its job.
    pub(crate) fn keep(self, book: &mut Notebook, about: About<'_>) -> usize {
        let job = self.job(about);
        let step = Nanos(self.course.step_ns);
        book.keep_load(
            job,
            (self.width, &self.windows),
            (step, &self.course.measured()),
        )
    }
}

fn thin(job: &Job) -> Option<Flag> {
    let thin = |d: &&Direction| d.response_ns.samples > 0 && d.response_ns.p99.is_none();
    let all = [&job.read, &job.write, &job.trim];
    all.into_iter().flatten().find(thin).map(|d| {
        Flag::new(
            FlagCode::TooFewSamples,
            format!("{} operations are too few for the 99th percentile", d.ios),
            "run longer: a percentile is shown with 10 samples beyond it",
        )
    })
}

/// The processors' share is of the whole machine: 1 is all of them.
fn busy(job: &Job) -> Option<Flag> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
    let busy = job.cpu_ns as f64 / job.wall_ns.max(1) as f64 / cores;
    (busy > 0.9).then(|| {
        Flag::new(
            FlagCode::CpuBound,
            format!("{:.0} % of all processors were used", busy * 100.0),
            "the rate says as much of the processors as of the device: use fewer threads or a smaller cache",
        )
    })
}

/// Reads that neither this process nor one that it started asked for. Of writes nothing is said: what they dirty is
/// written at other times.
fn foreign(job: &Job) -> Option<Flag> {
    let device = job.device.as_ref()?;
    let own = device.process_read_bytes;
    used_by_others(&device.name, device.read_bytes.saturating_sub(own), own)
}

/// Operations over time, thinned to what a chart shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Course {
    /// Length of a step.
    pub(crate) step_ns: u64,
    /// Steps of the ramp.
    pub(crate) ramp: usize,
    /// Operations in each step.
    pub(crate) counts: Vec<u64>,
}

impl Course {
    /// Steps at most, so that hours are looked at as quickly as seconds.
    const STEPS: usize = 600;

    /// Of windows, the first `ramp` of which are the ramp's; the last is rarely whole.
    pub(crate) fn of(width: Nanos, ramp: usize, windows: &BTreeMap<u64, Window>) -> Self {
        let last = windows.last_key_value().map_or(0, |w| *w.0 as usize);
        let mut counts = vec![0; last];
        for (at, w) in windows.range(..last as u64) {
            counts[*at as usize] = w.directions.iter().flatten().map(|d| d.ios).sum();
        }
        Self::thinned(width, ramp, &counts)
    }

    /// The same of counts.
    pub(crate) fn thinned(width: Nanos, ramp: usize, counts: &[u64]) -> Self {
        let (before, after) = counts.split_at(ramp.min(counts.len()));
        let each = after.len().div_ceil(Self::STEPS).max(1);
        // No step lies in both parts.
        let parts = [
            before
                .rchunks_exact(each)
                .rev()
                .map(sum)
                .collect::<Vec<_>>(),
            { after.chunks_exact(each).map(sum).collect() },
        ];
        Self {
            step_ns: width.0 * each as u64,
            ramp: parts[0].len(),
            counts: parts.concat(),
        }
    }

    /// Of rates that a program said at regular times since the start of its ramp, s and 1/s.
    pub(crate) fn of_rates(said: &[(f64, f64)], ramp: Nanos) -> Self {
        let (Some(first), Some(last)) = (said.first(), said.last()) else {
            return Self::default();
        };
        let step = match said.len() {
            1 => first.0,
            n => (last.0 - first.0) / (n - 1) as f64,
        }
        .max(1e-3);
        let counts: Vec<u64> = said
            .iter()
            .map(|(_, r)| (r * step).round() as u64)
            .collect();
        let ramp = (ramp.as_secs_f64() / step).ceil() as usize;
        Self::thinned(Nanos((step * 1e9) as u64), ramp, &counts)
    }

    /// Rates, by seconds since the start of the ramp.
    pub(crate) fn points(&self) -> Vec<(f64, f64)> {
        let step = self.step_ns as f64 / 1e9;
        let at = |(i, n): (usize, &u64)| ((i as f64 + 0.5) * step, *n as f64 / step);
        self.counts.iter().enumerate().map(at).collect()
    }

    /// Operations per second after the ramp.
    pub(crate) fn rate(&self) -> Option<f64> {
        let all = self.counts.get(self.ramp..)?;
        let seconds = all.len() as f64 * self.step_ns as f64 / 1e9;
        (seconds > 0.0).then(|| sum(all) as f64 / seconds)
    }

    /// Operations in each step after the ramp.
    pub(crate) fn measured(&self) -> Vec<f64> {
        self.counts[self.ramp..].iter().map(|n| *n as f64).collect()
    }
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().sum()
}

/// One measurement of a line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Repeat<M> {
    /// Its jobs in the run, one for each kind of work.
    pub(crate) jobs: Vec<usize>,
    /// Operations while others counted beside.
    pub(crate) operations: u64,
    pub(crate) course: Course,
    /// What was counted beside.
    pub(crate) beside: M,
}

/// A line of a lab's tables: a setting, and its measurements.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line<S, M> {
    pub(crate) setting: S,
    pub(crate) repeats: Vec<Repeat<M>>,
}

impl<M> Repeat<M> {
    /// Its jobs, where none of them is void.
    fn valid<'a>(&self, evidence: &Evidence<'a>) -> Option<Vec<&'a Job>> {
        let jobs = self.jobs.iter().map(|j| evidence.job(*j));
        jobs.map(|j| j.filter(|j| !j.is_void())).collect()
    }

    /// Operations per second over all of its jobs; `None` where they may not be used.
    pub(crate) fn rate(&self, evidence: &Evidence<'_>) -> Option<f64> {
        let jobs = self.valid(evidence)?;
        let all = jobs.iter().flat_map(|j| data(j));
        Some(all.map(|d| d.iops).sum()).filter(|r| *r > 0.0)
    }

    /// Mean latency of an operation, ns.
    pub(crate) fn latency(&self, evidence: &Evidence<'_>) -> Option<f64> {
        let jobs = self.valid(evidence)?;
        let all = jobs.iter().flat_map(|j| data(j));
        let (n, ns) = all.fold((0, 0.0), |(n, ns), d| {
            let mean = d.response_ns.mean.unwrap_or(0.0);
            (
                n + d.response_ns.samples,
                ns + mean * d.response_ns.samples as f64,
            )
        });
        (n > 0).then(|| ns / n as f64)
    }

    /// Of its first job.
    pub(crate) fn job<'a>(&self, evidence: &Evidence<'a>) -> Option<&'a Job> {
        self.valid(evidence)?.first().copied()
    }

    /// Processors that the driver kept.
    pub(crate) fn processors(&self, evidence: &Evidence<'_>) -> Option<f64> {
        let job = self.job(evidence)?;
        Some(job.cpu_ns as f64 / job.wall_ns.max(1) as f64)
    }

    /// Something that was counted beside, for each operation.
    pub(crate) fn per(&self, n: f64) -> Option<f64> {
        (self.operations > 0).then(|| n / self.operations as f64)
    }

    /// Reads and writes that the device completed for each operation.
    pub(crate) fn device(&self, evidence: &Evidence<'_>) -> [Option<f64>; 2] {
        let counted = self.job(evidence).and_then(|j| j.device.as_ref());
        [
            counted.and_then(|d| self.per(d.read_ios as f64)),
            counted.and_then(|d| self.per(d.write_ios as f64)),
        ]
    }

    /// CPU time of each operation, s.
    pub(crate) fn cpu(&self, evidence: &Evidence<'_>) -> Option<f64> {
        self.per(self.job(evidence)?.cpu_ns as f64 / 1e9)
    }
}

impl<S, M> Line<S, M> {
    /// Nothing measured yet.
    pub(crate) fn new(setting: S) -> Self {
        Self {
            setting,
            repeats: Vec::new(),
        }
    }

    /// Over the repeats that have a value.
    pub(crate) fn mean(&self, f: impl Fn(&Repeat<M>) -> Option<f64>) -> Option<Estimate> {
        Estimate::mean_of(&self.repeats.iter().filter_map(f).collect::<Vec<_>>())
    }

    /// Operations per second.
    pub(crate) fn rate(&self, evidence: &Evidence<'_>) -> Option<Estimate> {
        self.mean(|r| r.rate(evidence))
    }

    /// This line's rate over another's, repeat by repeat: they were made in turns, each pair saw the same device.
    pub(crate) fn over(&self, other: &Self, evidence: &Evidence<'_>) -> Vec<f64> {
        let pairs = self.repeats.iter().zip(&other.repeats);
        pairs
            .filter_map(|(a, b)| Some(a.rate(evidence)? / b.rate(evidence)?))
            .collect()
    }

    /// Response latency over all repeats of the jobs that `which` names, operations together; void jobs do not count.
    fn merged(
        &self,
        evidence: &Evidence<'_>,
        which: impl Fn(&Repeat<M>) -> Vec<usize>,
    ) -> Histogram {
        let mut all = Histogram::new();
        for job in self.repeats.iter().flat_map(which) {
            let usable = evidence.job(job).is_some_and(|j| !j.is_void());
            let merged = evidence.merged(job).filter(|_| usable);
            merged
                .into_iter()
                .flatten()
                .flatten()
                .for_each(|h| all.merge(h));
        }
        all
    }

    /// A percentile over all repeats, ns, where enough samples lie beyond it.
    pub(crate) fn percentile(&self, evidence: &Evidence<'_>, q: f64) -> Option<f64> {
        quantile(&self.merged(evidence, |r| r.jobs.clone()), q)
    }

    /// Response latency of one kind of work over all repeats.
    pub(crate) fn latency_of(
        &self,
        evidence: &Evidence<'_>,
        job: impl Fn(&Repeat<M>) -> Option<usize>,
    ) -> Histogram {
        self.merged(evidence, |r| job(r).into_iter().collect())
    }

    /// Jobs behind it.
    pub(crate) fn jobs(&self) -> Vec<usize> {
        self.repeats.iter().flat_map(|r| &r.jobs).copied().collect()
    }
}

/// A percentile, ns, where enough samples lie beyond it.
pub(crate) fn quantile(h: &Histogram, q: f64) -> Option<f64> {
    h.quantile_supported(q, SAMPLES_BEYOND).map(|v| v as f64)
}

fn data(job: &Job) -> impl Iterator<Item = &Direction> {
    [&job.read, &job.write, &job.trim].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_thinned_and_keeps_the_ramp_apart() {
        let counts: Vec<u64> = (0..5).map(|_| 10).chain((0..1500).map(|_| 20)).collect();
        let course = Course::thinned(Nanos::from_millis(100), 5, &counts);
        assert_eq!((course.ramp, course.counts[0]), (1, 30));
        assert_eq!(course.measured(), vec![60.0; 500]);
        assert_eq!(course.points()[3].1, 200.0);
        let said = [(1.0, 50.0), (2.0, 100.0), (3.0, 100.0)];
        let course = Course::of_rates(&said, Nanos::from_secs(1));
        assert_eq!((course.ramp, course.measured()), (1, vec![100.0, 100.0]));
    }
}

//! The bench of simulated targets: the same jobs in virtual time, every result stamped and flagged as simulated.

use fathom_host::Health;
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob, Progress, assemble};
use fathom_io::job::Limits;
use fathom_io::{Control, JobSpec};
use fathom_sim::trace::Trace;
use fathom_sim::{SimError, SimTarget, Simulation, fast};
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Flag, FlagCode, Nanos};

use crate::bench::{Bench, BenchError, LogMaker, simulated_flag};

/// A simulated target and its state, which goes on from group to group.
pub struct SimBench {
    target: SimTarget,
    simulation: Option<Simulation>,
    control: Control,
    tracing: bool,
}

impl SimBench {
    /// From a name that begins with `sim:`.
    ///
    /// # Errors
    /// Unknown models, bad model files, impossible compositions.
    pub fn open(name: &str, control: Control) -> Result<Self, SimError> {
        Ok(Self::new(SimTarget::parse(name)?, control))
    }

    /// On a target that is already known.
    pub fn new(target: SimTarget, control: Control) -> Self {
        Self {
            target,
            simulation: None,
            control,
            tracing: false,
        }
    }

    /// The next group is followed through the stages of the model.
    pub fn trace(&mut self) {
        self.tracing = true;
    }

    /// Where the time of the last group went, if it was followed.
    pub fn traced(&mut self) -> Option<Trace> {
        self.tracing = false;
        self.simulation.as_mut()?.traced()
    }

    /// The simulated array, once it has served something.
    pub fn array(&self) -> Option<&fathom_sim::raid::Raid> {
        self.simulation.as_ref()?.array()
    }
}

/// Why jobs are not those of the fast simulation.
fn unfit(planned: &[PlannedJob]) -> Option<&'static str> {
    let is_led = |p: &PlannedJob| p.guide.as_ref().is_some_and(|g| g.pilot.is_some());
    let led = planned.iter().any(is_led);
    fast::unfit(planned).or(led.then_some("a pilot decides on every I/O"))
}

impl Bench for SimBench {
    fn limits(&self) -> Limits {
        Limits {
            size: self.target.size(),
            direct_align: 512,
            hosts: 1,
        }
    }
    fn describe(&self) -> schema::Target {
        schema::Target {
            name: self.target.name.clone(),
            kind: "simulated".into(),
            path: None,
            size_bytes: self.target.size(),
            device: None,
            description: self.target.description(),
        }
    }
    fn simulated(&self) -> bool {
        true
    }
    fn control(&self) -> Control {
        self.control.clone()
    }

    /// The first device's, where the model has flash or heat.
    fn health(&mut self) -> Option<Health> {
        let device = self.simulation.as_mut()?.device();
        let celsius = device.thermal().map(|t| t.now().0);
        let wear = device
            .flash()
            .map(|f| (f.wear().0, f.media_bytes(), f.life_used()));
        if celsius.is_none() && wear.is_none() {
            return None;
        }
        let host = wear.map(|w| w.0 as u64);
        let media = wear.map(|w| w.1 as u64);
        Some(Health {
            disk: self.target.name.clone(),
            sources: vec!["model"],
            celsius,
            host_written_bytes: host,
            media_written_bytes: media,
            used_percent: wear.map(|w| 100.0 * w.2),
            ..Health::default()
        })
    }

    /// A model needs no data to be read.
    fn prepare(&mut self, _observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        Ok(None)
    }

    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        // The first job's seed is the run's.
        let seed = jobs.first().map_or(1, |j| j.job.spec.seed);
        let (target, control) = (&self.target, &self.control);
        let simulation = self.simulation.get_or_insert_with(|| {
            let mut s = Simulation::new(target, seed);
            s.obey(control.clone());
            s
        });
        simulation.assign(jobs);
        if self.tracing {
            simulation.trace();
        }
        let times = if target.exact { 1 } else { sampled(jobs) };
        let mut watch = Stretched {
            times,
            inner: observer,
        };
        let shortened;
        let planned = if times > 1 {
            shortened = jobs
                .iter()
                .map(|j| shorten(j, times))
                .collect::<Vec<PlannedJob>>();
            &shortened
        } else {
            jobs
        };
        simulation.sample(times);
        let (origin, test_origin) = (simulation.now(), simulation.test_time());
        let unfit = unfit(planned);
        let taken = if target.fast && unfit.is_none() && !self.tracing {
            fast::run(&planned[0], simulation, origin)
        } else {
            None
        };
        let mut measures = match taken {
            Some((windows, outcome)) => vec![assemble(
                &planned[0],
                windows,
                &outcome,
                origin,
                "sim-fast",
                &mut watch,
            )],
            None => {
                let mut all = simulation.run(planned, log, &mut watch);
                if target.fast {
                    let why = unfit.unwrap_or("the target is more than one device and its host");
                    let note = format!("every event was simulated: {why}");
                    all.iter_mut()
                        .for_each(|j| j.engine_notes.push(note.clone()));
                }
                all
            }
        };
        simulation.sample(1);
        for (job, planned) in measures.iter_mut().zip(jobs) {
            if times > 1 {
                stretch(job, times);
                job.spec = serde_json::to_value(&planned.job.spec).unwrap_or_default();
                job.engine_notes.push(format!(
                    "one moment in {times} was simulated, heat, wear, free space and buffers carried on; every one with ,exact"
                ));
            }
            job.start_ns += test_origin.0;
            job.engine_notes.extend(simulation.condition());
            job.flags.push(simulated_flag(&self.target.name));
            job.flags.extend(unfit_flag(&self.target));
        }
        Ok(measures)
    }
}

/// For every job of a model whose fit says that it is not to be relied on.
fn unfit_flag(target: &SimTarget) -> Option<Flag> {
    let fit = target.model.fit.as_ref().filter(|f| f.unfit)?;
    let detail = format!(
        "the model is unfit: of {} loads that were held out from its fit, means are off by up to {:.0} %, 99th percentiles by up to {:.0} %",
        fit.held_out, fit.mean_error_percent, fit.p99_error_percent
    );
    let remedy = "fit it to more runs of a quiet device (fathom sim fit RUN --measure)";
    Some(Flag::new(FlagCode::ModelUnfit, detail, remedy))
}

/// Jobs longer than this are sampled, ns.
const LONG: u64 = 300_000_000_000;
/// What is simulated of a long job, ns: ten million requests of a fast device.
const SIMULATED: u64 = 20_000_000_000;
/// Most windows of a sampled job.
const WINDOWS: u64 = 43_200;

/// The part that is simulated of a job that takes so long.
pub(crate) fn simulated_time(spec: &JobSpec, time: Nanos) -> Nanos {
    match is_sampled(spec, time.0) {
        true => Nanos(SIMULATED),
        false => time,
    }
}

fn is_sampled(s: &JobSpec, time: u64) -> bool {
    !(s.record || s.ios.is_some() || s.bytes.is_some()) && time > LONG
}

/// How many moments each simulated one stands for; 1 unless all jobs are long, end by time and keep no log.
fn sampled(jobs: &[PlannedJob]) -> u64 {
    let long = |j: &PlannedJob| {
        let s = &j.job.spec;
        // Of what a pilot does nothing can be left out: it goes on from what came before.
        if j.guide.as_ref().is_some_and(|g| g.pilot.is_some()) {
            return 0;
        }
        let time = s.time.map_or(0, |t| t.0 + s.ramp.0);
        if is_sampled(s, time) { time } else { 0 }
    };
    match jobs.iter().map(long).min() {
        Some(shortest) if shortest > 0 => {
            let longest = jobs.iter().map(long).max().unwrap_or(shortest);
            longest.div_ceil(SIMULATED).max(1)
        }
        _ => 1,
    }
}

/// The part of a job that is simulated.
fn shorten(planned: &PlannedJob, times: u64) -> PlannedJob {
    let mut p = planned.clone();
    let s = &mut p.job.spec;
    let total = s.time.map_or(0, |t| t.0) + s.ramp.0;
    s.window = Nanos((s.window.0.max(total / WINDOWS) / times).max(1));
    s.time = s.time.map(|t| Nanos((t.0 / times).max(1)));
    s.ramp = Nanos(s.ramp.0 / times);
    p
}

/// What the simulated part stands for. Latencies stay what they are, and as many samples stand behind them.
fn stretch(job: &mut Job, times: u64) {
    job.wall_ns *= times;
    job.start_ns *= times;
    for d in [&mut job.read, &mut job.write, &mut job.trim, &mut job.sync]
        .into_iter()
        .flatten()
    {
        for n in [&mut d.ios, &mut d.bytes, &mut d.errors, &mut d.short] {
            *n *= times;
        }
    }
    for e in &mut job.errors {
        e.count *= times;
    }
    if let Some(o) = &mut job.open_loop {
        o.late *= times;
        o.unissued *= times;
    }
}

/// Passes windows on as what they stand for.
struct Stretched<'a> {
    times: u64,
    inner: &'a mut dyn Observer,
}

impl Observer for Stretched<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        if self.times == 1 {
            return self.inner.window(w);
        }
        let mut window = w.window.clone();
        for d in window.directions.iter_mut().flatten() {
            for n in [&mut d.ios, &mut d.bytes, &mut d.errors, &mut d.short] {
                *n *= self.times;
            }
        }
        self.inner.window(&ClosedWindow {
            job: w.job,
            start_ns: w.start_ns * self.times as i64,
            origin: w.origin,
            width: Nanos(w.width.0 * self.times),
            window: &window,
        });
    }
    fn progress(&mut self, p: &Progress) {
        self.inner.progress(p);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::FlagCode;
    use fathom_telemetry::histogram::{SparseHistogram, lower_bound, width};

    #[test]
    fn results_are_stamped_and_time_goes_on() {
        let mut bench = SimBench::open("sim:optane-900p", Control::new()).unwrap();
        let spec = JobSpec {
            time: Some(Nanos::from_millis(20)),
            window: Nanos::from_millis(10),
            ..JobSpec::default()
        };
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        let first = bench.run(&planned, None, &mut ()).unwrap().remove(0);
        let second = bench.run(&planned, None, &mut ()).unwrap().remove(0);
        assert!(first.flags.iter().any(|f| f.code == FlagCode::Simulated));
        assert!(!first.is_void() && bench.simulated());
        assert!(second.start_ns >= first.start_ns + first.wall_ns);
        let mean = first.read.unwrap().service_ns.mean.unwrap();
        assert!((mean / 13_500.0 - 1.0).abs() < 0.02, "{mean}");
    }
    fn measure(name: &str, spec: JobSpec) -> Job {
        let mut bench = SimBench::open(name, Control::new()).unwrap();
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        bench.run(&planned, None, &mut ()).unwrap().remove(0)
    }

    /// Service times of reads and of writes.
    #[derive(Default)]
    struct Times([SparseHistogram; 2]);

    impl Observer for Times {
        fn window(&mut self, w: &ClosedWindow<'_>) {
            for (all, d) in self.0.iter_mut().zip(&w.window.directions) {
                if let Some(d) = d.as_ref().filter(|_| w.start_ns >= 0) {
                    all.merge(&d.service);
                }
            }
        }
    }

    fn observe(name: &str, spec: JobSpec) -> (Job, Times) {
        let mut bench = SimBench::open(name, Control::new()).unwrap();
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        let mut times = Times::default();
        let job = bench.run(&planned, None, &mut times).unwrap().remove(0);
        (job, times)
    }

    /// Between the ends of its bucket, which is 1/128 wide, by its rank in it.
    fn p99(h: &SparseHistogram) -> f64 {
        let (rank, mut seen) = (0.99 * h.moments.count as f64, 0.0);
        for (bucket, n) in &h.buckets {
            let (bucket, n) = (*bucket as usize, *n as f64);
            if seen + n >= rank {
                let low = lower_bound(bucket) as f64;
                return low + width(bucket) as f64 * (rank - seen) / n;
            }
            seen += n;
        }
        h.moments.max as f64
    }

    #[test]
    fn the_fast_path_gives_what_the_event_loop_gives_within_half_a_percent() {
        for (name, threads, qd, seconds) in [
            ("sim:optane-900p", 1, 1, 2),
            ("sim:optane-900p", 16, 4, 2),
            // Its tail lies where hardly any I/O ends: only many of them tell.
            ("sim:intel-p3700", 4, 8, 60),
            ("sim:intel-s3510", 8, 1, 60),
            ("sim:ramdisk", 2, 1, 20),
        ] {
            for read_share in [100.0, 70.0] {
                let spec = JobSpec {
                    rw: fathom_io::job::Rw::RandMixed,
                    read_share,
                    threads,
                    qd,
                    time: Some(Nanos::from_secs(seconds)),
                    ramp: Nanos::from_millis(100),
                    ..JobSpec::default()
                };
                let (exact, exact_times) = observe(name, spec.clone());
                let (quick, quick_times) = observe(&format!("{name},fast"), spec);
                assert_eq!(quick.engine, "sim-fast");
                for (i, e, q) in [
                    (0, &exact.read, &quick.read),
                    (1, &exact.write, &quick.write),
                ] {
                    let (Some(e), Some(q)) = (e, q) else { continue };
                    if e.ios == 0 {
                        continue;
                    }
                    let (ep99, qp99) = (p99(&exact_times.0[i]), p99(&quick_times.0[i]));
                    let near = |what: &str, e: f64, q: f64| {
                        assert!(
                            (q / e - 1.0).abs() < 0.005,
                            "{name} {threads}x{qd} {read_share}: {what} {q} instead of {e}"
                        );
                    };
                    near("IOPS", e.iops, q.iops);
                    near(
                        "mean",
                        e.service_ns.mean.unwrap(),
                        q.service_ns.mean.unwrap(),
                    );
                    near("p99", ep99, qp99);
                }
            }
        }
    }

    #[test]
    fn a_sampled_hour_ends_where_the_whole_hour_ends() {
        let spec = JobSpec {
            rw: fathom_io::job::Rw::RandWrite,
            qd: 8,
            time: Some(Nanos::from_secs(360)),
            window: Nanos::from_secs(1),
            ..JobSpec::default()
        };
        let whole = measure("sim:intel-s3510,fill=100,exact", spec.clone());
        let part = measure("sim:intel-s3510,fill=100", spec);
        let (w, p) = (whole.write.unwrap(), part.write.unwrap());
        assert!(
            (p.iops / w.iops - 1.0).abs() < 0.02,
            "{} {}",
            p.iops,
            w.iops
        );
        assert!((p.ios as f64 / w.ios as f64 - 1.0).abs() < 0.02);
        assert!((part.wall_ns as f64 / whole.wall_ns as f64 - 1.0).abs() < 0.01);
        assert!(p.service_ns.samples * 10 < w.service_ns.samples);
        assert!(
            part.engine_notes
                .iter()
                .any(|n| n.contains("one moment in"))
        );
    }
}

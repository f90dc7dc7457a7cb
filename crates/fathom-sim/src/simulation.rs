//! A simulated target with its state, and jobs run on it in virtual time.

use fathom_io::Observer;
use fathom_io::driver::{ClosedWindow, PlannedJob, Progress, run_virtual};
use fathom_telemetry::iolog::LogHandle;
use fathom_telemetry::schema::{DeviceDelta, Direction, Job};
use fathom_telemetry::window::{DirectionWindow, Window};
use fathom_telemetry::{Flag, FlagCode, LatencySummary, Nanos, Op};

use crate::cache::Cache;
use crate::device::{Condition, Device};
use crate::fault::Faults;
use crate::machine::{Copying, Guests, Machine, Seat, Store};
use crate::model::{Kind, Model};
use crate::processor::{Processor, ns};
use crate::raid::Array;
use crate::target::{Exact, SimTarget};

/// Requests that are simulated one by one without asking.
const EXACT_LIMIT: f64 = 50e6;
/// Requests that stand for a longer job.
const SAMPLE: f64 = 10e6;
/// Windows of a sampled job.
const WINDOWS: u64 = 10_000;

/// A simulated target at work. Wear, heat, free blocks, caches and the virtual clock carry over from one
/// group of jobs to the next.
#[derive(Debug, Clone)]
pub struct Simulation {
    target: SimTarget,
    machine: Machine,
    clock: u64,
}

impl Simulation {
    pub(crate) fn new(target: &SimTarget, seed: u64) -> Self {
        let seed = seed ^ target.seed.rotate_left(32);
        let model = &target.model;
        let host = &target.host;
        let device = |stream| Device::new(model, &target.start, seed, stream);
        let store = match &target.raid {
            None => Store::One(device(0)),
            Some(shape) => {
                let devices = (0..u64::from(shape.count)).map(device).collect();
                Store::Array(Box::new(Array::new(shape, host, devices)))
            }
        };
        let copying = model.ram.as_ref().map(|r| Copying {
            cpu: ns(if target.vms > 0 {
                r.guest_cpu_us
            } else {
                r.cpu_us
            }),
            per_byte: 1.0 / r.core_gb_per_s,
        });
        let guests = host
            .vm_costs()
            .ok()
            .filter(|_| target.vms > 0)
            .map(|vm| Guests::new(&vm, host.cores, target.vms));
        let flusher = match &store {
            Store::One(_) => host.page_cache.flusher_gb_per_s.min(write_limit(model)),
            Store::Array(a) => a.writeback_gb_per_s(
                host.page_cache
                    .flusher_gb_per_s
                    .min(write_limit(model) * a.devices.len() as f64),
            ),
        };
        let cache = Cache::new(&host.page_cache, host.memory_bytes, target.size(), flusher);
        Self {
            machine: Machine::new(
                store,
                Processor::new(host, target.idle, target.scheduler.0),
                guests,
                copying,
                cache,
                Faults::new(target.faults.clone()),
                seed,
            ),
            target: target.clone(),
            clock: 0,
        }
    }

    /// The target behind it.
    pub fn target(&self) -> &SimTarget {
        &self.target
    }

    /// Virtual time since opening; where jobs were sampled, the time that they stand for.
    pub fn elapsed(&self) -> Nanos {
        Nanos(self.machine.lapse.slow(self.clock))
    }

    /// The slow state of each device.
    pub fn condition(&self) -> Vec<Condition> {
        match &self.machine.store {
            Store::One(d) => vec![d.condition()],
            Store::Array(a) => a.devices.iter().map(Device::condition).collect(),
        }
    }

    /// Lets time pass without I/O: devices cool down and tidy up.
    pub fn rest(&mut self, time: Nanos) {
        self.clock += time.0;
    }

    /// Runs jobs at the same time, with the results of a real driver. A job that would take many
    /// millions of requests is sampled (unless the target says `exact=1`): its requests run in a shorter
    /// time, while heat, wear and free space advance as in the whole; results are scaled back, and flags
    /// and notes say so.
    pub fn run_group(
        &mut self,
        jobs: &[PlannedJob],
        log: Option<&dyn Fn(usize, u32) -> LogHandle>,
        observer: &mut dyn Observer,
    ) -> Vec<Job> {
        let factor = self.factor(jobs);
        let origin = self.clock;
        let mut seats = Vec::new();
        for j in jobs {
            let (n, _) = j.seats();
            let spec = &j.job.spec;
            let seat = Seat {
                polling: self.target.poll || spec.iopoll,
                buffered: self.target.buffered.unwrap_or(!spec.direct),
            };
            seats.resize(seats.len() + n as usize, seat);
        }
        self.machine.begin(origin, seats, factor);
        self.machine.last = origin;
        let mut results = if factor == 1 {
            run_virtual(jobs, &mut self.machine, Nanos(origin), "sim", log, observer)
        } else {
            let short: Vec<PlannedJob> = jobs.iter().map(|j| shorten(j, factor)).collect();
            let mut scaled = Scaled { observer, factor };
            run_virtual(
                &short,
                &mut self.machine,
                Nanos(origin),
                "sim",
                log,
                &mut scaled,
            )
        };
        let end = self.machine.last.max(origin + 1);
        self.clock = end;
        self.machine.set_lapse(end, 1);
        let mut seat = 0;
        let alone = results.len() == 1;
        for (result, planned) in results.iter_mut().zip(jobs) {
            let n = planned.seats().0 as usize;
            let cpu: u64 = (seat..seat + n)
                .map(|w| self.machine.processor.used(w, end))
                .sum();
            seat += n;
            // The processor's time includes ramp-up; the measured part gets its share.
            let share = result.wall_ns as f64 / (end - origin) as f64;
            result.cpu_ns = (cpu as f64 * share.min(1.0)).round() as u64;
            result.cpu_user_ns = 0;
            if alone {
                result.device = Some(self.counters());
            }
            if factor > 1 {
                scale_job(result, planned, factor);
            }
            self.stamp(result, factor);
        }
        results
    }

    fn counters(&self) -> DeviceDelta {
        let c = &self.machine.counts;
        let (r, w, t, s) = (
            Op::Read as usize,
            Op::Write as usize,
            Op::Trim as usize,
            Op::Sync as usize,
        );
        DeviceDelta {
            name: self.target.model.name.clone(),
            read_ios: c.ios[r],
            read_bytes: c.bytes[r],
            write_ios: c.ios[w],
            write_bytes: c.bytes[w],
            discard_ios: c.ios[t],
            discard_bytes: c.bytes[t],
            flush_ios: c.ios[s],
            ..DeviceDelta::default()
        }
    }

    fn stamp(&self, job: &mut Job, factor: u64) {
        let mut detail = format!("the numbers come from a model ({})", self.target.text());
        if factor > 1 {
            detail.push_str(&format!(
                ", of which one request in {factor} was simulated and stands for the others"
            ));
            job.engine_notes
                .push(format!("sampled: 1 request in {factor}"));
        }
        job.flags.push(Flag::new(
            FlagCode::Simulated,
            detail,
            "measure a real device for numbers to rely on; 'fathom sim fit' makes a model of it",
        ));
    }

    /// How many requests one simulated request stands for.
    fn factor(&self, jobs: &[PlannedJob]) -> u64 {
        let limit = match self.target.exact {
            Exact::Always => return 1,
            Exact::Auto => EXACT_LIMIT,
            Exact::Never => 0.0,
        };
        let mut requests = 0.0;
        let mut shortest = f64::INFINITY;
        for j in jobs {
            let spec = &j.job.spec;
            // A job by count or with its own rhythm is not stretched.
            let Some(time) = spec.time else { return 1 };
            if spec.record || spec.bytes.is_some() || spec.ios.is_some() || spec.burst.is_some() {
                return 1;
            }
            let seconds = (time + spec.ramp).as_secs_f64();
            let ceiling = self.ceiling(spec.bs.min().0);
            requests += seconds * spec.rate.map_or(ceiling, |r| r.min(ceiling));
            shortest = f64::min(shortest, seconds);
        }
        if requests <= limit {
            return 1;
        }
        // What is left of the shortest job must still be long against one request.
        let factor = (requests / SAMPLE).min(shortest / 0.02).floor();
        factor.max(1.0) as u64
    }

    /// Requests per second that the target cannot exceed.
    fn ceiling(&self, bytes: u64) -> f64 {
        let m = &self.target.model;
        let one = match (m.kind, &m.pipeline, &m.ram) {
            (Kind::Ssd, Some(p), _) => {
                1e9 / (p.read_command_ns.min(p.write_command_ns)
                    + bytes as f64 / p.read_gb_per_s.max(p.write_gb_per_s))
            }
            (_, _, Some(r)) => 1e6 / r.read_serial_us.min(r.write_serial_us).max(0.05),
            _ => 20_000.0,
        };
        let n = self.target.raid.as_ref().map_or(1, |r| r.count);
        let n = if self.target.vms > 0 {
            let vm = 120e3 * f64::from(self.target.vms);
            return one.min(vm) * f64::from(n);
        } else {
            f64::from(n)
        };
        one * n
    }
}

/// 10⁹ bytes/s that a device can be written with.
fn write_limit(m: &Model) -> f64 {
    match (&m.pipeline, &m.hdd) {
        (Some(p), _) => p.write_gb_per_s,
        (_, Some(h)) => h.outer_mb_per_s / 1e3,
        _ => f64::INFINITY,
    }
}

/// A job whose every second stands for `factor` seconds.
fn shorten(job: &PlannedJob, factor: u64) -> PlannedJob {
    let mut short = job.clone();
    let spec = &mut short.job.spec;
    let whole = spec.time.unwrap_or_default() + spec.ramp;
    let window = spec.window.max(Nanos(whole.0 / WINDOWS));
    spec.window = Nanos((window.0 / factor).max(1_000));
    spec.time = spec.time.map(|t| Nanos((t.0 / factor).max(1)));
    spec.ramp = Nanos(spec.ramp.0 / factor);
    short
}

/// Passes windows on as if every request had been simulated.
struct Scaled<'a> {
    observer: &'a mut dyn Observer,
    factor: u64,
}

impl Observer for Scaled<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let mut window = Window {
            index: w.window.index,
            ..Window::default()
        };
        for (to, from) in window.directions.iter_mut().zip(&w.window.directions) {
            *to = from
                .as_ref()
                .map(|d| Box::new(scale_window(d, self.factor)));
        }
        self.observer.window(&ClosedWindow {
            job: w.job,
            start_ns: w.start_ns * self.factor as i64,
            width: Nanos(w.width.0 * self.factor),
            window: &window,
        });
    }
    fn progress(&mut self, p: &Progress) {
        self.observer.progress(&Progress {
            elapsed: Nanos(p.elapsed.0 * self.factor),
            ios: p.ios * self.factor,
            bytes: p.bytes * self.factor,
            p99: p.p99,
        });
    }
}

fn scale_window(d: &DirectionWindow, factor: u64) -> DirectionWindow {
    let mut d = d.clone();
    d.ios *= factor;
    d.bytes *= factor;
    d.errors *= factor;
    d.short *= factor;
    for h in [&mut d.submit, &mut d.service, &mut d.response] {
        for (_, n) in &mut h.buckets {
            *n *= factor;
        }
        h.moments.count *= factor;
        h.moments.sum *= u128::from(factor);
        h.moments.sum_squares *= u128::from(factor);
    }
    d
}

/// Counts as if every request had been simulated. Percentiles stay those that the samples support.
fn scale_job(job: &mut Job, planned: &PlannedJob, factor: u64) {
    job.wall_ns *= factor;
    job.start_ns *= factor;
    job.cpu_ns *= factor;
    let scale = |d: &mut Direction| {
        d.ios *= factor;
        d.bytes *= factor;
        d.errors *= factor;
        d.short *= factor;
        let count = |s: &mut LatencySummary| s.samples *= factor;
        count(&mut d.submit_ns);
        count(&mut d.service_ns);
        count(&mut d.response_ns);
    };
    for d in [&mut job.read, &mut job.write, &mut job.trim, &mut job.sync] {
        d.as_mut().map(scale);
    }
    if let Some(o) = &mut job.open_loop {
        o.late *= factor;
        o.unissued *= factor;
    }
    for e in &mut job.errors {
        e.count *= factor;
    }
    if let Some(d) = &mut job.device {
        for n in [
            &mut d.read_ios,
            &mut d.read_bytes,
            &mut d.write_ios,
            &mut d.write_bytes,
            &mut d.discard_ios,
            &mut d.discard_bytes,
            &mut d.flush_ios,
        ] {
            *n *= factor;
        }
    }
    job.spec = serde_json::to_value(&planned.job.spec).unwrap_or_default();
}

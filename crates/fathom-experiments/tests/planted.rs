//! Simulated targets with one planted bottleneck: the first finding must name it. Healthy ones: nothing above weak.
//!
//! Each case has a device, a host and a size of the bottleneck drawn from its seed. The diagnosis sees the target as a
//! user does: it may measure it, and measure it with one thing changed; and what it measures differs from pass to pass,
//! as on a machine that does other things too.

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_bench::{Bench, NotebookError, Plan};
use fathom_experiments::tune::stand::{Counted, Keeping, Measured, ModelStand};
use fathom_experiments::tune::{self, Effort, Ground, TuneOptions};
use fathom_io::Control;
use fathom_io::driver::PlannedJob;
use fathom_io::load::rng::Rng;
use fathom_sim::host::Idle;
use fathom_sim::model::Thermal;
use fathom_sim::raid::Level;
use fathom_sim::{Model, Shape, SimTarget};
use fathom_telemetry::schema::Finding;
use fathom_telemetry::{Bytes, Nanos};

/// Cases of each kind.
const SEEDS: u64 = 45;
/// Of them, so many percent must be right.
const RIGHT: f64 = 95.0;
/// Working set of the cached load.
const WORKING_SET: Bytes = Bytes::mib(32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Plant {
    IdleStates,
    Scheduler,
    SlowLayer,
    SmallCache,
    Throttling,
    Parity,
    Iothread,
    Healthy,
}

const PLANTS: [Plant; 8] = [
    Plant::IdleStates,
    Plant::Scheduler,
    Plant::SlowLayer,
    Plant::SmallCache,
    Plant::Throttling,
    Plant::Parity,
    Plant::Iothread,
    Plant::Healthy,
];

/// Draws between two bounds.
fn between(r: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * r.unit()
}

fn pick<T: Copy>(r: &mut Rng, of: &[T]) -> T {
    of[r.below(of.len() as u64) as usize]
}

const FAST: [&str; 3] = ["optane-900p", "intel-p3700", "samsung-960pro"];
const ANY: [&str; 4] = [
    "optane-900p",
    "intel-p3700",
    "samsung-960pro",
    "intel-s3510",
];
const NAND: [&str; 3] = ["intel-p3700", "samsung-960pro", "intel-s3510"];

/// A device like one of `of`, none of its times exactly the same.
fn device(r: &mut Rng, of: &[&'static str]) -> SimTarget {
    let name = pick(r, of);
    let mut m = Model::named(name).unwrap();
    for path in [&mut m.read, &mut m.write] {
        path.media_us *= between(r, 0.85, 1.3);
        path.fixed_us *= between(r, 0.8, 1.3);
        path.command_ns *= between(r, 0.8, 1.2);
        path.gb_per_s *= between(r, 0.85, 1.15);
    }
    m.media_cv = between(r, 0.05, 0.4);
    m.pipeline_cv = between(r, 0.05, 0.4);
    let mut t = SimTarget::of(m);
    // Cores that have other work, or that may only doze below a device that takes longer than they do to wake.
    t.host.idle = if name != "optane-900p" && r.unit() < 0.5 {
        Idle::Shallow
    } else {
        Idle::Busy
    };
    t
}

fn guests(t: &mut SimTarget, machines: u32, iothreads: u32) {
    t.shape = Shape::Guests { machines };
    t.iothreads = iothreads;
}

fn array(t: &mut SimTarget, level: Level, members: u32) {
    t.shape = Shape::Raid { level, members };
}

/// A target, and the findings that name what is wrong with it; none where nothing is.
fn plant(what: Plant, r: &mut Rng) -> (SimTarget, &'static [&'static str]) {
    match what {
        Plant::IdleStates => {
            // It matters where the device is about as fast as a core wakes, or where several have to wake in turn.
            let mut t;
            if r.unit() < 0.5 {
                t = device(r, &["optane-900p"]);
                t.model.read.media_us = between(r, 2.0, 4.5);
            } else {
                t = device(r, &NAND);
                guests(&mut t, 1, 8);
            }
            t.host.idle = Idle::Menu;
            (t, &["idle-states"])
        }
        Plant::Scheduler => {
            let mut t = device(r, &FAST);
            t.host.scheduler_ns = between(r, 5_000.0, 40_000.0) as u64;
            (t, &["scheduler"])
        }
        Plant::SlowLayer => {
            let mut t = device(r, &FAST);
            if r.unit() < 0.5 {
                t.layer_ns = between(r, 5_000.0, 40_000.0) as u64;
                (t, &["stacked-layer"])
            } else {
                let device_ns = 1e3 * (t.model.read.media_us + t.model.read.fixed_us);
                t.host.complete_ns = (device_ns * between(r, 0.5, 1.5)) as u64 + 4_000;
                (t, &["completion"])
            }
        }
        Plant::SmallCache => {
            let mut t = device(r, &ANY);
            t.cache_bytes = (WORKING_SET.0 as f64 * between(r, 0.15, 0.4)) as u64;
            (t, &["cache-size"])
        }
        Plant::Throttling => {
            let mut t = device(r, &ANY);
            let (idle_w, active_w) = (between(r, 1.0, 5.0), between(r, 8.0, 14.0));
            let c_per_w = between(r, 3.0, 6.0);
            let ambient_c = between(r, 20.0, 35.0);
            // Between rest and full work; the time constant, two minutes in truth, is as short as the test.
            let share = between(r, 0.45, 0.7);
            let throttle_c = ambient_c + c_per_w * (idle_w + share * (active_w - idle_w));
            t.model.thermal = Some(Thermal {
                ambient_c,
                idle_w,
                active_w,
                c_per_w,
                time_constant_s: between(r, 0.65, 1.0),
                throttle_c,
                resume_c: throttle_c - between(r, 2.0, 6.0),
                slowdown: between(r, 2.0, 20.0),
            });
            (t, &["throttling"])
        }
        Plant::Parity => {
            let mut t = device(r, &ANY);
            let level = pick(r, &[Level::Raid5, Level::Raid6]);
            array(&mut t, level, 4 + r.below(5) as u32);
            (t, &["parity"])
        }
        Plant::Iothread => {
            let mut t = device(r, &FAST);
            guests(&mut t, 1, 1);
            t.host.idle = Idle::Busy;
            (t, &["iothread"])
        }
        Plant::Healthy => {
            let mut t = device(r, &ANY);
            match r.below(4) {
                0 => guests(&mut t, 1 + r.below(2) as u32, 8),
                1 => {
                    let level = pick(r, &[Level::Raid0, Level::Raid10]);
                    array(&mut t, level, 2 * (2 + r.below(3) as u32));
                }
                _ => {}
            }
            (t, &[])
        }
    }
}

/// Spread of a pass' rate around the model's.
const NOISE: f64 = 0.03;
/// Passes that somebody else disturbs, and what they lose.
const DISTURBED: (f64, f64) = (0.02, 0.2);

/// What a model measures, as a machine would: both sides of a pair have the same seed, and a model without noise would
/// answer both alike to the last digit wherever a change has no effect.
struct Noisy {
    inner: Counted,
    random: Rng,
}

impl Keeping for Noisy {
    fn measure(
        &mut self,
        bench: &mut dyn Bench,
        job: PlannedJob,
    ) -> Result<Measured, NotebookError> {
        let mut measured = self.inner.measure(bench, job)?;
        let r = &mut self.random;
        // Box and Muller.
        let normal = (2.0 * r.exponential()).sqrt() * (std::f64::consts::TAU * r.unit()).cos();
        let disturbed = if r.unit() < DISTURBED.0 {
            1.0 - DISTURBED.1
        } else {
            1.0
        };
        let factor = (NOISE * normal).exp() * disturbed;
        let job = &mut measured.job;
        for d in [&mut job.read, &mut job.write].into_iter().flatten() {
            (d.iops, d.bytes_per_second) = (d.iops * factor, d.bytes_per_second * factor);
        }
        Ok(measured)
    }
}

fn findings(target: SimTarget, seed: u64) -> Vec<Finding> {
    let mut plan: Plan = common::plan(100, 1);
    plan.limits.size = target.size();
    let effort = Effort {
        ios: Some(800),
        slice: Nanos::from_millis(125),
        ..Effort::model(WORKING_SET)
    };
    let options = TuneOptions {
        seed,
        ..TuneOptions::default()
    };
    let ground = Ground::Model(Box::new(target.clone()));
    let mut keeping = Noisy {
        inner: Counted::default(),
        random: Rng::new(seed, 0x4e4f_4953),
    };
    let mut stand = ModelStand {
        target,
        keeping: &mut keeping,
        control: Control::new(),
    };
    let mut all = tune::diagnose(&mut stand, &ground, &plan, &effort, &options)
        .unwrap()
        .findings();
    // Of which settings no difference is shown limits nothing.
    for f in all.iter().filter(|f| f.id == "tune-no-difference") {
        assert!(
            f.gain.is_none() && f.advice.is_empty() && f.text.contains("no difference shown (± ")
        );
    }
    all.retain(|f| f.id != "tune-no-difference");
    all
}

/// What a diagnosis said: its findings, each with its gain.
fn said(all: &[Finding]) -> String {
    let one = |f: &Finding| {
        let gain = f.gain.map_or(0.0, |g| g.value);
        format!("{} {gain:+.2} ({})", f.id, f.confidence)
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_first_finding_names_the_planted_bottleneck_and_healthy_targets_have_none() {
    let cases: Vec<(Plant, u64)> = PLANTS
        .iter()
        .flat_map(|p| (1..=SEEDS).map(|s| (*p, s)))
        .collect();
    let next = AtomicU64::new(0);
    let results: Mutex<BTreeMap<(Plant, u64), (bool, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some((what, seed)) =
                    cases.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    let mut r = Rng::new(*seed, 0x504c_414e + *what as u64);
                    let (target, names) = plant(*what, &mut r);
                    let all = findings(target, *seed);
                    let first = all.iter().find(|f| f.confidence != "weak");
                    let right = match names {
                        [] => first.is_none(),
                        names => first.is_some_and(|f| names.contains(&f.id.as_str())),
                    };
                    let mut results = results.lock().unwrap();
                    results.insert((*what, *seed), (right, said(&all)));
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let mut wrong = Vec::new();
    for what in PLANTS {
        let mine: Vec<_> = results.iter().filter(|r| r.0.0 == what).collect();
        let right = mine.iter().filter(|r| r.1.0).count();
        let share = 100.0 * right as f64 / mine.len() as f64;
        let weak = mine.iter().filter(|r| r.1.1.contains("weak")).count();
        println!(
            "{what:?}: {right} of {} right, {weak} with weak ones",
            mine.len()
        );
        for ((_, seed), (_, said)) in mine.iter().filter(|r| !r.1.0) {
            println!("  seed {seed}: said {said}");
        }
        if share < RIGHT {
            wrong.push(format!("{what:?}: {share:.0} %"));
        }
    }
    assert!(wrong.is_empty(), "below {RIGHT} %: {wrong:?}");
}

/// Asks to end once so many passes were measured.
struct Impatient {
    inner: Counted,
    left: u32,
    control: Control,
}

impl Keeping for Impatient {
    fn measure(
        &mut self,
        bench: &mut dyn Bench,
        job: PlannedJob,
    ) -> Result<Measured, NotebookError> {
        self.left -= 1;
        if self.left == 0 {
            self.control.interrupt();
        }
        self.inner.measure(bench, job)
    }
}

#[test]
fn a_sustained_load_ends_when_asked_and_says_what_it_lacks() {
    let target = SimTarget::of(Model::named("optane-900p").unwrap());
    let control = Control::new();
    let mut keeping = Impatient {
        inner: Counted::default(),
        left: 3,
        control: control.clone(),
    };
    let ground = Ground::Model(Box::new(target.clone()));
    let mut stand = ModelStand {
        target,
        keeping: &mut keeping,
        control,
    };
    let options = TuneOptions {
        only: vec!["throttling".into()],
        ..TuneOptions::default()
    };
    let mut plan: Plan = common::plan(100, 1);
    plan.limits.size = 1 << 30;
    let effort = Effort::model(WORKING_SET);
    let d = tune::diagnose(&mut stand, &ground, &plan, &effort, &options).unwrap();
    assert_eq!(keeping.left, 0, "no part was begun after the third");
    assert!(d.sustained.is_none() && d.findings().is_empty());
    assert!(
        d.left_out.iter().any(|l| l.starts_with("throttling: only")),
        "{:?}",
        d.left_out
    );
}

#[test]
fn a_finding_has_all_that_a_reader_needs_to_act_and_to_doubt() {
    let mut t = SimTarget::of(Model::named("optane-900p").unwrap());
    t.host.scheduler_ns = 20_000;
    let all = findings(t, 7);
    let f = &all[0];
    assert_eq!(
        (f.id.as_str(), f.confidence.as_str()),
        ("scheduler", "strong")
    );
    let gain = f.gain.unwrap();
    assert!(gain.low.unwrap() <= gain.value && gain.value <= gain.high.unwrap());
    assert!(
        f.text.contains("95 %") && f.text.contains("had not seen"),
        "{}",
        f.text
    );
    assert!(f.advice.contains("none"), "{}", f.advice);
    assert!(!f.refuted_by.is_empty() && !f.jobs.is_empty() && !f.evidence.is_empty());
    // What gains most comes first.
    let lows: Vec<f64> = all
        .iter()
        .filter(|f| f.confidence != "weak")
        .map(|f| f.gain.unwrap().low.unwrap())
        .collect();
    assert!(lows.is_sorted_by(|a, b| a >= b), "{lows:?}");
}

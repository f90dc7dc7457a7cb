//! Models of models: what a fit says of hidden devices at loads that it has not seen.

use fathom_bench::{Bench, SimBench};
use fathom_experiments::sim_fit::{Fit, FitError, fit};
use fathom_io::driver::PlannedJob;
use fathom_io::job::{BlockSizes, Rw};
use fathom_io::{Control, JobSpec};
use fathom_sim::SimTarget;
use fathom_sim::model::{Model, Path};
use fathom_sim::parameters::PARAMETERS;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::schema::{Job, Run};
use fathom_telemetry::{Nanos, Op};

/// A load by what matters.
fn load(rw: Rw, kib: u64, threads: u32, qd: u32) -> JobSpec {
    JobSpec {
        rw,
        bs: BlockSizes::one(kib << 10),
        threads,
        qd,
        ..JobSpec::default()
    }
}

/// Reads and writes in one load.
fn mixed(kib: u64, share: f64, threads: u32, qd: u32) -> JobSpec {
    JobSpec {
        read_share: share,
        ..load(Rw::RandMixed, kib, threads, qd)
    }
}

/// Runs a load for as long as about so many requests take.
fn measure(model: &Model, spec: &JobSpec, requests: f64, seed: u64) -> Job {
    let mut bench = SimBench::new(SimTarget::of(model.clone()), Control::new());
    let mut run = |ns: f64| {
        let spec = JobSpec {
            time: Some(Nanos(ns as u64)),
            ramp: Nanos(ns as u64 / 10),
            window: Nanos(ns as u64 / 10),
            seed,
            ..spec.clone()
        };
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        bench.run(&planned, None, &mut ()).unwrap().remove(0)
    };
    let first = run(5e6 * f64::from(spec.qd * spec.threads).max(4.0));
    match spec.rate {
        Some(rate) => run(requests / rate * 1e9),
        None => run(requests / first.iops() * 1e9),
    }
}

/// The loads of a survey.
fn of_a_survey() -> Vec<JobSpec> {
    let mut all = vec![
        load(Rw::RandRead, 4, 1, 1),
        load(Rw::RandWrite, 4, 1, 1),
        load(Rw::Read, 4, 1, 1),
        load(Rw::Write, 4, 1, 1),
        load(Rw::Read, 128, 2, 16),
        load(Rw::Write, 128, 2, 16),
        load(Rw::RandRead, 128, 2, 16),
        load(Rw::RandWrite, 128, 2, 16),
        load(Rw::RandRead, 4, 2, 64),
        load(Rw::RandWrite, 4, 2, 64),
    ];
    all.extend([2, 4].map(|d| load(Rw::RandRead, 4, 1, d)));
    all.extend([4, 8, 16, 32, 64].map(|d| load(Rw::RandRead, 4, 2, d)));
    all.extend([30.0, 50.0, 70.0, 90.0, 95.0].map(|share| mixed(4, share, 2, 8)));
    all
}

/// The same with as little as tells reads, writes and both together.
fn of_a_short_survey() -> Vec<JobSpec> {
    let mut all = vec![
        load(Rw::Read, 4, 1, 1),
        load(Rw::Read, 128, 2, 16),
        load(Rw::RandWrite, 4, 1, 1),
        load(Rw::RandWrite, 4, 2, 64),
        load(Rw::Write, 128, 2, 16),
    ];
    all.extend([(1, 1), (1, 4), (2, 8), (2, 64)].map(|(t, d)| load(Rw::RandRead, 4, t, d)));
    all.extend([30.0, 60.0, 90.0].map(|share| mixed(4, share, 2, 8)));
    all
}

/// Measures loads, three times each.
fn survey(model: &Model, all: &[JobSpec], requests: f64) -> Run {
    let mut jobs = Vec::new();
    for (i, spec) in all.iter().enumerate() {
        for repeat in 0..3 {
            jobs.push(measure(model, spec, requests, 1 + i as u64 * 3 + repeat));
        }
    }
    let bench = SimBench::new(SimTarget::of(model.clone()), Control::new());
    let mut run: Run = serde_json::from_value(serde_json::json!({
        "schema_version": 1, "tool_version": "", "name": "survey", "command": "survey", "command_line": [],
        "started": "", "finished": null, "profile": null, "seed": 1,
        "target": bench.describe(), "simulated": true, "environment": {},
        "headlines": [], "results": [], "sections": [], "jobs": [], "findings": [], "flags": [],
    }))
    .unwrap();
    run.jobs = jobs;
    run
}

/// Loads that no survey has: other sizes, mixtures, depths, bursts, open loops.
fn unseen(model: &Model) -> Vec<JobSpec> {
    let most = |spec: &JobSpec| measure(model, spec, 5_000.0, 9).iops();
    let mut all = vec![
        load(Rw::RandRead, 8, 1, 1),
        load(Rw::RandRead, 16, 1, 8),
        load(Rw::RandRead, 64, 1, 4),
        load(Rw::RandRead, 1024, 1, 2),
        load(Rw::RandWrite, 8, 1, 4),
        load(Rw::RandWrite, 32, 1, 8),
        load(Rw::RandWrite, 1024, 1, 2),
        load(Rw::Read, 64, 1, 4),
        load(Rw::RandRead, 4, 1, 12),
        mixed(4, 80.0, 2, 16),
        mixed(8, 70.0, 1, 8),
        mixed(16, 60.0, 1, 4),
    ];
    for (burst, spec) in [
        ("64/2ms", load(Rw::RandRead, 4, 2, 32)),
        ("24/1ms", load(Rw::RandWrite, 16, 1, 24)),
    ] {
        all.push(JobSpec {
            burst: Some(burst.parse().unwrap()),
            ..spec
        });
    }
    let open = [
        (Rw::RandRead, 4, 0.5),
        (Rw::RandRead, 16, 0.8),
        (Rw::RandWrite, 4, 0.6),
    ];
    for (rw, kib, share) in open {
        let closed = load(rw, kib, 2, 32);
        let rate = share * most(&closed);
        all.push(JobSpec {
            rate: Some(rate),
            ..load(rw, kib, 4, 64)
        });
    }
    all
}

/// A device that nobody fitted: every value is drawn.
fn hidden(seed: u64) -> Model {
    let mut random = SplitMix64::new(seed);
    let mut between = |low: f64, high: f64| (low.ln() + (high / low).ln() * random.unit()).exp();
    let units = between(4.0, 48.0).round();
    let gb_per_s = between(0.3, 6.0);
    // Medium and pipeline bound about as much.
    let media_us = between(0.3, 1.5) * units * 4.096 / gb_per_s;
    let buffered = between(1.0, 2.0) < 1.5;
    let write_gb_per_s = gb_per_s * between(0.4, 1.0);
    let mut model = Model {
        description: format!("hidden {seed}"),
        capacity_gb: 400.0,
        slots: [1024, 32, 1024][(seed % 3) as usize],
        units: units as u32,
        read_ahead: buffered,
        pipeline_cv: between(0.05, 0.8),
        media_cv: between(0.05, 0.6),
        read: Path {
            command_ns: between(100.0, 8_000.0),
            gb_per_s,
            media_us,
            fixed_us: between(0.5, 25.0),
        },
        write: Path {
            command_ns: between(100.0, 8_000.0),
            gb_per_s: write_gb_per_s,
            media_us: if buffered { 0.0 } else { media_us * 1.2 },
            fixed_us: between(1.0, 20.0),
        },
        mechanical: None,
        flash: None,
        thermal: None,
        synchronous: None,
        fit: None,
    };
    if buffered {
        let mb_per_s = write_gb_per_s * 1e3;
        let program = 0.6 * units * 4.096 / write_gb_per_s * between(0.05, 1.0);
        let flash = serde_json::json!({
            "sequential_mb_per_s": mb_per_s, "steady_random_iops": mb_per_s * 1e6 / 4096.0, "fast_cache_gb": 0.0,
            "behind_cache_gb_per_s": 10.0, "endurance_tb": 1000.0, "program_us": program,
        });
        model.flash = serde_json::from_value(flash).ok();
    }
    model
}

/// Models as likely as the best, of which each prediction gets its interval.
const DRAWS: u32 = 12;

/// How predictions stand to the truth.
#[derive(Default, Debug)]
struct Score {
    /// Of means, 99th and 99.9th percentiles, and rates: errors in percent.
    errors: [Vec<f64>; 4],
    /// Predictions within their interval, and not.
    covered: [usize; 2],
    /// The same of values.
    values: [usize; 2],
}

impl Score {
    /// Holds a fit against the truth, by so many requests of each load.
    fn add(&mut self, truth: &Model, fit: &Fit, seed: u64, requests: f64) {
        for value in &fit.values {
            let parameter = PARAMETERS.iter().find(|p| p.key == value.key).unwrap();
            let is = parameter.value(truth);
            let covered = value.low <= is && is <= value.high;
            self.values[usize::from(!covered)] += 1;
            println!(
                "{:28} {:>10.3} in {:.3} .. {:.3} ({:.3}){}",
                value.key,
                is,
                value.low,
                value.high,
                value.value,
                if covered { "" } else { "  *" }
            );
        }
        for (i, spec) in unseen(truth).iter().enumerate() {
            let is = measure(truth, spec, requests, seed * 100 + i as u64);
            let said = measure(&fit.model, spec, requests, seed * 100 + 50 + i as u64);
            let drawn: Vec<Job> = (1..=DRAWS)
                .map(|k| {
                    measure(
                        &fit.model.drawn(k).unwrap(),
                        spec,
                        requests,
                        seed * 100 + 60 + u64::from(k),
                    )
                })
                .collect();
            for op in [Op::Read, Op::Write] {
                let (Some(is_of), Some(said_of)) = (is.direction(op), said.direction(op)) else {
                    continue;
                };
                let (a, b) = (&is_of.response_ns, &said_of.response_ns);
                let n = |v: Option<u64>| v.map(|v| v as f64);
                let pairs = [
                    (a.mean, b.mean),
                    (n(a.p99), n(b.p99)),
                    (n(a.p99_9), n(b.p99_9)),
                    (Some(is_of.iops), Some(said_of.iops)),
                ];
                for (k, (is, said)) in pairs.into_iter().enumerate() {
                    let likely: Vec<f64> = drawn
                        .iter()
                        .filter_map(|job| {
                            let d = job.direction(op)?;
                            let l = &d.response_ns;
                            let v = [l.mean, n(l.p99), n(l.p99_9), Some(d.iops)][k]?;
                            Some(v.ln())
                        })
                        .collect();
                    if let (Some(is), Some(said)) = (is, said)
                        && likely.len() == DRAWS as usize
                    {
                        let middle = likely.iter().sum::<f64>() / likely.len() as f64;
                        let all: f64 = likely.iter().map(|v| (v - middle).powi(2)).sum();
                        let sd = (all / (likely.len() - 1) as f64).sqrt() + 5e-4;
                        let covered = (is.ln() - middle).abs() <= 2.0 * sd;
                        self.covered[usize::from(!covered)] += 1;
                        let error = (said / is - 1.0) * 100.0;
                        self.errors[k].push(error.abs());
                        if error.abs() > [5.0, 25.0, 50.0, 5.0][k] {
                            println!(
                                "  {:?} {:?} {} x {} {op:?} [{k}]: {error:+.1} %",
                                spec.rw, spec.bs, spec.threads, spec.qd,
                            );
                        }
                    }
                }
            }
        }
    }

    /// Shares within 5, 25, 50 and 5 percent.
    fn within(&self) -> [f64; 4] {
        let bounds = [5.0, 25.0, 50.0, 5.0];
        [0, 1, 2, 3].map(|k| {
            let good = self.errors[k].iter().filter(|e| **e <= bounds[k]).count();
            good as f64 / self.errors[k].len().max(1) as f64
        })
    }
}

#[test]
#[ignore = "takes minutes: bench/truth --fits runs it"]
fn fits_of_hidden_devices_predict_what_they_have_not_seen() {
    let count = std::env::var("FATHOM_FITS").map_or(12, |n| n.parse().unwrap());
    let first = std::env::var("FATHOM_FITS_FROM").map_or(1, |n| n.parse().unwrap());
    let mut score = Score::default();
    for seed in first..first + count {
        let truth = hidden(seed);
        let began = std::time::Instant::now();
        let run = survey(&truth, &of_a_survey(), 40_000.0);
        let taken = began.elapsed();
        let fit = fit(&[run]).unwrap();
        println!(
            "hidden {seed}: slots {} {}, survey {taken:.1?}, fit {:.1?}, held out {:.1} %, p99 {:.1} %",
            truth.slots,
            fit.model.slots,
            began.elapsed() - taken,
            fit.model.fit.as_ref().unwrap().mean_error_percent,
            fit.model.fit.as_ref().unwrap().p99_error_percent
        );
        score.add(&truth, &fit, seed, 60_000.0);
        println!(
            "so far {:?}, values {:?}, covered {:?}",
            score.within(),
            score.values,
            score.covered
        );
    }
}

#[test]
fn a_run_without_a_depth_sweep_is_refused() {
    let mut run = survey(&hidden(1), &of_a_survey(), 500.0);
    run.jobs.truncate(3);
    assert!(
        fit(&[run])
            .unwrap_err()
            .to_string()
            .contains("fathom survey")
    );
    assert!(matches!(fit(&[]), Err(FitError::TooLittle(_))));
}

#[test]
fn a_short_survey_of_reads_writes_and_both_predicts_what_it_has_not_seen() {
    let truth = hidden(4);
    let fit = fit(&[survey(&truth, &of_a_short_survey(), 40_000.0)]).unwrap();
    assert!(!fit.is_unfit(), "{}", fit.text);
    let mut score = Score::default();
    score.add(&truth, &fit, 4, 20_000.0);
    let within = score.within();
    assert!(within.iter().all(|share| *share >= 0.9), "{within:?}");
    let held = score.covered[0] as f64 / score.covered.iter().sum::<usize>() as f64;
    assert!(held >= 0.9, "{held}");
    assert!(score.values[1] <= 2, "{:?}", score.values);
    // Writes are answered by a buffer there, and keep units from reading.
    assert!(fit.model.write.media_us < 0.5, "{}", fit.text);
    assert!(
        fit.model.flash.is_some_and(|f| f.program_us > 1.0),
        "{}",
        fit.text
    );
}

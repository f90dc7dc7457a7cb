//! How long a simulation takes here, before it starts.
//!
//! A model's time says nothing about that: a second of a fast device is half a million I/Os, one of a disk a hundred. So
//! a few I/Os of the loads are simulated, and what one of them took is multiplied.

use fathom_io::clock::Clock;
use fathom_io::driver::PlannedJob;
use fathom_io::{Control, JobSpec};
use fathom_sim::SimError;
use fathom_telemetry::{Bytes, Nanos};

use crate::bench::Bench;
use crate::cost::{RunCost, moved};
use crate::sim_bench::{SimBench, simulated_time};

/// I/Os that are simulated of a load.
const SAMPLE: u64 = 4_000;
/// So many times as many the second time.
const LENGTHS: u64 = 5;
/// Of more loads than so many each has a shorter sample.
const LOADS: usize = 24;
/// But none less than this.
const LEAST_SAMPLE: u64 = 500;
/// A sample through the page cache of less of the model's time is followed by a longer one.
const LEAST: Nanos = Nanos::from_millis(50);
const LONGER: Nanos = Nanos::from_millis(300);
/// What a job takes here beside its I/Os: it is set up, judged, and saved.
const JOB: Nanos = Nanos::from_millis(2);
/// Page, charts, and everything that is made once.
const RUN: Nanos = Nanos::from_millis(150);

/// What was seen of a load.
#[derive(Clone, Copy)]
struct Seen {
    /// Seconds here.
    took: f64,
    /// Bytes per second of the model.
    rate: f64,
    /// Of the model, that was simulated.
    model: Nanos,
}

impl Seen {
    /// Seconds here for each second of the model.
    fn per_second(&self) -> f64 {
        self.took / self.model.as_secs_f64()
    }
}

/// Time that each phase takes here on a simulated target, and all of them together.
///
/// # Errors
/// Where the name stands for no model.
pub fn here(cost: &RunCost, target: &str) -> Result<(Vec<Nanos>, Nanos), SimError> {
    let mut benches = vec![(target, SimBench::open(target, Control::new())?)];
    let mut all: Vec<(&str, &JobSpec)> = Vec::new();
    for phase in &cost.phases {
        let place = phase.target.as_deref().unwrap_or(target);
        for (spec, _) in &phase.loads {
            if !all.iter().any(|(p, s)| *p == place && alike(s, spec)) {
                all.push((place, spec));
            }
        }
    }
    // The more there are, the shorter is each tried.
    let ios = (SAMPLE * LOADS as u64 / all.len().max(LOADS) as u64).max(LEAST_SAMPLE);
    let mut seen: Vec<(&str, &JobSpec, Option<Seen>)> = Vec::new();
    for (place, spec) in all {
        // The same target for all loads on it, as in the run itself.
        let there = benches.iter().position(|(p, _)| *p == place);
        let there = there.or_else(|| {
            benches.push((place, SimBench::open(place, Control::new()).ok()?));
            Some(benches.len() - 1)
        });
        let found = there.and_then(|i| sample(&mut benches[i].1, spec, ios));
        seen.push((place, spec, found));
    }
    let known: Vec<Seen> = seen.iter().filter_map(|s| s.2).collect();
    let mean = |f: fn(&Seen) -> f64| known.iter().map(f).sum::<f64>() / known.len().max(1) as f64;
    let usual = Seen {
        model: Nanos::from_secs(1),
        took: mean(Seen::per_second),
        rate: mean(|s| s.rate),
    };
    let mut each = Vec::new();
    for phase in &cost.phases {
        let jobs = match phase.loads.is_empty() {
            true => phase.jobs,
            false => phase.loads.iter().map(|l| l.1).sum(),
        };
        let mut seconds = JOB.as_secs_f64() * f64::from(jobs) + phase.here.as_secs_f64();
        if let Some(known) = phase.simulated {
            seconds += known.as_secs_f64();
        } else if phase.loads.is_empty() {
            let rest = phase.time.0.saturating_sub(phase.here.0);
            seconds += usual.per_second() * Nanos(rest).as_secs_f64();
        }
        for (spec, times) in &phase.loads {
            let place = phase.target.as_deref().unwrap_or(target);
            let same = seen.iter().find(|s| s.0 == place && alike(s.1, spec));
            let s = same.and_then(|s| s.2).unwrap_or(usual);
            seconds += f64::from(*times) * s.per_second() * model_seconds(spec, s.rate);
        }
        each.push(Nanos::from_secs_f64(seconds));
    }
    let all = each.iter().fold(RUN, |sum, t| sum + *t);
    Ok((each, all))
}

/// Whether two loads take as long to simulate.
fn alike(a: &JobSpec, b: &JobSpec) -> bool {
    let key = |s: &JobSpec| (s.rw, s.direct, s.bs.max(), s.qd, s.threads);
    key(a) == key(b) && a.rate == b.rate && a.read_share == b.read_share
}

/// Seconds of the model that are simulated of a job: its time, its bytes, whichever comes first.
fn model_seconds(spec: &JobSpec, rate: f64) -> f64 {
    let of = |b: Bytes| b.0 as f64 / rate.max(1.0);
    let timed = spec
        .time
        .map(|t| simulated_time(spec, t + spec.ramp).as_secs_f64());
    let limited = moved(spec).map(of);
    match (timed, limited) {
        (Some(t), Some(b)) => t.min(b + spec.ramp.as_secs_f64()),
        (Some(t), None) => t,
        (None, Some(b)) => b,
        (None, None) => spec.size.map_or(0.0, of),
    }
}

/// A few I/Os of a load; nothing of one that cannot run alone.
fn sample(bench: &mut SimBench, spec: &JobSpec, ios: u64) -> Option<Seen> {
    let mut short = spec.clone();
    (short.ios, short.bytes, short.time) = (Some(ios), None, None);
    short.ramp = Nanos::ZERO;
    short.record = false;
    // The first run of a load finds cold memory, which the many that follow it do not.
    let (cold, warm) = (run(bench, &short)?, run(bench, &short)?);
    if !short.direct && warm.model < LEAST {
        // What goes into the page cache at first says nothing of what follows.
        (short.ios, short.time) = (None, Some(LONGER));
        return run(bench, &short);
    }
    if spec.time.is_none() {
        return Some(Seen {
            took: cold.took.min(warm.took),
            ..warm
        });
    }
    // What a time ends is simulated in another way than what a number ends; two lengths tell the I/Os from the rest.
    let mut of = |times: u64| {
        (short.ios, short.time) = (None, Some(Nanos(warm.model.0 * times)));
        run(bench, &short)
    };
    let (one, many) = (of(1)?, of(LENGTHS)?);
    let more = Seen {
        took: many.took - one.took,
        model: Nanos(many.model.0.saturating_sub(one.model.0)),
        ..many
    };
    let better = more.took > 0.0 && more.per_second() < many.per_second();
    Some(if better { more } else { many })
}

fn run(bench: &mut SimBench, short: &JobSpec) -> Option<Seen> {
    let planned = [PlannedJob::new(short.validate(&bench.limits()).ok()?)];
    let clock = Clock::new();
    let begin = clock.now();
    let job = bench.run(&planned, None, &mut ()).ok()?.pop()?;
    let took = clock.now().since(begin).as_secs_f64();
    let model = job.wall_ns as f64 / 1e9;
    let bytes: u64 = [&job.read, &job.write, &job.trim]
        .into_iter()
        .flatten()
        .map(|d| d.bytes)
        .sum();
    (model > 0.0).then(|| Seen {
        took,
        rate: bytes as f64 / model,
        model: Nanos(job.wall_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(seconds: u64) -> RunCost {
        let spec = JobSpec {
            qd: 8,
            time: Some(Nanos::from_secs(seconds)),
            ..JobSpec::default()
        };
        let mut cost = RunCost::default();
        cost.phase("reads").add(&spec, 2);
        cost
    }

    #[test]
    fn a_slow_model_is_simulated_faster_than_a_fast_one_and_a_sampled_job_as_a_short_one() {
        // The least of a few: beside other work a look can take several times as long.
        let all = |cost: &RunCost, target: &str| {
            let once = |_| here(cost, target).unwrap().1.as_secs_f64();
            (0..5).map(once).fold(f64::INFINITY, f64::min)
        };
        let (fast, slow) = (
            all(&cost(100), "sim:optane-900p"),
            all(&cost(100), "sim:hdd"),
        );
        assert!(fast > 5.0 * slow, "{fast} against {slow}");
        // Of a job of days as much is simulated as of one of twenty seconds.
        let days = all(&cost(200_000), "sim:optane-900p");
        assert!(days < fast, "{days} against {fast}");
        assert!(here(&cost(1), "sim:nothing").is_err());
    }
}

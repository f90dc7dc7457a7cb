//! What is said before anything starts: jobs, time, and the bytes that may be written.
//!
//! One place knows how much a job can write, so that every command announces its wear alike, and keeps it.

use fathom_io::JobSpec;
use fathom_io::job::Rw;
use fathom_telemetry::{Bytes, Nanos};

use crate::results::Point;

/// A job's set-up and the gap to the next one.
const GAP: Nanos = Nanos::from_millis(20);

/// Time and bytes of an experiment, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCost {
    /// Jobs (or groups of jobs that run at the same time) over all repeats.
    pub jobs: u32,
    /// Measuring and ramp-up together, without filling the scratch file.
    pub time: Nanos,
    /// Written at most, the filling included.
    pub written_at_most: Bytes,
}

impl RunCost {
    /// Nothing but filling a scratch file.
    pub fn filling(fills: Bytes) -> Self {
        Self {
            jobs: 0,
            time: Nanos::ZERO,
            written_at_most: fills,
        }
    }

    /// Points that are measured so often each.
    pub fn of(fills: Bytes, points: &[Point], repeats: u32) -> Self {
        let mut cost = Self::filling(fills);
        for point in points {
            cost.add(&point.spec, repeats);
        }
        cost
    }

    /// A job that runs so many times.
    pub fn add(&mut self, spec: &JobSpec, times: u32) {
        let one = spec.time.unwrap_or(Nanos::ZERO) + spec.ramp + GAP;
        self.jobs += times;
        self.time += Nanos(one.0.saturating_mul(u64::from(times)));
        self.add_beside(spec, times);
    }

    /// A job that runs beside another one that was added: it takes no time of its own.
    pub fn add_beside(&mut self, spec: &JobSpec, times: u32) {
        let bytes = written_at_most(spec).0.saturating_mul(u64::from(times));
        self.written_at_most.0 = self.written_at_most.0.saturating_add(bytes);
    }

    /// Another part of the same experiment.
    pub fn join(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.time += other.time;
        self.written_at_most.0 = self
            .written_at_most
            .0
            .saturating_add(other.written_at_most.0);
    }
}

/// Bytes that one run of a job can write: its limit and the ramp's share, the schedule's rate where there is one,
/// one pass where it has neither limit nor time. A job with a time alone has no bound: [`crate::Plan::job`] gives it one
/// wherever writing wears something out.
pub fn written_at_most(spec: &JobSpec) -> Bytes {
    if !spec.rw.writes() {
        return Bytes(0);
    }
    let time = spec.time.map_or(0.0, |t| t.as_secs_f64());
    let ramp = spec.ramp.as_secs_f64();
    let all = match (spec.bytes, spec.rate, spec.time) {
        (Some(b), _, None) => b.0 as f64,
        (Some(b), _, Some(_)) => b.0 as f64 * (1.0 + ramp / time.max(1e-9)),
        (None, Some(rate), Some(_)) => rate * spec.bs.max().0 as f64 * (time + ramp),
        (None, _, None) => spec.size.map_or(0.0, |s| s.0 as f64),
        (None, None, Some(_)) => 0.0,
    };
    let mixed = matches!(spec.rw, Rw::Mixed | Rw::RandMixed) && spec.read_share > 0.0;
    if !mixed {
        return Bytes(all.ceil() as u64);
    }
    // Each I/O draws its direction: six standard deviations more happen once in 10⁹ jobs.
    let share = 1.0 - spec.read_share / 100.0;
    let block = spec.bs.max().0 as f64;
    let n = all / block.max(1.0);
    let more = 6.0 * (n * share * (1.0 - share)).sqrt();
    Bytes(((n * share + more).min(n) * block).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(options: &[(&str, &str)]) -> JobSpec {
        let mut spec = JobSpec::default();
        for (o, t) in options {
            spec.set(o, t).unwrap();
        }
        spec
    }

    #[test]
    fn what_a_job_can_write_follows_from_its_limits() {
        let at_most = |o: &[(&str, &str)]| written_at_most(&job(o)).0;
        assert_eq!(at_most(&[("rw", "randread"), ("bytes", "1m")]), 0);
        assert_eq!(at_most(&[("rw", "randtrim"), ("bytes", "1m")]), 0);
        let limit = [
            ("rw", "write"),
            ("bytes", "1m"),
            ("time", "1s"),
            ("ramp", "500ms"),
        ];
        assert_eq!(at_most(&limit), 3 << 19);
        assert_eq!(at_most(&[("rw", "write"), ("size", "1m")]), 1 << 20);
        let paced = [
            ("rw", "write"),
            ("bs", "4k"),
            ("rate", "100"),
            ("time", "2s"),
        ];
        assert_eq!(at_most(&paced), 200 * 4096);
        let mixed = |share| {
            let o = [
                ("rw", "randrw"),
                ("bs", "4k"),
                ("bytes", "400m"),
                ("read-share", share),
            ];
            at_most(&o) as f64 / f64::from(400 << 20)
        };
        assert_eq!((mixed("0"), mixed("100")), (1.0, 0.0));
        assert!((0.3..0.31).contains(&mixed("70")), "{}", mixed("70"));
    }

    #[test]
    fn jobs_add_up_and_what_runs_beside_takes_no_time() {
        let mut o = RunCost::filling(Bytes(10));
        let spec = job(&[("rw", "write"), ("bytes", "1m"), ("time", "1s")]);
        o.add(&spec, 3);
        o.add_beside(&spec, 2);
        o.join(o);
        assert_eq!(o.jobs, 6);
        assert_eq!(o.time, Nanos::from_millis(6 * 1020));
        assert_eq!(o.written_at_most.0, 2 * (10 + (5 << 20)));
    }
}

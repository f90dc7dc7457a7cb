//! What is said before anything starts: the phases of a run, each with its jobs, time, and the bytes that it may write.
//!
//! One place knows how much a job can write, so that every command announces its wear alike, and keeps it.

use fathom_io::JobSpec;
use fathom_io::job::Rw;
use fathom_telemetry::{Bytes, Nanos};

use crate::results::Point;

/// A job's set-up and the gap to the next one.
const GAP: Nanos = Nanos::from_millis(20);
/// Bytes per second at which a scratch file is filled, where nobody knows the disk yet.
pub const FILL_RATE: u64 = 1_000_000_000;
/// The phase that comes first where there is a scratch file.
const FILLING: &str = "filling the scratch file";
/// The phase of experiments that name none.
const MEASURING: &str = "measuring";

/// A part of a run.
#[derive(Debug, Clone)]
pub struct Phase {
    /// What it does, for people.
    pub name: String,
    /// Jobs over all repeats, at most.
    pub jobs: u32,
    /// Measuring, ramp-up and what prepares it, as far as it is expected.
    pub time: Nanos,
    /// Written at most.
    pub written_at_most: Bytes,
    /// Of the time, what no model makes shorter.
    pub here: Nanos,
    /// What its simulation takes, where that is known; else it follows from the loads.
    pub simulated: Option<Nanos>,
    /// Loads, and how many times each is expected to run: what a simulation of it takes follows from them.
    pub loads: Vec<(JobSpec, u32)>,
    /// The simulated target of the loads, where it is not the run's.
    pub target: Option<String>,
}

impl Phase {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            jobs: 0,
            time: Nanos::ZERO,
            written_at_most: Bytes(0),
            here: Nanos::ZERO,
            simulated: None,
            loads: Vec::new(),
            target: None,
        }
    }
}

/// The phases of an experiment, in the order in which they run; the whole is their sum.
#[derive(Debug, Clone, Default)]
pub struct RunCost {
    /// Each with a name of its own.
    pub phases: Vec<Phase>,
    /// Files that are there at the same time, at most, where many are made.
    pub files: u64,
}

impl RunCost {
    /// Nothing but filling a scratch file; nothing at all where there is none.
    pub fn filling(fills: Bytes) -> Self {
        let mut cost = Self::default();
        if fills.0 > 0 {
            cost.phase(FILLING);
            cost.fill(fills);
        }
        cost
    }

    /// Points that are measured so often each.
    pub fn of(fills: Bytes, points: &[Point], repeats: u32) -> Self {
        let mut cost = Self::filling(fills);
        cost.phase(MEASURING);
        for point in points {
            cost.add(&point.spec, repeats);
        }
        cost
    }

    /// Begins a phase, or goes on with the one of this name: what is added belongs to it.
    pub fn phase(&mut self, name: &str) -> &mut Self {
        let known = self.phases.iter().position(|p| p.name == name);
        let phase = known.map_or_else(|| Phase::new(name), |k| self.phases.remove(k));
        self.phases.push(phase);
        self
    }

    /// The loads of the phase run on this simulated target.
    pub fn on(&mut self, target: String) -> &mut Self {
        self.last().target = Some(target);
        self
    }

    fn last(&mut self) -> &mut Phase {
        if self.phases.is_empty() {
            self.phase(MEASURING);
        }
        let last = self.phases.len() - 1;
        &mut self.phases[last]
    }

    /// A job that runs so many times.
    pub fn add(&mut self, spec: &JobSpec, times: u32) {
        self.add_up_to(spec, times, times);
    }

    /// A job of which what was measured before decides how often it runs: at most, and as is expected.
    pub fn add_up_to(&mut self, spec: &JobSpec, most: u32, expected: u32) {
        let one = spec.time.unwrap_or_else(|| passing(spec)) + spec.ramp + GAP;
        self.work(
            most,
            Nanos(one.0.saturating_mul(u64::from(expected))),
            Bytes(written_at_most(spec).0.saturating_mul(u64::from(most))),
        );
        self.last().loads.push((spec.clone(), expected));
    }

    /// A job that runs beside another one that was added: it takes no time of its own.
    pub fn add_beside(&mut self, spec: &JobSpec, times: u32) {
        let bytes = written_at_most(spec).0.saturating_mul(u64::from(times));
        self.work(times, Nanos::ZERO, Bytes(bytes));
    }

    /// What is no job of a known load: jobs, time, bytes.
    pub fn work(&mut self, jobs: u32, time: Nanos, bytes: Bytes) -> &mut Self {
        let phase = self.last();
        phase.jobs = phase.jobs.saturating_add(jobs);
        phase.time.0 = phase.time.0.saturating_add(time.0);
        let written = &mut phase.written_at_most.0;
        *written = written.saturating_add(bytes.0);
        self
    }

    /// What such work is like where it is simulated.
    pub fn simulated_as(&mut self, spec: &JobSpec, times: u32) {
        self.last().loads.push((spec.clone(), times));
    }

    /// What a simulation of the phase takes here, found by whoever plans it.
    pub fn simulated_in(&mut self, time: Nanos) {
        let known = self.last().simulated.unwrap_or_default();
        self.last().simulated = Some(known + time);
    }

    /// Work that takes as long beside a model as beside a disk: processors do it.
    pub fn work_here(&mut self, time: Nanos) {
        self.work(0, time, Bytes(0));
        self.last().here += time;
    }

    /// Data that are laid out before something is measured.
    pub fn fill(&mut self, bytes: Bytes) {
        let seconds = bytes.0 as f64 / FILL_RATE as f64;
        self.work(0, Nanos::from_secs_f64(seconds), bytes);
    }

    /// The phases of another part of the same run, after the own ones.
    pub fn join(&mut self, other: Self) {
        self.files = self.files.max(other.files);
        for phase in other.phases {
            self.phase(&phase.name)
                .work(phase.jobs, phase.time, phase.written_at_most);
            self.last().here += phase.here;
            self.last().loads.extend(phase.loads);
            let last = self.last();
            last.target = phase.target.or_else(|| last.target.take());
            if let Some(time) = phase.simulated {
                self.simulated_in(time);
            }
        }
    }

    /// All phases as one of this name; none where there is none.
    #[must_use]
    pub fn as_one(self, name: &str) -> Self {
        let mut one = Self::default();
        for phase in self.phases {
            one.join(Self {
                phases: vec![Phase {
                    name: name.to_owned(),
                    ..phase
                }],
                files: self.files,
            });
        }
        one
    }

    /// The same so many times over.
    #[must_use]
    pub fn times(mut self, n: u32) -> Self {
        for phase in &mut self.phases {
            phase.jobs = phase.jobs.saturating_mul(n);
            phase.time.0 = phase.time.0.saturating_mul(u64::from(n));
            let written = &mut phase.written_at_most.0;
            *written = written.saturating_mul(u64::from(n));
            phase.here.0 = phase.here.0.saturating_mul(u64::from(n));
            phase.simulated = phase
                .simulated
                .map(|t| Nanos(t.0.saturating_mul(u64::from(n))));
            for (_, times) in &mut phase.loads {
                *times = times.saturating_mul(n);
            }
        }
        self
    }

    /// Bytes of the scratch file that is filled first.
    pub fn filled(&self) -> Bytes {
        let filling = self.phases.iter().filter(|p| p.name == FILLING);
        Bytes(filling.map(|p| p.written_at_most.0).sum())
    }

    /// Jobs (or groups of jobs that run at the same time) over all repeats.
    pub fn jobs(&self) -> u32 {
        let jobs = self.phases.iter().map(|p| p.jobs);
        jobs.fold(0, u32::saturating_add)
    }

    /// Of all phases.
    pub fn time(&self) -> Nanos {
        let times = self.phases.iter().map(|p| p.time.0);
        Nanos(times.fold(0, u64::saturating_add))
    }

    /// Written at most, the filling included.
    pub fn written_at_most(&self) -> Bytes {
        let bytes = self.phases.iter().map(|p| p.written_at_most.0);
        Bytes(bytes.fold(0, u64::saturating_add))
    }
}

/// Bytes after which a job ends, where it has such a limit.
pub(crate) fn moved(spec: &JobSpec) -> Option<Bytes> {
    let ios = spec.ios.map(|n| Bytes(n.saturating_mul(spec.bs.max().0)));
    match (spec.bytes, ios) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Time of a job that ends by its bytes.
fn passing(spec: &JobSpec) -> Nanos {
    let bytes = moved(spec).or(spec.size).unwrap_or(Bytes(0));
    match spec.rw.reads() || spec.rw.writes() {
        true => Nanos::from_secs_f64(bytes.0 as f64 / FILL_RATE as f64),
        false => Nanos::ZERO,
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
        o.join(o.clone());
        assert_eq!(o.jobs(), 10);
        assert_eq!(o.time().0 / 1_000_000, 6 * 1020);
        assert_eq!(o.written_at_most().0, 2 * (10 + (5 << 20)));
    }

    #[test]
    fn the_whole_is_the_sum_of_its_phases_and_a_phase_that_goes_on_is_one() {
        let spec = job(&[("rw", "write"), ("bytes", "1m"), ("time", "1s")]);
        let mut o = RunCost::filling(Bytes(2_000_000_000));
        o.phase("search").add_up_to(&spec, 4, 2);
        o.phase("proof").add(&spec, 1);
        o.phase("search").add(&spec, 1);
        let names: Vec<&str> = o.phases.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["filling the scratch file", "proof", "search"]);
        let search = &o.phases[2];
        // Bytes are those of the most jobs, time is that of as many as are expected.
        assert_eq!((search.jobs, search.written_at_most), (5, Bytes(5 << 20)));
        assert_eq!(search.time, Nanos::from_millis(3 * 1020));
        assert_eq!(o.jobs(), 6);
        assert_eq!(o.time(), Nanos::from_millis(2_000 + 4 * 1020));
        let twice = o.clone().times(2);
        assert_eq!(twice.written_at_most().0, 2 * o.written_at_most().0);
        assert_eq!(twice.time().0, 2 * o.time().0);
    }
}

//! Many hosts as one bench: each runs its share of every job ([`split`]), all begin at one moment, and their measures
//! become one ([`merge`]). Where one host is lost, the point is void and the others end at once.

mod files;
mod merge;
mod model;
mod reach;
mod rows;
pub mod split;

use std::io::Read;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use fathom_bench::bench::{FilesOfHosts, LogMaker};
use fathom_bench::{Bench, BenchError};
use fathom_io::driver::{ClosedWindow, DriveError, PlannedJob, Progress, live};
use fathom_io::job::Limits;
use fathom_io::replay::{Score, trace_file};
use fathom_io::{Control, Observer};
use fathom_system::guest::wire::{Answer, Ask, AskedJob};
use fathom_system::guest::{Asker, Guest};
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde_json::Value;

use crate::LabError;
use crate::guest::conduct::{Ran, Told, conduct};
use crate::guest::remote::{asked, sum};
use merge::{Merger, list, played as played_by};
pub use model::ModelFleet;
pub use reach::Fleet;
pub use split::Layout;
use split::places;

/// An agent that hears nothing for so long ends its load and cleans up.
const LEASE: Nanos = Nanos::from_secs(20);
/// A host that says nothing for so long is lost.
const SILENCE: Nanos = Nanos::from_secs(5);
/// Models share their processors with all others.
const SILENCE_OF_MODELS: Nanos = Nanos::from_secs(60);
/// Hosts may begin so far apart, or by 1 % of the job's time, whichever is more; clocks may move as much.
const APART: Nanos = Nanos::from_millis(10);

/// A trace is sent in pieces of this size, and kept in the memory of each host.
const TRACE_CHUNK: u64 = 16 << 20;
const TRACE_MAX: u64 = 4 << 30;

/// The agents of all hosts and what each measures.
pub struct FleetBench {
    guests: Vec<Guest>,
    names: Vec<String>,
    /// Files that may be left where a host is lost, by host.
    files: Vec<Option<String>>,
    about: schema::Target,
    limits: Limits,
    layout: Layout,
    fills: u64,
    simulated: bool,
    cpus: u32,
    control: Control,
    /// For every job.
    stamps: Vec<Flag>,
    hosts: Value,
    /// Files that each host made last; none where there is no directory for them.
    made: Option<Vec<u64>>,
    /// Who was lost, and how.
    lost: Option<String>,
    /// Tells agents that somebody listens, until it is dropped.
    _keeper: Sender<()>,
}

impl FleetBench {
    /// Runs a part on each host; those that are lost are `None`, and named in the sentence.
    fn conduct(
        &mut self,
        parts: Vec<Ask>,
        told: &mut dyn FnMut(Told),
    ) -> (Vec<Option<Ran>>, Option<LabError>) {
        let silence = if self.simulated {
            SILENCE_OF_MODELS
        } else {
            SILENCE
        };
        let ran = conduct(&mut self.guests, parts, &self.control, Some(silence), told);
        let mut first = None;
        let mut who = Vec::new();
        let mut parts = Vec::new();
        for (h, one) in ran.into_iter().enumerate() {
            match one {
                Ok(ran) => parts.push(Some(ran)),
                Err(e) => {
                    who.push(h);
                    first.get_or_insert(e);
                    parts.push(None);
                }
            }
        }
        if let Some(e) = &first {
            self.lost = Some(format!("{}: {e}", list(&self.names, &who)));
        }
        (parts, first)
    }

    /// Sends a trace to every host, which keeps it in memory.
    fn send_trace(&mut self, score: &Score) -> Result<(), BenchError> {
        let path = trace_file(&score.path).map_err(|e| BenchError::Outside(e.to_string()))?;
        let refused = |why: String| {
            BenchError::Outside(format!(
                "{}: {why}; hosts get a trace of one file, such as fathom's io.parquet or blkparse's output of all processors (-d)",
                path.display()
            ))
        };
        let mut file = std::fs::File::open(&path).map_err(|e| refused(e.to_string()))?;
        let size = file.metadata().map_or(0, |m| m.len());
        if size > TRACE_MAX {
            let most = Bytes(TRACE_MAX);
            return Err(refused(format!(
                "its {} do not fit into memory: expected at most {most}",
                Bytes(size)
            )));
        }
        let mut chunk = vec![0; TRACE_CHUNK.min(size.max(1)) as usize];
        let mut goes_on = false;
        loop {
            if self.control.interrupted() {
                return Err(DriveError::Start {
                    job: "on all hosts".into(),
                    message: "interrupted while its trace was sent".into(),
                }
                .into());
            }
            let n = file.read(&mut chunk).map_err(|e| refused(e.to_string()))?;
            if n == 0 && goes_on {
                return Ok(());
            }
            let ask = Ask::Trace { goes_on };
            for (guest, name) in self.guests.iter_mut().zip(&self.names) {
                let asked = guest.ask(&ask, &chunk[..n]);
                asked.map_err(|e| gone(&format!("{name}: {e}")))?;
            }
            for (guest, name) in self.guests.iter_mut().zip(&self.names) {
                let kept = guest.answer();
                kept.map_err(|e| gone(&format!("{name}: {e}")))?;
            }
            goes_on = true;
        }
    }

    /// What is said of a host that was lost.
    fn lost_flag(&self, parts: &[Option<Ran>]) -> Option<Flag> {
        let lost = self.lost.as_ref()?;
        let gone = parts.iter().zip(&self.names).zip(&self.files);
        let left: Vec<String> = gone
            .filter(|((ran, _), _)| ran.is_none())
            .filter_map(|((_, name), file)| Some(format!("{} on {name}", file.as_ref()?)))
            .collect();
        let remedy = match left.is_empty() {
            true => "look at that host, and run again".to_owned(),
            false => format!(
                "look at that host, remove what may be left with fathom clean there ({}), and run again",
                left.join(", ")
            ),
        };
        Some(Flag::new(FlagCode::HostLost, lost.clone(), remedy))
    }

    /// What stands against measures as those of one moment, and each host's place in time.
    fn in_step(&self, jobs: &mut [Job], planned: &[PlannedJob], parts: &[Option<Ran>]) {
        if self.simulated {
            return;
        }
        for (job, plan) in jobs.iter_mut().zip(planned) {
            let spec = &plan.job.spec;
            // Some end long before their time.
            let lasted = spec.time.map_or(job.wall_ns, |t| t.0.min(job.wall_ns));
            let phase = lasted + spec.ramp.0;
            let limit = APART.0.max(phase / 100) as i64;
            let here = &parts[places(plan, parts.len())];
            for (share, ran) in job.hosts.iter_mut().zip(here) {
                let Some(ran) = ran else { continue };
                let began = ran.began.0 as i64 - ran.due.0 as i64;
                share.late_ns = share.late_ns.max(began);
                share.clock_offset_ns = ran.clock.offset;
                share.clock_bound_ns = ran.clock.bound.0;
                share.clock_moved_ns = ran.clock.moved;
            }
            let late = job.hosts.iter().map(|h| h.late_ns);
            let apart = late.clone().max().unwrap_or(0) - late.min().unwrap_or(0);
            let bound = job
                .hosts
                .iter()
                .map(|h| h.clock_bound_ns)
                .max()
                .unwrap_or(0);
            let last = job.hosts.iter().max_by_key(|h| h.late_ns);
            let mover = job.hosts.iter().max_by_key(|h| h.clock_moved_ns.abs());
            let mut against = Vec::new();
            if let Some(last) = last.filter(|_| apart + 2 * bound as i64 > limit) {
                against.push(format!(
                    "hosts began {} apart (known to {}), {} last",
                    Nanos(apart.unsigned_abs()),
                    Nanos(2 * bound),
                    last.host
                ));
            }
            if let Some(m) = mover.filter(|m| m.clock_moved_ns.abs() - 2 * bound as i64 > limit) {
                against.push(format!(
                    "the clock of {} moved by {}",
                    m.host,
                    Nanos(m.clock_moved_ns.unsigned_abs())
                ));
            }
            for what in against {
                job.flags.push(Flag::new(
                    FlagCode::OutOfStep,
                    format!("{what}; {} were allowed", Nanos(limit as u64)),
                    "run again on hosts that do nothing else, or longer",
                ));
            }
            job.engine_notes.push(format!(
                "{} hosts began within {}, clocks known to {}",
                job.hosts.len(),
                Nanos(apart.unsigned_abs()),
                Nanos(bound)
            ));
        }
    }

    /// Runs each host's part of a group, beginning together, and puts their measures together.
    fn group(
        &mut self,
        jobs: &[PlannedJob],
        asks: Vec<Ask>,
        observer: &mut dyn Observer,
    ) -> Result<(Vec<Job>, Vec<Option<Ran>>), BenchError> {
        if let Some(lost) = &self.lost {
            return Err(gone(lost));
        }
        let n = self.guests.len();
        let mut merger = Merger::new(jobs, n);
        let (names, group) = (self.names.clone(), live::begin_group());
        // Models have clocks of their own, which all begin with the run.
        let real = !self.simulated;
        let here = |t: Nanos, ahead: i64| match real {
            true => Nanos(t.0.saturating_add_signed(-ahead)),
            false => t,
        };
        let mut sums = vec![Progress::default(); n];
        let (mut parts, failed) = self.conduct(asks, &mut |told| match told {
            Told::Window {
                guest,
                job,
                start,
                origin: (origin, ahead),
                width,
                window,
            } => {
                let w = ClosedWindow {
                    job,
                    start_ns: start,
                    origin: here(origin, ahead),
                    width,
                    window: &window,
                };
                merger.take(guest, &w, observer);
                if let Some(j) = merger.job_of(guest, job) {
                    let host = Some(names[guest].as_str());
                    live::tell(&jobs[j], (group, j), (guest as u32, n), host, &window);
                }
            }
            Told::Progress { guest, progress } => {
                sums[guest] = progress;
                observer.progress(&sum(&sums, progress.elapsed));
            }
            Told::Ready | Told::Ended => {}
        });
        // Nothing began: the job is refused there, or its host was gone before.
        if let (Some(e), true) = (&failed, sums.iter().all(|s| s.elapsed == Nanos::ZERO)) {
            let lost = self.lost.clone().unwrap_or_default();
            return Err(match e.is_refusal() {
                true => BenchError::Outside(lost),
                false => gone(&lost),
            });
        }
        let taken = |p: &mut Option<Ran>| p.as_mut().map(|p| std::mem::take(&mut p.there.jobs));
        let own: Vec<Option<Vec<Job>>> = parts.iter_mut().map(taken).collect();
        let missing = self.rows(jobs, &parts, &merger, observer);
        let mut all = merger.finish(jobs, &own, &self.names, observer);
        self.made = files::told(&mut all, jobs, &parts, self.made.take());
        missing
            .into_iter()
            .for_each(|(job, flag)| all[job].flags.push(flag));
        self.in_step(&mut all, jobs, &parts);
        let lost = self.lost_flag(&parts);
        for job in &mut all {
            if lost.is_some() {
                // The others were ended because of it, by nobody else.
                job.flags.retain(|f| f.code != FlagCode::Interrupted);
            }
            job.flags.extend(lost.iter().chain(&self.stamps).cloned());
        }
        Ok((all, parts))
    }
}

impl Bench for FleetBench {
    fn limits(&self) -> Limits {
        self.limits
    }
    fn describe(&self) -> schema::Target {
        self.about.clone()
    }
    fn simulated(&self) -> bool {
        self.simulated
    }
    fn control(&self) -> Control {
        self.control.clone()
    }
    fn hosts(&self) -> Option<Value> {
        Some(self.hosts.clone())
    }
    fn files(&mut self) -> Option<&mut dyn FilesOfHosts> {
        self.made.is_some().then_some(self as _)
    }
    fn processors(&self) -> u32 {
        self.cpus
    }
    fn fills(&self) -> Bytes {
        Bytes(self.fills)
    }

    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        if std::mem::take(&mut self.fills) == 0 {
            return Ok(None);
        }
        let n = self.guests.len();
        let mut sums = vec![Progress::default(); n];
        let (parts, failed) = self.conduct(vec![Ask::Prepare; n], &mut |told| {
            if let Told::Progress { guest, progress } = told {
                sums[guest] = progress;
                observer.progress(&sum(&sums, progress.elapsed));
            }
        });
        if let Some(lost) = self.lost.as_ref().filter(|_| failed.is_some()) {
            return Err(BenchError::Prepare(lost.clone()));
        }
        // The slowest speaks for all: nobody reads before it has written.
        let jobs = parts.into_iter().flatten().flat_map(|p| p.there.jobs);
        Ok(jobs.max_by_key(|j| j.wall_ns))
    }

    fn run(
        &mut self,
        jobs: &[PlannedJob],
        _log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        if let Some(lost) = &self.lost {
            return Err(gone(lost));
        }
        let n = self.guests.len();
        let part = |(h, name): (usize, &String)| {
            let own = split::of_host(jobs, (h, name), n, self.layout, self.limits)?;
            let own = own.into_iter().map(|part| AskedJob {
                spec: serde_json::to_value(&part.spec).unwrap_or_default(),
                files: part
                    .planned
                    .files
                    .as_ref()
                    .map(|f| files::share(f, h, self.made.as_deref())),
                playing: part.playing,
                ..asked(part.planned)
            });
            Ok(Ask::Run {
                jobs: own.collect(),
            })
        };
        let asks: Result<Vec<Ask>, BenchError> = self.names.iter().enumerate().map(part).collect();
        let asks = asks?;
        for feed in jobs.iter().filter_map(|p| p.job.feed.as_ref()) {
            self.send_trace(&feed.playing().score)?;
        }
        let (all, parts) = self.group(jobs, asks, observer)?;
        let played = parts
            .into_iter()
            .map(|p| p.map_or_else(Vec::new, |p| p.there.played));
        played_by(jobs, played.collect(), &self.names);
        Ok(all)
    }

    fn load(
        &mut self,
        lab: &str,
        asked: &dyn Fn(u32) -> Value,
        planned: &PlannedJob,
        observer: &mut dyn Observer,
    ) -> Result<(Job, Vec<Value>), BenchError> {
        let asks = (0..self.guests.len() as u32).map(|h| Ask::Load {
            lab: lab.to_owned(),
            asked: asked(h),
        });
        let (jobs, parts) = self.group(std::slice::from_ref(planned), asks.collect(), observer)?;
        let said = parts.into_iter().flatten().map(|p| p.there.said);
        let job = jobs.into_iter().next_back();
        let none = || BenchError::Outside(format!("{lab}: no host measured anything"));
        Ok((job.ok_or_else(none)?, said.collect()))
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        let Self {
            mut guests,
            names,
            lost,
            made,
            ..
        } = *self;
        let mut left = Vec::new();
        // The first made what others use: it is removed when they have removed what is theirs.
        let first = usize::from(made.is_some()).min(guests.len());
        let mut hosts: Vec<(&mut Guest, &String)> = guests.iter_mut().zip(&names).collect();
        let others = hosts.split_off(first);
        for part in [others, hosts] {
            left.extend(closed(part, lost.is_some()));
        }
        for guest in &guests {
            let _ = guest.asker().ask(&Ask::Off, &[]);
        }
        guests.into_iter().for_each(Guest::off);
        match left.is_empty() {
            true => Ok(()),
            false => Err(BenchError::Outside(format!(
                "not everything was removed: {}; run fathom clean there",
                left.join("; ")
            ))),
        }
    }
}

/// Has hosts close their targets; returns what is left there, by host.
fn closed(hosts: Vec<(&mut Guest, &String)>, lost: bool) -> Vec<String> {
    for (guest, _) in &hosts {
        // Those that are gone are asked in vain.
        let _ = guest.asker().ask(&Ask::Close, &[]);
    }
    let answer = |(guest, name): (&mut Guest, &String)| loop {
        match guest.answer() {
            Ok((Answer::Done, _)) => return None,
            Ok(_) => {}
            // Who was lost was named with what it may have left.
            Err(_) if lost => return None,
            Err(e) => return Some(format!("{name}: {e}")),
        }
    };
    hosts.into_iter().filter_map(answer).collect()
}

fn gone(lost: &str) -> BenchError {
    DriveError::Start {
        job: "on all hosts".into(),
        message: format!("a host was lost: {lost}"),
    }
    .into()
}

/// Tells all agents that somebody listens, until the returned handle is dropped.
fn keep(askers: Vec<Asker>) -> Result<Sender<()>, LabError> {
    let (stop, ended) = channel::<()>();
    let keeper = std::thread::Builder::new().spawn(move || {
        let every = Duration::from_secs(1);
        while ended.recv_timeout(every) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            for asker in &askers {
                // Who is gone is missed elsewhere.
                let _ = asker.ask(&Ask::Alive, &[]);
            }
        }
    });
    keeper
        .map(|_| stop)
        .map_err(|e| LabError::Failed(fathom_io::threads::refused(&e)))
}

//! Keeps a run while it happens: jobs, series, I/O log; saved after every group, so that nothing is lost.
//!
//! A disk that runs full ends no measurement: the numbers are in memory. `run.json` has room kept back for
//! it; log and series end early and stay readable; what is missing is flagged.

use std::path::Path;

use fathom_io::driver::{ClosedWindow, Observer, OfHost, PlannedJob, Progress, live};
use fathom_telemetry::identity::{self, Host, Identity};
use fathom_telemetry::iolog::{IoLog, IoLogError, LogSummary};
use fathom_telemetry::reserve::Reserve;
use fathom_telemetry::rundir::{RunDir, RunDirError};
use fathom_telemetry::schema::{Job, Run, SCHEMA_VERSION, SavedResult, Target};
use fathom_telemetry::series::{JobOfSeries, SeriesError, SeriesSummary, SeriesWriter};
use fathom_telemetry::{Flag, FlagCode, Nanos, Price, Window, say, utc};

use crate::bench::{Bench, BenchError};
use crate::hosts::HostBooks;
use crate::present::{self, PresentError};
use crate::results::{Evidence, ExperimentResult, Merged, Presenter};
use crate::steadiness;

/// Why a run could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum NotebookError {
    /// The run directory.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The series.
    #[error(transparent)]
    Series(#[from] SeriesError),
    /// The I/O log.
    #[error(transparent)]
    Log(#[from] IoLogError),
    /// The jobs.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// What an experiment does beside its jobs.
    #[error("{0}")]
    Beside(String),
    /// A result that cannot be written as JSON, or not be read back.
    #[error(transparent)]
    Result(#[from] PresentError),
}

/// What a run says of itself before its first job.
#[derive(Debug, Clone, Default)]
pub struct RunMeta {
    /// Name, part of the directory's.
    pub name: String,
    /// Subcommand.
    pub command: String,
    /// As typed.
    pub command_line: Vec<String>,
    /// Profile of a survey.
    pub profile: Option<String>,
    /// Seed of everything.
    pub seed: u64,
    /// What its owner calls it.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Environment capsule.
    pub environment: serde_json::Value,
}

/// Room that is kept back for `run.json`, which is written beside the one before: a survey's, and what a disk must
/// have for a run to begin. It grows with the file.
const RESERVE_BYTES: u64 = 1 << 20;
const RESERVE_BYTES_MIN: u64 = 256 << 10;

/// A run under way.
pub struct Notebook {
    run: Run,
    dir: RunDir,
    series: Option<SeriesWriter>,
    log: Option<IoLog>,
    /// What each host of a fleet did.
    hosts: Option<HostBooks>,
    summary: Option<LogSummary>,
    merged: Vec<Merged>,
    courses: Vec<Vec<f64>>,
    presenters: Vec<Presenter>,
    began: std::time::Instant,
    /// The same on the clock of the jobs' times.
    began_at: Nanos,
    made_base: bool,
    saved: std::time::Instant,
    reserve: Reserve,
    /// It was said that `run.json` cannot be written now.
    warned: bool,
}

/// A run of which nothing is measured yet.
fn new_run(meta: RunMeta, target: Target, simulated: bool) -> Run {
    let mut run = Run {
        schema_version: SCHEMA_VERSION,
        run_id: identity::new_id(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: meta.name,
        command: meta.command,
        command_line: meta.command_line,
        started: utc::rfc3339(std::time::SystemTime::now()),
        finished: None,
        profile: meta.profile,
        seed: meta.seed,
        target,
        simulated,
        labels: meta.labels,
        environment: meta.environment,
        headlines: Vec::new(),
        results: Vec::new(),
        sections: Vec::new(),
        jobs: Vec::new(),
        findings: Vec::new(),
        flags: Vec::new(),
    };
    if let Some(price) = Price::of(&run) {
        price.put_into(&mut run);
    }
    run
}

impl Notebook {
    /// Makes the run directory below `base`. `log_handles` is the number of recording threads, 0 for no log.
    pub fn create(
        base: &Path,
        meta: RunMeta,
        target: Target,
        simulated: bool,
        log_handles: usize,
    ) -> Result<Self, NotebookError> {
        let made_base = !base.exists();
        let dir = RunDir::create(base, &meta.name)?;
        Self::begin(dir.clone(), made_base, meta, target, simulated, log_handles)
            .inspect_err(|_| remove(&dir, made_base))
    }

    fn begin(
        dir: RunDir,
        made_base: bool,
        meta: RunMeta,
        target: Target,
        simulated: bool,
        log_handles: usize,
    ) -> Result<Self, NotebookError> {
        let reserve =
            Reserve::hold(dir.path(), RESERVE_BYTES_MIN, RESERVE_BYTES).map_err(|source| {
                RunDirError::Write {
                    path: dir.run_file(),
                    source,
                }
            })?;
        let run = new_run(meta, target, simulated);
        // A model's clock begins with the run.
        let began_at = match simulated {
            true => Nanos::ZERO,
            false => fathom_io::clock::monotonic(),
        };
        let now = utc::nanos(std::time::SystemTime::now());
        let mut identity = Identity {
            tool_version: run.tool_version.clone(),
            run: run.name.clone(),
            run_id: run.run_id.clone(),
            host: None,
            clock_zero_ns: now.saturating_sub_unsigned(began_at.0),
            simulated,
        };
        let recorded = log_handles > 0;
        let hosts = &run.environment["hosts"];
        let hosts: Result<_, NotebookError> = HostBooks::create(&dir, &identity, hosts, recorded);
        let hosts = hosts?;
        if hosts.is_none() {
            identity.host = Some(Host::own());
        }
        let log = match recorded && hosts.is_none() {
            true => Some(IoLog::create(
                &dir.io_file(),
                identity.clone(),
                log_handles,
            )?),
            false => None,
        };
        let series = Some(SeriesWriter::create(&dir.series_file(), identity, 1)?);
        dir.save(&run)?;
        Ok(Self {
            run,
            dir,
            series,
            log,
            hosts,
            summary: None,
            merged: Vec::new(),
            courses: Vec::new(),
            presenters: Vec::new(),
            began: std::time::Instant::now(),
            began_at,
            made_base,
            saved: std::time::Instant::now(),
            reserve,
            warned: false,
        })
    }

    /// Where it is kept.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// What there is so far.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// For adding results, headlines, findings, flags.
    pub fn run_mut(&mut self) -> &mut Run {
        &mut self.run
    }

    /// What results rest on so far.
    pub fn evidence(&self) -> Evidence<'_> {
        Evidence::new(&self.run, &self.merged)
    }

    /// Keeps what an experiment found. It is shown from what is saved, at the end of the run.
    ///
    /// # Errors
    /// Where the value cannot be written as JSON.
    pub fn found<T: ExperimentResult>(&mut self, result: &T) -> Result<(), NotebookError> {
        let data = serde_json::to_value(result).map_err(|source| PresentError::Damaged {
            experiment: T::EXPERIMENT.into(),
            source,
        })?;
        self.run.results.push(SavedResult {
            experiment: T::EXPERIMENT.into(),
            version: T::VERSION,
            data,
        });
        self.presenters.push(Presenter::of::<T>());
        Ok(())
    }

    /// Bytes of each window of the jobs of the group that [`Notebook::measure`] ran last.
    pub fn courses(&self) -> &[Vec<f64>] {
        &self.courses
    }

    /// Runs a group and keeps it; returns the indices of its jobs.
    pub fn measure(
        &mut self,
        bench: &mut dyn Bench,
        jobs: &[PlannedJob],
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Vec<usize>, NotebookError> {
        let first = self.run.jobs.len();
        let mut keeper = Keeper {
            first,
            jobs,
            series: self.series.as_mut(),
            hosts: self.hosts.as_mut(),
            merged: vec![Merged::default(); jobs.len()],
            courses: vec![Vec::new(); jobs.len()],
            thermometer: Thermometer::of(bench, jobs),
            progress,
        };
        let log = self.log.as_ref();
        for (i, planned) in jobs.iter().enumerate() {
            if let Some(log) = log.filter(|_| planned.job.spec.record) {
                log.name((first + i) as u16, &planned.job.spec.name);
            }
        }
        let make = |job: usize, thread: u32| match log {
            Some(log) => log.handle((first + job) as u16, thread as u16, Nanos::ZERO),
            None => unreachable!("the maker is only passed on where there is a log"),
        };
        let maker: crate::bench::LogMaker<'_> = if log.is_some() { Some(&make) } else { None };
        let start = Nanos::from(self.began.elapsed());
        let mut measures = bench.run(jobs, maker, &mut keeper)?;
        if !bench.simulated() {
            // The driver counts from the group's start; the run's clock goes on between groups.
            measures.iter_mut().for_each(|j| j.start_ns += start.0);
        }
        if let Some(hosts) = &mut keeper.hosts {
            hosts.settle();
        }
        let (merged, courses) = (keeper.merged, keeper.courses);
        let celsius = keeper.thermometer.map_or(Vec::new(), |t| t.read);
        measures.iter_mut().for_each(flag_empty);
        let mut found = Vec::new();
        for (i, (job, course)) in measures.iter_mut().zip(&courses).enumerate() {
            found.extend(steadiness::judge(
                job,
                &jobs[i],
                course,
                &celsius,
                first + i,
            ));
        }
        for regimes in &found {
            self.found(regimes)?;
        }
        measures.iter().for_each(live::judge);
        self.merged.extend(merged);
        self.courses = courses;
        self.run.jobs.extend(measures);
        self.save_soon();
        Ok((first..self.run.jobs.len()).collect())
    }

    /// Keeps a load that something else than the driver drove and that has just ended, with its windows of `width`,
    /// numbered from the measured part on; `course` is the number of operations in each window of a regular width, of
    /// which it is judged whether the level still moved. Returns the index of its job.
    pub fn keep_load(
        &mut self,
        mut job: Job,
        (width, windows): (Nanos, &[Window]),
        course: (Nanos, &[f64]),
    ) -> usize {
        let index = self.run.jobs.len();
        flag_empty(&mut job);
        steadiness::judge_load(&mut job, course.1, course.0);
        self.keep(job);
        let kept = &self.run.jobs[index];
        let of = JobOfSeries {
            index: index as u16,
            name: &kept.name,
            origin: self.began_at + Nanos(kept.start_ns),
        };
        for window in windows {
            merge(&mut self.merged[index], window);
            if let Some(s) = &mut self.series {
                // Where it has to end early, it says so in the end.
                let _ = s.push(&of, width, window);
            }
        }
        self.save_soon();
        index
    }

    /// A run of thousands of short jobs would spend its time on saving: it loses two seconds at most.
    fn save_soon(&mut self) {
        if self.run.jobs.len() < 200 || self.saved.elapsed().as_secs() >= 2 {
            self.save_now();
        }
    }

    /// Keeps a job that was not run through [`Notebook::measure`] (such as the preparation) and has just
    /// ended.
    pub fn keep(&mut self, mut job: Job) {
        // The driver counts from its own start; the run's clock goes on between jobs.
        let now = Nanos::from(self.began.elapsed());
        job.start_ns = now.0.saturating_sub(job.wall_ns);
        self.run.jobs.push(job);
        self.merged.push(Merged::default());
    }

    /// Closes the I/O log, so that an experiment can read it; jobs after this are not recorded.
    ///
    /// # Errors
    /// Where the log could not be finished.
    pub fn finish_log(&mut self) -> Result<(), NotebookError> {
        if let Some(log) = self.log.take() {
            let closed = log.finish()?;
            self.summary = Some(self.closed_log(closed));
        }
        let of_hosts = self.hosts.as_mut().map(HostBooks::finish_logs);
        for closed in of_hosts.into_iter().flatten() {
            let s = self.closed_log(closed?);
            let all = self.summary.get_or_insert_default();
            all.rows += s.rows;
            all.bytes += s.bytes;
        }
        Ok(())
    }

    fn closed_log(&mut self, s: LogSummary) -> LogSummary {
        let (why, remedy) = match &s.error {
            None => (
                "its writer could not keep up".to_owned(),
                "totals and series are complete; use fewer threads, or a faster place for --out",
            ),
            Some(e) => (cause(e), ROOM),
        };
        if let Some(e) = &s.error {
            let kept = match s.rows {
                0 => "none of it could be kept".to_owned(),
                rows => format!("its first {rows} I/Os are kept"),
            };
            let why = cause(e);
            self.missing(format!("io.parquet ends early, {kept}: {why}"));
        }
        for (job, lost) in &s.lost_by_job {
            if let Some(j) = self
                .run
                .jobs
                .get_mut(usize::from(*job))
                .filter(|_| *lost > 0)
            {
                j.flags.push(Flag::new(
                    FlagCode::LogLostRecords,
                    format!("{lost} of the I/Os are missing from io.parquet: {why}"),
                    remedy,
                ));
            }
        }
        s
    }

    /// What the run directory lacks, as a flag of the run: the measurement is whole.
    fn missing(&mut self, detail: String) {
        let flag = Flag::new(FlagCode::LogLostRecords, detail, ROOM);
        self.run.flags.push(flag);
    }

    fn save(&mut self) -> Result<(), RunDirError> {
        let mut saved = self.dir.save(&self.run);
        if saved.as_ref().is_err_and(RunDirError::is_full) && self.reserve.release() {
            saved = self.dir.save(&self.run);
        }
        if saved.is_ok() {
            let length = std::fs::metadata(self.dir.run_file()).map_or(0, |m| m.len());
            // Where there is no room any more, the next save shows whether it matters.
            let wanted = RESERVE_BYTES.max(2 * length);
            let _ = self.reserve.extend(RESERVE_BYTES_MIN, wanted);
        }
        saved
    }

    /// Saves between groups. Where that fails, the numbers are kept in memory and saved with the next ones.
    fn save_now(&mut self) {
        match self.save() {
            Ok(()) => self.saved = std::time::Instant::now(),
            Err(e) if !self.warned => {
                self.warned = true;
                say!("fathom: {e}; measuring goes on, what was measured is saved at the end");
            }
            Err(_) => {}
        }
    }

    /// Keeps what ended the run early as a flag of the run, which voids it.
    pub fn broke_off(&mut self, error: &NotebookError) {
        self.run.flags.push(Flag::new(
            FlagCode::IoErrors,
            format!("the run ended early: {error}"),
            "look at the kernel log; what was measured until then is kept",
        ));
    }

    /// Forgets a run that was refused before anything was measured: removes its directory.
    pub fn discard(mut self) {
        drop(self.series.take());
        if let Some(hosts) = self.hosts.take() {
            hosts.remove();
        }
        // The log's thread must have ended before its file can go.
        drop(self.log.take().map(IoLog::finish));
        remove(&self.dir, self.made_base);
    }

    /// Ends the run: closes series and log, saves. The caller then writes the report. What could not be kept
    /// is a flag of the run that is returned; it may not be in the one on the disk.
    ///
    /// # Errors
    /// None that loses what was measured.
    pub fn finish(mut self) -> Result<(Run, RunDir, Option<LogSummary>), NotebookError> {
        // The log first: where it filled the disk, its end makes room.
        if let Err(e) = self.finish_log() {
            self.missing(e.to_string());
        }
        if let Some(series) = self.series.take() {
            let finished = series.finish();
            self.finished_series(finished);
        }
        let made = present::shown(&self.run, &self.merged, &self.presenters)?;
        present::finish(&mut self.run, made);
        self.run.finished = Some(utc::rfc3339(std::time::SystemTime::now()));
        // What can be read alone is worth more than what says more of it.
        let io = self.dir.io_files().into_iter();
        let mut others = io.chain([self.dir.series_file()]);
        while let Err(e) = self.save() {
            let given_up = others.find(|f| e.is_full() && std::fs::remove_file(f).is_ok());
            let Some(file) = given_up else {
                let why = cause(&e);
                self.missing(format!(
                    "the run could not be saved in its directory: {why}"
                ));
                break;
            };
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            self.missing(format!("{name} was given up, so that run.json has room"));
        }
        if let Some(hosts) = self.hosts.take() {
            let before = self.run.flags.len();
            let (finished, unsaved) = hosts.finish(&self.run);
            finished.into_iter().for_each(|f| self.finished_series(f));
            unsaved
                .into_iter()
                .for_each(|e| self.missing(e.to_string()));
            if self.run.flags.len() > before {
                // Where there is no room for that either, it stands in the run that is returned.
                let _ = self.save();
            }
        }
        Ok((self.run, self.dir, self.summary))
    }

    fn finished_series(&mut self, finished: Result<SeriesSummary, SeriesError>) {
        match finished {
            Ok(s) => {
                if let Some(e) = s.error {
                    let all = s.rows + s.lost;
                    let lost = s.lost;
                    let why = cause(&e);
                    self.missing(format!(
                        "{lost} of {all} rows of series.parquet are missing: {why}"
                    ));
                }
            }
            Err(e) => self.missing(e.to_string()),
        }
    }
}

/// What the system said, without the sentence around it.
fn cause(e: &dyn std::error::Error) -> String {
    e.source()
        .map_or_else(|| e.to_string(), ToString::to_string)
}

/// What helps where the disk of the run directory is the cause.
const ROOM: &str = "totals are complete; free some space, or choose another directory with --out";

/// Removes a run directory of which nothing is worth keeping.
fn remove(dir: &RunDir, made_base: bool) {
    for file in [dir.run_file(), dir.series_file(), dir.io_file()] {
        let _ = std::fs::remove_file(file);
    }
    // Directories that hold anything else stay: these calls fail then.
    let _ = std::fs::remove_dir(dir.path());
    if let Some(base) = dir.path().parent().filter(|_| made_base) {
        let _ = std::fs::remove_dir(base);
    }
}

/// A job that ended in its ramp-up, or in which nothing completed, has no rate: not 0, a hole.
fn flag_empty(job: &mut Job) {
    let ios: u64 = [&job.read, &job.write, &job.trim]
        .into_iter()
        .flatten()
        .map(|d| d.ios + d.errors)
        .sum();
    // What is void already has its reason.
    if ios == 0 && !job.is_void() {
        let mut flag = Flag::new(
            FlagCode::TooFewSamples,
            "no I/O completed in the measured part: the job reached its limit before, or the device did not answer",
            "shorten the ramp-up, or allow more time, bytes or I/Os",
        );
        flag.void = true;
        job.flags.push(flag);
    }
}

fn merge(merged: &mut Merged, window: &Window) {
    for (total, d) in merged.iter_mut().zip(&window.directions) {
        if let Some(d) = d {
            total
                .get_or_insert_with(Box::default)
                .merge_sparse(&d.response);
        }
    }
}

/// Writes windows to the series and merges them.
struct Keeper<'a> {
    first: usize,
    jobs: &'a [PlannedJob],
    hosts: Option<&'a mut HostBooks>,
    series: Option<&'a mut SeriesWriter>,
    merged: Vec<Merged>,
    /// Bytes of each window, by job.
    courses: Vec<Vec<f64>>,
    thermometer: Option<Thermometer>,
    progress: &'a mut dyn FnMut(&Progress),
}

impl Observer for Keeper<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        if w.start_ns < 0 {
            return;
        }
        merge(&mut self.merged[w.job], w.window);
        let index = (w.start_ns as u64 / w.width.0.max(1)) as usize;
        let course = &mut self.courses[w.job];
        if index >= course.len() && index < steadiness::WINDOWS_MAX {
            course.resize(index + 1, 0.0);
        }
        if let Some(sum) = course.get_mut(index) {
            *sum += w.window.directions[..3]
                .iter()
                .flatten()
                .map(|d| d.bytes as f64)
                .sum::<f64>();
        }
        if let Some(s) = &mut self.series {
            // Where it has to end early, it says so in the end.
            let of = JobOfSeries {
                index: (self.first + w.job) as u16,
                name: &self.jobs[w.job].job.spec.name,
                origin: w.origin,
            };
            let _ = s.push(&of, w.width, w.window);
        }
    }
    fn of_host(&mut self, host: usize, what: &OfHost<'_>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.take(host, self.first, self.jobs, what);
        }
    }
    fn progress(&mut self, p: &Progress) {
        let windows = self.courses.first().map_or(0, Vec::len);
        if let Some(t) = &mut self.thermometer {
            t.look(windows);
        }
        (self.progress)(p);
    }
}

/// The disk's temperature during long jobs, from the kernel's sensors.
struct Thermometer {
    disk: String,
    next: Nanos,
    /// Windows that had ended, and °C.
    read: Vec<(usize, f64)>,
}

impl Thermometer {
    /// Between readings.
    const PERIOD: Nanos = Nanos::from_secs(1);

    /// For one long job on a disk that has a sensor.
    fn of(bench: &dyn Bench, jobs: &[PlannedJob]) -> Option<Self> {
        let long = |j: &PlannedJob| j.job.spec.time.is_none_or(|t| t >= steadiness::TIME_MIN);
        if bench.simulated() || jobs.len() != 1 || !jobs.iter().all(long) {
            return None;
        }
        let mut t = Self {
            disk: bench.describe().device?,
            next: Nanos::ZERO,
            read: Vec::new(),
        };
        t.look(0);
        (!t.read.is_empty()).then_some(t)
    }

    fn look(&mut self, windows: usize) {
        let now = fathom_io::clock::monotonic();
        if now < self.next {
            return;
        }
        self.next = now + Self::PERIOD;
        let root = fathom_host::HostRoot::real();
        let celsius = fathom_host::health::temperature(&root, &self.disk);
        self.read.extend(celsius.map(|c| (windows, c)));
    }
}

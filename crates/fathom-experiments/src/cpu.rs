//! CPU realism: what idle cores add to latency, and what a loaded or wakeful system would see.
//!
//! A benchmark that only waits lets its cores sleep and clock down; real applications do not (Malventano,
//! "Intel Optane 900P", 2017, p. 3). [`CpuBench`] runs jobs on another bench with every core kept busy by
//! a thread of the lowest priority (SCHED_IDLE: it runs only where nothing else wants to), or with idle
//! states forbidden (/dev/cpu_dma_latency held open at 0, see the kernel's Documentation/power/pm_qos).
//! Both hold for the length of a job only, and both end with the process however it ends, killed
//! included: threads die with it, and the kernel drops the request when the descriptor closes.

use std::cell::Cell as Switch;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fathom_io::driver::PlannedJob;
use fathom_io::job::Limits;
use fathom_io::{JobError, JobSpec, Observer};
use fathom_stack::settings::NoIdle;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell as TableCell, Finding, Job, Section, Table, Target};
use fathom_telemetry::{Bytes, FlagCode, Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, BenchError, LogMaker};
use crate::cells::{Cell, Plan};
use crate::notebook::{Notebook, NotebookError};
use crate::outlook::Outlook;
use crate::parts::{column, estimate, headline_of};
use crate::results::{Evidence, ExperimentResult, Point, Shown};
use crate::runner::Runner;
use crate::survey::Watcher;

/// What a job's note of the setting begins with.
pub(crate) const NOTE: &str = "CPU: ";

/// How the processors are kept while a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuSetting {
    /// As the system is.
    #[default]
    AsIs,
    /// A thread of the lowest priority on every core.
    Busy,
    /// No idle states.
    LowLatency,
}

impl CpuSetting {
    /// The word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::AsIs => "as-is",
            Self::Busy => "busy",
            Self::LowLatency => "low-latency",
        }
    }

    /// In a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::AsIs => "the system as it is",
            Self::Busy => "every core kept busy at the lowest priority",
            Self::LowLatency => "idle states forbidden (/dev/cpu_dma_latency at 0)",
        }
    }
}

impl std::str::FromStr for CpuSetting {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::AsIs, Self::Busy, Self::LowLatency]
            .into_iter()
            .find(|s| s.word() == text)
            .ok_or_else(|| format!("'{text}' is not one of as-is, busy, low-latency"))
    }
}

/// Another bench with the processors kept in a setting while jobs run.
pub struct CpuBench<'a> {
    inner: &'a mut dyn Bench,
    setting: Rc<Switch<CpuSetting>>,
    only: Option<&'static str>,
}

impl<'a> CpuBench<'a> {
    /// Every job of `inner` under `setting`.
    pub fn new(inner: &'a mut dyn Bench, setting: CpuSetting) -> Self {
        Self {
            inner,
            setting: Rc::new(Switch::new(setting)),
            only: None,
        }
    }

    /// Only the jobs of one experiment.
    #[must_use]
    pub fn only(mut self, experiment: &'static str) -> Self {
        self.only = Some(experiment);
        self
    }
}

impl Bench for CpuBench<'_> {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn describe(&self) -> Target {
        self.inner.describe()
    }
    fn simulated(&self) -> bool {
        self.inner.simulated()
    }
    fn control(&self) -> fathom_io::Control {
        self.inner.control()
    }
    fn fills(&self) -> Bytes {
        self.inner.fills()
    }
    fn real(&mut self) -> Option<&mut crate::bench::RealBench> {
        self.inner.real()
    }
    fn health(&mut self) -> Option<fathom_host::Health> {
        self.inner.health()
    }
    fn shares_disk_with(&self, dir: &std::path::Path) -> bool {
        self.inner.shares_disk_with(dir)
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.inner.prepare(observer)
    }

    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        let concerns = |p: &PlannedJob| self.only.is_none_or(|o| p.experiment == o);
        let setting = self.setting.get();
        if setting == CpuSetting::AsIs || !jobs.iter().all(concerns) {
            return self.inner.run(jobs, log, observer);
        }
        let keeper = Keeper::start(setting)?;
        let began = fathom_io::clock::monotonic();
        let measured = self.inner.run(jobs, log, observer);
        let lasted: std::time::Duration = (fathom_io::clock::monotonic() - began).into();
        let burnt = keeper.end();
        let mut measured = measured?;
        for (job, planned) in measured.iter_mut().zip(jobs) {
            job.engine_notes.push(format!("{NOTE}{}", setting.words()));
            leave_out(job, planned, burnt, lasted);
        }
        Ok(measured)
    }
}

/// Takes the busy threads' share out of the job's CPU time, and with it a verdict that rests on it.
fn leave_out(job: &mut Job, planned: &PlannedJob, burnt: Duration, lasted: Duration) {
    if burnt.is_zero() || lasted.is_zero() {
        return;
    }
    let share = (job.wall_ns as f64 / lasted.as_nanos() as f64).min(1.0);
    let busy = (burnt.as_nanos() as f64 * share) as u64;
    job.cpu_ns = job.cpu_ns.saturating_sub(busy);
    job.cpu_user_ns = job.cpu_user_ns.saturating_sub(busy);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
    let capacity = job.wall_ns as f64 * cores.min(f64::from(planned.seats().0));
    if (job.cpu_ns as f64) < 0.95 * capacity {
        job.flags.retain(|f| f.code != FlagCode::CpuBound);
    }
}

/// Holds a setting until it is dropped.
struct Keeper {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Duration, String>>>,
    _latency: Option<NoIdle>,
}

impl Keeper {
    fn start(setting: CpuSetting) -> Result<Self, BenchError> {
        let mut keeper = Self {
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            _latency: None,
        };
        match setting {
            CpuSetting::AsIs => {}
            CpuSetting::LowLatency => {
                keeper._latency = Some(NoIdle::hold().map_err(|e| {
                    BenchError::Cpu(format!(
                        "--cpu low-latency: idle states cannot be forbidden: {e}; run as root, or use --cpu busy"
                    ))
                })?);
            }
            CpuSetting::Busy => {
                let refuse = |e: String| BenchError::Cpu(format!("--cpu busy: {e}"));
                let (ready, answers) = std::sync::mpsc::channel();
                let cpus = sys::cpus().map_err(refuse)?;
                for cpu in &cpus {
                    let (stop, ready, cpu) = (keeper.stop.clone(), ready.clone(), *cpu);
                    let thread = std::thread::Builder::new()
                        .name(format!("busy-{cpu}"))
                        .spawn(move || busy(cpu, &stop, &ready))
                        .map_err(|e| refuse(format!("no thread for processor {cpu}: {e}")))?;
                    keeper.threads.push(thread);
                }
                for _ in &cpus {
                    answers
                        .recv()
                        .map_err(|_| refuse("a busy thread ended early".into()))?
                        .map_err(refuse)?;
                }
            }
        }
        Ok(keeper)
    }

    /// Ends it; returns the CPU time that the busy threads used.
    fn end(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .drain(..)
            .filter_map(|t| t.join().ok()?.ok())
            .sum()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// Keeps a processor awake. Without the lowest priority it would take time from the measurement: then it
/// does not start at all.
fn busy(
    cpu: usize,
    stop: &AtomicBool,
    ready: &std::sync::mpsc::Sender<Result<(), String>>,
) -> Result<Duration, String> {
    let set = sys::lowest_priority_on(cpu);
    let _ = ready.send(set.clone());
    set?;
    let mut x = 1u64;
    while !stop.load(Ordering::Relaxed) {
        // Simple instructions: little heat, so that the clock stays where a loaded system has it.
        for _ in 0..1000 {
            x = std::hint::black_box(x.wrapping_mul(3).wrapping_add(1));
        }
    }
    Ok(sys::thread_time())
}

/// The scheduler's calls.
mod sys {
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Processors that this process may use.
    pub(super) fn cpus() -> Result<Vec<usize>, String> {
        let set = sched_getaffinity(None).map_err(|e| format!("processors are unknown: {e}"))?;
        Ok((0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect())
    }

    /// Pins the calling thread and gives it SCHED_IDLE.
    pub(super) fn lowest_priority_on(cpu: usize) -> Result<(), String> {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|e| format!("cannot pin to processor {cpu}: {e}"))?;
        // SAFETY: a structure of numbers; priority 0 is what is asked for (musl has further fields).
        let param: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: 0 means the calling thread, and `param` outlives the call.
        let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) } != 0;
        if failed {
            let e = std::io::Error::last_os_error();
            return Err(format!(
                "the lowest priority is refused: {e}; use --cpu as-is"
            ));
        }
        Ok(())
    }

    /// CPU time of the calling thread.
    pub(super) fn thread_time() -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(t.tv_sec.max(0) as u64, t.tv_nsec.max(0) as u32)
    }
}

/// Patterns whose latency is compared, with one outstanding I/O.
const PATTERNS: [(&str, &str); 2] = [("read", "sequential read"), ("randread", "random read")];
/// Pairs of a job's short runs.
const JOB_PAIRS: u32 = 6;
/// Length of such a run, at most.
const JOB_TIME: Nanos = Nanos::from_millis(1000);

fn pairs(plan: &Plan) -> u32 {
    2 * plan.profile.repeats
}

/// One setting's job of a pattern.
fn job_of(plan: &Plan, rw: &str, setting: CpuSetting) -> Result<JobSpec, JobError> {
    plan.job(
        &format!("cpu-{rw}-{}", setting.word()),
        &[("rw", rw), ("bs", "4k"), ("qd", "1")],
    )
}

/// Loads under a setting and with the system as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CpuResult {
    setting: CpuSetting,
    told: Told,
    loads: Vec<Load>,
}

/// What is compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Load {
    /// Stable name.
    id: String,
    label: String,
    /// What it is in a sentence.
    thing: String,
    /// Whose latency counts.
    op: Op,
    /// Its job with the system as it is, and under the setting.
    points: [Point; 2],
}

/// How a comparison is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told {
    group: String,
    text: String,
}

/// Time of a comparison.
///
/// # Errors
/// Where the jobs do not fit the target.
pub fn outlook(plan: &Plan) -> Result<Outlook, JobError> {
    let mut o = Outlook::filling(Bytes(0));
    for (rw, _) in PATTERNS {
        o.add(&job_of(plan, rw, CpuSetting::AsIs)?, 2 * pairs(plan));
    }
    Ok(o)
}

/// Compares 4 KiB reads under `setting` with the system as it is, in pairs of alternating order (ABBA).
///
/// # Errors
/// Where the bench or the run directory fails, or the setting is refused.
pub fn compare(
    bench: &mut dyn Bench,
    plan: &Plan,
    setting: CpuSetting,
    seed: u64,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let mut loads = Vec::new();
    for (rw, label) in PATTERNS {
        let job = |s| job_of(plan, rw, s).map_err(BenchError::from);
        loads.push(Load {
            id: rw.into(),
            label: label.into(),
            thing: format!("4 KiB {label}"),
            op: Op::Read,
            points: [job(CpuSetting::AsIs)?, job(setting)?].map(Point::new),
        });
    }
    let told = Told {
        group: "CPU realism, 4 KiB latency, one outstanding".into(),
        text: "4 KiB reads, one at a time".into(),
    };
    in_pairs(
        bench,
        loads,
        (setting, pairs(plan)),
        seed,
        (book, watcher),
        told,
    )
}

/// Compares jobs of one's own under `setting` with the system as it is: runs of at most a second, in pairs
/// of alternating order.
///
/// # Errors
/// Where the bench or the run directory fails, or the setting is refused.
pub fn compare_jobs(
    bench: &mut dyn Bench,
    specs: &[JobSpec],
    setting: CpuSetting,
    seed: u64,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let loads: Vec<Load> = specs
        .iter()
        .enumerate()
        .filter_map(|(i, spec)| {
            let op = match (spec.rw.reads(), spec.rw.writes()) {
                (true, _) => Op::Read,
                (false, true) => Op::Write,
                _ => return None,
            };
            let job = |s: CpuSetting| JobSpec {
                name: format!("cpu-{}-{}", spec.name, s.word()),
                time: Some(spec.time.unwrap_or(JOB_TIME).min(JOB_TIME)),
                record: false,
                group: None,
                ..spec.clone()
            };
            Some(Load {
                id: format!("job-{}", i + 1),
                label: format!("{}, {}s", spec.name, op.name()),
                thing: format!("{} of job '{}'", op.name(), spec.name),
                op,
                points: [job(CpuSetting::AsIs), job(setting)].map(Point::new),
            })
        })
        .collect();
    let told = Told {
        group: "CPU realism".into(),
        text: "Each job alone, for at most a second at a time".into(),
    };
    in_pairs(
        bench,
        loads,
        (setting, JOB_PAIRS),
        seed,
        (book, watcher),
        told,
    )
}

fn in_pairs(
    bench: &mut dyn Bench,
    mut loads: Vec<Load>,
    (setting, pairs): (CpuSetting, u32),
    seed: u64,
    (book, watcher): (&mut Notebook, &mut dyn Watcher),
    told: Told,
) -> Result<(), NotebookError> {
    if loads.is_empty() {
        return Ok(());
    }
    let mut bench = CpuBench::new(bench, CpuSetting::AsIs);
    let switch = bench.setting.clone();
    let jobs = 2 * pairs * loads.len() as u32;
    let mut runner = Runner::begin(&mut bench, book, watcher, "cpu", seed, jobs)?;
    let mut points: Vec<(CpuSetting, &mut Point)> = loads
        .iter_mut()
        .flat_map(|l| [CpuSetting::AsIs, setting].into_iter().zip(&mut l.points))
        .collect();
    'pairs: for pair in 0..pairs {
        for k in 0..points.len() {
            // The two settings of a load stay neighbours; who comes first alternates.
            let (s, point) = &mut points[if pair % 2 == 0 { k } else { k ^ 1 }];
            switch.set(*s);
            if !runner.repeat(point)? {
                break 'pairs;
            }
        }
    }
    runner.end();
    book.found(&CpuResult {
        setting,
        told,
        loads,
    })
}

/// Relative difference of paired repeats with its interval: −0.2 is a fifth less.
fn difference(as_is: &Cell, set: &Cell, op: Op) -> Option<Estimate> {
    let latency = |job: &Job| job.direction(op).and_then(|d| d.response_ns.mean);
    let relative: Vec<f64> = as_is
        .valid()
        .zip(set.valid())
        .filter_map(|(a, b)| Some(latency(b)? / latency(a)? - 1.0))
        .collect();
    Estimate::mean_of(&relative)
}

impl ExperimentResult for CpuResult {
    const EXPERIMENT: &'static str = "cpu";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let mut rows = Vec::new();
        for load in &self.loads {
            let [as_is, set] = [0, 1].map(|i| evidence.cell(&load.points[i]));
            let (a, b, d) = (
                as_is.latency(load.op),
                set.latency(load.op),
                difference(&as_is, &set, load.op),
            );
            rows.push(vec![
                TableCell::Text(load.label.clone()),
                estimate(a),
                estimate(b),
                estimate(d.map(|d| d.scale(100.0))),
            ]);
            let jobs: Vec<usize> = as_is.indices().into_iter().chain(set.indices()).collect();
            shown.headlines.push(headline_of(
                &self.told.group,
                &format!("{}, {} against as is", load.label, self.setting.word()),
                &format!("cpu-{}-difference", load.id),
                "%",
                d.map(|d| d.scale(100.0)),
                jobs.clone(),
            ));
            if let (Some(a), Some(b), Some(d)) = (a, b, d) {
                shown
                    .findings
                    .push(finding(load, self.setting, [a, b, d], jobs));
            }
        }
        shown.sections.push(Section {
            id: "cpu".into(),
            title: "CPU realism".into(),
            text: format!(
                "{}, with {} and with {}, in alternating order. The setting held for each job only.",
                self.told.text,
                CpuSetting::AsIs.words(),
                self.setting.words()
            ),
            tables: vec![Table {
                id: "cpu-table".into(),
                title: "Mean latency".into(),
                columns: vec![
                    column("load", ""),
                    column("as is", "ns"),
                    column(self.setting.word(), "ns"),
                    column("difference", "%"),
                ],
                rows,
            }],
            ..Section::default()
        });
    }
}

fn finding(
    load: &Load,
    setting: CpuSetting,
    [a, b, d]: [Estimate; 3],
    jobs: Vec<usize>,
) -> Finding {
    let shown = match (d.low, d.high) {
        (Some(low), Some(high)) if low > 0.0 || high < 0.0 => Some((low, high)),
        _ => None,
    };
    let thing = &load.thing;
    let text = match shown {
        Some((low, high)) => format!(
            "A {thing} takes {} with {}, {} as the system is: {:+.0} % (95 % interval {:+.0} to {:+.0} %).",
            Nanos(b.value as u64),
            setting.words(),
            Nanos(a.value as u64),
            100.0 * d.value,
            100.0 * low,
            100.0 * high
        ),
        None => format!(
            "No difference in the latency of a {thing} was shown between the system as it is and {}.",
            setting.words()
        ),
    };
    let advice = match shown {
        Some((_, high)) if high < 0.0 => {
            "Latency measured on an idle machine includes waking its cores: quote the setting with the number, and compare only numbers of the same setting."
        }
        Some(_) => {
            "The setting costs latency here (a shared core or a virtual machine, most often): measure as the system is."
        }
        None => "",
    };
    Finding {
        id: format!("cpu-{}", load.id),
        text,
        advice: advice.into(),
        confidence: if shown.is_some() {
            "strong"
        } else {
            "moderate"
        }
        .into(),
        jobs,
        evidence: vec!["cpu-table".into()],
        gain: shown
            .filter(|(_, high)| *high < 0.0)
            .map(|(low, high)| Estimate {
                value: -d.value,
                low: Some(-high),
                high: Some(-low),
                samples: d.samples,
            }),
        refuted_by: format!(
            "The same pairs whose interval holds 0: run again with --cpu {} and another --seed.",
            setting.word()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_threads_run_on_every_processor_and_end_with_their_keeper() {
        let keeper = Keeper::start(CpuSetting::Busy).unwrap();
        assert_eq!(keeper.threads.len(), sys::cpus().unwrap().len());
        std::thread::sleep(Duration::from_millis(50));
        keeper.end();
        let busy = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .flatten()
            .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok())
            .filter(|name| name.starts_with("busy-"))
            .count();
        assert_eq!(busy, 0);
    }

    #[test]
    fn forbidden_idle_states_are_allowed_again_when_the_keeper_ends() {
        // The kernel ends the request with the descriptor; others may hold one of their own.
        let held = || {
            std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .flatten()
                .filter_map(|f| std::fs::read_link(f.path()).ok())
                .filter(|to| to.ends_with("cpu_dma_latency"))
                .count()
        };
        match Keeper::start(CpuSetting::LowLatency) {
            Ok(keeper) => {
                assert_eq!(held(), 1);
                let granted = std::fs::read("/dev/cpu_dma_latency").unwrap_or_default();
                assert_eq!(granted, 0i32.to_ne_bytes());
                keeper.end();
                assert_eq!(held(), 0);
            }
            Err(e) => {
                assert!(e.to_string().contains("--cpu busy"), "{e}");
                eprintln!("SKIP: {e}");
            }
        }
    }

    #[test]
    fn a_setting_reads_back_its_word() {
        for s in [CpuSetting::AsIs, CpuSetting::Busy, CpuSetting::LowLatency] {
            assert_eq!(s.word().parse(), Ok(s));
        }
        assert!("fast".parse::<CpuSetting>().unwrap_err().contains("as-is"));
    }
}

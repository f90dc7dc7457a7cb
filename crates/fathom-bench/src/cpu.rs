//! How the processors are kept while a job runs: as they are, busy, or without idle states.
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

use fathom_io::Observer;
use fathom_io::driver::PlannedJob;
use fathom_io::job::Limits;
use fathom_stack::settings::NoIdle;
use fathom_telemetry::schema::{Job, Target};
use fathom_telemetry::{Bytes, FlagCode};
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, BenchError, LogMaker};

/// What a job's note of the setting begins with.
pub const NOTE: &str = "CPU: ";

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

    /// Changes the setting between jobs.
    pub fn switch(&self) -> Rc<Switch<CpuSetting>> {
        self.setting.clone()
    }

    /// Only the jobs of one experiment, where one is named.
    #[must_use]
    pub fn only(mut self, experiment: Option<&'static str>) -> Self {
        self.only = experiment;
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
    fn files(&mut self) -> Option<&mut dyn crate::bench::FilesOfHosts> {
        self.inner.files()
    }
    fn health(&mut self) -> Option<fathom_host::Health> {
        self.inner.health()
    }
    fn hosts(&self) -> Option<serde_json::Value> {
        self.inner.hosts()
    }
    fn processors(&self) -> u32 {
        self.inner.processors()
    }
    fn load(
        &mut self,
        lab: &str,
        asked: &dyn Fn(u32) -> serde_json::Value,
        planned: &PlannedJob,
        observer: &mut dyn Observer,
    ) -> Result<(Job, Vec<serde_json::Value>), BenchError> {
        self.inner.load(lab, asked, planned, observer)
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

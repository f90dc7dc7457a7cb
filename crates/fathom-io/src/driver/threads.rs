//! A group of jobs on real ports: one thread per worker, started together.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use fathom_telemetry::schema::{DeviceDelta, HeldUp, Job};
use fathom_telemetry::{Flag, FlagCode, Nanos};

use super::collect::Collector;
use super::conditions::{Conditions, Waited};
use super::seat::{ABORT, Message, Seat, UNSET};
use super::silence::{Pulse, Silence};
use super::write_back::WrittenBack;
use super::{Destination, DriveError, Observer, PlannedJob, Progress, Setting, live};
use crate::clock::{Clock, process_cpu};
use crate::job::Engine;
use crate::load::Live;
use crate::port::uring;

/// Time between the decision to start and the common start, ns.
const START_DELAY: Nanos = Nanos(150_000);

/// Runs jobs at the same time on real ports and returns their measures in the same order.
///
/// I/O errors end up in the measures; an error here means that nothing could run.
pub fn run_group(
    jobs: &[PlannedJob],
    setting: &Setting<'_>,
    observer: &mut dyn Observer,
) -> Result<Vec<Job>, DriveError> {
    no_op_signal();
    let fallback = fall_back(jobs, setting.destination);
    let jobs = fallback.as_ref().map_or(jobs, |f| &f.1);
    let clock = Clock::new();
    let stop = Arc::new(AtomicBool::new(false));
    let origin = Arc::new(AtomicU64::new(UNSET));
    let (tx, rx) = channel();
    let mut crew = Crew::start(jobs, setting, (&stop, &origin), &tx);
    drop(tx);
    let notes = crew.wait_until_ready(&rx, jobs.len());
    let before = WrittenBack::of_before(jobs, setting.destination, setting.control, &clock);
    let conditions = Conditions::of(jobs);
    let abort = crew.failure.is_some() || setting.control.interrupted();
    // Before anything may start: a short job is over before a busy machine has read a counter.
    let device_start = counted(setting, &crew.lives);
    if !abort {
        observer.ready();
    }
    let start = setting.control.start(&clock, START_DELAY);
    crew.collectors.iter_mut().for_each(|c| c.begin(start));
    origin.store(if abort { ABORT } else { start.0 }, Ordering::Release);
    crew.threads.iter().for_each(|t| t.thread().unpark());
    if let Some((job, message)) = crew.failure.take() {
        crew.threads.into_iter().for_each(|t| drop(t.join()));
        return Err(DriveError::Start {
            job: jobs[job].job.spec.name.clone(),
            message,
        });
    }
    let watch = Watch {
        jobs,
        setting,
        clock: &clock,
        start,
        stop: &stop,
        conditions: &conditions,
    };
    let outcome = watch.until_all_end(&rx, &mut crew, observer, device_start);
    let Crew {
        collectors,
        threads,
        lives,
        ..
    } = crew;
    // Threads that wait for a device which answers no more are left to it: they hold what they use.
    if outcome.silent.is_none() {
        threads.into_iter().for_each(|t| drop(t.join()));
    }
    let after = match outcome.silent {
        None => WrittenBack::of_group(jobs, setting.destination, setting.control, &clock, || {
            observer.progress(&progress(&clock, start, &lives, &collectors));
        }),
        Some(_) => WrittenBack::default(),
    };
    let reached = least_written(outcome.device_start.as_ref(), setting);
    let all = collectors.into_iter().zip(notes).zip(jobs).enumerate();
    let measure = |(j, ((c, notes), planned)): (usize, ((Collector, Vec<String>), &PlannedJob))| {
        let engine = match setting.destination {
            Destination::Null => Engine::Null,
            Destination::File { .. } => planned.job.spec.engine,
        };
        let device = outcome.device.clone();
        let mut job = c.job(start, engine.word(), notes, outcome.cpu, device, observer);
        before.tell_of_before(&mut job, planned, setting.destination);
        after.tell(&mut job, planned, setting.destination, reached.as_ref());
        job.held_up = outcome.held_up.get(j).cloned();
        let fell_back = fallback.as_ref().map(|f| fell_back(&f.0));
        job.flags.extend(fell_back);
        job.flags.extend(outcome.flags(j));
        clock_says(&clock, &mut job);
        job
    };
    Ok(all.map(measure).collect())
}

fn fell_back(why: &str) -> Flag {
    Flag::new(
        FlagCode::EngineFallback,
        format!("io_uring is not available here ({why}); preadv threads were used"),
        "allow io_uring (sysctl kernel.io_uring_disabled=0, container profile), or ask for --engine preadv",
    )
}

/// How far the clock can be relied on.
fn clock_says(clock: &Clock, job: &mut Job) {
    if let Some(step) = clock.resolution() {
        job.engine_notes.push(format!("time in steps of {step}"));
    }
    if !clock.is_counter() {
        job.flags.push(Flag::new(
            FlagCode::ClockFallback,
            format!(
                "the {} of this processor ({}) cannot be relied on or is not known; CLOCK_MONOTONIC was used",
                Clock::counter_name(),
                std::env::consts::ARCH
            ),
            "latencies below a microsecond carry the cost of the slower clock",
        ));
    }
}

/// The threads of a group, and where their windows go.
struct Crew {
    collectors: Vec<Collector>,
    threads: Vec<JoinHandle<()>>,
    lives: Vec<Arc<Live>>,
    /// The job that cannot start, and why.
    failure: Option<(usize, String)>,
}

impl Crew {
    /// Starts all threads; each waits for the common start.
    fn start(
        jobs: &[PlannedJob],
        setting: &Setting<'_>,
        (stop, origin): (&Arc<AtomicBool>, &Arc<AtomicU64>),
        tx: &Sender<Message>,
    ) -> Self {
        let group = live::begin_group();
        let mut crew = Self {
            collectors: Vec::new(),
            threads: Vec::new(),
            lives: Vec::new(),
            failure: None,
        };
        for (j, planned) in jobs.iter().enumerate() {
            let planned = Arc::new(planned.clone());
            let (seats, depth) = planned.seats();
            let collector = Collector::new(&planned, (group, j), seats, depth);
            crew.collectors.push(collector);
            for thread in 0..seats {
                let live = Arc::new(Live::default());
                crew.lives.push(live.clone());
                let seat = Seat {
                    planned: planned.clone(),
                    job: j,
                    thread,
                    live,
                    stop: stop.clone(),
                    origin: origin.clone(),
                    log: setting
                        .log
                        .filter(|_| planned.job.spec.record)
                        .map(|l| l(j, thread)),
                    destination: setting.destination.clone(),
                    tx: tx.clone(),
                };
                let spawned = std::thread::Builder::new()
                    .name(format!("{}{j}-{thread}", super::thread_prefix()))
                    .stack_size(256 << 10)
                    .spawn(move || seat.sit());
                match spawned {
                    Ok(t) => crew.threads.push(t),
                    Err(e) => crew.failure = Some((j, crate::threads::refused(&e))),
                }
            }
        }
        crew
    }

    /// What the threads of each job have to say, once all have opened their ports.
    fn wait_until_ready(&mut self, rx: &Receiver<Message>, jobs: usize) -> Vec<Vec<String>> {
        let mut notes: Vec<Vec<String>> = vec![Vec::new(); jobs];
        let mut ready = 0;
        while ready < self.threads.len() {
            match rx.recv() {
                Ok(Message::Ready { job, notes: n }) => {
                    // Threads of a job are alike: the last one speaks for all.
                    notes[job] = n;
                    ready += 1;
                }
                Ok(Message::Failed { job, message }) => {
                    self.failure = Some((job, message));
                    ready += 1;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        notes
    }

    /// Threads that sleep in the kernel wake up and look at the flag. One that has gone is still joinable, so its handle
    /// stays valid.
    fn wake(&self) {
        for (t, live) in self.threads.iter().zip(&self.lives) {
            if !live.done.load(Ordering::Acquire) {
                // SAFETY: the handle is not joined yet; the signal has a handler that does nothing.
                unsafe { libc::pthread_kill(t.as_pthread_t() as libc::pthread_t, libc::SIGUSR2) };
            }
        }
    }
}

/// What watching yields beside the collectors.
#[derive(Default)]
struct Watched {
    cpu: (Nanos, Nanos),
    device: Option<DeviceDelta>,
    /// The device's counters as the measured part began.
    device_start: Option<DeviceDelta>,
    /// One per job.
    held_up: Vec<HeldUp>,
    interrupted: bool,
    broken: Vec<(usize, String)>,
    /// The device answered no more, and for how long when it was given up.
    silent: Option<Silence>,
}

impl Watched {
    /// What stands against a job: what was measured until then is kept.
    fn flags(&self, job: usize) -> Vec<Flag> {
        let of_job = self.broken.iter().filter(|b| b.0 == job);
        let broke_off = |(_, message): &(usize, String)| {
            Flag::new(
                FlagCode::IoErrors,
                format!("the job broke off: {message}"),
                "look at the kernel log; try --engine preadv",
            )
        };
        let silent = self.silent.iter().flat_map(|s| s.flags(self.interrupted));
        let interrupted = self.interrupted.then(|| {
            Flag::new(
                FlagCode::Interrupted,
                "the run was interrupted; this is what was measured until then",
                "run again",
            )
        });
        let all = of_job.map(broke_off).chain(silent).chain(interrupted);
        all.collect()
    }

    /// Takes what a thread says; whether the thread is gone.
    fn heard(
        &mut self,
        message: Message,
        crew: &mut Crew,
        waited: &mut [Waited],
        observer: &mut dyn Observer,
    ) -> bool {
        match message {
            Message::Window {
                job,
                thread,
                window,
            } => {
                crew.collectors[job].take(thread, window, observer);
                false
            }
            Message::Ended {
                job,
                thread,
                outcome,
                usage,
                waited: thread_waited,
                broken,
            } => {
                waited[job].add(&thread_waited);
                crew.collectors[job].ended(thread, &outcome, observer);
                observer.thread_ended(job, &usage, &outcome.batches);
                self.broken.extend(broken.map(|message| (job, message)));
                true
            }
            Message::Failed { job, message } => {
                self.broken.push((job, message));
                true
            }
            Message::Ready { .. } => false,
        }
    }
}

/// A group that runs.
struct Watch<'a> {
    jobs: &'a [PlannedJob],
    setting: &'a Setting<'a>,
    clock: &'a Clock,
    start: Nanos,
    stop: &'a AtomicBool,
    conditions: &'a Conditions,
}

impl Watch<'_> {
    /// Takes windows, shows progress and passes on an interruption until no thread is left.
    fn until_all_end(
        &self,
        rx: &Receiver<Message>,
        crew: &mut Crew,
        observer: &mut dyn Observer,
        mut device_start: Option<DeviceDelta>,
    ) -> Watched {
        let (setting, clock, start, stop) = (self.setting, self.clock, self.start, self.stop);
        let mut w = Watched::default();
        let ramp = self.jobs.iter().map(PlannedJob::ramp).min();
        let ramp = ramp.unwrap_or(Nanos::ZERO);
        let mut waited = vec![Waited::default(); self.jobs.len()];
        let mut conditions_start = self.conditions.read();
        let mut cpu_start = process_cpu();
        let mut ramping = ramp > Nanos::ZERO;
        let (mut next_progress, mut next_kick) = (start, start);
        let mut alive = crew.threads.len();
        let mut pulse = Pulse::new(start);
        while alive > 0 {
            let now = clock.now();
            pulse.felt(now, &crew.lives);
            if let Some(silence) = pulse.lost(now, start, self.jobs) {
                for (c, p) in crew.collectors.iter_mut().zip(self.jobs) {
                    c.give_up(start + p.ramp(), silence.since);
                }
                w.silent = Some(silence);
                break;
            }
            if ramping && now >= start + ramp {
                cpu_start = process_cpu();
                device_start = counted(setting, &crew.lives);
                ramping = false;
                conditions_start = self.conditions.read();
            }
            if setting.control.interrupted() && !w.interrupted {
                w.interrupted = true;
                pulse.asked(now);
                stop.store(true, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) && now >= next_kick {
                next_kick = now + Nanos::from_millis(10);
                crew.wake();
            }
            if now >= next_progress {
                next_progress = now + Nanos::from_millis(100);
                observer.progress(&progress(clock, start, &crew.lives, &crew.collectors));
            }
            // Who was asked to stop is woken often, and a ramp ends in time.
            let nap = match (stop.load(Ordering::Relaxed), ramping) {
                (true, _) => Nanos::from_millis(10),
                (false, true) => (start + ramp).since(now).min(Nanos::from_millis(50)),
                (false, false) => Nanos::from_millis(50),
            };
            match rx.recv_timeout(nap.into()) {
                Ok(message) => {
                    pulse.heard(clock.now());
                    alive -= usize::from(w.heard(message, crew, &mut waited, observer));
                    if !w.broken.is_empty() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // A thread that is gone without a word (it panicked) ends the wait here at the latest.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let cpu_end = process_cpu();
        w.cpu = (cpu_end.0 - cpu_start.0, cpu_end.1 - cpu_start.1);
        let device = device_start.as_ref().zip(counted(setting, &crew.lives));
        w.device = device.map(|(before, now)| now.since(before));
        w.device_start = device_start;
        let conditions_end = self.conditions.read();
        w.held_up = waited
            .iter()
            .map(|t| conditions_end.since(&conditions_start, t))
            .collect();
        w.interrupted |= setting.control.interrupted();
        w
    }
}

/// What the device counts now. The jobs' own account comes after it: what lies between them counts for the job.
fn counted(setting: &Setting<'_>, lives: &[Arc<Live>]) -> Option<DeviceDelta> {
    let counted = setting.counters.and_then(|c| c())?;
    Some(DeviceDelta {
        asked_bytes: Some(lives.iter().map(|l| l.bytes.load(Ordering::Relaxed)).sum()),
        ..counted
    })
}

fn progress(
    clock: &Clock,
    start: Nanos,
    lives: &[Arc<Live>],
    collectors: &[Collector],
) -> Progress {
    Progress {
        elapsed: clock.now().since(start),
        ios: lives.iter().map(|l| l.ios.load(Ordering::Relaxed)).sum(),
        bytes: lives.iter().map(|l| l.bytes.load(Ordering::Relaxed)).sum(),
        p99: collectors.iter().filter_map(Collector::last_p99).max(),
    }
}

/// Bytes written since `start`, by the account of the device or of what it is made of that counts least, and whose it is.
fn least_written(start: Option<&DeviceDelta>, setting: &Setting<'_>) -> Option<(u64, String)> {
    let now = setting.counters.and_then(|c| c())?;
    let d = now.since(start?);
    let below = d.below.into_iter().map(|s| (s.write_bytes, s.name));
    std::iter::once((d.write_bytes, d.name))
        .chain(below)
        .min_by_key(|s| s.0)
}

/// Installs a handler that does nothing for SIGUSR2, so that it interrupts system calls.
fn no_op_signal() {
    extern "C" fn nothing(_: libc::c_int) {}
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is async-signal-safe (it does nothing); without SA_RESTART system
        // calls return EINTR, which every port expects.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        }
    });
}

/// Where io_uring is not to be had, the same jobs on preadv threads, with the reason. The depth is kept:
/// it takes a thread per outstanding I/O.
fn fall_back(jobs: &[PlannedJob], destination: &Destination) -> Option<(String, Vec<PlannedJob>)> {
    // A trace needs one thread that keeps many I/Os outstanding: there it is io_uring or nothing.
    let wants = |p: &PlannedJob| p.job.spec.engine == Engine::Uring && p.job.feed.is_none();
    if matches!(destination, Destination::Null) || !jobs.iter().any(wants) {
        return None;
    }
    let why = uring::unavailable()?;
    let mut jobs = jobs.to_vec();
    for job in jobs.iter_mut().filter(|p| wants(p)) {
        job.job.spec.engine = Engine::Preadv;
        job.job.spec.iopoll = false;
        job.job.spec.sqpoll = false;
    }
    Some((why, jobs))
}

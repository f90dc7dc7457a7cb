//! A group of jobs on real ports: one thread per worker, started together.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
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
    let group = live::begin_group();
    let mut collectors: Vec<Collector> = Vec::new();
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut lives = Vec::new();
    let mut failure = None;
    for (j, planned) in jobs.iter().enumerate() {
        let planned = Arc::new(planned.clone());
        let (seats, depth) = planned.seats();
        collectors.push(Collector::new(&planned, (group, j), seats, depth));
        for thread in 0..seats {
            let live = Arc::new(Live::default());
            lives.push(live.clone());
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
                Ok(t) => threads.push(t),
                Err(e) => failure = Some((j, crate::threads::refused(&e))),
            }
        }
    }
    drop(tx);
    let mut notes: Vec<Vec<String>> = vec![Vec::new(); jobs.len()];
    let mut ready = 0;
    while ready < threads.len() {
        match rx.recv() {
            Ok(Message::Ready { job, notes: n }) => {
                // Threads of a job are alike: the last one speaks for all.
                notes[job] = n;
                ready += 1;
            }
            Ok(Message::Failed { job, message }) => {
                failure = Some((job, message));
                ready += 1;
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let before = WrittenBack::of_before(jobs, setting.destination, setting.control, &clock);
    let conditions = Conditions::of(jobs);
    let abort = failure.is_some() || setting.control.interrupted();
    // Before anything may start: a short job is over before a busy machine has read a counter.
    let device_start = counted(setting, &lives);
    if !abort {
        observer.ready();
    }
    let start = setting.control.start(&clock, START_DELAY);
    collectors.iter_mut().for_each(|c| c.begin(start));
    origin.store(if abort { ABORT } else { start.0 }, Ordering::Release);
    threads.iter().for_each(|t| t.thread().unpark());
    if let Some((job, message)) = failure {
        threads.into_iter().for_each(|t| drop(t.join()));
        return Err(DriveError::Start {
            job: jobs[job].job.spec.name.clone(),
            message,
        });
    }
    let outcome = watch(
        &rx,
        jobs,
        &mut collectors,
        setting,
        observer,
        &clock,
        start,
        &stop,
        &threads,
        &lives,
        &conditions,
        device_start,
    );
    // Threads that wait for a device which answers no more are left to it: they hold what they use.
    if outcome.silent.is_none() {
        threads.into_iter().for_each(|t| drop(t.join()));
    }
    let cpu = outcome.cpu;
    let after = match outcome.silent {
        None => WrittenBack::of_group(jobs, setting.destination, setting.control, &clock, || {
            observer.progress(&progress(&clock, start, &lives, &collectors));
        }),
        Some(_) => WrittenBack::default(),
    };
    let reached = least_written(outcome.device_start.as_ref(), setting);
    let origin = start;
    Ok(collectors
        .into_iter()
        .zip(notes)
        .zip(jobs)
        .enumerate()
        .map(|(j, ((c, notes), planned))| {
            let engine = match setting.destination {
                Destination::Null => Engine::Null,
                Destination::File { .. } => planned.job.spec.engine,
            };
            let mut job = c.job(origin, engine.word(), notes, cpu, outcome.device.clone(), observer);
            before.tell_of_before(&mut job, planned, setting.destination);
            after.tell(&mut job, planned, setting.destination, reached.as_ref());
            job.held_up = outcome.held_up.get(j).cloned();
            if let Some((why, _)) = &fallback {
                job.flags.push(Flag::new(
                    FlagCode::EngineFallback,
                    format!("io_uring is not available here ({why}); preadv threads were used"),
                    "allow io_uring (sysctl kernel.io_uring_disabled=0, container profile), or ask for --engine preadv",
                ));
            }
            // What was measured until then is kept.
            for message in outcome.broken.iter().filter(|b| b.0 == j).map(|b| &b.1) {
                job.flags.push(Flag::new(
                    FlagCode::IoErrors,
                    format!("the job broke off: {message}"),
                    "look at the kernel log; try --engine preadv",
                ));
            }
            let silent = outcome.silent.iter();
            job.flags.extend(silent.flat_map(|s| s.flags(outcome.interrupted)));
            if outcome.interrupted {
                job.flags.push(Flag::new(FlagCode::Interrupted, "the run was interrupted; this is what was measured until then", "run again"));
            }
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
            job
        })
        .collect())
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

#[allow(clippy::too_many_arguments)]
fn watch(
    rx: &Receiver<Message>,
    jobs: &[PlannedJob],
    collectors: &mut [Collector],
    setting: &Setting<'_>,
    observer: &mut dyn Observer,
    clock: &Clock,
    start: Nanos,
    stop: &AtomicBool,
    threads: &[JoinHandle<()>],
    lives: &[Arc<Live>],
    conditions: &Conditions,
    mut device_start: Option<DeviceDelta>,
) -> Watched {
    let mut w = Watched::default();
    let ramp = jobs
        .iter()
        .map(PlannedJob::ramp)
        .min()
        .unwrap_or(Nanos::ZERO);
    let mut waited = vec![Waited::default(); jobs.len()];
    let mut conditions_start = conditions.read();
    let mut cpu_start = process_cpu();
    let mut ramping = ramp > Nanos::ZERO;
    let mut next_progress = start;
    let mut next_kick = start;
    let mut alive = threads.len();
    let mut pulse = Pulse::new(start);
    while alive > 0 {
        let now = clock.now();
        pulse.felt(now, lives);
        if let Some(silence) = pulse.lost(now, start, jobs) {
            for (c, p) in collectors.iter_mut().zip(jobs) {
                c.give_up(start + p.ramp(), silence.since);
            }
            w.silent = Some(silence);
            break;
        }
        if ramping && now >= start + ramp {
            (cpu_start, device_start, ramping) = (process_cpu(), counted(setting, lives), false);
            conditions_start = conditions.read();
        }
        if setting.control.interrupted() && !w.interrupted {
            w.interrupted = true;
            pulse.asked(now);
            stop.store(true, Ordering::Relaxed);
        }
        if stop.load(Ordering::Relaxed) && now >= next_kick {
            next_kick = now + Nanos::from_millis(10);
            // Threads that sleep in the kernel wake up and look at the flag. One that has gone is
            // still joinable, so its handle stays valid.
            for (t, live) in threads.iter().zip(lives) {
                if !live.done.load(Ordering::Acquire) {
                    // SAFETY: the handle is not joined yet; the signal has a handler that does nothing.
                    unsafe {
                        libc::pthread_kill(t.as_pthread_t() as libc::pthread_t, libc::SIGUSR2)
                    };
                }
            }
        }
        if now >= next_progress {
            next_progress = now + Nanos::from_millis(100);
            observer.progress(&progress(clock, start, lives, collectors));
        }
        let nap = if stop.load(Ordering::Relaxed) {
            Nanos::from_millis(10)
        } else if ramping {
            (start + ramp).since(now).min(Nanos::from_millis(50))
        } else {
            Nanos::from_millis(50)
        };
        let message = rx.recv_timeout(nap.into());
        if message.is_ok() {
            pulse.heard(clock.now());
        }
        match message {
            Ok(Message::Window {
                job,
                thread,
                window,
            }) => collectors[job].take(thread, window, observer),
            Ok(Message::Ended {
                job,
                thread,
                outcome,
                usage,
                waited: thread_waited,
                broken,
            }) => {
                waited[job].add(&thread_waited);
                collectors[job].ended(thread, &outcome, observer);
                observer.thread_ended(job, &usage, &outcome.batches);
                alive -= 1;
                if let Some(message) = broken {
                    w.broken.push((job, message));
                    stop.store(true, Ordering::Relaxed);
                }
            }
            Ok(Message::Failed { job, message }) => {
                alive -= 1;
                w.broken.push((job, message));
                stop.store(true, Ordering::Relaxed);
            }
            Ok(Message::Ready { .. }) | Err(RecvTimeoutError::Timeout) => {}
            // A thread that is gone without a word (it panicked) ends the wait here at the latest.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let cpu_end = process_cpu();
    w.cpu = (cpu_end.0 - cpu_start.0, cpu_end.1 - cpu_start.1);
    w.device = device_start
        .as_ref()
        .zip(counted(setting, lives))
        .map(|(before, now)| now.since(before));
    w.device_start = device_start;
    let conditions_end = conditions.read();
    w.held_up = waited
        .iter()
        .map(|t| conditions_end.since(&conditions_start, t))
        .collect();
    w.interrupted |= setting.control.interrupted();
    w
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

//! A group of jobs on real ports: one thread per worker, started together.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use fathom_telemetry::schema::{DeviceDelta, HeldUp, Job};
use fathom_telemetry::{Flag, FlagCode, Nanos, Op, Recorder, Window, WindowSink};

use super::collect::Collector;
use super::conditions::{Conditions, Waited};
use super::silence::{Pulse, Silence};
use super::usage::{ThreadUsage, thread_usage};
use super::write_back::WrittenBack;
use super::{Destination, DriveError, Observer, PlannedJob, Progress, Setting, live};
use crate::buffer::{Buffers, Content};
use crate::clock::{Clock, process_cpu};
use crate::job::Engine;
use crate::load::{Live, Outcome, Wait, Worker};
use crate::port::libaio::Libaio;
use crate::port::mmap::Mmap;
use crate::port::null::Null;
use crate::port::posixaio::PosixAio;
use crate::port::preadv::Preadv;
use crate::port::uring::{self, Uring};
use crate::port::{self, Blocking, PortError};
use crate::thread_terms;

/// What threads tell the main loop.
enum Message {
    Ready {
        job: usize,
        notes: Vec<String>,
    },
    Failed {
        job: usize,
        message: String,
    },
    Window {
        job: usize,
        thread: u32,
        window: Window,
    },
    Ended {
        job: usize,
        thread: u32,
        outcome: Box<Outcome>,
        usage: ThreadUsage,
        waited: Waited,
        broken: Option<String>,
    },
}

/// Sends a thread's windows to the main loop.
struct ToMain {
    job: usize,
    thread: u32,
    tx: Sender<Message>,
}

impl WindowSink for ToMain {
    fn window(&mut self, window: Window) {
        // The main loop outlives its threads; if it is gone nobody wants the window.
        let _ = self.tx.send(Message::Window {
            job: self.job,
            thread: self.thread,
            window,
        });
    }
}

/// Origin not set yet / do not run at all.
const UNSET: u64 = 0;
const ABORT: u64 = u64::MAX;

/// Time between the decision to start and the common start, ns.
const START_DELAY: Nanos = Nanos(150_000);

struct Seat {
    planned: Arc<PlannedJob>,
    job: usize,
    thread: u32,
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    origin: Arc<AtomicU64>,
    log: Option<fathom_telemetry::iolog::LogHandle>,
    destination: Destination,
    tx: Sender<Message>,
}

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
            if !clock.is_tsc() {
                job.flags.push(Flag::new(
                    FlagCode::ClockFallback,
                    "the processor's time-stamp counter is not invariant; CLOCK_MONOTONIC was used",
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

impl Seat {
    /// The thread's life: set up, wait for the others, run, report.
    fn sit(self) {
        let live = self.live.clone();
        let (job, tx) = (self.job, self.tx.clone());
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.set_up()));
        live.done.store(true, Ordering::Release);
        if lived.is_err() {
            // The others must not wait for it: before the start this fails the group, later its job.
            let message = "its thread ended by a defect of fathom, see above".into();
            let _ = tx.send(Message::Failed { job, message });
        }
    }

    fn set_up(self) {
        let planned = self.planned.clone();
        let spec = &planned.job.spec;
        let (_, depth) = planned.seats();
        if let Err(e) = thread_terms::pin(&spec.cpus, self.thread) {
            return self.fail(e);
        }
        let enter = planned.guide.as_ref().and_then(|g| g.enter.as_ref());
        if let Some(Err(e)) = enter.map(|e| e(self.thread)) {
            return self.fail(e);
        }
        thread_terms::exact_timer();
        let clock = Clock::new();
        let (path, file, commands) = match &self.destination {
            Destination::Null => return self.run(Null::new(depth, clock), Vec::new()),
            Destination::File { .. } if spec.engine == Engine::Null => {
                return self.run(Null::new(depth, clock), Vec::new());
            }
            Destination::File {
                path,
                direct,
                buffered,
                commands,
            } => (
                path,
                if spec.direct { direct } else { buffered },
                commands.clone(),
            ),
        };
        let Some(file) = file.clone() else {
            return self.fail(format!(
                "{} is not open for {} I/O",
                path.display(),
                if spec.direct { "direct" } else { "buffered" }
            ));
        };
        let content = planned.ops().contains(&Op::Write).then_some(Content {
            compress: spec.compress / 100.0,
            chunk: spec.compress_chunk.0 as usize,
            duplicate: spec.duplicate / 100.0,
            duplicate_of: spec.duplicate_of,
            shared: spec.duplicate_shared,
            same: spec.same_data,
            scramble: spec.scramble,
            seed: crate::load::rng::mix(
                spec.seed ^ (u64::from(self.thread) << 32) ^ ((self.job as u64) << 48),
            ),
        });
        let buffers = || {
            Buffers::new(depth, spec.bs.max().0 as u32, content)
                .map_err(|e| format!("no memory for buffers: {e}"))
        };
        let mut files = vec![file];
        files.extend(planned.guide.iter().flat_map(|g| g.files.iter().cloned()));
        if let Some(advice) = spec.advise.filter(|_| !spec.direct) {
            match port::advised(files, spec, advice) {
                Ok(own) => files = own,
                Err(e) => return self.fail(e.to_string()),
            }
        }
        match spec.engine {
            Engine::Null => {}
            Engine::Preadv => {
                let made = buffers()
                    .and_then(|b| Preadv::new(files, spec, b, clock).map_err(|e| e.to_string()));
                match made {
                    Ok(port) => self.run(port, Vec::new()),
                    Err(e) => self.fail(e),
                }
            }
            Engine::PosixAio => {
                let made = buffers().and_then(|b| {
                    PosixAio::new(files, spec, depth, b, clock).map_err(|e| e.to_string())
                });
                match made {
                    Ok(port) => self.run(port, Vec::new()),
                    Err(e) => self.fail(e),
                }
            }
            Engine::Mmap => {
                let made = buffers()
                    .and_then(|b| Mmap::new(&files, spec, b, clock).map_err(|e| e.to_string()));
                match made {
                    Ok(port) => self.run(port, Vec::new()),
                    Err(e) => self.fail(e),
                }
            }
            Engine::Libaio => {
                let made = buffers().and_then(|b| {
                    Libaio::new(files, spec, depth, b, clock).map_err(|e| e.to_string())
                });
                match made {
                    Ok(port) => self.run(port, Vec::new()),
                    Err(e) => self.fail(e),
                }
            }
            Engine::Uring => {
                let made = buffers().and_then(|b| {
                    Uring::new(files, spec, depth, b, clock).map_err(|e| e.to_string() + remedy(&e))
                });
                match made {
                    Ok(port) => {
                        let notes = port.notes().to_vec();
                        self.run(port, notes);
                    }
                    Err(e) => self.fail(e),
                }
            }
            Engine::UringCmd => {
                let Some(device) = commands else {
                    return self.fail(format!(
                        "{} is not open for NVMe commands; try --engine uring",
                        path.display()
                    ));
                };
                let made = buffers().and_then(|b| {
                    Uring::commands(&device, spec, depth, b, clock)
                        .map_err(|e| e.to_string() + remedy(&e))
                });
                match made {
                    Ok(port) => {
                        let notes = port.notes().to_vec();
                        self.run(port, notes);
                    }
                    Err(e) => self.fail(e),
                }
            }
        }
    }

    fn fail(&self, message: String) {
        let _ = self.tx.send(Message::Failed {
            job: self.job,
            message,
        });
    }

    fn run<P: Blocking>(self, port: P, notes: Vec<String>) {
        let planned = self.planned.clone();
        let (seats, depth) = planned.seats();
        let spec = &planned.job.spec;
        if self
            .tx
            .send(Message::Ready {
                job: self.job,
                notes,
            })
            .is_err()
        {
            return;
        }
        let origin = loop {
            match self.origin.load(Ordering::Acquire) {
                UNSET => std::thread::park_timeout(std::time::Duration::from_millis(1)),
                ABORT => {
                    if let Some(log) = self.log {
                        log.close();
                    }
                    return;
                }
                t => break Nanos(t),
            }
        };
        let sink = ToMain {
            job: self.job,
            thread: self.thread,
            tx: self.tx.clone(),
        };
        let recorder = Recorder::new(origin, spec.window, &planned.ops(), self.log, sink);
        let mut worker = Worker::new(
            &planned.job,
            self.thread,
            seats,
            depth,
            planned.ramp(),
            port,
            recorder,
            self.live,
            self.stop,
        );
        if let Some(make) = planned.guide.as_ref().and_then(|g| g.pilot.as_ref()) {
            worker.guide(make(self.thread));
        }
        let delay = fathom_host::processors::own_run_delay();
        while worker.port.now() < origin {
            std::hint::spin_loop();
        }
        worker.start(origin);
        let usage = thread_usage();
        let broken = drive(&mut worker).err().map(|e| format!("{e}"));
        let usage = thread_usage().since(&usage);
        let elapsed = worker.port.now().since(origin);
        let waited = Waited::since(delay, elapsed, spec.engine == Engine::Uring);
        let (port, _, outcome) = worker.finish();
        // The ring is torn down before the result counts as complete.
        drop(port);
        let _ = self.tx.send(Message::Ended {
            job: self.job,
            thread: self.thread,
            outcome: Box::new(outcome),
            usage,
            waited,
            broken,
        });
    }
}

/// The loop of every real port.
fn drive<P: Blocking, S: WindowSink>(worker: &mut Worker<P, S>) -> Result<(), PortError> {
    loop {
        match worker.issue() {
            Wait::Finished => return Ok(()),
            Wait::For { min, until } => worker.port.flush(min, until)?,
        }
        worker.reap();
    }
}

/// What to do about a ring that could not be made.
fn remedy(e: &PortError) -> &'static str {
    match e.source.raw_os_error() {
        Some(libc::ENOMEM) => "; raise the locked-memory limit (ulimit -l), or ask for less depth",
        Some(libc::EMSGSIZE) => "",
        Some(libc::EINVAL) => "; this kernel lacks an option: try without --iopoll and --sqpoll",
        _ => "; try --engine preadv",
    }
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

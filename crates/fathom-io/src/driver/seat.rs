//! One thread of a job: it opens its port, waits for the others, runs and reports.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use fathom_telemetry::{Nanos, Op, Recorder, Window, WindowSink};

use super::conditions::Waited;
use super::usage::{ThreadUsage, thread_usage};
use super::{Destination, PlannedJob};
use crate::buffer::{Buffers, Content};
use crate::clock::Clock;
use crate::job::{Command, Engine};
use crate::load::{Live, Outcome, Wait, Worker};
use crate::port::libaio::Libaio;
use crate::port::mmap::Mmap;
use crate::port::null::Null;
use crate::port::posixaio::PosixAio;
use crate::port::preadv::Preadv;
use crate::port::single::{Call, Single};
use crate::port::uring::Uring;
use crate::port::{self, Blocking, PortError};
use crate::thread_terms;

/// What threads tell the main loop.
pub(super) enum Message {
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
pub(super) const UNSET: u64 = 0;
pub(super) const ABORT: u64 = u64::MAX;

/// What one thread is given, and what it hands back.
pub(super) struct Seat {
    pub(super) planned: Arc<PlannedJob>,
    pub(super) job: usize,
    pub(super) thread: u32,
    pub(super) live: Arc<Live>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) origin: Arc<AtomicU64>,
    pub(super) log: Option<fathom_telemetry::iolog::LogHandle>,
    pub(super) destination: Destination,
    pub(super) tx: Sender<Message>,
}

impl Seat {
    /// The thread's life: set up, wait for the others, run, report.
    pub(super) fn sit(self) {
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
        let (job, thread) = (self.job, self.thread);
        let buffers = || memory(&planned, job, thread);
        let plain = |e: PortError| e.to_string();
        let ring = |e: PortError| e.to_string() + remedy(&e);
        let performer = planned.guide.as_ref().and_then(|g| g.performer.clone());
        let (path, file, commands) = match &self.destination {
            Destination::Null => match performer {
                None => return self.run(Null::new(depth, clock), Vec::new()),
                Some(make) => return self.serve(single(make(thread, Vec::new()), buffers, clock)),
            },
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
        let files = match files(&planned, path, file.clone()) {
            Ok(files) => files,
            Err(e) => return self.fail(e),
        };
        if let Some(make) = performer {
            return self.serve(single(make(thread, files), buffers, clock));
        }
        match spec.engine {
            Engine::Null => {}
            Engine::Preadv => {
                let own = Preadv::new(files, spec).map_err(plain);
                self.serve(single(own, buffers, clock));
            }
            Engine::PosixAio => self.serve(
                buffers().and_then(|b| PosixAio::new(files, spec, depth, b, clock).map_err(plain)),
            ),
            Engine::Mmap => {
                let own = Mmap::new(&files, spec).map_err(plain);
                self.serve(single(own, buffers, clock));
            }
            Engine::Libaio => self.serve(
                buffers().and_then(|b| Libaio::new(files, spec, depth, b, clock).map_err(plain)),
            ),
            Engine::Uring => {
                let made =
                    buffers().and_then(|b| Uring::new(files, spec, depth, b, clock).map_err(ring));
                self.serve_noted(made, |port| port.notes().to_vec());
            }
            Engine::UringCmd => {
                let Some(device) = commands else {
                    return self.fail(format!(
                        "{} is not open for NVMe commands; try --engine uring",
                        path.display()
                    ));
                };
                let made = buffers().and_then(|b| {
                    Uring::commands(&device, &planned.job, depth, b, clock).map_err(ring)
                });
                self.serve_noted(made, |port| port.notes().to_vec());
            }
        }
    }

    /// Runs on a port, or says why there is none.
    fn serve<P: Blocking>(self, made: Result<P, String>) {
        self.serve_noted(made, |_| Vec::new());
    }

    /// The same with what the port has to say of itself.
    fn serve_noted<P: Blocking>(
        self,
        made: Result<P, String>,
        notes: impl FnOnce(&P) -> Vec<String>,
    ) {
        match made {
            Ok(port) => {
                let notes = notes(&port);
                self.run(port, notes);
            }
            Err(e) => self.fail(e),
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
        if let Some(Err(e)) = planned
            .guide
            .as_ref()
            .and_then(|g| g.last.as_ref())
            .map(|l| l(self.thread))
        {
            return self.fail(e);
        }
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

/// The job's files: the target, those that a guide adds, opened anew where the job advises the kernel.
fn files(
    planned: &PlannedJob,
    path: &Path,
    target: Option<Arc<File>>,
) -> Result<Vec<Arc<File>>, String> {
    let spec = &planned.job.spec;
    let target = target.ok_or_else(|| {
        format!(
            "{} is not open for {} I/O",
            path.display(),
            if spec.direct { "direct" } else { "buffered" }
        )
    })?;
    let mut files = vec![target];
    files.extend(planned.guide.iter().flat_map(|g| g.files.iter().cloned()));
    match spec.advise.filter(|_| !spec.direct) {
        Some(advice) => port::advised(files, spec, advice).map_err(|e| e.to_string()),
        None => Ok(files),
    }
}

/// The port of an engine with one outstanding I/O.
fn single<C: Call>(
    own: Result<C, String>,
    buffers: impl FnOnce() -> Result<Buffers, String>,
    clock: Clock,
) -> Result<Single<C>, String> {
    Ok(Single::new(own?, buffers()?, clock))
}

/// Memory for the thread's I/Os, and what its writes carry.
fn memory(planned: &PlannedJob, job: usize, thread: u32) -> Result<Buffers, String> {
    let spec = &planned.job.spec;
    let (_, depth) = planned.seats();
    let hands_over = planned.ops().contains(&Op::Write) || spec.command == Command::Compare;
    let content = hands_over.then_some(Content {
        compress: spec.compress / 100.0,
        chunk: spec.compress_chunk.0 as usize,
        duplicate: spec.duplicate / 100.0,
        duplicate_of: spec.duplicate_of,
        shared: spec.duplicate_shared,
        same: spec.same_data,
        scramble: spec.scramble,
        seed: crate::load::rng::mix(spec.seed ^ (u64::from(thread) << 32) ^ ((job as u64) << 48)),
    });
    Buffers::new(depth, spec.bs.max().0 as u32, content)
        .map_err(|e| format!("no memory for buffers: {e}"))
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

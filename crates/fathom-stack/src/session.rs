//! One traced pass: events switched on before a job, collected after it.
//!
//! Where the buffers hold the whole pass nothing reads them meanwhile, so that the observer does not
//! take a processor from the observed. Only a pass that would not fit is drained while it runs.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::device::{self, Devices};
use crate::error::TraceError;
use crate::event::{Decoder, EVENTS, Event, Kind};
use crate::perf::PerfSource;
use crate::source::{Chosen, Collected, Source};
use crate::tracefs::TraceFs;
use crate::tracefs::source::TraceSource;

/// Room in the buffers per I/O (measured: 700 to 900 bytes, all events together), twice over: others
/// use the same disk.
const BYTES_PER_IO: u64 = 2000;
/// Buffer of a processor that is drained all the time.
const LIVE_BYTES: u64 = 16 << 20;
/// How often a pass that does not fit is drained.
const DRAIN_EVERY: Duration = Duration::from_millis(20);

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The cheapest that is allowed.
    #[default]
    Best,
    /// perf_event_open, which needs no write access to tracefs but costs about twice as much per event.
    Perf,
}

/// What to trace.
#[derive(Debug, Clone)]
pub struct TraceConfig {
    /// Whose block events.
    pub devices: Devices,
    /// What the names of the job's threads begin with; none for every thread (a process that was not
    /// started by this one).
    pub threads: Option<String>,
    /// I/Os of the pass, all threads together, at most.
    pub ios: u64,
    /// System calls, scheduling and the ring too; otherwise block events and interrupts only.
    pub software: bool,
    /// The job uses io_uring.
    pub uring: bool,
    /// One outstanding I/O per thread: its scheduling belongs to it.
    pub single: bool,
    /// Where events come from.
    pub backend: Backend,
    /// How much will happen is not known: small buffers that are drained all the time.
    pub live: bool,
}

impl TraceConfig {
    /// Bytes that a processor's buffer should hold: all events of a job may happen on one.
    pub(crate) fn room(&self) -> u64 {
        if self.live {
            LIVE_BYTES
        } else {
            self.ios * BYTES_PER_IO
        }
    }
}

/// Everything that a pass left.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// In the order of their times.
    pub events: Vec<Event>,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// Boundaries that this kernel does not show.
    pub absent: Vec<&'static str>,
    /// Pages that were not understood; more than 0 is a defect.
    pub broken_pages: u64,
    /// Names of threads that shared a processor with the job's.
    pub names: HashMap<u32, String>,
}

type Reader = (Box<dyn Source>, Collected);

/// A running trace.
#[derive(Debug)]
pub struct Session {
    reader: Option<Reader>,
    drain: Option<(Arc<AtomicBool>, JoinHandle<Reader>)>,
    /// Drained all the time.
    live: bool,
    absent: Vec<&'static str>,
    rung: &'static str,
    why: Option<String>,
}

/// Events that this kernel has, their decoders, and the boundaries that it lacks.
fn choose(tracefs: &TraceFs, config: &TraceConfig) -> (Vec<Chosen>, Collected, Vec<&'static str>) {
    let (mut chosen, mut absent) = (Vec::new(), Vec::new());
    let mut collected = Collected::default();
    for wanted in EVENTS.iter().filter(|w| needed(w.kind, config)) {
        let Some((name, format)) = wanted
            .names
            .iter()
            .find_map(|n| Some((*n, tracefs.format(n)?)))
        else {
            absent.push(wanted.boundary);
            continue;
        };
        let decoder = Decoder::new(wanted, &format, config.devices.all());
        collected.decoders.insert(format.id, decoder);
        chosen.push(Chosen {
            name,
            boundary: wanted.boundary,
            format,
            filter: filter(wanted.kind, config),
        });
    }
    collected.events = Vec::with_capacity((config.ios as usize * 20).min(8 << 20));
    (chosen, collected, absent)
}

impl Session {
    /// Begins; the job's threads are recognised by their names. Where tracefs cannot be written,
    /// perf_event_open is tried.
    ///
    /// # Errors
    /// No tracefs, no right to use it, or a kernel without block events.
    pub fn start(config: &TraceConfig) -> Result<Self, TraceError> {
        if config.backend == Backend::Perf {
            return Self::perf(config, "asked for".into());
        }
        match Self::tracefs(config) {
            Err(
                e @ (TraceError::Denied { .. }
                | TraceError::NotMounted
                | TraceError::ReadOnly { .. }),
            ) => {
                // The reason of the better one is the one whose remedy helps.
                Self::perf(config, e.to_string()).map_err(|_| e)
            }
            other => other,
        }
    }

    fn tracefs(config: &TraceConfig) -> Result<Self, TraceError> {
        let tracefs = TraceFs::find()?;
        let (chosen, collected, mut absent) = choose(&tracefs, config);
        let source = TraceSource::open(tracefs, config.room(), &chosen, &mut absent)?;
        Self::run(
            config.live,
            Box::new(source),
            collected,
            absent,
            ("full", None),
        )
    }

    fn perf(config: &TraceConfig, why: String) -> Result<Self, TraceError> {
        let tracefs = TraceFs::readable()?;
        let (chosen, collected, mut absent) = choose(&tracefs, config);
        let source = PerfSource::open(config.room(), &chosen, &mut absent)?;
        Self::run(
            config.live,
            Box::new(source),
            collected,
            absent,
            ("perf-events", Some(why)),
        )
    }

    fn run(
        live: bool,
        source: Box<dyn Source>,
        collected: Collected,
        absent: Vec<&'static str>,
        (rung, why): (&'static str, Option<String>),
    ) -> Result<Self, TraceError> {
        if absent.contains(&"bio queued") || absent.contains(&"request complete") {
            return Err(TraceError::NoBlockEvents);
        }
        let mut session = Self {
            reader: None,
            drain: None,
            live,
            absent,
            rung,
            why,
        };
        session.begin((source, collected))?;
        Ok(session)
    }

    fn begin(&mut self, (mut source, collected): Reader) -> Result<(), TraceError> {
        source.record(true)?;
        if self.live || source.is_small() {
            self.start_drain((source, collected))
        } else {
            self.reader = Some((source, collected));
            Ok(())
        }
    }

    /// Traces another pass with the same events and the same buffers; false where it must be started anew.
    /// An event that is written to memory which nobody has touched yet costs two to three times as much
    /// (4 µs per I/O at one outstanding, measured): passes that are compared keep their buffers.
    ///
    /// # Errors
    /// The events could not be switched on again.
    pub fn resume(&mut self) -> Result<bool, TraceError> {
        let Some((mut source, collected)) = self.reader.take() else {
            return Ok(false);
        };
        source.wake()?;
        self.begin((source, collected))?;
        Ok(true)
    }

    /// `full` or `perf-events`.
    pub fn rung(&self) -> &'static str {
        self.rung
    }

    /// Why it is not the highest rung.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    fn start_drain(&mut self, mut reader: Reader) -> Result<(), TraceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("fathom-trace".into())
            .spawn(move || {
                while !flag.load(Ordering::Acquire) {
                    std::thread::sleep(DRAIN_EVERY);
                    reader.0.drain(&mut reader.1);
                }
                reader
            })
            .map_err(|e| TraceError::file("the thread that reads the events", e))?;
        self.drain = Some((stop, thread));
        Ok(())
    }

    /// Ends the pass and collects it. What was made for it is removed when this is dropped; until then it can
    /// [resume](Self::resume).
    ///
    /// # Errors
    /// The instance's files could not be read.
    pub fn stop(&mut self) -> Result<Trace, TraceError> {
        if let Some((stop, thread)) = self.drain.take() {
            stop.store(true, Ordering::Release);
            self.reader = thread.join().ok();
        }
        let Some((mut source, mut collected)) = self.reader.take() else {
            return Err(TraceError::Format {
                path: "the trace".into(),
                what: "the thread that reads the events ended early".into(),
            });
        };
        source.record(false)?;
        source.drain(&mut collected);
        let lost = source.lost()?;
        let mut events = std::mem::take(&mut collected.events);
        events.sort_by_key(|e| e.ts);
        let trace = Trace {
            events,
            lost,
            absent: self.absent.clone(),
            broken_pages: std::mem::take(&mut collected.broken),
            names: std::mem::take(&mut collected.names),
        };
        if matches!(source.rest(), Ok(true)) {
            self.reader = Some((source, collected));
        }
        Ok(trace)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drain.take() {
            stop.store(true, Ordering::Release);
            drop(thread.join());
        }
    }
}

fn needed(kind: Kind, config: &TraceConfig) -> bool {
    let bios = config.devices.all().any(|d| !d.has_requests);
    let single = config.single || !config.uring;
    match kind {
        Kind::Queue | Kind::Issue | Kind::Complete | Kind::GetRequest | Kind::IoStart => true,
        Kind::Insert | Kind::Requeue | Kind::Merge | Kind::Split | Kind::Irq => true,
        Kind::BioComplete => bios,
        Kind::CommandMade | Kind::CommandDone => {
            config.devices.all().any(|d| d.name.starts_with("nvme"))
        }
        Kind::RingSubmit | Kind::RingComplete => config.software && config.uring,
        // With several outstanding the wait is the ring's, not an I/O's.
        Kind::RingWait => {
            config.software && config.uring && config.single && config.threads.is_some()
        }
        Kind::DirectBegin => config.software,
        Kind::SysEnter | Kind::SysExit => config.software && single,
        // With several outstanding they are no boundary, but tell why an I/O was slow.
        // (Of every thread of the system they would be too many.)
        Kind::Wakeup | Kind::SwitchOut | Kind::SwitchIn => {
            config.software && config.threads.is_some()
        }
    }
}

/// The kernel drops what nobody wants before it costs a place in the buffer.
fn filter(kind: Kind, config: &TraceConfig) -> Option<String> {
    let threads = config.threads.as_ref().map(|t| format!("\"{t}*\""));
    let all = config.devices.all();
    match kind {
        Kind::Queue
        | Kind::GetRequest
        | Kind::IoStart
        | Kind::Insert
        | Kind::Issue
        | Kind::Requeue
        | Kind::Complete
        | Kind::Merge
        | Kind::Split => Some(device::filter(all)),
        Kind::CommandMade | Kind::CommandDone => Some(device::filter_by_name(all)),
        Kind::BioComplete => Some(device::filter(all.filter(|d| !d.has_requests))),
        Kind::Irq => None,
        Kind::RingWait => threads.map(|t| format!("COMM ~ {t}")),
        Kind::SysEnter | Kind::SysExit => match &threads {
            Some(t) => Some(format!("COMM ~ {t}")),
            None => Some(io_calls()),
        },
        // io_uring hands what would block to threads of its own.
        Kind::DirectBegin => threads.map(|t| format!("COMM ~ {t} || COMM ~ \"iou-wrk-*\"")),
        // A ring's completions may be posted by a thread of the kernel's.
        Kind::RingSubmit | Kind::RingComplete => {
            threads.map(|t| format!("COMM ~ {t} || COMM ~ \"iou-*\""))
        }
        Kind::Wakeup => threads.map(|t| format!("comm ~ {t}")),
        Kind::SwitchOut | Kind::SwitchIn => {
            threads.map(|t| format!("prev_comm ~ {t} || next_comm ~ {t}"))
        }
    }
}

/// The system calls that a VMM does I/O with, by number.
fn io_calls() -> String {
    let list: Vec<String> = crate::join::io_call_numbers()
        .iter()
        .map(|n| format!("id == {n}"))
        .collect();
    list.join(" || ")
}

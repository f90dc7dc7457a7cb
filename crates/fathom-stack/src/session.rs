//! One traced pass: events switched on before a job, collected after it.
//!
//! Where the buffers hold the whole pass nothing reads them meanwhile, so that the observer does not
//! take a processor from the observed. Only a pass that would not fit is drained while it runs.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::device::Devices;
use crate::error::TraceError;
use crate::event::{Decoder, EVENTS, Event, Kind};
use crate::tracefs::format::number;
use crate::tracefs::instance::Instance;
use crate::tracefs::{TraceFs, page};

/// Room in the buffers per I/O (measured: 700 to 900 bytes, all events together), twice over: others
/// use the same disk.
const BYTES_PER_IO: u64 = 2000;
/// Buffers of all processors together, at most.
const BUDGET_BYTES: u64 = 512 << 20;
/// Smallest buffer of a processor.
const BUFFER_MIN_KIB: u64 = 1024;
/// How often a pass that does not fit is drained.
const DRAIN_EVERY: Duration = Duration::from_millis(20);

/// What to trace.
#[derive(Debug, Clone)]
pub struct TraceConfig {
    /// Whose block events.
    pub devices: Devices,
    /// I/Os of the pass, all threads together, at most.
    pub ios: u64,
    /// System calls, scheduling and the ring too; otherwise block events and interrupts only.
    pub software: bool,
    /// The job uses io_uring.
    pub uring: bool,
    /// One outstanding I/O per thread: its scheduling belongs to it.
    pub single: bool,
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
}

/// A running trace.
#[derive(Debug)]
pub struct Session {
    instance: Instance,
    reader: Reader,
    drain: Option<(Arc<AtomicBool>, JoinHandle<Reader>)>,
    absent: Vec<&'static str>,
}

impl Session {
    /// Begins; the threads of the driver (named `io-JOB-THREAD`) are recognised by their name.
    ///
    /// # Errors
    /// No tracefs, no right to use it, or a kernel without block events.
    pub fn start(config: &TraceConfig) -> Result<Self, TraceError> {
        let instance = Instance::create(TraceFs::find()?)?;
        instance.set("trace_clock", "mono")?;
        for option in ["overwrite", "markers", "record-cmd", "irq-info"] {
            // Some are missing on some kernels, none matters for what is read.
            instance.try_set(&format!("options/{option}"), "0");
        }
        let cpus = instance.cpus();
        let count = cpus.len().max(1) as u64;
        // All events of a job may happen on one processor.
        let want = (config.ios * BYTES_PER_IO).max(BUFFER_MIN_KIB << 10) >> 10;
        let have = want.min((BUDGET_BYTES / count) >> 10).max(BUFFER_MIN_KIB);
        instance.set("buffer_size_kb", &have.to_string())?;
        let mut decoders = HashMap::new();
        let mut absent = Vec::new();
        for wanted in EVENTS.iter().filter(|w| needed(w.kind, config)) {
            let Some((name, format)) = wanted
                .names
                .iter()
                .find_map(|n| Some((*n, instance.format(n)?)))
            else {
                absent.push(wanted.boundary);
                continue;
            };
            decoders.insert(format.id, Decoder::new(wanted, &format));
            match instance.enable(name, filter(wanted.kind, config).as_deref()) {
                Ok(()) => {}
                Err(e @ TraceError::Denied { .. }) => return Err(e),
                Err(_) => absent.push(wanted.boundary),
            }
        }
        if absent.contains(&"bio queued") || absent.contains(&"request complete") {
            return Err(TraceError::NoBlockEvents);
        }
        let pipes = cpus
            .iter()
            .map(|c| Ok((*c, instance.pages(*c)?)))
            .collect::<Result<Vec<_>, TraceError>>()?;
        let reader = Reader {
            pipes,
            layout: *instance.layout(),
            decoders,
            events: Vec::with_capacity((config.ios as usize * 20).min(8 << 20)),
            broken: 0,
            page: vec![0; instance.layout().size],
        };
        let mut session = Self {
            instance,
            reader,
            drain: None,
            absent,
        };
        if have < want {
            session.start_drain()?;
        }
        session.instance.set("tracing_on", "1")?;
        Ok(session)
    }

    fn start_drain(&mut self) -> Result<(), TraceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut reader = self.reader.take();
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("fathom-trace".into())
            .spawn(move || {
                while !flag.load(Ordering::Acquire) {
                    std::thread::sleep(DRAIN_EVERY);
                    reader.drain();
                }
                reader
            })
            .map_err(|e| TraceError::file(self.instance.dir(), e))?;
        self.drain = Some((stop, thread));
        Ok(())
    }

    /// Ends, collects, and removes the instance.
    ///
    /// # Errors
    /// The instance's files could not be read.
    pub fn stop(mut self) -> Result<Trace, TraceError> {
        self.instance.set("tracing_on", "0")?;
        if let Some((stop, thread)) = self.drain.take() {
            stop.store(true, Ordering::Release);
            self.reader = thread.join().map_err(|_| TraceError::Format {
                path: self.instance.dir().into(),
                what: "the thread that reads the events ended early".into(),
            })?;
        }
        self.reader.drain();
        let mut lost = 0;
        for (cpu, _) in &self.reader.pipes {
            lost += self.instance.lost(*cpu)?;
        }
        let mut events = std::mem::take(&mut self.reader.events);
        events.sort_by_key(|e| e.ts);
        Ok(Trace {
            events,
            lost,
            absent: std::mem::take(&mut self.absent),
            broken_pages: self.reader.broken,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The instance cannot be removed while its pages are open.
        if let Some((stop, thread)) = self.drain.take() {
            stop.store(true, Ordering::Release);
            drop(thread.join());
        }
        self.reader.pipes.clear();
    }
}

/// Pages of every processor, and the events read so far.
#[derive(Debug)]
struct Reader {
    pipes: Vec<(u32, File)>,
    layout: page::PageLayout,
    decoders: HashMap<u16, Decoder>,
    events: Vec<Event>,
    broken: u64,
    page: Vec<u8>,
}

impl Reader {
    /// Leaves an empty one behind.
    fn take(&mut self) -> Self {
        Self {
            pipes: std::mem::take(&mut self.pipes),
            layout: self.layout,
            decoders: self.decoders.clone(),
            events: std::mem::take(&mut self.events),
            broken: 0,
            page: self.page.clone(),
        }
    }

    /// Reads what is there.
    fn drain(&mut self) {
        let Self {
            pipes,
            layout,
            decoders,
            events,
            broken,
            page,
        } = self;
        for (cpu, pipe) in pipes {
            let cpu = *cpu as u16;
            while let Ok(n) = pipe.read(page) {
                if n == 0 {
                    break;
                }
                let end = page::events(&page[..n], layout, |ts, data| {
                    let id = number(data, 0, 2) as u16;
                    if let Some(d) = decoders.get(&id) {
                        d.decode(ts, cpu, data, |e| events.push(e));
                    }
                });
                *broken += u64::from(!end.whole);
            }
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
        Kind::RingSubmit | Kind::RingComplete => config.software && config.uring,
        Kind::DirectBegin => config.software,
        Kind::SysEnter | Kind::SysExit | Kind::Wakeup => config.software && single,
        Kind::SwitchOut | Kind::SwitchIn => config.software && single,
    }
}

/// The kernel drops what nobody wants before it costs a place in the buffer.
fn filter(kind: Kind, config: &TraceConfig) -> Option<String> {
    const THREADS: &str = "\"io-*\"";
    let devices = || {
        let all: Vec<String> = config
            .devices
            .all()
            .map(|d| format!("dev == {}", d.dev))
            .collect();
        // A target in memory has none: events of other disks say nothing about it.
        if all.is_empty() {
            "dev == 0".to_owned()
        } else {
            all.join(" || ")
        }
    };
    match kind {
        Kind::Queue
        | Kind::GetRequest
        | Kind::IoStart
        | Kind::Insert
        | Kind::Issue
        | Kind::Requeue
        | Kind::Complete
        | Kind::BioComplete
        | Kind::Merge
        | Kind::Split => Some(devices()),
        Kind::Irq => None,
        Kind::SysEnter | Kind::SysExit => Some(format!("COMM ~ {THREADS}")),
        // io_uring hands what would block to threads of its own.
        Kind::DirectBegin => Some(format!("COMM ~ {THREADS} || COMM ~ \"iou-wrk-*\"")),
        // A ring's completions may be posted by a thread of the kernel's.
        Kind::RingSubmit | Kind::RingComplete => {
            Some(format!("COMM ~ {THREADS} || COMM ~ \"iou-*\""))
        }
        Kind::Wakeup => Some(format!("comm ~ {THREADS}")),
        Kind::SwitchOut | Kind::SwitchIn => {
            Some(format!("prev_comm ~ {THREADS} || next_comm ~ {THREADS}"))
        }
    }
}

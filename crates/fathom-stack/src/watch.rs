//! Watches the block events of a live system as they happen, for as long as it is asked to; nothing is kept but
//! what the caller keeps, and nothing is changed but a private tracefs instance, removed at the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use crate::device::{self, Disk};
use crate::error::TraceError;
use crate::event::{Decoder, EVENTS, Event, Kind};
use crate::tracefs::format::number;
use crate::tracefs::instance::Instance;
use crate::tracefs::{TraceFs, page};

/// Buffer of each processor, KiB: half a second of 40,000 I/Os a second on one of them.
const BUFFER_KIB: u64 = 4096;

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    // Pages are closed before the instance is removed: fields drop in this order.
    pipes: Vec<(u32, File)>,
    instance: Instance,
    decoders: HashMap<u16, Decoder>,
    page: Vec<u8>,
    /// Read, but perhaps not the oldest: processors are read one after another.
    pending: Vec<Event>,
}

impl Watch {
    /// Begins to watch these disks: I/Os as they are queued and as they complete.
    ///
    /// # Errors
    /// No tracefs, no right to use it, or a kernel without block events.
    pub fn start(disks: &[Disk]) -> Result<Self, TraceError> {
        let tracefs = TraceFs::find()?;
        let formats: Vec<_> = EVENTS
            .iter()
            .filter(|w| matches!(w.kind, Kind::Queue | Kind::Complete))
            .map(|w| {
                let found = w.names.iter().find_map(|n| Some((*n, tracefs.format(n)?)));
                Some((w, found?))
            })
            .collect::<Option<_>>()
            .ok_or(TraceError::NoBlockEvents)?;
        let instance = Instance::create(tracefs)?;
        instance.set("trace_clock", "mono")?;
        for option in ["overwrite", "markers", "record-cmd", "irq-info"] {
            instance.try_set(&format!("options/{option}"), "0");
        }
        instance.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        let filter = device::filter(disks.iter());
        let mut decoders = HashMap::new();
        for (wanted, (name, format)) in formats {
            decoders.insert(format.id, Decoder::new(wanted, &format, disks.iter()));
            instance.enable(name, Some(&filter))?;
        }
        let pipes = instance
            .cpus()
            .iter()
            .map(|c| Ok((*c, instance.pages(*c)?)))
            .collect::<Result<Vec<_>, TraceError>>()?;
        let page = vec![0; instance.layout().size];
        instance.set("tracing_on", "1")?;
        Ok(Self {
            pipes,
            instance,
            decoders,
            page,
            pending: Vec::new(),
        })
    }

    /// Hands over, in the order of their times, the events up to the last call; `last` ends the watch and takes the
    /// rest too.
    pub fn poll(&mut self, last: bool, mut each: impl FnMut(&Event)) {
        if last {
            // All processors stop at the same moment. They are read one after another, and who is read last would have
            // I/Os whose completions, on another, are past its last page.
            self.instance.try_set("tracing_on", "0");
        }
        let before = self.pending.iter().map(|e| e.ts).max().unwrap_or(0);
        let Self {
            pipes,
            instance,
            decoders,
            page,
            pending,
        } = self;
        for (cpu, pipe) in pipes {
            while let Ok(n) = pipe.read(page) {
                if n == 0 {
                    break;
                }
                page::events(&page[..n], instance.layout(), |ts, data| {
                    if let Some(d) = decoders.get(&(number(data, 0, 2) as u16)) {
                        d.decode(ts, *cpu as u16, data, |e| pending.push(e));
                    }
                });
            }
        }
        pending.sort_by_key(|e| e.ts);
        // What was read in the call before cannot be preceded by anything that is still unread.
        let ready = if last {
            pending.len()
        } else {
            pending.partition_point(|e| e.ts <= before)
        };
        pending.drain(..ready).for_each(|e| each(&e));
    }

    /// Events that found no room.
    pub fn lost(&self) -> u64 {
        self.pipes
            .iter()
            .filter_map(|(cpu, _)| self.instance.lost(*cpu).ok())
            .sum()
    }
}

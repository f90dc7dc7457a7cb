//! Events from the pages of a private trace instance.

use std::fs::File;
use std::io::Read;

use super::TraceFs;
use super::instance::Instance;
use super::page;
use crate::error::TraceError;
use crate::source::{Chosen, Collected, Source};

/// Buffers of all processors together, at most.
const BUDGET_BYTES: u64 = 512 << 20;
/// Smallest buffer of a processor.
const BUFFER_MIN_KIB: u64 = 1024;

#[derive(Debug)]
pub(crate) struct TraceSource {
    // Before the instance, which cannot be removed while its pages are open.
    pipes: Vec<(u32, File)>,
    page: Vec<u8>,
    small: bool,
    /// Names of the events that are on, or will be after a rest.
    events: Vec<&'static str>,
    instance: Instance,
}

impl TraceSource {
    /// Makes an instance with room for `bytes` per processor and switches the events on; those that
    /// cannot be are `absent`.
    pub(crate) fn open(
        tracefs: TraceFs,
        bytes: u64,
        events: &[Chosen],
        absent: &mut Vec<&'static str>,
    ) -> Result<Self, TraceError> {
        let instance = Instance::create(tracefs)?;
        instance.set("trace_clock", "mono")?;
        for option in ["overwrite", "markers", "record-cmd", "irq-info"] {
            // Some are missing on some kernels, none matters for what is read.
            instance.try_set(&format!("options/{option}"), "0");
        }
        let cpus = instance.cpus();
        let count = cpus.len().max(1) as u64;
        let want = bytes.max(BUFFER_MIN_KIB << 10) >> 10;
        let mut have = want.min((BUDGET_BYTES / count) >> 10).max(BUFFER_MIN_KIB);
        // A machine with little memory refuses: what it grants, and draining, will do.
        while let Err(e) = instance.set("buffer_size_kb", &have.to_string()) {
            if have <= BUFFER_MIN_KIB {
                return Err(e);
            }
            have = (have / 2).max(BUFFER_MIN_KIB);
        }
        let mut on = Vec::with_capacity(events.len());
        for event in events {
            match instance.enable(event.name, event.filter.as_deref()) {
                Ok(()) => on.push(event.name),
                Err(e @ TraceError::Denied { .. }) => return Err(e),
                Err(_) => absent.push(event.boundary),
            }
        }
        let pipes = cpus
            .iter()
            .map(|c| Ok((*c, instance.pages(*c)?)))
            .collect::<Result<Vec<_>, TraceError>>()?;
        Ok(Self {
            pipes,
            page: vec![0; instance.layout().size],
            small: have < want,
            events: on,
            instance,
        })
    }
}

impl Source for TraceSource {
    fn record(&mut self, on: bool) -> Result<(), TraceError> {
        self.instance.set("tracing_on", if on { "1" } else { "0" })
    }

    fn drain(&mut self, into: &mut Collected) {
        let layout = *self.instance.layout();
        for (cpu, pipe) in &mut self.pipes {
            let cpu = *cpu as u16;
            while let Ok(n) = pipe.read(&mut self.page) {
                if n == 0 {
                    break;
                }
                let end = page::events(&self.page[..n], &layout, |ts, data| {
                    into.push(ts, cpu, data);
                });
                into.broken += u64::from(!end.whole);
            }
        }
    }

    fn lost(&mut self) -> Result<u64, TraceError> {
        self.pipes
            .iter()
            .map(|(cpu, _)| self.instance.lost(*cpu))
            .sum()
    }

    fn is_small(&self) -> bool {
        self.small
    }

    fn rest(&mut self) -> Result<bool, TraceError> {
        self.instance.set("events/enable", "0")?;
        // Opening it truncated starts the buffers, and the counters of losses, at their first page.
        self.instance.set("trace", "")?;
        Ok(true)
    }

    fn wake(&mut self) -> Result<(), TraceError> {
        // Their filters stayed.
        self.events
            .iter()
            .try_for_each(|event| self.instance.enable(event, None))
    }
}

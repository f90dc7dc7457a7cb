//! What events come from: a backend, and what it is told and gives.

use std::collections::HashMap;
use std::fmt::Debug;

use crate::error::TraceError;
use crate::event::{Decoder, Event};
use crate::tracefs::format::{Format, number};

/// An event that this kernel has, to be switched on.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// `system/event`.
    pub(crate) name: &'static str,
    /// What its absence means.
    pub(crate) boundary: &'static str,
    pub(crate) format: Format,
    pub(crate) filter: Option<String>,
}

/// What was read so far, whatever it came from.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) decoders: HashMap<u16, Decoder>,
    pub(crate) events: Vec<Event>,
    pub(crate) names: HashMap<u32, String>,
    /// Pages or records that were not understood.
    pub(crate) broken: u64,
}

impl Collected {
    /// Takes the data of one event, as the kernel wrote it.
    pub(crate) fn push(&mut self, ts: u64, cpu: u16, data: &[u8]) {
        let Self {
            decoders,
            events,
            names,
            ..
        } = self;
        let Some(d) = decoders.get(&(number(data, 0, 2) as u16)) else {
            return;
        };
        d.decode(ts, cpu, data, |e| events.push(e));
        for (tid, name) in d.names(data).into_iter().flatten() {
            names
                .entry(tid)
                .or_insert_with(|| String::from_utf8_lossy(name).into_owned());
        }
    }
}

/// A backend with its events switched on.
pub(crate) trait Source: Debug + Send {
    /// Lets events in, or no more.
    fn record(&mut self, on: bool) -> Result<(), TraceError>;
    /// Reads what is there.
    fn drain(&mut self, into: &mut Collected);
    /// Events that found no room.
    fn lost(&mut self) -> Result<u64, TraceError>;
    /// Whether it must be drained while the pass runs.
    fn is_small(&self) -> bool;
    /// Switches its events off, so that what follows runs as if nothing had ever been traced, and empties its
    /// buffers, which stay. False where only opening it again can switch them on again.
    fn rest(&mut self) -> Result<bool, TraceError>;
    /// Switches the events on again after a rest.
    fn wake(&mut self) -> Result<(), TraceError>;
}

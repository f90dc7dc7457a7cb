//! Where a model's time goes: each request is stamped where it leaves a stage, so that the parts add up to what its
//! thread waited.

use fathom_telemetry::Histogram;

/// A part of a request's way, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Caller's processor, until the request is handed over (where memory answers, the copy).
    Submission,
    /// A guest's exit to its hypervisor.
    Exit,
    /// Waiting for an iothread and its processor, its work, and the host's kernel.
    Iothread,
    /// A stacked layer (device mapper, encryption), its queue included.
    StackedLayer,
    /// The page cache, where it answers.
    PageCache,
    /// Waiting for one of the device's queue slots.
    Slot,
    /// Waiting for the device's controller.
    Controller,
    /// The controller's work, and moving the bytes.
    Transfer,
    /// The medium, and waiting for the unit that holds the page.
    Media,
    /// What a command takes beside all that, occupying nothing.
    Fixed,
    /// An array's host and its members.
    Array,
    /// The host's interrupt and wake-up, below a guest.
    HostInterrupt,
    /// The iothread takes the completion and tells the guest.
    ToGuest,
    /// Interrupt, wake-up of the processor, and taking the completion.
    Completion,
}

/// All of them, in the order of the way.
pub const PLACES: [Place; 14] = [
    Place::Submission,
    Place::Exit,
    Place::Iothread,
    Place::StackedLayer,
    Place::PageCache,
    Place::Slot,
    Place::Controller,
    Place::Transfer,
    Place::Media,
    Place::Fixed,
    Place::Array,
    Place::HostInterrupt,
    Place::ToGuest,
    Place::Completion,
];

/// Times of every part, over the requests that were taken.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// By request: when it left the last stage, ns.
    at: Vec<u64>,
    /// By place.
    parts: Vec<Histogram>,
    /// Completed, and not yet taken: worker, time.
    popped: Vec<(u32, u64)>,
    taken: u64,
}

impl Trace {
    /// Nothing seen.
    pub fn new() -> Self {
        Self {
            parts: PLACES.iter().map(|_| Histogram::new()).collect(),
            ..Self::default()
        }
    }

    /// Requests that were taken by their threads.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Time in a part over the requests that passed it, ns.
    pub fn of(&self, place: Place) -> &Histogram {
        &self.parts[place as usize]
    }

    /// A request is handed over at `at`.
    pub(crate) fn begin(&mut self, id: u32, at: u64) {
        let id = id as usize;
        if self.at.len() <= id {
            self.at.resize(id + 1, 0);
        }
        self.at[id] = at;
    }

    /// It leaves a stage at `at`. A wait that did not happen is none.
    pub(crate) fn leave(&mut self, id: u32, place: Place, at: u64) {
        let Some(last) = self.at.get_mut(id as usize) else {
            return;
        };
        let ns = at.saturating_sub(*last);
        *last = at.max(*last);
        self.record(place, ns);
    }

    /// Its completion can be seen.
    pub(crate) fn popped(&mut self, id: u32, worker: u32) {
        if let Some(at) = self.at.get(id as usize) {
            self.popped.push((worker, *at));
        }
    }

    /// A worker has taken its completions.
    pub(crate) fn reaped(&mut self, worker: u32, end: u64) {
        let mut popped = std::mem::take(&mut self.popped);
        popped.retain(|(whose, at)| {
            if *whose == worker {
                self.taken += 1;
                self.record(Place::Completion, end.saturating_sub(*at));
            }
            *whose != worker
        });
        self.popped = popped;
    }

    fn record(&mut self, place: Place, ns: u64) {
        let waits = matches!(place, Place::Slot | Place::Controller);
        if ns > 0 || !waits {
            self.parts[place as usize].record(ns);
        }
    }
}

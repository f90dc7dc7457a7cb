//! The second pass: a thread reads the trace ahead of the worker and hands it over in batches of bounded
//! number; the worker asks what may start now, and tells when it did.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use fathom_telemetry::{Histogram, Nanos, Op};
use serde::{Deserialize, Serialize};

use super::facts::{Selection, TraceFacts};
use super::formats::{Events, Format, open};
use super::layout::{Fit, Layout};
use super::order::Ordered;
use super::{TraceError, TraceIo};

/// I/Os per batch.
const BATCH: usize = 4096;
/// Batches ahead of the worker.
const AHEAD: usize = 16;
/// Completions whose time is remembered, by number of the I/O; a power of two.
const REMEMBERED: usize = 1 << 16;
/// An I/O that waits for none.
const NONE: u64 = u64::MAX;
/// A gap that is kept this well counts as kept, ns …
const KEPT_NS: u64 = 50_000;

/// When the I/Os of a trace start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// At their recorded times, whatever the target does: an open loop.
    Timed,
    /// In their order, as fast as the depth allows.
    Fast,
    /// After the I/O that had completed last before they started, and the same time after it.
    Dependent,
}

impl std::str::FromStr for Pacing {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "timed" => Ok(Self::Timed),
            "fast" => Ok(Self::Fast),
            "dependent" => Ok(Self::Dependent),
            _ => Err(format!(
                "'{text}' is not possible: expected timed, fast or dependent"
            )),
        }
    }
}

/// What to play.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The trace.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Start events of a blktrace.
    pub events: Events,
    /// Only this device.
    pub device: Option<String>,
    /// Leave out what changes the target.
    pub reads_only: bool,
    /// When I/Os start.
    pub pacing: Pacing,
    /// 10 plays an hour in six minutes.
    pub speed: f64,
    /// Longer gaps are cut to this.
    pub idle_max: Option<Nanos>,
    /// Which I/Os are played here, and which elsewhere.
    pub share: Share,
}

/// The part of a trace that is played at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Share {
    /// All of it; of several hosts, by each.
    #[default]
    Whole,
    /// Its I/Os are dealt to several places in turns: those of this one, counted from 0, of so many.
    Turns(u32, u32),
}

impl Share {
    /// Whether the I/O of this number is played here.
    fn takes(self, number: u64) -> bool {
        match self {
            Self::Whole => true,
            Self::Turns(place, of) => number % u64::from(of.max(1)) == u64::from(place),
        }
    }
}

/// A trace and where it goes, as it can be sent to another host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Playing {
    /// What to play.
    pub score: Score,
    /// What its survey found.
    pub facts: TraceFacts,
    /// Where it differs in size from the target.
    pub fit: Fit,
}

/// An I/O ready to be played.
#[derive(Debug, Clone, Copy)]
struct Cue {
    /// Start after the beginning, ns.
    at: u64,
    offset: u64,
    len: u32,
    op: Op,
    /// Number of the I/O to wait for.
    after: u64,
    /// Time after its completion, ns.
    gap: u64,
    /// I/Os that were outstanding when it started.
    beside: u32,
}

/// How well the recorded times were kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fidelity {
    /// I/Os started.
    pub started: u64,
    /// Absolute error of each time between two starts, ns.
    pub gap_error: Histogram,
    /// Started after the recorded time, ns.
    pub lag: Histogram,
    /// Starts whose distance from the one before was kept within 50 µs or 5 %.
    pub kept: u64,
    /// Recorded time from the first to the last start, speed and cuts counted, ns.
    pub recorded_ns: u64,
    /// Achieved time from the first to the last start, ns.
    pub achieved_ns: u64,
    /// Times that the reader was behind the worker.
    pub starved: u64,
    /// I/Os whose offset or length was aligned.
    pub aligned: u64,
    /// Idle time that was cut, ns.
    pub idle_cut_ns: u64,
    /// Why reading ended early.
    pub error: Option<String>,
}

impl Fidelity {
    /// Share of the times between starts that were kept within 50 µs or 5 %.
    pub fn score(&self) -> Option<f64> {
        let gaps = self.gap_error.count();
        (gaps > 0).then(|| self.kept as f64 / gaps as f64)
    }

    /// Adds what another place kept of the same trace at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.started += other.started;
        self.gap_error.merge(&other.gap_error);
        self.lag.merge(&other.lag);
        self.kept += other.kept;
        self.recorded_ns = self.recorded_ns.max(other.recorded_ns);
        self.achieved_ns = self.achieved_ns.max(other.achieved_ns);
        self.starved += other.starved;
        self.aligned += other.aligned;
        self.idle_cut_ns = self.idle_cut_ns.max(other.idle_cut_ns);
        self.error = self.error.take().or_else(|| other.error.clone());
    }
}

/// Carries a feed to the worker that takes it, and its fidelity back. Clones are the same handle.
#[derive(Clone)]
pub struct FeedHandle {
    inner: Arc<Mutex<Option<Feed>>>,
    result: Arc<Mutex<Option<Fidelity>>>,
    playing: Arc<Playing>,
}

impl std::fmt::Debug for FeedHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedHandle").finish_non_exhaustive()
    }
}

impl PartialEq for FeedHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl FeedHandle {
    /// The feed, once.
    pub(crate) fn take(&self) -> Option<Feed> {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
    /// Operations that the trace holds.
    pub fn ops(&self) -> Vec<Op> {
        self.playing.facts.ops()
    }
    /// What is played.
    pub fn playing(&self) -> &Playing {
        &self.playing
    }
    /// How well it went; `None` until the worker has ended.
    pub fn fidelity(&self) -> Option<Fidelity> {
        self.result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
    /// Says how well it went where others played it.
    pub fn played(&self, fidelity: Fidelity) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(fidelity);
    }
}

type Batch = Result<Vec<Cue>, TraceError>;

/// A trace on its way to a worker.
pub struct Feed {
    pacing: Pacing,
    batches: Receiver<Batch>,
    used: Sender<Vec<Cue>>,
    batch: Vec<Cue>,
    next: usize,
    ended: bool,
    origin: Nanos,
    /// Number of the next I/O.
    number: u64,
    /// Number of the I/O in each slot.
    slots: Vec<u64>,
    /// Completion times by number, modulo; 0 where not completed.
    completed: Vec<u64>,
    last_at: u64,
    last_submitted: Nanos,
    /// Recorded times of what was taken and not yet submitted.
    taken: Vec<u64>,
    fidelity: Fidelity,
    shared: Arc<Mutex<Shared>>,
    result: Arc<Mutex<Option<Fidelity>>>,
}

/// What the reader counts.
#[derive(Debug, Default)]
struct Shared {
    aligned: u64,
    idle_cut_ns: u64,
}

/// Begins to read a trace for playing, laid out as `layout` says.
pub fn start(playing: Playing, layout: Layout) -> FeedHandle {
    let score = playing.score.clone();
    let (tx, rx) = sync_channel(AHEAD);
    let (used_tx, used_rx) = channel();
    let shared = Arc::new(Mutex::new(Shared::default()));
    let result = Arc::new(Mutex::new(None));
    let feed = Feed {
        pacing: score.pacing,
        batches: rx,
        used: used_tx,
        batch: Vec::new(),
        next: 0,
        ended: false,
        origin: Nanos::ZERO,
        number: 0,
        slots: Vec::new(),
        completed: if score.pacing == Pacing::Dependent {
            vec![0; REMEMBERED]
        } else {
            Vec::new()
        },
        last_at: 0,
        last_submitted: Nanos::ZERO,
        taken: Vec::new(),
        fidelity: Fidelity::default(),
        shared: shared.clone(),
        result: result.clone(),
    };
    let spare = tx.clone();
    let spawned = std::thread::Builder::new()
        .name("trace".into())
        .spawn(move || {
            let mut reader = Reader::new(&score, layout, shared);
            if let Err(e) = reader.run(&score.path, &tx, &used_rx) {
                let _ = tx.send(Err(e));
            }
        });
    if let Err(e) = spawned {
        let _ = spare.try_send(Err(TraceError::Unfit(format!(
            "a thread to read the trace could not be created: {e}"
        ))));
    }
    FeedHandle {
        inner: Arc::new(Mutex::new(Some(feed))),
        result,
        playing: Arc::new(playing),
    }
}

impl Feed {
    /// The worker begins, at `depth` slots.
    pub(crate) fn begin(&mut self, origin: Nanos, depth: u32) {
        self.origin = origin;
        self.slots = vec![NONE; depth as usize];
        self.taken.reserve(depth as usize);
        self.refill();
    }

    /// Whether nothing is left to start.
    #[inline]
    pub(crate) fn finished(&self) -> bool {
        self.ended && self.next >= self.batch.len()
    }

    #[cold]
    fn refill(&mut self) {
        if self.ended {
            return;
        }
        let old = std::mem::take(&mut self.batch);
        if old.capacity() > 0 {
            let _ = self.used.send(old);
        }
        self.next = 0;
        let received = match self.batches.try_recv() {
            Ok(b) => Ok(b),
            Err(_) => {
                self.fidelity.starved += u64::from(self.number > 0);
                self.batches.recv()
            }
        };
        match received {
            Ok(Ok(batch)) => self.batch = batch,
            Ok(Err(e)) => {
                self.fidelity.error = Some(e.to_string());
                self.ended = true;
            }
            Err(_) => {
                self.fidelity.starved -= u64::from(self.number > 0);
                self.ended = true;
            }
        }
    }

    /// When the next I/O may start: [`Nanos::MAX`] where a completion has to come first, or none is left.
    #[inline]
    pub(crate) fn due(&self, now: Nanos, outstanding: u32) -> Nanos {
        let Some(cue) = self.batch.get(self.next) else {
            return Nanos::MAX;
        };
        match self.pacing {
            Pacing::Timed => self.origin + Nanos(cue.at),
            Pacing::Fast => now,
            Pacing::Dependent => {
                if outstanding > cue.beside {
                    return Nanos::MAX;
                }
                if cue.after == NONE {
                    return self.origin + Nanos(cue.at);
                }
                // What is no longer remembered has long completed.
                if self.number - cue.after > REMEMBERED as u64 {
                    return now;
                }
                match self.completed[cue.after as usize % REMEMBERED] {
                    0 => Nanos::MAX,
                    at => Nanos(at + cue.gap),
                }
            }
        }
    }

    /// Takes the next I/O, which is due.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32) -> Option<(Op, u64, u32)> {
        let cue = *self.batch.get(self.next)?;
        self.next += 1;
        if let Some(s) = self.slots.get_mut(slot as usize) {
            *s = self.number;
        }
        if self.pacing == Pacing::Dependent {
            self.completed[self.number as usize % REMEMBERED] = 0;
        }
        self.number += 1;
        self.taken.push(cue.at);
        if self.next >= self.batch.len() {
            self.refill();
        }
        Some((cue.op, cue.offset, cue.len))
    }

    /// Everything taken was handed over at `now`.
    #[inline]
    pub(crate) fn submitted(&mut self, now: Nanos) {
        for at in self.taken.drain(..) {
            let f = &mut self.fidelity;
            f.lag.record(now.since(self.origin + Nanos(at)).0);
            if f.started > 0 {
                let recorded = at - self.last_at;
                let achieved = now.since(self.last_submitted).0;
                let error = recorded.abs_diff(achieved);
                f.gap_error.record(error);
                f.kept += u64::from(error <= KEPT_NS.max(recorded / 20));
                f.recorded_ns += recorded;
                f.achieved_ns += achieved;
            }
            f.started += 1;
            self.last_at = at;
            self.last_submitted = now;
        }
    }

    /// The I/O in a slot has completed.
    #[inline]
    pub(crate) fn completed(&mut self, slot: u32, now: Nanos) {
        if self.pacing != Pacing::Dependent {
            return;
        }
        let number = self.slots[slot as usize];
        if number != NONE && self.number - number <= REMEMBERED as u64 {
            self.completed[number as usize % REMEMBERED] = now.0.max(1);
        }
    }

    /// The worker has ended.
    pub(crate) fn end(mut self) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.fidelity.aligned = shared.aligned;
        self.fidelity.idle_cut_ns = shared.idle_cut_ns;
        drop(shared);
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(std::mem::take(&mut self.fidelity));
    }
}

/// Turns I/Os of the trace into cues.
struct Reader {
    score: Score,
    layout: Layout,
    shared: Arc<Mutex<Shared>>,
    first: Option<u64>,
    last: u64,
    /// Time on the replay's clock, before the speed.
    clock: u64,
    number: u64,
    /// Under way in the trace: completion, number.
    under_way: BinaryHeap<Reverse<(u64, u64)>>,
    /// Last completed in the trace.
    last_done: Option<(u64, u64)>,
    aligned: u64,
    cut: u64,
}

impl Reader {
    fn new(score: &Score, layout: Layout, shared: Arc<Mutex<Shared>>) -> Self {
        Self {
            score: score.clone(),
            layout,
            shared,
            first: None,
            last: 0,
            clock: 0,
            number: 0,
            under_way: BinaryHeap::new(),
            last_done: None,
            aligned: 0,
            cut: 0,
        }
    }

    fn run(
        &mut self,
        path: &Path,
        tx: &SyncSender<Batch>,
        used: &Receiver<Vec<Cue>>,
    ) -> Result<(), TraceError> {
        let (format, source) = open(path, Some(self.score.format), self.score.events)?;
        let mut ordered = Ordered::new(format, source);
        let selection = Selection {
            device: self.score.device.clone(),
            reads_only: self.score.reads_only,
        };
        // Device numbers follow the order of appearance, which is the same in both passes.
        let mut wanted: Option<u32> = None;
        let mut known = 0;
        let mut batch = Vec::with_capacity(BATCH + 8);
        let mut taken = 0;
        while let Some(io) = ordered.next()? {
            if let Some(name) = &selection.device {
                while known <= io.device {
                    if ordered.device(known) == *name {
                        wanted = Some(known);
                    }
                    known += 1;
                }
                if wanted.is_none() {
                    continue;
                }
            }
            if !selection.takes(&io, wanted) {
                continue;
            }
            let here = self.score.share.takes(taken);
            taken += 1;
            self.cue(&io, here, &mut batch);
            if batch.len() >= BATCH {
                self.publish();
                let full = std::mem::replace(&mut batch, used.try_recv().unwrap_or_default());
                batch.clear();
                batch.reserve(BATCH + 8);
                if tx.send(Ok(full)).is_err() {
                    return Ok(());
                }
            }
        }
        self.publish();
        if !batch.is_empty() {
            let _ = tx.send(Ok(batch));
        }
        Ok(())
    }

    fn publish(&self) {
        let mut s = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        s.aligned = self.aligned;
        s.idle_cut_ns = self.cut;
    }

    /// Time passes with every I/O; those of other places are not played `here`.
    fn cue(&mut self, io: &TraceIo, here: bool, out: &mut Vec<Cue>) {
        let first = *self.first.get_or_insert(io.at.0);
        let last = std::mem::replace(&mut self.last, io.at.0);
        let gap = if io.at.0 == first {
            0
        } else {
            io.at.0 - last.max(first)
        };
        let kept = self.score.idle_max.map_or(gap, |m| gap.min(m.0));
        self.cut += gap - kept;
        self.clock += kept;
        if !here {
            return;
        }
        let speed = self.score.speed;
        let scaled = |ns: u64| {
            if speed == 1.0 {
                ns
            } else {
                (ns as f64 / speed) as u64
            }
        };
        let at = scaled(self.clock);
        let (mut after, mut wait, mut beside) = (NONE, 0, u32::MAX);
        if self.score.pacing == Pacing::Dependent {
            while let Some(Reverse((done, number))) = self.under_way.peek().copied() {
                if done > io.at.0 {
                    break;
                }
                self.under_way.pop();
                self.last_done = Some((done, number));
            }
            if let Some((done, number)) = self.last_done {
                after = number;
                let think = io.at.0 - done;
                wait = scaled(self.score.idle_max.map_or(think, |m| think.min(m.0)));
            }
            beside = u32::try_from(self.under_way.len()).unwrap_or(u32::MAX);
        }
        let mut pieces = 0u32;
        let changed = self.layout.place(io, |offset, len| {
            out.push(Cue {
                at,
                offset,
                len,
                op: io.op,
                after,
                gap: wait,
                beside: beside.saturating_add(pieces),
            });
            pieces += 1;
        });
        self.aligned += u64::from(changed);
        self.number += u64::from(pieces);
        if self.score.pacing == Pacing::Dependent {
            let done = io.at.0.saturating_add(io.latency.map_or(0, |l| l.0));
            self.under_way.push(Reverse((done, self.number - 1)));
        }
    }
}

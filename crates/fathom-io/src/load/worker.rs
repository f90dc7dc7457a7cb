//! One thread's load as a state machine: [`Worker::issue`] stages what may start now and says how to
//! wait; [`Worker::reap`] takes completions. Nothing here blocks, allocates or formats per I/O.

mod books;
mod cold;
mod guided;
mod outcome;
mod pace;
mod plain;
mod syncing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fathom_telemetry::{Nanos, Op, Recorder, WindowSink};

pub use outcome::{Batches, ErrorCount, Live, NOTHING_READ, Outcome, Wait};

use self::cold::Cold;
use self::pace::Pace;
use self::syncing::Syncing;
use super::guide::{Pilot, PilotSeat};
use super::offsets::{Offsets, Pattern};
use super::rng::Rng;
use crate::job::{Engine, JobSpec, OnError, ValidJob};
use crate::port::{Port, Request};

#[derive(Debug, Clone, Copy)]
struct Slot {
    intended: Nanos,
    submitted: Nanos,
    request: Request,
}

/// One thread's load.
pub struct Worker<P, S> {
    /// The port, for the loop that drives the worker.
    pub port: P,
    /// Its number in the job.
    thread: u32,
    recorder: Recorder<S>,
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    staged: Vec<u32>,
    rng: Rng,
    pattern: Pattern,
    /// Ends after one pass over its part of the range.
    once: bool,
    /// Whether the ramp is over.
    measuring: bool,
    /// Reads where the random bits are below; `None` for a single operation.
    mix: Option<u64>,
    op: Op,
    pace: Pace,
    syncing: Option<Syncing>,
    pilot: Option<Box<PilotSeat>>,
    /// Every slot that is free starts an I/O of the pattern at once; see [`plain`].
    plain: bool,
    batch: u32,
    /// I/Os per hand-over, which is timed apart from the wait; 0 for all that may start.
    few: u32,
    /// Completions taken at once; 0 for all that are there.
    take: usize,
    cold: Option<Cold>,
    on_error: OnError,
    ios_left: u64,
    bytes_left: u64,
    /// A ramp uses bytes up like what follows.
    ramp_counts: bool,
    /// What a ramp may transfer under a limit of bytes and of time: its share of the time, so that the
    /// limit bounds the wear of the whole job.
    ramp_bytes_left: u64,
    end: Nanos,
    ramp: Nanos,
    run_time: Option<Nanos>,
    now: Nanos,
    last_depth_change: Nanos,
    depth: u32,
    ending: bool,
    total_ios: u64,
    total_bytes: u64,
    late_limit: u64,
    outcome: Outcome,
}

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// `thread` of `threads`, at `depth` outstanding I/Os. `ramp` is a whole number of windows.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        job: &ValidJob,
        thread: u32,
        threads: u32,
        depth: u32,
        ramp: Nanos,
        port: P,
        mut recorder: Recorder<S>,
        live: Arc<Live>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        recorder.log_after(ramp);
        let spec = &job.spec;
        let (t, n) = (u64::from(thread), u64::from(threads));
        let share = |total: u64| total / n + u64::from(t < total % n);
        let (op, mix) = operation(spec);
        let pattern = Pattern::new(job, t, n);
        let offsets = &pattern.offsets;
        // Without any limit: one pass over the range.
        let once = spec.time.is_none() && spec.ios.is_none() && spec.bytes.is_none();
        let bytes_left = bytes(job, offsets, once, share);
        let pace = Pace::of(job, (t, n), depth);
        let late_limit = pace.late_limit();
        let idle = Slot {
            intended: Nanos::ZERO,
            submitted: Nanos::ZERO,
            request: block(op, (0, 0)),
        };
        Self {
            port,
            thread,
            recorder,
            live,
            stop,
            slots: vec![idle; depth as usize].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            staged: Vec::with_capacity(depth as usize),
            rng: Rng::new(spec.seed, 1 + t),
            once: once && offsets.has_passes(),
            measuring: ramp == Nanos::ZERO,
            pattern,
            mix,
            op,
            pace,
            syncing: Syncing::of(spec),
            pilot: None,
            plain: false,
            batch: spec.batch.min(depth),
            few: match spec.engine {
                Engine::Uring | Engine::UringCmd | Engine::Libaio | Engine::PosixAio => {
                    spec.submit_batch
                }
                Engine::Preadv | Engine::Mmap | Engine::Null => 0,
            },
            take: spec.complete_max as usize,
            cold: Cold::of(job),
            on_error: spec.on_error,
            ios_left: spec.ios.map_or(u64::MAX, share),
            bytes_left,
            ramp_counts: spec.ramp_counts,
            ramp_bytes_left: ramp_bytes(spec, ramp, n),
            end: Nanos::MAX,
            ramp,
            run_time: spec.time,
            now: Nanos::ZERO,
            last_depth_change: Nanos::ZERO,
            depth,
            ending: false,
            total_ios: 0,
            total_bytes: 0,
            late_limit,
            outcome: Outcome {
                depth_ns: vec![0; depth as usize + 1],
                ..Outcome::default()
            },
        }
    }

    /// Lets `pilot` guide the load; only before the start.
    pub fn guide(&mut self, pilot: Box<dyn Pilot>) {
        if pilot.decides_end() {
            (self.ios_left, self.bytes_left) = (u64::MAX, u64::MAX);
            (self.once, self.ramp_bytes_left) = (false, u64::MAX);
        }
        self.pilot = Some(Box::new(PilotSeat::new(pilot, self.depth)));
    }

    /// Begins at `origin` on the port's clock; the caller has waited for it.
    pub fn start(&mut self, origin: Nanos) {
        self.now = origin;
        self.outcome.measured_from = origin + self.ramp;
        self.last_depth_change = self.outcome.measured_from;
        self.outcome.last_completion = self.outcome.measured_from;
        if let Some(t) = self.run_time {
            self.end = origin + self.ramp + t;
        }
        if let Some(p) = &mut self.pilot {
            p.pilot.start(self.outcome.measured_from);
        }
        self.plain = self.is_plain();
        match &mut self.pace {
            Pace::Open(a) => a.start(origin),
            Pace::Think { ready, .. } => ready.extend((0..self.depth).map(|_| origin)),
            Pace::Trace(feed) => feed.begin(origin, self.depth),
            Pace::Closed | Pace::Burst { .. } => {}
        }
    }

    /// Asks it, and all that share its stop, to start nothing more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Number of another worker of the same group that its pilot [calls](Pilot::called), where this one is number `me`.
    #[cold]
    pub(crate) fn called(&mut self, me: u32) -> Option<u32> {
        let thread = self.pilot.as_mut()?.pilot.called()?;
        Some(me - self.thread + thread)
    }

    /// Its pilot is asked again at the next step, whatever it waits for.
    pub(crate) fn ask_again(&mut self) {
        if let Some(p) = &mut self.pilot {
            p.until = None;
        }
    }

    /// Outstanding I/Os.
    #[inline]
    fn outstanding(&self) -> u32 {
        self.depth - self.free.len() as u32
    }

    /// Stages every I/O that may start now. Follow with a flush as told, then [`Worker::reap`].
    #[inline]
    pub fn issue(&mut self) -> Wait {
        if self.now >= self.end || self.stop.load(Ordering::Relaxed) {
            self.ending = true;
        }
        if !self.ending {
            let before = self.outstanding();
            if self.plain && self.measuring && self.mix.is_none() && self.op == Op::Read {
                self.issue_reads(before);
                return self.wait();
            }
            self.stage_ready();
            if !self.staged.is_empty() {
                self.account_depth(before);
                let staged = self.staged.len() as u32;
                self.outcome.batches.submit(staged, before + staged);
                let slots = &self.slots;
                let request = |slot: &u32| (*slot, slots[*slot as usize].request);
                self.port.stage(self.staged.iter().map(request));
                if self.few > 0 {
                    // Handed over first, then marked: see `reap`.
                    return Wait::For {
                        min: 0,
                        until: Nanos::ZERO,
                    };
                }
                let now = self.port.now();
                self.mark_submitted(now);
            }
        }
        self.wait()
    }

    #[inline(always)]
    fn mark_submitted(&mut self, now: Nanos) {
        let slots = &mut self.slots[..];
        for slot in self.staged.drain(..) {
            slots[slot as usize].submitted = now;
        }
        if let Pace::Trace(feed) = &mut self.pace {
            feed.submitted(now);
        }
        if let Pace::Open(_) | Pace::Trace(_) = self.pace {
            // Lateness is counted from the schedule; the slots just staged are the busiest ones.
            self.now = now;
        }
    }

    /// Books the time since the last change at `depth` outstanding I/Os.
    #[inline]
    fn account_depth(&mut self, depth: u32) {
        if self.now > self.last_depth_change {
            self.outcome.depth_ns[depth as usize] += self.now.since(self.last_depth_change).0;
            self.last_depth_change = self.now;
        }
    }

    #[inline]
    fn stage_ready(&mut self) {
        if !self.measuring && self.now >= self.outcome.measured_from {
            self.begin_measuring();
        }
        if self.plain && self.measuring {
            return self.stage_plain();
        }
        if self.syncing.as_ref().is_some_and(Syncing::is_due) {
            return self.sync();
        }
        while !self.free.is_empty()
            && self.ios_left > 0
            && self.bytes_left > 0
            && (self.measuring || self.ramp_bytes_left > 0)
            && (self.few == 0 || self.staged.len() < self.few as usize)
        {
            if let Some(p) = &mut self.pilot
                && !p.ready(self.now)
            {
                return;
            }
            let Some((intended, traced)) = self.due() else {
                return;
            };
            let (led, pass) = match &mut self.pilot {
                None => (None, None),
                Some(p) => (p.take(), p.pilot.passed()),
            };
            if let Some(pass) = pass {
                self.begin_pass(pass);
            }
            let io = match led.or(traced) {
                Some(io) => io,
                None => {
                    self.cool();
                    self.own()
                }
            };
            self.use_up(u64::from(io.len));
            self.stage_one(io, intended);
            if io.op == Op::Write
                && let Some(s) = &mut self.syncing
                && s.wrote(&io)
            {
                return;
            }
        }
    }

    /// When the next I/O was to start, and which one it is where a trace says so; `None` where none may start now.
    #[inline(always)]
    fn due(&mut self) -> Option<(Nanos, Option<Request>)> {
        let due = match &mut self.pace {
            Pace::Closed => self.now,
            // Not every I/O of a pilot waits for its turn.
            Pace::Open(_) if self.pilot.as_ref().is_some_and(|p| !p.pilot.paced()) => self.now,
            Pace::Think { ready, .. } => {
                ready.front().filter(|t| **t <= self.now)?;
                ready.pop_front()?
            }
            Pace::Open(a) => {
                let due = a.peek();
                if due > self.now || due >= self.end {
                    return None;
                }
                a.advance();
                let late = self.now.since(due).0;
                if due >= self.outcome.measured_from {
                    self.outcome.late += u64::from(late > self.late_limit);
                    self.outcome.lateness_max = self.outcome.lateness_max.max(late);
                }
                due
            }
            Pace::Trace(feed) => {
                let outstanding = self.depth - self.free.len() as u32;
                let due = feed.due(self.now, outstanding);
                if due > self.now || due >= self.end {
                    return None;
                }
                let (op, offset, len) = feed.take(*self.free.last()?)?;
                return Some((due, Some(block(op, (offset, len)))));
            }
            Pace::Burst {
                left_ios,
                left_bytes,
                resume,
                ..
            } => {
                if (*left_ios == 0 && *left_bytes == 0) || self.now < *resume {
                    return None;
                }
                self.now
            }
        };
        Some((due, None))
    }

    /// Takes an I/O of so many bytes from what may still start. Limits hold for the measured part: a ramp uses none of them up,
    /// unless its bytes count.
    #[inline(always)]
    fn use_up(&mut self, len: u64) {
        if !self.measuring && self.ramp_counts {
            self.bytes_left = self.bytes_left.saturating_sub(len);
        } else if self.measuring {
            self.ios_left -= 1;
            self.bytes_left = self.bytes_left.saturating_sub(len);
            if self.once && self.pattern.offsets.passed() {
                self.ios_left = 0;
            }
        } else {
            self.ramp_bytes_left = self.ramp_bytes_left.saturating_sub(len);
        }
        if let Pace::Burst {
            left_ios,
            left_bytes,
            ..
        } = &mut self.pace
        {
            *left_ios = left_ios.saturating_sub(1);
            *left_bytes = left_bytes.saturating_sub(len);
        }
    }

    /// The ramp is over. What it has left outstanding completes in the measured part and counts there.
    #[cold]
    fn begin_measuring(&mut self) {
        self.measuring = true;
        self.outcome.batches = Batches::default();
        // What came while a ramp was out of bytes waited for nobody: the schedule goes on as if it had been served.
        if let (Pace::Open(a), 0) = (&mut self.pace, self.ramp_bytes_left) {
            a.due_before(self.outcome.measured_from, u64::MAX);
        }
        if self.ramp_counts {
            return;
        }
        self.pattern.offsets.restart();
        if let Some(c) = &mut self.cold {
            c.restart();
        }
        for slot in &self.free {
            self.slots[*slot as usize].request.len = 0;
        }
        let counts = |slot: &&Slot| slot.request.len > 0 && slot.request.op != Op::Sync;
        for slot in self.slots.iter().filter(counts) {
            self.ios_left = self.ios_left.saturating_sub(1);
            self.bytes_left = self.bytes_left.saturating_sub(u64::from(slot.request.len));
        }
    }

    /// The next I/O by pattern, sizes and distribution.
    #[inline]
    fn own(&mut self) -> Request {
        let op = match self.mix {
            Some(threshold) if self.rng.bits() > threshold => Op::Write,
            _ => self.op,
        };
        block(op, self.pattern.draw(&mut self.rng))
    }

    #[inline]
    fn stage_one(&mut self, io: Request, intended: Nanos) {
        let Some(slot) = self.free.pop() else {
            return;
        };
        if io.op == Op::Write {
            let filled = match &mut self.pilot {
                Some(p) => match self.port.buffer(slot, io.len) {
                    Some(data) => p.pilot.fill(&io, data),
                    None => false,
                },
                None => false,
            };
            if !filled {
                self.port.prepare(slot, io.len);
            }
        }
        let intended = match self.pace {
            // Content was made, or each hand-over is timed: the I/O itself begins here.
            Pace::Closed | Pace::Burst { .. } if self.pilot.is_some() || self.few > 0 => {
                self.port.now()
            }
            _ => intended,
        };
        if let Some(p) = &mut self.pilot {
            p.pilot.begins(&io);
        }
        note(&mut self.slots, slot, io, intended);
        self.outcome.issued += 1;
        self.staged.push(slot);
    }

    #[inline]
    fn wait(&mut self) -> Wait {
        let outstanding = self.outstanding();
        let played = matches!(&self.pace, Pace::Trace(f) if f.finished());
        let led_out = self.pilot.as_ref().is_some_and(|p| p.ended);
        let exhausted = self.ios_left == 0 || self.bytes_left == 0 || played || led_out;
        let sync_due = self.syncing.as_ref().is_some_and(Syncing::is_due);
        if self.ending || (exhausted && !sync_due) {
            if outstanding == 0 {
                return Wait::Finished;
            }
            return Wait::For {
                min: 1,
                until: Nanos::MAX,
            };
        }
        if !self.measuring && self.ramp_bytes_left == 0 {
            return Wait::For {
                min: outstanding.min(1),
                until: self.outcome.measured_from,
            };
        }
        let free = !self.free.is_empty();
        let until = match &mut self.pace {
            Pace::Closed => Nanos::MAX,
            // A sync that is due waits for completions: no arrival and no think time can end that.
            _ if sync_due && outstanding > 0 => Nanos::MAX,
            Pace::Think { ready, .. } if free => ready.front().copied().unwrap_or(Nanos::MAX),
            Pace::Open(a) if free => a.peek().min(self.end),
            Pace::Trace(f) if free => f.due(self.now, outstanding).min(self.end),
            Pace::Burst {
                ios,
                bytes,
                idle,
                left_ios,
                left_bytes,
                resume,
            } => {
                if *left_ios == 0 && *left_bytes == 0 && outstanding == 0 {
                    *left_ios = *ios;
                    *left_bytes = *bytes;
                    *resume = self.now + *idle;
                }
                if free && outstanding == 0 {
                    (*resume).min(self.end)
                } else {
                    Nanos::MAX
                }
            }
            _ => Nanos::MAX,
        };
        let min = match outstanding {
            0 => 0,
            n if matches!(self.pace, Pace::Closed) => self.batch.min(n).max(1),
            _ => 1,
        };
        if let Some(t) = self.pilot.as_ref().and_then(|p| p.until)
            && free
        {
            // A pilot that waits for nothing is asked again soon.
            let latest = if outstanding == 0 {
                self.now + Nanos::from_millis(1)
            } else {
                Nanos::MAX
            };
            return Wait::For {
                min: outstanding.min(1),
                until: until.min(if t == Nanos::MAX { latest } else { t }),
            };
        }
        Wait::For { min, until }
    }

    /// Takes every completion that is there.
    #[inline]
    pub fn reap(&mut self) {
        let before = self.outstanding();
        let now = self.port.now();
        self.now = now;
        if !self.measuring && now >= self.outcome.measured_from {
            self.begin_measuring();
        }
        if self.recorder.advance(now) {
            self.port.tick();
        }
        if self.plain {
            return self.reap_plain(before);
        }
        self.reap_general(before, now);
    }

    /// Of its own, so that the commonest load stays as short as it can be.
    #[inline(never)]
    fn reap_general(&mut self, before: u32, now: Nanos) {
        if self.few > 0 && !self.staged.is_empty() {
            // Handed over just now. As long as there is room for more, nothing is taken.
            return self.mark_submitted(now);
        }
        if self.pilot.is_some() {
            return self.reap_guided(before);
        }
        let take = self.take;
        let (port, mut books) = self.books();
        match take {
            0 => port.reap(|slot, result| books.enter(slot, result)),
            n => port.reap_some(n, |slot, result| books.enter(slot, result)),
        }
        let (done, failed) = (books.done, books.failed);
        self.settle(before, done, failed);
    }

    /// Closes the last window; gives back the port, the sink and what is left to say.
    pub fn finish(mut self) -> (P, S, Outcome) {
        if let Pace::Open(a) = &mut self.pace {
            // What was due before the end (or the stop) and never started.
            let end = self.end.min(self.now);
            if self.bytes_left > 0 && !self.pilot.as_ref().is_some_and(|p| p.ended) {
                self.outcome.unissued = a.due_before(end, self.ios_left);
            }
        }
        self.outcome.inline = self.port.inline().unwrap_or_default();
        if let Pace::Trace(feed) = self.pace {
            feed.end();
        }
        (self.port, self.recorder.finish(), self.outcome)
    }
}

/// The operation of a pattern, and where it mixes two, the random bits below which it is a read.
fn operation(spec: &JobSpec) -> (Op, Option<u64>) {
    let rw = spec.rw;
    let mixed = rw.reads() && rw.writes();
    let mix = (mixed && spec.read_share > 0.0 && spec.read_share < 100.0)
        .then(|| (spec.read_share / 100.0 * u64::MAX as f64) as u64);
    let op = if rw.reads() && !(mixed && spec.read_share == 0.0) {
        Op::Read
    } else if rw.writes() {
        Op::Write
    } else {
        Op::Trim
    };
    (op, mix)
}

/// What a thread may transfer, of which it gets its `share`; `once` is one pass over the range.
fn bytes(job: &ValidJob, offsets: &Offsets, once: bool, share: impl Fn(u64) -> u64) -> u64 {
    let spec = &job.spec;
    // Bytes are shared out in whole blocks, so that the total is exact (rounded up to a block).
    let in_blocks = |bytes: u64| match spec.bs.0[..] {
        [(block, _)] => share(bytes.div_ceil(block.0)).saturating_mul(block.0),
        _ => share(bytes),
    };
    match spec.bytes {
        Some(b) => in_blocks(b.0),
        None if job.feed.is_some() => u64::MAX,
        None if once && offsets.has_passes() && offsets.spare() => 0,
        None if once && !offsets.has_passes() => in_blocks(job.range()),
        None => u64::MAX,
    }
}

/// What a ramp may transfer under a limit of bytes and of time: one thread's share of that in the ramp's time.
fn ramp_bytes(spec: &JobSpec, ramp: Nanos, threads: u64) -> u64 {
    match (spec.bytes, spec.time) {
        (Some(b), Some(t)) if t > Nanos::ZERO && !spec.ramp_counts => {
            let part = u128::from(b.0) * u128::from(ramp.0) / u128::from(t.0) / u128::from(threads);
            u64::try_from(part).unwrap_or(u64::MAX)
        }
        _ => u64::MAX,
    }
}

/// An I/O of the destination at the thread's own priority.
#[inline]
fn block(op: Op, (offset, len): (u64, u32)) -> Request {
    Request {
        op,
        offset,
        len,
        file: 0,
        priority: 0,
    }
}

/// Writes down what a slot does from now on.
#[inline]
fn note(slots: &mut [Slot], slot: u32, io: Request, intended: Nanos) {
    let s = &mut slots[slot as usize];
    s.intended = intended;
    // Field by field: a copy as a whole would wait for the narrow stores that made it.
    (s.request.op, s.request.file) = (io.op, io.file);
    (s.request.offset, s.request.len) = (io.offset, io.len);
    s.request.priority = io.priority;
}

//! One thread's load as a state machine: [`Worker::issue`] stages what may start now and says how to
//! wait; [`Worker::reap`] takes completions. Nothing here blocks, allocates or formats per I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fathom_telemetry::{Nanos, Op, Record, Recorder, WindowSink};

use super::arrivals::Arrivals;
use super::offsets::{Offsets, Sizes};
use super::rng::Rng;
use crate::job::{OnError, SyncPolicy, ValidJob};
use crate::port::{Port, Request};

/// What a thread shows while it runs; read by the progress display.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Live {
    /// I/Os completed without error, ramp-up included.
    pub ios: AtomicU64,
    /// Bytes transferred.
    pub bytes: AtomicU64,
    /// Set once the thread has left its loop.
    pub done: AtomicBool,
}

/// How to wait for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until `min` completions are there, or the clock reads `until`.
    For {
        /// Completions wanted; 0 where only time is waited for.
        min: u32,
        /// Latest moment.
        until: Nanos,
    },
    /// Nothing is outstanding and nothing will be issued.
    Finished,
}

/// Errors of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCount {
    /// Operation.
    pub op: Op,
    /// errno; 0 for a short transfer.
    pub errno: i32,
    /// Byte offset of the first.
    pub first_offset: u64,
    /// How many.
    pub count: u64,
}

/// What a worker leaves behind beside its windows.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// When measuring began (after ramp-up).
    pub measured_from: Nanos,
    /// Last completion.
    pub last_completion: Nanos,
    /// ns at each number of outstanding I/Os, from 0 to the depth.
    pub depth_ns: Vec<u64>,
    /// Errors and short transfers.
    pub errors: Vec<ErrorCount>,
    /// Open loop: started late.
    pub late: u64,
    /// Open loop: never started.
    pub unissued: u64,
    /// Open loop: largest lateness, ns.
    pub lateness_max: u64,
    /// I/Os issued, ramp-up included.
    pub issued: u64,
    /// Sampled I/Os, and how many of them completed inside their submission ([`Port::inline`]).
    pub inline: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    intended: Nanos,
    submitted: Nanos,
    offset: u64,
    len: u32,
    op: Op,
}

/// What decides when the next I/O may start.
enum Pace {
    Closed,
    /// Slots that wait out their think time, by the moment they become ready (oldest first).
    Think {
        time: Nanos,
        ready: std::collections::VecDeque<Nanos>,
    },
    Open(Arrivals),
    Burst {
        ios: u64,
        bytes: u64,
        idle: Nanos,
        left_ios: u64,
        left_bytes: u64,
        resume: Nanos,
    },
}

/// fsync policy and its state.
struct Syncing {
    every: u32,
    writes: u32,
    /// A sync waits for outstanding I/O to drain, then runs alone.
    due: bool,
    running: bool,
}

/// One thread's load. See the module.
pub struct Worker<P, S> {
    /// The port, for the loop that drives the worker.
    pub port: P,
    recorder: Recorder<S>,
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    staged: Vec<u32>,
    rng: Rng,
    sizes: Sizes,
    offsets: Offsets,
    /// Ends after one pass over its part of the range.
    once: bool,
    /// Whether the ramp is over.
    measuring: bool,
    /// Reads where the random bits are below; `None` for a single operation.
    mix: Option<u64>,
    op: Op,
    pace: Pace,
    syncing: Option<Syncing>,
    batch: u32,
    on_error: OnError,
    ios_left: u64,
    bytes_left: u64,
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
        recorder: Recorder<S>,
        live: Arc<Live>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let spec = &job.spec;
        let (t, n) = (u64::from(thread), u64::from(threads));
        let share = |total: u64| total / n + u64::from(t < total % n);
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
        let offsets = Offsets::new(job, t, n);
        // Bytes are shared out in whole blocks, so that the total is exact (rounded up to a block).
        let in_blocks = |bytes: u64| match spec.bs.0[..] {
            [(block, _)] => share(bytes.div_ceil(block.0)).saturating_mul(block.0),
            _ => share(bytes),
        };
        // Without any limit: one pass over the range.
        let once = spec.time.is_none() && spec.ios.is_none() && spec.bytes.is_none();
        let bytes_left = match spec.bytes {
            Some(b) => in_blocks(b.0),
            None if once && offsets.has_passes() && offsets.spare() => 0,
            None if once && !offsets.has_passes() => in_blocks(job.range()),
            None => u64::MAX,
        };
        let pace = if let Some(rate) = spec.rate {
            Pace::Open(Arrivals::new(spec.arrival, rate, t, n, spec.seed))
        } else if let Some(b) = spec.burst {
            Pace::Burst {
                ios: b.ios,
                bytes: b.bytes,
                idle: b.idle,
                left_ios: b.ios,
                left_bytes: b.bytes,
                resume: Nanos::ZERO,
            }
        } else if spec.think > Nanos::ZERO {
            Pace::Think {
                time: spec.think,
                ready: std::collections::VecDeque::with_capacity(depth as usize + 1),
            }
        } else {
            Pace::Closed
        };
        let late_limit = match &pace {
            Pace::Open(a) => ((a.mean_gap() / 100.0) as u64).max(10_000),
            _ => u64::MAX,
        };
        let syncing = match spec.sync {
            SyncPolicy::Fsync(every) | SyncPolicy::Fdatasync(every) if rw.writes() => {
                Some(Syncing {
                    every,
                    writes: 0,
                    due: false,
                    running: false,
                })
            }
            _ => None,
        };
        let idle = Slot {
            intended: Nanos::ZERO,
            submitted: Nanos::ZERO,
            offset: 0,
            len: 0,
            op,
        };
        Self {
            port,
            recorder,
            live,
            stop,
            slots: vec![idle; depth as usize].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            staged: Vec::with_capacity(depth as usize),
            rng: Rng::new(spec.seed, 1 + t),
            sizes: Sizes::new(&spec.bs.0),
            once: once && offsets.has_passes(),
            measuring: ramp == Nanos::ZERO,
            offsets,
            mix,
            op,
            pace,
            syncing,
            batch: spec.batch.min(depth),
            on_error: spec.on_error,
            ios_left: spec.ios.map_or(u64::MAX, share),
            bytes_left,
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

    /// Begins at `origin` on the port's clock; the caller has waited for it.
    pub fn start(&mut self, origin: Nanos) {
        self.now = origin;
        self.outcome.measured_from = origin + self.ramp;
        self.last_depth_change = self.outcome.measured_from;
        self.outcome.last_completion = self.outcome.measured_from;
        if let Some(t) = self.run_time {
            self.end = origin + self.ramp + t;
        }
        match &mut self.pace {
            Pace::Open(a) => a.start(origin),
            Pace::Think { ready, .. } => ready.extend((0..self.depth).map(|_| origin)),
            Pace::Closed | Pace::Burst { .. } => {}
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
            self.stage_ready();
            if !self.staged.is_empty() {
                self.account_depth(before);
                let now = self.port.now();
                self.mark_submitted(now);
            }
        }
        self.wait()
    }

    #[inline]
    fn mark_submitted(&mut self, now: Nanos) {
        for slot in self.staged.drain(..) {
            self.slots[slot as usize].submitted = now;
        }
        if let Pace::Open(_) = self.pace {
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
            self.measuring = true;
            self.offsets.restart();
        }
        if let Some(s) = &mut self.syncing
            && s.due
        {
            if s.running || self.free.len() < self.depth as usize {
                return;
            }
            s.running = true;
            self.stage_one(Op::Sync, 0, 0, self.now);
            return;
        }
        while !self.free.is_empty() && self.ios_left > 0 && self.bytes_left > 0 {
            let intended = match &mut self.pace {
                Pace::Closed => self.now,
                Pace::Think { ready, .. } => match ready.front() {
                    Some(t) if *t <= self.now => {
                        let t = *t;
                        ready.pop_front();
                        t
                    }
                    _ => return,
                },
                Pace::Open(a) => {
                    let due = a.peek();
                    if due > self.now || due >= self.end {
                        return;
                    }
                    a.advance();
                    let late = self.now.since(due).0;
                    if due >= self.outcome.measured_from {
                        self.outcome.late += u64::from(late > self.late_limit);
                        self.outcome.lateness_max = self.outcome.lateness_max.max(late);
                    }
                    due
                }
                Pace::Burst {
                    left_ios,
                    left_bytes,
                    resume,
                    ..
                } => {
                    if (*left_ios == 0 && *left_bytes == 0) || self.now < *resume {
                        return;
                    }
                    self.now
                }
            };
            let op = match self.mix {
                Some(threshold) if self.rng.bits() > threshold => Op::Write,
                _ => self.op,
            };
            let want = self.sizes.pick(&mut self.rng);
            let (offset, len) = self.offsets.next(want, &mut self.rng);
            // Limits hold for the measured part: a ramp uses none of them up.
            if self.measuring {
                self.ios_left -= 1;
                self.bytes_left = self.bytes_left.saturating_sub(u64::from(len));
                if self.once && self.offsets.passed() {
                    self.ios_left = 0;
                }
            }
            if let Pace::Burst {
                left_ios,
                left_bytes,
                ..
            } = &mut self.pace
            {
                *left_ios = left_ios.saturating_sub(1);
                *left_bytes = left_bytes.saturating_sub(u64::from(len));
            }
            self.stage_one(op, offset, len, intended);
            if op == Op::Write
                && let Some(s) = &mut self.syncing
            {
                s.writes += 1;
                if s.writes >= s.every {
                    s.writes = 0;
                    s.due = true;
                    return;
                }
            }
        }
    }

    #[inline]
    fn stage_one(&mut self, op: Op, offset: u64, len: u32, intended: Nanos) {
        let Some(slot) = self.free.pop() else {
            return;
        };
        let s = &mut self.slots[slot as usize];
        s.intended = intended;
        s.offset = offset;
        s.len = len;
        s.op = op;
        self.outcome.issued += 1;
        self.port.stage(slot, Request { op, offset, len });
        self.staged.push(slot);
    }

    #[inline]
    fn wait(&mut self) -> Wait {
        let outstanding = self.outstanding();
        let exhausted = self.ios_left == 0 || self.bytes_left == 0;
        let sync_due = self.syncing.as_ref().is_some_and(|s| s.due);
        if self.ending || (exhausted && !sync_due) {
            if outstanding == 0 {
                return Wait::Finished;
            }
            return Wait::For {
                min: 1,
                until: Nanos::MAX,
            };
        }
        let free = !self.free.is_empty();
        let until = match &mut self.pace {
            Pace::Closed => Nanos::MAX,
            // A sync that is due waits for completions: no arrival and no think time can end that.
            _ if sync_due && outstanding > 0 => Nanos::MAX,
            Pace::Think { ready, .. } if free => ready.front().copied().unwrap_or(Nanos::MAX),
            Pace::Open(a) if free => a.peek().min(self.end),
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
        Wait::For { min, until }
    }

    /// Takes every completion that is there.
    #[inline]
    pub fn reap(&mut self) {
        let before = self.outstanding();
        let now = self.port.now();
        self.now = now;
        if self.recorder.advance(now) {
            self.port.tick();
        }
        let Self {
            port,
            recorder,
            slots,
            free,
            pace,
            syncing,
            total_ios,
            total_bytes,
            outcome,
            on_error,
            ending,
            ..
        } = self;
        let mut failed = false;
        let mut done = 0u64;
        port.reap(|slot, result| {
            let s = &slots[slot as usize];
            // A discard transfers nothing: the kernel's success is 0.
            let result = if result == 0 && s.op == Op::Trim {
                i64::from(s.len)
            } else {
                result
            };
            recorder.record(&Record {
                intended: s.intended,
                submitted: s.submitted,
                completed: now,
                offset: s.offset,
                len: s.len,
                result,
                op: s.op,
            });
            if result >= i64::from(s.len) {
                done += 1;
                *total_bytes += result as u64;
            } else {
                failed = true;
                count_error(&mut outcome.errors, s, result);
            }
            free.push(slot);
            if s.op == Op::Sync {
                if let Some(sync) = syncing {
                    sync.due = false;
                    sync.running = false;
                }
            } else if let Pace::Think { time, ready } = pace {
                ready.push_back(now + *time);
            }
        });
        if done > 0 || failed {
            *total_ios += done;
            outcome.last_completion = outcome.last_completion.max(now);
            if failed && *on_error == OnError::Stop {
                *ending = true;
                self.stop.store(true, Ordering::Relaxed);
            }
            self.live.ios.store(self.total_ios, Ordering::Relaxed);
            self.live.bytes.store(self.total_bytes, Ordering::Relaxed);
            self.account_depth(before);
        }
    }

    /// Closes the last window; gives back the port, the sink and what is left to say.
    pub fn finish(mut self) -> (P, S, Outcome) {
        if let Pace::Open(a) = &mut self.pace {
            // What was due before the end (or the stop) and never started.
            let end = self.end.min(self.now);
            if self.bytes_left > 0 {
                self.outcome.unissued = a.due_before(end, self.ios_left);
            }
        }
        self.outcome.inline = self.port.inline().unwrap_or_default();
        (self.port, self.recorder.finish(), self.outcome)
    }
}

#[cold]
fn count_error(errors: &mut Vec<ErrorCount>, slot: &Slot, result: i64) {
    let errno = if result < 0 { -result as i32 } else { 0 };
    match errors
        .iter_mut()
        .find(|e| e.op == slot.op && e.errno == errno)
    {
        Some(e) => e.count += 1,
        None => errors.push(ErrorCount {
            op: slot.op,
            errno,
            first_offset: slot.offset,
            count: 1,
        }),
    }
}

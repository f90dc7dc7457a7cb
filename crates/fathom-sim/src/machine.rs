//! Everything below the ports: host, virtual machines, page cache, array and devices, as the driver's `World`.
//!
//! A plain device decides the whole way of a request at its submission: one event
//! each. Ways with several stages that compete for something (I/O threads, parity
//! thread, tokens) have an event per stage, so that each resource sees its requests
//! in order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fathom_io::load::rng::Rng;
use fathom_io::port::Request;
use fathom_io::port::virtual_time::{Completion, World};
use fathom_telemetry::{Nanos, Op};

use crate::cache::Cache;
use crate::device::{Device, Lapse};
use crate::fault::Faults;
use crate::host::Vm;
use crate::math::Noise;
use crate::processor::{Processor, ns};
use crate::raid::{Array, Next};

/// One device or many.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    One(Device),
    Array(Box<Array>),
}

/// Where a request is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reaches the I/O thread of its virtual machine.
    ThreadIn,
    /// Enters the array or device.
    Enter,
    /// Goes on in the array with this stage.
    Array(u8),
    /// The array or device has done it.
    Stored,
    /// Reaches the I/O thread on the way back.
    ThreadOut,
    /// The worker sees it.
    Visible,
}

#[derive(Debug, Clone, Copy)]
struct Io {
    worker: u32,
    slot: u32,
    request: Request,
    phase: Phase,
    /// Fills the page cache when it comes back.
    fills: bool,
    /// Bytes that the worker asked for, where read-ahead asked for more.
    result: i64,
    /// Faults make it later by this, ns.
    late: u64,
}

/// What a worker's job asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) polling: bool,
    pub(crate) buffered: bool,
}

/// Virtual machines: an I/O thread each, one pool of processors.
#[derive(Debug, Clone)]
pub(crate) struct Guests {
    submit: u64,
    complete: u64,
    thread_submit: u64,
    thread_complete: u64,
    noise: Noise,
    kernel_half: u64,
    delay_half: u64,
    /// ns between I/Os that the processors of the host allow over all machines.
    pool_gap: u64,
    pool: u64,
    threads: Vec<u64>,
}

impl Guests {
    pub(crate) fn new(vm: &Vm, cores: u32, machines: u32) -> Self {
        Self {
            submit: ns(vm.guest_submit_us),
            complete: ns(vm.guest_complete_us),
            thread_submit: ns(vm.iothread_submit_us),
            thread_complete: ns(vm.iothread_complete_us),
            noise: Noise::new(vm.iothread_variation),
            kernel_half: ns(vm.host_kernel_us) / 2,
            delay_half: ns(vm.delay_us) / 2,
            pool_gap: ns(vm.cpu_us) / u64::from(cores),
            pool: 0,
            threads: vec![0; machines as usize],
        }
    }
}

/// What the store was asked for, as a kernel would count it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) ios: [u64; 4],
    pub(crate) bytes: [u64; 4],
}

/// RAM disks: what the processor spends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copying {
    pub(crate) cpu: u64,
    pub(crate) per_byte: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) store: Store,
    pub(crate) processor: Processor,
    pub(crate) guests: Option<Guests>,
    pub(crate) copying: Option<Copying>,
    pub(crate) cache: Cache,
    pub(crate) faults: Faults,
    pub(crate) lapse: Lapse,
    pub(crate) counts: Counts,
    seats: Vec<Seat>,
    complete: u64,
    rng: Rng,
    ios: Vec<Io>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<u128>>,
    sequence: u64,
    /// Where each worker's last buffered read ended.
    ends: Vec<u64>,
    misses: usize,
    waiting: VecDeque<u32>,
    /// Latest moment that anything happened.
    pub(crate) last: u64,
}

impl Machine {
    pub(crate) fn new(
        store: Store,
        processor: Processor,
        guests: Option<Guests>,
        copying: Option<Copying>,
        cache: Cache,
        faults: Faults,
        seed: u64,
    ) -> Self {
        Self {
            store,
            processor,
            guests,
            copying,
            cache,
            faults,
            lapse: Lapse::new(),
            counts: Counts::default(),
            seats: Vec::new(),
            complete: 0,
            rng: Rng::new(seed, 0x6d61_6368),
            ios: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            ends: Vec::new(),
            misses: 0,
            waiting: VecDeque::new(),
            last: 0,
        }
    }

    /// A new group of workers from `at`, with slow state `factor` times as fast.
    pub(crate) fn begin(&mut self, at: u64, seats: Vec<Seat>, factor: u64) {
        self.processor.seat(at, seats.iter().map(|s| s.polling));
        let polls = seats.iter().any(|s| s.polling);
        self.complete = match (&self.guests, polls) {
            (Some(g), _) => g.complete,
            (None, true) => self.processor.costs.poll,
            (None, false) => self.processor.costs.complete,
        };
        if self.copying.is_some() {
            self.complete = 0;
        }
        self.seats = seats;
        self.counts = Counts::default();
        self.set_lapse(at, factor);
    }

    pub(crate) fn set_lapse(&mut self, at: u64, factor: u64) {
        self.lapse.set(at, factor);
        match &mut self.store {
            Store::One(d) => d.set_lapse(at, factor),
            Store::Array(a) => {
                a.lapse = factor;
                a.devices.iter_mut().for_each(|d| d.set_lapse(at, factor));
            }
        }
    }

    #[inline]
    fn keep(&mut self, io: Io) -> u32 {
        match self.free.pop() {
            Some(i) => {
                self.ios[i as usize] = io;
                i
            }
            None => {
                self.ios.push(io);
                self.ios.len() as u32 - 1
            }
        }
    }

    #[inline]
    fn schedule(&mut self, io: u32, phase: Phase, at: u64) {
        self.ios[io as usize].phase = phase;
        self.sequence += 1;
        let key = u128::from(at) << 64 | u128::from(self.sequence << 24) | u128::from(io);
        self.events.push(Reverse(key));
    }

    /// Enters the array or device at `at`.
    #[inline]
    fn enter(&mut self, io: u32, mut at: u64) {
        let Request { op, offset, len } = self.ios[io as usize].request;
        self.counts.ios[op as usize] += 1;
        self.counts.bytes[op as usize] += u64::from(len);
        let mut late = 0;
        if !self.faults.none() {
            let e = self.faults.effect(
                self.lapse.slow(at),
                self.lapse.factor,
                offset,
                len,
                self.rng.bits(),
            );
            at += e.before;
            late = e.after;
            if let Some(error) = e.error {
                self.ios[io as usize].result = error;
            }
        }
        match &mut self.store {
            Store::One(d) => {
                let done = d.serve(at, op, offset, len) + late;
                self.schedule(io, Phase::Stored, done);
            }
            Store::Array(a) => {
                let request = self.ios[io as usize].request;
                self.ios[io as usize].late = late;
                let next = a.begin(io, at, &request);
                self.follow(io, next, 1);
            }
        }
    }

    /// Schedules what the array says comes next; `stage` is the next stage.
    fn follow(&mut self, io: u32, next: Next, stage: u8) {
        match next {
            Next::Done(at) => {
                let late = self.ios[io as usize].late;
                self.schedule(io, Phase::Stored, at + late);
            }
            Next::Again(at) => self.schedule(io, Phase::Array(stage), at),
            Next::Queued => {}
        }
    }

    /// The array or device has done a request at `at`: what waited for it goes on.
    fn stored(&mut self, io: u32, at: u64) -> Option<Completion> {
        let request = self.ios[io as usize].request;
        if let Store::Array(a) = &mut self.store
            && let Some(other) = a.finished(&request)
        {
            let r = self.ios[other as usize].request;
            let next = a.go(at, &r);
            self.follow(other, next, 1);
        }
        if let Some(g) = &self.guests {
            let wake = self
                .processor
                .wake_helper(self.ios[io as usize].worker as usize);
            let then = at + wake + g.kernel_half;
            self.schedule(io, Phase::ThreadOut, then);
            return None;
        }
        if self.ios[io as usize].fills {
            let then = self.filled(io, at);
            self.schedule(io, Phase::Visible, then);
            return None;
        }
        Some(self.complete(io, at))
    }

    /// A miss has come back: it is copied, and another may start.
    fn filled(&mut self, io: u32, at: u64) -> u64 {
        let request = self.ios[io as usize].request;
        self.cache.copy(at, request.len)
    }

    #[inline]
    fn complete(&mut self, io: u32, at: u64) -> Completion {
        let Io {
            worker,
            slot,
            result,
            fills,
            ..
        } = self.ios[io as usize];
        if fills {
            self.misses = self.misses.saturating_sub(1);
            if let Some(next) = self.waiting.pop_front() {
                self.misses += 1;
                self.dispatch(next, at);
            }
        }
        self.free.push(io);
        Completion {
            at: Nanos(at),
            worker,
            slot,
            result,
        }
    }

    /// From the submitting call to the device: at once, or through the virtual machine's I/O thread.
    #[inline]
    fn dispatch(&mut self, io: u32, at: u64) {
        match &self.guests {
            None => self.enter(io, at),
            Some(g) => {
                let then = at + g.delay_half;
                self.schedule(io, Phase::ThreadIn, then);
            }
        }
    }

    /// Passes the I/O thread of a worker's machine; returns when.
    fn thread(&mut self, worker: u32, at: u64, inwards: bool) -> u64 {
        let wake = self.processor.wake_helper(worker as usize);
        let bits = self.rng.bits();
        let Some(g) = &mut self.guests else {
            return at;
        };
        let n = g.threads.len();
        let thread = &mut g.threads[worker as usize % n];
        let work = if inwards {
            g.thread_submit
        } else {
            g.thread_complete
        };
        let start = if *thread > at { *thread } else { at + wake };
        *thread = start + g.noise.scale(work, bits);
        *thread
    }

    /// A buffered request: the page cache answers, or the device through it.
    fn buffered(&mut self, worker: u32, at: u64, slot: u32, request: Request) -> u64 {
        let Request { op, offset, len } = request;
        let w = worker as usize;
        let mut io = Io {
            worker,
            slot,
            request,
            phase: Phase::Visible,
            fills: false,
            result: i64::from(len),
            late: 0,
        };
        let factor = self.lapse.factor;
        let slow = self.lapse.slow(at);
        match op {
            Op::Read => {
                let bits = self.rng.bits();
                let window = self.cache.read_ahead;
                // A small read in the middle of a read-ahead window finds its data there.
                let hit = self.cache.hits(offset, bits);
                if hit {
                    let t = self.processor.work(w, at, self.cache.cpu(len));
                    let done = self.cache.copy(t, len).max(t);
                    let io = self.keep(io);
                    self.schedule(io, Phase::Visible, done);
                    return t;
                }
                let ahead = u64::from(len) < window && self.follows_stream(w, offset, len);
                if ahead {
                    io.request.len = window as u32;
                }
                self.cache.fill(offset, io.request.len, true, factor);
                let t = self.processor.work(w, at, self.cache.call());
                io.fills = true;
                let large = self.misses >= self.cache.tokens;
                let io = self.keep(io);
                if large {
                    self.waiting.push_back(io);
                } else {
                    self.misses += 1;
                    self.dispatch(io, t);
                }
                t
            }
            Op::Write => {
                let t = self.processor.work(w, at, self.cache.cpu(len));
                let held = self.cache.dirty(slow, len, factor);
                self.cache.fill(offset, len, false, factor);
                let done = self.cache.copy(t, len).max(t) + held;
                self.counts.ios[Op::Write as usize] += 1;
                self.counts.bytes[Op::Write as usize] += u64::from(len);
                let io = self.keep(io);
                self.schedule(io, Phase::Visible, done);
                t
            }
            Op::Trim | Op::Sync => {
                let t = self.processor.work(w, at, self.cache.call());
                let wait = if op == Op::Sync {
                    self.cache.sync(slow, factor)
                } else {
                    0
                };
                let io = self.keep(io);
                self.dispatch(io, t + wait);
                t
            }
        }
    }

    /// Whether a worker's buffered read goes on where its last one ended.
    fn follows_stream(&mut self, worker: usize, offset: u64, len: u32) -> bool {
        if self.ends.len() <= worker {
            self.ends.resize(worker + 1, u64::MAX);
        }
        let follows = self.ends[worker] == offset;
        self.ends[worker] = offset + u64::from(len);
        follows
    }
}

impl World for Machine {
    #[inline]
    fn submit(&mut self, worker: u32, at: Nanos, slot: u32, request: Request) -> Nanos {
        let (w, at) = (worker as usize, at.0);
        self.processor.issued(w);
        if let Some(c) = self.copying {
            return Nanos(self.copy_inline(c, worker, at, slot, request));
        }
        if self.seats[w].buffered {
            return Nanos(self.buffered(worker, at, slot, request));
        }
        let cost = match &self.guests {
            Some(g) => g.submit,
            None => self.processor.costs.submit,
        };
        let t = self.processor.work(w, at, cost);
        let io = self.keep(Io {
            worker,
            slot,
            request,
            phase: Phase::Enter,
            fills: false,
            result: i64::from(request.len),
            late: 0,
        });
        self.dispatch(io, t);
        Nanos(t)
    }

    #[inline]
    fn next(&mut self) -> Option<Nanos> {
        self.events.peek().map(|e| Nanos((e.0 >> 64) as u64))
    }

    #[inline]
    fn pop(&mut self) -> Option<Completion> {
        let Reverse(key) = self.events.pop()?;
        let (at, io) = ((key >> 64) as u64, (key & 0xff_ffff) as u32);
        match self.ios[io as usize].phase {
            Phase::Stored => self.stored(io, at),
            Phase::Visible => Some(self.complete(io, at)),
            Phase::Array(stage) => {
                let request = self.ios[io as usize].request;
                if let Store::Array(a) = &mut self.store {
                    let next = a.resume(at, &request, stage);
                    self.follow(io, next, stage + 1);
                }
                None
            }
            Phase::ThreadIn => {
                let worker = self.ios[io as usize].worker;
                let then = self.thread(worker, at, true);
                if let Some(g) = &self.guests {
                    let then = then + g.kernel_half;
                    self.schedule(io, Phase::Enter, then);
                }
                None
            }
            Phase::Enter => {
                let mut then = at;
                if let Some(g) = &mut self.guests {
                    // The host's processors serve all machines: only the wait counts here, the work
                    // itself is in the other stages.
                    then = at.max(g.pool);
                    g.pool = then + g.pool_gap;
                }
                self.enter(io, then);
                None
            }
            Phase::ThreadOut => {
                let worker = self.ios[io as usize].worker;
                let mut then = self.thread(worker, at, false);
                if let Some(g) = &self.guests {
                    then += g.delay_half;
                }
                if self.ios[io as usize].fills {
                    then = self.filled(io, then);
                }
                self.schedule(io, Phase::Visible, then);
                None
            }
        }
    }

    #[inline]
    fn ready(&mut self, worker: u32, at: Nanos) -> Nanos {
        Nanos(self.processor.ready(worker as usize, at.0))
    }

    #[inline]
    fn reaped(&mut self, worker: u32, since: Nanos, at: Nanos, n: usize) -> Nanos {
        let end = self
            .processor
            .reap(worker as usize, since.0, at.0, n, self.complete);
        self.last = self.last.max(end);
        Nanos(end)
    }
}

impl Machine {
    /// A RAM disk's request: the processor does it all, in the call.
    fn copy_inline(
        &mut self,
        c: Copying,
        worker: u32,
        at: u64,
        slot: u32,
        request: Request,
    ) -> u64 {
        let w = worker as usize;
        let more = request.len.saturating_sub(4096);
        let cost = c.cpu + (f64::from(more) * c.per_byte) as u64;
        let t = self.processor.work(w, at, cost);
        let io = self.keep(Io {
            worker,
            slot,
            request,
            phase: Phase::Visible,
            fills: false,
            result: i64::from(request.len),
            late: 0,
        });
        self.counts.ios[request.op as usize] += 1;
        self.counts.bytes[request.op as usize] += u64::from(request.len);
        let mut done = t;
        let mut late = 0;
        if !self.faults.none() {
            let e = self.faults.effect(
                self.lapse.slow(t),
                self.lapse.factor,
                request.offset,
                request.len,
                self.rng.bits(),
            );
            late = e.before + e.after;
            if let Some(error) = e.error {
                self.ios[io as usize].result = error;
            }
        }
        if let Store::One(d) = &mut self.store {
            done = d.serve(t, request.op, request.offset, request.len);
        }
        // The wait for the serial section is spent spinning.
        let end = self.processor.work(w, t, done - t);
        self.schedule(io, Phase::Visible, done + late);
        end
    }
}

//! Virtual time: the same workers, stepped by an event loop over a [`World`] instead of a kernel.
//!
//! The world decides what a submission costs the host and when completions become
//! visible. Nothing here reads a real clock, so runs are reproducible to the bit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fathom_telemetry::{Nanos, WindowSink};

use super::{Port, Request};
use crate::load::{Outcome, Wait, Worker};

/// A worker's end: requests go into `staged`, completions come from `done`.
#[derive(Debug, Default)]
pub struct VirtualPort {
    now: Nanos,
    staged: Vec<(u32, Request)>,
    done: Vec<(u32, i64)>,
}

impl VirtualPort {
    /// With room for `depth` requests.
    pub fn new(depth: u32) -> Self {
        Self {
            now: Nanos::ZERO,
            staged: Vec::with_capacity(depth as usize),
            done: Vec::with_capacity(depth as usize),
        }
    }
}

impl Port for VirtualPort {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.now
    }
    #[inline]
    fn stage(&mut self, batch: impl Iterator<Item = (u32, Request)>) {
        self.staged.extend(batch);
    }
    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        for (slot, result) in self.done.drain(..) {
            each(slot, result);
        }
    }
}

/// A completion that the host sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// When it becomes visible.
    pub at: Nanos,
    /// Whose it is.
    pub worker: u32,
    /// Its slot.
    pub slot: u32,
    /// Bytes or negative errno.
    pub result: i64,
}

/// Everything below the ports.
pub trait World {
    /// Takes a request that `worker` hands over at `at`; returns when the worker's CPU is free again.
    fn submit(&mut self, worker: u32, at: Nanos, slot: u32, request: Request) -> Nanos;
    /// When the next completion becomes visible; `None` while nothing is outstanding.
    fn next(&mut self) -> Option<Nanos>;
    /// Takes that completion.
    fn pop(&mut self) -> Option<Completion>;
    /// `worker`, waiting since `since`, takes `n` completions at `at`; returns when it has done so.
    fn reaped(&mut self, worker: u32, since: Nanos, at: Nanos, n: usize) -> Nanos {
        let _ = (worker, since, n);
        at
    }
    /// Whether someone asked to end. Asked once per step: it must cost next to nothing.
    fn interrupted(&self) -> bool {
        false
    }
}

struct Seat<S> {
    worker: Option<Worker<VirtualPort, S>>,
    wait: Wait,
    since: Nanos,
    /// Distinguishes a timer from older ones of the same worker.
    generation: u64,
}

/// Runs workers to their end in virtual time from `origin`; returns sinks and outcomes in order.
pub fn run<S: WindowSink>(
    world: &mut dyn World,
    workers: Vec<Worker<VirtualPort, S>>,
    origin: Nanos,
) -> Vec<(S, Outcome)> {
    let mut seats: Vec<Seat<S>> = workers
        .into_iter()
        .map(|w| Seat {
            worker: Some(w),
            wait: Wait::Finished,
            since: origin,
            generation: 0,
        })
        .collect();
    let mut timers: BinaryHeap<Reverse<(Nanos, u32, u64)>> = BinaryHeap::new();
    let mut results: Vec<Option<(S, Outcome)>> = seats.iter().map(|_| None).collect();
    for (i, seat) in (0u32..).zip(&mut seats) {
        if let Some(w) = &mut seat.worker {
            w.port.now = origin;
            w.start(origin);
        }
        step(world, seat, i, &mut timers, &mut results);
    }
    (0..seats.len() as u32).for_each(|i| call(&mut seats, i, &mut timers));
    loop {
        if world.interrupted() {
            seats.iter().flat_map(|s| &s.worker).for_each(Worker::stop);
        }
        // Timers of waits that ended otherwise are stale.
        while let Some(Reverse((_, i, g))) = timers.peek() {
            if seats[*i as usize].generation == *g && seats[*i as usize].worker.is_some() {
                break;
            }
            timers.pop();
        }
        let timer = timers.peek().map(|t| t.0.0);
        let completion = world.next();
        match (completion, timer) {
            (None, None) => break,
            // A completion at the same moment comes first, as an interrupt would.
            (Some(c), t) if t.is_none_or(|t| c <= t) => {
                let Some(done) = world.pop() else { break };
                let seat = &mut seats[done.worker as usize];
                let Some(w) = &mut seat.worker else { continue };
                w.port.done.push((done.slot, done.result));
                let enough = match seat.wait {
                    Wait::For { min, .. } => w.port.done.len() >= min as usize,
                    Wait::Finished => false,
                };
                if enough {
                    wake(world, seat, done.worker, done.at);
                    step(world, seat, done.worker, &mut timers, &mut results);
                    call(&mut seats, done.worker, &mut timers);
                }
            }
            _ => {
                let Some(Reverse((at, i, _))) = timers.pop() else {
                    break;
                };
                let seat = &mut seats[i as usize];
                wake(world, seat, i, at);
                step(world, seat, i, &mut timers, &mut results);
                call(&mut seats, i, &mut timers);
            }
        }
    }
    // A world that forgets a request leaves its worker waiting: what was measured is kept all the same.
    for (seat, result) in seats.iter_mut().zip(&mut results) {
        if let Some(w) = seat.worker.take() {
            let (_, sink, outcome) = w.finish();
            *result = Some((sink, outcome));
        }
    }
    results.into_iter().flatten().collect()
}

fn wake<S: WindowSink>(world: &mut dyn World, seat: &mut Seat<S>, i: u32, at: Nanos) {
    let Some(w) = &mut seat.worker else { return };
    let at = at.max(w.port.now);
    w.port.now = world.reaped(i, seat.since, at, w.port.done.len());
    w.reap();
}

/// Those that a worker's pilot calls are asked at once.
fn call<S: WindowSink>(
    seats: &mut [Seat<S>],
    i: u32,
    timers: &mut BinaryHeap<Reverse<(Nanos, u32, u64)>>,
) {
    while let Some(caller) = &mut seats[i as usize].worker {
        let now = caller.port.now;
        let Some(called) = caller.called(i) else {
            return;
        };
        if let Some(seat) = seats.get_mut(called as usize)
            && let Some(w) = &mut seat.worker
        {
            w.ask_again();
            timers.push(Reverse((now.max(w.port.now), called, seat.generation)));
        }
    }
}

fn step<S: WindowSink>(
    world: &mut dyn World,
    seat: &mut Seat<S>,
    i: u32,
    timers: &mut BinaryHeap<Reverse<(Nanos, u32, u64)>>,
    results: &mut [Option<(S, Outcome)>],
) {
    seat.generation += 1;
    let Some(w) = &mut seat.worker else { return };
    seat.wait = w.issue();
    let mut now = w.port.now;
    for (slot, request) in w.port.staged.drain(..) {
        now = world.submit(i, now, slot, request);
    }
    w.port.now = now;
    seat.since = now;
    match seat.wait {
        Wait::Finished => {
            if let Some(w) = seat.worker.take() {
                let (_, sink, outcome) = w.finish();
                results[i as usize] = Some((sink, outcome));
            }
        }
        Wait::For { until, .. } if until < Nanos::MAX => {
            timers.push(Reverse((until.max(now), i, seat.generation)));
        }
        Wait::For { .. } => {}
    }
}

/// How long a request of the [`Queue`] is served.
#[derive(Debug, Clone, Copy)]
pub enum Service {
    /// Always the same.
    Fixed(Nanos),
    /// Exponential with this mean.
    Exponential(Nanos),
}

/// Time, sequence number, worker, slot, result.
type Served = (Nanos, u64, u32, u32, i64);

/// A first-come first-served queue with `c` servers: the textbook device of the driver's own tests.
pub struct Queue {
    service: Service,
    /// When each server is free again.
    servers: BinaryHeap<Reverse<Nanos>>,
    /// By time, then in order of submission.
    done: BinaryHeap<Reverse<Served>>,
    sequence: u64,
    rng: crate::load::rng::Rng,
    /// Requests from this byte on fail with EIO.
    pub broken_from: Option<u64>,
}

impl Queue {
    /// With `servers` ≥ 1.
    pub fn new(servers: u32, service: Service, seed: u64) -> Self {
        Self {
            service,
            servers: (0..servers.max(1)).map(|_| Reverse(Nanos::ZERO)).collect(),
            done: BinaryHeap::new(),
            sequence: 0,
            rng: crate::load::rng::Rng::new(seed, 0x7173_0000),
            broken_from: None,
        }
    }
}

impl World for Queue {
    fn submit(&mut self, worker: u32, at: Nanos, slot: u32, request: Request) -> Nanos {
        let time = match self.service {
            Service::Fixed(t) => t,
            Service::Exponential(mean) => {
                Nanos((self.rng.exponential() * mean.0 as f64).round() as u64)
            }
        };
        let free = self.servers.pop().map_or(Nanos::ZERO, |f| f.0);
        let end = at.max(free) + time;
        self.servers.push(Reverse(end));
        self.sequence += 1;
        let result = match self.broken_from {
            Some(from) if request.offset + u64::from(request.len) > from => -i64::from(libc::EIO),
            _ => i64::from(request.len),
        };
        self.done
            .push(Reverse((end, self.sequence, worker, slot, result)));
        at
    }
    fn next(&mut self) -> Option<Nanos> {
        self.done.peek().map(|d| d.0.0)
    }
    fn pop(&mut self) -> Option<Completion> {
        self.done
            .pop()
            .map(|Reverse((at, _, worker, slot, result))| Completion {
                at,
                worker,
                slot,
                result,
            })
    }
}

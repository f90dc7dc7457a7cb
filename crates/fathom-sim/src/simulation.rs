//! The `World` behind a simulated target: one heap of events carries each request from the host through storage
//! and back. State and virtual clock go on from one group of jobs to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fathom_io::driver::PlannedJob;
use fathom_io::port::Request;
use fathom_io::port::virtual_time::{Completion, World};
use fathom_telemetry::{Nanos, Op};

use crate::device::Device;
use crate::guest::{GUEST_COMPLETE_NS, GUEST_SUBMIT_NS, Guests};
use crate::host::{Host, HostCosts};
use crate::raid::{Demand, Raid};
use crate::target::{Shape, SimTarget};

/// Copy between page cache and program, bytes/ns (one core; typical).
const COPY: f64 = 10.0;
/// Dirty bytes after which writers wait for the device (20 % of 16 GB).
const DIRTY_MAX: f64 = 3.2e9;
/// Rate at which a full page cache is written back, as a share of the device's sequential rate.
const WRITE_BACK: f64 = 1.0;

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    ToIothread,
    Storage,
    Stored,
    FromDevice,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Io {
    worker: u32,
    slot: u32,
    request: Request,
    stage: Stage,
}

enum Storage {
    One(Box<Device>),
    Array(Box<Raid>),
}

/// A simulated target at work.
pub struct Simulation {
    storage: Storage,
    hosts: Vec<Host>,
    guests: Option<Guests>,
    /// Caller's CPU time on a synchronous device, ns.
    synchronous: Option<u64>,
    direct: Vec<bool>,
    ios: Vec<Io>,
    unused: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sequence: u64,
    /// Dirty bytes in the page cache and when they were counted; write-back rate, bytes/ns.
    dirty: (f64, u64, f64),
    size: u64,
    now: u64,
}

impl Simulation {
    /// Fresh, at virtual time 0. The same seed gives the same run, to the bit.
    pub fn new(target: &SimTarget, seed: u64) -> Self {
        let mut model = target.model.clone();
        if let (Some(s), Shape::Guests { .. }) = (model.synchronous, target.shape) {
            model.pipeline_cv = s.guest_cv;
        }
        let model = &model;
        let mut storage = match target.shape {
            Shape::Raid { level, members } => Storage::Array(Box::new(Raid::new(
                level,
                members,
                model,
                target.array,
                seed,
            ))),
            _ => Storage::One(Box::new(Device::new(model, seed, 0))),
        };
        if let Some((fill, steady)) = target.condition {
            let devices = match &mut storage {
                Storage::One(d) => std::slice::from_mut(&mut **d),
                Storage::Array(r) => r.members(),
            };
            for flash in devices.iter_mut().filter_map(Device::flash) {
                flash.condition(fill, steady);
            }
        }
        let (guests, hosts) = match target.shape {
            Shape::Guests { machines } => {
                let costs = HostCosts {
                    submit_ns: GUEST_SUBMIT_NS,
                    complete_ns: GUEST_COMPLETE_NS,
                    ..target.host
                };
                let hosts = (0..machines).map(|_| Host::new(costs)).collect();
                (Some(Guests::new(machines, target.host.idle, seed)), hosts)
            }
            _ => (None, vec![Host::new(target.host)]),
        };
        let synchronous = model.synchronous.map(|s| {
            let us = if guests.is_some() {
                s.guest_cpu_us
            } else {
                s.cpu_us
            };
            (us * 1e3) as u64
        });
        Self {
            storage,
            hosts,
            // Memory of a guest is not reached through its host.
            guests: guests.filter(|_| synchronous.is_none()),
            synchronous,
            direct: Vec::new(),
            ios: Vec::new(),
            unused: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            dirty: (0.0, 0, model.write.gb_per_s * WRITE_BACK),
            size: target.size(),
            now: 0,
        }
    }

    /// Tells which workers of the next group bypass the page cache.
    pub fn assign(&mut self, jobs: &[PlannedJob]) {
        self.direct.clear();
        for planned in jobs {
            let (seats, _) = planned.seats();
            self.direct
                .extend((0..seats).map(|_| planned.job.spec.direct));
        }
    }

    /// Virtual time of the last event.
    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// The first device, for its flash.
    pub fn device(&mut self) -> &mut Device {
        match &mut self.storage {
            Storage::One(d) => d,
            Storage::Array(r) => &mut r.members()[0],
        }
    }

    #[inline]
    fn host(&mut self, worker: u32) -> (&mut Host, u32) {
        let n = self.hosts.len() as u32;
        (&mut self.hosts[(worker % n) as usize], worker / n)
    }

    #[inline]
    fn schedule(&mut self, io: u32, at: u64, stage: Stage) {
        self.ios[io as usize].stage = stage;
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, io)));
    }

    fn is_direct(&self, worker: u32) -> bool {
        self.direct.get(worker as usize).copied().unwrap_or(true)
    }

    /// A buffered write to a single device: the page cache takes it, and lets it wait when it is full.
    fn cache_write(&mut self, at: u64, bytes: u32) -> u64 {
        let (dirty, since, rate) = self.dirty;
        let drained = at.saturating_sub(since) as f64 * rate;
        let dirty = (dirty - drained).max(0.0) + f64::from(bytes);
        self.dirty = (dirty, at.max(since), rate);
        let over = (dirty - DIRTY_MAX).max(0.0);
        at + (f64::from(bytes) / COPY + over / rate) as u64
    }

    /// Moves a request on from its stage.
    fn advance(&mut self, id: u32, at: u64) {
        let io = self.ios[id as usize];
        let machine = io.worker % self.hosts.len() as u32;
        match io.stage {
            Stage::ToIothread => {
                if let Some(g) = &mut self.guests {
                    let at = g.to_device(machine, at);
                    self.schedule(id, at, Stage::Storage);
                }
            }
            Stage::Storage => {
                let r = io.request;
                let direct = self.is_direct(io.worker);
                let end = match &mut self.storage {
                    Storage::One(_) if !direct && r.op == Op::Write => {
                        Some(self.cache_write(at, r.len))
                    }
                    Storage::One(d) => Some(d.serve(at, r.op, r.offset, r.len)),
                    Storage::Array(a) => a.arrive(
                        id,
                        at,
                        Demand {
                            op: r.op,
                            offset: r.offset,
                            bytes: r.len,
                            direct,
                        },
                    ),
                };
                if let Some(end) = end {
                    self.stored(id, end);
                }
            }
            Stage::Stored => {
                let r = io.request;
                let demand = Demand {
                    op: r.op,
                    offset: r.offset,
                    bytes: r.len,
                    direct: self.is_direct(io.worker),
                };
                let mut started = Vec::new();
                if let Storage::Array(a) = &mut self.storage {
                    a.leave(at, demand, |id, end| started.push((id, end)));
                }
                for (id, end) in started {
                    self.stored(id, end);
                }
                self.schedule(id, at, Stage::Done);
            }
            Stage::FromDevice => {
                if let Some(g) = &mut self.guests {
                    let at = g.to_guest(machine, at);
                    self.schedule(id, at, Stage::Done);
                }
            }
            Stage::Done => {}
        }
    }

    fn stored(&mut self, id: u32, end: u64) {
        let machine = self.ios[id as usize].worker % self.hosts.len() as u32;
        if matches!(self.storage, Storage::Array(_)) {
            self.schedule(id, end, Stage::Stored);
        } else if let Some(g) = &mut self.guests {
            let at = g.from_device(machine, end);
            self.schedule(id, at, Stage::FromDevice);
        } else {
            self.schedule(id, end, Stage::Done);
        }
    }
}

impl World for Simulation {
    fn submit(&mut self, worker: u32, at: Nanos, slot: u32, request: Request) -> Nanos {
        let synchronous = self.synchronous;
        let (host, seat) = self.host(worker);
        let free = match synchronous {
            Some(cpu) => host.submit(seat, at.0, false, cpu),
            None => host.submit(seat, at.0, true, 0),
        };
        let io = Io {
            worker,
            slot,
            request,
            stage: Stage::Storage,
        };
        let id = match self.unused.pop() {
            Some(id) => {
                self.ios[id as usize] = io;
                id
            }
            None => {
                self.ios.push(io);
                self.ios.len() as u32 - 1
            }
        };
        match &self.guests {
            Some(g) => {
                let at = g.kick(free);
                self.schedule(id, at, Stage::ToIothread);
            }
            None => self.schedule(id, free, Stage::Storage),
        }
        Nanos(free)
    }

    fn next(&mut self) -> Option<Nanos> {
        // Everything inside that happens before the next visible completion.
        loop {
            let Reverse((at, _, id)) = *self.events.peek()?;
            if self.ios[id as usize].stage == Stage::Done {
                return Some(Nanos(at));
            }
            self.events.pop();
            self.advance(id, at);
        }
    }

    fn pop(&mut self) -> Option<Completion> {
        self.next()?;
        let Reverse((at, _, id)) = self.events.pop()?;
        self.unused.push(id);
        self.now = self.now.max(at);
        let io = self.ios[id as usize];
        let end = io.request.offset + u64::from(io.request.len);
        let result = if end > self.size {
            -5 // EIO: beyond the device's end
        } else {
            i64::from(io.request.len)
        };
        Some(Completion {
            at: Nanos(at),
            worker: io.worker,
            slot: io.slot,
            result,
        })
    }

    fn reaped(&mut self, worker: u32, _since: Nanos, at: Nanos, n: usize) -> Nanos {
        if n == 0 || self.synchronous.is_some() {
            return at;
        }
        let (host, seat) = self.host(worker);
        let end = host.complete(seat, at.0, n as u64);
        self.now = self.now.max(end);
        Nanos(end)
    }
}

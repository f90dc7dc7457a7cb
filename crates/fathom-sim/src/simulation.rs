//! The `World` behind a simulated target: one heap of events carries each request from the host through storage
//! and back. State and virtual clock go on from one group of jobs to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fathom_io::Control;
use fathom_io::driver::{Observer, PlannedJob, run_virtual};
use fathom_io::port::Request;
use fathom_io::port::virtual_time::{Completion, World};
use fathom_telemetry::iolog::LogHandle;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Nanos, Op};

use crate::device::Device;
use crate::fault::Faults;
use crate::guest::{GUEST_COMPLETE_NS, GUEST_SUBMIT_NS, Guests};
use crate::host::{Host, HostCosts};
use crate::pace::Pace;
use crate::page_cache::PageCache;
use crate::raid::{Demand, Raid, Served};
use crate::target::{Shape, SimTarget};
use crate::trace::{Place, Trace};

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    ToIothread,
    Layer,
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
    failed: bool,
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
    /// Caller's CPU time on a synchronous device, ns: of a read, of a write.
    synchronous: Option<[u64; 2]>,
    direct: Vec<bool>,
    ios: Vec<Io>,
    unused: Vec<u32>,
    /// Time, sequence and request in one number: equal times keep their order.
    events: BinaryHeap<Reverse<u128>>,
    sequence: u64,
    /// Of a single device; an array's host has its own limits.
    cache: PageCache,
    buffered: bool,
    faults: Option<Box<Faults>>,
    pace: Pace,
    size: u64,
    /// A stacked layer: its time for a request, and when it is free again.
    layer: (u64, u64),
    now: u64,
    control: Control,
    started: Vec<(u32, Served)>,
    /// Where the time goes, where somebody wants to know.
    trace: Option<Box<Trace>>,
}

/// Bits of an event that number its request.
const ID_BITS: u32 = 24;

/// CPU time of a read and of a write of memory that answers at once, ns; `None` of other devices.
fn synchronous(model: &crate::Model, in_guest: bool) -> Option<[u64; 2]> {
    model.synchronous.map(|s| {
        let (read, write) = if in_guest {
            (s.guest_cpu_us, s.guest_write_cpu_us)
        } else {
            (s.cpu_us, s.write_cpu_us)
        };
        [read, write.unwrap_or(read)].map(|us| (us * 1e3) as u64)
    })
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
        for flash in storage.devices().iter_mut().filter_map(Device::flash) {
            if let Some((fill, steady)) = target.condition {
                flash.condition(fill, steady);
            }
            flash.worn(target.wear);
        }
        let mut faults = Faults::new(&target.faults, seed);
        if let Storage::Array(r) = &mut storage {
            r.degrade(target.lost);
            if let Some(rate) = target.rebuild_mb_per_s {
                r.rebuild(rate);
            }
            r.fault(target.member as usize, faults.take());
        }
        let (guests, hosts) = match target.shape {
            Shape::Guests { machines } => {
                let costs = HostCosts {
                    submit_ns: GUEST_SUBMIT_NS,
                    complete_ns: GUEST_COMPLETE_NS,
                    ..target.host
                };
                let hosts = (0..machines).map(|_| Host::new(costs)).collect();
                (
                    Some(Guests::new(
                        machines,
                        target.iothreads,
                        target.host.idle,
                        seed,
                    )),
                    hosts,
                )
            }
            _ => (None, vec![Host::new(target.host)]),
        };
        let synchronous = synchronous(model, guests.is_some());
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
            cache: PageCache::new(target.cache_bytes, model.write.gb_per_s),
            buffered: target.buffered,
            faults,
            pace: Pace::default(),
            size: target.size(),
            layer: (target.layer_ns, 0),
            now: 0,
            control: Control::new(),
            started: Vec::new(),
            trace: None,
        }
    }

    /// From now on every request is followed through its stages.
    pub fn trace(&mut self) {
        self.trace = Some(Box::new(Trace::new()));
    }

    /// What was followed; nothing is any more.
    pub fn traced(&mut self) -> Option<Trace> {
        self.trace.take().map(|t| *t)
    }

    /// Ends running groups early when `control` says so.
    pub fn obey(&mut self, control: Control) {
        self.control = control;
    }

    /// What may end it early.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Host, device and the caller's CPU time on a synchronous one, where there is nothing else.
    pub(crate) fn fast_parts(&mut self) -> Option<(&mut Host, &mut Device, Option<[u64; 2]>)> {
        let direct = self.direct.iter().all(|d| *d);
        match (&mut self.storage, self.hosts.as_mut_slice()) {
            (Storage::One(d), [host])
                if direct
                    && self.guests.is_none()
                    && self.layer.0 == 0
                    && self.faults.is_none()
                    && !d.may_refuse() =>
            {
                Some((host, d, self.synchronous))
            }
            _ => None,
        }
    }

    /// The clock has gone on.
    pub(crate) fn advance_to(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Tells which workers of the next group bypass the page cache.
    pub fn assign(&mut self, jobs: &[PlannedJob]) {
        self.direct.clear();
        for planned in jobs {
            let (seats, _) = planned.seats();
            self.direct
                .extend((0..seats).map(|_| planned.job.spec.direct && !self.buffered));
        }
    }

    /// Runs a group that was [assigned](Self::assign), every event simulated, from where its clock stands.
    pub fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: Option<&dyn Fn(usize, u32) -> LogHandle>,
        observer: &mut dyn Observer,
    ) -> Vec<Job> {
        let origin = self.now();
        run_virtual(jobs, self, origin, "sim", log, observer)
    }

    /// Virtual time of the last event.
    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Time of the test that the last event stands for; the same as [`Simulation::now`] where nothing was left out.
    pub fn test_time(&self) -> Nanos {
        Nanos(self.pace.test(self.now))
    }

    /// From now on each moment stands for `times` of them: heat, wear, free space and buffers move as much faster.
    pub fn sample(&mut self, times: u64) {
        if times == self.pace.times() {
            return;
        }
        let now = self.now;
        self.pace.change(now, times);
        let pace = self.pace;
        if let Storage::Array(r) = &mut self.storage {
            r.pace(pace);
        }
        self.storage
            .devices()
            .iter_mut()
            .for_each(|d| d.sample(now, times));
    }

    /// The first device, for its state.
    pub fn device(&mut self) -> &mut Device {
        match &mut self.storage {
            Storage::One(d) => d,
            Storage::Array(r) => &mut r.members()[0],
        }
    }

    /// The array, where it is one.
    pub fn array(&self) -> Option<&Raid> {
        match &self.storage {
            Storage::One(_) => None,
            Storage::Array(r) => Some(r),
        }
    }

    /// Wear, heat and redundancy in words, where the model has any: one clause each.
    pub fn condition(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        if let Storage::Array(r) = &self.storage {
            if let Some(share) = r.rebuilt() {
                said.push(format!("{:.1} % of the new member rebuilt", share * 100.0));
            } else if r.lost() > 0 {
                said.push(format!("{} member(s) missing", r.lost()));
            }
        }
        let device = self.device();
        if let Some(t) = device.thermal() {
            let (c, slowed) = t.now();
            let slowed = if slowed { ", throttled" } else { "" };
            said.push(format!("{c:.0} °C{slowed}"));
        }
        if let Some(f) = device.flash() {
            let (bytes, amplification) = f.wear();
            if bytes > 0.0 {
                said.push(format!(
                    "{:.3} TB written, write amplification {amplification:.2}, {:.2} % of the rated life used",
                    bytes / 1e12,
                    f.life_used() * 100.0
                ));
                if f.is_read_only() {
                    said.push("worn out: writes are refused".into());
                }
            }
        }
        said
    }

    #[inline]
    fn host(&mut self, worker: u32) -> (&mut Host, u32) {
        // Divisions are dear, and most targets have one host.
        match self.hosts.as_mut_slice() {
            [only] => (only, worker),
            hosts => {
                let n = hosts.len() as u32;
                (&mut hosts[(worker % n) as usize], worker / n)
            }
        }
    }

    #[inline]
    fn schedule(&mut self, io: u32, at: u64, stage: Stage) {
        let event = self.event(io, at, stage);
        self.events.push(event);
    }

    #[inline]
    fn event(&mut self, io: u32, at: u64, stage: Stage) -> Reverse<u128> {
        self.ios[io as usize].stage = stage;
        self.sequence += 1;
        let order = self.sequence << ID_BITS | u64::from(io);
        Reverse(u128::from(at) << 64 | u128::from(order))
    }

    /// Where a request goes that leaves the host's processor.
    #[inline]
    fn below(&self) -> Stage {
        if self.layer.0 > 0 {
            Stage::Layer
        } else {
            Stage::Storage
        }
    }

    fn is_direct(&self, worker: u32) -> bool {
        self.direct.get(worker as usize).copied().unwrap_or(true)
    }

    /// A request to a single device: through the page cache where it is buffered, then past scheduled faults.
    #[inline]
    fn single(&mut self, at: u64, r: Request, direct: bool) -> Served {
        let mut at = at;
        if !direct {
            let times = self.pace.times();
            match r.op {
                Op::Write => return (self.cache.write(at, r.offset, r.len, times), true),
                Op::Read => {
                    if let Some(end) = self.cache.read(at, r.offset, r.len) {
                        return (end, true);
                    }
                }
                Op::Sync => at = self.cache.sync(at, times),
                Op::Trim => {}
            }
        }
        let Storage::One(d) = &mut self.storage else {
            return (at, false);
        };
        if d.refuses(r.op) {
            return (at, false);
        }
        let Some(faults) = &mut self.faults else {
            return (d.serve(at, r.op, r.offset, r.len), true);
        };
        let e = faults.effect(self.pace.test(at), r.offset, r.len);
        let begin = at.max(self.pace.request(e.not_before));
        let end = d.serve(begin, r.op, r.offset, r.len);
        (begin + ((end - begin) as f64 * e.factor) as u64, !e.fails)
    }

    /// Moves a request on from its stage: when what comes next happens, unless others decide on that.
    #[inline]
    fn advance(&mut self, id: u32, at: u64) -> Option<(u64, Stage)> {
        let io = self.ios[id as usize];
        match io.stage {
            Stage::ToIothread => {
                let below = self.below();
                let g = self.guests.as_mut()?;
                Some((g.to_device(io.worker, at), below))
            }
            Stage::Layer => {
                let (each, free) = &mut self.layer;
                *free = at.max(*free) + *each;
                Some((*free, Stage::Storage))
            }
            Stage::Storage => {
                let r = io.request;
                let direct = self.is_direct(io.worker);
                let served = match &mut self.storage {
                    Storage::One(_) if self.trace.is_some() => self.followed(id, at, r, direct),
                    Storage::One(_) => self.single(at, r, direct),
                    Storage::Array(a) => {
                        let demand = Demand {
                            op: r.op,
                            offset: r.offset,
                            bytes: r.len,
                            direct,
                        };
                        a.arrive(id, at, demand)?
                    }
                };
                Some(self.stored(id, served))
            }
            Stage::Stored => {
                let r = io.request;
                let demand = Demand {
                    op: r.op,
                    offset: r.offset,
                    bytes: r.len,
                    direct: self.is_direct(io.worker),
                };
                let mut started = std::mem::take(&mut self.started);
                if let Storage::Array(a) = &mut self.storage {
                    a.leave(at, demand, |id, served| started.push((id, served)));
                }
                for (id, served) in started.drain(..) {
                    let (at, stage) = self.stored(id, served);
                    if self.trace.is_some() {
                        self.stamp(id, Stage::Storage, at);
                    }
                    self.schedule(id, at, stage);
                }
                self.started = started;
                Some((at, Stage::Done))
            }
            Stage::FromDevice => {
                let g = self.guests.as_mut()?;
                Some((g.to_guest(io.worker, at), Stage::Done))
            }
            Stage::Done => None,
        }
    }

    /// [`Self::single`], stamped.
    fn followed(&mut self, id: u32, at: u64, r: Request, direct: bool) -> Served {
        let before = self.device().before(at);
        let served = self.single(at, r, direct);
        let parts = self.device().parts(&before, r.op, served.0);
        if let Some(t) = &mut self.trace {
            match parts {
                None => t.leave(id, Place::PageCache, served.0),
                Some([slot, begun, moved, media]) => {
                    t.leave(id, Place::Slot, slot);
                    t.leave(id, Place::Controller, begun);
                    t.leave(id, Place::Transfer, moved);
                    t.leave(id, Place::Media, media);
                    t.leave(id, Place::Fixed, served.0);
                }
            }
        }
        served
    }

    /// A request goes on from `stage` at `at`. Storage of one device stamps itself.
    fn stamp(&mut self, id: u32, stage: Stage, at: u64) {
        let array = matches!(self.storage, Storage::Array(_));
        let place = match stage {
            Stage::ToIothread => Place::Iothread,
            Stage::Layer => Place::StackedLayer,
            Stage::Storage if array => Place::Array,
            Stage::Storage if self.guests.is_some() => Place::HostInterrupt,
            Stage::FromDevice => Place::ToGuest,
            Stage::Storage | Stage::Stored | Stage::Done => return,
        };
        if let Some(t) = &mut self.trace {
            t.leave(id, place, at);
        }
    }

    #[inline]
    fn stored(&mut self, id: u32, (end, done): Served) -> (u64, Stage) {
        let io = &mut self.ios[id as usize];
        io.failed = !done;
        if matches!(self.storage, Storage::Array(_)) {
            (end, Stage::Stored)
        } else if let Some(g) = &mut self.guests {
            (g.from_device(io.worker, end), Stage::FromDevice)
        } else {
            (end, Stage::Done)
        }
    }
}

/// An event's time and request.
#[inline]
fn parts(Reverse(event): Reverse<u128>) -> (u64, u32) {
    ((event >> 64) as u64, (event & ((1 << ID_BITS) - 1)) as u32)
}

impl Storage {
    fn devices(&mut self) -> &mut [Device] {
        match self {
            Self::One(d) => std::slice::from_mut(&mut **d),
            Self::Array(r) => r.members(),
        }
    }
}

impl World for Simulation {
    fn interrupted(&self) -> bool {
        self.control.interrupted()
    }

    fn submit(&mut self, worker: u32, at: Nanos, slot: u32, request: Request) -> Nanos {
        let synchronous = self.synchronous;
        let (host, seat) = self.host(worker);
        let free = match synchronous {
            Some(cpu) => {
                let cpu = cpu[usize::from(request.op == Op::Write)];
                host.submit(seat, at.0, false, cpu)
            }
            None => host.submit(seat, at.0, true, 0),
        };
        let io = Io {
            worker,
            slot,
            request,
            stage: Stage::Storage,
            failed: false,
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
        if let Some(t) = &mut self.trace {
            t.begin(id, at.0);
            t.leave(id, Place::Submission, free);
        }
        match &self.guests {
            Some(g) => {
                let at = g.kick(free);
                if let Some(t) = &mut self.trace {
                    t.leave(id, Place::Exit, at);
                }
                self.schedule(id, at, Stage::ToIothread);
            }
            None => self.schedule(id, free, self.below()),
        }
        Nanos(free)
    }

    fn next(&mut self) -> Option<Nanos> {
        // Everything inside that happens before the next visible completion.
        loop {
            let (at, id) = parts(*self.events.peek()?);
            let left = self.ios[id as usize].stage;
            if left == Stage::Done {
                return Some(Nanos(at));
            }
            // What comes next takes its place: one way down the heap instead of one down and one up. Nothing that
            // was put in meanwhile comes before it.
            match self.advance(id, at) {
                Some((then, stage)) => {
                    if self.trace.is_some() {
                        self.stamp(id, left, then);
                    }
                    let event = self.event(id, then, stage);
                    if let Some(mut top) = self.events.peek_mut() {
                        debug_assert_eq!(parts(*top), (at, id), "it is still the first");
                        *top = event;
                    }
                }
                None => {
                    self.events.pop();
                }
            }
        }
    }

    fn pop(&mut self) -> Option<Completion> {
        self.next()?;
        let (at, id) = parts(self.events.pop()?);
        self.unused.push(id);
        self.now = self.now.max(at);
        let io = self.ios[id as usize];
        if let Some(t) = &mut self.trace {
            t.popped(id, io.worker);
        }
        let end = io.request.offset + u64::from(io.request.len);
        let result = if io.failed || end > self.size {
            -5 // EIO: a fault, or beyond the device's end
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
            if let Some(t) = &mut self.trace {
                t.reaped(worker, at.0);
            }
            return at;
        }
        let (host, seat) = self.host(worker);
        let end = host.complete(seat, at.0, n as u64);
        self.now = self.now.max(end);
        if let Some(t) = &mut self.trace {
            t.reaped(worker, end);
        }
        Nanos(end)
    }
}

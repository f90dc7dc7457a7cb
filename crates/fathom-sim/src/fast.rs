//! The fast path: closed loops of uniform random I/O on one device of a physical host.
//!
//! Every request is still simulated, but one visit mostly does what the event loop does in four: a completion, the
//! processor's work, the next submission, the device. A test holds IOPS, mean and p99 to within 0.5 % of the event
//! loop's.

use fathom_io::driver::PlannedJob;
use fathom_io::job::{Distribution, SyncPolicy};
use fathom_io::load::Outcome;
use fathom_io::load::rng::Rng;
use fathom_telemetry::histogram::{BUCKETS, Moments, SparseHistogram, bucket_of};
use fathom_telemetry::window::{DirectionWindow, Window};
use fathom_telemetry::{Nanos, Op};

use crate::device::Device;
use crate::host::Host;
use crate::simulation::Simulation;

/// Bits of a key that number its slot.
const SLOT_BITS: u32 = 12;
/// A key's bits below the time: slot, and whether its request has yet to reach the device.
const KEY_BITS: u32 = SLOT_BITS + 1;
const ON_ITS_WAY: u64 = 1 << SLOT_BITS;

/// Why jobs need the event loop; `None` where the fast path may take them.
pub fn unfit(jobs: &[PlannedJob]) -> Option<&'static str> {
    let [planned] = jobs else {
        return Some("several jobs at once");
    };
    let s = &planned.job.spec;
    let (seats, depth) = planned.seats();
    let reasons = [
        (
            !s.rw.is_random() || !(s.rw.reads() || s.rw.writes()),
            "no random reads or writes",
        ),
        (s.rate.is_some(), "open loop"),
        (s.burst.is_some() || s.think > Nanos::ZERO, "pauses"),
        (s.sync != SyncPolicy::NONE, "syncs"),
        (s.batch > 1, "batches"),
        (
            s.time.is_none() || s.ios.is_some() || s.bytes.is_some(),
            "ends by something else than time",
        ),
        (s.bs.0.len() != 1, "several block sizes"),
        (s.dist != Distribution::Uniform, "offsets are not uniform"),
        (s.record, "every I/O is recorded"),
        (
            u64::from(seats) * u64::from(depth) > 1 << SLOT_BITS,
            "more than 4096 outstanding",
        ),
    ];
    reasons.iter().find(|(no, _)| *no).map(|(_, why)| *why)
}

/// Keys in a tournament: the smallest is known, and replacing it costs one comparison per level, without a branch.
struct Tournament {
    losers: Box<[u64; 1 << SLOT_BITS]>,
    leaves: usize,
}

impl Tournament {
    /// Of keys whose low bits are their place.
    fn new(keys: &[u64]) -> (Self, u64) {
        let leaves = keys.len().next_power_of_two().max(2);
        let mut winners = vec![u64::MAX; 2 * leaves];
        winners[leaves..leaves + keys.len()].copy_from_slice(keys);
        let mut losers = Box::new([u64::MAX; 1 << SLOT_BITS]);
        for i in (1..leaves).rev() {
            winners[i] = winners[2 * i].min(winners[2 * i + 1]);
            losers[i] = winners[2 * i].max(winners[2 * i + 1]);
        }
        let first = winners[1];
        (Self { losers, leaves }, first)
    }

    /// The winner at `place` plays again as `key`; returns the new winner.
    #[inline]
    fn replace(&mut self, place: u64, key: u64) -> u64 {
        let mut i = (self.leaves + place as usize) >> 1;
        let mut best = key;
        while i > 0 {
            let place = &mut self.losers[i % (1 << SLOT_BITS)];
            let other = *place;
            *place = best.max(other);
            best = best.min(other);
            i >>= 1;
        }
        best
    }
}

/// One direction's counts in a window.
struct Counts {
    buckets: Box<[u32; BUCKETS]>,
    ios: u64,
    sum: u64,
    squares: u128,
    min: u64,
    max: u64,
}

impl Counts {
    fn new() -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            ios: 0,
            sum: 0,
            squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    #[inline]
    fn add(&mut self, ns: u64) {
        self.buckets[bucket_of(ns)] += 1;
        self.ios += 1;
        self.sum += ns;
        self.squares += u128::from(ns) * u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    fn take(&mut self, bytes_each: u64) -> Option<Box<DirectionWindow>> {
        if self.ios == 0 {
            return None;
        }
        let n = self.ios;
        let mut buckets = Vec::new();
        for (i, count) in self.buckets.iter_mut().enumerate() {
            if *count > 0 {
                buckets.push((i as u32, u64::from(std::mem::take(count))));
            }
        }
        let moments = Moments {
            count: n,
            sum: u128::from(self.sum),
            sum_squares: self.squares,
            min: self.min,
            max: self.max,
        };
        let service = SparseHistogram { buckets, moments };
        let none = Moments {
            count: n,
            min: 0,
            ..Moments::default()
        };
        (self.ios, self.sum, self.squares) = (0, 0, 0);
        (self.min, self.max) = (u64::MAX, 0);
        Some(Box::new(DirectionWindow {
            ios: n,
            bytes: n * bytes_each,
            // A closed loop submits the moment its slot is free.
            submit: SparseHistogram {
                buckets: vec![(0, n)],
                moments: none,
            },
            response: service.clone(),
            service,
            ..DirectionWindow::default()
        }))
    }
}

/// One of the requests that are always under way.
#[derive(Clone, Copy)]
struct Slot {
    submitted: u64,
    /// When it reaches the device.
    reaches: u64,
    worker: u32,
    core: u32,
    op: Op,
}

/// What stands below the slots.
struct Machine<'a> {
    host: &'a mut Host,
    device: &'a mut Device,
    synchronous: Option<[u64; 2]>,
    rng: Rng,
    write_above: u64,
    mixed: bool,
    start: u64,
    align: u64,
    blocks: u64,
    bytes: u32,
}

impl<'a> Machine<'a> {
    /// For a job, on parts of a simulation.
    fn new(
        planned: &PlannedJob,
        (host, device, synchronous): (&'a mut Host, &'a mut Device, Option<[u64; 2]>),
    ) -> Self {
        let job = &planned.job;
        let spec = &job.spec;
        let bytes = spec.bs.max().0 as u32;
        Self {
            host,
            device,
            synchronous,
            rng: Rng::new(spec.seed, 1),
            write_above: match (spec.rw.reads(), spec.rw.writes()) {
                (true, true) => ((spec.read_share / 100.0) * u64::MAX as f64) as u64,
                (true, false) => u64::MAX,
                _ => 0,
            },
            mixed: spec.rw.reads() && spec.rw.writes(),
            start: job.start,
            align: job.align,
            blocks: (job.end - job.start - u64::from(bytes)) / job.align + 1,
            bytes,
        }
    }

    /// Hands over the first request of each of `n` slots; their keys, and when each worker's thread is free again.
    fn begin(&mut self, n: u32, seats: u32, origin: u64) -> (Vec<Slot>, Vec<u64>, Vec<u64>) {
        let mut free_at = vec![origin; seats as usize];
        let mut first = |number: u32| {
            // Slot s belongs to worker s mod seats: workers start side by side.
            let worker = number % seats;
            let core = self.host.core_of(worker);
            let thread = &mut free_at[worker as usize];
            let (reaches, op) = self.submit(core, *thread);
            *thread = reaches;
            let slot = Slot {
                submitted: origin,
                reaches,
                worker,
                core,
                op,
            };
            (slot, reaches << KEY_BITS | ON_ITS_WAY | u64::from(number))
        };
        let (slots, keys) = (0..n).map(&mut first).unzip();
        (slots, keys, free_at)
    }

    /// A request is handed over on `core` at `at`: when the core is free again, and what the request does.
    #[inline]
    fn submit(&mut self, core: u32, at: u64) -> (u64, Op) {
        let op = if self.write_above == 0 || (self.mixed && self.rng.bits() > self.write_above) {
            Op::Write
        } else {
            Op::Read
        };
        let free = match self.synchronous {
            Some(cpu) => {
                let cpu = cpu[usize::from(op == Op::Write)];
                self.host.submit(core, at, false, cpu)
            }
            None => self.host.submit(core, at, true, 0),
        };
        (free, op)
    }

    /// A request reaches the device: when it is done.
    #[inline]
    fn serve(&mut self, at: u64, op: Op) -> u64 {
        let offset = self.start + self.rng.below(self.blocks) * self.align;
        self.device.serve_here(at, op, offset, self.bytes)
    }
}

/// Runs a job that is not [`unfit`] from `origin`; `None` on targets other than one device of a physical host.
pub fn run(
    planned: &PlannedJob,
    sim: &mut Simulation,
    origin: Nanos,
) -> Option<(Vec<Window>, Outcome)> {
    let spec = &planned.job.spec;
    let bytes = spec.bs.max().0;
    let (seats, depth) = planned.seats();
    let width = spec.window.0;
    let ramp = spec.ramp.0.div_ceil(width) * width;
    let measured_from = origin + Nanos(ramp);
    let end = measured_from.0 + spec.time?.0;
    let control = sim.control();
    let mut machine = Machine::new(planned, sim.fast_parts()?);
    let synchronous = machine.synchronous;
    let usual = match synchronous {
        Some([read, write]) => read.min(write),
        None => machine.host.usual_ns(),
    };
    let n = seats * depth;
    let (mut slots, keys, mut free_at) = machine.begin(n, seats, origin.0);
    let (mut order, mut first) = Tournament::new(&keys);
    let mut counts = [Counts::new(), Counts::new()];
    let mut windows = Vec::new();
    let (mut index, mut window_end, mut last) = (0, origin.0 + width, origin.0);
    let (mut issued, mut stop) = (u64::from(n), end);
    while first != u64::MAX {
        let number = first & (ON_ITS_WAY - 1);
        let slot = &mut slots[number as usize];
        let time = first >> KEY_BITS;
        if first & ON_ITS_WAY == 0 {
            let thread = &mut free_at[slot.worker as usize];
            let mut at = time.max(*thread);
            if synchronous.is_none() {
                at = machine.host.complete(slot.core, at, 1);
            }
            if at >= window_end {
                close(&mut counts, &mut windows, index, bytes);
                index = (at - origin.0) / width;
                window_end = origin.0 + (index + 1) * width;
                if control.interrupted() {
                    stop = 0;
                }
            }
            counts[usize::from(slot.op == Op::Write)].add(at - slot.submitted);
            last = last.max(at);
            if at >= stop {
                *thread = at;
                first = order.replace(number, u64::MAX);
                continue;
            }
            let (free, op) = machine.submit(slot.core, at);
            *thread = free;
            (slot.submitted, slot.reaches, slot.op) = (at, free, op);
            issued += 1;
            // Most take as long from a completion to the device: their order is that of the completions. Those that
            // take longer (a deeper idle state, a busy processor) are put in order.
            if free > time + usual {
                let key = (free - usual) << KEY_BITS | ON_ITS_WAY | number;
                first = order.replace(number, key);
                continue;
            }
        }
        let done = machine.serve(slot.reaches, slot.op);
        first = order.replace(number, done << KEY_BITS | number);
    }
    close(&mut counts, &mut windows, index, bytes);
    sim.advance_to(last);
    let mut depth_ns = vec![0; depth as usize + 1];
    depth_ns[depth as usize] = last.saturating_sub(measured_from.0);
    let outcome = Outcome {
        measured_from,
        last_completion: Nanos(last.max(measured_from.0)),
        depth_ns,
        issued,
        ..Outcome::default()
    };
    Some((windows, outcome))
}

fn close(counts: &mut [Counts; 2], windows: &mut Vec<Window>, index: u64, bytes_each: u64) {
    let [reads, writes] = counts;
    let directions = [reads.take(bytes_each), writes.take(bytes_each), None, None];
    if directions.iter().any(Option::is_some) {
        windows.push(Window { index, directions });
    }
}

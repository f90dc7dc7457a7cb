//! Joins what the application saw with what the kernel did, one I/O at a time.
//!
//! One outstanding I/O per thread: everything that the thread does between entering and leaving the
//! kernel belongs to the I/O. Several: only events that carry the I/O's own identity count (the ring's
//! request, the sector); system calls belong to the ring and are left out, and of the scheduler's events only those
//! between a completion and the ring's answer count.

use std::collections::HashMap;

use fathom_telemetry::Record;
use fathom_telemetry::iolog::ThreadRecords;

use crate::boundary::{BOUNDARIES, Boundary};
use crate::chain::{Chain, Chains};
use crate::device::Devices;
use crate::event::{Event, Kind};
use crate::stacked::way;

/// Clock difference between application and kernel that is taken for none, ns.
const CLOCK_SLACK: u64 = 5_000;

/// What answered an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A device.
    Device,
    /// Memory: the page cache, or a file system in memory.
    Memory,
}

/// One I/O with the time of every boundary.
#[derive(Debug, Clone, Copy)]
pub struct Joined {
    /// As the application saw it.
    pub record: Record,
    /// Its thread in the job.
    pub thread: u16,
    /// The kernel's number of that thread.
    pub tid: u32,
    /// Times of [`Boundary`], ns; 0 where not seen.
    pub at: [u64; BOUNDARIES],
    /// What answered.
    pub answer: Answer,
    /// Device, first sector and flags of the bio that completed last.
    pub chain: Option<Chain>,
    /// Processor on which it was submitted.
    pub cpu: u16,
    /// Bios that it took.
    pub bios: u16,
    /// Sum of the time that its thread was off the processor, ns.
    pub off_cpu: u64,
    /// How often the thread was preempted while it could have run.
    pub preempted: u16,
}

/// Everything joined, and what could not be.
#[derive(Debug, Clone, Default)]
pub struct Join {
    /// In the order of threads and completions.
    pub ios: Vec<Joined>,
    /// I/Os that the application made.
    pub submitted: u64,
    /// I/Os whose kernel events were not found.
    pub unmatched: u64,
    /// I/Os that the file system handed to another thread: their device time is known in sum only.
    pub unlinked: u64,
    /// I/Os that io_uring gave to a worker thread, because they would have blocked; joined by their offset.
    pub by_worker: u64,
    /// I/Os whose offset contradicts the kernel's; more than 0 is a defect.
    pub contradicted: u64,
    /// I/Os that were merged into a request of another, split over several bios, or requeued.
    pub merged: u64,
    /// See `merged`.
    pub split: u64,
    /// See `merged`.
    pub requeued: u64,
    /// I/Os that met another of the same sector.
    pub twins: u64,
}

/// How the job submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Through io_uring.
    pub uring: bool,
    /// As NVMe commands: the ring hands those over when it has taken all requests, so that their sector tells them apart.
    pub commands: bool,
    /// One outstanding I/O per thread.
    pub single: bool,
    /// Without the page cache, on something that has a device.
    pub must_reach_device: bool,
    /// Where the target begins on its disk, sectors, if it is a block device: an offset then names its
    /// sector.
    pub begins_at: Option<u64>,
}

/// Joins the records of a pass with its events.
pub fn join(
    records: &[ThreadRecords],
    events: &[Event],
    chains: &Chains,
    devices: &Devices,
    manner: Manner,
) -> Join {
    let mut by_tid: HashMap<u32, Vec<u32>> = HashMap::new();
    for t in records.iter().filter_map(|r| r.tid) {
        by_tid.insert(t, Vec::new());
    }
    for (i, e) in events.iter().enumerate() {
        let tid = match e.kind {
            Kind::SysEnter
            | Kind::SysExit
            | Kind::RingSubmit
            | Kind::RingWait
            | Kind::DirectBegin => e.tid,
            Kind::Wakeup | Kind::SwitchOut | Kind::SwitchIn => e.a as u32,
            // Posted by whoever runs the ring's work: told apart by its request later.
            Kind::RingComplete => e.tid,
            _ => continue,
        };
        if let Some(list) = by_tid.get_mut(&tid) {
            list.push(i as u32);
        }
    }
    let workers = workers(events, &by_tid);
    let mut sectors: HashMap<u64, Vec<u32>> = HashMap::new();
    if manner.begins_at.is_some() {
        // A device below may be asked for the same sector: only the target's own counts.
        let own = |c: &Chain| c.is_data() && devices.is_top(c.dev);
        for (i, c) in chains.all.iter().enumerate().filter(|c| own(c.1)) {
            sectors.entry(c.sector).or_default().push(i as u32);
        }
    }
    let mut out = Join::default();
    for thread in records {
        out.submitted += thread.records.len() as u64 + thread.lost;
        out.unmatched += thread.lost;
        let Some(tid) = thread.tid else {
            out.unmatched += thread.records.len() as u64;
            continue;
        };
        let own: Vec<&Event> = by_tid
            .get(&tid)
            .into_iter()
            .flatten()
            .map(|i| &events[*i as usize])
            .collect();
        let none = Vec::new();
        let bios = chains.by_tid.get(&tid).unwrap_or(&none);
        let mut one = OneThread {
            thread,
            tid,
            chains,
            devices,
            bios,
            manner,
            workers: &workers,
            sectors: &sectors,
            out: &mut out,
        };
        if manner.single {
            one.single(&own);
        } else {
            one.deep(&own);
        }
    }
    out
}

struct OneThread<'a> {
    thread: &'a ThreadRecords,
    tid: u32,
    chains: &'a Chains,
    devices: &'a Devices,
    bios: &'a [u32],
    manner: Manner,
    workers: &'a Workers,
    sectors: &'a HashMap<u64, Vec<u32>>,
    out: &'a mut Join,
}

/// Direct I/O begun by threads other than the job's: by offset, the time, the thread and the time of
/// that thread's next one.
type Workers = HashMap<u64, Vec<(u64, u32, u64)>>;

fn workers(events: &[Event], own: &HashMap<u32, Vec<u32>>) -> Workers {
    let mut out = Workers::new();
    let mut newest: HashMap<u32, (u64, usize)> = HashMap::new();
    for e in events.iter().filter(|e| e.kind == Kind::DirectBegin) {
        if own.contains_key(&e.tid) {
            continue;
        }
        if let Some((pos, i)) = newest.get(&e.tid)
            && let Some(before) = out.get_mut(pos).and_then(|v| v.get_mut(*i))
        {
            before.2 = e.ts;
        }
        let list = out.entry(e.a).or_default();
        newest.insert(e.tid, (e.a, list.len()));
        list.push((e.ts, e.tid, u64::MAX));
    }
    out
}

impl OneThread<'_> {
    fn blank(&self, record: Record) -> Joined {
        let mut at = [0; BOUNDARIES];
        at[Boundary::Submitted as usize] = record.submitted.0;
        at[Boundary::Completed as usize] = record.completed.0;
        Joined {
            record,
            thread: self.thread.thread,
            tid: self.tid,
            at,
            answer: Answer::Memory,
            chain: None,
            cpu: 0,
            bios: 0,
            off_cpu: 0,
            preempted: 0,
        }
    }

    /// One outstanding I/O: system calls whose middle lies in the record's time are its own.
    fn single(&mut self, own: &[&Event]) {
        let calls = calls(own);
        let mut next = 0;
        let mut bio = 0;
        let thread = self.thread;
        for record in &thread.records {
            let (from, to) = (record.submitted.0, record.completed.0);
            while next < calls.len() && calls[next].middle() < from {
                next += 1;
            }
            let first = next;
            while next < calls.len() && calls[next].middle() <= to {
                next += 1;
            }
            if first == next {
                self.out.unmatched += 1;
                continue;
            }
            let mut io = self.blank(*record);
            let (enter, exit) = (calls[first], calls[next - 1]);
            io.set(Boundary::SysEnter, enter.enter);
            io.set(Boundary::SysExit, exit.exit);
            io.cpu = enter.cpu;
            let inside = &own[enter.first..exit.last];
            for e in inside {
                match e.kind {
                    Kind::RingSubmit => io.set(Boundary::RingSubmit, e.ts),
                    Kind::RingComplete => io.set(Boundary::RingComplete, e.ts),
                    Kind::DirectBegin => {
                        if e.a != record.offset {
                            io.bios = u16::MAX;
                        }
                        io.set(Boundary::DirectBegin, e.ts);
                    }
                    _ => {}
                }
            }
            if io.bios == u16::MAX {
                self.out.contradicted += 1;
                continue;
            }
            let found = self.bios_between(&mut bio, enter.enter, exit.exit);
            if self.device(&mut io, &found) {
                io.scheduling(inside);
                self.out.ios.push(io);
            }
        }
    }

    /// Several outstanding I/Os: the ring posts completions in the order in which the application
    /// sees them, so the records' order and that of the completions are the same.
    fn deep(&mut self, own: &[&Event]) {
        let ring = ring_requests(own);
        let waits = waits(own);
        let mut next = 0;
        let thread = self.thread;
        for record in &thread.records {
            let (from, to) = (record.submitted.0, record.completed.0);
            while next < ring.len()
                && (ring[next].complete < from || ring[next].submit + CLOCK_SLACK < from)
            {
                next += 1;
            }
            if next >= ring.len() || ring[next].complete > to + CLOCK_SLACK {
                self.out.unmatched += 1;
                continue;
            }
            let r = ring[next];
            next += 1;
            if r.position.is_some_and(|p| p != record.offset) {
                self.out.contradicted += 1;
                continue;
            }
            let mut io = self.blank(*record);
            io.cpu = r.cpu;
            io.set(Boundary::RingSubmit, r.submit);
            io.set(Boundary::DirectBegin, r.begin);
            io.set(Boundary::RingComplete, r.complete);
            let start = self.first_bio(r.submit);
            let mut at = start;
            let found = self.bios_between(&mut at, r.submit, r.until);
            if self.device(&mut io, &found) {
                io.waited(&waits);
                self.out.ios.push(io);
            }
        }
    }

    fn first_bio(&self, ts: u64) -> usize {
        self.bios
            .partition_point(|i| self.chains.all[*i as usize].queued < ts)
    }

    /// The thread's data bios queued in a time; `at` moves on.
    fn bios_between(&self, at: &mut usize, from: u64, to: u64) -> Vec<Chain> {
        let mut found = Vec::new();
        while let Some(i) = self.bios.get(*at) {
            let c = self.chains.all[*i as usize];
            if c.queued > to {
                break;
            }
            *at += 1;
            if c.queued >= from && c.is_data() {
                found.push(c);
            }
        }
        found
    }

    /// Bios of an I/O that a worker of the ring did: the only one at this offset in its time.
    fn by_worker(&self, io: &mut Joined) -> Vec<Chain> {
        let (from, to) = (io.record.submitted.0, io.record.completed.0);
        let Some(list) = self.workers.get(&io.record.offset) else {
            return Vec::new();
        };
        let mut inside = list.iter().filter(|w| w.0 >= from && w.0 <= to);
        let (Some((begin, tid, until)), None) = (inside.next(), inside.next()) else {
            return Vec::new();
        };
        io.set(Boundary::DirectBegin, *begin);
        self.queued_by(*tid, *begin, (*until).min(to))
    }

    /// Data bios that a thread queued in a time.
    fn queued_by(&self, tid: u32, from: u64, to: u64) -> Vec<Chain> {
        self.chains
            .by_tid
            .get(&tid)
            .into_iter()
            .flatten()
            .map(|i| self.chains.all[*i as usize])
            .filter(|c| c.queued >= from && c.queued <= to && c.is_data())
            .collect()
    }

    /// Bios of an I/O on a block device that another thread queued: the only one of its sector in its
    /// time. (There the kernel tells of no beginning of direct I/O.)
    fn by_sector(&self, io: &Joined) -> Vec<Chain> {
        let (from, to) = (io.record.submitted.0, io.record.completed.0);
        let Some(begins_at) = self.manner.begins_at else {
            return Vec::new();
        };
        let list = self.sectors.get(&(begins_at + io.record.offset / 512));
        let mut inside = list
            .into_iter()
            .flatten()
            .map(|i| self.chains.all[*i as usize])
            .filter(|c| c.queued >= from && c.queued <= to);
        let (Some(c), None) = (inside.next(), inside.next()) else {
            return Vec::new();
        };
        // With it what that thread queued below, until it begins the next one.
        let mut all = self.queued_by(c.tid, c.queued, to);
        let next = all
            .iter()
            .skip(1)
            .position(|x| self.devices.is_top(x.dev) && x.sector != c.sector);
        all.truncate(next.map_or(all.len(), |n| n + 1));
        all
    }

    /// Adds the device's part; `false` where the I/O cannot be linked.
    fn device(&mut self, io: &mut Joined, own: &[Chain]) -> bool {
        let handed_over;
        let mut found = own;
        if self.manner.commands {
            handed_over = self.by_sector(io);
            found = &handed_over;
        } else if own.is_empty() && self.manner.must_reach_device && self.manner.uring {
            handed_over = match self.by_worker(io) {
                none if none.is_empty() => self.by_sector(io),
                some => some,
            };
            found = &handed_over;
            self.out.by_worker += u64::from(!found.is_empty());
        }
        io.bios = found.len() as u16;
        if found.is_empty() {
            if self.manner.must_reach_device {
                self.out.unlinked += 1;
                return false;
            }
            return true;
        }
        // Read-ahead may still be under way when the application goes on: not its own wait.
        let end = io.record.completed.0 + CLOCK_SLACK;
        let Some(way) = way(found, self.devices, self.manner.single, end) else {
            // Through the page cache: read-ahead for later, not what this one waited for.
            if self.manner.must_reach_device {
                self.out.unmatched += 1;
            }
            return !self.manner.must_reach_device;
        };
        // Of a block device the offset names the sector: anything else is a wrong join.
        if let Some(begins_at) = self.manner.begins_at
            && way.first.sector != begins_at + io.record.offset / 512
        {
            self.out.contradicted += 1;
            return false;
        }
        let last = way.last;
        io.answer = Answer::Device;
        io.chain = Some(last);
        self.out.merged += u64::from(last.merged);
        self.out.requeued += u64::from(last.requeues > 0);
        self.out.split += u64::from(way.split);
        self.out.twins += u64::from(last.twin);
        if !way.first.is_command {
            io.set(Boundary::Queued, way.first.queued);
        }
        if way.below {
            io.set(Boundary::LowerQueued, last.queued);
            io.set(Boundary::UpperComplete, way.upper_complete);
        }
        for (b, t) in [
            (Boundary::GotRequest, last.got),
            (Boundary::Started, last.started),
            (Boundary::Inserted, last.inserted),
            (
                Boundary::CommandMade,
                if last.is_command { 0 } else { last.made },
            ),
            (Boundary::Issued, last.issued),
            (Boundary::Interrupt, last.irq),
            (
                Boundary::CommandDone,
                if last.is_command { 0 } else { last.done },
            ),
            (Boundary::Complete, last.complete),
        ] {
            io.set(b, t);
        }
        true
    }
}

impl Joined {
    fn set(&mut self, b: Boundary, ts: u64) {
        self.at[b as usize] = ts;
    }

    fn get(&self, b: Boundary) -> u64 {
        self.at[b as usize]
    }

    /// How long the application waited, ns.
    pub fn latency(&self) -> u64 {
        self.record.service().0
    }

    /// Where the thread slept for the device, and how it came back.
    fn scheduling(&mut self, inside: &[&Event]) {
        let mut out_at = 0;
        let issued = self.get(Boundary::Issued).max(self.get(Boundary::Queued));
        let complete = self
            .get(Boundary::Complete)
            .max(self.get(Boundary::UpperComplete));
        for e in inside {
            match e.kind {
                // After the doorbell: all that is left is to wait.
                Kind::RingWait
                    if issued > 0
                        && e.ts >= issued
                        && e.ts <= complete
                        && self.get(Boundary::RingWait) == 0 =>
                {
                    self.set(Boundary::RingWait, e.ts);
                }
                Kind::SwitchOut => {
                    out_at = e.ts;
                    self.preempted += u16::from(e.b == 1);
                    if e.b == 0
                        && issued > 0
                        && e.ts >= issued
                        && e.ts <= complete
                        && self.get(Boundary::SwitchedOut) == 0
                    {
                        self.set(Boundary::SwitchedOut, e.ts);
                    }
                }
                Kind::SwitchIn => {
                    self.off_cpu += if out_at > 0 { e.ts - out_at } else { 0 };
                    out_at = 0;
                    let woken = self.get(Boundary::Woken);
                    if woken > 0 && e.ts >= woken && self.get(Boundary::Running) == 0 {
                        self.set(Boundary::Running, e.ts);
                    }
                }
                Kind::Wakeup
                    if complete > 0 && e.ts >= complete && self.get(Boundary::Woken) == 0 =>
                {
                    self.set(Boundary::Woken, e.ts);
                }
                _ => {}
            }
        }
    }
}

impl Joined {
    /// Of several outstanding: the last time between its completion by the device and the ring's answer that its
    /// thread could run and had no processor. Without it that wait would pass for work of the ring.
    fn waited(&mut self, waits: &[Wait]) {
        let complete = self
            .get(Boundary::Complete)
            .max(self.get(Boundary::UpperComplete));
        let answered = self.get(Boundary::RingComplete);
        let after = waits.partition_point(|w| w.running <= answered);
        if let Some(w) = after.checked_sub(1).map(|i| waits[i])
            && complete > 0
            && w.running > complete
        {
            self.set(Boundary::Woken, w.ready.max(complete));
            self.set(Boundary::Running, w.running);
        }
    }
}

/// A time that a thread was ready to run and did not.
#[derive(Debug, Clone, Copy)]
struct Wait {
    ready: u64,
    running: u64,
}

/// A thread's waits for a processor, in order: woken or preempted, then running.
fn waits(own: &[&Event]) -> Vec<Wait> {
    let mut ready = None;
    let mut out = Vec::new();
    for e in own {
        match e.kind {
            Kind::Wakeup => ready = ready.or(Some(e.ts)),
            Kind::SwitchOut => ready = (e.b == 1).then_some(e.ts),
            Kind::SwitchIn => out.extend(ready.take().map(|ready| Wait {
                ready,
                running: e.ts,
            })),
            _ => {}
        }
    }
    out
}

/// A system call: its times and its events' places in the thread's list.
#[derive(Debug, Clone, Copy)]
struct Call {
    enter: u64,
    exit: u64,
    first: usize,
    last: usize,
    cpu: u16,
}

impl Call {
    fn middle(&self) -> u64 {
        self.enter + (self.exit - self.enter) / 2
    }
}

/// Numbers of the system calls that carry I/O; others (clock, futex) are no part of one.
pub(crate) fn io_call_numbers() -> [u64; 7] {
    // io_uring_enter has one number on every architecture; then preadv2, pwritev2, preadv, pwritev,
    // pread64, pwrite64, of which a job of this tool uses the first two.
    match std::env::consts::ARCH {
        "x86_64" => [426, 327, 328, 295, 296, 17, 18],
        _ => [426, 286, 287, 69, 70, 67, 68],
    }
}

fn carries_io(id: u64) -> bool {
    io_call_numbers().contains(&id)
}

fn calls(own: &[&Event]) -> Vec<Call> {
    let mut out = Vec::with_capacity(own.len() / 8);
    let mut enter: Option<(u64, usize, u16, u64)> = None;
    for (i, e) in own.iter().enumerate() {
        match e.kind {
            Kind::SysEnter => enter = carries_io(e.a).then_some((e.ts, i, e.cpu, e.a)),
            Kind::SysExit => {
                if let Some((ts, first, cpu, id)) = enter.take()
                    && id == e.a
                {
                    out.push(Call {
                        enter: ts,
                        exit: e.ts,
                        first,
                        last: i + 1,
                        cpu,
                    });
                }
            }
            _ => {}
        }
    }
    out
}

/// A request of the ring, from its submission to its completion.
#[derive(Debug, Clone, Copy)]
struct RingRequest {
    submit: u64,
    /// The next submission of the thread: bios queued before it belong to this one.
    until: u64,
    begin: u64,
    position: Option<u64>,
    complete: u64,
    cpu: u16,
}

/// Requests in the order of their completions.
fn ring_requests(own: &[&Event]) -> Vec<RingRequest> {
    let mut open: HashMap<u64, RingRequest> = HashMap::new();
    let mut newest: Option<u64> = None;
    let mut done = Vec::new();
    for e in own {
        match e.kind {
            Kind::RingSubmit => {
                if let Some(r) = newest.and_then(|n| open.get_mut(&n)) {
                    r.until = e.ts;
                }
                newest = Some(e.a);
                open.insert(
                    e.a,
                    RingRequest {
                        submit: e.ts,
                        until: u64::MAX,
                        begin: 0,
                        position: None,
                        complete: 0,
                        cpu: e.cpu,
                    },
                );
            }
            Kind::DirectBegin => {
                if let Some(r) = newest.and_then(|n| open.get_mut(&n))
                    && r.begin == 0
                {
                    r.begin = e.ts;
                    r.position = Some(e.a);
                }
            }
            Kind::RingComplete => {
                if let Some(mut r) = open.remove(&e.a) {
                    r.complete = e.ts;
                    r.until = r.until.min(e.ts);
                    done.push(r);
                }
                if newest == Some(e.a) {
                    newest = None;
                }
            }
            _ => {}
        }
    }
    done
}

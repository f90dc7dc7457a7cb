//! From traced passes to one result: layers, what they cover, what the observer cost, what else happened.

use std::collections::BTreeMap;

use fathom_telemetry::Op;
use fathom_telemetry::iolog::ThreadRecords;
use serde::{Deserialize, Serialize};

use crate::boundary::Boundary;
use crate::chain::{self, Chains};
use crate::device::Devices;
use crate::event::{Event, Kind};
use crate::join::{Answer, Join, Joined, Manner, join};
use crate::layer::{self, Layer, Naming, Owner};
use crate::session::Trace;

/// Slow I/Os that are shown.
const SLOWEST: usize = 10;
/// Part of each thread's records that is left out at the start: caches and clocks warm up.
const WARM_UP: f64 = 0.02;

/// What the devices' requests took, whoever sent them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSide {
    /// Kernel name.
    pub name: String,
    /// Requests or bios completed in the traced passes.
    pub requests: u64,
    /// Those queued by other threads than the job's (writeback, other programs, a layer above).
    pub foreign: u64,
    /// I/Os of the job whose way was followed to a request of this device.
    pub joined: u64,
    /// Mean from queueing to the driver, ns; absent without requests.
    pub queue_mean_ns: Option<f64>,
    /// Mean from the driver to the completion, ns (from queueing, without requests).
    pub device_mean_ns: f64,
}

/// One of the slowest I/Os.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowIo {
    /// How long the application waited, ns.
    pub latency_ns: u64,
    /// Byte offset in the target.
    pub offset: u64,
    /// What it did.
    pub op: Op,
    /// Its layers, ns.
    pub layers: Vec<(String, i64)>,
    /// What else happened meanwhile.
    pub meanwhile: Vec<String>,
}

/// Where something ran: processor and share of the I/Os.
pub type CpuShare = (u16, f64);

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct StackResult {
    /// Layers in the order of an I/O's way; means add up.
    pub layers: Vec<Layer>,
    /// Mean that the application saw in the traced passes, ns.
    pub application_mean_ns: f64,
    /// The same over the joined I/Os alone, ns: the layers' means add up to it. None where none was joined.
    pub joined_mean_ns: Option<f64>,
    /// Mean from issue to interrupt, ns: what the driver calls the device, doorbell included.
    pub device_span_ns: Option<f64>,
    /// Joined part of the submitted I/Os.
    pub coverage: f64,
    /// Application's mean minus the sum of the layers' means, ns.
    pub residual_ns: f64,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// I/Os submitted in the traced passes (warm-up left out).
    pub submitted: u64,
    /// Joined and answered by a device.
    pub by_device: u64,
    /// Joined and answered by memory (page cache, file system in memory).
    pub by_memory: u64,
    /// Handed to another thread by the file system: not linked.
    pub unlinked: u64,
    /// Given to a worker thread by io_uring, because they would have blocked; joined by their offset.
    pub by_worker: u64,
    /// No events found.
    pub unmatched: u64,
    /// Offset in the kernel differs from the application's; a defect where more than 0.
    pub contradicted: u64,
    /// Merged into another request.
    pub merged: u64,
    /// Split over several bios.
    pub split: u64,
    /// Given back by the driver.
    pub requeued: u64,
    /// Met another of the same sector: told apart by order only.
    pub twins: u64,
    /// Flushes seen, kept out of the join.
    pub flushes: u64,
    /// Kernel events per I/O.
    pub events_per_io: f64,
    /// Boundaries that this kernel does not have.
    pub absent: Vec<String>,
    /// Share of the application's and the kernel's layers together.
    pub software_share: Option<f64>,
    /// Where the application submitted.
    pub application_cpus: Vec<CpuShare>,
    /// Where the completing interrupt ran.
    pub interrupt_cpus: Vec<CpuShare>,
    /// Its number.
    pub interrupts: Vec<u32>,
    /// Every device's requests.
    pub devices: Vec<DeviceSide>,
    /// The slowest I/Os, slowest first.
    pub slowest: Vec<SlowIo>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    requests: u64,
    foreign: u64,
    joined: u64,
    queue_ns: u64,
    device_ns: u64,
    issued: u64,
}

/// Collects traced passes of one case.
#[derive(Debug)]
pub struct StackAnalysis {
    devices: Devices,
    manner: Manner,
    naming: Naming,
    ios: Vec<Joined>,
    latency_sum: u128,
    counts: Join,
    lost: u64,
    events: u64,
    flushes: u64,
    absent: Vec<String>,
    sides: BTreeMap<u64, Sums>,
    slowest: Vec<(Joined, Vec<String>)>,
}

impl StackAnalysis {
    /// For a case on these devices.
    pub fn new(devices: Devices, manner: Manner, naming: Naming) -> Self {
        Self {
            devices,
            manner,
            naming,
            ios: Vec::new(),
            latency_sum: 0,
            counts: Join::default(),
            lost: 0,
            events: 0,
            flushes: 0,
            absent: Vec::new(),
            sides: BTreeMap::new(),
            slowest: Vec::new(),
        }
    }

    /// The I/Os joined so far.
    pub fn ios(&self) -> &[Joined] {
        &self.ios
    }

    fn chains(&self, trace: &Trace) -> Chains {
        let (silent, bios) = (self.devices.silent(), self.devices.bio_based());
        chain::chains(&trace.events, &silent, &bios)
    }

    /// Adds a traced pass.
    pub fn add(&mut self, records: &[ThreadRecords], trace: &Trace) {
        let chains = self.chains(trace);
        let mut all = join(records, &trace.events, &chains, &self.devices, self.manner);
        // The start is joined too (order matters), then left out.
        let mut begin: BTreeMap<u16, u64> = BTreeMap::new();
        for t in records {
            let skip = (t.records.len() as f64 * WARM_UP) as usize;
            let from = t.records.get(skip).map_or(u64::MAX, |r| r.submitted.0);
            begin.insert(t.thread, from);
            for r in t.records.iter().filter(|r| r.submitted.0 >= from) {
                self.counts.submitted += 1;
                self.latency_sum += u128::from(r.service().0);
            }
        }
        all.ios.retain(|io| {
            begin
                .get(&io.thread)
                .is_some_and(|b| io.record.submitted.0 >= *b)
        });
        let own: Vec<u32> = records.iter().filter_map(|r| r.tid).collect();
        self.absorb(all, trace, &chains, &own);
    }

    /// Adds what a process did that fathom did not start; its threads are given.
    pub fn add_process(&mut self, tids: &[u32], trace: &Trace) {
        let chains = self.chains(trace);
        let all = crate::host::join(tids, &trace.events, &chains, &self.devices);
        self.counts.submitted += all.submitted;
        for io in &all.ios {
            self.latency_sum += u128::from(io.latency());
        }
        self.absorb(all, trace, &chains, tids);
    }

    fn absorb(&mut self, mut all: Join, trace: &Trace, chains: &Chains, own: &[u32]) {
        self.counts.unlinked += all.unlinked;
        self.counts.by_worker += all.by_worker;
        self.counts.unmatched += all.unmatched;
        self.counts.contradicted += all.contradicted;
        self.counts.merged += all.merged;
        self.counts.split += all.split;
        self.counts.requeued += all.requeued;
        self.counts.twins += all.twins;
        self.lost += trace.lost + trace.broken_pages;
        self.events += trace.events.len() as u64;
        self.flushes += chains.flushes;
        for a in &trace.absent {
            if !self.absent.iter().any(|b| b == a) {
                self.absent.push((*a).to_owned());
            }
        }
        for c in chains.all.iter().filter(|c| c.complete > 0) {
            let s = self.sides.entry(c.dev).or_default();
            s.requests += 1;
            s.foreign += u64::from(!own.contains(&c.tid));
            let from = if c.issued > 0 { c.issued } else { c.queued };
            s.device_ns += c.complete.saturating_sub(from);
            if c.issued > 0 {
                s.issued += 1;
                s.queue_ns += c.issued.saturating_sub(c.queued);
            }
        }
        for c in all.ios.iter().filter_map(|io| io.chain) {
            self.sides.entry(c.dev).or_default().joined += 1;
        }
        all.ios.sort_by_key(|io| std::cmp::Reverse(io.latency()));
        for io in all.ios.iter().take(SLOWEST) {
            self.slowest.push((*io, meanwhile(io, trace, chains, own)));
        }
        self.ios.append(&mut all.ios);
    }

    /// Numbers of the interrupts that brought the completions, the most frequent first.
    fn interrupts(&self) -> Vec<u32> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        let chains = self.ios.iter().filter_map(|i| i.chain);
        for c in chains.filter(|c| c.irq > 0) {
            *counts.entry(c.irq_number).or_default() += 1;
        }
        let mut out: Vec<(u64, u32)> = counts.into_iter().map(|(irq, n)| (n, irq)).collect();
        out.sort_unstable_by(|a, b| b.cmp(a));
        out.into_iter().map(|x| x.1).collect()
    }

    /// Requests of each device, joined and foreign.
    fn device_sides(&self) -> Vec<DeviceSide> {
        let side = |(dev, s): (&_, &Sums)| DeviceSide {
            name: self.devices.name(*dev),
            requests: s.requests,
            foreign: s.foreign,
            joined: s.joined,
            queue_mean_ns: (s.issued > 0).then(|| s.queue_ns as f64 / s.issued as f64),
            device_mean_ns: s.device_ns as f64 / s.requests.max(1) as f64,
        };
        self.sides.iter().map(side).collect()
    }

    /// The result.
    pub fn result(&self) -> StackResult {
        let (layers, seen) = layer::layers(&self.ios, self.naming);
        let n = self.counts.submitted.max(1) as f64;
        // Of a foreign process only the joined ones are known.
        let known = if self.naming.host {
            self.ios.len().max(1) as f64
        } else {
            n
        };
        let application = self.latency_sum as f64 / known;
        let sum: f64 = layers.iter().map(|l| l.mean_ns).sum();
        let by_device = self
            .ios
            .iter()
            .filter(|i| i.answer == Answer::Device)
            .count() as u64;
        let device: f64 = layers
            .iter()
            .filter(|l| l.owner == Owner::Device)
            .map(|l| l.share)
            .sum();
        let split = layers.iter().any(|l| l.owner == Owner::Device) || by_device == 0;
        let mut slowest = self.slowest.clone();
        slowest.sort_by_key(|s| std::cmp::Reverse(s.0.latency()));
        slowest.truncate(SLOWEST);
        StackResult {
            application_mean_ns: application,
            joined_mean_ns: (!self.ios.is_empty()).then(|| {
                let all: u128 = self.ios.iter().map(|io| u128::from(io.latency())).sum();
                all as f64 / self.ios.len() as f64
            }),
            device_span_ns: layer::device_span(&self.ios, &seen),
            coverage: self.ios.len() as f64 / n,
            residual_ns: application - sum,
            lost: self.lost,
            submitted: self.counts.submitted,
            by_device,
            by_memory: self.ios.len() as u64 - by_device,
            unlinked: self.counts.unlinked,
            by_worker: self.counts.by_worker,
            unmatched: self.counts.unmatched,
            contradicted: self.counts.contradicted,
            merged: self.counts.merged,
            split: self.counts.split,
            requeued: self.counts.requeued,
            flushes: self.flushes,
            twins: self.counts.twins,
            events_per_io: self.events as f64 / n,
            absent: self.absent.clone(),
            software_share: (split && !layers.is_empty()).then_some(1.0 - device),
            application_cpus: shares(self.ios.iter().map(|i| i.cpu)),
            interrupt_cpus: shares(
                self.ios
                    .iter()
                    .filter_map(|i| i.chain.filter(|c| c.irq > 0))
                    .map(|c| c.irq_cpu),
            ),
            interrupts: self.interrupts(),
            devices: self.device_sides(),
            slowest: slowest
                .into_iter()
                .map(|(io, meanwhile)| SlowIo {
                    latency_ns: io.latency(),
                    offset: io.record.offset,
                    op: io.record.op,
                    layers: layer::of_one(&io, &seen, self.naming),
                    meanwhile,
                })
                .collect(),
            layers,
        }
    }
}

/// Waiting for a processor that is worth a word, ns.
const WAIT_MIN: u64 = 20_000;

/// How the I/O's thread lost its processor or waited for one, and who had it.
fn scheduling(io: &Joined, inside: &[Event], trace: &Trace) -> Vec<String> {
    let name = |tid: u64| match trace.names.get(&(tid as u32)) {
        Some(n) if tid > 0 => format!("{n} ({tid})"),
        _ => format!("thread {tid}"),
    };
    let us = |ns: u64| format!("{:.0} µs", ns as f64 / 1e3);
    let mut said = Vec::new();
    // Since when the thread could run but did not, and why.
    let mut ready: Option<u64> = None;
    let mut preempted = None;
    for e in inside.iter().filter(|e| e.a == u64::from(io.tid)) {
        match e.kind {
            Kind::Wakeup => ready = Some(e.ts),
            Kind::SwitchOut if e.b == 1 => {
                ready = Some(e.ts);
                preempted = Some(u64::from(e.c));
            }
            Kind::SwitchIn => {
                let waited = ready.take().map_or(0, |r| e.ts.saturating_sub(r));
                let by = preempted.take();
                if let Some(by) = by {
                    said.push(format!(
                        "its thread was preempted by {} for {}",
                        name(by),
                        us(waited)
                    ));
                } else if waited >= WAIT_MIN && e.b > 0 {
                    said.push(format!(
                        "its thread was ready and waited {} for CPU {}, which {} had",
                        us(waited),
                        e.cpu,
                        name(e.b)
                    ));
                } else if waited >= WAIT_MIN {
                    said.push(format!(
                        "its thread was woken and CPU {} took {} to leave its idle state",
                        e.cpu,
                        us(waited)
                    ));
                }
            }
            _ => {}
        }
    }
    said
}

/// Share of each processor, the most frequent first; rare ones are left out.
fn shares(cpus: impl Iterator<Item = u16>) -> Vec<CpuShare> {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    cpus.for_each(|c| *counts.entry(c).or_default() += 1);
    let total: u64 = counts.values().sum();
    let mut out: Vec<CpuShare> = counts
        .into_iter()
        .map(|(c, n)| (c, n as f64 / total as f64))
        .filter(|s| s.1 >= 0.01)
        .collect();
    out.sort_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// What else happened while an I/O was under way.
fn meanwhile(io: &Joined, trace: &Trace, chains: &Chains, own: &[u32]) -> Vec<String> {
    let events: &[Event] = &trace.events;
    let (from, to) = (io.record.submitted.0, io.record.completed.0);
    let range = events.partition_point(|e| e.ts < from)..events.partition_point(|e| e.ts <= to);
    let mut other_irqs: BTreeMap<u64, u64> = BTreeMap::new();
    for e in events[range.clone()].iter().filter(|e| e.kind == Kind::Irq) {
        if !chains.irqs.contains(&(e.a as u32)) {
            *other_irqs.entry(e.a).or_default() += 1;
        }
    }
    let mut said = Vec::new();
    // Chains are in the order of queueing; nothing outstanding is older than a second here.
    let start = chains
        .all
        .partition_point(|c| c.queued + 1_000_000_000 < from);
    let (mut others, mut ours, mut flushes) = (0u64, 0u64, false);
    for c in chains.all[start..].iter().take_while(|c| c.queued <= to) {
        let overlaps = c.complete >= from || c.complete == 0;
        // Its own request, and the bios above it in a stack of devices.
        let (first, last) = (
            io.at[Boundary::Queued as usize],
            io.at[Boundary::LowerQueued as usize],
        );
        let itself = io.chain.is_some_and(|x| {
            (x.queued == c.queued && x.sector == c.sector)
                || (x.tid == c.tid && c.queued >= first && c.queued <= last)
        });
        if overlaps && !itself {
            if own.contains(&c.tid) {
                ours += 1;
            } else {
                others += 1;
                flushes |= !c.is_data();
            }
        }
    }
    if others > 0 {
        let what = if flushes {
            ", metadata or flushes among them"
        } else {
            ""
        };
        said.push(format!("{others} request(s) of others on its device{what}"));
    }
    if ours > 0 {
        said.push(format!("{ours} other request(s) of the job"));
    }
    said.extend(scheduling(io, &events[range], trace));
    let irqs: u64 = other_irqs.values().sum();
    if irqs > 0 {
        let list: Vec<String> = other_irqs.keys().map(u64::to_string).collect();
        said.push(format!(
            "{irqs} other interrupt(s) (number {})",
            list.join(", ")
        ));
    }
    if let Some(c) = &io.chain {
        if c.requeues > 0 {
            said.push("the driver gave it back".into());
        }
        if c.merged {
            said.push("merged into another request".into());
        }
    }
    if said.is_empty() {
        said.push("nothing else seen".into());
    }
    said
}

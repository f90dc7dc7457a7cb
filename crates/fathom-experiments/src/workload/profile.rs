//! Builds the profile of a load from starts and ends of its I/Os in the order of their times.
//!
//! Knows starts and ends of I/Os, not where they were seen. Memory does not grow with time.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use fathom_telemetry::{Histogram, Op};
use serde::{Deserialize, Serialize};

/// The profile's name in a run directory of `fathom watch`.
pub const PROFILE: &str = "profile.json";
/// Version of that file.
const VERSION: u32 = 1;
/// Idle for longer than this, a burst has ended: 1 ms.
const BURST_GAP: u64 = 1_000_000;
/// Sequential streams that are followed at the same time.
const STREAMS: usize = 64;
/// Depths that are told apart; deeper ones count as this.
const DEPTH_MAX: usize = 1024;
/// I/Os whose end is awaited, at most.
const OPEN_MAX: usize = 65_536;

/// What was seen, in numbers; saved as `profile.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Version of this file.
    pub profile_version: u32,
    /// What was watched.
    pub source: String,
    /// For how long, ns.
    pub wall_ns: u64,
    /// I/Os by operation: read, write, trim, sync.
    pub ios: [u64; 4],
    /// Bytes by operation.
    pub bytes: [u64; 4],
    /// I/Os by size: bytes to reads and writes. Sizes above 64 KiB are rounded up to a power of two.
    pub sizes: BTreeMap<u64, [u64; 2]>,
    /// I/Os that began where one of the last 64 streams ended.
    pub sequential: u64,
    /// ns at each depth: `[depth, ns]`.
    pub depth_by_time: Vec<(u32, u64)>,
    /// I/Os that found so many outstanding, themselves counted: `[depth, I/Os]`.
    pub depth_by_io: Vec<(u32, u64)>,
    /// Idle gaps: `[upper bound in ns, gaps, ns in all]`.
    pub idle: Vec<(u64, u64, u64)>,
    /// Bursts (I/Os less than 1 ms of idle apart) by their number of I/Os: `[upper bound, bursts]`.
    pub bursts: Vec<(u64, u64)>,
    /// Latency from queue to completion: p50, p99, p99.9, ns.
    pub latency_ns: [Option<u64>; 3],
    /// Events that the kernel dropped.
    pub lost: u64,
    /// What could not be seen, and what would show it.
    pub missing: Vec<String>,
}

impl Profile {
    /// Reads it, from its file or its run directory.
    ///
    /// # Errors
    /// A sentence that names the file and what was expected.
    pub fn read(path: &Path) -> Result<Self, String> {
        let file = match path.is_dir() {
            true => path.join(PROFILE),
            false => path.to_owned(),
        };
        let bad = |e: &dyn std::fmt::Display| {
            format!(
                "{}: {e}; expected a profile made by fathom watch",
                file.display()
            )
        };
        let text = std::fs::read_to_string(&file).map_err(|e| bad(&e))?;
        let profile: Self = serde_json::from_str(&text).map_err(|e| bad(&e))?;
        match profile.profile_version {
            VERSION => Ok(profile),
            other => Err(bad(&format!("it has version {other}"))),
        }
    }
    /// Reads and writes.
    pub fn data_ios(&self) -> u64 {
        self.ios[0] + self.ios[1]
    }
    /// Share of reads among reads and writes.
    pub fn read_share(&self) -> Option<f64> {
        (self.data_ios() > 0).then(|| self.ios[0] as f64 / self.data_ios() as f64)
    }
    /// Share of time without any I/O.
    pub fn idle_share(&self) -> Option<f64> {
        let total: u64 = self.depth_by_time.iter().map(|d| d.1).sum();
        let idle = self
            .depth_by_time
            .iter()
            .find(|d| d.0 == 0)
            .map_or(0, |d| d.1);
        (total > 0).then(|| idle as f64 / total as f64)
    }
    /// Mean depth while busy.
    pub fn busy_depth(&self) -> Option<f64> {
        let busy: u64 = self
            .depth_by_time
            .iter()
            .filter(|d| d.0 > 0)
            .map(|d| d.1)
            .sum();
        let sum: f64 = self
            .depth_by_time
            .iter()
            .map(|d| f64::from(d.0) * d.1 as f64)
            .sum();
        (busy > 0).then(|| sum / busy as f64)
    }
}

/// An I/O under way.
struct Open {
    at: u64,
    end: u64,
    op: Op,
}

/// An I/O that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What it did.
    pub op: Op,
    /// Its length.
    pub bytes: u64,
    /// From queue to completion, ns.
    pub latency_ns: u64,
}

/// Builds a profile from starts and ends in the order of their times.
pub struct Collector {
    profile: Profile,
    depth: BTreeMap<u32, u64>,
    seen: BTreeMap<u32, u64>,
    gaps: BTreeMap<u64, (u64, u64)>,
    bursts: BTreeMap<u64, u64>,
    latency: Histogram,
    /// By device: where an I/O begins, to what is known of it. Several may begin at the same place.
    open: HashMap<u64, BTreeMap<u64, Vec<Open>>>,
    outstanding: u32,
    streams: Vec<(u64, u64)>,
    next_stream: usize,
    last: u64,
    begin: u64,
    idle_since: u64,
    burst: u64,
}

impl Collector {
    /// Begins at `now`; nothing is known of what is outstanding then.
    pub fn new(source: &str, now: u64) -> Self {
        Self {
            profile: Profile {
                profile_version: VERSION,
                source: source.to_owned(),
                ..Profile::default()
            },
            depth: BTreeMap::new(),
            seen: BTreeMap::new(),
            gaps: BTreeMap::new(),
            bursts: BTreeMap::new(),
            latency: Histogram::new(),
            open: HashMap::new(),
            outstanding: 0,
            streams: Vec::new(),
            next_stream: 0,
            last: now,
            begin: now,
            idle_since: now,
            burst: 0,
        }
    }

    fn pass(&mut self, now: u64) {
        let depth = self.outstanding.min(DEPTH_MAX as u32);
        *self.depth.entry(depth).or_default() += now.saturating_sub(self.last);
        self.last = self.last.max(now);
    }

    /// An I/O of `len` bytes at byte `offset` of `device` starts.
    pub fn start(&mut self, now: u64, device: u64, op: Op, offset: u64, len: u64) {
        self.pass(now);
        if self.outstanding == 0 {
            let gap = now.saturating_sub(self.idle_since);
            let bound = gap.max(1).next_power_of_two();
            let slot = self.gaps.entry(bound).or_default();
            slot.0 += 1;
            slot.1 += gap;
            if gap > BURST_GAP {
                self.end_burst();
            }
        }
        self.burst += 1;
        let p = &mut self.profile;
        p.ios[op as usize] += 1;
        p.bytes[op as usize] += len;
        if matches!(op, Op::Read | Op::Write) {
            let size = if len > 64 << 10 {
                len.next_power_of_two()
            } else {
                len
            };
            p.sizes.entry(size).or_default()[op as usize] += 1;
            let end = offset.saturating_add(len);
            match self.streams.iter().position(|s| *s == (device, offset)) {
                Some(i) => {
                    p.sequential += 1;
                    self.streams[i].1 = end;
                }
                None if self.streams.len() < STREAMS => self.streams.push((device, end)),
                None => {
                    self.streams[self.next_stream] = (device, end);
                    self.next_stream = (self.next_stream + 1) % STREAMS;
                }
            }
        }
        // A flush has no place by which its end could be known.
        if len == 0 || self.outstanding as usize >= OPEN_MAX {
            return;
        }
        self.outstanding += 1;
        let depth = self.outstanding.min(DEPTH_MAX as u32);
        *self.seen.entry(depth).or_default() += 1;
        self.open
            .entry(device)
            .or_default()
            .entry(offset)
            .or_default()
            .push(Open {
                at: now,
                end: offset.saturating_add(len),
                op,
            });
    }

    /// Bytes `offset` to `offset + len` of `device` are complete: every I/O inside them has ended, and is told.
    pub fn end(&mut self, now: u64, device: u64, offset: u64, len: u64) -> Vec<Ended> {
        let end = offset.saturating_add(len);
        let Some(open) = self.open.get_mut(&device) else {
            return Vec::new();
        };
        let mut ended: Vec<(u64, Ended)> = Vec::new();
        // A request may complete in parts: an I/O ends with its last byte. None is longer than 64 MiB.
        let from = offset.saturating_sub(64 << 20);
        for (start, list) in open.range_mut(from..end) {
            list.retain(|o| {
                let inside = o.end > offset && o.end <= end;
                if inside {
                    ended.push((
                        *start,
                        Ended {
                            op: o.op,
                            bytes: o.end - *start,
                            latency_ns: now.saturating_sub(o.at),
                        },
                    ));
                }
                !inside
            });
        }
        if ended.is_empty() {
            return Vec::new();
        }
        for (start, _) in &ended {
            if open.get(start).is_some_and(Vec::is_empty) {
                open.remove(start);
            }
        }
        self.pass(now);
        let ended: Vec<Ended> = ended.into_iter().map(|(_, e)| e).collect();
        for e in &ended {
            self.latency.record(e.latency_ns);
        }
        self.outstanding = self.outstanding.saturating_sub(ended.len() as u32);
        if self.outstanding == 0 {
            self.idle_since = now;
        }
        ended
    }

    fn end_burst(&mut self) {
        if self.burst > 0 {
            *self
                .bursts
                .entry(self.burst.next_power_of_two())
                .or_default() += 1;
        }
        self.burst = 0;
    }

    /// I/Os outstanding now.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Numbers and bytes of I/Os so far, and latencies of those that have ended, ns; the rest of the profile is made at its end.
    pub fn so_far(&self) -> (&Profile, &Histogram) {
        (&self.profile, &self.latency)
    }

    /// I/Os seen so far.
    pub fn ios(&self) -> u64 {
        self.profile.ios.iter().sum()
    }

    /// The profile up to `now`.
    pub fn finish(mut self, now: u64) -> Profile {
        self.pass(now);
        self.end_burst();
        let mut p = self.profile;
        p.wall_ns = now.saturating_sub(self.begin);
        p.depth_by_time = self.depth.into_iter().collect();
        p.depth_by_io = self.seen.into_iter().collect();
        p.idle = self
            .gaps
            .into_iter()
            .map(|(b, (n, ns))| (b, n, ns))
            .collect();
        p.bursts = self.bursts.into_iter().collect();
        p.latency_ns = [0.5, 0.99, 0.999].map(|q| {
            self.latency
                .quantile_supported(q, fathom_telemetry::summary::SAMPLES_BEYOND)
        });
        p
    }
}

//! The profile of a live workload: sizes, share of reads, sequentiality, depth by time and by I/O, idle gaps,
//! bursts; and a device's curve weighted by it: one number for "my workload".
//!
//! Knows starts and ends of I/Os, not where they were seen. Memory does not grow with time.

use std::collections::{BTreeMap, HashMap};

use fathom_bench::parts::{self, axis, line_chart};
use fathom_bench::results::{self, Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Headline, Point, Section};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Bytes, Flag, FlagCode, Histogram, Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::curve::CurveResult;
use crate::survey::SurveyResult;

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
                profile_version: 1,
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
            });
    }

    /// Bytes `offset` to `offset + len` of `device` are complete: every I/O inside them has ended.
    pub fn end(&mut self, now: u64, device: u64, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let Some(open) = self.open.get_mut(&device) else {
            return;
        };
        let mut ended = Vec::new();
        // A request may complete in parts: an I/O ends with its last byte. None is longer than 64 MiB.
        let from = offset.saturating_sub(64 << 20);
        for (start, list) in open.range_mut(from..end) {
            list.retain(|o| {
                let inside = o.end > offset && o.end <= end;
                if inside {
                    ended.push((*start, o.at));
                }
                !inside
            });
        }
        if ended.is_empty() {
            return;
        }
        for (start, _) in &ended {
            if open.get(start).is_some_and(Vec::is_empty) {
                open.remove(start);
            }
        }
        self.pass(now);
        for (_, at) in &ended {
            self.latency.record(now.saturating_sub(*at));
        }
        self.outstanding = self.outstanding.saturating_sub(ended.len() as u32);
        if self.outstanding == 0 {
            self.idle_since = now;
        }
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

/// A workload that was watched, by which a survey or a curve is weighted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// What was watched.
    pub profile: Profile,
}

impl ExperimentResult for WorkloadResult {
    const EXPERIMENT: &'static str = "workload";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let (curve, jobs) = rates(evidence);
        if let Some(e) = weigh(curve, &self.profile) {
            add_weighted(e, jobs, &self.profile, shown);
        }
    }
}

/// Achieved depth and IOPS of the points of a depth sweep or of a closed-loop curve, and the jobs behind them.
fn rates(evidence: &Evidence<'_>) -> (Vec<(f64, Estimate)>, Vec<usize>) {
    let of_survey = || {
        let all = evidence.result::<SurveyResult>()?.experiments;
        Some(
            all.into_iter()
                .find(|m| m.experiment == "depth-sweep")?
                .points,
        )
    };
    let of_curve = || Some(evidence.result::<CurveResult>()?.closed);
    let points = of_survey().or_else(of_curve).unwrap_or_default();
    let rate = |p: &results::Point| {
        let cell = evidence.cell(p);
        let depth = cell.estimate(|j| Some(j.qd_achieved))?;
        Some((depth.value, cell.iops()?))
    };
    let jobs = points.iter().flat_map(|p| &p.jobs).copied().collect();
    (points.iter().filter_map(rate).collect(), jobs)
}

/// IOPS that a curve of depth and IOPS gives at the depths of the workload, weighted by the time that it spent at
/// each while it was busy. `None` without a curve or a busy workload.
fn weigh(mut curve: Vec<(f64, Estimate)>, profile: &Profile) -> Option<Estimate> {
    curve.retain(|(d, e)| *d > 0.0 && e.value > 0.0);
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    if curve.is_empty() {
        return None;
    }
    let at = |depth: f64, value: &dyn Fn(&Estimate) -> f64| -> f64 {
        let i = curve.partition_point(|c| c.0 < depth);
        if i == 0 {
            // Below the first depth measured throughput is proportional to depth.
            return value(&curve[0].1) * (depth / curve[0].0).min(1.0);
        }
        let Some(b) = curve.get(i) else {
            return value(&curve[i - 1].1);
        };
        let a = &curve[i - 1];
        let t = (depth / a.0).ln() / (b.0 / a.0).ln();
        (value(&a.1).ln() * (1.0 - t) + value(&b.1).ln() * t).exp()
    };
    let busy: u64 = profile
        .depth_by_time
        .iter()
        .filter(|d| d.0 > 0)
        .map(|d| d.1)
        .sum();
    if busy == 0 {
        return None;
    }
    let weighted = |value: &dyn Fn(&Estimate) -> f64| -> f64 {
        profile
            .depth_by_time
            .iter()
            .filter(|d| d.0 > 0)
            .map(|(d, ns)| at(f64::from(*d), value) * *ns as f64 / busy as f64)
            .sum()
    };
    Some(Estimate {
        value: weighted(&|e| e.value),
        low: curve
            .iter()
            .all(|c| c.1.low.is_some_and(|l| l > 0.0))
            .then(|| weighted(&|e| e.low.unwrap_or(e.value))),
        high: curve
            .iter()
            .all(|c| c.1.high.is_some())
            .then(|| weighted(&|e| e.high.unwrap_or(e.value))),
        samples: curve.iter().map(|c| c.1.samples).min().unwrap_or(1),
    })
}

/// Puts "my workload" beside the headline maximum of a survey.
fn add_weighted(e: Estimate, jobs: Vec<usize>, profile: &Profile, run: &mut Shown) {
    let group = run
        .headlines
        .iter()
        .find(|h| h.id == "knee-iops")
        .map_or_else(|| "My workload".to_owned(), |h| h.group.clone());
    let maximum = run
        .headlines
        .iter()
        .filter(|h| h.id == "knee-iops")
        .find_map(|h| h.estimate);
    let position = run
        .headlines
        .iter()
        .position(|h| h.id == "knee-iops")
        .map_or(run.headlines.len(), |i| i + 1);
    run.headlines.insert(
        position,
        Headline {
            id: "my-workload-iops".into(),
            label: format!(
                "random read at my workload's depths ({:.1} while busy)",
                profile.busy_depth().unwrap_or(0.0)
            ),
            group,
            unit: "1/s".into(),
            estimate: Some(e),
            extra: BTreeMap::new(),
            jobs: jobs.clone(),
            flags: Vec::new(),
        },
    );
    run.findings.push(Finding {
        id: "my-workload".into(),
        text: format!(
            "At the depths of the workload watched on {} this device gives {} IOPS{}.",
            profile.source,
            grouped(e.value),
            maximum.map_or(String::new(), |m| format!(
                ", {:.0} % of the {} at the knee",
                100.0 * e.value / m.value,
                grouped(m.value)
            ))
        ),
        advice: "compare devices by this number rather than by their maximum".into(),
        confidence: "moderate".into(),
        jobs,
        evidence: vec!["depth-table".into()],
        refuted_by:
            "A replay of a trace of that workload on this device (fathom replay) at another rate."
                .into(),
        ..Finding::default()
    });
}

/// The profile in words: what, and how much.
pub fn facts(p: &Profile) -> Vec<(&'static str, String)> {
    let seconds = p.wall_ns.max(1) as f64 / 1e9;
    let percent = |v: Option<f64>| v.map_or("–".into(), |v| format!("{:.1} %", 100.0 * v));
    let data = p.data_ios();
    let size = (p.bytes[0] + p.bytes[1])
        .checked_div(data)
        .map_or("–".into(), |mean| Bytes(mean).to_string());
    let all = p.ios.iter().sum::<u64>() as f64 / seconds;
    let sequential = (data > 0).then(|| p.sequential as f64 / data as f64);
    let depth = p.busy_depth().map_or("–".into(), |d| format!("{d:.2}"));
    let mut rows = vec![
        ("watched", p.source.clone()),
        ("for", format!("{seconds:.1} s")),
        ("I/Os per second", format!("{all:.1}")),
        ("share of reads", percent(p.read_share())),
        ("mean size", size),
        ("sequential", percent(sequential)),
        ("idle", percent(p.idle_share())),
        ("depth while busy", depth),
    ];
    for (name, v) in ["latency p50", "latency p99", "latency p99.9"]
        .into_iter()
        .zip(p.latency_ns)
    {
        rows.extend(v.map(|v| (name, Nanos(v).to_string())));
    }
    if p.lost > 0 {
        rows.push(("events lost", p.lost.to_string()));
    }
    rows
}

impl ExperimentResult for Profile {
    const EXPERIMENT: &'static str = "watch";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        shown.sections.push(section(self));
    }
}

fn section(p: &Profile) -> Section {
    let share = |of: &[(u32, u64)]| -> Vec<(f64, f64)> {
        let total = of.iter().map(|d| d.1).sum::<u64>().max(1) as f64;
        of.iter()
            .map(|(d, n)| (f64::from(*d), 100.0 * *n as f64 / total))
            .collect()
    };
    let labels: Vec<String> = p.sizes.keys().map(|s| Bytes(*s).to_string()).collect();
    let bars = |op: usize| -> Vec<Point> {
        p.sizes
            .values()
            .enumerate()
            .map(|(i, n)| Point {
                x: i as f64,
                y: Some(n[op] as f64),
                ..Point::default()
            })
            .collect()
    };
    let mut flags = Vec::new();
    if p.lost > 0 {
        flags.push(Flag::new(
            FlagCode::LogLostRecords,
            format!(
                "{} events were lost: rates are too low, depths uncertain",
                p.lost
            ),
            "watch one device instead of all",
        ));
    }
    flags.extend(p.missing.iter().map(|m| {
        Flag::new(
            FlagCode::NotChecked,
            m.clone(),
            "run as root, with tracefs mounted",
        )
    }));
    Section {
        id: "watch".into(),
        title: "The workload".into(),
        text: format!(
            "Read only: nothing was written to the system. Depth by time counts the idle time, depth by I/O is what each I/O found, itself counted.{}",
            p.missing
                .iter()
                .fold(String::new(), |t, m| format!("{t} Not seen: {m}."))
        ),
        charts: vec![
            line_chart(
                "watch-depth",
                "Outstanding I/Os",
                axis("outstanding I/Os", "", false),
                axis("share", "%", false),
                vec![
                    ("by time".into(), share(&p.depth_by_time)),
                    ("by I/O".into(), share(&p.depth_by_io)),
                ],
            ),
            Chart {
                categories: labels,
                ..parts::chart(
                    "watch-sizes",
                    "Sizes",
                    ChartKind::Bar,
                    axis("size", "", false),
                    axis("I/Os", "", false),
                    vec![
                        parts::series("reads", bars(0)),
                        parts::series("writes", bars(1)),
                    ],
                )
            },
        ],
        tables: vec![
            parts::facts(
                "watch-table",
                "Profile",
                facts(p).into_iter().map(|(w, v)| (w, v.into())).collect(),
            ),
            parts::table(
                "watch-idle",
                "Idle gaps",
                &p.idle,
                &[
                    ("up to", "ns", &|g| (g.0 as f64).into()),
                    ("gaps", "", &|g| (g.1 as f64).into()),
                    ("in all", "s", &|g| (g.2 as f64 / 1e9).into()),
                ],
            ),
            parts::table(
                "watch-bursts",
                "Bursts (I/Os with less than 1 ms of idle between them)",
                &p.bursts,
                &[
                    ("I/Os, up to", "", &|b| (b.0 as f64).into()),
                    ("bursts", "", &|b| (b.1 as f64).into()),
                ],
            ),
        ],
        flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_by_time_and_by_io_are_two_different_numbers() {
        let mut c = Collector::new("test", 0);
        // Four at once for 1 µs, then idle for 9 µs, ten times.
        for round in 0..10u64 {
            let t = round * 10_000;
            for i in 0..4 {
                c.start(t, 1, Op::Read, (round * 4 + i) * 8192, 4096);
            }
            for i in 0..4 {
                c.end(t + 1000, 1, (round * 4 + i) * 8192, 4096);
            }
        }
        let p = c.finish(100_000);
        assert_eq!(p.idle_share(), Some(0.9));
        assert_eq!(p.busy_depth(), Some(4.0));
        assert_eq!(p.depth_by_io, [(1, 10), (2, 10), (3, 10), (4, 10)]);
        assert_eq!(p.ios, [40, 0, 0, 0]);
        assert_eq!((p.sequential, p.latency_ns[0]), (0, Some(1000)));
        assert_eq!(p.bursts, [(64, 1)], "9 µs do not end a burst");
    }

    #[test]
    fn streams_beside_each_other_are_sequential_and_merged_requests_end_all_their_ios() {
        let mut c = Collector::new("test", 0);
        for i in 0..100u64 {
            for stream in 0..3u64 {
                c.start(i * 1000, 1, Op::Write, (stream << 30) + i * 65_536, 65_536);
            }
        }
        assert_eq!(c.outstanding(), 300);
        for stream in 0..3u64 {
            c.end(200_000, 1, stream << 30, 100 * 65_536);
        }
        assert_eq!(c.outstanding(), 0);
        let p = c.finish(1_000_000);
        assert_eq!(p.sequential, 297);
        assert_eq!(p.sizes[&65_536], [0, 300]);
        assert_eq!(p.read_share(), Some(0.0));
    }

    #[test]
    fn bursts_end_with_a_millisecond_of_idle() {
        let mut c = Collector::new("test", 0);
        let mut t = 0;
        for burst in 0..8u64 {
            for i in 0..5 {
                c.start(t, 1, Op::Read, (burst * 5 + i) << 20, 4096);
                t += 10_000;
                c.end(t, 1, (burst * 5 + i) << 20, 4096);
            }
            t += 5_000_000;
        }
        let p = c.finish(t);
        assert_eq!(p.bursts, [(8, 8)]);
        let long: u64 = p.idle.iter().filter(|g| g.0 > 4_000_000).map(|g| g.1).sum();
        assert_eq!(long, 7);
    }

    #[test]
    fn a_curve_is_weighted_by_the_time_at_each_depth() {
        let at = |depth: f64, iops: f64| (depth, Estimate::single(iops));
        let curve = vec![at(1.0, 10_000.0), at(4.0, 40_000.0), at(64.0, 160_000.0)];
        let profile = Profile {
            depth_by_time: vec![(0, 900), (1, 50), (2, 25), (4, 25)],
            ..Profile::default()
        };
        // Idle time does not count; between points the curve is a line of logarithms.
        let e = weigh(curve.clone(), &profile).unwrap();
        assert!(
            (e.value - (0.5 * 1e4 + 0.25 * 2e4 + 0.25 * 4e4)).abs() < 1.0,
            "{e:?}"
        );
        let mut shown = Shown::default();
        add_weighted(e, vec![3], &profile, &mut shown);
        assert!(shown.headlines.iter().any(|h| h.id == "my-workload-iops"));
        assert!(weigh(curve, &Profile::default()).is_none());
    }
}

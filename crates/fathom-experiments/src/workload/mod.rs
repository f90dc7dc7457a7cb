//! The profile of a live workload: sizes, share of reads, sequentiality, depth by time and by I/O, idle gaps,
//! bursts; and a device's curve weighted by it: one number for "my workload".

mod profile;

use std::collections::BTreeMap;

use fathom_bench::parts::{self, axis, line_chart};
use fathom_bench::results::{self, Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Headline, Point, Section};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use crate::curve::CurveResult;
use crate::survey::SurveyResult;
pub use profile::{Collector, Ended, PROFILE, Profile};

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
        shown.findings.push(in_a_sentence(self));
    }
}

/// What kind of load it was.
fn in_a_sentence(p: &Profile) -> Finding {
    let seconds = p.wall_ns.max(1) as f64 / 1e9;
    let data = p.data_ios();
    let text = match data {
        0 => format!("No read and no write was seen in {seconds:.1} s."),
        _ => {
            let sequential = p.sequential as f64 / data as f64;
            let order = match sequential {
                s if s >= 0.9 => "in sequence",
                s if s <= 0.1 => "at random",
                _ => "partly in sequence",
            };
            let what = match p.read_share().unwrap_or_default() {
                s if s >= 0.99 => "Reads".to_owned(),
                s if s <= 0.01 => "Writes".to_owned(),
                s => format!("{:.0} % reads among writes", 100.0 * s),
            };
            let depth = p.busy_depth().map_or(String::new(), |d| {
                format!(", {d:.1} outstanding while busy")
            });
            let idle = p.idle_share().map_or(String::new(), |i| {
                format!(", idle {:.0} % of the time", 100.0 * i)
            });
            format!(
                "{what} {order}, {} each on average, {:.0} a second{depth}{idle}.",
                Bytes((p.bytes[0] + p.bytes[1]) / data),
                data as f64 / seconds
            )
        }
    };
    Finding {
        id: "watch-load".into(),
        text,
        confidence: if p.lost > 0 { "moderate" } else { "strong" }.into(),
        evidence: vec!["watch-table".into()],
        refuted_by: "Another profile at another hour: this is what was seen in this time.".into(),
        ..Finding::default()
    }
}

fn section(p: &Profile) -> Section {
    let share = |of: &[(u32, u64)]| -> Vec<(f64, f64)> {
        let total = of.iter().map(|d| d.1).sum::<u64>().max(1) as f64;
        of.iter()
            .map(|(d, n)| (f64::from(*d), 100.0 * *n as f64 / total))
            .collect()
    };
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
            sizes(p),
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
        flags: not_seen(p),
    }
}

/// How many requests of each size there were.
fn sizes(p: &Profile) -> Chart {
    let bars = |op: usize| {
        let bar = |(i, n): (usize, &[u64; 2])| Point {
            x: i as f64,
            y: Some(n[op] as f64),
            ..Point::default()
        };
        p.sizes.values().enumerate().map(bar).collect()
    };
    Chart {
        categories: p.sizes.keys().map(|s| Bytes(*s).to_string()).collect(),
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
    }
}

/// What the profile lacks.
fn not_seen(p: &Profile) -> Vec<Flag> {
    let lost = (p.lost > 0).then(|| {
        Flag::new(
            FlagCode::LogLostRecords,
            format!(
                "{} events were lost: rates are too low, depths uncertain",
                p.lost
            ),
            "watch one device instead of all",
        )
    });
    let missing = p.missing.iter().map(|m| {
        Flag::new(
            FlagCode::NotChecked,
            m.clone(),
            "run as root, with tracefs mounted",
        )
    });
    lost.into_iter().chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use fathom_telemetry::Op;

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

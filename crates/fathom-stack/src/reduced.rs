//! The lowest rung: what the system tells anyone. CPU time and run-queue wait of the job's threads from
//! `/proc/self/task/*/schedstat`, the requests' lifetime from the disk's counters.

use std::collections::BTreeMap;

use fathom_telemetry::schema::{DeviceDelta, Job};

use crate::layer::{Layer, Owner};

/// Fewer I/Os leave the disk's counters (whole milliseconds) too coarse.
pub const IOS_MIN: u64 = 20_000;

/// A reading of the job's threads: on the processor, and waiting for one, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sched {
    /// On a processor.
    pub on_cpu: u64,
    /// Ready to run, waiting for one.
    pub waiting: u64,
}

/// Takes readings while a job runs; its threads are gone afterwards.
#[derive(Debug)]
pub struct SchedWatch {
    prefix: String,
    first: Option<(u64, BTreeMap<u32, Sched>)>,
    last: Option<(u64, BTreeMap<u32, Sched>)>,
}

impl SchedWatch {
    /// For the threads of this process whose names begin with `prefix`.
    pub fn new(prefix: String) -> Self {
        Self {
            prefix,
            first: None,
            last: None,
        }
    }

    /// Reads now; `ios` completed so far.
    pub fn read(&mut self, ios: u64) {
        let now = threads(&self.prefix);
        if now.is_empty() || ios == 0 {
            return;
        }
        match &self.first {
            None => self.first = Some((ios, now)),
            Some(_) => self.last = Some((ios, now)),
        }
    }

    /// Mean per I/O between the first and the last reading, ns: on the processor, and waiting for one.
    pub fn per_io(&self) -> Option<(f64, f64)> {
        let ((n0, a), (n1, b)) = (self.first.as_ref()?, self.last.as_ref()?);
        let ios = n1.checked_sub(*n0).filter(|n| *n >= 1000)? as f64;
        let (mut on, mut wait) = (0u64, 0u64);
        for (tid, end) in b {
            let begin = a.get(tid).copied().unwrap_or_default();
            on += end.on_cpu.saturating_sub(begin.on_cpu);
            wait += end.waiting.saturating_sub(begin.waiting);
        }
        Some((on as f64 / ios, wait as f64 / ios))
    }
}

/// The threads of this process with such names.
fn threads(prefix: &str) -> BTreeMap<u32, Sched> {
    std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| {
            let tid = e.file_name().to_str()?.parse().ok()?;
            let name = std::fs::read_to_string(e.path().join("comm")).ok()?;
            if !name.starts_with(prefix) {
                return None;
            }
            Some((
                tid,
                parse(&std::fs::read_to_string(e.path().join("schedstat")).ok()?)?,
            ))
        })
        .collect()
}

fn parse(text: &str) -> Option<Sched> {
    let mut n = text.split_whitespace().map(str::parse);
    Some(Sched {
        on_cpu: n.next()?.ok()?,
        waiting: n.next()?.ok()?,
    })
}

/// What the lowest rung says of a case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reduced {
    /// Few layers; they add up to the application's mean.
    pub layers: Vec<Layer>,
    /// Processor time per I/O, ns.
    pub cpu_per_io_ns: Option<f64>,
    /// What could not be said, and why.
    pub withheld: Vec<String>,
}

/// Mean lifetime of the job's requests, ns, where the disk served the job alone.
fn lifetime(job: &Job, device: &DeviceDelta) -> Result<f64, String> {
    let own = |d: &Option<fathom_telemetry::schema::Direction>| d.as_ref().map_or(0, |d| d.ios);
    let (reads, writes) = (own(&job.read), own(&job.write));
    let (ios, seen, ticks) = if writes == 0 {
        (reads, device.read_ios, device.read_ticks_ms)
    } else {
        (writes, device.write_ios, device.write_ticks_ms)
    };
    if ios < IOS_MIN {
        return Err(format!(
            "the request lifetime is withheld: {ios} I/Os, and whole milliseconds need {IOS_MIN}; use a longer --time"
        ));
    }
    // Of I/Os under way at the edges one or the other may be counted outside.
    let slack = 2 + u64::from(job.qd_requested);
    if seen.abs_diff(ios) > slack {
        return Err(format!(
            "the request lifetime is withheld: the disk counted {seen} requests, the job made {ios} I/Os"
        ));
    }
    Ok(ticks as f64 * 1e6 / seen as f64)
}

/// Splits `mean_ns` as far as anyone may know. `single`: one outstanding I/O per thread.
pub fn reduced(job: &Job, mean_ns: f64, watch: &SchedWatch, single: bool) -> Reduced {
    let mut out = Reduced::default();
    let mut rest = mean_ns;
    let row = |name: &str, ns: f64, owner: Owner, rest: &mut f64| {
        *rest -= ns;
        Layer {
            name: name.into(),
            mean_ns: ns,
            p50_ns: None,
            p99_ns: None,
            share: ns / mean_ns,
            owner,
            ios: 0,
            distribution: Vec::new(),
        }
    };
    match job.device.as_ref() {
        None => out
            .withheld
            .push("no disk's counters are known for this target".into()),
        Some(device) => match lifetime(job, device) {
            Ok(ns) if ns <= mean_ns => out.layers.push(row(
                "request lifetime (block layer, driver, device, interrupt)",
                ns,
                Owner::Device,
                &mut rest,
            )),
            Ok(ns) => out.withheld.push(format!(
                "the request lifetime is withheld: {ns:.0} ns is more than the application waited"
            )),
            Err(why) => out.withheld.push(why),
        },
    }
    match watch.per_io() {
        Some((on, wait)) => {
            out.cpu_per_io_ns = Some(on);
            if single && wait < rest {
                out.layers.push(row("ready, waiting for a processor", wait, Owner::Kernel, &mut rest));
            }
        }
        None => out.withheld.push("processor time of the threads: /proc/self/task/*/schedstat is missing or the job was too short".into()),
    }
    let name = if out.layers.is_empty() {
        "everything"
    } else {
        "application, system call, file system, return"
    };
    let all = rest;
    out.layers.push(row(name, all, Owner::Kernel, &mut rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::schema::Direction;

    fn job(ios: u64, seen: u64) -> Job {
        let json = serde_json::json!({
            "name": "j", "experiment": "", "repeat": 0, "spec": {}, "engine": "uring", "engine_notes": [],
            "start_ns": 0, "wall_ns": 1, "cpu_ns": 0, "cpu_user_ns": 0, "qd_requested": 1, "qd_achieved": 1.0,
            "qd_distribution": [], "read": null, "write": null, "trim": null, "sync": null, "open_loop": null,
            "device": null, "errors": [], "flags": []
        });
        let mut j: Job = serde_json::from_value(json).unwrap();
        j.read = Some(Direction {
            ios,
            ..Direction::default()
        });
        j.device = Some(DeviceDelta {
            read_ios: seen,
            read_ticks_ms: 1000,
            ..DeviceDelta::default()
        });
        j
    }

    #[test]
    fn the_lifetime_is_told_only_where_the_disk_served_the_job_alone() {
        let watch = SchedWatch::new("io".into());
        let good = reduced(&job(25_000, 25_001), 60_000.0, &watch, true);
        assert!((good.layers[0].mean_ns - 1e9 / 25_001.0).abs() < 1.0);
        let sum: f64 = good.layers.iter().map(|l| l.mean_ns).sum();
        assert!((sum - 60_000.0).abs() < 1e-6);
        for bad in [job(25_000, 26_000), job(100, 100)] {
            let r = reduced(&bad, 60_000.0, &watch, true);
            assert_eq!(r.layers.len(), 1);
            assert!(r.withheld[0].contains("withheld"), "{:?}", r.withheld);
        }
    }

    #[test]
    fn schedstat_is_two_times_and_a_count() {
        assert_eq!(
            parse("12 34 5\n"),
            Some(Sched {
                on_cpu: 12,
                waiting: 34
            })
        );
        assert_eq!(parse("x"), None);
    }
}

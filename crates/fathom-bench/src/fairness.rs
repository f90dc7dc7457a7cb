//! How evenly hosts share a job, and hosts that do less than the others.

use fathom_stats::Estimate;
use fathom_stats::scalability::{apart, jain};
use fathom_telemetry::schema::{Finding, HostShare, Job};

use crate::cells::Cell;

/// A host is a straggler from so much less than the others on, as a share.
const BEHIND: f64 = 0.05;

/// A host that did less than the others.
#[derive(Debug, PartialEq)]
pub struct Straggler {
    host: String,
    /// What it did, as a share of what the others did on average.
    share: Estimate,
    /// Share of the windows in which it did least of all.
    slowest: f64,
}

/// What each host did of a job: bytes, or operations where none moves any.
pub fn work(job: &Job) -> Vec<f64> {
    let bytes = job.hosts.iter().any(|h| h.bytes > 0);
    let of = |h: &HostShare| if bytes { h.bytes } else { h.ios };
    job.hosts.iter().map(|h| of(h) as f64).collect()
}

/// Those of repeats in which all hosts ran: less than the others by more than chance, and by enough to matter.
pub fn stragglers(cell: &Cell) -> Vec<Straggler> {
    let width = cell.spec.window.0.max(1);
    let usable = |j: &&Job| work(j).iter().all(|did| *did > 0.0);
    let jobs: Vec<&Job> = cell.valid().filter(usable).collect();
    let rounds = jobs
        .iter()
        .map(|j| work(j).into_iter().map(f64::ln).collect::<Vec<f64>>());
    let apart = apart(&rounds.collect::<Vec<_>>());
    let mut found = Vec::new();
    for (h, log) in apart.into_iter().enumerate() {
        if log.high.is_none_or(|high| high >= 0.0) || log.value.exp() > 1.0 - BEHIND {
            continue;
        }
        let slowest: u64 = jobs.iter().map(|j| j.hosts[h].slowest_windows).sum();
        let windows: u64 = jobs.iter().map(|j| j.wall_ns / width).sum();
        found.push(Straggler {
            host: jobs[0].hosts[h].host.clone(),
            share: Estimate {
                value: log.value.exp(),
                low: log.low.map(f64::exp),
                high: log.high.map(f64::exp),
                ..log
            },
            slowest: slowest as f64 / windows.max(1) as f64,
        });
    }
    found.sort_by(|a, b| a.share.value.total_cmp(&b.share.value));
    found
}

/// Jain's index of what hosts did: 1 is even, one over their number is one that does all.
pub fn fairness(cell: &Cell) -> Option<Estimate> {
    let even = cell.estimate(|j| jain(&work(j)));
    even.map(|e| Estimate {
        // It is no more than 1.
        high: e.high.map(|h| h.min(1.0)),
        ..e
    })
}

/// What the slowest did of the fastest, mean over repeats.
pub fn slowest_to_fastest(cell: &Cell) -> Option<f64> {
    let of = |j: &Job| {
        let all = work(j).into_iter();
        let (low, high) = all.fold((f64::MAX, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
        (high > 0.0).then(|| low / high)
    };
    cell.estimate(of).map(|e| e.value)
}

/// The finding on a straggler; `of` begins the names of the experiment's findings and of its table.
pub fn behind(s: &Straggler, cell: &Cell, of: &str) -> Finding {
    let percent = |v: f64| format!("{:.0}", 100.0 * (1.0 - v));
    let interval = match (s.share.low, s.share.high) {
        (Some(low), Some(high)) => format!(" ({} to {})", percent(high), percent(low)),
        _ => String::new(),
    };
    Finding {
        id: format!("{of}-straggler-{}", s.host),
        text: format!(
            "{} did {} %{interval} less than the other hosts, and least of all in {:.0} % of the time.",
            s.host,
            percent(s.share.value),
            100.0 * s.slowest
        ),
        advice: format!(
            "compare the network, processors and mount options of {} with those of another host, and run fathom stack there",
            s.host
        ),
        confidence: "strong".into(),
        jobs: cell.indices(),
        evidence: vec![format!("{of}-table")],
        refuted_by: "Another run in which it does as much as the others.".into(),
        ..Finding::default()
    }
}

//! A fleet's job becomes one job per host: rates and totals are split, seeds differ, ranges follow the layout.

use std::ops::Range;

use fathom_bench::schedule;
use fathom_io::JobSpec;
use fathom_io::driver::PlannedJob;
use fathom_io::job::{HostSpan, JobError, Limits};
use fathom_io::replay::{Playing, Share};
use fathom_telemetry::Bytes;

/// How hosts share what is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Each its own file, or what each has under the target's name.
    #[default]
    Own,
    /// One shared file, each a part of its own.
    Parts,
    /// One shared file, all over it.
    Shared,
    /// One shared file, each the part of the host after it: what no client's cache has.
    Neighbour,
}

impl Layout {
    /// Every word, for help and errors.
    pub const WORDS: [&'static str; 4] = ["own", "parts", "shared", "neighbour"];

    /// Whether one file is used by all.
    pub fn is_shared(self) -> bool {
        self != Self::Own
    }
}

impl std::str::FromStr for Layout {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "own" => Self::Own,
            "parts" => Self::Parts,
            "shared" => Self::Shared,
            "neighbour" => Self::Neighbour,
            _ => return Err(format!("'{text}' is not one of {}", Self::WORDS.join(", "))),
        })
    }
}

/// Which hosts of so many run a job, by their places.
pub(super) fn places(planned: &PlannedJob, hosts: usize) -> Range<usize> {
    let named = planned.job.spec.on_hosts.map(HostSpan::places);
    named.unwrap_or(0..hosts)
}

/// What one host does of a job.
pub(super) struct Part<'a> {
    /// The fleet's job.
    pub(super) planned: &'a PlannedJob,
    /// The host's.
    pub(super) spec: JobSpec,
    /// What it plays.
    pub(super) playing: Option<Playing>,
}

/// The jobs of a group that are one host's, each with its part of it.
///
/// # Errors
/// What cannot be split, or sent to hosts.
pub(super) fn of_host<'a>(
    jobs: &'a [PlannedJob],
    (host, name): (usize, &str),
    hosts: usize,
    layout: Layout,
    limits: Limits,
) -> Result<Vec<Part<'a>>, JobError> {
    let refused = |message| JobError::Value {
        option: "--hosts".into(),
        message,
    };
    let here = jobs.iter().map(|p| (p, places(p, hosts)));
    let here = here.filter(|(_, on)| on.contains(&host));
    here.map(|(p, on)| {
        possible(p, layout).map_err(refused)?;
        let place = host - on.start;
        let spec = share(&p.job.spec, (place, name), on.len(), layout, limits);
        let playing = p.job.feed.as_ref().map(|f| {
            let mut own = f.playing().clone();
            if let Share::Turns(..) = own.score.share {
                own.score.share = Share::Turns(place as u32, on.len() as u32);
            }
            own
        });
        Ok(Part {
            planned: p,
            spec: spec.map_err(refused)?,
            playing,
        })
    })
    .collect()
}

/// What cannot be sent to hosts.
fn possible(p: &PlannedJob, layout: Layout) -> Result<(), String> {
    let what = if p.guide.is_some() {
        "it is led from here, I/O by I/O"
    } else if p.job.feed.is_some() && matches!(layout, Layout::Parts | Layout::Neighbour) {
        "a trace has its own offsets: take --layout own or shared"
    } else {
        return Ok(());
    };
    Err(format!(
        "job '{}' cannot run on a fleet: {what}",
        p.job.spec.name
    ))
}

/// A fleet's job as one host does it. Depth, threads and the size of its own file are each host's.
///
/// # Errors
/// What cannot be split, as a sentence.
pub fn share(
    spec: &JobSpec,
    (host, name): (usize, &str),
    hosts: usize,
    layout: Layout,
    limits: Limits,
) -> Result<JobSpec, String> {
    let (i, n) = (host as u64, hosts as u64);
    let part = |what: &str, total: u64| {
        let mine = total / n + u64::from(i < total % n);
        match mine {
            0 => Err(format!(
                "{what}: {total} cannot be split over {n} hosts: ask for {n} or more"
            )),
            mine => Ok(mine),
        }
    };
    let mut own = spec.clone();
    own.on_hosts = None;
    own.seed = schedule::seed(spec.seed, "fleet", name, host as u32);
    own.rate = spec.rate.map(|r| r / n as f64);
    own.ios = spec.ios.map(|ios| part("ios", ios)).transpose()?;
    own.bytes = match spec.bytes {
        Some(total) => {
            // In whole blocks, of which the last one may be shorter.
            let block = spec.bs.max().0.max(1);
            let blocks = total.0.div_ceil(block);
            let over = if i + 1 == n {
                blocks * block - total.0
            } else {
                0
            };
            Some(Bytes(part("bytes", blocks)? * block - over))
        }
        None => None,
    };
    let which = match layout {
        Layout::Own | Layout::Shared => return Ok(own),
        Layout::Parts => i,
        Layout::Neighbour if spec.rw.reads() && spec.rw.modifies() => {
            return Err(format!(
                "rw: {} would write the part that its neighbour reads: measure reads and writes one after the other, or take --layout parts",
                spec.rw
            ));
        }
        Layout::Neighbour if spec.rw.reads() => (i + 1) % n,
        Layout::Neighbour => i,
    };
    let room = limits.size.saturating_sub(spec.offset.0);
    let range = spec.size.map_or(room, |s| s.0.min(room));
    let align = spec.align.unwrap_or_else(|| spec.bs.min()).0;
    let unit = spec
        .bs
        .max()
        .0
        .max(align)
        .max(u64::from(limits.direct_align))
        .max(1);
    let unit = unit.div_ceil(align.max(1)) * align.max(1);
    let units = range / unit;
    if units < n {
        return Err(format!(
            "size: {} has no part of {} for each of {n} hosts: give more --size",
            Bytes(range),
            Bytes(unit)
        ));
    }
    let edge = |k: u64| (u128::from(units) * u128::from(k) / u128::from(n)) as u64 * unit;
    let end = if which + 1 == n {
        range
    } else {
        edge(which + 1)
    };
    own.offset = Bytes(spec.offset.0 + edge(which));
    own.size = Some(Bytes(end - edge(which)));
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::job::Rw;

    const LIMITS: Limits = Limits {
        size: 1 << 30,
        direct_align: 4096,
        hosts: 1,
    };

    fn shares(spec: &JobSpec, n: usize, layout: Layout) -> Vec<JobSpec> {
        (0..n)
            .map(|i| share(spec, (i, &format!("h{i}")), n, layout, LIMITS).unwrap())
            .collect()
    }

    #[test]
    fn totals_and_rates_are_split_and_no_remainder_is_lost() {
        for n in 1..=7usize {
            let spec = JobSpec {
                rate: Some(1000.0),
                ios: Some(1003),
                bytes: Some(Bytes(10_000_001)),
                ..JobSpec::default()
            };
            let all = shares(&spec, n, Layout::Own);
            assert_eq!(all.iter().filter_map(|s| s.ios).sum::<u64>(), 1003);
            assert_eq!(
                all.iter().filter_map(|s| s.bytes).map(|b| b.0).sum::<u64>(),
                10_000_001
            );
            let rate: f64 = all.iter().filter_map(|s| s.rate).sum();
            assert!((rate - 1000.0).abs() < 1e-9);
            let mut seeds: Vec<u64> = all.iter().map(|s| s.seed).collect();
            seeds.dedup();
            assert_eq!(seeds.len(), n, "no two hosts draw the same offsets");
        }
        let few = JobSpec {
            ios: Some(3),
            ..JobSpec::default()
        };
        let said = share(&few, (3, "h3"), 4, Layout::Own, LIMITS).unwrap_err();
        assert!(said.contains("over 4 hosts"), "{said}");
    }

    #[test]
    fn parts_cover_the_range_once_and_a_neighbours_part_is_nobodys_twice() {
        for layout in [Layout::Parts, Layout::Neighbour] {
            for n in [1usize, 3, 7] {
                let spec = JobSpec {
                    offset: Bytes(4096),
                    ..JobSpec::default()
                };
                let all = shares(&spec, n, layout);
                let mut ranges: Vec<(u64, u64)> = all
                    .iter()
                    .map(|s| (s.offset.0, s.size.unwrap().0))
                    .collect();
                if layout == Layout::Neighbour && n > 1 {
                    assert!(ranges[0].0 > 4096 && ranges[n - 1].0 == 4096, "{ranges:?}");
                }
                ranges.sort_unstable();
                let mut at = 4096;
                for (start, length) in ranges {
                    assert_eq!((start, start % 4096), (at, 0));
                    at += length;
                }
                assert_eq!(at, LIMITS.size);
            }
        }
        let spec = JobSpec {
            rw: Rw::RandMixed,
            ..JobSpec::default()
        };
        assert!(share(&spec, (0, "h"), 2, Layout::Neighbour, LIMITS).is_err());
        let tiny = JobSpec {
            size: Some(Bytes(8192)),
            ..JobSpec::default()
        };
        assert!(share(&tiny, (0, "h"), 3, Layout::Parts, LIMITS).is_err());
    }
}

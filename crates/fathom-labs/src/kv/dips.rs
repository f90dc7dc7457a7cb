//! Times of a low rate that end again: a device that throttles when it is hot, collects its garbage, or a checkpoint.

use fathom_bench::parts::{number, table, text};
use fathom_stats::Estimate;
use fathom_stats::dips::{DEEP, dips, without_dips};
use fathom_telemetry::schema::{Finding, Table};

use super::Line;
use crate::loads::Course;

/// A smaller share of the time is not worth a finding.
const WORTH: f64 = 0.02;

/// What one repeat had.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Seen {
    /// Share of its time.
    share: f64,
    /// Rate in the deepest over the usual one.
    deepest: f64,
    /// Length of the longest, s.
    longest: f64,
    /// What the rate would have more without them, as a share.
    lost: f64,
}

/// Dips of the measured part of a repeat. What stays low to the end is no dip: the tree has grown, or the device has
/// found its steady state.
fn seen(course: &Course) -> Option<Seen> {
    let windows = course.measured();
    let each = course.step_ns as f64 / 1e9;
    let seconds = each * windows.len() as f64;
    let mut seen = Seen {
        deepest: 1.0,
        ..Seen::default()
    };
    let mut ended = dips(&windows);
    ended.retain(|d| d.at + d.windows < windows.len());
    seen.lost = without_dips(ended.iter().map(|d| (d.windows, d.level)), windows.len());
    for d in ended {
        let long = d.windows as f64 * each;
        seen.share += long / seconds;
        seen.deepest = seen.deepest.min(d.level);
        seen.longest = seen.longest.max(long);
    }
    (!windows.is_empty()).then_some(seen)
}

/// A line's dips over its repeats.
struct Dips {
    label: String,
    each: Vec<Seen>,
    jobs: Vec<usize>,
}

impl Dips {
    fn of(line: &Line) -> Self {
        Self {
            label: line.setting.label(),
            each: line
                .repeats
                .iter()
                .filter_map(|r| seen(&r.course))
                .collect(),
            jobs: line.jobs(),
        }
    }

    fn share(&self) -> f64 {
        self.each.iter().map(|s| s.share).sum::<f64>() / self.each.len().max(1) as f64
    }

    fn deepest(&self) -> f64 {
        self.each.iter().map(|s| s.deepest).fold(1.0, f64::min)
    }

    fn longest(&self) -> f64 {
        self.each.iter().map(|s| s.longest).fold(0.0, f64::max)
    }

    fn dipped(&self) -> usize {
        self.each.iter().filter(|s| s.share > 0.0).count()
    }

    /// Where at least half of its repeats dip.
    fn finding(&self) -> Option<Finding> {
        let worth = 2 * self.dipped() >= self.each.len().max(1) && self.share() >= WORTH;
        worth.then(|| Finding {
            id: format!("kv-dips-{}", self.label),
            text: format!(
                "{}: the rate spends {:.0} % of the time in dips, the deepest to {:.0} % of what is usual, the longest {:.1} s",
                self.label,
                self.share() * 100.0,
                self.deepest() * 100.0,
                self.longest()
            ),
            advice: "look at stalls in the table of waits; where there are none, watch the device's temperature (fathom devices), and measure again with more air".into(),
            confidence: "weak".into(),
            jobs: self.jobs.clone(),
            evidence: vec!["kv-dips".into(), "kv-over-time".into()],
            gain: Estimate::mean_of(&self.each.iter().map(|s| s.lost).collect::<Vec<_>>()),
            refuted_by: "Longer runs without them: --time 10m.".into(),
            ..Finding::default()
        })
    }
}

/// A table of all lines, and findings.
pub(super) fn report(lines: &[Line]) -> (Table, Vec<Finding>) {
    let all: Vec<Dips> = lines.iter().map(Dips::of).collect();
    let there = |d: &Dips, v: f64| number((d.dipped() > 0).then_some(v));
    let table = table(
        "kv-dips",
        &format!(
            "Dips: times below {:.0} % of the usual rate that a change-point test tells from noise, and that end again",
            DEEP * 100.0
        ),
        &all,
        &[
            ("workload", "", &|d| text(&d.label)),
            ("time in dips", "%", &|d| {
                number((!d.each.is_empty()).then_some(d.share() * 100.0))
            }),
            ("deepest, of the usual rate", "%", &|d| {
                there(d, d.deepest() * 100.0)
            }),
            ("longest", "s", &|d| there(d, d.longest())),
        ],
    );
    (table, all.iter().filter_map(Dips::finding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_stats::rng::SplitMix64;
    use fathom_telemetry::Nanos;

    /// Steps of a tenth of a second, the first 50 of which are the ramp.
    fn course(n: usize, of: impl Fn(usize) -> f64) -> Course {
        let mut random = SplitMix64::new(7);
        let rates: Vec<(f64, f64)> = (0..n)
            .map(|i| {
                (
                    (i + 1) as f64 / 10.0,
                    of(i) * (10.0 + 0.5 * random.normal()),
                )
            })
            .collect();
        Course::of_rates(&rates, Nanos::from_secs(5))
    }

    #[test]
    fn a_device_that_throttles_for_two_of_twenty_seconds_is_seen() {
        // Ramp of 5 s, which does not count; then 20 s.
        let c = course(250, |i| {
            if (10..30).contains(&i) || (150..170).contains(&i) {
                20.0
            } else {
                100.0
            }
        });
        let seen = seen(&c).unwrap();
        assert!((seen.share - 0.1).abs() < 0.03, "{seen:?}");
        assert!((seen.deepest - 0.2).abs() < 0.1, "{seen:?}");
        assert!((seen.longest - 2.0).abs() < 0.5, "{seen:?}");
        // A tenth of the time at a fifth of the rate: 92 % of what there would be.
        assert!((seen.lost - 0.08 / 0.92).abs() < 0.03, "{seen:?}");
    }

    #[test]
    fn hours_are_looked_at_in_coarser_windows_and_a_lasting_decline_is_no_dip() {
        let c = course(36_000, |i| if i < 20_000 { 100.0 } else { 30.0 });
        assert_eq!(seen(&c).unwrap().share, 0.0);
        let c = course(36_000, |i| {
            if (9000..10_000).contains(&i) {
                10.0
            } else {
                100.0
            }
        });
        let seen = seen(&c).unwrap();
        assert!((seen.longest - 100.0).abs() < 15.0, "{seen:?}");
    }
}

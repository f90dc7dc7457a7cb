//! Times of a low rate that end again: a device that throttles when it is hot, collects its garbage, or a checkpoint.

use fathom_experiments::parts::{column, number};
use fathom_stats::Estimate;
use fathom_stats::dips::{DEEP, dips, without_dips};
use fathom_telemetry::schema::{Cell as TableCell, Finding, Table};

use super::results::label;
use super::{Cell, Repeat};

/// Windows of a repeat at most, so that hours are looked at as quickly as seconds.
const WINDOWS: usize = 600;
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
fn seen(series: &[(f64, f64)], seconds: f64) -> Option<Seen> {
    let end = series.last()?.0;
    let measured: Vec<f64> = series
        .iter()
        .filter(|(at, _)| *at > end - seconds)
        .map(|(_, rate)| *rate)
        .collect();
    let step = measured.len().div_ceil(WINDOWS).max(1);
    let windows: Vec<f64> = measured
        .chunks_exact(step)
        .map(|c| c.iter().sum::<f64>() / step as f64)
        .collect();
    let each = seconds / windows.len().max(1) as f64;
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
    Some(seen)
}

/// A table of all lines, and a finding for each whose rate dips in at least half of its repeats.
pub(super) fn report(cells: &[Cell], all: &[Vec<Repeat>]) -> (Table, Vec<Finding>) {
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    for (cell, repeats) in cells.iter().zip(all) {
        let each: Vec<Seen> = repeats
            .iter()
            .filter_map(|r| seen(&r.outcome.series, r.outcome.seconds))
            .collect();
        let n = each.len() as f64;
        let share = each.iter().map(|s| s.share).sum::<f64>() / n;
        let deepest = each.iter().map(|s| s.deepest).fold(1.0, f64::min);
        let longest = each.iter().map(|s| s.longest).fold(0.0, f64::max);
        let dipped = each.iter().filter(|s| s.share > 0.0).count();
        let there = |v: f64| number((dipped > 0).then_some(v));
        rows.push(vec![
            TableCell::Text(label(cell)),
            number((!each.is_empty()).then_some(share * 100.0)),
            there(deepest * 100.0),
            there(longest),
        ]);
        if 2 * dipped >= each.len().max(1) && share >= WORTH {
            findings.push(Finding {
                id: format!("kv-dips-{}", label(cell)),
                text: format!(
                    "{}: the rate spends {:.0} % of the time in dips, the deepest to {:.0} % of what is usual, the longest {longest:.1} s",
                    label(cell),
                    share * 100.0,
                    deepest * 100.0
                ),
                advice: "look at stalls in the table of waits; where there are none, watch the device's temperature (fathom devices), and measure again with more air".into(),
                confidence: "weak".into(),
                jobs: Vec::new(),
                evidence: vec!["kv-dips".into(), "kv-over-time".into()],
                gain: Estimate::mean_of(&each.iter().map(|s| s.lost).collect::<Vec<_>>()),
                refuted_by: "Longer runs without them: --time 10m.".into(),
            });
        }
    }
    let table = Table {
        id: "kv-dips".into(),
        title: format!(
            "Dips: times below {:.0} % of the usual rate that a change-point test tells from noise, and that end again",
            DEEP * 100.0
        ),
        columns: vec![
            column("workload", ""),
            column("time in dips", "%"),
            column("deepest, of the usual rate", "%"),
            column("longest", "s"),
        ],
        rows,
    };
    (table, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_stats::rng::SplitMix64;

    fn series(n: usize, of: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
        let mut random = SplitMix64::new(7);
        (0..n)
            .map(|i| (i as f64 / 10.0, of(i) * (1.0 + 0.05 * random.normal())))
            .collect()
    }

    #[test]
    fn a_device_that_throttles_for_two_of_twenty_seconds_is_seen() {
        // Ramp of 5 s, which does not count; then 20 s.
        let s = series(250, |i| {
            if (10..30).contains(&i) || (150..170).contains(&i) {
                20.0
            } else {
                100.0
            }
        });
        let seen = seen(&s, 20.0).unwrap();
        assert!((seen.share - 0.1).abs() < 0.03, "{seen:?}");
        assert!((seen.deepest - 0.2).abs() < 0.1, "{seen:?}");
        assert!((seen.longest - 2.0).abs() < 0.5, "{seen:?}");
        // A tenth of the time at a fifth of the rate: 92 % of what there would be.
        assert!((seen.lost - 0.08 / 0.92).abs() < 0.03, "{seen:?}");
    }

    #[test]
    fn hours_are_looked_at_in_coarser_windows_and_a_lasting_decline_is_no_dip() {
        let s = series(36_000, |i| if i < 20_000 { 100.0 } else { 30.0 });
        assert_eq!(seen(&s, 3600.0).unwrap().share, 0.0);
        let s = series(36_000, |i| {
            if (9000..10_000).contains(&i) {
                10.0
            } else {
                100.0
            }
        });
        let seen = seen(&s, 3600.0).unwrap();
        assert!((seen.longest - 100.0).abs() < 15.0, "{seen:?}");
    }
}

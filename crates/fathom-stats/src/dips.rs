//! Dips of a rate, told apart from noise: runs of windows in which it lies far below what is usual.
//!
//! A dip is a segment between jumps of the level ([`crate::change_point`]) that is at least so deep. Single low windows
//! are noise by that test, however low; a rate that scatters widely has no dips.

use serde::{Deserialize, Serialize};

use crate::autocorrelation::median;
use crate::change_point::change_points;

/// A rate below this share of the usual one is a dip.
pub const DEEP: f64 = 0.7;

/// A run of windows with a low rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Dip {
    /// Its first window.
    pub at: usize,
    /// Windows that it lasts, at least two.
    pub windows: usize,
    /// Mean rate in it over the usual one (the median of all windows).
    pub level: f64,
}

/// How much higher the rate would be without dips (windows that each lasts, and its level) in a series of `windows`, as a
/// share of what it is.
pub fn without_dips(dips: impl Iterator<Item = (usize, f64)>, windows: usize) -> f64 {
    let lost: f64 = dips.map(|(n, level)| n as f64 * (1.0 - level)).sum();
    let share = lost / windows.max(1) as f64;
    share / (1.0 - share)
}

/// The dips of a series of equal windows, in order; empty where there are fewer than twelve windows.
pub fn dips(rates: &[f64]) -> Vec<Dip> {
    const LEAST: usize = 12;
    if rates.len() < LEAST {
        return Vec::new();
    }
    let usual = median(&mut rates.to_vec()).unwrap_or(0.0);
    if usual <= 0.0 {
        return Vec::new();
    }
    let jumps = change_points(rates);
    let mut bounds = vec![0];
    bounds.extend(jumps.iter().map(|j| j.at));
    bounds.push(rates.len());
    let mut found: Vec<Dip> = Vec::new();
    for w in bounds.windows(2) {
        let (at, windows) = (w[0], w[1] - w[0]);
        let mean = rates[w[0]..w[1]].iter().sum::<f64>() / windows.max(1) as f64;
        let level = mean / usual;
        if level >= DEEP {
            continue;
        }
        match found.last_mut() {
            // Two low levels in a row are one dip.
            Some(d) if d.at + d.windows == at => {
                let sum = d.level * d.windows as f64 + level * windows as f64;
                d.windows += windows;
                d.level = sum / d.windows as f64;
            }
            _ => found.push(Dip { at, windows, level }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn noisy(n: usize, spread: f64, seed: u64) -> Vec<f64> {
        let mut r = SplitMix64::new(seed);
        (0..n)
            .map(|_| 100.0 * (1.0 + spread * r.normal()).max(0.0))
            .collect()
    }

    #[test]
    fn a_planted_dip_is_found_where_it_is_and_as_deep() {
        let found = (0..100)
            .filter(|seed| {
                let mut x = noisy(100, 0.1, *seed);
                x[40..50].iter_mut().for_each(|v| *v *= 0.3);
                let all = dips(&x);
                all.len() == 1
                    && all[0].at.abs_diff(40) <= 1
                    && all[0].windows.abs_diff(10) <= 2
                    && (all[0].level - 0.3).abs() < 0.1
            })
            .count();
        assert!(found >= 95, "{found} of 100");
    }

    #[test]
    fn noise_has_no_dips_and_single_low_windows_are_noise() {
        for spread in [0.05, 0.2, 0.4] {
            let quiet = (0..100).filter(|s| dips(&noisy(100, spread, 1000 + s)).is_empty());
            let n = quiet.count();
            assert!(n >= 95, "{spread}: {n} of 100");
        }
        let mut x = noisy(60, 0.05, 5);
        x[30] = 1.0;
        assert!(dips(&x).is_empty());
    }

    #[test]
    fn stops_without_noise_and_short_series_are_no_trouble() {
        let mut x = vec![50.0; 40];
        x[10..14].fill(0.0);
        let all = dips(&x);
        assert_eq!(
            all,
            [Dip {
                at: 10,
                windows: 4,
                level: 0.0
            }]
        );
        assert!(dips(&[1.0, 0.0, 1.0]).is_empty() && dips(&[0.0; 30]).is_empty());
    }
}

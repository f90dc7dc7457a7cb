//! Intervals by resampling, seeded so that a verdict can be repeated.
//!
//! The studentized bootstrap (Efron and Tibshirani 1993, chapter 12) keeps its promise
//! with the handful of blocks that an A/B run has; the percentile one does not.

use crate::Estimate;
use crate::rng::SplitMix64;

/// Resamples behind an interval.
pub const RESAMPLES: usize = 4_000;

/// Mean of independent values with a 95 % studentized bootstrap interval; `None` for an empty slice.
///
/// With fewer than five values resampling has too few distinct outcomes; Student's t then stands in.
pub fn bootstrap_mean(x: &[f64], seed: u64) -> Option<Estimate> {
    let n = x.len();
    let t = Estimate::mean_of(x)?;
    let (mean, error) = mean_and_error(x.iter().copied(), n);
    if n < 5 || error <= 0.0 || !error.is_finite() {
        return Some(t);
    }
    let mut random = SplitMix64::new(seed);
    let mut draw = vec![0.0; n];
    let mut studentized = Vec::with_capacity(RESAMPLES);
    while studentized.len() < RESAMPLES {
        draw.iter_mut().for_each(|d| *d = x[random.below(n)]);
        let (m, e) = mean_and_error(draw.iter().copied(), n);
        // A draw of one value only has no spread: as extreme as can be, on its side.
        studentized.push(if e > 0.0 {
            (m - mean) / e
        } else {
            (m - mean) * f64::MAX.sqrt()
        });
    }
    studentized.sort_unstable_by(f64::total_cmp);
    let quantile = |q: f64| studentized[(q * (RESAMPLES - 1) as f64).round() as usize];
    // With few values a tail can be hit by draws of one value: Student's t bounds it.
    let widest = 3.0 * t.high.map_or(f64::INFINITY, |h| h - mean);
    Some(Estimate {
        value: mean,
        low: Some(mean - (quantile(0.975) * error).min(widest)),
        high: Some(mean - (quantile(0.025) * error).max(-widest)),
        samples: n as u32,
    })
}

/// Any statistic of independent values with a 95 % percentile bootstrap interval; `None` where the statistic has none.
pub fn bootstrap_percentile(
    x: &[f64],
    seed: u64,
    statistic: impl Fn(&[f64]) -> Option<f64>,
) -> Option<Estimate> {
    let value = statistic(x)?;
    if x.len() < 2 {
        return Some(Estimate::single(value));
    }
    let mut random = SplitMix64::new(seed);
    let mut draw = vec![0.0; x.len()];
    let mut values: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            draw.iter_mut().for_each(|d| *d = x[random.below(x.len())]);
            statistic(&draw)
        })
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let quantile = |q: f64| values[(q * last as f64).round() as usize];
    Some(Estimate {
        value,
        low: Some(quantile(0.025)),
        high: Some(quantile(0.975)),
        samples: x.len() as u32,
    })
}

fn mean_and_error(x: impl Iterator<Item = f64> + Clone, n: usize) -> (f64, f64) {
    let mean = x.clone().sum::<f64>() / n as f64;
    let var = x.map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1).max(1) as f64;
    (mean, (var / n as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_eight_blocks_covers_the_truth_about_95_times_in_100() {
        let covered = (0..600)
            .filter(|seed| {
                let mut r = SplitMix64::new(9_000 + seed);
                let x: Vec<f64> = (0..8).map(|_| 3.0 + r.normal()).collect();
                let e = bootstrap_mean(&x, *seed).unwrap();
                e.low.unwrap() <= 3.0 && 3.0 <= e.high.unwrap()
            })
            .count();
        let share = covered as f64 / 600.0;
        assert!((0.925..=0.98).contains(&share), "{share}");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let x = [1.0, 2.0, 4.0, 3.0, 2.5, 1.5];
        assert_eq!(bootstrap_mean(&x, 1), bootstrap_mean(&x, 1));
        assert_ne!(bootstrap_mean(&x, 1), bootstrap_mean(&x, 2));
    }

    #[test]
    fn few_equal_or_no_values_are_no_trouble() {
        assert!(bootstrap_mean(&[], 1).is_none());
        assert_eq!(bootstrap_mean(&[2.0], 1), Some(Estimate::single(2.0)));
        let same = bootstrap_mean(&[2.0; 9], 1).unwrap();
        assert_eq!((same.low, same.high), (Some(2.0), Some(2.0)));
        let median = bootstrap_percentile(&[1.0, 2.0, 9.0], 1, |x| {
            crate::autocorrelation::median(&mut x.to_vec())
        });
        assert_eq!(median.unwrap().value, 2.0);
    }
}

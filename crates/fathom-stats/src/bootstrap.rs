//! Intervals by resampling, seeded so that a verdict can be repeated.
//!
//! The studentized bootstrap (Efron and Tibshirani 1993, chapter 12) keeps its promise
//! with the handful of blocks that an A/B run has; the percentile one does not.

use statrs::distribution::{ContinuousCDF, StudentsT};

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

/// A statistic of several groups of repeats (the points of a curve) with a 95 % bootstrap interval; `None`
/// where the statistic has no value.
///
/// Each resample draws the repeats of every group anew. Percentile intervals of few repeats are too narrow, by
/// √(n/(n−1)) for the spread and by Student's t for its uncertainty (Hesterberg, "What teachers should know
/// about the bootstrap", 2015, § 4.2): the interval is stretched by both. `pooled` is the number of groups
/// that the statistic rests on. With one repeat in any group there is no interval. A statistic of a whole
/// curve costs more than a mean, hence its own number of resamples.
pub fn bootstrap_groups<T: Copy>(
    groups: &[Vec<T>],
    pooled: usize,
    resamples: usize,
    seed: u64,
    statistic: impl Fn(&[Vec<T>]) -> Option<f64>,
) -> Option<Estimate> {
    let value = statistic(groups)?;
    let repeats = groups.iter().map(Vec::len).min()?;
    if repeats < 2 {
        return Some(Estimate::single(value));
    }
    let mut random = SplitMix64::new(seed);
    let mut drawn = groups.to_vec();
    let mut seen: Vec<f64> = (0..resamples)
        .filter_map(|_| {
            for (d, g) in drawn.iter_mut().zip(groups) {
                d.iter_mut().for_each(|v| *v = g[random.below(g.len())]);
            }
            statistic(&drawn)
        })
        .collect();
    if seen.len() < resamples.div_ceil(2).max(1) {
        return Some(Estimate::single(value));
    }
    seen.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| seen[((seen.len() - 1) as f64 * q).round() as usize];
    let n = repeats as f64;
    let freedom = (n - 1.0) * pooled.max(1) as f64;
    let t = StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |d| d.inverse_cdf(0.975));
    let stretch = t / 1.96 * (n / (n - 1.0)).sqrt();
    Some(Estimate {
        value,
        low: Some(value - (value - at(0.025)).max(0.0) * stretch),
        high: Some(value + (at(0.975) - value).max(0.0) * stretch),
        samples: repeats as u32,
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
    fn the_interval_of_a_ratio_of_two_groups_of_three_covers_the_truth() {
        let covered = (0..600)
            .filter(|seed| {
                let mut r = SplitMix64::new(70_000 + seed);
                let mut group = |level: f64| -> Vec<f64> {
                    (0..3).map(|_| level * (1.0 + 0.03 * r.normal())).collect()
                };
                let groups = [group(6.0), group(2.0)];
                let mean = |g: &[f64]| g.iter().sum::<f64>() / g.len() as f64;
                let e =
                    bootstrap_groups(&groups, 2, 400, *seed, |g| Some(mean(&g[0]) / mean(&g[1])))
                        .unwrap();
                e.low.unwrap() <= 3.0 && 3.0 <= e.high.unwrap()
            })
            .count();
        let share = covered as f64 / 600.0;
        assert!((0.92..=0.985).contains(&share), "{share}");
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
        let spread = |g: &[Vec<f64>]| Some(g.first()?.first()? - g.last()?.first()?);
        assert_eq!(bootstrap_groups(&[], 1, 100, 1, spread), None);
        let single = bootstrap_groups(&[vec![5.0], vec![3.0]], 2, 100, 1, spread);
        assert_eq!(single, Some(Estimate::single(2.0)));
    }
}

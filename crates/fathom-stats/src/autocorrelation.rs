//! How many independent samples a series is worth.
//!
//! Neighbouring windows of a device resemble each other, so an interval that counts
//! each as independent is too narrow. Knows series of numbers only.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Estimate;

/// Autocorrelation at lags 0..=`lags`; empty for a constant or too short series.
pub fn autocorrelation(x: &[f64], lags: usize) -> Vec<f64> {
    let n = x.len();
    if n < 2 {
        return Vec::new();
    }
    let mean = x.iter().sum::<f64>() / n as f64;
    let c0: f64 = x.iter().map(|v| (v - mean).powi(2)).sum();
    // Rounding leaves a trace of variance in a constant series.
    if c0 <= 1e-24 * mean.powi(2) * n as f64 {
        return Vec::new();
    }
    (0..=lags.min(n - 1))
        .map(|k| {
            let c: f64 = (0..n - k).map(|i| (x[i] - mean) * (x[i + k] - mean)).sum();
            c / c0
        })
        .collect()
}

/// Independent samples that the mean of a series is worth: between 1 and its length.
///
/// Geyer's initial positive sequence (Statistical Science 7, 1992): sums of neighbouring lags are added
/// until one is not positive. A constant series is worth its length.
pub fn effective_sample_size(x: &[f64]) -> f64 {
    let n = x.len();
    let rho = autocorrelation(x, n / 2);
    if rho.is_empty() {
        return n as f64;
    }
    let mut time = -1.0;
    for pair in rho.chunks_exact(2) {
        let sum = pair[0] + pair[1];
        if sum <= 0.0 {
            break;
        }
        time += 2.0 * sum;
    }
    (n as f64 / time.max(1.0)).max(1.0)
}

/// Mean of a series with a 95 % interval that counts independent samples only; `samples` is their number.
///
/// `None` for an empty series.
pub fn mean_of_series(x: &[f64]) -> Option<Estimate> {
    let effective = effective_sample_size(x).floor();
    let n = x.len();
    let mean = x.iter().sum::<f64>() / n as f64;
    if n == 0 || !mean.is_finite() {
        return None;
    }
    if n < 2 || effective < 2.0 {
        return Some(Estimate::single(mean));
    }
    let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let t =
        StudentsT::new(0.0, 1.0, effective - 1.0).map_or(f64::INFINITY, |d| d.inverse_cdf(0.975));
    let half = t * (var / effective).sqrt();
    Some(Estimate {
        value: mean,
        low: Some(mean - half),
        high: Some(mean + half),
        samples: effective as u32,
    })
}

/// First-order autocorrelation and standard deviation of the noise, undisturbed by a few jumps or a slow trend.
///
/// From medians of |differences| at lags 1 and 2 (Chakar, Lebarbier, Lévy-Leduc and Robin, Bernoulli 23, 2017).
/// The correlation is held within 0 to 0.9: a negative one is not made use of.
pub fn robust_noise(x: &[f64]) -> Noise {
    let spread = |lag: usize| {
        let mut d: Vec<f64> = x
            .iter()
            .zip(x.iter().skip(lag))
            .map(|(a, b)| (b - a).abs())
            .collect();
        median(&mut d).unwrap_or(0.0) / 0.674_489_75
    };
    let (one, two) = (spread(1), spread(2));
    if one <= 0.0 {
        return Noise {
            stddev: 0.0,
            correlation: 0.0,
        };
    }
    let correlation = ((two / one).powi(2) - 1.0).clamp(0.0, 0.9);
    Noise {
        stddev: one / (2.0 * (1.0 - correlation)).sqrt(),
        correlation,
    }
}

/// Noise of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Standard deviation of a value around the level.
    pub stddev: f64,
    /// Correlation of neighbours, 0 to 0.9.
    pub correlation: f64,
}

impl Noise {
    /// By how much correlation widens the variance of a mean: (1+φ)/(1−φ).
    pub fn inflation(&self) -> f64 {
        (1.0 + self.correlation) / (1.0 - self.correlation)
    }
}

/// Median; the slice is reordered. `None` where it is empty.
pub(crate) fn median(x: &mut [f64]) -> Option<f64> {
    let n = x.len();
    if n == 0 {
        return None;
    }
    x.sort_unstable_by(f64::total_cmp);
    Some(if n % 2 == 1 {
        x[n / 2]
    } else {
        (x[n / 2 - 1] + x[n / 2]) / 2.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn ar1(phi: f64, n: usize, seed: u64) -> Vec<f64> {
        let mut r = SplitMix64::new(seed);
        let mut x = r.normal();
        (0..n)
            .map(|_| {
                x = phi * x + (1.0 - phi * phi).sqrt() * r.normal();
                10.0 + x
            })
            .collect()
    }

    #[test]
    fn independent_samples_count_in_full_and_correlated_ones_as_theory_says() {
        // For AR(1) the mean is worth n (1-φ)/(1+φ) samples.
        let white = effective_sample_size(&ar1(0.0, 20_000, 1)) / 20_000.0;
        assert!((0.9..=1.0).contains(&white), "{white}");
        let half = effective_sample_size(&ar1(0.5, 20_000, 2)) / 20_000.0;
        assert!((half - 1.0 / 3.0).abs() < 0.04, "{half}");
    }

    #[test]
    fn the_interval_of_a_correlated_series_covers_its_mean() {
        let covered = (0..400)
            .filter(|seed| {
                let e = mean_of_series(&ar1(0.5, 100, 5_000 + seed)).unwrap();
                (e.low.unwrap()..=e.high.unwrap()).contains(&10.0)
            })
            .count();
        assert!((360..=396).contains(&covered), "{covered} of 400");
        assert!(mean_of_series(&[]).is_none());
    }

    #[test]
    fn noise_is_measured_through_a_cliff() {
        let mut x = ar1(0.5, 20_000, 3);
        x[10_000..].iter_mut().for_each(|v| *v -= 8.0);
        let noise = robust_noise(&x);
        assert!((noise.correlation - 0.5).abs() < 0.15, "{noise:?}");
        assert!((noise.stddev - 1.0).abs() < 0.1, "{noise:?}");
    }

    #[test]
    fn constant_and_short_series_are_no_trouble() {
        assert_eq!(effective_sample_size(&[0.1; 7]), 7.0);
        assert_eq!(effective_sample_size(&[]), 0.0);
        assert_eq!(robust_noise(&[1.0]).stddev, 0.0);
    }
}

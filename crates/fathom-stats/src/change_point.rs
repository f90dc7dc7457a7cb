//! Where the level of a series jumps.
//!
//! PELT (Killick, Fearnhead and Eckley, JASA 107, 2012) finds the best set of jumps
//! exactly. Noise is measured from differences, so that jumps do not hide themselves,
//! and correlated noise raises the bar. Knows series of numbers only.

use serde::{Deserialize, Serialize};

use crate::autocorrelation::{Noise, median, robust_noise};

/// A jump of the level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ChangePoint {
    /// Index of the first value after the jump.
    pub at: usize,
    /// Mean of the segment before it.
    pub before: f64,
    /// Mean of the segment after it.
    pub after: f64,
}

/// Jumps of the mean, in order; empty where none stands out from the noise.
///
/// Penalty per jump: 3 σ² ln n, the leading term of the modified BIC (Zhang and Siegmund, Biometrics 63,
/// 2007), times (1+φ)/(1−φ) for noise with correlation φ. Single outliers are first replaced by the running median.
pub fn change_points(x: &[f64]) -> Vec<ChangePoint> {
    find(x, Noise::inflation)
}

/// The same for values that are known to be independent, such as the results of separate runs. In a short series
/// an estimate of correlation is itself too noisy, and would hide what there is to see.
pub fn change_points_of_independent(x: &[f64]) -> Vec<ChangePoint> {
    find(x, |_| 1.0)
}

fn find(x: &[f64], inflation: impl Fn(&Noise) -> f64) -> Vec<ChangePoint> {
    let n = x.len();
    if n < 4 || x.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let noise = robust_noise(x);
    let calm = tame_outliers(x, noise);
    let scale = x.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    // A series without noise still has rounding errors.
    let variance = noise.stddev.powi(2).max((1e-9 * scale).powi(2));
    let penalty = 3.0 * variance * inflation(&noise) * (n as f64).ln();
    let cuts = pelt(&calm, penalty);
    let mean = |a: usize, b: usize| calm[a..b].iter().sum::<f64>() / (b - a) as f64;
    let mut bounds = vec![0];
    bounds.extend(&cuts);
    bounds.push(n);
    bounds
        .windows(3)
        .map(|w| ChangePoint {
            at: w[1],
            before: mean(w[0], w[1]),
            after: mean(w[1], w[2]),
        })
        .collect()
}

/// Values further than 4 σ from the median of five neighbours are replaced by it (Hampel's filter).
pub(crate) fn tame_outliers(x: &[f64], noise: Noise) -> Vec<f64> {
    let n = x.len();
    let reach = 4.0 * noise.stddev;
    (0..n)
        .map(|i| {
            let mut near = x[i.saturating_sub(2)..(i + 3).min(n)].to_vec();
            let m = median(&mut near).unwrap_or(x[i]);
            if (x[i] - m).abs() > reach { m } else { x[i] }
        })
        .collect()
}

/// Optimal cuts for a constant level per segment of at least two values.
fn pelt(x: &[f64], penalty: f64) -> Vec<usize> {
    const SHORTEST: usize = 2;
    let n = x.len();
    // Sums of values less their mean: fewer digits are lost.
    let mean = x.iter().sum::<f64>() / n as f64;
    let (mut sum, mut square) = (vec![0.0; n + 1], vec![0.0; n + 1]);
    for (i, v) in x.iter().enumerate() {
        sum[i + 1] = sum[i] + (v - mean);
        square[i + 1] = square[i] + (v - mean).powi(2);
    }
    let cost = |a: usize, b: usize| {
        let s: f64 = sum[b] - sum[a];
        (square[b] - square[a] - s * s / (b - a) as f64).max(0.0)
    };
    let mut best = vec![f64::INFINITY; n + 1];
    best[0] = -penalty;
    let mut last = vec![0; n + 1];
    let mut candidates = vec![0];
    for end in SHORTEST..=n {
        let mut kept = Vec::with_capacity(candidates.len() + 1);
        for &s in &candidates {
            if end - s < SHORTEST {
                kept.push(s);
                continue;
            }
            let c = best[s] + cost(s, end);
            if c + penalty < best[end] {
                best[end] = c + penalty;
                last[end] = s;
            }
        }
        for &s in &candidates {
            // A start that is worse now by more than a penalty can never win again.
            if end - s >= SHORTEST && best[s] + cost(s, end) <= best[end] {
                kept.push(s);
            }
        }
        kept.push(end);
        candidates = kept;
    }
    let mut cuts = Vec::new();
    let mut at = last[n];
    while at > 0 {
        cuts.push(at);
        at = last[at];
    }
    cuts.reverse();
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn steps(levels: &[(usize, f64)], sigma: f64, seed: u64) -> Vec<f64> {
        let mut r = SplitMix64::new(seed);
        levels
            .iter()
            .flat_map(|(n, level)| std::iter::repeat_n(*level, *n))
            .map(|level| level + sigma * r.normal())
            .collect()
    }

    #[test]
    fn jumps_are_found_where_they_are() {
        let mut exact = 0;
        for seed in 0..100 {
            let x = steps(&[(40, 10.0), (30, 4.0), (50, 6.0)], 0.5, seed);
            let at: Vec<usize> = change_points(&x).iter().map(|c| c.at).collect();
            let near = |wanted: usize| at.iter().any(|a| a.abs_diff(wanted) <= 2);
            assert!(near(40) && near(70), "seed {seed}: {at:?}");
            exact += u32::from(at.len() == 2);
        }
        assert!(exact >= 95, "{exact} of 100 found nothing else");
    }

    #[test]
    fn noise_alone_is_rarely_taken_for_a_jump() {
        let alarms = (0..1000)
            .filter(|seed| !change_points(&steps(&[(60, 1.0)], 0.3, 1_000 + seed)).is_empty())
            .count();
        assert!(alarms <= 50, "{alarms} of 1000");
    }

    #[test]
    fn a_single_outlier_is_no_jump() {
        let mut x = steps(&[(60, 10.0)], 0.2, 5);
        x[30] = 40.0;
        assert!(change_points(&x).is_empty());
    }

    #[test]
    fn series_without_noise_or_with_holes_are_no_trouble() {
        assert!(change_points(&[5.0; 50]).is_empty());
        assert!(change_points(&[1.0, f64::NAN, 2.0, 3.0, 4.0]).is_empty());
        let clean = change_points(&steps(&[(10, 2.0), (10, 1.0)], 0.0, 0));
        assert_eq!(clean.len(), 1);
        assert_eq!(
            (clean[0].at, clean[0].before, clean[0].after),
            (10, 2.0, 1.0)
        );
    }
}

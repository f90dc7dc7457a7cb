//! A regular swing, such as that of garbage collection: found, sized and taken away.
//!
//! Without this a swing looks like a row of jumps to a change-point test, and like
//! strong correlation to an interval.

use serde::{Deserialize, Serialize};

/// A swing around the level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Swing {
    /// Values per cycle.
    pub period: f64,
    /// Half the distance from the lowest to the highest value of a cycle, as a share of the level.
    pub amplitude: f64,
}

/// Harmonics that describe one cycle.
const HARMONICS: usize = 3;
/// Cycles that must be seen before a swing is called regular.
const CYCLES: f64 = 3.5;

/// A swing in the unit of the series.
pub(crate) struct Season {
    pub(crate) period: f64,
    pub(crate) amplitude: f64,
    /// The swing itself, to be subtracted.
    pub(crate) curve: Vec<f64>,
    /// Squared values that it explains.
    pub(crate) explained: f64,
}

/// The strongest swing in `x` (whose mean or trend has been taken away), where it stands out.
///
/// Fisher's test of the largest periodogram ordinate (1929) at 0.1 %; noise of correlation φ raises the bar
/// by (1+φ)/(1−φ), the factor of the lowest frequencies.
pub(crate) fn strongest(x: &[f64], inflation: f64) -> Option<Season> {
    let n = x.len();
    if n < 16 {
        return None;
    }
    let total: f64 = x.iter().map(|v| v * v).sum();
    if total <= 0.0 {
        return None;
    }
    let lowest = CYCLES / n as f64;
    let step = 0.25 / n as f64;
    let count = ((0.5 - lowest) / step) as usize;
    let coarse = (0..count)
        .map(|i| lowest + i as f64 * step)
        .max_by(|a, b| power(x, *a).total_cmp(&power(x, *b)))?;
    let fine = (-10..=10)
        .map(|i| coarse + f64::from(i) * step / 10.0)
        .filter(|f| *f >= lowest)
        .max_by(|a, b| power(x, *a).total_cmp(&power(x, *b)))?;
    let mut curve = vec![0.0; n];
    for h in 1..=HARMONICS {
        let f = fine * h as f64;
        if f >= 0.5 {
            break;
        }
        let rest: Vec<f64> = x.iter().zip(&curve).map(|(v, c)| v - c).collect();
        add_wave(&rest, f, &mut curve);
    }
    let after: f64 = x.iter().zip(&curve).map(|(v, c)| (v - c).powi(2)).sum();
    let explained = total - after;
    let independent = (n / 2) as f64;
    let freedom = (n.saturating_sub(2 * HARMONICS + 3)).max(1) as f64;
    // Each ordinate of white noise, over the variance, is chi-squared with two degrees of freedom per harmonic.
    let bar = 2.0 * ((independent / 0.001).ln() + HARMONICS as f64) * inflation;
    if explained < bar * (after / freedom) {
        return None;
    }
    let (low, high) = curve
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), c| {
            (l.min(*c), h.max(*c))
        });
    Some(Season {
        period: 1.0 / fine,
        amplitude: (high - low) / 2.0,
        curve,
        explained,
    })
}

/// Squared residuals of the best wave of a quarter of a cycle up to [`CYCLES`], too few to call it regular, beside a level.
pub(crate) fn after_slow_wave(y: &[f64]) -> f64 {
    const STEPS: usize = 20;
    let n = y.len() as f64;
    let mean = y.iter().sum::<f64>() / n;
    let total: f64 = y.iter().map(|v| (v - mean).powi(2)).sum();
    (0..STEPS)
        .map(|i| {
            let share = i as f64 / (STEPS - 1) as f64;
            let step = std::f64::consts::TAU * 0.25 * (CYCLES / 0.25).powf(share) / n;
            let (mut mc, mut ms) = (0.0, 0.0);
            let (mut cc, mut ss, mut cs) = (0.0, 0.0, 0.0);
            let (mut cy, mut sy) = (0.0, 0.0);
            for (t, v) in y.iter().enumerate() {
                let (s, c) = (step * t as f64).sin_cos();
                mc += c / n;
                ms += s / n;
                cc += c * c;
                ss += s * s;
                cs += c * s;
                cy += c * (v - mean);
                sy += s * (v - mean);
            }
            cc -= n * mc * mc;
            ss -= n * ms * ms;
            cs -= n * mc * ms;
            let det = cc * ss - cs * cs;
            if det <= 1e-9 * cc * ss {
                return total;
            }
            total - (cy * (cy * ss - sy * cs) + sy * (sy * cc - cy * cs)) / det
        })
        .fold(total, f64::min)
        .max(0.0)
}

/// Sums of x·cos, x·sin at a frequency, by rotation.
fn projections(x: &[f64], f: f64) -> (f64, f64) {
    let (sin, cos) = (std::f64::consts::TAU * f).sin_cos();
    let (mut c, mut s) = (1.0, 0.0);
    let (mut a, mut b) = (0.0, 0.0);
    for v in x {
        a += v * c;
        b += v * s;
        (c, s) = (c * cos - s * sin, s * cos + c * sin);
    }
    (a, b)
}

fn power(x: &[f64], f: f64) -> f64 {
    let (a, b) = projections(x, f);
    a * a + b * b
}

/// Adds the least-squares wave of a frequency to a curve.
fn add_wave(x: &[f64], f: f64, curve: &mut [f64]) {
    let (a, b) = projections(x, f);
    let (mut cc, mut ss, mut cs) = (0.0, 0.0, 0.0);
    let angle = |i: usize| std::f64::consts::TAU * f * i as f64;
    for i in 0..x.len() {
        let (s, c) = angle(i).sin_cos();
        cc += c * c;
        ss += s * s;
        cs += c * s;
    }
    let det = cc * ss - cs * cs;
    if det <= 1e-9 * cc * ss {
        return;
    }
    let (p, q) = ((a * ss - b * cs) / det, (b * cc - a * cs) / det);
    for (i, v) in curve.iter_mut().enumerate() {
        let (s, c) = angle(i).sin_cos();
        *v += p * c + q * s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    #[test]
    fn a_swing_is_found_with_its_period_and_size() {
        let mut r = SplitMix64::new(3);
        let x: Vec<f64> = (0..100)
            .map(|i| 2.0 * (f64::from(i) / 7.3 * std::f64::consts::TAU).sin() + 0.3 * r.normal())
            .collect();
        let s = strongest(&x, 1.0).unwrap();
        assert!((s.period - 7.3).abs() < 0.1, "{}", s.period);
        assert!((s.amplitude - 2.0).abs() < 0.3, "{}", s.amplitude);
    }

    #[test]
    fn noise_rarely_looks_like_a_swing() {
        let alarms = (0..500)
            .filter(|seed| {
                let mut r = SplitMix64::new(*seed);
                let x: Vec<f64> = (0..100).map(|_| r.normal()).collect();
                strongest(&x, 1.0).is_some()
            })
            .count();
        assert!(alarms <= 5, "{alarms} of 500");
    }
}

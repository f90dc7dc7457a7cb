//! Burst and base: how large a write cache or a credit is, what comes after it, and when throttling begins.
//!
//! A device with two regimes is not a failure of steady state but a property to
//! report. Knows windows of a series only; what a temperature means stays outside.

use serde::{Deserialize, Serialize};

use crate::autocorrelation::{autocorrelation, robust_noise};
use crate::change_point::tame_outliers;
use crate::decay::{Decays, Shape};
use crate::season::after_slow_wave;

/// One window of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Bytes (or I/Os) transferred in it.
    pub amount: f64,
    /// Temperature in °C, where known.
    pub celsius: Option<f64>,
}

/// What the drop is most likely due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A cache or a credit ran out: the drop stays at constant temperature, or none is known.
    UsedUp,
    /// The temperature was near its highest when the level fell.
    Throttled,
}

/// Burst, then base.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Regimes {
    /// Level of the burst, amount per second.
    pub burst_per_second: f64,
    /// Level of the base, amount per second.
    pub base_per_second: f64,
    /// Transferred before the level fell: the size of the cache or credit as seen by the host.
    pub burst_amount: f64,
    /// Cache or credit proper: what was taken faster than the base alone would have.
    pub reserve: f64,
    /// Time of the fall after the start, s, to a fraction of a window.
    pub onset_seconds: f64,
    /// Temperature at the fall.
    pub onset_celsius: Option<f64>,
    /// Why.
    pub cause: Cause,
}

/// A fall must be at least this share of the burst's level to be called a regime.
const FALL_MIN: f64 = 0.15;
/// Windows at one level before the fall: fewer may be the beginning of anything.
const HEAD_MIN: usize = 3;
/// Windows after it.
const TAIL_MIN: usize = 3;
/// So much of the fall must be over within one window (the level two windows later beside that six windows later).
const SHARP_MIN: f64 = 0.7;
/// The largest movement of the burst before the fall, as a share of the fall.
const LEVEL_MAX: f64 = 0.3;
/// By so much (twice the difference of the logarithms of likelihood, parameters counted) a cliff must describe the
/// series better than any smooth fall or wave.
const EVIDENCE_MIN: f64 = 1.5;
/// Rates are never known better than to this share.
const FINEST: f64 = 0.002;

/// The cliff of a series: a level, a fall within one window, and what follows. `None` where the level does not fall by 15 % or
/// more, or where it falls smoothly, as by garbage collection that sets in.
///
/// `seconds` is the length of a window.
pub fn regimes(windows: &[Window], seconds: f64) -> Option<Regimes> {
    let x: Vec<f64> = windows.iter().map(|w| w.amount).collect();
    let n = x.len();
    let at = cliff(&x)?;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (burst, base) = (mean(&x[..at - 1]), mean(&x[at..]));
    if base > (1.0 - FALL_MIN) * burst {
        return None;
    }
    // The fall lies inside a window, whose amount says where.
    const BESIDE: usize = 4;
    let before = mean(&x[(at - 1).saturating_sub(BESIDE)..at - 1]);
    let after = mean(&x[at..(at + BESIDE).min(n)]);
    let within = ((x[at - 1] - after) / (before - after)).clamp(0.0, 1.0);
    let onset = (at - 1) as f64 + within;
    let amount = x[..at - 1].iter().sum::<f64>() + within * before;
    Some(Regimes {
        burst_per_second: burst / seconds,
        base_per_second: base / seconds,
        burst_amount: amount,
        reserve: (amount - base * onset).max(0.0),
        onset_seconds: onset * seconds,
        // Once throttled it cools: the warmer end of the two windows is the one at the fall.
        onset_celsius: windows[at - 1..=at]
            .iter()
            .filter_map(|w| w.celsius)
            .reduce(f64::max),
        cause: cause(windows, at),
    })
}

/// The first window that lies wholly after the cliff.
///
/// Two descriptions of the logarithms compete (noise is a share of the level): a level, one window of any amount, and a
/// level or a curve after it; or a level and a smooth fall from any moment on, of any shape and of at least two windows' time.
fn cliff(x: &[f64]) -> Option<usize> {
    let n = x.len();
    let most = x.iter().copied().fold(0.0, f64::max);
    if n < HEAD_MIN + 1 + TAIL_MIN || most <= 0.0 || x.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let raw: Vec<f64> = x.iter().map(|v| v.max(1e-4 * most).ln()).collect();
    let y = tame_outliers(&raw, robust_noise(&raw));
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let around = |part: &[f64]| {
        let m = mean(part);
        part.iter().map(|v| (v - m).powi(2)).sum::<f64>()
    };
    let count = n as f64;
    let misfit = |rss: f64, parameters: f64| {
        count * (rss / count + FINEST * FINEST).ln() + parameters * count.ln()
    };
    let (_, tails) = Decays::for_length(n).heads_and_tails(&y);
    let (sharp, at) = (HEAD_MIN + 1..=n - TAIL_MIN)
        .map(|at| {
            let head = around(&y[..at - 1]);
            let flat = misfit(head + around(&y[at..]), 4.0);
            let curved = misfit(head + tails[at], 6.0);
            (flat.min(curved), at)
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    let head = &y[..at - 1];
    let sigma = ((around(head) + tails[at]) / count).sqrt();
    let before = mean(&head[head.len().saturating_sub(4)..]);
    let fallen = |from: usize, to: usize| before - mean(&y[from.min(n - 2)..to.min(n)]);
    let fall = fallen(at, at + 2);
    if fall < -(1.0 - FALL_MIN).ln() || fall + 2.0 * sigma < SHARP_MIN * fallen(at + 4, at + 8) {
        return None;
    }
    let half = head.len() / 2;
    let moved = (mean(&head[..half]) - mean(&head[half..])).abs();
    // Half of a line's way lies between the means of its halves; noise moves them, too.
    if 2.0 * (moved - 3.0 * sigma * (2.0 / half as f64).sqrt()) > LEVEL_MAX * fall {
        return None;
    }
    let smooth = misfit(smoothest(&y, at).min(after_slow_wave(&y)), 4.0);
    let rest: Vec<f64> = y
        .iter()
        .enumerate()
        .map(|(i, v)| v - if i < at { mean(head) } else { mean(&y[at..]) })
        .collect();
    let phi = autocorrelation(&rest, 1)
        .get(1)
        .map_or(0.0, |p| p.clamp(0.0, 0.9));
    let evidence = (smooth - sharp) * (1.0 - phi) / (1.0 + phi);
    (evidence >= EVIDENCE_MIN).then_some(at)
}

/// Squared residuals of the best level that from some moment on falls smoothly; the moments near `at` are tried closely.
fn smoothest(y: &[f64], at: usize) -> f64 {
    const STARTS: usize = 24;
    let n = y.len();
    // Moments are counted in half windows.
    let mut starts: Vec<usize> = (0..12)
        .filter_map(|i| (2 * at + i).checked_sub(10))
        .collect();
    starts.extend((0..2 * n).step_by((2 * n).div_ceil(STARTS)));
    let mean = y.iter().sum::<f64>() / n as f64;
    let around: Vec<f64> = y.iter().map(|v| v - mean).collect();
    let total: f64 = around.iter().map(|v| v * v).sum();
    let least_of = |shape: &dyn Fn(f64) -> f64| {
        let first = shape(0.0);
        let values: Vec<f64> = (0..2 * n).map(|t| shape(t as f64 / 2.0) - first).collect();
        let after = |start: &usize| {
            let (mut k, mut kk, mut ky) = (0.0, 0.0, 0.0);
            let later = values.iter().skip(start % 2).step_by(2);
            for (value, v) in later.zip(&around[start.div_ceil(2).min(n)..]) {
                k += value;
                kk += value * value;
                ky += value * v;
            }
            let spread = kk - k * k / n as f64;
            if spread > 1e-9 * kk {
                total - ky * ky / spread
            } else {
                total
            }
        };
        starts.iter().map(after).fold(total, f64::min)
    };
    let mut least = total;
    let mut tau = 2.0;
    while tau < 4.0 * n as f64 {
        let exponential = Shape::of_tau(tau);
        least = least.min(least_of(&|t| exponential.at(t)));
        for p in [0.0, 0.5, 1.0] {
            let power = Shape::Power { tau: tau / 2.0, p };
            least = least.min(least_of(&|t| power.at(t)));
        }
        // What is left is a part of the level, whose logarithm is looked at.
        for left in [0.05, 0.2, 0.5] {
            least = least.min(least_of(&|t| {
                (left + (1.0 - left) * exponential.at(t)).ln()
            }));
        }
        tau *= 1.5;
    }
    least.max(0.0)
}

/// Throttled where the temperature at the fall is in the top tenth of its range and had risen by 5 K or more.
fn cause(windows: &[Window], at: usize) -> Cause {
    let known = || windows.iter().filter_map(|w| w.celsius);
    let low = known().fold(f64::INFINITY, f64::min);
    let high = known().fold(f64::NEG_INFINITY, f64::max);
    match (
        windows[at - 1].celsius,
        windows.first().and_then(|w| w.celsius),
    ) {
        (Some(t), Some(start)) if t - start >= 5.0 && t >= high - 0.1 * (high - low) => {
            Cause::Throttled
        }
        _ => Cause::UsedUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// A cache of `cache` bytes in front of a slower base, seen through windows with noise.
    fn cached(cache: f64, burst: f64, base: f64, n: usize, noise: f64, seed: u64) -> Vec<Window> {
        let mut r = SplitMix64::new(seed);
        let mut left = cache;
        (0..n)
            .map(|_| {
                let amount = if left >= burst {
                    left -= burst;
                    burst
                } else {
                    let share = left / burst;
                    left = 0.0;
                    share * burst + (1.0 - share) * base
                };
                Window {
                    amount: amount * (1.0 + noise * r.normal()),
                    celsius: None,
                }
            })
            .collect()
    }

    #[test]
    fn the_size_of_a_cache_is_found_within_ten_percent() {
        let mut missed = 0;
        for seed in 0..1000 {
            let mut r = SplitMix64::new(70_000 + seed);
            let (burst, base) = (r.between(800.0, 3000.0), r.between(60.0, 500.0));
            let cache = burst * r.between(12.0, 120.0);
            let noise = r.between(0.0, 0.1);
            let x = cached(cache, burst, base, 200, noise, seed);
            let Some(found) = regimes(&x, 1.0) else {
                // Noise of 10 % makes a small fall look smooth once in a while.
                missed += 1;
                continue;
            };
            let error = found.burst_amount / cache - 1.0;
            assert!(error.abs() <= 0.10, "seed {seed}: {error}");
            let error = found.base_per_second / base - 1.0;
            assert!(error.abs() <= 0.10, "seed {seed}: base {error}");
            assert_eq!(found.cause, Cause::UsedUp);
        }
        assert!(missed <= 2, "{missed} of 1000");
    }

    #[test]
    fn the_onset_of_throttling_is_found_within_one_window() {
        for seed in 0..1000 {
            let mut r = SplitMix64::new(90_000 + seed);
            let onset = r.between(20.0, 150.0);
            let (fall, noise) = (r.between(0.3, 0.7), r.between(0.01, 0.05));
            let x: Vec<Window> = (0..200)
                .map(|i| {
                    let t = f64::from(i);
                    // The share of the window before the onset is fast.
                    let fast = (onset - t).clamp(0.0, 1.0);
                    let level = fast + (1.0 - fast) * (1.0 - fall);
                    Window {
                        amount: 1000.0 * level * (1.0 + noise * r.normal()),
                        celsius: Some(40.0 + 40.0 * (t / onset).min(1.0)),
                    }
                })
                .collect();
            let found = regimes(&x, 1.0).unwrap();
            assert!(
                (found.onset_seconds - onset).abs() <= 1.0,
                "seed {seed}: {} for {onset}",
                found.onset_seconds
            );
            assert_eq!(found.cause, Cause::Throttled, "seed {seed}");
        }
    }

    #[test]
    fn a_slow_decay_has_no_two_levels() {
        let mut r = SplitMix64::new(5);
        for tau in [8.0, 15.0, 40.0, 100.0] {
            let windows: Vec<Window> = (0..40)
                .map(|i| Window {
                    amount: (40.0 + 60.0 * (-f64::from(i) / tau).exp()) * (1.0 + 0.01 * r.normal()),
                    celsius: None,
                })
                .collect();
            assert_eq!(regimes(&windows, 1.0), None, "τ = {tau}");
        }
    }

    #[test]
    fn one_regime_is_none() {
        let flat = cached(0.0, 1000.0, 500.0, 100, 0.1, 1);
        assert!(regimes(&flat, 1.0).is_none());
        assert!(regimes(&[], 1.0).is_none());
    }
}

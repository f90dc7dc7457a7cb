//! Burst and base: how large a write cache or a credit is, what comes after it, and when throttling begins.
//!
//! A device with two regimes is not a failure of steady state but a property to
//! report. Knows windows of a series only; what a temperature means stays outside.

use serde::{Deserialize, Serialize};

use crate::change_point::change_points;

/// One window of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Bytes (or I/Os) transferred in it.
    pub amount: f64,
    /// Temperature in °C, where known.
    pub celsius: Option<f64>,
}

/// A stretch of constant level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// First window.
    pub first: usize,
    /// One past the last window.
    pub end: usize,
    /// Mean amount per window.
    pub level: f64,
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
    /// All stretches, in order.
    pub stretches: Vec<Stretch>,
}

/// A fall must be at least this share of the burst's level to be called a regime.
const FALL_MIN: f64 = 0.15;

/// So much of the way from one level to the other must be taken at once.
const SHARP_MIN: f64 = 0.5;

/// The largest lasting fall of a series, `None` where the level does not fall by 15 % or more.
///
/// `seconds` is the length of a window.
pub fn regimes(windows: &[Window], seconds: f64) -> Option<Regimes> {
    let x: Vec<f64> = windows.iter().map(|w| w.amount).collect();
    let n = x.len();
    let jumps = change_points(&x);
    let mut bounds = vec![0];
    bounds.extend(jumps.iter().map(|c| c.at));
    bounds.push(n);
    let stretches: Vec<Stretch> = bounds
        .windows(2)
        .map(|b| Stretch {
            first: b[0],
            end: b[1],
            level: x[b[0]..b[1]].iter().sum::<f64>() / (b[1] - b[0]).max(1) as f64,
        })
        .collect();
    let mean = |part: &[Stretch]| {
        let n: usize = part.iter().map(|s| s.end - s.first).sum();
        part.iter()
            .map(|s| s.level * (s.end - s.first) as f64)
            .sum::<f64>()
            / n.max(1) as f64
    };
    // The fall is the cut that parts the series best into a high head and a lower tail.
    let cut = (1..stretches.len()).max_by(|a, b| {
        let weight = |k: usize| {
            let at = stretches[k].first as f64;
            let fall = mean(&stretches[..k]) - mean(&stretches[k..]);
            fall.max(0.0).powi(2) * at * (n as f64 - at)
        };
        weight(*a).total_cmp(&weight(*b))
    })?;
    let (head, tail) = (&stretches[..cut], &stretches[cut..]);
    let (burst, mut base) = (mean(head), mean(tail));
    if burst <= 0.0 || base > (1.0 - FALL_MIN) * burst {
        return None;
    }
    let at = stretches[cut].first;
    // A slow decay has no two levels: here the fall would be a small part of the way. The windows beside the cut, one of
    // which the level fell in, belong to neither side.
    const BESIDE: usize = 4;
    let level =
        |part: &[f64]| (!part.is_empty()).then(|| part.iter().sum::<f64>() / part.len() as f64);
    let before = level(&x[at.saturating_sub(BESIDE)..at.saturating_sub(1)]);
    let after = level(&x[(at + 1).min(n)..(at + BESIDE).min(n)]);
    if before.unwrap_or(burst) - after.unwrap_or(base) < SHARP_MIN * (burst - base) {
        return None;
    }
    // The fall lies inside a window, whose amount says where.
    let (last, first) = (head[head.len() - 1].level, tail[0].level);
    let within = |i: usize| ((x[i] - first) / (last - first)).clamp(0.0, 1.0);
    let (mut onset, mut amount) = (at as f64, x[..at].iter().sum::<f64>());
    let lower = within(at - 1);
    if lower < 0.9 && last > first {
        onset = (at - 1) as f64 + lower;
        amount = x[..at - 1].iter().sum::<f64>() + lower * last;
    } else if within(at) > 0.1 && last > first {
        onset += within(at);
        amount += within(at) * last;
    }
    // The window in which the level fell belongs to neither.
    if onset > at as f64 && n - at > 1 {
        base = x[at + 1..].iter().sum::<f64>() / (n - at - 1) as f64;
    }
    let celsius = windows[at.min(n - 1)].celsius;
    let cause = cause(windows, at);
    Some(Regimes {
        burst_per_second: burst / seconds,
        base_per_second: base / seconds,
        burst_amount: amount,
        reserve: (amount - base * onset).max(0.0),
        onset_seconds: onset * seconds,
        onset_celsius: celsius,
        cause,
        stretches,
    })
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
        for seed in 0..1000 {
            let mut r = SplitMix64::new(70_000 + seed);
            let (burst, base) = (r.between(800.0, 3000.0), r.between(60.0, 500.0));
            let cache = burst * r.between(12.0, 120.0);
            let noise = r.between(0.0, 0.1);
            let x = cached(cache, burst, base, 200, noise, seed);
            let found = regimes(&x, 1.0).unwrap();
            let error = found.burst_amount / cache - 1.0;
            assert!(error.abs() <= 0.10, "seed {seed}: {error}");
            let error = found.base_per_second / base - 1.0;
            assert!(error.abs() <= 0.10, "seed {seed}: base {error}");
            assert_eq!(found.cause, Cause::UsedUp);
        }
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

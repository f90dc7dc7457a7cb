//! The rule of the SNIA PTS for a steady state, over five rounds.

use serde::{Deserialize, Serialize};

/// Rounds that the PTS rule looks at.
pub const PTS_WINDOW: usize = 5;
/// Rounds after which the PTS gives up.
pub const PTS_ROUNDS_MAX: usize = 25;

/// The PTS rule at one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PtsWindow {
    /// First round (0-based) of the five.
    pub first: usize,
    /// Mean of the five.
    pub mean: f64,
    /// (max − min) / mean; at most 0.20.
    pub range: f64,
    /// |slope| × 4 / mean; at most 0.10.
    pub slope: f64,
    /// Both hold.
    pub steady: bool,
}

/// The rule of SNIA SSS PTS 2.0 (§ 2.1.24) on the five rounds that end with `last`: max − min ≤ 20 % of the
/// mean and the best line moves by ≤ 10 % of it. `None` before the fifth round or for a mean that is not positive.
pub fn pts_window(rounds: &[f64], last: usize) -> Option<PtsWindow> {
    let first = (last + 1).checked_sub(PTS_WINDOW)?;
    let w = rounds.get(first..=last)?;
    let mean = w.iter().sum::<f64>() / PTS_WINDOW as f64;
    if !(mean.is_finite() && mean > 0.0) {
        return None;
    }
    let max = w.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let min = w.iter().copied().fold(f64::INFINITY, f64::min);
    // Σ(x − 2)² over 0..5 is 10.
    let slope = w
        .iter()
        .enumerate()
        .map(|(i, v)| (i as f64 - 2.0) * v)
        .sum::<f64>()
        / 10.0;
    let (range, slope) = ((max - min) / mean, slope.abs() * 4.0 / mean);
    Some(PtsWindow {
        first,
        mean,
        range,
        slope,
        steady: range <= 0.20 && slope <= 0.10,
    })
}

/// The first five rounds, among the first 25, that pass the PTS rule; `None`: not reached.
pub fn pts_steady(rounds: &[f64]) -> Option<PtsWindow> {
    (0..rounds.len().min(PTS_ROUNDS_MAX))
        .filter_map(|last| pts_window(rounds, last))
        .find(|w| w.steady)
}

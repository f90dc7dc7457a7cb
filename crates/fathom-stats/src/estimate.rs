//! A value with its confidence interval and the number of samples behind it.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean (or other statistic) with a two-sided 95 % confidence interval.
///
/// With fewer than two samples no interval can be given: `low` and `high` are
/// then `None`, never equal to the value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best single value.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval.
    pub high: Option<f64>,
    /// Independent samples (repeats) behind the value.
    pub samples: u32,
}

impl Estimate {
    /// Whether the interval lies on one side of 0: an effect is shown. Without an interval none is.
    pub fn shows_effect(&self) -> bool {
        self.low.is_some_and(|l| l > 0.0) || self.high.is_some_and(|h| h < 0.0)
    }

    /// Whether there is an interval and it contains 0: perhaps there is no effect.
    pub fn holds_none(&self) -> bool {
        self.low.is_some() && self.high.is_some() && !self.shows_effect()
    }

    /// A single observation: no interval.
    pub fn single(value: f64) -> Self {
        Self {
            value,
            low: None,
            high: None,
            samples: 1,
        }
    }

    /// Mean of independent repeats with Student's t interval (95 %).
    ///
    /// Returns `None` for an empty slice.
    pub fn mean_of(samples: &[f64]) -> Option<Self> {
        Self::mean_of_chosen(samples, 1)
    }

    /// [`Estimate::mean_of`] for the one of several `candidates` that was chosen by its value. The intervals of all
    /// candidates hold together in 95 % of cases (Bonferroni), and so does that of the chosen one.
    ///
    /// Returns `None` for an empty slice.
    pub fn mean_of_chosen(samples: &[f64], candidates: usize) -> Option<Self> {
        let n = samples.len();
        if n == 0 {
            return None;
        }
        let mean = samples.iter().sum::<f64>() / n as f64;
        if n == 1 {
            return Some(Self::single(mean));
        }
        let var = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        let t = StudentsT::new(0.0, 1.0, (n - 1) as f64)
            .map(|d| d.inverse_cdf(1.0 - 0.025 / candidates.max(1) as f64))
            .unwrap_or(f64::INFINITY);
        let half = t * (var / n as f64).sqrt();
        Some(Self {
            value: mean,
            low: Some(mean - half),
            high: Some(mean + half),
            samples: n as u32,
        })
    }

    /// Half width of the interval as a share of the value, where both exist; of one that was cut at a bound, the side that
    /// was not.
    pub fn relative_half_width(&self) -> Option<f64> {
        match (self.low, self.high) {
            (Some(l), Some(h)) if self.value != 0.0 && l == 0.0 => {
                Some((h - self.value).max(self.value - l) / self.value.abs())
            }
            (Some(l), Some(h)) if self.value != 0.0 => Some((h - l) / 2.0 / self.value.abs()),
            _ => None,
        }
    }

    /// The interval of something that cannot be below 0: what lies below is cut off. As no truth lies there, the interval
    /// holds it as often as before. A value below 0 says that it can, and stays as it is.
    #[must_use]
    pub fn from_nought(mut self) -> Self {
        if self.value >= 0.0 {
            self.low = self.low.map(|l| l.max(0.0));
        }
        self
    }

    /// The interval, at least `half` to each side of the value: what repeats that are all alike cannot show. Without an
    /// interval there is none still.
    #[must_use]
    pub fn at_least(mut self, half: f64) -> Self {
        self.low = self.low.map(|l| l.min(self.value - half));
        self.high = self.high.map(|h| h.max(self.value + half));
        self
    }

    /// What this one gains over another, independent one of the same kind, as a share of that. Rates, latencies and prices
    /// have no other side of nought, so the interval is that of the quotient's logarithm: it never falls below -1, and
    /// neither end lies on the wrong side of the value.
    pub fn gain_over(&self, than: &Self) -> Self {
        let ratio = self.value / than.value;
        let half = self
            .relative_half_width()
            .zip(than.relative_half_width())
            .filter(|_| ratio > 0.0)
            .map(|(a, b)| a.hypot(b));
        Self {
            value: ratio - 1.0,
            low: half.map(|h| ratio * (-h).exp() - 1.0),
            high: half.map(|h| ratio * h.exp() - 1.0),
            samples: self.samples.min(than.samples),
        }
    }

    /// The same estimate in another unit.
    pub fn scale(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            low: self.low.map(|x| x * factor),
            high: self.high.map(|x| x * factor),
            samples: self.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    #[test]
    fn the_best_of_seven_that_are_alike_is_not_taken_for_better() {
        let above = |correct: bool| {
            let mut random = SplitMix64::new(5);
            let best = |_: &u32| {
                let mut one = || {
                    let samples: Vec<f64> = (0..5).map(|_| 1.0 + 0.05 * random.normal()).collect();
                    Estimate::mean_of_chosen(&samples, if correct { 7 } else { 1 }).unwrap()
                };
                let all: Vec<Estimate> = (0..7).map(|_| one()).collect();
                let best = all.iter().max_by(|a, b| a.value.total_cmp(&b.value));
                best.is_some_and(|e| e.low.unwrap() > 1.0)
            };
            (0..2_000).filter(best).count() as f64 / 2_000.0
        };
        assert!(above(true) < 0.04, "{}", above(true));
        assert!(above(false) > 0.08, "{}", above(false));
    }

    #[test]
    fn a_gain_lies_within_its_interval_however_wide_and_holds_the_truth() {
        let wide = |value: f64, half: f64| Estimate {
            value,
            low: Some(value - half),
            high: Some(value + half),
            samples: 3,
        };
        // Ends of the parts on the other side of nought once gave "3.0 % (-125 to -524 %)".
        let g = wide(103.0, 130.0).gain_over(&wide(100.0, 125.0));
        let (low, high) = (g.low.unwrap(), g.high.unwrap());
        assert!(-1.0 < low && low < g.value && g.value < high, "{g:?}");
        assert!((g.value - 0.03).abs() < 1e-12 && low < 0.0 && high > 0.0);
        let mut random = SplitMix64::new(11);
        let held = (0..2_000).filter(|_| {
            let mut one = |level: f64| {
                let samples: Vec<f64> = (0..6)
                    .map(|_| level * (1.0 + 0.1 * random.normal()))
                    .collect();
                Estimate::mean_of(&samples).unwrap()
            };
            let g = one(120.0).gain_over(&one(100.0));
            g.low.unwrap() <= 0.2 && 0.2 <= g.high.unwrap()
        });
        let share = held.count() as f64 / 2_000.0;
        assert!((0.94..=0.99).contains(&share), "{share}");
    }

    #[test]
    fn one_sample_has_no_interval() {
        let e = Estimate::mean_of(&[3.0]).unwrap();
        assert_eq!((e.value, e.low, e.high, e.samples), (3.0, None, None, 1));
        assert!(Estimate::mean_of(&[]).is_none());
    }

    #[test]
    fn interval_of_four_samples_matches_the_table_of_t() {
        // t(0.975, 3) = 3.182446; s = 1.290994; half = 3.182446 * 1.290994 / 2.
        let e = Estimate::mean_of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(e.value, 2.5);
        assert!((e.high.unwrap() - 2.5 - 2.054_26).abs() < 1e-4);
    }
}

//! Is B better than A? A difference with its interval and a verdict.
//!
//! Works on estimates (mean, interval, samples), as a run stores them. Knows neither
//! storage nor which metrics there are, only whether more is better.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Estimate;

/// Which direction is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Good {
    /// Throughput.
    More,
    /// Latency.
    Less,
}

/// What can be said about a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies on the good side.
    Better,
    /// The whole interval lies on the bad side.
    Worse,
    /// The interval contains nought: equal, or too noisy to tell; its width says which.
    NoDifferenceShown,
    /// There is no interval, or the conditions differ.
    NotComparable,
}

impl Verdict {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::NotComparable => "not comparable",
        }
    }
}

/// A relative difference: B / A − 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// B / A − 1 with its 95 % interval.
    pub relative: Estimate,
    /// Two-sided p-value; `None` without an interval.
    pub p: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

/// Compares two means by Welch's test on the logarithm of their ratio (errors by the delta method).
///
/// `None` where a ratio has no meaning: a mean is not positive. One sample on either side gives a
/// difference without interval and [`Verdict::NotComparable`].
pub fn difference(a: &Estimate, b: &Estimate, good: Good) -> Option<Difference> {
    if !(a.value > 0.0 && b.value > 0.0 && a.value.is_finite() && b.value.is_finite()) {
        return None;
    }
    let log = (b.value / a.value).ln();
    let (Some(va), Some(vb)) = (relative_variance(a), relative_variance(b)) else {
        return Some(Difference {
            relative: Estimate {
                samples: a.samples.min(b.samples),
                ..Estimate::single(log.exp_m1())
            },
            p: None,
            verdict: Verdict::NotComparable,
        });
    };
    let v = va + vb;
    // Welch and Satterthwaite.
    let freedom = if v > 0.0 {
        v * v / (va * va / f64::from(a.samples - 1) + vb * vb / f64::from(b.samples - 1))
    } else {
        f64::from(a.samples + b.samples - 2)
    };
    Some(from_log(
        log,
        v.sqrt(),
        freedom,
        a.samples.min(b.samples),
        good,
    ))
}

/// A difference from the logarithm of the ratio, its standard error and degrees of freedom.
fn from_log(log: f64, error: f64, freedom: f64, samples: u32, good: Good) -> Difference {
    let student = StudentsT::new(0.0, 1.0, freedom.max(1.0)).ok();
    let t = student
        .as_ref()
        .map_or(f64::INFINITY, |d| d.inverse_cdf(0.975));
    let p = match (&student, error > 0.0) {
        (Some(d), true) => 2.0 * d.cdf(-(log / error).abs()),
        _ if log == 0.0 => 1.0,
        _ => 0.0,
    };
    let relative = Estimate {
        value: log.exp_m1(),
        low: Some((log - t * error).exp_m1()),
        high: Some((log + t * error).exp_m1()),
        samples,
    };
    Difference {
        relative,
        p: Some(p),
        verdict: judge(&relative, good),
    }
}

/// B against A from the ratios B / A of pairs that ran side by side, by Student's test on their logarithms.
///
/// `None` without ratios, or where one of them is not positive. One ratio gives a difference without interval.
pub fn paired(ratios: &[f64], good: Good) -> Option<Difference> {
    if !ratios.iter().all(|r| *r > 0.0 && r.is_finite()) {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
    let mean = Estimate::mean_of(&logs)?;
    let (n, freedom) = (mean.samples, f64::from(mean.samples) - 1.0);
    if n < 2 {
        return Some(Difference {
            relative: relative_of_log(mean),
            p: None,
            verdict: Verdict::NotComparable,
        });
    }
    let variance = logs.iter().map(|l| (l - mean.value).powi(2)).sum::<f64>() / freedom;
    let error = (variance / f64::from(n)).sqrt();
    Some(from_log(mean.value, error, freedom, n, good))
}

/// A relative difference from an estimate of the logarithm of a ratio.
pub fn relative_of_log(log: Estimate) -> Estimate {
    Estimate {
        value: log.value.exp_m1(),
        low: log.low.map(f64::exp_m1),
        high: log.high.map(f64::exp_m1),
        samples: log.samples,
    }
}

/// The verdict that an interval of a relative difference allows.
pub fn judge(relative: &Estimate, good: Good) -> Verdict {
    let (Some(low), Some(high)) = (relative.low, relative.high) else {
        return Verdict::NotComparable;
    };
    match (low > 0.0, high < 0.0, good) {
        (true, _, Good::More) | (_, true, Good::Less) => Verdict::Better,
        (true, _, Good::Less) | (_, true, Good::More) => Verdict::Worse,
        _ => Verdict::NoDifferenceShown,
    }
}

/// Squared standard error over squared mean, from the interval.
fn relative_variance(e: &Estimate) -> Option<f64> {
    if e.samples < 2 {
        return None;
    }
    let t = StudentsT::new(0.0, 1.0, f64::from(e.samples - 1))
        .ok()?
        .inverse_cdf(0.975);
    Some((e.relative_half_width()? / t).powi(2))
}

/// Which of several p-values hold when all are looked at together, at 5 % for the whole family
/// (Holm, Scandinavian Journal of Statistics 6, 1979).
pub fn holm(p: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut holds = vec![false; p.len()];
    for (rank, i) in order.into_iter().enumerate() {
        if p[i] > 0.05 / (p.len() - rank) as f64 {
            break;
        }
        holds[i] = true;
    }
    holds
}

/// Geometric mean; `None` for an empty slice or a value that is not positive.
pub fn geometric_mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty() && x.iter().all(|v| *v > 0.0))
        .then(|| (x.iter().map(|v| v.ln()).sum::<f64>() / x.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Repeats of a job whose level differs from repeat to repeat by `noise`.
    fn repeats(level: f64, noise: f64, n: usize, r: &mut SplitMix64) -> Estimate {
        let x: Vec<f64> = (0..n).map(|_| level * (1.0 + noise * r.normal())).collect();
        Estimate::mean_of(&x).unwrap()
    }

    fn share(trials: u64, change: f64, noise: f64) -> f64 {
        let differs = (0..trials)
            .filter(|seed| {
                let mut r = SplitMix64::new(40_000 + seed);
                let a = repeats(1.0, noise, 5, &mut r);
                let b = repeats(1.0 + change, noise, 5, &mut r);
                difference(&a, &b, Good::More).unwrap().verdict != Verdict::NoDifferenceShown
            })
            .count();
        differs as f64 / trials as f64
    }

    #[test]
    fn equal_devices_differ_in_five_percent_of_the_cases() {
        for noise in [0.005, 0.02, 0.1] {
            let alarms = share(4_000, 0.0, noise);
            assert!((0.035..=0.06).contains(&alarms), "{noise}: {alarms}");
        }
    }

    #[test]
    fn a_change_of_five_percent_is_found_at_two_percent_noise_with_five_repeats() {
        let found = share(2_000, 0.05, 0.02);
        assert!(found >= 0.9, "{found}");
    }

    #[test]
    fn direction_and_missing_intervals_decide_the_verdict() {
        let e = |x: &[f64]| Estimate::mean_of(x).unwrap();
        let (slow, fast) = (e(&[10.0, 10.1, 9.9]), e(&[20.0, 20.1, 19.9]));
        let v = |a: &Estimate, b: &Estimate, good| difference(a, b, good).unwrap().verdict;
        assert_eq!(v(&slow, &fast, Good::More), Verdict::Better);
        assert_eq!(v(&slow, &fast, Good::Less), Verdict::Worse);
        assert_eq!(v(&e(&[1.0]), &fast, Good::More), Verdict::NotComparable);
        assert!(difference(&e(&[0.0, 0.0]), &fast, Good::More).is_none());
        let same = e(&[5.0, 5.0]);
        assert_eq!(v(&same, &same, Good::More), Verdict::NoDifferenceShown);
    }

    #[test]
    fn pairs_forgive_what_both_sides_share_and_keep_their_promise() {
        let pairs = |change: f64, seed: u64| {
            let mut r = SplitMix64::new(70_000 + seed);
            let one = || 1.0 + change + 0.02 * r.normal();
            let ratios: Vec<f64> = std::iter::repeat_with(one).take(5).collect();
            paired(&ratios, Good::More).unwrap()
        };
        let differs = |change: f64, v| {
            let all = (0..2_000)
                .filter(|s| pairs(change, *s).verdict == v)
                .count();
            all as f64 / 2_000.0
        };
        let alarms = 1.0 - differs(0.0, Verdict::NoDifferenceShown);
        assert!((0.03..=0.07).contains(&alarms), "{alarms}");
        assert!(differs(0.05, Verdict::Better) > 0.9);
        // The interval and the p-value say the same.
        for seed in 0..200 {
            let d = pairs(0.03, seed);
            let holds = d.p.unwrap() < 0.05;
            assert_eq!(holds, d.verdict != Verdict::NoDifferenceShown, "{d:?}");
        }
        assert_eq!(
            paired(&[2.0], Good::More).unwrap().verdict,
            Verdict::NotComparable
        );
        assert_eq!(paired(&[], Good::More), None);
        assert_eq!(paired(&[1.0, 0.0], Good::More), None);
    }

    #[test]
    fn several_p_values_are_judged_as_a_family() {
        assert_eq!(holm(&[0.04, 0.001, 0.03]), [false, true, false]);
        assert_eq!(holm(&[0.01, 0.02, 0.03]), [true, true, true]);
        assert!(holm(&[]).is_empty());
        assert_eq!(geometric_mean(&[2.0, 8.0]), Some(4.0));
        assert_eq!(geometric_mean(&[2.0, 0.0]), None);
    }
}

//! Did everything drift together? A common drift of many repeated measurements.
//!
//! An experiment of short jobs has no long series, but it repeats each of its points over its whole length. Each
//! point has a level of its own; what all points share over time is the drift of what is measured.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Estimate;

/// Fewer points cannot tell a drift from what happened to one of them.
const POINTS_MIN: usize = 4;

/// One value of a point: when it was measured (any unit, the same for all) and how large it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dated {
    /// When.
    pub at: f64,
    /// How large; positive.
    pub value: f64,
}

/// The change of all points' levels from the first to the last measurement, as a share of the level: −0.1 is a tenth
/// less at the end. With its 95 % interval; `None` with fewer than four points that were repeated.
///
/// Logarithms are fitted by a level per point and one slope for all; the error of the slope takes each point as one
/// cluster (Arellano, Oxford Bulletin of Economics and Statistics 49, 1987), so that a point that is noisier than
/// others, or repeats that depend on each other, do not make it too small.
pub fn common_drift(points: &[Vec<Dated>]) -> Option<Estimate> {
    let usable = |d: &&Dated| d.value > 0.0 && d.value.is_finite() && d.at.is_finite();
    let all = || points.iter().flatten().filter(usable).map(|d| d.at);
    let span = all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min);
    if !(span.is_finite() && span > 0.0) {
        return None;
    }
    // Sums of squares of time and of time × logarithm within each point.
    let sums: Vec<(f64, f64)> = points
        .iter()
        .filter_map(|p| {
            let p: Vec<(f64, f64)> = p
                .iter()
                .filter(usable)
                .map(|d| (d.at / span, d.value.ln()))
                .collect();
            let n = p.len() as f64;
            let (t, y) = p
                .iter()
                .fold((0.0, 0.0), |s, v| (s.0 + v.0 / n, s.1 + v.1 / n));
            let sums = p.iter().fold((0.0, 0.0), |s, v| {
                (s.0 + (v.0 - t).powi(2), s.1 + (v.0 - t) * (v.1 - y))
            });
            (p.len() >= 2 && sums.0 > 0.0).then_some(sums)
        })
        .collect();
    if sums.len() < POINTS_MIN {
        return None;
    }
    let (tt, ty) = sums.iter().fold((0.0, 0.0), |s, v| (s.0 + v.0, s.1 + v.1));
    let slope = ty / tt;
    let g = sums.len() as f64;
    let spread: f64 = sums.iter().map(|(tt, ty)| (ty - slope * tt).powi(2)).sum();
    let error = (spread * g / (g - 1.0)).sqrt() / tt;
    let t = StudentsT::new(0.0, 1.0, g - 1.0).ok()?.inverse_cdf(0.975);
    Some(Estimate {
        value: slope.exp_m1(),
        low: Some((slope - t * error).exp_m1()),
        high: Some((slope + t * error).exp_m1()),
        samples: sums.len() as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Points of very different levels, measured forwards, backwards, forwards, … while all drift by `drift`.
    fn panel(
        points: usize,
        repeats: usize,
        drift: f64,
        noise: f64,
        r: &mut SplitMix64,
    ) -> Vec<Vec<Dated>> {
        let last = (points * repeats - 1) as f64;
        let mut all = vec![Vec::new(); points];
        for k in 0..points * repeats {
            let (round, i) = (k / points, k % points);
            let p = if round % 2 == 0 { i } else { points - 1 - i };
            let level = 10f64.powi(p as i32 % 5) * (1.0 + drift).powf(k as f64 / last);
            all[p].push(Dated {
                at: k as f64,
                value: level * (1.0 + noise * r.normal()),
            });
        }
        all
    }

    #[test]
    fn the_drift_is_covered_about_95_times_in_100_whatever_the_levels() {
        for drift in [0.0, -0.3] {
            let covered = (0..500)
                .filter(|seed| {
                    let mut r = SplitMix64::new(300 + seed);
                    let e = common_drift(&panel(12, 3, drift, 0.05, &mut r)).unwrap();
                    e.low.unwrap() <= drift && drift <= e.high.unwrap()
                })
                .count();
            assert!((460..=490).contains(&covered), "{drift}: {covered} of 500");
        }
    }

    #[test]
    fn points_without_repeats_or_too_few_say_nothing() {
        let mut r = SplitMix64::new(1);
        assert_eq!(common_drift(&panel(20, 1, -0.5, 0.01, &mut r)), None);
        assert_eq!(common_drift(&panel(3, 5, -0.5, 0.01, &mut r)), None);
        assert_eq!(common_drift(&[]), None);
        let mut holes = panel(6, 3, -0.2, 0.001, &mut r);
        holes[0][1].value = 0.0;
        holes[1][0].value = f64::NAN;
        let e = common_drift(&holes).unwrap();
        assert!((e.value + 0.2).abs() < 0.01, "{e:?}");
    }
}

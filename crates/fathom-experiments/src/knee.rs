//! The knee of a throughput-latency curve: where one more I/O per second begins to cost more than it
//! gives.
//!
//! Defined as the maximum of *power*, throughput divided by latency (Kleinrock, "Power and deterministic
//! rules of thumb for probabilistic problems in computer communications", ICC 1979): it needs no
//! threshold and has closed forms for the textbook queues. This file knows numbers only, no jobs.

use fathom_stats::Estimate;
use fathom_stats::bootstrap::bootstrap_groups;

/// Resamples of a bootstrap: the 2.5 % ends rest on ten of them.
const RESAMPLES: usize = 400;
/// Points whose power is at least this share of the largest one shape the fit.
const NEAR_PEAK: f64 = 0.85;
/// Fewer points than this cannot carry a cubic.
const CUBIC_FROM: usize = 6;

/// What one repeat of one point measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// What was set: depth in closed loop, I/Os per second asked for in open loop.
    pub set: f64,
    /// Completed I/Os per second.
    pub rate: f64,
    /// Mean latency, ns.
    pub latency: f64,
}

impl Load {
    /// I/Os per second and ns of latency.
    pub fn power(&self) -> f64 {
        if self.latency > 0.0 {
            self.rate / self.latency
        } else {
            0.0
        }
    }
}

/// The rate of largest power in open loop: the maximum of a cubic (with few points: a parabola) through
/// the points near the peak. Points that did not keep up with what was asked (under 98 %) do not count.
///
/// `None` with fewer than three points that kept up.
pub fn open_knee(points: &[Load]) -> Option<f64> {
    let mut kept: Vec<(f64, f64)> = points
        .iter()
        .filter(|p| p.rate >= 0.98 * p.set && p.latency > 0.0)
        .map(|p| (p.rate, p.power()))
        .collect();
    kept.sort_by(|a, b| a.0.total_cmp(&b.0));
    if kept.len() < 3 {
        return None;
    }
    let best = (0..kept.len()).max_by(|a, b| kept[*a].1.total_cmp(&kept[*b].1))?;
    let high = |i: &usize| kept[*i].1 >= NEAR_PEAK * kept[best].1;
    // Contiguous around the peak, and at least one neighbour on each side.
    let first = (0..best).rev().take_while(high).last().unwrap_or(best);
    let last = (best + 1..kept.len())
        .take_while(high)
        .last()
        .unwrap_or(best);
    let first = first.min(best.saturating_sub(1));
    let last = last.max((best + 1).min(kept.len() - 1));
    let near = &kept[first..=last];
    if near.len() < 3 {
        // The peak lies at the end of what was measured: no fit can say more.
        return Some(kept[best].0);
    }
    let degree = if near.len() >= CUBIC_FROM { 3 } else { 2 };
    let (low, high) = (near[0].0, near[near.len() - 1].0);
    if high <= low {
        return Some(kept[best].0);
    }
    // Scaled to −1…1, so that the normal equations stay well conditioned.
    let scaled: Vec<(f64, f64)> = near
        .iter()
        .map(|(x, y)| (2.0 * (x - low) / (high - low) - 1.0, y / kept[best].1))
        .collect();
    let c = fit(&scaled, degree)?;
    let value = |x: f64| c.iter().rev().fold(0.0, |sum, k| sum * x + k);
    let steps = 1000;
    let (_, top) = (0..=steps)
        .map(|i| 2.0 * f64::from(i) / f64::from(steps) - 1.0)
        .map(|x| (value(x), x))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(low + (top + 1.0) / 2.0 * (high - low))
}

/// The depth of largest power in closed loop. With c equal servers power rises up to depth c and falls
/// after it: a cusp, so no smooth fit is made; the points around it are chosen closely instead.
pub fn closed_knee(points: &[Load]) -> Option<f64> {
    points
        .iter()
        .max_by(|a, b| a.power().total_cmp(&b.power()))
        .map(|p| p.set)
}

/// Latency where throughput first reaches `rate`, ns: between points along a straight line of the
/// logarithm. `None` where no point reaches it.
pub fn latency_at(points: &[Load], rate: f64) -> Option<f64> {
    let mut sorted: Vec<&Load> = points.iter().filter(|p| p.latency > 0.0).collect();
    sorted.sort_by(|a, b| a.set.total_cmp(&b.set));
    let i = sorted.iter().position(|p| p.rate >= rate)?;
    let b = sorted[i];
    let Some(a) = i.checked_sub(1).map(|j| sorted[j]) else {
        return Some(b.latency);
    };
    let t = if b.rate > a.rate {
        (rate - a.rate) / (b.rate - a.rate)
    } else {
        1.0
    };
    Some((a.latency.ln() + t * (b.latency / a.latency).ln()).exp())
}

/// I/Os per second where the curve has ended to rise: the mean of all within two percent of the largest, which is by itself
/// the luckiest of them, and more so the more there are.
pub fn plateau(points: &[Load]) -> f64 {
    let most = points.iter().map(|p| p.rate).fold(0.0, f64::max);
    let top = points.iter().filter(|p| p.rate >= 0.98 * most);
    mean(top).map_or(0.0, |m| m.rate)
}

/// Latency at the knee, ns: both of the same points, so that an interval holds the knee's own uncertainty.
pub fn knee_latency(points: &[Load]) -> Option<f64> {
    latency_at(points, open_knee(points)?)
}

/// A statistic of the curve through the means of each point's repeats, with a 95 % bootstrap interval; `pooled` is
/// the number of points that it rests on (see [`bootstrap_groups`]).
pub fn bootstrap(
    points: &[Vec<Load>],
    pooled: usize,
    seed: u64,
    statistic: impl Fn(&[Load]) -> Option<f64>,
) -> Option<Estimate> {
    let full: Vec<Vec<Load>> = points.iter().filter(|p| !p.is_empty()).cloned().collect();
    bootstrap_groups(&full, pooled, RESAMPLES, seed, |drawn| {
        let means: Vec<Load> = drawn.iter().filter_map(|p| mean(p.iter())).collect();
        statistic(&means)
    })
}

/// The mean of repeats.
pub fn mean<'a>(loads: impl Iterator<Item = &'a Load>) -> Option<Load> {
    let mut sum = Load {
        set: 0.0,
        rate: 0.0,
        latency: 0.0,
    };
    let mut n = 0.0;
    for l in loads {
        n += 1.0;
        sum.set = l.set;
        sum.rate += l.rate;
        sum.latency += l.latency;
    }
    (n > 0.0).then(|| Load {
        set: sum.set,
        rate: sum.rate / n,
        latency: sum.latency / n,
    })
}

/// Least-squares polynomial of `degree`, lowest coefficient first, by the normal equations.
fn fit(points: &[(f64, f64)], degree: usize) -> Option<Vec<f64>> {
    let n = degree + 1;
    let mut a = vec![vec![0.0; n + 1]; n];
    for (x, y) in points {
        let powers: Vec<f64> = (0..2 * n).map(|k| x.powi(k as i32)).collect();
        for (i, row) in a.iter_mut().enumerate() {
            for (j, cell) in row.iter_mut().take(n).enumerate() {
                *cell += powers[i + j];
            }
            row[n] += y * powers[i];
        }
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|p, q| a[*p][i].abs().total_cmp(&a[*q][i].abs()))?;
        a.swap(i, pivot);
        let head = a[i].clone();
        if head[i].abs() < 1e-12 {
            return None;
        }
        for (r, row) in a.iter_mut().enumerate() {
            if r != i {
                let factor = row[i] / head[i];
                for (cell, h) in row.iter_mut().zip(&head) {
                    *cell -= factor * h;
                }
            }
        }
    }
    Some((0..n).map(|i| a[i][n] / a[i][i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::load::rng::Rng;

    /// Mean time in an M/M/c system with unit service time at load `rho`, by Erlang's C.
    fn mmc(c: u32, rho: f64) -> f64 {
        let a = f64::from(c) * rho;
        let mut b = 1.0;
        for k in 1..=c {
            b = a * b / (f64::from(k) + a * b);
        }
        let wait = b / (1.0 - rho * (1.0 - b));
        1.0 + wait / (f64::from(c) * (1.0 - rho))
    }

    fn curve(shares: &[f64], capacity: f64, time: impl Fn(f64) -> f64) -> Vec<Load> {
        shares
            .iter()
            .map(|s| Load {
                set: s * capacity,
                rate: s * capacity,
                latency: time(*s),
            })
            .collect()
    }

    /// Shares as the curve experiment chooses them: tenths, then between the neighbours of the best.
    fn adaptive(capacity: f64, time: impl Fn(f64) -> f64) -> Vec<Load> {
        let mut shares: Vec<f64> = (1..=9).map(|i| f64::from(i) / 10.0).collect();
        shares.push(0.95);
        for _ in 0..crate::curve::OPEN_ROUNDS {
            let points = curve(&shares, capacity, &time);
            shares.extend(crate::curve::between_best(&points, capacity));
        }
        curve(&shares, capacity, &time)
    }

    fn true_knee(time: impl Fn(f64) -> f64) -> f64 {
        (1..9999)
            .map(|i| f64::from(i) / 10_000.0)
            .max_by(|a, b| (a / time(*a)).total_cmp(&(b / time(*b))))
            .unwrap()
    }

    #[test]
    fn knee_of_textbook_queues_is_where_theory_says() {
        let md1 = |r: f64| 1.0 + r / (2.0 * (1.0 - r));
        assert!((true_knee(md1) - (2.0 - 2f64.sqrt())).abs() < 1e-3);
        assert!((true_knee(|r| mmc(1, r)) - 0.5).abs() < 1e-3);
        let found = open_knee(&adaptive(50_000.0, md1)).unwrap() / 50_000.0;
        assert!((found / true_knee(md1) - 1.0).abs() < 0.02, "M/D/1 {found}");
        for c in [1, 2, 4, 8, 32, 128] {
            let found = open_knee(&adaptive(1e5, |r| mmc(c, r))).unwrap() / 1e5;
            let truth = true_knee(|r| mmc(c, r));
            assert!(
                (found / truth - 1.0).abs() < 0.02,
                "M/M/{c}: {found} instead of {truth}"
            );
        }
    }

    /// In so many of `trials` curves of three repeats with 3 % noise of the latency the interval holds the truth.
    fn covered(trials: u32, statistic: impl Fn(&[Load]) -> Option<f64>, truth: f64) -> f64 {
        let mut rng = Rng::new(7, 0);
        let held = (0..trials).filter(|_| {
            let points: Vec<Vec<Load>> = adaptive(1e5, |r| mmc(2, r))
                .iter()
                .map(|p| {
                    let mut noisy = || {
                        // Sum of twelve uniforms: normal enough.
                        let z: f64 = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
                        Load {
                            latency: p.latency * (1.0 + 0.03 * z),
                            ..*p
                        }
                    };
                    (0..3).map(|_| noisy()).collect()
                })
                .collect();
            let e = bootstrap(&points, 6, rng.bits(), &statistic).unwrap();
            e.low.unwrap() <= truth && truth <= e.high.unwrap()
        });
        held.count() as f64 / f64::from(trials)
    }

    #[test]
    fn interval_of_the_knee_covers_the_truth_as_often_as_it_says() {
        let share = covered(300, open_knee, true_knee(|r| mmc(2, r)) * 1e5);
        assert!((0.9..=0.995).contains(&share), "covered in {share}");
    }

    #[test]
    fn interval_of_the_latency_at_the_knee_holds_the_knees_own_uncertainty() {
        let share = covered(200, knee_latency, mmc(2, true_knee(|r| mmc(2, r))));
        assert!((0.9..=0.995).contains(&share), "covered in {share}");
    }

    #[test]
    fn one_repeat_gives_no_interval_and_two_points_no_knee() {
        let points = curve(&[0.3, 0.5, 0.7], 1.0, |r| 1.0 / (1.0 - r));
        let single: Vec<Vec<Load>> = points.iter().map(|p| vec![*p]).collect();
        let e = bootstrap(&single, 3, 1, open_knee).unwrap();
        assert_eq!((e.low, e.high), (None, None));
        assert_eq!(open_knee(&points[..2]), None);
    }

    #[test]
    fn latency_at_a_share_lies_between_its_neighbours() {
        let points = curve(&[0.2, 0.8], 100.0, |r| if r < 0.5 { 10.0 } else { 40.0 });
        let half = latency_at(&points, 50.0).unwrap();
        assert!((half - 20.0).abs() < 1e-9, "geometric middle, not {half}");
        assert_eq!(latency_at(&points, 90.0), None);
        assert_eq!(latency_at(&points, 10.0), Some(10.0));
    }
}

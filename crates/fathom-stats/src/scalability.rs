//! How throughput grows with the number of those who ask for it.
//!
//! Two laws, the nearer of which is taken. Gunther's universal scalability law ("Guerrilla Capacity Planning", 2007, chapters 4 and 5): of N equal clients
//! X(N) = λN / (1 + σ(N − 1) + κN(N − 1)). λ is what one gets alone, σ the share of the work that is done for one at a time
//! (a queue that all wait in), κ what each pair costs (agreement between them), from which on more clients get less.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Estimate;

/// A law of growth, fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// The universal scalability law.
    Universal {
        /// λ: throughput of one alone, in the unit of what was measured.
        alone: f64,
        /// σ: contention, 0 to about 1.
        contention: f64,
        /// κ: coherency, 0 and more.
        coherency: f64,
    },
    /// A bound that all share, such as a device that serves so much and no more: X(N) = λN / (1 + (λN/C)^p)^(1/p), which has
    /// the asymptotes of operational analysis (Denning and Buzen, "The operational analysis of queueing network models",
    /// 1978): λN below, C above.
    Bounded {
        /// λ: throughput of one alone.
        alone: f64,
        /// C: the bound.
        bound: f64,
        /// p: how sharply one asymptote becomes the other, 1 and more.
        sharpness: f64,
    },
}

/// Sharpness that is tried: from the synchronous queue's on by quarters of a doubling.
const SHARPNESS_STEPS: i32 = 24;

/// A bound is met where throughput is less than this share of what there would be without it.
const MET: f64 = 0.8;

impl Law {
    /// The law, of both kinds, that lies nearest to pairs of (clients, throughput), by relative distance; neither cost is below
    /// 0. `None` with fewer than three numbers of clients, or throughput that is not above 0.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let mut counts: Vec<f64> = points.iter().map(|p| p.0).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        let possible = |p: &(f64, f64)| p.0 >= 1.0 && p.1 > 0.0 && p.1.is_finite();
        if counts.len() < 3 || !points.iter().all(possible) {
            return None;
        }
        let distance = |law: &Self| -> f64 {
            let off = |(n, x): &(f64, f64)| (law.at(*n) / x).ln().powi(2);
            points.iter().map(off).sum()
        };
        let sharper = (0..=SHARPNESS_STEPS).map(|i| (f64::from(i) / 4.0).exp2());
        let bounded = sharper.filter_map(|p| Self::bounded(points, p));
        let laws = Self::universal(points).into_iter().chain(bounded);
        // A decline among what was measured is seen there, or is none.
        let declines = declines(points);
        let (most, _) = largest(points)?;
        let seen = |law: &Self| match law {
            Self::Universal { .. } => declines || law.knee().is_none_or(|k| k >= most),
            Self::Bounded { .. } => true,
        };
        laws.filter(seen)
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }

    fn universal(points: &[(f64, f64)]) -> Vec<Self> {
        // N/X is linear in 1/λ, σ/λ and κ/λ; divided by itself, its distance is a relative one.
        let rows: Vec<[f64; 3]> = points
            .iter()
            .map(|(n, x)| [x / n, (n - 1.0) * x / n, (n - 1.0) * x])
            .collect();
        let candidates = [&[0][..], &[0, 1], &[0, 2], &[0, 1, 2]];
        let laws = candidates.iter().filter_map(|chosen| {
            let [a, b, c] = least_squares(&rows, chosen)?;
            (a > 0.0 && b >= 0.0 && c >= 0.0).then(|| Self::Universal {
                alone: 1.0 / a,
                contention: b / a,
                coherency: c / a,
            })
        });
        laws.collect()
    }

    fn bounded(points: &[(f64, f64)], sharpness: f64) -> Option<Self> {
        // (N/X)^p is linear in λ^-p and C^-p. Scaled, so that high powers stay numbers.
        let (n0, x0) = points
            .iter()
            .copied()
            .reduce(|a, b| if b.0 > a.0 { b } else { a })?;
        let rows: Vec<[f64; 3]> = points
            .iter()
            .map(|(n, x)| {
                let y = (n / n0 * x0 / x).powf(sharpness);
                [1.0 / y, (n / n0).powf(sharpness) / y, 0.0]
            })
            .collect();
        let [a, b, _] = least_squares(&rows, &[0, 1])?;
        let root = |v: f64| v.powf(-1.0 / sharpness);
        let law = Self::Bounded {
            alone: x0 / n0 * root(a),
            bound: x0 * root(b),
            sharpness,
        };
        // A bound that was hardly met is noise of the largest number.
        let met = law.at(n0) < MET * x0 / n0 * root(a) * n0;
        (a > 0.0 && b > 0.0 && met).then_some(law)
    }

    /// Throughput of so many.
    pub fn at(&self, clients: f64) -> f64 {
        match *self {
            Self::Universal {
                alone,
                contention,
                coherency,
            } => {
                let others = clients - 1.0;
                alone * clients / (1.0 + contention * others + coherency * clients * others)
            }
            Self::Bounded {
                alone,
                bound,
                sharpness,
            } => {
                // By the larger of both, so that no power overflows.
                let free = alone * clients;
                let (low, high) = (free.min(bound), free.max(bound));
                low / (1.0 + (low / high).powf(sharpness)).powf(1.0 / sharpness)
            }
        }
    }

    /// Throughput to be expected of more than the `most` that were measured: a decline that nobody has seen is not foretold.
    pub fn expected(&self, clients: f64, most: f64) -> f64 {
        match self.knee().filter(|k| *k >= most) {
            Some(knee) => self.at(clients.min(knee)).max(self.at(clients)),
            None => self.at(clients),
        }
    }

    /// The number of clients from which on more bring less, or where the asymptotes cross; `None` where growth has no end.
    pub fn knee(&self) -> Option<f64> {
        match *self {
            Self::Universal {
                contention,
                coherency,
                ..
            } => {
                (coherency > 0.0).then(|| ((1.0 - contention).max(0.0) / coherency).sqrt().max(1.0))
            }
            Self::Bounded { alone, bound, .. } => Some((bound / alone).max(1.0)),
        }
    }
}

/// The pair with the most clients.
fn largest(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let more = |a: (f64, f64), b: (f64, f64)| if b.0 > a.0 { b } else { a };
    points.iter().copied().reduce(more)
}

/// Throughput of the most clients is this much below that of fewer where it declines, as a share.
const DECLINE: f64 = 0.03;

/// Whether every throughput of the most clients lies below every one of some fewer.
fn declines(points: &[(f64, f64)]) -> bool {
    let most = points.iter().fold(0.0f64, |m, p| m.max(p.0));
    let of = |n: f64| points.iter().filter(move |p| p.0 == n).map(|p| p.1);
    let last = of(most).fold(0.0, f64::max);
    points
        .iter()
        .any(|(n, _)| *n < most && of(*n).fold(f64::MAX, f64::min) * (1.0 - DECLINE) > last)
}

/// Coefficients of the `chosen` columns for which the rows come nearest to 1, 0 for the others.
fn least_squares(rows: &[[f64; 3]], chosen: &[usize]) -> Option<[f64; 3]> {
    let k = chosen.len();
    // The normal equations with their right side.
    let mut m = vec![vec![0.0; k + 1]; k];
    for row in rows {
        for (i, a) in chosen.iter().enumerate() {
            for (j, b) in chosen.iter().enumerate() {
                m[i][j] += row[*a] * row[*b];
            }
            m[i][k] += row[*a];
        }
    }
    for i in 0..k {
        let best = (i..k).max_by(|a, b| m[*a][i].abs().total_cmp(&m[*b][i].abs()))?;
        m.swap(i, best);
        let pivot = m[i].clone();
        if pivot[i].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (_, row) in m.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = row[i] / pivot[i];
            row.iter_mut()
                .zip(&pivot)
                .for_each(|(r, p)| *r -= factor * p);
        }
    }
    let mut solved = [0.0; 3];
    for (i, column) in chosen.iter().enumerate() {
        solved[*column] = m[i][k] / m[i][i];
    }
    Some(solved)
}

/// Jain's index of fairness of n shares: 1 where all are alike, 1/n where one has all (Jain, Chiu and Hawe, "A quantitative
/// measure of fairness and discrimination", DEC TR-301, 1984). `None` without shares, or where nobody has any.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// How far each member of a group lies from the mean of the others, from rounds in which all were measured beside each other:
/// what a round did to all of them cancels. The spread is that of all members together, and the intervals hold together
/// in 95 % of cases (Bonferroni). Empty with fewer than three members or two rounds, or rounds of different length.
pub fn apart(rounds: &[Vec<f64>]) -> Vec<Estimate> {
    let n = rounds.first().map_or(0, Vec::len);
    let r = rounds.len();
    if n < 3 || r < 2 || rounds.iter().any(|x| x.len() != n) {
        return Vec::new();
    }
    let mean = |x: &mut dyn Iterator<Item = f64>, k: usize| x.sum::<f64>() / k as f64;
    let of_round: Vec<f64> = rounds
        .iter()
        .map(|x| mean(&mut x.iter().copied(), n))
        .collect();
    let effect = |m: usize| mean(&mut rounds.iter().zip(&of_round).map(|(x, a)| x[m] - a), r);
    let effects: Vec<f64> = (0..n).map(effect).collect();
    let rest: f64 = rounds
        .iter()
        .zip(&of_round)
        .flat_map(|(x, a)| {
            x.iter()
                .zip(&effects)
                .map(move |(v, e)| (v - a - e).powi(2))
        })
        .sum();
    let freedom = ((n - 1) * (r - 1)) as f64;
    let (members, rounds) = (n as f64, r as f64);
    // Of a member's mean against that of the others.
    let error = (rest / freedom * (1.0 / rounds) * (members / (members - 1.0))).sqrt();
    let t = StudentsT::new(0.0, 1.0, freedom)
        .map_or(f64::INFINITY, |d| d.inverse_cdf(1.0 - 0.025 / members));
    effects
        .into_iter()
        .map(|e| {
            let value = e * members / (members - 1.0);
            Estimate {
                value,
                low: Some(value - t * error),
                high: Some(value + t * error),
                samples: r as u32,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    const COUNTS: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0];

    fn points(law: &Law) -> Vec<(f64, f64)> {
        COUNTS.map(|n| (n, law.at(n))).to_vec()
    }

    #[test]
    fn a_law_is_found_again_from_its_own_throughput() {
        let universal = |alone, contention, coherency| Law::Universal {
            alone,
            contention,
            coherency,
        };
        let bounded = |alone, bound, sharpness| Law::Bounded {
            alone,
            bound,
            sharpness,
        };
        for law in [
            universal(100.0, 0.0, 0.0),
            universal(5e5, 0.05, 0.0),
            universal(3.0, 0.1, 0.002),
            universal(1e4, 0.0, 0.01),
            universal(1.0, 0.6, 0.03),
            bounded(100.0, 350.0, 2.0),
            bounded(1e5, 5e5, 16.0),
            bounded(10.0, 9.0, 4.0),
        ] {
            let found = Law::fit(&points(&law)).unwrap();
            for n in [1.0, 5.0, 16.0, 64.0] {
                let off = found.at(n) / law.at(n) - 1.0;
                assert!(off.abs() < 1e-3, "{law:?}: {found:?} at {n}");
            }
        }
        let law = universal(10.0, 0.19, 0.01);
        assert_eq!(law.knee(), Some(9.0));
        assert_eq!(bounded(10.0, 55.0, 3.0).knee(), Some(5.5));
    }

    #[test]
    fn noise_moves_it_a_little_and_never_below_nothing() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let law = Law::Universal {
                alone: 1000.0,
                contention: 0.02 * random.unit(),
                coherency: 0.002 * random.unit(),
            };
            let mut points = points(&law);
            for (_, x) in &mut points {
                *x *= 1.0 + 0.01 * random.normal();
            }
            let found = Law::fit(&points).unwrap();
            let off = found.at(16.0) / law.at(16.0) - 1.0;
            assert!(off.abs() < 0.25, "seed {seed}: {off}");
            assert!(found.at(1.0) > 0.0, "{found:?}");
        }
    }

    #[test]
    fn a_flat_end_is_no_decline_and_none_is_foretold_that_was_not_seen() {
        // A solid state drive behind hosts of depth 16.
        let rates = [185.6, 316.9, 399.8, 437.5, 440.8, 440.7];
        let flat: Vec<(f64, f64)> = COUNTS.into_iter().zip(rates).collect();
        let law = Law::fit(&flat).unwrap();
        let off = law.expected(16.0, 8.0) / 440.8 - 1.0;
        assert!(off.abs() < 0.03, "{law:?}: {off}");
        let bent = Law::Universal {
            alone: 10.0,
            contention: 0.0,
            coherency: 0.01,
        };
        assert_eq!(bent.expected(100.0, 8.0), bent.at(10.0));
        assert_eq!(bent.expected(100.0, 20.0), bent.at(100.0));
        assert_eq!(bent.expected(9.0, 8.0), bent.at(9.0));
    }

    #[test]
    fn too_little_is_no_law() {
        assert_eq!(Law::fit(&[(1.0, 5.0), (2.0, 9.0)]), None);
        assert_eq!(Law::fit(&[(1.0, 5.0), (1.0, 5.0), (2.0, 9.0)]), None);
        assert_eq!(Law::fit(&[(1.0, 5.0), (2.0, 0.0), (4.0, 9.0)]), None);
    }

    #[test]
    fn one_that_lies_apart_is_found_and_others_are_not() {
        let (mut found, mut wrong) = (0, 0);
        for seed in 0..400 {
            let mut random = SplitMix64::new(seed);
            let rounds: Vec<Vec<f64>> = (0..3)
                .map(|_| {
                    let all = 0.3 * random.normal();
                    (0..8)
                        .map(|m| all + 0.02 * random.normal() - if m == 5 { 0.1 } else { 0.0 })
                        .collect()
                })
                .collect();
            let apart = apart(&rounds);
            found += u32::from(apart[5].high.unwrap() < 0.0);
            // The others lie a seventh of that on the other side.
            let off = |m: usize| {
                let truth = if m == 5 { -0.1 } else { 0.1 / 7.0 };
                apart[m].low.unwrap() > truth || apart[m].high.unwrap() < truth
            };
            wrong += u32::from((0..8).any(off));
        }
        assert!(found >= 390, "{found}");
        assert!(wrong <= 32, "{wrong} of 400");
        assert!(apart(&[vec![1.0, 2.0, 3.0]]).is_empty());
        assert!(apart(&[vec![1.0, 2.0], vec![1.0, 2.0]]).is_empty());
    }

    #[test]
    fn fairness_is_one_where_all_are_alike_and_one_nth_where_one_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[3.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!((jain(&[]), jain(&[0.0])), (None, None));
    }
}

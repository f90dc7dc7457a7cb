//! How service times scatter: log-normally, with mean 1 and a given coefficient of variation.
//!
//! The middle comes from a table of quantiles, both ends are computed, so that no percentile is capped: of a wide scatter
//! most of the variance lies in the rarest values.
//!
//! The C library's exponential and logarithm differ between systems in their last bit, so they are
//! computed here from sums and products alone: the same seed gives the same nanoseconds everywhere.

use std::array;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fathom_io::load::rng::Rng;

/// Entries of the table.
const ENTRIES: usize = 4096;
/// So many at each end are computed for each request instead: one request in 128 pays for it.
const COMPUTED: usize = 16;
/// Bits of a random number that say where within an entry it lies.
const WITHIN: u32 = 64 - ENTRIES.ilog2();
/// Factors are kept in 1/65536.
const ONE: f64 = 65536.0;

/// So many tables are kept for the next device like one before: an experiment simulates a few models in turns.
const KEPT: usize = 16;

/// Log-normal scatter around 1.
#[derive(Debug, Clone)]
pub struct Spread(Option<Arc<LogNormal>>);

#[derive(Debug)]
struct LogNormal {
    /// Of the logarithm.
    sigma: f64,
    table: [u32; ENTRIES],
}

impl Spread {
    /// With a coefficient of variation `cv` from 0 (no scatter) to 5.
    pub fn new(cv: f64) -> Self {
        if cv <= 0.0 {
            return Self(None);
        }
        static MADE: Mutex<Vec<Arc<LogNormal>>> = Mutex::new(Vec::new());
        let sigma = ln(1.0 + cv * cv).sqrt();
        let made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let found = made().iter().find(|m| m.sigma == sigma).cloned();
        // Nobody waits while one is made: a fit tries other scatter in each of its threads.
        let scatter = found.unwrap_or_else(|| Arc::new(LogNormal::new(sigma)));
        let mut made = made();
        made.retain(|m| m.sigma != sigma);
        made.truncate(KEPT - 1);
        made.insert(0, Arc::clone(&scatter));
        Self(Some(scatter))
    }

    /// `ns` scattered, ns.
    #[inline]
    pub fn apply(&self, ns: u64, rng: &mut Rng) -> u64 {
        match &self.0 {
            Some(scatter) => scatter.apply(ns, rng.bits()),
            None => ns,
        }
    }
}

impl LogNormal {
    fn new(sigma: f64) -> Self {
        static NORMAL: OnceLock<[f64; ENTRIES]> = OnceLock::new();
        let middle = |i: usize| (i as f64 + 0.5) / ENTRIES as f64;
        let normal = NORMAL.get_or_init(|| array::from_fn(|i| normal_quantile(middle(i))));
        let table = normal.map(|z| (factor(sigma, z) * ONE).round() as u32);
        Self { sigma, table }
    }

    #[inline]
    fn apply(&self, ns: u64, bits: u64) -> u64 {
        let i = (bits >> WITHIN) as usize;
        if (COMPUTED..ENTRIES - COMPUTED).contains(&i) {
            return (ns * u64::from(self.table[i])) >> 16;
        }
        // The probability is taken from the nearer end, where it is exact however small.
        let share = |bits: u64| (bits as f64 + 0.5) / 2f64.powi(64);
        let normal = match i < COMPUTED {
            true => normal_quantile(share(bits)),
            false => -normal_quantile(share(!bits)),
        };
        (ns as f64 * factor(self.sigma, normal)) as u64
    }
}

/// Of a standard normal value: a log-normal one with mean 1.
fn factor(sigma: f64, normal: f64) -> f64 {
    exp(sigma * normal - sigma * sigma / 2.0)
}

/// Natural logarithm of `x` > 0 from the series of the inverse hyperbolic tangent.
pub fn ln(mut x: f64) -> f64 {
    const LN2: f64 = std::f64::consts::LN_2;
    let mut power = 0.0;
    while x > 1.5 {
        x *= 0.5;
        power += 1.0;
    }
    while x < 0.75 {
        x *= 2.0;
        power -= 1.0;
    }
    let t = (x - 1.0) / (x + 1.0);
    let (mut term, mut sum, square) = (t, 0.0, t * t);
    for k in 0..24 {
        sum += term / f64::from(2 * k + 1);
        term *= square;
    }
    2.0 * sum + power * LN2
}

/// Exponential of `x` in -700..700 from its series, the argument halved until it is small.
pub fn exp(x: f64) -> f64 {
    let (mut y, mut halvings) = (x, 0);
    while y.abs() > 0.25 {
        y *= 0.5;
        halvings += 1;
    }
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..16 {
        term *= y / f64::from(k);
        sum += term;
    }
    for _ in 0..halvings {
        sum *= sum;
    }
    sum
}

/// Quantile of the standard normal at `p` in 0..1 (Acklam's rational approximation, relative error
/// below 1.2e-9).
pub(crate) fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [
        7.784695709041462e-3,
        3.224671290700398e-1,
        2.445134137142996,
        3.754408661907416,
    ];
    let horner = |c: &[f64], x: f64| c.iter().fold(0.0, |sum, c| sum * x + c);
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    if p < 0.02425 {
        let q = (-2.0 * ln(p)).sqrt();
        return horner(&C, q) / (horner(&D, q) * q + 1.0);
    }
    let q = p - 0.5;
    let r = q * q;
    horner(&A, r) * q / (horner(&B, r) * r + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_agree_with_the_library() {
        for x in [1e-9, 0.1, 0.5, 1.0, 2.0, 10.0, 1e12] {
            assert!((ln(x) - f64::ln(x)).abs() < 1e-12, "ln {x}");
        }
        for x in [-20.0, -1.0, 0.0, 0.3, 5.0, 30.0] {
            assert!((exp(x) / f64::exp(x) - 1.0).abs() < 1e-12, "exp {x}");
        }
    }

    /// Mean and coefficient of variation over all that can be drawn: entry by entry, and along powers of two of what is left
    /// beyond, at the ends.
    fn moments(cv: f64) -> (f64, f64) {
        const NS: u64 = 1 << 40;
        let spread = Spread::new(cv).0.unwrap();
        let (mut mean, mut square) = (0.0, 0.0);
        let mut add = |bits: u64, share: f64| {
            let x = spread.apply(NS, bits) as f64 / NS as f64;
            mean += share * x;
            square += share * x * x;
        };
        for i in COMPUTED..ENTRIES - COMPUTED {
            add((i as u64) << WITHIN, 1.0 / ENTRIES as f64);
        }
        // From 16/4096 on, each step holds a 32nd of what is left.
        let mut left = COMPUTED as f64 / ENTRIES as f64;
        while left > 1e-18 {
            let next = left * 31.0 / 32.0;
            let bits = ((left + next) / 2.0 * 2f64.powi(64)) as u64;
            add(bits, left - next);
            add(!bits, left - next);
            left = next;
        }
        (mean, (square - mean * mean).sqrt() / mean)
    }

    #[test]
    fn mean_and_scatter_are_as_asked_for_however_wide() {
        for cv in [0.05, 0.1, 0.4, 0.75, 1.4, 2.0, 3.0, 5.0] {
            let (mean, seen) = moments(cv);
            assert!((mean - 1.0).abs() < 0.001, "mean {mean} at cv {cv}");
            assert!((seen / cv - 1.0).abs() < 0.005, "cv {seen} instead of {cv}");
        }
    }

    #[test]
    fn every_percentile_is_met_as_often_as_it_says_whatever_the_seed() {
        const N: usize = 2_000_000;
        const NS: u64 = 1_000_000_000;
        for (seed, cv) in [(1, 0.3), (2, 0.75), (3, 2.0), (4, 3.0), (5, 5.0)] {
            let (spread, mut rng) = (Spread::new(cv), Rng::new(seed, 0));
            let sigma = ln(1.0 + cv * cv).sqrt();
            let beyond = [0.5, 1e-2, 1e-3, 1e-4, 1e-5];
            // Twice: above the upper quantile and below the lower one.
            let bounds = beyond.map(|p| {
                [-normal_quantile(p), normal_quantile(p)].map(|z| factor(sigma, z) * NS as f64)
            });
            let mut seen = [[0u32; 2]; 5];
            for _ in 0..N {
                let x = spread.apply(NS, &mut rng) as f64;
                for (n, [high, low]) in seen.iter_mut().zip(bounds) {
                    n[0] += u32::from(x > high);
                    n[1] += u32::from(x < low);
                }
            }
            for (p, n) in beyond.into_iter().zip(seen) {
                let expected = p * N as f64;
                for n in n {
                    let off = (f64::from(n) - expected) / (expected * (1.0 - p)).sqrt();
                    assert!(
                        off.abs() < 4.5,
                        "seed {seed}, cv {cv}: {n} of {expected} beyond {p}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_table_is_the_same_on_every_machine() {
        let (spread, mut rng) = (Spread::new(0.6), Rng::new(1, 2));
        let seen: Vec<u64> = (0..4).map(|_| spread.apply(1_000_000, &mut rng)).collect();
        assert_eq!(seen, [939_361, 772_842, 1_076_324, 832_107]);
    }
}

//! How service times scatter: a table of quantiles with mean 1 and a given coefficient of variation.
//!
//! The C library's exponential and logarithm differ between systems in their last bit, so they are
//! computed here from sums and products alone: the same seed gives the same nanoseconds everywhere.

use fathom_io::load::rng::Rng;

/// Entries of a table: the rarest value stands for one request in 4096.
const ENTRIES: usize = 4096;
/// Factors are kept in 1/65536.
const ONE: f64 = 65536.0;

/// Log-normal scatter around 1.
#[derive(Debug, Clone)]
pub struct Spread(Option<Box<[u32; ENTRIES]>>);

impl Spread {
    /// With a coefficient of variation `cv` from 0 (no scatter) to 5.
    pub fn new(cv: f64) -> Self {
        if cv <= 0.0 {
            return Self(None);
        }
        let sigma = ln(1.0 + cv * cv).sqrt();
        let raw: Vec<f64> = (0..ENTRIES)
            .map(|i| exp(sigma * normal_quantile((i as f64 + 0.5) / ENTRIES as f64)))
            .collect();
        let mean = raw.iter().sum::<f64>() / ENTRIES as f64;
        let mut table = Box::new([0; ENTRIES]);
        for (entry, x) in table.iter_mut().zip(raw) {
            *entry = (x / mean * ONE).round() as u32;
        }
        Self(Some(table))
    }

    /// `ns` scattered, ns.
    #[inline]
    pub fn apply(&self, ns: u64, rng: &mut Rng) -> u64 {
        match &self.0 {
            Some(table) => {
                let i = (rng.bits() >> 52) as usize;
                (ns * u64::from(table[i])) >> 16
            }
            None => ns,
        }
    }
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
fn normal_quantile(p: f64) -> f64 {
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

    #[test]
    fn mean_and_scatter_are_as_asked_for() {
        for cv in [0.05, 0.4, 0.6, 1.2] {
            let (spread, mut rng) = (Spread::new(cv), Rng::new(7, 0));
            let n = 200_000;
            let all: Vec<f64> = (0..n)
                .map(|_| spread.apply(100_000, &mut rng) as f64)
                .collect();
            let mean = all.iter().sum::<f64>() / f64::from(n);
            let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
            assert!((mean / 1e5 - 1.0).abs() < 0.01, "mean {mean} at cv {cv}");
            let seen = variance.sqrt() / mean;
            assert!((seen / cv - 1.0).abs() < 0.05, "cv {seen} instead of {cv}");
        }
    }

    #[test]
    fn the_table_is_the_same_on_every_machine() {
        let (spread, mut rng) = (Spread::new(0.6), Rng::new(1, 2));
        let seen: Vec<u64> = (0..4).map(|_| spread.apply(1_000_000, &mut rng)).collect();
        assert_eq!(seen, [939_437, 772_918, 1_076_416, 832_183]);
    }
}

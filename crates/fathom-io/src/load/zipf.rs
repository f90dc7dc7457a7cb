//! Zipf's law, drawn by rejection-inversion (Hörmann and Derflinger 1996): constant time for any number of ranks.
//!
//! Of our own because the C library's powers and logarithms differ between systems in their last bit, and a seed
//! must give the same offsets everywhere.

use super::rng::Rng;

/// Ranks from 1 to n, rank k as often as k^-s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Zipf {
    n: f64,
    exponent: f64,
    /// The integral of the density's hat from half a rank before the first, and to half a rank behind the last.
    first: f64,
    last: f64,
    /// As near to its rank, a draw needs no second look.
    sure: f64,
}

impl Zipf {
    /// Of `n` ranks (at least 1) with an exponent of 0 (uniform) or more.
    pub(super) fn new(n: u64, exponent: f64) -> Self {
        let mut z = Self {
            n: n.max(1) as f64,
            exponent,
            first: 0.0,
            last: 0.0,
            sure: 0.0,
        };
        z.first = z.integral(1.5) - 1.0;
        z.last = z.integral(z.n + 0.5);
        z.sure = 2.0 - z.inverse(z.integral(2.5) - z.density(2.0));
        z
    }

    /// A rank from 1 to n.
    pub(super) fn draw(&self, rng: &mut Rng) -> f64 {
        loop {
            let u = self.last + rng.unit() * (self.first - self.last);
            let x = self.inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// (x^(1-s) - 1) / (1-s), and its limit ln x where s is near 1.
    fn integral(&self, x: f64) -> f64 {
        let ln = libm::log(x);
        let y = (1.0 - self.exponent) * ln;
        let mean = if y.abs() > 1e-8 {
            libm::expm1(y) / y
        } else {
            1.0 + y * (0.5 + y / 6.0)
        };
        mean * ln
    }

    fn inverse(&self, x: f64) -> f64 {
        // Rounding may lead a little beyond the pole.
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        let mean = if t.abs() > 1e-8 {
            libm::log1p(t) / t
        } else {
            1.0 - t * (0.5 - t / 3.0)
        };
        libm::exp(mean * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_comes_as_often_as_the_law_says() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 3.0] {
            let (n, draws) = (50u64, 400_000u32);
            let (zipf, mut rng) = (Zipf::new(n, exponent), Rng::new(11, 0));
            let mut seen = vec![0u32; n as usize];
            (0..draws).for_each(|_| seen[zipf.draw(&mut rng) as usize - 1] += 1);
            let weight = |k: usize| (k as f64 + 1.0).powf(-exponent);
            let all: f64 = (0..n as usize).map(weight).sum();
            for (k, count) in seen.iter().enumerate() {
                let expected = f64::from(draws) * weight(k) / all;
                let off = (f64::from(*count) - expected).abs();
                assert!(
                    off <= 5.0 * expected.sqrt() + 1.0,
                    "s = {exponent}, rank {}: {count} instead of {expected:.0}",
                    k + 1
                );
            }
        }
    }

    #[test]
    fn the_extremes_stay_inside() {
        let mut rng = Rng::new(5, 0);
        for (n, exponent) in [
            (1, 1.1),
            (2, 0.0),
            (2, 20.0),
            (1 << 40, 0.0),
            (1 << 40, 1.0),
            (3, 20.0),
        ] {
            let zipf = Zipf::new(n, exponent);
            for _ in 0..10_000 {
                let rank = zipf.draw(&mut rng);
                assert!((1.0..=n as f64).contains(&rank), "{n} {exponent}: {rank}");
            }
        }
    }

    #[test]
    fn the_ranks_are_the_same_on_every_machine() {
        let (zipf, mut rng) = (Zipf::new(1_000_000, 1.1), Rng::new(1, 2));
        let seen: Vec<u64> = (0..8).map(|_| zipf.draw(&mut rng) as u64).collect();
        assert_eq!(seen, [31, 178, 11, 89, 1754, 42, 1, 1]);
    }
}

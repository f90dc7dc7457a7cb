//! The distributions, hashes and permutations of pgbench's expressions. Hashes and permutations give its numbers; random ones
//! have its distributions, in a sequence of their own. Formulas: `pgbench.c` of PostgreSQL 15 and its manual, "Built-In Functions".

use fathom_stats::rng::SplitMix64;

/// Least parameter of [`gaussian`].
pub(super) const GAUSSIAN_MIN: f64 = 2.0;
/// Parameters of [`zipfian`].
pub(super) const ZIPFIAN: (f64, f64) = (1.001, 1000.0);

/// From a range, both ends included, by a share of it in [0, 1).
fn within((min, max): (i64, i64), share: f64) -> i64 {
    let n = (max - min + 1) as f64;
    // A range beyond the precision of the product must not be left.
    min.saturating_add((n * share) as i64).min(max)
}

/// Uniform, both ends included; the range has no more than `i64::MAX` numbers.
pub(super) fn uniform(random: &mut SplitMix64, (min, max): (i64, i64)) -> i64 {
    min + random.below((max - min + 1) as usize) as i64
}

/// Exponential: the density at the end of the range is `exp(-parameter)` of that at its begin.
pub(super) fn exponential(random: &mut SplitMix64, range: (i64, i64), parameter: f64) -> i64 {
    let cut = (-parameter).exp();
    let uniform = 1.0 - random.unit();
    within(range, -(cut + (1.0 - cut) * uniform).ln() / parameter)
}

/// Normal, its ends `parameter` standard deviations from the middle.
pub(super) fn gaussian(random: &mut SplitMix64, range: (i64, i64), parameter: f64) -> i64 {
    let deviation = loop {
        let x = random.normal();
        if (-parameter..parameter).contains(&x) {
            break x;
        }
    };
    within(range, (deviation + parameter) / (parameter * 2.0))
}

/// Zipfian with an exponent in [`ZIPFIAN`], by rejection (Devroye 1986, p. 550).
pub(super) fn zipfian(random: &mut SplitMix64, (min, max): (i64, i64), s: f64) -> i64 {
    let n = max - min + 1;
    if n <= 1 {
        return min;
    }
    let b = 2f64.powf(s - 1.0);
    loop {
        let (u, v) = (random.unit(), random.unit());
        let x = u.powf(-1.0 / (s - 1.0)).floor();
        let t = (1.0 + 1.0 / x).powf(s - 1.0);
        if v * x * (t - 1.0) / (b - 1.0) <= t / b && x <= n as f64 {
            return min - 1 + (x as i64).min(n);
        }
    }
}

/// FNV-1a of the eight bytes of a number.
pub(super) fn fnv1a(value: i64, seed: i64) -> i64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed as u64;
    let hash = value.to_le_bytes().into_iter().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash as i64
}

/// Murmur2 of the eight bytes of a number.
pub(super) fn murmur2(value: i64, seed: i64) -> i64 {
    const MUL: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |k: u64| (k ^ (k >> 47)).wrapping_mul(MUL);
    let hash = seed as u64 ^ MUL.wrapping_mul(8) ^ mix((value as u64).wrapping_mul(MUL));
    let hash = mix(hash.wrapping_mul(MUL));
    (hash ^ (hash >> 47)) as i64
}

/// xoroshiro128** (Blackman and Vigna 2018), seeded as PostgreSQL seeds it.
struct Xoroshiro(u64, u64);

impl Xoroshiro {
    fn new(seed: u64) -> Self {
        let mut seed = SplitMix64::new(seed);
        Self(seed.next_u64(), seed.next_u64())
    }

    fn next(&mut self) -> u64 {
        let (s, x) = (self.0, self.1 ^ self.0);
        self.0 = s.rotate_left(24) ^ x ^ (x << 16);
        self.1 = x.rotate_left(37);
        s.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// Up to a number, which is included.
    fn up_to(&mut self, max: u64) -> u64 {
        let shift = max.leading_zeros();
        loop {
            let n = self.next().checked_shr(shift).unwrap_or(0);
            if n <= max {
                return n;
            }
        }
    }
}

/// Where a number lies in a permutation of 0 to `size` - 1, which the seed chooses.
pub(super) fn permute(value: i64, size: i64, seed: i64) -> i64 {
    if size < 2 {
        return 0;
    }
    let size = size as u64;
    let mut random = Xoroshiro::new(seed as u64);
    let mut v = value as u64 % size;
    let bits = size.ilog2();
    let mask = (1 << bits) - 1;
    // Bijections on the lower and the upper half of the numbers, which overlap, and an offset; six rounds.
    let scramble = |v: u64, multiplier: u64, mixed: u64| {
        let v = (v.wrapping_mul(multiplier) ^ mixed) & mask;
        ((v << 1) & mask) | (v >> (bits - 1))
    };
    for _ in 0..6 {
        let (m, r) = ((random.next() & mask) | 1, random.next() & mask);
        if v <= mask {
            v = scramble(v, m, r);
        }
        let (m, r) = ((random.next() & mask) | 1, random.next() & mask);
        let t = size - 1 - v;
        if t <= mask {
            v = size - 1 - scramble(t, m, r);
        }
        v = ((u128::from(v) + u128::from(random.up_to(size - 1))) % u128::from(size)) as u64;
    }
    v as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 200_000;

    /// Pearson's statistic of what was drawn against what each number's share should be.
    fn chi_square(shares: &[f64], mut draw: impl FnMut() -> i64) -> f64 {
        let mut seen = vec![0.0; shares.len()];
        for _ in 0..N {
            seen[(draw() - 1) as usize] += 1.0;
        }
        let all: f64 = shares.iter().sum();
        let cells = seen.iter().zip(shares);
        cells
            .map(|(n, share)| {
                let expected = share / all * N as f64;
                (n - expected).powi(2) / expected
            })
            .sum()
    }

    /// Beyond it lies one in 10,000 of the statistics of 19 degrees of freedom.
    const LIMIT: f64 = 50.8;

    #[test]
    fn distributions_are_those_of_the_manual() {
        let mut random = SplitMix64::new(11);
        let range = (1, 20);
        let flat = chi_square(&[1.0; 20], || uniform(&mut random, range));
        assert!(flat < LIMIT, "{flat}");
        let shares: Vec<f64> = (1..=20).map(|k| f64::from(k).powf(-1.3)).collect();
        let zipf = chi_square(&shares, || zipfian(&mut random, range, 1.3));
        assert!(zipf < LIMIT, "{zipf}");
        let at = |x: f64| (-2.5 * x / 20.0).exp();
        let shares: Vec<f64> = (0..20).map(|k| at(k.into()) - at((k + 1).into())).collect();
        let fell = chi_square(&shares, || exponential(&mut random, range, 2.5));
        assert!(fell < LIMIT, "{fell}");
        // Between two numbers the normal density, by Simpson's rule.
        let density = |x: f64| (-x * x / 2.0).exp();
        let at = |k: f64| (k / 20.0 * 2.0 - 1.0) * 2.5;
        let shares: Vec<f64> = (0..20)
            .map(|k| {
                let k = f64::from(k);
                density(at(k)) + 4.0 * density(at(k + 0.5)) + density(at(k + 1.0))
            })
            .collect();
        let bell = chi_square(&shares, || gaussian(&mut random, range, 2.5));
        assert!(bell < LIMIT, "{bell}");
    }

    #[test]
    fn ranges_are_kept_at_their_ends() {
        let mut random = SplitMix64::new(5);
        let all = (0, i64::MAX - 1);
        for _ in 0..2000 {
            for n in [
                uniform(&mut random, all),
                exponential(&mut random, all, 1e-3),
                gaussian(&mut random, all, 2.0),
                zipfian(&mut random, all, 1.001),
            ] {
                assert!((all.0..=all.1).contains(&n), "{n}");
            }
            assert_eq!(zipfian(&mut random, (7, 7), 2.0), 7);
        }
    }

    #[test]
    fn a_permutation_has_each_number_once() {
        for size in [1, 2, 3, 4, 5, 100, 1023, 1024, 1025] {
            for seed in [0, 1, -1, 5432] {
                let mut all: Vec<i64> = (0..size).map(|n| permute(n, size, seed)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..size).collect::<Vec<_>>(), "{size} {seed}");
            }
        }
        // As pgbench 15 says.
        assert_eq!(permute(0, i64::MAX, 5432), 8_941_447_457_790_205_183);
    }
}

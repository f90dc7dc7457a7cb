//! A seeded permutation of 0..n without memory: Feistel network with cycle walking.
//!
//! It is the random map (every block once) and scatters popular blocks of skewed
//! distributions over the range.

use super::rng::mix;

/// A bijection on 0..n.
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// For `n` ≥ 1 elements.
    pub(super) fn new(n: u64, seed: u64) -> Self {
        assert!(n > 0, "a permutation has elements");
        let bits = (64 - (n - 1).leading_zeros()).max(2);
        let mut keys = [0; 4];
        for (i, k) in keys.iter_mut().enumerate() {
            *k = mix(seed
                .wrapping_add(i as u64 + 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15));
        }
        Self {
            n,
            half_bits: bits.div_ceil(2),
            keys,
        }
    }

    /// Where element `i` goes. The domain is at most 4 n, so fewer than 4 walks are needed on average.
    #[inline]
    pub(super) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let mask = (1u64 << self.half_bits) - 1;
        let mut v = i;
        loop {
            let (mut left, mut right) = (v >> self.half_bits, v & mask);
            for k in self.keys {
                (left, right) = (right, left ^ (mix(right ^ k) & mask));
            }
            v = (left << self.half_bits) | right;
            if v < self.n {
                return v;
            }
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> u64 {
        self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_bijection_for_any_size() {
        for n in [1, 2, 3, 7, 64, 100, 1000, 4097] {
            let p = Permutation::new(n, 42);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                assert!(
                    !std::mem::replace(&mut seen[p.at(i) as usize], true),
                    "n = {n}"
                );
            }
        }
    }

    #[test]
    fn neighbours_are_torn_apart() {
        let p = Permutation::new(1 << 20, 7);
        let near = (0..10_000u64)
            .filter(|i| p.at(*i).abs_diff(p.at(i + 1)) < 1024)
            .count();
        assert!(near < 60, "{near} of 10,000 neighbours stayed near");
    }
}

//! Which key is asked for next, and how often each page of a tree is therefore asked for.

use fathom_stats::rng::SplitMix64;
use serde::{Deserialize, Serialize};

/// How keys are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// All alike.
    Uniform,
    /// Zipf with exponent 0.99, scrambled (YCSB).
    Zipf,
    /// Normal around the middle, a sixth of the range wide (Zhang et al. 2018).
    Gaussian,
    /// Zipf over the newest (YCSB D).
    Latest,
}

impl Keys {
    /// By name, those that can be asked for.
    pub(crate) const NAMED: [(&'static str, Self); 3] = [
        ("uniform", Self::Uniform),
        ("zipf", Self::Zipf),
        ("gaussian", Self::Gaussian),
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Gaussian => "gaussian",
            Self::Latest => "latest",
        }
    }
}

/// Standard deviations from the middle to either end of the Gaussian's range.
const GAUSSIAN_REACH: f64 = 3.0;

/// Zipf by rejection-free approximation (Gray et al. 1994), as YCSB and LinkBench do it.
pub(crate) struct Zipf {
    n: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

/// YCSB's exponent.
pub(crate) const THETA: f64 = 0.99;

impl Zipf {
    /// Of `n` ranks, with an exponent between 0 and 1.
    pub(crate) fn new(n: u64, theta: f64) -> Self {
        // Beyond these terms the sum is its integral with the first correction of Euler and Maclaurin: exact to 1e-9.
        let exact = n.min(10_000);
        let mut zeta: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
        let tail = |x: f64| x.powf(1.0 - theta) / (1.0 - theta) + x.powf(-theta) / 2.0;
        zeta += tail(n as f64) - tail(exact as f64);
        let two = 1.0 + 0.5f64.powf(theta);
        Self {
            n: n as f64,
            theta,
            zeta,
            eta: (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - two / zeta),
        }
    }
    /// The rank, from 0 on, at `u` of [0, 1).
    pub(crate) fn draw(&self, u: f64) -> u64 {
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let at = (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (self.n * at) as u64
    }
    /// Chance that [`Zipf::draw`] gives less than `rank`: its inverse.
    fn below(&self, rank: u64) -> f64 {
        match rank {
            0 => 0.0,
            1 => 1.0 / self.zeta,
            r => ((r as f64 / self.n).powf(1.0 - self.theta) - 1.0 + self.eta) / self.eta,
        }
    }
}

/// The key of a rank, by popularity, where popular keys are scattered.
fn scattered(rank: u64, n: u64) -> u64 {
    SplitMix64::new(rank).next_u64() % n
}

/// Draws keys.
pub(crate) struct Drawer {
    keys: Keys,
    zipf: Option<Zipf>,
}

impl Drawer {
    /// For a tree of `count` keys at the start.
    pub(crate) fn new(keys: Keys, count: u64) -> Self {
        let zipf =
            matches!(keys, Keys::Zipf | Keys::Latest).then(|| Zipf::new(count.max(2), THETA));
        Self { keys, zipf }
    }

    /// A key of the first `newest`.
    pub(crate) fn draw(&self, newest: u64, random: &mut SplitMix64) -> u64 {
        let n = newest.max(1);
        let zipf = |random: &mut SplitMix64| {
            let z = self.zipf.as_ref();
            z.map_or(0, |z| z.draw(random.unit()))
        };
        match self.keys {
            Keys::Uniform => random.below(n as usize) as u64,
            Keys::Zipf => scattered(zipf(random), n),
            Keys::Latest => n - 1 - zipf(random).min(n - 1),
            Keys::Gaussian => {
                let x = (0.5 + random.normal() / (2.0 * GAUSSIAN_REACH)).clamp(0.0, 1.0);
                ((x * n as f64) as u64).min(n - 1)
            }
        }
    }
}

/// Chance that a drawn key lies in each of `pages` pages, over which `count` keys are spread evenly and in order.
pub(crate) fn chances(keys: Keys, count: u64, pages: u64) -> Vec<f64> {
    let (count, pages) = (count.max(2), pages.max(1));
    let mut all = vec![0.0; pages as usize];
    let page = |key: u64| (u128::from(key) * u128::from(pages) / u128::from(count)) as usize;
    match keys {
        Keys::Uniform => all.fill(1.0 / pages as f64),
        Keys::Zipf | Keys::Latest => {
            let zipf = Zipf::new(count, THETA);
            let mut below = 0.0;
            for rank in 0..count {
                let next = zipf.below(rank + 1);
                let key = match keys {
                    Keys::Zipf => scattered(rank, count),
                    _ => count - 1 - rank,
                };
                all[page(key)] += next - below;
                below = next;
            }
        }
        Keys::Gaussian => {
            // What lies beyond the range is drawn at its ends: of each side 0.135 %.
            const TAIL: f64 = 0.001_349_9;
            let width = 2.0 * GAUSSIAN_REACH / pages as f64;
            let density = |x: f64| (-0.5 * x * x).exp();
            for (i, chance) in all.iter_mut().enumerate() {
                let left = i as f64 * width - GAUSSIAN_REACH;
                // Simpson's rule.
                let sum = density(left) + 4.0 * density(left + width / 2.0) + density(left + width);
                *chance = sum * width / 6.0 / std::f64::consts::TAU.sqrt();
            }
            all[0] += TAIL;
            all[pages as usize - 1] += TAIL;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(keys: Keys) -> Vec<u64> {
        let drawer = Drawer::new(keys, 1000);
        let mut random = SplitMix64::new(7);
        let mut hits = vec![0u64; 1000];
        for _ in 0..100_000 {
            hits[drawer.draw(1000, &mut random) as usize] += 1;
        }
        hits
    }

    #[test]
    fn keys_are_distributed_as_asked() {
        let uniform = drawn(Keys::Uniform);
        assert!(uniform.iter().all(|n| (50..200).contains(n)));
        // YCSB's Zipf of 1000 keys: the most frequent has 1/zeta(1000, 0.99) = 13 % of all.
        let latest = drawn(Keys::Latest);
        assert!((12_000..14_500).contains(&latest[999]), "{}", latest[999]);
        let mut zipf = drawn(Keys::Zipf);
        zipf.sort_unstable();
        assert!(zipf[999] >= 12_000 && zipf[0] < 50);
        let gaussian = drawn(Keys::Gaussian);
        let middle: u64 = gaussian[333..667].iter().sum();
        // Within one standard deviation: 68 %.
        assert!((66_000..71_000).contains(&middle), "{middle}");
    }

    #[test]
    fn the_sum_of_zipf_is_the_one_that_ycsb_has_computed() {
        // ScrambledZipfianGenerator.ZETAN, of ITEM_COUNT items.
        let zipf = Zipf::new(10_000_000_000, THETA);
        assert!(
            (zipf.zeta - 26.469_028_201_783_02).abs() < 1e-6,
            "{}",
            zipf.zeta
        );
        let all: f64 = (1..=50_000).map(|i| f64::from(i).powf(-0.7)).sum();
        assert!((Zipf::new(50_000, 0.7).zeta - all).abs() < 1e-7);
    }

    #[test]
    fn pages_are_asked_for_as_often_as_their_chances_say() {
        for keys in [Keys::Uniform, Keys::Zipf, Keys::Gaussian, Keys::Latest] {
            let expected = chances(keys, 1000, 50);
            let sum: f64 = expected.iter().sum();
            assert!((sum - 1.0).abs() < 1e-4, "{keys:?}: {sum}");
            let seen = drawn(keys);
            for (i, chance) in expected.iter().enumerate() {
                let n: u64 = seen[20 * i..20 * (i + 1)].iter().sum();
                let asked = chance * 1e5;
                let off = (n as f64 - asked).abs();
                assert!(
                    off < 5.0 * asked.sqrt() + 5.0,
                    "{keys:?} page {i}: {n} instead of {asked:.0}"
                );
            }
            assert!(Keys::NAMED.iter().all(|(name, k)| k.name() == *name));
        }
    }
}

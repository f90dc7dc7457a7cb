//! How often a page cache answers, without simulating it: the stationary hit share of the clock where each request asks
//! for a page independently of those before (the independent reference model).
//!
//! The clock (second chance, as in fathom's own tree) drops the next page under its hand that was not asked for since the
//! hand came by; a page counts as asked for once it is asked for again after it was loaded. All rests on one time T that
//! is the same for all pages, what the hand takes to go round once, as LRU's share rests on what a page stays without
//! being asked for (Che, Tung and Wang 2002). T follows from the pages that are in the cache adding up to its frames.

/// How often pages are asked for: groups of pages that are asked for about alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Popularity {
    /// Chance that a request asks for one page of the group, and pages in it.
    groups: Vec<(f64, f64)>,
}

impl Popularity {
    /// From the chance of every page; they are made to add up to 1. Pages that are never asked for do not count.
    pub fn of(chances: &[f64]) -> Self {
        /// Pages whose chances differ by less than this share a group: far below what a hit share would show.
        const ALIKE: f64 = 1.005;
        let mut sorted: Vec<f64> = chances.iter().copied().filter(|c| *c > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let total: f64 = sorted.iter().sum();
        let mut groups: Vec<(f64, f64)> = Vec::new();
        let mut first = 0.0;
        for chance in sorted {
            match groups.last_mut() {
                // Sums for now.
                Some((sum, pages)) if chance <= first * ALIKE => {
                    *sum += chance;
                    *pages += 1.0;
                }
                _ => {
                    first = chance;
                    groups.push((chance, 1.0));
                }
            }
        }
        for (chance, pages) in &mut groups {
            *chance /= *pages * total;
        }
        Self { groups }
    }

    /// Pages that are ever asked for.
    pub fn pages(&self) -> f64 {
        self.groups.iter().map(|g| g.1).sum()
    }

    /// Share of requests that a cache of `frames` pages answers once it has seen enough of them.
    pub fn hits(&self, frames: f64) -> f64 {
        if frames >= self.pages() {
            return 1.0;
        }
        if frames <= 0.0 {
            return 0.0;
        }
        let cached = |time: f64| -> f64 {
            let of = |g: &(f64, f64)| g.1 * held(g.0 * time);
            self.groups.iter().map(of).sum()
        };
        let (mut low, mut high) = (0.0, frames);
        while cached(high) < frames && high < 1e300 {
            (low, high) = (high, high * 2.0);
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if cached(middle) < frames {
                low = middle;
            } else {
                high = middle;
            }
        }
        let of = |g: &(f64, f64)| g.0 * g.1 * held(g.0 * high);
        self.groups.iter().map(of).sum::<f64>().clamp(0.0, 1.0)
    }
}

/// Share of time that a page is in the cache which is asked for `asked` times in T on average.
fn held(asked: f64) -> f64 {
    // Each visit of the hand finds with a probability of e^-asked that it was not asked for. So it stays e^asked rounds,
    // and is away 1 / asked rounds.
    let rounds = asked.min(700.0).exp();
    1.0 - 1.0 / (1.0 + asked * rounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::load::rng::Rng;

    const PAGES: usize = 2000;

    fn draw(chances: &[f64], sums: &[f64], rng: &mut Rng) -> usize {
        let u = rng.unit() * sums[chances.len() - 1];
        sums.partition_point(|s| *s <= u).min(chances.len() - 1)
    }

    /// What a cache of `frames` really answers.
    fn simulated(chances: &[f64], frames: usize) -> f64 {
        let mut sums = chances.to_vec();
        for i in 1..sums.len() {
            sums[i] += sums[i - 1];
        }
        let mut rng = Rng::new(7, 1);
        // Page, and whether it was asked for since the hand came by.
        let mut places: Vec<(usize, bool)> = Vec::with_capacity(frames);
        let mut at = vec![usize::MAX; chances.len()];
        let (mut hand, mut hits) = (0, 0);
        let (warm, n) = (200_000u64, 300_000u64);
        for now in 1..=warm + n {
            let page = draw(chances, &sums, &mut rng);
            if at[page] != usize::MAX {
                hits += u64::from(now > warm);
                places[at[page]].1 = true;
                continue;
            }
            let place = if places.len() < frames {
                places.push((page, false));
                places.len() - 1
            } else {
                let goes = loop {
                    let i = hand;
                    hand = (hand + 1) % frames;
                    if !std::mem::take(&mut places[i].1) {
                        break i;
                    }
                };
                at[places[goes].0] = usize::MAX;
                places[goes] = (page, false);
                goes
            };
            at[page] = place;
        }
        hits as f64 / n as f64
    }

    fn zipf() -> Vec<f64> {
        (1..=PAGES).map(|i| (i as f64).powf(-0.99)).collect()
    }

    fn gaussian() -> Vec<f64> {
        let x = |i: usize| (i as f64 + 0.5) / PAGES as f64 - 0.5;
        (0..PAGES)
            .map(|i| (-0.5 * (6.0 * x(i)).powi(2)).exp())
            .collect()
    }

    #[test]
    fn the_hit_share_is_that_of_a_simulated_cache() {
        for (name, chances) in [
            ("uniform", vec![1.0; PAGES]),
            ("zipf", zipf()),
            ("gaussian", gaussian()),
        ] {
            let popularity = Popularity::of(&chances);
            for frames in [60, 500, 1000] {
                let real = simulated(&chances, frames);
                let found = popularity.hits(frames as f64);
                assert!(
                    (found - real).abs() < 0.01,
                    "{name} {frames}: {found:.4} instead of {real:.4}"
                );
            }
        }
    }

    #[test]
    fn uniform_requests_hit_the_cached_share_and_skewed_ones_more() {
        let (uniform, zipf) = (Popularity::of(&[1.0; 100]), Popularity::of(&zipf()));
        assert!((uniform.hits(25.0) - 0.25).abs() < 1e-9);
        assert!(zipf.hits(0.25 * PAGES as f64) > 0.5);
        assert_eq!(uniform.hits(100.0), 1.0);
        assert_eq!(uniform.hits(0.0), 0.0);
        assert_eq!(Popularity::of(&[0.5, 0.0, 0.5]).pages(), 2.0);
    }
}

//! Where the next I/O goes.

use super::permutation::Permutation;
use super::rng::{Rng, mix};
use super::zipf::Zipf;
use crate::job::{Distribution, ValidJob};

/// Block sizes with cumulative thresholds on 64 random bits.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    first: u32,
    more: Vec<(u64, u32)>,
}

impl Sizes {
    pub(super) fn new(sizes: &[(fathom_telemetry::Bytes, f64)]) -> Self {
        let first = sizes.first().map_or(0, |s| s.0.0 as u32);
        if sizes.len() < 2 {
            return Self {
                first,
                more: Vec::new(),
            };
        }
        let total: f64 = sizes.iter().map(|s| s.1).sum();
        let mut sum = 0.0;
        let more = sizes
            .iter()
            .map(|(size, weight)| {
                sum += weight / total;
                ((sum * u64::MAX as f64) as u64, size.0 as u32)
            })
            .collect();
        Self { first, more }
    }

    #[inline]
    pub(super) fn pick(&self, rng: &mut Rng) -> u32 {
        if self.more.is_empty() {
            return self.first;
        }
        let r = rng.bits();
        self.more
            .iter()
            .find(|(threshold, _)| r <= *threshold)
            .or(self.more.last())
            .map_or(self.first, |(_, size)| *size)
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Sequential {
        next: u64,
        /// The last length and its step, so that the path of an I/O divides nothing.
        step: (u64, u64),
    },
    Map {
        map: Permutation,
        index: u64,
        stride: u64,
        seed: u64,
        first: u64,
    },
    /// Drawn one by one; the last length and the number of places for it.
    Drawn { spots: Spots, places: (u64, u64) },
}

#[derive(Debug, Clone)]
enum Rank {
    Zipf(Zipf),
    Pareto { exponent: f64 },
    Gauss { deviation: f64 },
    Hotspot { hot: f64, share: f64 },
}

/// Draws blocks of a range by a distribution.
#[derive(Debug, Clone)]
struct Spots {
    rank: Option<Rank>,
    scatter: Option<Permutation>,
}

impl Spots {
    /// For a range of `blocks`; popular blocks of Zipf and Pareto are scattered.
    fn new(dist: Distribution, blocks: u64, seed: u64) -> Self {
        let rank = match dist {
            Distribution::Uniform => None,
            Distribution::Zipf(theta) => Some(Rank::Zipf(Zipf::new(blocks, theta))),
            Distribution::Pareto(h) => Some(Rank::Pareto {
                exponent: libm::log(h) / libm::log(1.0 - h),
            }),
            Distribution::Gauss(percent) => Some(Rank::Gauss {
                deviation: percent / 100.0,
            }),
            Distribution::Hotspot { size, share } => Some(Rank::Hotspot {
                hot: size / 100.0,
                share: share / 100.0,
            }),
        };
        let scatter = matches!(rank, Some(Rank::Zipf(_) | Rank::Pareto { .. }))
            .then(|| Permutation::new(blocks, seed));
        Self { rank, scatter }
    }

    /// A block below `blocks`.
    #[inline]
    fn pick(&self, blocks: u64, rng: &mut Rng) -> u64 {
        let Some(rank) = &self.rank else {
            return rng.below(blocks);
        };
        let r = rank.pick(blocks, rng);
        match &self.scatter {
            Some(p) if r < p.len() => p.at(r).min(blocks - 1),
            _ => r,
        }
    }
}

/// Place and size of one thread's I/Os.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    sizes: Sizes,
    pub(super) offsets: Offsets,
    /// Where all are alike.
    pub(super) alike: Option<Alike>,
}

/// The commonest pattern, without the questions that it need not ask at every I/O: blocks of one size, each place
/// equally likely. It draws the same random numbers as the general way, so that a seed gives the same I/Os.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alike {
    start: u64,
    align: u64,
    places: u64,
    len: u32,
}

impl Pattern {
    /// Of `thread` of `threads`.
    pub(super) fn new(job: &ValidJob, thread: u64, threads: u64) -> Self {
        let sizes = Sizes::new(&job.spec.bs.0);
        let offsets = Offsets::new(job, thread, threads);
        let alike = match &offsets.kind {
            Kind::Drawn { spots, .. } if spots.rank.is_none() && sizes.more.is_empty() => {
                Some(Alike {
                    start: offsets.start,
                    align: offsets.align,
                    places: offsets.places(u64::from(sizes.first)),
                    len: sizes.first,
                })
            }
            _ => None,
        };
        Self {
            sizes,
            offsets,
            alike,
        }
    }

    /// Offset and length of the next I/O.
    #[inline(always)]
    pub(super) fn draw(&mut self, rng: &mut Rng) -> (u64, u32) {
        if let Some(alike) = self.alike {
            return alike.draw(rng);
        }
        let want = self.sizes.pick(rng);
        self.offsets.next(want, rng)
    }
}

impl Alike {
    /// See [`Pattern::draw`].
    #[inline]
    pub(super) fn draw(self, rng: &mut Rng) -> (u64, u32) {
        (self.start + rng.below(self.places) * self.align, self.len)
    }
}

/// Generator of offsets of one thread.
#[derive(Debug, Clone)]
pub(super) struct Offsets {
    start: u64,
    end: u64,
    align: u64,
    kind: Kind,
    passes: u64,
    /// More threads than blocks: this one has no part of its own and goes over the whole range.
    spare: bool,
}

impl Offsets {
    /// `thread` of `threads`: sequential threads share the range out in whole blocks; a random map is
    /// shared out so that all threads together visit every whole block once.
    pub(super) fn new(job: &ValidJob, thread: u64, threads: u64) -> Self {
        let (mut start, mut end) = (job.start, job.end);
        let align = job.align;
        let max = job.spec.bs.max().0;
        let seed = mix(job.spec.seed ^ 0x6d61_7000);
        let places = (job.range().saturating_sub(max) / align) + 1;
        let mut spare = false;
        let kind = if !job.spec.rw.is_random() {
            let unit = max.next_multiple_of(align);
            let units = (job.range() / unit).max(1);
            let edge = |i: u64| (u128::from(units) * u128::from(i) / u128::from(threads)) as u64;
            let (low, high) = (edge(thread), edge(thread + 1));
            spare = low == high;
            if !spare {
                start = job.start + low * unit;
                // The last part takes what is left over.
                if high < units {
                    end = job.start + high * unit;
                }
            }
            Kind::Sequential {
                next: start,
                step: (0, 0),
            }
        } else if job.spec.random_map {
            let blocks = job.range() / max;
            spare = thread >= blocks;
            Kind::Map {
                map: Permutation::new(blocks, seed),
                index: thread % blocks,
                stride: threads,
                seed,
                first: thread % blocks,
            }
        } else {
            Kind::Drawn {
                spots: Spots::new(job.spec.dist, places, seed),
                places: (0, 0),
            }
        };
        Self {
            start,
            end,
            align,
            kind,
            passes: 0,
            spare,
        }
    }

    /// Whether a whole pass over this thread's part is behind; never for offsets drawn independently.
    #[inline]
    pub(super) fn passed(&self) -> bool {
        self.passes > 0
    }

    /// Whole passes over this thread's part.
    #[inline]
    pub(super) fn passes(&self) -> u64 {
        self.passes
    }

    /// Whether one pass of all threads needs nothing of this one.
    pub(super) fn spare(&self) -> bool {
        self.spare
    }

    /// Whether a pass ends by itself ([`Self::passed`]).
    pub(super) fn has_passes(&self) -> bool {
        matches!(self.kind, Kind::Sequential { .. } | Kind::Map { .. })
    }

    /// Begins a pass anew, after a ramp.
    pub(super) fn restart(&mut self) {
        self.passes = 0;
        match &mut self.kind {
            Kind::Sequential { next, .. } => *next = self.start,
            Kind::Map {
                map,
                index,
                first,
                seed,
                ..
            } => {
                *map = Permutation::new(map.len(), *seed);
                *index = *first;
            }
            Kind::Drawn { .. } => {}
        }
    }

    /// Where a block of `len` bytes may begin.
    fn places(&self, len: u64) -> u64 {
        (self.end - self.start - len) / self.align + 1
    }

    /// Offset and length of the next I/O of about `len` bytes (a sequential pass may end short).
    #[inline]
    pub(super) fn next(&mut self, len: u32, rng: &mut Rng) -> (u64, u32) {
        let len64 = u64::from(len);
        match &mut self.kind {
            Kind::Sequential { next, step } => {
                let at = *next;
                let len = len64.min(self.end - at) as u32;
                if step.0 != len64 {
                    // Steps keep the alignment, also with mixed sizes.
                    *step = (len64, len64.next_multiple_of(self.align));
                }
                *next = at + step.1;
                if *next >= self.end {
                    *next = self.start;
                    self.passes += 1;
                }
                (at, len)
            }
            Kind::Drawn { spots, places } => {
                if places.0 != len64 {
                    *places = (len64, (self.end - self.start - len64) / self.align + 1);
                }
                (self.start + spots.pick(places.1, rng) * self.align, len)
            }
            Kind::Map {
                map,
                index,
                stride,
                seed,
                first,
            } => {
                let at = self.start + map.at(*index) * len64;
                *index += *stride;
                if *index >= map.len() {
                    self.passes += 1;
                    *map = Permutation::new(map.len(), seed.wrapping_add(self.passes));
                    *index = *first;
                }
                (at, len)
            }
        }
    }
}

impl Rank {
    fn pick(&self, n: u64, rng: &mut Rng) -> u64 {
        let nf = n as f64;
        let rank = match self {
            Self::Zipf(z) => z.draw(rng) - 1.0,
            Self::Pareto { exponent } => nf * libm::pow(rng.unit(), *exponent),
            Self::Gauss { deviation } => loop {
                // Box-Muller; what falls outside the range is drawn again.
                let (u, v) = (1.0 - rng.unit(), rng.unit());
                let z = (-2.0 * libm::log(u)).sqrt() * libm::cos(std::f64::consts::TAU * v);
                let x = nf * (0.5 + z * deviation);
                if x >= 0.0 && x < nf {
                    break x;
                }
            },
            Self::Hotspot { hot, share } => {
                let edge = (nf * hot).ceil().clamp(1.0, nf);
                if rng.unit() < *share || edge >= nf {
                    rng.unit() * edge
                } else {
                    edge + rng.unit() * (nf - edge)
                }
            }
        };
        (rank.max(0.0) as u64).min(n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobSpec, Limits};

    fn offsets(options: &[(&str, &str)], size: u64, n: usize) -> Vec<(u64, u32)> {
        let mut j = JobSpec::default();
        for (name, t) in options {
            j.set(name, t).unwrap();
        }
        let v = j
            .validate(&Limits {
                size,
                direct_align: 512,
                hosts: 1,
            })
            .unwrap();
        let mut rng = Rng::new(7, 0);
        let sizes = Sizes::new(&v.spec.bs.0);
        let mut o = Offsets::new(&v, 0, 1);
        (0..n)
            .map(|_| {
                let l = sizes.pick(&mut rng);
                o.next(l, &mut rng)
            })
            .collect()
    }

    #[test]
    fn a_sequential_pass_covers_the_range_and_begins_again() {
        let seen = offsets(
            &[
                ("rw", "read"),
                ("bs", "4k"),
                ("size", "10k"),
                ("offset", "4k"),
            ],
            1 << 20,
            4,
        );
        assert_eq!(
            seen,
            [(4096, 4096), (8192, 4096), (12_288, 2048), (4096, 4096)]
        );
    }

    #[test]
    fn a_random_map_visits_every_block_once_per_pass() {
        for pass in offsets(&[("random-map", "")], 64 * 4096, 128).chunks(64) {
            let mut blocks: Vec<u64> = pass.iter().map(|(o, _)| o / 4096).collect();
            blocks.sort_unstable();
            assert_eq!(blocks, (0..64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn hotspots_get_their_share() {
        let seen = offsets(&[("dist", "hotspot:10/90")], 1000 * 4096, 20_000);
        let hot = seen.iter().filter(|(o, _)| *o < 100 * 4096).count() as f64 / 20_000.0;
        assert!((hot - 0.9).abs() < 0.01, "{hot}");
    }

    #[test]
    fn zipf_favours_few_scattered_blocks() {
        let mut counts = std::collections::HashMap::new();
        for (o, _) in offsets(&[("dist", "zipf:1.2")], 10_000 * 4096, 50_000) {
            *counts.entry(o).or_insert(0u32) += 1;
        }
        let mut c: Vec<_> = counts.into_iter().collect();
        c.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let ratio = f64::from(c[0].1) / f64::from(c[1].1);
        assert!(
            (ratio / 2f64.powf(1.2) - 1.0).abs() < 0.1,
            "first to second {ratio}"
        );
        assert!(c[0].0.abs_diff(c[1].0) > 4096);
    }

    #[test]
    fn gauss_centres_and_pareto_is_self_similar() {
        let g = offsets(&[("dist", "gauss:10")], 1000 * 4096, 20_000);
        let inside = g
            .iter()
            .filter(|(o, _)| (400..600).contains(&(o / 4096)))
            .count() as f64
            / 20_000.0;
        assert!((inside - 0.6827).abs() < 0.02, "one sigma holds {inside}");
        let p = offsets(&[("dist", "pareto:0.2")], 1000 * 4096, 50_000);
        let mut counts = vec![0u32; 1000];
        p.iter().for_each(|(o, _)| counts[(o / 4096) as usize] += 1);
        counts.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
        let top: u32 = counts[..200].iter().sum();
        assert!(
            (f64::from(top) / 50_000.0 - 0.8).abs() < 0.03,
            "20 % get {top} of 50,000"
        );
    }

    #[test]
    fn every_offset_stays_inside_and_aligned_for_any_options() {
        for (n, opts) in [
            &[("bs", "4k:50,64k:50"), ("size", "1m")][..],
            &[("bs", "4k,12k"), ("rw", "rw"), ("size", "100k")],
            &[("dist", "gauss:300"), ("size", "64k")],
            &[("dist", "zipf:0.9"), ("bs", "4k,64k"), ("size", "64k")],
            &[("align", "512"), ("bs", "4k"), ("size", "8k")],
        ]
        .iter()
        .enumerate()
        {
            let (size, align) = match n {
                0 => (1 << 20, 4096),
                1 => (100 << 10, 4096),
                4 => (8 << 10, 512),
                _ => (64 << 10, 4096),
            };
            for (o, l) in offsets(opts, 2 << 20, 5000) {
                assert!(
                    o + u64::from(l) <= size && o % align == 0 && l > 0,
                    "{n}: {o}+{l}"
                );
            }
        }
    }
}

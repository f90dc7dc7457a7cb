//! Offsets and files that are not drawn alike, as fio draws them: zipf, pareto, normal.

use fathom_io::job::Distribution;

use super::random::Stream;

/// A skewed choice among `n` places.
#[derive(Debug, Clone)]
pub(crate) struct Skew {
    kind: Kind,
    n: u64,
    /// Places that the most frequent one lies after the first.
    shift: u64,
    /// Neighbours in frequency are no neighbours on the device.
    scattered: bool,
    stream: Stream,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// J. Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994: the share below which the
    /// first and second rank lie, and the terms of the curve above.
    Zipf {
        zeta: f64,
        second: f64,
        eta: f64,
        alpha: f64,
    },
    /// The power that the unit interval is raised to.
    Pareto(f64),
    /// Width of what is added to the mean.
    Normal(u64),
}

/// Terms of zipf's sum at most: it is not exact beyond.
const TERMS_MAX: u64 = 10_000_000;
/// Numbers of which a normal one is the mean.
const NORMAL_DRAWS: u64 = 12;
/// Multiplies a rank to scatter it (2^64 less its golden section).
const SCATTER: u64 = 0x61c8_8646_80b5_83eb;

impl Skew {
    /// `None` for a uniform distribution. `center` (0 to 1) is where the most frequent place lies.
    pub(crate) fn new(
        by: Distribution,
        n: u64,
        center: Option<f64>,
        scattered: bool,
        seed: u64,
    ) -> Option<Self> {
        let n = n.max(1);
        let mut stream = Stream::new(seed);
        let middle = center.map(|c| n as f64 * c);
        let (kind, shift) = match by {
            Distribution::Uniform | Distribution::Hotspot { .. } => return None,
            Distribution::Zipf(theta) => {
                let zeta: f64 = (1..=n.min(TERMS_MAX))
                    .map(|i| (1.0 / i as f64).powf(theta))
                    .sum();
                let two = 1.0 + 0.5f64.powf(theta);
                let kind = Kind::Zipf {
                    zeta,
                    second: two,
                    eta: (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - two / zeta),
                    alpha: 1.0 / (1.0 - theta),
                };
                (kind, stream.next())
            }
            Distribution::Pareto(h) => (Kind::Pareto(h.ln() / (1.0 - h).ln()), stream.next()),
            Distribution::Gauss(deviation) => {
                let width = (n as f64 * deviation / 100.0).ceil() as u64;
                (Kind::Normal(width.min(n / 2)), 0)
            }
        };
        let shift = match (kind, center, middle) {
            (Kind::Normal(_), Some(c), _) => u64::from((n as f64 * (c - 0.5)) as i64 as u32),
            (_, _, Some(m)) => m as u64,
            _ => shift,
        };
        Some(Self {
            kind,
            n,
            shift,
            scattered,
            stream,
        })
    }

    /// The next place, below `n`.
    pub(crate) fn next(&mut self) -> u64 {
        let n = self.n;
        let mut unit = || self.stream.next() as f64 / f64::from(u32::MAX);
        let rank = match self.kind {
            Kind::Zipf {
                zeta,
                second,
                eta,
                alpha,
            } => {
                let u = unit();
                match u * zeta {
                    z if z < 1.0 => 0,
                    z if z < second => 1,
                    _ => (n as f64 * (eta * u - eta + 1.0).powf(alpha)) as u64,
                }
            }
            Kind::Pareto(power) => ((n - 1) as f64 * unit().powf(power)) as u64,
            Kind::Normal(width) => {
                let sum: u64 = (0..NORMAL_DRAWS)
                    .map(|_| self.stream.next() % (n + 1))
                    .sum();
                let mut at = sum.div_ceil(NORMAL_DRAWS);
                if width > 0 {
                    let more = (width as f64 * self.stream.unit()) as i64;
                    let mut deviation = more - (width / 2) as i64;
                    while deviation != 0 && at.wrapping_add_signed(deviation) >= n {
                        deviation /= 2;
                    }
                    at = at.wrapping_add_signed(deviation);
                }
                at
            }
        };
        let place = if self.scattered {
            rank.wrapping_mul(SCATTER)
        } else {
            rank
        };
        place.wrapping_add(self.shift) % n
    }
}

/// The number that stands for a file's name in its seed (B. Jenkins, "Hash Functions", Dr. Dobb's Journal, 1997; with the
/// rotations of lookup3, 2006).
pub(crate) fn name_hash(name: &[u8]) -> u32 {
    let start = 0x61c8_8647_u32.wrapping_add(name.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = name;
    while rest.len() > 12 {
        // fio adds single bytes here, not words.
        a = a.wrapping_add(u32::from(rest[0]));
        b = b.wrapping_add(u32::from(rest[4]));
        c = c.wrapping_add(u32::from(rest[8]));
        for (i, rotation) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
            let (x, y, z) = match i % 3 {
                0 => (&mut a, &mut c, b),
                1 => (&mut b, &mut a, c),
                _ => (&mut c, &mut b, a),
            };
            *x = x.wrapping_sub(*y) ^ y.rotate_left(rotation);
            *y = y.wrapping_add(z);
        }
        rest = &rest[12..];
    }
    let word = |i: usize| {
        (0..4).fold(0u32, |w, j| {
            w | u32::from(rest.get(i * 4 + j).copied().unwrap_or(0)) << (8 * j)
        })
    };
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(0));
    b = b.wrapping_add(word(1));
    c = c.wrapping_add(word(2));
    for (i, rotation) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = match i % 3 {
            0 => (&mut c, b),
            1 => (&mut a, c),
            _ => (&mut b, a),
        };
        *x = (*x ^ y).wrapping_sub(y.rotate_left(rotation));
    }
    c
}

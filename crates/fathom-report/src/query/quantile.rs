//! `quantile(value, q)` for SQL: of numbers, or of stored histograms, in bounded memory.
//!
//! Numbers fall into buckets of one sign, one power of two and 128 steps in it: the same buckets as
//! those of `fathom_telemetry::histogram`, so that both kinds merge without loss, continued to all
//! numbers. A quantile is the upper end of its bucket, cut to the exact minimum and maximum: at most
//! 1/128 above the exact one.

use fathom_telemetry::codec::{CodecError, decode};
use fathom_telemetry::histogram::lower_bound;

/// Bits of a number that name its bucket: sign, exponent, and seven bits after the leading one.
const DROPPED_BITS: u32 = 52 - 7;
/// Buckets that share sign and exponent.
const STEPS: usize = 128;

/// Counts by bucket.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    /// (sign and exponent, counts), in order of appearance: seldom more than a dozen.
    blocks: Vec<(u32, Box<[u64; STEPS]>)>,
    /// The block that was used last.
    last: usize,
    count: u64,
    low: f64,
    high: f64,
    /// Whether a number was not whole.
    fractions: bool,
}

/// A quantile: whole where every number was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quantile {
    /// Of whole numbers.
    Integer(i64),
    /// Of others.
    Real(f64),
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            last: 0,
            count: 0,
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
            fractions: false,
        }
    }
}

impl Sketch {
    /// Adds `n` times a whole number.
    pub(super) fn integer(&mut self, value: i64, n: u64) {
        self.add(value as f64, n);
    }

    /// Adds a number.
    pub(super) fn real(&mut self, value: f64) {
        self.fractions |= value.fract() != 0.0;
        self.add(value, 1);
    }

    /// Adds a histogram as `series.parquet` stores it.
    ///
    /// # Errors
    /// Where the bytes are none.
    pub(super) fn histogram(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        let h = decode(bytes)?;
        if h.moments.count == 0 {
            return Ok(());
        }
        for (bucket, n) in h.buckets {
            self.count_in(lower_bound(bucket as usize) as f64, n);
        }
        self.stretch(h.moments.min as f64);
        self.stretch(h.moments.max as f64);
        self.count += h.moments.count;
        Ok(())
    }

    fn add(&mut self, value: f64, n: u64) {
        self.count_in(value, n);
        self.stretch(value);
        self.count += n;
    }

    fn stretch(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }

    fn count_in(&mut self, value: f64, n: u64) {
        let key = key(value);
        let (block, step) = (key >> 7, (key & 127) as usize);
        if self.blocks.get(self.last).is_none_or(|b| b.0 != block) {
            self.last = match self.blocks.iter().position(|b| b.0 == block) {
                Some(at) => at,
                None => {
                    self.blocks.push((block, Box::new([0; STEPS])));
                    self.blocks.len() - 1
                }
            };
        }
        self.blocks[self.last].1[step] += n;
    }

    /// The value at `q` in 0..=1; `None` where nothing was added.
    pub(super) fn quantile(&self, q: f64) -> Option<Quantile> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut blocks: Vec<&(u32, Box<[u64; STEPS]>)> = self.blocks.iter().collect();
        blocks.sort_by_key(|b| b.0);
        let mut seen = 0;
        let mut value = self.high;
        'found: for (block, counts) in blocks {
            for (step, n) in counts.iter().enumerate() {
                seen += n;
                if seen >= rank {
                    value = upper(block << 7 | step as u32);
                    break 'found;
                }
            }
        }
        let cut = |v: f64| v.clamp(self.low, self.high);
        Some(if self.fractions {
            Quantile::Real(cut(value))
        } else {
            Quantile::Integer(cut(value.floor()) as i64)
        })
    }
}

/// Bucket of a number; buckets are in the order of the numbers.
fn key(value: f64) -> u32 {
    // Minus zero is zero.
    let bits = (value + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    };
    (ordered >> DROPPED_BITS) as u32
}

/// Largest number of a bucket.
fn upper(key: u32) -> f64 {
    let ordered = u64::from(key) << DROPPED_BITS | ((1 << DROPPED_BITS) - 1);
    f64::from_bits(if ordered >> 63 == 1 {
        ordered & !(1 << 63)
    } else {
        !ordered
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::Histogram;
    use fathom_telemetry::codec::encode;

    fn numbers(seed: u64, n: usize) -> Vec<u64> {
        let mut x = seed;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                x >> (24 + x % 38)
            })
            .collect()
    }

    #[test]
    fn numbers_and_histograms_of_them_give_the_histograms_quantile() {
        let (mut one_by_one, mut merged, mut h) =
            (Sketch::default(), Sketch::default(), Histogram::new());
        for part in numbers(7, 30_000).chunks(1000) {
            let mut of_part = Histogram::new();
            for v in part {
                one_by_one.integer(*v as i64, 1);
                of_part.record(*v);
            }
            let mut bytes = Vec::new();
            encode(&of_part.to_sparse(), &mut bytes);
            merged.histogram(&bytes).unwrap();
            h.merge(&of_part);
        }
        for q in [0.0, 0.001, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let expected = Some(Quantile::Integer(h.quantile(q).unwrap() as i64));
            assert_eq!(one_by_one.quantile(q), expected, "{q}");
            assert_eq!(merged.quantile(q), expected, "{q}");
        }
    }

    #[test]
    fn every_quantile_is_at_most_one_128th_above_the_exact_one_also_below_zero() {
        let mut values: Vec<f64> = numbers(11, 5000)
            .iter()
            .enumerate()
            .map(|(i, v)| {
                let v = *v as f64 / 1e3;
                if i % 3 == 0 { -v } else { v }
            })
            .collect();
        let mut s = Sketch::default();
        for v in &values {
            s.real(*v);
        }
        values.sort_by(f64::total_cmp);
        for q in [0.0, 0.01, 0.2, 0.5, 0.77, 0.99, 1.0] {
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let Some(Quantile::Real(got)) = s.quantile(q) else {
                panic!("a fraction was taken for a whole number");
            };
            assert!(
                got >= exact && got - exact <= exact.abs() / 128.0,
                "{q}: {got} {exact}"
            );
        }
    }

    #[test]
    fn nothing_has_no_quantile_and_small_whole_numbers_are_exact() {
        assert_eq!(Sketch::default().quantile(0.5), None);
        let mut s = Sketch::default();
        for v in -100..=100 {
            s.integer(v, 1);
        }
        for (q, v) in [(0.0, -100), (0.25, -50), (0.5, 0), (1.0, 100)] {
            assert_eq!(s.quantile(q), Some(Quantile::Integer(v)));
        }
    }
}

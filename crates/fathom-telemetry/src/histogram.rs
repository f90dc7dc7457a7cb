//! Log-linear histogram of nanoseconds: 128 buckets per power of two.
//!
//! A bucket is at most 1/128 of its lower bound wide, so any value is known
//! within 1/128 (values below 256 ns exactly). Minimum, maximum, mean and
//! standard deviation are exact. Histograms merge without loss; percentiles
//! are never averaged.

use serde::{Deserialize, Serialize};

/// Sub-buckets per octave, as a power of two.
const BITS: u32 = 7;
/// Values of 2^43 ns (2.4 h) and above share the last bucket; `max` stays exact.
const MAX_EXPONENT: u32 = 43;
/// Number of buckets.
pub const BUCKETS: usize = ((MAX_EXPONENT - BITS + 1) << BITS) as usize;

/// Bucket of a value.
#[inline]
pub fn bucket_of(value: u64) -> usize {
    // Values below 2^BITS have their own bucket each; above, BITS bits after the leading one.
    let v = value.min((1 << MAX_EXPONENT) - 1);
    let exponent = (63 - (v | (1 << BITS)).leading_zeros()) - BITS;
    ((exponent as usize) << BITS) + (v >> exponent) as usize
}

/// Smallest value of a bucket.
#[inline]
pub fn lower_bound(bucket: usize) -> u64 {
    let exponent = (bucket >> BITS).saturating_sub(1);
    ((bucket - (exponent << BITS)) as u64) << exponent
}

/// Number of distinct values in a bucket (1 below 256 ns).
#[inline]
pub fn width(bucket: usize) -> u64 {
    1 << (bucket >> BITS).saturating_sub(1)
}

/// Sums that give exact mean and deviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    #[serde(with = "decimal")]
    pub sum: u128,
    /// Sum of their squares.
    #[serde(with = "decimal")]
    pub sum_squares: u128,
    /// Smallest value; `u64::MAX` when empty.
    pub min: u64,
    /// Largest value; 0 when empty.
    pub max: u64,
}

/// As text: JSON's readers seldom know numbers of 128 bits.
mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(n: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(n)
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            count: 0,
            sum: 0,
            sum_squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Moments {
    /// Adds `n` times `value`.
    #[inline]
    pub fn add(&mut self, value: u64, n: u64) {
        self.count += n;
        self.sum += u128::from(value) * u128::from(n);
        self.sum_squares += u128::from(value) * u128::from(value) * u128::from(n);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
    /// Adds another set.
    pub fn merge(&mut self, other: &Self) {
        // A file of others may claim anything; what was measured never comes near.
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
    /// Values beyond quantile `q` in 0..=1.
    fn beyond(&self, q: f64) -> u64 {
        (self.count as f64 * (1.0 - q) + 1e-9).floor() as u64
    }
    /// Mean; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
    /// Sample standard deviation; `None` below two values.
    pub fn stddev(&self) -> Option<f64> {
        if self.count < 2 {
            return None;
        }
        // n·Σx² − (Σx)² needs more than 128 bits only after 2^64 ns² · n² …: fall back to floats there.
        let n = u128::from(self.count);
        let d = match (
            n.checked_mul(self.sum_squares),
            self.sum.checked_mul(self.sum),
        ) {
            (Some(a), Some(b)) => a.saturating_sub(b) as f64,
            _ => (n as f64 * self.sum_squares as f64 - (self.sum as f64).powi(2)).max(0.0),
        };
        Some((d / (n as f64 * (n - 1) as f64)).sqrt())
    }
}

/// The dense histogram, for recording and merging.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "SparseHistogram", try_from = "SparseHistogram")]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    moments: Moments,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty one (about 37 KiB).
    pub fn new() -> Self {
        let counts = vec![0u64; BUCKETS].into_boxed_slice();
        Self {
            counts: counts
                .try_into()
                .unwrap_or_else(|_| unreachable!("the vector has BUCKETS elements")),
            moments: Moments::default(),
        }
    }

    /// Adds one value in ns.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Adds `n` times the same value.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        self.counts[bucket_of(value)] += n;
        self.moments.add(value, n);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.moments.count
    }
    /// Exact sums.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.moments.count == 0
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (a, b) in self.counts.iter_mut().zip(other.counts.iter()) {
            *a = a.saturating_add(*b);
        }
        self.moments.merge(&other.moments);
    }

    /// Adds a sparse one.
    pub fn merge_sparse(&mut self, other: &SparseHistogram) {
        for &(bucket, n) in &other.buckets {
            let count = &mut self.counts[bucket as usize];
            *count = count.saturating_add(n);
        }
        self.moments.merge(&other.moments);
    }

    /// Value at quantile `q` in 0..=1: the upper end of the bucket that holds it, cut to the exact
    /// minimum and maximum. `None` when empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        quantile_of(
            self.counts.iter().enumerate().map(|(b, &n)| (b, n)),
            &self.moments,
            q,
        )
    }

    /// The same quantile, hidden (`None`) where fewer than `beyond` samples lie beyond it.
    pub fn quantile_supported(&self, q: f64, beyond: u64) -> Option<u64> {
        (self.moments.beyond(q) >= beyond)
            .then(|| self.quantile(q))
            .flatten()
    }

    /// Non-empty buckets only, for storage.
    pub fn to_sparse(&self) -> SparseHistogram {
        SparseHistogram {
            buckets: self
                .counts
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(b, &n)| (b as u32, n))
                .collect(),
            moments: self.moments,
        }
    }
}

/// A histogram as stored: only non-empty buckets, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SparseHistogram {
    /// (bucket, count).
    pub buckets: Vec<(u32, u64)>,
    /// Exact sums.
    pub moments: Moments,
}

impl TryFrom<SparseHistogram> for Histogram {
    type Error = String;
    fn try_from(sparse: SparseHistogram) -> Result<Self, String> {
        if let Some((b, _)) = sparse.buckets.iter().find(|b| b.0 as usize >= BUCKETS) {
            return Err(format!("bucket {b}: a histogram has {BUCKETS}"));
        }
        let mut all = Self::new();
        all.merge_sparse(&sparse);
        Ok(all)
    }
}

impl From<Histogram> for SparseHistogram {
    fn from(dense: Histogram) -> Self {
        dense.to_sparse()
    }
}

impl SparseHistogram {
    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        self.moments.merge(&other.moments);
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        let mine = std::mem::take(&mut self.buckets);
        let (mut a, mut b) = (
            mine.into_iter().peekable(),
            other.buckets.iter().copied().peekable(),
        );
        loop {
            self.buckets.push(match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 == y.0 => {
                    let sum = (x.0, x.1.saturating_add(y.1));
                    a.next();
                    b.next();
                    sum
                }
                (Some(x), Some(y)) if x.0 > y.0 => {
                    let y = *y;
                    b.next();
                    y
                }
                (Some(x), _) => {
                    let x = *x;
                    a.next();
                    x
                }
                (None, Some(y)) => {
                    let y = *y;
                    b.next();
                    y
                }
                (None, None) => break,
            });
        }
    }

    /// See [`Histogram::quantile_supported`].
    pub fn quantile_supported(&self, q: f64, beyond: u64) -> Option<u64> {
        (self.moments.beyond(q) >= beyond)
            .then(|| self.quantile(q))
            .flatten()
    }

    /// See [`Histogram::quantile`].
    pub fn quantile(&self, q: f64) -> Option<u64> {
        quantile_of(
            self.buckets.iter().map(|&(b, n)| (b as usize, n)),
            &self.moments,
            q,
        )
    }
}

fn quantile_of(buckets: impl Iterator<Item = (usize, u64)>, m: &Moments, q: f64) -> Option<u64> {
    if m.count == 0 {
        return None;
    }
    let rank = ((q.clamp(0.0, 1.0) * m.count as f64).ceil() as u64).clamp(1, m.count);
    let mut seen = 0;
    for (bucket, n) in buckets {
        seen += n;
        if seen >= rank {
            let upper = lower_bound(bucket) + width(bucket) - 1;
            return Some(upper.clamp(m.min, m.max));
        }
    }
    Some(m.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_is_contiguous_and_at_most_one_128th_wide() {
        let mut next = 0;
        for b in 0..BUCKETS {
            assert_eq!(lower_bound(b), next, "bucket {b}");
            assert!(
                width(b) == 1 || width(b) * 128 <= lower_bound(b),
                "bucket {b}"
            );
            assert_eq!(bucket_of(lower_bound(b)), b);
            assert_eq!(bucket_of(lower_bound(b) + width(b) - 1), b);
            next += width(b);
        }
        assert_eq!(next, 1 << MAX_EXPONENT);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn moments_are_exact() {
        let mut h = Histogram::new();
        for v in [1_000_003u64, 5, 77_777] {
            h.record(v);
        }
        assert_eq!((h.moments().min, h.moments().max), (5, 1_000_003));
        let mean = (1_000_003.0 + 5.0 + 77_777.0) / 3.0;
        assert_eq!(h.moments().mean().unwrap(), mean);
        let var = [1_000_003.0, 5.0, 77_777.0]
            .iter()
            .map(|x: &f64| (x - mean).powi(2))
            .sum::<f64>()
            / 2.0;
        assert!((h.moments().stddev().unwrap() / var.sqrt() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn percentiles_without_ten_samples_beyond_are_hidden() {
        let mut h = Histogram::new();
        for v in 0..1000 {
            h.record(v * 100);
        }
        let sparse = h.to_sparse();
        for q in [0.5, 0.99] {
            assert_eq!(h.quantile_supported(q, 10), h.quantile(q));
            assert_eq!(sparse.quantile_supported(q, 10), h.quantile(q));
        }
        assert_eq!(h.quantile_supported(0.999, 10), None);
        assert_eq!(sparse.quantile_supported(0.999, 10), None);
    }

    #[test]
    fn sparse_keeps_everything() {
        let mut h = Histogram::new();
        for v in (0..100_000u64).map(|i| i * i) {
            h.record(v);
        }
        let mut back = Histogram::new();
        back.merge_sparse(&h.to_sparse());
        assert_eq!(back.quantile(0.5), h.quantile(0.5));
        assert_eq!(back.moments(), h.moments());
        assert_eq!(h.to_sparse().quantile(0.99), h.quantile(0.99));
    }
}

//! fio's histogram layout: 64 buckets per power of two, 29 groups, a bucket stands for its middle.
//!
//! fathom's histograms have 128 buckets per power of two, so two of them make one of fio's.

use fathom_telemetry::Histogram;
use fathom_telemetry::histogram::lower_bound;

/// Buckets per group, as a power of two.
const BITS: u32 = 6;
/// Buckets in all.
const COUNT: usize = 29 << BITS;

/// fio's bucket of a value in ns.
fn index(value: u64) -> usize {
    let msb = 63 - (value | 1).leading_zeros();
    if msb <= BITS {
        return value as usize;
    }
    let error_bits = msb - BITS;
    let base = ((error_bits + 1) as usize) << BITS;
    let offset = (value >> error_bits) as usize & ((1 << BITS) - 1);
    (base + offset).min(COUNT - 1)
}

/// The value that a bucket stands for, ns.
fn value(index: usize) -> u64 {
    if index < 2 << BITS {
        return index as u64;
    }
    let error_bits = (index >> BITS) as u32 - 1;
    let base = 1u64 << (error_bits + BITS);
    let k = (index & ((1 << BITS) - 1)) as u64;
    base + (k << error_bits) + (1 << (error_bits - 1))
}

/// A histogram in fio's layout: value of the bucket and its count, non-empty ones only.
pub(super) fn bins(h: &Histogram) -> Vec<(u64, u64)> {
    let mut out: Vec<(usize, u64)> = Vec::new();
    for (bucket, n) in h.to_sparse().buckets {
        let i = index(lower_bound(bucket as usize));
        match out.last_mut() {
            Some(last) if last.0 == i => last.1 += n,
            _ => out.push((i, n)),
        }
    }
    out.into_iter().map(|(i, n)| (value(i), n)).collect()
}

/// Counts of all of fio's buckets.
pub(super) fn counts(h: &Histogram) -> Vec<u64> {
    let mut out = vec![0; COUNT];
    for (bucket, n) in h.to_sparse().buckets {
        out[index(lower_bound(bucket as usize))] += n;
    }
    out
}

/// Percentiles as fio takes them from its buckets: the first bucket at which the share is reached.
pub(super) fn percentiles(bins: &[(u64, u64)], list: &[f64]) -> Vec<(f64, u64)> {
    let total: u64 = bins.iter().map(|b| b.1).sum();
    let mut out = Vec::with_capacity(list.len());
    let (mut sum, mut at) = (0u64, 0);
    for p in list {
        let wanted = p / 100.0 * total as f64;
        while at < bins.len() && (sum + bins[at].1) as f64 + 1e-9 < wanted {
            sum += bins[at].1;
            at += 1;
        }
        if let Some(b) = bins.get(at.min(bins.len().saturating_sub(1))) {
            out.push((*p, b.0));
        }
    }
    out
}

/// Upper ends of fio's latency distribution, ns: 10 below 1 µs, 10 below 1 ms, 12 above.
pub(super) const BOUNDS: [u64; 31] = [
    2,
    4,
    10,
    20,
    50,
    100,
    250,
    500,
    750,
    1_000, //
    2_000,
    4_000,
    10_000,
    20_000,
    50_000,
    100_000,
    250_000,
    500_000,
    750_000,
    1_000_000, //
    2_000_000,
    4_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_000_000_000,
];

/// Share of each class of the latency distribution, in percent.
pub(super) fn distribution<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> [f64; 32] {
    let mut counts = [0u64; 32];
    let mut total = 0;
    for h in histograms {
        for (bucket, n) in h.to_sparse().buckets {
            let v = lower_bound(bucket as usize);
            counts[BOUNDS.partition_point(|b| *b <= v)] += n;
            total += n;
        }
    }
    counts.map(|n| {
        if total == 0 {
            0.0
        } else {
            // Like fio, nothing that happened shows as nothing.
            let share = 100.0 * n as f64 / total as f64;
            if n > 0 { share.max(0.01) } else { 0.0 }
        }
    })
}

/// Classes of queue depths.
pub(super) const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
/// Classes of the sizes of batches.
pub(super) const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// Counts as percent of their sum; like fio, nothing that happened shows as nothing.
pub(super) fn shares(counts: &[u64; 7]) -> [f64; 7] {
    let total: u64 = counts.iter().sum();
    counts.map(|n| match (n, total) {
        (0, _) | (_, 0) => 0.0,
        (n, total) => (100.0 * n as f64 / total as f64).max(0.1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_fio() {
        // From fio's own output: values of buckets and neighbours.
        for v in [
            1256, 1288, 2064, 71_168, 74_240, 134_144, 485_376, 6_782_976,
        ] {
            assert_eq!(value(index(v)), v, "{v}");
        }
        assert_eq!(value(index(5)), 5);
        assert_eq!(value(index(127)), 127);
        assert!(index(u64::MAX) < COUNT);
    }

    #[test]
    fn a_histogram_keeps_its_count_and_order() {
        let mut h = Histogram::new();
        for v in 0..10_000u64 {
            h.record(v * 37);
        }
        let b = bins(&h);
        assert_eq!(b.iter().map(|x| x.1).sum::<u64>(), 10_000);
        assert!(b.windows(2).all(|w| w[0].0 < w[1].0));
        let p = percentiles(&b, &[50.0, 99.0, 100.0]);
        assert!((p[0].1 as f64 / 185_000.0 - 1.0).abs() < 0.02, "{p:?}");
        assert!(p[2].1 >= p[1].1);
    }

    #[test]
    fn the_distribution_sums_to_everything() {
        let mut h = Histogram::new();
        h.record(1);
        h.record(1500);
        h.record(3_000_000_000);
        let d = distribution(std::iter::once(&h));
        assert!((d.iter().sum::<f64>() - 100.0).abs() < 1e-6);
        assert!(d[0] > 33.0 && d[10] > 33.0 && d[31] > 33.0);
    }
}

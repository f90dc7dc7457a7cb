//! Histograms as bytes: the form in which `series.parquet` stores them.
//!
//! Everything is a LEB128 number (seven bits per byte, lowest first): the count; if
//! it is not 0, then the sum, the sum of squares, the minimum, maximum − minimum, the
//! number of non-empty buckets and for each of them its distance from the bucket
//! before (the first: from bucket 0) and its count. The sums are exact, so that means
//! and deviations of merged windows equal those of the job.

use crate::histogram::{BUCKETS, Moments, SparseHistogram};

/// Why bytes are not a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end early.
    #[error("a stored histogram ends early; the file is damaged")]
    Truncated,
    /// A number or a combination of numbers is impossible.
    #[error("a stored histogram contradicts itself; the file is damaged")]
    Invalid,
}

/// Appends the histogram to `out`.
pub fn encode(h: &SparseHistogram, out: &mut Vec<u8>) {
    let m = &h.moments;
    put(out, m.count.into());
    if m.count == 0 {
        return;
    }
    put(out, m.sum);
    put(out, m.sum_squares);
    put(out, m.min.into());
    put(out, (m.max - m.min).into());
    put(out, h.buckets.len() as u128);
    let mut previous = 0;
    for &(bucket, n) in &h.buckets {
        put(out, (bucket - previous).into());
        put(out, n.into());
        previous = bucket;
    }
}

/// Reads one histogram that fills `bytes` entirely.
///
/// # Errors
/// [`CodecError`], for any bytes that [`encode`] could not have written.
pub fn decode(bytes: &[u8]) -> Result<SparseHistogram, CodecError> {
    let mut rest = bytes;
    let count = take_u64(&mut rest)?;
    if count == 0 {
        return if rest.is_empty() {
            Ok(SparseHistogram::default())
        } else {
            Err(CodecError::Invalid)
        };
    }
    let sum = take(&mut rest)?;
    let sum_squares = take(&mut rest)?;
    let min = take_u64(&mut rest)?;
    let max = min
        .checked_add(take_u64(&mut rest)?)
        .ok_or(CodecError::Invalid)?;
    let len = take_u64(&mut rest)?;
    if len == 0 || len > BUCKETS as u64 {
        return Err(CodecError::Invalid);
    }
    let mut buckets = Vec::with_capacity(len as usize);
    let (mut bucket, mut total) = (0u64, 0u64);
    for i in 0..len {
        let gap = take_u64(&mut rest)?;
        bucket = bucket.checked_add(gap).ok_or(CodecError::Invalid)?;
        let n = take_u64(&mut rest)?;
        if bucket >= BUCKETS as u64 || (i > 0 && gap == 0) || n == 0 {
            return Err(CodecError::Invalid);
        }
        total = total.checked_add(n).ok_or(CodecError::Invalid)?;
        buckets.push((bucket as u32, n));
    }
    if total != count || !rest.is_empty() {
        return Err(CodecError::Invalid);
    }
    Ok(SparseHistogram {
        buckets,
        moments: Moments {
            count,
            sum,
            sum_squares,
            min,
            max,
        },
    })
}

fn put(out: &mut Vec<u8>, mut v: u128) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn take(rest: &mut &[u8]) -> Result<u128, CodecError> {
    let mut v = 0u128;
    let mut shift = 0;
    loop {
        let (&byte, later) = rest.split_first().ok_or(CodecError::Truncated)?;
        *rest = later;
        let bits = u128::from(byte & 0x7f);
        if shift >= 128 || (bits << shift) >> shift != bits {
            return Err(CodecError::Invalid);
        }
        v |= bits << shift;
        if byte < 0x80 {
            return Ok(v);
        }
        shift += 7;
    }
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, CodecError> {
    take(rest)?.try_into().map_err(|_| CodecError::Invalid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::histogram::Histogram;

    fn values() -> impl Strategy<Value = Vec<u64>> {
        // Every magnitude up to 2^59 ns (18 years); 128-bit sums of squares hold hundreds of those.
        prop::collection::vec((any::<u64>(), 5u32..64).prop_map(|(v, s)| v >> s), 0..300)
    }

    fn histogram(values: &[u64]) -> SparseHistogram {
        let mut h = Histogram::new();
        for v in values {
            h.record(*v);
        }
        h.to_sparse()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_histogram_survives_being_bytes(values in values()) {
            let h = histogram(&values);
            let mut bytes = Vec::new();
            encode(&h, &mut bytes);
            prop_assert_eq!(decode(&bytes), Ok(h));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_changed_byte_is_an_error_or_another_histogram(values in values(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = Vec::new();
            let h = histogram(&values);
            encode(&h, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(decode(&bytes), Ok(h));
        }

        #[test]
        fn merging_is_associative_and_commutative(a in values(), b in values(), c in values()) {
            let (a, b, c) = (histogram(&a), histogram(&b), histogram(&c));
            let merged = |x: &SparseHistogram, y: &SparseHistogram| { let mut m = x.clone(); m.merge(y); m };
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        }

        #[test]
        fn quantiles_of_merged_histograms_are_those_of_the_union(a in values(), b in values(), q in 0.0f64..=1.0) {
            let mut merged = histogram(&a);
            merged.merge(&histogram(&b));
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            let union = histogram(&all);
            prop_assert_eq!(&merged, &union);
            prop_assert_eq!(merged.quantile(q), union.quantile(q));
            let mut dense = Histogram::new();
            dense.merge_sparse(&merged);
            prop_assert_eq!(dense.quantile(q), union.quantile(q));
        }

        #[test]
        fn a_quantile_is_within_a_128th_of_the_exact_one(mut values in prop::collection::vec(0u64..1 << 42, 1..300), q in 0.0f64..=1.0) {
            let h = histogram(&values);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let got = h.quantile(q).unwrap();
            prop_assert!(got >= exact && got - exact <= exact / 128, "{got} for {exact}");
        }
    }
}

//! DELTA_BINARY_PACKED for 64-bit columns: blocks of 128 differences in four
//! miniblocks of 32, each as wide as its largest.
//!
//! See Encodings.md of the Parquet format. Written here because it is most of the
//! log's cost: packing is unrolled for each of the 65 widths.

use super::thrift::{put_varint, zigzag};

/// Differences per block.
pub(super) const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// One page of one column, as it is built.
#[derive(Debug, Default)]
pub(super) struct DeltaPage {
    previous: u64,
}

impl DeltaPage {
    /// Writes the header of a page of `count` values; the first one is part of it.
    pub(super) fn header(out: &mut Vec<u8>, count: usize, first: u64) {
        put_varint(out, BLOCK as u64);
        put_varint(out, (BLOCK / MINIBLOCK) as u64);
        put_varint(out, count as u64);
        put_varint(out, zigzag(first as i64));
    }

    /// Begins after the first value.
    pub(super) fn new(first: u64) -> Self {
        Self { previous: first }
    }

    /// Adds the next values, exactly [`BLOCK`] of them except at the end of the page.
    #[inline]
    pub(super) fn block(&mut self, out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = u64>) {
        let n = values.len();
        debug_assert!((1..=BLOCK).contains(&n));
        let mut deltas = [0u64; BLOCK];
        let mut previous = self.previous;
        for (d, v) in deltas.iter_mut().zip(values) {
            *d = v.wrapping_sub(previous);
            previous = v;
        }
        self.previous = previous;
        let mut min = i64::MAX;
        for d in &deltas[..n] {
            min = min.min(*d as i64);
        }
        for d in &mut deltas[..n] {
            *d = d.wrapping_sub(min as u64);
        }
        put_varint(out, zigzag(min));
        // A miniblock is padded with zeros to its full length; one without any value has no body.
        let mut widths = [0u8; BLOCK / MINIBLOCK];
        for (w, mini) in widths.iter_mut().zip(deltas.chunks_exact(MINIBLOCK)) {
            let all = mini.iter().fold(0, |a, d| a | d);
            *w = (64 - all.leading_zeros()) as u8;
        }
        out.extend_from_slice(&widths);
        for (w, mini) in widths.iter().zip(deltas.chunks_exact(MINIBLOCK)) {
            if let Ok(mini) = mini.try_into() {
                pack(out, mini, *w);
            }
        }
    }
}

/// Appends 32 values of `width` bits each.
#[inline]
fn pack(out: &mut Vec<u8>, values: &[u64; MINIBLOCK], width: u8) {
    macro_rules! widths {
        ($($w:literal)*) => {
            match width {
                $($w => pack_width::<$w>(out, values),)*
                _ => {}
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);
}

/// With the width known every shift is a constant and no branch is left.
fn pack_width<const WIDTH: usize>(out: &mut Vec<u8>, values: &[u64; MINIBLOCK]) {
    let mut words = [0u64; MINIBLOCK + 1];
    macro_rules! place {
        ($($i:literal)*) => {
            $({
                let (word, shift) = ($i * WIDTH / 64, $i * WIDTH % 64);
                words[word] |= values[$i] << shift;
                if shift + WIDTH > 64 {
                    words[word + 1] |= values[$i] >> (64 - shift);
                }
            })*
        };
    }
    place!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    let mut bytes = [0u8; (MINIBLOCK + 1) * 8];
    for (b, w) in bytes.chunks_exact_mut(8).zip(&words) {
        b.copy_from_slice(&w.to_le_bytes());
    }
    out.extend_from_slice(&bytes[..WIDTH * MINIBLOCK / 8]);
}

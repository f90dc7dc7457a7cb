//! Memory of a page: aligned for direct I/O. And the checksum that every page and log frame carries.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Suits direct I/O of every device.
pub(crate) const ALIGN: usize = 4096;

/// Owned, zeroed bytes that begin at a multiple of [`ALIGN`].
pub(crate) struct PageBuf {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation is owned by this value alone and has no thread affinity.
unsafe impl Send for PageBuf {}
// SAFETY: shared access gives shared slices only.
unsafe impl Sync for PageBuf {}

impl PageBuf {
    /// `len` is rounded up to a multiple of [`ALIGN`], and never 0.
    pub(crate) fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN);
        let Ok(layout) = Layout::from_size_align(len, ALIGN) else {
            handle_alloc_error(Layout::new::<u8>())
        };
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        Self { base, layout }
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and not used afterwards.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has this length, is initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.layout.size()) }
    }
}

/// Four lanes of multiply and rotate over 64-bit words, mixed at the end: detects torn, lost and misplaced
/// pages (`seed` is the place) at several GB/s. It is no protection against malice.
pub(crate) fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = [seed ^ K, !seed, seed.rotate_left(32), bytes.len() as u64];
    let mut blocks = bytes.chunks_exact(32);
    for b in &mut blocks {
        for (lane, w) in h.iter_mut().zip(b.chunks_exact(8)) {
            *lane = (*lane ^ get64(w, 0)).wrapping_mul(K).rotate_left(29);
        }
    }
    for b in blocks.remainder() {
        h[0] = (h[0] ^ u64::from(*b)).wrapping_mul(K).rotate_left(29);
    }
    let mut sum = 0u64;
    for lane in h {
        sum = (sum ^ lane).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum ^= sum >> 31;
    }
    sum
}

/// Little-endian numbers in a page; the caller keeps offsets inside.
#[inline]
pub(crate) fn get64(b: &[u8], at: usize) -> u64 {
    let mut x = [0; 8];
    x.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(x)
}
#[inline]
pub(crate) fn get32(b: &[u8], at: usize) -> u32 {
    let mut x = [0; 4];
    x.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(x)
}
#[inline]
pub(crate) fn get16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
#[inline]
pub(crate) fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    b[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A page's first 8 bytes are the checksum of the rest, seeded with the place it is written to.
pub(crate) fn seal(page: &mut [u8], place: u64) {
    let sum = checksum(place, &page[8..]);
    put(page, 0, &sum.to_le_bytes());
}

pub(crate) fn is_sealed(page: &[u8], place: u64) -> bool {
    get64(page, 0) == checksum(place, &page[8..])
}

//! CRC-32C by the processor's own instruction where it has one: checking must not hold the job up.

/// Continues `crc` (not inverted) over `data`, by the instruction; `None` where the processor has none.
pub(super) fn by_instruction(crc: u32, data: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return Some(unsafe { x86(crc, data) });
    }
    let _ = (crc, data);
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn x86(crc: u32, data: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let mut words = data.chunks_exact(8);
    let mut wide = u64::from(crc);
    for word in words.by_ref() {
        if let Some(word) = word.first_chunk::<8>() {
            wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
        }
    }
    words
        .remainder()
        .iter()
        .fold(wide as u32, |crc, b| _mm_crc32_u8(crc, *b))
}

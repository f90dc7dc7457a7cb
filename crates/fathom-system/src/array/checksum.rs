//! What a device holds, in one number.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Of the bytes in `range`, read past the page cache's copies: what was read before must come from the members again.
///
/// # Errors
/// What the kernel says where the device cannot be opened or read, or ends before the range does.
pub fn checksum(device: &Path, range: Range<u64>) -> io::Result<u64> {
    let file = File::open(device)?;
    let drop_copies = || rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let _ = drop_copies();
    let mut sum = Checksum::default();
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let n = piece.len().min((range.end - at) as usize);
        file.read_exact_at(&mut piece[..n], at)?;
        sum.add(&piece[..n]);
        at += n as u64;
    }
    let _ = drop_copies();
    Ok(sum.0)
}

/// FNV-1a over words of eight bytes: the order of everything counts.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.0 = (self.0 ^ u64::from_le_bytes(whole))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(17);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_sees_every_bit_and_the_order() {
        let of = |pieces: &[&[u8]]| {
            let mut sum = Checksum::default();
            pieces.iter().for_each(|p| sum.add(p));
            sum.0
        };
        let whole = of(&[&[1; 16], &[2; 16]]);
        assert_eq!(whole, of(&[&[1; 16], &[2; 16]]));
        assert_ne!(whole, of(&[&[2; 16], &[1; 16]]));
        let mut bit = [2u8; 16];
        bit[15] ^= 0x80;
        assert_ne!(whole, of(&[&[1; 16], &bit]));
    }
}

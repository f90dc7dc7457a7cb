//! Blanks a device: erases what says to whom it belongs.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::retry::{is_busy, patiently};

/// What file systems that fathom makes are called: what a killed run left is known by it.
pub const LABEL: &str = "fathom";
/// The same with its end: names that only begin so are others'.
pub(crate) const LABEL_WHOLE: &[u8] = b"fathom\0";

/// Bytes of a piece that is erased at once.
const PIECE: usize = 128 << 10;
/// Pieces at the beginning of a device in which lies what says to whom it belongs: labels of LVM and ZFS, superblocks of
/// md, ext4, XFS and the first one of btrfs, journals of md, tables of partitions.
const FIRST: u64 = 4;
/// The same at its end: two labels of ZFS, of 256 KiB each, before the last whole multiple of that.
const LAST: u64 = 6;
/// Bytes of a further copy of btrfs' superblock, and where these are (fs/btrfs/disk-io.h).
const COPY: usize = 4096;
const COPIES: [u64; 2] = [64 << 20, 256 << 30];
/// What they are overwritten with.
pub static ZEROS: [u8; PIECE] = [0; PIECE];
/// Who looks at every device that changes (udev, the kernel) has it for a moment.
const CLAIM_SECONDS: u64 = 2;

/// Pieces of a device of `size` bytes that say to whom it belongs: where each begins, and how long it is. None is longer
/// than [`ZEROS`].
pub fn pieces(size: u64) -> impl Iterator<Item = (u64, usize)> {
    let first = (0..FIRST).map(|i| (i * PIECE as u64, PIECE));
    let last = (1..=LAST).map(move |i| (size.saturating_sub(i * PIECE as u64), PIECE));
    let all = first.chain(last).chain(COPIES.map(|at| (at, COPY)));
    all.map(move |(at, bytes)| (at, bytes.min(size.saturating_sub(at) as usize)))
}

/// Opens a device for writing that nobody has claimed, and claims it; one that is busy is tried again for a while.
///
/// # Errors
/// Where somebody keeps it, or it is a link.
pub fn claim(device: &Path) -> io::Result<File> {
    let open = || fathom_files::open::for_writing(device, libc::O_EXCL);
    patiently(CLAIM_SECONDS, is_busy, open)
}

/// Erases what says to whom a device belongs, so that it is blank again.
///
/// # Errors
/// Where somebody has claimed it, or it cannot be written.
pub fn erase(device: &Path) -> io::Result<()> {
    erase_claimed(claim(device)?)
}

/// The same of one that was claimed.
///
/// # Errors
/// Where it cannot be written.
pub fn erase_claimed(mut device: File) -> io::Result<()> {
    let size = device.seek(SeekFrom::End(0))?;
    for (at, bytes) in pieces(size) {
        device.write_all_at(&ZEROS[..bytes], at)?;
    }
    device.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_within_the_device() {
        for size in [0, 512, 100 << 10, 200 << 10, 1 << 30, 1 << 40] {
            for (at, bytes) in pieces(size) {
                let within = at + bytes as u64 <= size && bytes <= ZEROS.len();
                assert!(bytes == 0 || within, "{size}: {bytes} at {at}");
            }
        }
        assert!(pieces(1 << 40).any(|p| p == (256 << 30, 4096)));
        assert!(pieces(1 << 40).any(|p| p == ((1 << 40) - (768 << 10), PIECE)));
    }

    #[test]
    fn erasing_leaves_data_and_takes_every_copy_of_a_superblock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let size = (64 << 20) + (1 << 20);
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        // Labels of ZFS, of LVM and md, and btrfs' superblocks.
        let copies = [4096, 64 << 10, (256 << 10) + (16 << 10), 64 << 20];
        let at_the_end = [size - (512 << 10) + (16 << 10), size - 4096];
        let copies = [&copies[..], &at_the_end].concat();
        let data = [1 << 20, (64 << 20) + 4096];
        for at in copies.iter().copied().chain(data) {
            file.write_all_at(&[7; 4096], at).unwrap();
        }
        erase(&path).unwrap();
        let file = File::open(&path).unwrap();
        let left = |at: u64| {
            let mut block = [1; 4096];
            file.read_exact_at(&mut block, at).unwrap();
            block
        };
        assert!(copies.into_iter().all(|at| left(at) == [0; 4096]));
        assert!(data.into_iter().all(|at| left(at) == [7; 4096]));
        assert_eq!(file.metadata().unwrap().len(), size, "nothing grows");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(claim(&link).is_err(), "what a link means may change");
    }
}

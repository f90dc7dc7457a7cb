//! Whether completions of a file can be polled for: asked of the kernel with one read before a job
//! starts, because sysfs does not tell for file systems and stacked devices.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use crate::buffer::Buffers;

/// One polled read of `len` bytes at `offset`; `file` is open for direct I/O.
///
/// # Errors
/// EOPNOTSUPP where the file system or the device has no polling; whatever else the read fails with.
pub(crate) fn try_read(file: &File, offset: u64, len: u32) -> io::Result<()> {
    let mut ring: IoUring = IoUring::builder().setup_iopoll().build(1)?;
    let buffer = Buffers::new(1, len, None)?;
    let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.slot(0), len)
        .offset(offset)
        .build();
    // SAFETY: the buffer is `len` bytes long and outlives the ring's only request, which is awaited.
    unsafe { ring.submission().push(&entry) }
        .map_err(|_| io::Error::other("a new ring has no room"))?;
    ring.submit_and_wait(1)?;
    match ring.completion().next().map(|c| c.result()) {
        Some(n) if n < 0 => Err(io::Error::from_raw_os_error(-n)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn a_file_without_polling_is_told_from_one_that_reads() {
        // tmpfs has direct I/O on some kernels and polling on none.
        let Ok(f) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            println!("SKIP a_file_without_polling_is_told_from_one_that_reads: no /dev/shm");
            return;
        };
        std::fs::write(f.path(), [1; 4096]).unwrap();
        let direct = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(f.path());
        let Ok(file) = direct else {
            println!("SKIP a_file_without_polling_is_told_from_one_that_reads: no direct I/O here");
            return;
        };
        let e = try_read(&file, 0, 4096).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EOPNOTSUPP), "{e}");
    }
}

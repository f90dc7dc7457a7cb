//! Many writes in one call of the kernel: a thread that writes a page at a time spends more on waiting and waking than
//! on writing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, opcode, types};

/// Writes under way at the same time.
const ENTRIES: usize = 64;

/// A ring of one thread at a time.
pub(crate) struct Ring(IoUring);

impl Ring {
    /// One that has done something already, so that what does not work shows here.
    ///
    /// # Errors
    /// Where the kernel has none, or does not allow it.
    pub(crate) fn new() -> io::Result<Self> {
        let mut ring = IoUring::new(ENTRIES as u32)?;
        // SAFETY: an operation without memory or file.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }
            .map_err(|_| io::Error::other("a new ring has no room"))?;
        ring.submit_and_wait(1)?;
        ring.completion().next();
        Ok(Self(ring))
    }

    /// Writes all buffers and waits for all of them.
    ///
    /// # Errors
    /// The first failure; the other writes have ended, too.
    pub(crate) fn write_all(&mut self, file: &File, all: &[(u64, &[u8])]) -> io::Result<()> {
        all.chunks(ENTRIES).try_for_each(|c| self.write(file, c))
    }

    fn write(&mut self, file: &File, all: &[(u64, &[u8])]) -> io::Result<()> {
        let fd = types::Fd(file.as_raw_fd());
        for (i, (offset, buf)) in all.iter().enumerate() {
            let entry = opcode::Write::new(fd, buf.as_ptr(), buf.len() as u32)
                .offset(*offset)
                .build()
                .user_data(i as u64);
            // SAFETY: the buffers are borrowed and the file is open until this function returns, which it does only
            // when every write that was pushed has completed; the ring is empty before, so that all fit.
            let pushed = unsafe { self.0.submission().push(&entry) };
            debug_assert!(pushed.is_ok(), "as many as there is room for");
        }
        let mut left = all.len();
        let mut first = Ok(());
        while left > 0 {
            // A signal, or no memory at this moment. What was submitted reads the buffers: there is no way but on.
            if self.0.submit_and_wait(left).is_err() {
                std::thread::yield_now();
            }
            for c in self.0.completion() {
                left -= 1;
                let (offset, buf) = all[c.user_data() as usize];
                let done = match c.result() {
                    n if n < 0 => Err(io::Error::from_raw_os_error(-n)),
                    // The rest of a short write.
                    n => file.write_all_at(&buf[n as usize..], offset + n as u64),
                };
                first = first.and(done);
            }
        }
        first
    }
}

//! preadv2 and pwritev2: one outstanding I/O per thread, the way most applications do it.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};

use super::{Blocking, Port, PortError, Request};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{JobSpec, SyncPolicy};

/// _IO(0x12, 119): discards a range of a block device (linux/fs.h).
const BLKDISCARD: u64 = 0x1277;

/// See the module.
pub struct Preadv {
    file: Arc<std::fs::File>,
    clock: Clock,
    buffers: Buffers,
    rw_flags: i32,
    datasync: bool,
    /// A block device: trims are discards, not holes.
    device: bool,
    staged: Option<(u32, Request)>,
    done: Option<(u32, i64)>,
}

impl Preadv {
    /// For one outstanding I/O.
    pub fn new(file: Arc<std::fs::File>, spec: &JobSpec, buffers: Buffers, clock: Clock) -> Self {
        Self {
            device: super::is_block_device(&file),
            file,
            clock,
            buffers,
            rw_flags: match spec.sync {
                SyncPolicy::Fua => libc::RWF_DSYNC,
                SyncPolicy::Sync => libc::RWF_SYNC,
                _ => 0,
            },
            datasync: matches!(spec.sync, SyncPolicy::Fdatasync(_)),
            staged: None,
            done: None,
        }
    }

    fn call(&self, slot: u32, r: Request) -> i64 {
        loop {
            let n = self.call_once(slot, r);
            if n >= 0 {
                return n;
            }
            let errno = std::io::Error::last_os_error().raw_os_error();
            // A signal that ends the job is no error of the device (network and FUSE files say EINTR).
            if errno != Some(libc::EINTR) {
                return -i64::from(errno.unwrap_or(libc::EIO));
            }
        }
    }

    fn call_once(&self, slot: u32, r: Request) -> i64 {
        let fd = self.file.as_raw_fd();
        let iov = libc::iovec {
            iov_base: self.buffers.slot(slot).cast(),
            iov_len: r.len as usize,
        };
        let offset = r.offset as libc::off_t;
        // SAFETY: `fd` is open; the iovec names the slot's own buffer, at least `len` long and
        // unused until this call returns; BLKDISCARD reads two numbers.
        unsafe {
            match r.op {
                Op::Read => libc::preadv2(fd, &iov, 1, offset, 0) as i64,
                Op::Write => libc::pwritev2(fd, &iov, 1, offset, self.rw_flags) as i64,
                Op::Trim if self.device => {
                    let range = [r.offset, u64::from(r.len)];
                    i64::from(libc::ioctl(fd, BLKDISCARD as _, range.as_ptr()))
                }
                Op::Trim => {
                    let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
                    i64::from(libc::fallocate(fd, mode, offset, libc::off_t::from(r.len)))
                }
                Op::Sync if self.datasync => i64::from(libc::fdatasync(fd)),
                Op::Sync => i64::from(libc::fsync(fd)),
            }
        }
    }
}

impl Port for Preadv {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
    }
    #[inline]
    fn stage(&mut self, slot: u32, request: Request) {
        debug_assert!(self.staged.is_none(), "one outstanding I/O");
        if request.op == Op::Write {
            self.buffers.prepare_write(slot, request.len);
        }
        self.staged = Some((slot, request));
    }
    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        if let Some((slot, result)) = self.done.take() {
            each(slot, result);
        }
    }
}

impl Blocking for Preadv {
    #[inline]
    fn flush(&mut self, _min: u32, until: Nanos) -> Result<(), PortError> {
        match self.staged.take() {
            Some((slot, request)) => self.done = Some((slot, self.call(slot, request))),
            None => super::wait_until(&self.clock, until),
        }
        Ok(())
    }
}

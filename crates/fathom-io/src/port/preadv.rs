//! preadv2 and its older relatives: one outstanding I/O per thread, the way most applications do it.

use std::sync::Arc;

use fathom_telemetry::Op;

use super::single::Call;
use super::{PortError, Request, Served};
use crate::job::{JobSpec, SyncCall};
use crate::load::rng::Rng;

/// One thread, one I/O at a time: preadv2 and pwritev2.
pub struct Preadv {
    files: Vec<Served>,
    call: SyncCall,
    /// RWF_* flags of reads and of writes.
    flags: (i32, i32),
    /// Share of calls that carry RWF_HIPRI, percent, and the dice for it.
    polled: (u64, Rng),
}

impl Preadv {
    /// For one outstanding I/O.
    pub fn new(files: Vec<Arc<std::fs::File>>, spec: &JobSpec) -> Result<Self, PortError> {
        let plain = spec.call == SyncCall::Preadv2;
        let seeks = matches!(spec.call, SyncCall::Read | SyncCall::Readv);
        // A position belongs to one thread, and only preadv2 takes flags with every call.
        let own = Served::all(super::own_files(files, spec, seeks, !plain)?).into_iter();
        Ok(Self {
            files: own
                .map(|f| f.managing_zones(spec.command))
                .collect::<Result<_, _>>()?,
            call: spec.call,
            // The older calls carry none: `own_files` opens files for what they are to do.
            flags: if plain {
                super::call_flags(spec)
            } else {
                (0, 0)
            },
            polled: (
                u64::from(spec.hipri_share),
                Rng::new(spec.seed, 0x6869_7072),
            ),
        })
    }

    /// `but` keeps the flags that this call may carry.
    fn call_once(&self, file: &Served, data: &mut [u8], r: Request, but: i32) -> i64 {
        let fd = file.fd();
        let iov = libc::iovec {
            iov_base: data.as_mut_ptr().cast(),
            iov_len: data.len(),
        };
        let offset = r.offset as libc::off_t;
        // SAFETY: `fd` is open; the iovec names `data`, which nobody else uses until this call returns.
        unsafe {
            match r.op {
                Op::Read => match self.call {
                    SyncCall::Preadv2 => {
                        libc::preadv2(fd, &iov, 1, offset, self.flags.0 & but) as i64
                    }
                    SyncCall::Preadv => libc::preadv(fd, &iov, 1, offset) as i64,
                    SyncCall::Pread => libc::pread(fd, iov.iov_base, iov.iov_len, offset) as i64,
                    SyncCall::Readv if libc::lseek(fd, offset, libc::SEEK_SET) >= 0 => {
                        libc::readv(fd, &iov, 1) as i64
                    }
                    SyncCall::Read if libc::lseek(fd, offset, libc::SEEK_SET) >= 0 => {
                        libc::read(fd, iov.iov_base, iov.iov_len) as i64
                    }
                    SyncCall::Readv | SyncCall::Read => -1,
                },
                Op::Write => match self.call {
                    SyncCall::Preadv2 => {
                        libc::pwritev2(fd, &iov, 1, offset, self.flags.1 & but) as i64
                    }
                    SyncCall::Preadv => libc::pwritev(fd, &iov, 1, offset) as i64,
                    SyncCall::Pread => libc::pwrite(fd, iov.iov_base, iov.iov_len, offset) as i64,
                    SyncCall::Readv if libc::lseek(fd, offset, libc::SEEK_SET) >= 0 => {
                        libc::writev(fd, &iov, 1) as i64
                    }
                    SyncCall::Read if libc::lseek(fd, offset, libc::SEEK_SET) >= 0 => {
                        libc::write(fd, iov.iov_base, iov.iov_len) as i64
                    }
                    SyncCall::Readv | SyncCall::Read => -1,
                },
                Op::Trim => i64::from(file.trim(r.offset, r.len)),
                Op::Sync => i64::from(file.sync(&r)),
            }
        }
    }
}

impl Call for Preadv {
    fn call(&mut self, r: Request, data: &mut [u8]) -> i64 {
        let polls = self.polled.0 >= 100 || self.polled.1.below(100) < self.polled.0;
        let but = if polls { !0 } else { !libc::RWF_HIPRI };
        let Some(file) = self.files.get(usize::from(r.file)) else {
            return -i64::from(libc::EBADF);
        };
        loop {
            let n = self.call_once(file, data, r, but);
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

    fn drop_cache(&mut self, start: u64, len: u64, durable: bool) {
        for file in &self.files {
            super::forget(file.fd(), start, len, durable);
        }
    }
}

//! io_uring: one ring per thread, registered file, buffer and ring where the kernel allows.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};
use io_uring::{IoUring, opcode, types};

use super::{Blocking, Port, PortError, Request, SPIN_NS};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{JobSpec, SyncPolicy};

/// FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE: a discard on block devices, a hole in files.
const PUNCH: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;

/// See the module.
pub struct Uring {
    ring: IoUring,
    clock: Clock,
    buffers: Buffers,
    /// Kept open as long as the ring.
    _file: Arc<std::fs::File>,
    fd: RawFd,
    fixed_file: bool,
    fixed_buffer: bool,
    sqpoll: bool,
    iopoll: bool,
    rw_flags: i32,
    fsync_flags: types::FsyncFlags,
    staged: u32,
    notes: Vec<String>,
}

/// The submission entry of a request; a macro because the crate's file types share no public trait.
macro_rules! entry {
    ($port:expr, $fd:expr, $slot:expr, $r:expr) => {{
        let (port, fd, r) = (&$port, $fd, $r);
        let buffer = port.buffers.slot($slot);
        match (r.op, port.fixed_buffer) {
            (Op::Read, true) => opcode::ReadFixed::new(fd, buffer, r.len, 0)
                .offset(r.offset)
                .build(),
            (Op::Read, false) => opcode::Read::new(fd, buffer, r.len)
                .offset(r.offset)
                .build(),
            (Op::Write, true) => opcode::WriteFixed::new(fd, buffer, r.len, 0)
                .offset(r.offset)
                .rw_flags(port.rw_flags)
                .build(),
            (Op::Write, false) => opcode::Write::new(fd, buffer, r.len)
                .offset(r.offset)
                .rw_flags(port.rw_flags)
                .build(),
            (Op::Trim, _) => opcode::Fallocate::new(fd, u64::from(r.len))
                .offset(r.offset)
                .mode(PUNCH)
                .build(),
            (Op::Sync, _) => opcode::Fsync::new(fd).flags(port.fsync_flags).build(),
        }
    }};
}

/// Tries set-up flags from the best to the plainest, so that old kernels work too.
fn build(depth: u32, spec: &JobSpec) -> io::Result<(IoUring, &'static str)> {
    let mut last = None;
    for level in 0..4 {
        let mut b = IoUring::builder();
        b.setup_clamp();
        if spec.iopoll {
            b.setup_iopoll();
        }
        let name = if spec.sqpoll {
            if level > 0 {
                break;
            }
            b.setup_sqpoll(1000).setup_single_issuer();
            "sqpoll"
        } else {
            match level {
                0 => {
                    b.setup_coop_taskrun()
                        .setup_single_issuer()
                        .setup_defer_taskrun()
                        .setup_no_sqarray();
                    "defer-taskrun, no-sqarray"
                }
                1 => {
                    b.setup_coop_taskrun()
                        .setup_single_issuer()
                        .setup_defer_taskrun();
                    "defer-taskrun"
                }
                2 => {
                    b.setup_coop_taskrun();
                    "coop-taskrun"
                }
                _ => "plain ring",
            }
        };
        match b.build(depth) {
            Ok(ring) => return Ok((ring, name)),
            // Only "invalid flags" is worth a plainer try.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
}

/// Why this process cannot use io_uring at all (kernel too old, switched off, or forbidden by a sandbox);
/// `None` where it can.
pub fn unavailable() -> Option<String> {
    match IoUring::new(1) {
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ENOSYS | libc::EPERM | libc::EACCES)
            ) =>
        {
            Some(e.to_string())
        }
        _ => None,
    }
}

impl Uring {
    /// Makes the ring. Call it on the thread that will use it (the ring has a single issuer).
    pub fn new(
        file: Arc<std::fs::File>,
        spec: &JobSpec,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let (ring, set_up) = build(depth, spec).map_err(|source| PortError {
            what: format!("io_uring with {depth} entries could not be set up"),
            source,
        })?;
        let mut notes = vec![set_up.to_owned()];
        let mut note = |ok: bool, what: &str, e: Option<&io::Error>| {
            notes.push(match e {
                Some(e) if !ok => format!("{what} not registered ({e})"),
                _ => format!("{what} registered"),
            });
            ok
        };
        let fd = file.as_raw_fd();
        let r = ring.submitter().register_files(&[fd]);
        let fixed_file = note(r.is_ok(), "file", r.as_ref().err());
        let (base, len) = buffers.whole();
        let iov = libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        // SAFETY: the buffers live in this port and are dropped after the ring (field order).
        let r = unsafe { ring.submitter().register_buffers(&[iov]) };
        let fixed_buffer = note(r.is_ok(), "buffer", r.as_ref().err());
        let r = ring.submitter().register_ring_fd();
        note(r.is_ok(), "ring", r.as_ref().err());
        if spec.iopoll {
            notes.push("polled completions".into());
        }
        let rw_flags = match spec.sync {
            SyncPolicy::Fua => libc::RWF_DSYNC,
            SyncPolicy::Sync => libc::RWF_SYNC,
            _ => 0,
        };
        Ok(Self {
            ring,
            clock,
            buffers,
            _file: file,
            fd,
            fixed_file,
            fixed_buffer,
            sqpoll: spec.sqpoll,
            iopoll: spec.iopoll,
            rw_flags,
            fsync_flags: match spec.sync {
                SyncPolicy::Fdatasync(_) => types::FsyncFlags::DATASYNC,
                _ => types::FsyncFlags::empty(),
            },
            staged: 0,
            notes,
        })
    }

    /// What could be registered, for the record.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// One system call. Interruptions and timeouts are not errors: the caller looks at the clock.
    fn enter(&mut self, min: u32, timeout: Option<Nanos>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let r = match timeout {
            None if min == 0 && !self.iopoll => submitter.submit(),
            None => submitter.submit_and_wait(min as usize),
            Some(t) => {
                let ts = types::Timespec::new()
                    .sec(t.0 / 1_000_000_000)
                    .nsec((t.0 % 1_000_000_000) as u32);
                let args = types::SubmitArgs::new().timespec(&ts);
                submitter.submit_with_args(min as usize, &args)
            }
        };
        match r {
            Ok(_) => Ok(()),
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}

impl Port for Uring {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
    }

    #[inline]
    fn stage(&mut self, slot: u32, request: Request) {
        if request.op == Op::Write {
            self.buffers.prepare_write(slot, request.len);
        }
        let entry = if self.fixed_file {
            entry!(self, types::Fixed(0), slot, request)
        } else {
            entry!(self, types::Fd(self.fd), slot, request)
        };
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: the slot's buffer is registered or owned, at least `len` long, lives as long as
        // the ring, and is not used again before this request completes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "the ring has room for every slot");
        self.staged += 1;
    }

    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        for c in self.ring.completion() {
            each(c.user_data() as u32, i64::from(c.result()));
        }
    }
}

impl Blocking for Uring {
    #[inline]
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError> {
        let failed = |source| PortError {
            what: "io_uring_enter failed".into(),
            source,
        };
        let had = std::mem::take(&mut self.staged);
        if until == Nanos::MAX {
            return self.enter(min, None).map_err(failed);
        }
        if had > 0 {
            self.enter(0, None).map_err(failed)?;
        }
        loop {
            if min > 0 && self.ring.completion().len() >= min as usize {
                return Ok(());
            }
            let left = until.since(self.clock.now()).0;
            if left == 0 {
                return Ok(());
            }
            if left > SPIN_NS {
                if min == 0 {
                    super::wait_until(&self.clock, until);
                    return Ok(());
                }
                // The kernel's timer is late by its slack: stop early and spin the rest.
                self.enter(min, Some(Nanos((left - SPIN_NS).min(10_000_000))))
                    .map_err(failed)?;
                if left > 10_000_000 {
                    return Ok(());
                }
            } else if !self.sqpoll && min > 0 {
                // With deferred task work completions appear only inside the kernel.
                self.enter(0, Some(Nanos::ZERO)).map_err(failed)?;
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

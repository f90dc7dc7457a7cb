//! io_uring: one ring per thread, registered file, buffer and ring where the kernel allows.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};
use io_uring::{IoUring, opcode, squeue, types};

use super::{Blocking, Port, PortError, Request, SPIN_NS};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{JobSpec, SyncPolicy};

/// FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE: a hole in a file.
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
    /// Trims are discards of a block device, not holes in a file.
    discards: bool,
    rw_flags: i32,
    fsync_flags: types::FsyncFlags,
    /// File descriptor for io_uring_enter, and its flag: a registered index saves a look-up per call.
    enter_fd: (i32, u32),
    /// Whether a wait may have a time limit (Linux 5.11).
    timed: bool,
    /// Whether completions appear only in calls that ask for them.
    deferred: bool,
    staged: bool,
    outstanding: u32,
    /// Flushes until the next sample of [`Port::inline`], and its counts.
    flushes: u32,
    sampled: (u64, u64),
    notes: Vec<String>,
}

const GETEVENTS: u32 = 1;
const SQ_WAKEUP: u32 = 1 << 1;
const EXT_ARG: u32 = 1 << 3;
const REGISTERED_RING: u32 = 1 << 4;

/// One flush in so many is done in two calls to see what completes inside the first: at 32 I/Os per
/// flush that costs less than 0.1 ns per I/O.
const INLINE_SAMPLED: u32 = 256;

/// struct io_uring_getevents_arg.
#[repr(C)]
#[derive(Default)]
struct ExtArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    ts: u64,
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

/// Registers the ring's descriptor with this thread (Linux 5.18); returns its index.
fn register_ring(ring: &IoUring) -> io::Result<i32> {
    const REGISTER_RING_FDS: u32 = 20;
    /// struct io_uring_rsrc_update.
    #[repr(C)]
    struct Update {
        offset: u32,
        resv: u32,
        data: u64,
    }
    let mut update = Update {
        offset: u32::MAX,
        resv: 0,
        data: ring.as_raw_fd() as u64,
    };
    // SAFETY: the kernel reads and writes one `Update` during the call.
    let r = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_RING_FDS,
            std::ptr::from_mut(&mut update),
            1,
        )
    };
    match r {
        1 => Ok(update.offset as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes BLOCK_URING_CMD_DISCARD (linux/blkdev.h, Linux 6.12) of a request's entry. The io-uring crate's
/// command has no place for the start.
fn discard(entry: squeue::Entry, r: Request) -> squeue::Entry {
    const URING_CMD: u64 = 46;
    const DISCARD: u64 = 0x12 << 8;
    // SAFETY: an entry is 64 bytes of plain data (struct io_uring_sqe); the two types have one size.
    let mut words: [u64; 8] = unsafe { std::mem::transmute(entry) };
    // Flags and file stay; the user data is word 4.
    words[0] = words[0] & !0xff | URING_CMD;
    words[1] = DISCARD;
    words[2] = r.offset;
    words[3] = 0;
    words[6] = u64::from(r.len);
    // SAFETY: as above.
    unsafe { std::mem::transmute(words) }
}

/// Version of the running kernel; (0, 0) where it cannot be told.
fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.split(['.', '-', '\n']).map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
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
        let r = register_ring(&ring);
        note(r.is_ok(), "ring", r.as_ref().err());
        let enter_fd = match r {
            Ok(index) => (index, REGISTERED_RING),
            Err(_) => (ring.as_raw_fd(), 0),
        };
        if spec.iopoll {
            notes.push("polled completions".into());
        }
        let rw_flags = match spec.sync {
            SyncPolicy::Fua => libc::RWF_DSYNC,
            SyncPolicy::Sync => libc::RWF_SYNC,
            _ => 0,
        };
        let timed = ring.params().is_feature_ext_arg();
        let deferred = set_up.starts_with("defer-taskrun");
        let discards = spec.rw.trims() && super::is_block_device(&file);
        if discards && kernel() < (6, 12) {
            // fallocate on a block device writes zeros (and may unmap): not what a trim means.
            return Err(PortError {
                what: "io_uring discards need Linux 6.12; try --engine preadv".into(),
                source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            });
        }
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
            discards,
            enter_fd,
            timed,
            deferred,
            staged: false,
            outstanding: 0,
            flushes: 0,
            sampled: (0, 0),
            notes,
        })
    }

    /// What could be registered, for the record.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Hands over what is staged and waits for `min` completions, for at most `timeout`: one system
    /// call. Interruptions and timeouts are not errors: the caller looks at the clock.
    #[inline]
    fn enter(&mut self, min: u32, timeout: Option<Nanos>) -> io::Result<()> {
        let staged = self.ring.submission().len() as u32;
        let r = match timeout {
            // Deferred task work, which posts completions, is only run by a call that asks for them.
            None => self.call(staged, min, GETEVENTS, None),
            Some(t) if self.timed => {
                let ts = types::Timespec::new()
                    .sec(t.0 / 1_000_000_000)
                    .nsec((t.0 % 1_000_000_000) as u32);
                self.call(staged, min, GETEVENTS | EXT_ARG, Some(&ts))
            }
            // Before Linux 5.11 a wait has no limit: look, and come back.
            Some(_) => self.call(staged, 0, GETEVENTS, None),
        };
        match r {
            Err(e)
                if !matches!(
                    e.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// io_uring_enter on the registered ring, which the io-uring crate forgets between two calls.
    #[inline]
    fn call(
        &mut self,
        staged: u32,
        min: u32,
        mut flags: u32,
        ts: Option<&types::Timespec>,
    ) -> io::Result<()> {
        if self.sqpoll {
            // (The crate's `need_wakeup` has the fence that this needs.)
            if self.ring.submission().need_wakeup() {
                flags |= SQ_WAKEUP;
            } else if min == 0 {
                // The kernel's thread takes requests and posts completions without us.
                return Ok(());
            }
        }
        let arg = ExtArg {
            ts: ts.map_or(0, |t| std::ptr::from_ref(t) as u64),
            ..ExtArg::default()
        };
        let (arg, size) = match ts {
            Some(_) => (std::ptr::from_ref(&arg), std::mem::size_of::<ExtArg>()),
            None => (std::ptr::null(), 0),
        };
        let (fd, registered) = self.enter_fd;
        // SAFETY: the descriptor is the ring's own (or its registered index); `arg` and the timespec
        // that it names outlive the call.
        let r = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                staged,
                min,
                flags | registered,
                arg,
                size,
            )
        };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Makes room in a full submission queue. It has an entry per slot, so this happens only where
    /// the kernel's thread (sqpoll) has answered a request before it gave its entry back.
    #[cold]
    fn make_room(&mut self) {
        // An error shows up again in the next flush.
        let _ = self.enter(0, None);
        std::hint::spin_loop();
    }

    /// Samples how many requests complete inside their own submission: with deferred task work nothing
    /// else posts completions there.
    #[cold]
    fn sample_inline(&mut self) -> io::Result<()> {
        let staged = self.ring.submission().len();
        let before = self.ring.completion().len();
        self.call(staged as u32, 0, 0, None)?;
        let left = self.ring.submission().len();
        let done = self.ring.completion().len() - before;
        self.sampled.0 += (staged - left) as u64;
        self.sampled.1 += done.min(staged - left) as u64;
        Ok(())
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
    fn inline(&self) -> Option<(u64, u64)> {
        self.deferred.then_some(self.sampled)
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
        let mut entry = entry.user_data(u64::from(slot));
        if request.op == Op::Trim && self.discards {
            entry = discard(entry, request);
        }
        self.outstanding += 1;
        self.staged = true;
        // SAFETY: the slot's buffer is registered or owned, at least `len` long, lives as long as
        // the ring, and is not used again before this request completes.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.make_room();
        }
    }

    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        for c in self.ring.completion() {
            self.outstanding -= 1;
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
        if until == Nanos::MAX {
            if self.flushes == 0 {
                self.flushes = INLINE_SAMPLED;
                if self.deferred && !self.sqpoll && !self.iopoll {
                    self.sample_inline().map_err(failed)?;
                }
            }
            self.flushes -= 1;
            self.staged = false;
            return self.enter(min, None).map_err(failed);
        }
        // Hand over, and take what is done: at a high rate `until` is always past, and completions
        // would wait in the kernel until no slot is free.
        if self.staged || min > 0 {
            self.staged = false;
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
            if min == 0 {
                super::wait_until(&self.clock, until);
                return Ok(());
            }
            // A polled ring ignores the time limit of a wait.
            if left > SPIN_NS && !self.iopoll {
                // The kernel's timer is late by its slack: stop early and spin the rest.
                self.enter(min, Some(Nanos((left - SPIN_NS).min(10_000_000))))
                    .map_err(failed)?;
                if left > 10_000_000 {
                    return Ok(());
                }
            } else if self.sqpoll && !self.iopoll {
                std::hint::spin_loop();
            } else {
                self.enter(0, None).map_err(failed)?;
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.outstanding > 0 {
            // The ring has failed and the kernel may still write: better lose the memory than share it.
            self.buffers.leak();
        }
    }
}

//! io_uring: one ring per thread, registered file, buffer and ring where the kernel allows.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};
use io_uring::{IoUring, cqueue, squeue, types};

use super::{Alarm, Blocking, Port, PortError, Request};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{Flush, JobSpec};

/// FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE: a hole in a file.
const PUNCH: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;

/// What a ring's entries are made of.
pub trait Entries {
    /// Of the submission queue.
    type Sq: squeue::EntryMarker;
    /// Of the completion queue.
    type Cq: cqueue::EntryMarker;
    /// The entry of `r` on `file` (a descriptor or a registered index) with `buffer` of `slot`.
    fn entry(&mut self, shape: Shape, slot: u32, r: Request, file: u32, buffer: u64) -> Self::Sq;
    /// The same for a worker.
    fn at_once(entry: Self::Sq) -> Self::Sq;
    /// Slot, and bytes done or negative errno.
    fn done(&mut self, c: &Self::Cq) -> (u32, i64);
    /// The ring has failed, and the kernel may still read what belongs to the entries.
    fn leak(&mut self) {}
}

/// Reads and writes of files and block devices.
pub struct Plain;

impl Entries for Plain {
    type Sq = squeue::Entry;
    type Cq = cqueue::Entry;

    #[inline]
    fn entry(&mut self, shape: Shape, slot: u32, r: Request, file: u32, buffer: u64) -> Self::Sq {
        shape.entry(slot, r, file, buffer)
    }
    #[inline]
    fn at_once(entry: Self::Sq) -> Self::Sq {
        entry.flags(squeue::Flags::ASYNC)
    }
    #[inline]
    fn done(&mut self, c: &Self::Cq) -> (u32, i64) {
        (c.user_data() as u32, i64::from(c.result()))
    }
}

/// The crate's ring of such entries.
type Ring<E> = IoUring<<E as Entries>::Sq, <E as Entries>::Cq>;

/// io_uring.
pub struct Uring<E: Entries = Plain> {
    ring: Ring<E>,
    pub(super) entries: E,
    clock: Clock,
    alarm: Alarm,
    buffers: Buffers,
    /// Kept open as long as the ring.
    _files: Vec<Arc<std::fs::File>>,
    fds: Vec<RawFd>,
    shape: Shape,
    sqpoll: bool,
    iopoll: bool,
    /// Hand-overs and waits are calls of their own.
    few: bool,
    /// One request in so many goes to a worker at once, 0 for none; and how many came since the last.
    force_async: (u32, u32),
    /// File descriptor for io_uring_enter, and its flag: a registered index saves a look-up per call.
    enter_fd: (i32, u32),
    /// Whether a wait may have a time limit (Linux 5.11).
    timed: bool,
    /// Whether completions appear only in calls that ask for them.
    deferred: bool,
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

/// What a request's submission entry (struct io_uring_sqe, eight words) holds, beside the request.
///
/// Built by hand: the io-uring crate's builders write an entry field by field to the stack and copy it,
/// which costs more than all else that a submission does.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Whether files are named by their registered index.
    fixed_file: bool,
    fixed_buffer: bool,
    /// Trims are discards of a block device, not holes in a file.
    discards: bool,
    /// RWF_* flags of reads and of writes.
    read_flags: u32,
    rw_flags: u32,
}

impl Shape {
    /// IORING_OP_*, and IOSQE_FIXED_FILE.
    const FSYNC: u64 = 3;
    /// IORING_FSYNC_DATASYNC.
    const DATASYNC: u32 = 1;
    const SYNC_FILE_RANGE: u64 = 8;
    const READ_FIXED: u64 = 4;
    const WRITE_FIXED: u64 = 5;
    const FALLOCATE: u64 = 17;
    const READ: u64 = 22;
    const WRITE: u64 = 23;
    const URING_CMD: u64 = 46;
    const FIXED_FILE: u64 = 1 << 8;
    /// BLOCK_URING_CMD_DISCARD (linux/blkdev.h, Linux 6.12).
    const DISCARD: u64 = 0x12 << 8;

    /// IOSQE_FIXED_FILE where files are named by their registered index.
    #[inline]
    pub(super) fn file_flag(self) -> u64 {
        if self.fixed_file { Self::FIXED_FILE } else { 0 }
    }

    /// Whether writes are durable when they complete.
    #[inline]
    pub(super) fn is_durable(self) -> bool {
        self.rw_flags & libc::RWF_DSYNC as u32 != 0
    }

    /// Nothing is registered.
    #[cfg(test)]
    pub(super) fn plain(durable: bool) -> Self {
        Self {
            fixed_file: false,
            fixed_buffer: false,
            discards: false,
            read_flags: 0,
            rw_flags: if durable { libc::RWF_DSYNC as u32 } else { 0 },
        }
    }

    #[inline]
    fn entry(self, slot: u32, r: Request, file: u32, buffer: u64) -> squeue::Entry {
        let len = u64::from(r.len);
        let high = |flags: u32| u64::from(flags) << 32;
        let read = len | high(self.read_flags);
        // Operation, then the words "offset", "address" and "length and flags", then the last but one.
        let (op, words, extra) = match r.op {
            Op::Read if self.fixed_buffer => (Self::READ_FIXED, [r.offset, buffer, read], 0),
            Op::Read => (Self::READ, [r.offset, buffer, read], 0),
            Op::Write => {
                let op = if self.fixed_buffer {
                    Self::WRITE_FIXED
                } else {
                    Self::WRITE
                };
                (op, [r.offset, buffer, len | high(self.rw_flags)], 0)
            }
            Op::Trim if self.discards => (Self::URING_CMD, [Self::DISCARD, r.offset, 0], len),
            Op::Trim => (Self::FALLOCATE, [r.offset, len, PUNCH as u64], 0),
            Op::Sync => match r.flush() {
                Flush::All => (Self::FSYNC, [0, 0, 0], 0),
                Flush::Data => (Self::FSYNC, [0, 0, high(Self::DATASYNC)], 0),
                Flush::Range(flags) => (
                    Self::SYNC_FILE_RANGE,
                    [r.offset, 0, len | high(flags.into())],
                    0,
                ),
            },
        };
        // The kernel refuses a priority where it has none to give.
        let priority = match r.op {
            Op::Read | Op::Write => u64::from(r.priority) << 16,
            Op::Trim | Op::Sync => 0,
        };
        let first = op | self.file_flag() | priority | high(file);
        let all: [u64; 8] = [
            first,
            words[0],
            words[1],
            words[2],
            u64::from(slot),
            0,
            extra,
            0,
        ];
        // SAFETY: an entry is struct io_uring_sqe: 64 bytes of plain data without invalid values.
        unsafe { std::mem::transmute(all) }
    }
}

/// Tries set-up flags from the best to the plainest, so that old kernels work too.
fn build<E: Entries>(depth: u32, spec: &JobSpec) -> io::Result<(Ring<E>, &'static str)> {
    let mut last = None;
    for level in 0..4 {
        let mut b = IoUring::<E::Sq, E::Cq>::builder();
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
fn register_ring(ring: &impl AsRawFd) -> io::Result<i32> {
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

/// Version of the running kernel; (0, 0) where it cannot be told.
pub(super) fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.split(['.', '-', '\n']).map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Whether trims are discards of a block device.
fn discards(files: &[Arc<std::fs::File>], spec: &JobSpec) -> Result<bool, PortError> {
    let discards = spec.rw.modifies() && files.iter().any(|f| super::is_block_device(f));
    if discards && spec.rw.trims() && kernel() < (6, 12) {
        // fallocate on a block device writes zeros (and may unmap): not what a trim means.
        return Err(PortError {
            what: "io_uring discards need Linux 6.12; try --engine preadv".into(),
            source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        });
    }
    Ok(discards)
}

impl Uring {
    /// Makes the ring. Call it on the thread that will use it (the ring has a single issuer).
    pub fn new(
        files: Vec<Arc<std::fs::File>>,
        spec: &JobSpec,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        Self::with(Plain, files, spec, depth, buffers, clock)
    }
}

impl<E: Entries> Uring<E> {
    /// The same with other entries.
    pub(super) fn with(
        entries: E,
        files: Vec<Arc<std::fs::File>>,
        spec: &JobSpec,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let (ring, set_up) = build::<E>(depth, spec).map_err(|source| PortError {
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
        let fds: Vec<RawFd> = files.iter().map(|f| f.as_raw_fd()).collect();
        let fixed_file = !spec.plain_files && {
            let r = ring.submitter().register_files(&fds);
            note(r.is_ok(), "file", r.as_ref().err())
        };
        let (base, len) = buffers.whole();
        let iov = libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        let fixed_buffer = !spec.plain_buffers && {
            // SAFETY: the buffers live in this port and are dropped after the ring (field order).
            let r = unsafe { ring.submitter().register_buffers(&[iov]) };
            note(r.is_ok(), "buffer", r.as_ref().err())
        };
        let r = register_ring(&ring);
        note(r.is_ok(), "ring", r.as_ref().err());
        let enter_fd = match r {
            Ok(index) => (index, REGISTERED_RING),
            Err(_) => (ring.as_raw_fd(), 0),
        };
        if spec.iopoll {
            notes.push("polled completions".into());
        }
        let (read_flags, rw_flags) = super::call_flags(spec);
        let timed = ring.params().is_feature_ext_arg();
        let deferred = set_up.starts_with("defer-taskrun");
        let discards = discards(&files, spec)?;
        Ok(Self {
            ring,
            entries,
            clock,
            alarm: Alarm::new(),
            buffers,
            _files: files,
            fds,
            shape: Shape {
                fixed_file,
                fixed_buffer,
                discards,
                read_flags: read_flags as u32,
                rw_flags: rw_flags as u32,
            },
            sqpoll: spec.sqpoll,
            iopoll: spec.iopoll,
            few: spec.submit_batch > 0,
            force_async: (spec.force_async, 0),
            enter_fd,
            timed,
            deferred,
            outstanding: 0,
            flushes: 0,
            sampled: (0, 0),
            notes,
        })
    }

    /// Whether the kernel took the buffers.
    pub(super) fn has_fixed_buffer(&self) -> bool {
        self.shape.fixed_buffer
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

impl<E: Entries> Port for Uring<E> {
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

    fn drop_cache(&mut self, start: u64, len: u64, durable: bool) {
        for fd in &self.fds {
            super::forget(*fd, start, len, durable);
        }
    }

    fn reap_some(&mut self, most: usize, mut each: impl FnMut(u32, i64)) {
        let mut done = self.ring.completion();
        for c in done.by_ref().take(most) {
            self.outstanding -= 1;
            let (slot, result) = self.entries.done(&c);
            each(slot, result);
        }
    }

    fn buffer(&mut self, slot: u32, len: u32) -> Option<&mut [u8]> {
        Some(self.buffers.bytes(slot, len))
    }

    fn prepare(&mut self, slot: u32, len: u32) {
        self.buffers.prepare_write(slot, len);
    }
    #[inline]
    fn stage(&mut self, batch: impl Iterator<Item = (u32, Request)>) {
        // One view of the queue for the batch: it is published when the view is dropped.
        let mut queue = self.ring.submission();
        for (slot, r) in batch {
            let file = if self.shape.fixed_file {
                u32::from(r.file)
            } else {
                // A number beyond the list is a closed descriptor: EBADF.
                self.fds
                    .get(usize::from(r.file))
                    .map_or(u32::MAX, |fd| *fd as u32)
            };
            let buffer = self.buffers.slot(slot) as u64;
            let mut entry = self.entries.entry(self.shape, slot, r, file, buffer);
            if self.force_async.0 > 0 {
                self.force_async.1 += 1;
                if self.force_async.1 >= self.force_async.0 {
                    self.force_async.1 = 0;
                    entry = E::at_once(entry);
                }
            }
            self.outstanding += 1;
            // SAFETY: the slot's buffer is registered or owned, at least `len` long, lives as long as
            // the ring, and is not used again before this request completes.
            while unsafe { queue.push(&entry) }.is_err() {
                drop(queue);
                self.make_room();
                queue = self.ring.submission();
            }
        }
    }

    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        let done = self.ring.completion();
        self.outstanding -= done.len() as u32;
        for c in done {
            let (slot, result) = self.entries.done(&c);
            each(slot, result);
        }
    }
}

impl<E: Entries> Blocking for Uring<E> {
    #[inline]
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError> {
        let failed = |source| PortError {
            what: "io_uring_enter failed".into(),
            source,
        };
        if until == Nanos::MAX {
            if self.few {
                // Nothing is staged: what is there already needs no call.
                let there = self.ring.completion().len() >= min as usize;
                return if there && self.ring.submission().is_empty() {
                    Ok(())
                } else {
                    self.enter(min, None).map_err(failed)
                };
            }
            if self.flushes == 0 {
                self.flushes = INLINE_SAMPLED;
                if self.deferred && !self.sqpoll && !self.iopoll {
                    self.sample_inline().map_err(failed)?;
                }
            }
            self.flushes -= 1;
            return self.enter(min, None).map_err(failed);
        }
        // Hand over, and take what is done: at a high rate `until` is always past, and completions
        // would wait in the kernel until no slot is free.
        if min > 0 || !self.ring.submission().is_empty() {
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
                self.alarm.wait_until(&self.clock, until);
                return Ok(());
            }
            // A polled ring ignores the time limit of a wait.
            if !self.iopoll
                && let Some(nap) = self.alarm.nap(left)
            {
                // The kernel's timer is late by its slack: stop early and spin the rest.
                let began = self.clock.now();
                self.enter(min, Some(nap)).map_err(failed)?;
                self.alarm.woke(self.clock.now().since(began).0, nap);
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

impl<E: Entries> Drop for Uring<E> {
    fn drop(&mut self) {
        if self.outstanding > 0 {
            // The ring has failed and the kernel may still write: better lose the memory than share it.
            self.buffers.leak();
            self.entries.leak();
        }
    }
}

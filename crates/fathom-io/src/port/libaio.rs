//! libaio: io_submit and io_getevents, the interface that many databases still use.
//!
//! The system calls themselves; the library of that name is not needed.

use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};

use super::{Alarm, Blocking, Port, PortError, Request, Served};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::JobSpec;

/// `struct iocb` of linux/aio_abi.h, little-endian.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
/// IOCB_FLAG_IOPRIO: the request's own priority counts.
const FLAG_PRIORITY: u32 = 1 << 1;

/// Linux' native asynchronous I/O (io_submit, io_getevents).
pub struct Libaio {
    context: libc::c_ulong,
    files: Vec<Served>,
    clock: Clock,
    alarm: Alarm,
    buffers: Buffers,
    iocbs: Box<[Iocb]>,
    staged: Vec<*mut Iocb>,
    /// Syncs and discards: done at the next flush.
    later: Vec<(u32, Request)>,
    events: Box<[Event]>,
    done: Vec<(u32, i64)>,
    /// Handed over and not completed.
    flying: u32,
    /// RWF_* flags of reads and of writes.
    flags: (i32, i32),
}

impl Libaio {
    /// With room for `depth` requests.
    pub fn new(
        files: Vec<Arc<std::fs::File>>,
        spec: &JobSpec,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: `context` is valid and zero, as io_setup wants it.
        let r = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        if r < 0 {
            return Err(PortError::last(format!(
                "io_setup for {depth} requests failed (see fs.aio-max-nr)"
            )));
        }
        Ok(Self {
            context,
            files: Served::all(files),
            clock,
            alarm: Alarm::new(),
            buffers,
            iocbs: vec![Iocb::default(); depth as usize].into_boxed_slice(),
            staged: Vec::with_capacity(depth as usize),
            later: Vec::with_capacity(depth as usize),
            events: vec![Event::default(); depth as usize].into_boxed_slice(),
            done: Vec::with_capacity(depth as usize),
            flying: 0,
            flags: super::call_flags(spec),
        })
    }

    /// Operations that io_submit has not, or only on some file systems: done at once.
    fn at_once(&self, r: Request) -> i64 {
        let Some(file) = self.files.get(usize::from(r.file)) else {
            return -i64::from(libc::EBADF);
        };
        let n = match r.op {
            Op::Trim => file.trim(r.offset, r.len),
            _ => file.sync(&r),
        };
        if n < 0 { -errno() } else { 0 }
    }

    /// Hands everything over that is staged.
    fn submit(&mut self) -> Result<(), PortError> {
        let mut at = 0;
        while at < self.staged.len() {
            let rest = &mut self.staged[at..];
            // SAFETY: every pointer names an iocb of this port, whose slot's buffer stays in place
            // until its event has been taken.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_io_submit,
                    self.context,
                    rest.len(),
                    rest.as_mut_ptr(),
                )
            };
            if n > 0 {
                at += n as usize;
                self.flying += n as u32;
                continue;
            }
            match errno() as i32 {
                libc::EINTR => {}
                // The queue is full: take what is there, then go on.
                libc::EAGAIN if self.flying > 0 => self.events(1, None)?,
                // This request is refused: that is its result.
                e => {
                    // SAFETY: as above.
                    let slot = unsafe { (**rest.first().unwrap_or(&std::ptr::null_mut())).data };
                    self.done.push((slot as u32, -i64::from(e)));
                    at += 1;
                }
            }
        }
        self.staged.clear();
        Ok(())
    }

    /// Takes events, at least `min` unless time or a signal ends the wait.
    fn events(&mut self, min: u32, timeout: Option<Nanos>) -> Result<(), PortError> {
        let time = timeout.map(|t| libc::timespec {
            // The field's type is about to change its name on musl.
            tv_sec: (t.0 / 1_000_000_000) as _,
            tv_nsec: (t.0 % 1_000_000_000) as libc::c_long,
        });
        // SAFETY: `events` has room for every request of this port; `time` outlives the call.
        let n = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                libc::c_long::from(min),
                self.events.len() as libc::c_long,
                self.events.as_mut_ptr(),
                time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            )
        };
        if n < 0 {
            return match errno() as i32 {
                libc::EINTR => Ok(()),
                _ => Err(PortError::last("io_getevents failed")),
            };
        }
        for e in &self.events[..n as usize] {
            self.done.push((e.data as u32, e.result));
        }
        self.flying -= (n as u32).min(self.flying);
        Ok(())
    }
}

fn errno() -> i64 {
    i64::from(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

impl Drop for Libaio {
    fn drop(&mut self) {
        // SAFETY: the context is ours; io_destroy waits for what is in flight, and the buffers are
        // dropped after it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl Port for Libaio {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
    }
    fn drop_cache(&mut self, start: u64, len: u64, durable: bool) {
        for file in &self.files {
            super::forget(file.fd(), start, len, durable);
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
        for (slot, r) in batch {
            let opcode = match r.op {
                Op::Read => READ,
                Op::Write => WRITE,
                Op::Trim | Op::Sync => {
                    self.later.push((slot, r));
                    continue;
                }
            };
            let fd = self.files.get(usize::from(r.file)).map_or(-1, Served::fd);
            let Some(iocb) = self.iocbs.get_mut(slot as usize) else {
                continue;
            };
            *iocb = Iocb {
                data: u64::from(slot),
                rw_flags: if r.op == Op::Write {
                    self.flags.1
                } else {
                    self.flags.0
                },
                opcode,
                priority: r.priority as i16,
                flags: if r.priority > 0 { FLAG_PRIORITY } else { 0 },
                fd: fd as u32,
                buffer: self.buffers.slot(slot) as u64,
                bytes: u64::from(r.len),
                offset: r.offset as i64,
                ..Iocb::default()
            };
            self.staged.push(iocb);
        }
    }
    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        for (slot, result) in self.done.drain(..) {
            each(slot, result);
        }
    }
    fn reap_some(&mut self, most: usize, mut each: impl FnMut(u32, i64)) {
        let most = most.min(self.done.len());
        for (slot, result) in self.done.drain(..most) {
            each(slot, result);
        }
    }
}

impl Blocking for Libaio {
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError> {
        if !self.staged.is_empty() {
            self.submit()?;
        }
        while let Some((slot, request)) = self.later.pop() {
            let result = self.at_once(request);
            self.done.push((slot, result));
        }
        loop {
            let have = self.done.len() as u32;
            let want = min.saturating_sub(have).min(self.flying);
            if min > 0 && want == 0 {
                // What else is there comes along.
                return if self.flying > 0 {
                    self.events(0, Some(Nanos::ZERO))
                } else {
                    Ok(())
                };
            }
            if until == Nanos::MAX && min > 0 {
                return self.events(want, None);
            }
            let left = until.since(self.clock.now()).0;
            if left == 0 {
                return Ok(());
            }
            if min == 0 {
                self.alarm.wait_until(&self.clock, until);
                return Ok(());
            }
            if let Some(nap) = self.alarm.nap(left) {
                let began = self.clock.now();
                self.events(want, Some(nap))?;
                self.alarm.woke(self.clock.now().since(began).0, nap);
                if left > 10_000_000 {
                    return Ok(());
                }
            } else {
                self.events(0, Some(Nanos::ZERO))?;
            }
        }
    }
}

// SAFETY: the context and the iocbs belong to this value; the kernel ties them to the process, not to a thread.
unsafe impl Send for Libaio {}

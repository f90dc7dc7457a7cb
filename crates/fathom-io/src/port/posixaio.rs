//! POSIX AIO: aio_read and aio_write of the C library, whose threads serve each file's requests in their
//! order. Databases that ask for asynchronous I/O in the portable way get this; to the device the depth is
//! one per file.

use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};

use super::{Alarm, Blocking, Port, PortError, Request, Served};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{Flush, JobSpec};

/// POSIX AIO: the C library's threads.
pub struct PosixAio {
    files: Vec<Served>,
    clock: Clock,
    alarm: Alarm,
    buffers: Buffers,
    /// One per slot; they never move while a request is under way.
    blocks: Box<[libc::aiocb]>,
    staged: Vec<(u32, Request)>,
    /// Slots handed over and not completed, in their order.
    flying: Vec<u32>,
    /// Addresses of their control blocks, for the wait.
    waited: Vec<*const libc::aiocb>,
    done: Vec<(u32, i64)>,
}

impl PosixAio {
    /// With room for `depth` requests.
    pub fn new(
        files: Vec<Arc<std::fs::File>>,
        spec: &JobSpec,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        // SAFETY: aiocb is plain data, for which all zeros are a valid value.
        let empty: libc::aiocb = unsafe { std::mem::zeroed() };
        Ok(Self {
            files: Served::all(super::own_files(files, spec, false, true)?),
            clock,
            alarm: Alarm::new(),
            buffers,
            blocks: vec![empty; depth as usize].into_boxed_slice(),
            staged: Vec::with_capacity(depth as usize),
            flying: Vec::with_capacity(depth as usize),
            waited: Vec::with_capacity(depth as usize),
            done: Vec::with_capacity(depth as usize),
        })
    }

    /// Hands one request over: 0, or a negative errno.
    fn start(&mut self, slot: u32, r: Request) -> i32 {
        let Some(file) = self.files.get(usize::from(r.file)) else {
            return -libc::EBADF;
        };
        let block = &mut self.blocks[slot as usize];
        block.aio_fildes = file.fd();
        block.aio_buf = self.buffers.slot(slot).cast();
        block.aio_nbytes = r.len as usize;
        block.aio_offset = r.offset as libc::off_t;
        block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        // SAFETY: the control block and the slot's buffer stay in place until aio_return has been called
        // for it, or until Drop has waited for it.
        let n = unsafe {
            match r.op {
                Op::Read => libc::aio_read(block),
                Op::Write => libc::aio_write(block),
                _ => match r.flush() {
                    Flush::All => libc::aio_fsync(libc::O_SYNC, block),
                    Flush::Data => libc::aio_fsync(libc::O_DSYNC, block),
                    // The library has no request for it; it is done here, as in fio.
                    Flush::Range(_) => file.sync(&r),
                },
            }
        };
        if n < 0 { -errno() } else { 0 }
    }

    fn submit(&mut self) {
        for i in 0..self.staged.len() {
            let (slot, r) = self.staged[i];
            if r.op == Op::Trim {
                // There is no aio_discard.
                let n = self
                    .files
                    .get(usize::from(r.file))
                    .map_or(-1, |f| f.trim(r.offset, r.len));
                self.done
                    .push((slot, if n < 0 { i64::from(-errno()) } else { 0 }));
                continue;
            }
            loop {
                match self.start(slot, r) {
                    0 => self.flying.push(slot),
                    e if e == -libc::EAGAIN && !self.flying.is_empty() => {
                        self.rest(None);
                        self.collect();
                        continue;
                    }
                    e => self.done.push((slot, i64::from(e))),
                }
                break;
            }
        }
        self.staged.clear();
    }

    /// Takes what has completed.
    fn collect(&mut self) {
        let (blocks, done) = (&mut self.blocks, &mut self.done);
        self.flying.retain(|slot| {
            let block = &mut blocks[*slot as usize];
            // SAFETY: the block belongs to a request that was handed over and not returned yet.
            match unsafe { libc::aio_error(block) } {
                libc::EINPROGRESS => true,
                0 => {
                    // SAFETY: as above; it is returned once.
                    done.push((*slot, unsafe { libc::aio_return(block) } as i64));
                    false
                }
                e => {
                    // SAFETY: as above.
                    unsafe { libc::aio_return(block) };
                    done.push((*slot, -i64::from(e)));
                    false
                }
            }
        });
    }

    /// Sleeps until one completes, for at most `time`; a signal ends it too.
    fn rest(&mut self, time: Option<Nanos>) {
        let time = time.map(|t| libc::timespec {
            // The field's type is about to change its name on musl.
            tv_sec: (t.0 / 1_000_000_000) as _,
            tv_nsec: (t.0 % 1_000_000_000) as libc::c_long,
        });
        self.waited.clear();
        self.waited.extend(
            self.flying
                .iter()
                .map(|s| std::ptr::from_ref(&self.blocks[*s as usize])),
        );
        // SAFETY: the pointers name live control blocks; `time` outlives the call.
        unsafe {
            libc::aio_suspend(
                self.waited.as_ptr(),
                self.waited.len() as libc::c_int,
                time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            )
        };
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

impl Drop for PosixAio {
    fn drop(&mut self) {
        while !self.flying.is_empty() {
            self.rest(None);
            self.collect();
        }
    }
}

impl Port for PosixAio {
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
    fn stage(&mut self, batch: impl Iterator<Item = (u32, Request)>) {
        self.staged.extend(batch);
    }
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

impl Blocking for PosixAio {
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError> {
        self.submit();
        if min == 0 && until == Nanos::ZERO {
            return Ok(());
        }
        loop {
            self.collect();
            let want = min.min((self.done.len() + self.flying.len()) as u32);
            if min > 0 && self.done.len() as u32 >= want {
                return Ok(());
            }
            if until == Nanos::MAX && min > 0 {
                self.rest(None);
                // A signal may have ended the rest: the caller looks at the clock and comes back.
                self.collect();
                return Ok(());
            }
            let left = until.since(self.clock.now()).0;
            if left == 0 {
                return Ok(());
            }
            if min == 0 {
                self.alarm.wait_until(&self.clock, until);
                self.collect();
                return Ok(());
            }
            if let Some(nap) = self.alarm.nap(left) {
                let began = self.clock.now();
                self.rest(Some(nap));
                self.alarm.woke(self.clock.now().since(began).0, nap);
                if left > 10_000_000 {
                    self.collect();
                    return Ok(());
                }
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

// SAFETY: the control blocks and the pointers to them belong to this value; the C library ties requests to the
// process, not to a thread.
unsafe impl Send for PosixAio {}

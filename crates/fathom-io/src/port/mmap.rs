//! A mapped file: reads and writes are copies from and to its pages.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use fathom_telemetry::{Nanos, Op};

use super::{Alarm, Blocking, Port, PortError, Request, Served};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{Advice, JobSpec, SyncPolicy};

/// One mapped file.
struct Map {
    base: *mut u8,
    len: usize,
    file: Served,
}

/// See the module.
pub struct Mmap {
    maps: Vec<Map>,
    clock: Clock,
    alarm: Alarm,
    buffers: Buffers,
    datasync: bool,
    /// Every write is made durable at once.
    each: bool,
    staged: Option<(u32, Request)>,
    done: Option<(u32, i64)>,
}

impl Mmap {
    /// Maps the files as long as they are now.
    pub fn new(
        files: &[Arc<std::fs::File>],
        spec: &JobSpec,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let mut maps = Vec::new();
        let prot = if spec.rw.modifies() {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        for file in files {
            // SAFETY: the descriptor is open; every I/O names its own offset, so the position is free to use.
            let len = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
            let len = usize::try_from(len)
                .map_err(|_| PortError::last("the file to be mapped has no length"))?;
            // SAFETY: the descriptor is open; the mapping is released in Drop.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len.max(1),
                    prot,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(PortError::last("the file could not be mapped"));
            }
            let advice = match spec.advise {
                Some(Advice::Random) => libc::MADV_RANDOM,
                Some(Advice::Sequential) => libc::MADV_SEQUENTIAL,
                Some(Advice::NoReuse) | None => libc::MADV_NORMAL,
            };
            // SAFETY: the mapping is ours; the advice changes no content.
            unsafe { libc::madvise(base, len.max(1), advice) };
            maps.push(Map {
                base: base.cast(),
                len,
                file: Served::new(file.clone()),
            });
        }
        Ok(Self {
            maps,
            clock,
            alarm: Alarm::new(),
            buffers,
            datasync: matches!(spec.sync, SyncPolicy::Fdatasync(_)),
            each: matches!(spec.sync, SyncPolicy::Fua | SyncPolicy::Sync),
            staged: None,
            done: None,
        })
    }

    fn call(&mut self, slot: u32, r: Request) -> i64 {
        let Some(map) = self.maps.get(usize::from(r.file)) else {
            return -i64::from(libc::EBADF);
        };
        let (at, len) = (r.offset as usize, r.len as usize);
        if r.op != Op::Sync && at.saturating_add(len) > map.len {
            return -i64::from(libc::EINVAL);
        }
        let data = self.buffers.slot(slot);
        // SAFETY: the range lies inside the mapping (checked above) and inside the slot's buffer; the
        // two do not overlap. Another process that shortens the file ends this one with SIGBUS: files
        // of a run are fathom's own or were asked for.
        let failed = unsafe {
            match r.op {
                Op::Read => {
                    std::ptr::copy_nonoverlapping(map.base.add(at), data, len);
                    0
                }
                Op::Write => {
                    std::ptr::copy_nonoverlapping(data, map.base.add(at), len);
                    if self.each { map.file.sync(true) } else { 0 }
                }
                Op::Trim => map.file.trim(r.offset, r.len),
                Op::Sync => map.file.sync(self.datasync),
            }
        };
        if failed < 0 {
            return -i64::from(
                std::io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(libc::EIO),
            );
        }
        i64::from(r.len)
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        for m in &self.maps {
            // SAFETY: mapped in `new` with this length, released once.
            unsafe { libc::munmap(m.base.cast(), m.len.max(1)) };
        }
    }
}

// SAFETY: the mappings belong to this value alone and have no thread affinity.
unsafe impl Send for Mmap {}

impl Port for Mmap {
    #[inline]
    fn now(&mut self) -> Nanos {
        self.clock.now()
    }
    fn tick(&mut self) {
        self.clock.discipline();
    }
    fn drop_cache(&mut self, start: u64, len: u64, durable: bool) {
        for map in &self.maps {
            // Pages that are mapped stay in the cache: the mapping lets go of them first.
            // SAFETY: the mapping is ours and shared, so that nothing in it is lost.
            unsafe { libc::madvise(map.base.cast(), map.len.max(1), libc::MADV_DONTNEED) };
            super::forget(map.file.fd(), start, len, durable);
        }
    }
    fn buffer(&mut self, slot: u32, len: u32) -> Option<&mut [u8]> {
        Some(self.buffers.bytes(slot, len))
    }
    fn prepare(&mut self, slot: u32, len: u32) {
        self.buffers.prepare_write(slot, len);
    }
    #[inline]
    fn stage(&mut self, mut batch: impl Iterator<Item = (u32, Request)>) {
        self.staged = batch.next();
    }
    #[inline]
    fn reap(&mut self, mut each: impl FnMut(u32, i64)) {
        if let Some((slot, result)) = self.done.take() {
            each(slot, result);
        }
    }
}

impl Blocking for Mmap {
    fn flush(&mut self, _min: u32, until: Nanos) -> Result<(), PortError> {
        match self.staged.take() {
            Some((slot, request)) => self.done = Some((slot, self.call(slot, request))),
            None => self.alarm.wait_until(&self.clock, until),
        }
        Ok(())
    }
}

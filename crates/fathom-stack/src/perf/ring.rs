//! The system calls of perf_event_open and the buffer that it shares with the kernel
//! (`include/uapi/linux/perf_event.h`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// `struct perf_event_attr`, as far as version 4 (Linux 4.1).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch: u64,
    regs_user: u64,
    stack_user: u32,
    clock: i32,
    regs_intr: u64,
}

const TRACEPOINT: u32 = 2;
/// Thread, time, processor, raw data.
const SAMPLE: u64 = 2 | 4 | 128 | 1024;
const DISABLED: u64 = 1;
const USE_CLOCK: u64 = 1 << 25;
const CLOEXEC: u64 = 8;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const SET_OUTPUT: u64 = 0x2405;
const SET_FILTER: u64 = 0x4008_2406;
/// Offsets in the first page: where the kernel writes next, and how far was read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// Opens a trace event, switched off, on one processor for every thread, with CLOCK_MONOTONIC.
pub(super) fn open(id: u16, cpu: u32) -> io::Result<OwnedFd> {
    let attr = Attr {
        kind: TRACEPOINT,
        size: size_of::<Attr>() as u32,
        config: u64::from(id),
        sample_period: 1,
        sample_type: SAMPLE,
        flags: DISABLED | USE_CLOCK,
        clock: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    };
    // SAFETY: the kernel reads `size` bytes of a structure that is as large, and lives through the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1,
            cpu,
            -1,
            CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn control(fd: &OwnedFd, request: u64, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the requests of this file take a number, or a string that lives through the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Lets its events in, or no more.
pub(super) fn enable(fd: &OwnedFd, on: bool) -> io::Result<()> {
    control(fd, if on { ENABLE } else { DISABLE }, 0)
}

/// Drops what does not fit in the kernel.
pub(super) fn set_filter(fd: &OwnedFd, filter: &str) -> io::Result<()> {
    let text = CString::new(filter)?;
    control(fd, SET_FILTER, text.as_ptr() as libc::c_ulong)
}

/// A processor's buffer.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    /// Of the whole mapping: one page, then the data.
    len: usize,
    page: usize,
    fd: i32,
}

// SAFETY: the mapping belongs to this value alone and may be read by whichever thread has it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the buffer of an event; `room` is a power of two, at least a page.
    pub(super) fn map(fd: &OwnedFd, room: u64) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = page + room as usize;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            base,
            len,
            page,
            fd: fd.as_raw_fd(),
        })
    }

    /// Another event of the same processor writes here too.
    pub(super) fn take_from(&self, other: &OwnedFd) -> io::Result<()> {
        control(other, SET_OUTPUT, self.fd as libc::c_ulong)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the first page, aligned to 8, and the kernel accesses it atomically too.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// Appends whole records that are there and gives their room back.
    pub(super) fn read(&mut self, out: &mut Vec<u8>) {
        let head = self.word(HEAD).load(Ordering::Acquire);
        let tail = self.word(TAIL).load(Ordering::Relaxed);
        let size = (self.len - self.page) as u64;
        let mut at = tail;
        while at < head {
            let start = at & (size - 1);
            let n = (head - at).min(size - start);
            // SAFETY: [start, start + n) lies in the data, and the kernel does not write between tail
            // and head until the tail moves.
            let part = unsafe {
                std::slice::from_raw_parts(
                    self.base.add(self.page + start as usize).as_ptr(),
                    n as usize,
                )
            };
            out.extend_from_slice(part);
            at += n;
        }
        self.word(TAIL).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, of the same length; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

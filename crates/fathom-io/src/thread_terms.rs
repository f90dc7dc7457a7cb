//! Terms of an I/O thread that the kernel keeps per thread: I/O priority, niceness, where its memory comes from.
//! Each call holds for the calling thread alone.

use std::io;

/// Processors that the machine is made for, at work or not: their numbers are less than this.
pub fn processors() -> u32 {
    // SAFETY: asks for a number.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(n).unwrap_or(1).max(1)
}

/// I/O priority in the kernel's form: class (1 real time, 2 best effort, 3 idle), level (0 highest … 7), hint.
pub fn priority_of(class: u16, level: u16, hint: u16) -> u16 {
    (class & 7) << 13 | (hint & 0x3ff) << 3 | level & 7
}

/// Sets this thread's I/O priority ([`priority_of`]).
///
/// # Errors
/// The system's: real time needs CAP_SYS_NICE.
pub fn set_io_priority(priority: u16) -> io::Result<()> {
    /// IOPRIO_WHO_PROCESS: with 0, the calling thread.
    const WHO_THREAD: libc::c_int = 1;
    // SAFETY: a system call without pointers.
    let r = unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_THREAD,
            0,
            libc::c_int::from(priority),
        )
    };
    checked(r)
}

/// Adds to this thread's niceness.
///
/// # Errors
/// The system's: below the present value it needs CAP_SYS_NICE.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: a system call without pointers; 0 is the calling thread (Linux keeps niceness per thread).
    let r = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    checked(r.into())
}

/// Where this thread's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The kernel's default.
    Default,
    /// This node first.
    Prefer,
    /// These nodes only.
    Bind,
    /// These nodes in turn.
    Interleave,
    /// The node of the processor that asks.
    Local,
}

/// Sets this thread's memory policy for `nodes` (each below 64).
///
/// # Errors
/// The system's, such as a node that is not there.
pub fn set_memory_policy(policy: MemoryPolicy, nodes: &[u32]) -> io::Result<()> {
    let mode: libc::c_long = match policy {
        MemoryPolicy::Default => 0,
        MemoryPolicy::Prefer => 1,
        MemoryPolicy::Bind => 2,
        MemoryPolicy::Interleave => 3,
        MemoryPolicy::Local => 4,
    };
    let mask: libc::c_ulong = nodes.iter().filter(|n| **n < 64).fold(0, |m, n| m | 1 << n);
    let plain = mask == 0 || matches!(policy, MemoryPolicy::Default | MemoryPolicy::Local);
    // SAFETY: the mask outlives the call, which reads 64 bits of it, or none where it is null.
    let r = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            mode,
            if plain {
                std::ptr::null()
            } else {
                &raw const mask
            },
            if plain { 0 } else { 65 as libc::c_ulong },
        )
    };
    checked(r)
}

fn checked(r: libc::c_long) -> io::Result<()> {
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Tells the kernel how long a file's data lives: 1 for nothing known, 2 (short) to 5 (extreme).
pub fn set_write_hint(file: &std::fs::File, hint: u64) -> std::io::Result<()> {
    use std::os::fd::AsRawFd as _;
    /// F_SET_RW_HINT (linux/fcntl.h).
    const SET_HINT: libc::c_int = 1024 + 12;
    // SAFETY: the descriptor is open; the kernel reads one number.
    let r = unsafe { libc::fcntl(file.as_raw_fd(), SET_HINT, &raw const hint) };
    if r < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Memory that stays where it is and is of no use: what a machine with less of it is like.
pub struct Pinned {
    base: *mut libc::c_void,
    len: usize,
}

impl Pinned {
    /// Takes so many bytes, at most what the machine has less 128 MiB, and keeps them until it is dropped.
    ///
    /// # Errors
    /// The system's: more than may be locked (`ulimit -l`), or than there is.
    pub fn new(bytes: u64) -> io::Result<Self> {
        // SAFETY: calls without pointers.
        let (pages, size) = unsafe {
            (
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
            )
        };
        let all = u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0);
        let len = bytes.min(all.saturating_sub(128 << 20)) as usize;
        // SAFETY: a new private mapping, of which nobody else knows; unmapped in `drop` alone.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), len, both, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let pinned = Self { base, len };
            if libc::mlock(base, len) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(pinned)
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody uses.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// Keeps this thread on one of `cpus`, by its number; anywhere where there are none.
pub(crate) fn pin(cpus: &[u32], thread: u32) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let cpu = cpus[thread as usize % cpus.len()];
    // SAFETY: an all-zero cpu_set_t is valid; CPU_SET stays in bounds for cpu < CPU_SETSIZE.
    let r = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < libc::CPU_SETSIZE as u32 {
            libc::CPU_SET(cpu as usize, &mut set);
        }
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set)
    };
    if r != 0 {
        return Err(format!(
            "processor {cpu} cannot be used: {}; see which are online with lscpu",
            std::io::Error::last_os_error()
        ));
    }
    Ok(())
}

/// Lets this thread's sleeps end on time: the kernel may add 50 µs to them otherwise, to wake up less often.
pub(crate) fn exact_timer() {
    // SAFETY: a system call without pointers; it fails without harm where it is not known.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_packed_as_the_kernel_has_them() {
        assert_eq!(priority_of(1, 0, 0), 0x2000);
        assert_eq!(priority_of(3, 2, 0), 0x6002);
        assert_eq!(priority_of(2, 7, 1), 0x400f);
    }

    #[test]
    fn a_thread_may_lower_its_own_terms() {
        std::thread::spawn(|| {
            set_io_priority(priority_of(3, 0, 0)).unwrap();
            set_nice(5).unwrap();
        })
        .join()
        .unwrap();
    }
}

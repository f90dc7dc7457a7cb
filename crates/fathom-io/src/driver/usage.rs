//! What a thread used.

use fathom_telemetry::Nanos;

/// What the kernel counted for one thread over its load, ramp-up included. Kernel threads that work
/// for a ring are not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time in user mode.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Context switches, voluntary or not.
    pub switches: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
}

impl ThreadUsage {
    /// What was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            switches: self.switches.saturating_sub(earlier.switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
        }
    }
}

/// What the kernel has counted for the calling thread.
pub(crate) fn thread_usage() -> ThreadUsage {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it.
    let u = unsafe {
        let mut u: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut u);
        u
    };
    let ns = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000);
    ThreadUsage {
        user: ns(u.ru_utime),
        system: ns(u.ru_stime),
        switches: (u.ru_nvcsw + u.ru_nivcsw) as u64,
        major_faults: u.ru_majflt as u64,
        minor_faults: u.ru_minflt as u64,
    }
}

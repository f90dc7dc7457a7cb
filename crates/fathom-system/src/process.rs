//! Whether a process is there, seen from the whole machine.

use std::fs;
use std::io;

/// Inode of the initial namespace of process numbers (`PROC_PID_INIT_INO`, linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Whether there is no process of this number, on the whole machine: any that lives keeps what has its name, since in a
/// guest fathom is `init`, and tests have names of their own.
pub fn is_dead(pid: i32) -> bool {
    // SAFETY: signal 0 asks only.
    let there = unsafe { libc::kill(pid, 0) } == 0;
    pid > 0 && !there && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether numbers of processes mean the same here as for the whole machine: in a container, another container's seem dead.
pub fn sees_all_processes() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns.as_os_str() == FIRST_NAMESPACE)
}

/// What `/proc/PID/io` says of it, such as `read_bytes`: since it began.
pub fn io(pid: u32, what: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let mut said = text.lines().filter_map(|l| l.split_once(": "));
    said.find(|(name, _)| *name == what)?.1.parse().ok()
}

/// Whether a process is known to be gone.
pub fn is_gone(pid: u32) -> bool {
    sees_all_processes() && i32::try_from(pid).is_ok_and(is_dead)
}

/// Nothing goes on for longer than this, seconds, after it was told to end: a thread that never answers holds nobody.
pub const END_LIMIT: u32 = 120;

/// Has the kernel send SIGALRM to this process after so many seconds. Signal handlers may call it.
pub fn alarm(seconds: u32) {
    // SAFETY: winds a clock; no memory is involved.
    unsafe { libc::alarm(seconds) };
}

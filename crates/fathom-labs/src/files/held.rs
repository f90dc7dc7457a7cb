//! Locks: asked for without waiting, and held by a process that can be killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use fathom_io::files::LockKind;
use rustix::fs::FlockOperation;

/// Asks for an exclusive lock on the whole file; whether it was given.
///
/// # Errors
/// Where the file system has no such locks.
pub(super) fn lock(file: &File, kind: LockKind) -> io::Result<bool> {
    let given = match kind {
        LockKind::Flock => rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from),
        LockKind::Posix => range(file, libc::F_SETLK),
        LockKind::Ofd => range(file, libc::F_OFD_SETLK),
    };
    match given {
        Ok(()) => Ok(true),
        // Both are allowed for a lock of somebody else's.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

fn range(file: &File, command: i32) -> io::Result<()> {
    // SAFETY: a plain structure of numbers, for which zeros are valid.
    let mut all: libc::flock = unsafe { std::mem::zeroed() };
    all.l_type = libc::F_WRLCK as i16;
    all.l_whence = libc::SEEK_SET as i16;
    // SAFETY: the descriptor is open, and the structure lives until the call returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &all) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A process that holds a lock. Dropping it kills the process.
pub(super) struct Holder(libc::pid_t);

impl Holder {
    /// Starts one; whether it was given the lock.
    ///
    /// # Errors
    /// As [`lock`]; where there can be no process.
    pub(super) fn start(file: File, kind: LockKind) -> io::Result<(Self, bool)> {
        let (mut said, mut says) = io::pipe()?;
        // SAFETY: the child only makes system calls, on values that it has; it allocates nothing and returns nowhere.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            // SAFETY: a system call without pointers. The child goes with the thread that made it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let word = match lock(&file, kind) {
                Ok(given) => i32::from(given),
                Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
            };
            // Who does not hear it has gone.
            let _ = says.write_all(&word.to_ne_bytes());
            loop {
                // SAFETY: a system call without arguments.
                unsafe { libc::pause() };
            }
        }
        let holder = Self(pid);
        // The child has the only ones left: what ends with it is its own.
        drop((file, says));
        let mut word = [0; 4];
        said.read_exact(&mut word)?;
        match i32::from_ne_bytes(word) {
            e if e < 0 => Err(io::Error::from_raw_os_error(-e)),
            given => Ok((holder, given == 1)),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: system calls; the process is a child that was not waited for, so its number is its own still.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

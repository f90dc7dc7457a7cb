//! Undoes what a lab made in the kernel, even where fathom is killed: a small process that waits for the end of a pipe.
//!
//! Files find themselves again (`fathom clean`), loop devices go with their last user; mounts and arrays do neither.

use std::ffi::CString;
use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is to be undone, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Unmounts a directory and removes it.
    Mount(CString),
    /// Stops the md array of a device node.
    Array(CString),
    /// Removes a device of the device mapper, by its name.
    Mapping(CString),
    /// Stops swapping to a file, and removes it.
    Swap(CString),
    /// Removes a control group, once it is empty.
    Group(CString),
    /// Removes a file.
    #[cfg(test)]
    File(CString),
}

impl Undo {
    fn path(path: &Path) -> CString {
        // A path that the kernel gave has no zero byte; one that had would name nothing.
        CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
    }
    /// See [`Undo::Mount`].
    pub(crate) fn mount(path: &Path) -> Self {
        Self::Mount(Self::path(path))
    }
    /// See [`Undo::Array`].
    pub(crate) fn array(path: &Path) -> Self {
        Self::Array(Self::path(path))
    }
    /// See [`Undo::Mapping`].
    pub(crate) fn mapping(name: &str) -> Self {
        Self::Mapping(Self::path(Path::new(name)))
    }
    /// See [`Undo::Swap`].
    pub(crate) fn swap(path: &std::ffi::CStr) -> Self {
        Self::Swap(path.to_owned())
    }
    /// See [`Undo::Group`].
    pub(crate) fn group(path: &Path) -> Self {
        Self::Group(Self::path(path))
    }
    /// See [`Undo::File`].
    #[cfg(test)]
    pub(crate) fn file(path: &Path) -> Self {
        Self::File(Self::path(path))
    }

    fn now(&self) {
        const STOP_ARRAY: libc::c_ulong = 0x932;
        // SAFETY: system calls with terminated strings that live as long as `self`; what fails was gone already.
        unsafe {
            match self {
                Self::Mount(path) => {
                    libc::umount2(path.as_ptr(), libc::MNT_DETACH);
                    libc::rmdir(path.as_ptr());
                }
                Self::Array(path) => {
                    let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                    if fd >= 0 {
                        libc::ioctl(fd, STOP_ARRAY as _, 0);
                        libc::close(fd);
                    }
                }
                Self::Mapping(name) => crate::mapper::remove_after_fork(name),
                Self::Swap(path) => {
                    libc::swapoff(path.as_ptr());
                    libc::unlink(path.as_ptr());
                }
                Self::Group(path) => {
                    libc::rmdir(path.as_ptr());
                }
                #[cfg(test)]
                Self::File(path) => {
                    libc::unlink(path.as_ptr());
                }
            }
        }
    }
}

/// The process. Dropping it tells it that everything was undone properly.
#[derive(Debug)]
pub(crate) struct Keeper {
    pipe: PipeWriter,
    pid: libc::pid_t,
}

impl Keeper {
    /// Watches over this process: where it ends without a word, `undo` is done.
    ///
    /// # Errors
    /// Where no process can be made.
    pub(crate) fn watch(undo: &[Undo]) -> std::io::Result<Self> {
        let (reader, pipe) = std::io::pipe()?;
        // SAFETY: the child only makes system calls: no allocation, no lock, no destructor; it never returns.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(std::io::Error::last_os_error()),
            0 => wait(reader.as_raw_fd(), undo),
            pid => Ok(Self { pipe, pid }),
        }
    }
}

fn wait(pipe: i32, undo: &[Undo]) -> ! {
    const KEPT: i32 = 3;
    // SAFETY: system calls on this process' own descriptors and signals. Other descriptors are closed, so that this
    // process keeps nobody's file, device or pipe open.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"fathom-keeper".as_ptr());
        if pipe != KEPT {
            libc::dup2(pipe, KEPT);
        }
        libc::syscall(libc::SYS_close_range, KEPT + 1, u32::MAX, 0);
        for fd in 0..KEPT {
            libc::close(fd);
        }
        let mut word = 0u8;
        loop {
            match libc::read(KEPT, (&raw mut word).cast(), 1) {
                1 => libc::_exit(0),
                0 => break,
                _ if *libc::__errno_location() == libc::EINTR => {}
                _ => break,
            }
        }
    }
    // Writes that are under way when a process is killed hold the array or mount for a moment.
    for _ in 0..50 {
        undo.iter().for_each(Undo::now);
        // SAFETY: sleeps.
        unsafe { libc::usleep(100_000) };
    }
    // SAFETY: ends without running the parent's destructors.
    unsafe { libc::_exit(0) }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Where it is gone there is nobody to tell.
        let _ = std::io::Write::write(&mut self.pipe, b"d");
        let mut status = 0;
        // SAFETY: waits for the child made in `watch`.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_undone_properly_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept");
        std::fs::write(&file, "x").unwrap();
        drop(Keeper::watch(&[Undo::file(&file)]).unwrap());
        assert!(file.exists());
    }

    #[test]
    fn a_keeper_undoes_where_its_process_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("left");
        std::fs::write(&file, "x").unwrap();
        let undo = [Undo::file(&file)];
        // SAFETY: the child makes a keeper, which only forks, and is then killed by itself.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let keeper = Keeper::watch(&undo);
            std::mem::forget(keeper);
            // SAFETY: ends this child at once.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        let gone = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !file.exists()
        });
        assert!(gone);
    }
}

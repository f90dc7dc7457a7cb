//! Undoes what a lab made in the kernel, even where fathom is killed: a small process that waits for the end of a pipe.
//!
//! Files find themselves again (`fathom clean`), loop devices go with their last user; mounts and arrays do neither.

use std::ffi::CString;
use std::io::{self, PipeWriter};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::erase::{LABEL_WHOLE, ZEROS, pieces};

/// What is to be undone, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Unmounts a directory and removes it.
    Mount(CString),
    /// Stops the md array of a device node.
    Array(CString),
    /// Removes a device of the device mapper, by its name.
    Mapping(CString),
    /// Stops swapping to a file, and removes it.
    Swap(CString),
    /// Erases what a real device carries of an array (see [`SIGNS`]), once everything before is undone and nobody has
    /// claimed it. Never of a loop device: it is free by then, and may be somebody else's.
    Blank(CString),
    /// Runs a program, until it succeeds once.
    Run(Vec<CString>),
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
    pub fn mount(path: &Path) -> Self {
        Self::Mount(Self::path(path))
    }
    /// See [`Undo::Array`].
    pub fn array(path: &Path) -> Self {
        Self::Array(Self::path(path))
    }
    /// See [`Undo::Mapping`].
    pub fn mapping(name: &str) -> Self {
        Self::Mapping(Self::path(Path::new(name)))
    }
    /// See [`Undo::Swap`].
    pub fn swap(path: &std::ffi::CStr) -> Self {
        Self::Swap(path.to_owned())
    }
    /// See [`Undo::Blank`].
    pub fn blank(member: &Path) -> Self {
        Self::Blank(Self::path(member))
    }
    /// See [`Undo::Run`]; [`WORDS`] at most.
    pub fn run(words: &[&str]) -> Self {
        Self::Run(words.iter().map(|w| Self::path(Path::new(w))).collect())
    }
    /// See [`Undo::Group`].
    pub fn group(path: &Path) -> Self {
        Self::Group(Self::path(path))
    }
    /// See [`Undo::File`].
    #[cfg(test)]
    pub fn file(path: &Path) -> Self {
        Self::File(Self::path(path))
    }

    /// Whether it is to be done once only: what was erased or destroyed may belong to somebody else a moment later.
    fn once(&self) -> bool {
        matches!(self, Self::Blank(_) | Self::Run(_))
    }

    /// Returns whether there is nothing left to be undone. Makes system calls only: no allocation, no lock.
    fn now(&self) -> bool {
        const STOP_ARRAY: libc::c_ulong = 0x932;
        // SAFETY: system calls with terminated strings that live as long as `self`; what fails was gone already.
        unsafe {
            match self {
                Self::Mount(path) => {
                    libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW);
                    libc::rmdir(path.as_ptr());
                    true
                }
                Self::Array(path) => {
                    let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                    let mut stopped = 0;
                    if fd >= 0 {
                        stopped = libc::ioctl(fd, STOP_ARRAY as _, 0);
                        libc::close(fd);
                    }
                    stopped == 0
                }
                Self::Mapping(name) => crate::mapper::remove_after_fork(name),
                Self::Swap(path) => {
                    libc::swapoff(path.as_ptr());
                    libc::unlink(path.as_ptr());
                    true
                }
                Self::Blank(path) => blank(path),
                Self::Run(words) => run(words),
                Self::Group(path) => {
                    libc::rmdir(path.as_ptr()) == 0 || *libc::__errno_location() == libc::ENOENT
                }
                #[cfg(test)]
                Self::File(path) => {
                    libc::unlink(path.as_ptr());
                    true
                }
            }
        }
    }
}

/// Words of a program to be run, at most.
const WORDS: usize = 15;
/// Things to be undone, at most: an array of LVM over 64 members has 193.
const UNDO_MAX: usize = 512;

/// What arrays and file systems of fathom's leave on a device, and where: without one of these it belongs to somebody else by
/// now.
const SIGNS: [(i64, &[u8]); 8] = [
    // LVM's label (lib/label/label.h).
    (512, b"LABELONE"),
    // The first name in ZFS' label (`vdev_phys_t`, sys/vdev_impl.h).
    ((16 << 10) + 24, b"version\0"),
    // md (linux/raid/md_p.h).
    (4096, &0xa92b_4efc_u32.to_le_bytes()),
    // btrfs (fs/btrfs/ctree.h).
    ((64 << 10) + 64, b"_BHRfS_M"),
    // dm-raid's superblock, and the journal of md's parity arrays (linux/raid/md_p.h).
    (0, b"DmRd"),
    (0, &0x6433_c509_u32.to_le_bytes()),
    // Labels of file systems, which are fathom's own (crate::filesystem): `s_volume_name` of ext4 (fs/ext4/ext4.h) and
    // `sb_fname` of XFS (xfs_format.h).
    (1024 + 0x78, LABEL_WHOLE),
    (108, LABEL_WHOLE),
];

/// Erases labels and superblocks of a device that nobody has claimed meanwhile; `false` where somebody still has it.
fn blank(path: &CString) -> bool {
    // SAFETY: system calls with a terminated path, and with live buffers that are at least as long as is named.
    unsafe {
        let flags = libc::O_RDWR | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let fd = libc::open(path.as_ptr(), flags);
        if fd < 0 {
            return *libc::__errno_location() != libc::EBUSY;
        }
        let ours = SIGNS.iter().any(|(at, sign)| {
            let mut there = [0u8; 8];
            let read = libc::pread(fd, there.as_mut_ptr().cast(), sign.len(), *at);
            read == sign.len() as isize && there[..sign.len()] == **sign
        });
        let size = libc::lseek(fd, 0, libc::SEEK_END);
        if ours && size > 0 {
            for (at, bytes) in pieces(size as u64) {
                libc::pwrite(fd, ZEROS.as_ptr().cast(), bytes, at as i64);
            }
            libc::fsync(fd);
        }
        libc::close(fd);
    }
    true
}

/// Runs a program and waits for it; whether it succeeded.
fn run(words: &[CString]) -> bool {
    let mut argv = [std::ptr::null(); WORDS + 1];
    for (place, word) in argv.iter_mut().zip(words.iter().take(WORDS)) {
        *place = word.as_ptr();
    }
    // SAFETY: the child makes system calls only and never returns; the strings outlive it, the list ends with a null.
    unsafe {
        match libc::fork() {
            -1 => false,
            0 => {
                // Programs expect to have these three.
                for _ in 0..3 {
                    libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                }
                libc::execv(argv[0], argv.as_ptr());
                libc::_exit(127)
            }
            child => {
                let mut status = 0;
                libc::waitpid(child, &mut status, 0) == child && status == 0
            }
        }
    }
}

/// The process. Dropping it tells it that everything was undone properly.
#[derive(Debug)]
pub struct Cleanup {
    pipe: PipeWriter,
    pid: libc::pid_t,
}

impl Cleanup {
    /// Watches over this process: where it ends without a word, `undo` is done.
    ///
    /// # Errors
    /// Where no process can be made, or it would forget something: nothing may be made then.
    pub fn watch(undo: &[Undo]) -> io::Result<Self> {
        let words = |u: &Undo| match u {
            Undo::Run(words) => words.len(),
            _ => 0,
        };
        if undo.len() > UNDO_MAX || undo.iter().any(|u| words(u) > WORDS) {
            return Err(io::Error::other(format!(
                "{} things would have to be undone after a kill, expected {UNDO_MAX} at most, and {WORDS} words of a program; use fewer members",
                undo.len()
            )));
        }
        let (reader, pipe) = std::io::pipe()?;
        // SAFETY: the child only makes system calls: no allocation, no lock, no destructor; it never returns.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => wait(reader.as_raw_fd(), undo),
            pid => Ok(Self { pipe, pid }),
        }
    }

    /// Leaves to it what this process could not undo itself: it tries when this process has ended, and with it whatever
    /// kept the thing busy.
    pub fn try_again(cleanup: Option<Self>) {
        std::mem::forget(cleanup);
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
        libc::prctl(libc::PR_SET_NAME, c"fathom-cleanup".as_ptr());
        if pipe != KEPT {
            libc::dup2(pipe, KEPT);
        }
        libc::syscall(libc::SYS_close_range, KEPT + 1, u32::MAX, 0);
        for fd in 0..KEPT {
            libc::close(fd);
        }
        // Where it is ignored, as a parent may have it, nobody learns how a program ended that is run here.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
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
    let mut done = [false; UNDO_MAX];
    // Writes that are under way when a process is killed hold the array or mount for a moment.
    for _ in 0..50 {
        let mut all = true;
        for (i, u) in undo.iter().enumerate() {
            if u.once() {
                if all && !done[i] {
                    done[i] = u.now();
                }
                all &= done[i];
            } else {
                all &= u.now();
            }
        }
        // SAFETY: sleeps.
        unsafe { libc::usleep(100_000) };
    }
    // SAFETY: ends without running the parent's destructors.
    unsafe { libc::_exit(0) }
}

impl Drop for Cleanup {
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
        drop(Cleanup::watch(&[Undo::file(&file)]).unwrap());
        assert!(file.exists());
    }

    #[test]
    fn a_keeper_undoes_where_its_process_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("left");
        std::fs::write(&file, "x").unwrap();
        let labelled = dir.path().join("labelled");
        let mut bytes = vec![7; 2 << 20];
        bytes[512..520].copy_from_slice(b"LABELONE");
        std::fs::write(&labelled, &bytes).unwrap();
        let foreign = dir.path().join("foreign");
        std::fs::write(&foreign, [7; 4096]).unwrap();
        let by_program = dir.path().join("by-a-program");
        std::fs::write(&by_program, "x").unwrap();
        let rm = crate::programs::find("rm").unwrap();
        let words = [&rm, &by_program].map(|p| p.display().to_string());
        let undo = [
            Undo::file(&file),
            Undo::blank(&labelled),
            Undo::blank(&foreign),
            Undo::run(&[&words[0], &words[1]]),
        ];
        // SAFETY: the child makes a cleanup process, which only forks, and is then killed by itself.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let cleanup = Cleanup::watch(&undo);
            std::mem::forget(cleanup);
            // SAFETY: ends this child at once.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        let gone = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !file.exists() && !by_program.exists()
        });
        assert!(gone);
        let left = std::fs::read(&labelled).unwrap();
        assert_eq!(left.len(), bytes.len(), "a file does not grow");
        let (head, rest) = left.split_at(512 << 10);
        let (data, tail) = rest.split_at(rest.len() - (768 << 10));
        assert!(head.iter().chain(tail).all(|b| *b == 0), "labels are gone");
        assert!(data.iter().all(|b| *b == 7));
        let left = std::fs::read(&foreign).unwrap();
        assert!(left.iter().all(|b| *b == 7), "it has no sign of fathom's");
    }

    #[test]
    fn more_than_it_can_remember_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let many = vec![Undo::file(&file); UNDO_MAX + 1];
        let said = Cleanup::watch(&many).unwrap_err().to_string();
        assert!(said.contains("use fewer members"), "{said}");
        let long = Undo::run(&["x"; WORDS + 1]);
        assert!(Cleanup::watch(&[long]).is_err());
    }
}

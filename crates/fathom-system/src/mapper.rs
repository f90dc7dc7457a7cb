//! Calls of the kernel's device mapper (linux/dm-ioctl.h): make a device, give it a table, remove it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::SystemError;

/// Where it takes calls.
pub const CONTROL: &CStr = c"/dev/mapper/control";

// _IOWR(0xfd, n, struct dm_ioctl).
const DEV_CREATE: libc::c_ulong = 0xc138_fd03;
const DEV_REMOVE: libc::c_ulong = 0xc138_fd04;
const DEV_RESUME: libc::c_ulong = 0xc138_fd06;
const DEV_STATUS: libc::c_ulong = 0xc138_fd07;
const TABLE_LOAD: libc::c_ulong = 0xc138_fd09;
const TABLE_STATUS: libc::c_ulong = 0xc138_fd0c;

/// `struct dm_ioctl`.
#[repr(C)]
struct Head {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event: u32,
    padding: u32,
    device: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

/// `struct dm_target_spec`.
#[repr(C)]
struct Line {
    start: u64,
    length: u64,
    status: i32,
    next: u32,
    kind: [u8; 16],
}

const HEAD: usize = size_of::<Head>();
const LINE: usize = size_of::<Line>();
const _: () = assert!(HEAD == 312 && LINE == 40, "as in linux/dm-ioctl.h");

impl Head {
    /// About the device of this name; longer names are cut, and then name nothing.
    fn about(name: &[u8]) -> Self {
        let mut head = Self {
            version: [4, 0, 0],
            data_size: HEAD as u32,
            data_start: HEAD as u32,
            target_count: 0,
            open_count: 0,
            flags: 0,
            event: 0,
            padding: 0,
            device: 0,
            name: [0; 128],
            uuid: [0; 129],
            data: [0; 7],
        };
        let n = name.len().min(127);
        head.name[..n].copy_from_slice(&name[..n]);
        head
    }
}

fn control() -> io::Result<File> {
    let path = CONTROL.to_str().map_err(io::Error::other)?;
    fathom_files::open::control(std::path::Path::new(path))
}

fn call(request: libc::c_ulong, head: &mut Head) -> io::Result<()> {
    let control = control()?;
    // SAFETY: the structure is what the request reads and writes, of the size that it names, and outlives the call.
    let r = unsafe { libc::ioctl(control.as_raw_fd(), request as _, &raw mut *head) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes a device that has no table yet; returns its major and minor number.
pub fn create(name: &str) -> io::Result<(u32, u32)> {
    let mut head = Head::about(name.as_bytes());
    call(DEV_CREATE, &mut head)?;
    Ok(number(&head))
}

/// Node of a device that there is.
pub fn node(name: &str) -> io::Result<PathBuf> {
    let mut head = Head::about(name.as_bytes());
    call(DEV_STATUS, &mut head)?;
    Ok(PathBuf::from(format!("/dev/dm-{}", number(&head).1)))
}

/// Refuses names that devices have already: what fathom makes it also removes, and those are not its own.
///
/// # Errors
/// The first such name, and what to do.
pub fn free<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), SystemError> {
    let taken = names.into_iter().find(|n| node(n).is_ok());
    taken.map_or(Ok(()), |name| {
        Err(SystemError::Refused(format!(
            "a device called {name} is there already, which fathom did not make: remove it (dmsetup remove {name}), or run again"
        )))
    })
}

/// `new_encode_dev` of linux/kdev_t.h.
fn number(head: &Head) -> (u32, u32) {
    let device = head.device as u32;
    (
        (device >> 8) & 0xfff,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

/// Gives it a table of one line and lets I/O through.
pub fn load(name: &str, sectors: u64, kind: &str, arguments: &str) -> io::Result<()> {
    let mut line = Line {
        start: 0,
        length: sectors,
        status: 0,
        next: 0,
        kind: [0; 16],
    };
    let n = kind.len().min(15);
    line.kind[..n].copy_from_slice(&kind.as_bytes()[..n]);
    // Words of eight bytes: the kernel reads the structures in place.
    let size = (HEAD + LINE + arguments.len() + 1).next_multiple_of(8);
    line.next = (size - HEAD) as u32;
    let mut words = vec![0u64; size / 8];
    let mut head = Head::about(name.as_bytes());
    (head.data_size, head.target_count) = (size as u32, 1);
    let start = words.as_mut_ptr().cast::<u8>();
    // SAFETY: `words` holds `size` bytes, aligned for both structures, which are plain data; the three pieces lie behind
    // each other within it, and the byte behind the last is zero.
    unsafe {
        start.cast::<Head>().write(head);
        start.add(HEAD).cast::<Line>().write(line);
        start
            .add(HEAD + LINE)
            .copy_from_nonoverlapping(arguments.as_ptr(), arguments.len());
    }
    let control = control()?;
    // SAFETY: as the head says, `size` bytes follow from its start; they outlive the call.
    let r = unsafe { libc::ioctl(control.as_raw_fd(), TABLE_LOAD as _, start) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    call(DEV_RESUME, &mut Head::about(name.as_bytes()))
}

/// Removes it.
pub fn remove(name: &str) -> io::Result<()> {
    call(DEV_REMOVE, &mut Head::about(name.as_bytes()))
}

/// What its target says of itself: the status of its only line (Documentation/admin-guide/device-mapper/dm-raid.rst).
pub fn status(name: &str) -> io::Result<String> {
    const ROOM: usize = 4096;
    let mut words = vec![0u64; ROOM / 8];
    let mut head = Head::about(name.as_bytes());
    head.data_size = ROOM as u32;
    let start = words.as_mut_ptr().cast::<u8>();
    // SAFETY: `words` holds ROOM bytes, aligned for the structure, which is plain data.
    unsafe { start.cast::<Head>().write(head) };
    let control = control()?;
    // SAFETY: as the head says, ROOM bytes follow from its start, which the kernel may fill; they outlive the call.
    let r = unsafe { libc::ioctl(control.as_raw_fd(), TABLE_STATUS as _, start) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    // A line of the answer, then its text, which ends with a zero.
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let text = bytes.get(HEAD + LINE..).unwrap_or_default();
    let text = text.split(|b| *b == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// The same as [`remove`] with nothing but system calls, for a process that was forked from one with threads; whether
/// there is no such device any more.
pub fn remove_after_fork(name: &CStr) -> bool {
    let mut head = Head::about(name.to_bytes());
    // SAFETY: system calls with a terminated path and a structure of the right size; what fails was gone already.
    unsafe {
        let fd = libc::open(CONTROL.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            return true;
        }
        let removed = libc::ioctl(fd, DEV_REMOVE as _, &raw mut head);
        let busy = removed < 0 && *libc::__errno_location() == libc::EBUSY;
        libc::close(fd);
        !busy
    }
}

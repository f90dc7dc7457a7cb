//! Loop devices over files: each goes with its last user, so a killed process leaves none behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// A loop device in use.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Held open: the device lives as long as this.
    _device: File,
    path: PathBuf,
}

impl Loop {
    /// Over a whole file, with direct I/O below where the file system can.
    pub(crate) fn over(file: &File) -> io::Result<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        // Others look for a free device at the same time.
        for _ in 0..64 {
            // SAFETY: asks for a number; no pointer is passed.
            let n = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _, 0) };
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = PathBuf::from(format!("/dev/loop{n}"));
            let device = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_CLOEXEC)
                .open(&path)?;
            match configure(&device, file, AUTOCLEAR | DIRECT_IO) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => continue,
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    configure(&device, file, AUTOCLEAR)?
                }
                other => other?,
            }
            return Ok(Self {
                _device: device,
                path,
            });
        }
        Err(io::Error::other("no loop device stayed free"))
    }

    /// Its node.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn configure(device: &File, file: &File, flags: u32) -> io::Result<()> {
    let config = Config {
        fd: file.as_raw_fd() as u32,
        block_size: 512,
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: the structure is what LOOP_CONFIGURE reads, and outlives the call.
    let r = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

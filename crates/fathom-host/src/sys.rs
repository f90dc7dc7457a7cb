//! The few ioctls that no safe wrapper offers. The only `unsafe` of this crate.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::root::DeviceNumber;

/// What a loop device is made of, by identity and not by a path that may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopBacking {
    /// File system that holds the backing file.
    pub(crate) device: DeviceNumber,
    /// Inode of the backing file.
    pub(crate) inode: u64,
    /// The backing block device, where it is one.
    pub(crate) block: Option<DeviceNumber>,
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo64 {
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
}

const LOOP_GET_STATUS64: u32 = 0x4C05;

/// Asks a loop device for its backing file; `ENXIO` where it has none.
pub(crate) fn loop_backing(device: &File) -> io::Result<LoopBacking> {
    let mut info = std::mem::MaybeUninit::<LoopInfo64>::zeroed();
    // SAFETY: `info` is a live, writable buffer of the size and layout that this request
    // writes (struct loop_info64, 232 bytes, checked below), and the descriptor is open.
    let rc = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            LOOP_GET_STATUS64 as _,
            info.as_mut_ptr(),
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every bit pattern, also the initial zeros, is a valid LoopInfo64.
    let info = unsafe { info.assume_init() };
    Ok(LoopBacking {
        device: DeviceNumber::from_raw(info.device),
        inode: info.inode,
        block: (info.rdevice != 0).then(|| DeviceNumber::from_raw(info.rdevice)),
    })
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FiemapExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// Extents that are fetched per call: 128 × 56 bytes, two pages.
pub(crate) const FIEMAP_BATCH: usize = 128;

/// `struct fiemap` of linux/fiemap.h with room for a batch of extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

const _: () = assert!(size_of::<FiemapExtent>() == 56 && size_of::<Fiemap>() == 32 + 56 * 128);

/// `_IOWR('f', 11, struct fiemap)`, the header's 32 bytes encoded.
const FS_IOC_FIEMAP: u32 = 0xC020_660B;
const FIEMAP_FLAG_SYNC: u32 = 1;

/// The next extents of a file at or after `start`, at most [`FIEMAP_BATCH`].
///
/// Dirty data is written out first, so that an extent is not called unwritten while its
/// data waits in memory.
pub(crate) fn fiemap(file: &File, start: u64, length: u64) -> io::Result<Vec<FiemapExtent>> {
    let mut map = Box::new(Fiemap {
        start,
        length,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: FIEMAP_BATCH as u32,
        reserved: 0,
        extents: [FiemapExtent::default(); FIEMAP_BATCH],
    });
    // SAFETY: `map` is a live, writable struct fiemap whose `count` says how many extents
    // there is room for behind the header; the kernel writes no more; the descriptor is open.
    let rc = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            FS_IOC_FIEMAP as _,
            std::ptr::from_mut(map.as_mut()),
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let n = (map.mapped as usize).min(FIEMAP_BATCH);
    Ok(map.extents[..n].to_vec())
}

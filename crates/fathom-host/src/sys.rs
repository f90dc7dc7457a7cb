//! The few ioctls that no safe wrapper offers. The only `unsafe` of this crate.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::purge::method::Blocks;
use crate::purge::nvme::Command;
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

/// `struct loop_info64` of linux/loop.h: plain numbers and bytes, for which every bit pattern is valid.
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

impl LoopInfo64 {
    const fn empty() -> Self {
        // SAFETY: as above, zeros are valid.
        unsafe { std::mem::zeroed() }
    }
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const LOOP_GET_STATUS64: u32 = 0x4C05;
const LOOP_CTL_GET_FREE: u32 = 0x4C82;
const LOOP_CONFIGURE: u32 = 0x4C0A;
/// The device goes with its last user.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// It reads and writes its file past the page cache.
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Asks a loop device for its backing file; `ENXIO` where it has none.
pub(crate) fn loop_backing(device: &File) -> io::Result<LoopBacking> {
    let mut info = LoopInfo64::empty();
    // SAFETY: `info` is a live, writable buffer of the size and layout that this request
    // writes (struct loop_info64, 232 bytes, checked below), and the descriptor is open.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(LoopBacking {
        device: DeviceNumber::from_raw(info.device),
        inode: info.inode,
        block: (info.rdevice != 0).then(|| DeviceNumber::from_raw(info.rdevice)),
    })
}

/// Number of a loop device that nobody uses now; `control` is `/dev/loop-control`.
pub(crate) fn loop_free(control: &File) -> io::Result<i32> {
    // SAFETY: asks for a number; no pointer is passed, and the descriptor is open.
    let n = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _, 0) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(n)
}

/// Lays a loop device over a part of a file: where it begins and its bytes, 0 for all that follows. The device goes with
/// its last user; `direct` goes past the page cache below.
pub(crate) fn loop_configure(
    device: &File,
    file: &File,
    part: (u64, u64),
    direct: bool,
) -> io::Result<()> {
    let direct = if direct { LO_FLAGS_DIRECT_IO } else { 0 };
    let config = LoopConfig {
        file: file.as_raw_fd() as u32,
        block_size: 512,
        info: LoopInfo64 {
            offset: part.0,
            size_limit: part.1,
            flags: LO_FLAGS_AUTOCLEAR | direct,
            ..LoopInfo64::empty()
        },
        reserved: [0; 8],
    };
    // SAFETY: the structure is what this request reads (304 bytes, checked below) and outlives the call; both
    // descriptors are open.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

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

/// `struct nvme_admin_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct NvmeAdmin {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<NvmeAdmin>() == 72);

/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u32 = 0xC048_4E41;
/// `_IOWR('N', 0x43, struct nvme_passthru_cmd)`, which is the same structure.
const NVME_IOCTL_IO_CMD: u32 = 0xC048_4E43;
const NVME_IO_MANAGEMENT_RECEIVE: u8 = 0x12;
const NVME_GET_LOG_PAGE: u8 = 0x02;
const NVME_IDENTIFY: u8 = 0x06;
const NVME_GET_FEATURES: u8 = 0x0A;
/// Identify's list of the controllers that a namespace is attached to.
pub(crate) const CONTROLLERS_OF_NAMESPACE: u8 = 0x12;
/// How long a disk may take to answer, ms.
const PATIENCE_MS: u32 = 5_000;

/// `_IO('N', 0x40)`.
const NVME_IOCTL_ID: u32 = 0x4E40;

/// The number of the namespace behind a block or character device.
pub(crate) fn nvme_namespace_id(device: &File) -> io::Result<u32> {
    // SAFETY: asks for a number; no pointer is passed, and the descriptor is open.
    let id = unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ID as _) };
    u32::try_from(id).map_err(|_| io::Error::last_os_error())
}

/// Which log page, and what of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogPage {
    /// Its number.
    pub(crate) number: u8,
    /// The field whose meaning the page decides.
    pub(crate) specific: u8,
    /// What it is about: the number of an endurance group.
    pub(crate) identifier: u16,
}

/// Reads 512 bytes of an NVMe log page. Disks without the page answer with an error.
pub(crate) fn nvme_log_page(device: &File, page: u8, into: &mut [u8; 512]) -> io::Result<()> {
    let page = LogPage {
        number: page,
        ..LogPage::default()
    };
    nvme_log(device, page, into)
}

/// Reads the beginning of a log page (Get Log Page: reads only) of the whole controller; whole double words, one at least.
pub(crate) fn nvme_log(device: &File, page: LogPage, into: &mut [u8]) -> io::Result<()> {
    // Length in double words, less one, above the number of the page.
    let length = (into.len() as u32 / 4).saturating_sub(1);
    let command = NvmeAdmin {
        opcode: NVME_GET_LOG_PAGE,
        namespace: u32::MAX,
        cdw10: length << 16 | u32::from(page.specific & 0x7F) << 8 | u32::from(page.number),
        cdw11: u32::from(page.identifier) << 16,
        timeout_ms: PATIENCE_MS,
        ..NvmeAdmin::default()
    };
    nvme_send(device, NVME_IOCTL_ADMIN_CMD, command, into).map(drop)
}

/// Identify: what a controller, a namespace or a list of them is (reads only). `what` is the specification's CNS.
pub(crate) fn nvme_identify(
    device: &File,
    what: u8,
    namespace: u32,
    into: &mut [u8; 4096],
) -> io::Result<()> {
    nvme_read(device, NVME_IDENTIFY, namespace, what.into(), into).map(drop)
}

/// The current value of a feature (Get Features: reads only), where it is a number.
pub(crate) fn nvme_feature(device: &File, feature: u8) -> io::Result<u32> {
    nvme_read(device, NVME_GET_FEATURES, 0, feature.into(), &mut [])
}

/// The status of a namespace's reclaim unit handles (I/O Management Receive: reads only); whole double words, one at least. A
/// drive may refuse to fill more than it has (NVMe Base Specification 2.1, SGLS: a longer SGL).
pub(crate) fn nvme_placements(device: &File, namespace: u32, into: &mut [u8]) -> io::Result<()> {
    // Double words less one.
    let cdw11 = (into.len() as u32 / 4).saturating_sub(1);
    let (opcode, handles) = (NVME_IO_MANAGEMENT_RECEIVE, 1);
    nvme_command(
        device,
        NVME_IOCTL_IO_CMD,
        (opcode, namespace, [handles, cdw11]),
        into,
    )
    .map(drop)
}

/// An admin command that reads; its result's first double word.
fn nvme_read(
    device: &File,
    opcode: u8,
    namespace: u32,
    cdw10: u32,
    into: &mut [u8],
) -> io::Result<u32> {
    nvme_command(
        device,
        NVME_IOCTL_ADMIN_CMD,
        (opcode, namespace, [cdw10, 0]),
        into,
    )
}

/// A command that reads: opcode, namespace, double words 10 and 11.
fn nvme_command(
    device: &File,
    queue: u32,
    (opcode, namespace, [cdw10, cdw11]): (u8, u32, [u32; 2]),
    into: &mut [u8],
) -> io::Result<u32> {
    let command = NvmeAdmin {
        opcode,
        namespace,
        cdw11,
        cdw10,
        timeout_ms: PATIENCE_MS,
        ..NvmeAdmin::default()
    };
    nvme_send(device, queue, command, into)
}

/// Sends a command that erases; only an [`crate::purge::Eraser`] may ask for that.
pub(crate) fn nvme_erase(device: &File, command: &Command) -> io::Result<()> {
    let command = NvmeAdmin {
        opcode: command.opcode,
        namespace: command.nsid,
        cdw10: command.cdw10,
        cdw11: command.cdw11,
        timeout_ms: command.timeout_ms,
        ..NvmeAdmin::default()
    };
    nvme_send(device, NVME_IOCTL_ADMIN_CMD, command, &mut []).map(drop)
}

/// Sends a command whose answer goes to `into`; its result's first double word.
fn nvme_send(
    device: &File,
    queue: u32,
    mut command: NvmeAdmin,
    into: &mut [u8],
) -> io::Result<u32> {
    command.length = into.len() as u32;
    // Nothing is transferred where there is no room.
    if !into.is_empty() {
        command.address = into.as_mut_ptr() as u64;
    }
    // SAFETY: `command` is a live, writable struct nvme_admin_cmd; its address and length describe `into`, which is
    // borrowed for the whole call and is all that the kernel writes; the descriptor is open.
    let rc = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            queue as _,
            std::ptr::from_mut(&mut command),
        )
    };
    match rc {
        0 => Ok(command.result),
        // Above nought is the disk's own status.
        1.. => Err(io::Error::other(nvme_status(rc))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a drive answered, in words where the code is one of the usual (Base Specification 2.0, figures 97 to 99).
fn nvme_status(status: i32) -> String {
    let words = match status & 0x7ff {
        0x001 => " (it does not know the command)",
        0x002 => " (invalid field)",
        0x004 => " (transfer error)",
        0x006 => " (internal error)",
        0x00b => " (invalid namespace or format)",
        0x00c => " (out of sequence)",
        0x015 => " (it denies the operation)",
        0x01c => " (its last sanitize operation failed)",
        0x01d => " (it is being sanitized)",
        0x020 => " (the namespace is write protected)",
        0x084 => " (the namespace is being formatted)",
        0x109 => " (it has no such log page)",
        0x10a => " (invalid format)",
        0x10b => " (it wants a reset first)",
        _ => "",
    };
    format!("the disk answered with status {status:#x}{words}")
}

const BLKFLSBUF: u32 = 0x1261;
const BLKSECDISCARD: u32 = 0x127D;
const BLKZEROOUT: u32 = 0x127F;

/// Empties a range of a block device that may be written: offset and length in bytes.
pub(crate) fn empty(device: &File, how: Blocks, offset: u64, length: u64) -> io::Result<()> {
    let request = match how {
        Blocks::Secure => BLKSECDISCARD,
        Blocks::Zeroes => BLKZEROOUT,
    };
    let range = [offset, length];
    // SAFETY: both requests read two 64-bit numbers, which outlive the call; the descriptor is open.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), request as _, range.as_ptr()) };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Drops the kernel's pages of a block device; dirty ones, of which a claimed device has none, are written first.
pub(crate) fn drop_cached(device: &File) -> io::Result<()> {
    // SAFETY: no pointer is passed, and the descriptor is open.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF as _, 0) };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct sg_io_hdr` of scsi/sg.h, as 64-bit machines have it.
#[repr(C)]
struct SgIo {
    interface: i32,
    direction: i32,
    command_length: u8,
    sense_length_max: u8,
    vectors: u16,
    length: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    id: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_length: u8,
    host_status: u16,
    driver_status: u16,
    residual: i32,
    duration_ms: u32,
    info: u32,
}

const _: () = assert!(size_of::<SgIo>() == 88 || size_of::<usize>() != 8);

const SG_IO: u32 = 0x2285;
const SG_DXFER_FROM_DEV: i32 = -3;
/// CHECK CONDITION: the disk refused, or (with sense 0x01) answered that all went well.
const CHECK_CONDITION: u8 = 2;

/// Reads one sector with an ATA PASS-THROUGH (16) command, which must be one that reads.
pub(crate) fn ata_read(device: &File, command: &[u8; 16], into: &mut [u8; 512]) -> io::Result<()> {
    scsi_read(device, command, into).map(drop)
}

/// Sends a SCSI command that reads; the bytes that came.
pub(crate) fn scsi_read(device: &File, command: &[u8], into: &mut [u8]) -> io::Result<usize> {
    let mut sense = [0u8; 32];
    let mut io = SgIo {
        interface: i32::from(b'S'),
        direction: SG_DXFER_FROM_DEV,
        command_length: command.len() as u8,
        sense_length_max: sense.len() as u8,
        vectors: 0,
        length: into.len() as u32,
        data: into.as_mut_ptr(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: PATIENCE_MS,
        flags: 0,
        id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_length: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: `io` is a live, writable struct sg_io_hdr; data, command and sense point to buffers of the lengths given
    // beside them, which outlive the call; the kernel writes only data and sense; the descriptor is open.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), SG_IO as _, std::ptr::from_mut(&mut io)) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // Response codes 70h and 72h: the sense key is in byte 2 or byte 1. 1 is "recovered": the registers came along.
    let key = if sense[0] & 0x7E == 0x72 {
        sense[1]
    } else {
        sense[2]
    } & 0x0F;
    let refused = io.status == CHECK_CONDITION && key != 1;
    if refused || io.host_status != 0 || !matches!(io.status, 0 | CHECK_CONDITION) {
        return Err(io::Error::other(format!(
            "the disk refused the command (status {:#x}, sense key {key:#x})",
            io.status
        )));
    }
    let left = usize::try_from(io.residual).unwrap_or(0);
    Ok(into.len().saturating_sub(left))
}

/// `struct blk_zone` of linux/blkzoned.h: plain numbers, in sectors of 512 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawZone {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) pointer: u64,
    pub(crate) kind: u8,
    pub(crate) state: u8,
    pub(crate) non_sequential: u8,
    pub(crate) reset: u8,
    pub(crate) reserved: [u8; 4],
    pub(crate) capacity: u64,
    pub(crate) more: [u8; 24],
}

/// Zones that are fetched per call: 16 KiB.
const ZONE_BATCH: usize = 256;

/// `struct blk_zone_report` with room for a batch.
#[repr(C)]
struct ZoneReport {
    sector: u64,
    count: u32,
    flags: u32,
    zones: [RawZone; ZONE_BATCH],
}

const _: () = assert!(size_of::<RawZone>() == 64 && size_of::<ZoneReport>() == 16 + 64 * 256);

/// `_IOWR(0x12, 130, struct blk_zone_report)`, the header's 16 bytes encoded.
const BLKREPORTZONE: u32 = 0xC010_1282;
/// `_IOR(0x12, 132, __u32)`.
const BLKGETZONESZ: u32 = 0x8004_1284;

/// The zones of a device from this sector on, as many as fit a batch; none at its end.
pub(crate) fn zone_report(device: &File, sector: u64) -> io::Result<Vec<RawZone>> {
    let mut report = Box::new(ZoneReport {
        sector,
        count: ZONE_BATCH as u32,
        flags: 0,
        zones: [RawZone::default(); ZONE_BATCH],
    });
    // SAFETY: `report` is a live, writable struct blk_zone_report whose `count` says how many zones there is room for behind
    // the header; the kernel writes no more; the descriptor is open.
    let rc = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            BLKREPORTZONE as _,
            std::ptr::from_mut(report.as_mut()),
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let n = (report.count as usize).min(ZONE_BATCH);
    Ok(report.zones[..n].to_vec())
}

/// Sectors of a zone; 0 where the device has none.
pub(crate) fn zone_sectors(device: &File) -> io::Result<u32> {
    let mut sectors = 0u32;
    // SAFETY: the kernel writes one u32, which outlives the call; the descriptor is open.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETZONESZ as _, &raw mut sectors) };
    match rc {
        0 => Ok(sectors),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Asks something of the zones of a range of sectors, by a request that takes struct blk_zone_range: `_IOW(0x12, n, …)`, n 131
/// (reset), 134 (open), 135 (close) or 136 (finish).
pub(crate) fn zone_action(device: &File, n: u8, sector: u64, sectors: u64) -> io::Result<()> {
    let request = 0x4010_1200 | u32::from(n);
    let range = [sector, sectors];
    // SAFETY: the kernel reads struct blk_zone_range, two u64, which outlives the call; the descriptor is open.
    match unsafe { libc::ioctl(device.as_raw_fd(), request as _, range.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

//! Arrays of the kernel's md driver, made by its own calls: no mdadm, no superblock, nothing on the members but data.
//!
//! An array is called `md_f<pid>`, so that another run can see whose it was; the cleanup process stops it where fathom is
//! killed. Members lose their first bytes to nothing: what is left on them is data of the array. Only an array with a
//! journal has superblocks while it lives ([`super::journal`]).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use fathom_files::{kernel, open};
use fathom_sim::raid::Level;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::journal::{DATA_OFFSET, Description, Role};
use super::members::{self, Members, Part};
use super::{Array, ArrayMaker, Shape, Traffic};
use crate::SystemError;
use crate::cleanup::{Cleanup, Undo};
use crate::{kernel_threads, programs};

/// Beginning of every array's name.
pub(crate) const PREFIX: &str = "md_f";

// linux/raid/md_u.h.
const SET_ARRAY_INFO: libc::c_ulong = 0x4048_0923;
const ADD_NEW_DISK: libc::c_ulong = 0x4014_0921;
const RUN_ARRAY: libc::c_ulong = 0x400c_0930;
const STOP_ARRAY: libc::c_ulong = 0x932;
const HOT_REMOVE_DISK: libc::c_ulong = 0x922;
const HOT_ADD_DISK: libc::c_ulong = 0x928;
const SET_DISK_FAULTY: libc::c_ulong = 0x929;
/// The array is clean: nothing has to be synchronised.
const CLEAN: i32 = 1;
/// A disk is active and in sync.
const IN_SYNC: i32 = 6;
/// Parity rotates from right to left, data follows it.
const LEFT_SYMMETRIC: i32 = 2;
/// Two copies beside each other.
const NEAR_TWO: i32 = 0x102;

/// `mdu_array_info_t`.
#[repr(C)]
#[derive(Default)]
struct ArrayInfo {
    major_version: i32,
    minor_version: i32,
    patch_version: i32,
    created: u32,
    level: i32,
    size_kib: i32,
    disks: i32,
    raid_disks: i32,
    minor: i32,
    not_persistent: i32,
    updated: u32,
    state: i32,
    active: i32,
    working: i32,
    failed: i32,
    spare: i32,
    layout: i32,
    chunk: i32,
}

/// `mdu_disk_info_t`.
#[repr(C)]
#[derive(Default)]
struct DiskInfo {
    number: i32,
    major: i32,
    minor: i32,
    raid_disk: i32,
    state: i32,
}

pub(crate) struct MdArrays {
    members: Members,
}

impl MdArrays {
    /// Over members that the safety rules allow.
    pub(crate) fn new(members: Members) -> Self {
        Self { members }
    }
}

/// Whether this kernel has md; asks for its module where it may.
///
/// # Errors
/// What is missing, and what to do.
pub(crate) fn available() -> Result<(), SystemError> {
    let there = || Path::new(NEW_ARRAY).exists();
    if !there() {
        programs::load_module("md-mod");
    }
    if there() {
        return Ok(());
    }
    Err(SystemError::Missing {
        what: "this kernel has no md driver".into(),
        remedy: "load it (modprobe md-mod), or let guests have it: --backend guest".into(),
    })
}

const NEW_ARRAY: &str = "/sys/module/md_mod/parameters/new_array";

impl ArrayMaker for MdArrays {
    fn shared_disk(&self) -> Option<&str> {
        self.members.shared()
    }

    fn about(&self) -> String {
        let journal = match self.members.journal() {
            Some(j) => format!(
                "; RAID 5 and 6 with a journal on {}, and superblocks",
                j.path().display()
            ),
            None => String::new(),
        };
        format!("Linux md over {}{journal}", self.members.about())
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        let personality = match shape.level {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 | Level::Raid6 => "raid456",
            Level::Raid10 => "raid10",
        };
        let loaded = fs::read_to_string("/proc/mdstat").unwrap_or_default();
        if !loaded.contains(&format!("[raid{}]", shape.level.number())) {
            // The kernel asks for the module itself where it can.
            programs::load_module(personality);
        }
        self.members.lack(shape)
    }
    fn member(&mut self) -> Result<Box<dyn Array>, SystemError> {
        self.members.first()
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, SystemError> {
        let parts = self.members.given(shape.members)?;
        let journal = self.members.given_journal(shape.level)?;
        let size = self.members.size();
        let array = MdArray::make(shape, parts, journal, size)?;
        Ok(Box::new(array))
    }
}

struct MdArray {
    name: String,
    shape: Shape,
    node: PathBuf,
    parts: Vec<Part>,
    /// Where writes to a parity array go first.
    journal: Option<Part>,
    lost: Option<usize>,
    cleanup: Option<Cleanup>,
}

impl MdArray {
    /// `bytes` of each member are used.
    fn make(
        shape: &Shape,
        parts: Vec<Part>,
        journal: Option<Part>,
        bytes: u64,
    ) -> Result<Self, SystemError> {
        let name = free_name()?;
        let mut array = Self {
            node: Path::new("/dev").join(&name),
            name,
            shape: *shape,
            parts,
            journal,
            lost: None,
            cleanup: None,
        };
        // From here on dropping it takes apart what there is.
        array.assemble(bytes)?;
        Ok(array)
    }

    fn assemble(&mut self, bytes: u64) -> Result<(), SystemError> {
        let shape = self.shape;
        let failed = |what: &str, e: io::Error| {
            SystemError::Failed(format!("md did not {what} for {}: {e}", shape.title()))
        };
        let mut undo = vec![Undo::array(&self.node)];
        if self.journal.is_some() {
            let stay = self.devices().filter(|p| p.stays);
            undo.extend(stay.map(|p| Undo::blank(&p.path)));
        }
        let cleanup = Cleanup::watch(&undo);
        self.cleanup = Some(cleanup.map_err(|e| failed("get a cleanup process", e))?);
        kernel::write(Path::new(NEW_ARRAY), &self.name).map_err(|e| failed("make a device", e))?;
        let node = wait_for(&self.node).map_err(|e| failed("make a device", e))?;
        let layout = match shape.level {
            Level::Raid5 | Level::Raid6 => LEFT_SYMMETRIC,
            Level::Raid10 => NEAR_TWO,
            _ => 0,
        };
        if self.journal.is_some() {
            self.describe_in_superblocks(&node, bytes, layout)?;
        } else {
            self.describe(&node, bytes, layout)?;
        }
        call(&node, RUN_ARRAY, 0).map_err(|e| failed("start", e))?;
        // Whole parity from the first write on: members hold whatever they held.
        self.sysfs_write("rmw_level", "0");
        Ok(())
    }

    /// Members, then the journal.
    fn devices(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().chain(&self.journal)
    }

    /// Tells the kernel what the array is; nothing of it is written anywhere.
    fn describe(&self, node: &File, bytes: u64, layout: i32) -> Result<(), SystemError> {
        let shape = self.shape;
        let failed = |what: &str, e: io::Error| {
            SystemError::Failed(format!("md did not {what} for {}: {e}", shape.title()))
        };
        let disks = self.parts.len() as i32;
        let chunk = shape.chunk.0;
        let usable = bytes / chunk * chunk;
        let info = ArrayInfo {
            major_version: 0,
            minor_version: 90,
            level: shape.level.number() as i32,
            size_kib: i32::try_from(usable / 1024).map_err(|_| {
                SystemError::Refused(
                    "members of more than 2 TiB: use so much of each with --size 2t".into(),
                )
            })?,
            disks,
            raid_disks: disks,
            not_persistent: 1,
            state: CLEAN,
            active: disks,
            working: disks,
            layout,
            chunk: if shape.level == Level::Raid1 {
                0
            } else {
                chunk as i32
            },
            ..ArrayInfo::default()
        };
        call(node, SET_ARRAY_INFO, &raw const info as usize)
            .map_err(|e| failed("take its description", e))?;
        for (i, part) in self.parts.iter().enumerate() {
            let disk = DiskInfo {
                number: i as i32,
                major: part.number.0 as i32,
                minor: part.number.1 as i32,
                raid_disk: i as i32,
                state: IN_SYNC,
            };
            call(node, ADD_NEW_DISK, &raw const disk as usize)
                .map_err(|e| failed(&format!("take {}", part.path.display()), e))?;
        }
        Ok(())
    }

    /// Writes superblocks and lets the kernel read them.
    fn describe_in_superblocks(
        &self,
        node: &File,
        bytes: u64,
        layout: i32,
    ) -> Result<(), SystemError> {
        let shape = self.shape;
        let failed = |what: &str, e: io::Error| {
            SystemError::Failed(format!("md did not {what} for {}: {e}", shape.title()))
        };
        let own = bytes.saturating_sub(DATA_OFFSET);
        let description = Description {
            shape,
            layout: layout as u32,
            used: own / shape.chunk.0 * shape.chunk.0,
            nonce: (u64::from(std::process::id()) << 32) ^ fathom_io::clock::monotonic().0,
        };
        let info = ArrayInfo {
            major_version: 1,
            minor_version: 2,
            ..ArrayInfo::default()
        };
        call(node, SET_ARRAY_INFO, &raw const info as usize)
            .map_err(|e| failed("take its description", e))?;
        for (i, part) in self.devices().enumerate() {
            let (role, own) = if i < self.parts.len() {
                (Role::Member(i as u32), description.used)
            } else {
                (Role::Journal, (part.bytes - DATA_OFFSET) / 4096 * 4096)
            };
            let disk = DiskInfo {
                major: part.number.0 as i32,
                minor: part.number.1 as i32,
                ..DiskInfo::default()
            };
            description
                .write(&part.path, role, own)
                .and_then(|()| call(node, ADD_NEW_DISK, &raw const disk as usize))
                .map_err(|e| failed(&format!("take {}", part.path.display()), e))?;
        }
        Ok(())
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        Path::new("/sys/block")
            .join(&self.name)
            .join("md")
            .join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.sysfs(name)).ok()?;
        Some(text.trim().to_owned())
    }

    fn sysfs_write(&self, name: &str, value: &str) -> bool {
        kernel::write(&self.sysfs(name), value).is_ok()
    }

    fn control(&self, request: libc::c_ulong, argument: usize) -> io::Result<()> {
        call(&File::open(&self.node)?, request, argument)
    }

    fn device_argument(&self, member: usize) -> usize {
        let (major, minor) = self.parts[member].number;
        // `new_encode_dev` of linux/kdev_t.h.
        let encoded = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
        encoded as usize
    }

    /// Takes it apart; a device that is still busy is tried again for a while.
    fn stop(&mut self) -> Result<(), SystemError> {
        if self.cleanup.is_none() {
            return Ok(());
        }
        let stopped = crate::retry::patiently(
            5,
            |_| true,
            || match File::open(&self.node) {
                Ok(node) => call(&node, STOP_ARRAY, 0),
                // The device was never made, or is gone already.
                Err(_) => Ok(()),
            },
        );
        stopped.map_err(|e| {
            SystemError::Failed(format!(
                "{0} could not be stopped ({e}): mdadm --stop {0}",
                self.node.display()
            ))
        })?;
        if self.journal.is_some() {
            // They are told that they belong to nothing any more.
            members::erase_all(self.devices())?;
        }
        self.cleanup = None;
        Ok(())
    }
}

/// Stops an array by its node.
pub(crate) fn stop(node: &Path) -> io::Result<()> {
    call(&File::open(node)?, STOP_ARRAY, 0)
}

impl Drop for MdArray {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            say!("fathom: {e}");
            Cleanup::try_again(self.cleanup.take());
        }
    }
}

/// A name that no array has: the number of this process, which says whose it is, and a letter where that is not enough.
fn free_name() -> Result<String, SystemError> {
    let name = format!("{PREFIX}{}", std::process::id());
    let letters = std::iter::once(String::new()).chain(('a'..='z').map(String::from));
    letters
        .map(|letter| format!("{name}{letter}"))
        .find(|n| !Path::new("/sys/block").join(n).exists())
        .ok_or_else(|| {
            SystemError::Refused(format!(
                "arrays {name} to {name}z are there already: look at /proc/mdstat, and stop those that nobody needs (mdadm --stop)"
            ))
        })
}

/// Opens a node that appears a moment after its device.
pub(crate) fn wait_for(node: &Path) -> io::Result<File> {
    // Names of LVM and udev are links.
    let open = || open::for_writing(&node.canonicalize()?, 0);
    crate::retry::patiently(2, |_| true, open)
}

fn call(node: &File, request: libc::c_ulong, argument: usize) -> io::Result<()> {
    // SAFETY: callers pass what linux/raid/md_u.h names for the request: a number, or a live structure of its size.
    let r = unsafe { libc::ioctl(node.as_raw_fd(), request as _, argument) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Array for MdArray {
    fn traffic(&self) -> Option<Traffic> {
        Some(members::traffic(&self.node, self.devices()))
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(&[&self.name, "loop", "raid5wq"])
    }
    fn settings(&self) -> Vec<(String, String)> {
        let mut all = vec![("chunk".to_owned(), Bytes(self.shape.chunk.0).to_string())];
        for name in SETTINGS {
            all.extend(
                self.read(name)
                    .map(|v| ((*name).to_owned(), chosen(&v).to_owned())),
            );
        }
        let journal = self.journal.as_ref();
        all.extend(journal.map(|j| ("journal".to_owned(), j.path.display().to_string())));
        all
    }
    fn set(&mut self, name: &str, value: &str) -> Result<bool, SystemError> {
        if !SETTINGS.contains(&name) || !self.sysfs(name).exists() {
            return Ok(false);
        }
        kernel::write(&self.sysfs(name), value)
            .map(|()| true)
            .map_err(|e| SystemError::Refused(format!("{name}={value}: md says {e}")))
    }
    fn filled(&mut self) {
        self.sysfs_write("rmw_level", "1");
    }
    fn lose(&mut self, member: u32) -> Result<(), SystemError> {
        let member = member as usize;
        let failed =
            |e: io::Error| SystemError::Failed(format!("a member could not be taken away: {e}"));
        let device = self.device_argument(member);
        self.control(SET_DISK_FAULTY, device).map_err(failed)?;
        // I/O that was under way still holds it.
        let remove = || self.control(HOT_REMOVE_DISK, device);
        crate::retry::patiently(5, crate::retry::is_busy, remove).map_err(failed)?;
        self.lost = Some(member);
        Ok(())
    }
    fn rebuild(&mut self) -> Result<(), SystemError> {
        let Some(member) = self.lost.take() else {
            return Err(SystemError::Failed(
                "nothing was lost that could be rebuilt".into(),
            ));
        };
        self.control(HOT_ADD_DISK, self.device_argument(member))
            .map_err(|e| SystemError::Failed(format!("a member could not be put back: {e}")))
    }
    fn rebuilt(&mut self) -> Option<f64> {
        if self.read("degraded").as_deref() == Some("0") || self.lost.is_some() {
            return None;
        }
        // `3072 / 65408` sectors, or `none` before it begins.
        let text = self.read("sync_completed").unwrap_or_default();
        let parts: Option<(f64, f64)> = text
            .split_once('/')
            .and_then(|(d, t)| Some((d.trim().parse().ok()?, t.trim().parse().ok()?)));
        Some(parts.map_or(0.0, |(done, total)| done / f64::max(total, 1.0)))
    }
    fn device(&self) -> Option<&Path> {
        Some(&self.node)
    }
    fn states(&self) -> bool {
        // Who has a superblock is put back by its superblock only.
        self.journal.is_none()
    }
    fn close(mut self: Box<Self>) -> Result<(), SystemError> {
        self.stop()
    }
}

/// `[write-through] write-back`: the one that holds.
fn chosen(value: &str) -> &str {
    value
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(value, |(word, _)| word)
}

/// What is reported, and may be changed.
const SETTINGS: &[&str] = &[
    "stripe_cache_size",
    "group_thread_cnt",
    "rmw_level",
    "sync_speed_min",
    "sync_speed_max",
    "consistency_policy",
    "journal_mode",
    "layout",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_choice_the_one_that_holds_is_reported() {
        assert_eq!(chosen("[write-through] write-back"), "write-through");
        assert_eq!(chosen("write-through [write-back]"), "write-back");
        assert_eq!(chosen("256"), "256");
    }
}

//! Arrays of btrfs, made by mkfs.btrfs and mounted in a directory of their own.
//!
//! Its RAID 1 keeps two copies whatever the number of members. Data are written in place (nodatacow), as for images
//! and databases. A keeper unmounts it where fathom is killed.

use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fathom_experiments::Bench;
use fathom_io::Control;
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Flag, Nanos};

use super::backend::{Array, Backend, Shape};
use super::files::{Alone, FileArray, Place};
use super::members::{Member, Members};
use crate::LabError;
use crate::kernel_threads;
use crate::mounted::{FileSystem, Mount};
use crate::outside;
use crate::remains;

/// Its name, as mount and the kernel know it.
const KIND: &str = "btrfs";
/// mkfs.btrfs refuses smaller devices.
const MEMBER_MIN: Bytes = Bytes::mib(128);
/// Of what the file system could hold, so much is used: it needs room to write elsewhere.
const USED: f64 = 0.5;

/// See the module.
pub struct BtrfsArrays {
    members: Members,
    control: Control,
}

/// Whether btrfs can be used here.
///
/// # Errors
/// What is missing, and what to do.
pub fn available() -> Result<(), LabError> {
    FileSystem::named(KIND).map_or(Ok(()), FileSystem::available)
}

impl BtrfsArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where btrfs is not to be had, or the members are too small for it.
    pub fn new(members: Members, control: Control) -> Result<Self, LabError> {
        available()?;
        if members.size() < MEMBER_MIN.0 {
            return Err(LabError::Refused(format!(
                "a member of {} is too small for btrfs: expected {MEMBER_MIN} or more (--size)",
                Bytes(members.size())
            )));
        }
        remains::clear();
        Ok(Self { members, control })
    }
}

impl Backend for BtrfsArrays {
    fn name(&self) -> &'static str {
        "btrfs"
    }
    fn about(&self) -> String {
        format!(
            "btrfs over {}; its RAID 1 keeps two copies whatever the number of members; data are written in place (nodatacow)",
            self.members.about()
        )
    }
    fn members(&self) -> u32 {
        self.members.all().len() as u32
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        let there = self.members();
        (shape.members > there)
            .then(|| format!("it needs {} members, {there} are there", shape.members))
    }
    /// A file system on one member: the same code, without an array.
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        let alone = Mounted::make(self, "single", 1, 1.0)?;
        Ok(Box::new(Alone(alone)))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, LabError> {
        let profile = match shape.level {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        };
        // Two copies, not one on each member.
        let data = match shape.level {
            Level::Raid1 => f64::from(shape.members) / 2.0,
            level => f64::from(level.data_members(shape.members)),
        };
        Ok(Box::new(Mounted::make(self, profile, shape.members, data)?))
    }
    fn stamps(&self) -> Vec<Flag> {
        Vec::new()
    }
}

/// Erases the three copies of the superblock (fs/btrfs/disk-io.h), so that the member is blank again.
pub(crate) fn erase(member: &Path) -> std::io::Result<()> {
    const COPIES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
    let device = fs::OpenOptions::new().write(true).open(member)?;
    let size = size_of(&device)?;
    for at in COPIES.into_iter().filter(|at| at + 4096 <= size) {
        device.write_all_at(&[0; 4096], at)?;
    }
    device.sync_all()
}

fn size_of(mut device: &fs::File) -> std::io::Result<u64> {
    device.seek(SeekFrom::End(0))
}

/// A mounted array.
struct Mounted {
    profile: String,
    members: Vec<PathBuf>,
    mount: Option<Mount>,
    made: bool,
}

impl Mounted {
    fn make(
        backend: &BtrfsArrays,
        profile: &str,
        count: u32,
        data: f64,
    ) -> Result<FileArray<Self>, LabError> {
        let used = &backend.members.all()[..count as usize];
        for m in used {
            backend.members.check(m)?;
        }
        let failed =
            |what: &str, why: String| LabError::Failed(format!("btrfs {profile}: {what}: {why}"));
        let mut array = Self {
            profile: profile.to_owned(),
            members: used.iter().map(|m| m.path().to_owned()).collect(),
            mount: None,
            made: true,
        };
        let metadata = if count == 1 { "single" } else { "raid1" };
        let made = outside::run(
            outside::command("mkfs.btrfs")
                .args(["-q", "-f", "-d", profile, "-m", metadata])
                .args(&array.members),
        );
        made.map_err(|e| failed("mkfs", e))?;
        // The kernel must know all members before the first of them is mounted.
        let _ = outside::run(
            outside::command("btrfs")
                .args(["device", "scan"])
                .args(&array.members),
        );
        let stay: Vec<&Path> = used
            .iter()
            .filter(|m| m.stays())
            .map(Member::path)
            .collect();
        let mounted = Mount::make(KIND, "noatime,nodatacow", &array.members[0], &stay);
        array.mount = Some(mounted.map_err(|e| failed("mount", e))?);
        let size = (backend.members.size() as f64 * data * USED) as u64 >> 20 << 20;
        FileArray::open(array, size, &backend.control)
    }
}

impl Place for Mounted {
    fn dir(&self) -> &Path {
        self.mount.as_ref().map_or(Path::new("."), Mount::dir)
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![("data profile".into(), self.profile.clone())]
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(&["btrfs", "loop"])
    }
    fn leave(&mut self) -> Result<(), LabError> {
        if let Some(mount) = &mut self.mount {
            mount.leave()?;
        }
        if !std::mem::replace(&mut self.made, false) {
            return Ok(());
        }
        // Members are told that they belong to nothing any more, so that the next array may have them.
        let _ = outside::run(
            outside::command("btrfs")
                .args(["device", "scan", "--forget"])
                .args(&self.members),
        );
        for m in &self.members {
            erase(m).map_err(|e| {
                LabError::Failed(format!("{} keeps its superblock: {e}", m.display()))
            })?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            eprintln!("fathom: {e}");
        }
    }
}

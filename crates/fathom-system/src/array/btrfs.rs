//! Arrays of btrfs, made by mkfs.btrfs and mounted in a directory of their own.
//!
//! Its RAID 1 keeps two copies whatever the number of members. Data are written in place (nodatacow), as for images
//! and databases. The cleanup process unmounts it where fathom is killed.

use std::fs::File;
use std::path::Path;

use fathom_io::Target;
use fathom_sim::raid::Level;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::members::{self, Members, Part};
use super::{Array, ArrayMaker, Shape};
use crate::SystemError;
use crate::erase;
use crate::filesystem::{FileSystem, Mount};
use crate::kernel_threads;
use crate::programs;

/// Its name, as mount and the kernel know it.
const KIND: &str = "btrfs";
/// mkfs.btrfs refuses smaller devices.
const MEMBER_MIN: Bytes = Bytes::mib(128);
/// Of what the file system could hold, so much is used: it needs room to write elsewhere.
const USED: f64 = 0.5;

pub(crate) struct BtrfsArrays {
    members: Members,
}

/// Whether btrfs can be used here.
///
/// # Errors
/// What is missing, and what to do.
pub(crate) fn available() -> Result<(), SystemError> {
    FileSystem::named(KIND).map_or(Ok(()), FileSystem::available)
}

impl BtrfsArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where the members are too small for it.
    pub(crate) fn new(members: Members) -> Result<Self, SystemError> {
        members.at_least(MEMBER_MIN, KIND)?;
        Ok(Self { members })
    }
}

impl ArrayMaker for BtrfsArrays {
    fn shared_disk(&self) -> Option<&str> {
        self.members.shared()
    }

    fn about(&self) -> String {
        format!(
            "btrfs over {}; its RAID 1 keeps two copies whatever the number of members; data are written in place (nodatacow)",
            self.members.about()
        )
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        self.members.lack(shape)
    }
    /// A file system on one member: the same code, without an array.
    fn member(&mut self) -> Result<Box<dyn Array>, SystemError> {
        let alone = Mounted::make(self, "single", 1, 1.0)?;
        Ok(Box::new(alone))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, SystemError> {
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
}

/// A mounted array.
struct Mounted {
    profile: String,
    members: Vec<Part>,
    /// Its directory is there from the start, and with it who watches over the members.
    mount: Mount,
    /// Whether members may carry superblocks of it.
    made: bool,
    /// Bytes of the scratch file that jobs run on.
    size: u64,
}

impl Mounted {
    fn make(
        backend: &BtrfsArrays,
        profile: &str,
        count: u32,
        data: f64,
    ) -> Result<Self, SystemError> {
        let failed = |what: &str, why: String| {
            SystemError::Failed(format!("btrfs {profile}: {what}: {why}"))
        };
        let members = backend.members.given(count)?;
        // All are free at the same time: mkfs would notice at the last one after it has written the first.
        let claim = |m: &Part| {
            erase::claim(&m.path).map_err(|e| failed(&m.path.display().to_string(), e.to_string()))
        };
        let claims: Result<Vec<File>, SystemError> = members.iter().map(claim).collect();
        drop(claims?);
        let stay = members.iter().filter(|m| m.stays);
        let stay: Vec<&Path> = stay.map(|m| m.path.as_path()).collect();
        let mount = Mount::prepare(&stay).map_err(|e| failed("mount", e.to_string()))?;
        // From here on dropping it takes apart what there is.
        let mut array = Self {
            profile: profile.to_owned(),
            members,
            mount,
            made: true,
            size: 0,
        };
        let nodes: Vec<&Path> = array.members.iter().map(|m| m.path.as_path()).collect();
        let metadata = if count == 1 { "single" } else { "raid1" };
        programs::run(
            programs::command("mkfs.btrfs")
                .args(["-q", "-f", "-d", profile, "-m", metadata])
                .args(&nodes),
        )
        .map_err(|e| failed("mkfs", e))?;
        // The kernel must know all members before the first of them is mounted.
        let _ = programs::run(
            programs::command("btrfs")
                .args(["device", "scan"])
                .args(&nodes),
        );
        array
            .mount
            .on(nodes[0], KIND, "noatime,nodatacow")
            .map_err(|e| failed("mount", e))?;
        let size = (backend.members.size() as f64 * data * USED) as u64 >> 20 << 20;
        array.size = size;
        Ok(array)
    }
}

impl Array for Mounted {
    fn open(&self) -> Result<Target, SystemError> {
        members::open(self.mount.dir(), None, Some(Bytes(self.size)))
    }
    fn directory(&self) -> Option<&Path> {
        Some(self.mount.dir())
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![("data profile".into(), self.profile.clone())]
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(&["btrfs", "loop"])
    }
    fn close(mut self: Box<Self>) -> Result<(), SystemError> {
        self.leave()
    }
}

impl Mounted {
    /// Takes it apart; doing it twice does nothing.
    fn leave(&mut self) -> Result<(), SystemError> {
        self.mount.unmount()?;
        if self.made {
            // Members are told that they belong to nothing any more, so that the next array may have them.
            let _ = programs::run(
                programs::command("btrfs")
                    .args(["device", "scan", "--forget"])
                    .args(self.members.iter().map(|m| &m.path)),
            );
            members::erase_all(&self.members)?;
            self.made = false;
        }
        // Only now: until then somebody watched over them.
        self.mount.leave()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            say!("fathom: {e}");
            self.mount.give_up();
        }
    }
}

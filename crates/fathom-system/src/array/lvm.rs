//! Arrays that LVM makes: a volume group of the members' own, one logical volume in it, by the distribution's tools.
//!
//! The group is called `fathom_<pid>`; no other device is looked at, no configuration is read, no backup is written.
//! Measured whole. The cleanup process removes the mappings and erases the labels where fathom is killed.

use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_io::Control;
use fathom_sim::raid::Level;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::members::{self, Members, Part};
use super::{Array, ArrayMaker, Shape, Traffic};
use super::{dm, labels, md};
use crate::SystemError;
use crate::cleanup::{Cleanup, Undo};
use crate::packages;
use crate::{kernel_threads, mapper, programs};

/// Its only volume.
pub(crate) const VOLUME: &str = "array";
/// What follows in the names of what the volume is made of, and then the member's number.
pub(crate) const PIECES: [&str; 2] = ["_rimage_", "_rmeta_"];
/// Extents, at least: a member of 16 MiB has some left after LVM's own megabyte. A chunk must not be larger.
const EXTENT: Bytes = Bytes::mib(1);

pub(crate) struct LvmArrays {
    members: Members,
    control: Control,
}

/// LVM's program.
///
/// # Errors
/// Where it is missing, with how to get it.
pub fn program() -> Result<PathBuf, SystemError> {
    programs::find("lvm").ok_or_else(|| SystemError::Missing {
        what: "LVM's tools are not installed".into(),
        remedy: packages::install("lvm2"),
    })
}

/// Whether this kernel and this machine can make volumes.
///
/// # Errors
/// What is missing, and what to do.
pub(crate) fn available() -> Result<(), SystemError> {
    dm::available("guest-lvm")?;
    program().map(|_| ())
}

impl LvmArrays {
    /// Over members that the safety rules allow.
    pub(crate) fn new(members: Members, control: Control) -> Self {
        Self { members, control }
    }
}

impl ArrayMaker for LvmArrays {
    fn shared_disk(&self) -> Option<&str> {
        self.members.shared()
    }

    fn about(&self) -> String {
        let version = program()
            .map(|p| programs::first_line(&p, &["version"]))
            .unwrap_or_default();
        format!(
            "LVM ({}) over {}",
            version.trim_start_matches("LVM version:").trim(),
            self.members.about()
        )
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        if shape.level == Level::Raid6 && shape.members < 5 {
            // lvmraid(7): three stripes and two parities.
            return Some("LVM makes RAID 6 of 5 members or more: use md".into());
        }
        self.members.lack(shape)
    }
    fn member(&mut self) -> Result<Box<dyn Array>, SystemError> {
        self.members.first()
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, SystemError> {
        let parts = self.members.given(shape.members)?;
        let array = LvmArray::make(shape, parts, self.members.size(), &self.control)?;
        Ok(Box::new(array))
    }
}

/// What LVM is told of itself: these devices and no others, no daemons, no files of its own.
fn configuration<'a>(members: impl Iterator<Item = &'a Path>) -> String {
    let accepted: Vec<String> = members
        .map(|m| format!("\"a|^{}$|\"", m.display()))
        .collect();
    format!(
        "devices {{ filter=[{}, \"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source=\"none\" hints=\"none\" }} \
         global {{ use_lvmpolld=0 use_lvmlockd=0 event_activation=0 }} \
         activation {{ udev_sync=0 udev_rules=0 verify_udev_operations=1 monitoring=0 }} \
         backup {{ backup=0 archive=0 }}",
        accepted.join(", ")
    )
}

/// Arguments of lvcreate for a level.
fn volume(shape: &Shape) -> Vec<String> {
    let n = shape.members;
    let chunk = format!("{}k", shape.chunk.0 / 1024);
    let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let stripes = |n: u32| {
        vec![
            "-i".to_owned(),
            n.to_string(),
            "-I".to_owned(),
            chunk.clone(),
        ]
    };
    let (mut all, more) = match shape.level {
        Level::Raid0 => (words(&["--type", "striped"]), stripes(n)),
        // Nothing is synchronised where LVM can leave it: fathom fills the array itself.
        Level::Raid1 => {
            let mirrors = vec!["-m".to_owned(), (n - 1).to_string()];
            (words(&["--type", "raid1", "--nosync"]), mirrors)
        }
        Level::Raid5 => (words(&["--type", "raid5", "--nosync"]), stripes(n - 1)),
        Level::Raid6 => (words(&["--type", "raid6"]), stripes(n - 2)),
        Level::Raid10 => (
            words(&["--type", "raid10", "-m", "1", "--nosync"]),
            stripes(n / 2),
        ),
    };
    all.extend(more);
    all
}

struct LvmArray {
    group: String,
    shape: Shape,
    node: PathBuf,
    parts: Vec<Part>,
    cleanup: Option<Cleanup>,
}

impl LvmArray {
    /// `bytes` of each member are used.
    fn make(
        shape: &Shape,
        parts: Vec<Part>,
        bytes: u64,
        control: &Control,
    ) -> Result<Self, SystemError> {
        let group = format!("{}{}", labels::PREFIX, std::process::id());
        let failed = |what: &str, why: String| {
            SystemError::Failed(format!("LVM did not {what} for {}: {why}", shape.title()))
        };
        let names = mappings(&group, parts.len());
        mapper::free(&names)?;
        let mut undo: Vec<Undo> = names.iter().map(|n| Undo::mapping(n)).collect();
        let stay = parts.iter().filter(|p| p.stays);
        undo.extend(stay.map(|p| Undo::blank(&p.path)));
        let cleanup =
            Cleanup::watch(&undo).map_err(|e| failed("get a cleanup process", e.to_string()))?;
        let mut array = Self {
            group,
            shape: *shape,
            node: PathBuf::new(),
            parts,
            cleanup: Some(cleanup),
        };
        // From here on dropping it takes apart what there is.
        let size = format!("{}b", bytes / (1 << 20) * (1 << 20));
        let members: Vec<&str> = array.parts.iter().filter_map(|p| p.path.to_str()).collect();
        let [pv, vg, lv] = ["pvcreate", "vgcreate", "lvcreate"];
        array
            .lvm(pv, &["-ff", "--setphysicalvolumesize", &size], &members)
            .map_err(|e| failed("label its members", e))?;
        let named = [&[array.group.as_str()], &members[..]].concat();
        let extent = format!("{}b", shape.chunk.max(EXTENT).0);
        array
            .lvm(vg, &["--addtag", labels::TAG, "-s", &extent], &named)
            .map_err(|e| failed("make a group", e))?;
        let arguments = volume(shape);
        let words: Vec<&str> = ["-Wn", "-Zn", "-n", VOLUME, "-l", "100%FREE"]
            .into_iter()
            .chain(arguments.iter().map(String::as_str))
            .collect();
        array
            .lvm(lv, &words, &[&array.group])
            .map_err(|e| failed("make a volume", e))?;
        let mapping = array.mapping();
        if shape.level != Level::Raid0 {
            dm::synchronised(&mapping, control)?;
        }
        array.node = mapper::node(&mapping).map_err(|e| failed("make a node", e.to_string()))?;
        md::wait_for(&array.node).map_err(|e| failed("make a node", e.to_string()))?;
        Ok(array)
    }

    /// The device mapper's name of the volume.
    fn mapping(&self) -> String {
        format!("{}-{VOLUME}", self.group)
    }

    fn lvm(&self, what: &str, options: &[&str], names: &[&str]) -> Result<(), String> {
        let program = program().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command
            .env("LVM_SYSTEM_DIR", "")
            .env("LVM_SUPPRESS_FD_WARNINGS", "1")
            .args([what, "-y", "--config"])
            .arg(configuration(self.parts.iter().map(|p| p.path.as_path())))
            .args(options)
            .args(names);
        programs::run(&mut command)
    }

    fn remove(&mut self) -> Result<(), SystemError> {
        if self.cleanup.is_none() {
            return Ok(());
        }
        let remove = || match self.lvm("vgremove", &["-ff"], &[&self.group]) {
            Err(e) if mapper::node(&self.mapping()).is_ok() => Err(e),
            // What was never made is not there: only a mapping that stays is a reason to try again.
            _ => Ok(()),
        };
        crate::retry::patiently(2, |_| true, remove).map_err(|e| {
            SystemError::Failed(format!(
                "the volume group {0} could not be removed ({e}): vgremove {0}",
                self.group
            ))
        })?;
        members::erase_all(&self.parts)?;
        self.cleanup = None;
        Ok(())
    }
}

/// The device mapper's names of the volume, and then of what it is made of.
fn mappings(group: &str, members: usize) -> Vec<String> {
    let volume = format!("{group}-{VOLUME}");
    let mut all = vec![volume.clone()];
    for piece in PIECES {
        all.extend((0..members).map(|i| format!("{volume}{piece}{i}")));
    }
    all
}

impl Drop for LvmArray {
    fn drop(&mut self) {
        if let Err(e) = self.remove() {
            say!("fathom: {e}");
            Cleanup::try_again(self.cleanup.take());
        }
    }
}

impl Array for LvmArray {
    fn traffic(&self) -> Option<Traffic> {
        Some(members::traffic(&self.node, &self.parts))
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(dm::THREADS)
    }
    fn settings(&self) -> Vec<(String, String)> {
        let status = mapper::status(&self.mapping()).unwrap_or_default();
        vec![
            ("chunk".to_owned(), Bytes(self.shape.chunk.0).to_string()),
            ("lvcreate".to_owned(), volume(&self.shape).join(" ")),
            ("status".to_owned(), status),
        ]
    }
    fn device(&self) -> Option<&Path> {
        Some(&self.node)
    }
    fn close(mut self: Box<Self>) -> Result<(), SystemError> {
        self.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(level: u32, members: u32) -> String {
        let shape = Shape {
            level: Level::from_number(level).unwrap(),
            members,
            chunk: Bytes::kib(64),
        };
        volume(&shape).join(" ")
    }

    #[test]
    fn volumes_have_as_many_data_stripes_as_their_level() {
        assert_eq!(of(0, 4), "--type striped -i 4 -I 64k");
        assert_eq!(of(1, 3), "--type raid1 --nosync -m 2");
        assert_eq!(of(5, 4), "--type raid5 --nosync -i 3 -I 64k");
        assert_eq!(of(6, 6), "--type raid6 -i 4 -I 64k");
        assert_eq!(of(10, 6), "--type raid10 -m 1 --nosync -i 3 -I 64k");
    }

    #[test]
    fn no_other_device_is_looked_at() {
        let members = ["/dev/loop1", "/dev/loop2"].map(Path::new);
        let text = configuration(members.into_iter());
        assert!(
            text.contains("filter=[\"a|^/dev/loop1$|\", \"a|^/dev/loop2$|\", \"r|.*|\"]"),
            "{text}"
        );
        assert!(text.contains("use_devicesfile=0"), "{text}");
    }
}

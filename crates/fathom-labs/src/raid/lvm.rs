//! Arrays that LVM makes: a volume group of the members' own, one logical volume in it, by the distribution's tools.
//!
//! The group is called `fathom_<pid>`; no other device is looked at, no configuration is read, no backup is written.
//! Measured whole. A keeper removes the mappings and erases the labels where fathom is killed.

use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_experiments::{Bench, RealBench};
use fathom_io::Control;
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Flag, Nanos};

use super::backend::{Array, Backend, Shape, Traffic};
use super::members::{Member, Members, moved};
use super::{dm, md};
use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::{kernel_threads, mapper, outside, remains};

/// Its only volume.
const VOLUME: &str = "array";
/// Extents, at least: a member of 16 MiB has some left after LVM's own megabyte. A chunk must not be larger.
const EXTENT: Bytes = Bytes::mib(1);

/// See the module.
pub struct LvmArrays {
    members: Members,
    control: Control,
}

/// LVM's program.
///
/// # Errors
/// Where it is missing, with how to get it.
pub fn program() -> Result<PathBuf, LabError> {
    outside::find("lvm").ok_or_else(|| LabError::Missing {
        what: "LVM's tools are not installed".into(),
        remedy: "install them: apt-get install lvm2".into(),
    })
}

/// Whether this kernel and this machine can make volumes.
///
/// # Errors
/// What is missing, and what to do.
pub fn available() -> Result<(), LabError> {
    dm::available("guest-lvm")?;
    program().map(|_| ())
}

impl LvmArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where LVM or its driver is missing.
    pub fn new(members: Members, control: Control) -> Result<Self, LabError> {
        available()?;
        remains::clear();
        Ok(Self { members, control })
    }
}

impl Backend for LvmArrays {
    fn name(&self) -> &'static str {
        "lvm"
    }
    fn about(&self) -> String {
        let version = program()
            .map(|p| outside::first_line(&p, &["version"]))
            .unwrap_or_default();
        format!(
            "LVM ({}) over {}",
            version.trim_start_matches("LVM version:").trim(),
            self.members.about()
        )
    }
    fn members(&self) -> u32 {
        self.members.all().len() as u32
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        let there = self.members();
        if shape.level == Level::Raid6 && shape.members < 5 {
            // lvmraid(7): three stripes and two parities.
            return Some("LVM makes RAID 6 of 5 members or more: use md".into());
        }
        (shape.members > there)
            .then(|| format!("it needs {} members, {there} are there", shape.members))
    }
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        let Some(first) = self.members.all().first() else {
            return Err(LabError::Refused("no member was named".into()));
        };
        let bench = md::open(first.path(), first.destroy(), &self.control)?;
        Ok(Box::new(bench))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, LabError> {
        let used = &self.members.all()[..shape.members as usize];
        for m in used {
            self.members.check(m)?;
        }
        let array = LvmArray::make(shape, used, self.members.size(), &self.control)?;
        Ok(Box::new(array))
    }
    fn stamps(&self) -> Vec<Flag> {
        Vec::new()
    }
}

/// What LVM is told of itself: these devices and no others, no daemons, no files of its own.
fn configuration(members: &[PathBuf]) -> String {
    let accepted: Vec<String> = members
        .iter()
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
    parts: Vec<PathBuf>,
    /// Dropped first: it holds the volume open.
    bench: Option<RealBench>,
    keeper: Option<Keeper>,
}

impl LvmArray {
    fn make(
        shape: &Shape,
        members: &[Member],
        bytes: u64,
        control: &Control,
    ) -> Result<Self, LabError> {
        let parts: Vec<PathBuf> = members.iter().map(|m| m.path().to_owned()).collect();
        let group = format!("fathom_{}", std::process::id());
        let failed = |what: &str, why: String| {
            LabError::Failed(format!("LVM did not {what} for {}: {why}", shape.title()))
        };
        let stay: Vec<bool> = members.iter().map(Member::stays).collect();
        let keeper = Keeper::watch(&undo(&group, &parts, &stay))
            .map_err(|e| failed("get a keeper", e.to_string()))?;
        let mut array = Self {
            group,
            shape: *shape,
            node: PathBuf::new(),
            parts,
            bench: None,
            keeper: Some(keeper),
        };
        // From here on dropping it takes apart what there is.
        let size = format!("{}b", bytes / (1 << 20) * (1 << 20));
        let members: Vec<&str> = array.parts.iter().filter_map(|p| p.to_str()).collect();
        let [pv, vg, lv] = ["pvcreate", "vgcreate", "lvcreate"];
        array
            .lvm(pv, &["-ff", "--setphysicalvolumesize", &size], &members)
            .map_err(|e| failed("label its members", e))?;
        let named = [&[array.group.as_str()], &members[..]].concat();
        let extent = format!("{}b", shape.chunk.max(EXTENT).0);
        array
            .lvm(vg, &["-s", &extent], &named)
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
        let path = array.node.display().to_string();
        array.bench = Some(md::open(&array.node, Some(&path), control)?);
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
            .arg(configuration(&self.parts))
            .args(options)
            .args(names);
        outside::run(&mut command)
    }

    fn remove(&mut self) -> Result<(), LabError> {
        self.bench = None;
        if self.keeper.is_none() {
            return Ok(());
        }
        let mut last = Ok(());
        for _ in 0..20 {
            last = self.lvm("vgremove", &["-ff"], &[&self.group]);
            // What was never made is not there: only a mapping that stays is a reason to try again.
            if last.is_ok() || mapper::node(&self.mapping()).is_err() {
                last = Ok(());
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        last.map_err(|e| {
            LabError::Failed(format!(
                "the volume group {} could not be removed ({e}): vgremove {}",
                self.group, self.group
            ))
        })?;
        for part in &self.parts {
            blank(part).map_err(|e| {
                LabError::Failed(format!("{} keeps LVM's label: {e}", part.display()))
            })?;
        }
        self.keeper = None;
        Ok(())
    }
}

/// Erases the label, which lies in the first sectors.
fn blank(member: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let device = std::fs::OpenOptions::new().write(true).open(member)?;
    device.write_all_at(&[0; 64 << 10], 0)?;
    device.sync_all()
}

/// The volume first, then what it was made of, then the labels of those members that stay.
fn undo(group: &str, members: &[PathBuf], stay: &[bool]) -> Vec<Undo> {
    let mut all = vec![Undo::mapping(&format!("{group}-{VOLUME}"))];
    for part in ["rimage", "rmeta"] {
        all.extend(
            (0..members.len()).map(|i| Undo::mapping(&format!("{group}-{VOLUME}_{part}_{i}"))),
        );
    }
    let labelled = members.iter().zip(stay).filter(|m| *m.1);
    all.extend(labelled.map(|m| Undo::blank(m.0)));
    all
}

impl Drop for LvmArray {
    fn drop(&mut self) {
        if let Err(e) = self.remove() {
            eprintln!("fathom: {e}");
        }
    }
}

impl Array for LvmArray {
    fn bench(&mut self) -> &mut dyn Bench {
        self.bench.as_mut().map_or_else(
            || unreachable!("the bench lives as long as the array"),
            |b| b as &mut dyn Bench,
        )
    }
    fn traffic(&self) -> Option<Traffic> {
        let members = self.parts.iter().map(|p| moved(p));
        Some(Traffic {
            asked: moved(&self.node),
            members: members.fold([0; 2], |a, m| [a[0] + m[0], a[1] + m[1]]),
        })
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(dm::THREADS)
    }
    fn handed_over(&mut self) -> Result<Option<PathBuf>, LabError> {
        if let Some(bench) = self.bench.take() {
            Box::new(bench).close()?;
        }
        Ok(Some(self.node.clone()))
    }
    fn settings(&self) -> Vec<(String, String)> {
        let status = mapper::status(&self.mapping()).unwrap_or_default();
        vec![
            ("chunk".to_owned(), Bytes(self.shape.chunk.0).to_string()),
            ("lvcreate".to_owned(), volume(&self.shape).join(" ")),
            ("status".to_owned(), status),
        ]
    }
    fn set(&mut self, _name: &str, _value: &str) -> Result<bool, LabError> {
        Ok(false)
    }
    fn device(&self) -> Option<&Path> {
        Some(&self.node)
    }
    fn states(&self) -> bool {
        false
    }
    fn lose(&mut self, _member: u32) -> Result<(), LabError> {
        Err(LabError::Refused(
            "LVM's arrays are measured whole only".into(),
        ))
    }
    fn rebuild(&mut self) -> Result<(), LabError> {
        Err(LabError::Refused(
            "LVM's arrays are measured whole only".into(),
        ))
    }
    fn rebuilt(&mut self) -> Option<f64> {
        None
    }
    fn close(mut self: Box<Self>) -> Result<(), LabError> {
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
        let text = configuration(&["/dev/loop1".into(), "/dev/loop2".into()]);
        assert!(
            text.contains("filter=[\"a|^/dev/loop1$|\", \"a|^/dev/loop2$|\", \"r|.*|\"]"),
            "{text}"
        );
        assert!(text.contains("use_devicesfile=0"), "{text}");
    }
}

//! Arrays of btrfs, made by mkfs.btrfs and mounted in a directory of their own.
//!
//! Its RAID 1 keeps two copies whatever the number of members. Data are written in place (nodatacow), as for images
//! and databases. A keeper unmounts it where fathom is killed.

use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_experiments::{Bench, BenchError, RealBench};
use fathom_io::{Control, Target, Wanted};
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Flag, Nanos};

use super::backend::{Array, Backend, Shape, Traffic};
use super::members::Members;
use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::kernel_threads;
use crate::outside;

/// mkfs.btrfs refuses smaller devices.
const MEMBER_MIN: Bytes = Bytes::mib(128);
/// Of what the file system could hold, so much is used: it needs room to write elsewhere.
const USED: f64 = 0.5;

/// See the module.
pub struct BtrfsArrays {
    members: Members,
    control: Control,
    made: u32,
}

/// Whether btrfs can be used here.
///
/// # Errors
/// What is missing, and what to do.
pub fn available() -> Result<(), LabError> {
    if outside::run(Command::new("mkfs.btrfs").arg("--version")).is_err() {
        return Err(LabError::Missing {
            what: "mkfs.btrfs is not installed".into(),
            remedy: "install it: apt-get install btrfs-progs".into(),
        });
    }
    let known = || fs::read_to_string("/proc/filesystems").is_ok_and(|f| f.contains("btrfs"));
    if !known() {
        outside::load_module("btrfs");
    }
    if known() {
        return Ok(());
    }
    Err(LabError::Missing {
        what: "this kernel has no btrfs".into(),
        remedy: "load it: modprobe btrfs".into(),
    })
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
        Ok(Self {
            members,
            control,
            made: 0,
        })
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
fn erase(member: &Path) -> std::io::Result<()> {
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

/// A mounted array with a scratch file in it.
struct Mounted {
    profile: String,
    dir: PathBuf,
    members: Vec<PathBuf>,
    mounted: bool,
    /// Dropped before the mount: it holds a file in it.
    bench: Option<RealBench>,
    keeper: Option<Keeper>,
}

impl Mounted {
    fn make(
        backend: &mut BtrfsArrays,
        profile: &str,
        count: u32,
        data: f64,
    ) -> Result<Self, LabError> {
        let used = &backend.members.all()[..count as usize];
        for m in used {
            backend.members.check(m)?;
        }
        backend.made += 1;
        let dir = std::env::temp_dir().join(format!(
            "fathom-btrfs-{}-{}",
            std::process::id(),
            backend.made
        ));
        let failed =
            |what: &str, why: String| LabError::Failed(format!("btrfs {profile}: {what}: {why}"));
        let mut array = Self {
            profile: profile.to_owned(),
            dir: dir.clone(),
            members: used.iter().map(|m| m.path().to_owned()).collect(),
            mounted: false,
            bench: None,
            keeper: None,
        };
        let metadata = if count == 1 { "single" } else { "raid1" };
        outside::run(
            Command::new("mkfs.btrfs")
                .args(["-q", "-f", "-d", profile, "-m", metadata])
                .args(&array.members),
        )
        .map_err(|e| failed("mkfs", e))?;
        // The kernel must know all members before the first of them is mounted.
        let _ = outside::run(
            Command::new("btrfs")
                .args(["device", "scan"])
                .args(&array.members),
        );
        array.keeper =
            Some(Keeper::watch(&[Undo::mount(&dir)]).map_err(|e| failed("keeper", e.to_string()))?);
        fs::create_dir_all(&dir).map_err(|e| failed("mount point", e.to_string()))?;
        outside::run(
            Command::new("mount")
                .args(["-t", "btrfs", "-o", "noatime,nodatacow"])
                .arg(&array.members[0])
                .arg(&dir),
        )
        .map_err(|e| failed("mount", e))?;
        array.mounted = true;
        let size = (backend.members.size() as f64 * data * USED) as u64 >> 20 << 20;
        let wanted = Wanted {
            modifies: true,
            direct: true,
            buffered: true,
            polled: false,
            size: Some(Bytes(size)),
            destroy: None,
        };
        let target = Target::open(&dir.display().to_string(), &wanted).map_err(BenchError::from)?;
        array.bench = Some(RealBench::new(target, backend.control.clone()));
        Ok(array)
    }

    fn bench_mut(&mut self) -> &mut RealBench {
        self.bench
            .as_mut()
            .unwrap_or_else(|| unreachable!("the bench lives as long as the mount"))
    }

    fn take_apart(&mut self) -> Result<(), LabError> {
        if let Some(bench) = self.bench.take() {
            Box::new(bench).close()?;
        }
        if self.mounted {
            let mut last = Ok(());
            for _ in 0..50 {
                last = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::empty());
                if last.is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            last.map_err(|e| {
                LabError::Failed(format!(
                    "{} could not be unmounted: {e}; umount {}",
                    self.dir.display(),
                    self.dir.display()
                ))
            })?;
            self.mounted = false;
        }
        // It was made for this mount; where it is not there the mount never was.
        let _ = fs::remove_dir(&self.dir);
        // Members are told that they belong to nothing any more, so that the next array may have them.
        let _ = outside::run(
            Command::new("btrfs")
                .args(["device", "scan", "--forget"])
                .args(&self.members),
        );
        for m in &self.members {
            erase(m).map_err(|e| {
                LabError::Failed(format!("{} keeps its superblock: {e}", m.display()))
            })?;
        }
        self.keeper = None;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.take_apart() {
            eprintln!("fathom: {e}");
        }
    }
}

impl Array for Mounted {
    fn bench(&mut self) -> &mut dyn Bench {
        self.bench_mut()
    }
    fn traffic(&self) -> Option<Traffic> {
        // What is asked of a file system is not counted by the kernel.
        None
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(&["btrfs", "loop"])
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![("data profile".into(), self.profile.clone())]
    }
    fn set(&mut self, _name: &str, _value: &str) -> Result<bool, LabError> {
        Ok(false)
    }
    fn device(&self) -> Option<&Path> {
        None
    }
    fn states(&self) -> bool {
        false
    }
    fn lose(&mut self, _member: u32) -> Result<(), LabError> {
        Err(LabError::Refused("btrfs is measured whole only".into()))
    }
    fn rebuild(&mut self) -> Result<(), LabError> {
        Err(LabError::Refused("btrfs is measured whole only".into()))
    }
    fn rebuilt(&mut self) -> Option<f64> {
        None
    }
    fn close(mut self: Box<Self>) -> Result<(), LabError> {
        self.take_apart()
    }
}

/// One member under the same file system.
struct Alone(Mounted);

impl Bench for Alone {
    fn limits(&self) -> fathom_io::job::Limits {
        self.0.bench.as_ref().map_or(
            fathom_io::job::Limits {
                size: 0,
                direct_align: 512,
            },
            Bench::limits,
        )
    }
    fn describe(&self) -> fathom_telemetry::schema::Target {
        self.0.bench.as_ref().map_or_else(
            || unreachable!("the bench lives as long as the mount"),
            Bench::describe,
        )
    }
    fn simulated(&self) -> bool {
        false
    }
    fn interrupted(&self) -> bool {
        self.0.bench.as_ref().is_some_and(Bench::interrupted)
    }
    fn real(&mut self) -> Option<&mut RealBench> {
        self.0.bench.as_mut()
    }
    fn fills(&self) -> Bytes {
        self.0.bench.as_ref().map_or(Bytes(0), Bench::fills)
    }
    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.0
            .take_apart()
            .map_err(|e| BenchError::Outside(e.to_string()))
    }
    fn prepare(
        &mut self,
        observer: &mut dyn fathom_io::Observer,
    ) -> Result<Option<fathom_telemetry::schema::Job>, BenchError> {
        self.0.bench_mut().prepare(observer)
    }
    fn run(
        &mut self,
        jobs: &[fathom_io::driver::PlannedJob],
        log: fathom_experiments::bench::LogMaker<'_>,
        observer: &mut dyn fathom_io::Observer,
    ) -> Result<Vec<fathom_telemetry::schema::Job>, BenchError> {
        self.0.bench_mut().run(jobs, log, observer)
    }
}

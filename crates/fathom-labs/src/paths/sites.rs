//! Where the job is sent: the target itself, and on a directory fathom's own loop device and file systems beside it.
//!
//! All of its own lies in one directory that goes with the run and is found by `fathom clean` after a kill; a keeper
//! unmounts where fathom is killed, loop devices go with their last user.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_experiments::{Bench, BenchError, RealBench};
use fathom_host::Loop;
use fathom_io::{Control, Target, Wanted};
use fathom_telemetry::Bytes;

use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::outside;
use crate::place::Workplace;

/// A file system that fathom makes: its name, the arguments of its mkfs for silence.
const FILE_SYSTEMS: [(&str, &[&str]); 3] = [
    ("ext4", &["-q", "-F"]),
    ("xfs", &["-q", "-f"]),
    ("btrfs", &["-q", "-f"]),
];

/// Names of [`FILE_SYSTEMS`].
pub fn file_systems() -> Vec<&'static str> {
    FILE_SYSTEMS.iter().map(|f| f.0).collect()
}

/// A place that can be measured.
pub(super) struct Site {
    /// `ext4 on a loop device`.
    pub(super) name: String,
    /// Sites of one group have the same device below.
    pub(super) group: usize,
    /// `None` is the target itself.
    pub(super) bench: Option<RealBench>,
    /// Its bytes have to be written before reads of them say anything.
    pub(super) blank: bool,
    mounted: Option<Mounted>,
    _device: Option<Loop>,
}

impl Site {
    /// The target.
    pub(super) fn given(name: String) -> Self {
        Self {
            name,
            group: 0,
            bench: None,
            blank: false,
            mounted: None,
            _device: None,
        }
    }

    /// Closes it in the right order: file, mount, device.
    pub(super) fn close(mut self) -> Result<(), LabError> {
        let closed = match self.bench.take() {
            Some(b) => Box::new(b).close(),
            None => Ok(()),
        };
        if let Some(mut m) = self.mounted.take() {
            m.unmount()?;
        }
        Ok(closed?)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The scratch file lies in the mount.
        self.bench = None;
        self.mounted = None;
    }
}

/// A mount, undone by a keeper where fathom is killed.
struct Mounted {
    dir: PathBuf,
    mounted: bool,
    _keeper: Keeper,
}

impl Mounted {
    fn mount(kind: &str, device: &Path, dir: PathBuf) -> Result<Self, LabError> {
        let failed = |what: &str, why: String| LabError::Failed(format!("{kind}: {what}: {why}"));
        fs::create_dir(&dir).map_err(|e| failed("mount point", e.to_string()))?;
        let keeper =
            Keeper::watch(&[Undo::mount(&dir)]).map_err(|e| failed("keeper", e.to_string()))?;
        let mut made = Self {
            dir,
            mounted: false,
            _keeper: keeper,
        };
        outside::run(
            Command::new("mount")
                .args(["-t", kind, "-o", "noatime"])
                .arg(device)
                .arg(&made.dir),
        )
        .map_err(|e| failed("mount", e))?;
        made.mounted = true;
        Ok(made)
    }

    fn unmount(&mut self) -> Result<(), LabError> {
        if !self.mounted {
            return Ok(());
        }
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
        let _ = fs::remove_dir(&self.dir);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.unmount() {
            eprintln!("fathom: {e}");
        }
    }
}

/// What a file system needs beside `bytes` of a file: its own tables, and free room. xfs is not made below 300 MB.
fn image_bytes(kind: Option<&str>, bytes: u64) -> u64 {
    match kind {
        None => bytes,
        Some(_) => (bytes + bytes / 4 + (128 << 20)).max(400 << 20),
    }
}

/// Bytes of all images.
pub(super) fn room(own: &[String], bytes: u64) -> u64 {
    if own.is_empty() {
        return 0;
    }
    let of = |k: &String| image_bytes(Some(k), bytes);
    own.iter().map(of).sum::<u64>() + image_bytes(None, bytes)
}

/// Why nothing of fathom's own can be made here.
pub(super) fn unable() -> Option<(&'static str, &'static str)> {
    if !outside::is_root() {
        return Some((
            "loop devices and mounts need root",
            "run as root, or leave them out with --make none",
        ));
    }
    if !Path::new("/dev/loop-control").exists() {
        outside::load_module("loop");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some((
            "this kernel has no loop devices",
            "load them: modprobe loop",
        ));
    }
    None
}

/// Makes a site in `place`: a loop device (`kind` none) or a file system on one, with `bytes` to be used.
///
/// # Errors
/// Where a program or the kernel lacks something, or there is no room.
pub(super) fn make(
    place: &Workplace,
    kind: Option<&str>,
    bytes: u64,
    control: &Control,
) -> Result<Site, LabError> {
    let name = kind.unwrap_or("raw");
    let failed = |what: &str, why: String| LabError::Failed(format!("{name}: {what}: {why}"));
    if let Some(kind) = kind {
        can_have(kind)?;
    }
    let image = place.path().join(format!("{name}.img"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&image)
        .map_err(|e| failed("image", e.to_string()))?;
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::empty(),
        0,
        image_bytes(kind, bytes),
    )
    .map_err(|e| failed("image", e.to_string()))?;
    let device = Loop::over(&file).map_err(|e| failed("loop device", e.to_string()))?;
    let node = device.path().to_owned();
    let Some(kind) = kind else {
        let wanted = Wanted {
            modifies: true,
            direct: true,
            buffered: true,
            destroy: Some(node.display().to_string()),
            ..Wanted::default()
        };
        let target =
            Target::open(&node.display().to_string(), &wanted).map_err(BenchError::from)?;
        return Ok(Site {
            name: "loop device".into(),
            group: 1,
            bench: Some(RealBench::new(target, control.clone())),
            blank: true,
            mounted: None,
            _device: Some(device),
        });
    };
    let quiet = FILE_SYSTEMS
        .iter()
        .find(|f| f.0 == kind)
        .map_or(&[][..], |f| f.1);
    outside::run(Command::new(program(kind)?).args(quiet).arg(&node))
        .map_err(|e| failed("mkfs", e))?;
    let mounted = Mounted::mount(kind, &node, place.path().join(format!("mnt-{kind}")))?;
    let wanted = Wanted {
        modifies: true,
        direct: true,
        buffered: true,
        size: Some(Bytes(bytes)),
        ..Wanted::default()
    };
    let target =
        Target::open(&mounted.dir.display().to_string(), &wanted).map_err(BenchError::from)?;
    Ok(Site {
        name: format!("{kind} on a loop device"),
        group: 1,
        bench: Some(RealBench::new(target, control.clone())),
        blank: false,
        mounted: Some(mounted),
        _device: Some(device),
    })
}

fn program(kind: &str) -> Result<PathBuf, LabError> {
    let name = format!("mkfs.{kind}");
    outside::find(&name).ok_or_else(|| {
        let package = match kind {
            "ext4" => "e2fsprogs",
            "xfs" => "xfsprogs",
            _ => "btrfs-progs",
        };
        LabError::Missing {
            what: format!("{name} is not installed"),
            remedy: format!("install it: apt-get install {package}"),
        }
    })
}

fn can_have(kind: &str) -> Result<(), LabError> {
    program(kind)?;
    let known = || {
        fs::read_to_string("/proc/filesystems")
            .is_ok_and(|f| f.lines().any(|l| l.split_whitespace().last() == Some(kind)))
    };
    if !known() {
        outside::load_module(kind);
    }
    if known() {
        return Ok(());
    }
    Err(LabError::Missing {
        what: format!("this kernel has no {kind}"),
        remedy: format!("load it: modprobe {kind}"),
    })
}

//! Where the job is sent: the target itself, and on a directory fathom's own loop device and file systems beside it.
//!
//! The images lie in one directory that goes with the run and is found by `fathom clean` after a kill; mounts undo
//! themselves where fathom is killed, loop devices go with their last user.

use std::path::Path;

use fathom_bench::{Bench, BenchError, RealBench};
use fathom_host::Loop;
use fathom_io::{Control, Target, Wanted};
use fathom_telemetry::Bytes;

use super::{SiteKind, SiteSeen};
use crate::LabError;
use fathom_system::filesystem::{FileSystem, Mount};
use fathom_system::lab_dir::LabDir;
use fathom_system::programs;

/// A place that can be measured.
pub(super) struct Site {
    /// `ext4 on a loop device`.
    pub(super) name: String,
    /// In words for who is to put files there.
    place: String,
    kind: SiteKind,
    /// Sites of one group have the same device below.
    pub(super) group: usize,
    /// `None` is the target itself.
    pub(super) bench: Option<RealBench>,
    /// Its bytes have to be written before reads of them say anything.
    pub(super) blank: bool,
    mounted: Option<Mount>,
    _device: Option<Loop>,
}

impl Site {
    /// The target.
    pub(super) fn given(name: String, kind: SiteKind) -> Self {
        Self {
            place: name.clone(),
            name,
            kind,
            group: 0,
            bench: None,
            blank: false,
            mounted: None,
            _device: None,
        }
    }

    /// What is kept of it.
    pub(super) fn seen(&self) -> SiteSeen {
        SiteSeen {
            name: self.name.clone(),
            place: self.place.clone(),
            kind: self.kind,
            group: self.group,
        }
    }

    /// Closes it in the right order: file, mount, device.
    pub(super) fn close(mut self) -> Result<(), LabError> {
        let closed = match self.bench.take() {
            Some(b) => Box::new(b).close(),
            None => Ok(()),
        };
        if let Some(mut m) = self.mounted.take() {
            m.leave()?;
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

/// What a file system needs beside `bytes` of a file: its own tables, and free room.
fn image_bytes(kind: Option<&FileSystem>, bytes: u64) -> u64 {
    kind.map_or(bytes, |fs| {
        (bytes + bytes / 4 + (128 << 20)).max(fs.least.0)
    })
}

/// Bytes of all images, the bare loop device's too.
pub(super) fn room(own: &[&FileSystem], bytes: u64) -> u64 {
    let of = |k: &&FileSystem| image_bytes(Some(k), bytes);
    own.iter().map(of).sum::<u64>() + image_bytes(None, bytes)
}

/// Why nothing of fathom's own can be made here.
pub(super) fn unable() -> Option<(&'static str, &'static str)> {
    if !programs::is_root() {
        return Some((
            "loop devices and mounts need root",
            "run as root, or leave them out with --make none",
        ));
    }
    if !Path::new("/dev/loop-control").exists() {
        programs::load_module("loop");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some((
            "this kernel has no loop devices",
            "load them: modprobe loop",
        ));
    }
    None
}

/// What such a site is called.
pub(super) fn name(kind: Option<&FileSystem>) -> String {
    kind.map_or("loop device".into(), |fs| {
        format!("{} on a loop device", fs.name)
    })
}

/// Makes a site in `place`: a loop device (`kind` none) or a file system on one, with `bytes` to be used.
///
/// # Errors
/// Where a program or the kernel lacks something, or there is no room.
pub(super) fn make(
    place: &LabDir,
    kind: Option<&FileSystem>,
    bytes: u64,
    control: &Control,
) -> Result<Site, LabError> {
    let failed =
        |what: &str, why: String| LabError::Failed(format!("{}: {what}: {why}", name(kind)));
    if let Some(fs) = kind {
        fs.available()?;
    }
    let image = kind.map_or("raw", |fs| fs.name);
    let image = place.path().join(format!("{image}.img"));
    let file = fathom_files::create::file(&image).map_err(|e| failed("image", e.to_string()))?;
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::empty(),
        0,
        image_bytes(kind, bytes),
    )
    .map_err(|e| failed("image", e.to_string()))?;
    let device = Loop::over(&file).map_err(|e| failed("loop device", e.to_string()))?;
    let node = device.path().display().to_string();
    let wanted = Wanted {
        modifies: true,
        direct: true,
        buffered: true,
        ..Wanted::default()
    };
    let (at, wanted, mounted) = match kind {
        None => {
            let destroy = Some(node.clone());
            (node, Wanted { destroy, ..wanted }, None)
        }
        Some(fs) => {
            fs.make(device.path())?;
            let mut mount = Mount::prepare(&[]).map_err(|e| failed("mount", e.to_string()))?;
            mount
                .on(device.path(), fs.name, "noatime")
                .map_err(|e| failed("mount", e))?;
            let size = Some(Bytes(bytes));
            let at = mount.dir().display().to_string();
            (at, Wanted { size, ..wanted }, Some(mount))
        }
    };
    let target = Target::open(&at, &wanted).map_err(BenchError::from)?;
    Ok(Site {
        name: name(kind),
        place: kind.map_or(String::new(), |fs| fs.name.to_owned()),
        kind: match kind {
            None => SiteKind::Device,
            Some(_) => SiteKind::Files,
        },
        group: 1,
        bench: Some(RealBench::new(target, control.clone())),
        blank: kind.is_none(),
        mounted,
        _device: Some(device),
    })
}

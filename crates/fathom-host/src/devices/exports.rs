//! Devices and files that the kernel gives to other machines: its NVMe target and its SCSI target (LIO, also below vhost),
//! as configfs shows them. Neither is a mount, a holder or a process, and the NVMe target does not even claim the device.

use std::path::{Path, PathBuf};

use crate::error::HostError;
use crate::root::{HostRoot, flag, names, text};

/// Something exported, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    /// Device or file, as it was named to the kernel.
    pub(crate) path: PathBuf,
    /// `the kernel's NVMe target (subsystem x, namespace 1)`.
    pub(crate) by: String,
    /// How to end it.
    pub(crate) remedy: String,
}

/// What each module's part of configfs is called.
const TARGETS: [(&str, &str); 2] = [("nvmet", "nvmet"), ("target_core_mod", "target")];

/// Everything that is exported now.
///
/// # Errors
/// Where a target is loaded and does not show what it exports.
pub(crate) fn exports(root: &HostRoot) -> Result<Vec<Export>, HostError> {
    let config = root.sys.join("kernel/config");
    for (module, place) in TARGETS {
        if root.sys.join("module").join(module).is_dir() && !config.join(place).is_dir() {
            let why = format!(
                "the kernel module {module} is loaded, and what it exports is not to be seen: mount -t configfs configfs /sys/kernel/config"
            );
            return Err(HostError::read(&config, std::io::Error::other(why)));
        }
    }
    let mut all = Vec::new();
    nvme(&config.join("nvmet/subsystems"), &mut all);
    scsi(&config.join("target/core"), &mut all);
    Ok(all)
}

fn nvme(subsystems: &Path, all: &mut Vec<Export>) {
    for subsystem in names(subsystems) {
        let namespaces = subsystems.join(&subsystem).join("namespaces");
        for number in names(&namespaces) {
            let dir = namespaces.join(&number);
            if let (Some(true), Some(path)) =
                (flag(&dir.join("enable")), text(&dir.join("device_path")))
            {
                all.push(Export {
                    path: path.into(),
                    by: format!(
                        "the kernel's NVMe target (subsystem {subsystem}, namespace {number})"
                    ),
                    remedy: format!("end that first: echo 0 > {}", dir.join("enable").display()),
                });
            }
        }
    }
}

fn scsi(core: &Path, all: &mut Vec<Export>) {
    for kind in names(core) {
        for name in names(&core.join(&kind)) {
            let dir = core.join(&kind).join(&name);
            if flag(&dir.join("enable")) != Some(true) {
                continue;
            }
            // What it was told, and what it says itself: `… File: /dev/vdb  Size: …`, `iBlock device: vdb …`.
            let told = text(&dir.join("udev_path"));
            let info = text(&dir.join("info")).unwrap_or_default();
            let after = |key: &str| {
                let rest = info.split_once(key)?.1;
                rest.split_whitespace().next().map(str::to_owned)
            };
            let device = after("iBlock device: ").map(|name| format!("/dev/{name}"));
            let mut paths: Vec<String> = told
                .into_iter()
                .chain(after("File: "))
                .chain(device)
                .collect();
            paths.dedup();
            all.extend(
                paths
                    .into_iter()
                    .filter(|p| p.starts_with('/'))
                    .map(|path| Export {
                        path: path.into(),
                        by: format!("the kernel's SCSI target ({kind}/{name})"),
                        remedy: format!("end that first: targetcli /backstores delete {name}"),
                    }),
            );
        }
    }
}

//! What is behind the target, and how warm things are.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::counters;
use crate::devices::graph::Graph;
use crate::devices::nvme::Nvme;
use crate::devices::{self, BlockDevice, QueueSettings};
use crate::root::{HostRoot, names, number, text};
use crate::target::FileSystem;

/// The storage behind a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// The target.
    pub path: PathBuf,
    /// File system that holds it; `None` for a block device.
    pub file_system: Option<FileSystem>,
    /// Block devices behind it, and the devices that those are made of.
    pub devices: Vec<DeviceFacts>,
    /// Why there are none, where there are none.
    pub no_device: Option<String>,
}

/// A block device, without what uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceFacts {
    /// Kernel name.
    pub name: String,
    /// Disk of which it is a partition.
    pub parent: Option<String>,
    /// Kernel names of the devices that it is made of.
    pub made_of: Vec<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest unit of I/O, bytes.
    pub logical_block_bytes: Option<u64>,
    /// Unit that is written without reading first, bytes.
    pub physical_block_bytes: Option<u64>,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// How it is attached.
    pub transport: Option<String>,
    /// Whether it says that it has spinning disks.
    pub rotational: Option<bool>,
    /// Queue settings.
    pub queue: Option<QueueSettings>,
    /// Of a namespace, what its drive says of itself.
    pub nvme: Option<Nvme>,
}

impl From<BlockDevice> for DeviceFacts {
    fn from(d: BlockDevice) -> Self {
        Self {
            name: d.name,
            parent: d.parent,
            made_of: d.made_of,
            size_bytes: d.size_bytes,
            logical_block_bytes: d.logical_block_bytes,
            physical_block_bytes: d.physical_block_bytes,
            model: d.model,
            serial: d.serial,
            firmware: d.firmware,
            transport: d.transport,
            rotational: d.rotational,
            queue: d.queue,
            nvme: d.nvme,
        }
    }
}

impl Storage {
    pub(super) fn read(root: &HostRoot, target: &Path) -> Self {
        let is_node = fs::metadata(target)
            .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_block_device(&m.file_type()));
        let (devices, no_device) = match devices_of(root, target) {
            Ok(devices) => (devices, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Self {
            path: target.to_path_buf(),
            file_system: (!is_node).then(|| FileSystem::holding(target)).flatten(),
            devices,
            no_device,
        }
    }
}

fn devices_of(root: &HostRoot, target: &Path) -> Result<Vec<DeviceFacts>, String> {
    let graph = Graph::read(root).map_err(|e| e.to_string())?;
    let behind = counters::devices_behind(root, &graph, target, 0).map_err(|e| e.to_string())?;
    let mut open: Vec<&str> = behind.iter().map(|n| n.name.as_str()).collect();
    let mut facts: Vec<DeviceFacts> = Vec::new();
    while !open.is_empty() {
        let name = open.remove(0);
        let Some(node) = graph.get(name) else {
            continue;
        };
        if facts.iter().any(|f| f.name == name) {
            continue;
        }
        open.extend(node.slaves.iter().map(String::as_str));
        facts.push(devices::facts(root, &graph, node).into());
    }
    Ok(facts)
}

/// One temperature sensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Temperature {
    /// Driver or zone: `nvme`, `drivetemp`, `coretemp`, `x86_pkg_temp`.
    pub sensor: String,
    /// What it measures, where that is said: `Composite`.
    pub label: Option<String>,
    /// Device that it sits on: `nvme0`, `0:0:0:0`.
    pub device: Option<String>,
    /// Degrees Celsius.
    pub celsius: f64,
}

impl Temperature {
    /// All sensors that can be read now.
    pub fn read_all(root: &HostRoot) -> Vec<Self> {
        let mut all = Vec::new();
        let hwmon = root.sys.join("class/hwmon");
        for dir in names(&hwmon).iter().map(|n| hwmon.join(n)) {
            let Some(sensor) = text(&dir.join("name")) else {
                continue;
            };
            let device = fs::canonicalize(dir.join("device"))
                .ok()
                .and_then(|d| Some(d.file_name()?.to_str()?.to_string()));
            for file in names(&dir) {
                let Some(stem) = file
                    .strip_suffix("_input")
                    .filter(|s| s.starts_with("temp"))
                else {
                    continue;
                };
                all.extend(millidegrees(&dir.join(&file)).map(|celsius| Self {
                    sensor: sensor.clone(),
                    label: text(&dir.join(format!("{stem}_label"))),
                    device: device.clone(),
                    celsius,
                }));
            }
        }
        let thermal = root.sys.join("class/thermal");
        for dir in names(&thermal).iter().map(|n| thermal.join(n)) {
            if let Some(sensor) = text(&dir.join("type"))
                && let Some(celsius) = millidegrees(&dir.join("temp"))
            {
                all.push(Self {
                    sensor,
                    label: None,
                    device: None,
                    celsius,
                });
            }
        }
        all
    }
}

fn millidegrees(path: &Path) -> Option<f64> {
    number::<i64>(path).map(|m| m as f64 / 1000.0)
}

//! What a device calls itself: model, serial number, firmware, transport.
//!
//! Each driver publishes this in its own place; the sources are tried from the most to the
//! least direct, and what none of them tells stays `None`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::graph::Node;
use crate::root::{HostRoot, text};

/// Names of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) transport: Option<String>,
}

/// Identity of a whole disk (a partition has that of its disk).
pub(crate) fn of(root: &HostRoot, disk: &Node) -> Identity {
    let udev = udev_data(root, disk);
    let udev = |key: &str| udev.get(key).cloned();
    let file = |name: &str| text(&disk.dir.join(name));
    Identity {
        model: model(disk).or_else(|| udev("ID_MODEL").map(|m| m.replace('_', " "))),
        serial: file("device/serial")
            .or_else(|| file("serial"))
            .or_else(|| vpd_serial(&disk.dir.join("device/vpd_pg80")))
            .or_else(|| udev("ID_SERIAL_SHORT"))
            .or_else(|| udev("ID_SERIAL")),
        firmware: file("device/firmware_rev")
            .or_else(|| file("device/fwrev"))
            .or_else(|| file("device/rev"))
            .or_else(|| udev("ID_REVISION")),
        transport: transport(disk),
    }
}

fn model(disk: &Node) -> Option<String> {
    let file = |name: &str| text(&disk.dir.join(name));
    let model = file("device/model").or_else(|| file("device/name"))?;
    match file("device/vendor") {
        // ATA disks all have the vendor "ATA"; virtio's is a PCI number.
        Some(vendor) if vendor != "ATA" && !vendor.starts_with("0x") => {
            Some(format!("{vendor} {model}"))
        }
        _ => Some(model),
    }
}

/// SCSI's unit serial number page: four bytes of header, then text.
fn vpd_serial(path: &Path) -> Option<String> {
    let page = fs::read(path).ok()?;
    let len = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let bytes = page.get(4..)?;
    let text = String::from_utf8_lossy(&bytes[..len.min(bytes.len())]);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_string())
}

fn udev_data(root: &HostRoot, disk: &Node) -> BTreeMap<String, String> {
    let path = root.run.join(format!("udev/data/b{}", disk.number));
    text(&path)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("E:")?.split_once('='))
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// How the device is attached, told from its place in the tree of devices.
fn transport(disk: &Node) -> Option<String> {
    // Of a multipath head a path says it.
    let dir = disk.paths.first().unwrap_or(&disk.dir);
    if let Some(name) = text(&dir.join("device/transport")) {
        return Some(format!("nvme ({name})"));
    }
    let path = disk.dir.to_string_lossy();
    const PLACES: &[(&str, &str)] = &[
        ("/nvme", "nvme"),
        ("/ata", "sata"),
        ("/usb", "usb"),
        ("/session", "iscsi"),
        ("/rport-", "fibre channel"),
        ("/end_device-", "sas"),
        ("/mmc_host", "mmc"),
        ("/mmc", "mmc"),
        ("/vbd-", "xen"),
        ("/vmbus", "hyper-v"),
        ("/VMBUS", "hyper-v"),
    ];
    if let Some((_, name)) = PLACES.iter().find(|(part, _)| path.contains(part)) {
        return Some((*name).to_string());
    }
    if path.contains("/virtio") {
        let scsi = path.contains("/target");
        return Some(if scsi { "virtio-scsi" } else { "virtio" }.to_string());
    }
    if path.contains("/virtual/") {
        let kind = disk.name.trim_end_matches(|c: char| c.is_ascii_digit());
        return Some(match kind {
            "dm-" => "device-mapper".to_string(),
            other => other.to_string(),
        });
    }
    path.contains("/target").then(|| "scsi".to_string())
}

//! What a disk says of itself: temperature, bytes that its host and its flash wrote, wear, errors.
//!
//! Read only: NVMe Get Log Page, SCSI log pages, ATA SMART and device statistics through SG_IO, and the kernel's sensors.
//! Nothing here starts a self-test, changes a setting or wakes a feature. What a disk does not report is `None`, and why is said.

pub mod ata;
pub mod latency;
pub mod logs;
pub mod nvme;
pub mod scsi;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::devices::nvme::{CACHE, POWER};
use crate::root::{HostRoot, names, number, text};
use crate::sys;

/// A disk's health, as far as it could be read. Counters run since the disk was made: take differences.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Health {
    /// Kernel name of the disk: `nvme0n1`, `sda`.
    pub disk: String,
    /// What was read: `nvme-smart`, `nvme-ocp`, `nvme-latency`, `ata-smart`, `ata-statistics`, `scsi-logs`, `hwmon`.
    pub sources: Vec<&'static str>,
    /// Temperature, degrees Celsius.
    pub celsius: Option<f64>,
    /// Temperatures of its sensors, in their order, those that it has.
    pub sensors_celsius: Vec<f64>,
    /// Times that it slowed itself down because of its temperature.
    pub throttled: Option<u64>,
    /// Seconds that it was slowed down so.
    pub throttled_seconds: Option<u64>,
    /// Power state that it is in: 0 is the fastest.
    pub power_state: Option<u8>,
    /// Whether a volatile write cache is on.
    pub cache_on: Option<bool>,
    /// Bytes that hosts wrote.
    pub host_written_bytes: Option<u64>,
    /// Bytes that hosts read.
    pub host_read_bytes: Option<u64>,
    /// Bytes that the disk wrote to its media, its own housekeeping included.
    pub media_written_bytes: Option<u64>,
    /// Media over host writes since the disk was made, where the disk reports the ratio but not the bytes.
    pub write_ratio: Option<f64>,
    /// Rated endurance that is used, percent; may exceed 100.
    pub used_percent: Option<f64>,
    /// Spare blocks that are left, percent.
    pub spare_percent: Option<f64>,
    /// Hours switched on.
    pub power_on_hours: Option<u64>,
    /// Data that was lost or could not be corrected: occurrences.
    pub media_errors: Option<u64>,
    /// Minutes above the warning and the critical temperature together.
    pub hot_minutes: Option<u64>,
    /// What only NVMe disks with the log of the Open Compute Project count.
    pub ocp: Option<nvme::Ocp>,
    /// Commands that it was slow with, since it was switched on.
    pub latency: Option<latency::Latency>,
    /// What only SCSI disks count.
    pub scsi: Option<scsi::Scsi>,
    /// The disk's own warnings, in words.
    pub warnings: Vec<&'static str>,
    /// What could not be read, and why: one sentence each.
    pub missing: Vec<String>,
}

impl Health {
    /// Media bytes written per host byte written between two readings of the same disk; `None` where either does not say
    /// or the host wrote nothing in between.
    pub fn write_ratio_since(&self, before: &Self) -> Option<f64> {
        let media = self
            .media_written_bytes?
            .checked_sub(before.media_written_bytes?)?;
        let host = self
            .host_written_bytes?
            .checked_sub(before.host_written_bytes?)?;
        (host > 0).then(|| media as f64 / host as f64)
    }
}

/// The disk's temperature from the kernel's sensors (`nvme`, `drivetemp`), °C: no command is sent by fathom, so it can be
/// asked between measurements.
pub fn temperature(root: &HostRoot, disk: &str) -> Option<f64> {
    let device = root.sys.join("block").join(disk).join("device");
    let mut places: Vec<PathBuf> = vec![device.join("hwmon")];
    // Older kernels hang the sensor directly below the controller.
    places.push(device);
    places
        .iter()
        .flat_map(|p| {
            let sensors = names(p).into_iter().filter(|n| n.starts_with("hwmon"));
            sensors.map(|n| p.join(n)).collect::<Vec<_>>()
        })
        .find_map(|d| number::<i64>(&d.join("temp1_input")))
        .map(|m| m as f64 / 1000.0)
}

/// Reads what a disk says of itself. Commands need the right to send them (root); without it the kernel's sensors are
/// what is left, and `missing` says so.
pub fn read(root: &HostRoot, disk: &str) -> Health {
    let mut health = Health {
        disk: disk.to_owned(),
        ..Health::default()
    };
    if disk.starts_with("nvme") {
        from_nvme(root, &mut health);
    } else if disk.starts_with("sd") {
        from_scsi(root, &mut health);
    } else {
        health.missing.push(format!(
            "{disk} is no NVMe, ATA or SAS disk: it reports nothing of itself"
        ));
    }
    if health.celsius.is_none()
        && let Some(c) = temperature(root, disk)
    {
        health.celsius = Some(c);
        health.sources.push("hwmon");
    }
    health
}

/// What a drive warns of by itself (NVMe's critical warnings), asked with one command; empty where it says nothing.
pub fn warnings(root: &HostRoot, disk: &str) -> Vec<&'static str> {
    let mut health = Health {
        disk: disk.to_owned(),
        ..Health::default()
    };
    let mut page = [0u8; 512];
    if disk.starts_with("nvme")
        && let Some(file) = open(root, &mut health)
        && sys::nvme_log_page(&file, nvme::SMART, &mut page).is_ok()
    {
        nvme::smart(&page, &mut health);
    }
    health.warnings
}

fn open(root: &HostRoot, health: &mut Health) -> Option<File> {
    let node = root.dev.join(&health.disk);
    match File::open(&node) {
        Ok(file) => Some(file),
        Err(e) => {
            health.missing.push(format!(
                "{} cannot be opened: {e}; run as root",
                node.display()
            ));
            None
        }
    }
}

fn from_nvme(root: &HostRoot, health: &mut Health) {
    let Some(file) = open(root, health) else {
        return;
    };
    let mut page = [0u8; 512];
    match sys::nvme_log_page(&file, nvme::SMART, &mut page) {
        Ok(()) => nvme::smart(&page, health),
        Err(e) => health
            .missing
            .push(format!("the NVMe health log was refused: {e}; run as root")),
    }
    let feature = |f| sys::nvme_feature(&file, f).ok();
    health.power_state = feature(POWER).map(|v| (v & 0x1f) as u8);
    // Drives without such a cache have no such feature.
    health.cache_on = feature(CACHE).map(|v| v & 1 == 1);
    // A page of the Open Compute Project's specification: disks without it refuse, which is no error.
    let mut page = [0u8; 512];
    let known = sys::nvme_log_page(&file, nvme::OCP, &mut page).is_ok() && nvme::ocp(&page, health);
    if sys::nvme_log_page(&file, latency::LOG, &mut page).is_ok() {
        health.latency = latency::latency(&page);
        health
            .sources
            .extend(health.latency.as_ref().map(|_| "nvme-latency"));
    }
    if !known {
        health.missing.push(
            "the disk does not report what it writes to its flash (no OCP log page C0h)".to_owned(),
        );
    }
}

/// ATA disks are SCSI disks of the vendor ATA to Linux; behind bridges they may have another name.
fn from_scsi(root: &HostRoot, health: &mut Health) {
    let Some(file) = open(root, health) else {
        return;
    };
    let disk = root.sys.join("block").join(&health.disk);
    let vendor = text(&disk.join("device/vendor")).unwrap_or_default();
    if vendor.trim() != "ATA" {
        let block = number(&disk.join("queue/logical_block_size")).unwrap_or(512);
        let mut list = [0; 260];
        let listed = scsi_page(&file, 0, &mut list).map(scsi::supported);
        for page in scsi::PAGES {
            let mut bytes = [0; 4096];
            if listed.as_ref().is_ok_and(|l| l.contains(&page))
                && let Ok(sent) = scsi_page(&file, page, &mut bytes)
            {
                scsi::page(page, sent, block, health);
            }
        }
        if !health.sources.is_empty() {
            return;
        }
    }
    from_ata(&disk, &file, health);
}

fn scsi_page<'a>(file: &File, page: u8, into: &'a mut [u8]) -> std::io::Result<&'a [u8]> {
    let command = scsi::command(page, into.len() as u16);
    let n = sys::scsi_read(file, &command, into)?;
    Ok(&into[..n])
}

fn from_ata(disk: &Path, file: &File, health: &mut Health) {
    let model = text(&disk.join("device/model"));
    let mut page = [0u8; 512];
    match sys::ata_read(file, &ata::SMART_READ_DATA, &mut page) {
        Ok(()) if ata::checked(&page) => ata::smart(&page, model.as_deref().unwrap_or(""), health),
        Ok(()) => health
            .missing
            .push("the ATA SMART data has a wrong check sum".to_owned()),
        Err(e) => {
            let why = format!(
                "neither SCSI log pages nor ATA SMART data can be read: {e}; run as root on a disk that has them"
            );
            health.missing.push(why);
            return;
        }
    }
    for number in ata::STATISTICS {
        let mut page = [0u8; 512];
        if sys::ata_read(file, &ata::statistics_command(number), &mut page).is_ok() {
            ata::statistics(number, &page, health);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_write_ratio_between_two_readings_is_media_over_host() {
        let at = |host, media| Health {
            host_written_bytes: Some(host),
            media_written_bytes: media,
            ..Health::default()
        };
        let ratio = at(3_000, Some(9_000)).write_ratio_since(&at(1_000, Some(4_000)));
        assert_eq!(ratio, Some(2.5));
        assert_eq!(
            at(1_000, Some(9_000)).write_ratio_since(&at(1_000, Some(4_000))),
            None
        );
        assert_eq!(
            at(3_000, None).write_ratio_since(&at(1_000, Some(4_000))),
            None
        );
        // Another disk, or a counter that was reset.
        assert_eq!(
            at(1_000, Some(1)).write_ratio_since(&at(3_000, Some(4_000))),
            None
        );
    }

    #[test]
    fn sensors_are_found_where_old_and_new_kernels_have_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::under(dir.path());
        for (disk, place) in [
            ("nvme0n1", "device/hwmon/hwmon3"),
            ("nvme1n1", "device/hwmon1"),
            ("sda", "device/hwmon/hwmon0"),
        ] {
            let place = root.sys.join("block").join(disk).join(place);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("temp1_input"), "41850\n").unwrap();
            assert_eq!(temperature(&root, disk), Some(41.85), "{disk}");
        }
        assert_eq!(temperature(&root, "sdb"), None);
        let health = read(&root, "sda");
        assert_eq!(
            (health.celsius, health.sources.as_slice()),
            (Some(41.85), &["hwmon"][..])
        );
        assert!(
            health.missing[0].contains("cannot be opened"),
            "{:?}",
            health.missing
        );
        let none = read(&root, "loop0");
        assert!(
            none.missing[0].contains("reports nothing"),
            "{:?}",
            none.missing
        );
    }
}

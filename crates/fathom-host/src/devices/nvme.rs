//! What an NVMe drive says of itself (Identify, Get Features: reads only) and how the kernel reaches it.
//!
//! NVM Express Base Specification 2.0, figures 97 (namespace), 275 (controller) and 276 (power states). Numbers are
//! little endian.

use std::fs::{self, File};
use std::path::Path;

use fathom_files::open;
use serde::Serialize;

use super::graph::Node;
use super::operations::{Operations, u16_at, u32_at};
use crate::purge::nvme::{self as erasing, Sanitize};
use crate::root::{HostRoot, names, number, text};
use crate::sys;

/// A namespace and its drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Nvme {
    /// Number of the namespace in the drive.
    pub nsid: Option<u32>,
    /// Numbers of all active namespaces that its controllers show.
    pub namespaces: Vec<u32>,
    /// Numbers of all namespaces that were made on it, attached or not; empty where it does not manage them.
    pub allocated: Vec<u32>,
    /// Formats that the namespace can be given, the one in use marked.
    pub formats: Vec<Format>,
    /// Type of the protection information in use, 0 for none.
    pub protection: Option<u8>,
    /// Its controllers, as far as this machine has them.
    pub controllers: Vec<Controller>,
    /// Whether the drive has a volatile write cache.
    pub volatile_cache: Option<bool>,
    /// Whether that cache is on.
    pub cache_on: Option<bool>,
    /// Power state that the drive is in.
    pub power_state: Option<u8>,
    /// Its power states.
    pub power_states: Vec<PowerState>,
    /// Temperatures from which it warns and from which it is in danger, °C.
    pub warning_celsius: Option<i32>,
    /// See above.
    pub critical_celsius: Option<i32>,
    /// Ways in which it can be sanitized: `crypto`, `block`, `overwrite`.
    pub sanitize: Vec<&'static str>,
    /// How its last sanitize operation stands, where it has the log.
    pub sanitized: Option<Sanitize>,
    /// Whether namespaces can be formatted (Format NVM).
    pub can_format: bool,
    /// Whether a format changes the key.
    pub format_crypto: bool,
    /// Whether a format is one of all namespaces.
    pub format_reaches_drive: bool,
    /// Whether the erasure that goes with a format is one of all namespaces.
    pub erase_reaches_drive: bool,
    /// What blocks that were deallocated read as: `zeroes`, `ones`; empty where the drive does not promise anything.
    pub deallocated: Option<&'static str>,
    /// Largest write that is not torn by a loss of power, bytes.
    pub atomic_bytes: Option<u64>,
    /// Largest write that no other command sees half of, bytes.
    pub atomic_normal_bytes: Option<u64>,
    /// Operations beside reads and writes.
    pub operations: Operations,
    /// Identifier of the endurance group of the namespace, where it has any.
    pub endurance_group: Option<u16>,
    /// Errors in its error log, since it was made.
    pub errors_logged: Option<u64>,
}

/// A format of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Format {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of metadata of each block.
    pub metadata_bytes: u16,
    /// 0 best, 1 better, 2 good, 3 degraded.
    pub performance: u8,
    /// Whether the namespace has it.
    pub in_use: bool,
}

/// A way to the drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// The kernel's name: `nvme0`.
    pub name: String,
    /// Its number in the subsystem.
    pub id: Option<u16>,
    /// `pcie`, `tcp`, `rdma`, `fc`, `loop`.
    pub transport: Option<String>,
    /// Address: of the bus, or of the other machine.
    pub address: Option<String>,
    /// `live`, `connecting`, …
    pub state: Option<String>,
    /// Queues, that of administration included.
    pub queues: Option<u32>,
    /// State of asymmetric access of the namespace through it: `optimized`, …
    pub access: Option<String>,
}

/// A power state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PowerState {
    /// Most that it draws, mW.
    pub milliwatts: u64,
    /// Whether it does I/O in it.
    pub operational: bool,
    /// Time to enter it, µs.
    pub enter_us: u32,
    /// Time to leave it, µs.
    pub leave_us: u32,
}

/// Get Features: power management, volatile write cache.
pub(crate) const POWER: u8 = 0x02;
pub(crate) const CACHE: u8 = 0x06;
/// Identify: a namespace, the controller, active namespaces, all that were made.
pub(crate) const NAMESPACE: u8 = 0;
pub(super) const CONTROLLER: u8 = 1;
const ACTIVE: u8 = 2;
const ALLOCATED: u8 = 0x10;
/// Log page of errors: its first entry has the newest error's number.
const ERRORS: u8 = 1;

/// Everything about a namespace; `None` for what is no NVMe disk. What it does not say, or may not be asked, is empty.
pub(crate) fn of(root: &HostRoot, disk: &Node) -> Option<Nvme> {
    if !disk.name.starts_with("nvme") {
        return None;
    }
    let mut found = Nvme {
        nsid: number(&disk.dir.join("nsid")),
        controllers: controllers(root, disk),
        ..Nvme::default()
    };
    if let Ok(device) = open::for_reading(&disk.path(root), 0) {
        ask(&device, &mut found);
    }
    Some(found)
}

fn ask(device: &File, found: &mut Nvme) {
    let mut own = [0u8; 4096];
    let block = match found.nsid {
        Some(n) if sys::nvme_identify(device, NAMESPACE, n, &mut own).is_ok() => {
            namespace(&own, found)
        }
        _ => None,
    };
    let mut page = [0u8; 4096];
    if sys::nvme_identify(device, CONTROLLER, 0, &mut page).is_ok() {
        controller(&page, block, found);
        if let (Some(nsid), Some(block)) = (found.nsid, block) {
            found.operations = Operations::of(device, nsid, &page, &own, block);
        }
    }
    let list = |what| {
        let mut page = [0u8; 4096];
        let ids = page.len() / 4;
        match sys::nvme_identify(device, what, 0, &mut page) {
            Ok(()) => (0..ids)
                .map(|i| u32_at(&page, 4 * i))
                .take_while(|n| *n > 0)
                .collect(),
            Err(_) => Vec::new(),
        }
    };
    (found.namespaces, found.allocated) = (list(ACTIVE), list(ALLOCATED));
    let mut page = [0u8; 512];
    if !found.sanitize.is_empty()
        && sys::nvme_log_page(device, erasing::SANITIZE_LOG, &mut page).is_ok()
    {
        found.sanitized = Some(Sanitize::of(&page));
    }
    found.power_state = sys::nvme_feature(device, POWER)
        .ok()
        .map(|v| (v & 0x1f) as u8);
    if found.volatile_cache == Some(true) {
        found.cache_on = sys::nvme_feature(device, CACHE).ok().map(|v| v & 1 == 1);
    }
    let mut page = [0u8; 512];
    if sys::nvme_log_page(device, ERRORS, &mut page).is_ok() {
        found.errors_logged = Some(u64::from(u32_at(&page, 0)) | u64::from(u32_at(&page, 4)) << 32);
    }
}

/// Formats, protection, group of a namespace; the bytes of its blocks.
pub fn namespace(page: &[u8; 4096], found: &mut Nvme) -> Option<u64> {
    // FLBAS: bits 0 to 3, and 5 and 6 above them.
    let in_use = usize::from(page[26] & 0xF | (page[26] >> 1 & 0x30));
    let count = usize::from(page[25]).min(63) + 1;
    found.formats = (0..count)
        .map(|i| (i, u32_at(page, 128 + 4 * i)))
        // Blocks of less than 512 bytes are none: the format is not available.
        .filter(|(_, f)| (9..=30).contains(&(f >> 16 & 0xff)))
        .map(|(i, f)| Format {
            block_bytes: 1 << (f >> 16 & 0xff),
            metadata_bytes: f as u16,
            performance: (f >> 24 & 3) as u8,
            in_use: i == in_use,
        })
        .collect();
    found.protection = Some(page[29] & 7);
    found.deallocated = match page[33] & 7 {
        1 => Some("zeroes"),
        2 => Some("ones"),
        _ => None,
    };
    found.endurance_group = Some(u16_at(page, 102)).filter(|g| *g > 0);
    found
        .formats
        .iter()
        .find(|f| f.in_use)
        .map(|f| f.block_bytes)
}

/// Caches, power states, temperatures, ways to format and to sanitize of a controller.
pub fn controller(page: &[u8; 4096], block_bytes: Option<u64>, found: &mut Nvme) {
    found.volatile_cache = Some(page[525] & 1 == 1);
    let celsius = |at| Some(i32::from(u16_at(page, at)) - 273).filter(|c| *c > -273);
    (found.warning_celsius, found.critical_celsius) = (celsius(266), celsius(268));
    let capable = u32_at(page, 328);
    let ways = ["crypto", "block", "overwrite"].into_iter().enumerate();
    found.sanitize = ways
        .filter(|(bit, _)| capable >> bit & 1 == 1)
        .map(|(_, w)| w)
        .collect();
    found.can_format = u16_at(page, 256) >> 1 & 1 == 1;
    let [all, erases_all, crypto] = [0, 1, 2].map(|bit| page[524] >> bit & 1 == 1);
    (found.format_reaches_drive, found.erase_reaches_drive) = (all, erases_all);
    found.format_crypto = found.can_format && crypto;
    // AWUN and AWUPF count blocks, less one.
    let atomic = |at| block_bytes.map(|b| b * (u64::from(u16_at(page, at)) + 1));
    (found.atomic_normal_bytes, found.atomic_bytes) = (atomic(526), atomic(528));
    let count = usize::from(page[263]).min(31) + 1;
    found.power_states = (0..count)
        .map(|i| &page[2048 + 32 * i..][..32])
        .map(|s| PowerState {
            // In units of 10 mW, or of 0.1 mW where the lowest bit of byte 3 says so.
            milliwatts: match s[3] & 1 {
                0 => u64::from(u16_at(s, 0)) * 10,
                _ => u64::from(u16_at(s, 0)) / 10,
            },
            operational: s[3] & 2 == 0,
            enter_us: u32_at(s, 4),
            leave_us: u32_at(s, 8),
        })
        .collect();
}

fn controllers(root: &HostRoot, disk: &Node) -> Vec<Controller> {
    let class = root.sys.join("class/nvme");
    let one = |dir: &Path, access: Option<String>| Controller {
        name: dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        id: number(&dir.join("cntlid")),
        transport: text(&dir.join("transport")),
        address: text(&dir.join("address")),
        state: text(&dir.join("state")),
        queues: number(&dir.join("queue_count")),
        access,
    };
    // Of a multipath head, those of its hidden paths.
    let paths = disk.paths.iter();
    let found: Vec<Controller> = paths
        .filter_map(|p| {
            let dir = fs::canonicalize(p.join("device")).ok()?;
            Some(one(&dir, text(&p.join("ana_state"))))
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    let own = fs::canonicalize(disk.dir.join("device")).ok();
    names(&class)
        .iter()
        .map(|n| class.join(n))
        .filter(|dir| own.is_some() && fs::canonicalize(dir).ok() == own)
        .map(|dir| one(&dir, None))
        .collect()
}

impl Nvme {
    /// Numbers of all its namespaces, whoever they are attached to.
    pub fn all_namespaces(&self) -> impl Iterator<Item = u32> {
        self.namespaces.iter().chain(&self.allocated).copied()
    }

    /// What stands in the way of a number from it, or of what it means: one sentence each.
    pub fn cautions(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.cache_on == Some(true) {
            all.push(
                "its write cache is volatile and on: writes are durable after a flush only"
                    .to_owned(),
            );
        }
        match self
            .power_state
            .map(|n| (n, self.power_states.get(usize::from(n))))
        {
            Some((n, Some(s))) if n > 0 => all.push(format!(
                "it is in power state {n} of {} ({} mW at most): slower than in state 0",
                self.power_states.len(),
                s.milliwatts
            )),
            _ => {}
        }
        if let Some(f) = self.formats.iter().find(|f| f.in_use)
            && let Some(best) = self
                .formats
                .iter()
                .filter(|b| b.metadata_bytes == f.metadata_bytes && b.performance < f.performance)
                .min_by_key(|b| b.performance)
        {
            all.push(format!(
                "its format ({} bytes a block) is slower, as the drive says, than that of {} bytes",
                f.block_bytes, best.block_bytes
            ));
        }
        for c in &self.controllers {
            if let Some(state) = c.state.as_deref().filter(|s| *s != "live") {
                all.push(format!("its controller {} is {state}", c.name));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_power_states_and_temperatures_are_where_the_specification_has_them() {
        let mut ns = [0u8; 4096];
        // Two formats: 512 bytes, and 4096 with 8 of metadata, which is better and in use.
        ns[25] = 1;
        ns[26] = 1;
        (ns[29], ns[33]) = (1, 1);
        ns[128..132].copy_from_slice(&(9u32 << 16 | 2 << 24).to_le_bytes());
        ns[132..136].copy_from_slice(&(12u32 << 16 | 8).to_le_bytes());
        let mut found = Nvme::default();
        assert_eq!(namespace(&ns, &mut found), Some(4096));
        let seen: Vec<_> = found
            .formats
            .iter()
            .map(|f| (f.block_bytes, f.metadata_bytes, f.performance, f.in_use))
            .collect();
        assert_eq!(seen, [(512, 0, 2, false), (4096, 8, 0, true)]);
        assert_eq!(
            (found.protection, found.deallocated),
            (Some(1), Some("zeroes"))
        );
        let mut c = [0u8; 4096];
        c[263] = 1;
        c[266..268].copy_from_slice(&343u16.to_le_bytes());
        c[328] = 0b11;
        (c[256], c[524]) = (0b10, 0b110);
        c[525] = 1;
        c[528] = 7;
        c[2048..2050].copy_from_slice(&850u16.to_le_bytes());
        c[2080..2084].copy_from_slice(&[0x90, 1, 0, 3]);
        c[2088] = 100;
        controller(&c, Some(4096), &mut found);
        assert_eq!(
            (found.warning_celsius, found.critical_celsius),
            (Some(70), None)
        );
        assert_eq!(found.sanitize, ["crypto", "block"]);
        assert!(found.can_format && found.format_crypto);
        assert!(found.erase_reaches_drive && !found.format_reaches_drive);
        assert_eq!(found.atomic_bytes, Some(32_768));
        assert_eq!(found.power_states[0].milliwatts, 8500);
        let second = &found.power_states[1];
        assert_eq!(
            (second.milliwatts, second.operational, second.leave_us),
            (40, false, 100)
        );
    }

    #[test]
    fn cautions_name_the_cache_the_power_state_the_format_and_the_path() {
        let mut found = Nvme::default();
        assert_eq!(found.cautions(), [""; 0]);
        let format = |block_bytes, performance, in_use| Format {
            block_bytes,
            metadata_bytes: 0,
            performance,
            in_use,
        };
        found.formats = vec![format(512, 2, true), format(4096, 0, false)];
        found.cache_on = Some(true);
        found.power_state = Some(1);
        found.power_states = [8500, 3000]
            .map(|milliwatts| PowerState {
                milliwatts,
                operational: true,
                enter_us: 0,
                leave_us: 0,
            })
            .into();
        found.controllers = vec![Controller {
            name: "nvme3".into(),
            id: None,
            transport: None,
            address: None,
            state: Some("connecting".into()),
            queues: None,
            access: None,
        }];
        let all = found.cautions().join("\n");
        for words in [
            "volatile and on",
            "power state 1 of 2 (3000 mW",
            "than that of 4096",
            "nvme3 is connecting",
        ] {
            assert!(all.contains(words), "{words}: {all}");
        }
    }
}

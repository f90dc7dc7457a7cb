//! A namespace's character device (`/dev/ng0n1`), which takes NVMe commands past the block layer: found from the block
//! device, so that whoever may use the one may use the other, and both are the same namespace.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fathom_files::open;

use super::nvme::{self, Nvme};
use super::operations::Operations;
use crate::root::{HostRoot, number, text};
use crate::sys;
use crate::zones::{self, ZoneLimits};

/// Where a command's protection information is made and checked by the drive itself: PRACT of double word 12.
const PRACT: u32 = 1 << 29;

/// A namespace, open for commands.
#[derive(Debug, Clone)]
pub struct Passthrough {
    /// The character device.
    pub file: Arc<File>,
    /// Its number in the drive.
    pub nsid: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bits of every read's and write's double word 12.
    pub protection: u32,
    /// Bytes of the largest command that moves data.
    pub most_bytes: u64,
    /// Pieces of memory that one command can move.
    pub most_segments: u64,
    /// What it offers beside reads and writes.
    pub operations: Operations,
    /// Of a zoned namespace, its limits.
    pub zones: Option<ZoneLimits>,
}

/// The block device of a namespace's character device: `/dev/nvme0n1` for `/dev/ng0n1`; `None` for anything else.
pub fn block_device_of(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let name = real.file_name()?.to_str()?.strip_prefix("ng")?;
    let block = format!("nvme{name}");
    namespace(&HostRoot::real(), &block).ok()?;
    Some(real.with_file_name(block))
}

/// Whether a block device is a namespace with a character device; whether that may be opened is not asked.
pub fn takes_commands(block: &Path) -> bool {
    let real = fs::canonicalize(block).ok();
    let name = real.as_deref().and_then(Path::file_name);
    name.and_then(|n| n.to_str())
        .is_some_and(|n| namespace(&HostRoot::real(), n).is_ok())
}

/// Its directory, its character device's, where both are of the same drive.
fn namespace(root: &HostRoot, block: &str) -> Result<(PathBuf, PathBuf), String> {
    let missing = || {
        format!(
            "{block} is no whole NVMe namespace with a character device (nvme-generic, Linux 5.13): use --engine uring"
        )
    };
    let name = block.strip_prefix("nvme").ok_or_else(missing)?;
    let dir = |class: &str, name: &str| fs::canonicalize(root.sys.join(class).join(name));
    let disk = dir("class/block", block).map_err(|_| missing())?;
    let generic = dir("class/nvme-generic", &format!("ng{name}")).map_err(|_| missing())?;
    let drive = |dir: &Path| {
        let parts = dir.ancestors().skip(1);
        let named = |p: &&Path| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("nvme"))
        };
        parts
            .filter(|p| !p.ends_with("nvme-generic"))
            .find(named)
            .map(Path::to_owned)
    };
    if drive(&disk) != drive(&generic) {
        return Err(format!(
            "{block} and ng{name} are not of the same drive: use --engine uring"
        ));
    }
    Ok((disk, generic))
}

impl Passthrough {
    /// Opens the character device of a block device that may be read, or written with `write`.
    ///
    /// # Errors
    /// Why it has none, or none that can be used, in a sentence.
    pub fn of(block: &Path, write: bool) -> Result<Self, String> {
        let root = HostRoot::real();
        let name = block.file_name().and_then(|n| n.to_str()).unwrap_or("");
        let (disk, generic) = namespace(&root, name)?;
        let node = root.dev.join(generic.file_name().unwrap_or_default());
        let opened = if write {
            open::control(&node)
        } else {
            open::for_reading(&node, 0)
        };
        let file =
            opened.map_err(|e| format!("{} cannot be opened: {e}; run as root", node.display()))?;
        let meta = file
            .metadata()
            .map_err(|e| format!("{}: {e}", node.display()))?;
        let is_it = {
            use std::os::unix::fs::MetadataExt;
            let number = crate::root::DeviceNumber::from_raw(meta.rdev());
            text(&generic.join("dev")).is_some_and(|d| d == number.to_string())
        };
        let nsid = sys::nvme_namespace_id(&file).map_err(|e| format!("{}: {e}", node.display()))?;
        let same = number::<u32>(&disk.join("nsid")).is_none_or(|n| n == nsid);
        if !is_it || !same {
            return Err(format!(
                "{} is not the namespace of {name}: use --engine uring",
                node.display()
            ));
        }
        let queue = |file: &str| number::<u64>(&disk.join("queue").join(file));
        let block_bytes = queue("logical_block_size").unwrap_or(512) as u32;
        let mut page = [0; 4096];
        sys::nvme_identify(&file, 0, nsid, &mut page)
            .map_err(|e| format!("{name} does not say its format: {e}; run as root"))?;
        let mut drive = [0; 4096];
        sys::nvme_identify(&file, nvme::CONTROLLER, 0, &mut drive)
            .map_err(|e| format!("{name} does not say what it offers: {e}; run as root"))?;
        Ok(Self {
            protection: protection(&page, block_bytes)?,
            operations: Operations::of(&file, nsid, &drive, &page, block_bytes.into()),
            zones: zones::limits(block),
            most_segments: queue("max_segments").unwrap_or(127),
            file: Arc::new(file),
            nsid,
            block_bytes,
            most_bytes: queue("max_hw_sectors_kb").map_or(128 << 10, |k| k << 10),
        })
    }
}

/// What the format asks of every command; refused where it carries metadata that somebody would have to make.
fn protection(page: &[u8; 4096], block_bytes: u32) -> Result<u32, String> {
    let mut found = Nvme::default();
    if nvme::namespace(page, &mut found) != Some(block_bytes.into()) {
        return Err(
            "the drive and the kernel name different block sizes: use --engine uring".into(),
        );
    }
    let metadata = found
        .formats
        .iter()
        .find(|f| f.in_use)
        .map_or(0, |f| f.metadata_bytes);
    match (metadata, found.protection) {
        (0, _) => Ok(0),
        (8, Some(1..)) => Ok(PRACT),
        _ => Err(format!(
            "its blocks carry {metadata} bytes of metadata, which commands would have to bring: use --engine uring, or format it without"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_with_metadata_are_left_to_the_block_layer_unless_the_drive_protects_itself() {
        let page = |format: u8, metadata: u16, shift: u8, kind: u8| {
            let mut p = [0u8; 4096];
            // The upper bits of the number of the format lie apart.
            p[25] = format;
            p[26] = format & 0xF | (format & 0x30) << 1;
            p[29] = kind;
            let at = 128 + 4 * usize::from(format);
            p[at..at + 2].copy_from_slice(&metadata.to_le_bytes());
            p[at + 2] = shift;
            p
        };
        assert_eq!(protection(&page(0, 0, 12, 0), 4096), Ok(0));
        assert_eq!(protection(&page(17, 8, 12, 1), 4096), Ok(PRACT));
        assert!(
            protection(&page(1, 64, 9, 0), 512)
                .unwrap_err()
                .contains("64 bytes")
        );
        assert!(protection(&page(1, 0, 9, 0), 4096).is_err());
        assert!(protection(&page(63, 0, 255, 0), 512).is_err());
    }
}

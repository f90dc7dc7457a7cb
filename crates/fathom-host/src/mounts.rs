//! The kernel's tables of mounts and swap areas.
//!
//! Both are parsed strictly: a line that is not understood is an error, because the safety
//! gate must not take "unreadable" for "unused".

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};
use serde::Serialize;

use crate::error::HostError;
use crate::root::{DeviceNumber, HostRoot};

/// One line of `mountinfo` (see proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Unique number of the mount.
    pub id: u64,
    /// Mount that it sits on.
    pub parent: u64,
    /// `st_dev` of the file system; anonymous for btrfs, tmpfs, overlay, …
    pub device: DeviceNumber,
    /// Directory inside the file system that is shown.
    pub root: PathBuf,
    /// Where it is mounted.
    pub at: PathBuf,
    /// Options of this mount.
    pub options: Vec<String>,
    /// `ext4`, `btrfs`, …
    pub fs_type: String,
    /// What was mounted, as it was typed: a node, a label, a server path.
    pub source: PathBuf,
    /// Options of the file system.
    pub super_options: Vec<String>,
}

impl Mount {
    /// Whether writes fail, through this mount or through the whole file system.
    pub fn is_read_only(&self) -> bool {
        let ro = |options: &[String]| options.iter().any(|o| o == "ro");
        ro(&self.options) || ro(&self.super_options)
    }

    /// Value of `name=value` among the file system's options.
    pub fn super_option(&self, name: &str) -> Option<&str> {
        self.super_options
            .iter()
            .find_map(|o| o.strip_prefix(name)?.strip_prefix('='))
    }
}

/// All mounts of one mount namespace, in mount order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    /// The mounts; a later one hides an earlier one at the same place.
    pub mounts: Vec<Mount>,
}

impl MountTable {
    /// The mounts that this process sees.
    pub fn read(root: &HostRoot) -> Result<Self, HostError> {
        Self::read_from(&root.proc.join("self/mountinfo"))
    }

    /// The mounts listed in a `mountinfo` file.
    pub fn read_from(path: &Path) -> Result<Self, HostError> {
        let bytes = fs::read(path).map_err(|e| HostError::read(path, e))?;
        Self::parse(&bytes)
    }

    /// Parses the text of a `mountinfo` file.
    pub fn parse(text: &[u8]) -> Result<Self, HostError> {
        let mounts = lines(text)
            .map(|line| {
                parse_mount(line).ok_or_else(|| HostError::Malformed {
                    what: "mount table (mountinfo)",
                    line: String::from_utf8_lossy(line).into_owned(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { mounts })
    }

    /// The mount that an existing path lies on: by the kernel's mount number where statx
    /// tells it, else by the longest matching mount point.
    pub fn containing(&self, path: &Path) -> Option<&Mount> {
        let by_id = rustix::fs::statx(
            rustix::fs::CWD,
            path,
            AtFlags::empty(),
            StatxFlags::BASIC_STATS | StatxFlags::MNT_ID,
        )
        .ok()
        .filter(|s| s.stx_mask & StatxFlags::MNT_ID.bits() != 0)
        .and_then(|s| self.mounts.iter().find(|m| m.id == s.stx_mnt_id));
        by_id.or_else(|| {
            let real = fs::canonicalize(path).ok()?;
            self.containing_by_name(&real)
        })
    }

    /// The mount whose mount point is the longest prefix of an absolute path without links.
    pub fn containing_by_name(&self, path: &Path) -> Option<&Mount> {
        self.mounts
            .iter()
            .filter(|m| path.starts_with(&m.at))
            .max_by_key(|m| m.at.as_os_str().len())
    }
}

/// One line of `/proc/swaps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Swap {
    /// Device node or file.
    pub path: PathBuf,
    /// `partition` (any block device) or `file`.
    pub kind: String,
    /// Bytes of the area.
    pub size_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// The swap areas in use.
pub fn read_swaps(root: &HostRoot) -> Result<Vec<Swap>, HostError> {
    let path = root.proc.join("swaps");
    match fs::read(&path) {
        Ok(bytes) => parse_swaps(&bytes),
        // A kernel without swap support has no such file.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(HostError::read(&path, e)),
    }
}

/// Parses the text of `/proc/swaps`.
pub fn parse_swaps(text: &[u8]) -> Result<Vec<Swap>, HostError> {
    lines(text)
        .skip(1)
        .map(|line| {
            parse_swap(line).ok_or_else(|| HostError::Malformed {
                what: "swap table (/proc/swaps)",
                line: String::from_utf8_lossy(line).into_owned(),
            })
        })
        .collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|l| !l.is_empty())
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let root = path(fields.next()?);
    let at = path(fields.next()?);
    let options = options(fields.next()?);
    // Any number of optional fields ends with a single hyphen.
    fields.by_ref().find(|f| *f == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = path(fields.next()?);
    let super_options = self::options(fields.next().unwrap_or_default());
    Some(Mount {
        id,
        parent,
        device,
        root,
        at,
        options,
        fs_type,
        source,
        super_options,
    })
}

fn parse_swap(line: &[u8]) -> Option<Swap> {
    let mut fields = line
        .split(|b| *b == b' ' || *b == b'\t')
        .filter(|f| !f.is_empty());
    let path = path(fields.next()?);
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let size: u64 = number(fields.next()?)?;
    let used: u64 = number(fields.next()?)?;
    Some(Swap {
        path,
        kind,
        size_bytes: size.saturating_mul(1024),
        used_bytes: used.saturating_mul(1024),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn options(field: &[u8]) -> Vec<String> {
    field
        .split(|b| *b == b',')
        .filter(|o| !o.is_empty())
        .map(|o| {
            let plain = path(o);
            String::from_utf8_lossy(plain.as_os_str().as_bytes()).into_owned()
        })
        .collect()
}

/// Undoes the kernel's octal escapes (`\040` is a blank; seq_file's mangle_path).
fn path(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut i = 0;
    while i < field.len() {
        let escaped = field
            .get(i + 1..i + 4)
            .filter(|d| field[i] == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)))
            .map(|d| {
                d.iter()
                    .fold(0u32, |value, b| value * 8 + u32::from(b - b'0'))
            })
            .and_then(|value| u8::try_from(value).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(field[i]);
                i += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "\
21 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
22 21 0:20 / /proc rw,nosuid shared:5 master:2 - proc proc rw
30 21 0:45 /@home /home rw - btrfs /dev/sdb1 rw,subvolid=257,subvol=/@home
31 21 8:17 / /mnt/my\\040disk\\011x ro,relatime - xfs /dev/sdb1 rw
32 21 0:50 / /mnt/server rw - nfs4 host:/export\\134a rw,addr=1.2.3.4
";

    #[test]
    fn mountinfo_is_read_with_optional_fields_and_octal_escapes() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        assert_eq!(table.mounts.len(), 5);
        assert_eq!(table.mounts[0].device.to_string(), "8:2");
        assert_eq!(table.mounts[1].fs_type, "proc");
        assert_eq!(table.mounts[2].root, Path::new("/@home"));
        assert_eq!(table.mounts[3].at, Path::new("/mnt/my disk\tx"));
        assert_eq!(table.mounts[4].source, Path::new("host:/export\\a"));
        assert_eq!(table.mounts[0].super_option("errors"), Some("remount-ro"));
    }

    #[test]
    fn read_only_is_seen_on_the_mount_and_on_the_file_system() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        assert!(!table.mounts[0].is_read_only());
        assert!(table.mounts[3].is_read_only());
    }

    #[test]
    fn a_path_lies_on_the_deepest_and_latest_mount() {
        let text = format!("{TABLE}40 30 0:60 / /home rw - tmpfs tmpfs rw\n");
        let table = MountTable::parse(text.as_bytes()).unwrap();
        let fs_of = |p: &str| &table.containing_by_name(Path::new(p)).unwrap().fs_type;
        assert_eq!(fs_of("/home/user/file"), "tmpfs");
        assert_eq!(fs_of("/homeless"), "ext4");
        assert_eq!(fs_of("/"), "ext4");
    }

    #[test]
    fn this_machine_knows_where_its_root_directory_is_mounted() {
        let table = MountTable::read(&HostRoot::real()).unwrap();
        assert_eq!(table.containing(Path::new("/")).unwrap().at, Path::new("/"));
        assert_eq!(
            table
                .containing(Path::new("/proc/version"))
                .unwrap()
                .fs_type,
            "proc"
        );
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error_and_not_an_unmounted_disk() {
        assert!(MountTable::parse(b"21 1 8:2 / / rw relatime ext4\n").is_err());
        assert!(MountTable::parse(b"garbage\n").is_err());
        assert!(parse_swaps(b"Filename Type Size\n/dev/sda3 partition many\n").is_err());
    }

    #[test]
    fn swaps_are_read() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/sda3                               partition\t2097148\t\t12\t\t-2\n\
                    /swap\\040file                           file\t\t1024\t\t0\t\t-3\n";
        let swaps = parse_swaps(text.as_bytes()).unwrap();
        assert_eq!(swaps.len(), 2);
        assert_eq!(swaps[0].path, Path::new("/dev/sda3"));
        assert_eq!(swaps[0].size_bytes, 2_097_148 * 1024);
        assert_eq!(swaps[0].used_bytes, 12 * 1024);
        assert_eq!(swaps[1].path, Path::new("/swap file"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = MountTable::parse(&text);
            let _ = parse_swaps(&text);
        }
    }
}

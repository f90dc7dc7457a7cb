//! Where the kernel's descriptions of the machine are found, and how they are read.
//!
//! Everything in this crate that looks at `/sys`, `/proc`, `/dev` or `/run` takes a
//! [`HostRoot`], so that a test can show it a machine that does not exist. Missing files
//! are `None`, never an invented value.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The four trees that describe a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot {
    /// Normally `/sys`.
    pub sys: PathBuf,
    /// Normally `/proc`.
    pub proc: PathBuf,
    /// Normally `/dev`.
    pub dev: PathBuf,
    /// Normally `/run`.
    pub run: PathBuf,
}

impl HostRoot {
    /// This machine.
    pub fn real() -> Self {
        Self::under(Path::new("/"))
    }

    /// A machine described by the directories `sys`, `proc`, `dev` and `run` under `root`.
    pub fn under(root: &Path) -> Self {
        Self {
            sys: root.join("sys"),
            proc: root.join("proc"),
            dev: root.join("dev"),
            run: root.join("run"),
        }
    }

    /// The device node's number: from the node itself, or, for a path under [`HostRoot::dev`],
    /// from sysfs, which also works where nodes are only pretended.
    pub fn number_of_node(&self, node: &Path) -> Option<DeviceNumber> {
        let meta = fs::metadata(node).ok();
        if let Some(meta) = &meta
            && meta.file_type().is_block_device()
        {
            return Some(DeviceNumber::from_raw(meta.rdev()));
        }
        let rest = node.strip_prefix("/dev").or(node.strip_prefix(&self.dev));
        let inside = self.dev.join(rest.ok()?);
        let real = fs::canonicalize(&inside).unwrap_or(inside);
        let name = real.strip_prefix(&self.dev).ok()?;
        let name = name.to_str()?.replace('/', "!");
        text(&self.sys.join("class/block").join(name).join("dev"))?
            .parse()
            .ok()
    }
}

impl Default for HostRoot {
    fn default() -> Self {
        Self::real()
    }
}

/// A block device's major and minor number: its true name, whatever paths lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Driver.
    pub major: u32,
    /// Device of that driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_dev` or `st_rdev`.
    pub fn from_raw(raw: u64) -> Self {
        Self {
            major: rustix::fs::major(raw),
            minor: rustix::fs::minor(raw),
        }
    }

    /// Anonymous numbers (major 0) belong to file systems without one block device:
    /// tmpfs, overlay, btrfs, NFS, …
    pub fn is_anonymous(self) -> bool {
        self.major == 0
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DeviceNumber {
    type Err = std::num::ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (major, minor) = s.split_once(':').unwrap_or((s, ""));
        Ok(Self {
            major: major.parse()?,
            minor: minor.parse()?,
        })
    }
}

impl Serialize for DeviceNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A small kernel file without surrounding blanks; `None` where it is missing, unreadable
/// or empty.
pub(crate) fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_string())
}

/// A kernel file that holds one number.
pub(crate) fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// A kernel file that holds `0` or `1`.
pub(crate) fn flag(path: &Path) -> Option<bool> {
    number::<u64>(path).map(|n| n != 0)
}

/// Names in a directory, sorted; empty where it is missing.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort_by_cached_key(|name| natural(name));
    names
}

/// Sorting key that puts `sda2` before `sda10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut word = String::new();
    let mut digits = String::new();
    for c in name.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            parts.push((std::mem::take(&mut word), digits.parse().unwrap_or(0)));
            digits.clear();
        }
        word.push(c);
    }
    parts.push((word, digits.parse().unwrap_or(0)));
    parts
}

/// The word in brackets of a kernel choice such as `always [madvise] never`, and all choices.
pub(crate) fn choice(text: &str) -> (Option<String>, Vec<String>) {
    let mut chosen = None;
    let all = text
        .split_whitespace()
        .map(|word| {
            match word.strip_prefix('[').and_then(|w| w.strip_suffix(']')) {
                Some(inner) => {
                    chosen = Some(inner.to_string());
                    inner
                }
                None => word,
            }
            .to_string()
        })
        .collect::<Vec<_>>();
    // A choice of one is printed without brackets (`none`).
    if chosen.is_none() && all.len() == 1 {
        chosen = all.first().cloned();
    }
    (chosen, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_trip_through_text() {
        let n = DeviceNumber {
            major: 259,
            minor: 1_048_575,
        };
        assert_eq!(n.to_string().parse(), Ok(n));
        assert!("8".parse::<DeviceNumber>().is_err());
        assert!("8:x".parse::<DeviceNumber>().is_err());
    }

    #[test]
    fn a_choice_is_the_word_in_brackets_or_the_only_word() {
        let (chosen, all) = choice("none [mq-deadline] kyber");
        assert_eq!(chosen.as_deref(), Some("mq-deadline"));
        assert_eq!(all, ["none", "mq-deadline", "kyber"]);
        assert_eq!(choice("none").0.as_deref(), Some("none"));
        assert_eq!(choice("").0, None);
    }

    #[test]
    fn names_are_sorted_as_people_count() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sda10", "sda2", "sda", "nvme1n1", "nvme0n1"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(
            names(dir.path()),
            ["nvme0n1", "nvme1n1", "sda", "sda2", "sda10"]
        );
    }
}

//! The mark by which fathom knows the files that it made: an extended attribute.
//!
//! It lives on the inode, so it follows renames and links, and no name that somebody else
//! might choose can be mistaken for it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::Serialize;

/// Name of the attribute.
pub const ATTRIBUTE: &str = "user.fathom.made";

/// Who made a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// fathom: the attribute's text, tool version and UTC time.
    Fathom(String),
    /// Somebody else.
    Foreign,
    /// Cannot be told, because the file system has no user xattrs. Treated as somebody
    /// else's; a file that fathom makes here must be removed after use.
    Unmarkable,
}

/// Who made an open file.
pub fn provenance(file: &File) -> io::Result<Provenance> {
    let mut buffer = [0u8; 256];
    match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut buffer[..]) {
        Ok(n) => {
            let text = String::from_utf8_lossy(buffer.get(..n).unwrap_or_default());
            Ok(if text.starts_with("fathom ") {
                Provenance::Fathom(text.into_owned())
            } else {
                Provenance::Foreign
            })
        }
        Err(Errno::NODATA | Errno::RANGE) => Ok(Provenance::Foreign),
        Err(e) if is_unsupported(e) => Ok(Provenance::Unmarkable),
        Err(e) => Err(e.into()),
    }
}

/// Whether fathom made the file, so that it may be overwritten. Never true on doubt.
pub fn may_overwrite(path: &Path) -> bool {
    File::open(path)
        .and_then(|file| Ok(file.metadata()?.is_file() && is_fathoms(&file)))
        .unwrap_or(false)
}

fn is_fathoms(file: &File) -> bool {
    matches!(provenance(file), Ok(Provenance::Fathom(_)))
}

/// Marks a file that this process has just made. `false` where the file system has no user
/// xattrs.
pub fn set(file: &File) -> io::Result<bool> {
    let value = format!(
        "fathom {} {}",
        env!("CARGO_PKG_VERSION"),
        utc(SystemTime::now())
    );
    match rustix::fs::fsetxattr(file, ATTRIBUTE, value.as_bytes(), XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(e) if is_unsupported(e) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn is_unsupported(e: Errno) -> bool {
    e == Errno::OPNOTSUPP || e == Errno::NOTSUP || e == Errno::NOSYS
}

/// RFC 3339 in UTC, whole seconds.
pub fn utc(time: SystemTime) -> String {
    DateTime::<Utc>::from(time)
        .format("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

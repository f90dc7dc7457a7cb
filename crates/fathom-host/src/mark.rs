//! The mark by which fathom knows the files that it made: an extended attribute.
//!
//! It lives on the inode, so it follows renames and links, and no name that somebody else
//! might choose can be mistaken for it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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
pub(crate) fn set(file: &File) -> io::Result<bool> {
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
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to civil date in the proleptic Gregorian calendar (Hinnant's algorithm): years
    // begin in March so that the leap day comes last, eras have 400 years.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn utc_agrees_with_known_instants() {
        let at = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_102_444_800), "2100-01-01T00:00:00Z");
    }
}

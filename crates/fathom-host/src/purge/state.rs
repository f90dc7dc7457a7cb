//! Whether a drive empties itself just now: then it takes no I/O, whoever has begun.

use std::fs::File;
use std::io;
use std::path::Path;

use fathom_files::open;

use super::nvme::{self, Sanitize};
use crate::devices::nvme as drive;
use crate::sys;

/// A drive that empties itself just now, or could not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emptying {
    /// A sanitize operation of the whole drive goes on.
    Sanitize(Sanitize),
    /// A format of the namespace goes on: percent that are left.
    Format(u8),
    /// The last sanitize operation failed: the drive takes no I/O.
    Failed(Sanitize),
}

/// Whether the drive of a namespace empties itself just now; `None` where it does not, or cannot be asked.
pub fn emptying(device: &Path) -> Option<Emptying> {
    let device = std::fs::canonicalize(device).ok()?;
    let name = device.file_name()?.to_str()?;
    if !name.starts_with("nvme") {
        return None;
    }
    let file = open::for_reading(&device, 0).ok()?;
    if let Ok(s) = sanitized(&file) {
        match s.state {
            nvme::State::Running => return Some(Emptying::Sanitize(s)),
            nvme::State::Failed => return Some(Emptying::Failed(s)),
            _ => {}
        }
    }
    let nsid = sys::nvme_namespace_id(&file).ok()?;
    let mut page = [0; 4096];
    sys::nvme_identify(&file, drive::NAMESPACE, nsid, &mut page).ok()?;
    nvme::format_left(&page)
        .filter(|left| *left > 0)
        .map(Emptying::Format)
}

/// Why a drive that empties itself, or could not, takes no I/O, and what to do.
pub(crate) fn why_silent(device: &Path) -> Option<String> {
    const WAIT: &str = "wait for its end, or let fathom condition --purge do so";
    Some(match emptying(device)? {
        Emptying::Sanitize(s) => {
            format!(
                "its drive is being sanitized ({:.0} % done): {WAIT}",
                s.percent()
            )
        }
        Emptying::Format(left) => format!("it is being formatted ({left} % left): {WAIT}"),
        Emptying::Failed(s) => format!(
            "the last sanitize operation of its drive failed: {}",
            nvme::after_failure(&s)
        ),
    })
}

pub(super) fn sanitized(device: &File) -> io::Result<Sanitize> {
    let mut page = [0; 512];
    sys::nvme_log_page(device, nvme::SANITIZE_LOG, &mut page)?;
    Ok(Sanitize::of(&page))
}

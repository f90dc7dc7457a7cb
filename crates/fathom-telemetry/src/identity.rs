//! Whose rows they are: what every Parquet file of a run says in each of them, so that files of many runs and hosts can be
//! asked together.

use std::time::SystemTime;

use crate::utc;

/// The run and the host that a file's rows are of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// fathom's version.
    pub tool_version: String,
    /// Name of the run.
    pub run: String,
    /// What tells it from every other run, see [`new_id`].
    pub run_id: String,
    /// The host; none where rows are of several hosts together.
    pub host: Option<Host>,
    /// UTC in ns since 1970 when the clock of all times in it showed 0: the controller's clock where there are hosts.
    pub clock_zero_ns: i64,
    /// Whether a model made the rows.
    pub simulated: bool,
}

/// A host of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its place among the run's hosts, from 0.
    pub index: u32,
}

impl Host {
    /// This machine, as the only host of a run.
    pub fn own() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            name: name.trim().to_owned(),
            index: 0,
        }
    }
}

/// A new identity, a UUID of the kernel's.
pub fn new_id() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let kernel = kernel.trim();
    if kernel.len() == 36 {
        return kernel.to_owned();
    }
    // Where /proc is not mounted: this process, now.
    let now = utc::nanos(SystemTime::now()) as u64;
    format!(
        "{:08x}-{:04x}-{:04x}-8000-{:012x}",
        now >> 32,
        now >> 16 & 0xffff,
        now & 0xfff | 0x4000,
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_uuids_and_differ() {
        let (a, b) = (new_id(), new_id());
        assert_ne!(a, b);
        let lengths: Vec<usize> = a.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{a}");
    }
}

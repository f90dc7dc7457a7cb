//! What the disks behind the files of a fio script did while it ran.

use std::path::Path;

use fathom_fio::output::Disk;
use fathom_host::{CounterSource, Counters};
use fathom_io::clock::monotonic;
use fathom_io::target::counted;
use fathom_telemetry::Nanos;

use super::files::{self, OpenFile};

/// The whole disks behind the files, each once, and what they had counted when the run began.
pub(super) struct Counted {
    disks: Vec<(CounterSource, Option<Counters>)>,
    begin: Nanos,
}

impl Counted {
    pub(super) fn of(files: &[OpenFile]) -> Self {
        let mut disks: Vec<(CounterSource, Option<Counters>)> = Vec::new();
        for path in files::paths(files) {
            let Ok(found) = CounterSource::locate(&path) else {
                continue;
            };
            let disk = Path::new("/dev").join(found.disk());
            let source = CounterSource::locate(&disk).unwrap_or(found);
            if !disks.iter().any(|d| d.0.name() == source.name()) {
                let before = source.read().ok();
                disks.push((source, before));
            }
        }
        Self {
            disks,
            begin: monotonic(),
        }
    }

    /// What they did since.
    pub(super) fn disks(&self) -> Vec<Disk> {
        let since = |(source, before): &(CounterSource, Option<Counters>)| {
            let c = source.read().ok()?.since(before.as_ref()?);
            Some(Disk {
                delta: counted(c),
                time: monotonic().since(self.begin),
            })
        };
        self.disks.iter().filter_map(since).collect()
    }
}

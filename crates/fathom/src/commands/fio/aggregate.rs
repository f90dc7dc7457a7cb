//! `--bandwidth-log`: bandwidth of all jobs together, `agg-{read,write,trim}_bw.log`, an entry every half second.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_telemetry::Nanos;

/// Distance of entries.
const PERIOD: Nanos = Nanos(500_000_000);

/// The three logs.
pub(super) struct AggregateLogs {
    files: [Option<File>; 3],
    last: (Nanos, [u64; 3]),
}

impl AggregateLogs {
    /// Makes them; one that cannot be made is left out.
    pub(super) fn new(directory: Option<&Path>) -> Self {
        let files = ["read", "write", "trim"].map(|word| {
            let name = PathBuf::from(format!("agg-{word}_bw.log"));
            let path = directory.map_or(name.clone(), |d| d.join(&name));
            File::create(path).ok()
        });
        Self {
            files,
            last: (Nanos::ZERO, [0; 3]),
        }
    }

    /// Writes an entry when it is time; `bytes` are what was done so far.
    pub(super) fn step(&mut self, now: Nanos, bytes: impl FnOnce() -> [u64; 3]) {
        let time = now.since(self.last.0);
        if time < PERIOD {
            return;
        }
        let bytes = bytes();
        for (direction, file) in self.files.iter_mut().enumerate() {
            let done = bytes[direction].saturating_sub(self.last.1[direction]);
            if let Some(f) = file
                && done > 0
            {
                let kib = done as f64 / 1024.0 / time.as_secs_f64();
                let _ = writeln!(f, "{}, {kib:.0}, {direction}, 0, 0", now.0 / 1_000_000);
            }
        }
        self.last = (now, bytes);
    }
}

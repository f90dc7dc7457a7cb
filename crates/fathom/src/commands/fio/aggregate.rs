//! `--bandwidth-log`: bandwidth of all jobs together, `agg-{read,write,trim}_bw.log`, an entry every half second.

use std::io::{self, Write};
use std::path::PathBuf;

use fathom_files::Output;
use fathom_fio::output::{Outputs, is_log, named};
use fathom_telemetry::Nanos;

/// Distance of entries.
const PERIOD: Nanos = Nanos(500_000_000);

/// The three logs.
pub(super) struct AggregateLogs {
    files: [io::Result<Output>; 3],
    last: (Nanos, [u64; 3]),
}

impl AggregateLogs {
    /// Begins them.
    pub(super) fn new(outputs: &Outputs) -> Self {
        Self {
            files: WORDS.map(|word| outputs.create(&path(outputs, word), is_log)),
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
            if let Ok(f) = file
                && done > 0
            {
                let kib = done as f64 / 1024.0 / time.as_secs_f64();
                if let Err(e) = writeln!(f, "{}, {kib:.0}, {direction}, 0, 0", now.0 / 1_000_000) {
                    *file = Err(named(f.path(), e));
                }
            }
        }
        self.last = (now, bytes);
    }

    /// Gives them their places; the first error of all.
    pub(super) fn close(self) -> io::Result<()> {
        for file in self.files {
            let file = file?;
            let path = file.path().to_owned();
            file.commit().map_err(|e| named(&path, e))?;
        }
        Ok(())
    }
}

/// Whether they can be written; nothing is made or changed.
pub(super) fn check(outputs: &Outputs) -> io::Result<()> {
    WORDS
        .iter()
        .try_for_each(|word| outputs.check_one(&path(outputs, word), is_log))
}

const WORDS: [&str; 3] = ["read", "write", "trim"];

fn path(outputs: &Outputs, word: &str) -> PathBuf {
    outputs.path(&format!("agg-{word}_bw.log"))
}

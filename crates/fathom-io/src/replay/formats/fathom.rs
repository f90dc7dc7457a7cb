//! fathom's own I/O log: `io.parquet`, or the run directory that holds it.
//!
//! Jobs of a run come one after another, as they ran; each job counts its times from its own start.

use std::path::{Path, PathBuf};

use fathom_telemetry::iolog::IoLogReader;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::{Nanos, Op};

use super::Source;
use crate::replay::{TraceError, TraceIo};

/// Added to every time, so that I/Os under way at the start of the measured part, whose time is negative,
/// stay in order: an hour.
const SHIFT: i64 = 3_600_000_000_000;

pub(super) struct Fathom {
    path: PathBuf,
    reader: IoLogReader,
    job: Option<u16>,
}

impl Fathom {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let path = file(path)?;
        Ok(Self {
            reader: IoLogReader::open(&path)?,
            path,
            job: None,
        })
    }
}

/// The I/O log of a run; of a recorded fleet each host's is a trace.
///
/// # Errors
/// Where there are several.
pub fn file(path: &Path) -> Result<PathBuf, TraceError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let dir = RunDir::at(path);
    match &dir.of_hosts()[..] {
        [] => Ok(dir.io_file()),
        [one] => Ok(one.io_file()),
        [first, ..] => Err(TraceError::Unfit(format!(
            "{} is a run of several hosts: name the directory of one, such as {}",
            path.display(),
            first.path().display()
        ))),
    }
}

impl Source for Fathom {
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError> {
        let Some(row) = self.reader.next() else {
            return Ok(None);
        };
        let row = row?;
        // Only one job: the times of several do not share an origin.
        if *self.job.get_or_insert(row.job) != row.job {
            return Err(TraceError::Unfit(format!(
                "{}: it holds several jobs, whose times have different origins: record one job (fathom run … --record)",
                self.path.display()
            )));
        }
        let at = row.submitted_ns.saturating_add(SHIFT).max(0) as u64;
        let sync = row.op == Op::Sync;
        Ok(Some(TraceIo {
            at: Nanos(at),
            device: 0,
            op: row.op,
            offset: if sync { 0 } else { row.offset },
            len: if sync { 0 } else { u64::from(row.len) },
            latency: Some(Nanos(row.service_ns())),
        }))
    }
    fn device(&self, _: u32) -> String {
        "target".into()
    }
}

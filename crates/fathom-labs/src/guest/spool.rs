//! The I/Os of one group of jobs, kept where they are made until the group has ended: in a file without a name, which goes
//! with the process whatever happens to it.

use std::fs::File;
use std::path::PathBuf;

use fathom_io::driver::PlannedJob;
use fathom_telemetry::iolog::{IoLog, IoLogReader, IoRow, LogHandle, LogSummary};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Flag, FlagCode, Identity, Nanos};

use crate::LabError;

/// Where such files are: `TMPDIR`, or a place that outlives a restart, which is rarely memory.
pub(crate) fn dir() -> PathBuf {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let all = [Some("/var/tmp".into()), Some(std::env::temp_dir())];
    let mut there = std::iter::once(named).chain(all).flatten();
    there
        .find(|p| p.is_dir())
        .unwrap_or_else(std::env::temp_dir)
}

/// The log while jobs run.
pub(crate) struct Spool(IoLog);

/// What they have left.
pub(crate) struct Spooled {
    /// A log, whose jobs are numbered as in the group.
    pub(crate) file: File,
    pub(crate) summary: LogSummary,
}

impl Spool {
    /// For jobs of which some record their I/Os; none where none does.
    ///
    /// # Errors
    /// Where no file can be made for them.
    pub(crate) fn of(jobs: &[PlannedJob]) -> Result<Option<Self>, LabError> {
        let recorded = jobs.iter().filter(|p| p.job.spec.record);
        let threads: u32 = recorded.map(|p| p.seats().0).sum();
        if threads == 0 {
            return Ok(None);
        }
        let path = dir().join(format!(".fathom-rows-{}", std::process::id()));
        let log = IoLog::create(&path, Identity::default(), threads as usize);
        let log = log.map_err(|e| {
            LabError::Failed(format!("{e}; I/Os are kept in TMPDIR until the job ends"))
        })?;
        Ok(Some(Self(log)))
    }

    /// A thread's end of a job of the group.
    pub(crate) fn handle(&self, job: usize, thread: u32) -> LogHandle {
        self.0.handle(job as u16, thread as u16, Nanos::ZERO)
    }

    /// The file, after the jobs have ended.
    ///
    /// # Errors
    /// Where it could not be written at all.
    pub(crate) fn finish(self) -> Result<Spooled, LabError> {
        let finished = self.0.finish_unnamed();
        let (summary, file) = finished.map_err(|e| LabError::Failed(e.to_string()))?;
        Ok(Spooled { file, summary })
    }
}

/// Flags jobs whose I/Os were kept on the disk under test.
pub(crate) fn on_tested_disk(planned: &[PlannedJob], jobs: &mut [Job]) {
    for (job, _) in jobs
        .iter_mut()
        .zip(planned)
        .filter(|(_, p)| p.job.spec.record)
    {
        job.flags.push(Flag::new(
            FlagCode::LogOnTestedDevice,
            "the I/O log is written to the device under test until the job ends",
            "set TMPDIR to a directory on another disk there",
        ));
    }
}

/// Gives the rows of a file to `take`, in pieces of one job each, with what the times of the job are after.
///
/// # Errors
/// Where the file is damaged.
pub(crate) fn each(
    file: File,
    mut take: impl FnMut(usize, Nanos, &[IoRow]),
) -> Result<(), LabError> {
    let failed = |e: &dyn std::fmt::Display| LabError::Failed(e.to_string());
    let mut reader = IoLogReader::of_file(file, "of a host".as_ref()).map_err(|e| failed(&e))?;
    let origins = reader.metadata("fathom.clock_origin_ns").unwrap_or("{}");
    let origins: std::collections::BTreeMap<u16, u64> =
        serde_json::from_str(origins).map_err(|e| failed(&e))?;
    loop {
        let batch = reader.next_batch().map_err(|e| failed(&e))?;
        if batch.is_empty() {
            return Ok(());
        }
        for rows in batch.chunk_by(|a, b| a.job == b.job) {
            let job = rows[0].job;
            let origin = origins.get(&job).copied().unwrap_or_default();
            take(usize::from(job), Nanos(origin), rows);
        }
    }
}

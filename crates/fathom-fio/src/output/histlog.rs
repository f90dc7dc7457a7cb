//! fio's log of histograms: `PREFIX_clat_hist.N.log`, a line per period and direction with time in ms, direction,
//! block size and how many I/Os fell into each bucket since the line before. Written while the job runs.

use std::io::{self, Write};
use std::path::PathBuf;

use fathom_files::Output;
use fathom_telemetry::{Histogram, Nanos, Window};

use super::bins;
use crate::aux_files::{Outputs, is_log};
use crate::plan::Task;

/// A histogram log that is being written.
pub(super) struct HistLog {
    out: Output,
    period: Nanos,
    covered: Nanos,
    sums: [Histogram; 3],
    blocks: [u64; 3],
    /// So many buckets are one.
    stride: usize,
    epoch_ms: u64,
}

impl HistLog {
    /// Makes the file; `None` where the task asks for none.
    pub(super) fn create(
        task: &Task,
        outputs: &Outputs,
        epoch_ms: u64,
    ) -> io::Result<Option<Self>> {
        let logs = &task.shape.logs;
        let Some(path) = path(task, outputs) else {
            return Ok(None);
        };
        Ok(Some(Self {
            out: outputs.log(&path, logs.per_job, is_log)?,
            // Without a period the file is made and stays empty.
            period: match logs.histogram_ms {
                0 => Nanos::MAX,
                ms => Nanos::from_millis(ms),
            },
            covered: Nanos::ZERO,
            sums: Default::default(),
            blocks: task.shape.terms.blocks.map(|b| b.1),
            stride: 1 << logs.coarseness,
            epoch_ms,
        }))
    }

    /// Takes a closed window that ends at `end` of the measured part.
    pub(super) fn window(&mut self, end: Nanos, width: Nanos, window: &Window) -> io::Result<()> {
        for (sum, d) in self.sums.iter_mut().zip(&window.directions) {
            if let Some(d) = d {
                sum.merge_sparse(&d.service);
            }
        }
        self.covered += width;
        if self.covered < self.period {
            return Ok(());
        }
        self.entry(end)
    }

    /// Writes what came since the last entry.
    pub(super) fn entry(&mut self, end: Nanos) -> io::Result<()> {
        self.covered = Nanos::ZERO;
        if self.period == Nanos::MAX {
            return Ok(());
        }
        let ms = end.0 / 1_000_000 + self.epoch_ms;
        for (direction, sum) in self.sums.iter_mut().enumerate() {
            if sum.is_empty() {
                continue;
            }
            let counts = bins::counts(sum);
            write!(self.out, "{ms}, {direction}, {}", self.blocks[direction])?;
            for part in counts.chunks(self.stride) {
                write!(self.out, ", {}", part.iter().sum::<u64>())?;
            }
            self.out.write_all(b"\n")?;
            *sum = Histogram::default();
        }
        Ok(())
    }

    /// Writes the last entry, and gives the log its place.
    pub(super) fn close(mut self, end: Nanos) -> io::Result<PathBuf> {
        self.entry(end)?;
        let path = self.out.path().to_owned();
        self.out.commit()?;
        Ok(path)
    }
}

/// Its place; `None` where the task asks for none.
pub(super) fn path(task: &Task, outputs: &Outputs) -> Option<PathBuf> {
    let logs = &task.shape.logs;
    let prefix = logs.histogram.as_ref()?;
    Some(outputs.path(&if logs.per_job {
        format!("{prefix}_clat_hist.{}.log", task.number)
    } else {
        format!("{prefix}_clat_hist.log")
    }))
}

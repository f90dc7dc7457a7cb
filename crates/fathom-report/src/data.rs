//! What a report is made of: the run and the windows of its jobs.
//!
//! Exporters see this and nothing else; where the windows come from (a run
//! directory, or memory in tests) is behind [`SeriesSource`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::series::{JobSeries, SeriesReader};
use fathom_telemetry::{Nanos, Window};

use crate::error::ReportError;

/// Where windows come from.
pub trait SeriesSource {
    /// The windows of a job (by its index in `Run::jobs`), at most `most` of them (neighbours
    /// merged, never sampled); empty where none were kept.
    ///
    /// # Errors
    /// [`ReportError::Series`] where they exist and cannot be read.
    fn windows(&self, job: usize, most: usize) -> Result<JobSeries, ReportError>;
}

impl SeriesSource for SeriesReader {
    fn windows(&self, job: usize, most: usize) -> Result<JobSeries, ReportError> {
        // The file numbers jobs in 16 bits; later ones have no windows.
        let Ok(job) = u16::try_from(job) else {
            return Ok(JobSeries::default());
        };
        Ok(SeriesReader::windows(self, job, most)?)
    }
}

/// Windows in memory, by the job's index; without any, charts over time and distributions are left out.
#[derive(Debug, Clone, Default)]
pub struct MemorySeries(pub BTreeMap<usize, JobSeries>);

impl SeriesSource for MemorySeries {
    fn windows(&self, job: usize, most: usize) -> Result<JobSeries, ReportError> {
        Ok(self
            .0
            .get(&job)
            .map(|s| decimated(s, most))
            .unwrap_or_default())
    }
}

/// The same series in at most `most` windows: neighbours are merged, so that percentiles and
/// maxima stay true.
fn decimated(series: &JobSeries, most: usize) -> JobSeries {
    let span = series.windows.last().map_or(0, |w| w.index + 1);
    let factor = span.div_ceil(most.max(1) as u64).max(1);
    let mut windows: Vec<Window> = Vec::new();
    for w in &series.windows {
        let index = w.index / factor;
        match windows.last_mut().filter(|last| last.index == index) {
            Some(last) => last.merge(w),
            None => windows.push(Window { index, ..w.clone() }),
        }
    }
    JobSeries {
        width: Nanos(series.width.0.saturating_mul(factor)),
        windows,
    }
}

/// Everything that a report is made of.
pub struct ReportData {
    /// The run.
    pub run: Run,
    /// Its windows.
    pub series: Box<dyn SeriesSource>,
    /// Its directory, for "see also" lines.
    pub dir: Option<PathBuf>,
}

impl ReportData {
    /// A run without windows.
    pub fn from_run(run: Run) -> Self {
        Self {
            run,
            series: Box::new(MemorySeries::default()),
            dir: None,
        }
    }

    /// A run from its directory (or its `run.json`). A run without `series.parquet` has no windows.
    ///
    /// # Errors
    /// Where the run or its series exists and cannot be read.
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        let (dir, run) = RunDir::open(path)?;
        Self::of(&dir, run)
    }

    /// The same of a run that was read already.
    ///
    /// # Errors
    /// Where its series exists and cannot be read.
    pub fn of(dir: &RunDir, run: Run) -> Result<Self, ReportError> {
        let mut data = Self::from_run(run);
        if dir.series_file().exists() {
            data.series = Box::new(SeriesReader::open(&dir.series_file())?);
        }
        data.dir = Some(dir.path().to_owned());
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::DirectionWindow;

    #[test]
    fn decimation_merges_neighbours_and_loses_nothing() {
        let window = |index, ios| Window {
            index,
            directions: [
                Some(Box::new(DirectionWindow {
                    ios,
                    ..DirectionWindow::default()
                })),
                None,
                None,
                None,
            ],
        };
        let s = JobSeries {
            width: Nanos(100),
            windows: [0, 1, 2, 5, 9].map(|i| window(i, i + 1)).into(),
        };
        let d = decimated(&s, 5);
        let seen: Vec<_> = d
            .windows
            .iter()
            .map(|w| (w.index, w.directions[0].as_ref().unwrap().ios))
            .collect();
        assert_eq!(
            (d.width, seen),
            (Nanos(200), vec![(0, 3), (1, 3), (2, 6), (4, 10)])
        );
        assert_eq!(decimated(&s, 0).windows.len(), 1);
    }
}

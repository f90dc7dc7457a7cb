//! Saved runs, shown anew from their results.

use std::path::Path;

use anyhow::anyhow;
use fathom_bench::present::present_anew;
use fathom_bench::results::SavedHistograms;
use fathom_report::ReportData;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;

use crate::exit::{Failure, refused};
use crate::known::presenters;

/// A run, shown anew from its results.
pub(super) fn open(path: &Path) -> Result<(RunDir, Run), Failure> {
    let (dir, mut run) = RunDir::open(path).map_err(refused)?;
    present(&mut run, &dir)?;
    Ok((dir, run))
}

/// The same with its series.
pub(super) fn data(path: &Path) -> Result<ReportData, Failure> {
    let (dir, run) = open(path)?;
    Ok(ReportData::of(&dir, run)?)
}

fn present(run: &mut Run, dir: &RunDir) -> Result<(), Failure> {
    let histograms = SavedHistograms::of_series(dir.series_file());
    present_anew(run, &histograms, &presenters()).map_err(refused)
}

/// Makes a directory for exports.
pub(super) fn make(out: &Path) -> Result<(), Failure> {
    fathom_files::create::dirs(out).map_err(|e| {
        refused(anyhow!(
            "{}: cannot be made: {e}; choose another --out",
            out.display()
        ))
    })
}

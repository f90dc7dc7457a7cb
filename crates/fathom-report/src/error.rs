//! What can go wrong while a report is made.

use std::path::PathBuf;

/// A report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file of the report could not be written.
    #[error(
        "cannot write {path}: {source}; check that the directory exists, is writable and not full"
    )]
    Write {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The run could not be turned into JSON (a programmer's error in practice).
    #[error("cannot encode the run as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The run could not be opened.
    #[error(transparent)]
    Run(#[from] fathom_telemetry::rundir::RunDirError),
    /// The windows of its jobs could not be read.
    #[error(transparent)]
    Series(#[from] fathom_telemetry::series::SeriesError),
    /// No exporter has this name.
    #[error("unknown report format '{name}': expected one of {known}")]
    UnknownFormat {
        /// As asked.
        name: String,
        /// What there is, comma-separated.
        known: String,
    },
}

//! The windowed series of every job: `series.parquet`.
//!
//! One row per job, operation and window, with its full latency histograms: what is
//! shown over a longer time is merged from them, never averaged. The columns are
//! described in `docs/run-directory.md`. This room does not know how windows come about.

mod read;
mod write;

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;

use crate::codec::CodecError;
pub use read::{JobSeries, SeriesReader, SeriesRow};
pub use write::{JobOfSeries, SeriesSummary, SeriesWriter};

/// Name of the series in a run directory.
pub const FILE_NAME: &str = "series.parquet";

/// Why the series could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// The file could not be created, written or named.
    #[error(
        "cannot write the series {path}: {source}; free some space or choose another directory with --out"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not there, not Parquet, or not fathom's.
    #[error("cannot read the series {path}: {reason}; expected a series.parquet written by fathom")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// What can happen below, before the path is known.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("{0}")]
    Content(String),
}

/// The file's columns, in Parquet's own notation. Percentiles are null without ten samples beyond them.
const SCHEMA: &str = "
message series {
    required int32 job;
    required binary op (UTF8);
    required int64 start_ns;
    required int64 width_ns;
    required int64 ios;
    required int64 bytes;
    required int64 errors;
    required int64 short;
    optional double submit_mean_ns;
    optional double service_mean_ns;
    optional int64 service_p50_ns;
    optional int64 service_p99_ns;
    optional int64 service_p99_9_ns;
    optional int64 service_max_ns;
    optional double response_mean_ns;
    optional int64 response_p50_ns;
    optional int64 response_p99_ns;
    optional int64 response_p99_9_ns;
    optional int64 response_max_ns;
    required binary submit_histogram;
    required binary service_histogram;
    required binary response_histogram;
    required binary job_name (UTF8);
    required int64 epoch_ns;
    required binary run_id (UTF8);
    optional binary host (UTF8);
    optional int32 host_index;
    optional int64 submit_max_ns;
    required group submit_bucket (LIST) { repeated group list { required int32 element; } }
    required group submit_n (LIST) { repeated group list { required int64 element; } }
    required group service_bucket (LIST) { repeated group list { required int32 element; } }
    required group service_n (LIST) { repeated group list { required int64 element; } }
    required group response_bucket (LIST) { repeated group list { required int32 element; } }
    required group response_n (LIST) { repeated group list { required int64 element; } }
}";

#[cfg(test)]
mod tests;

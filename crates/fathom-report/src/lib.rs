//! Reports: terminal, self-contained HTML, JSON, CSV, Markdown and pictures from a run.
//!
//! This room reads a run directory and nothing else. It knows no engine and no
//! experiment: tables and charts are generic sections of the run, so that a new
//! experiment never touches it. Everything in a run is untrusted text here.

mod beginning;
mod conclusion;
mod csv;
mod data;
mod error;
mod exporter;
pub mod format;
mod group;
mod html;
mod index;
mod json;
mod markdown;
mod openmetrics;
mod output;
pub mod query;
mod redact;
mod registry;
mod stamp;
mod surroundings;
mod svg;
pub mod terminal;
#[cfg(test)]
mod testing;
mod text;

pub use data::{MemorySeries, ReportData, SeriesSource};
pub use error::ReportError;
pub use exporter::Exporter;
pub use html::{RUNS_MAX, compare_page, index_page, markup, write_report};
pub use index::Brief;
pub use markdown::{escape as markdown_text, markdown};
pub use openmetrics::label_text;
pub use output::{Body, DirOutput, MemoryOutput, Output, percent_encoded};
pub use redact::redact;
pub use registry::{EXPORTERS, exporter};
pub use text::{Colour, Screen, clean};

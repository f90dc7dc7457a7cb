//! Reports: terminal, self-contained HTML, JSON, CSV and Markdown from a run.
//!
//! This room reads a run directory and nothing else. It knows no engine and no
//! experiment: tables and charts are generic sections of the run, so that a new
//! experiment never touches it. Everything in a run is untrusted text here.

mod csv;
mod data;
mod error;
pub mod format;
mod group;
mod html;
mod json;
mod markdown;
mod output;
mod registry;
mod stamp;
pub mod terminal;
#[cfg(test)]
mod testing;
mod text;

pub use data::{MemorySeries, ReportData, SeriesSource};
pub use error::ReportError;
pub use html::write_report;
pub use markdown::markdown;
pub use output::{Body, DirOutput, MemoryOutput, Output};
pub use registry::{EXPORTERS, Exporter, exporter};
pub use text::{Colour, Screen};

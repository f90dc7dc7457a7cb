//! What an exporter is.

use crate::data::ReportData;
use crate::error::ReportError;
use crate::output::Output;

/// Turns a run into files of one format.
pub trait Exporter: Sync {
    /// Name on the command line: `html`.
    fn name(&self) -> &'static str;
    /// What it writes, for help texts.
    fn about(&self) -> &'static str;
    /// Writes the files.
    ///
    /// # Errors
    /// Where a file cannot be written or the run's windows cannot be read.
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError>;
}

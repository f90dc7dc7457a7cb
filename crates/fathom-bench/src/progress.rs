//! What is told while an experiment runs, to whoever shows it.

use fathom_io::driver::Progress;
use fathom_telemetry::schema::Headline;

use crate::bench::{Bench, BenchError};

/// Hears of every job while an experiment runs.
pub trait ProgressSink {
    /// The scratch file is being filled.
    fn filling(&mut self, _progress: &Progress) {}
    /// The target is being purged: by what, and how far that is, percent.
    fn purging(&mut self, _by: &str, _percent: f64) {}
    /// A job begins.
    fn job(&mut self, _done: u32, _of: u32, _name: &str) {}
    /// While it runs.
    fn progress(&mut self, _progress: &Progress) {}
    /// What its numbers are so far: made only where somebody looks.
    fn so_far(&mut self, _headlines: &dyn Fn() -> Vec<Headline>) {}
}

/// Shows what is filled.
pub struct Filling<'a>(pub &'a mut dyn ProgressSink);

impl fathom_io::Observer for Filling<'_> {
    fn progress(&mut self, p: &Progress) {
        self.0.filling(p);
    }
}

/// Fills what is to be filled, and shows it.
///
/// # Errors
/// Where the target cannot be filled.
pub fn prepare(bench: &mut dyn Bench, sink: &mut dyn ProgressSink) -> Result<(), BenchError> {
    bench.prepare(&mut Filling(sink)).map(|_| ())
}

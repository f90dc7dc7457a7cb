//! Fills what fathom made before it is read, with its progress on the screen.

use fathom_experiments::survey::Watcher;
use fathom_experiments::{Bench, BenchError};
use fathom_io::Observer;
use fathom_io::driver::Progress;

/// Shows what is filled.
pub(crate) struct Filling<'a>(pub(crate) &'a mut dyn Watcher);

impl Observer for Filling<'_> {
    fn progress(&mut self, p: &Progress) {
        self.0.filling(p);
    }
}

/// Makes a bench fit for reading.
///
/// # Errors
/// Where it cannot be filled.
pub(crate) fn prepare(bench: &mut dyn Bench, watcher: &mut dyn Watcher) -> Result<(), BenchError> {
    bench.prepare(&mut Filling(watcher)).map(|_| ())
}

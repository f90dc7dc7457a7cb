//! Before a target is read: fills what fathom made, with its progress on the screen, and empties the page cache of it.

use std::fs::File;

use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, BenchError};
use fathom_io::Observer;
use fathom_io::driver::Progress;

/// Shows what is filled.
pub(crate) struct Filling<'a>(pub(crate) &'a mut dyn ProgressSink);

impl Observer for Filling<'_> {
    fn progress(&mut self, p: &Progress) {
        self.0.filling(p);
    }
}

/// Makes a bench fit for reading.
///
/// # Errors
/// Where it cannot be filled.
pub(crate) fn prepare(
    bench: &mut dyn Bench,
    sink: &mut dyn ProgressSink,
) -> Result<(), BenchError> {
    bench.prepare(&mut Filling(sink)).map(|_| ())
}

/// Writes back and drops what the page cache has of a bench's target, so that reads come from its device. What cannot be
/// dropped shows: the job is flagged where the page cache answered.
pub(crate) fn forget(bench: &mut dyn Bench) {
    let path = bench.real().and_then(|r| r.target().path());
    if let Some(file) = path.and_then(|p| File::open(p).ok()) {
        let _ = rustix::fs::fdatasync(&file);
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

//! The page cache of a target, emptied before it is read.

use std::fs::File;

use fathom_bench::Bench;

/// Writes back and drops what the page cache has of a bench's target, so that reads come from its device. What cannot be
/// dropped shows: the job is flagged where the page cache answered.
pub(crate) fn forget(bench: &mut dyn Bench) {
    let path = bench.real().and_then(|r| r.target().path());
    if let Some(file) = path.and_then(|p| File::open(p).ok()) {
        let _ = rustix::fs::fdatasync(&file);
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

//! `ioengine=ftruncate` and `ioengine=falloc`: no data, only room.

use std::fs::File;
use std::sync::Arc;

use fathom_io::job::Flush;
use fathom_io::load::{Performer, PilotIo};
use fathom_telemetry::Op;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// A file is cut or grown to each offset.
pub(super) struct Truncating(pub(super) Vec<Arc<File>>);

/// Reads reserve room within the file, writes let it grow, trims make holes.
pub(super) struct Allocating(pub(super) Vec<Arc<File>>);

fn file<'a>(files: &'a [Arc<File>], io: &PilotIo) -> Result<&'a File, Errno> {
    let found = files.get(usize::from(io.file)).map(|f| &**f);
    found.ok_or(Errno::BADF)
}

/// Trims and syncs of engines that have no other way for them.
pub(super) fn other(file: &File, io: &PilotIo) -> i64 {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match io.op {
        Op::Trim => super::result(
            rustix::fs::fallocate(file, hole, io.offset, io.len.into()),
            io.len,
        ),
        _ if io.flush() == Flush::Data => super::result(rustix::fs::fdatasync(file), 0),
        _ => super::result(rustix::fs::fsync(file), 0),
    }
}

impl Performer for Truncating {
    fn carries_data(&self) -> bool {
        false
    }
    fn perform(&mut self, io: &PilotIo, _data: &mut [u8]) -> i64 {
        let file = match file(&self.0, io) {
            Ok(file) => file,
            Err(e) => return super::result(Err(e), 0),
        };
        match io.op {
            Op::Write => super::result(rustix::fs::ftruncate(file, io.offset), io.len),
            Op::Sync => other(file, io),
            Op::Read | Op::Trim => super::result(Err(Errno::INVAL), 0),
        }
    }
}

impl Performer for Allocating {
    fn carries_data(&self) -> bool {
        false
    }
    fn perform(&mut self, io: &PilotIo, _data: &mut [u8]) -> i64 {
        let file = match file(&self.0, io) {
            Ok(file) => file,
            Err(e) => return super::result(Err(e), 0),
        };
        let mode = match io.op {
            Op::Read => FallocateFlags::KEEP_SIZE,
            Op::Write => FallocateFlags::empty(),
            Op::Trim | Op::Sync => return other(file, io),
        };
        super::result(
            rustix::fs::fallocate(file, mode, io.offset, io.len.into()),
            io.len,
        )
    }
}

//! `ioengine=ftruncate` and `ioengine=falloc`: no data, only room.

use std::fs::File;
use std::sync::Arc;

use fathom_io::job::Flush;
use fathom_io::load::{Performer, PilotIo};
use fathom_telemetry::Op;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What a job of these engines does with its files.
pub(super) enum Room {
    /// A file is cut or grown to each offset.
    Truncate(Vec<Arc<File>>),
    /// Reads reserve room within the file, writes let it grow, trims make holes.
    Allocate(Vec<Arc<File>>),
}

/// Trims and syncs of engines that have no other way for them.
pub(super) fn other(file: &File, io: &PilotIo) -> rustix::io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match io.op {
        Op::Trim => rustix::fs::fallocate(file, hole, io.offset, io.len.into()),
        _ if io.flush() == Flush::Data => rustix::fs::fdatasync(file),
        _ => rustix::fs::fsync(file),
    }
}

impl Room {
    fn perform(&self, io: &PilotIo) -> rustix::io::Result<()> {
        let (Self::Truncate(files) | Self::Allocate(files)) = self;
        let file = files.get(usize::from(io.file)).ok_or(Errno::BADF)?;
        let keep = FallocateFlags::KEEP_SIZE;
        let reserve = |mode| rustix::fs::fallocate(file, mode, io.offset, io.len.into());
        match (self, io.op) {
            (_, Op::Sync) | (Self::Allocate(_), Op::Trim) => other(file, io),
            (Self::Truncate(_), Op::Write) => rustix::fs::ftruncate(file, io.offset),
            (Self::Truncate(_), Op::Read | Op::Trim) => Err(Errno::INVAL),
            (Self::Allocate(_), Op::Read) => reserve(keep),
            (Self::Allocate(_), Op::Write) => reserve(FallocateFlags::empty()),
        }
    }
}

impl Performer for Room {
    fn carries_data(&self) -> bool {
        false
    }
    fn perform(&mut self, io: &PilotIo, _data: &mut [u8]) -> i64 {
        super::result(Self::perform(self, io).map(|()| whole(io)))
    }
}

/// What an I/O comes to that has done all that it was asked for.
pub(super) fn whole(io: &PilotIo) -> usize {
    match io.op {
        Op::Sync => 0,
        Op::Read | Op::Write | Op::Trim => io.len as usize,
    }
}

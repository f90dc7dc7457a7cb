//! `ioengine=splice`: file to pipe and pipe to memory, and the other way round.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fathom_io::load::{Performer, PilotIo};
use fathom_telemetry::Op;
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, SpliceFlags, splice, vmsplice};

use super::space::{other, whole};

/// A thread's pipe and files.
pub(super) struct Splicing {
    files: Vec<Arc<File>>,
    out: OwnedFd,
    into: OwnedFd,
}

impl Splicing {
    pub(super) fn new(files: Vec<Arc<File>>) -> Result<Self, String> {
        let (out, into) =
            rustix::pipe::pipe().map_err(|e| format!("a pipe could not be made: {e}"))?;
        Ok(Self { files, out, into })
    }

    /// Bytes that were read.
    fn read(&self, file: &File, mut at: u64, data: &mut [u8]) -> rustix::io::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let left = data.len() - done;
            let n = splice(
                file,
                Some(&mut at),
                &self.into,
                None,
                left,
                SpliceFlags::empty(),
            )?;
            if n == 0 {
                break;
            }
            // The pipe holds them: this neither waits nor comes short.
            let end = done + n;
            while done < end {
                done += rustix::io::read(&self.out, &mut data[done..end])?;
            }
        }
        Ok(done)
    }

    fn write(&self, file: &File, mut at: u64, data: &[u8]) -> rustix::io::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let part = [IoSliceRaw::from_slice(&data[done..])];
            // SAFETY: the pipe refers to the pages until they are spliced below, before this function returns, and
            // nobody changes them meanwhile; a page cache copies them.
            let mut n = unsafe { vmsplice(&self.into, &part, SpliceFlags::NONBLOCK)? };
            while n > 0 {
                let out = splice(
                    &self.out,
                    None,
                    file,
                    Some(&mut at),
                    n,
                    SpliceFlags::empty(),
                )?;
                if out == 0 {
                    return Err(Errno::IO);
                }
                n -= out;
                done += out;
            }
        }
        Ok(done)
    }
}

impl Performer for Splicing {
    fn perform(&mut self, io: &PilotIo, data: &mut [u8]) -> i64 {
        let file = self.files.get(usize::from(io.file)).ok_or(Errno::BADF);
        super::result(file.and_then(|file| match io.op {
            Op::Read => self.read(file, io.offset, data),
            Op::Write => self.write(file, io.offset, data),
            Op::Trim | Op::Sync => other(file, io).map(|()| whole(io)),
        }))
    }
}

//! A device as its medium has it, past the page cache: a disk whose node is open keeps pages from before something was
//! written to it on another way (a second path, another machine), and would look blank.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;

use fathom_files::open;

use super::{ReadAt, Signature, scan};

/// What memory is aligned to for direct reads: enough for every disk.
const MEMORY_ALIGN: usize = 4096;

/// Everything recognised in the first `size` bytes. Of what is no block device the page cache is the truth.
pub(crate) fn on_medium(file: &File, size: u64) -> io::Result<Vec<Signature>> {
    of_part(file, 0, size)
}

/// The same of `size` bytes from `start`.
pub(crate) fn of_part(file: &File, start: u64, size: u64) -> io::Result<Vec<Signature>> {
    let direct;
    let medium = if file.metadata()?.file_type().is_block_device() {
        direct = open::again_for(file, libc::O_RDONLY, libc::O_DIRECT | libc::O_NONBLOCK)?;
        Medium {
            file: &direct,
            start,
            block: u64::from(rustix::fs::ioctl_blksszget(file)?),
        }
    } else {
        Medium {
            file,
            start,
            block: 1,
        }
    };
    scan(&medium, size)
}

struct Medium<'a> {
    file: &'a File,
    start: u64,
    /// Offsets and lengths are multiples of it.
    block: u64,
}

impl ReadAt for Medium<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = self.start.saturating_add(offset);
        if self.block == 1 {
            return ReadAt::read_at(self.file, buffer, offset);
        }
        let first = offset / self.block * self.block;
        let end = (offset + buffer.len() as u64).next_multiple_of(self.block);
        let mut room = vec![0; (end - first) as usize + MEMORY_ALIGN];
        let aligned = room.as_ptr().align_offset(MEMORY_ALIGN);
        let room = &mut room[aligned..][..(end - first) as usize];
        let read = ReadAt::read_at(self.file, room, first)?;
        let skip = (offset - first) as usize;
        let n = read.saturating_sub(skip).min(buffer.len());
        buffer[..n].copy_from_slice(&room[skip..skip + n]);
        Ok(n)
    }
}

//! Recognises what is already on a disk by reading it: file systems, RAID, LVM, ZFS and LUKS
//! members, swap, partition tables.
//!
//! The safety gate refuses to write where anything is recognised, so a table that is missed
//! loses data, while random bytes (which fathom itself leaves behind) must never be taken for
//! one: every entry needs at least 32 matching bits or an equally strong structural check.

mod checks;
mod firmware;
mod image;
mod magic;
mod medium;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::Serialize;

pub(crate) use image::Image;
pub(crate) use medium::{of_part, on_medium};

/// What kind of thing a signature stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureClass {
    /// A mountable file system.
    FileSystem,
    /// A swap area or a hibernation image.
    Swap,
    /// A member of a software or firmware RAID.
    Raid,
    /// An LVM physical volume.
    Lvm,
    /// A member of a ZFS pool.
    Zfs,
    /// An encrypted container.
    Encrypted,
    /// A partition table, or a boot sector without partitions.
    PartitionTable,
    /// Part of another storage stack: cache, replication, object store, snapshot, verity.
    Volume,
}

/// Something recognised on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// `ext4`, `LVM2`, `GPT`, … spelled as blkid and mount spell it where they do.
    pub name: String,
    /// What kind of thing it is.
    pub class: SignatureClass,
    /// Byte offset of the bytes that gave it away.
    pub offset: u64,
    /// Label, where it has one.
    pub label: Option<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = match self.class {
            SignatureClass::FileSystem => " file system",
            SignatureClass::Swap => " area",
            SignatureClass::Raid | SignatureClass::Zfs => " member",
            SignatureClass::Lvm => " physical volume",
            SignatureClass::Encrypted => " container",
            SignatureClass::PartitionTable => " partition table",
            SignatureClass::Volume => " volume",
        };
        write!(f, "{}{noun}", self.name)?;
        match &self.label {
            Some(label) => write!(f, " \"{label}\""),
            None => Ok(()),
        }
    }
}

/// Bytes that can be looked at: a file, a block device, or a slice in a test.
pub trait ReadAt {
    /// Reads at an offset; fewer bytes than asked for only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..))
            .unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// Everything recognised in the first `size` bytes of `source`, in order of offset.
///
/// Reads about 2 MiB at either end and a few blocks between. An unreadable spot is an error:
/// what cannot be read cannot be called empty.
pub fn scan<R: ReadAt + ?Sized>(source: &R, size: u64) -> io::Result<Vec<Signature>> {
    let image = Image::load(source, size)?;
    let mut found = magic::find(&image)?;
    found.extend(checks::find(&image)?);
    found.extend(firmware::find(&image)?);
    found.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
    // The same thing is often recognised by its copy at the end as well: name it once.
    let mut seen: Vec<Signature> = Vec::new();
    for signature in found {
        match seen.iter_mut().find(|s| s.name == signature.name) {
            Some(first) => first.label = first.label.take().or(signature.label),
            None => seen.push(signature),
        }
    }
    Ok(seen)
}

/// Size of a regular file or block device in bytes.
pub fn size_of(file: &File) -> io::Result<u64> {
    // Seeking does not disturb positioned reads, and works for both.
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

//! Where bytes are kept: the one narrow seam between the engine and files, devices or a simulation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Positioned, aligned I/O on a fixed range. Offsets, lengths and memory are multiples of 4096 bytes.
pub trait Store: Send + Sync {
    /// Bytes that there are.
    fn len(&self) -> u64;
    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Where not all of it could be read.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `buf` at `offset`; it may be lost or torn until [`Store::sync`] returns.
    ///
    /// # Errors
    /// Where not all of it could be written.
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()>;
    /// Makes all writes durable that returned before it was called.
    ///
    /// # Errors
    /// Where they may not be durable.
    fn sync(&self) -> io::Result<()>;
}

/// The first `len` bytes of a file or block device, opened by the caller with or without O_DIRECT.
pub struct FileStore {
    file: Arc<File>,
    len: u64,
}

impl FileStore {
    /// Takes an open file.
    pub fn new(file: Arc<File>, len: u64) -> Self {
        Self { file, len }
    }
}

impl Store for FileStore {
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

//! Where bytes are kept: the one narrow seam between the engine and files, devices or a simulation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use crate::ring::Ring;
use crate::sync::lock;

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
    /// Writes several buffers as [`Store::write`] does, at the same time where the store can.
    ///
    /// # Errors
    /// The first failure; which of the others were written is not known.
    fn write_many(&self, all: &[(u64, &[u8])]) -> io::Result<()> {
        all.iter()
            .try_for_each(|(offset, buf)| self.write(*offset, buf))
    }
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
    /// Those that nobody uses; more are made as threads ask for them.
    rings: Mutex<Vec<Ring>>,
}

impl FileStore {
    /// Takes an open file.
    pub fn new(file: Arc<File>, len: u64) -> Self {
        let rings = Mutex::default();
        Self { file, len, rings }
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
    fn write_many(&self, all: &[(u64, &[u8])]) -> io::Result<()> {
        let ring = lock(&self.rings).pop().map_or_else(Ring::new, Ok);
        let Ok(mut ring) = ring else {
            // A kernel without: one after another.
            return all
                .iter()
                .try_for_each(|(offset, buf)| self.write(*offset, buf));
        };
        let done = ring.write_all(&self.file, all);
        lock(&self.rings).push(ring);
        done
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::PageBuf;

    #[test]
    fn many_writes_arrive_where_they_belong_and_one_that_fails_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |write| File::options().read(true).write(write).open(file.path());
        let store = FileStore::new(Arc::new(open(true).unwrap()), 1 << 20);
        // More than are under way at the same time.
        let mut pages: Vec<PageBuf> = (0..200).map(|_| PageBuf::new(4096)).collect();
        for (i, page) in pages.iter_mut().enumerate() {
            page.fill(i as u8);
        }
        let all: Vec<(u64, &[u8])> = pages
            .iter()
            .enumerate()
            .map(|(i, p)| (((i * 7) % 200 * 4096) as u64, &p[..]))
            .collect();
        let read_only = FileStore::new(Arc::new(open(false).unwrap()), 1 << 20);
        assert!(read_only.write_many(&all).is_err());
        assert_eq!(file.as_file().metadata().unwrap().len(), 0);
        store.write_many(&all).unwrap();
        store.sync().unwrap();
        let mut found = PageBuf::new(4096);
        for (offset, page) in &all {
            store.read(*offset, &mut found).unwrap();
            assert!(found[..] == page[..], "byte {offset}");
        }
    }
}

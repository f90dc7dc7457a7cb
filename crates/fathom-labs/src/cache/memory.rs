//! A store in memory that notes what was read: for costs without a device, and for models, which keep no data.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use fathom_kv::Store;

/// Bytes in memory, and the offsets that were read.
pub(super) struct MemoryStore {
    bytes: RwLock<Vec<u8>>,
    /// Offset and length of each read since [`MemoryStore::note`]; `None` while nobody asks.
    noted: Mutex<Option<Vec<(u64, u32)>>>,
}

impl MemoryStore {
    pub(super) fn new(len: u64) -> Self {
        Self {
            bytes: RwLock::new(vec![0; len as usize]),
            noted: Mutex::new(None),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Option<Vec<(u64, u32)>>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on reads are noted.
    pub(super) fn note(&self) {
        *self.noted() = Some(Vec::new());
    }

    /// Moves what was noted to `into`.
    pub(super) fn take(&self, into: &mut Vec<(u64, u32)>) {
        if let Some(noted) = &mut *self.noted() {
            into.append(noted);
        }
    }
}

fn range(len: usize, offset: u64, buf: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    match start.checked_add(buf) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Store for MemoryStore {
    fn len(&self) -> u64 {
        self.bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len() as u64
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        buf.copy_from_slice(&bytes[range(bytes.len(), offset, buf.len())?]);
        drop(bytes);
        if let Some(noted) = &mut *self.noted() {
            noted.push((offset, buf.len() as u32));
        }
        Ok(())
    }
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let range = range(bytes.len(), offset, buf.len())?;
        bytes[range].copy_from_slice(buf);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

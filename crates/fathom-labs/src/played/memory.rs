//! A store in memory: for costs without a device, and for models, which keep no data. Where a tree is played on a model,
//! each access is an I/O of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use fathom_io::job::Flush;
use fathom_io::load::PilotIo;
use fathom_kv::{Store, turns};
use fathom_telemetry::Op;

/// Bytes in memory; those that nobody wrote take none.
pub(crate) struct MemoryStore {
    bytes: RwLock<Vec<u8>>,
    written: AtomicU64,
}

impl MemoryStore {
    pub(crate) fn new(len: u64) -> Self {
        Self {
            bytes: RwLock::new(vec![0; len as usize]),
            written: AtomicU64::new(0),
        }
    }

    /// Bytes that writes have put there so far.
    #[cfg(test)]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn put(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let range = range(bytes.len(), offset, buf.len())?;
        bytes[range].copy_from_slice(buf);
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

fn range(len: usize, offset: u64, buf: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    match start.checked_add(buf) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn block(op: Op, offset: u64, len: usize) -> PilotIo {
    PilotIo {
        op,
        offset,
        len: len as u32,
        file: 0,
        priority: 0,
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
        turns::io(&[block(Op::Read, offset, buf.len())])?;
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        buf.copy_from_slice(&bytes[range(bytes.len(), offset, buf.len())?]);
        Ok(())
    }
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write_many(&[(offset, buf)])
    }
    fn write_many(&self, all: &[(u64, &[u8])]) -> io::Result<()> {
        let ios: Vec<PilotIo> = all
            .iter()
            .map(|(offset, buf)| block(Op::Write, *offset, buf.len()))
            .collect();
        turns::io(&ios)?;
        all.iter()
            .try_for_each(|(offset, buf)| self.put(*offset, buf))
    }
    fn sync(&self) -> io::Result<()> {
        turns::io(&[PilotIo::sync(0, Flush::Data, (0, 0))])
    }
}

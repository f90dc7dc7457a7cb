//! The parts of a disk that carry signatures, read in as few requests as possible.

use std::borrow::Cow;
use std::io;

use super::ReadAt;

/// Head that is read at once: ZFS labels 0 and 1, VMFS, LUKS2's second header.
const HEAD: u64 = 2 << 20;
/// Tail that is read at once: ZFS labels 2 and 3, bcachefs' copy.
const TAIL: u64 = (1 << 20) + (64 << 10);

/// Access to the bytes of a disk by offset.
pub(crate) struct Image<'a, R: ?Sized> {
    source: &'a R,
    size: u64,
    head: Vec<u8>,
    tail_at: u64,
    tail: Vec<u8>,
}

impl<'a, R: ReadAt + ?Sized> Image<'a, R> {
    pub(crate) fn load(source: &'a R, size: u64) -> io::Result<Self> {
        let head = read(source, 0, size.min(HEAD))?;
        // Direct reads of odd sectors are not at stake (the page cache serves this), but
        // whole pages read faster.
        let tail_at = (size.saturating_sub(TAIL) & !4095).max(head.len() as u64);
        let tail = read(
            source,
            tail_at,
            size.saturating_sub(tail_at).min(TAIL + 4096),
        )?;
        Ok(Self {
            source,
            size,
            head,
            tail_at,
            tail,
        })
    }

    /// Bytes of the whole disk.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// `len` bytes at `offset`; `None` where the disk is shorter.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> io::Result<Option<Cow<'_, [u8]>>> {
        let Some(end) = offset.checked_add(len as u64).filter(|e| *e <= self.size) else {
            return Ok(None);
        };
        if end <= self.head.len() as u64 {
            return Ok(Some(Cow::Borrowed(
                &self.head[offset as usize..end as usize],
            )));
        }
        if offset >= self.tail_at && end <= self.tail_at + self.tail.len() as u64 {
            let start = (offset - self.tail_at) as usize;
            return Ok(Some(Cow::Borrowed(&self.tail[start..start + len])));
        }
        read(self.source, offset, len as u64).map(|b| Some(Cow::Owned(b)))
    }

    /// Whether `expected` stands at `offset`.
    pub(crate) fn has(&self, offset: u64, expected: &[u8]) -> io::Result<bool> {
        Ok(self
            .bytes(offset, expected.len())?
            .is_some_and(|b| *b == *expected))
    }
}

fn read<R: ReadAt + ?Sized>(source: &R, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len as usize];
    let n = source.read_at(&mut buffer, offset)?;
    if n < buffer.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "the disk ends at byte {} instead of {}",
                offset + n as u64,
                offset + len
            ),
        ));
    }
    Ok(buffer)
}

/// Little- and big-endian integers at an offset of a buffer; zero beyond its end.
pub(crate) fn le16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}
pub(crate) fn le32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}
pub(crate) fn be16(b: &[u8], at: usize) -> u16 {
    le16(b, at).swap_bytes()
}
pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    le32(b, at).swap_bytes()
}

/// A label padded with zeros or blanks; `None` where nothing printable is left.
pub(crate) fn label(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty() && text != "NO NAME").then(|| text.to_string())
}

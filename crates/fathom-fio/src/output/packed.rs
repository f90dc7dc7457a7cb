//! Logs that are compressed while they are written (`log_store_compressed`), and read again (`--inflate-log`): zlib streams
//! of the same text, one after another where jobs share a log. What fio itself stores is binary and differs by version.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use fathom_files::Output;
use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::aux_files::is_log;

/// A log, as text or compressed.
pub(super) enum LogFile {
    Plain(Output),
    Packed(ZlibEncoder<Output>),
}

impl LogFile {
    pub(super) fn new(out: Output, packed: bool) -> Self {
        if packed {
            Self::Packed(ZlibEncoder::new(out, Compression::default()))
        } else {
            Self::Plain(out)
        }
    }
    /// All of it, to be put in its place.
    pub(super) fn finish(self) -> io::Result<Output> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Packed(out) => out.finish(),
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Packed(out) => out.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Packed(out) => out.flush(),
        }
    }
}

/// Whether a file begins like a compressed log.
pub(super) fn is_packed(head: &[u8]) -> bool {
    let mut text = vec![0; 256];
    // What is cut off in the middle has a beginning all the same.
    let read = ZlibDecoder::new(head).read(&mut text).unwrap_or(0);
    read > 0 && is_log(&text[..read])
}

/// The text of a compressed log.
///
/// # Errors
/// A file that cannot be read, or that holds no compressed log of fathom's.
pub fn inflate(path: &Path) -> io::Result<String> {
    let mut from = BufReader::new(std::fs::File::open(path)?);
    let mut text = String::new();
    while !from.fill_buf()?.is_empty() {
        let mut stream = ZlibDecoder::new(from);
        stream.read_to_string(&mut text).map_err(|e| {
            let what = "not a log that fathom compressed (fio's own hold binary records: read them with fio)";
            io::Error::new(e.kind(), format!("{what}: {e}"))
        })?;
        from = stream.into_inner();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_one_after_another_are_read_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.fz");
        let pack = |text: &str| {
            let mut out = ZlibEncoder::new(Vec::new(), Compression::default());
            out.write_all(text.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        let (a, b) = ("1, 2, 0, 4096, 0\n".repeat(1000), "2, 3, 1, 512, 0\n");
        std::fs::write(&path, [pack(&a), pack(b)].concat()).unwrap();
        assert_eq!(inflate(&path).unwrap(), a.clone() + b);
        assert!(is_packed(&pack(&a)) && !is_packed(a.as_bytes()));
        assert!(!is_packed(&pack("dear diary")));
        std::fs::write(&path, "no log").unwrap();
        assert!(inflate(&path).is_err());
    }
}

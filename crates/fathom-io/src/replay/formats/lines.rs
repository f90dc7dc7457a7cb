//! Lines of a text trace: streamed, of bounded length, and every complaint with its line number.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::read_error;
use crate::replay::TraceError;

/// No record of any format is this long.
const LINE_MAX: usize = 64 << 10;

/// Lines with their numbers.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|e| read_error(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(1 << 20, file),
            line: Vec::with_capacity(256),
            number: 0,
        })
    }

    /// Moves to the next line that is not empty; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            loop {
                let buffer = self
                    .reader
                    .fill_buf()
                    .map_err(|e| read_error(&self.path, e))?;
                if buffer.is_empty() {
                    break;
                }
                let end = buffer.iter().position(|b| *b == b'\n');
                let take = end.map_or(buffer.len(), |e| e + 1);
                self.line.extend_from_slice(&buffer[..end.unwrap_or(take)]);
                self.reader.consume(take);
                if end.is_some() {
                    break;
                }
                if self.line.len() > LINE_MAX {
                    self.number += 1;
                    return Err(
                        self.malformed("a record of one line", "a line of more than 64 KiB")
                    );
                }
            }
            if self.line.is_empty() && self.at_end()? {
                return Ok(false);
            }
            self.number += 1;
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn at_end(&mut self) -> Result<bool, TraceError> {
        Ok(self
            .reader
            .fill_buf()
            .map_err(|e| read_error(&self.path, e))?
            .is_empty())
    }

    /// The current line without its end.
    pub(super) fn text(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// A complaint about the current line.
    #[cold]
    pub(super) fn malformed(&self, expected: &str, found: &str) -> TraceError {
        TraceError::Malformed {
            path: self.path.clone(),
            place: format!("line {}", self.number),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
    }

    /// A complaint about a field of the current line.
    #[cold]
    pub(super) fn bad(&self, expected: &str, field: &[u8]) -> TraceError {
        let text = String::from_utf8_lossy(&field[..field.len().min(60)]);
        let shown: String = text
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        self.malformed(expected, &format!("'{shown}'"))
    }

    /// The comma-separated fields of the current line, `N` at least; later ones are left out.
    pub(super) fn fields<const N: usize>(&self, layout: &str) -> Result<[&[u8]; N], TraceError> {
        let mut out = [&b""[..]; N];
        let mut parts = self.text().split(|b| *b == b',');
        for (i, slot) in out.iter_mut().enumerate() {
            match parts.next() {
                Some(p) => *slot = p.trim_ascii(),
                None => {
                    return Err(self.malformed(&format!("{N} fields ({layout})"), &format!("{i}")));
                }
            }
        }
        Ok(out)
    }

    /// A whole number.
    pub(super) fn number(&self, what: &str, field: &[u8]) -> Result<u64, TraceError> {
        integer(field).ok_or_else(|| self.bad(&format!("{what} as a whole number"), field))
    }
}

/// Decimal digits that fit 64 bits.
pub(super) fn integer(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 20 {
        return None;
    }
    field.iter().try_fold(0u64, |n, b| {
        let digit = b.wrapping_sub(b'0');
        (digit <= 9).then_some(())?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Seconds with any number of decimals, in ns; digits beyond ns are cut.
pub(super) fn seconds(field: &[u8]) -> Option<u64> {
    let (whole, rest) = match field.iter().position(|b| *b == b'.') {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &b""[..]),
    };
    let whole = if whole.is_empty() && !rest.is_empty() {
        0
    } else {
        integer(whole)?
    };
    let mut ns = 0u64;
    if !rest.iter().all(u8::is_ascii_digit) {
        return None;
    }
    for i in 0..9 {
        ns = ns * 10 + rest.get(i).map_or(0, |b| u64::from(b - b'0'));
    }
    whole.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_seconds_are_exact_or_refused() {
        assert_eq!(integer(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(integer(b"18446744073709551616"), None);
        assert_eq!(integer(b"-1"), None);
        assert_eq!(integer(b""), None);
        assert_eq!(seconds(b"0.000000001"), Some(1));
        assert_eq!(seconds(b"12.5"), Some(12_500_000_000));
        assert_eq!(seconds(b".25"), Some(250_000_000));
        assert_eq!(seconds(b"7"), Some(7_000_000_000));
        assert_eq!(seconds(b"1.2e3"), None);
        assert_eq!(seconds(b"."), None);
    }
}

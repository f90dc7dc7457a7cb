//! The one way to the `parquet` crate's readers, for files of unknown origin.
//!
//! At some malformed files that crate panics, and it reserves memory for as many entries as a file claims to have. So
//! a footer is walked here first, what it says of groups and columns is held against the file, and a panic of the crate
//! becomes an error like any other.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Rows of one row group that are believed; fathom writes a million at most.
const GROUP_ROWS_MAX: i64 = 1 << 24;
/// Nesting of a footer that is believed; Parquet's own is six deep.
const DEPTH_MAX: u32 = 32;

/// Opens a file whose every statement about its own size holds.
pub(crate) fn open(path: &Path) -> Result<SerializedFileReader<File>, String> {
    // (Opening a pipe would wait for its other end.)
    let meta = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("it is no regular file".to_owned());
    }
    checked(File::open(path).map_err(|e| e.to_string())?)
}

/// The same of a file that is open.
pub(crate) fn checked(file: File) -> Result<SerializedFileReader<File>, String> {
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    walk(&footer(&file, length)?)?;
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(|e| e.to_string())?;
    guarded(|| Ok(plausible(&reader, length)))
        .map_err(|e| e.to_string())?
        .then_some(reader)
        .ok_or_else(|| "it claims what it cannot hold".to_owned())
}

/// Calls the crate; a panic inside it is an error. What it was working on is of no more use then.
pub(crate) fn guarded<T>(
    call: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                before(info);
            }
        }));
    });
    let outer = INSIDE.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(call));
    INSIDE.set(outer);
    done.unwrap_or_else(|_| Err(ParquetError::General("it is malformed".to_owned())))
}

/// Whether groups and columns lie within the file and agree about their rows.
fn plausible(reader: &SerializedFileReader<File>, length: u64) -> bool {
    let meta = reader.metadata();
    let mut rows = 0i64;
    for group in meta.row_groups() {
        let n = group.num_rows();
        if !(0..=GROUP_ROWS_MAX).contains(&n) {
            return false;
        }
        // Checked above, and as many as the footer has bytes: no overflow.
        rows += n;
        for column in group.columns() {
            let begin = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            let end = u64::try_from(begin)
                .ok()
                .zip(u64::try_from(column.compressed_size()).ok())
                .and_then(|(begin, size)| begin.checked_add(size));
            // Lists, which are only ever skipped here, have other numbers of values.
            let listed = column.column_descr().max_rep_level() > 0;
            let fits = listed || column.num_values() == n;
            if !fits || end.is_none_or(|end| end > length) {
                return false;
            }
        }
    }
    meta.file_metadata().num_rows() == rows
}

/// The bytes that describe the file.
fn footer(file: &File, length: u64) -> Result<Vec<u8>, String> {
    let malformed = || "it is not Parquet".to_owned();
    let tail = length.checked_sub(8).ok_or_else(malformed)?;
    let mut end = [0; 8];
    file.read_exact_at(&mut end, tail)
        .map_err(|e| e.to_string())?;
    let size = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
    let begin = tail.checked_sub(size.into());
    let begin = begin.filter(|_| end[4..] == *b"PAR1");
    let mut footer = vec![0; size as usize * usize::from(begin.is_some())];
    file.read_exact_at(&mut footer, begin.ok_or_else(malformed)?)
        .map_err(|e| e.to_string())?;
    Ok(footer)
}

/// Reads through one structure of Thrift's compact protocol: nothing claims to have more entries than there are bytes.
fn walk(footer: &[u8]) -> Result<(), String> {
    let mut rest = footer;
    skip(&mut rest, STRUCT, 0).ok_or_else(|| "its footer is malformed".to_owned())
}

const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// Skips one value; `None` where it is none.
fn skip(rest: &mut &[u8], kind: u8, depth: u32) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    match kind {
        // The two booleans of a field are its kind.
        1 | 2 => Some(()),
        3 => jump(rest, 1),
        4..=6 => varint(rest).map(|_| ()),
        7 => jump(rest, 8),
        BINARY => {
            let length = varint(rest)?;
            jump(rest, usize::try_from(length).ok()?)
        }
        LIST | SET => {
            let head = byte(rest)?;
            let length = match head >> 4 {
                15 => varint(rest)?,
                short => u64::from(short),
            };
            let element = head & 15;
            // Every element takes a byte at least.
            if length > rest.len() as u64 {
                return None;
            }
            (0..length).try_for_each(|_| match element {
                1 | 2 => jump(rest, 1),
                _ => skip(rest, element, depth + 1),
            })
        }
        STRUCT => loop {
            let head = byte(rest)?;
            if head == 0 {
                return Some(());
            }
            if head >> 4 == 0 {
                varint(rest)?;
            }
            skip(rest, head & 15, depth + 1)?;
        },
        _ => None,
    }
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, later) = rest.split_first()?;
    *rest = later;
    Some(*first)
}

fn jump(rest: &mut &[u8], bytes: usize) -> Option<()> {
    *rest = rest.get(bytes..)?;
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let b = byte(rest)?;
        value |= u64::from(b & 0x7f) << shift;
        if b < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;

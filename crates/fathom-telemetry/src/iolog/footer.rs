//! The end of the file: schema, row groups, what the file says about itself.
//!
//! Each row group's description is written as bytes when the row group ends, and
//! kept compact (about 700 bytes for several MB of rows), so that the footer of a
//! run of hours needs no more memory than that.

use std::collections::BTreeMap;

use super::page::{COLUMNS, ColumnEntry, DELTA_BINARY_PACKED, Kind, PLAIN, RLE, RLE_DICTIONARY};
use super::thrift::{Element, Thrift};
use crate::identity::Identity;

/// First and last bytes of a Parquet file.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";

/// Parquet's numbers of physical types.
const INT32: i32 = 1;
const INT64: i32 = 2;
const BYTE_ARRAY: i32 = 6;

/// Descriptions of the row groups so far.
#[derive(Debug, Default)]
pub(super) struct RowGroups {
    bytes: Vec<u8>,
    rows: u64,
    /// Where each row group begins: in the file, in `bytes`, and in rows.
    marks: Vec<(u64, usize, u64)>,
}

impl RowGroups {
    /// Rows in all of them.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Row groups so far.
    pub(super) fn count(&self) -> usize {
        self.marks.len()
    }

    /// Forgets the last row group; where it began in the file.
    pub(super) fn take_back(&mut self) -> Option<u64> {
        let (at, length, rows) = self.marks.pop()?;
        self.bytes.truncate(length);
        self.rows = rows;
        Some(at)
    }

    /// Adds a row group that begins at byte `at` of the file.
    pub(super) fn add(&mut self, at: u64, rows: u64, columns: &[ColumnEntry]) {
        self.marks.push((at, self.bytes.len(), self.rows));
        let mut t = Thrift::on(std::mem::take(&mut self.bytes));
        let total: u64 = columns.iter().map(|c| c.bytes).sum();
        t.element_begin();
        t.list(1, Element::Struct, columns.len());
        let mut offset = at;
        for ((name, kind), c) in COLUMNS.iter().zip(columns) {
            column_chunk(&mut t, name, *kind, offset, rows, c);
            offset += c.bytes;
        }
        t.i64(2, total as i64);
        t.i64(3, rows as i64);
        t.i64(5, at as i64);
        t.i64(6, total as i64);
        if let Ok(ordinal) = i16::try_from(self.marks.len() - 1) {
            t.i16(7, ordinal);
        }
        t.end();
        self.bytes = t.bytes;
        self.rows += rows;
    }

    /// The footer: metadata, its length, the magic number. `origins` are the jobs' origins on the
    /// driver's clock, ns.
    pub(super) fn footer(&self, meta: &Identity, origins: &BTreeMap<u16, u64>) -> Vec<u8> {
        let mut t = Thrift::default();
        t.element_begin();
        t.i32(1, 2); // version
        t.list(2, Element::Struct, COLUMNS.len() + 1);
        t.element_begin();
        t.binary(4, b"io");
        t.i32(5, COLUMNS.len() as i32);
        t.end();
        for (name, kind) in COLUMNS {
            schema_element(&mut t, name, kind);
        }
        t.i64(3, self.rows as i64);
        t.list(4, Element::Struct, self.marks.len());
        t.bytes.extend_from_slice(&self.bytes);
        let origins = serde_json::to_string(origins).unwrap_or_default();
        let mut pairs = vec![
            ("fathom.tool_version", meta.tool_version.as_str()),
            ("fathom.run", meta.run.as_str()),
            ("fathom.run_id", meta.run_id.as_str()),
            ("fathom.clock_origin_ns", origins.as_str()),
        ];
        if meta.simulated {
            pairs.push(("fathom.simulated", "true"));
        }
        t.list(5, Element::Struct, pairs.len());
        for (k, v) in pairs {
            t.element_begin();
            t.binary(1, k.as_bytes());
            t.binary(2, v.as_bytes());
            t.end();
        }
        t.binary(
            6,
            format!("fathom version {}", meta.tool_version).as_bytes(),
        );
        // Minimum and maximum are meant in the order of each column's type.
        t.list(7, Element::Struct, COLUMNS.len());
        for _ in COLUMNS {
            t.element_begin();
            t.begin(1);
            t.end();
            t.end();
        }
        t.end();
        let len = t.bytes.len() as u32;
        t.bytes.extend_from_slice(&len.to_le_bytes());
        t.bytes.extend_from_slice(MAGIC);
        t.bytes
    }
}

fn physical(kind: Kind) -> i32 {
    match kind {
        Kind::Delta | Kind::Constant => INT64,
        Kind::Small | Kind::SmallUnsigned => INT32,
        Kind::Op | Kind::Text => BYTE_ARRAY,
    }
}

fn schema_element(t: &mut Thrift, name: &str, kind: Kind) {
    t.element_begin();
    t.i32(1, physical(kind));
    t.i32(3, 0); // REQUIRED
    t.binary(4, name.as_bytes());
    match kind {
        Kind::SmallUnsigned => {
            t.i32(6, 13); // UINT_32, the older way to say it
            t.begin(10);
            t.begin(10); // INTEGER
            // A byte, which the compact protocol writes as is: field 1, type 3.
            t.bytes.extend_from_slice(&[0x13, 32]);
            t.bytes.push(0x12); // field 2: not signed
            t.end();
            t.end();
        }
        Kind::Op | Kind::Text => {
            t.i32(6, 0); // UTF8, the older way to say it
            t.begin(10);
            t.begin(1); // STRING
            t.end();
            t.end();
        }
        Kind::Delta | Kind::Constant | Kind::Small => {}
    }
    t.end();
}

fn column_chunk(t: &mut Thrift, name: &str, kind: Kind, at: u64, rows: u64, c: &ColumnEntry) {
    t.element_begin();
    t.i64(2, at as i64);
    t.begin(3);
    t.i32(1, physical(kind));
    let encodings: &[i32] = match (kind, c.has_plain_pages) {
        (Kind::Delta, _) => &[DELTA_BINARY_PACKED, RLE],
        _ => &[PLAIN, RLE_DICTIONARY, RLE],
    };
    t.list(2, Element::I32, encodings.len());
    for e in encodings {
        t.element_i32(*e);
    }
    t.list(3, Element::Binary, 1);
    t.element_binary(name.as_bytes());
    t.i32(4, 0); // UNCOMPRESSED
    t.i64(5, rows as i64);
    t.i64(6, c.bytes as i64);
    t.i64(7, c.bytes as i64);
    t.i64(9, (at + c.dictionary_bytes) as i64);
    if c.dictionary_bytes > 0 {
        t.i64(11, at as i64);
    }
    if let Some((min, max)) = c.range {
        // Lets readers skip row groups of other jobs.
        t.begin(12);
        t.i64(3, 0); // nulls
        t.binary(5, &max.to_le_bytes());
        t.binary(6, &min.to_le_bytes());
        t.bool(7, true);
        t.bool(8, true);
        t.end();
    }
    t.end();
    t.end();
}

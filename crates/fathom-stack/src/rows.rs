//! One row per I/O with every boundary, as Parquet or as lines of JSON: for one's own analyses.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use fathom_files::{Existing, Output};
use parquet::basic::Compression;
use parquet::data_type::Int64Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::boundary::BOUNDARY_NAMES;
use crate::error::TraceError;
use crate::join::{Answer, Joined};

/// Rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Columns.
    Parquet,
    /// One JSON object per line.
    Json,
}

impl Form {
    /// What the file's name ends with.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Json => "jsonl",
        }
    }
}

/// Writes the rows of a case. Boundaries are ns on CLOCK_MONOTONIC, null where not seen.
///
/// # Errors
/// [`TraceError::Rows`], where the file could not be written; nothing half-written is left.
pub fn write(path: &Path, ios: &[Joined], form: Form) -> Result<(), TraceError> {
    let written = || -> Result<(), String> {
        let text = |e: std::io::Error| e.to_string();
        // In a run directory that was made a moment ago.
        let mut out = Output::create(path, Existing::None).map_err(text)?;
        match form {
            Form::Parquet => columns(out.handle().map_err(text)?, ios)?,
            Form::Json => lines(&mut out, ios).map_err(text)?,
        }
        out.commit().map_err(text)
    };
    written().map_err(|reason| TraceError::Rows {
        path: path.to_owned(),
        reason,
    })
}

/// Names and values of a row, in the order of the columns.
fn cells(io: &Joined) -> impl Iterator<Item = (&'static str, Option<i64>)> {
    let boundary = |(name, t): (&'static str, &u64)| (name, (*t > 0).then_some(*t as i64));
    FIXED
        .iter()
        .map(|(name, f)| (*name, f(io)))
        .chain(BOUNDARY_NAMES.into_iter().zip(&io.at).map(boundary))
}

fn lines(out: &mut Output, ios: &[Joined]) -> std::io::Result<()> {
    for io in ios {
        for (i, (name, value)) in cells(io).enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            match value {
                Some(v) => write!(out, "{before}\"{name}\":{v}")?,
                None => write!(out, "{before}\"{name}\":null")?,
            }
        }
        out.write_all(b"}\n")?;
    }
    Ok(())
}

type Column = (&'static str, fn(&Joined) -> Option<i64>);

const FIXED: [Column; 8] = [
    ("thread", |io| Some(i64::from(io.thread))),
    ("op", |io| Some(io.record.op as i64)),
    ("offset", |io| Some(io.record.offset as i64)),
    ("length", |io| Some(i64::from(io.record.len))),
    ("by_device", |io| {
        Some(i64::from(io.answer == Answer::Device))
    }),
    ("device", |io| Some(io.chain?.dev as i64)),
    ("sector", |io| Some(io.chain?.sector as i64)),
    ("cpu", |io| Some(i64::from(io.cpu))),
];

fn columns(file: File, ios: &[Joined]) -> Result<(), String> {
    let text = |e: parquet::errors::ParquetError| e.to_string();
    let mut schema = String::from("message io {");
    for name in FIXED.iter().map(|c| c.0).chain(BOUNDARY_NAMES) {
        schema.push_str(&format!(" optional int64 {name};"));
    }
    schema.push('}');
    let schema = Arc::new(parse_message_type(&schema).map_err(text)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(text)?;
    for group in ios.chunks(GROUP_ROWS) {
        let mut rows = writer.next_row_group().map_err(text)?;
        let mut at = 0;
        while let Some(mut column) = rows.next_column().map_err(text)? {
            let value = |io: &Joined| cells(io).nth(at).and_then(|c| c.1);
            let column_of: Vec<Option<i64>> = group.iter().map(value).collect();
            let present: Vec<i16> = column_of.iter().map(|c| i16::from(c.is_some())).collect();
            let values: Vec<i64> = column_of.into_iter().flatten().collect();
            column
                .typed::<Int64Type>()
                .write_batch(&values, Some(&present), None)
                .map_err(text)?;
            column.close().map_err(text)?;
            at += 1;
        }
        rows.close().map_err(text)?;
    }
    writer.close().map_err(text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::{BOUNDARIES, Boundary};
    use fathom_telemetry::{Nanos, Op, Record};

    #[test]
    fn a_row_of_json_has_every_boundary_and_null_where_none_was_seen() {
        let mut at = [0; BOUNDARIES];
        at[Boundary::Submitted as usize] = 1_000;
        at[Boundary::Completed as usize] = 9_000;
        let io = Joined {
            record: Record {
                intended: Nanos(1_000),
                submitted: Nanos(1_000),
                completed: Nanos(9_000),
                offset: 4096,
                len: 512,
                result: 512,
                op: Op::Write,
            },
            thread: 3,
            tid: 77,
            at,
            answer: Answer::Memory,
            chain: None,
            cpu: 1,
            bios: 0,
            off_cpu: 0,
            preempted: 0,
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        write(&path, &[io, io], Form::Json).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let row = row.as_object().unwrap();
            assert_eq!(row.len(), FIXED.len() + BOUNDARIES);
            for (key, value) in [
                ("thread", Some(3)),
                ("op", Some(1)),
                ("offset", Some(4096)),
                ("sector", None),
                ("submitted", Some(1_000)),
                ("issued", None),
                ("completed", Some(9_000)),
            ] {
                assert_eq!(row[key].as_i64(), value, "{key}: {line}");
            }
        }
        let missing = dir.path().join("none/rows.jsonl");
        let e = write(&missing, &[io], Form::Json).unwrap_err();
        assert!(e.to_string().contains("rows.jsonl"), "{e}");
    }
}

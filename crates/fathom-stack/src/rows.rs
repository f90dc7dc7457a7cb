//! One row per I/O with every boundary, as Parquet: for one's own analyses.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::Int64Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::error::TraceError;
use crate::join::{Answer, Joined};
use crate::layer::BOUNDARY_NAMES;

/// Rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// Writes the rows of a case. Boundaries are ns on CLOCK_MONOTONIC, null where not seen.
///
/// # Errors
/// [`TraceError::Rows`], where the file could not be written.
pub fn write(path: &Path, ios: &[Joined]) -> Result<(), TraceError> {
    attempt(path, ios).map_err(|reason| TraceError::Rows {
        path: path.to_owned(),
        reason,
    })
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

fn attempt(path: &Path, ios: &[Joined]) -> Result<(), String> {
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
    let file = File::create(path).map_err(|e| e.to_string())?;
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(text)?;
    for group in ios.chunks(GROUP_ROWS) {
        let mut rows = writer.next_row_group().map_err(text)?;
        let mut at = 0;
        while let Some(mut column) = rows.next_column().map_err(text)? {
            let value = |io: &Joined| match FIXED.get(at) {
                Some((_, f)) => f(io),
                None => match io.at[at - FIXED.len()] {
                    0 => None,
                    t => Some(t as i64),
                },
            };
            let cells: Vec<Option<i64>> = group.iter().map(value).collect();
            let present: Vec<i16> = cells.iter().map(|c| i16::from(c.is_some())).collect();
            let values: Vec<i64> = cells.into_iter().flatten().collect();
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

//! Windows to rows.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{SCHEMA, SeriesError};
use crate::codec;
use crate::histogram::SparseHistogram;
use crate::record::Op;
use crate::summary::SAMPLES_BEYOND;
use crate::units::Nanos;
use crate::window::{DirectionWindow, Window};

/// A row group ends at the first of these; together they bound memory (a few MiB) and the footer.
const GROUP_ROWS: usize = 1 << 16;
const GROUP_HISTOGRAM_BYTES: usize = 4 << 20;

/// What became of the series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeriesSummary {
    /// Rows in the file.
    pub rows: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// Writes `series.parquet`: beside it as `….partial`, which takes its name in [`Self::finish`].
pub struct SeriesWriter {
    path: PathBuf,
    partial: PathBuf,
    writer: Option<SerializedFileWriter<File>>,
    group: Columns,
    rows: u64,
}

/// Rows that wait for their row group, by column.
#[derive(Default)]
struct Columns {
    ints: Vec<i32>,
    ops: Vec<Op>,
    /// start, width, ios, bytes, errors, short.
    longs: [Vec<i64>; 6],
    submit_mean: Optional<f64>,
    service: Figures,
    response: Figures,
    /// submit, service, response.
    histograms: [Vec<ByteArray>; 3],
    histogram_bytes: usize,
}

/// Values of a nullable column and, per row, whether there is one.
#[derive(Default)]
struct Optional<T> {
    values: Vec<T>,
    present: Vec<i16>,
}

impl<T> Optional<T> {
    fn push(&mut self, v: Option<T>) {
        self.present.push(i16::from(v.is_some()));
        self.values.extend(v);
    }
}

#[derive(Default)]
struct Figures {
    mean: Optional<f64>,
    /// p50, p99, p99_9, max.
    longs: [Optional<i64>; 4],
}

impl Figures {
    fn push(&mut self, h: &SparseHistogram) {
        self.mean.push(h.moments.mean());
        let some = h.moments.count > 0;
        let figures = [
            supported(h, 0.5),
            supported(h, 0.99),
            supported(h, 0.999),
            some.then_some(h.moments.max as i64),
        ];
        for (column, v) in self.longs.iter_mut().zip(figures) {
            column.push(v);
        }
    }
}

/// The quantile, where enough samples lie beyond it.
fn supported(h: &SparseHistogram, q: f64) -> Option<i64> {
    h.quantile_supported(q, SAMPLES_BEYOND).map(|v| v as i64)
}

impl SeriesWriter {
    /// Puts a fact about the whole run into the file's metadata, such as that a model made it.
    pub fn note(&mut self, key: &str, value: &str) {
        if let Some(w) = &mut self.writer {
            w.append_key_value_metadata(KeyValue::new(key.to_owned(), value.to_owned()));
        }
    }

    /// Begins a series at `path`.
    ///
    /// # Errors
    /// [`SeriesError::Write`], where the file cannot be made.
    pub fn create(path: &Path, tool_version: &str) -> Result<Self, SeriesError> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = |source| SeriesError::Write {
            path: path.to_owned(),
            source,
        };
        let file = File::create(&partial).map_err(failed)?;
        let writer = open(file, tool_version).map_err(|e| failed(io_error(e)))?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            writer: Some(writer),
            group: Columns::default(),
            rows: 0,
        })
    }

    /// Adds one window of a job, already merged over its threads. `job` is its index in `run.json`,
    /// `width` the same for all of the job's windows.
    ///
    /// # Errors
    /// [`SeriesError::Write`]; the writer is of no more use then, and its file is removed.
    pub fn push(&mut self, job: u16, width: Nanos, window: &Window) -> Result<(), SeriesError> {
        for (op, d) in Op::ALL.into_iter().zip(&window.directions) {
            if let Some(d) = d {
                self.group.push(job, op, width, window.index, d);
                self.rows += 1;
            }
        }
        if self.group.ints.len() >= GROUP_ROWS
            || self.group.histogram_bytes >= GROUP_HISTOGRAM_BYTES
        {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left and gives the file its name.
    ///
    /// # Errors
    /// [`SeriesError::Write`]; no file is kept then.
    pub fn finish(mut self) -> Result<SeriesSummary, SeriesError> {
        self.flush()?;
        let Some(writer) = self.writer.take() else {
            return Err(self.failed(io::Error::other("it failed before")));
        };
        let file = writer.into_inner().map_err(|e| self.failed(io_error(e)))?;
        let bytes = file.metadata().map_err(|e| self.failed(e))?.len();
        fs::rename(&self.partial, &self.path).map_err(|e| self.failed(e))?;
        Ok(SeriesSummary {
            rows: self.rows,
            bytes,
        })
    }

    fn flush(&mut self) -> Result<(), SeriesError> {
        let columns = std::mem::take(&mut self.group);
        if columns.ints.is_empty() {
            return Ok(());
        }
        let Some(writer) = &mut self.writer else {
            return Err(self.failed(io::Error::other("it failed before")));
        };
        columns.write(writer).map_err(|e| {
            self.writer = None;
            self.failed(io_error(e))
        })
    }

    fn failed(&self, source: io::Error) -> SeriesError {
        SeriesError::Write {
            path: self.path.clone(),
            source,
        }
    }
}

impl Drop for SeriesWriter {
    /// An abandoned or failed series leaves nothing behind; a finished one has another name by now.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial);
    }
}

fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

fn open(file: File, tool_version: &str) -> Result<SerializedFileWriter<File>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("fathom version {tool_version}"))
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "fathom.tool_version".to_owned(),
            tool_version.to_owned(),
        )]))
        // Minimum and maximum let readers skip other jobs' row groups; those of histograms say nothing.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true);
    for name in ["job", "start_ns"] {
        properties = properties
            .set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Chunk);
    }
    for field in schema.get_fields() {
        let path = ColumnPath::from(field.name());
        properties = match field.name() {
            "job" | "op" | "width_ns" | "errors" | "short" => properties,
            "start_ns" => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            _ => properties.set_column_dictionary_enabled(path, false),
        };
    }
    SerializedFileWriter::new(file, schema, Arc::new(properties.build()))
}

impl Columns {
    fn push(&mut self, job: u16, op: Op, width: Nanos, index: u64, d: &DirectionWindow) {
        self.ints.push(i32::from(job));
        self.ops.push(op);
        let longs = [
            index.saturating_mul(width.0),
            width.0,
            d.ios,
            d.bytes,
            d.errors,
            d.short,
        ];
        for (column, v) in self.longs.iter_mut().zip(longs) {
            column.push(v as i64);
        }
        self.submit_mean.push(d.submit.moments.mean());
        self.service.push(&d.service);
        self.response.push(&d.response);
        let histograms = [&d.submit, &d.service, &d.response];
        for (column, h) in self.histograms.iter_mut().zip(histograms) {
            let mut bytes = Vec::new();
            codec::encode(h, &mut bytes);
            // Counts the container, too: short histograms must not make a long row group.
            self.histogram_bytes += bytes.capacity() + size_of::<ByteArray>();
            column.push(bytes.into());
        }
    }

    /// Writes one row group, in the order of [`SCHEMA`].
    fn write(self, writer: &mut SerializedFileWriter<File>) -> Result<(), ParquetError> {
        let mut group = writer.next_row_group()?;
        put::<Int32Type>(&mut group, &self.ints, None)?;
        let names: HashMap<Op, ByteArray> = Op::ALL
            .into_iter()
            .map(|op| (op, ByteArray::from(op.name())))
            .collect();
        let ops: Vec<ByteArray> = self.ops.iter().map(|op| names[op].clone()).collect();
        put::<ByteArrayType>(&mut group, &ops, None)?;
        for column in &self.longs {
            put::<Int64Type>(&mut group, column, None)?;
        }
        let mean = &self.submit_mean;
        put::<DoubleType>(&mut group, &mean.values, Some(&mean.present))?;
        for figures in [&self.service, &self.response] {
            let mean = &figures.mean;
            put::<DoubleType>(&mut group, &mean.values, Some(&mean.present))?;
            for column in &figures.longs {
                put::<Int64Type>(&mut group, &column.values, Some(&column.present))?;
            }
        }
        for column in &self.histograms {
            put::<ByteArrayType>(&mut group, column, None)?;
        }
        group.close()?;
        Ok(())
    }
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("the schema has fewer columns".to_owned()))?;
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()
}

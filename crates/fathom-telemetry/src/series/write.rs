//! Windows to rows.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fathom_files::{Existing, Output};
use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};

use super::{SCHEMA, SeriesError};
use crate::codec;
use crate::histogram::SparseHistogram;
use crate::identity::Identity;
use crate::record::Op;
use crate::summary::SAMPLES_BEYOND;
use crate::units::Nanos;
use crate::window::{DirectionWindow, Window};

/// A row group ends at the first of these; together they bound memory (a few MiB) and the footer.
const GROUP_ROWS: usize = 1 << 16;
const GROUP_HISTOGRAM_BYTES: usize = 1 << 20;
const GROUP_HISTOGRAM_BYTES_MIN: usize = 16 << 10;

/// Encoded row groups that wait for a full disk to have room again; beyond, the series ends.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What became of the series.
#[derive(Debug, Default)]
pub struct SeriesSummary {
    /// Rows in the file.
    pub rows: u64,
    /// Size of the file; 0 where none could be kept.
    pub bytes: u64,
    /// Rows that are missing at its end.
    pub lost: u64,
    /// Why.
    pub error: Option<SeriesError>,
}

/// The job that a window is of.
#[derive(Debug, Clone, Copy)]
pub struct JobOfSeries<'a> {
    /// Its index in `run.json`.
    pub index: u16,
    /// What it is called.
    pub name: &'a str,
    /// When its measured part began, on the clock that the series' identity names.
    pub origin: Nanos,
}

/// Writes `series.parquet`: beside its place, which it takes in [`Self::finish`].
///
/// Row groups are encoded in memory and reach the file whole, so that a disk that fills up leaves a series
/// that ends early and can be read.
pub struct SeriesWriter {
    path: PathBuf,
    out: Option<Output>,
    /// Where `out` writes.
    file: File,
    writer: SerializedFileWriter<Vec<u8>>,
    notes: Vec<KeyValue>,
    identity: Identity,
    /// Bytes of histograms in a row group, at most.
    histogram_bytes_max: usize,
    group: Columns,
    rows: u64,
    /// Where the first row group begins.
    begins: u64,
    /// Where each row group in the file ends.
    ends: Vec<u64>,
    /// Row groups that are not in it yet.
    waiting: VecDeque<Vec<u8>>,
    /// The first error; set for good where `ended`.
    error: Option<io::Error>,
    ended: bool,
}

/// Rows that wait for their row group, by column.
#[derive(Default)]
struct Columns {
    ints: Vec<i32>,
    ops: Vec<Op>,
    /// start, width, ios, bytes, errors, short.
    longs: [Vec<i64>; 6],
    submit_mean: Optional<f64>,
    submit_max: Optional<i64>,
    service: Figures,
    response: Figures,
    /// submit, service, response.
    histograms: [Vec<ByteArray>; 3],
    histogram_bytes: usize,
    names: Vec<ByteArray>,
    epochs: Vec<i64>,
    /// submit, service, response.
    lists: [Lists; 3],
}

/// A histogram's buckets and counts as two lists in each row, and where rows begin.
#[derive(Default)]
struct Lists {
    buckets: Vec<i32>,
    counts: Vec<i64>,
    /// 0 for an empty list, which takes a place, and 1 for a value.
    present: Vec<i16>,
    /// 0 where a row begins.
    repeated: Vec<i16>,
}

impl Lists {
    fn push(&mut self, h: &SparseHistogram) {
        for (i, (bucket, n)) in h.buckets.iter().enumerate() {
            self.buckets.push(*bucket as i32);
            self.counts.push(*n as i64);
            self.present.push(1);
            self.repeated.push(i16::from(i > 0));
        }
        if h.buckets.is_empty() {
            self.present.push(0);
            self.repeated.push(0);
        }
    }
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
    /// Begins a series at `path`, which is one of `beside` that are written at the same time and share their memory.
    ///
    /// # Errors
    /// [`SeriesError::Write`], where the file cannot be made.
    pub fn create(path: &Path, identity: Identity, beside: usize) -> Result<Self, SeriesError> {
        let failed = |source| SeriesError::Write {
            path: path.to_owned(),
            source,
        };
        let out = Output::create(path, Existing::None).map_err(failed)?;
        let file = out.handle().map_err(failed)?;
        let mut writer = open(&identity.tool_version).map_err(|e| failed(io_error(e)))?;
        writer.flush().map_err(failed)?;
        let magic = std::mem::take(writer.inner_mut());
        file.write_all_at(&magic, 0).map_err(failed)?;
        let mut notes = vec![
            ("fathom.tool_version", identity.tool_version.as_str()),
            ("fathom.run_id", identity.run_id.as_str()),
        ];
        if identity.simulated {
            notes.push(("fathom.simulated", "true"));
        }
        let note = |(key, value): (&str, &str)| KeyValue::new(key.to_owned(), value.to_owned());
        let share = GROUP_HISTOGRAM_BYTES / beside.max(1);
        Ok(Self {
            path: path.to_owned(),
            out: Some(out),
            file,
            writer,
            notes: notes.into_iter().map(note).collect(),
            identity,
            histogram_bytes_max: share.max(GROUP_HISTOGRAM_BYTES_MIN),
            group: Columns::default(),
            rows: 0,
            begins: magic.len() as u64,
            ends: Vec::new(),
            waiting: VecDeque::new(),
            error: None,
            ended: false,
        })
    }

    /// Adds one window of a job, already merged over its threads. `width` is the same for all of the job's windows.
    ///
    /// # Errors
    /// [`SeriesError::Write`], once, where the series has to end here. What is in the file is kept.
    pub fn push(
        &mut self,
        job: &JobOfSeries<'_>,
        width: Nanos,
        window: &Window,
    ) -> Result<(), SeriesError> {
        let origin = job
            .origin
            .0
            .saturating_add(window.index.saturating_mul(width.0));
        let epoch = self.identity.clock_zero_ns.saturating_add_unsigned(origin);
        for (op, d) in Op::ALL.into_iter().zip(&window.directions) {
            if let Some(d) = d {
                self.rows += 1;
                if !self.ended {
                    self.group.push(job.index, op, width, window.index, d);
                    self.group.names.push(job.name.into());
                    self.group.epochs.push(epoch);
                }
            }
        }
        if self.group.ints.len() < GROUP_ROWS
            && self.group.histogram_bytes < self.histogram_bytes_max
        {
            return Ok(());
        }
        self.encode();
        // A full disk may have room again later: another file may have been given up by then.
        if let Err(e) = self.write_waiting() {
            self.error.get_or_insert(e);
            self.ended |= self.waiting.iter().map(Vec::len).sum::<usize>() > WAITING_BYTES_MAX;
        }
        match &self.error {
            Some(e) if self.ended => Err(self.failed(copy_of(e))),
            _ => Ok(()),
        }
    }

    /// Writes what is left and gives the file its name. Where it had to end early, its beginning is kept and
    /// the reason is in [`SeriesSummary::error`].
    ///
    /// # Errors
    /// [`SeriesError::Write`], where the file cannot be named.
    pub fn finish(mut self) -> Result<SeriesSummary, SeriesError> {
        self.encode();
        let mut error = self.error.take().filter(|_| self.ended);
        if let Err(e) = self.write_waiting() {
            error.get_or_insert(e);
        }
        let bytes = loop {
            match self.write_footer() {
                Ok(bytes) => break bytes,
                Err(e) => {
                    error.get_or_insert(e);
                    if self.ends.pop().is_none() {
                        break 0;
                    }
                }
            }
        };
        let groups = self.writer.flushed_row_groups();
        let kept = groups.iter().take(self.ends.len());
        let rows: u64 = kept.map(|g| g.num_rows().max(0) as u64).sum();
        let mut summary = SeriesSummary {
            rows,
            bytes,
            lost: self.rows - rows,
            error: error.map(|e| self.failed(e)),
        };
        if summary.error.is_some() && rows == 0 {
            // Dropped, it leaves nothing.
            summary.bytes = 0;
            return Ok(summary);
        }
        let placed = self.out.take().map_or(Ok(()), Output::commit);
        placed.map_err(|e| self.failed(e))?;
        Ok(summary)
    }

    /// Where the file ends now.
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(self.begins)
    }

    /// Makes a row group of what has gathered.
    fn encode(&mut self) {
        let columns = std::mem::take(&mut self.group);
        if columns.ints.is_empty() || self.ended {
            return;
        }
        let written = columns.write(&mut self.writer, &self.identity);
        let written = written.and_then(|()| Ok(self.writer.flush()?));
        match written {
            Ok(()) => {
                let bytes = std::mem::take(self.writer.inner_mut());
                self.waiting.push_back(bytes);
            }
            Err(e) => {
                self.error.get_or_insert(io_error(e));
                self.ended = true;
            }
        }
    }

    /// Brings what waits into the file, whole groups only.
    fn write_waiting(&mut self) -> io::Result<()> {
        while let Some(bytes) = self.waiting.front() {
            let at = self.end();
            self.write_at(bytes, at)?;
            self.ends.push(at + bytes.len() as u64);
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn write_footer(&mut self) -> io::Result<u64> {
        let at = self.end();
        let groups = self.writer.flushed_row_groups()[..self.ends.len()].to_vec();
        let schema = self.writer.schema_descr();
        let schema = SchemaDescriptor::new(schema.root_schema_ptr());
        let about = FileMetaData::new(
            self.writer.properties().writer_version().as_num(),
            groups.iter().map(|g| g.num_rows()).sum(),
            Some(self.writer.properties().created_by().to_owned()),
            Some(self.notes.clone()),
            Arc::new(schema),
            None,
        );
        let mut footer = Vec::new();
        let about = ParquetMetaData::new(about, groups);
        ParquetMetaDataWriter::new(&mut footer, &about)
            .finish()
            .map_err(io_error)?;
        self.write_at(&footer, at)?;
        Ok(at + footer.len() as u64)
    }

    /// All of it, or the file as it was.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at).inspect_err(|_| {
            let _ = self.file.set_len(at);
        })
    }

    fn failed(&self, source: io::Error) -> SeriesError {
        SeriesError::Write {
            path: self.path.clone(),
            source,
        }
    }
}

/// The same error once more.
fn copy_of(e: &io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(e.kind(), e.to_string()),
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

fn open(tool_version: &str) -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("fathom version {tool_version}"))
        // Minimum and maximum let readers skip other jobs' row groups; those of histograms say nothing.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true);
    for name in ["job", "start_ns", "epoch_ns"] {
        properties = properties
            .set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Chunk);
    }
    for field in schema.get_fields() {
        let path = ColumnPath::from(field.name());
        properties = match field.name() {
            "job" | "op" | "width_ns" | "errors" | "short" => properties,
            "job_name" | "run_id" | "host" | "host_index" => properties,
            // Counts are small and repeat.
            name if name.ends_with("_n") => properties,
            name if name.ends_with("_bucket") => {
                let path = [name, "list", "element"].map(str::to_owned);
                delta(properties, ColumnPath::new(path.into()))
            }
            "start_ns" | "epoch_ns" => delta(properties, path),
            _ => properties.set_column_dictionary_enabled(path, false),
        };
    }
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))
}

fn delta(properties: WriterPropertiesBuilder, column: ColumnPath) -> WriterPropertiesBuilder {
    properties
        .set_column_dictionary_enabled(column.clone(), false)
        .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
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
        let some = d.submit.moments.count > 0;
        self.submit_max
            .push(some.then_some(d.submit.moments.max as i64));
        self.service.push(&d.service);
        self.response.push(&d.response);
        let histograms = [&d.submit, &d.service, &d.response];
        for (lists, h) in self.lists.iter_mut().zip(histograms) {
            lists.push(h);
        }
        for (column, h) in self.histograms.iter_mut().zip(histograms) {
            let mut bytes = Vec::new();
            codec::encode(h, &mut bytes);
            // Counts the container, too: short histograms must not make a long row group.
            self.histogram_bytes += bytes.capacity() + size_of::<ByteArray>();
            column.push(bytes.into());
        }
    }

    /// Writes one row group, in the order of [`SCHEMA`].
    fn write(
        self,
        writer: &mut SerializedFileWriter<Vec<u8>>,
        identity: &Identity,
    ) -> Result<(), ParquetError> {
        let rows = self.ints.len();
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
        put::<ByteArrayType>(&mut group, &self.names, None)?;
        put::<Int64Type>(&mut group, &self.epochs, None)?;
        let run: ByteArray = identity.run_id.as_str().into();
        put::<ByteArrayType>(&mut group, &vec![run; rows], None)?;
        let there = vec![i16::from(identity.host.is_some()); rows];
        let host = identity.host.iter();
        let names = host.clone().map(|h| ByteArray::from(h.name.as_str()));
        let names: Vec<ByteArray> = names.flat_map(|h| vec![h; rows]).collect();
        put::<ByteArrayType>(&mut group, &names, Some(&there))?;
        let places: Vec<i32> = host.flat_map(|h| vec![h.index as i32; rows]).collect();
        put::<Int32Type>(&mut group, &places, Some(&there))?;
        let max = &self.submit_max;
        put::<Int64Type>(&mut group, &max.values, Some(&max.present))?;
        for l in &self.lists {
            let (present, repeated) = (Some(&l.present[..]), Some(&l.repeated[..]));
            put_levels::<Int32Type>(&mut group, &l.buckets, present, repeated)?;
            put_levels::<Int64Type>(&mut group, &l.counts, present, repeated)?;
        }
        group.close()?;
        Ok(())
    }
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    put_levels::<T>(group, values, present, None)
}

/// The same of values of lists, where `repeated` says which begin a row.
fn put_levels<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    present: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("the schema has fewer columns".to_owned()))?;
    column.typed::<T>().write_batch(values, present, repeated)?;
    column.close()
}

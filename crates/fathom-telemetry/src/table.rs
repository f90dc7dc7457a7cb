//! A run's Parquet files as tables: chosen columns, a batch at a time, in bounded memory.
//!
//! For readers that do not know beforehand what they will be asked (`fathom query`). Who wants I/Os
//! or windows as such uses [`crate::iolog::IoLogReader`] or [`crate::series::SeriesReader`].

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::parquet_file;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

/// Rows read at a time.
const BATCH_ROWS: usize = 8192;
/// Rows read at a time where a column of bytes is among them: a histogram may have 4,736 buckets.
const BATCH_ROWS_OF_BYTES: usize = 128;

/// Why a table could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot read {path}: {reason}; expected a Parquet file written by fathom")]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Integer,
    /// Whole numbers of 32 bits without a sign, stored as if they had one.
    Unsigned,
    /// Floating point.
    Real,
    /// Words.
    Text,
    /// Bytes, such as a histogram.
    Blob,
}

/// A column of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Whether values may be missing.
    optional: bool,
    /// Its number among all columns of the file.
    leaf: usize,
}

/// A value of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Missing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// Words.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

/// An open file, or several of the same columns as one.
pub struct Table {
    files: Vec<(PathBuf, SerializedFileReader<File>)>,
    columns: Vec<Column>,
}

impl Table {
    /// Opens a file for its flat columns: lists, which say what others say, are left out.
    ///
    /// # Errors
    /// Where it is not there, not Parquet, or has a column of another shape.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let failed = |reason: String| TableError {
            path: path.to_owned(),
            reason,
        };
        let file = parquet_file::open(path).map_err(failed)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let mut columns = Vec::new();
        for i in 0..schema.num_columns() {
            use parquet::basic::{ConvertedType, Type};
            let c = schema.column(i);
            if c.max_rep_level() > 0 {
                continue;
            }
            let kind = match (c.physical_type(), c.converted_type()) {
                (Type::INT32, ConvertedType::UINT_32) => Kind::Unsigned,
                (Type::INT32 | Type::INT64, _) => Kind::Integer,
                (Type::DOUBLE, _) => Kind::Real,
                (Type::BYTE_ARRAY, ConvertedType::UTF8) => Kind::Text,
                (Type::BYTE_ARRAY, _) => Kind::Blob,
                _ => return Err(failed(format!("column '{}' has a foreign type", c.name()))),
            };
            if c.max_def_level() > 1 {
                return Err(failed(format!("column '{}' is nested", c.name())));
            }
            columns.push(Column {
                name: c.name().to_owned(),
                kind,
                optional: c.max_def_level() == 1,
                leaf: i,
            });
        }
        Ok(Self {
            files: vec![(path.to_owned(), file)],
            columns,
        })
    }

    /// Opens several files of the same columns as one table.
    ///
    /// # Errors
    /// As [`Self::open`]; where a file has other columns.
    pub fn open_all(paths: &[PathBuf]) -> Result<Self, TableError> {
        let [first, others @ ..] = paths else {
            return Err(TableError {
                path: PathBuf::new(),
                reason: "no file was named".to_owned(),
            });
        };
        let mut all = Self::open(first)?;
        for path in others {
            let other = Self::open(path)?;
            if other.columns != all.columns {
                return Err(TableError {
                    path: path.clone(),
                    reason: format!("it has other columns than {}", first.display()),
                });
            }
            all.files.extend(other.files);
        }
        Ok(all)
    }

    /// The columns, in the file's order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Number of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        let rows = |f: &SerializedFileReader<File>| f.metadata().file_metadata().num_rows();
        let all = self.files.iter().map(|(_, f)| rows(f).max(0) as u64);
        all.sum()
    }

    /// Row groups in the file.
    pub fn groups(&self) -> usize {
        self.files.iter().map(|(_, f)| f.num_row_groups()).sum()
    }

    /// The file that a row group is in, and the group's number there.
    fn place(&self, mut group: usize) -> (&Path, &SerializedFileReader<File>, usize) {
        let mut last = &self.files[0];
        for file in &self.files {
            last = file;
            if group < file.1.num_row_groups() {
                break;
            }
            group -= file.1.num_row_groups();
        }
        (&last.0, &last.1, group)
    }

    /// Smallest and largest value of a column of whole numbers in a row group, where the file says so.
    pub fn range(&self, group: usize, column: usize) -> Option<(i64, i64)> {
        let unsigned = self.columns[column].kind == Kind::Unsigned;
        let of = |v: i32| {
            if unsigned {
                i64::from(v as u32)
            } else {
                i64::from(v)
            }
        };
        let (_, file, group) = self.place(group);
        let group = file.metadata().row_group(group);
        match group.column(self.columns[column].leaf).statistics()? {
            Statistics::Int32(s) => Some((of(*s.min_opt()?), of(*s.max_opt()?))),
            Statistics::Int64(s) => Some((*s.min_opt()?, *s.max_opt()?)),
            _ => None,
        }
    }

    /// Begins to read a row group; only columns with `wanted` are decoded.
    ///
    /// # Errors
    /// Where the file is damaged.
    pub fn read(&self, group: usize, wanted: &[bool]) -> Result<Batches, TableError> {
        let (path, file, number) = self.place(group);
        let failed = |reason: String| TableError {
            path: path.to_owned(),
            reason,
        };
        let error = |e: ParquetError| failed(e.to_string());
        let reader = parquet_file::guarded(|| file.get_row_group(number)).map_err(error)?;
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut batch = BATCH_ROWS;
        for (i, c) in self.columns.iter().enumerate() {
            let wanted = wanted.get(i).copied().unwrap_or(false);
            // A column with one value in the whole group need not be decoded.
            let constant = self.range(group, i).filter(|(a, b)| a == b && !c.optional);
            columns.push(match (wanted, constant) {
                (false, _) => Values::Unread,
                (true, Some((value, _))) => Values::Constant(value),
                (true, None) => {
                    if c.kind == Kind::Blob {
                        batch = BATCH_ROWS_OF_BYTES;
                    }
                    let r = parquet_file::guarded(|| reader.get_column_reader(c.leaf))
                        .map_err(error)?;
                    Values::new(r, c)
                        .ok_or_else(|| failed(format!("column '{}' has another type", c.name)))?
                }
            });
        }
        Ok(Batches {
            path: path.to_owned(),
            columns,
            left: reader.metadata().num_rows().max(0) as usize,
            rows: 0,
            batch,
        })
    }
}

/// The rows of one row group, a batch at a time.
pub struct Batches {
    path: PathBuf,
    columns: Vec<Values>,
    left: usize,
    rows: usize,
    batch: usize,
}

impl Batches {
    /// Reads the next batch and says how many rows it has; 0 at the end.
    ///
    /// # Errors
    /// Where the file is damaged.
    pub fn advance(&mut self) -> Result<usize, TableError> {
        self.rows = self.left.min(self.batch);
        for c in &mut self.columns {
            parquet_file::guarded(|| c.fill(self.rows)).map_err(|e| TableError {
                path: self.path.clone(),
                reason: e.to_string(),
            })?;
        }
        self.left -= self.rows;
        Ok(self.rows)
    }

    /// A value of the present batch; missing where the column was not wanted.
    #[inline]
    pub fn value(&self, column: usize, row: usize) -> Value<'_> {
        match &self.columns[column] {
            Values::Unread => Value::Null,
            Values::Constant(v) => Value::Integer(*v),
            Values::Ints(c) => c
                .get(row)
                .map_or(Value::Null, |v| Value::Integer(i64::from(*v))),
            Values::Unsigned(c) => c
                .get(row)
                .map_or(Value::Null, |v| Value::Integer(i64::from(*v as u32))),
            Values::Longs(c) => c.get(row).map_or(Value::Null, |v| Value::Integer(*v)),
            Values::Reals(c) => c.get(row).map_or(Value::Null, |v| Value::Real(*v)),
            Values::Text(c) => c
                .get(row)
                .and_then(|v| std::str::from_utf8(v.data()).ok())
                .map_or(Value::Null, Value::Text),
            Values::Blobs(c) => c.get(row).map_or(Value::Null, |v| Value::Blob(v.data())),
        }
    }

    /// A whole number of the present batch; 0 where there is none.
    #[inline]
    pub fn integer(&self, column: usize, row: usize) -> i64 {
        match self.value(column, row) {
            Value::Integer(v) => v,
            _ => 0,
        }
    }
}

/// One column of the present batch.
enum Values {
    Unread,
    Constant(i64),
    Ints(Decoded<Int32Type>),
    Unsigned(Decoded<Int32Type>),
    Longs(Decoded<Int64Type>),
    Reals(Decoded<DoubleType>),
    Text(Decoded<ByteArrayType>),
    Blobs(Decoded<ByteArrayType>),
}

impl Values {
    fn new(reader: ColumnReader, column: &Column) -> Option<Self> {
        let optional = column.optional;
        Some(match (reader, column.kind) {
            (ColumnReader::Int32ColumnReader(r), Kind::Integer) => {
                Self::Ints(Decoded::new(r, optional))
            }
            (ColumnReader::Int32ColumnReader(r), Kind::Unsigned) => {
                Self::Unsigned(Decoded::new(r, optional))
            }
            (ColumnReader::Int64ColumnReader(r), _) => Self::Longs(Decoded::new(r, optional)),
            (ColumnReader::DoubleColumnReader(r), _) => Self::Reals(Decoded::new(r, optional)),
            (ColumnReader::ByteArrayColumnReader(r), Kind::Text) => {
                Self::Text(Decoded::new(r, optional))
            }
            (ColumnReader::ByteArrayColumnReader(r), _) => Self::Blobs(Decoded::new(r, optional)),
            _ => return None,
        })
    }

    fn fill(&mut self, rows: usize) -> Result<(), ParquetError> {
        match self {
            Self::Unread | Self::Constant(_) => Ok(()),
            Self::Ints(c) | Self::Unsigned(c) => c.fill(rows),
            Self::Longs(c) => c.fill(rows),
            Self::Reals(c) => c.fill(rows),
            Self::Text(c) | Self::Blobs(c) => c.fill(rows),
        }
    }
}

/// Values of one column, and which of them are missing.
struct Decoded<T: DataType> {
    reader: ColumnReaderImpl<T>,
    optional: bool,
    /// Without the missing ones.
    values: Vec<T::T>,
    levels: Vec<i16>,
    /// Number of a row's value; only where values may be missing.
    places: Vec<u32>,
}

/// No value here.
const MISSING: u32 = u32::MAX;

impl<T: DataType> Decoded<T> {
    fn new(reader: ColumnReaderImpl<T>, optional: bool) -> Self {
        Self {
            reader,
            optional,
            values: Vec::new(),
            levels: Vec::new(),
            places: Vec::new(),
        }
    }

    fn fill(&mut self, rows: usize) -> Result<(), ParquetError> {
        self.values.clear();
        self.levels.clear();
        self.places.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let (records, _, _) = self
            .reader
            .read_records(rows, levels, None, &mut self.values)?;
        if records != rows || (!self.optional && self.values.len() != rows) {
            return Err(ParquetError::EOF("a column ends early".to_owned()));
        }
        let mut next = 0;
        for level in &self.levels {
            self.places.push(if *level == 0 {
                MISSING
            } else {
                next += 1;
                next - 1
            });
        }
        Ok(())
    }

    #[inline]
    fn get(&self, row: usize) -> Option<&T::T> {
        if !self.optional {
            return self.values.get(row);
        }
        match self.places.get(row) {
            Some(&at) if at != MISSING => self.values.get(at as usize),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::iolog::{IoLog, IoLogReader};
    use crate::record::{Op, Record};
    use crate::units::Nanos;

    fn log(path: &Path) {
        let log = IoLog::create(path, Identity::default(), 2).unwrap();
        for job in 0..2u16 {
            let mut h = log.handle(job, 3, Nanos(0));
            for i in 0..10_000u64 {
                h.push(&Record {
                    op: if i % 3 == 0 { Op::Write } else { Op::Read },
                    offset: i * 4096,
                    len: 4096,
                    intended: Nanos(i * 1000),
                    submitted: Nanos(i * 1000 + 10),
                    completed: Nanos(i * 1000 + 10 + i % 977),
                    result: 4096,
                });
            }
            drop(h);
        }
        log.finish().unwrap();
    }

    #[test]
    fn chosen_columns_hold_what_the_log_reader_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io.parquet");
        log(&path);
        let expected: Vec<_> = IoLogReader::open(&path)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let table = Table::open(&path).unwrap();
        assert_eq!(table.rows(), 20_000);
        let columns = ["job", "op", "completed_ns", "len"].map(|n| table.column(n).unwrap());
        let mut wanted = vec![false; table.columns().len()];
        for c in columns {
            wanted[c] = true;
        }
        let mut at = 0;
        for group in 0..table.groups() {
            let mut rows = table.read(group, &wanted).unwrap();
            loop {
                let n = rows.advance().unwrap();
                if n == 0 {
                    break;
                }
                for i in 0..n {
                    let r = &expected[at];
                    assert_eq!(rows.integer(columns[0], i), i64::from(r.job));
                    assert_eq!(rows.value(columns[1], i), Value::Text(r.op.name()));
                    assert_eq!(rows.integer(columns[2], i), r.completed_ns);
                    assert_eq!(rows.integer(columns[3], i), i64::from(r.len));
                    at += 1;
                }
            }
        }
        assert_eq!(at, expected.len());
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("series.parquet");
        std::fs::write(&path, b"PAR1").unwrap();
        let said = Table::open(&path).err().unwrap().to_string();
        assert!(said.contains("series.parquet"), "{said}");
    }
}

//! Reads an I/O log back, a batch at a time, in bounded memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use super::IoLogError;
use super::page::{COLUMNS, FIRST_COLUMNS, PAGE_ROWS};
use crate::parquet_file;
use crate::record::Op;

/// One I/O as stored. Times are ns after the start of the job's measured part; an I/O that was under
/// way at that moment began at a negative time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoRow {
    /// Index of the job in `run.json`.
    pub job: u16,
    /// Thread of the job.
    pub thread: u16,
    /// What it did.
    pub op: Op,
    /// When it should have started.
    pub intended_ns: i64,
    /// When it was handed over.
    pub submitted_ns: i64,
    /// When its completion was seen.
    pub completed_ns: i64,
    /// Byte offset in the target.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u32,
    /// Bytes transferred; 0 where it failed.
    pub done: u32,
    /// errno; 0 where it did not fail.
    pub error: i32,
}

impl IoRow {
    /// Hand-over to completion, ns.
    pub fn service_ns(&self) -> u64 {
        self.completed_ns.saturating_sub(self.submitted_ns).max(0) as u64
    }
    /// Intended start to completion, ns.
    pub fn response_ns(&self) -> u64 {
        self.completed_ns.saturating_sub(self.intended_ns).max(0) as u64
    }
}

/// Streams the rows of a log in the order of the file: by completion within one thread. Of hosts the logs follow each
/// other.
pub struct IoLogReader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    /// Files after it, the next one last.
    others: Vec<PathBuf>,
    job: Option<u16>,
    next_group: usize,
    group: Option<Group>,
    batch: Vec<IoRow>,
    at: usize,
}

/// Column readers of one row group.
struct Group {
    ints: [ColumnReaderImpl<Int32Type>; 5],
    ops: ColumnReaderImpl<ByteArrayType>,
    longs: [ColumnReaderImpl<Int64Type>; 4],
    left: usize,
}

impl IoLogReader {
    /// Opens a log.
    ///
    /// # Errors
    /// [`IoLogError::Read`], where it is not there, not Parquet, or lacks a column.
    pub fn open(path: &Path) -> Result<Self, IoLogError> {
        let failed = |reason: String| IoLogError::Read {
            path: path.to_owned(),
            reason,
        };
        Self::of(path, parquet_file::open(path).map_err(failed)?)
    }

    /// Opens a file that has no name; `path` is what it is called in errors.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of_file(file: File, path: &Path) -> Result<Self, IoLogError> {
        let read = parquet_file::checked(file).map_err(|reason| IoLogError::Read {
            path: path.to_owned(),
            reason,
        })?;
        Self::of(path, read)
    }

    /// Opens several logs, of which one follows the other.
    ///
    /// # Errors
    /// As [`Self::open`], of the first one, and where there is none; of others where their turn comes.
    pub fn open_all(mut files: Vec<PathBuf>) -> Result<Self, IoLogError> {
        files.reverse();
        let mut reader = Self::open(&files.pop().unwrap_or_default())?;
        reader.others = files;
        Ok(reader)
    }

    fn of(path: &Path, file: SerializedFileReader<File>) -> Result<Self, IoLogError> {
        let reader = Self {
            path: path.to_owned(),
            file,
            others: Vec::new(),
            job: None,
            next_group: 0,
            group: None,
            batch: Vec::new(),
            at: 0,
        };
        for (name, _) in &COLUMNS[..FIRST_COLUMNS] {
            reader.column(name)?;
        }
        Ok(reader)
    }

    /// Leaves out other jobs' rows; row groups without the job are not even read.
    #[must_use]
    pub fn only_job(mut self, job: u16) -> Self {
        self.job = Some(job);
        self
    }

    /// Rows in the present file, of all jobs.
    pub fn rows(&self) -> u64 {
        self.file.metadata().file_metadata().num_rows().max(0) as u64
    }

    /// A value that the present file says about itself, such as `fathom.clock_origin_ns`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let pairs = self.file.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|p| p.key == key)?.value.as_deref()
    }

    /// The next rows, at most a few thousand; empty at the end.
    ///
    /// # Errors
    /// [`IoLogError::Read`], where the file is damaged.
    pub fn next_batch(&mut self) -> Result<&[IoRow], IoLogError> {
        self.fill()?;
        self.at = self.batch.len();
        Ok(&self.batch)
    }

    fn fill(&mut self) -> Result<(), IoLogError> {
        self.batch.clear();
        self.at = 0;
        while self.batch.is_empty() {
            if self.group.as_ref().is_none_or(|g| g.left == 0) {
                self.group = None;
                if self.next_group >= self.file.num_row_groups() {
                    // What has failed ends.
                    let Some(next) = self.others.pop().filter(|_| self.next_group < usize::MAX)
                    else {
                        return Ok(());
                    };
                    let others = std::mem::take(&mut self.others);
                    let job = self.job;
                    *self = Self::open(&next)?;
                    (self.others, self.job) = (others, job);
                    continue;
                }
                self.next_group += 1;
                if !self.holds_job(self.next_group - 1) {
                    continue;
                }
                self.group = Some(self.open_group(self.next_group - 1)?);
            }
            if let Some(group) = &mut self.group {
                let read = parquet_file::guarded(|| group.read(&mut self.batch));
                if let Err(e) = read {
                    // A damaged file has no end that could be found by going on.
                    self.batch.clear();
                    self.group = None;
                    self.next_group = usize::MAX;
                    return Err(self.failed(e.to_string()));
                }
                if let Some(job) = self.job {
                    self.batch.retain(|r| r.job == job);
                }
            }
        }
        Ok(())
    }

    fn failed(&self, reason: String) -> IoLogError {
        IoLogError::Read {
            path: self.path.clone(),
            reason,
        }
    }

    fn column(&self, name: &str) -> Result<usize, IoLogError> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        (0..schema.num_columns())
            .find(|i| schema.column(*i).name() == name)
            .ok_or_else(|| self.failed(format!("it has no column '{name}'")))
    }

    fn holds_job(&self, group: usize) -> bool {
        let (Some(job), Ok(column)) = (self.job, self.column("job")) else {
            return true;
        };
        let job = i32::from(job);
        match self
            .file
            .metadata()
            .row_group(group)
            .column(column)
            .statistics()
        {
            Some(Statistics::Int32(s)) => {
                s.min_opt().is_none_or(|m| *m <= job) && s.max_opt().is_none_or(|m| *m >= job)
            }
            _ => true,
        }
    }

    fn open_group(&self, index: usize) -> Result<Group, IoLogError> {
        let error = |e: ParquetError| self.failed(e.to_string());
        let group = parquet_file::guarded(|| self.file.get_row_group(index)).map_err(error)?;
        let left = group.metadata().num_rows().max(0) as usize;
        let reader = |name: &str| -> Result<ColumnReader, IoLogError> {
            let column = self.column(name)?;
            parquet_file::guarded(|| group.get_column_reader(column)).map_err(error)
        };
        let wrong = |name: &str| self.failed(format!("its column '{name}' has another type"));
        let int = |name| match reader(name)? {
            ColumnReader::Int32ColumnReader(r) => Ok(r),
            _ => Err(wrong(name)),
        };
        let long = |name| match reader(name)? {
            ColumnReader::Int64ColumnReader(r) => Ok(r),
            _ => Err(wrong(name)),
        };
        let ops = match reader("op")? {
            r @ ColumnReader::ByteArrayColumnReader(_) => get_typed_column_reader(r),
            _ => return Err(wrong("op")),
        };
        Ok(Group {
            ints: [
                int("job")?,
                int("thread")?,
                int("len")?,
                int("done")?,
                int("error")?,
            ],
            ops,
            longs: [
                long("intended_ns")?,
                long("submitted_ns")?,
                long("completed_ns")?,
                long("offset")?,
            ],
            left,
        })
    }
}

impl Iterator for IoLogReader {
    type Item = Result<IoRow, IoLogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.batch.len()
            && let Err(e) = self.fill()
        {
            return Some(Err(e));
        }
        let row = self.batch.get(self.at).copied()?;
        self.at += 1;
        Some(Ok(row))
    }
}

impl Group {
    fn read(&mut self, batch: &mut Vec<IoRow>) -> Result<(), ParquetError> {
        let n = self.left.min(PAGE_ROWS);
        let mut ints: [Vec<i32>; 5] = Default::default();
        for (reader, out) in self.ints.iter_mut().zip(&mut ints) {
            take(reader, n, out)?;
        }
        let mut longs: [Vec<i64>; 4] = Default::default();
        for (reader, out) in self.longs.iter_mut().zip(&mut longs) {
            take(reader, n, out)?;
        }
        let mut ops: Vec<ByteArray> = Vec::new();
        take(&mut self.ops, n, &mut ops)?;
        let [job, thread, len, done, error] = &ints;
        let [intended, submitted, completed, offset] = &longs;
        for i in 0..n {
            let op = Op::ALL
                .into_iter()
                .find(|op| op.name().as_bytes() == ops[i].data())
                .ok_or_else(|| ParquetError::General("an operation is unknown".to_owned()))?;
            batch.push(IoRow {
                job: job[i] as u16,
                thread: thread[i] as u16,
                op,
                intended_ns: intended[i],
                submitted_ns: submitted[i],
                completed_ns: completed[i],
                offset: offset[i] as u64,
                len: len[i] as u32,
                done: done[i] as u32,
                error: error[i],
            });
        }
        self.left -= n;
        Ok(())
    }
}

/// Exactly `n` values, or an error.
fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
    out: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    let (_, values, _) = reader.read_records(n, None, None, out)?;
    if values == n {
        Ok(())
    } else {
        Err(ParquetError::EOF("a column ends early".to_owned()))
    }
}

//! Rows to windows: one job at a time, as coarse as asked for, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use super::{Fault, SeriesError};
use crate::codec;
use crate::parquet_file;
use crate::record::Op;
use crate::units::Nanos;
use crate::window::DirectionTotal;
use crate::window::{DirectionWindow, Window};

/// Rows read at a time: with full histograms of 4,736 buckets still only a few MB.
const BATCH: usize = 64;

/// One row as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesRow {
    /// Index of the job in `run.json`.
    pub job: u16,
    /// Operation.
    pub op: Op,
    /// Start of the window after the start of the job's measured part.
    pub start: Nanos,
    /// Length of the window.
    pub width: Nanos,
    /// What completed in it.
    pub window: DirectionWindow,
}

/// Windows of one job, possibly merged to longer ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobSeries {
    /// Length of each window; a window starts at `index × width`.
    pub width: Nanos,
    /// In order of time; windows in which nothing completed are left out.
    pub windows: Vec<Window>,
}

/// An open `series.parquet`.
pub struct SeriesReader {
    path: PathBuf,
    file: SerializedFileReader<File>,
}

impl SeriesReader {
    /// Opens a series.
    ///
    /// # Errors
    /// [`SeriesError::Read`], where it is not there, not Parquet, or lacks a column.
    pub fn open(path: &Path) -> Result<Self, SeriesError> {
        let failed = |reason: String| SeriesError::Read {
            path: path.to_owned(),
            reason,
        };
        let file = parquet_file::open(path).map_err(failed)?;
        let reader = Self {
            path: path.to_owned(),
            file,
        };
        for name in ["job", "op", "start_ns", "width_ns", "service_histogram"] {
            reader.column(name).map_err(|e| reader.failed(&e))?;
        }
        Ok(reader)
    }

    /// Jobs that have windows.
    ///
    /// # Errors
    /// [`SeriesError::Read`], where the file is damaged.
    pub fn jobs(&self) -> Result<BTreeSet<u16>, SeriesError> {
        let mut jobs = BTreeSet::new();
        self.each_job_row(&[], |job, _| {
            jobs.insert(job);
        })
        .map_err(|e| self.failed(&e))?;
        Ok(jobs)
    }

    /// One job's windows, at most `most` of them: where there are more, neighbours are merged (their
    /// histograms, so that percentiles stay those of all samples).
    ///
    /// # Errors
    /// [`SeriesError::Read`], where the file is damaged.
    pub fn windows(&self, job: u16, most: usize) -> Result<JobSeries, SeriesError> {
        let (mut last, mut width) = (0, Nanos::ZERO);
        self.each_job_row(&["start_ns", "width_ns"], |j, longs| {
            if j == job && longs[1] > 0 {
                last = last.max(longs[0] / longs[1]);
                width = Nanos(longs[1] as u64);
            }
        })
        .map_err(|e| self.failed(&e))?;
        if width == Nanos::ZERO {
            return Ok(JobSeries::default());
        }
        let factor = (last as u64 + 1).div_ceil(most.max(1) as u64);
        // The order of rows is not relied upon: threads' windows may arrive late.
        let mut windows: BTreeMap<u64, Window> = BTreeMap::new();
        self.each_row(Some(job), |row| {
            let index = row.start.0 / width.0 / factor;
            let mut one = Window {
                index,
                ..Window::default()
            };
            one.directions[row.op as usize] = Some(Box::new(row.window));
            match windows.get_mut(&index) {
                Some(w) => w.merge(&one),
                None => {
                    windows.insert(index, one);
                }
            }
        })?;
        Ok(JobSeries {
            width: Nanos(width.0.saturating_mul(factor)),
            windows: windows.into_values().collect(),
        })
    }

    /// One job's totals, by [`Op`] number; `None` where nothing completed.
    ///
    /// # Errors
    /// [`SeriesError::Read`], where the file is damaged.
    pub fn totals(&self, job: u16) -> Result<[Option<Box<DirectionTotal>>; 4], SeriesError> {
        let mut totals: [Option<Box<DirectionTotal>>; 4] = Default::default();
        self.each_row(Some(job), |row| {
            totals[row.op as usize]
                .get_or_insert_default()
                .add(&row.window);
        })?;
        Ok(totals)
    }

    /// Gives every row, or those of one job, to `take`, in the order of the file.
    ///
    /// # Errors
    /// [`SeriesError::Read`], where the file is damaged.
    pub fn each_row(
        &self,
        job: Option<u16>,
        mut take: impl FnMut(SeriesRow),
    ) -> Result<(), SeriesError> {
        (0..self.file.num_row_groups())
            .filter(|g| job.is_none_or(|j| self.holds_job(*g, j)))
            .try_for_each(|g| self.group_rows(g, job, &mut take))
            .map_err(|e| self.failed(&e))
    }

    fn failed(&self, fault: &Fault) -> SeriesError {
        SeriesError::Read {
            path: self.path.clone(),
            reason: fault.to_string(),
        }
    }

    fn column(&self, name: &str) -> Result<usize, Fault> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        (0..schema.num_columns())
            .find(|i| schema.column(*i).name() == name)
            .ok_or_else(|| Fault::Content(format!("it has no column '{name}'")))
    }

    fn holds_job(&self, group: usize, job: u16) -> bool {
        let job = i32::from(job);
        let Ok(column) = self.column("job") else {
            return true;
        };
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

    fn reader(&self, group: usize, name: &str) -> Result<ColumnReader, Fault> {
        let column = self.column(name)?;
        Ok(parquet_file::guarded(|| {
            self.file.get_row_group(group)?.get_column_reader(column)
        })?)
    }

    fn ints(&self, group: usize, name: &str) -> Result<ColumnReaderImpl<Int32Type>, Fault> {
        match self.reader(group, name)? {
            ColumnReader::Int32ColumnReader(r) => Ok(r),
            _ => Err(wrong_type(name)),
        }
    }
    fn longs(&self, group: usize, name: &str) -> Result<ColumnReaderImpl<Int64Type>, Fault> {
        match self.reader(group, name)? {
            ColumnReader::Int64ColumnReader(r) => Ok(r),
            _ => Err(wrong_type(name)),
        }
    }
    fn bytes(&self, group: usize, name: &str) -> Result<ColumnReaderImpl<ByteArrayType>, Fault> {
        match self.reader(group, name)? {
            ColumnReader::ByteArrayColumnReader(r) => Ok(r),
            _ => Err(wrong_type(name)),
        }
    }

    /// Every row's job and some 64-bit columns, without touching the histograms.
    fn each_job_row(&self, names: &[&str], mut take: impl FnMut(u16, &[i64])) -> Result<(), Fault> {
        for g in 0..self.file.num_row_groups() {
            let mut left = self.file.metadata().row_group(g).num_rows().max(0) as usize;
            let mut jobs = self.ints(g, "job")?;
            let mut readers = names
                .iter()
                .map(|n| self.longs(g, n))
                .collect::<Result<Vec<_>, _>>()?;
            let mut row = vec![0; names.len()];
            while left > 0 {
                let n = left.min(4096);
                let job = batch(&mut jobs, n)?;
                let columns = readers
                    .iter_mut()
                    .map(|r| batch(r, n))
                    .collect::<Result<Vec<_>, _>>()?;
                for (i, job) in job.iter().enumerate() {
                    for (v, column) in row.iter_mut().zip(&columns) {
                        *v = column[i];
                    }
                    take(*job as u16, &row);
                }
                left -= n;
            }
        }
        Ok(())
    }

    fn group_rows(
        &self,
        g: usize,
        only: Option<u16>,
        take: &mut impl FnMut(SeriesRow),
    ) -> Result<(), Fault> {
        let mut left = self.file.metadata().row_group(g).num_rows().max(0) as usize;
        let mut jobs = self.ints(g, "job")?;
        let mut ops = self.bytes(g, "op")?;
        let names = ["start_ns", "width_ns", "ios", "bytes", "errors", "short"];
        let mut longs = names
            .iter()
            .map(|n| self.longs(g, n))
            .collect::<Result<Vec<_>, _>>()?;
        let names = [
            "submit_histogram",
            "service_histogram",
            "response_histogram",
        ];
        let mut histograms = names
            .iter()
            .map(|n| self.bytes(g, n))
            .collect::<Result<Vec<_>, _>>()?;
        while left > 0 {
            let n = left.min(BATCH);
            let jobs = batch(&mut jobs, n)?;
            let ops = batch(&mut ops, n)?;
            let longs = longs
                .iter_mut()
                .map(|r| batch(r, n))
                .collect::<Result<Vec<_>, _>>()?;
            let histograms = histograms
                .iter_mut()
                .map(|r| batch(r, n))
                .collect::<Result<Vec<_>, _>>()?;
            for i in 0..n {
                let job = jobs[i] as u16;
                if only.is_some_and(|o| o != job) {
                    continue;
                }
                let long = |column: usize| longs[column][i].max(0) as u64;
                let histogram = |column: usize| codec::decode(histograms[column][i].data());
                take(SeriesRow {
                    job,
                    op: op(&ops[i])?,
                    start: Nanos(long(0)),
                    width: Nanos(long(1)),
                    window: DirectionWindow {
                        ios: long(2),
                        bytes: long(3),
                        errors: long(4),
                        short: long(5),
                        submit: histogram(0)?,
                        service: histogram(1)?,
                        response: histogram(2)?,
                    },
                });
            }
            left -= n;
        }
        Ok(())
    }
}

fn wrong_type(name: &str) -> Fault {
    Fault::Content(format!("its column '{name}' has another type"))
}

fn op(name: &ByteArray) -> Result<Op, Fault> {
    Op::ALL
        .into_iter()
        .find(|op| op.name().as_bytes() == name.data())
        .ok_or_else(|| Fault::Content("an operation is unknown".to_owned()))
}

/// Exactly `n` values of a column without nulls.
fn batch<T: DataType>(reader: &mut ColumnReaderImpl<T>, n: usize) -> Result<Vec<T::T>, Fault> {
    let mut out = Vec::with_capacity(n);
    let (_, values, _) = parquet_file::guarded(|| reader.read_records(n, None, None, &mut out))?;
    if values == n && out.len() == n {
        Ok(out)
    } else {
        Err(Fault::Content("a column ends early".to_owned()))
    }
}

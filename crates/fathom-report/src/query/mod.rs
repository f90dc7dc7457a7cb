//! SQL over a run: I/Os, windows, jobs and findings as tables, and ready-made queries.
//!
//! Like every exporter it reads a run directory and nothing else. The engine is a feature (`sql`), so
//! that small builds can do without; the ready-made queries are there without it, for DuckDB.

#[cfg(feature = "sql")]
mod aggregates;
#[cfg(feature = "sql")]
mod clock;
#[cfg(feature = "sql")]
mod document;
#[cfg(feature = "sql")]
mod engine;
mod print;
#[cfg(feature = "sql")]
mod quantile;
mod ready;
#[cfg(feature = "sql")]
mod table;

use std::borrow::Cow;

#[cfg(feature = "sql")]
pub use engine::Queries;
pub use print::{CsvRows, JsonRows, TableRows};
pub use ready::{READY, Ready, duckdb, ready};

/// A query could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The run could not be opened.
    #[error(transparent)]
    Run(#[from] fathom_telemetry::rundir::RunDirError),
    /// One of its files could not be read.
    #[error(transparent)]
    Table(#[from] fathom_telemetry::table::TableError),
    /// SQLite refused the query, or stopped.
    #[error("the query failed: {0}")]
    Sql(String),
    /// It would change something, or return nothing.
    #[error("this is no query that returns rows; expected one SELECT, runs cannot be changed")]
    NotSelect,
    /// A row could not be printed.
    #[error("cannot write the result: {0}")]
    Write(#[from] std::io::Error),
    /// The run could not be turned into JSON (a programmer's error in practice).
    #[error("cannot encode the run as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

#[cfg(feature = "sql")]
impl From<rusqlite::Error> for QueryError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sql(e.to_string())
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// `INTEGER`, `REAL`, `TEXT` or `BLOB`.
    pub kind: String,
}

/// A value of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// Words.
    Text(Cow<'a, str>),
    /// Bytes, such as a histogram.
    Blob(&'a [u8]),
}

/// Takes a result row by row, so that it may be larger than memory.
pub trait Rows {
    /// The names of the columns, once, before all rows.
    ///
    /// # Errors
    /// Where they cannot be written.
    fn begin(&mut self, names: &[String]) -> Result<(), QueryError>;
    /// A row.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn row(&mut self, values: &[Value<'_>]) -> Result<(), QueryError>;
    /// After the last row.
    ///
    /// # Errors
    /// Where the end cannot be written.
    fn end(&mut self) -> Result<(), QueryError>;
}

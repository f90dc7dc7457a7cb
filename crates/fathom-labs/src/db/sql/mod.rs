//! Databases as the labs' drivers see them: prepared statements with values, answers of rows. One file per protocol,
//! and only as much of it as the drivers use (see `docs/decisions/`).

mod auth;
pub(crate) mod mysql;
pub(crate) mod postgres;
mod rows;
mod socket;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
pub(super) mod tls;

use std::io;
use std::time::Duration;

use crate::LabError;
pub(crate) use rows::{Rows, text};

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Int(i64),
    Num(f64),
    Text(&'a str),
}

/// Rows of a result, as text, in buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    text: Vec<u8>,
    /// Where each value lies; `None` is NULL.
    cells: Vec<Option<(u32, u32)>>,
    columns: usize,
    /// Rows that a statement changed.
    pub(crate) affected: u64,
    /// Whether names of columns are wanted, and answers of all statements that were sent together.
    wanted: bool,
    names: Vec<String>,
    earlier: Vec<Answer>,
}

impl Answer {
    /// One that learns the names of columns, and keeps the answers of all statements that are sent together.
    pub(crate) fn with_names() -> Self {
        Self {
            wanted: true,
            ..Self::default()
        }
    }
    fn clear(&mut self) {
        self.text.clear();
        self.cells.clear();
        self.columns = 0;
        self.affected = 0;
        self.names.clear();
        self.earlier.clear();
    }
    /// Another statement's rows begin.
    fn next(&mut self) {
        if self.wanted && self.columns > 0 {
            let mut earlier = std::mem::take(&mut self.earlier);
            earlier.push(std::mem::take(self));
            (self.earlier, self.wanted) = (earlier, true);
        } else {
            self.clear();
        }
    }
    /// A column's name, where names are wanted.
    fn name(&mut self, name: &[u8]) {
        if self.wanted {
            self.names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    /// Whether it learns names.
    pub(crate) fn wants_names(&self) -> bool {
        self.wanted
    }
    /// Names of the columns.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
    /// Answers of all statements with rows, in their order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Self> {
        self.earlier.iter().chain([self])
    }
    fn push(&mut self, bytes: &[u8]) {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(bytes);
        self.cells.push(Some((start, bytes.len() as u32)));
    }
    fn print(&mut self, what: std::fmt::Arguments<'_>) {
        let start = self.text.len() as u32;
        // A vector takes everything.
        let _ = io::Write::write_fmt(&mut self.text, what);
        let len = self.text.len() as u32 - start;
        self.cells.push(Some((start, len)));
    }
    fn null(&mut self) {
        self.cells.push(None);
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.cells.len().checked_div(self.columns).unwrap_or(0)
    }
    /// A value; empty for NULL, and where there is none.
    pub(crate) fn text(&self, row: usize, column: usize) -> &str {
        let cell = self.cells.get(row * self.columns + column);
        let Some(Some((start, len))) = cell else {
            return "";
        };
        let bytes = &self.text[*start as usize..(*start + *len) as usize];
        std::str::from_utf8(bytes).unwrap_or("")
    }
    /// A whole number.
    ///
    /// # Errors
    /// Where there is none: a missing value is no 0.
    pub(crate) fn int(&self, row: usize, column: usize) -> Result<i64> {
        let text = self.text(row, column);
        let whole = text.parse().ok();
        whole
            .or_else(|| text.parse::<f64>().ok().map(|n| n as i64))
            .ok_or_else(|| self.lacks(row, column))
    }
    /// A number.
    ///
    /// # Errors
    /// Where there is none.
    pub(crate) fn num(&self, row: usize, column: usize) -> Result<f64> {
        let n = self.text(row, column).parse();
        n.map_err(|_| self.lacks(row, column))
    }
    fn lacks(&self, row: usize, column: usize) -> SqlError {
        SqlError::here(format!(
            "a number was expected in row {row}, column {column} of the server's answer, which has {} rows: {:?}",
            self.rows(),
            self.text(row, column)
        ))
    }
}

/// A text as MySQL reads it in a statement.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// What a server said no with.
#[derive(Debug, Clone)]
pub(crate) struct SqlError {
    /// The server's own number or state.
    pub(crate) code: String,
    /// Its words.
    pub(crate) message: String,
    /// A deadlock or a lock that was waited for too long: the transaction may be tried again.
    pub(crate) again: bool,
}

const LOST: &str = "the server closed the connection";
/// Code of what failed on this side.
const HERE: &str = "here";

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.code.is_empty() || self.is_here() {
            write!(f, "{}", self.message)
        } else {
            write!(f, "{} ({})", self.message, self.code)
        }
    }
}

impl From<LabError> for SqlError {
    fn from(e: LabError) -> Self {
        Self::here(e.to_string())
    }
}

impl SqlError {
    fn lost(e: &io::Error) -> Self {
        Self {
            code: String::new(),
            message: format!("{LOST}: {e}"),
            again: false,
        }
    }
    /// What failed on this side, and is none of the database's words.
    pub(crate) fn here(message: String) -> Self {
        Self {
            code: HERE.to_owned(),
            message,
            again: false,
        }
    }
    /// Whether the server ended a deadlock with it.
    pub(crate) fn is_deadlock(&self) -> bool {
        ["1213", "40P01"].contains(&self.code.as_str())
    }
    /// Whether it is of this side.
    pub(crate) fn is_here(&self) -> bool {
        self.code == HERE
    }
    /// Whether the connection is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.code.is_empty() && self.message.starts_with(LOST)
    }
    fn protocol(what: &str) -> Self {
        Self {
            code: String::new(),
            message: format!("the server's answer was not understood: {what}"),
            again: false,
        }
    }
}

impl From<SqlError> for LabError {
    fn from(e: SqlError) -> Self {
        if e.code == HERE {
            return Self::Failed(e.message);
        }
        Self::Failed(format!("the database said: {e}"))
    }
}

pub(crate) type Result<T> = std::result::Result<T, SqlError>;

/// So long an answer is waited for: a server that hangs must not hang the lab.
pub(crate) const ANSWER: Duration = Duration::from_secs(120);
/// The same for statements that go through whole tables (loads, indexes, checks): those of many gigabytes take hours. Who does
/// not want to wait interrupts.
pub(crate) const WHOLE_TABLES: Duration = Duration::from_secs(12 * 3600);

/// A connection. Statements are written with `?` for values.
pub(crate) trait Session: Send {
    /// From now on it waits so long for an answer, where an answer comes from elsewhere; [`ANSWER`] unless it is told.
    fn patience(&mut self, _: Duration) {}
    /// Statements without values and rows; several with semicolons where the database can.
    fn batch(&mut self, sql: &str) -> Result<()>;
    /// Begins a stream of rows for a table, which may have its columns behind its name; `false` where the database takes
    /// none, or wants none. Until [`Session::copy_end`] nothing but [`Session::copy_data`] may follow.
    fn copy_begin(&mut self, _table: &str) -> Result<bool> {
        Ok(false)
    }
    /// Lines of rows, their values as SQL writes them (no expressions, no backslash escapes).
    fn copy_data(&mut self, _lines: &[u8]) -> Result<()> {
        Ok(())
    }
    /// Ends the stream; says how many rows the database took as they are.
    fn copy_end(&mut self) -> Result<u64> {
        Ok(0)
    }
    /// Whether a backslash in a text means more than itself in its statements.
    fn escapes(&self) -> bool {
        false
    }
    /// Makes a statement; its number is for [`Session::execute`].
    fn prepare(&mut self, sql: &str) -> Result<usize>;
    /// The same of one whose values are written as this database writes them ([`Dialect::value`]).
    fn prepare_native(&mut self, sql: &str) -> Result<usize> {
        self.prepare(sql)
    }
    /// Runs it.
    fn execute(
        &mut self,
        statement: usize,
        values: &[Value<'_>],
        answer: &mut Answer,
    ) -> Result<()>;
    /// One statement with rows, once; several where the database can, whose last rows stay.
    fn query(&mut self, sql: &str, answer: &mut Answer) -> Result<()> {
        let statement = self.prepare(sql)?;
        self.execute(statement, &[], answer)
    }
}

/// What differs between databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Mysql,
    Postgres,
    // A build without SQLite still knows how it speaks.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    Sqlite,
}

impl Dialect {
    /// Ends a SELECT whose rows will be changed.
    pub(crate) fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            _ => " FOR UPDATE",
        }
    }
    /// Begins a transaction that writes. SQLite has to know that beforehand: a reader cannot become a writer once
    /// somebody else wrote.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            _ => "BEGIN",
        }
    }
    /// How it writes the value of a statement with a number, from 1.
    pub(crate) fn value(self, number: usize) -> String {
        match self {
            Self::Postgres => format!("${number}"),
            _ => "?".to_owned(),
        }
    }
    /// Type of a column with a date and a time.
    pub(crate) fn time(self) -> &'static str {
        match self {
            Self::Mysql => "DATETIME",
            Self::Postgres => "TIMESTAMP",
            Self::Sqlite => "TEXT",
        }
    }
    /// Ends a CREATE TABLE.
    pub(crate) fn engine(self) -> &'static str {
        match self {
            Self::Mysql => " ENGINE=InnoDB CHARACTER SET latin1",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests;

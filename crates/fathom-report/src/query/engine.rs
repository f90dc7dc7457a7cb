//! SQLite over a run: its Parquet files as virtual tables, its `run.json` as small ones.
//!
//! SQLite and not a columnar engine: it is complete SQL in 50 CPU-seconds of build, sorts on disk where
//! a result is larger than memory, and never copies the log (see `docs/decisions/010-sql-by-sqlite.md`).

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::table::Table;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::limits::Limit;
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::vtab::eponymous_only_module;
use rusqlite::{Connection, params};

use super::quantile::{Quantile, Sketch};
use super::table::{RunTable, Source};
use super::{Column, QueryError, Rows, Value};

/// Columns of `io` that are computed.
const IO_DERIVED: [(&str, &str, &str); 3] = [
    ("submit_ns", "submitted_ns", "intended_ns"),
    ("service_ns", "completed_ns", "submitted_ns"),
    ("response_ns", "completed_ns", "intended_ns"),
];

/// Memory for sorting before SQLite goes to disk.
const CACHE_KIB: i32 = 64 << 10;

/// A run that can be asked.
pub struct Queries {
    connection: Connection,
    tables: Vec<(String, Vec<Column>)>,
    /// Files that the run does not have, and what would make them.
    missing: Vec<(&'static str, &'static str)>,
}

impl Queries {
    /// Opens a run: its directory or its `run.json`.
    ///
    /// # Errors
    /// Where the run or one of its files cannot be read.
    pub fn open(path: &std::path::Path) -> Result<Self, QueryError> {
        let (dir, run) = RunDir::open(path)?;
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(&format!(
            "PRAGMA temp_store = FILE; PRAGMA cache_size = -{CACHE_KIB};"
        ))?;
        fill(&connection, &run)?;
        let mut all = Self {
            connection,
            tables: Vec::new(),
            missing: Vec::new(),
        };
        all.file(
            "io",
            &dir.io_file(),
            &IO_DERIVED,
            "this run has no io.parquet; record one row per I/O with --record",
        )?;
        all.file(
            "series",
            &dir.series_file(),
            &[],
            "this run has no series.parquet; it is written when a run ends",
        )?;
        for table in ["jobs", "findings", "run"] {
            let mut names = all
                .connection
                .prepare(&format!("PRAGMA table_info({table})"))?;
            let columns = names
                .query_map([], |row| {
                    Ok(Column {
                        name: row.get("name")?,
                        kind: row.get("type")?,
                    })
                })?
                .collect::<rusqlite::Result<_>>()?;
            drop(names);
            all.tables.push((table.to_owned(), columns));
        }
        let flags = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS;
        all.connection
            .create_aggregate_function("quantile", 2, flags, QuantileOf)?;
        // Nothing but the run is opened, and nothing written: a query cannot make files.
        all.connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        Ok(all)
    }

    fn file(
        &mut self,
        name: &'static str,
        path: &std::path::Path,
        derived: &[(&'static str, &str, &str)],
        remedy: &'static str,
    ) -> Result<(), QueryError> {
        if !path.exists() {
            self.missing.push((name, remedy));
            return Ok(());
        }
        let source = Arc::new(Source::new(Table::open(path)?, derived));
        let columns = source.columns().map(|(name, kind)| Column {
            name: name.to_owned(),
            kind: kind.to_owned(),
        });
        self.tables.push((name.to_owned(), columns.collect()));
        let module = eponymous_only_module::<RunTable>();
        self.connection.create_module(name, module, Some(source))?;
        Ok(())
    }

    /// Tables with their columns.
    pub fn tables(&self) -> &[(String, Vec<Column>)] {
        &self.tables
    }

    /// Runs a query and gives its rows to `rows`, one by one.
    ///
    /// # Errors
    /// Where it is no single SELECT, is refused by SQLite, or a file is damaged; errors of `rows`.
    pub fn run(&self, sql: &str, rows: &mut dyn Rows) -> Result<(), QueryError> {
        let mut statement = self.connection.prepare(sql).map_err(|e| self.explain(&e))?;
        if statement.column_count() == 0 || !statement.readonly() {
            return Err(QueryError::NotSelect);
        }
        let names: Vec<String> = statement
            .column_names()
            .iter()
            .map(|n| (*n).to_owned())
            .collect();
        let mut found = statement.query([]).map_err(|e| self.explain(&e))?;
        // Nothing is written before the first row is there: until then the query may fail.
        let mut begun = false;
        while let Some(row) = found.next().map_err(|e| self.explain(&e))? {
            let mut values = Vec::with_capacity(names.len());
            for i in 0..names.len() {
                values.push(match row.get_ref(i).map_err(|e| self.explain(&e))? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(v) => Value::Integer(v),
                    ValueRef::Real(v) => Value::Real(v),
                    ValueRef::Text(v) => Value::Text(String::from_utf8_lossy(v)),
                    ValueRef::Blob(v) => Value::Blob(v),
                });
            }
            if !begun {
                rows.begin(&names)?;
                begun = true;
            }
            rows.row(&values)?;
        }
        if !begun {
            rows.begin(&names)?;
        }
        rows.end()
    }

    /// SQLite's message as a sentence with what to do.
    fn explain(&self, e: &rusqlite::Error) -> QueryError {
        use rusqlite::Error;
        let said = match e {
            Error::SqlInputError {
                msg, sql, offset, ..
            } => {
                let at = usize::try_from(*offset).ok().and_then(|at| sql.get(at..));
                match at.map(|t| t.chars().take(24).collect::<String>()) {
                    Some(text) if !text.is_empty() => format!("{msg} (at '{text}')"),
                    _ => msg.clone(),
                }
            }
            Error::SqliteFailure(_, Some(said)) => said.clone(),
            Error::MultipleStatement => {
                "there are several statements, and one is run at a time".to_owned()
            }
            other => other.to_string(),
        };
        for (table, remedy) in &self.missing {
            if said.contains(&format!("no such table: {table}")) {
                return QueryError::Sql(format!("there is no table '{table}': {remedy}"));
            }
        }
        if said.contains("no such table") {
            let names: Vec<&str> = self.tables.iter().map(|t| t.0.as_str()).collect();
            return QueryError::Sql(format!("{said}; there are {}", names.join(", ")));
        }
        if said.contains("no such column") {
            return QueryError::Sql(format!(
                "{said}; 'fathom query RUN' lists the columns of each table"
            ));
        }
        QueryError::Sql(format!(
            "{said}; 'fathom query --list' shows queries that work, docs/query.md the tables"
        ))
    }
}

/// The tables that come from `run.json`.
fn fill(db: &Connection, run: &Run) -> Result<(), QueryError> {
    db.execute_batch(
        "CREATE TABLE jobs (job INTEGER PRIMARY KEY, name TEXT, experiment TEXT, \"repeat\" INTEGER, engine TEXT,
           start_ns INTEGER, wall_ns INTEGER, cpu_ns INTEGER, qd_requested INTEGER, qd_achieved REAL,
           void INTEGER, flags TEXT, spec TEXT);
         CREATE TABLE findings (rank INTEGER PRIMARY KEY, id TEXT, text TEXT, advice TEXT, confidence TEXT,
           gain REAL, gain_low REAL, gain_high REAL);
         CREATE TABLE run (json TEXT);",
    )?;
    let mut insert =
        db.prepare("INSERT INTO jobs VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)")?;
    let whole = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    for (i, j) in run.jobs.iter().enumerate() {
        let flags: Vec<&str> = j.flags.iter().map(|f| f.code.name()).collect();
        insert.execute(params![
            i as i64,
            j.name,
            j.experiment,
            j.repeat,
            j.engine,
            whole(j.start_ns),
            whole(j.wall_ns),
            whole(j.cpu_ns),
            j.qd_requested,
            j.qd_achieved,
            j.is_void(),
            serde_json::to_string(&flags)?,
            j.spec.to_string(),
        ])?;
    }
    let mut insert = db.prepare("INSERT INTO findings VALUES (?1,?2,?3,?4,?5,?6,?7,?8)")?;
    for (i, f) in run.findings.iter().enumerate() {
        insert.execute(params![
            i as i64 + 1,
            f.id,
            f.text,
            f.advice,
            f.confidence,
            f.gain.map(|g| g.value),
            f.gain.and_then(|g| g.low),
            f.gain.and_then(|g| g.high),
        ])?;
    }
    db.execute("INSERT INTO run VALUES (?1)", [serde_json::to_string(run)?])?;
    Ok(())
}

/// The aggregate `quantile(value, q)`.
struct QuantileOf;

/// One group's numbers, and which quantile is asked.
struct Asked {
    q: f64,
    sketch: Sketch,
}

impl UnwindSafe for Asked {}
impl RefUnwindSafe for Asked {}

impl Aggregate<Asked, SqlValue> for QuantileOf {
    fn init(&self, ctx: &mut Context<'_>) -> rusqlite::Result<Asked> {
        let q = match ctx.get_raw(1) {
            ValueRef::Real(q) => q,
            ValueRef::Integer(q) => q as f64,
            _ => f64::NAN,
        };
        if !(0.0..=1.0).contains(&q) {
            return Err(wrong(
                "the second argument is a share from 0 to 1, such as 0.99",
            ));
        }
        Ok(Asked {
            q,
            sketch: Sketch::default(),
        })
    }

    fn step(&self, ctx: &mut Context<'_>, asked: &mut Asked) -> rusqlite::Result<()> {
        match ctx.get_raw(0) {
            ValueRef::Null => {}
            ValueRef::Integer(v) => asked.sketch.integer(v, 1),
            ValueRef::Real(v) => asked.sketch.real(v),
            ValueRef::Blob(v) => asked
                .sketch
                .histogram(v)
                .map_err(|e| wrong(&e.to_string()))?,
            ValueRef::Text(_) => {
                return Err(wrong("the first argument is a number or a histogram"));
            }
        }
        Ok(())
    }

    fn finalize(&self, _ctx: &mut Context<'_>, asked: Option<Asked>) -> rusqlite::Result<SqlValue> {
        Ok(match asked.and_then(|a| a.sketch.quantile(a.q)) {
            Some(Quantile::Integer(v)) => SqlValue::Integer(v),
            Some(Quantile::Real(v)) => SqlValue::Real(v),
            None => SqlValue::Null,
        })
    }
}

fn wrong(what: &str) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(format!("quantile(value, q): {what}").into())
}

#[cfg(test)]
mod tests;

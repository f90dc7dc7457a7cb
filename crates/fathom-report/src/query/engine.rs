//! SQLite over a run: its Parquet files as virtual tables, its `run.json` as small ones.
//!
//! SQLite and not a columnar engine: it is complete SQL in 50 CPU-seconds of build, sorts on disk where
//! a result is larger than memory, and never copies the log (see `docs/decisions/010-sql-by-sqlite.md`).

use std::path::PathBuf;
use std::sync::Arc;

use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::table::Table;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::vtab::eponymous_only_module;

use super::table::{RunTable, Source};
use super::{Column, QueryError, Rows, Value, aggregates, clock, document};

/// Columns of `io` that are computed.
const IO_DERIVED: [(&str, &str, &str); 3] = [
    ("submit_ns", "submitted_ns", "intended_ns"),
    ("service_ns", "completed_ns", "submitted_ns"),
    ("response_ns", "completed_ns", "intended_ns"),
];

/// Columns that ready-made queries name and runs of earlier versions lack.
const OF_HOST: [&str; 3] = ["job_name", "host", "host_index"];

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
    /// Opens runs: their directories or their `run.json`. With several, the jobs of run `r` (from 0) are numbered from `r` × 65536 on, in
    /// every table, and every table has the number of the run.
    ///
    /// # Errors
    /// Where a run or one of its files cannot be read.
    pub fn open(paths: &[PathBuf]) -> Result<Self, QueryError> {
        let runs = paths.iter().map(|p| RunDir::open(p));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(&format!(
            "PRAGMA temp_store = FILE; PRAGMA cache_size = -{CACHE_KIB};"
        ))?;
        document::fill(&connection, runs.iter().map(|r| &r.1))?;
        clock::install(&connection, &runs)?;
        let mut all = Self {
            connection,
            tables: Vec::new(),
            missing: Vec::new(),
        };
        let io: Vec<_> = runs.iter().map(|r| r.0.io_files()).collect();
        all.files(
            "io",
            &io,
            &IO_DERIVED,
            "submitted_ns",
            "this run has no io.parquet; record one row per I/O with --record",
        )?;
        let series: Vec<_> = runs.iter().map(|r| r.0.series_files()).collect();
        all.files(
            "series",
            &series,
            &[],
            "start_ns",
            "this run has no series.parquet; it is written when a run ends",
        )?;
        for table in document::TABLES {
            let columns = all.columns(table)?;
            all.tables.push((table.to_owned(), columns));
        }
        let flags = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS;
        aggregates::install(&all.connection, flags)?;
        // Nothing but the runs is opened, and nothing written: a query cannot make files.
        all.connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        Ok(all)
    }

    /// Columns of a table or view.
    fn columns(&self, table: &str) -> Result<Vec<Column>, QueryError> {
        let mut names = self
            .connection
            .prepare(&format!("PRAGMA table_info({table})"))?;
        let columns = names.query_map([], |row| {
            let kind: String = row.get("type")?;
            Ok(Column {
                name: row.get("name")?,
                // Those that a view computes are whole numbers, and have no type there.
                kind: if kind.is_empty() {
                    "INTEGER".into()
                } else {
                    kind
                },
            })
        })?;
        Ok(columns.collect::<rusqlite::Result<_>>()?)
    }

    /// The view `name` over that file of each run (of a fleet: of each host), with columns that no file holds: `depth` (of I/Os), `unix_ns`
    /// and, of several runs, `run`. Columns that runs of earlier versions lack are NULL there. SQLite leaves out what a query does not name, and asks the file itself.
    fn files(
        &mut self,
        name: &'static str,
        paths: &[Vec<PathBuf>],
        derived: &[(&'static str, &str, &str)],
        moment: &str,
        remedy: &'static str,
    ) -> Result<(), QueryError> {
        let several = paths.len() > 1;
        let mut tables = Vec::new();
        for (run, paths) in paths.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let table = format!("{name}_{run}");
            let columns = self.file(&table, paths, derived)?;
            tables.push((several.then_some(run), table, columns));
        }
        let mut all: Vec<String> = OF_HOST.map(str::to_owned).into();
        for column in tables.iter().rev().flat_map(|t| t.2.iter().rev()) {
            all.retain(|known| known != column);
            all.insert(0, column.clone());
        }
        let parts = tables
            .iter()
            .map(|(run, table, columns)| part(table, &all, columns, *run, moment));
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() {
            self.missing.push((name, remedy));
            return Ok(());
        }
        let all = parts.join(" UNION ALL ");
        self.connection
            .execute_batch(&format!("CREATE VIEW {name} AS {all};"))?;
        let columns = self.columns(name)?;
        self.tables.push((name.to_owned(), columns));
        Ok(())
    }

    /// Files as a table; its columns.
    fn file(
        &self,
        table: &str,
        paths: &[PathBuf],
        derived: &[(&'static str, &str, &str)],
    ) -> Result<Vec<String>, QueryError> {
        let source = Arc::new(Source::new(Table::open_all(paths)?, derived));
        let columns = source.columns().map(|(name, _)| name.to_owned()).collect();
        let module = eponymous_only_module::<RunTable>();
        self.connection.create_module(table, module, Some(source))?;
        Ok(columns)
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

/// A run's part of the view over its file, whose columns are some of `all`.
fn part(
    table: &str,
    all: &[String],
    columns: &[String],
    run: Option<usize>,
    moment: &str,
) -> String {
    let job = match run {
        Some(run) => format!("job + {}", run * clock::JOBS_OF_RUN),
        None => "job".to_owned(),
    };
    let stored = all.iter().map(|c| match (c.as_str(), run) {
        ("job", Some(_)) => format!("{job} AS job"),
        _ if !columns.contains(c) => format!("NULL AS \"{c}\""),
        _ => format!("\"{c}\""),
    });
    let mut all: Vec<String> = stored.collect();
    if columns.iter().any(|c| c == "submitted_ns") {
        all.push(format!("depth_at({job}, submitted_ns) AS depth"));
    }
    let has = |name: &str| columns.iter().any(|c| c == name);
    all.push(if has("origin_epoch_ns") {
        format!("origin_epoch_ns + {moment} AS unix_ns")
    } else if has("epoch_ns") {
        "epoch_ns AS unix_ns".to_owned()
    } else {
        format!("unix_at({job}, {moment}) AS unix_ns")
    });
    all.extend(run.map(|r| format!("{r} AS run")));
    format!("SELECT {} FROM {table}", all.join(", "))
}

#[cfg(test)]
mod tests;

//! SQLite, linked in: a database that needs no server.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Statement, ToSql};

use super::{Answer, Result, Session, SqlError, Value};

/// A connection.
pub(crate) struct Sqlite {
    connection: Connection,
    statements: Vec<String>,
}

fn failure(e: rusqlite::Error) -> SqlError {
    let again = matches!(
        e.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    );
    SqlError {
        code: "SQLite".into(),
        message: e.to_string(),
        again,
    }
}

impl Sqlite {
    /// Opens or makes a file, with a write-ahead log that is synced at each commit.
    pub(crate) fn open(path: &Path, cache: u64) -> Result<Self> {
        let connection = Connection::open(path).map_err(failure)?;
        connection
            .busy_timeout(Duration::from_secs(30))
            .map_err(failure)?;
        connection.set_prepared_statement_cache_capacity(128);
        let mut me = Self {
            connection,
            statements: Vec::new(),
        };
        me.batch(&format!(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-{}",
            (cache >> 10).max(64)
        ))?;
        Ok(me)
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Int(i) => ValueRef::Integer(*i),
            Value::Num(n) => ValueRef::Real(*n),
            Value::Text(t) => ValueRef::Text(t.as_bytes()),
        }))
    }
}

impl Session for Sqlite {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(failure)
    }

    fn prepare(&mut self, sql: &str) -> Result<usize> {
        self.connection.prepare_cached(sql).map_err(failure)?;
        self.statements.push(sql.to_owned());
        Ok(self.statements.len() - 1)
    }

    fn execute(
        &mut self,
        statement: usize,
        values: &[Value<'_>],
        answer: &mut Answer,
    ) -> Result<()> {
        let sql = &self.statements[statement];
        let mut prepared = self.connection.prepare_cached(sql).map_err(failure)?;
        run(&mut prepared, values, answer)
    }

    fn query(&mut self, sql: &str, answer: &mut Answer) -> Result<()> {
        let mut prepared = self.connection.prepare(sql).map_err(failure)?;
        run(&mut prepared, &[], answer)
    }
}

fn run(prepared: &mut Statement<'_>, values: &[Value<'_>], answer: &mut Answer) -> Result<()> {
    answer.clear();
    let columns = prepared.column_count();
    if answer.wanted {
        let names = prepared.column_names();
        names.iter().for_each(|n| answer.name(n.as_bytes()));
    }
    let values = rusqlite::params_from_iter(values);
    if columns == 0 {
        answer.affected = prepared.execute(values).map_err(failure)? as u64;
        return Ok(());
    }
    answer.columns = columns;
    let mut rows = prepared.query(values).map_err(failure)?;
    while let Some(row) = rows.next().map_err(failure)? {
        for c in 0..columns {
            match row.get_ref(c).map_err(failure)? {
                ValueRef::Null => answer.null(),
                ValueRef::Integer(i) => answer.print(format_args!("{i}")),
                ValueRef::Real(r) => answer.print(format_args!("{r}")),
                ValueRef::Text(t) | ValueRef::Blob(t) => answer.push(t),
            }
        }
    }
    Ok(())
}

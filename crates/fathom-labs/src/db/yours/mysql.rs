//! The database in a MariaDB or MySQL: its lock is one of the server's names (`GET_LOCK`), its mark a table, in which what
//! is tried on the server is written down, too.

use std::path::PathBuf;

use super::super::server::Server;
use super::super::sql::{Answer, Result, Session};
use super::trial::put_back;
use super::{About, MARK, PREFIX, abandoned, connect, is_name};
use crate::LabError;

pub(super) fn about(session: &mut dyn Session) -> Result<About> {
    let mut answer = Answer::default();
    session.query(
        "SELECT @@version, @@innodb_page_size, @@innodb_buffer_pool_size, @@innodb_flush_log_at_trx_commit, @@innodb_flush_method, @@datadir",
        &mut answer,
    )?;
    let said = |i: usize| answer.text(0, i).to_owned();
    Ok(About {
        engine: match said(0).contains("MariaDB") {
            true => "InnoDB (MariaDB)",
            false => "InnoDB (MySQL)",
        },
        version: said(0),
        page: answer.int(0, 1)? as u64,
        pool: answer.int(0, 2)? as u64,
        settings: format!(
            "innodb_flush_log_at_trx_commit={}, innodb_flush_method={}",
            said(3),
            said(4)
        ),
        data: Some(PathBuf::from(said(5))),
    })
}

/// Databases of runs that were killed; what these had tried is put back.
pub(super) fn leftovers(session: &mut dyn Session) -> std::result::Result<Vec<String>, LabError> {
    let mut answer = Answer::default();
    // In one row for each table, so that a database with a stranger in it is seen.
    session.query(
        &format!("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE '{}%'", PREFIX.replace('_', "\\_")),
        &mut answer,
    )?;
    let tables: Vec<(String, String)> = (0..answer.rows())
        .map(|r| (answer.text(r, 0).to_owned(), answer.text(r, 1).to_owned()))
        .collect();
    let mut marked: Vec<&String> = tables
        .iter()
        .filter(|(name, table)| table == MARK && is_name(name))
        .map(|(name, _)| name)
        .collect();
    marked.dedup();
    let mine = abandoned(&tables);
    let mut found = Vec::new();
    for name in marked {
        session.query(&format!("SELECT IS_FREE_LOCK('{name}')"), &mut answer)?;
        if !answer.int(0, 0).is_ok_and(|free| free == 1) {
            continue;
        }
        put_back(session, name)?;
        if mine.contains(name) {
            found.push(name.clone());
        }
    }
    Ok(found)
}

/// Takes the lock, makes the database and marks it.
pub(super) fn make(
    server: &Server,
    mut holder: Box<dyn Session>,
    name: &str,
) -> std::result::Result<Box<dyn Session>, LabError> {
    let refused = |what: String| LabError::Refused(format!("{server}: {what}"));
    let mut answer = Answer::default();
    // An idle connection must not lose its lock while the others work.
    holder.batch("SET SESSION wait_timeout=2000000")?;
    holder.query(&format!("SELECT GET_LOCK('{name}', 0)"), &mut answer)?;
    if answer.int(0, 0)? != 1 {
        return Err(refused(format!(
            "a fathom works in the database {name} there: wait for its end"
        )));
    }
    holder.batch(&format!("CREATE DATABASE {name}")).map_err(|e| {
        refused(if e.code == "1007" {
            format!("there is a database {name} already, and nothing says that fathom made it: it is left alone; rename it, or run again (the number is this process')")
        } else {
            format!("no database can be made there: {e}; expected an account ({0}) with the rights to create and drop one: GRANT ALL ON `fathom\\_%`.* TO {0}", server.user)
        })
    })?;
    holder.batch(&format!(
        "CREATE TABLE {name}.{MARK} (version VARCHAR(20), setting VARCHAR(64), was TEXT, tried TEXT, seen TEXT)"
    ))?;
    Ok(holder)
}

/// Removes it.
pub(super) fn remove(server: &Server, holder: &mut dyn Session, name: &str) -> Result<()> {
    let drop = format!("DROP DATABASE IF EXISTS {name}");
    holder
        .batch(&drop)
        .or_else(|_| connect(server, "").and_then(|mut s| s.batch(&drop)))
}

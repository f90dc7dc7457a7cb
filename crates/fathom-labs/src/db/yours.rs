//! A server that the user runs. Nothing is started or stopped; one database is made in it, with a mark and a lock, and
//! removed on any exit. No other is touched, except those that a killed run of fathom left: they have the mark, nobody
//! holds their lock, and there is nothing in them but what fathom makes.

use std::path::{Path, PathBuf};

use fathom_telemetry::say;

use super::sql::mysql::Mysql;
use super::sql::{Answer, Result, Session};
use crate::LabError;

/// Beginning of such a database's name; the process id follows.
const PREFIX: &str = "fathom_";
/// A table that says whose it is.
const MARK: &str = "made_by_fathom";
/// All that may lie in a leftover.
const TABLES: [&str; 11] = [
    MARK,
    "sbtest1",
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
];

/// The server, and fathom's database in it. Dropping it removes the database.
pub(super) struct Yours {
    socket: PathBuf,
    user: String,
    name: String,
    /// Holds the lock as long as this lives.
    holder: Mysql,
    /// As the server says it.
    pub(super) version: String,
    /// Bytes of a page.
    pub(super) page: u64,
    /// Bytes of the buffer pool.
    pub(super) pool: u64,
    /// How commits become durable and pages are written.
    pub(super) settings: String,
    /// Where it keeps its files, as far as that can be seen from here.
    pub(super) data: Option<PathBuf>,
}

impl Yours {
    /// Connects as `$USER` and makes the database.
    pub(super) fn open(socket: &Path) -> std::result::Result<Self, LabError> {
        let user = std::env::var("USER").unwrap_or_else(|_| "root".into());
        let refused = |what: String| LabError::Refused(format!("{}: {what}", socket.display()));
        let mut holder = Mysql::connect(socket, &user, "").map_err(|e| {
            refused(format!("{e}; expected the socket of a running MariaDB or MySQL that lets {user} in without a password"))
        })?;
        let name = format!("{PREFIX}{}", std::process::id());
        let mut answer = Answer::default();
        holder.query(
            "SELECT @@version, @@innodb_page_size, @@innodb_buffer_pool_size, @@innodb_flush_log_at_trx_commit, @@innodb_flush_method, @@datadir",
            &mut answer,
        )?;
        let said = |i: usize| answer.text(0, i).to_owned();
        let (version, settings, data) = (
            said(0),
            format!(
                "innodb_flush_log_at_trx_commit={}, innodb_flush_method={}",
                said(3),
                said(4)
            ),
            PathBuf::from(said(5)),
        );
        let (page, pool) = (answer.int(0, 1)? as u64, answer.int(0, 2)? as u64);
        for old in leftovers(&mut holder)? {
            holder.batch(&format!("DROP DATABASE {old}"))?;
            say!(
                "fathom: removed the database {old}, which a killed run had left in {}",
                socket.display()
            );
        }
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
                format!("no database can be made there: {e}; expected an account ({user}) with the rights to create and drop one")
            })
        })?;
        let mut me = Self {
            socket: socket.to_owned(),
            user,
            name,
            holder,
            version,
            page,
            pool,
            settings,
            data: data.is_dir().then_some(data),
        };
        let mark = format!("CREATE TABLE {}.{MARK} (version VARCHAR(20))", me.name);
        me.holder.batch(&mark)?;
        Ok(me)
    }

    /// Connects to the database.
    pub(super) fn session(&self) -> Result<Mysql> {
        Mysql::connect(&self.socket, &self.user, &self.name)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Who is let in.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// The database.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Yours {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {}", self.name);
        // The first connection may be gone, where the server went and came back.
        let gone = self.holder.batch(&drop).or_else(|_| {
            Mysql::connect(&self.socket, &self.user, "").and_then(|mut s| s.batch(&drop))
        });
        if let Err(e) = gone {
            say!(
                "fathom: the database {} could not be removed from {}: {e}; the next run with --socket will, or DROP DATABASE {}",
                self.name,
                self.socket.display(),
                self.name
            );
        }
    }
}

/// Databases of runs that were killed.
fn leftovers(session: &mut Mysql) -> Result<Vec<String>> {
    let mut answer = Answer::default();
    // In one row for each table, so that a database with a stranger in it is seen.
    session.query(
        &format!("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE '{}%'", PREFIX.replace('_', "\\_")),
        &mut answer,
    )?;
    let tables: Vec<(String, String)> = (0..answer.rows())
        .map(|r| (answer.text(r, 0).to_owned(), answer.text(r, 1).to_owned()))
        .collect();
    let mut found = Vec::new();
    for name in abandoned(&tables) {
        session.query(&format!("SELECT IS_FREE_LOCK('{name}')"), &mut answer)?;
        if answer.int(0, 0).is_ok_and(|free| free == 1) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Of (database, table): databases that can only be fathom's.
fn abandoned(tables: &[(String, String)]) -> Vec<String> {
    let mut names: Vec<&String> = tables
        .iter()
        .filter(|(_, table)| table == MARK)
        .map(|(name, _)| name)
        .collect();
    names.dedup();
    names
        .into_iter()
        .filter(|n| {
            n.strip_prefix(PREFIX)
                .is_some_and(|pid| pid.parse::<u32>().is_ok())
        })
        .filter(|n| {
            let mut mine = tables.iter().filter(|(name, _)| name == *n);
            mine.all(|(_, table)| TABLES.contains(&table.as_str()))
        })
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fathom_alone_made_is_a_leftover() {
        let tables = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let found = abandoned(&tables(&[
            ("fathom_12", MARK),
            ("fathom_12", "sbtest1"),
            ("fathom_13", "sbtest1"),
            ("fathom_14", MARK),
            ("fathom_14", "accounts"),
            ("fathom_x", MARK),
            ("fathoms", MARK),
        ]));
        assert_eq!(found, ["fathom_12"]);
    }
}

//! A server that the user runs. Nothing is started or stopped; one database is made in it, with a mark and a lock, and
//! removed on any exit. No other is touched, except those that a killed run of fathom left: they have the mark, nobody
//! holds their lock, and there is nothing in them but what fathom makes.

mod mysql;
mod postgres;
mod trial;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fathom_telemetry::say;

use super::server::{Place, Protocol, Server};
use super::sql::mysql::Mysql;
use super::sql::postgres::Postgres;
use super::sql::{Dialect, Result, Session, SqlError};
use crate::LabError;
use trial::Trial;

/// Beginning of such a database's name; the process id follows.
const PREFIX: &str = "fathom_";
/// A table that says whose it is.
const MARK: &str = "made_by_fathom";
/// A table that says that all others were made by scripts, whatever their names.
const SCRIPTS: &str = "made_by_scripts";
/// All that may lie in a leftover without it.
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

/// The server, and fathom's database in it. Dropping it puts back what was tried, and removes the database.
pub(super) struct Yours {
    server: Server,
    name: String,
    /// Holds the lock as long as this lives.
    holder: Mutex<Box<dyn Session>>,
    trial: Trial,
    /// What is known of it.
    pub(super) about: About,
}

/// What a server says of itself.
pub(super) struct About {
    /// As it says it.
    pub(super) version: String,
    /// Engine and server, as results call them.
    pub(super) engine: &'static str,
    /// Bytes of a page.
    pub(super) page: u64,
    /// Bytes of its own cache.
    pub(super) pool: u64,
    /// How commits become durable and pages are written.
    pub(super) settings: String,
    /// Where it keeps its files, as far as that can be seen from here.
    pub(super) data: Option<PathBuf>,
}

/// A connection; an empty `database` is that in which everybody may begin.
fn connect(server: &Server, database: &str) -> Result<Box<dyn Session>> {
    Ok(match server.protocol {
        Protocol::Mysql => Box::new(Mysql::to(server, database)?),
        Protocol::Postgres => {
            let first = match (database, server.database.as_str()) {
                ("", "") => "postgres",
                ("", first) => first,
                (database, _) => database,
            };
            Box::new(Postgres::to(server, first)?)
        }
    })
}

/// Why nobody was let in, and what to do.
fn not_let_in(server: &Server, e: SqlError) -> LabError {
    if e.is_here() {
        return LabError::Refused(e.to_string());
    }
    let (what, user) = (
        match server.protocol {
            Protocol::Mysql => "MariaDB or MySQL",
            Protocol::Postgres => "PostgreSQL",
        },
        &server.user,
    );
    let expected = match (&server.place, server.password()) {
        (Place::Socket(_), "") => {
            format!("the socket of a running {what} that lets {user} in without a password")
        }
        (_, "") => format!(
            "a running {what} that lets {user} in without a password; where it wants one, set FATHOM_DB_PASSWORD or give --password-file FILE"
        ),
        _ => format!("a running {what} that lets {user} in with this password"),
    };
    LabError::Refused(format!("{server}: {e}; expected {expected}"))
}

/// Of (database, table): databases that can only be fathom's.
fn abandoned(tables: &[(String, String)]) -> Vec<String> {
    let mut names: Vec<&String> = tables
        .iter()
        .filter(|(_, table)| table == MARK)
        .map(|(name, _)| name)
        .collect();
    names.dedup();
    let of = |n: &&String| is_name(n);
    let mine = |n: &&String| {
        let mut mine = tables.iter().filter(|(name, _)| name == *n);
        let scripts = tables
            .iter()
            .any(|(name, table)| name == *n && table == SCRIPTS);
        scripts || mine.all(|(_, table)| TABLES.contains(&table.as_str()))
    };
    names.into_iter().filter(of).filter(mine).cloned().collect()
}

fn is_name(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX);
    pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
}

impl Yours {
    /// Connects, removes what killed runs left, and makes the database.
    pub(super) fn open(server: &Server) -> std::result::Result<Self, LabError> {
        let mut first = connect(server, "").map_err(|e| not_let_in(server, e))?;
        let name = format!("{PREFIX}{}", std::process::id());
        let (about, left) = match server.protocol {
            Protocol::Mysql => (mysql::about(&mut *first)?, mysql::leftovers(&mut *first)?),
            Protocol::Postgres => (
                postgres::about(&mut *first)?,
                postgres::leftovers(server, &mut *first)?,
            ),
        };
        for old in left {
            match first.batch(&format!("DROP DATABASE {old}")) {
                Ok(()) => say!(
                    "fathom: removed the database {old}, which a killed run had left in {server}"
                ),
                // Somebody looks at it: the next run will.
                Err(e) => say!("fathom: {old}, which a killed run had left in {server}: {e}"),
            }
        }
        let holder = match server.protocol {
            Protocol::Mysql => mysql::make(server, first, &name)?,
            Protocol::Postgres => postgres::make(server, first, &name)?,
        };
        Ok(Self {
            server: server.clone(),
            name,
            holder: Mutex::new(holder),
            trial: Trial::default(),
            about: About {
                // A path of another machine says nothing here.
                data: about.data.filter(|d| server.is_here() && d.is_dir()),
                ..about
            },
        })
    }

    /// Connects to the database, with what is tried on sessions.
    pub(super) fn session(&self) -> Result<Box<dyn Session>> {
        let mut session = connect(&self.server, &self.name)?;
        for set in self.trial.of_sessions() {
            session.batch(set)?;
        }
        Ok(session)
    }

    /// Notes that scripts make the tables of the database: it goes with all of them, also after a kill.
    ///
    /// # Errors
    /// What the server says.
    pub(super) fn with_scripts(self) -> Result<Self> {
        self.session()?
            .batch(&format!("CREATE TABLE {SCRIPTS} (nothing INT)"))?;
        Ok(self)
    }

    /// How it speaks.
    pub(super) fn dialect(&self) -> Dialect {
        match self.server.protocol {
            Protocol::Mysql => Dialect::Mysql,
            Protocol::Postgres => Dialect::Postgres,
        }
    }

    /// Its address.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// The database.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether settings may be tried: each of them is for a moment. `consent`: those of the whole server, too.
    ///
    /// # Errors
    /// What is not known there, wants a restart or a privilege, or reaches others without consent.
    pub(super) fn may_try(
        &mut self,
        tries: &[Vec<String>],
        consent: bool,
    ) -> std::result::Result<(), LabError> {
        for tried in tries {
            self.trial.learn(tried, &self.server, &self.name, consent)?;
            self.change(tried)?;
        }
        self.change(&[])
    }

    /// Puts back what was tried before, and tries this.
    pub(super) fn change(&mut self, tried: &[String]) -> std::result::Result<(), LabError> {
        let holder = self
            .holder
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        self.trial.change(&mut **holder, &self.name, tried)
    }
}

impl Drop for Yours {
    fn drop(&mut self) {
        let (server, name) = (&self.server, &self.name);
        let holder = self
            .holder
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // The first connection may be gone, where the server went and came back.
        let back = self.trial.change(&mut **holder, name, &[]).or_else(|_| {
            let mut again = connect(server, "")?;
            self.trial.change(&mut *again, name, &[])
        });
        if let Err(e) = back {
            say!("fathom: {e}; the next run with --server {server} puts it back");
            return;
        }
        let gone = match server.protocol {
            Protocol::Mysql => mysql::remove(server, &mut **holder, name),
            Protocol::Postgres => {
                // Nobody may be in a database that is removed.
                *holder = Box::new(Gone);
                postgres::remove(server, name)
            }
        };
        if let Err(e) = gone {
            say!(
                "fathom: the database {name} could not be removed from {server}: {e}; the next run with --server will, or DROP DATABASE {name}"
            );
        }
    }
}

/// A session that has ended.
struct Gone;

impl Session for Gone {
    fn batch(&mut self, _: &str) -> Result<()> {
        Err(SqlError::here("the session has ended".into()))
    }
    fn prepare(&mut self, sql: &str) -> Result<usize> {
        self.batch(sql).map(|()| 0)
    }
    fn execute(
        &mut self,
        _: usize,
        _: &[super::sql::Value<'_>],
        _: &mut super::sql::Answer,
    ) -> Result<()> {
        self.batch("")
    }
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
            ("fathom_15", MARK),
            ("fathom_15", SCRIPTS),
            ("fathom_15", "accounts"),
            ("fathom_16", SCRIPTS),
            ("fathoms", MARK),
        ]));
        assert_eq!(found, ["fathom_12", "fathom_15"]);
    }
}

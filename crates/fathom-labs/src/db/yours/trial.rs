//! Settings that are tried on a server of the user's. What a session can have for itself is set in fathom's own sessions
//! and reaches nobody else. What is the whole server's needs consent; its value before is written down in fathom's database
//! first, and put back on any exit, or by the next run where this one was killed.

use fathom_telemetry::say;

use super::super::server::{Protocol, Server};
use super::super::sql::{Answer, Result, Session, SqlError, quoted};
use super::{MARK, connect};
use crate::LabError;

/// Settings whose change another one follows (InnoDB raises the limit with what it limits).
const FOLLOWED: [(&str, &str); 2] = [
    ("innodb_io_capacity", "innodb_io_capacity_max"),
    (
        "innodb_max_dirty_pages_pct",
        "innodb_max_dirty_pages_pct_lwm",
    ),
];
/// Of the whole server, beside InnoDB's: they change speed and nothing else.
const HARMLESS: [&str; 7] = [
    "binlog_commit_wait_count",
    "binlog_commit_wait_usec",
    "binlog_group_commit_sync_delay",
    "binlog_group_commit_sync_no_delay_count",
    "table_open_cache",
    "thread_cache_size",
    "thread_pool_size",
];
/// While they are tried, what others commit could be lost or damaged by a crash.
const DURABLE: [&str; 7] = [
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_log_at_timeout",
    "innodb_doublewrite",
    "innodb_checksum_algorithm",
    "innodb_log_checksums",
    "innodb_use_atomic_writes",
    "sync_binlog",
];
/// Words in names of InnoDB's that begin something, open files, or change what is stored.
const ACTS: [&str; 17] = [
    "_now",
    "_abort",
    "monitor",
    "status",
    "dump",
    "_load",
    "file",
    "table",
    "encrypt",
    "read_only",
    "disallow",
    "shutdown",
    "force",
    "undo",
    "compress",
    "default",
    "debug",
];

/// What may be tried, and what is.
#[derive(Default)]
pub(super) struct Trial {
    /// Settings, `NAME=VALUE`, that each session has for itself, as the statement that sets them.
    sessions: Vec<(String, String)>,
    /// Statements of the sessions to come.
    now: Vec<String>,
    /// Names of settings of the whole server that are tried at the moment.
    globals: Vec<String>,
}

fn split(setting: &str) -> (&str, &str) {
    setting.split_once('=').unwrap_or((setting, ""))
}

/// A value in a statement: numbers as they are.
fn literal(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(_) => value.to_owned(),
        Err(_) => quoted(value),
    }
}

/// Whether two texts are the same value of a setting.
fn same(a: &str, b: &str) -> bool {
    let switch = |t: &str| match t.to_ascii_lowercase().as_str() {
        "on" | "true" => "1".to_owned(),
        "off" | "false" => "0".to_owned(),
        other => other.to_owned(),
    };
    let (a, b) = (switch(a), switch(b));
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn value(session: &mut dyn Session, name: &str) -> Result<String> {
    let mut answer = Answer::default();
    session.query(&format!("SELECT @@GLOBAL.{name}"), &mut answer)?;
    Ok(answer.text(0, 0).to_owned())
}

impl Trial {
    /// Statements for each session that is made now.
    pub(super) fn of_sessions(&self) -> &[String] {
        &self.now
    }

    /// Finds out how settings can be tried.
    pub(super) fn learn(
        &mut self,
        tried: &[String],
        server: &Server,
        database: &str,
        consent: bool,
    ) -> std::result::Result<(), LabError> {
        for setting in tried {
            // A session of its own, which ends with what was set in it.
            let mut session = connect(server, database)?;
            let of_session = match server.protocol {
                Protocol::Mysql => of_mysql(&mut *session, setting),
                Protocol::Postgres => of_postgres(&mut *session, setting, &server.user),
            };
            match of_session.map_err(|e| LabError::Refused(format!("{server}: {e}")))? {
                Some(statement) => self.sessions.push((setting.clone(), statement)),
                None if consent => {}
                None => {
                    return Err(LabError::Refused(format!(
                        "{server}: {} is a setting of the whole server, which all who work there would have while it is tried: add --change-server to allow that; its value is put back",
                        split(setting).0
                    )));
                }
            }
        }
        Ok(())
    }

    /// Puts back what was tried, and tries this.
    pub(super) fn change(
        &mut self,
        session: &mut dyn Session,
        database: &str,
        tried: &[String],
    ) -> std::result::Result<(), LabError> {
        self.now.clear();
        if !self.globals.is_empty() {
            put_back(session, database)?;
            self.globals.clear();
        }
        for setting in tried {
            match self.sessions.iter().find(|s| s.0 == *setting) {
                Some((_, statement)) => self.now.push(statement.clone()),
                None => self.globally(session, database, setting)?,
            }
        }
        Ok(())
    }

    fn globally(
        &mut self,
        session: &mut dyn Session,
        database: &str,
        setting: &str,
    ) -> std::result::Result<(), LabError> {
        let (name, wanted) = split(setting);
        let followed = FOLLOWED.iter().find(|f| f.0 == name).map(|f| f.1);
        let names: Vec<&str> = std::iter::once(name).chain(followed).collect();
        for each in &names {
            if self.globals.iter().any(|g| g == each) {
                continue;
            }
            // Written down before anything changes.
            let was = value(session, each)?;
            let tried = if *each == name { wanted } else { "" };
            session.batch(&format!(
                "INSERT INTO {database}.{MARK} (setting, was, tried) VALUES ({}, {}, {})",
                quoted(each),
                quoted(&was),
                quoted(tried)
            ))?;
            self.globals.push((*each).to_owned());
        }
        session
            .batch(&format!("SET GLOBAL {name}={}", literal(wanted)))
            .map_err(|e| LabError::Refused(refusal(name, &e)))?;
        for each in &names {
            let seen = value(session, each)?;
            session.batch(&format!(
                "UPDATE {database}.{MARK} SET seen={} WHERE setting={}",
                quoted(&seen),
                quoted(each)
            ))?;
            if *each == name && !same(&seen, wanted) {
                return Err(LabError::Refused(format!(
                    "{name}={wanted}: the server makes {seen} of it: try a value that it takes as it is"
                )));
            }
        }
        Ok(())
    }
}

/// Why a setting cannot be tried, in words.
fn refusal(name: &str, e: &SqlError) -> String {
    match e.code.as_str() {
        "1193" => format!("{name} is no setting of this server"),
        "1238" => format!(
            "{name} takes a restart of the server, which is yours to do: try it on a server of the lab's (without --server)"
        ),
        "1227" => format!(
            "{name} cannot be set by this account: {e}; GRANT SUPER (MariaDB), SYSTEM_VARIABLES_ADMIN (MySQL), or what the server names"
        ),
        _ => format!("{name} cannot be tried: {e}"),
    }
}

/// The statement that gives a session the setting; `None` for one of the whole server.
fn of_mysql(
    session: &mut dyn Session,
    setting: &str,
) -> std::result::Result<Option<String>, String> {
    /// It is one of the whole server.
    const GLOBAL: &str = "1229";
    let (name, wanted) = split(setting);
    let statement = format!("SET SESSION {name}={}", literal(wanted));
    match session.batch(&statement) {
        Ok(()) => return Ok(Some(statement)),
        Err(e) if e.code == GLOBAL => {}
        Err(e) => return Err(refusal(name, &e)),
    }
    if DURABLE.contains(&name) {
        return Err(format!(
            "{name} decides what a crash leaves of everybody's transactions, not only of fathom's: try it on a server of the lab's (without --server)"
        ));
    }
    let acts = || ACTS.iter().any(|word| name.contains(word));
    match name.starts_with("innodb_") && !acts() || HARMLESS.contains(&name) {
        true => Ok(None),
        false => Err(format!(
            "{name} changes more of the whole server than its speed, and is not tried on one of yours: try it on a server of the lab's (without --server)"
        )),
    }
}

/// The same of PostgreSQL: there is none of the whole server that could be tried without its configuration.
fn of_postgres(
    session: &mut dyn Session,
    setting: &str,
    user: &str,
) -> std::result::Result<Option<String>, String> {
    let (name, wanted) = split(setting);
    let mut answer = Answer::default();
    let asked = session.query(
        &format!("SELECT context FROM pg_settings WHERE name = '{name}'"),
        &mut answer,
    );
    asked.map_err(|e| e.to_string())?;
    match answer.text(0, 0) {
        "user" | "superuser" => {}
        "" => return Err(format!("{name} is no setting of this server")),
        "postmaster" | "internal" => {
            return Err(format!(
                "{name} takes a restart of the server, which is yours to do, or another one: compare two runs with fathom compare"
            ));
        }
        _ => {
            return Err(format!(
                "{name} is set in the server's configuration alone (ALTER SYSTEM), which fathom does not change: set it yourself, and compare two runs with fathom compare"
            ));
        }
    }
    // Only what is one value: a statement of PostgreSQL's has no backslashes.
    let statement = format!("SET {name} = '{}'", wanted.replace('\'', "''"));
    match session.batch(&statement) {
        Ok(()) => Ok(Some(statement)),
        Err(e) if e.code == "42501" => Err(format!(
            "{name} cannot be set by this account: {e}; GRANT SET ON PARAMETER {name} TO {user} (from version 15 on)"
        )),
        Err(e) => Err(format!("{name} cannot be tried: {e}")),
    }
}

/// Puts back what is written down in a database, where it still is as it was tried.
pub(super) fn put_back(
    session: &mut dyn Session,
    database: &str,
) -> std::result::Result<(), LabError> {
    let mut answer = Answer::default();
    let asked = session.query(
        &format!("SELECT setting, was, tried, seen FROM {database}.{MARK} WHERE setting IS NOT NULL ORDER BY setting"),
        &mut answer,
    );
    match asked {
        // A database of a version that tried nothing.
        Err(e) if e.code == "1054" => return Ok(()),
        other => other?,
    }
    let rows: Vec<[String; 4]> = (0..answer.rows())
        .map(|r| [0, 1, 2, 3].map(|c| answer.text(r, c).to_owned()))
        .collect();
    for [name, was, tried, seen] in rows {
        let is = value(session, &name)?;
        // Killed before it was read back: it can only be as it was, or as it was tried.
        let mine = seen.is_empty() || same(&is, &tried) || same(&is, &seen);
        if !same(&is, &was) && mine {
            session
                .batch(&format!("SET GLOBAL {name}={}", literal(&was)))
                .map_err(|e| {
                    LabError::Failed(format!(
                        "{name} could not be put back to {was}: {e}; SET GLOBAL {name}={}",
                        literal(&was)
                    ))
                })?;
            let is = value(session, &name)?;
            if !same(&is, &was) {
                return Err(LabError::Failed(format!(
                    "{name} could not be put back: it is {is}, and was {was}"
                )));
            }
        } else if !mine {
            say!(
                "fathom: {name} is {is}, which is neither what it was ({was}) nor what was tried ({tried}): somebody else has set it, and it is left so"
            );
        }
        session.batch(&format!(
            "DELETE FROM {database}.{MARK} WHERE setting={}",
            quoted(&name)
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_however_they_are_written() {
        for (a, b, is) in [
            ("ON", "1", true),
            ("90.000000", "90", true),
            ("off", "0", true),
            ("O_DIRECT", "o_direct", true),
            ("2000", "200", false),
            ("ON", "OFF", false),
        ] {
            assert_eq!(same(a, b), is, "{a} {b}");
        }
        assert_eq!(
            (literal("12").as_str(), literal("O'x").as_str()),
            ("12", "'O''x'")
        );
    }
}

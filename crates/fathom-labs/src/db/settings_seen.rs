//! What a server does about durability and its files, asked of it: what may have shaped a number beside what was varied.

use std::path::Path;

use fathom_bench::results::Evidence;
use fathom_telemetry::schema::Finding;
use serde::{Deserialize, Serialize};

use super::sql::{Answer, Dialect, Result, Session};
use crate::confounders::{self, SettingsSeen};
use crate::loads::Line;

/// What was seen of a database as it had been filled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DatabaseSeen {
    pub(super) name: String,
    pub(super) version: String,
    /// How it does its I/O.
    pub(super) proof: String,
    /// Why its page cache has no limit, where it has none.
    pub(super) unlimited: Option<String>,
    /// What it says of durability and its files.
    #[serde(default)]
    pub(super) settings: SettingsSeen,
}

impl DatabaseSeen {
    /// `postgresql: PostgreSQL 15.14; through the page cache.`, under the name that it has there.
    pub(super) fn about(&self, name: &str) -> String {
        format!("{name}: {}; {}.", self.version, self.proof)
    }
}

/// What was looked at beside what was varied, of databases with what was measured on them.
pub(super) fn beside<S, M>(
    (lab, table): (&str, &str),
    all: &[(&DatabaseSeen, &Line<S, M>)],
    evidence: &Evidence<'_>,
) -> Finding {
    let jobs: Vec<usize> = all.iter().flat_map(|(_, line)| line.jobs()).collect();
    let mut facts = vec![confounders::warm(confounders::SERVERS, &jobs, evidence)];
    for (seen, _) in all {
        let cache = match &seen.unlimited {
            Some(_) => "; its page cache has no limit",
            None => "",
        };
        let words = seen.settings.in_words();
        facts.extend(words.map(|w| format!("{}: {w}{cache}", seen.name)));
    }
    // What is tried on a database has a line of its own.
    facts.dedup();
    let lines = all.iter().map(|(_, line)| *line);
    let used = confounders::processors(lines, evidence);
    facts.extend(used.map(|n| format!("the driver took up to {n:.2} processors")));
    confounders::beside(lab, facts, jobs, table)
}

impl SettingsSeen {
    /// Asks a server whose files lie in `dir`.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn ask(session: &mut dyn Session, dialect: Dialect, dir: &Path) -> Result<Self> {
        let mut answer = Answer::default();
        let mut settings = Vec::new();
        match dialect {
            Dialect::Sqlite => {
                for name in ["journal_mode", "synchronous", "page_size"] {
                    session.query(&format!("PRAGMA {name}"), &mut answer)?;
                    settings.push((name.to_owned(), answer.text(0, 0).to_owned()));
                }
            }
            _ => {
                session.query(
                    match dialect {
                        Dialect::Mysql => {
                            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_doublewrite', 'innodb_flush_method', 'innodb_flush_log_at_trx_commit', 'innodb_page_size')"
                        }
                        _ => {
                            "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_sync_method', 'block_size', 'data_checksums', 'io_method') ORDER BY name"
                        }
                    },
                    &mut answer,
                )?;
                for row in 0..answer.rows() {
                    settings.push((
                        answer.text(row, 0).to_owned(),
                        answer.text(row, 1).to_owned(),
                    ));
                }
            }
        }
        Ok(Self::of(settings, dir))
    }
}

#[cfg(test)]
mod tests {
    use super::super::on_databases::on_each;
    use super::*;

    #[test]
    fn each_database_says_how_durable_it_is() {
        on_each("each_database_says_how_durable_it_is", &|database| {
            let mut session = database.connect().unwrap();
            let dir = tempfile::tempdir().unwrap();
            let seen = SettingsSeen::ask(&mut *session, database.dialect(), dir.path()).unwrap();
            let words = seen.in_words().unwrap();
            let expected = match database.dialect() {
                Dialect::Mysql => {
                    "innodb_doublewrite=ON, innodb_flush_log_at_trx_commit=1, innodb_flush_method=O_DIRECT"
                }
                // Checksums are there unasked from version 18 on, asynchronous I/O, too.
                Dialect::Postgres if words.contains("io_method=") => {
                    "block_size=8192, data_checksums=on, fsync=on, full_page_writes=on, io_method=worker"
                }
                Dialect::Postgres => {
                    "block_size=8192, data_checksums=off, fsync=on, full_page_writes=on, synchronous_commit=on"
                }
                Dialect::Sqlite => "journal_mode=wal, synchronous=2",
            };
            assert!(words.starts_with(expected), "{words}");
            assert!(!words.ends_with("of 0 bytes"), "{words}");
        });
        assert_eq!(SettingsSeen::default().in_words(), None);
    }
}

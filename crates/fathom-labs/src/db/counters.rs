//! What a database counts of itself while it is measured, and what its sessions were seen to wait for: read at both ends,
//! and looked at in between. Beside what the device and the processors did it says what bounds a rate (`bound.rs`).

use std::collections::BTreeMap;

use fathom_host::HostRoot;
use fathom_host::processors::ProcessorTime;
use serde::{Deserialize, Serialize};

use super::mariadb::{InnodbCounters, since, status};
use super::sql::{Answer, Dialect, Result, Session};

/// What was seen of a server while transactions ran on it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Observed {
    /// InnoDB's counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) innodb: Option<InnodbCounters>,
    /// PostgreSQL's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) postgres: Option<PostgresCounters>,
    /// What sessions were seen at.
    #[serde(default, skip_serializing_if = "Waits::is_empty")]
    pub(super) waits: Waits,
    /// Share of the processors' time with work, of the machine where fathom and the server both run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) processors: Option<f64>,
}

/// Sessions of the load by what they were at, at looks in regular intervals.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Waits {
    /// How often they were looked at.
    pub(super) looks: u64,
    /// Sessions seen, by the server's own name for what they did; `client`: they waited for the next statement.
    pub(super) seen: BTreeMap<String, u64>,
}

impl Waits {
    fn is_empty(&self) -> bool {
        self.looks == 0
    }

    /// Share of the sessions' time at what `is` chooses; `None` where there were too few looks to tell.
    pub(super) fn share(&self, is: impl Fn(&str) -> bool) -> Option<f64> {
        /// Sessions that were seen, at least.
        const LEAST: u64 = 50;
        let all: u64 = self.seen.values().sum();
        let these: u64 = self.seen.iter().filter(|s| is(s.0)).map(|s| s.1).sum();
        (all >= LEAST).then(|| these as f64 / all as f64)
    }

    /// What they were at most, with its share.
    pub(super) fn most(&self) -> Vec<(&str, f64)> {
        let all: u64 = self.seen.values().sum();
        let mut most: Vec<_> = self
            .seen
            .iter()
            .map(|(name, n)| (name.as_str(), *n as f64 / all.max(1) as f64))
            .collect();
        most.sort_by(|a, b| b.1.total_cmp(&a.1));
        most.truncate(4);
        most
    }
}

/// What PostgreSQL counts (its chapter "The Cumulative Statistics System"); `None` where its version does not.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct PostgresCounters {
    /// Transactions of fathom's database.
    pub(super) commits: Option<u64>,
    /// Of them, undone.
    pub(super) rollbacks: Option<u64>,
    /// Pages that were not in its cache.
    pub(super) reads: Option<u64>,
    /// Pages that were.
    pub(super) hits: Option<u64>,
    /// Deadlocks.
    pub(super) deadlocks: Option<u64>,
    /// Checkpoints whose time had come, of the whole server.
    pub(super) checkpoints_timed: Option<u64>,
    /// Checkpoints that somebody wanted, or that `max_wal_size` did.
    pub(super) checkpoints_requested: Option<u64>,
    /// Pages that checkpoints wrote.
    pub(super) checkpoint_writes: Option<u64>,
    /// Pages that sessions had to write themselves (pg_stat_io from version 16 on).
    pub(super) session_writes: Option<u64>,
    /// Bytes of the write-ahead log.
    pub(super) wal_bytes: Option<u64>,
    /// Whole pages in it, each the first change after a checkpoint.
    pub(super) wal_pages: Option<u64>,
    /// Its syncs.
    pub(super) wal_syncs: Option<u64>,
    /// Times that its buffers were full.
    pub(super) wal_full: Option<u64>,
}

impl PostgresCounters {
    /// Statement for a version (`server_version_num`), in the order of the fields.
    fn statement(version: i64) -> String {
        let checkpoints = match version {
            170_000.. => {
                "(SELECT num_timed FROM pg_stat_checkpointer), (SELECT num_requested FROM pg_stat_checkpointer), (SELECT buffers_written FROM pg_stat_checkpointer)"
            }
            _ => {
                "(SELECT checkpoints_timed FROM pg_stat_bgwriter), (SELECT checkpoints_req FROM pg_stat_bgwriter), (SELECT buffers_checkpoint FROM pg_stat_bgwriter)"
            }
        };
        let writes = match version {
            160_000.. => {
                "(SELECT sum(writes)::bigint FROM pg_stat_io WHERE backend_type = 'client backend' AND object = 'relation')"
            }
            _ => "(SELECT buffers_backend FROM pg_stat_bgwriter)",
        };
        let wal = match version {
            180_000.. => {
                "(SELECT wal_bytes FROM pg_stat_wal), (SELECT wal_fpi FROM pg_stat_wal), (SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'), (SELECT wal_buffers_full FROM pg_stat_wal)"
            }
            140_000.. => {
                "(SELECT wal_bytes FROM pg_stat_wal), (SELECT wal_fpi FROM pg_stat_wal), (SELECT wal_sync FROM pg_stat_wal), (SELECT wal_buffers_full FROM pg_stat_wal)"
            }
            _ => "NULL, NULL, NULL, NULL",
        };
        format!(
            "SELECT xact_commit, xact_rollback, blks_read, blks_hit, deadlocks, {checkpoints}, {writes}, {wal} FROM pg_stat_database WHERE datname = current_database()"
        )
    }

    fn of(answer: &Answer) -> Self {
        let n = |column| answer.int(0, column).ok().map(|n| n.max(0) as u64);
        Self {
            commits: n(0),
            rollbacks: n(1),
            reads: n(2),
            hits: n(3),
            deadlocks: n(4),
            checkpoints_timed: n(5),
            checkpoints_requested: n(6),
            checkpoint_writes: n(7),
            session_writes: n(8),
            wal_bytes: n(9),
            wal_pages: n(10),
            wal_syncs: n(11),
            wal_full: n(12),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        let d = |f: fn(&Self) -> Option<u64>| since(f(self), f(earlier));
        Self {
            commits: d(|c| c.commits),
            rollbacks: d(|c| c.rollbacks),
            reads: d(|c| c.reads),
            hits: d(|c| c.hits),
            deadlocks: d(|c| c.deadlocks),
            checkpoints_timed: d(|c| c.checkpoints_timed),
            checkpoints_requested: d(|c| c.checkpoints_requested),
            checkpoint_writes: d(|c| c.checkpoint_writes),
            session_writes: d(|c| c.session_writes),
            wal_bytes: d(|c| c.wal_bytes),
            wal_pages: d(|c| c.wal_pages),
            wal_syncs: d(|c| c.wal_syncs),
            wal_full: d(|c| c.wal_full),
        }
    }
}

/// Sessions of fathom's database by what they are at, this one left out.
const SESSIONS_POSTGRES: &str = "SELECT CASE WHEN wait_event_type = 'Client' OR state <> 'active' THEN 'client' ELSE coalesce(wait_event_type || ':' || wait_event, 'running') END, count(*) \
     FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid() GROUP BY 1";
/// The same of MariaDB and MySQL: a session that sleeps waits for its client.
const SESSIONS_MYSQL: &str = "SELECT IF(command = 'Sleep', 'client', state), COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() GROUP BY 1";

/// Watches a server over a session of its own.
pub(super) struct Watch {
    session: Box<dyn Session>,
    dialect: Dialect,
    /// Sessions are looked at and, of PostgreSQL, counters read by these.
    statements: [usize; 2],
    /// Whether the server is on this machine.
    here: bool,
    begun: Option<(Counted, Option<ProcessorTime>)>,
    waits: Waits,
    ages: Vec<f64>,
    answer: Answer,
}

/// Counters of one of the two.
#[derive(Clone, Copy)]
enum Counted {
    Innodb(InnodbCounters),
    Postgres(PostgresCounters),
    /// It has none.
    None,
}

impl Watch {
    /// Over a session in the database of the load.
    pub(super) fn new(mut session: Box<dyn Session>, dialect: Dialect, here: bool) -> Result<Self> {
        let mut answer = Answer::default();
        let statements = match dialect {
            Dialect::Mysql => [session.prepare(SESSIONS_MYSQL)?, 0],
            Dialect::Postgres => {
                session.query("SHOW server_version_num", &mut answer)?;
                let counters = PostgresCounters::statement(answer.int(0, 0)?);
                [
                    session.prepare(SESSIONS_POSTGRES)?,
                    session.prepare(&counters)?,
                ]
            }
            Dialect::Sqlite => [0, 0],
        };
        Ok(Self {
            session,
            dialect,
            statements,
            here,
            begun: None,
            waits: Waits::default(),
            ages: Vec::new(),
            answer,
        })
    }

    fn counted(&mut self) -> Result<Counted> {
        Ok(match self.dialect {
            Dialect::Mysql => Counted::Innodb(InnodbCounters::read(&mut *self.session)?),
            Dialect::Postgres => {
                let (session, answer) = (&mut self.session, &mut self.answer);
                session.execute(self.statements[1], &[], answer)?;
                Counted::Postgres(PostgresCounters::of(answer))
            }
            Dialect::Sqlite => Counted::None,
        })
    }

    /// The measured part begins.
    pub(super) fn begin(&mut self) -> Result<()> {
        let counted = self.counted()?;
        let processors = ProcessorTime::read(&HostRoot::default(), &[]);
        self.begun = Some((counted, processors));
        Ok(())
    }

    /// Looks at the sessions; before the measured part it does nothing. A server that does not answer is somebody else's to
    /// report.
    pub(super) fn look(&mut self) {
        /// Looks at sessions to one at the age of the checkpoint, which the server has to add up.
        const AGES: u64 = 5;
        if self.begun.is_none() || self.dialect == Dialect::Sqlite {
            return;
        }
        let (session, answer) = (&mut self.session, &mut self.answer);
        if session.execute(self.statements[0], &[], answer).is_err() {
            return;
        }
        for row in 0..answer.rows() {
            let Ok(n) = answer.int(row, 1) else { continue };
            let name = match answer.text(row, 0) {
                "" => "running",
                name => name,
            };
            let n = n.max(0) as u64;
            match self.waits.seen.get_mut(name) {
                Some(seen) => *seen += n,
                None => {
                    self.waits.seen.insert(name.to_owned(), n);
                }
            }
        }
        if self.dialect == Dialect::Mysql && self.waits.looks.is_multiple_of(AGES) {
            let names = ["Innodb_checkpoint_age", "Innodb_checkpoint_max_age"];
            if let Ok([Some(age), Some(max)]) = status(&mut *self.session, names) {
                self.ages.push(age as f64 / max.max(1) as f64);
            }
        }
        self.waits.looks += 1;
    }

    /// The measured part has ended.
    pub(super) fn end(&mut self) -> Result<Observed> {
        let now = self.counted()?;
        let processors = ProcessorTime::read(&HostRoot::default(), &[]);
        let Some((then, before)) = self.begun.take() else {
            return Ok(Observed::default());
        };
        let mut found = Observed {
            waits: std::mem::take(&mut self.waits),
            processors: processors
                .zip(before)
                .filter(|_| self.here)
                .and_then(|(now, then)| now.since(&then).busy_share()),
            ..Observed::default()
        };
        match (now, then) {
            (Counted::Innodb(now), Counted::Innodb(then)) => {
                let mut innodb = now.since(&then);
                let n = self.ages.len();
                innodb.checkpoint_share = (n > 0).then(|| self.ages.iter().sum::<f64>() / n as f64);
                found.innodb = Some(innodb);
            }
            (Counted::Postgres(now), Counted::Postgres(then)) => {
                found.postgres = Some(now.since(&then));
            }
            _ => {}
        }
        self.ages.clear();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::on_databases::on_each;
    use super::*;

    #[test]
    fn shares_are_of_all_that_was_seen_and_few_are_none() {
        let seen = [("running", 30), ("IO:WALSync", 60), ("client", 10)];
        let waits = Waits {
            looks: 10,
            seen: seen.map(|(n, k)| (n.to_owned(), k)).into(),
        };
        assert_eq!(waits.share(|n| n.starts_with("IO:")), Some(0.6));
        assert_eq!(waits.most()[0], ("IO:WALSync", 0.6));
        let few = Waits {
            looks: 1,
            seen: [("running".to_owned(), 4)].into(),
        };
        assert_eq!(few.share(|_| true), None);
    }

    #[test]
    fn each_version_is_asked_for_what_it_counts() {
        let of = PostgresCounters::statement;
        assert!(of(150_004).contains("buffers_backend") && of(150_004).contains("wal_sync "));
        assert!(of(160_000).contains("pg_stat_io") && !of(160_000).contains("checkpointer"));
        assert!(of(170_000).contains("num_requested"));
        assert!(of(130_000).contains("NULL, NULL, NULL, NULL"));
        // As many columns as fields.
        for version in [130_000, 150_000, 160_000, 170_000, 180_000] {
            let plain = of(version);
            let mut depth = 0;
            let commas = plain.chars().filter(|c| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                *c == ',' && depth == 0
            });
            assert_eq!(commas.count(), 12, "{version}: {plain}");
        }
    }

    #[test]
    fn nothing_that_a_server_counts_is_missing() {
        on_each("nothing_that_a_server_counts_is_missing", &|database| {
            if database.dialect() != Dialect::Postgres {
                return;
            }
            let mut watch = database.watch().unwrap();
            watch.begin().unwrap();
            let mut session = database.connect().unwrap();
            session
                .batch("CREATE TABLE counted AS SELECT generate_series(1, 100000) AS n")
                .unwrap();
            for _ in 0..5 {
                session
                    .batch("UPDATE counted SET n = -n WHERE n < 100")
                    .unwrap();
            }
            session.batch("CHECKPOINT").unwrap();
            // What a session counted is the server's at its end.
            drop(session);
            std::thread::sleep(std::time::Duration::from_millis(500));
            let seen = serde_json::to_value(watch.end().unwrap().postgres).unwrap();
            let counted = seen.as_object().unwrap();
            let lacks = |key: &&String| counted[*key].as_u64().is_none();
            assert_eq!(
                counted.keys().find(lacks),
                None,
                "{}: {seen}",
                database.version
            );
            for rises in [
                "commits",
                "hits",
                "checkpoints_requested",
                "checkpoint_writes",
                "wal_bytes",
                "wal_syncs",
            ] {
                assert!(
                    counted[rises].as_u64() > Some(0),
                    "{}: {rises}: {seen}",
                    database.version
                );
            }
        });
    }
}

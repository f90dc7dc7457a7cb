//! What bounds a rate: the processors, the log's syncs, reads of pages, locks, checkpoints; named where the server's own
//! counters, what its sessions waited for and the device show it in every repeat, and not at all where they do not.

use fathom_bench::parts::{estimate, number, table, text};
use fathom_bench::results::Evidence;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Finding, Job, Table};

use super::counters::Observed;
use super::mariadb::InnodbCounters;
use crate::loads;

/// From this share of the sessions' time on they wait for it more than for all else together.
const MOST: f64 = 0.5;
/// Processors with no more than a tenth of their time left.
const FULL: f64 = 0.9;
/// Of what the log allows: from about seven eighths on InnoDB writes pages as fast as it can.
const OLD: f64 = 0.85;

/// What bounds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Processors,
    Log,
    Reads,
    Locks,
    Latches,
    Checkpoints,
    Clients,
}

/// A cause in words, and what would show that it is wrong.
const WORDS: [(Cause, &str, &str); 7] = [
    (
        Cause::Processors,
        "the processors",
        "The same load with more processors for the server: the rate stays.",
    ),
    (
        Cause::Log,
        "syncs of the log",
        "The same with commits that do not wait (innodb_flush_log_at_trx_commit=2, synchronous_commit=off) on a server of the lab's: the rate stays.",
    ),
    (
        Cause::Reads,
        "reads of pages",
        "The same with a cache twice as large, or half the rows: the rate stays.",
    ),
    (
        Cause::Locks,
        "locks of rows",
        "The same with ten times the rows or warehouses: the rate stays.",
    ),
    (
        Cause::Latches,
        "latches within the server",
        "The same with half as many sessions: the rate halves.",
    ),
    (
        Cause::Checkpoints,
        "checkpoints",
        "The same with a log twice as large: the rate stays.",
    ),
    (
        Cause::Clients,
        "the clients and the way to them",
        "The same with fathom on another machine, or nearer to the server: the rate stays.",
    ),
];

/// MariaDB's and MySQL's states of a session that commits.
const COMMITS: [&str; 6] = [
    "Commit",
    "Committing",
    "commit",
    "committing",
    "waiting for handler commit",
    "Waiting for semi-sync ACK from replica",
];

/// PostgreSQL's wait events of a cause, with its words for them. Version 17 spells some of them otherwise (`WALSync`, `WalSync`):
/// letters count, not their case.
const EVENTS: [(Cause, &[&str], &str); 5] = [
    (Cause::Locks, &["Lock:"], "locks (Lock:…)"),
    (
        Cause::Log,
        &["IO:WalSync", "IO:WalWrite", "LWLock:WALWrite"],
        "writing and syncing the log (WALSync, WALWrite)",
    ),
    (
        Cause::Reads,
        &[
            "IO:DataFileRead",
            "IO:DataFilePrefetch",
            // Another session reads the page.
            "IPC:BufferIo",
            // From version 18 on, whose asynchronous I/O reads pages and does nothing else.
            "IO:AioIoCompletion",
            "IO:AioIoUringSubmit",
            "IO:AioIoUringExecution",
            "LWLock:AioUringCompletion",
            "LWLock:AioWorkerSubmissionQueue",
        ],
        "reads of pages (DataFileRead, AioIoCompletion)",
    ),
    (
        Cause::Checkpoints,
        &["IO:DataFileWrite", "IO:DataFileFlush", "IO:DataFileSync"],
        "writing pages (DataFileWrite)",
    ),
    (
        Cause::Clients,
        &["client"],
        "waiting for the next statement",
    ),
];

/// Whether a session was at something that a cause's events name.
fn is_at(cause: Cause, seen: &str) -> bool {
    let begins = |event: &&str| {
        let start = seen.get(..event.len());
        start.is_some_and(|s| s.eq_ignore_ascii_case(event))
    };
    let of = EVENTS.iter().filter(|e| e.0 == cause);
    of.flat_map(|e| e.1).any(begins)
}

/// A share of the sessions' time at the events of a cause, by what says so.
fn at_events(seen: &Observed, cause: Cause) -> Option<(f64, String)> {
    let words = EVENTS.iter().find(|e| e.0 == cause)?.2;
    at(seen, words, &|n| is_at(cause, n))
}

/// The same at what `is` says.
fn at(seen: &Observed, words: &str, is: &dyn Fn(&str) -> bool) -> Option<(f64, String)> {
    let share = seen.waits.share(is)?;
    let said = format!("{:.0} % of the sessions' time at {words}", share * 100.0);
    Some((share, said))
}

/// A share of the sessions' time that is waited for something, by what says so.
fn waited(seen: &Observed, job: &Job, cause: Cause) -> Option<(f64, String)> {
    match (cause, &seen.innodb) {
        (Cause::Processors, _) => {
            let share = seen.processors?;
            // In processors, not in shares: a report may be made on another machine.
            let own = job.cpu_ns as f64 / job.wall_ns.max(1) as f64;
            Some((
                share,
                format!(
                    "{:.0} % of the processors' time used, {own:.1} processors by fathom's own clients",
                    share * 100.0
                ),
            ))
        }
        (Cause::Clients, _) => at_events(seen, cause),
        (_, Some(innodb)) => in_innodb(seen, innodb, job, cause),
        (_, None) => in_postgres(seen, cause),
    }
}

/// The same within PostgreSQL.
fn in_postgres(seen: &Observed, cause: Cause) -> Option<(f64, String)> {
    if cause != Cause::Latches {
        return at_events(seen, cause);
    }
    // Those that stand for the log or for a read are no latches.
    let other = |n: &str| is_at(Cause::Log, n) || is_at(Cause::Reads, n);
    at(seen, "latches (LWLock:…)", &|n| {
        n.starts_with("LWLock:") && !other(n)
    })
}

/// The same within InnoDB.
fn in_innodb(
    seen: &Observed,
    innodb: &InnodbCounters,
    job: &Job,
    cause: Cause,
) -> Option<(f64, String)> {
    let time_ms = f64::from(job.qd_requested) * job.wall_ns as f64 / 1e6;
    match cause {
        Cause::Locks => {
            let share = innodb.lock_ms? as f64 / time_ms;
            Some((
                share,
                format!(
                    "{} waits for locks took {:.0} % of the sessions' time",
                    innodb.lock_waits?,
                    share * 100.0
                ),
            ))
        }
        Cause::Log => {
            let share = seen.waits.share(|n| COMMITS.contains(&n))?;
            Some((
                share,
                format!("{:.0} % of the sessions' time in COMMIT", share * 100.0),
            ))
        }
        // The time of all reads of the device is that of all sessions that wait for one.
        Cause::Reads => {
            let device = job.device.as_ref()?;
            let own = innodb.pool_reads.filter(|n| *n > 100)? as f64;
            // Others' reads on the device are not these.
            let alike = device.read_ios as f64 <= innodb.reads as f64 * 1.5;
            let share = device.read_ticks_ms as f64 / time_ms;
            alike.then(|| {
                (
                    share,
                    format!(
                        "{own:.0} pages were not in the pool, and reads of the device took {:.0} % of the sessions' time",
                        share * 100.0
                    ),
                )
            })
        }
        Cause::Checkpoints => {
            let share = innodb.checkpoint_share?;
            Some((
                share,
                format!(
                    "the age of the checkpoint was at {:.0} % of what the log allows while {} pages were written",
                    share * 100.0,
                    innodb.flushed?
                ),
            ))
        }
        Cause::Latches | Cause::Processors | Cause::Clients => None,
    }
}

/// What shows it in one measurement: the first cause that is reached, with its share and its evidence.
fn shown(seen: &Observed, job: &Job) -> Option<(Cause, f64, String)> {
    let limit = |cause| match cause {
        Cause::Processors => FULL,
        Cause::Checkpoints if seen.innodb.is_some() => OLD,
        _ => MOST,
    };
    WORDS.iter().find_map(|(cause, ..)| {
        let (share, said) = waited(seen, job, *cause)?;
        (share >= limit(*cause)).then_some((*cause, share, said))
    })
}

/// A line of a lab, with what was seen of the server in each repeat.
pub(super) struct Seen<'a> {
    /// As the line is called.
    pub(super) label: String,
    /// Job and counters of each repeat that may be used, with its operations.
    repeats: Vec<(&'a Job, &'a Observed, f64)>,
    jobs: Vec<usize>,
}

impl<'a> Seen<'a> {
    /// Of a line.
    pub(super) fn of<S, M>(
        label: String,
        line: &'a loads::Line<S, M>,
        evidence: &Evidence<'a>,
        observed: fn(&M) -> &Observed,
    ) -> Self {
        let of = |r: &'a loads::Repeat<M>| {
            Some((r.job(evidence)?, observed(&r.beside), r.operations as f64))
        };
        Self {
            label,
            repeats: line.repeats.iter().filter_map(of).collect(),
            jobs: line.jobs(),
        }
    }

    /// What bounds it, where all repeats show the same.
    fn bound(&self) -> Option<(Cause, String)> {
        let all: Vec<_> = self
            .repeats
            .iter()
            .map(|(job, seen, _)| shown(seen, job))
            .collect::<Option<_>>()?;
        let (cause, _, said) = all.first()?;
        let same = all.iter().all(|(c, ..)| c == cause);
        let (low, high) = all
            .iter()
            .fold((f64::MAX, f64::MIN), |(l, h), a| (l.min(a.1), h.max(a.1)));
        same.then(|| match all.len() {
            1 => (*cause, said.clone()),
            n => (
                *cause,
                format!(
                    "{said}; {:.0} to {:.0} % in {n} repeats",
                    low * 100.0,
                    high * 100.0
                ),
            ),
        })
    }

    /// The sentence: which rate it is of (`what`), what bounds it, by what that is seen. Nothing where nothing is shown.
    pub(super) fn finding(&self, id: &str, what: &str, evidence: &str) -> Option<Finding> {
        let (cause, said) = self.bound()?;
        let (_, name, refuted) = WORDS.iter().find(|w| w.0 == cause)?;
        Some(Finding {
            id: format!("{id}-bound"),
            text: format!("{what}: {name} bound the rate ({said})."),
            confidence: match self.repeats.len() {
                1 => "weak",
                2 => "moderate",
                _ => "strong",
            }
            .into(),
            jobs: self.jobs.clone(),
            evidence: vec![evidence.to_owned()],
            refuted_by: (*refuted).to_owned(),
            ..Finding::default()
        })
    }

    fn mean(&self, f: impl Fn(&Observed) -> Option<f64>) -> Option<Estimate> {
        let all: Vec<f64> = self.repeats.iter().filter_map(|r| f(r.1)).collect();
        Estimate::mean_of(&all)
    }

    fn per(&self, f: impl Fn(&Observed) -> Option<u64>) -> Option<Estimate> {
        let of = |r: &(&Job, &Observed, f64)| Some(f(r.1)? as f64 / r.2).filter(|n| n.is_finite());
        let all: Vec<f64> = self.repeats.iter().filter_map(of).collect();
        Estimate::mean_of(&all)
    }
}

/// What servers counted and what sessions waited for.
pub(super) fn counters(id: &str, lines: &[Seen<'_>]) -> Table {
    let share = |s: &Seen<'_>, cause: Cause| {
        let all: Vec<f64> = s
            .repeats
            .iter()
            .filter_map(|(job, seen, _)| Some(waited(seen, job, cause)?.0 * 100.0))
            .collect();
        estimate(Estimate::mean_of(&all))
    };
    table(
        id,
        "What the server counted, and what its sessions waited for",
        lines,
        &[
            ("load", "", &|s| text(s.label.clone())),
            ("processors used", "%", &|s| share(s, Cause::Processors)),
            ("at the log", "%", &|s| share(s, Cause::Log)),
            ("at reads of pages", "%", &|s| share(s, Cause::Reads)),
            ("at locks", "%", &|s| share(s, Cause::Locks)),
            ("most of the sessions' time", "", &|s| {
                let last = s.repeats.last().map(|r| r.1.waits.most());
                let said = last.unwrap_or_default().into_iter();
                let said: Vec<String> = said
                    .map(|(name, share)| format!("{name} {:.0} %", share * 100.0))
                    .collect();
                text(said.join(", "))
            }),
            ("cache misses per transaction", "", &|s| {
                estimate(s.per(|o| match (&o.innodb, &o.postgres) {
                    (Some(i), _) => i.pool_reads,
                    (_, p) => p.as_ref()?.reads,
                }))
            }),
            ("log per transaction", "bytes", &|s| {
                estimate(s.per(|o| match (&o.innodb, &o.postgres) {
                    (Some(i), _) => i.logged,
                    (_, p) => p.as_ref()?.wal_bytes,
                }))
            }),
            ("log syncs per transaction", "", &|s| {
                estimate(s.per(|o| match (&o.innodb, &o.postgres) {
                    (Some(i), _) => i.log_syncs,
                    (_, p) => p.as_ref()?.wal_syncs,
                }))
            }),
            ("age of the checkpoint", "%", &|s| {
                estimate(s.mean(|o| Some(o.innodb.as_ref()?.checkpoint_share? * 100.0)))
            }),
            ("checkpoints", "", &|s| {
                let begun = |o: &Observed| {
                    let p = o.postgres.as_ref()?;
                    Some((p.checkpoints_timed? + p.checkpoints_requested?) as f64)
                };
                number(s.mean(begun).map(|e| e.value))
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use fathom_telemetry::schema::DeviceDelta;

    use super::super::counters::Waits;
    use super::super::on_databases::on_each;
    use super::super::sql::{Answer, Dialect};
    use super::*;

    fn job() -> Job {
        Job {
            wall_ns: 10_000_000_000,
            qd_requested: 16,
            device: Some(DeviceDelta {
                read_ios: 40_000,
                read_ticks_ms: 120_000,
                ..DeviceDelta::default()
            }),
            ..Job::default()
        }
    }

    fn sessions(seen: &[(&str, u64)]) -> Observed {
        Observed {
            waits: Waits {
                looks: 100,
                seen: seen.iter().map(|(n, k)| ((*n).to_owned(), *k)).collect(),
            },
            processors: Some(0.4),
            ..Observed::default()
        }
    }

    fn innodb(with: InnodbCounters) -> Observed {
        Observed {
            innodb: Some(with),
            ..sessions(&[("client", 10), ("Commit", 10), ("running", 80)])
        }
    }

    #[test]
    fn a_cause_is_named_where_it_is_shown_and_none_where_it_is_not() {
        let cause = |seen: &Observed| shown(seen, &job()).map(|s| s.0);
        let syncs = sessions(&[
            ("IO:WALSync", 300),
            ("LWLock:WALWrite", 700),
            ("running", 500),
        ]);
        assert_eq!(cause(&syncs), Some(Cause::Log));
        let reads = sessions(&[("IO:DataFileRead", 900), ("running", 100), ("client", 50)]);
        assert_eq!(cause(&reads), Some(Cause::Reads));
        let locks = sessions(&[
            ("Lock:transactionid", 300),
            ("Lock:tuple", 400),
            ("client", 100),
        ]);
        assert_eq!(cause(&locks), Some(Cause::Locks));
        let mixed = sessions(&[
            ("IO:WALSync", 300),
            ("IO:DataFileRead", 300),
            ("client", 300),
        ]);
        assert_eq!(cause(&mixed), None);
        let remote = sessions(&[("client", 800), ("running", 100)]);
        assert_eq!(cause(&remote), Some(Cause::Clients));
        let busy = Observed {
            processors: Some(0.97),
            ..mixed
        };
        assert_eq!(cause(&busy), Some(Cause::Processors));
        // 16 sessions for 10 s are 160 s: reads took 120, locks 16.
        let with = InnodbCounters {
            reads: 40_000,
            pool_reads: Some(39_000),
            lock_ms: Some(16_000),
            lock_waits: Some(12),
            ..InnodbCounters::default()
        };
        let (cause_of, share, said) = shown(&innodb(with), &job()).unwrap();
        assert_eq!((cause_of, share), (Cause::Reads, 0.75));
        assert!(said.contains("39000 pages were not in the pool"), "{said}");
        // What others read on the device says nothing of it.
        let others = InnodbCounters { reads: 400, ..with };
        assert_eq!(cause(&innodb(others)), None);
        let waits = InnodbCounters {
            lock_ms: Some(100_000),
            ..others
        };
        assert_eq!(cause(&innodb(waits)), Some(Cause::Locks));
        let old = InnodbCounters {
            checkpoint_share: Some(0.9),
            flushed: Some(7),
            ..others
        };
        assert_eq!(cause(&innodb(old)), Some(Cause::Checkpoints));
    }

    #[test]
    fn wait_events_are_those_of_all_versions() {
        let at = |seen: &[(&str, u64)]| shown(&sessions(seen), &job()).map(|s| s.0);
        for (sync, buffer) in [
            ("IO:WALSync", "IPC:BufferIO"),
            ("IO:WalSync", "IPC:BufferIo"),
        ] {
            assert_eq!(at(&[(sync, 70), ("running", 10)]), Some(Cause::Log));
            assert_eq!(at(&[(buffer, 70), ("running", 10)]), Some(Cause::Reads));
        }
        let workers = [
            ("IO:AioIoCompletion", 70),
            ("LWLock:AioUringCompletion", 20),
        ];
        assert_eq!(at(&workers), Some(Cause::Reads));
        let latches = [("LWLock:BufferContent", 70), ("LWLock:WALWrite", 20)];
        assert_eq!(at(&latches), Some(Cause::Latches));
    }

    #[test]
    fn a_server_has_the_wait_events_that_are_looked_for() {
        on_each("a_server_has_the_wait_events", &|database| {
            let mut session = database.connect().unwrap();
            let mut answer = Answer::default();
            if database.dialect() != Dialect::Postgres {
                return;
            }
            session
                .query("SHOW server_version_num", &mut answer)
                .unwrap();
            let version = answer.int(0, 0).unwrap();
            // It lists them from this one on.
            if version < 170_000 {
                return;
            }
            let list = "SELECT type || ':' || name FROM pg_wait_events";
            session.query(list, &mut answer).unwrap();
            let known: Vec<&str> = (0..answer.rows()).map(|r| answer.text(r, 0)).collect();
            for event in EVENTS.iter().flat_map(|e| e.1) {
                let younger = version < 180_000 && event.contains("Aio");
                let is = |k: &&str| k.eq_ignore_ascii_case(event) || k.starts_with(event);
                let there = known.iter().any(is) || *event == "client";
                assert!(there || younger, "{event} is none of {version}");
            }
        });
    }
}

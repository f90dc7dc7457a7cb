//! Whether a database has warmed up: its cache is full or does not grow any more, it is missed as often as before, and
//! its log is freed as fast as it is written.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;

use fathom_telemetry::{Flag, FlagCode, Nanos};

use super::counters::Observed;
use super::mariadb::status;
use super::sql::{Answer, Dialect, Result, Session};
use super::yours::Yours;
use crate::confounders::missed_alike;

/// What a database counts at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Reading {
    /// Share of the cache that is in use, where it says so.
    full: Option<f64>,
    /// What was asked of the cache so far, and what it did not have.
    asked: [u64; 2],
    /// Bytes of log so far.
    logged: u64,
    /// Bytes of log that are not yet free: the age of the checkpoint.
    age: Option<u64>,
    /// Checkpoints that have begun, of a database that makes one after the other.
    checkpoints: Option<u64>,
}

/// Reads it.
pub(super) type Gauge<'a> = Box<dyn FnMut() -> Result<Reading> + 'a>;

/// Looks at a database while its ramp goes on.
pub(super) struct Warmth<'a> {
    gauge: Gauge<'a>,
    period: Nanos,
    seen: Vec<(Nanos, Reading)>,
    warm: bool,
}

impl<'a> Warmth<'a> {
    /// Looks that are compared with as many before them.
    const SPAN: usize = 3;
    /// In use of a cache that is full: some pages stay free for reads to come.
    const FULL: f64 = 0.97;
    /// Growth within a span that is none any more, as a share of the cache.
    const GROWTH: f64 = 0.003;
    /// Bytes of log within two spans of the longest period that are worth a look.
    const LOG: u64 = 256 << 10;
    /// Growth of the checkpoint's age, as a share of what is logged meanwhile.
    const AGEING: f64 = 0.1;

    /// Between looks at what is then measured for `time`: a span is longer than that, up to a second and a half.
    fn period(time: Nanos) -> Nanos {
        Nanos(time.0 / 2).clamp(Nanos::from_millis(100), Nanos::from_millis(500))
    }

    /// Until it can have been looked at for long enough.
    pub(super) fn least(time: Nanos) -> Nanos {
        Nanos(Self::period(time).0 * 2 * Self::SPAN as u64)
    }

    pub(super) fn new(gauge: Gauge<'a>, time: Nanos) -> Self {
        Self {
            gauge,
            period: Self::period(time),
            seen: Vec::new(),
            warm: false,
        }
    }

    /// Bytes of log within two spans that are worth a look.
    fn logs(&self) -> u64 {
        Self::LOG * self.period.0 / Self::period(Nanos(u64::MAX)).0
    }

    /// What is not yet as it will be. A server that does not answer is somebody else's to report.
    pub(super) fn cold(&mut self) -> Option<&'static str> {
        let now = fathom_io::clock::monotonic();
        let last = self.seen.last().map(|s| s.0);
        if !self.warm && last.is_none_or(|l| now.since(l) >= self.period) {
            match (self.gauge)() {
                Ok(reading) => self.seen.push((now, reading)),
                Err(_) => self.warm = true,
            }
        }
        let cold = match self.warm {
            true => None,
            false => missing(
                &self.seen.iter().map(|s| s.1).collect::<Vec<_>>(),
                self.logs(),
            ),
        };
        self.warm |= cold.is_none();
        cold
    }
}

/// What readings at regular times still lack; `logs` bytes of log within two spans are worth a look.
fn missing(seen: &[Reading], logs: u64) -> Option<&'static str> {
    type W<'a> = Warmth<'a>;
    let [.., earlier, _, _, before, _, _, now] = seen else {
        return Some("it had not been looked at for long enough");
    };
    debug_assert_eq!(W::SPAN, 3);
    let small = now
        .full
        .zip(before.full)
        .is_some_and(|(n, b)| n < W::FULL && n - b > W::GROWTH);
    if small {
        return Some("its cache was still being filled");
    }
    let misses = |a: &Reading, b: &Reading| [0, 1].map(|i| b.asked[i].saturating_sub(a.asked[i]));
    if !missed_alike(misses(earlier, before), misses(before, now)) {
        return Some("its cache was not yet missed as often as before");
    }
    let logged = now.logged.saturating_sub(earlier.logged);
    if logged < logs {
        return None;
    }
    let ages = now
        .age
        .zip(earlier.age)
        .is_some_and(|(n, e)| n as f64 - e as f64 > logged as f64 * W::AGEING);
    // From its first look on.
    let none = now
        .checkpoints
        .is_some_and(|n| seen[0].checkpoints == Some(n));
    (ages || none).then_some("its log was not yet freed as fast as it was written")
}

/// InnoDB.
pub(super) fn innodb(mut session: Box<dyn Session>) -> Gauge<'static> {
    Box::new(move || {
        let [total, free, asked, missed, lsn, age, redo, freed] = status(
            &mut *session,
            [
                "Innodb_buffer_pool_pages_total",
                "Innodb_buffer_pool_pages_free",
                "Innodb_buffer_pool_read_requests",
                "Innodb_buffer_pool_reads",
                "Innodb_lsn_current",
                "Innodb_checkpoint_age",
                // MySQL's names, from 8.0.30 on.
                "Innodb_redo_log_current_lsn",
                "Innodb_redo_log_checkpoint_lsn",
            ],
        )?;
        let used = total.zip(free).filter(|(total, _)| *total > 0);
        Ok(Reading {
            full: used.map(|(total, free)| 1.0 - free as f64 / total as f64),
            asked: [asked.unwrap_or(0), missed.unwrap_or(0)],
            logged: lsn.or(redo).unwrap_or(0),
            age: age.or(redo.zip(freed).map(|(r, f)| r.saturating_sub(f))),
            checkpoints: None,
        })
    })
}

/// A server of the user's. Its log may be as long as what it writes in hours, and its checkpoints are nobody's to begin: they
/// are not waited for, and [`unpaid`] says it where none came.
pub(super) fn of_yours(yours: &Yours) -> Result<Gauge<'static>> {
    let session = yours.session()?;
    let mut gauge = match yours.dialect() {
        Dialect::Mysql => innodb(session),
        _ => postgres(session)?,
    };
    Ok(Box::new(move || {
        Ok(Reading {
            checkpoints: None,
            age: None,
            ..gauge()?
        })
    }))
}

/// What a server of the user's wrote to its log and did not yet write to its tables.
pub(super) fn unpaid(seen: &Observed) -> Option<Flag> {
    let is = match (&seen.innodb, &seen.postgres) {
        (Some(i), _) => {
            let (logged, ageing) = (i.logged?, i.ageing?);
            logged > Warmth::LOG && ageing as f64 > logged as f64 * Warmth::AGEING
        }
        (None, Some(p)) => {
            let begun = p.checkpoints_timed? + p.checkpoints_requested?;
            p.wal_bytes? > Warmth::LOG && begun == 0
        }
        _ => false,
    };
    is.then(|| {
        Flag::new(
            FlagCode::NotSteady,
            "the server's log was not freed as fast as it was written: writing the pages that it stands for came later, and is not in this rate",
            "give it more --time, until its checkpoints are part of what is measured",
        )
    })
}

/// PostgreSQL, from 12 on.
pub(super) fn postgres(mut session: Box<dyn Session>) -> Result<Gauge<'static>> {
    let mut answer = Answer::default();
    session.query("SHOW server_version_num", &mut answer)?;
    let checkpoints = match answer.int(0, 0)? {
        170_000.. => "(SELECT num_timed + num_requested FROM pg_stat_checkpointer)",
        _ => "(SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter)",
    };
    let statement = session.prepare(&format!(
        "SELECT sum(blks_hit + blks_read), sum(blks_read), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'), {checkpoints}, \
         (SELECT buffers_alloc FROM pg_stat_bgwriter), (SELECT setting FROM pg_settings WHERE name = 'shared_buffers') \
         FROM pg_stat_database"
    ))?;
    Ok(Box::new(move || {
        session.execute(statement, &[], &mut answer)?;
        let n = |column| answer.int(0, column).map(|n| n.max(0) as u64);
        Ok(Reading {
            // Buffers are handed out one by one until there are no more.
            full: Some(n(4)? as f64 / n(5)?.max(1) as f64),
            asked: [n(0)?, n(1)?],
            logged: n(2)?,
            age: None,
            checkpoints: Some(n(3)?),
        })
    }))
}

/// SQLite, which works in this process: its cache is the page cache, too.
#[cfg(feature = "sqlite")]
pub(super) fn sqlite(log: PathBuf) -> Gauge<'static> {
    Box::new(move || {
        let of = |what| fathom_system::process::io(std::process::id(), what).unwrap_or(0);
        Ok(Reading {
            full: None,
            asked: [of("rchar"), of("read_bytes")],
            logged: of("wchar"),
            age: std::fs::metadata(&log).ok().map(|m| m.len()),
            checkpoints: None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading after `n` looks.
    fn readings(of: impl Fn(u64) -> Reading) -> Vec<Reading> {
        (0..12).map(of).collect()
    }

    fn lacks(seen: &[Reading]) -> Option<&'static str> {
        missing(seen, Warmth::LOG)
    }

    #[test]
    fn what_grows_misses_less_or_ages_is_cold() {
        let steady = |n: u64| Reading {
            full: Some(0.99),
            asked: [n * 100_000, n * 20_000],
            logged: n << 20,
            age: Some(50 << 20),
            checkpoints: None,
        };
        assert_eq!(lacks(&readings(steady)), None);
        assert!(lacks(&readings(steady)[..4]).is_some_and(|w| w.contains("long enough")));
        let filling = |n: u64| Reading {
            full: Some(0.05 * n as f64),
            ..steady(n)
        };
        assert!(lacks(&readings(filling)).is_some_and(|w| w.contains("filled")));
        // Everything that is asked for is in it.
        let small = |n: u64| Reading {
            full: Some(0.4),
            asked: [n * 100_000, 0],
            ..steady(n)
        };
        assert_eq!(lacks(&readings(small)), None);
        let learning = |n: u64| Reading {
            asked: [n * 100_000, (0..n).map(|i| 50_000 >> i).sum()],
            ..steady(n)
        };
        assert!(lacks(&readings(learning)[..8]).is_some_and(|w| w.contains("missed")));
        let ageing = |n: u64| Reading {
            age: Some(n << 20),
            ..steady(n)
        };
        assert!(lacks(&readings(ageing)).is_some_and(|w| w.contains("freed")));
        // Who writes nothing has no checkpoint to wait for.
        let reading = |n: u64| Reading {
            logged: 7,
            checkpoints: Some(3),
            ..steady(n)
        };
        assert_eq!(lacks(&readings(reading)), None);
        let unreached = |n: u64| Reading {
            checkpoints: Some(3),
            ..steady(n)
        };
        assert!(lacks(&readings(unreached)).is_some_and(|w| w.contains("freed")));
        let reached = |n: u64| Reading {
            checkpoints: Some(3 + n / 6),
            ..steady(n)
        };
        assert_eq!(lacks(&readings(reached)), None);
    }
}

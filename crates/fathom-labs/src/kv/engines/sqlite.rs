//! SQLite: a B-tree with a write-ahead log. One connection writes, each thread has one of its own to read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::evictor::Evictor;
use super::{Setting, failed};
use crate::LabError;
use crate::kv::load::{self, Outcome, Tree};

/// Its version.
pub(super) fn probe() -> Result<String, LabError> {
    Ok(format!("SQLite {}", rusqlite::version()))
}

struct Sqlite {
    writer: Mutex<Connection>,
    readers: Vec<Mutex<Connection>>,
}

fn error(e: impl std::fmt::Display) -> LabError {
    failed("SQLite", e)
}

fn lock(m: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys are unsigned, SQLite's are not: the order is kept by moving zero.
fn signed(key: u64) -> i64 {
    (key ^ (1 << 63)) as i64
}

impl Tree for Sqlite {
    fn get(&self, thread: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError> {
        value.clear();
        let connection = lock(&self.readers[thread]);
        let mut statement = connection
            .prepare_cached("SELECT v FROM t WHERE k = ?1")
            .map_err(error)?;
        let mut rows = statement.query([signed(key)]).map_err(error)?;
        let Some(row) = rows.next().map_err(error)? else {
            return Ok(false);
        };
        let found = row.get_ref(0).map_err(error)?;
        value.extend_from_slice(found.as_blob().map_err(error)?);
        Ok(true)
    }
    fn put(&self, _: usize, key: u64, value: &[u8]) -> Result<(), LabError> {
        let connection = lock(&self.writer);
        let mut statement = connection
            .prepare_cached("INSERT OR REPLACE INTO t VALUES (?1, ?2)")
            .map_err(error)?;
        let put = statement.execute((signed(key), value));
        put.map(|_| ()).map_err(error)
    }
    fn scan(&self, thread: usize, first: u64, limit: usize) -> Result<usize, LabError> {
        let connection = lock(&self.readers[thread]);
        let mut statement = connection
            .prepare_cached("SELECT k, v FROM t WHERE k >= ?1 ORDER BY k LIMIT ?2")
            .map_err(error)?;
        let mut rows = statement
            .query((signed(first), limit as i64))
            .map_err(error)?;
        let mut seen = 0;
        while let Some(row) = rows.next().map_err(error)? {
            row.get_ref(1).map_err(error)?;
            seen += 1;
        }
        Ok(seen)
    }
}

/// See [`super::Measure`].
pub(super) fn measure(
    setting: &Setting<'_>,
    tick: &mut dyn FnMut(f64),
) -> Result<Outcome, LabError> {
    let load = setting.load;
    let path = setting.dir.join("sqlite");
    let log = setting.dir.join("sqlite-wal");
    let reads = load.mix.update + load.mix.insert < 100;
    // One cache in all: writers and readers of one database share none, so it is dealt out.
    let share = setting.cache
        / if reads {
            u64::from(load.threads) + 1
        } else {
            1
        };
    let open = |cache: u64| -> Result<Connection, LabError> {
        let c = Connection::open(&path).map_err(error)?;
        let synchronous = if setting.commit { "FULL" } else { "NORMAL" };
        c.execute_batch(&format!(
            "PRAGMA page_size={}; PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; PRAGMA cache_size=-{}; PRAGMA mmap_size=0",
            setting.page,
            (cache >> 10).max(64)
        ))
        .map_err(error)?;
        c.busy_timeout(std::time::Duration::from_secs(10))
            .map_err(error)?;
        Ok(c)
    };
    let writer = open(share)?;
    writer
        .execute_batch("CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB NOT NULL); BEGIN")
        .map_err(error)?;
    let bytes = vec![0x5a; load.value as usize];
    {
        let mut insert = writer
            .prepare("INSERT INTO t VALUES (?1, ?2)")
            .map_err(error)?;
        for (i, key) in load.first_keys().into_iter().enumerate() {
            insert.execute((signed(key), &bytes[..])).map_err(error)?;
            if i % 4096 == 0 && (setting.stop)() {
                break;
            }
        }
    }
    writer
        .execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        .map_err(error)?;
    let readers = (0..load.threads)
        .map(|_| open(share).map(Mutex::new))
        .collect::<Result<Vec<_>, _>>()?;
    let tree = Sqlite {
        writer: Mutex::new(writer),
        readers,
    };
    let evictor = Evictor::of(vec![path.clone(), log.clone()]);
    let outcome = load::run(&tree, load, setting.stop, tick);
    drop(evictor);
    drop(tree);
    for file in [path, log, setting.dir.join("sqlite-shm")] {
        let _ = std::fs::remove_file(file);
    }
    outcome
}

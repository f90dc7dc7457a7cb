//! fjall: a log-structured merge tree in Rust, with a journal and threads of its own that flush and compact.

use ::fjall::config::BlockSizePolicy;
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::evictor::Evictor;
use super::{Durable, Setting, failed};
use crate::LabError;
use crate::kv::load::{self, Outcome, Tree};

/// Its version.
pub(super) fn probe() -> Result<String, LabError> {
    Ok("fjall 3.1".into())
}

struct Fjall {
    db: Database,
    rows: Keyspace,
    durable: Durable,
}

fn error(e: impl std::fmt::Display) -> LabError {
    failed("fjall", e)
}

impl Tree for Fjall {
    fn get(&self, _: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError> {
        value.clear();
        let found = self.rows.get(key.to_be_bytes()).map_err(error)?;
        if let Some(v) = &found {
            value.extend_from_slice(v);
        }
        Ok(found.is_some())
    }
    fn put(&self, _: usize, key: u64, value: &[u8]) -> Result<(), LabError> {
        self.rows.insert(key.to_be_bytes(), value).map_err(error)?;
        if self.durable.due() {
            self.db.persist(PersistMode::SyncData).map_err(error)?;
        }
        Ok(())
    }
    fn scan(&self, _: usize, first: u64, limit: usize) -> Result<usize, LabError> {
        let mut seen = 0;
        for entry in self.rows.range(first.to_be_bytes()..).take(limit) {
            entry.value().map_err(error)?;
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
    let path = setting.dir.join("fjall");
    let load = setting.load;
    // What is not yet flushed is memory, too: a quarter of all.
    let unflushed = (setting.cache / 4).max(1 << 20);
    let db = Database::builder(&path)
        .cache_size(setting.cache.saturating_sub(unflushed).max(1 << 20))
        .open()
        .map_err(error)?;
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(unflushed)
            .data_block_size_policy(BlockSizePolicy::all(setting.page as u32))
    };
    let rows = db.keyspace("t", options).map_err(error)?;
    let bytes = vec![0x5a; load.value as usize];
    for (i, key) in load.first_keys().into_iter().enumerate() {
        rows.insert(key.to_be_bytes(), &bytes[..]).map_err(error)?;
        if i % 4096 == 0 && (setting.stop)() {
            break;
        }
    }
    db.persist(PersistMode::SyncAll).map_err(error)?;
    let tree = Fjall {
        db,
        rows,
        durable: Durable::of(setting),
    };
    let evictor = Evictor::of(vec![path.clone()]);
    let outcome = load::run(&tree, load, setting.stop, tick);
    drop(evictor);
    drop(tree);
    let _ = std::fs::remove_dir_all(path);
    outcome
}

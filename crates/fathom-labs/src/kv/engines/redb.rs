//! redb: a copy-on-write B+tree in Rust. Writers take turns, each operation is a transaction of its own.

use ::redb::{Builder, Database, Durability, TableDefinition};

use super::evictor::Evictor;
use super::{Durable, Setting, failed};
use crate::LabError;
use crate::kv::load::{self, Outcome, Tree};

const TABLE: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("t");
/// Keys of one transaction while loading.
const BATCH: usize = 50_000;

/// Its version.
pub(super) fn probe() -> Result<String, LabError> {
    Ok("redb 2.6".into())
}

struct Redb {
    db: Database,
    durable: Durable,
}

fn error(e: impl std::fmt::Display) -> LabError {
    failed("redb", e)
}

impl Tree for Redb {
    fn get(&self, _: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError> {
        value.clear();
        let read = self.db.begin_read().map_err(error)?;
        let table = read.open_table(TABLE).map_err(error)?;
        let found = table.get(key).map_err(error)?;
        if let Some(v) = &found {
            value.extend_from_slice(v.value());
        }
        Ok(found.is_some())
    }
    fn put(&self, _: usize, key: u64, value: &[u8]) -> Result<(), LabError> {
        let mut write = self.db.begin_write().map_err(error)?;
        if !self.durable.due() {
            write.set_durability(Durability::None);
        }
        {
            let mut table = write.open_table(TABLE).map_err(error)?;
            table.insert(key, value).map_err(error)?;
        }
        write.commit().map_err(error)
    }
    fn scan(&self, _: usize, first: u64, limit: usize) -> Result<usize, LabError> {
        let read = self.db.begin_read().map_err(error)?;
        let table = read.open_table(TABLE).map_err(error)?;
        let mut seen = 0;
        for entry in table.range(first..).map_err(error)?.take(limit) {
            entry.map_err(error)?;
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
    let path = setting.dir.join("redb");
    let load = setting.load;
    let db = Builder::new()
        .set_cache_size(setting.cache as usize)
        .create(&path)
        .map_err(error)?;
    let bytes = vec![0x5a; load.value as usize];
    let keys = load.first_keys();
    let mut batches = keys.chunks(BATCH);
    loop {
        // A transaction at least, so that the table is there.
        let batch = batches.next();
        let write = db.begin_write().map_err(error)?;
        {
            let mut table = write.open_table(TABLE).map_err(error)?;
            for key in batch.into_iter().flatten() {
                table.insert(key, &bytes[..]).map_err(error)?;
            }
        }
        write.commit().map_err(error)?;
        if batch.is_none() || (setting.stop)() {
            break;
        }
    }
    let tree = Redb {
        db,
        durable: Durable::of(setting),
    };
    let evictor = Evictor::of(vec![path.clone()]);
    let outcome = load::run(&tree, load, setting.stop, tick);
    drop(evictor);
    drop(tree);
    let _ = std::fs::remove_file(path);
    outcome
}

//! LMDB: a copy-on-write B+tree in C, mapped into memory. Its cache is the page cache, which is held to what the others have.

use ::heed::byteorder::BE;
use ::heed::types::{Bytes, U64};
use ::heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use std::path::Path;

use super::evictor::Evictor;
use super::{Durable, Setting, failed};
use crate::LabError;
use crate::kv::load::{self, Outcome, Tree};

type Rows<'e> = Database<'e, U64<BE>, Bytes>;

/// Keys of one transaction while loading.
const BATCH: usize = 50_000;
/// Of the address space; the file has what is in it.
const MAP: usize = 1 << 40;

/// Its version.
pub(super) fn probe() -> Result<String, LabError> {
    let v = ::heed::lmdb_version();
    Ok(format!("LMDB {}.{}.{}", v.major, v.minor, v.patch))
}

struct Lmdb<'e> {
    env: &'e Env,
    rows: Rows<'e>,
    durable: Durable,
}

fn error(e: impl std::fmt::Display) -> LabError {
    failed("LMDB", e)
}

impl Tree for Lmdb<'_> {
    fn get(&self, _: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError> {
        value.clear();
        let read = self.env.read_txn().map_err(error)?;
        let found = self.rows.get(&read, &key).map_err(error)?;
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }
    fn put(&self, _: usize, key: u64, value: &[u8]) -> Result<(), LabError> {
        let mut write = self.env.write_txn().map_err(error)?;
        self.rows.put(&mut write, &key, value).map_err(error)?;
        write.commit().map_err(error)?;
        // Each commit is synced by LMDB itself, where each has to be.
        if !self.durable.each && self.durable.due() {
            self.env.force_sync().map_err(error)?;
        }
        Ok(())
    }
    fn scan(&self, _: usize, first: u64, limit: usize) -> Result<usize, LabError> {
        let read = self.env.read_txn().map_err(error)?;
        let mut seen = 0;
        let rows = self.rows.range(&read, &(first..)).map_err(error)?;
        for row in rows.take(limit) {
            row.map_err(error)?;
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
    let path = setting.dir.join("lmdb");
    let load = setting.load;
    fathom_files::create::private_dir(&path).map_err(error)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP).max_readers(load.threads + 16);
    // Reading ahead would fill the cache with what nobody asked for.
    let mut flags = EnvFlags::NO_READ_AHEAD;
    flags.set(EnvFlags::NO_SYNC, !setting.commit);
    // SAFETY: the file is the lab's own, in a directory of its own: nobody else opens or changes it. Without syncs a
    // crash of the machine loses a database that is removed in any case.
    let env = unsafe { options.flags(flags).open(&path) }.map_err(error)?;
    let write = env.write_txn().map_err(error)?;
    let made = env.create_databases_and_commit(write, |opener, write| {
        let rows = opener.create_database::<U64<BE>, Bytes>(write, None)?;
        Ok::<_, ::heed::Error>(CommitOrAbort::<_, ()>::Commit(rows))
    });
    let rows: Rows<'_> = made.map_err(error)?.unwrap_commit();
    let bytes = vec![0x5a; load.value as usize];
    for batch in load.first_keys().chunks(BATCH) {
        let mut write = env.write_txn().map_err(error)?;
        for key in batch {
            rows.put(&mut write, key, &bytes).map_err(error)?;
        }
        write.commit().map_err(error)?;
        if (setting.stop)() {
            break;
        }
    }
    env.force_sync().map_err(error)?;
    let tree = Lmdb {
        env: &env,
        rows,
        durable: Durable::of(setting),
    };
    let file = path.join("data.mdb");
    let map = mapped_at(&file).ok_or_else(|| error("its file is not mapped"))?;
    let evictor = Evictor::mapped(map, file, setting.cache);
    let outcome = load::run(&tree, load, setting.stop, tick);
    drop(evictor);
    drop(env);
    let _ = std::fs::remove_dir_all(path);
    outcome
}

/// Where this process has a file in memory.
fn mapped_at(file: &Path) -> Option<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let file = file.canonicalize().ok()?;
    let line = maps
        .lines()
        .find(|l| l.ends_with(&*file.to_string_lossy()))?;
    usize::from_str_radix(line.split('-').next()?, 16).ok()
}

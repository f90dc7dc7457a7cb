//! The tree on a real target: how it is made, filled, opened and loaded.

use std::sync::Arc;
use std::time::Duration;

use fathom_host::CounterSource;
use fathom_kv::{Durability, Engine, FileStore, Options};
use fathom_telemetry::Nanos;

use super::load::{self, Outcome};
use super::{Cell, KvOptions, load_of};
use crate::LabError;

impl KvOptions {
    /// How the tree is made and filled: without a log, and with a pool of its own.
    pub(super) fn filling(&self, half: u64, cell: &Cell) -> Options {
        Options {
            page_bytes: cell.page,
            pool_bytes: 64 << 20,
            log_bytes: (half / 8).clamp(1 << 20, 256 << 20),
            durability: Durability::Checkpoint,
            checkpoint_every: Some(Duration::from_secs(1)),
            write_ahead: true,
        }
    }

    /// How one of so many leaves is opened and measured.
    pub(super) fn measuring(&self, half: u64, cell: &Cell, leaves: u64) -> Options {
        Options {
            pool_bytes: if cell.keys == 0 {
                // What an empty tree will grow to is not known: the share is of the half.
                (half as f64 * cell.cache / 100.0 / 4.0) as u64
            } else {
                (leaves as f64 * cell.cache / 100.0).ceil() as u64 * cell.page
            },
            durability: match self.commit {
                true => Durability::Commit,
                false => Durability::Checkpoint,
            },
            ..self.filling(half, cell)
        }
    }
}

/// A tree in the first half of a range, and how it is loaded.
pub(super) struct Setup<'a> {
    pub(super) options: &'a KvOptions,
    /// Bytes of the range.
    pub(super) size: u64,
    /// Ramp and measured time.
    pub(super) length: (Nanos, Nanos),
    /// Others are measured at the same time: the ramp is as long as theirs.
    pub(super) together: bool,
    pub(super) device: Option<&'a CounterSource>,
}

impl Setup<'_> {
    /// Fills the tree, says that it is `ready`, and loads it: what came of that, its leaves, and the bytes of its cache.
    pub(super) fn tree(
        &self,
        (cell, repeat): (&Cell, u32),
        file: &Arc<std::fs::File>,
        stop: &dyn Fn() -> bool,
        ready: &mut dyn FnMut(),
        tick: &mut dyn FnMut(f64),
    ) -> Result<(Outcome, u64, u64), LabError> {
        let half = self.options.half(self.size);
        let store = || Arc::new(FileStore::new(Arc::clone(file), half));
        let engine = Engine::create(store(), &self.options.filling(half, cell))?;
        let mut load = load_of(self.length, cell, self.options, repeat, self.device);
        if self.together {
            load.ramp_max = Some(load.ramp);
        }
        load::fill(&engine, load.first_keys().into_iter(), cell.value, stop)?;
        let leaves = engine.leaves();
        engine.close()?;
        let engine = Engine::open(store(), &self.options.measuring(half, cell, leaves))?;
        ready();
        let outcome = load::run(&engine, &load, stop, tick)?;
        Ok((outcome, engine.leaves(), engine.frames() * cell.page))
    }
}

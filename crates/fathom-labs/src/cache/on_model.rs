//! The tree on a model (`played`). What the cache answers takes t_load, what it does not is an I/O of the model beside.

use std::sync::Arc;

use fathom_bench::{Bench, BenchError, NotebookError};
use fathom_kv::Store;
use fathom_telemetry::{Bytes, Nanos};

use super::real::reads;
use super::{
    At, CacheOptions, Data, Line, Measured, Place, fill_options, frames, kv_options, log_bytes,
    warm,
};
use crate::LabError;
use crate::kv::keys::Keys;
use crate::kv::load::Load;
use crate::played::{self, MemoryStore, Played};

/// A filled tree in memory.
pub(super) struct Virtual {
    store: Arc<MemoryStore>,
    leaves: u64,
}

impl Virtual {
    pub(super) fn fill(data: Data, o: &CacheOptions, bench: &dyn Bench) -> Result<Self, LabError> {
        let store = Arc::new(MemoryStore::new(data.bytes * 5 / 2 + (8 << 20)));
        let control = bench.control();
        let stop = move || control.interrupted();
        let options = fill_options(o, store.len());
        let leaves = played::fill(&store, &options, 0..data.keys, o.value, stop)?;
        Ok(Self { store, leaves })
    }
}

impl Place for Virtual {
    fn leaves(&self) -> u64 {
        self.leaves
    }
    /// A model has no engine of its own: t_load is all that it takes.
    fn extra(&self) -> f64 {
        0.0
    }
    fn cores(&self) -> Option<f64> {
        None
    }
    fn cached(&self, _: Keys, at: &mut At<'_>) -> Result<(f64, Option<usize>), NotebookError> {
        Ok((at.options.load.0 as f64, None))
    }
    fn measure(
        &self,
        line: Line,
        hint: Option<f64>,
        at: &mut At<'_>,
    ) -> Result<Option<Measured>, NotebookError> {
        /// Requests of each thread: enough for a hit share within a percent.
        const REQUESTS: f64 = 20_000.0;
        let o = at.options;
        let frames = frames(self.leaves, line.share);
        let options = kv_options(o, frames, log_bytes(self.store.len()));
        let tree = Played::open(&self.store, &options)?;
        let control = at.bench.control();
        let stop = || control.interrupted();
        let warm = warm(tree.engine(), line, at.data, at.seed("warm-up"), 1, &stop)?;
        let asked = REQUESTS * hint.unwrap_or(100_000.0);
        let load = Load {
            ramp: Nanos(asked as u64 / 20),
            time: Nanos(asked as u64).max(Nanos::from_millis(20)),
            ..reads(
                line.keys,
                at.data.keys,
                o.threads,
                at.seed(line.keys.name()),
            )
        };
        let mut spec = at
            .plan
            .job(
                &format!("{}-{}pc", line.keys.name(), line.share),
                &[("rw", "randread")],
            )
            .map_err(BenchError::from)?;
        spec.bs = fathom_io::job::BlockSizes::one(o.page.0);
        spec.offset = Bytes(0);
        tree.terms(&mut spec, &load);
        let (index, counted) = tree.load(load, o.load, |guide| at.job(spec, Some(guide)))?;
        let Some(index) = index else {
            return Ok(None);
        };
        let outcome = counted.outcome(&at.book.run().jobs[index]);
        let latency = outcome.load.latency();
        let (seconds, ops) = (outcome.load.wall.as_secs_f64(), latency.count());
        Ok((ops > 0).then(|| {
            let asked = (outcome.stats.hits + outcome.stats.misses).max(1) as f64;
            Measured {
                job: index,
                rate: ops as f64 / seconds,
                latency: f64::from(o.threads) * seconds * 1e9 / ops as f64,
                hits: outcome.stats.hits as f64 / asked,
                p99: latency.quantile_supported(0.99, 10).map(|v| v as f64),
                warm,
            }
        }))
    }
}

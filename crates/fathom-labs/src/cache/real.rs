//! The tree on the target itself, and what it spends on a miss of its own.

use std::sync::Arc;

use fathom_bench::{Bench, NotebookError, Plan};
use fathom_kv::{Engine, FileStore, Options, Store};
use fathom_telemetry::Nanos;
use serde_json::json;

use super::{
    At, CacheOptions, Data, Line, Measured, Place, fill, frames, kv_options, log_bytes, warm,
};
use crate::LabError;
use crate::kv::keys::Keys;
use crate::kv::load::{self, Load, Mix};
use crate::loads::About;
use crate::played::MemoryStore;

/// The tree on the target itself.
pub(super) struct Real {
    file: Arc<std::fs::File>,
    len: u64,
    leaves: u64,
    extra: f64,
}

impl Real {
    pub(super) fn fill(
        file: Arc<std::fs::File>,
        data: Data,
        plan: &Plan,
        o: &CacheOptions,
        bench: &dyn Bench,
    ) -> Result<Self, LabError> {
        let len = plan.limits.size / 2 / 65536 * 65536;
        let store = Arc::new(FileStore::new(Arc::clone(&file), len));
        let leaves = fill(store, data, o, &|| bench.interrupted())?;
        Ok(Self {
            file,
            len,
            leaves,
            extra: extra(o)?,
        })
    }

    fn measured(&self, line: Line, at: &mut At<'_>) -> Result<Measured, LabError> {
        /// Threads that fill the cache.
        const FILLING: u64 = 16;
        let o = at.options;
        let store = Arc::new(FileStore::new(Arc::clone(&self.file), self.len));
        let frames = if line.share >= 100.0 {
            self.leaves + Options::FRAMES_MIN
        } else {
            frames(self.leaves, line.share)
        };
        let engine = Engine::open(store, &kv_options(o, frames, log_bytes(self.len)))?;
        let control = at.bench.control();
        let stop = || control.interrupted();
        let seed = at.seed(line.keys.name());
        let warmed = warm(&engine, line, at.data, seed, FILLING, &stop)?;
        let device = load::counters(at.bench);
        let load = Load {
            device: device.as_ref(),
            ramp: at.plan.profile.ramp,
            time: at.plan.profile.job_time,
            ..reads(line.keys, at.data.keys, o.threads, seed)
        };
        let outcome = load::run(&engine, &load, &stop, &mut crate::clients::ticker(at.sink))?;
        let asked = (outcome.stats.hits + outcome.stats.misses).max(1) as f64;
        let (seconds, ops) = (outcome.load.wall.as_secs_f64(), outcome.load.operations());
        let p99 = crate::loads::quantile(&outcome.load.latency(), 0.99);
        let about = About {
            experiment: "cache",
            name: &format!("{}-{}pc-{}", line.keys.name(), line.share, o.threads),
            repeat: at.number,
            engine: "fathom-kv",
            spec: json!({ "line": line, "options": o, "seed": seed }),
            device: outcome.device,
            ours: true,
        };
        Ok(Measured {
            job: outcome.load.keep(at.book, about),
            rate: ops as f64 / seconds,
            latency: f64::from(o.threads) * seconds * 1e9 / ops.max(1) as f64,
            hits: outcome.stats.hits as f64 / asked,
            p99,
            warm: warmed,
        })
    }
}

pub(super) fn reads<'a>(keys: Keys, count: u64, threads: u32, seed: u64) -> Load<'a> {
    Load {
        mix: Mix {
            read: 100,
            update: 0,
            insert: 0,
            scan: 0,
        },
        keys,
        count,
        hashed: false,
        value: 0,
        threads,
        ramp: Nanos::from_millis(20),
        ramp_max: None,
        time: Nanos::from_millis(200),
        rate: None,
        seed,
        device: None,
    }
}

/// What a miss takes of the engine beyond a hit (a frame is found, the page is checked), without a device: a tree in
/// memory, ns.
fn extra(o: &CacheOptions) -> Result<f64, LabError> {
    const BYTES: u64 = 16 << 20;
    let data = Data {
        keys: BYTES / (12 + u64::from(o.value)),
        bytes: BYTES,
        apart: 0,
    };
    let store = Arc::new(MemoryStore::new(4 * BYTES));
    let leaves = fill(store.clone(), data, o, &|| false)?;
    let cost = |frames: u64| -> Result<(f64, f64), LabError> {
        let options = kv_options(o, frames, log_bytes(store.len()));
        let engine = Engine::open(store.clone(), &options)?;
        let line = Line {
            keys: Keys::Uniform,
            share: 100.0,
        };
        warm(&engine, line, data, 1, 1, &|| false)?;
        let outcome = load::run(
            &engine,
            &reads(Keys::Uniform, data.keys, 1, 1),
            &|| false,
            &mut |_| (),
        )?;
        let misses = outcome.stats.misses as f64 / outcome.operations.max(1) as f64;
        let ops = outcome.load.operations().max(1) as f64;
        Ok((outcome.load.wall.0 as f64 / ops, misses))
    };
    let (hit, _) = cost(leaves + Options::FRAMES_MIN)?;
    let (miss, share) = cost(Options::FRAMES_MIN)?;
    Ok(((miss - hit) / share.max(0.1)).max(0.0))
}

impl Place for Real {
    fn leaves(&self) -> u64 {
        self.leaves
    }
    fn extra(&self) -> f64 {
        self.extra
    }
    fn cores(&self) -> Option<f64> {
        Some(std::thread::available_parallelism().map_or(1, |n| n.get()) as f64)
    }
    /// By one thread: what several take from each other is in the number of processors.
    fn cached(&self, keys: Keys, at: &mut At<'_>) -> Result<(f64, Option<usize>), NotebookError> {
        let options = CacheOptions {
            threads: 1,
            ..at.options.clone()
        };
        let mut alone = At {
            bench: &mut *at.bench,
            plan: at.plan,
            options: &options,
            data: at.data,
            number: at.number,
            book: &mut *at.book,
            sink: &mut *at.sink,
        };
        let line = Line { keys, share: 100.0 };
        let measured = self.measured(line, &mut alone)?;
        Ok((measured.latency, Some(measured.job)))
    }
    fn measure(
        &self,
        line: Line,
        _hint: Option<f64>,
        at: &mut At<'_>,
    ) -> Result<Option<Measured>, NotebookError> {
        Ok(Some(self.measured(line, at)?))
    }
}

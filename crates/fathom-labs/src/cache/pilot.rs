//! The tree on a model: it really runs, over memory, inside the threads of a job in virtual time. What the cache answers
//! takes t_load, what it does not is an I/O of the model.

use std::sync::{Arc, Mutex, PoisonError};

use fathom_bench::NotebookError;
use fathom_io::load::{Guide, Next, Pilot, PilotIo};
use fathom_kv::Engine;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Bytes, Histogram, Nanos, Op};

use super::memory::MemoryStore;
use super::{
    At, CacheOptions, Data, Line, Measured, Place, fill, frames, kv_options, log_bytes, warm,
};
use crate::LabError;
use crate::kv::keys::{Drawer, Keys};

/// A filled tree in memory.
pub(super) struct Virtual {
    store: Arc<MemoryStore>,
    leaves: u64,
}

impl Virtual {
    pub(super) fn fill(data: Data, o: &CacheOptions) -> Result<Self, LabError> {
        let store = Arc::new(MemoryStore::new(data.bytes * 5 / 2 + (8 << 20)));
        let leaves = fill(store.clone(), data, o, &|| false)?;
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
        let open = || -> Result<(Engine, bool), LabError> {
            let options = kv_options(
                o,
                frames(self.leaves, line.share),
                log_bytes(self.store_len()),
            );
            let engine = Engine::open(self.store.clone(), &options)?;
            let seed = at.seed("warm-up");
            let control = at.bench.control();
            let stop = || control.interrupted();
            let warm = warm(&engine, line, at.data, seed, 1, &stop)?;
            Ok((engine, warm))
        };
        let (engine, warm) = open()?;
        let shared = Arc::new(Shared {
            engine,
            drawer: Drawer::new(line.keys, at.data.keys),
            keys: at.data.keys,
            load: o.load,
            seed: at.seed(line.keys.name()),
            tally: Mutex::default(),
            store: Arc::clone(&self.store),
        });
        self.store.note();
        let mut spec = at
            .plan
            .job(
                &format!("{}-{}pc", line.keys.name(), line.share),
                &[("rw", "randread"), ("qd", "1")],
            )
            .map_err(fathom_bench::BenchError::from)?;
        let asked = REQUESTS * hint.unwrap_or(100_000.0);
        spec.time = Some(Nanos(asked as u64).max(Nanos::from_millis(20)));
        spec.ramp = Nanos(asked as u64 / 20);
        spec.bs = fathom_io::job::BlockSizes::one(o.page.0);
        spec.threads = o.threads;
        spec.offset = Bytes(0);
        let makes = Arc::clone(&shared);
        let guide = Guide {
            pilot: Some(Arc::new(move |thread| {
                Box::new(Reader::new(Arc::clone(&makes), thread)) as Box<dyn Pilot>
            })),
            ..Guide::default()
        };
        let Some(index) = at.job(spec, Some(guide))? else {
            return Ok(None);
        };
        let wall = at.book.run().jobs[index].wall_ns;
        let tally = shared.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = (tally.requests > 0 && wall > 0).then(|| {
            let n = tally.requests as f64;
            Measured {
                job: index,
                rate: n / wall as f64 * 1e9,
                latency: tally.sum / n,
                hits: 1.0 - tally.misses as f64 / n,
                p99: tally.latency.quantile_supported(0.99, 10).map(|v| v as f64),
                warm,
            }
        });
        Ok(measured)
    }
}

impl Virtual {
    fn store_len(&self) -> u64 {
        fathom_kv::Store::len(&*self.store)
    }
}

/// What came of it.
#[derive(Default)]
struct Tally {
    requests: u64,
    misses: u64,
    /// Of their latencies, ns.
    sum: f64,
    latency: Histogram,
}

/// What the threads of a job share. In virtual time they take turns, so their order is always the same.
struct Shared {
    engine: Engine,
    drawer: Drawer,
    keys: u64,
    load: Nanos,
    seed: u64,
    tally: Mutex<Tally>,
    store: Arc<MemoryStore>,
}

/// One thread that asks for key after key.
struct Reader {
    shared: Arc<Shared>,
    random: SplitMix64,
    value: Vec<u8>,
    /// The request under way.
    began: Option<Nanos>,
    /// Until then the processor is busy with it.
    ready: Nanos,
    /// I/Os that it needs, and how many were issued.
    ios: Vec<(u64, u32)>,
    issued: usize,
    measured_from: Nanos,
}

impl Reader {
    fn new(shared: Arc<Shared>, thread: u32) -> Self {
        let random =
            SplitMix64::new(shared.seed ^ SplitMix64::new(u64::from(thread) + 1).next_u64());
        Self {
            shared,
            random,
            value: Vec::new(),
            began: None,
            ready: Nanos::ZERO,
            ios: Vec::new(),
            issued: 0,
            measured_from: Nanos::ZERO,
        }
    }

    /// Counts the request that has just ended.
    fn end(&mut self, now: Nanos) {
        let Some(began) = self.began.take() else {
            return;
        };
        if began < self.measured_from {
            return;
        }
        let mut tally = self
            .shared
            .tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let took = now.since(began).0;
        tally.requests += 1;
        tally.misses += u64::from(!self.ios.is_empty());
        tally.sum += took as f64;
        tally.latency.record(took);
    }
}

impl Pilot for Reader {
    fn start(&mut self, origin: Nanos) {
        self.measured_from = origin;
    }

    fn next(&mut self, now: Nanos) -> Next {
        if now < self.ready {
            return Next::At(self.ready);
        }
        if let Some((offset, len)) = self.ios.get(self.issued).copied() {
            self.issued += 1;
            return Next::Start(PilotIo {
                op: Op::Read,
                offset,
                len,
                file: 0,
                priority: 0,
            });
        }
        self.end(now);
        let shared = &self.shared;
        let key = shared.drawer.draw(shared.keys, &mut self.random);
        self.ios.clear();
        self.issued = 0;
        if shared.engine.get(key, &mut self.value).is_err() {
            // Memory does not fail; a tree that contradicts itself has nothing more to say.
            return Next::End;
        }
        shared.store.take(&mut self.ios);
        self.began = Some(now);
        self.ready = now + shared.load;
        Next::At(self.ready)
    }
}

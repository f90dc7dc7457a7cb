//! The load on the tree: which key, which operation, by how many threads, and what came of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fathom_host::CounterSource;
use fathom_io::clock::{Clock, process_cpu};
use fathom_kv::{Engine, KvError, Stats};
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Histogram, Nanos};

use super::engines::Tree;
use super::keys::{Drawer, Keys};
use crate::LabError;
use fathom_system::kernel_threads::{Family, Snapshot};

/// Shares of operations in percent; the rest are read-modify-writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Point reads.
    pub read: u32,
    /// Updates of keys that exist.
    pub update: u32,
    /// New keys: in order where the workload reads, else random.
    pub insert: u32,
    /// Range reads of 1 to 100 keys.
    pub scan: u32,
}

/// What one cell does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    /// Operations.
    pub mix: Mix,
    /// Distribution.
    pub keys: Keys,
    /// Keys in the tree.
    pub count: u64,
    /// Bytes of a value.
    pub value: u32,
    /// Threads.
    pub threads: u32,
    /// Left out at the start.
    pub ramp: Nanos,
    /// Measured.
    pub time: Nanos,
    /// Seed.
    pub seed: u64,
    /// Counts what the device does, where something does.
    pub device: Option<&'a CounterSource>,
}

/// What came of it.
pub(crate) struct Outcome {
    /// Operations in the measured time.
    pub ops: u64,
    /// Measured time, s.
    pub seconds: f64,
    /// Latency of operations, ns.
    pub latency: Histogram,
    /// (seconds since the start of the ramp, operations per second).
    pub series: Vec<(f64, f64)>,
    /// The engine's counters.
    pub stats: Stats,
    /// CPU time of the process and of the kernel's own threads (kworker, kswapd), s.
    pub cpu: f64,
    /// See `cpu`.
    pub kernel_cpu: f64,
    /// Reads and writes that the device completed.
    pub device: Option<[u64; 2]>,
}

/// On a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

/// Runs the load; an interruption ends it early.
///
/// # Errors
/// The first failure of an operation.
pub(crate) fn run(
    tree: &dyn Tree,
    load: &Load<'_>,
    control: &dyn Fn() -> bool,
    tick: &mut dyn FnMut(f64),
) -> Result<Outcome, LabError> {
    const TICK: Duration = Duration::from_millis(100);
    let drawer = Drawer::new(load.keys, load.count);
    let newest = AtomicU64::new(load.count);
    // Without a ramp everything counts, from the first operation on.
    let at_once = load.ramp == Nanos::ZERO;
    let (stop, measuring) = (AtomicBool::new(false), AtomicBool::new(at_once));
    let counts: Vec<Count> = (0..load.threads).map(|_| Count::default()).collect();
    let total = || -> u64 { counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum() };
    let worker = |thread: usize| -> Result<Histogram, LabError> {
        let clock = Clock::new();
        let mut random = SplitMix64::new(load.seed ^ SplitMix64::new(thread as u64 + 1).next_u64());
        let bytes: Vec<u8> = (0..load.value).map(|_| random.next_u64() as u8).collect();
        let mut found = Vec::new();
        let mut latency = Histogram::new();
        let mut began = clock.now();
        while !stop.load(Ordering::Relaxed) {
            let dice = random.below(100) as u32;
            let mix = &load.mix;
            let limit = newest.load(Ordering::Relaxed);
            let key = drawer.draw(limit, &mut random);
            if dice < mix.read {
                tree.get(thread, key, &mut found)?;
            } else if dice < mix.read + mix.update {
                tree.put(thread, key, &bytes)?;
            } else if dice < mix.read + mix.update + mix.insert {
                let key = if mix.insert == 100 {
                    random.next_u64()
                } else {
                    newest.fetch_add(1, Ordering::Relaxed)
                };
                tree.put(thread, key, &bytes)?;
            } else if dice < mix.read + mix.update + mix.insert + mix.scan {
                tree.scan(thread, key, 1 + random.below(100))?;
            } else {
                tree.get(thread, key, &mut found)?;
                tree.put(thread, key, &bytes)?;
            }
            let now = clock.now();
            if measuring.load(Ordering::Relaxed) {
                latency.record(now.0.saturating_sub(began.0));
            }
            began = now;
            counts[thread].0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(latency)
    };
    std::thread::scope(|scope| {
        let clock = Clock::new();
        let mut base = Sample::take(tree, load.device, &clock, &total);
        let workers: Vec<_> = (0..load.threads as usize)
            .map(|t| fathom_io::threads::within(scope, move || worker(t)))
            .collect::<Result<_, _>>()
            .map_err(|e| {
                stop.store(true, Ordering::Relaxed);
                LabError::Failed(e.to_string())
            })?;
        let start = clock.now();
        let mut series = Vec::new();
        let mut last = (start, 0);
        let mut ramped = at_once;
        loop {
            std::thread::sleep(TICK);
            let (now, ops) = (clock.now(), total());
            let since = now.0 - last.0.0;
            let rate = (ops - last.1) as f64 / since.max(1) as f64 * 1e9;
            series.push(((now.0 - start.0) as f64 / 1e9, rate));
            tick(rate);
            last = (now, ops);
            if !ramped && now.0 - start.0 >= load.ramp.0 {
                base = Sample::take(tree, load.device, &clock, &total);
                measuring.store(true, Ordering::Relaxed);
                ramped = true;
            }
            let ended = workers.iter().any(|w| w.is_finished());
            // The time counts from the end of the ramp, however late this thread came to see it.
            let full = ramped && now.0.saturating_sub(base.at.0) >= load.time.0;
            if control() || ended || full {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let mut latency = Histogram::new();
        for w in workers {
            match w.join() {
                Ok(h) => latency.merge(&h?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // Nothing moves any more: the last sample and the histogram speak of the same operations.
        let end = Sample::take(tree, load.device, &clock, &total);
        Ok(Outcome {
            ops: end.ops - base.ops,
            seconds: (end.at.0 - base.at.0) as f64 / 1e9,
            latency,
            series,
            stats: end.stats.since(&base.stats),
            cpu: end.cpu - base.cpu,
            kernel_cpu: kernel_cpu(&end.kernel, &base.kernel),
            device: end
                .device
                .zip(base.device)
                .map(|(e, b)| [e[0] - b[0], e[1] - b[1]]),
        })
    })
}

/// What has been counted up to a moment.
struct Sample {
    at: Nanos,
    ops: u64,
    stats: Stats,
    /// CPU time of this process so far, s.
    cpu: f64,
    kernel: Snapshot,
    device: Option<[u64; 2]>,
}

/// Reads and writes that a device has completed.
pub(crate) fn device_ios(source: Option<&CounterSource>) -> Option<[u64; 2]> {
    let now = source?.read().ok()?;
    Some([now.read_ios, now.write_ios])
}

impl Sample {
    /// Reads everything at once; again where this thread lost its processor in between, for operations went on.
    fn take(
        tree: &dyn Tree,
        source: Option<&CounterSource>,
        clock: &Clock,
        total: &dyn Fn() -> u64,
    ) -> Self {
        const ONE_MOMENT: u64 = 200_000;
        let (kernel, device) = (Snapshot::take(), device_ios(source));
        let mut tries = 0;
        loop {
            let at = clock.now();
            let (ops, stats, (user, system)) = (total(), tree.stats(), process_cpu());
            tries += 1;
            if clock.now().0 - at.0 <= ONE_MOMENT || tries == 20 {
                let cpu = (user.0 + system.0) as f64 / 1e9;
                return Self {
                    at,
                    ops,
                    stats,
                    cpu,
                    kernel,
                    device,
                };
            }
        }
    }
}

/// CPU time of the kernel threads that write back and reclaim between two moments, s; 0 where /proc does not say.
pub(super) fn kernel_cpu(now: &Snapshot, before: &Snapshot) -> f64 {
    let of = |family| now.since(before, family).as_secs_f64();
    of(Family::Kworker) + of(Family::Kswapd)
}

/// Fills a tree with keys 0..count in order, so that its leaves are full.
///
/// # Errors
/// The first failure of an operation.
pub(crate) fn fill(
    engine: &Engine,
    count: u64,
    value: u32,
    control: &dyn Fn() -> bool,
) -> Result<(), KvError> {
    let mut random = SplitMix64::new(count);
    let bytes: Vec<u8> = (0..value).map(|_| random.next_u64() as u8).collect();
    for key in 0..count {
        engine.put(key, &bytes)?;
        if key % 4096 == 0 && control() {
            break;
        }
    }
    engine.checkpoint()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_counts_what_it_does() {
        let store = std::sync::Arc::new(fathom_kv::sim::SimStore::zeroed(32 << 20));
        let options = fathom_kv::Options {
            pool_bytes: 0,
            log_bytes: 1 << 20,
            durability: fathom_kv::Durability::Checkpoint,
            ..fathom_kv::Options::default()
        };
        let engine = Engine::create(store, &options).unwrap();
        fill(&engine, 100_000, 0, &|| false).unwrap();
        let load = Load {
            mix: Mix {
                read: 0,
                update: 100,
                insert: 0,
                scan: 0,
            },
            keys: Keys::Uniform,
            count: 100_000,
            value: 0,
            threads: 4,
            ramp: Nanos::from_millis(100),
            time: Nanos::from_millis(300),
            seed: 1,
            device: None,
        };
        let outcome = run(&engine, &load, &|| false, &mut |_| ()).unwrap();
        let stats = outcome.stats;
        assert!(outcome.ops > 0 && outcome.seconds >= 0.3);
        // Each update looks at one leaf. How many are under way when the ramp ends depends on the machine; that
        // each was counted once, everywhere, does not.
        let seen = stats.hits + stats.misses;
        let slack = 64 + outcome.ops / 5;
        assert!(
            seen.abs_diff(outcome.ops) < slack,
            "{seen} of {}",
            outcome.ops
        );
        assert!(outcome.series.len() >= 2 && outcome.latency.count() <= outcome.ops);
        assert_eq!(engine.check().unwrap().keys, 100_000);
    }
}

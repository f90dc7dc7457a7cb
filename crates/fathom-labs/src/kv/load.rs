//! The load on the tree: which key, which operation, by how many threads, and what came of it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_bench::Bench;
use fathom_host::CounterSource;
use fathom_io::clock::monotonic;
use fathom_io::target::count;
use fathom_kv::{Engine, KvError, Stats};
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::schema::DeviceDelta;
use fathom_telemetry::{Nanos, Op};

use super::keys::{Drawer, Keys};
use crate::LabError;
use crate::clients::{self, Client, Loop, Total};
use crate::confounders::missed_alike;
use crate::loads;
use fathom_system::kernel_threads::{Family, Snapshot};

/// What is done to a tree; by many threads at the same time.
pub(crate) trait Tree: Sync {
    /// Copies a value.
    fn get(&self, thread: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError>;
    /// Stores a value.
    fn put(&self, thread: usize, key: u64, value: &[u8]) -> Result<(), LabError>;
    /// Reads up to `limit` keys from `first` on.
    fn scan(&self, thread: usize, first: u64, limit: usize) -> Result<usize, LabError>;
    /// What the engine counts, where it does.
    fn stats(&self) -> Stats {
        Stats::default()
    }
    /// Share of its cache that is in use, where it says so.
    fn filled(&self) -> Option<f64> {
        None
    }
}

impl Tree for Engine {
    fn get(&self, _: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError> {
        Ok(Engine::get(self, key, value)?)
    }
    fn put(&self, _: usize, key: u64, value: &[u8]) -> Result<(), LabError> {
        Engine::put(self, key, value)?;
        Ok(())
    }
    fn scan(&self, _: usize, first: u64, limit: usize) -> Result<usize, LabError> {
        Ok(Engine::scan(self, first, limit, |_, _| ())?)
    }
    fn stats(&self) -> Stats {
        Engine::stats(self)
    }
    fn filled(&self) -> Option<f64> {
        Some(Engine::filled(self))
    }
}

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
    /// Whether keys are hashed.
    pub hashed: bool,
    /// Bytes of a value.
    pub value: u32,
    /// Threads.
    pub threads: u32,
    /// Left out at the start, at least.
    pub ramp: Nanos,
    /// Longest ramp, while the cache is cold; `None` where whoever loads it has warmed it.
    pub ramp_max: Option<Nanos>,
    /// Measured.
    pub time: Nanos,
    /// Operations per second that come, whatever was answered.
    pub rate: Option<f64>,
    /// Seed.
    pub seed: u64,
    /// Counts what the device does, where something does.
    pub device: Option<&'a CounterSource>,
}

impl Load<'_> {
    /// The key of a number; YCSB hashes them, so that what is inserted later does not lie behind all that was there.
    fn key(&self, number: u64) -> u64 {
        match self.hashed {
            true => SplitMix64::new(number).next_u64(),
            false => number,
        }
    }

    /// What a thread draws from.
    pub(crate) fn random(&self, thread: usize) -> SplitMix64 {
        SplitMix64::new(self.seed ^ SplitMix64::new(thread as u64 + 1).next_u64())
    }

    /// Keys of the tree at the start, in order, so that filling it leaves full pages.
    pub(crate) fn first_keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = (0..self.count).map(|n| self.key(n)).collect();
        keys.sort_unstable();
        keys
    }
}

/// What came of it.
pub(crate) struct Outcome {
    /// By windows.
    pub(crate) load: loads::Load,
    /// Operations while the rest was counted.
    pub(crate) operations: u64,
    /// The engine's counters.
    pub(crate) stats: Stats,
    /// CPU time of the kernel's own threads (kworker, kswapd), s.
    pub(crate) kernel_cpu: f64,
    /// What the device counted.
    pub(crate) device: Option<DeviceDelta>,
}

impl Outcome {
    /// I/Os that the device had at the same time while the load ran, on average.
    pub(crate) fn depth(&self) -> Option<u32> {
        let device = self.device.as_ref()?;
        let waited = (device.read_ticks_ms + device.write_ticks_ms) as f64 / 1000.0;
        let depth = (waited / self.load.wall.as_secs_f64()).round() as u32;
        (device.read_ios + device.write_ios > 100).then(|| depth.clamp(1, 1024))
    }
}

/// Runs the load; an interruption ends it early.
///
/// # Errors
/// The first failure of an operation.
pub(crate) fn run(
    tree: &dyn Tree,
    load: &Load<'_>,
    stop: &dyn Fn() -> bool,
    tick: &mut dyn FnMut(f64),
) -> Result<Outcome, LabError> {
    let drawer = Drawer::new(load.keys, load.count);
    let newest = AtomicU64::new(load.count);
    let (drawer, newest) = (&drawer, &newest);
    let client = |thread: usize| -> Client<'_, LabError> {
        Box::new(move |seat| {
            let mut random = load.random(thread);
            let bytes: Vec<u8> = (0..load.value).map(|_| random.next_u64() as u8).collect();
            let mut found = Vec::new();
            while let Some(came) = seat.next() {
                let op = operation(
                    tree,
                    load,
                    (drawer, newest),
                    thread,
                    &mut random,
                    (&bytes, &mut found),
                )?;
                seat.done(0, op, 8 + load.value, came);
            }
            Ok(())
        })
    };
    let looks = RefCell::new(Vec::new());
    let cold = || {
        let mut looks = looks.borrow_mut();
        looks.push(tree.stats());
        load.ramp_max.and(cold(tree.filled()?, &looks))
    };
    let how = Loop {
        open: load.rate.map(|rate| (rate, load.seed ^ 0xa441)),
        ramp: load.ramp,
        time: load.time,
        cold: &cold,
        ramp_max: load.ramp_max.unwrap_or(load.ramp),
        kinds: &[&[Op::Read, Op::Write]],
        stop,
    };
    let (mut before, mut after) = (None, None);
    let mut loads = clients::run(
        &how,
        (0..load.threads as usize).map(client).collect(),
        &mut |total| before = Some(Sample::take(tree, load.device, total)),
        &mut |total| after = Some(Sample::take(tree, load.device, total)),
        &|| (),
        tick,
    )?;
    let load = loads.remove(0);
    // One that was ended in its ramp has counted nothing.
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(Outcome {
            load,
            operations: 0,
            stats: Stats::default(),
            kernel_cpu: 0.0,
            device: None,
        });
    };
    Ok(Outcome {
        load,
        operations: after.operations - before.operations,
        stats: after.stats.since(&before.stats),
        kernel_cpu: kernel_cpu(&after.kernel, &before.kernel),
        device: after.device.zip(before.device).map(|(a, b)| a.since(&b)),
    })
}

/// What stands against so full a cache, looked at once per window: frames that nobody uses while others are missed, or a share
/// of misses that still changes.
fn cold(filled: f64, looks: &[Stats]) -> Option<&'static str> {
    let [.., earlier, before, now] = looks else {
        return Some("it had not been looked at for long enough");
    };
    let now = now.since(before);
    if is_filling(filled, &now) {
        return Some("its cache was still being filled");
    }
    let asked = |s: &Stats| [s.hits + s.misses, s.misses];
    let alike = missed_alike(asked(&before.since(earlier)), asked(&now));
    (!alike).then_some("its cache was not yet missed as often as before")
}

/// Whether a cache that is so full still grows: more than one access in a hundred misses it.
pub(crate) fn is_filling(filled: f64, seen: &Stats) -> bool {
    filled < 1.0 && seen.miss_ratio().is_some_and(|m| m > 0.01)
}

/// One operation; whether it read or wrote.
pub(crate) fn operation(
    tree: &dyn Tree,
    load: &Load<'_>,
    (drawer, newest): (&Drawer, &AtomicU64),
    thread: usize,
    random: &mut SplitMix64,
    (bytes, found): (&[u8], &mut Vec<u8>),
) -> Result<Op, LabError> {
    let dice = random.below(100) as u32;
    let mix = &load.mix;
    let key = load.key(drawer.draw(newest.load(Ordering::Relaxed), random));
    if dice < mix.read {
        tree.get(thread, key, found)?;
        return Ok(Op::Read);
    }
    if dice < mix.read + mix.update {
        tree.put(thread, key, bytes)?;
    } else if dice < mix.read + mix.update + mix.insert {
        let key = if mix.insert == 100 {
            random.next_u64()
        } else {
            load.key(newest.fetch_add(1, Ordering::Relaxed))
        };
        tree.put(thread, key, bytes)?;
    } else if dice < mix.read + mix.update + mix.insert + mix.scan {
        tree.scan(thread, key, 1 + random.below(100))?;
        return Ok(Op::Read);
    } else {
        tree.get(thread, key, found)?;
        tree.put(thread, key, bytes)?;
    }
    Ok(Op::Write)
}

/// Counters of the device that a bench measures.
pub(crate) fn counters(bench: &dyn Bench) -> Option<CounterSource> {
    CounterSource::locate(std::path::Path::new(&bench.describe().path?)).ok()
}

/// What has been counted up to a moment.
struct Sample {
    operations: u64,
    stats: Stats,
    kernel: Snapshot,
    device: Option<DeviceDelta>,
}

impl Sample {
    /// Reads everything at once; again where this thread lost its processor in between, for operations went on.
    fn take(tree: &dyn Tree, source: Option<&CounterSource>, total: Total<'_>) -> Self {
        const ONE_MOMENT: Nanos = Nanos::from_micros(200);
        let (kernel, device) = (Snapshot::take(), source.and_then(count));
        let mut tries = 0;
        loop {
            let at = monotonic();
            let (operations, stats) = (total(), tree.stats());
            tries += 1;
            if monotonic().since(at) <= ONE_MOMENT || tries == 20 {
                return Self {
                    operations,
                    stats,
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

/// Fills a tree with keys in order, so that its leaves are full.
///
/// # Errors
/// The first failure of an operation.
pub(crate) fn fill(
    engine: &Engine,
    keys: impl Iterator<Item = u64>,
    value: u32,
    control: &dyn Fn() -> bool,
) -> Result<(), KvError> {
    let mut random = SplitMix64::new(value.into());
    let bytes: Vec<u8> = (0..value).map(|_| random.next_u64() as u8).collect();
    for (i, key) in keys.enumerate() {
        engine.put(key, &bytes)?;
        if i % 4096 == 0 && control() {
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
        fill(&engine, 0..100_000, 0, &|| false).unwrap();
        let load = Load {
            mix: Mix {
                read: 0,
                update: 100,
                insert: 0,
                scan: 0,
            },
            keys: Keys::Uniform,
            count: 100_000,
            hashed: false,
            value: 0,
            threads: 4,
            ramp: Nanos::from_millis(100),
            ramp_max: Some(Nanos::from_secs(30)),
            time: Nanos::from_millis(300),
            rate: None,
            seed: 1,
            device: None,
        };
        let outcome = run(&engine, &load, &|| false, &mut |_| ()).unwrap();
        let (stats, ops) = (outcome.stats, outcome.load.operations());
        assert!(ops > 0 && outcome.load.wall >= load.time);
        // Each update looks at one leaf, and what is counted beside is counted at one moment; windows begin a moment
        // apart from it, which depends on the machine.
        let seen = stats.hits + stats.misses;
        let slack = 64 + outcome.operations / 100;
        assert!(
            seen.abs_diff(outcome.operations) < slack,
            "{seen} {}",
            outcome.operations
        );
        assert!(
            ops.abs_diff(outcome.operations) < 64 + ops / 5,
            "{ops} {}",
            outcome.operations
        );
        assert_eq!(engine.check().unwrap().keys, 100_000);
    }

    #[test]
    fn a_cache_that_fills_or_learns_is_cold() {
        let looks = |misses: [u64; 3]| {
            misses.map(|misses| Stats {
                hits: 100_000 - misses,
                misses,
                ..Stats::default()
            })
        };
        let sums = |misses: [u64; 3]| {
            let [a, b, c] = looks(misses);
            [a, a.and(&b), a.and(&b).and(&c)]
        };
        let steady = sums([9_000, 9_100, 9_000]);
        assert_eq!(cold(1.0, &steady), None);
        assert!(cold(1.0, &steady[..2]).is_some_and(|w| w.contains("long enough")));
        assert!(cold(0.9, &steady).is_some_and(|w| w.contains("filled")));
        // All that is asked for is in it.
        assert_eq!(cold(0.9, &sums([9_000, 500, 500])), None);
        assert!(cold(1.0, &sums([0, 20_000, 9_000])).is_some_and(|w| w.contains("missed")));
    }

    #[test]
    fn hashed_keys_lie_anywhere_and_are_found_again() {
        let load = Load {
            mix: Mix {
                read: 100,
                update: 0,
                insert: 0,
                scan: 0,
            },
            keys: Keys::Latest,
            count: 1000,
            hashed: true,
            value: 0,
            threads: 1,
            ramp: Nanos::ZERO,
            ramp_max: None,
            time: Nanos::ZERO,
            rate: None,
            seed: 1,
            device: None,
        };
        let keys = load.first_keys();
        assert!(keys.is_sorted() && keys.binary_search(&load.key(999)).is_ok());
        assert!(
            load.key(1000) < *keys.last().unwrap(),
            "a new key lies among the old ones"
        );
    }
}

//! Power fails at seeded points while several threads write: what was acknowledged is there afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fathom_kv::sim::SimStore;
use fathom_kv::{Durability, Engine, Options};
use fathom_stats::rng::SplitMix64;

const THREADS: u64 = 4;
const KEYS: usize = 500;
const LEN: usize = 6 << 20;
/// More than the least that is promised.
const POINTS: u64 = 320;

fn options(seed: u64, durability: Durability) -> Options {
    Options {
        page_bytes: 4096 << (seed % 3),
        pool_bytes: 0,
        log_bytes: 256 << 10,
        durability,
        checkpoint_every: Some(Duration::from_millis(1 + seed % 7)),
        // Pages are small and the pool is full of changes: both ways of writing them are in use.
        write_ahead: !seed.is_multiple_of(4),
    }
}

/// A value that says whose it is, and how often the key was written before.
fn value(key: u64, version: u32, random: &mut SplitMix64) -> Vec<u8> {
    let len = match random.below(8) {
        0 => 0,
        1 => 6000,
        n => n * 20,
    };
    let mut v = vec![version as u8; len];
    if len >= 12 {
        v[..8].copy_from_slice(&key.to_le_bytes());
        v[8..12].copy_from_slice(&version.to_le_bytes());
    }
    v
}

/// What a thread knows of its keys: the last state that was acknowledged, and the one that was not.
#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u64, Vec<u8>>,
    /// The change under way when the power failed: the key, and its value or none.
    open: Option<(u64, Option<Vec<u8>>)>,
    /// States before the last checkpoint that was acknowledged (for [`Durability::Checkpoint`]).
    changes: u64,
}

fn work(engine: &Engine, thread: u64, seed: u64, mut known: Known) -> Known {
    let mut random = SplitMix64::new(seed * 31 + thread);
    loop {
        let key = random.below(KEYS) as u64 * THREADS + thread;
        let change = if random.below(6) == 0 {
            None
        } else {
            Some(value(key, known.changes as u32, &mut random))
        };
        let done = match &change {
            Some(v) => engine.put(key, v),
            None => engine.delete(key),
        };
        if done.is_err() {
            known.open = Some((key, change));
            return known;
        }
        known.changes += 1;
        match change {
            Some(v) => known.acknowledged.insert(key, v),
            None => known.acknowledged.remove(&key),
        };
    }
}

/// Runs until the power fails at the given write or sync.
fn until_failure(
    seed: u64,
    image: Vec<u8>,
    before: Vec<Known>,
    lies: bool,
) -> (Vec<u8>, Vec<Known>) {
    let fails_at = 3 + SplitMix64::new(seed).below(1500) as u64;
    let store = SimStore::new(image, fails_at);
    let store = Arc::new(if lies { store.lying() } else { store });
    let options = options(seed, Durability::Commit);
    let engine = match Engine::open(store.clone(), &options) {
        Ok(e) => e,
        // The power failed while it was opened: nothing was acknowledged in this life.
        Err(_) => return (store.after_power_failure(seed), before),
    };
    let known = std::thread::scope(|s| {
        let workers: Vec<_> = before
            .into_iter()
            .enumerate()
            .map(|(t, known)| {
                let engine = &engine;
                s.spawn(move || work(engine, t as u64, seed, known))
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    drop(engine);
    (store.after_power_failure(seed), known)
}

/// What is wrong after recovery; puts what is found into `known`.
fn verify(seed: u64, image: &[u8], known: &mut [Known]) -> Result<(), String> {
    let store = Arc::new(SimStore::new(image.to_vec(), u64::MAX));
    let engine =
        Engine::open(store, &options(seed, Durability::Commit)).map_err(|e| e.to_string())?;
    engine.check().map_err(|e| e.to_string())?;
    let mut found = BTreeMap::new();
    engine
        .scan(0, usize::MAX, |k, v| {
            found.insert(k, v.to_vec());
        })
        .map_err(|e| e.to_string())?;
    for key in 0..KEYS as u64 * THREADS {
        let k = &mut known[(key % THREADS) as usize];
        let now = found.remove(&key);
        let acknowledged = k.acknowledged.get(&key) == now.as_ref();
        let open = k.open.as_ref().is_some_and(|o| o.0 == key && o.1 == now);
        if !acknowledged && !open {
            let len = |v: Option<&Vec<u8>>| v.map(|v| v.len());
            return Err(format!(
                "key {key}: found {:?}, acknowledged {:?}, under way {}",
                len(now.as_ref()),
                len(k.acknowledged.get(&key)),
                k.open.as_ref().is_some_and(|o| o.0 == key)
            ));
        }
        match now {
            Some(v) => k.acknowledged.insert(key, v),
            None => k.acknowledged.remove(&key),
        };
    }
    known.iter_mut().for_each(|k| k.open = None);
    if found.is_empty() {
        Ok(())
    } else {
        Err("there are keys that were never stored".into())
    }
}

fn fresh(seed: u64) -> (Vec<u8>, Vec<Known>) {
    let store = Arc::new(SimStore::zeroed(LEN));
    let engine = Engine::create(store.clone(), &options(seed, Durability::Commit)).unwrap();
    engine.close().unwrap();
    let known = (0..THREADS).map(|_| Known::default()).collect();
    (store.after_power_failure(0), known)
}

#[test]
fn every_acknowledged_commit_survives_power_failures() {
    let (mut points, mut changes) = (0, 0);
    // Several lives of one store: what recovery leaves must be as good as what it found.
    for group in 0..POINTS / 4 {
        let (mut image, mut known) = fresh(group);
        for life in 0..4 {
            let seed = group + life * 1000 * 3;
            let (after, mut now) = until_failure(seed, image, known, false);
            if let Err(e) = verify(seed, &after, &mut now) {
                panic!("seed {seed} (group {group}, life {life}): {e}");
            }
            (image, known) = (after, now);
            points += 1;
        }
        changes += known.iter().map(|k| k.changes).sum::<u64>();
    }
    assert_eq!(points, POINTS);
    assert!(
        changes > POINTS * 100,
        "only {changes} acknowledged changes"
    );
}

#[test]
fn a_device_that_lies_about_syncs_is_caught() {
    let caught = (0..20)
        .filter(|seed| {
            let (image, known) = fresh(*seed);
            let (after, mut known) = until_failure(*seed, image, known, true);
            verify(*seed, &after, &mut known).is_err()
        })
        .count();
    assert!(caught >= 15, "only {caught} of 20 losses were noticed");
}

#[test]
fn without_a_log_the_last_checkpoint_survives() {
    for seed in 0..40 {
        let store = Arc::new(SimStore::zeroed(LEN));
        let options = Options {
            checkpoint_every: None,
            ..options(seed, Durability::Checkpoint)
        };
        let engine = Engine::create(store.clone(), &options).unwrap();
        let mut random = SplitMix64::new(seed);
        let mut kept = BTreeMap::new();
        for _ in 0..800 {
            let key = random.below(KEYS) as u64;
            let v = value(key, 1, &mut random);
            engine.put(key, &v).unwrap();
            kept.insert(key, v);
        }
        engine.checkpoint().unwrap();
        // All of this is lost, and nothing else.
        for _ in 0..300 {
            let key = random.below(KEYS) as u64;
            engine.put(key, b"later").unwrap();
        }
        let image = store.after_power_failure(seed);
        let engine = Engine::open(Arc::new(SimStore::new(image, u64::MAX)), &options).unwrap();
        engine.check().unwrap();
        let mut found = BTreeMap::new();
        engine
            .scan(0, usize::MAX, |k, v| {
                found.insert(k, v.to_vec());
            })
            .unwrap();
        assert!(found == kept, "seed {seed}");
    }
}

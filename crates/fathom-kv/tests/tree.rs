//! The tree against a `BTreeMap`, alone and by many threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fathom_kv::sim::SimStore;
use fathom_kv::{Durability, Engine, FileStore, KvError, Options};
use fathom_stats::rng::SplitMix64;
use proptest::prelude::*;

fn options(page_bytes: u64, durability: Durability) -> Options {
    Options {
        page_bytes,
        pool_bytes: 0,
        log_bytes: 512 << 10,
        durability,
        checkpoint_every: Some(Duration::from_millis(20)),
        write_ahead: true,
    }
}

/// Every key and value by a scan.
fn all(engine: &Engine) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    engine
        .scan(0, usize::MAX, |k, v| found.push((k, v.to_vec())))
        .unwrap();
    found
}

fn value(random: &mut SplitMix64, longest: usize) -> Vec<u8> {
    let len = match random.below(4) {
        0 => 0,
        1 => random.below(16),
        2 => random.below(longest / 8 + 1),
        _ => random.below(longest + 1),
    };
    (0..len).map(|_| random.next_u64() as u8).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Put(u64, usize, u8),
    Delete(u64),
    Get(u64),
    Scan(u64, usize),
    Checkpoint,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![0u64..200, any::<u64>(), Just(u64::MAX), Just(0)];
    let len = prop_oneof![Just(0usize), 0usize..40, 900usize..1100, 3000usize..30_000];
    prop_oneof![
        12 => (key.clone(), len, any::<u8>()).prop_map(|(k, l, b)| Step::Put(k, l, b)),
        4 => key.clone().prop_map(Step::Delete),
        4 => key.clone().prop_map(Step::Get),
        1 => (key, 0usize..50).prop_map(|(k, n)| Step::Scan(k, n)),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn it_does_what_a_map_does(
        steps in prop::collection::vec(step(), 1..400),
        shift in 0u32..5,
    ) {
        let options = Options { checkpoint_every: None, ..options(4096 << shift, Durability::Commit) };
        let store = Arc::new(SimStore::zeroed(24 << 20));
        let mut engine = Engine::create(store.clone(), &options).unwrap();
        let mut map = BTreeMap::new();
        let mut found = Vec::new();
        for step in steps {
            match step {
                Step::Put(k, len, b) => {
                    let v = vec![b; len];
                    prop_assert_eq!(engine.put(k, &v).unwrap(), map.insert(k, v).is_some());
                }
                Step::Delete(k) => {
                    prop_assert_eq!(engine.delete(k).unwrap(), map.remove(&k).is_some());
                }
                Step::Get(k) => {
                    let there = engine.get(k, &mut found).unwrap();
                    prop_assert_eq!(there.then_some(&found), map.get(&k));
                }
                Step::Scan(k, n) => {
                    let mut seen = Vec::new();
                    engine.scan(k, n, |k, v| seen.push((k, v.to_vec()))).unwrap();
                    let expected: Vec<_> = map.range(k..).take(n).map(|(k, v)| (*k, v.clone())).collect();
                    prop_assert_eq!(seen, expected);
                }
                Step::Checkpoint => engine.checkpoint().unwrap(),
                Step::Reopen => {
                    drop(engine);
                    engine = Engine::open(store.clone(), &options).unwrap();
                }
            }
        }
        let census = engine.check().unwrap();
        prop_assert_eq!(census.keys, map.len() as u64);
        prop_assert_eq!(all(&engine), map.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn many_threads_write_one_tree_that_is_larger_than_its_pool() {
    for durability in [Durability::Checkpoint, Durability::Commit] {
        let options = options(4096, durability);
        let engine = Engine::create(Arc::new(SimStore::zeroed(32 << 20)), &options).unwrap();
        let (threads, keys) = (8u64, 4000u64);
        let maps: Vec<_> = std::thread::scope(|s| {
            let workers: Vec<_> = (0..threads)
                .map(|t| {
                    let engine = &engine;
                    s.spawn(move || {
                        let mut random = SplitMix64::new(t + 1);
                        let mut mine = BTreeMap::new();
                        let mut found = Vec::new();
                        for _ in 0..6000 {
                            // Neighbouring keys belong to different threads: leaves are shared.
                            let key = random.below(keys as usize) as u64 * threads + t;
                            if random.below(10) == 0 {
                                let there = mine.remove(&key).is_some();
                                assert_eq!(engine.delete(key).unwrap(), there);
                            } else {
                                let v = key.to_le_bytes().repeat(random.below(12));
                                let there = mine.insert(key, v.clone()).is_some();
                                assert_eq!(engine.put(key, &v).unwrap(), there);
                            }
                            let key = random.below(keys as usize) as u64 * threads + t;
                            let there = engine.get(key, &mut found).unwrap();
                            assert_eq!(there.then_some(&found), mine.get(&key));
                        }
                        mine
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let expected: BTreeMap<u64, Vec<u8>> = maps.into_iter().flatten().collect();
        let census = engine.check().unwrap();
        assert_eq!(census.keys, expected.len() as u64);
        assert_eq!(all(&engine), expected.into_iter().collect::<Vec<_>>());
        let stats = engine.stats();
        assert!(stats.evicted > 1000 && stats.checkpoints > 2, "{stats:?}");
        assert!(engine.leaves() > 2 * engine.frames());
    }
}

#[test]
fn pages_of_every_size_hold_values_of_every_size() {
    let dir = tempfile::tempdir().unwrap();
    for page_bytes in [4096, 8192, 16384, 32768, 65536] {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(dir.path().join("tree"))
            .unwrap();
        file.set_len(64 << 20).unwrap();
        let file = Arc::new(file);
        let store = || Arc::new(FileStore::new(file.clone(), 64 << 20));
        let options = Options {
            log_bytes: 16 << 20,
            ..options(page_bytes, Durability::Commit)
        };
        let engine = Engine::create(store(), &options).unwrap();
        let mut random = SplitMix64::new(page_bytes);
        let mut map = BTreeMap::new();
        for _ in 0..120 {
            let (k, v) = (random.next_u64(), value(&mut random, 200_000));
            engine.put(k, &v).unwrap();
            map.insert(k, v);
        }
        let census = engine.check().unwrap();
        assert!(census.overflow_pages > 0);
        drop(engine);
        // Without `close`: the log has what no checkpoint has.
        let engine = Engine::open(store(), &options).unwrap();
        assert_eq!(all(&engine), map.into_iter().collect::<Vec<_>>());
        engine.check().unwrap();
    }
}

#[test]
fn a_value_that_the_log_cannot_take_is_refused() {
    let engine = Engine::create(
        Arc::new(SimStore::zeroed(8 << 20)),
        &options(4096, Durability::Commit),
    )
    .unwrap();
    let refused = engine.put(1, &vec![0; 100_000]);
    assert!(
        matches!(refused, Err(KvError::TooLong { .. })),
        "{refused:?}"
    );
    assert!(!engine.get(1, &mut Vec::new()).unwrap());
}

#[test]
fn a_full_store_says_so_and_keeps_what_it_has() {
    let options = options(4096, Durability::Commit);
    let store = Arc::new(SimStore::zeroed(4 << 20));
    let engine = Engine::create(store.clone(), &options).unwrap();
    let mut stored = 0;
    let error = loop {
        match engine.put(stored, &[7; 900]) {
            Ok(_) => stored += 1,
            Err(e) => break e,
        }
        assert!(stored < 10_000, "the store is never full");
    };
    assert!(matches!(error, KvError::Full { .. }), "{error}");
    assert!(stored > 1000);
    assert_eq!(engine.check().unwrap().keys, stored);
    drop(engine);
    let engine = Engine::open(store, &options).unwrap();
    assert_eq!(engine.check().unwrap().keys, stored);
    // Overwriting takes no more pages than it gives back.
    assert!(engine.put(1, &[8; 900]).unwrap());
}

#[test]
fn places_come_back_when_values_are_replaced() {
    let options = options(4096, Durability::Checkpoint);
    let engine = Engine::create(Arc::new(SimStore::zeroed(8 << 20)), &options).unwrap();
    for round in 0..200u64 {
        for key in 0..20 {
            engine.put(key, &vec![round as u8; 20_000]).unwrap();
        }
    }
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    let census = engine.check().unwrap();
    let (total, free) = engine.space();
    assert_eq!(total - free, census.leaves + census.overflow_pages);
}

#[test]
fn a_damaged_page_is_named_and_nothing_else_suffers() {
    let options = Options {
        checkpoint_every: None,
        ..options(4096, Durability::Checkpoint)
    };
    let store = Arc::new(SimStore::zeroed(8 << 20));
    let engine = Engine::create(store.clone(), &options).unwrap();
    for key in 0..2000u64 {
        engine.put(key, &[1; 100]).unwrap();
    }
    engine.close().unwrap();
    let mut image = store.after_power_failure(1);
    // A leaf of the last checkpoint: find a page that begins with a checksum and is of kind 1.
    let at = (0..image.len())
        .step_by(4096)
        .rfind(|p| image[p + 12] == 1 && image[p + 14] > 10)
        .unwrap();
    image[at + 3000] ^= 1;
    let engine = Engine::open(Arc::new(SimStore::new(image, u64::MAX)), &options).unwrap();
    let mut value = Vec::new();
    let failed = (0..2000)
        .filter(|k| match engine.get(*k, &mut value) {
            Ok(there) => {
                assert!(there && value == [1; 100]);
                false
            }
            Err(e) => {
                assert!(matches!(e, KvError::Damaged { .. }), "{e}");
                true
            }
        })
        .count();
    assert!((1..100).contains(&failed), "{failed} keys");
}

#[test]
fn what_is_no_tree_is_not_opened() {
    let empty = Engine::open(Arc::new(SimStore::zeroed(8 << 20)), &Options::default());
    assert!(matches!(empty, Err(KvError::NoStore)));
    let small = Engine::create(Arc::new(SimStore::zeroed(4096)), &Options::default());
    assert!(matches!(small, Err(KvError::Options(_))));
    let odd = Options {
        page_bytes: 5000,
        ..Options::default()
    };
    let odd = Engine::create(Arc::new(SimStore::zeroed(8 << 20)), &odd);
    assert!(matches!(odd, Err(KvError::Options(_))));
}

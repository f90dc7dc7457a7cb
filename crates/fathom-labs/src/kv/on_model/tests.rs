//! The tree on models whose truth is known.

use fathom_bench::profile::PROFILES;
use fathom_kv::Stats;

use super::*;
use crate::kv::Keys;

/// Every access takes so long, however many there are; the host's part is 3.5 µs, without sleep.
fn steady(us: f64) -> (tempfile::TempPath, String) {
    let path = format!("command_ns = 0\ngb_per_s = 1000\nmedia_us = 0\nfixed_us = {us}");
    let model = format!(
        "description = \"always the same\"\ncapacity_gb = 10\nslots = 1024\nunits = 1\n[read]\n{path}\n[write]\n{path}\n"
    );
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), model).unwrap();
    let target = format!("sim:{},idle=busy", file.path().display());
    (file.into_temp_path(), target)
}
const HOST: f64 = 3_500.0;

fn options(workload: &str) -> KvOptions {
    KvOptions {
        workloads: vec![workload.into()],
        threads: 8,
        keys: Some(100_000),
        value: 8,
        page: Bytes(4096),
        cache: 20.0,
        commit: false,
        buffered: false,
        keys_drawn: Keys::Uniform,
        beside: Vec::new(),
        rate: None,
        model: Some(Nanos::from_micros(1)),
        time: Some(Nanos::from_millis(400)),
        seed: 7,
    }
}

fn plan_of(bench: &SimBench) -> Plan {
    Plan {
        limits: bench.limits(),
        profile: PROFILES[0],
        seed: 7,
        threads: 8,
        direct: true,
        wears: true,
        commands: false,
    }
}

struct Seen {
    outcome: Outcome,
    leaves: u64,
    /// Bytes that the store was given while the load ran.
    written: u64,
}

fn seen(target: &str, options: &KvOptions) -> Seen {
    let mut bench = SimBench::open(target, Control::new()).unwrap();
    let plan = plan_of(&bench);
    let cell = &cells(&plan, options)[0];
    let load = Load {
        ramp: Nanos::ZERO,
        ..load_of(time(&plan, options), cell, options, 0, None)
    };
    let half = 512 << 20;
    let tree = Tree::fill(options, cell, half, load, &bench.control()).unwrap();
    let before = tree.store.written();
    let (outcome, _) = tree.play(&mut bench, &plan, &mut ()).unwrap();
    Seen {
        outcome,
        leaves: tree.leaves,
        written: tree.store.written() - before,
    }
}

#[test]
fn two_plays_of_a_seed_are_the_same_to_the_bit() {
    let (_file, target) = steady(50.0);
    for (workload, commit) in [
        ("a", true),
        ("update", false),
        ("insert", true),
        ("e", false),
    ] {
        let o = KvOptions {
            commit,
            ..options(workload)
        };
        let [a, b] = [seen(&target, &o), seen(&target, &o)];
        assert!(a.outcome.operations > 1000, "{workload}");
        assert_eq!(a.outcome.operations, b.outcome.operations, "{workload}");
        assert_eq!(a.outcome.stats, b.outcome.stats, "{workload}");
        assert_eq!(a.outcome.device, b.outcome.device, "{workload}");
        assert_eq!(a.written, b.written, "{workload}");
        let (a, b) = (a.outcome.load.latency(), b.outcome.load.latency());
        assert_eq!(a.to_sparse(), b.to_sparse(), "{workload}");
        let other = KvOptions { seed: 8, ..o };
        let c = seen(&target, &other).outcome.load.latency();
        assert_ne!(a.to_sparse(), c.to_sparse(), "{workload}");
    }
}

#[test]
fn reads_of_a_cold_small_cache_take_what_theory_says() {
    const SERVICE: f64 = 80_000.0;
    let (_file, target) = steady(SERVICE / 1000.0);
    for threads in [1, 8] {
        let o = KvOptions {
            threads,
            cache: 0.1,
            ..options("update")
        };
        let mut bench = SimBench::open(&target, Control::new()).unwrap();
        let plan = plan_of(&bench);
        let cell = &cells(&plan, &o)[0];
        let load = Load {
            ramp: Nanos::ZERO,
            mix: crate::kv::Mix {
                read: 100,
                update: 0,
                insert: 0,
                scan: 0,
            },
            ..load_of(time(&plan, &o), cell, &o, 0, None)
        };
        let tree = Tree::fill(&o, cell, 64 << 20, load, &bench.control()).unwrap();
        let (outcome, cached) = tree.play(&mut bench, &plan, &mut ()).unwrap();
        let frames = cached / cell.page;
        let misses = 1.0 - frames as f64 / tree.leaves as f64;
        let each = 1_000.0 + misses * (SERVICE + HOST);
        let theory = f64::from(threads) / each * 1e9;
        let rate = outcome.operations as f64 / outcome.load.wall.as_secs_f64();
        assert!(
            (rate / theory - 1.0).abs() < 0.03,
            "{threads} threads: {rate} instead of {theory}, {frames} of {} cached",
            tree.leaves
        );
    }
}

#[test]
fn the_model_is_given_what_the_engine_writes() {
    let (_file, target) = steady(20.0);
    for commit in [false, true] {
        let o = KvOptions {
            commit,
            // More than a checkpoint of every second.
            time: Some(Nanos::from_millis(2_500)),
            ..options("update")
        };
        let seen = seen(&target, &o);
        let device = seen.outcome.device.clone().unwrap();
        // What was under way in the end, and what the last checkpoint had left to write.
        let slack = (u64::from(o.threads) + 6 * 16) * 4096 + seen.leaves * 4096;
        assert!(device.write_bytes > 20 * slack || commit, "{device:?}");
        assert!(
            device.write_bytes.abs_diff(seen.written) <= slack,
            "{} instead of {}",
            device.write_bytes,
            seen.written
        );
        let s = seen.outcome.stats;
        let pages = (s.evicted + s.flushed) * 4096 + s.log_bytes;
        // The rest are tables and headers of checkpoints.
        let tables = (s.checkpoints + 1) * (4096 + seen.leaves.div_ceil(255) * 4096);
        assert!(
            device.write_bytes.abs_diff(pages) <= slack + tables,
            "{} instead of {pages}: {s:?}",
            device.write_bytes
        );
        assert_eq!(device.read_ios.abs_diff(s.misses) / 100, 0, "{s:?}");
        assert!(s.checkpoints >= 2, "{s:?}");
        assert!(device.flush_ios >= 2 * s.checkpoints);
    }
}

#[test]
fn commits_share_the_log_and_wait_for_it_in_the_models_time() {
    let (_file, target) = steady(100.0);
    let alone = KvOptions {
        threads: 1,
        commit: true,
        cache: 100.0,
        ..options("update")
    };
    let s = seen(&target, &alone).outcome.stats;
    // One at a time: each waits for its own write and sync.
    assert!(
        s.log_writes.abs_diff(s.commits) <= s.commits / 100 + 2,
        "{s:?}"
    );
    let own = s.log_wait_ns as f64 / s.commits as f64;
    assert!(
        (own / (2.0 * (100_000.0 + HOST)) - 1.0).abs() < 0.05,
        "{own}"
    );
    let many = KvOptions {
        threads: 16,
        ..alone
    };
    let s: Stats = seen(&target, &many).outcome.stats;
    let shared = s.commits as f64 / s.log_writes as f64;
    assert!(shared > 4.0, "{shared} commits in a write");
}

//! What the engine itself spends on a page that is in memory: t_app of Zhang et al. 2018, eq. 2.

use std::sync::Arc;

use fathom_io::clock::monotonic;
use fathom_kv::sim::SimStore;
use fathom_kv::{Durability, Engine, KvError, Options};
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Nanos;

const KEYS: u64 = 200_000;
/// Rounds; the fastest counts, so that other work on the machine does not.
const ROUNDS: u32 = 5;

/// A point read of a cached page, one thread.
///
/// # Errors
/// Where the engine fails.
pub fn app_cost() -> Result<Nanos, KvError> {
    const STORE: usize = 64 << 20;
    let options = Options {
        page_bytes: 16384,
        pool_bytes: STORE as u64,
        log_bytes: 1 << 20,
        durability: Durability::Checkpoint,
        checkpoint_every: None,
        write_ahead: false,
    };
    let engine = Engine::create(Arc::new(SimStore::zeroed(STORE)), &options)?;
    super::load::fill(&engine, 0..KEYS, 8, &|| false)?;
    let (mut random, mut value) = (SplitMix64::new(1), Vec::new());
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let began = monotonic();
        for _ in 0..KEYS {
            engine.get(random.next_u64() % KEYS, &mut value)?;
        }
        best = best.min(monotonic().since(began).0 / KEYS);
    }
    engine.close()?;
    Ok(Nanos(best.max(1)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cached_read_takes_less_than_a_device_would() {
        let cost = super::app_cost().unwrap();
        assert!(cost.0 > 0 && cost.as_secs_f64() < 1e-3, "{cost}");
    }
}

//! What every measurement that is repeated has in common: the order of turns, seeds, and how it says that it was cut short.
//!
//! Experiments and labs take all three from here, so that `--seed` and an interruption mean the same everywhere.

use fathom_io::load::rng::mix;
use fathom_telemetry::{Flag, FlagCode};

/// Seed of one stream: a job's repeat, a thread's choice, a table's rows.
///
/// Another run's `seed`, another experiment, job or repeat gives an unrelated number, so that no two runs with different
/// seeds share a stream. Sides that are held against each other on the same offsets name the same `job`. Below 2⁶³, as
/// a job's seed has to be.
pub fn seed(seed: u64, experiment: &str, job: &str, repeat: u32) -> u64 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let stir =
        |state: u64, word: u64| mix(state.wrapping_add(GOLDEN) ^ mix(word.wrapping_add(GOLDEN)));
    let text = |state: u64, text: &str| {
        // The length first: "ab", "c" is another pair than "a", "bc".
        let state = stir(state, text.len() as u64);
        text.bytes().fold(state, |s, b| stir(s, u64::from(b)))
    };
    stir(text(text(mix(seed), experiment), job), u64::from(repeat)) >> 1
}

/// The order of `n` points in a repeat: forward, then backward (A B B A), so that a drift of the device favours no
/// point.
pub fn turns(n: usize, repeat: u32) -> impl Iterator<Item = usize> {
    let forward = repeat.is_multiple_of(2);
    (0..n).map(move |k| if forward { k } else { n - 1 - k })
}

/// Says that somebody asked to end: `done` of `total` measurements were made.
pub fn cut_short(done: u32, total: u32) -> Flag {
    Flag::new(
        FlagCode::Interrupted,
        // What is planned as it goes may be more than was expected.
        format!("{done} of {} measurements were made", total.max(done)),
        "run it again: it begins anew",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_no_seed() {
        let mut seeds = std::collections::HashSet::new();
        let mut n = 0;
        for of in 0..20 {
            for experiment in ["kv", "paths", "pathsk", ""] {
                for job in ["a", "b", "ab", "v", "kva"] {
                    for repeat in 0..20 {
                        seeds.insert(seed(of, experiment, job, repeat));
                        n += 1;
                    }
                }
            }
        }
        assert_eq!(seeds.len(), n);
        assert!(seeds.iter().all(|s| s >> 63 == 0));
        // Half of the bits differ between neighbours.
        let differ: u32 = (0..1000)
            .map(|s| (seed(s, "kv", "a", 1) ^ seed(s + 1, "kv", "a", 0)).count_ones())
            .sum();
        assert!((30_500..32_500).contains(&differ), "{differ}");
    }

    #[test]
    fn the_seed_is_locked() {
        assert_eq!(seed(1, "curve", "curve-qd8", 0), 3_997_913_332_848_360_891);
    }

    #[test]
    fn turns_are_taken_there_and_back() {
        let order: Vec<usize> = (0..3).flat_map(|r| turns(3, r)).collect();
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2]);
    }
}

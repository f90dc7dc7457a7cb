//! The promise of fathom's steady-state verdict, on synthetic devices whose truth is known.

#[path = "truth/mod.rs"]
mod truth;

use truth::{KINDS, Kind, Score, score};

/// 1,000 seeded trials of each kind with so many rounds allowed.
fn scores(rounds: usize) -> Vec<(Kind, Score)> {
    KINDS
        .iter()
        .map(|(kind, _)| {
            let mut wrong = Vec::new();
            let s = score(*kind, rounds, 0..1000, |seed, _| wrong.push(seed));
            // Shapes outside the verdict's model have no promise, only a floor that shows a regression.
            let (right, false_steady) = match kind {
                Kind::Foreign => (900, 60),
                _ => (950, 25),
            };
            assert!(
                s.right >= right,
                "{kind:?}, {rounds} rounds: {s:?}; wrong seeds {wrong:?}"
            );
            // "Steady" is the verdict that costs most when it is wrong.
            assert!(
                s.false_steady <= false_steady,
                "{kind:?}, {rounds} rounds: {s:?}"
            );
            (*kind, s)
        })
        .collect()
}

#[test]
fn the_verdict_is_right_in_95_percent_of_the_trials_of_every_kind_after_25_rounds() {
    scores(25);
}

#[test]
fn the_verdict_is_right_in_95_percent_of_the_trials_of_every_kind_after_50_rounds() {
    scores(50);
}

#[test]
fn after_100_rounds_it_is_also_decided_wherever_the_data_can_decide() {
    for (kind, s) in scores(100) {
        // Under noise of up to 30 % a hundred rounds rarely tell one kind of course from another.
        let (least, share) = match kind {
            Kind::Noisy => (50, 0.95),
            Kind::NoisyDecay => (50, 0.85),
            _ => (400, 0.95),
        };
        assert!(s.decidable >= least, "{kind:?}: {s:?}");
        assert!(
            f64::from(s.decidable_right) >= share * f64::from(s.decidable),
            "{kind:?}: {s:?}"
        );
    }
}

#[test]
fn the_pts_rule_alone_passes_most_slow_decays() {
    let s = score(Kind::Decaying, 25, 0..1000, |_, _| {});
    assert!(s.pts_false_steady > 500, "{s:?}");
}

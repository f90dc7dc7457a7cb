//! The verdicts on synthetic series of known truth.

use super::*;
use crate::rng::SplitMix64;

fn noisy(n: usize, sigma: f64, seed: u64, level: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut r = SplitMix64::new(seed);
    (0..n)
        .map(|t| level(t as f64) * (1.0 + sigma * r.normal()))
        .collect()
}

#[test]
fn the_pts_rule_is_the_specified_one() {
    let w = pts_window(&[9.0, 100.0, 102.0, 98.0, 101.0, 99.0], 5).unwrap();
    assert_eq!((w.first, w.mean), (1, 100.0));
    // Slope: (−2·100 − 102 + 101 + 2·99) / 10 = −0.3 per round.
    assert!((w.slope - 0.012).abs() < 1e-12 && (w.range - 0.04).abs() < 1e-12);
    assert!(w.steady);
    assert!(
        !pts_window(&[100.0, 100.0, 100.0, 100.0, 125.0], 4)
            .unwrap()
            .steady
    );
    assert!(pts_window(&[1.0; 4], 3).is_none());
    assert!(pts_window(&[0.0; 5], 4).is_none());
}

#[test]
fn the_pts_rule_takes_a_slow_decay_for_steady_and_fathom_does_not() {
    let y = noisy(25, 0.01, 1, |t| 0.3 + 0.7 * (-t / 20.0).exp());
    assert!(pts_steady(&y).is_some());
    let s = steadiness(&y, &Question::new(0.1, 25.0));
    assert!(
        matches!(&s.verdict, Verdict::NotSteady(r) if matches!(r[0], Reason::Drift { .. })),
        "{s:?}"
    );
}

#[test]
fn a_flat_device_is_steady_unless_too_little_was_written() {
    let y = noisy(60, 0.02, 2, |_| 5.0);
    let mut q = Question::new(0.1, 25.0);
    assert_eq!(steadiness(&y, &q).verdict, Verdict::Steady);
    q.written = Some(Written {
        bytes: 10,
        floor: 20,
    });
    assert_eq!(
        steadiness(&y, &q).verdict,
        Verdict::Undecided(vec![Reason::TooLittleWritten {
            bytes: 10,
            floor: 20
        }])
    );
    q.written = None;
    q.write_ratio = noisy(60, 0.01, 3, |t| 1.0 + t / 30.0);
    assert!(matches!(steadiness(&y, &q).verdict, Verdict::NotSteady(_)));
}

#[test]
fn a_cliff_in_the_last_half_is_named_with_its_place() {
    let y = noisy(60, 0.03, 4, |t| if t < 40.0 { 10.0 } else { 4.0 });
    let s = steadiness(&y, &Question::new(0.1, 25.0));
    let Verdict::NotSteady(reasons) = &s.verdict else {
        panic!("{s:?}")
    };
    assert!(
        matches!(reasons[0], Reason::ChangePoint { round: 40, jump } if (jump + 0.6).abs() < 0.05),
        "{s:?}"
    );
    assert!(reasons[0].sentence().contains("round 41"));
}

#[test]
fn a_swing_is_described_and_not_taken_for_jumps() {
    let y = noisy(100, 0.02, 5, |t| {
        1.0 + 0.2 * (t / 9.0 * std::f64::consts::TAU).sin()
    });
    let s = steadiness(&y, &Question::new(0.1, 25.0));
    assert_eq!(s.verdict, Verdict::Steady, "{s:?}");
    assert!((s.swing.unwrap().period - 9.0).abs() < 0.2);
}

#[test]
fn bad_input_is_undecided() {
    let q = Question::new(0.1, 25.0);
    for y in [&[][..], &[1.0; 5], &[0.0; 30], &[f64::NAN; 30]] {
        assert!(matches!(steadiness(y, &q).verdict, Verdict::Undecided(_)));
    }
    assert_eq!(steadiness(&[7.0; 30], &q).verdict, Verdict::Steady);
}

#[test]
fn a_verdict_is_kept_as_json_with_its_codes() {
    let v = Verdict::Undecided(vec![Reason::TooFewRounds {
        rounds: 3,
        needed: 10,
    }]);
    let s = Steadiness {
        verdict: v,
        ..steadiness(&[1.0; 3], &Question::new(0.1, 25.0))
    };
    let json = serde_json::to_value(&s).unwrap();
    assert_eq!(json["verdict"], "undecided");
    assert_eq!(json["reasons"][0]["code"], "too-few-rounds");
}

#[test]
fn noise_that_drowns_the_planned_test_is_never_called_steady() {
    let noisy = |noise: f64, seed: u64| -> Vec<f64> {
        let mut r = SplitMix64::new(seed);
        (0..40)
            .map(|_| 100.0 * (noise * r.normal()).exp())
            .collect()
    };
    for seed in 0..200 {
        let verdict = steadiness(&noisy(0.75, seed), &Question::new(0.10, 5.0)).verdict;
        assert_ne!(verdict, Verdict::Steady, "seed {seed}");
    }
    // A long test averages the same noise away.
    let too_noisy = |r: &Reason| matches!(r, Reason::TooNoisy { .. });
    let reasons = |test: f64| match steadiness(&noisy(0.3, 1), &Question::new(0.10, test)).verdict {
        Verdict::Steady => Vec::new(),
        Verdict::NotSteady(r) | Verdict::Undecided(r) => r,
    };
    assert!(reasons(4.0).iter().any(too_noisy), "{:?}", reasons(4.0));
    assert!(!reasons(100.0).iter().any(too_noisy));
}

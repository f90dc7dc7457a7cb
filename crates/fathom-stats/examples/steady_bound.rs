//! Prints which share of flat courses the best test there is could call steady after so many rounds: a likelihood-ratio
//! test (Neyman–Pearson) that knows the noise, and that a slow wave of amplitude 0.1–0.3 and period 40–150 rounds is the
//! only other course. `bench/truth --bound` runs it; the table of docs/steady-state.md.

use std::f64::consts::TAU;

use fathom_stats::rng::SplitMix64;

const SEED: u64 = 7;
/// Waves that the test knows.
const KNOWN: usize = 8000;
/// Courses that it judges, of each kind.
const JUDGED: usize = 8000;
/// Share of moving courses that it may call steady.
const WRONG: f64 = 0.05;
/// How far the level may move during the planned test.
const TOLERANCE: f64 = 0.1;

/// A wave seen for `n` rounds that leaves the tolerance during the planned test which follows; `None` where it does not.
fn wave(r: &mut SplitMix64, n: usize, test: usize) -> Option<Vec<f64>> {
    let (amplitude, period) = (r.between(0.1, 0.3), r.between(40.0, 150.0));
    let phase = r.between(0.0, TAU);
    let mut course: Vec<f64> = (0..n + test)
        .map(|t| 1.0 + amplitude * (TAU * t as f64 / period + phase).sin())
        .collect();
    let now = course[n - 1];
    let moves = course[n..]
        .iter()
        .any(|v| (v / now - 1.0).abs() > TOLERANCE);
    course.truncate(n);
    moves.then_some(course)
}

/// Nobody knows the level beforehand.
fn over_mean(y: &[f64]) -> Vec<f64> {
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    y.iter().map(|v| v / mean).collect()
}

/// Log of the likelihood of any known wave over that of a flat course.
fn ratio(y: &[f64], noise: f64, known: &[Vec<f64>]) -> f64 {
    let y = over_mean(y);
    let squares = |o: &dyn Fn(usize) -> f64| -> f64 {
        y.iter().enumerate().map(|(t, v)| (v - o(t)).powi(2)).sum()
    };
    let flat = squares(&|_| 1.0);
    let logs: Vec<f64> = known
        .iter()
        .map(|w| (flat - squares(&|t| w[t])) / (2.0 * noise * noise))
        .collect();
    let most = logs.iter().copied().fold(f64::MIN, f64::max);
    let mean = logs.iter().map(|l| (l - most).exp()).sum::<f64>() / logs.len() as f64;
    most + mean.ln()
}

fn main() {
    let r = &mut SplitMix64::new(SEED);
    println!(
        "Seed {SEED}.\n\n| planned test | rounds seen | flat courses called steady |\n| ---: | ---: | ---: |"
    );
    for test in [10, 25] {
        for n in [11, 12, 14, 15, 17, 20, 22, 25, 28] {
            let known: Vec<Vec<f64>> = (0..KNOWN)
                .filter_map(|_| wave(r, n, test))
                .map(|w| over_mean(&w))
                .collect();
            let (mut waves, mut flats) = (Vec::new(), Vec::new());
            for _ in 0..JUDGED {
                let noise = r.between(0.01, 0.05);
                if let Some(w) = wave(r, n, test) {
                    let seen: Vec<f64> = w.iter().map(|v| v * (1.0 + noise * r.normal())).collect();
                    waves.push(ratio(&seen, noise, &known));
                }
                let seen: Vec<f64> = (0..n).map(|_| 1.0 + noise * r.normal()).collect();
                flats.push(ratio(&seen, noise, &known));
            }
            // Of all courses that might be waves, WRONG may pass; those that do not move during the test count as right.
            waves.sort_by(f64::total_cmp);
            let passed = (JUDGED as f64 * WRONG) as usize;
            let threshold = waves.get(passed).copied().unwrap_or(f64::INFINITY);
            let steady = flats.iter().filter(|s| **s < threshold).count();
            println!(
                "| {test} | {n} | {:.0} % |",
                100.0 * steady as f64 / JUDGED as f64
            );
        }
    }
}

//! Described series that fall: smoothly, or off a cliff of known size.

#![allow(unreachable_pub, dead_code)]

use fathom_stats::regimes::{Window, regimes};
use fathom_stats::rng::SplitMix64;

/// Kinds of falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fall {
    /// A decay of these τ from the first window on.
    Decay(f64, f64),
    /// A decay of these τ after a level: garbage collection that sets in.
    LateDecay(f64, f64),
    /// (1 + t)^−0.1…0.8.
    Power,
    /// A straight line.
    Line,
    /// No fall.
    Flat,
    /// A swing of ±5…30 % every 4…40 windows.
    Swing,
    /// A cache of a fifth to seven tenths of the series that is used up.
    Cliff,
    /// A cache that is used up before garbage collection sets in slowly.
    CliffThenDecay,
}

/// All of them.
pub const FALLS: [(&str, Fall); 10] = [
    ("decay, τ 2…5", Fall::Decay(2.0, 5.0)),
    ("decay, τ 5…20", Fall::Decay(5.0, 20.0)),
    ("level, then a decay of τ 2…5", Fall::LateDecay(2.0, 5.0)),
    ("level, then a decay of τ 5…20", Fall::LateDecay(5.0, 20.0)),
    ("power law", Fall::Power),
    ("straight line", Fall::Line),
    ("flat", Fall::Flat),
    ("swing ±5…30 %", Fall::Swing),
    ("cliff of 30…90 %", Fall::Cliff),
    ("cliff of 30…90 %, then a slow decay", Fall::CliffThenDecay),
];

/// A series of `n` windows of noise up to `noise`, and what was transferred before the cliff where there is one.
pub fn draw(
    fall: Fall,
    n: usize,
    noise: (f64, f64),
    r: &mut SplitMix64,
) -> (Vec<Window>, Option<f64>) {
    let noise = r.between(noise.0, noise.1);
    let phi = if r.unit() < 0.5 {
        0.0
    } else {
        r.between(0.0, 0.4)
    };
    let (left, exponent) = (r.between(0.1, 0.7), r.between(0.1, 0.8));
    let (first, span, size) = (
        n as f64 * r.between(0.2, 0.7),
        r.unit(),
        r.between(0.05, 0.3),
    );
    let (period, turn) = (r.between(4.0, 40.0), r.between(0.0, std::f64::consts::TAU));
    let tau = |(least, most): (f64, f64)| least + (most - least) * span;
    let dying = |t: f64, tau: f64| left + (1.0 - left) * (-t.max(0.0) / tau).exp();
    let burst = 1000.0;
    // In units of a burst's window; the cache is as large as it is, whatever the noise.
    let cache = burst * first;
    let mut rest = cache;
    let mut e = r.normal();
    let mut since = 0.0;
    let windows = (0..n)
        .map(|i| {
            e = phi * e + (1.0 - phi * phi).sqrt() * r.normal();
            let factor = (1.0 + noise * e).max(0.01);
            let t = i as f64;
            let amount = match fall {
                Fall::Decay(a, b) => burst * dying(t, tau((a, b))) * factor,
                Fall::LateDecay(a, b) => burst * dying(t - first, tau((a, b))) * factor,
                Fall::Power => burst * (1.0 + t).powf(-exponent) * factor,
                Fall::Line => burst * (1.0 - (1.0 - left) * t / n as f64) * factor,
                Fall::Flat => burst * factor,
                Fall::Swing => {
                    let angle = std::f64::consts::TAU * t / period + turn;
                    burst * (1.0 + size * angle.sin()) * factor
                }
                Fall::Cliff | Fall::CliffThenDecay => {
                    let fast = burst * factor;
                    let share = (rest / fast).min(1.0);
                    rest -= share * fast;
                    let aged = if fall == Fall::CliffThenDecay {
                        0.6 + 0.4 * (-since / n as f64).exp()
                    } else {
                        1.0
                    };
                    since += 1.0 - share;
                    share * fast + (1.0 - share) * burst * left * aged * factor
                }
            };
            Window {
                amount,
                celsius: None,
            }
        })
        .collect();
    let cliff = matches!(fall, Fall::Cliff | Fall::CliffThenDecay);
    (windows, cliff.then_some(cache))
}

/// Counts over the series of a kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    pub series: u32,
    /// Two regimes were reported.
    pub found: u32,
    /// With the size within 1 %.
    pub sized: u32,
}

/// Runs seeded series of a kind.
pub fn count(
    number: usize,
    fall: Fall,
    n: usize,
    noise: (f64, f64),
    seeds: std::ops::Range<u64>,
) -> Found {
    let mut out = Found::default();
    for seed in seeds {
        let mut r = SplitMix64::new(seed ^ ((number as u64 + 1) << 40));
        let (windows, cache) = draw(fall, n, noise, &mut r);
        out.series += 1;
        if let Some(regimes) = regimes(&windows, 1.0) {
            out.found += 1;
            let near = |c: f64| (regimes.burst_amount / c - 1.0).abs() <= 0.01;
            out.sized += u32::from(cache.is_some_and(near));
        }
    }
    out
}

//! Is a device in steady state? The rule of the SNIA PTS, and fathom's own verdict.
//!
//! The PTS rule looks at five rounds and can be fooled by slow decays, plateaus and
//! noise (docs/steady-state.md has its score). fathom's verdict asks whether the level
//! will stay within a tolerance over the planned test, says why, and says "undecided"
//! where the data do not suffice. Knows series of numbers and counts of bytes only.

use crate::Estimate;
use crate::ahead::{Ahead, Past};
use crate::autocorrelation::{autocorrelation, robust_noise};
use crate::change_point::tame_outliers;
use crate::decay::{Decays, SHORTEST_CURVE};
use crate::season::{Swing, after_slow_wave, strongest};
use serde::{Deserialize, Serialize};

mod pts;
pub use pts::{PTS_ROUNDS_MAX, PTS_WINDOW, PtsWindow, pts_steady, pts_window};

/// What fathom's verdict is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Largest drift of the level over the planned test, as a share of the level (0.1 for 10 %).
    pub tolerance: f64,
    /// Length of the planned test, rounds.
    pub test_rounds: f64,
    /// Written since the purge (or since conditioning began), and the least that must be.
    pub written: Option<Written>,
    /// Media writes over host writes per round, where the device reports them.
    pub write_ratio: Vec<f64>,
}

/// Bytes written and the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// So far.
    pub bytes: u64,
    /// Needed before "steady" may be said: usually twice the capacity.
    pub floor: u64,
}

impl Question {
    /// A tolerance and a length; nothing known of bytes or the write ratio.
    pub fn new(tolerance: f64, test_rounds: f64) -> Self {
        Self {
            tolerance,
            test_rounds,
            written: None,
            write_ratio: Vec::new(),
        }
    }
}

/// Why a device is not steady, or why nothing can be said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum Reason {
    /// The level jumped in the last half of the series.
    ChangePoint {
        /// First round after the jump.
        round: usize,
        /// After / before − 1.
        jump: f64,
    },
    /// The level still moves.
    Drift {
        /// Over the planned test, share of the level.
        drift: Estimate,
    },
    /// The level may still move by more than the tolerance.
    DriftNotResolved {
        /// Over the planned test, share of the level.
        drift: Estimate,
    },
    /// A regular swing is too long or too large for the planned test to average over.
    Swinging {
        /// The swing.
        swing: Swing,
    },
    /// Too little was written: a cliff may still come.
    TooLittleWritten {
        /// So far.
        bytes: u64,
        /// Needed.
        floor: u64,
    },
    /// The device's own write ratio still moves.
    WriteRatioMoves {
        /// Over the planned test, share of the ratio.
        drift: Estimate,
    },
    /// The device's own write ratio is not known well enough.
    WriteRatioNotResolved,
    /// The last round lies far off: an outlier, or the first after a jump.
    LastRoundFarOff {
        /// Its value over the expected one, less 1.
        deviation: f64,
    },
    /// Too short a series.
    TooFewRounds {
        /// So many.
        rounds: usize,
        /// Needed.
        needed: usize,
    },
    /// Steady as far as was seen; the next look is after so many rounds.
    BetweenLooks {
        /// Rounds at the next look.
        next: usize,
    },
    /// Correlation leaves too few independent rounds.
    TooFewIndependent {
        /// Effective number.
        effective: f64,
    },
    /// Noise alone moves the mean of the planned test far beyond the tolerance.
    TooNoisy {
        /// 95 % of such tests lie within this share of the level.
        scatter: f64,
    },
    /// A value is missing, not positive or not finite.
    Unusable,
}

impl Reason {
    /// One sentence for people.
    pub fn sentence(&self) -> String {
        let interval = |e: &Estimate| match (e.low, e.high) {
            (Some(l), Some(h)) => format!("{:+.1} % to {:+.1} %", 100.0 * l, 100.0 * h),
            _ => format!("{:+.1} %", 100.0 * e.value),
        };
        match self {
            Self::ChangePoint { round, jump } => format!(
                "the level moved by {:+.0} % from round {} on, in the last half",
                100.0 * jump,
                round + 1
            ),
            Self::Drift { drift } => format!(
                "the level would drift by {} over the planned test",
                interval(drift)
            ),
            Self::DriftNotResolved { drift } => format!(
                "over the planned test the level {}; measure more rounds",
                still_possible(drift)
            ),
            Self::Swinging { swing } => format!(
                "the level swings by ±{:.0} % every {:.1} rounds; plan a test of several periods",
                100.0 * swing.amplitude,
                swing.period
            ),
            Self::TooLittleWritten { bytes, floor } => format!(
                "{bytes} of {floor} bytes were written, a cliff may still come; condition for longer"
            ),
            Self::WriteRatioMoves { drift } => format!(
                "the device's media writes per host write still move by {}",
                interval(drift)
            ),
            Self::WriteRatioNotResolved => {
                "the device's media writes per host write are too noisy to call settled".into()
            }
            Self::LastRoundFarOff { deviation } => format!(
                "the last round is off by {:+.0} %; measure more rounds",
                100.0 * deviation
            ),
            Self::TooFewRounds { rounds, needed } => {
                format!("{rounds} rounds are too few; measure {needed} at least")
            }
            Self::BetweenLooks { next } => {
                format!("so far nothing speaks against it; the next look is after round {next}")
            }
            Self::TooFewIndependent { effective } => {
                format!("the rounds are worth only {effective:.1} independent ones; measure more")
            }
            Self::TooNoisy { scatter } => format!(
                "tests of the planned length would scatter by ±{:.0} %; plan a longer one, or find what disturbs",
                100.0 * scatter
            ),
            Self::Unusable => "a round has no positive value; look at its errors".into(),
        }
    }
}

/// What an interval of the drift leaves possible, in words.
fn still_possible(drift: &Estimate) -> String {
    let (Some(low), Some(high)) = (drift.low, drift.high) else {
        return "may still move by any amount".into();
    };
    let side = |v: f64, word: &str| {
        (v.abs() >= 0.005).then(|| format!("{word} by another {:.0} %", 100.0 * v.abs()))
    };
    let sides = [side(low.min(0.0), "fall"), side(high.max(0.0), "rise")];
    let sides: Vec<String> = sides.into_iter().flatten().collect();
    if sides.is_empty() {
        "may leave its place: its last rounds lie apart".into()
    } else {
        format!("may {}", sides.join(" or "))
    }
}

/// fathom's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reasons", rename_all = "kebab-case")]
pub enum Verdict {
    /// The level will stay within the tolerance, with 95 % confidence.
    Steady,
    /// It will not, or the record says it cannot be trusted.
    NotSteady(Vec<Reason>),
    /// The data do not say.
    Undecided(Vec<Reason>),
}

/// A verdict with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steadiness {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Drift over the planned test as a share of the level at the end.
    pub drift: Option<Estimate>,
    /// Level at the end of the series.
    pub level: Option<f64>,
    /// A regular swing, taken out before anything else was judged.
    pub swing: Option<Swing>,
    /// First round of the last regime.
    pub regime_start: usize,
    /// Independent rounds that the last regime is worth.
    pub effective_rounds: f64,
    /// The PTS rule on the same series, for compatibility.
    pub pts: Option<PtsWindow>,
}

/// Fewest rounds for any verdict but "undecided".
pub const ROUNDS_MIN: usize = 10;
/// "Steady" needs so small a probability that the level moves by more than the tolerance.
const MAY_MOVE: f64 = 0.025;
/// "Not steady" needs so small a probability that it does not.
const MAY_STAY: f64 = 0.025;
/// A level that would move by nearly the tolerance is not called steady: curves are told from each other only so well.
const GUARDED: f64 = 0.85;
/// A test may scatter by so many times the tolerance before its number means nothing, whatever the level does: at noise of
/// 30 % and a correlation of 0.5, where drifts are still decided in time, tests of 25 rounds scatter by twice of 10 %.
const SCATTER_MAX: f64 = 2.5;
/// A regular swing needs so many rounds to be told from noise.
const SWING_ROUNDS_MIN: usize = 16;

/// Rounds at which a load that still runs may be called steady: the first when it was watched for half as long as the
/// planned test lasts (11 to 50 rounds), then each a fifth later than the one before.
///
/// A test that knew the noise, and that a slow wave is the only other course, would call 57 % of flat courses steady after 14
/// rounds and 94 % after 22 where 25 are planned, if 5 % of the waves may pass.
pub fn looks(test_rounds: f64) -> impl Iterator<Item = usize> {
    let first = (0.5 * test_rounds).clamp(11.0, 50.0);
    (0..).map(move |i| (first * 1.2_f64.powi(i)).round() as usize)
}

/// The verdict on a load that still runs, to be asked after every round until it says "steady".
///
/// The first "steady" among many looks is the one with most luck in it, so there are few looks, and none before the load
/// was watched for half as long as it will be relied on.
pub fn steadiness_so_far(rounds: &[f64], question: &Question) -> Steadiness {
    let mut s = steadiness(rounds, question);
    let n = rounds.len();
    let needed = looks(question.test_rounds).next().unwrap_or(n);
    let next = looks(question.test_rounds).find(|look| *look >= n);
    match (&mut s.verdict, next) {
        (Verdict::Steady, _) if n < needed => {
            s.verdict = Verdict::Undecided(vec![Reason::TooFewRounds { rounds: n, needed }]);
        }
        (Verdict::Steady, Some(next)) if next > n => {
            s.verdict = Verdict::Undecided(vec![Reason::BetweenLooks { next }]);
        }
        _ => {}
    }
    s
}

/// What keeps a series from being judged either way.
fn too_little_known(
    regime: &Regime,
    effective: f64,
    scatter: f64,
    question: &Question,
) -> Vec<Reason> {
    let mut open = Vec::new();
    if effective < 4.0 {
        open.push(Reason::TooFewIndependent { effective });
    }
    if scatter > SCATTER_MAX * question.tolerance {
        open.push(Reason::TooNoisy { scatter });
    }
    if let Some(deviation) = regime.last_off
        && deviation.abs() > question.tolerance / 2.0
    {
        open.push(Reason::LastRoundFarOff { deviation });
    }
    if let Some(Written { bytes, floor }) = question.written
        && bytes < floor
    {
        open.push(Reason::TooLittleWritten { bytes, floor });
    }
    open
}

/// What is against steadiness outweighs what is open.
fn verdict(mut against: Vec<Reason>, mut open: Vec<Reason>) -> Verdict {
    if !against.is_empty() {
        against.append(&mut open);
        Verdict::NotSteady(against)
    } else if !open.is_empty() {
        Verdict::Undecided(open)
    } else {
        Verdict::Steady
    }
}

/// Judges a series of rounds (throughput, or mean latency) once.
pub fn steadiness(rounds: &[f64], question: &Question) -> Steadiness {
    let n = rounds.len();
    let mut out = Steadiness {
        verdict: Verdict::Steady,
        drift: None,
        level: None,
        swing: None,
        regime_start: 0,
        effective_rounds: n as f64,
        pts: pts_steady(rounds),
    };
    let undecided = |reason| Verdict::Undecided(vec![reason]);
    if rounds.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
        out.verdict = undecided(Reason::Unusable);
        return out;
    }
    if n < ROUNDS_MIN {
        let needed = ROUNDS_MIN;
        out.verdict = undecided(Reason::TooFewRounds { rounds: n, needed });
        return out;
    }
    let (mut against, mut open) = (Vec::new(), Vec::new());
    let regime = last_regime(rounds);
    out.regime_start = regime.start;
    let tolerance = question.tolerance;
    let look = look_ahead(&regime.calm, regime.swing.is_some(), question.test_rounds);
    out.effective_rounds = look.effective;
    out.level = Some(look.level);
    out.drift = Some(look.drift);
    out.swing = regime.swing.map(|s| Swing {
        period: s.period,
        amplitude: s.amplitude / look.level,
    });

    if regime.start * 2 >= n && regime.jump.abs() > tolerance / 2.0 {
        let (round, jump) = (regime.start, regime.jump);
        against.push(Reason::ChangePoint { round, jump });
    }
    // The mean of a test is off by at most this share, wherever in a cycle it starts.
    let wobble = out.swing.map_or(0.0, |s| {
        s.amplitude * (s.period / (std::f64::consts::PI * question.test_rounds)).min(1.0)
    });
    if let Some(swing) = out.swing
        && wobble > tolerance
    {
        against.push(Reason::Swinging { swing });
    }
    let room = (tolerance - wobble).max(0.0);
    match resolve(&look, room, tolerance) {
        Resolved::Still => {}
        Resolved::Moving => against.push(Reason::Drift { drift: look.drift }),
        Resolved::Open => open.push(Reason::DriftNotResolved { drift: look.drift }),
    }
    let scatter = test_scatter(rounds, &regime, &look, question.test_rounds);
    open.extend(too_little_known(&regime, look.effective, scatter, question));
    if !question.write_ratio.is_empty() {
        judge_write_ratio(question, &mut against, &mut open);
    }
    if against.is_empty()
        && let Some((round, jump)) = still_moving(&regime, tolerance)
    {
        against.push(Reason::ChangePoint { round, jump });
    }
    out.verdict = verdict(against, open);
    out
}

/// A level that went one way for the last five rounds and more, by twice the tolerance and far beyond the noise: garbage
/// collection that has just set in follows none of the courses that are averaged, and where it ends is not seen yet.
fn still_moving(regime: &Regime, tolerance: f64) -> Option<(usize, f64)> {
    const ROUNDS: usize = 5;
    let y = &regime.calm;
    let falls = y.get(y.len().checked_sub(2)?)? > y.last()?;
    let steps = y.windows(2).rev().take_while(|w| (w[0] > w[1]) == falls);
    let from = y.len() - 1 - steps.count();
    let (before, moved) = (y[from], y[y.len() - 1] - y[from]);
    let far = moved.abs() > (2.0 * tolerance * before).max(6.0 * robust_noise(y).stddev);
    (y.len() - from > ROUNDS && far).then(|| (regime.start + from + 1, moved / before))
}

/// How far the mean of a planned test lies from the level by noise alone, as a share of it: two standard errors, from the
/// rounds as they were (outliers included) in the last half of the series, correlation counted.
fn test_scatter(rounds: &[f64], regime: &Regime, look: &Look, test_rounds: f64) -> f64 {
    let last = &rounds[regime.start.max(rounds.len() / 2)..];
    let n = last.len() as f64;
    let mean = last.iter().sum::<f64>() / n;
    let variance = last.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let independent = (look.effective / regime.calm.len() as f64).clamp(0.0, 1.0);
    2.0 * (variance / (test_rounds * independent).max(1.0)).sqrt() / mean
}

/// A ratio that moves means that garbage collection has not settled, whatever the throughput says.
fn judge_write_ratio(question: &Question, against: &mut Vec<Reason>, open: &mut Vec<Reason>) {
    let ratio = &question.write_ratio;
    if ratio.len() < ROUNDS_MIN || ratio.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
        open.push(Reason::WriteRatioNotResolved);
        return;
    }
    let regime = last_regime(ratio);
    let look = look_ahead(&regime.calm, regime.swing.is_some(), question.test_rounds);
    match resolve(&look, question.tolerance, question.tolerance) {
        Resolved::Still => {}
        Resolved::Moving => against.push(Reason::WriteRatioMoves { drift: look.drift }),
        Resolved::Open => open.push(Reason::WriteRatioNotResolved),
    }
}

enum Resolved {
    Still,
    Moving,
    Open,
}

fn resolve(look: &Look, room: f64, tolerance: f64) -> Resolved {
    let Some(ahead) = &look.ahead else {
        return Resolved::Open;
    };
    if ahead.moves(GUARDED * room) <= MAY_MOVE {
        Resolved::Still
    } else if ahead.moves(tolerance) >= 1.0 - MAY_STAY {
        Resolved::Moving
    } else {
        Resolved::Open
    }
}

/// The part of a series since its last jump, its swing taken out.
struct Regime {
    start: usize,
    /// After / before − 1 at the last jump.
    jump: f64,
    swing: Option<RawSwing>,
    calm: Vec<f64>,
    /// The last round against the fit, where it was tamed as an outlier.
    last_off: Option<f64>,
}

#[derive(Clone, Copy)]
struct RawSwing {
    period: f64,
    amplitude: f64,
}

/// Takes out swings and splits at jumps, whichever explains more first, until neither stands out.
///
/// Binary segmentation (Scott and Knott 1974; Vostrikova 1981) with a Schwarz-type penalty (Yao 1988) of
/// ln n per parameter: a split costs its place and a curve of three parameters.
fn last_regime(rounds: &[f64]) -> Regime {
    let mut regime = Regime {
        start: 0,
        jump: 0.0,
        swing: None,
        calm: rounds.to_vec(),
        last_off: None,
    };
    loop {
        let y = &regime.calm;
        let n = y.len();
        let decays = Decays::for_length(n);
        let noise = robust_noise(y);
        let scale = y.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        let variance = noise.stddev.powi(2).max((1e-6 * scale).powi(2));
        let tamed = if regime.swing.is_some() || n < SWING_ROUNDS_MIN {
            tame_outliers(y, noise)
        } else {
            y.clone()
        };
        let Some(best) = decays.best(&tamed) else {
            return regime;
        };
        let rest: Vec<f64> = y
            .iter()
            .enumerate()
            .map(|(t, v)| v - best.at(t as f64))
            .collect();
        let season = if regime.swing.is_none() && n >= SWING_ROUNDS_MIN {
            strongest(&rest, 1.0)
        } else {
            None
        };
        let split = best_split(&decays, &tame_outliers(y, noise), (1e-6 * scale).powi(2));
        let gained = split.map_or(0.0, |s| s.gain);
        if let Some(season) = season
            && season.explained >= gained
        {
            regime
                .calm
                .iter_mut()
                .zip(&season.curve)
                .for_each(|(v, c)| *v -= c);
            regime.swing = Some(RawSwing {
                period: season.period,
                amplitude: season.amplitude,
            });
            continue;
        }
        let Some(split) = split else {
            let last = n - 1;
            let tamed = tame_outliers(y, noise);
            let fit = decays.best(&tamed).unwrap_or(best);
            let expected = fit.at(last as f64);
            let off = y[last] - expected;
            regime.last_off =
                (off.abs() > 4.5 * variance.sqrt()).then(|| off / expected.abs().max(1e-300));
            regime.calm = tamed;
            return regime;
        };
        regime.start += split.at;
        regime.jump = split.jump;
        regime.calm.drain(..split.at);
        if regime.calm.len() < SHORTEST_CURVE {
            return regime;
        }
    }
}

#[derive(Clone, Copy)]
struct Split {
    at: usize,
    gain: f64,
    jump: f64,
}

/// The best jump, where it pays its penalty; `least` is the variance of rounding errors.
///
/// The noise is that around the two curves, so that neither a jump nor a trend passes for noise; its
/// correlation is corrected for the bias of short series (Kendall, Biometrika 41, 1954).
fn best_split(decays: &Decays, y: &[f64], least: f64) -> Option<Split> {
    let n = y.len();
    if n < ROUNDS_MIN {
        return None;
    }
    let (heads, tails) = decays.heads_and_tails(y);
    // What a slow wave describes as well is no jump.
    let whole = heads[n].min(tails[0]).min(after_slow_wave(y));
    let (at, both) = (2..=n - 2)
        .map(|s| (s, heads[s] + tails[s]))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let gain = whole - both;
    let (head, tail) = (Curve::of(decays, &y[..at])?, Curve::of(decays, &y[at..])?);
    let rest: Vec<f64> = y
        .iter()
        .enumerate()
        .map(|(t, v)| {
            v - if t < at {
                head.at(t as f64)
            } else {
                tail.at((t - at) as f64)
            }
        })
        .collect();
    let raw = autocorrelation(&rest, 1).get(1).copied().unwrap_or(0.0);
    let phi = (raw + (1.0 + 3.0 * raw.max(0.0)) / n as f64).clamp(0.0, 0.9);
    let parameters = 7.0_f64.min(n as f64 / 2.0);
    let variance = (both / (n as f64 - parameters)).max(least) * (1.0 + phi) / (1.0 - phi);
    if gain < 5.0 * (n as f64).ln() * variance {
        return None;
    }
    // A jump that lasts: the first rounds after it beside what the head had led to expect.
    let lasting = (n - at).min(5);
    let mean =
        |f: &dyn Fn(f64) -> f64| (0..lasting).map(|t| f(t as f64)).sum::<f64>() / lasting as f64;
    let (before, after) = (mean(&|t| head.at(at as f64 + t)), mean(&|t| tail.at(t)));
    Some(Split {
        at,
        gain,
        jump: after / before.abs().max(1e-300) - 1.0,
    })
}

/// What a segment is fitted by: a level if it is short, else a decay.
enum Curve {
    Level(f64),
    Decay(crate::decay::Fit),
}

impl Curve {
    fn of(decays: &Decays, part: &[f64]) -> Option<Self> {
        if part.len() < SHORTEST_CURVE {
            Some(Self::Level(part.iter().sum::<f64>() / part.len() as f64))
        } else {
            decays.best(part).map(Self::Decay)
        }
    }

    fn at(&self, t: f64) -> f64 {
        match self {
            Self::Level(level) => *level,
            Self::Decay(fit) => fit.at(t),
        }
    }
}

struct Look {
    level: f64,
    drift: Estimate,
    effective: f64,
    /// Nothing is known of what is to come after very few rounds.
    ahead: Option<Ahead>,
}

/// Level at the end and drift over the planned test, averaged over the courses that are possible.
fn look_ahead(calm: &[f64], swung: bool, test_rounds: f64) -> Look {
    let n = calm.len();
    let mean = calm.iter().sum::<f64>() / n as f64;
    let best = (n >= SHORTEST_CURVE).then(|| Decays::for_length(n).best(calm));
    let Some(first) = best.flatten() else {
        return Look {
            level: mean,
            drift: Estimate {
                value: 0.0,
                low: None,
                high: None,
                samples: n as u32,
            },
            effective: n as f64,
            ahead: None,
        };
    };
    // Noise is taken as a share of the level: early, high rounds weigh less.
    let weights: Vec<f64> = (0..n)
        .map(|t| (mean / first.at(t as f64).max(0.05 * mean)).powi(2))
        .collect();
    let scale = calm.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let ahead = Ahead::of(&Past {
        calm,
        weights: &weights,
        // Three harmonics.
        used: if swung { 6.0 } else { 0.0 },
        test: test_rounds.max(1.0),
        least: (1e-6 * scale).powi(2),
    });
    let (value, low, high) = ahead.drift();
    Look {
        level: ahead.level,
        drift: Estimate {
            value,
            low: Some(low),
            high: Some(high),
            samples: ahead.effective.round() as u32,
        },
        effective: ahead.effective,
        ahead: Some(ahead),
    }
}

#[cfg(test)]
mod tests;

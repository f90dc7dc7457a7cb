//! Synthetic devices of known truth, and the score of both verdicts on them.
//!
//! Shared by the test that holds the verdict to its promise and by the example that
//! prints the table of docs/steady-state.md.
#![allow(unreachable_pub)]

use fathom_stats::rng::SplitMix64;
use fathom_stats::steady::{
    PTS_ROUNDS_MAX, PTS_WINDOW, Question, Verdict, Written, pts_steady, steadiness,
};

/// Largest drift over the planned test that still counts as steady.
pub const TOLERANCE: f64 = 0.10;
/// Length of the planned test, rounds.
pub const TEST_ROUNDS: f64 = 25.0;

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One level, noise 1…5 %.
    Flat,
    /// Decays with τ = 5…40 rounds to 0.3…0.9 of its first level, noise 1…5 %.
    Decaying,
    /// Falls by 30…70 % once at most, anywhere up to the byte floor, noise 1…5 %.
    Cliff,
    /// One level, noise 5…30 %.
    Noisy,
    /// Decays as above under noise of 5…30 %.
    NoisyDecay,
    /// Swings by ±5…30 % with a period of 4…20 rounds, noise 1…5 %.
    Periodic,
    /// What the verdict's own model does not know: decays as 1/(1 + t/τ), noise of 1…5 %, and one round in
    /// fifty falls by 30…70 %.
    Foreign,
}

/// All kinds.
pub const KINDS: [(Kind, &str); 7] = [
    (Kind::Flat, "flat, noise 1…5 %"),
    (Kind::Decaying, "decaying, τ = 5…40 rounds, noise 1…5 %"),
    (Kind::Cliff, "cliff of 30…70 %, noise 1…5 %"),
    (Kind::Noisy, "flat, noise 5…30 %"),
    (Kind::NoisyDecay, "decaying, τ = 5…40 rounds, noise 5…30 %"),
    (Kind::Periodic, "periodic, ±5…30 %, 4…20 rounds"),
    (Kind::Foreign, "hyperbolic decay with outliers, noise 1…5 %"),
];

/// A device with its truth.
pub struct Device {
    /// Share of the first level that decays away.
    decaying: f64,
    tau: f64,
    /// First round after the cliff.
    cliff: Option<f64>,
    fall: f64,
    swing: f64,
    period: f64,
    phase: f64,
    second: f64,
    noise: f64,
    correlation: f64,
    /// Decays as a hyperbola, and has outliers.
    foreign: bool,
    /// Rounds that must have been written before a cliff can be ruled out.
    floor_rounds: f64,
}

impl Device {
    /// Draws a device of a kind; `rounds` is the time allowed.
    pub fn draw(kind: Kind, rounds: usize, r: &mut SplitMix64) -> Self {
        let noisy = matches!(kind, Kind::Noisy | Kind::NoisyDecay);
        let mut d = Self {
            decaying: 0.0,
            tau: 20.0,
            cliff: None,
            fall: 0.0,
            swing: 0.0,
            period: 10.0,
            phase: r.between(0.0, std::f64::consts::TAU),
            second: 0.0,
            noise: if noisy {
                r.between(0.05, 0.30)
            } else {
                r.between(0.01, 0.05)
            },
            // Half of the devices have noise that lasts for more than one round.
            correlation: if r.unit() < 0.5 {
                0.0
            } else {
                r.between(0.0, 0.5)
            },
            foreign: kind == Kind::Foreign,
            floor_rounds: rounds as f64,
        };
        match kind {
            Kind::Flat | Kind::Noisy => {}
            Kind::Decaying | Kind::NoisyDecay | Kind::Foreign => {
                d.decaying = r.between(0.1, 0.7);
                d.tau = r.between(5.0, 40.0);
            }
            Kind::Cliff => {
                // In some trials the time allowed ends before the floor is written.
                d.floor_rounds = rounds as f64 * r.between(0.4, 1.5);
                d.cliff = Some(d.floor_rounds * r.between(0.05, 0.98));
                d.fall = r.between(0.3, 0.7);
            }
            Kind::Periodic => {
                d.swing = r.between(0.05, 0.30);
                d.period = r.between(4.0, 20.0);
                d.second = r.between(0.0, 0.3);
            }
        }
        d
    }

    /// The true level, swing left out.
    fn level(&self, t: f64) -> f64 {
        let fallen = self.cliff.is_some_and(|c| t >= c.ceil());
        let left = if self.foreign {
            1.0 / (1.0 + t / self.tau)
        } else {
            (-t / self.tau).exp()
        };
        (1.0 - self.decaying + self.decaying * left) * if fallen { 1.0 - self.fall } else { 1.0 }
    }

    /// What would be measured.
    pub fn rounds(&self, n: usize, r: &mut SplitMix64) -> Vec<f64> {
        let phi = self.correlation;
        let mut noise = r.normal();
        (0..n)
            .map(|t| {
                noise = phi * noise + (1.0 - phi * phi).sqrt() * r.normal();
                let t = t as f64;
                let angle = std::f64::consts::TAU * t / self.period + self.phase;
                let swing = self.swing * (angle.sin() + self.second * (2.0 * angle).sin());
                let outlier = if self.foreign && r.unit() < 0.02 {
                    r.between(0.3, 0.7)
                } else {
                    1.0
                };
                let level = self.level(t) * (1.0 + swing) * outlier;
                (level * (1.0 + self.noise * noise)).max(0.01)
            })
            .collect()
    }

    /// Drift over the planned test after `n` rounds, as a share of the level.
    fn drift(&self, n: f64) -> f64 {
        let from = self.level(n - 1.0);
        (self.level(n - 1.0 + TEST_ROUNDS) - from) / from
    }

    /// By how much the mean of the planned test depends on where in a swing it starts.
    fn wobble(&self) -> f64 {
        self.swing * (self.period / (std::f64::consts::PI * TEST_ROUNDS)).min(1.0)
    }

    /// Round of a jump that lies in the last half of `n` rounds.
    fn recent_cliff(&self, n: f64) -> Option<f64> {
        self.cliff
            .map(f64::ceil)
            .filter(|c| *c <= n - 1.0 && 2.0 * c >= n)
    }

    /// Whether the device is steady after `n` rounds: its level will move by at most the tolerance during the
    /// planned test, it has not jumped in the last half, and no cliff is still to come.
    pub fn steady(&self, n: usize) -> bool {
        let n = n as f64;
        let ahead = self.cliff.is_some_and(|c| c.ceil() > n - 1.0);
        !ahead && self.recent_cliff(n).is_none() && self.drift(n).abs() + self.wobble() <= TOLERANCE
    }

    /// Whether data of these parameters can decide, by the interval of the drift that they can achieve: one of
    /// twice the width of 95 % must lie on one side of the tolerance, so that an honest test decides in
    /// about 97 % of the cases. Looks at the parameters only, never at the outcome.
    pub fn decidable(&self, n: usize) -> bool {
        let rounds = n as f64;
        let inflation = (1.0 + self.correlation) / (1.0 - self.correlation);
        if let Some(c) = self.recent_cliff(rounds) {
            // A jump needs three rounds after it (two may be outliers) and a height that stands out from the
            // noise by the penalty of a test that looks at all places (here 5 ln n) plus twice its error.
            let after = rounds - c;
            let sigma = self.noise * (1.0 - self.fall / 2.0) * inflation.sqrt();
            let height = self.fall * (after * c / rounds).sqrt() / sigma;
            return after >= 3.0 && height >= (5.0 * rounds.ln()).sqrt() + 2.0;
        }
        if rounds < self.floor_rounds {
            return false;
        }
        // The regime to judge begins after an early cliff.
        let start = self.cliff.map_or(0.0, f64::ceil);
        let mut free = (rounds - start) / inflation - 3.0;
        if self.swing > 0.0 {
            // A swing must be seen four times to be called regular, and takes six parameters.
            free -= 6.0;
            if rounds < 4.0 * self.period {
                return false;
            }
        }
        if free < 2.0 {
            return false;
        }
        // Twice the half width that 95 % asks for.
        let reach = 2.0 * student(free) * inflation.sqrt();
        let (low, high) = self.achievable(start, rounds, reach);
        let room = TOLERANCE - self.wobble();
        (low >= -room && high <= room) || low > TOLERANCE || high < -TOLERANCE
    }

    /// The drifts, as shares of the level, of all courses (exponentials, powers, logarithms, slow waves) whose distance from
    /// the true levels between two rounds is at most `reach` standard errors of the noise: the interval that an honest test
    /// which does not know the kind of course can achieve, made from the true parameters alone.
    fn achievable(&self, start: f64, end: f64, reach: f64) -> (f64, f64) {
        let level: Vec<f64> = (start as usize..end as usize)
            .map(|t| self.level(t as f64))
            .collect();
        let last = level[level.len() - 1];
        let m = level.len() as f64;
        // The noise is a share of the level.
        let w: Vec<f64> = level.iter().map(|l| (self.noise * l).powi(-2)).collect();
        let sum: f64 = w.iter().sum();
        let centred = |x: Vec<f64>| {
            let mean = x.iter().zip(&w).map(|(x, w)| x * w).sum::<f64>() / sum;
            x.into_iter().map(|x| x - mean).collect::<Vec<f64>>()
        };
        let dot = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().zip(b).zip(&w).map(|((a, b), w)| a * b * w).sum()
        };
        let y = centred(level.clone());
        let truth = self.drift(end);
        let (mut low, mut high) = (truth.min(0.0), truth.max(0.0));
        // Two columns of a course; a wave has both.
        let mut hold = |a: &dyn Fn(f64) -> f64, b: &dyn Fn(f64) -> f64| {
            let column =
                |f: &dyn Fn(f64) -> f64| centred((0..level.len()).map(|t| f(t as f64)).collect());
            let (ka, kb) = (column(a), column(b));
            let (aa, bb, ab) = (dot(&ka, &ka), dot(&kb, &kb).max(1e-12), dot(&ka, &kb));
            let (ya, yb) = (dot(&ka, &y), dot(&kb, &y));
            let det = aa * bb - ab * ab;
            let (ca, cb) = ((ya * bb - yb * ab) / det, (yb * aa - ya * ab) / det);
            let misfit = (dot(&y, &y) - ca * ya - cb * yb).max(0.0);
            if misfit > reach * reach {
                return;
            }
            for quarter in 1..=4 {
                let then = m - 1.0 + TEST_ROUNDS * f64::from(quarter) / 4.0;
                let (da, db) = (a(then) - a(m - 1.0), b(then) - b(m - 1.0));
                let spread = (bb * da * da + aa * db * db - 2.0 * ab * da * db) / det;
                let half = ((reach * reach - misfit) * spread.max(0.0)).sqrt();
                low = low.min((ca * da + cb * db - half) / last);
                high = high.max((ca * da + cb * db + half) / last);
            }
        };
        for step in 0..=40 {
            let tau = (50.0 * m).powf(f64::from(step) / 40.0);
            hold(&|t| (-t / tau).exp(), &|_| 0.0);
        }
        for step in 0..=7 {
            let tau = (4.0 * TEST_ROUNDS).powf(f64::from(step) / 7.0);
            hold(&|t| (1.0 + t / tau).ln(), &|_| 0.0);
            for p in [0.25, 0.5, 1.0, 2.0] {
                hold(&|t| (1.0 + t / tau).powf(-p), &|_| 0.0);
            }
        }
        for step in 0..=15 {
            let period = TEST_ROUNDS * 10.0_f64.powf(f64::from(step) / 15.0);
            let angle = move |t: f64| std::f64::consts::TAU * t / period;
            hold(&|t| angle(t).cos(), &|t| angle(t).sin());
        }
        (low, high)
    }
}

/// 97.5 % quantile of Student's t.
fn student(freedom: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// Counts over the trials of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Score {
    pub trials: u32,
    /// Devices that truly are steady.
    pub steady: u32,
    /// Devices about which the data can decide.
    pub decidable: u32,
    /// Right verdicts of fathom.
    pub right: u32,
    /// Called steady and is not.
    pub false_steady: u32,
    /// Called not steady and is.
    pub false_alarm: u32,
    /// Undecided in all.
    pub undecided: u32,
    /// Undecided where the data can decide: wrong.
    pub undecided_wrong: u32,
    /// Right verdicts where the data can decide.
    pub decidable_right: u32,
    /// Right verdicts of the PTS rule.
    pub pts_right: u32,
    /// Passed the PTS rule and is not steady then.
    pub pts_false_steady: u32,
}

/// Runs seeded trials of a kind with so many rounds allowed.
pub fn score(
    kind: Kind,
    rounds: usize,
    seeds: std::ops::Range<u64>,
    mut wrong: impl FnMut(u64, String),
) -> Score {
    let mut s = Score::default();
    for seed in seeds {
        let mut r = SplitMix64::new(seed ^ ((kind as u64 + 1) << 40) ^ ((rounds as u64) << 50));
        let device = Device::draw(kind, rounds, &mut r);
        let y = device.rounds(rounds, &mut r);
        let mut question = Question::new(TOLERANCE, TEST_ROUNDS);
        question.written = Some(Written {
            bytes: rounds as u64 * 1000,
            floor: (device.floor_rounds * 1000.0) as u64,
        });
        let (steady, decidable) = (device.steady(rounds), device.decidable(rounds));
        let found = steadiness(&y, &question);
        let mut right = false;
        match &found.verdict {
            Verdict::Steady => {
                right = steady;
                s.false_steady += u32::from(!steady);
            }
            Verdict::NotSteady(_) => {
                right = !steady;
                s.false_alarm += u32::from(steady);
            }
            Verdict::Undecided(_) => {
                right |= !decidable;
                s.undecided += 1;
                s.undecided_wrong += u32::from(decidable);
            }
        }
        if !right {
            wrong(
                seed,
                format!(
                    "steady {steady} drift {:.3} noise {:.3} phi {:.2} tau {:.1} cliff {:?} period {:.1}±{:.2}: {found:?}",
                    device.drift(rounds as f64),
                    device.noise,
                    device.correlation,
                    device.tau,
                    device.cliff,
                    device.period,
                    device.swing
                ),
            );
        }
        s.trials += 1;
        s.steady += u32::from(steady);
        s.decidable += u32::from(decidable);
        s.right += u32::from(right);
        s.decidable_right += u32::from(right && decidable);
        // The PTS rule speaks as soon as it passes, or gives up after 25 rounds.
        let pts = pts_steady(&y);
        let at = pts.map_or(PTS_ROUNDS_MAX.min(rounds), |w| w.first + PTS_WINDOW);
        let truth = device.steady(at);
        s.pts_right += u32::from(pts.is_some() == truth);
        s.pts_false_steady += u32::from(pts.is_some() && !truth);
    }
    s
}

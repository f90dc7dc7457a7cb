//! Described series for what is said while a load runs: families of courses whose level is known at every round, judged
//! as `condition --until-steady` judges them, and falls, judged as caches and credits are.
//!
//! Shared by the tests that hold the goals and by the example behind `bench/truth`.

#![allow(unreachable_pub, dead_code)]

use fathom_stats::rng::SplitMix64;
use fathom_stats::steady::{Question, Verdict, Written, looks, steadiness_so_far};

/// Families of courses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// b + c·e^(−t/τ), τ in these rounds.
    Decay(u32, u32),
    /// A straight line.
    Line,
    /// 1 − d + d/(1 + t/τ).
    Hyperbola,
    /// (1 + t)^−a.
    Power,
    /// A level, then a fall (a cliff or a decay) before the byte floor is reached.
    PlateauBeforeFloor,
    /// A level of 10…80 rounds, then a fall; no bytes are counted (a load that reads).
    PlateauUnforeseen,
    /// ±10…30 % with a period of 40…150 rounds.
    SlowSine,
    /// One level.
    Flat,
    /// One level and a swing of ±5…30 % every 4…20 rounds.
    Swing,
    /// One level; one to three rounds in twenty-five lie 20…70 % lower.
    Dips,
    /// A decay of τ below three rounds, then one level.
    Settled,
}

/// A family under a noise.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// For people.
    pub name: &'static str,
    /// Its shape.
    pub family: Family,
    /// Noise, smallest and largest, as a share of the level.
    pub noise: (f64, f64),
    /// Largest correlation of neighbouring rounds.
    pub correlation: f64,
}

const fn kind(name: &'static str, family: Family, noise: (f64, f64), correlation: f64) -> Kind {
    Kind {
        name,
        family,
        noise,
        correlation,
    }
}

const QUIET: (f64, f64) = (0.01, 0.05);
const LOUD: (f64, f64) = (0.05, 0.30);

/// Courses that still move, at least for some time.
pub const MOVING: [Kind; 10] = [
    kind("decay, τ 5…40", Family::Decay(5, 40), QUIET, 0.5),
    kind("decay, τ 40…150", Family::Decay(40, 150), QUIET, 0.5),
    kind("straight line", Family::Line, QUIET, 0.5),
    kind("hyperbola", Family::Hyperbola, QUIET, 0.5),
    kind("power law", Family::Power, QUIET, 0.5),
    kind("sine ±10…30 %, period 40…150", Family::SlowSine, QUIET, 0.5),
    kind(
        "plateau, then a fall before the byte floor",
        Family::PlateauBeforeFloor,
        QUIET,
        0.5,
    ),
    kind(
        "decay, τ 5…40, noise 5…30 %",
        Family::Decay(5, 40),
        LOUD,
        0.5,
    ),
    kind("straight line, noise 5…30 %", Family::Line, LOUD, 0.5),
    // Nothing tells of it in time: shown, not promised.
    kind(
        "plateau of 10…80, then a fall, no byte floor",
        Family::PlateauUnforeseen,
        QUIET,
        0.5,
    ),
];

/// Courses that are steady.
pub const STEADY: [Kind; 6] = [
    kind("flat, noise 1…5 %", Family::Flat, QUIET, 0.0),
    kind(
        "flat, noise 1…5 %, correlation 0…0.7",
        Family::Flat,
        QUIET,
        0.7,
    ),
    kind("flat, noise 5…30 %", Family::Flat, LOUD, 0.5),
    kind("swing ±5…30 %, period 4…20", Family::Swing, QUIET, 0.5),
    kind("dips", Family::Dips, QUIET, 0.5),
    kind("settled after τ 1…3", Family::Settled, QUIET, 0.5),
];

/// A course with its truth.
#[derive(Debug, Clone)]
pub struct Course {
    family: Family,
    /// Share that goes, slope, exponent or amplitude.
    size: f64,
    /// τ or period.
    time: f64,
    /// First round of the fall.
    plateau: f64,
    /// A cliff, not a decay, after the plateau.
    cliff: bool,
    phase: f64,
    /// Byte floor, rounds.
    pub floor: Option<f64>,
    noise: f64,
    correlation: f64,
}

impl Course {
    /// Draws one.
    pub fn draw(kind: &Kind, r: &mut SplitMix64) -> Self {
        let mut c = Self {
            family: kind.family,
            size: r.between(0.1, 0.7),
            time: 1.0,
            plateau: 0.0,
            cliff: r.unit() < 0.5,
            phase: r.between(0.0, std::f64::consts::TAU),
            floor: None,
            noise: r.between(kind.noise.0, kind.noise.1),
            correlation: if r.unit() < 0.5 {
                0.0
            } else {
                r.between(0.0, kind.correlation)
            },
        };
        match kind.family {
            Family::Decay(least, most) => c.time = r.between(f64::from(least), f64::from(most)),
            Family::Line if r.unit() < 0.5 => c.size = -r.between(0.002, 0.006),
            Family::Line => c.size = r.between(0.005, 0.02),
            Family::Hyperbola => c.time = r.between(5.0, 40.0),
            Family::Power => c.size = r.between(0.1, 0.6),
            Family::PlateauBeforeFloor | Family::PlateauUnforeseen => {
                c.size = r.between(0.3, 0.7);
                c.time = r.between(5.0, 40.0);
                c.plateau = r.between(10.0, 80.0);
                if kind.family == Family::PlateauBeforeFloor {
                    let floor = r.between(15.0, 70.0);
                    c.plateau = floor * r.between(0.1, 0.98);
                    c.floor = Some(floor);
                }
            }
            Family::SlowSine => {
                c.size = r.between(0.1, 0.3);
                c.time = r.between(40.0, 150.0);
            }
            Family::Flat => {}
            Family::Swing => {
                c.size = r.between(0.05, 0.3);
                c.time = r.between(4.0, 20.0);
            }
            Family::Dips => c.size = r.between(0.2, 0.7),
            Family::Settled => c.time = r.between(1.0, 3.0),
        }
        c
    }

    /// The true level of a round; what a planned test averages over (short swings, dips) is left out.
    pub fn level(&self, t: f64) -> f64 {
        let gone = |left: f64| 1.0 - self.size * (1.0 - left);
        match self.family {
            Family::Decay(..) | Family::Settled => gone((-t / self.time).exp()),
            Family::Line => (1.0 + self.size * t).max(0.05),
            Family::Hyperbola => gone(1.0 / (1.0 + t / self.time)),
            Family::Power => (1.0 + t).powf(-self.size),
            Family::PlateauBeforeFloor | Family::PlateauUnforeseen => {
                let since = t - self.plateau.ceil();
                match (since >= 0.0, self.cliff) {
                    (false, _) => 1.0,
                    (true, true) => 1.0 - self.size,
                    (true, false) => gone((-since / self.time).exp()),
                }
            }
            Family::SlowSine => 1.0 + self.size * self.angle(t).sin(),
            Family::Flat | Family::Swing | Family::Dips => 1.0,
        }
    }

    fn angle(&self, t: f64) -> f64 {
        std::f64::consts::TAU * t / self.time + self.phase
    }

    /// What is measured in `n` rounds.
    pub fn rounds(&self, n: usize, r: &mut SplitMix64) -> Vec<f64> {
        let phi = self.correlation;
        let mut noise = r.normal();
        let mut dip = 0.0;
        (0..n)
            .map(|t| {
                noise = phi * noise + (1.0 - phi * phi).sqrt() * r.normal();
                let t = t as f64;
                let mut level = self.level(t);
                if self.family == Family::Swing {
                    level *= 1.0 + self.size * self.angle(t).sin();
                }
                if self.family == Family::Dips {
                    if dip <= 0.0 && r.unit() < 0.04 {
                        dip = r.between(1.0, 3.0).floor();
                    }
                    if dip > 0.0 {
                        level *= 1.0 - self.size;
                        dip -= 1.0;
                    }
                }
                (level * (1.0 + self.noise * noise)).max(0.01)
            })
            .collect()
    }

    /// Whether the level leaves the tolerance during a planned test that begins after `n` rounds.
    pub fn moves(&self, n: usize, test: f64, tolerance: f64) -> bool {
        let from = self.level(n as f64 - 1.0);
        (0..=test as usize).any(|t| {
            let then = self.level((n - 1 + t) as f64);
            (then / from - 1.0).abs() > tolerance
        })
    }
}

/// Rounds after which conditioning gives up.
pub const ROUNDS_MAX: usize = 100;

/// Counts over the courses of a kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub courses: u32,
    /// Called steady at some round.
    pub steady: u32,
    /// Called steady while the level still moves by more than the tolerance.
    pub wrong: u32,
    /// Never called steady, though the level no longer moves at the end.
    pub missed: u32,
    /// Rounds until the end.
    pub rounds: u32,
}

/// Runs seeded courses of a kind as `condition --until-steady` does: a look after every round until "steady" is said.
/// Where a `floor` is given, that many rounds at most have to be written first.
pub fn count(
    number: usize,
    kind: &Kind,
    test: f64,
    floor: Option<f64>,
    seeds: std::ops::Range<u64>,
) -> Count {
    let mut out = Count::default();
    for seed in seeds {
        let mut r = SplitMix64::new(seed ^ ((number as u64 + 1) << 40));
        let course = Course::draw(kind, &mut r);
        let rounds = course.rounds(ROUNDS_MAX, &mut r);
        let floor = course.floor.or(floor.map(|most| r.between(15.0, most)));
        let mut question = Question::new(0.1, test);
        // Between looks nothing is ever called steady: those rounds need not be judged here.
        let mut looks = looks(test).take_while(|n| *n <= ROUNDS_MAX);
        let found = looks.find(|n| {
            question.written = floor.map(|f| Written {
                bytes: *n as u64 * 1000,
                floor: (f * 1000.0) as u64,
            });
            steadiness_so_far(&rounds[..*n], &question).verdict == Verdict::Steady
        });
        let moves = course.moves(found.unwrap_or(ROUNDS_MAX), test, 0.1);
        out.courses += 1;
        out.steady += u32::from(found.is_some());
        out.wrong += u32::from(found.is_some() && moves);
        out.missed += u32::from(found.is_none() && !moves);
        out.rounds += found.unwrap_or(ROUNDS_MAX) as u32;
    }
    out
}

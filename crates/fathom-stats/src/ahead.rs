//! How far a level will still move during a planned test, averaged over every kind of course that the data leave possible.
//!
//! A course is flat, a line, dies down as an exponential, a power or a logarithm, or is a part of a slow wave; each kind with
//! its time constants has a weight before anything is seen, and the data change the weights (Bayesian model averaging;
//! Hoeting and others, Statistical Science 14, 1999). A probability found so may be looked at after every round: unlike the error
//! rate of a test it does not grow with the number of looks (Edwards, Lindman and Savage, Psychological Review 70, 1963).

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::autocorrelation::effective_sample_size;
use crate::decay::Shape;

/// What is looked at: a stretch without jumps and regular swings, and what is asked.
pub(crate) struct Past<'a> {
    /// The values.
    pub(crate) calm: &'a [f64],
    /// One over the variance of each, in any unit.
    pub(crate) weights: &'a [f64],
    /// Parameters that were taken out before.
    pub(crate) used: f64,
    /// Length of the planned test.
    pub(crate) test: f64,
    /// Variance of rounding errors.
    pub(crate) least: f64,
}

/// One kind of course with its time constant.
#[derive(Clone, Copy)]
enum Kind {
    Flat,
    Dying(Shape),
    /// Cycles per value.
    Wave(f64),
    /// A level that has left its place for so many values: where it goes is not seen yet.
    Left(usize),
}

/// Spread of the size of a movement before anything is seen, as a share of the level; of a wave's amplitude.
const SIZE: f64 = 0.4;
const AMPLITUDE: f64 = 0.2;

/// Every kind with its weight before anything is seen.
fn kinds(test: f64) -> Vec<(f64, Kind)> {
    let grid = |least: f64, most: f64, steps: usize| {
        let step = (most / least).powf(1.0 / (steps - 1) as f64);
        (0..steps).map(move |i| (least * step.powi(i as i32), 1.0 / steps as f64))
    };
    let mut all = vec![
        (0.45, Kind::Flat),
        // A straight line.
        (0.05, Kind::Dying(Shape::of_tau(1000.0 * test))),
    ];
    for (tau, each) in grid(2.0, 10.0 * test, 24) {
        all.push((0.1 * each, Kind::Dying(Shape::of_tau(tau))));
    }
    for (tau, each) in grid(1.0, 4.0 * test, 8) {
        for p in [0.0, 0.25, 0.5, 1.0, 2.0] {
            all.push((0.15 * each / 5.0, Kind::Dying(Shape::Power { tau, p })));
        }
    }
    for rounds in 2..=4 {
        all.push((0.02 / 3.0, Kind::Left(rounds)));
    }
    for (period, each) in grid(test, 16.0 * test, 36) {
        all.push((0.35 * each, Kind::Wave(1.0 / period)));
    }
    all
}

/// A kind's two columns (the second is nought where one suffices), centred, and their products.
struct Columns {
    prior: f64,
    kind: Kind,
    values: [Vec<f64>; 2],
    means: [f64; 2],
    /// aa, bb, ab.
    normal: [f64; 3],
    /// With the values that were measured.
    right: [f64; 2],
}

/// Least squares with a ridge: factors, inverse (aa, bb, ab), determinant.
fn solve(normal: [f64; 3], right: [f64; 2], ridge: f64) -> ([f64; 2], [f64; 3], f64) {
    let (aa, bb, ab) = (normal[0] + ridge, normal[1] + ridge, normal[2]);
    let det = (aa * bb - ab * ab).max(f64::MIN_POSITIVE);
    let factors = [
        (right[0] * bb - right[1] * ab) / det,
        (right[1] * aa - right[0] * ab) / det,
    ];
    (factors, [bb / det, aa / det, -ab / det], det)
}

impl Columns {
    fn explained(&self, factors: [f64; 2]) -> f64 {
        factors[0] * self.right[0] + factors[1] * self.right[1]
    }
}

/// A stretch in the form that every course is fitted to.
struct Fitting<'a> {
    past: &'a Past<'a>,
    n: f64,
    level: f64,
    /// Around the level.
    values: Vec<f64>,
    /// Weighted squares of them.
    total: f64,
    /// Of the noise around the best course.
    variance: f64,
    columns: Vec<Columns>,
}

impl<'a> Fitting<'a> {
    fn of(past: &'a Past<'a>) -> Self {
        let n = past.calm.len() as f64;
        let sum: f64 = past.weights.iter().sum();
        let mean = |x: &[f64]| x.iter().zip(past.weights).map(|(x, w)| x * w).sum::<f64>() / sum;
        let dot = |a: &[f64], b: &[f64]| -> f64 {
            a.iter()
                .zip(b)
                .zip(past.weights)
                .map(|((a, b), w)| a * b * w)
                .sum()
        };
        let level = mean(past.calm);
        let values: Vec<f64> = past.calm.iter().map(|v| v - level).collect();
        let total = dot(&values, &values) + n * past.least;
        let mut all = Self {
            past,
            n,
            level,
            values,
            total,
            variance: 0.0,
            columns: Vec::new(),
        };
        all.columns = kinds(past.test)
            .into_iter()
            .map(|(prior, kind)| {
                let (mut a, mut b): (Vec<f64>, Vec<f64>) = (0..past.calm.len())
                    .map(|t| all.columns_at(kind, t as f64).into())
                    .unzip();
                let means = [mean(&a), mean(&b)];
                a.iter_mut().for_each(|v| *v -= means[0]);
                b.iter_mut().for_each(|v| *v -= means[1]);
                Columns {
                    prior,
                    kind,
                    means,
                    normal: [dot(&a, &a), dot(&b, &b), dot(&a, &b)],
                    right: [dot(&a, &all.values), dot(&b, &all.values)],
                    values: [a, b],
                }
            })
            .collect();
        let rest = |c: &Columns| total - c.explained(solve(c.normal, c.right, 1e-9 * sum).0);
        let least = all.columns.iter().map(rest).fold(total, f64::min);
        all.variance = least.max(n * past.least) / (n - 3.0 - past.used).max(1.0);
        all
    }

    /// The columns of a kind at a time: a course that dies down moves by one until the test's end.
    fn columns_at(&self, kind: Kind, t: f64) -> [f64; 2] {
        match kind {
            Kind::Flat => [0.0, 0.0],
            Kind::Dying(shape) => {
                let range = shape.at(0.0) - shape.at(self.n - 1.0 + self.past.test);
                [shape.at(t) / range, 0.0]
            }
            Kind::Wave(f) => (std::f64::consts::TAU * f * t).sin_cos().into(),
            Kind::Left(rounds) => [f64::from(u8::from(t + rounds as f64 >= self.n)), 0.0],
        }
    }

    /// What is worth as many values as are independent of each other.
    fn prospects(&self, inflation: f64) -> Vec<Prospect> {
        let mut all: Vec<Prospect> = self
            .columns
            .iter()
            .map(|c| self.prospect(c, inflation))
            .collect();
        let most = all.iter().fold(f64::NEG_INFINITY, |m, p| m.max(p.weight));
        let sum: f64 = all.iter().map(|p| (p.weight - most).exp()).sum();
        for p in &mut all {
            p.weight = (p.weight - most).exp() / sum;
        }
        all
    }

    fn freedom(&self, inflation: f64) -> f64 {
        (self.n / inflation - 1.0 - self.past.used).max(1.0)
    }

    fn prospect(&self, c: &Columns, inflation: f64) -> Prospect {
        let (from, test) = (self.n - 1.0, self.past.test);
        let size = self.level
            * match c.kind {
                Kind::Wave(_) => AMPLITUDE,
                _ => SIZE,
            };
        let ridge = self.variance * inflation / (size * size);
        let (factors, inverse, det) = solve(c.normal, c.right, ridge);
        let rss = (self.total - c.explained(factors)).max(self.n * self.past.least);
        let evidence = match c.kind {
            Kind::Flat => 0.0,
            _ => 0.5 * (2.0 * ridge.ln() - det.ln()),
        };
        let freedom = self.freedom(inflation);
        let now = self.columns_at(c.kind, from);
        let end =
            self.level + factors[0] * (now[0] - c.means[0]) + factors[1] * (now[1] - c.means[1]);
        let end = if end > 0.05 * self.level {
            end
        } else {
            self.level
        };
        let moves = |a: f64, b: f64| {
            let middle = factors[0] * a + factors[1] * b;
            let spread = inverse[0] * a * a + inverse[1] * b * b + 2.0 * inverse[2] * a * b;
            // Values that hang together are fewer, and their noise is as large.
            let noise = rss / freedom;
            (middle / end, (noise * spread.max(0.0)).sqrt() / end)
        };
        let step = |t: f64| {
            let then = self.columns_at(c.kind, from + t);
            moves(then[0] - now[0], then[1] - now[1])
        };
        let moves = match c.kind {
            Kind::Flat => vec![(0.0, 0.0)],
            Kind::Dying(_) => vec![step(test)],
            Kind::Left(_) => vec![(0.0, SIZE)],
            // What is left of whole cycles in the mean of a test.
            Kind::Wave(f) if f * test >= 1.0 => {
                let size = factors[0].hypot(factors[1]).max(f64::MIN_POSITIVE);
                let left = 1.0 / (std::f64::consts::PI * f * test * size);
                vec![moves(factors[0] * left, factors[1] * left)]
            }
            Kind::Wave(_) => (1..=8).map(|q| step(test * f64::from(q) / 8.0)).collect(),
        };
        Prospect {
            weight: c.prior.ln() + evidence - 0.5 * freedom * rss.ln(),
            moves,
            level: end,
            factors,
        }
    }

    /// The weighted residuals of a course.
    fn rest(&self, which: usize, factors: [f64; 2]) -> Vec<f64> {
        let [a, b] = &self.columns[which].values;
        let values = self.values.iter().zip(self.past.weights).enumerate();
        values
            .map(|(i, (v, w))| (v - factors[0] * a[i] - factors[1] * b[i]) * w.sqrt())
            .collect()
    }
}

/// What a course says of the future.
struct Prospect {
    /// Its weight after everything was seen (its logarithm while they are compared).
    weight: f64,
    /// Movements within the test, as shares of the level at the end: expected, and standard error.
    moves: Vec<(f64, f64)>,
    /// Level at the end.
    level: f64,
    factors: [f64; 2],
}

/// The mixture of all courses.
pub(crate) struct Ahead {
    prospects: Vec<Prospect>,
    student: StudentsT,
    /// Level at the end.
    pub(crate) level: f64,
    /// Independent values that the stretch is worth.
    pub(crate) effective: f64,
}

impl Ahead {
    /// Looks at a stretch of at least two values.
    pub(crate) fn of(past: &Past<'_>) -> Self {
        let fitting = Fitting::of(past);
        let n = fitting.n;
        let first = fitting.prospects(1.0);
        let best = first
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.weight.total_cmp(&b.1.weight));
        let effective = best
            .map_or(n, |(i, b)| {
                effective_sample_size(&fitting.rest(i, b.factors))
            })
            .min(n);
        let prospects = fitting.prospects(n / effective);
        let level = prospects.iter().map(|p| p.weight * p.level).sum();
        let student = StudentsT::new(0.0, 1.0, fitting.freedom(n / effective));
        Self {
            prospects,
            student: student.unwrap_or_else(|_| unreachable!("freedom is positive")),
            level,
            effective,
        }
    }

    /// Probability that the level moves by more than `room` during the test.
    pub(crate) fn moves(&self, room: f64) -> f64 {
        let beyond = |p: &Prospect| {
            p.moves.iter().fold(0.0_f64, |most, m| {
                most.max(self.below(*m, -room) + 1.0 - self.below(*m, room))
            })
        };
        let likely = self.prospects.iter().filter(|p| p.weight > 1e-6);
        likely.map(|p| p.weight * beyond(p)).sum()
    }

    fn below(&self, (middle, error): (f64, f64), x: f64) -> f64 {
        if error > 0.0 {
            self.student.cdf((x - middle) / error)
        } else {
            f64::from(u8::from(x >= middle))
        }
    }

    /// The movement until the test's end: its mean, and the bounds that it exceeds with 2.5 % each.
    pub(crate) fn drift(&self) -> (f64, f64, f64) {
        let likely: Vec<(f64, (f64, f64))> = self
            .prospects
            .iter()
            .filter(|p| p.weight > 1e-3)
            .filter_map(|p| Some((p.weight, *p.moves.last()?)))
            .collect();
        let sum: f64 = likely.iter().map(|l| l.0).sum();
        let mean = likely.iter().map(|(w, m)| w * m.0).sum::<f64>() / sum;
        let reach = likely
            .iter()
            .fold(0.0_f64, |r, (_, m)| r.max(m.0.abs() + 20.0 * m.1));
        let quantile = |q: f64| {
            let (mut low, mut high) = (-reach, reach);
            for _ in 0..18 {
                let x = (low + high) / 2.0;
                let below: f64 = likely.iter().map(|(w, m)| w * self.below(*m, x)).sum();
                if below < q * sum {
                    low = x;
                } else {
                    high = x;
                }
            }
            high
        };
        (mean, quantile(0.025), quantile(0.975))
    }
}

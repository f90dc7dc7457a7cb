//! Least squares over the numbers of many loads: Levenberg's and Marquardt's steps, each derivative from two simulations
//! with the same random numbers; outliers pull with bounded force (Huber).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fathom_io::threads::within;
use fathom_sim::model::Model;
use fathom_sim::parameters::{PARAMETERS, Parameter};

use super::seen::{Load, QUANTITIES, simulated};
use super::{FAR, JUDGED, NEAR};

/// A residual beyond so many standard deviations pulls no harder.
const HUBER: f64 = 3.0;
/// Step of a derivative on the parameter's scale, and where its scatter matters.
const STEP: f64 = 0.15;
const WIDE: f64 = 0.2;
/// Longest step of a parameter on its scale.
const LONGEST: f64 = 0.7;
/// Seeds that show how much a model's numbers scatter.
const SEEDS: u64 = 4;
/// What is known of a value before anything is seen: within a factor of 4.5, more or less.
const PRIOR: f64 = 1.5;

/// One row of the problem: a number of a load.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// Model over measured, in standard deviations; 0 where the model has too few to say.
    off: f64,
    /// Standard deviation of the logarithm, of both together.
    sd: f64,
    /// The same of what was measured alone.
    own: f64,
}

/// Parameters that are moved, the loads, and how many requests are simulated of each.
pub(super) struct Problem<'a> {
    pub(super) loads: &'a [&'a Load],
    pub(super) moved: &'a [&'static Parameter],
    pub(super) requests: f64,
}

/// Everything that a model shows of some loads, in their order, on all processors.
pub(super) fn shown(
    models: &[Model],
    loads: &[&Load],
    requests: f64,
    seed: u64,
) -> Vec<Vec<Shown>> {
    let tasks: Vec<(usize, usize)> = (0..models.len())
        .flat_map(|m| (0..loads.len()).map(move |l| (m, l)))
        .collect();
    let done: Mutex<Vec<Vec<Shown>>> = Mutex::new(vec![vec![None; loads.len()]; models.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((m, l)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Each load has random numbers of its own, or all would be off together.
            let seed = seed * 1_000 + *l as u64;
            let one = simulated(&models[*m], loads[*l], requests, seed);
            if let Ok(mut done) = done.lock() {
                done[*m][*l] = one;
            }
        }
    };
    std::thread::scope(|scope| {
        // Where the system gives no more threads, fewer do the work.
        let more = std::thread::available_parallelism().map_or(1, |n| n.get()) - 1;
        let helping: Vec<_> = (0..more).filter_map(|_| within(scope, work).ok()).collect();
        work();
        drop(helping);
    });
    done.into_inner().unwrap_or_default()
}

/// What a model shows of one load: logarithm and its standard deviation, number by number.
pub(super) type Shown = Option<Vec<Option<(f64, f64)>>>;

impl Problem<'_> {
    fn rows(&self, shown: &[Shown]) -> Option<Vec<Row>> {
        let mut rows = Vec::new();
        let rough = self.rough();
        for (load, shown) in self.loads.iter().zip(shown) {
            for (seen, shown) in load.seen.iter().zip(shown.as_ref()?) {
                let close = QUANTITIES[seen.what].2;
                rows.push(match shown {
                    Some((ln, sd)) => {
                        let own = (seen.sd.powi(2) + close.powi(2) + rough.powi(2)).sqrt();
                        let sd = (own.powi(2) + sd.powi(2)).sqrt();
                        Row {
                            off: (ln - seen.ln) / sd,
                            sd,
                            own,
                        }
                    }
                    None => Row {
                        off: 0.0,
                        sd: f64::INFINITY,
                        own: f64::INFINITY,
                    },
                });
            }
        }
        Some(rows)
    }

    /// How far off numbers may be on the way: what is told sharply makes valleys too narrow to find from far away.
    fn rough(&self) -> f64 {
        match self.requests {
            n if n < NEAR => 0.03,
            n if n < JUDGED => 0.006,
            _ => 0.0,
        }
    }

    fn rows_of(&self, model: &Model) -> Option<Vec<Row>> {
        self.rows(&shown(std::slice::from_ref(model), self.loads, self.requests, 1)[0])
    }

    /// The least sum of squares is that of the best model; infinite where one cannot be run.
    pub(super) fn cost(&self, model: &Model) -> f64 {
        self.rows_of(model).map_or(f64::INFINITY, |r| cost(&r))
    }

    /// How far numbers are off beside what is thought of their scatter: a sum of squares for each number that no parameter
    /// takes up; numbers that are off by less were met by chance.
    pub(super) fn misfit(&self, cost: f64) -> f64 {
        let numbers: usize = self.loads.iter().map(|l| l.seen.len()).sum();
        (cost / numbers.saturating_sub(self.moved.len()).max(1) as f64).max(1.0)
    }

    /// Derivatives of each number by each parameter, on their scales: from a step up, or from steps up and down.
    fn slopes(&self, model: &Model, loads: &[&Load], steps: &[f64], seed: u64) -> Option<Slopes> {
        let ahead = match steps {
            [_] => vec![model.clone()],
            _ => Vec::new(),
        };
        let beside = self
            .moved
            .iter()
            .flat_map(|p| steps.iter().map(|step| moved(model, p, *step)));
        let models: Vec<Model> = ahead.into_iter().chain(beside).collect();
        let shown = shown(&models, loads, self.requests, seed);
        let numbers = |one: &[Shown]| -> Option<Vec<Option<f64>>> {
            let mut all = Vec::new();
            for load in one {
                all.extend(load.as_ref()?.iter().map(|n| n.map(|n| n.0)));
            }
            Some(all)
        };
        let mut columns = Vec::new();
        for (i, parameter) in self.moved.iter().enumerate() {
            let [low, high] = match steps {
                [_] => [0, i + 1],
                _ => [2 * i, 2 * i + 1],
            };
            let width = parameter.scaled(&models[high]) - parameter.scaled(&models[low]);
            let (low, high) = (numbers(&shown[low])?, numbers(&shown[high])?);
            let slope = |(l, h): (&Option<f64>, &Option<f64>)| match (l, h) {
                (Some(l), Some(h)) if width > 1e-6 => (h - l) / width,
                _ => 0.0,
            };
            columns.push(low.iter().zip(&high).map(slope).collect());
        }
        Some(columns)
    }

    /// Moves the parameters of `model` towards the least sum of squares; returns that. From far: slopes to one side, shorter
    /// steps along all until one helps.
    pub(super) fn descend(&self, model: &mut Model, rounds: u32) -> f64 {
        let damped = [1.0, 6.0, 36.0, 216.0].map(|by| (by, 1e-3));
        self.walk(model, rounds, damped, |model, rows, _| {
            let slopes = self.slopes(model, self.loads, &[STEP], 1)?;
            Some(normal(&slopes, &slopes, rows))
        })
    }

    /// The same from near: whole steps along what is well known, shorter ones along what is not.
    pub(super) fn settle(&self, model: &mut Model, rounds: u32) -> f64 {
        let along_the_known = [0.5, 8.0, 100.0].map(|least| (0.0, least));
        self.walk(model, rounds, along_the_known, |model, rows, round| {
            let seed = u64::from(6 + 2 * round);
            self.crossed(model, rows, [seed, seed + 1])
        })
    }

    /// Steps by the equations of each round, damped in turn as in `tries` (a share of each diagonal element, and at least)
    /// until one helps.
    fn walk<const N: usize>(
        &self,
        model: &mut Model,
        rounds: u32,
        tries: [(f64, f64); N],
        equations: impl Fn(&Model, &[Row], u32) -> Option<Equations>,
    ) -> f64 {
        let Some(mut rows) = self.rows_of(model) else {
            return f64::INFINITY;
        };
        let mut best = cost(&rows);
        let mut damping = 1e-2;
        // Less is not worth a round.
        let enough = if self.requests < NEAR { 1e-2 } else { 2e-3 };
        let mut at: Vec<f64> = self.moved.iter().map(|p| p.scaled(model)).collect();
        for round in 0..rounds {
            let Some(equations) = equations(model, &rows, round) else {
                break;
            };
            let before = best;
            for (times, least) in tries {
                let step = step(&equations, damping * times, least);
                let tried_at: Vec<f64> = at.iter().zip(&step).map(|(a, s)| a - s).collect();
                let mut tried = model.clone();
                for (p, a) in self.moved.iter().zip(&tried_at) {
                    p.set_scaled(&mut tried, *a);
                }
                if let Some(new) = self.rows_of(&tried)
                    && cost(&new) < best
                {
                    best = cost(&new);
                    (*model, rows) = (tried, new);
                    // What stands at the end of its range stays there; whole numbers would round small steps away.
                    at = (self.moved.iter().zip(&tried_at))
                        .map(|(p, a)| if is_whole(p) { *a } else { p.scaled(model) })
                        .collect();
                    damping = (damping * times / 5.0).clamp(1e-4, 1e4);
                    break;
                }
            }
            if before - best <= enough * before {
                break;
            }
        }
        best
    }

    /// Normal equations from two sets of slopes with random numbers of their own. The scatter of a simulation looks like a
    /// slope, and a slope like knowledge: two sets agree only on what is there.
    fn crossed(&self, model: &Model, rows: &[Row], seeds: [u64; 2]) -> Option<Equations> {
        let quick = Self {
            requests: NEAR,
            ..*self
        };
        let [one, other] = seeds.map(|seed| quick.slopes(model, self.loads, &[-WIDE, WIDE], seed));
        let (one, other) = (one?, other?);
        let (crossed, pull) = normal(&one, &other, rows);
        let (_, other_pull) = normal(&other, &one, rows);
        let n = self.moved.len();
        let both = |i: usize, j: usize| 0.5 * (crossed[i][j] + crossed[j][i]);
        let matrix = (0..n)
            .map(|i| (0..n).map(|j| both(i, j)).collect())
            .collect();
        let pull = pull
            .iter()
            .zip(&other_pull)
            .map(|(a, b)| 0.5 * (a + b))
            .collect();
        Some((matrix, pull))
    }

    /// Lets the rows know how much the model's own numbers scatter from seed to seed: what follows each other is more alike
    /// in some loads than in others.
    fn scatter(&self, model: &Model, rows: &mut [Row]) -> Option<()> {
        let seeds: Vec<Vec<Row>> = (5..5 + SEEDS)
            .map(|seed| {
                let one = shown(std::slice::from_ref(model), self.loads, self.requests, seed);
                self.rows(&one[0])
            })
            .collect::<Option<_>>()?;
        for (i, row) in rows.iter_mut().enumerate() {
            let each = seeds.iter().map(|s| s[i].off * s[i].sd);
            let each: Vec<f64> = each.filter(|x| x.is_finite()).collect();
            if each.len() < SEEDS as usize || !row.sd.is_finite() {
                continue;
            }
            let mean = each.iter().sum::<f64>() / each.len() as f64;
            let all: f64 = each.iter().map(|x| (x - mean).powi(2)).sum();
            let between = all / (each.len() - 1) as f64;
            let off = row.off * row.sd;
            row.sd = row.sd.max((row.own.powi(2) + between).sqrt());
            row.off = off / row.sd;
        }
        Some(())
    }

    /// Covariance of the moved parameters, as wide as the numbers are off.
    pub(super) fn covariance(&self, model: &Model) -> Option<Vec<Vec<f64>>> {
        let mut rows = self.rows_of(model)?;
        self.scatter(model, &mut rows)?;
        let n = self.moved.len();
        let (matrix, _) = self.crossed(model, &rows, [2, 3])?;
        let (values, vectors) = eigen(matrix);
        let misfit = self.misfit(cost(&rows));
        let along = |k: usize| misfit / (values[k].max(0.0) + PRIOR.powi(-2) * misfit);
        let of = |i: usize, j: usize| {
            (0..n)
                .map(|k| vectors[k][i] * vectors[k][j] * along(k))
                .sum()
        };
        Some((0..n).map(|i| (0..n).map(|j| of(i, j)).collect()).collect())
    }

    /// Slopes of each number of some loads by each parameter, number by number, from few requests.
    pub(super) fn gradients(
        &self,
        model: &Model,
        loads: &[&Load],
        seed: u64,
    ) -> Option<Vec<Vec<f64>>> {
        let quick = Self {
            requests: FAR,
            ..*self
        };
        let columns = quick.slopes(model, loads, &[-WIDE, WIDE], seed)?;
        let n = columns.first()?.len();
        Some(
            (0..n)
                .map(|row| columns.iter().map(|c| c[row]).collect())
                .collect(),
        )
    }

    /// Standard deviation that a covariance gives each number of other loads.
    pub(super) fn carried(
        &self,
        model: &Model,
        covariance: &[Vec<f64>],
        loads: &[&Load],
    ) -> Option<Vec<f64>> {
        let slopes = self.slopes(model, loads, &[-WIDE, WIDE], 4)?;
        let n = slopes.first()?.len();
        let of = |row: usize| {
            let g: Vec<f64> = slopes.iter().map(|c| c[row]).collect();
            let along: f64 = (covariance.iter().zip(&g))
                .map(|(c, gi)| gi * c.iter().zip(&g).map(|(c, gj)| c * gj).sum::<f64>())
                .sum();
            along.max(0.0).sqrt()
        };
        Some((0..n).map(of).collect())
    }
}

fn is_whole(parameter: &Parameter) -> bool {
    parameter.key == "units"
}

/// Derivatives, a column for each parameter.
type Slopes = Vec<Vec<f64>>;

/// The model with one parameter a step away.
fn moved(model: &Model, parameter: &Parameter, step: f64) -> Model {
    let mut other = model.clone();
    parameter.set_scaled(&mut other, parameter.scaled(model) + step);
    // Whole numbers move by one at least.
    if is_whole(parameter) && other.units == model.units {
        let by = if step > 0.0 { 1 } else { -1 };
        other.units = model.units.saturating_add_signed(by).max(1);
    }
    other
}

fn cost(rows: &[Row]) -> f64 {
    let one = |r: &Row| match r.off.abs() {
        off if off <= HUBER => off * off,
        off => 2.0 * HUBER * off - HUBER * HUBER,
    };
    rows.iter().map(one).sum()
}

/// Normal equations: their matrix and right side.
type Equations = (Vec<Vec<f64>>, Vec<f64>);

/// The step that the equations ask for, with so much more on the diagonal, no longer than [`LONGEST`].
fn step((matrix, pull): &Equations, damping: f64, least: f64) -> Vec<f64> {
    let mut damped = matrix.clone();
    for (i, row) in damped.iter_mut().enumerate() {
        row[i] += damping * row[i].max(0.0);
    }
    let (values, vectors) = eigen(damped);
    let along = |(value, vector): (&f64, &Vec<f64>)| {
        let pulled: f64 = vector.iter().zip(pull).map(|(v, p)| v * p).sum();
        pulled / (value.max(0.0) + least)
    };
    let weights: Vec<f64> = values.iter().zip(&vectors).map(along).collect();
    let of = |i: usize| -> f64 { vectors.iter().zip(&weights).map(|(v, w)| v[i] * w).sum() };
    let step: Vec<f64> = (0..pull.len()).map(of).collect();
    let longest = step.iter().fold(0.0f64, |m, s| m.max(s.abs()));
    let shorter = (LONGEST / longest.max(1e-9)).min(1.0);
    step.iter().map(|s| s * shorter).collect()
}

/// Of two sets of slopes.
fn normal(slopes: &[Vec<f64>], others: &[Vec<f64>], rows: &[Row]) -> Equations {
    let weight: Vec<f64> = (rows.iter())
        .map(|r| match r.sd.is_finite() {
            true => (HUBER / r.off.abs().max(HUBER)) / (r.sd * r.sd),
            false => 0.0,
        })
        .collect();
    let dot = |a: &[f64], b: &[f64]| -> f64 {
        (a.iter().zip(b).zip(&weight))
            .map(|((a, b), w)| a * b * w)
            .sum()
    };
    let off: Vec<f64> = rows
        .iter()
        .map(|r| if r.sd.is_finite() { r.off * r.sd } else { 0.0 })
        .collect();
    let matrix = (slopes.iter())
        .map(|a| others.iter().map(|b| dot(a, b)).collect())
        .collect();
    (matrix, slopes.iter().map(|a| dot(a, &off)).collect())
}

/// Lower triangular root of a symmetric matrix (Cholesky); `None` where it is not positive definite.
pub(super) fn root(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let mut l: Vec<Vec<f64>> = Vec::new();
    for (i, row) in matrix.iter().enumerate() {
        let mut out: Vec<f64> = Vec::new();
        for j in 0..=i {
            let before: f64 = match i == j {
                true => out.iter().map(|x| x * x).sum(),
                false => out.iter().zip(&l[j]).map(|(a, b)| a * b).sum(),
            };
            let rest = row[j] - before;
            out.push(match i == j {
                true if rest > 0.0 => rest.sqrt(),
                true => return None,
                false => rest / l[j][j],
            });
        }
        l.push(out);
    }
    Some(l)
}

/// Eigenvalues and eigenvectors of a symmetric matrix (Jacobi's rotations).
fn eigen(mut a: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = a.len();
    let unit = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect();
    let mut vectors: Vec<Vec<f64>> = (0..n).map(unit).collect();
    for _ in 0..60 {
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q].abs() < 1e-300 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for row in &mut a {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                let (low, high) = a.split_at_mut(q);
                for (x, y) in low[p].iter_mut().zip(&mut high[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
                let (low, high) = vectors.split_at_mut(q);
                for (x, y) in low[p].iter_mut().zip(&mut high[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
            }
        }
    }
    ((0..n).map(|i| a[i][i]).collect(), vectors)
}

/// Every parameter whose key begins so.
pub(super) fn parameters(heads: &[&str]) -> Vec<&'static Parameter> {
    PARAMETERS
        .iter()
        .filter(|p| heads.iter().any(|h| p.key.starts_with(h)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvectors_make_the_matrix_and_roots_their_squares() {
        let matrix = vec![
            vec![4.0, 1.0, 0.5],
            vec![1.0, 3.0, 0.2],
            vec![0.5, 0.2, 2.0],
        ];
        let (values, vectors) = eigen(matrix.clone());
        let l = root(&matrix).unwrap();
        for i in 0..3 {
            for j in 0..3 {
                let made: f64 = (0..3)
                    .map(|k| values[k] * vectors[k][i] * vectors[k][j])
                    .sum();
                assert!((made - matrix[i][j]).abs() < 1e-12);
                let squared: f64 = l[i].iter().zip(&l[j]).map(|(a, b)| a * b).sum();
                assert!((squared - matrix[i][j]).abs() < 1e-12);
            }
        }
        assert!(root(&[vec![1.0, 2.0], vec![2.0, 1.0]]).is_none());
        // Undamped it is the solution, no longer than a step may be.
        let pull = vec![0.3, 0.1, 0.2];
        let x = step(&(matrix.clone(), pull.clone()), 0.0, 0.0);
        let back: f64 = matrix[1].iter().zip(&x).map(|(a, x)| a * x).sum();
        assert!((back - pull[1]).abs() < 1e-12, "{x:?}");
        let long = step(&(matrix, vec![1e6, 0.0, 0.0]), 0.0, 0.0);
        assert!((long[0] - LONGEST).abs() < 1e-9, "{long:?}");
    }
}

//! All models that explain what was seen about as well as the best: values that stand in for each other do so along curves, which
//! no covariance at one point describes, and who answers writes is one or the other.

use fathom_sim::model::Model;
use fathom_sim::parameters::Parameter;

use super::search::{SLOTS, at_units, ranked, with_slots};
use super::solve::Problem;
use super::{FAR, NEAR};

/// Neighbouring numbers of units differ by this factor, up to so many of them to each side.
const FACTOR: f64 = 1.6;
const STEPS: usize = 4;
/// Standard deviation of the logarithm of the number of units up to which a covariance describes what it does to the rest.
const STRAIGHT: f64 = 0.12;
/// Misfits beyond the best's, in its own, of models that are left out: on the way, and at last.
const FAR_OFF: f64 = 12.0;
const OFF: f64 = 9.0;

/// A model, its covariance, and its share of what is likely.
pub(super) struct Likely {
    pub(super) model: Model,
    pub(super) covariance: Vec<Vec<f64>>,
    pub(super) weight: f64,
}

/// The best first; more than `model` only where others are likely too.
pub(super) fn likely(problem: &Problem<'_>, model: Model) -> Vec<Likely> {
    let near = Near(problem);
    let known = problem.covariance(&model);
    let is_wide = |c: &Option<Vec<Vec<f64>>>| {
        let variance = c.as_ref().zip(units(problem)).map(|(c, u)| c[u][u]);
        variance.is_some_and(|v| v.sqrt() > STRAIGHT)
    };
    let mut found = near.of_other_slots(&model);
    if let Some(other) = near.other_answer(&model) {
        if is_wide(&problem.covariance(&other)) {
            found.extend(near.of_other_units(&other));
        }
        found.push(other);
    }
    if is_wide(&known) {
        found.extend(near.of_other_units(&model));
    }
    if found.is_empty() {
        let covariance = known.unwrap_or_default();
        return vec![Likely {
            model,
            covariance,
            weight: 1.0,
        }];
    }
    let mut follow = problem.moved.to_vec();
    follow.retain(|p| p.key != "units");
    let following = Problem {
        moved: &follow,
        ..*problem
    };
    let settled = |mut m: Model| (following.settle(&mut m, 3), m);
    let mut all: Vec<(f64, Model)> = found.into_iter().map(settled).collect();
    all.push((problem.cost(&model), model));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = all[0].0;
    let misfit = problem.misfit(best);
    all.retain(|(cost, _)| *cost <= best + OFF * misfit);
    let share = |cost: f64| (-0.5 * (cost - best) / misfit).exp();
    let sum: f64 = all.iter().map(|a| share(a.0)).sum();
    all.into_iter()
        .map(|(cost, model)| Likely {
            covariance: (problem.covariance(&model))
                .map(|c| between(c, units(problem)))
                .unwrap_or_default(),
            model,
            weight: share(cost) / sum,
        })
        .collect()
}

/// Place of the number of units among what is moved.
fn units(problem: &Problem<'_>) -> Option<usize> {
    problem.moved.iter().position(|p| p.key == "units")
}

/// A covariance where the number of units varies no further than to half the way to its neighbours.
fn between(mut c: Vec<Vec<f64>>, units: Option<usize>) -> Vec<Vec<f64>> {
    let Some(u) = units else { return c };
    let (all, at_most) = (c[u][u], FACTOR.ln().powi(2) / 12.0);
    if all > at_most {
        let column: Vec<f64> = c.iter().map(|row| row[u]).collect();
        let less = (1.0 - at_most / all) / all;
        for (row, a) in c.iter_mut().zip(&column) {
            for (value, b) in row.iter_mut().zip(&column) {
                *value -= a * b * less;
            }
        }
    }
    c
}

/// Descends from models beside the best.
struct Near<'a>(&'a Problem<'a>);

impl Near<'_> {
    fn cost(&self, model: &Model) -> f64 {
        Problem {
            requests: NEAR,
            ..*self.0
        }
        .cost(model)
    }

    /// Whether a cost is near enough to the one of `base`.
    fn is_near(&self, cost: f64, base: f64) -> bool {
        cost <= base + FAR_OFF * self.0.misfit(base)
    }

    /// From the better of some starts.
    fn descended(
        &self,
        mut starts: Vec<Model>,
        follow: &[&'static Parameter],
    ) -> Option<(f64, Model)> {
        if starts.len() > 1 {
            let ranked = ranked(starts, self.0.loads, follow, (FAR, 3));
            starts = ranked.into_iter().take(1).map(|r| r.1).collect();
        }
        let reached = ranked(starts, self.0.loads, follow, (NEAR, 4));
        reached.into_iter().next()
    }

    /// The same device where the medium answers writes instead of a buffer, or the other way around.
    fn other_answer(&self, model: &Model) -> Option<Model> {
        if !self.0.moved.iter().any(|p| p.key == "write.media_us") {
            return None;
        }
        let mut other = model.clone();
        let write = &mut other.write;
        if write.media_us > 0.0 {
            write.fixed_us += write.media_us;
            write.media_us = 0.0;
        } else {
            write.media_us = model.read.media_us.min(0.8 * write.fixed_us);
            write.fixed_us -= write.media_us;
        }
        let (cost, other) = self.descended(vec![other], self.0.moved)?;
        self.is_near(cost, self.cost(model)).then_some(other)
    }

    /// The same device with other numbers of slots.
    fn of_other_slots(&self, model: &Model) -> Vec<Model> {
        let mut others = with_slots(model, self.0.loads, &SLOTS);
        others.retain(|m| m.slots != model.slots);
        let best = self.cost(model);
        let reached = ranked(others, self.0.loads, self.0.moved, (NEAR, 4));
        let near = reached.into_iter().filter(|r| self.is_near(r.0, best));
        near.map(|r| r.1).collect()
    }

    /// The same device with fewer and more units, everything else following them, as far as they are likely.
    fn of_other_units(&self, base: &Model) -> Vec<Model> {
        let mut follow = self.0.moved.to_vec();
        follow.retain(|p| p.key != "units");
        let best = self.cost(base);
        let mut found = Vec::new();
        for factor in [1.0 / FACTOR, FACTOR] {
            let mut at = base.clone();
            for _ in 0..STEPS {
                let units = (f64::from(at.units) * factor).round() as u32;
                let units = match factor > 1.0 {
                    true => units.max(at.units + 1),
                    false => units.min(at.units - 1),
                };
                if !(1..=4096).contains(&units) {
                    break;
                }
                // They serve as much together as before, or each as fast.
                let as_fast = Model {
                    units,
                    ..at.clone()
                };
                let starts = vec![at_units(&at, units), as_fast];
                let reached = self.descended(starts, &follow);
                let Some((_, next)) = reached.filter(|r| self.is_near(r.0, best)) else {
                    break;
                };
                at = next;
                found.push(at.clone());
            }
        }
        found
    }
}

//! Which further loads would narrow the predictions of a fitted model most (optimal design: of each load that could be
//! measured, what its numbers would take from the variance of what is to be predicted).

use fathom_io::JobSpec;
use fathom_io::job::{BlockSizes, Rw};
use fathom_sim::model::Model;

use super::seen::{Load, MEAN, P99};
use super::solve::Problem;
use super::{Advice, Z};

/// Loads that are named.
const NAMED: usize = 4;
/// Seconds for which each of them is thought to be measured.
const SECONDS: f64 = 2.0;

/// A load by what matters of it.
fn load(rw: Rw, kib: u64, (threads, qd): (u32, u32), read_share: f64) -> JobSpec {
    JobSpec {
        rw,
        bs: BlockSizes::one(kib << 10),
        threads,
        qd,
        read_share,
        ..JobSpec::default()
    }
}

/// All of these patterns, sizes and depths, where writes may be among them.
fn grid(sizes: &[u64], depths: &[(u32, u32)], writes: bool) -> Vec<JobSpec> {
    let patterns = [
        (Rw::RandRead, 100.0),
        (Rw::Read, 100.0),
        (Rw::RandWrite, 0.0),
        (Rw::Write, 0.0),
        (Rw::RandMixed, 90.0),
        (Rw::RandMixed, 70.0),
        (Rw::RandMixed, 40.0),
    ];
    let mut all = Vec::new();
    for (rw, share) in patterns {
        for kib in sizes {
            for depth in depths {
                if writes || !rw.writes() {
                    all.push(load(rw, *kib, *depth, share));
                }
            }
        }
    }
    all
}

/// Loads that would narrow the predictions most, one after the other, with what is then open; and what is open now: half of
/// a 95 % interval of means and 99th percentiles, percent.
pub(super) fn advice(
    problem: &Problem<'_>,
    model: &Model,
    covariance: &[Vec<f64>],
    writes: bool,
) -> Option<(f64, Vec<Advice>)> {
    let known = |specs: Vec<JobSpec>| -> Vec<Load> {
        specs
            .iter()
            .filter_map(|s| Load::of_model(model, s))
            .collect()
    };
    let goals = known(grid(&[8, 32, 256], &[(1, 1), (1, 8), (2, 16)], writes));
    let candidates = known(grid(
        &[4, 16, 64, 512],
        &[(1, 1), (1, 4), (2, 8), (2, 32)],
        writes,
    ));
    let goal_refs: Vec<&Load> = goals.iter().collect();
    let candidate_refs: Vec<&Load> = candidates.iter().collect();
    // Slopes twice: what both say is no scatter of the simulation.
    let twice = |loads: &[&Load]| Some([21, 22].map(|seed| problem.gradients(model, loads, seed)));
    let [one, other] = twice(&goal_refs)?;
    let rows: Vec<(Vec<f64>, Vec<f64>)> = one?.into_iter().zip(other?).collect();
    let kept: Vec<usize> = (goals.iter().flat_map(|l| &l.seen).enumerate())
        .filter(|(_, s)| s.what == MEAN || s.what == P99)
        .map(|(i, _)| i)
        .collect();
    let open = |c: &[Vec<f64>]| -> f64 {
        let variance = |i: &usize| along(c, &rows[*i].0, &rows[*i].1).max(0.0);
        let mean = kept.iter().map(variance).sum::<f64>() / kept.len().max(1) as f64;
        Z * mean.sqrt() * 100.0
    };
    let [one, other] = twice(&candidate_refs)?;
    let (one, other) = (one?, other?);
    let mut c = covariance.to_vec();
    let now = open(&c);
    let mut advised: Vec<Advice> = Vec::new();
    let mut taken = vec![false; candidates.len()];
    for _ in 0..NAMED {
        let mut best: Option<(f64, usize, Vec<Vec<f64>>)> = None;
        let mut row = 0;
        for (k, candidate) in candidates.iter().enumerate() {
            let mut narrowed = c.clone();
            for seen in &candidate.seen {
                let (a, b) = (&one[row], &other[row]);
                row += 1;
                // In so many seconds more or fewer are measured than were simulated.
                let measured = candidate.iops * SECONDS / candidate.requests;
                learn(
                    &mut narrowed,
                    a,
                    b,
                    seen.sd.powi(2) / measured + seen.close().powi(2),
                );
            }
            let then = open(&narrowed);
            if !taken[k] && best.as_ref().is_none_or(|b| then < b.0) {
                best = Some((then, k, narrowed));
            }
        }
        let (then, k, narrowed) = best?;
        // A tenth of what is open is worth a measurement.
        if then > 0.9 * open(&c) {
            break;
        }
        (c, taken[k]) = (narrowed, true);
        advised.push(Advice {
            job: candidates[k].spec.clone(),
            what: candidates[k].words(),
            open_percent: then,
        });
    }
    Some((now, advised))
}

/// Variance along two versions of one slope.
fn along(c: &[Vec<f64>], a: &[f64], b: &[f64]) -> f64 {
    let row = |r: &Vec<f64>| r.iter().zip(b).map(|(c, b)| c * b).sum::<f64>();
    c.iter().zip(a).map(|(r, a)| a * row(r)).sum()
}

/// Takes from a covariance what one number of so much variance tells; nothing where both slopes disagree.
fn learn(c: &mut [Vec<f64>], a: &[f64], b: &[f64], noise: f64) {
    let agreed: Vec<f64> = a
        .iter()
        .zip(b)
        .map(|(a, b)| {
            if a * b > 0.0 {
                a.signum() * (a * b).sqrt()
            } else {
                0.0
            }
        })
        .collect();
    let toward: Vec<f64> = c
        .iter()
        .map(|r| r.iter().zip(&agreed).map(|(c, g)| c * g).sum())
        .collect();
    let known = noise + agreed.iter().zip(&toward).map(|(g, t)| g * t).sum::<f64>();
    for (row, ti) in c.iter_mut().zip(&toward) {
        for (value, tj) in row.iter_mut().zip(&toward) {
            *value -= ti * tj / known;
        }
    }
}

//! Several runs in order of time: where a metric changed, and stayed changed.

use fathom_stats::Estimate;
use fathom_stats::change_point::change_points_of_independent;
use fathom_stats::compare::{Good, Verdict, difference, holm};
use fathom_telemetry::schema::Run;
use serde::{Deserialize, Serialize};

use super::metrics::{Metric, WindowSource, metrics};
use super::{Mismatch, mismatches, name};

/// From so many runs on, changes are looked for in the series of runs; below, from run to run.
const RUNS_FOR_SERIES: usize = 6;

/// Several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Names in order of time.
    pub runs: Vec<String>,
    /// Conditions that changed from one run to the next: index of the later run, and what.
    pub mismatches: Vec<(usize, Mismatch)>,
    /// One per headline (or job, where no run has headlines).
    pub traces: Vec<Trace>,
}

/// One metric over the runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Stable name.
    pub id: String,
    /// For people.
    pub label: String,
    /// Unit.
    pub unit: String,
    /// Value in each run; a hole where missing or void.
    pub values: Vec<Option<Estimate>>,
    /// Why a run has no value, in the same order; absent where it has one.
    #[serde(default)]
    pub why: Vec<Option<String>>,
    /// Changes.
    pub moves: Vec<Move>,
}

/// A change between runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Index of the first run after it.
    pub run: usize,
    /// After / before − 1.
    pub relative: f64,
    /// Better or worse.
    pub verdict: Verdict,
}

/// Looks for changes over runs, which are put in order of their start.
///
/// Only runs that may be compared belong together: see [`mismatches`]; the caller refuses the others.
pub fn history(runs: &[(&Run, &dyn WindowSource)], allowed: &[String]) -> History {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|a, b| runs[*a].0.started.cmp(&runs[*b].0.started));
    let sorted: Vec<&Run> = order.iter().map(|i| runs[*i].0).collect();
    let all: Vec<_> = order
        .iter()
        .map(|i| metrics(runs[*i].0, runs[*i].1))
        .collect();
    let headlines = all.iter().any(|m| !m.headlines.is_empty());
    let all: Vec<Vec<Metric>> = all
        .into_iter()
        .map(|m| if headlines { m.headlines } else { m.jobs })
        .collect();
    let mut ids: Vec<&Metric> = Vec::new();
    for m in all.iter().flatten() {
        if !ids.iter().any(|k| k.id == m.id) {
            ids.push(m);
        }
    }
    let mut traces: Vec<Trace> = ids
        .iter()
        .map(|m| {
            let found = all.iter().map(|run| value(run, m, allowed));
            let (values, why): (Vec<_>, Vec<_>) = found
                .map(|v| match v {
                    Ok(v) => (Some(v), None),
                    Err(why) => (None, Some(why)),
                })
                .unzip();
            Trace {
                id: m.id.clone(),
                label: m.label.clone(),
                unit: m.unit.clone(),
                moves: series_moves(&values, m.good),
                values,
                why,
            }
        })
        .collect();
    if runs.len() < RUNS_FOR_SERIES {
        step_moves(&mut traces, &ids.iter().map(|m| m.good).collect::<Vec<_>>());
    }
    History {
        mismatches: (1..sorted.len())
            .flat_map(|i| {
                mismatches(sorted[i - 1], sorted[i], allowed)
                    .into_iter()
                    .map(move |m| (i, m))
            })
            .collect(),
        runs: sorted.into_iter().map(name).collect(),
        traces,
    }
}

/// A run's value of a metric, or why it has none.
fn value(run: &[Metric], m: &Metric, allowed: &[String]) -> Result<Estimate, String> {
    let found = run.iter().find(|k| k.id == m.id);
    let found = found.ok_or("not measured")?;
    let differ = found.differing_but(m, allowed);
    if !differ.is_empty() {
        return Err(format!("another {}", differ.join(", ")));
    }
    let void = || match found.notes.is_empty() {
        true => "void".to_owned(),
        false => format!("void: {}", found.notes.join(", ")),
    };
    found.estimate.ok_or_else(void)
}

fn verdict(relative: f64, good: Good) -> Verdict {
    if (relative > 0.0) == (good == Good::More) {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}

/// Changes of the level over many runs.
fn series_moves(values: &[Option<Estimate>], good: Good) -> Vec<Move> {
    let known: Vec<(usize, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(i, v)| Some((i, v.as_ref()?.value)))
        .filter(|(_, v)| *v > 0.0)
        .collect();
    if known.len() < RUNS_FOR_SERIES {
        return Vec::new();
    }
    // Ratios matter, not differences.
    let logs: Vec<f64> = known.iter().map(|(_, v)| v.ln()).collect();
    change_points_of_independent(&logs)
        .into_iter()
        .map(|c| {
            let relative = (c.after - c.before).exp_m1();
            Move {
                run: known[c.at].0,
                relative,
                verdict: verdict(relative, good),
            }
        })
        .collect()
}

/// Changes from run to run that hold when all are looked at together.
fn step_moves(traces: &mut [Trace], good: &[Good]) {
    let mut found: Vec<(usize, Move, f64)> = Vec::new();
    for (t, trace) in traces.iter().enumerate() {
        for i in 1..trace.values.len() {
            if let (Some(a), Some(b)) = (&trace.values[i - 1], &trace.values[i])
                && let Some(d) = difference(a, b, good[t])
                && let Some(p) = d.p
            {
                let m = Move {
                    run: i,
                    relative: d.relative.value,
                    verdict: d.verdict,
                };
                found.push((t, m, p));
            }
        }
    }
    let p: Vec<f64> = found.iter().map(|f| f.2).collect();
    for ((t, m, _), holds) in found.into_iter().zip(holm(&p)) {
        if holds && m.verdict != Verdict::NoDifferenceShown {
            traces[t].moves.push(m);
        }
    }
}

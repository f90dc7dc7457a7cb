//! Two runs, metric by metric: difference with interval and verdict; several runs: their history.
//!
//! Compares what run directories hold and measures nothing. Numbers whose jobs or conditions
//! are not the same are called not comparable, not compared all the same.

mod conditions;
mod fleet;
mod history;
pub(crate) mod metrics;
mod published;
mod shopping;

use fathom_stats::Estimate;
use fathom_stats::compare::{Difference, Good, Verdict, difference, geometric_mean, holm};
use fathom_telemetry::schema::Run;
use serde::{Deserialize, Serialize};

pub use conditions::{CONDITIONS, Mismatch, Weight, mismatches};
pub use fleet::{HostPart, HostRow};
pub use history::{History, Move, Trace, history};

pub use metrics::{Metric, Metrics, WindowSource, metrics};
pub use published::{Figure, Published, published};
pub use shopping::{Described, Line, Offer, Shopping, shopping};

/// From this share on a difference is said as a factor: nobody reads "+100556.1 %".
const FACTOR_FROM: f64 = 1.0;

/// A difference as a share, in percent with its interval: `+4.1 % (+2.0 to +6.3)`; what is twice as much and more as a factor:
/// `6.15 × (6.14 to 6.16)`.
pub fn relative(e: Option<&Estimate>) -> String {
    let Some(e) = e else {
        return "–".into();
    };
    let many = e.value >= FACTOR_FROM;
    let p = |v: f64| match many {
        true => factor(1.0 + v),
        false => format!("{:+.1}", 100.0 * v),
    };
    let sign = if many { "×" } else { "%" };
    match (e.low, e.high) {
        (Some(l), Some(h)) => format!("{} {sign} ({} to {})", p(e.value), p(l), p(h)),
        _ => format!("{} {sign}", p(e.value)),
    }
}

/// The same without an interval.
pub fn change(relative: f64) -> String {
    self::relative(Some(&Estimate {
        value: relative,
        low: None,
        high: None,
        samples: 1,
    }))
}

/// A factor with as many digits as tell it from 1.
pub fn factor(v: f64) -> String {
    match v {
        v if v < 1.1 => format!("{v:.3}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// One metric of both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Stable name.
    pub id: String,
    /// For people.
    pub label: String,
    /// Unit of both estimates.
    pub unit: String,
    /// Which direction is good.
    pub good: Good,
    /// In A; a hole where it was not measured or is void.
    pub a: Option<Estimate>,
    /// In B.
    pub b: Option<Estimate>,
    /// B against A; absent where nothing can be computed.
    pub difference: Option<Difference>,
    /// The verdict, conditions taken into account.
    pub verdict: Verdict,
    /// Whether the difference also holds when all headlines are looked at together (5 % for the whole family).
    pub holds: bool,
    /// Why it is not comparable, or what to keep in mind.
    pub notes: Vec<String>,
}

/// Two runs compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// A, as named by its start and name.
    pub a: String,
    /// B.
    pub b: String,
    /// Conditions that differ.
    pub mismatches: Vec<Mismatch>,
    /// Whether one of them refuses the comparison.
    pub refused: bool,
    /// The headlines; where neither run has any, the jobs.
    pub rows: Vec<Row>,
    /// The jobs behind them, for looking closer; not part of the overall verdict.
    pub jobs: Vec<Row>,
    /// What each host did of the whole, where there are hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRow>,
    /// Geometric mean of B / A over comparable rows, turned so that above 1 is better.
    pub geometric_mean: Option<f64>,
    /// Rows that would differ by chance alone at 95 %.
    pub expected_false_alarms: f64,
    /// Over all rows.
    pub overall: Verdict,
}

/// Compares two runs. `allowed` names conditions that may differ.
pub fn compare(
    a: &Run,
    b: &Run,
    windows: [&dyn WindowSource; 2],
    allowed: &[String],
) -> Comparison {
    let mut mismatches = mismatches(a, b, allowed);
    mismatches.extend(fleet::mismatches(a, b, allowed));
    let refused = mismatches.iter().any(|m| m.weight == Weight::Refuses);
    let (ma, mb) = (metrics(a, windows[0]), metrics(b, windows[1]));
    let pair = |x: &[Metric], y: &[Metric]| -> Vec<Row> {
        let mut rows: Vec<Row> = x
            .iter()
            .map(|m| row(Some(m), y.iter().find(|n| n.id == m.id), refused, allowed))
            .collect();
        rows.extend(
            y.iter()
                .filter(|m| !x.iter().any(|n| n.id == m.id))
                .map(|m| row(None, Some(m), refused, allowed)),
        );
        rows
    };
    let mut rows = pair(&ma.headlines, &mb.headlines);
    let mut jobs = pair(&ma.jobs, &mb.jobs);
    if rows.is_empty() {
        std::mem::swap(&mut rows, &mut jobs);
    }
    judge_family(&mut rows);
    let ratios: Vec<f64> = rows
        .iter()
        .filter(|r| r.verdict != Verdict::NotComparable)
        .filter_map(|r| {
            let ratio = 1.0 + r.difference?.relative.value;
            Some(match r.good {
                Good::More => ratio,
                Good::Less => 1.0 / ratio,
            })
        })
        .collect();
    let counted = rows
        .iter()
        .filter(|r| r.verdict != Verdict::NotComparable)
        .count();
    let held = |v| rows.iter().any(|r| r.holds && r.verdict == v);
    let overall = if refused || counted == 0 {
        Verdict::NotComparable
    } else if held(Verdict::Worse) {
        Verdict::Worse
    } else if held(Verdict::Better) {
        Verdict::Better
    } else {
        Verdict::NoDifferenceShown
    };
    Comparison {
        a: name(a),
        b: name(b),
        mismatches,
        refused,
        geometric_mean: geometric_mean(&ratios),
        expected_false_alarms: 0.05 * counted as f64,
        rows,
        jobs,
        hosts: fleet::rows(a, b),
        overall,
    }
}

impl Comparison {
    /// Rows that got worse, the family taken into account, by at least `threshold` (a share).
    pub fn worse(&self, threshold: f64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| {
            r.holds
                && r.verdict == Verdict::Worse
                && r.difference
                    .is_some_and(|d| d.relative.value.abs() >= threshold)
        })
    }
}

/// How a run is called beside others.
pub(crate) fn name(run: &Run) -> String {
    format!("{} {} ({})", run.started, run.name, run.target.name)
}

fn row(a: Option<&Metric>, b: Option<&Metric>, refused: bool, allowed: &[String]) -> Row {
    let mut notes = Vec::new();
    let (Some(x), Some(y)) = (a, b) else {
        let one = a.or(b);
        return Row {
            id: one.map(|m| m.id.clone()).unwrap_or_default(),
            label: one.map(|m| m.label.clone()).unwrap_or_default(),
            unit: one.map(|m| m.unit.clone()).unwrap_or_default(),
            good: one.map_or(Good::More, |m| m.good),
            a: a.and_then(|m| m.estimate),
            b: b.and_then(|m| m.estimate),
            difference: None,
            verdict: Verdict::NotComparable,
            holds: false,
            notes: vec![format!("only in {}", if a.is_some() { "A" } else { "B" })],
        };
    };
    let mut comparable = !refused;
    if refused {
        notes.push("the conditions refuse it".into());
    }
    let other = x.differing_but(y, allowed);
    if !other.is_empty() {
        comparable = false;
        notes.push(format!("the jobs differ in {}", other.join(", ")));
    }
    notes.extend(x.notes.iter().filter(|n| y.notes.contains(n)).cloned());
    for (side, m, other) in [("A", x, y), ("B", y, x)] {
        let own = m.notes.iter().filter(|n| !other.notes.contains(n));
        notes.extend(own.map(|n| format!("{side}: {n}")));
        if m.estimate.is_none() {
            notes.push(format!("{side} has no valid value"));
        } else if m.estimate.is_some_and(|e| e.samples < 2) {
            notes.push(format!("{side} has one sample: repeat it for an interval"));
        }
    }
    let difference = match (x.estimate, y.estimate) {
        (Some(a), Some(b)) => difference(&a, &b, x.good),
        _ => None,
    };
    Row {
        id: x.id.clone(),
        label: x.label.clone(),
        unit: x.unit.clone(),
        good: x.good,
        a: x.estimate,
        b: y.estimate,
        verdict: match difference {
            Some(d) if comparable => d.verdict,
            _ => Verdict::NotComparable,
        },
        difference,
        holds: false,
        notes,
    }
}

/// Marks the differences that hold when all rows are looked at together.
fn judge_family(rows: &mut [Row]) {
    let tested: Vec<(usize, f64)> = rows
        .iter()
        .enumerate()
        .filter(|(_, r)| r.verdict != Verdict::NotComparable)
        .filter_map(|(i, r)| Some((i, r.difference?.p?)))
        .collect();
    let p: Vec<f64> = tested.iter().map(|t| t.1).collect();
    for ((i, _), holds) in tested.iter().zip(holm(&p)) {
        rows[*i].holds = holds;
    }
}

#[cfg(test)]
pub(crate) mod tests;

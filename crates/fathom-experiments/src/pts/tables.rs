//! Tables and plots that several tests share: convergence to steady state, its window, headlines.

use fathom_stats::Estimate;
use fathom_telemetry::schema::{Axis, Cell, Chart, Headline, Mark, Table};

use super::steps::Rounds;
use crate::parts::{axis, column, headline_of};
pub(super) use crate::parts::{line_chart as lines, number as cell};

/// The steady state convergence plot: every tracked series by round.
pub(super) fn convergence(id: &str, y: Axis, rounds: &Rounds) -> Chart {
    let series = rounds
        .series
        .iter()
        .map(|(name, v)| {
            let points = v
                .iter()
                .enumerate()
                .map(|(i, v)| ((i + 1) as f64, *v))
                .collect();
            (name.clone(), points)
        })
        .collect();
    let mut chart = lines(
        id,
        "Steady state convergence",
        axis("round", "", false),
        y,
        series,
    );
    if rounds.met() {
        chart.marks.push(Mark {
            x: Some((rounds.window().start() + 1) as f64),
            y: None,
            label: "measurement window".into(),
        });
    }
    chart
}

/// The steady state verification table: mean, range and slope of each tracked series, with the bounds.
pub(super) fn verification(id: &str, unit: &str, rounds: &Rounds) -> Table {
    Table {
        id: id.into(),
        title: "Steady state verification (last five rounds)".into(),
        columns: vec![
            column("tracked", ""),
            column("mean", unit),
            column("range, at most 20 %", "%"),
            column("slope × 4, at most 10 %", "%"),
            column("rule", ""),
        ],
        rows: rounds
            .series
            .iter()
            .enumerate()
            .map(|(i, (name, _))| match rounds.windows.get(i) {
                Some(w) => vec![
                    Cell::Text(name.clone()),
                    Cell::Number(w.mean),
                    Cell::Number(100.0 * w.range),
                    Cell::Number(100.0 * w.slope),
                    Cell::Text(if w.steady { "met" } else { "not met" }.into()),
                ],
                None => vec![
                    Cell::Text(name.clone()),
                    Cell::Hole(()),
                    Cell::Hole(()),
                    Cell::Hole(()),
                    Cell::Text("fewer than five rounds".into()),
                ],
            })
            .collect(),
    }
}

/// A headline; its value is the mean over the measurement window with its interval.
pub(super) fn headline(
    group: &str,
    id: &str,
    label: &str,
    unit: &str,
    values: &[f64],
    jobs: Vec<usize>,
) -> Headline {
    let estimate = Estimate::mean_of(values);
    headline_of(group, label, &format!("pts-{id}"), unit, estimate, jobs)
}

/// Mean of what there is.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// `512`, `4k`, `1m` for people.
pub(super) fn size(bs: u64) -> String {
    fathom_telemetry::Bytes(bs).to_string()
}

//! Tables and plots that several tests share: convergence to steady state, its window, headlines.

use fathom_bench::parts::{axis, column, headline_of, table};
use fathom_stats::Estimate;
use fathom_stats::steady::PtsWindow;
use fathom_telemetry::schema::{Axis, Cell, Chart, Headline, Mark, Table};

use super::steps::{Measured, Rounds};
pub(super) use fathom_bench::parts::line_chart as lines;

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
    let windows = &rounds.windows;
    let of = |i: usize, f: fn(&PtsWindow) -> f64| windows.get(i).map(f).into();
    table(
        id,
        "Steady state verification (last five rounds)",
        rounds.series.iter().enumerate(),
        &[
            ("tracked", "", &|(_, s)| s.0.as_str().into()),
            ("mean", unit, &|(i, _)| of(*i, |w| w.mean)),
            ("range, at most 20 %", "%", &|(i, _)| {
                of(*i, |w| 100.0 * w.range)
            }),
            ("slope × 4, at most 10 %", "%", &|(i, _)| {
                of(*i, |w| 100.0 * w.slope)
            }),
            ("rule", "", &|(i, _)| match windows.get(*i) {
                Some(w) if w.steady => "met".into(),
                Some(_) => "not met".into(),
                None => "fewer than five rounds".into(),
            }),
        ],
    )
}

/// A headline; its value is the mean over jobs with its interval.
pub(super) fn headline(
    group: &str,
    id: &str,
    label: &str,
    unit: &str,
    jobs: &[Measured],
    value: fn(&Measured) -> f64,
) -> Headline {
    let values: Vec<f64> = jobs.iter().map(value).collect();
    let estimate = Estimate::mean_of(&values);
    let jobs = jobs.iter().map(|m| m.job).collect();
    headline_of(group, label, &format!("pts-{id}"), unit, estimate, jobs)
}

/// Mean of one number of jobs.
pub(super) fn mean_of(jobs: &[Measured], value: fn(&Measured) -> f64) -> Option<f64> {
    let values: Vec<f64> = jobs.iter().map(value).collect();
    mean(&values)
}

/// What stands in tables with a column for each share of reads and a row for each block size.
pub(super) fn by_size(
    id: &str,
    title: &str,
    unit: &str,
    (shares, sizes): (&[u32], &[u64]),
    value: impl Fn(usize, usize) -> Option<f64>,
) -> Table {
    let heads = shares
        .iter()
        .map(|s| column(&format!("{s}/{}", 100 - s), unit));
    let row = |(b, bs): (usize, &u64)| {
        std::iter::once(Cell::from(size(*bs)))
            .chain((0..shares.len()).map(|s| value(s, b).into()))
            .collect()
    };
    Table {
        id: id.into(),
        title: title.into(),
        columns: std::iter::once(column("block size", ""))
            .chain(heads)
            .collect(),
        rows: sizes.iter().enumerate().map(row).collect(),
    }
}

/// Mean of what there is.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// `512`, `4k`, `1m` for people.
pub(super) fn size(bs: u64) -> String {
    fathom_telemetry::Bytes(bs).to_string()
}

//! Small builders for headlines, charts and tables, so that experiments read as what they say.

use std::collections::BTreeMap;

use fathom_stats::Estimate;
use fathom_telemetry::Op;
use fathom_telemetry::schema::{Axis, Chart, ChartKind, ChartSeries, Column, Headline, Point};

use crate::cells::Cell;

/// An axis.
pub(crate) fn axis(label: &str, unit: &str, log: bool) -> Axis {
    Axis {
        label: label.into(),
        unit: unit.into(),
        log,
    }
}

/// A column.
pub(crate) fn column(label: &str, unit: &str) -> Column {
    Column {
        label: label.into(),
        unit: unit.into(),
    }
}

/// A point with the interval of an estimate; a hole where there is none.
pub(crate) fn point(x: f64, y: Option<Estimate>) -> Point {
    Point {
        x,
        y: y.map(|e| e.value),
        low: y.and_then(|e| e.low),
        high: y.and_then(|e| e.high),
        ..Point::default()
    }
}

/// One bar per pattern, with its interval.
pub(crate) fn bars(
    id: &str,
    title: &str,
    y: Axis,
    patterns: &[&str],
    values: impl Iterator<Item = Option<Estimate>>,
) -> Chart {
    let points = values
        .enumerate()
        .map(|(i, v)| point(i as f64, v))
        .collect();
    Chart {
        id: id.into(),
        title: title.into(),
        kind: ChartKind::Bar,
        series: vec![ChartSeries {
            name: y.label.clone(),
            points,
        }],
        x: axis("pattern", "", false),
        y,
        z: None,
        categories: patterns.iter().map(|p| (*p).to_owned()).collect(),
        marks: Vec::new(),
    }
}

/// A headline of a cell.
pub(crate) fn headline(
    cell: &Cell,
    group: &str,
    label: &str,
    id: &str,
    unit: &str,
    estimate: Option<Estimate>,
) -> Headline {
    Headline {
        id: id.into(),
        label: label.into(),
        group: group.into(),
        unit: unit.into(),
        estimate,
        extra: BTreeMap::new(),
        jobs: cell.indices(),
        flags: cell.flags(),
    }
}

/// Percentiles of an operation for a headline's `extra`.
pub(crate) fn percentiles(cell: &Cell, op: Op) -> BTreeMap<String, f64> {
    [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)]
        .into_iter()
        .filter_map(|(name, q)| cell.percentile(op, q).map(|v| (name.to_owned(), v)))
        .collect()
}

/// The one operation of a job that only reads or only writes.
pub(crate) fn op_of(cell: &Cell) -> Op {
    if cell.spec.rw.writes() && !cell.spec.rw.reads() {
        Op::Write
    } else {
        Op::Read
    }
}

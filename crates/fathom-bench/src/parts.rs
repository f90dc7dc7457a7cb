//! Small builders for headlines, charts and tables, so that experiments read as what they say.

use std::collections::BTreeMap;

use fathom_stats::Estimate;
use fathom_telemetry::Op;
use fathom_telemetry::schema::{
    Axis, Cell as TableCell, Chart, ChartKind, ChartSeries, Column, Headline, Point, Table,
};

use crate::cells::Cell;

/// An axis.
pub fn axis(label: &str, unit: &str, log: bool) -> Axis {
    Axis {
        label: label.into(),
        unit: unit.into(),
        log,
    }
}

/// A column.
pub fn column(label: &str, unit: &str) -> Column {
    Column {
        label: label.into(),
        unit: unit.into(),
    }
}

/// A table's cell: an estimate with its interval, or a hole.
pub fn estimate(e: Option<Estimate>) -> TableCell {
    e.map_or(TableCell::Hole(()), TableCell::Estimate)
}

/// A table's cell: a number, or a hole.
pub fn number(v: Option<f64>) -> TableCell {
    v.map_or(TableCell::Hole(()), TableCell::Number)
}

/// A table's cell: words.
pub fn text(t: impl Into<String>) -> TableCell {
    TableCell::Text(t.into())
}

/// A column of a table whose rows are made of `R`: heading, unit, and what stands in it.
pub type ColumnOf<'a, R> = (&'a str, &'a str, &'a dyn Fn(&R) -> TableCell);

/// A table: each column says its heading and how its cells are made.
pub fn table<R>(
    id: &str,
    title: &str,
    rows: impl IntoIterator<Item = R>,
    columns: &[ColumnOf<'_, R>],
) -> Table {
    Table {
        id: id.into(),
        title: title.into(),
        columns: columns.iter().map(|c| column(c.0, c.1)).collect(),
        rows: rows
            .into_iter()
            .map(|r| columns.iter().map(|c| c.2(&r)).collect())
            .collect(),
    }
}

/// A table of single facts: what, and its value.
pub fn facts(id: &str, title: &str, rows: Vec<(&str, TableCell)>) -> Table {
    let columns: [ColumnOf<'_, (&str, TableCell)>; 2] = [
        ("what", "", &|r| r.0.into()),
        ("value", "", &|r| r.1.clone()),
    ];
    table(id, title, rows, &columns)
}

/// Points with a name in the legend.
pub fn series(name: &str, points: Vec<Point>) -> ChartSeries {
    ChartSeries {
        name: name.into(),
        points,
    }
}

/// A chart without categories, colour or marks.
pub fn chart(
    id: &str,
    title: &str,
    kind: ChartKind,
    x: Axis,
    y: Axis,
    series: Vec<ChartSeries>,
) -> Chart {
    Chart {
        id: id.into(),
        title: title.into(),
        kind,
        x,
        y,
        z: None,
        categories: Vec::new(),
        series,
        marks: Vec::new(),
    }
}

/// A point with the interval of an estimate; a hole where there is none.
pub fn point(x: f64, y: Option<Estimate>) -> Point {
    Point {
        x,
        y: y.map(|e| e.value),
        low: y.and_then(|e| e.low),
        high: y.and_then(|e| e.high),
        ..Point::default()
    }
}

/// One bar per pattern, with its interval.
pub fn bars(
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
    let series = vec![series(&y.label, points)];
    Chart {
        categories: patterns.iter().map(|p| (*p).to_owned()).collect(),
        ..chart(
            id,
            title,
            ChartKind::Bar,
            axis("pattern", "", false),
            y,
            series,
        )
    }
}

/// A chart of lines.
pub fn line_chart(
    id: &str,
    title: &str,
    x: Axis,
    y: Axis,
    series: Vec<(String, Vec<(f64, f64)>)>,
) -> Chart {
    let dot = |(x, y)| Point {
        x,
        y: Some(y),
        ..Point::default()
    };
    let lines = series
        .into_iter()
        .map(|(name, points)| self::series(&name, points.into_iter().map(dot).collect()))
        .collect();
    chart(id, title, ChartKind::Line, x, y, lines)
}

/// A headline that rests on `jobs`.
pub fn headline_of(
    group: &str,
    label: &str,
    id: &str,
    unit: &str,
    estimate: Option<Estimate>,
    jobs: Vec<usize>,
) -> Headline {
    Headline {
        id: id.into(),
        label: label.into(),
        group: group.into(),
        unit: unit.into(),
        estimate,
        extra: BTreeMap::new(),
        jobs,
        flags: Vec::new(),
    }
}

/// A headline of a cell.
pub fn headline(
    cell: &Cell,
    group: &str,
    label: &str,
    id: &str,
    unit: &str,
    estimate: Option<Estimate>,
) -> Headline {
    Headline {
        flags: cell.flags(),
        ..headline_of(group, label, id, unit, estimate, cell.indices())
    }
}

/// Percentiles of an operation for a headline's `extra`.
pub fn percentiles(cell: &Cell, op: Op) -> BTreeMap<String, f64> {
    [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)]
        .into_iter()
        .filter_map(|(name, q)| cell.percentile(op, q).map(|v| (name.to_owned(), v)))
        .collect()
}

/// The one operation of a job that only reads or only writes.
pub fn op_of(cell: &Cell) -> Op {
    if cell.spec.rw.writes() && !cell.spec.rw.reads() {
        Op::Write
    } else {
        Op::Read
    }
}
/// Names in a sentence: the first ones, and how many there are more.
pub fn listed<S: AsRef<str>>(all: &[S]) -> String {
    const NAMED_MAX: usize = 4;
    let shown: Vec<&str> = all.iter().take(NAMED_MAX).map(S::as_ref).collect();
    match all.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

//! Rows and curves as sections of a report: a table per place of the paper, ours beside the published values in charts.

use fathom_telemetry::schema::{
    Axis, Cell, Chart, ChartKind, ChartSeries, Column, Mark, Point, Section, Table,
};

use super::{Curve, Reproduction, Role, Row, contradictions};

/// Unit of the report for a row's unit, and what its values are multiplied by.
fn unit(name: &str) -> (&'static str, f64) {
    match name {
        "us" => ("ns", 1e3),
        "MB/s" => ("bytes/s", 1e6),
        "GB/s" => ("bytes/s", 1e9),
        "IOPS" | "ops/s" | "inserts/s" | "updates/s" => ("1/s", 1.0),
        "%" => ("%", 1.0),
        _ => ("", 1.0),
    }
}

fn point(x: f64, y: Option<f64>, label: Option<String>) -> Point {
    Point {
        x,
        y,
        low: None,
        high: None,
        z: None,
        label,
    }
}

fn slug(text: &str) -> String {
    let mut s = String::new();
    for c in text.to_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            s.push(c);
        } else if !s.ends_with('-') {
            s.push('-');
        }
    }
    s.trim_matches('-').to_owned()
}

/// Sections in the order of the paper.
pub fn sections(paper: &str, r: &Reproduction) -> Vec<Section> {
    let mut places: Vec<&str> = Vec::new();
    for row in r.rows.iter().filter(|r| r.ours.is_some()) {
        if !places.contains(&row.place.as_str()) {
            places.push(&row.place);
        }
    }
    let mut sections = vec![overview(r)];
    sections.extend(places
        .iter()
        .map(|place| {
            let rows: Vec<&Row> = r
                .rows
                .iter()
                .filter(|r| r.place == *place && r.ours.is_some())
                .collect();
            Section {
                id: slug(place),
                title: (*place).to_owned(),
                text: "Ours beside the published value. A fitted value chose a parameter of the model; a prediction did not; a measured one comes from a real target.".into(),
                charts: beside(place, &rows)
                    .into_iter()
                    .chain(r.curves.iter().filter(|c| c.place == *place).map(curve))
                    .collect(),
                tables: vec![table(&format!("{}-rows", slug(place)), "Values", &rows)],
                flags: Vec::new(),
            }
        }));
    sections.extend(contradictions::section(paper));
    let rest: Vec<&Row> = r.rows.iter().filter(|r| r.ours.is_none()).collect();
    if !rest.is_empty() {
        sections.push(Section {
            id: "not-reproduced".into(),
            title: "Not reproduced".into(),
            text: "What the paper states and has no counterpart here, with the reason.".into(),
            charts: Vec::new(),
            tables: vec![table("not-reproduced-rows", "Values", &rest)],
            flags: Vec::new(),
        });
    }
    sections
}

/// Number of values of a role, mean and largest of their errors, %; `None` where there are none.
pub fn errors(rows: &[Row], role: Role) -> Option<(usize, f64, f64)> {
    let all: Vec<f64> = rows
        .iter()
        .filter(|r| r.role == role)
        .filter_map(|r| r.error_percent.map(f64::abs))
        .collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let max = all.iter().copied().fold(0.0, f64::max);
    (!all.is_empty()).then_some((all.len(), mean, max))
}

/// Roles with their words.
pub const ROLES: [(Role, &str); 3] = [
    (Role::Fit, "fitted"),
    (Role::Prediction, "predicted"),
    (Role::Measured, "measured"),
];

/// What was fitted, and how far fitted and predicted values are off.
fn overview(r: &Reproduction) -> Section {
    let rows = ROLES
        .iter()
        .filter_map(|(role, name)| {
            let (n, mean, max) = errors(&r.rows, *role)?;
            Some(vec![
                Cell::Text((*name).into()),
                Cell::Number(n as f64),
                Cell::Number(mean),
                Cell::Number(max),
            ])
        })
        .collect();
    let column = |label: &str, unit: &str| Column {
        label: label.into(),
        unit: unit.into(),
    };
    Section {
        id: "overview".into(),
        title: "Fitted and predicted".into(),
        text: r.basis.into(),
        charts: Vec::new(),
        tables: vec![Table {
            id: "overview-rows".into(),
            title: "Errors".into(),
            columns: vec![
                column("values", ""),
                column("number", ""),
                column("mean error", "%"),
                column("largest error", "%"),
            ],
            rows,
        }],
        flags: Vec::new(),
    }
}

/// A bar chart per unit that two rows or more share.
fn beside(place: &str, rows: &[&Row]) -> Vec<Chart> {
    let mut units: Vec<&str> = rows.iter().map(|r| r.unit.as_str()).collect();
    units.dedup();
    units.sort_unstable();
    units.dedup();
    units
        .iter()
        .map(|u| {
            let same: Vec<&&Row> = rows.iter().filter(|r| r.unit == *u).collect();
            let (axis, times) = unit(u);
            let values = |get: fn(&Row) -> Option<f64>| -> Vec<Point> {
                same.iter()
                    .enumerate()
                    .map(|(i, r)| point(i as f64, get(r).map(|v| v * times), None))
                    .collect()
            };
            Chart {
                id: format!(
                    "{}-{}",
                    slug(place),
                    slug(if u.is_empty() { "x" } else { u })
                ),
                title: place.to_owned(),
                kind: ChartKind::Bar,
                x: Axis {
                    label: "what".into(),
                    unit: String::new(),
                    log: false,
                },
                y: Axis {
                    label: (if axis.is_empty() { *u } else { "value" }).to_owned(),
                    unit: axis.into(),
                    log: false,
                },
                z: None,
                categories: same
                    .iter()
                    .map(|r| format!("{} {}", r.id, r.what))
                    .collect(),
                series: vec![
                    ChartSeries {
                        name: "published".into(),
                        points: values(|r| r.published),
                    },
                    ChartSeries {
                        name: "ours".into(),
                        points: values(|r| r.ours),
                    },
                ],
                marks: Vec::new(),
            }
        })
        .collect()
}

fn curve(c: &Curve) -> Chart {
    let axis = |(label, unit): &(String, String)| Axis {
        label: label.clone(),
        unit: unit.clone(),
        log: false,
    };
    Chart {
        id: slug(&c.title),
        title: c.title.clone(),
        kind: ChartKind::Line,
        x: axis(&c.x),
        y: axis(&c.y),
        z: None,
        categories: Vec::new(),
        series: c
            .series
            .iter()
            .map(|(name, points)| ChartSeries {
                name: name.clone(),
                points: points.iter().map(|p| point(p.0, Some(p.1), None)).collect(),
            })
            .collect(),
        marks: c
            .marks
            .iter()
            .map(|(label, y)| Mark {
                x: None,
                y: Some(*y),
                label: label.clone(),
            })
            .collect(),
    }
}

fn table(id: &str, title: &str, rows: &[&Row]) -> Table {
    let column = |label: &str, unit: &str| Column {
        label: label.into(),
        unit: unit.into(),
    };
    let number = |v: Option<f64>| v.map_or(Cell::Hole(()), Cell::Number);
    Table {
        id: id.into(),
        title: title.into(),
        columns: vec![
            column("id", ""),
            column("what", ""),
            column("published", ""),
            column("printed", ""),
            column("ours", ""),
            column("models", ""),
            column("unit", ""),
            column("error", "%"),
            column("role", ""),
            column("note", ""),
        ],
        rows: rows
            .iter()
            .map(|r| {
                let role = match r.role {
                    _ if r.ours.is_none() => "",
                    Role::Fit => "fit",
                    Role::Prediction => "prediction",
                    Role::Measured => "measured",
                };
                vec![
                    Cell::Text(r.id.clone()),
                    Cell::Text(r.what.clone()),
                    number(r.published),
                    r.printed.map_or(Cell::Text(String::new()), Cell::Number),
                    number(r.ours),
                    r.model.map_or(Cell::Text(String::new()), Cell::Number),
                    Cell::Text(r.unit.clone()),
                    number(r.error_percent),
                    Cell::Text(role.into()),
                    Cell::Text(r.note.clone()),
                ]
            })
            .collect(),
    }
}

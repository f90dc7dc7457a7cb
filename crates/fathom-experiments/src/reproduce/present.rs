//! Rows and curves as sections of a report: a table per place of the paper, ours beside the published values in charts.

use fathom_bench::parts;
use fathom_telemetry::schema::{Cell, Chart, ChartKind, Mark, Point, Section, Table};

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
pub(super) fn sections(r: &Reproduction) -> Vec<Section> {
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
    sections.extend(contradictions::section(&r.paper));
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
pub const ROLES: [(Role, &str); 4] = [
    (Role::Fit, "fitted"),
    (Role::Derived, "derived from fitted"),
    (Role::Prediction, "predicted"),
    (Role::Measured, "measured"),
];

/// What was fitted, and how far fitted and predicted values are off.
fn overview(r: &Reproduction) -> Section {
    let rows = ROLES
        .iter()
        .filter_map(|(role, name)| Some((*name, errors(&r.rows, *role)?)));
    Section {
        id: "overview".into(),
        title: "Fitted and predicted".into(),
        text: r.basis.clone(),
        tables: vec![parts::table(
            "overview-rows",
            "Errors",
            rows,
            &[
                ("values", "", &|r| r.0.into()),
                ("number", "", &|r| (r.1.0 as f64).into()),
                ("mean error", "%", &|r| r.1.1.into()),
                ("largest error", "%", &|r| r.1.2.into()),
            ],
        )],
        ..Section::default()
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
                    .map(|(i, r)| Point {
                        x: i as f64,
                        y: get(r).map(|v| v * times),
                        ..Point::default()
                    })
                    .collect()
            };
            let id = format!(
                "{}-{}",
                slug(place),
                slug(if u.is_empty() { "x" } else { u })
            );
            Chart {
                categories: same
                    .iter()
                    .map(|r| format!("{} {}", r.id, r.what))
                    .collect(),
                ..parts::chart(
                    &id,
                    place,
                    ChartKind::Bar,
                    parts::axis("what", "", false),
                    parts::axis(if axis.is_empty() { u } else { "value" }, axis, false),
                    vec![
                        parts::series("published", values(|r| r.published)),
                        parts::series("ours", values(|r| r.ours)),
                    ],
                )
            }
        })
        .collect()
}

fn curve(c: &Curve) -> Chart {
    let axis = |(label, unit): &(String, String)| parts::axis(label, unit, false);
    let mark = |(label, y): &(String, f64)| Mark {
        x: None,
        y: Some(*y),
        label: label.clone(),
    };
    let (x, y) = (axis(&c.x), axis(&c.y));
    Chart {
        marks: c.marks.iter().map(mark).collect(),
        ..parts::line_chart(&slug(&c.title), &c.title, x, y, c.series.clone())
    }
}

fn table(id: &str, title: &str, rows: &[&Row]) -> Table {
    let or_blank = |v: Option<f64>| v.map_or("".into(), Cell::Number);
    parts::table(
        id,
        title,
        rows,
        &[
            ("id", "", &|r| r.id.as_str().into()),
            ("what", "", &|r| r.what.as_str().into()),
            ("published", "", &|r| match r.range {
                Some(_) => r
                    .as_published(|v| v.to_string())
                    .unwrap_or_default()
                    .as_str()
                    .into(),
                None => r.published.into(),
            }),
            ("printed", "", &|r| or_blank(r.printed)),
            ("ours", "", &|r| r.ours.into()),
            ("models", "", &|r| or_blank(r.model)),
            ("unit", "", &|r| r.unit.as_str().into()),
            ("error", "%", &|r| r.error_percent.into()),
            ("role", "", &|r| match r.role {
                _ if r.ours.is_none() => "".into(),
                role => role.word().into(),
            }),
            ("note", "", &|r| r.note.as_str().into()),
        ],
    )
}

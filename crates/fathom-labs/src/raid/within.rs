//! Another lab on each array: its headlines beside each other, by array. The other lab is a run of its own in a
//! directory of the array's file system.

use fathom_experiments::Notebook;
use fathom_experiments::parts::{axis, chart, column, estimate, headline_of, point, series};
use fathom_telemetry::schema::{Cell, Chart, ChartKind, Run, Section, Table};
use fathom_telemetry::{Flag, FlagCode};

use super::Shape;

/// What came of one array.
pub struct Within {
    /// The array.
    pub shape: Shape,
    /// The lab's run and where it is kept, or why there is none.
    pub run: Result<(Run, String), String>,
}

/// Tables of values by array have this in front of the headline's id. Columns: array, level, members, value, run.
pub const TABLE: &str = "raid-lab-";

/// Puts everything into the notebook: a table and a chart for each of the lab's headlines. Without any array the run is
/// void.
pub fn report(book: &mut Notebook, lab: &str, about: &str, all: &[Within]) {
    let mut known: Vec<(String, String, String)> = Vec::new();
    let runs = || {
        all.iter()
            .filter_map(|w| Some((w.shape, w.run.as_ref().ok()?)))
    };
    for (_, (run, _)) in runs() {
        for h in &run.headlines {
            if !known.iter().any(|k| k.0 == h.id) {
                known.push((h.id.clone(), h.label.clone(), h.unit.clone()));
            }
        }
    }
    let mut section = Section {
        id: "raid-lab".into(),
        title: format!("fathom {lab} on arrays"),
        text: format!(
            "{about} Each array is made anew; the lab runs in its file system, or on its device where it has none, and keeps a run of its own."
        ),
        ..Section::default()
    };
    let mut headlines = Vec::new();
    for (id, label, unit) in &known {
        let (mut rows, mut bars) = (Vec::new(), Vec::new());
        for (shape, (run, dir)) in runs() {
            let found = run.headlines.iter().find(|h| h.id == *id);
            let value = found.and_then(|h| h.estimate);
            bars.push(point(bars.len() as f64, value));
            rows.push(vec![
                Cell::Text(shape.title()),
                Cell::Number(f64::from(shape.level.number())),
                Cell::Number(f64::from(shape.members)),
                estimate(value),
                Cell::Text(dir.clone()),
            ]);
            headlines.push(headline_of(
                &shape.title(),
                label,
                &format!("{}-{id}", shape.slug()),
                unit,
                value,
                Vec::new(),
            ));
        }
        section.charts.push(Chart {
            categories: runs().map(|(s, _)| s.title()).collect(),
            ..chart(
                &format!("{TABLE}{id}"),
                label,
                ChartKind::Bar,
                axis("array", "", false),
                axis(label, unit, false),
                vec![series(label, bars)],
            )
        });
        section.tables.push(Table {
            id: format!("{TABLE}{id}"),
            title: label.clone(),
            columns: vec![
                column("array", ""),
                column("level", ""),
                column("members", ""),
                column(label, unit),
                column("run", ""),
            ],
            rows,
        });
    }
    let run = book.run_mut();
    run.sections.push(section);
    run.headlines.extend(headlines);
    if all.iter().all(|w| w.run.is_err()) {
        super::none_measured(book);
    }
    let run = book.run_mut();
    for w in all {
        match &w.run {
            // What the lab says against its numbers holds here, too.
            Ok((inner, dir)) => run.flags.extend(inner.flags.iter().map(|f| Flag {
                detail: format!("{}: {} ({dir})", w.shape.title(), f.detail),
                ..f.clone()
            })),
            Err(why) => run.flags.push(Flag::new(
                FlagCode::NotChecked,
                format!("{} was not measured: {why}", w.shape.title()),
                "the other arrays are not concerned",
            )),
        }
    }
}

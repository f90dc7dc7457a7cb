//! Another lab on the host and in a machine: its headlines beside each other. Each turn is a run of its own.

use std::path::Path;

use fathom_experiments::Notebook;
use fathom_experiments::parts::{axis, chart, column, estimate, headline_of, point, series};
use fathom_stats::Estimate;
use fathom_telemetry::Flag;
use fathom_telemetry::schema::{Cell, Chart, ChartKind, Run, Section, Table};

/// What came of the turns.
#[derive(Default)]
pub struct Sides {
    host: Vec<Run>,
    machine: Vec<Run>,
    /// Where each is kept.
    kept: Vec<String>,
}

impl Sides {
    /// A run on the host or, where `inside`, in a machine.
    pub fn add(&mut self, inside: bool, run: Run, dir: &Path) {
        self.kept.push(dir.display().to_string());
        if inside {
            self.machine.push(run);
        } else {
            self.host.push(run);
        }
    }
}

/// Means of a headline over the runs of one side.
fn values(runs: &[Run], id: &str) -> Vec<f64> {
    let one = |r: &Run| {
        let found = r.headlines.iter().find(|h| h.id == id)?;
        Some(found.estimate?.value)
    };
    runs.iter().filter_map(one).collect()
}

/// Puts everything into the notebook: a line of the table and a bar for each of the lab's headlines.
pub fn report(book: &mut Notebook, lab: &str, about: &str, sides: &Sides, stamps: &[Flag]) {
    let mut known: Vec<(&str, &str, &str)> = Vec::new();
    for h in sides.host.iter().flat_map(|r| &r.headlines) {
        if !known.iter().any(|k| k.0 == h.id) {
            known.push((&h.id, &h.label, &h.unit));
        }
    }
    let (mut rows, mut bars, mut headlines) = (Vec::new(), Vec::new(), Vec::new());
    for (id, label, unit) in &known {
        let (host, machine) = (values(&sides.host, id), values(&sides.machine, id));
        let ratios: Vec<f64> = host.iter().zip(&machine).map(|(h, m)| m / h).collect();
        let ratio = Estimate::mean_of(&ratios);
        bars.push(point(bars.len() as f64, ratio));
        let (host, machine) = (Estimate::mean_of(&host), Estimate::mean_of(&machine));
        rows.push(vec![
            Cell::Text((*label).to_owned()),
            Cell::Text((*unit).to_owned()),
            estimate(host),
            estimate(machine),
            estimate(ratio),
        ]);
        for (side, value) in [("host", host), ("machine", machine)] {
            let mut h = headline_of(
                side,
                label,
                &format!("{side}-{id}"),
                unit,
                value,
                Vec::new(),
            );
            if side == "machine" {
                h.flags.extend(stamps.iter().cloned());
            }
            headlines.push(h);
        }
    }
    let section = Section {
        id: "vm-lab".into(),
        title: format!("fathom {lab} in a machine"),
        text: format!(
            "{about}. The lab ran on the host and in a machine over scratch files of the same size in the same directory, in turns (host, machine, machine, host); each turn is a run of its own: {}.",
            sides.kept.join(", ")
        ),
        charts: vec![Chart {
            categories: known.iter().map(|k| k.1.to_owned()).collect(),
            ..chart(
                "vm-lab-ratio",
                "Machine over host",
                ChartKind::Bar,
                axis("", "", false),
                axis("machine over host", "x", false),
                vec![series("machine over host", bars)],
            )
        }],
        tables: vec![Table {
            id: "vm-lab-table".into(),
            title: "Host and machine".into(),
            columns: vec![
                column("what", ""),
                column("unit", ""),
                column("host", ""),
                column("machine", ""),
                column("machine over host", "x"),
            ],
            rows,
        }],
        flags: stamps.to_vec(),
    };
    let run = book.run_mut();
    run.sections.push(section);
    run.headlines.extend(headlines);
    // What a lab says against its numbers holds here, too.
    for (side, runs) in [("host", &sides.host), ("machine", &sides.machine)] {
        let flags = runs.iter().flat_map(|r| &r.flags);
        run.flags.extend(flags.map(|f| Flag {
            detail: format!("{side}: {}", f.detail),
            ..f.clone()
        }));
    }
}

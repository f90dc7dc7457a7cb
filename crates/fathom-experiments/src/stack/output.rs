//! A stack's result as sections of the run, as JSON for scripts, and as text for the screen.

use std::fmt::Write as _;

use fathom_stack::Owner;
use fathom_telemetry::schema::{
    Cell, Chart, ChartKind, ChartSeries, Column, Finding, Point, Run, Section, Table,
};
use serde_json::{Map, Value, json};

use super::{StackCase, StackReport, WhatIf};
use crate::parts::axis;

fn column(label: &str, unit: &str) -> Column {
    Column {
        label: label.into(),
        unit: unit.into(),
    }
}

fn number(v: Option<f64>) -> Cell {
    v.map_or(Cell::Hole(()), Cell::Number)
}

/// Adds charts, tables and findings of the cases to the run.
pub(super) fn into_run(report: &StackReport, run: &mut Run) {
    let mut section = Section {
        id: "stack".into(),
        title: "Where the microseconds go".into(),
        text: "Each I/O is split at the points where the kernel tells of it. Means of the layers add up to the application's mean; medians and other percentiles do not.".into(),
        ..Section::default()
    };
    if let Some(why) = report
        .cases
        .iter()
        .find_map(|c| c.why.as_ref().filter(|_| c.rung != "full"))
    {
        section
            .text
            .push_str(&format!(" Rung: unprivileged ({why})."));
    }
    let mut names: Vec<&str> = Vec::new();
    for layer in report.cases.iter().flat_map(|c| &c.layers) {
        if !names.contains(&layer.name.as_str()) {
            names.push(&layer.name);
        }
    }
    section.charts.push(Chart {
        id: "stack-layers".into(),
        title: "Mean latency by layer".into(),
        kind: ChartKind::StackedBar,
        x: axis("case", "", false),
        y: axis("latency", "ns", false),
        z: None,
        categories: report.cases.iter().map(|c| c.name.clone()).collect(),
        series: names
            .iter()
            .map(|name| ChartSeries {
                name: (*name).to_owned(),
                points: report
                    .cases
                    .iter()
                    .enumerate()
                    .filter_map(|(x, c)| {
                        let layer = c.layers.iter().find(|l| l.name == *name)?;
                        Some(Point {
                            x: x as f64,
                            y: Some(layer.mean_ns.max(0.0)),
                            ..Point::default()
                        })
                    })
                    .collect(),
            })
            .collect(),
        marks: Vec::new(),
    });
    section.tables.push(overview(report));
    for case in &report.cases {
        section.tables.push(layer_table(case));
        if let Some(t) = slow_table(case) {
            section.tables.push(t);
        }
    }
    run.results.push(section);
    for case in &report.cases {
        run.findings.extend(dominating(case));
    }
}

fn overview(report: &StackReport) -> Table {
    Table {
        id: "stack-cases".into(),
        title: "Cases: what the tracing covers and costs".into(),
        columns: vec![
            column("case", ""),
            column("rung", ""),
            column("application's mean", "ns"),
            column("untraced mean", "ns"),
            column("observer cost", "ns"),
            column("coverage", "%"),
            column("residual", "ns"),
            column("lost events", ""),
            column("software share", "%"),
            column("application's CPUs", ""),
            column("interrupt's CPUs", ""),
        ],
        rows: report
            .cases
            .iter()
            .map(|c| {
                let d = c.details.as_ref();
                vec![
                    Cell::Text(c.name.clone()),
                    Cell::Text(c.rung.into()),
                    number(c.application_mean_ns),
                    c.untraced.map_or(Cell::Hole(()), Cell::Estimate),
                    number(c.observer_cost_ns),
                    number(c.coverage.map(|v| v * 100.0)),
                    number(c.residual_ns),
                    Cell::Number(c.lost as f64),
                    number(d.and_then(|d| d.software_share).map(|v| v * 100.0)),
                    Cell::Text(d.map_or(String::new(), |d| cpus(&d.application_cpus))),
                    Cell::Text(d.map_or(String::new(), |d| cpus(&d.interrupt_cpus))),
                ]
            })
            .collect(),
    }
}

fn layer_table(case: &StackCase) -> Table {
    Table {
        id: format!("stack-{}", case.name),
        title: format!("{}: layers", case.name),
        columns: vec![
            column("layer", ""),
            column("mean", "ns"),
            column("p50", "ns"),
            column("p99", "ns"),
            column("share", "%"),
            column("spent by", ""),
        ],
        rows: case
            .layers
            .iter()
            .map(|l| {
                vec![
                    Cell::Text(l.name.clone()),
                    Cell::Number(l.mean_ns),
                    number(l.p50_ns.map(|v| v as f64)),
                    number(l.p99_ns.map(|v| v as f64)),
                    Cell::Number(l.share * 100.0),
                    Cell::Text(owner(l.owner).into()),
                ]
            })
            .collect(),
    }
}

fn owner(o: Owner) -> &'static str {
    match o {
        Owner::Application => "application",
        Owner::Kernel => "kernel",
        Owner::Device => "device",
    }
}

/// The slowest I/Os, each with its largest layer and what else happened.
fn slow_table(case: &StackCase) -> Option<Table> {
    let slow = &case.details.as_ref()?.slowest;
    (!slow.is_empty()).then(|| Table {
        id: format!("stack-slowest-{}", case.name),
        title: format!("{}: the slowest I/Os", case.name),
        columns: vec![
            column("latency", "ns"),
            column("offset", "bytes"),
            column("largest layer", ""),
            column("it took", "ns"),
            column("meanwhile", ""),
        ],
        rows: slow
            .iter()
            .map(|s| {
                let largest = s.layers.iter().max_by_key(|l| l.1);
                vec![
                    Cell::Number(s.latency_ns as f64),
                    Cell::Number(s.offset as f64),
                    Cell::Text(largest.map_or(String::new(), |l| l.0.clone())),
                    number(largest.map(|l| l.1 as f64)),
                    Cell::Text(s.meanwhile.join("; ")),
                ]
            })
            .collect(),
    })
}

fn dominating(case: &StackCase) -> Option<Finding> {
    if case.rung != "full" {
        return None;
    }
    let top = case
        .layers
        .iter()
        .max_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns))?;
    let software = case.details.as_ref()?.software_share;
    let software = software.map_or(String::new(), |s| {
        format!("; software takes {:.0} % in all", s * 100.0)
    });
    Some(Finding {
        id: format!("stack-dominates-{}", case.name),
        text: format!(
            "{}: '{}' takes {:.2} of {:.2} µs ({:.0} %){software}.",
            case.name,
            top.name,
            top.mean_ns / 1e3,
            case.application_mean_ns? / 1e3,
            top.share * 100.0
        ),
        advice: "Add --what-if to test placement, scheduler, engine, polling and idle states on this machine.".into(),
        confidence: if case.coverage? >= 0.999 && case.lost == 0 { "strong" } else { "moderate" }.into(),
        jobs: case.jobs.clone(),
        evidence: vec![format!("stack-{}", case.name), "stack-layers".into()],
    })
}

/// Adds the tested variants to the run.
pub(super) fn what_if_into_run(tested: &[WhatIf], run: &mut Run) {
    let table = Table {
        id: "stack-what-if".into(),
        title: "What if: gain over the base, measured in turns".into(),
        columns: vec![
            column("variant", ""),
            column("base mean", "ns"),
            column("gain", "ns"),
            column("how", ""),
        ],
        rows: tested
            .iter()
            .map(|w| {
                vec![
                    Cell::Text(w.variant.clone()),
                    number(w.base_mean_ns),
                    w.gain_ns.map_or(Cell::Hole(()), Cell::Estimate),
                    Cell::Text(w.why.clone().unwrap_or_else(|| w.advice.clone())),
                ]
            })
            .collect(),
    };
    if let Some(section) = run.results.iter_mut().find(|s| s.id == "stack") {
        section.tables.push(table);
    }
    for w in tested {
        let (Some(gain), Some(base)) = (w.gain_ns, w.base_mean_ns) else {
            continue;
        };
        // An interval that holds 0 proves nothing.
        if gain.low.is_some_and(|l| l > 0.0) {
            run.findings.push(Finding {
                id: format!("stack-what-if-{}", run.findings.len()),
                text: format!(
                    "{} saves {:.2} of {:.2} µs per I/O (95 % interval {:.2} to {:.2}).",
                    w.variant,
                    gain.value / 1e3,
                    base / 1e3,
                    gain.low.unwrap_or(gain.value) / 1e3,
                    gain.high.unwrap_or(gain.value) / 1e3
                ),
                advice: w.advice.clone(),
                confidence: "strong".into(),
                jobs: Vec::new(),
                evidence: vec!["stack-what-if".into()],
            });
        }
    }
}

/// What `--json` adds to `run.json`: the first case at the top, then every case.
pub fn document(report: &StackReport) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some(first) = report.cases.first() {
        for (key, value) in [
            ("case", json!(first.name)),
            ("rung", json!(first.rung)),
            ("layers", json!(first.layers)),
            ("application_mean_ns", json!(first.application_mean_ns)),
            ("untraced_mean_ns", json!(first.untraced_mean_ns)),
            ("observer_cost_ns", json!(first.observer_cost_ns)),
            ("coverage", json!(first.coverage)),
            ("residual_ns", json!(first.residual_ns)),
            ("lost", json!(first.lost)),
        ] {
            out.insert(key.into(), value);
        }
    }
    out.insert("cases".into(), json!(report.cases));
    out.insert("skipped".into(), json!(report.skipped));
    out.insert("what_if".into(), json!(report.what_if));
    out
}

fn cpus(list: &[(u16, f64)]) -> String {
    list.iter()
        .take(4)
        .map(|(c, s)| format!("{c} ({:.0} %)", s * 100.0))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The result for the screen.
pub fn text(report: &StackReport) -> String {
    let mut out = String::new();
    for case in &report.cases {
        one(&mut out, case);
    }
    if !report.what_if.is_empty() {
        let _ = writeln!(
            out,
            "What if (gain per I/O over the base, 95 % interval, in turns)"
        );
        for w in &report.what_if {
            let gain = match (w.gain_ns, &w.why) {
                (_, Some(why)) => format!("not tested: {why}"),
                (Some(g), _) => format!(
                    "{:+.2} µs ({:+.2} to {:+.2}) of {:.2}",
                    g.value / 1e3,
                    g.low.unwrap_or(f64::NAN) / 1e3,
                    g.high.unwrap_or(f64::NAN) / 1e3,
                    w.base_mean_ns.unwrap_or(f64::NAN) / 1e3
                ),
                (None, None) => "not measured".into(),
            };
            let _ = writeln!(out, "  {:<52} {gain}", w.variant);
        }
        out.push('\n');
    }
    for s in &report.skipped {
        let _ = writeln!(out, "skipped {s}");
    }
    out
}

fn one(out: &mut String, case: &StackCase) {
    let us = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{:.2}", v / 1e3));
    let _ = writeln!(
        out,
        "{}   application {} µs, untraced {} µs, rung {}",
        case.name,
        us(case.application_mean_ns),
        us(case.untraced_mean_ns),
        case.rung
    );
    if let Some(why) = &case.why {
        let _ = writeln!(out, "  reduced: {why}");
    }
    let _ = writeln!(
        out,
        "  {:<48}{:>9}{:>9}{:>10}{:>8}",
        "layer (µs)", "mean", "p50", "p99", "share"
    );
    for l in &case.layers {
        let p = |v: Option<u64>| us(v.map(|v| v as f64));
        let bar = "█".repeat((l.share.max(0.0) * 30.0).round() as usize);
        let _ = writeln!(
            out,
            "  {:<48}{:>9}{:>9}{:>10}{:>6.1} % {bar}",
            l.name,
            us(Some(l.mean_ns)),
            p(l.p50_ns),
            p(l.p99_ns),
            l.share * 100.0
        );
    }
    if let Some(d) = &case.details {
        if let Some(s) = d.software_share {
            let _ = writeln!(
                out,
                "  software {:.1} %, device and below {:.1} %",
                s * 100.0,
                (1.0 - s) * 100.0
            );
        }
        let cost = match (case.observer_cost_ns, case.untraced_mean_ns) {
            (Some(c), Some(u)) if u > 0.0 => format!(
                "{:+.2} µs ({:+.1} % of untraced, {:.0} ns per event)",
                c / 1e3,
                c / u * 100.0,
                case.observer_cost_per_event_ns.unwrap_or(0.0)
            ),
            _ => "unknown".into(),
        };
        let _ = writeln!(
            out,
            "  coverage {:.3} % of {} I/Os, residual {:.3} µs, lost {}, observer {cost}",
            d.coverage * 100.0,
            d.submitted,
            d.residual_ns / 1e3,
            d.lost
        );
        if !d.application_cpus.is_empty() {
            let irq = if d.interrupt_cpus.is_empty() {
                "no interrupt seen".into()
            } else {
                format!(
                    "interrupt {:?} on CPU {}",
                    d.interrupts,
                    cpus(&d.interrupt_cpus)
                )
            };
            let _ = writeln!(
                out,
                "  application on CPU {}; {irq}",
                cpus(&d.application_cpus)
            );
        }
        for s in &d.devices {
            let queue = s
                .queue_mean_ns
                .map_or(String::new(), |q| format!("queue {:.2} µs, ", q / 1e3));
            let _ = writeln!(
                out,
                "  {}: {} requests ({} not queued by the job's threads), {queue}device {:.2} µs",
                s.name,
                s.requests,
                s.foreign,
                s.device_mean_ns / 1e3
            );
        }
        if let Some(s) = d.slowest.first() {
            let largest = s.layers.iter().max_by_key(|l| l.1);
            let _ = writeln!(
                out,
                "  slowest {:.2} µs: {} {:.2} µs; {}",
                s.latency_ns as f64 / 1e3,
                largest.map_or("", |l| l.0.as_str()),
                largest.map_or(0.0, |l| l.1 as f64 / 1e3),
                s.meanwhile.join("; ")
            );
        }
    }
    if let Some(c) = case.cpu_per_io_ns {
        let _ = writeln!(out, "  processor time {:.2} µs per I/O", c / 1e3);
    }
    for n in &case.notes {
        let _ = writeln!(out, "  note: {n}");
    }
    out.push('\n');
}

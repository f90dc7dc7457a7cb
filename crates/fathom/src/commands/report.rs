//! `fathom report`: remake a report, export a run, or put several runs on one page.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fathom_experiments::compare::{
    Comparison, Row, WindowSource, change, compare as compare_runs, relative,
};
use fathom_report::{DirOutput, RUNS_MAX, clean};
use fathom_stats::compare::Verdict;
use fathom_telemetry::rundir::{RUNS_DIR, RunDir};
use fathom_telemetry::schema::{Cell, Column, Run, Section, Table};

use super::compare::{conditions, shown, windows, words};
use super::pictures;
use super::redacted;
use super::saved::{data, make, open};
use crate::cli::ReportArgs;
use crate::exit::{DONE, Failure, Outcome, refused};
use crate::screen;

/// The page of several runs.
const COMPARISON_FILE: &str = "comparison.html";
/// Jobs in a table of differences; `fathom compare --jobs` has them all.
const JOBS_MAX: usize = 400;

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    if args.runs.len() > 1 {
        return several(args);
    }
    let path: PathBuf = match args.runs.first() {
        Some(run) => run.clone(),
        None => RunDir::newest(Path::new(RUNS_DIR)).map_err(refused)?,
    };
    if let Some(dir) = &args.svg {
        return pictures::write(&path, dir, args.png);
    }
    if args.json {
        let (_, run) = for_whom(args, open(&path)?)?;
        screen::json(&run)?;
        return Ok(DONE);
    }
    if args.format == "terminal" && args.out.is_none() {
        let (dir, run) = for_whom(args, open(&path)?)?;
        let report = Some(dir.report_file()).filter(|p| p.exists());
        let places = fathom_report::terminal::Whereabouts {
            run_directory: Some(dir.path()).filter(|_| !args.redact),
            report: report.as_deref().filter(|_| !args.redact),
        };
        let s = screen::screen();
        let text = if run.headlines.is_empty() {
            fathom_report::terminal::jobs(&run, &s)
        } else {
            fathom_report::terminal::summary(&run, &s, &places)
        };
        screen::print(&text);
        return Ok(DONE);
    }
    let exporter = fathom_report::exporter(&args.format)?;
    let mut data = data(&path)?;
    if args.redact {
        if args.out.is_none() {
            return Err(refused(anyhow!(
                "--redact leaves the run as it is: expected --out DIR for what is to be shared"
            )));
        }
        let names = redacted::names(data.dir.as_deref());
        data.run = fathom_report::redact(&data.run, &names)?;
        data.dir = None;
    }
    let out = args
        .out
        .clone()
        .or_else(|| data.dir.clone())
        .unwrap_or_default();
    if exporter.name() == "json"
        && let Ok((_, there)) = RunDir::open(&out)
        && (&there.name, &there.started) != (&data.run.name, &data.run.started)
    {
        return Err(refused(anyhow!(
            "{}: another run keeps its run.json there; choose another --out",
            out.display()
        )));
    }
    make(&out)?;
    exporter.export(&data, &mut DirOutput::new(&out))?;
    screen::print(&format!("{}: {}\n", exporter.name(), out.display()));
    Ok(DONE)
}

/// A run as it may be seen.
fn for_whom(args: &ReportArgs, (dir, run): (RunDir, Run)) -> Result<(RunDir, Run), Failure> {
    let run = match args.redact {
        true => fathom_report::redact(&run, &redacted::names(Some(dir.path())))?,
        false => run,
    };
    Ok((dir, run))
}

/// One page with all runs over each other, and each beside the first.
fn several(args: &ReportArgs) -> Outcome {
    if args.redact {
        return Err(refused(anyhow!(
            "--redact takes one run; expected fathom report RUN --redact --out DIR, for each"
        )));
    }
    if args.json || args.svg.is_some() || args.format != "html" {
        return Err(refused(anyhow!(
            "several runs make one HTML page; expected --format html, or 'fathom compare' with --json or --markdown for numbers"
        )));
    }
    if args.runs.len() > RUNS_MAX {
        return Err(refused(anyhow!(
            "{} runs: at most {RUNS_MAX} can be told apart on one page; 'fathom compare' shows the history of more",
            args.runs.len()
        )));
    }
    let runs = args
        .runs
        .iter()
        .map(|path| data(path))
        .collect::<Result<Vec<_>, _>>()?;
    let windows: Vec<Box<dyn WindowSource>> = runs
        .iter()
        .map(|r| windows(r.dir.as_deref().unwrap_or(Path::new(""))))
        .collect();
    let compared: Vec<(char, Comparison)> = (1..runs.len())
        .map(|other| {
            let c = compare_runs(
                &runs[0].run,
                &runs[other].run,
                [windows[0].as_ref(), windows[other].as_ref()],
                &args.allow,
            );
            (char::from(b'A' + other as u8), c)
        })
        .collect();
    let mut sections: Vec<Section> = compared.iter().map(|(r, c)| differences(c, *r)).collect();
    if compared.len() > 1 {
        sections.insert(0, overview(&compared));
    }
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("."));
    make(&out)?;
    let text = fathom_report::compare_page(&runs, &sections, Some(&out))?;
    let path = DirOutput::new(&out).page(COMPARISON_FILE, &text)?;
    screen::print(&format!("html: {}\n", path.display()));
    Ok(DONE)
}

/// Text that stands on one line.
fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

fn column(label: impl Into<String>) -> Column {
    Column {
        label: label.into(),
        unit: String::new(),
    }
}

/// All runs beside the first one, metric by metric.
fn overview(compared: &[(char, Comparison)]) -> Section {
    // By name: labels may be those of several metrics.
    let mut ids: Vec<&str> = Vec::new();
    for row in compared.iter().flat_map(|(_, c)| &c.rows) {
        if !ids.contains(&row.id.as_str()) {
            ids.push(&row.id);
        }
    }
    let rows = ids.iter().map(|id| {
        let of = |c: &'_ Comparison| c.rows.iter().find(|r| r.id == *id).cloned();
        let first = compared.iter().find_map(|(_, c)| of(c));
        let label = first.as_ref().map_or("", |r| r.label.as_str());
        let mut cells = vec![Cell::Text(clean(label))];
        cells.push(
            match first.as_ref().and_then(|r| Some((r, r.a.as_ref()?))) {
                Some((r, a)) => Cell::Text(unbroken(&shown(Some(a), &r.unit))),
                None => Cell::Hole(()),
            },
        );
        for (_, c) in compared {
            let Some(row) = of(c).filter(|r| r.b.is_some()) else {
                cells.push(Cell::Hole(()));
                continue;
            };
            let value = unbroken(&shown(row.b.as_ref(), &row.unit));
            let change = row.difference.as_ref().map(|d| {
                let change = change(d.relative.value);
                unbroken(&match row.verdict {
                    Verdict::NotComparable => change,
                    _ => format!("{change}, {}", words(&row)),
                })
            });
            cells.push(Cell::Text(match change {
                Some(change) => format!("{value} ({change})"),
                None => value,
            }));
        }
        cells
    });
    let mut columns = vec![column("metric"), column("A")];
    columns.extend(compared.iter().map(|(run, _)| column(*run)));
    let mut overall: Vec<String> = compared
        .iter()
        .filter(|(_, c)| !c.refused)
        .map(|(run, c)| format!("{run}: {}", c.overall.words()))
        .collect();
    let refused: Vec<String> = compared
        .iter()
        .filter(|(_, c)| c.refused)
        .map(|(run, _)| run.to_string())
        .collect();
    if !refused.is_empty() {
        overall.push(format!(
            "no verdict, because conditions differ: {}",
            refused.join(", ")
        ));
    }
    Section {
        id: "overview".into(),
        title: "All runs beside A".into(),
        text: format!("Against A: {}.", overall.join("; ")),
        tables: vec![Table {
            id: "overview-table".into(),
            title: "Value, change against A, verdict".into(),
            columns,
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}

/// What a comparison says, as a section of the page.
fn differences(c: &Comparison, other: char) -> Section {
    let table = |id: &str, title: &str, rows: &[Row]| Table {
        id: format!("{id}-{}", other.to_ascii_lowercase()),
        title: title.to_owned(),
        columns: vec![
            column("metric"),
            column("A"),
            column(other),
            column(format!("{other} against A (95 %)")),
            column("verdict"),
            column("notes"),
        ],
        rows: rows
            .iter()
            .take(JOBS_MAX)
            .map(|r| {
                let of = |e: Option<&fathom_stats::Estimate>| match e {
                    Some(_) => Cell::Text(unbroken(&shown(e, &r.unit))),
                    None => Cell::Hole(()),
                };
                vec![
                    Cell::Text(clean(&r.label)),
                    of(r.a.as_ref()),
                    of(r.b.as_ref()),
                    match &r.difference {
                        Some(d) => Cell::Text(unbroken(&relative(Some(&d.relative)))),
                        None => Cell::Hole(()),
                    },
                    Cell::Text(unbroken(&words(r))),
                    Cell::Text(clean(&r.notes.join("; "))),
                ]
            })
            .collect(),
    };
    let mut text = match c.mismatches.is_empty() {
        true => "The conditions of both runs are the same as far as they were recorded.".to_owned(),
        false => format!(
            "Conditions that differ: {}.",
            conditions(&c.mismatches, other).join("; ")
        ),
    };
    if c.refused {
        text.push_str(" They refuse a verdict; where you know why they differ, add --allow with the condition's name.");
    } else {
        text.push_str(&format!(
            " Overall: {}. About {:.1} rows would differ by chance alone.",
            c.overall.words(),
            c.expected_false_alarms
        ));
    }
    let mut tables = vec![table("differences", "Differences", &c.rows)];
    if !c.jobs.is_empty() {
        tables.push(table("job-differences", "Job by job", &c.jobs));
    }
    Section {
        id: format!("differences-{}", other.to_ascii_lowercase()),
        title: format!("{other} against A"),
        text,
        tables,
        ..Section::default()
    }
}

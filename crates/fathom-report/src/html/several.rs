//! Several runs on one page: their curves over each other, and a table of differences.
//!
//! The differences come from whoever compares (this room reads runs, it judges none); here they are
//! tables like any other.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Chart, ChartKind, Section};

use super::distribution::Distribution;
use super::escape::{Esc, slug};
use super::results::{capital, human, in_reading_order, table};
use super::spec::Spec;
use super::{BYTES_MAX, Detail, Page, assemble, series_charts};
use crate::data::ReportData;
use crate::error::ReportError;
use crate::stamp::Stamp;

/// More cannot be told apart in one chart.
pub const RUNS_MAX: usize = 8;
/// Series in one chart over all runs; beyond, each run has its own chart.
const SERIES_MAX: usize = 24;

/// How a run is called in the page: A, B, …
fn letter(run: usize) -> char {
    char::from(b'A' + (run % 26) as u8)
}

/// One page with all of `runs`; `differences` are its first sections.
///
/// # Errors
/// Where windows cannot be read.
pub fn compare_page(runs: &[ReportData], differences: &[Section]) -> Result<String, ReportError> {
    let text = page_of(runs, differences, true)?;
    if text.len() <= BYTES_MAX {
        return Ok(text);
    }
    page_of(runs, differences, false)
}

fn page_of(
    runs: &[ReportData],
    differences: &[Section],
    with_distributions: bool,
) -> Result<String, ReportError> {
    let mut page = Page::new(runs.iter().find_map(|r| Stamp::of(&r.run)));
    masthead(&mut page, runs);
    for s in differences {
        page.open_section(&slug(&s.id), &s.title);
        if !s.text.is_empty() {
            page.push(&format!("<p>{}</p>\n", Esc(&s.text)));
        }
        for (i, t) in s.tables.iter().enumerate() {
            // The first says it all; the jobs behind it would push the curves out of sight.
            if i > 0 {
                page.push(&format!(
                    "<details class=\"block\"><summary>{}</summary>\n",
                    Esc(&t.title)
                ));
            }
            table(&mut page, t);
            if i > 0 {
                page.push("</details>\n");
            }
        }
        page.close_section();
    }
    curves(&mut page, runs);
    if with_distributions {
        latencies(&mut page, runs)?;
    }
    let title = format!("fathom: {} runs compared", runs.len());
    assemble(
        &page,
        &title,
        "Made from each run's run.json and series.parquet; <code>fathom report RUN RUN …</code> remakes it, <code>fathom compare</code> judges.",
    )
}

fn masthead(page: &mut Page, runs: &[ReportData]) {
    let mut html = String::from(
        "<header class=\"masthead\"><p class=\"eyebrow\">fathom report</p>\
         <button type=\"button\" id=\"theme\" hidden title=\"Switch between light and dark\">Dark</button>\n",
    );
    let names: Vec<String> = (0..runs.len()).map(|i| letter(i).to_string()).collect();
    let _ = writeln!(html, "<h1>{} runs beside each other</h1>", runs.len());
    html.push_str(
        "<div class=\"wide\"><table id=\"runs\"><thead><tr><th></th><th>Run</th><th>Started</th><th>Target</th><th>fathom</th><th>Directory</th></tr></thead><tbody>\n",
    );
    for (data, name) in runs.iter().zip(&names) {
        let run = &data.run;
        let what = if run.target.description.is_empty() {
            run.target.place().to_owned()
        } else {
            format!("{}: {}", run.target.place(), run.target.description)
        };
        let dir = data.dir.as_ref().map(|d| d.to_string_lossy().into_owned());
        let simulated = Stamp::of(run).map_or("", |s| s.word);
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{name}</th><td>{} <span class=\"chip\">{simulated}</span></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Esc(&run.name),
            Esc(&run.started.replace('T', " ").replace('Z', " UTC")),
            Esc(&what),
            Esc(&run.tool_version),
            Esc(dir.as_deref().unwrap_or("")),
        );
    }
    html = html.replace(" <span class=\"chip\"></span>", "");
    html.push_str("</tbody></table></div>\n");
    html.push_str(
        "<p class=\"muted\">In each chart a colour is a series and a pattern is a run: A is drawn solid, B dashed, C dotted.</p>\n",
    );
    if let Some(stamp) = page.stamp {
        let _ = writeln!(html, "<p class=\"simulated\">{}</p>", stamp.sentence);
    }
    html.push_str("</header>\n");
    page.push(&html);
}

/// The experiments' charts, those of the same id over each other.
fn curves(page: &mut Page, runs: &[ReportData]) {
    let mut sections: Vec<Section> = Vec::new();
    for data in runs {
        for s in &data.run.results {
            if !s.charts.is_empty() && !sections.iter().any(|known| known.id == s.id) {
                sections.push(s.clone());
            }
        }
    }
    for s in in_reading_order(&sections) {
        page.open_section(&slug(&s.id), &s.title);
        page.push("<div class=\"charts\">\n");
        let mut done: Vec<&str> = Vec::new();
        for data in runs {
            for c in data
                .run
                .results
                .iter()
                .filter(|o| o.id == s.id)
                .flat_map(|o| &o.charts)
            {
                if done.contains(&c.id.as_str()) {
                    continue;
                }
                done.push(&c.id);
                let all: Vec<(usize, &Chart)> = runs
                    .iter()
                    .enumerate()
                    .filter_map(|(i, r)| {
                        let mut charts = r.run.results.iter().flat_map(|s| &s.charts);
                        Some((i, charts.find(|other| other.id == c.id)?))
                    })
                    .collect();
                for (spec, wanted) in beside(&all) {
                    page.chart(spec, wanted);
                }
            }
        }
        page.push("</div>\n");
        page.close_section();
    }
}

/// One chart of all runs, or one for each where they cannot share one.
fn beside(all: &[(usize, &Chart)]) -> Vec<(Spec, String)> {
    let first = all[0].1;
    let series: usize = all.iter().map(|(_, c)| c.series.len()).sum();
    let alike = all.iter().all(|(_, c)| {
        c.kind == first.kind
            && c.x.unit == first.x.unit
            && c.y.unit == first.y.unit
            && c.categories == first.categories
    });
    let kind_fits = matches!(
        first.kind,
        ChartKind::Line | ChartKind::Scatter | ChartKind::Bar
    );
    let specs = |title: &dyn Fn(usize, &Chart) -> String| -> Vec<(usize, Spec)> {
        all.iter()
            .map(|(run, c)| {
                let mut spec = Spec::from(*c);
                spec.title = title(*run, c);
                (*run, spec)
            })
            .collect()
    };
    if alike && kind_fits && series <= SERIES_MAX {
        let merged = overlaid(specs(&|_, c| c.title.clone()));
        return merged
            .into_iter()
            .map(|spec| (spec, slug(&first.id)))
            .collect();
    }
    specs(&|run, c| format!("{}: {}", letter(run), c.title))
        .into_iter()
        .map(|(run, spec)| (spec, slug(&format!("{} {}", letter(run), first.id))))
        .collect()
}

/// Charts over each other: series of the same name share a colour, those of a run a pattern.
fn overlaid(all: Vec<(usize, Spec)>) -> Option<Spec> {
    let mut names: Vec<String> = Vec::new();
    let mut merged: Option<Spec> = None;
    let bars = all.first().is_some_and(|(_, s)| s.kind == ChartKind::Bar);
    for (run, mut spec) in all {
        let mut series = std::mem::take(&mut spec.series);
        for s in &mut series {
            let hue = match names.iter().position(|n| *n == s.name) {
                Some(known) => known,
                None => {
                    names.push(s.name.clone());
                    names.len() - 1
                }
            };
            s.name = match s.name.as_str() {
                "" => letter(run).to_string(),
                name => format!("{}: {name}", letter(run)),
            };
            // Bars have no pattern: there each series of each run has its own colour.
            if !bars {
                (s.hue, s.dash) = (Some(hue), Some(run));
            }
        }
        for m in &mut spec.marks {
            m.label = format!("{}: {}", letter(run), m.label);
        }
        match &mut merged {
            None => {
                spec.series = series;
                merged = Some(spec);
            }
            Some(merged) => {
                merged.series.extend(series);
                merged.marks.append(&mut spec.marks);
            }
        }
    }
    merged
}

/// Latency distributions of jobs with the same name over each other.
fn latencies(page: &mut Page, runs: &[ReportData]) -> Result<(), ReportError> {
    let mut by_experiment: Vec<(String, Vec<(usize, Spec)>)> = Vec::new();
    for (i, data) in runs.iter().enumerate() {
        let totals = series_charts(data, Detail { halvings: 0 })?.0;
        for Distribution {
            experiment, charts, ..
        } in totals
        {
            let at = match by_experiment.iter().position(|(e, _)| *e == experiment) {
                Some(at) => at,
                None => {
                    by_experiment.push((experiment.clone(), Vec::new()));
                    by_experiment.len() - 1
                }
            };
            by_experiment[at]
                .1
                .extend(charts.into_iter().map(|c| (i, c)));
        }
    }
    if by_experiment.is_empty() {
        return Ok(());
    }
    page.open_section("distributions", "Latency distributions");
    page.push(
        "<p class=\"muted\">Histograms of repeats are merged, percentiles never averaged. On the right, \
         each step along the axis is one more nine; a curve ends where fewer than ten I/Os lie beyond.</p>\n",
    );
    let several = by_experiment.len() > 1;
    for (experiment, mut charts) in by_experiment {
        if several {
            let name = if experiment.is_empty() {
                "jobs".to_owned()
            } else {
                human(&experiment)
            };
            page.push(&format!("<h3>{}</h3>\n", Esc(&capital(&name))));
        }
        page.push("<div class=\"charts\">\n");
        while !charts.is_empty() {
            let title = charts[0].1.title.clone();
            let (same, others): (Vec<_>, Vec<_>) =
                charts.into_iter().partition(|(_, c)| c.title == title);
            charts = others;
            let wanted = slug(&format!("distribution {experiment} {title}"));
            let series: usize = same.iter().map(|(_, c)| c.series.len()).sum();
            if series > SERIES_MAX {
                for (run, mut c) in same {
                    c.title = format!("{}: {}", letter(run), c.title);
                    page.chart(c, format!("{wanted}-{}", letter(run).to_ascii_lowercase()));
                }
            } else if let Some(c) = overlaid(same) {
                page.chart(c, wanted);
            }
        }
        page.push("</div>\n");
    }
    page.close_section();
    Ok(())
}

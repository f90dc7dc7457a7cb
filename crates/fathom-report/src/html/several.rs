//! Several runs on one page: their curves over each other, and a table of differences.
//!
//! The differences come from whoever compares (this room reads runs, it judges none); here they are
//! tables like any other.

use std::fmt::Write as _;
use std::path::Path;

use fathom_telemetry::schema::{Chart, ChartKind, Section};

use super::escape::{Esc, slug};
use super::results::{heading, in_reading_order, open_distributions, table};
use super::spec::Spec;
use super::{BYTES_MAX, Detail, Page, assemble, series_charts};
use crate::data::ReportData;
use crate::error::ReportError;
use crate::format;
use crate::output::link_base;
use crate::stamp::Stamp;

/// More cannot be told apart in one chart.
pub const RUNS_MAX: usize = 8;
/// Series in one chart over all runs; beyond, each name of a series has its own chart.
const SERIES_MAX: usize = 12;
/// Charts that one chart may become so; beyond, each run has its own.
const NAMES_MAX: usize = 24;

/// Marks in one chart over all runs.
const MARKS_MAX: usize = 6;

/// In place of the distributions, where the page would be too large with them.
const LEFT_OUT: &str = "Left out: with the distributions of all runs this page would exceed 6 MB. The report of \
                        each run has its own; fewer runs on one page have them over each other.";

/// How a run is called in the page: A, B, …
fn letter(run: usize) -> char {
    char::from(b'A' + (run % 26) as u8)
}

/// One page with all of `runs`; `differences` are its first sections. Links lead from the directory `out`
/// to the runs' files; without it there are none.
///
/// # Errors
/// Where windows cannot be read.
pub fn compare_page(
    runs: &[ReportData],
    differences: &[Section],
    out: Option<&Path>,
) -> Result<String, ReportError> {
    let text = page_of(runs, differences, out, true)?;
    if text.len() <= BYTES_MAX {
        return Ok(text);
    }
    page_of(runs, differences, out, false)
}

fn page_of(
    runs: &[ReportData],
    differences: &[Section],
    out: Option<&Path>,
    with_distributions: bool,
) -> Result<String, ReportError> {
    let mut page = Page::new(runs.iter().find_map(|r| Stamp::of(&r.run)));
    masthead(&mut page, runs, out);
    for (n, s) in differences.iter().enumerate() {
        page.open_section(&slug(&s.id), &s.title);
        if !s.text.is_empty() {
            page.push(&format!("<p>{}</p>\n", Esc(&s.text)));
        }
        for (i, t) in s.tables.iter().enumerate() {
            // The first table says it all; those behind it would push the curves out of sight.
            let folded = i > 0 || n > 0;
            if folded {
                page.push(&format!(
                    "<details class=\"block\"><summary>{}</summary>\n",
                    Esc(&t.title)
                ));
            }
            table(&mut page, t);
            if folded {
                page.push("</details>\n");
            }
        }
        page.close_section();
    }
    curves(&mut page, runs);
    if with_distributions {
        latencies(&mut page, runs)?;
    } else {
        open_distributions(&mut page);
        page.push(&format!("<p>{LEFT_OUT}</p>\n"));
        page.close_section();
    }
    let title = format!("fathom: {} runs compared", runs.len());
    assemble(
        &page,
        &title,
        "Made from each run's run.json and series.parquet; <code>fathom report RUN RUN …</code> remakes it, <code>fathom compare</code> judges.",
    )
}

fn masthead(page: &mut Page, runs: &[ReportData], out: Option<&Path>) {
    let mut html = String::from(
        "<header class=\"masthead\"><p class=\"eyebrow\">fathom report</p>\
         <button type=\"button\" id=\"theme\" hidden title=\"Switch between light and dark\">Dark</button>\n",
    );
    let names: Vec<String> = (0..runs.len()).map(|i| letter(i).to_string()).collect();
    let _ = writeln!(html, "<h1>{} runs beside each other</h1>", runs.len());
    html.push_str(
        "<div class=\"wide\"><table id=\"runs\"><thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Run</th><th scope=\"col\">Started</th><th scope=\"col\">Target</th>\
         <th scope=\"col\">fathom</th><th scope=\"col\">Files</th></tr></thead><tbody>\n",
    );
    for (data, name) in runs.iter().zip(&names) {
        let run = &data.run;
        let what = if run.target.description.is_empty() {
            run.target.place().to_owned()
        } else {
            format!("{}: {}", run.target.place(), run.target.description)
        };
        let dir = data.dir.as_deref().unwrap_or(Path::new(""));
        let mut files = format!("<code>{}</code>", Esc(&dir.to_string_lossy()));
        let links = out.and_then(|out| link_base(out, dir));
        for name in ["report.html", "run.json"] {
            if let (Some(base), true) = (&links, dir.join(name).exists()) {
                let _ = write!(files, " <a href=\"{base}{name}\">{name}</a>");
            }
        }
        let simulated = Stamp::of(run).map_or_else(String::new, |s| {
            format!(" <span class=\"chip\">{}</span>", s.word)
        });
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{name}</th><td>{}{simulated}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Esc(&run.name),
            Esc(&format::moment(&run.started)),
            Esc(&what),
            Esc(&run.tool_version),
            files,
        );
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(
        "<p class=\"muted\">In each chart a run is a pattern: its dashes, the shape of its points, the hatching of its bars, \
         which stand in the order of the runs. A colour is a series; where there is but one, the colours, too, are the runs.</p>\n",
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
        for s in &data.run.sections {
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
                .sections
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
                        let mut charts = r.run.sections.iter().flat_map(|s| &s.charts);
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

/// Charts of the same id over each other, or one for each run where they cannot share their axes.
fn beside(all: &[(usize, &Chart)]) -> Vec<(Spec, String)> {
    let first = all[0].1;
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
    let specs = all.iter().map(|(run, c)| (*run, Spec::from(*c))).collect();
    let wanted = slug(&first.id);
    if alike && kind_fits {
        together(specs, &wanted)
    } else {
        one_by_one(specs, &wanted)
    }
}

/// A chart for each run.
fn one_by_one(all: Vec<(usize, Spec)>, wanted: &str) -> Vec<(Spec, String)> {
    all.into_iter()
        .map(|(run, mut spec)| {
            spec.title = format!("{}: {}", letter(run), spec.title);
            let wanted = format!("{wanted}-{}", letter(run).to_ascii_lowercase());
            (spec, wanted)
        })
        .collect()
}

/// One chart of all runs; where that would be too many series, one for each name of a series.
fn together(all: Vec<(usize, Spec)>, wanted: &str) -> Vec<(Spec, String)> {
    let series: usize = all.iter().map(|(_, s)| s.series.len()).sum();
    if series <= SERIES_MAX {
        let merged = overlaid(all).map(|spec| (spec, wanted.to_owned()));
        return merged.into_iter().collect();
    }
    let mut names: Vec<String> = Vec::new();
    for s in all.iter().flat_map(|(_, spec)| &spec.series) {
        if !names.contains(&s.name) {
            names.push(s.name.clone());
        }
    }
    if names.len() > NAMES_MAX {
        return one_by_one(all, wanted);
    }
    names
        .into_iter()
        .filter_map(|name| {
            let of_name = all.iter().map(|(run, spec)| {
                let mut spec = spec.clone();
                spec.series.retain(|s| s.name == name);
                (*run, spec)
            });
            let mut spec = overlaid(of_name.filter(|(_, s)| !s.series.is_empty()).collect())?;
            spec.title = format!("{}: {name}", spec.title);
            Some((spec, format!("{wanted}-{}", slug(&name))))
        })
        .collect()
}

/// Charts over each other: series of the same name share a colour, those of a run a pattern. Where there is
/// one name the colour, too, is the run's.
fn overlaid(all: Vec<(usize, Spec)>) -> Option<Spec> {
    let mut names: Vec<String> = Vec::new();
    let mut merged: Option<Spec> = None;
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
            (s.hue, s.dash) = (Some(hue), Some(run));
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
    if let Some(merged) = &mut merged {
        if names.len() == 1 {
            merged.series.iter_mut().for_each(|s| s.hue = s.dash);
        }
        // More would hide the curves; the tables have them.
        if merged.marks.len() > MARKS_MAX {
            merged.marks.clear();
        }
    }
    merged
}

/// Latency distributions of jobs with the same name over each other.
fn latencies(page: &mut Page, runs: &[ReportData]) -> Result<(), ReportError> {
    /// An experiment's distributions in all runs.
    #[derive(Default)]
    struct Shared {
        experiment: String,
        notes: Vec<String>,
        charts: Vec<(usize, Spec)>,
    }
    let mut by_experiment: Vec<Shared> = Vec::new();
    for (i, data) in runs.iter().enumerate() {
        for d in series_charts(data, Detail { halvings: 0 })?.0 {
            let known = by_experiment
                .iter()
                .position(|s| s.experiment == d.experiment);
            let at = known.unwrap_or_else(|| {
                by_experiment.push(Shared {
                    experiment: d.experiment.clone(),
                    ..Shared::default()
                });
                by_experiment.len() - 1
            });
            let shared = &mut by_experiment[at];
            if !d.note.is_empty() {
                shared.notes.push(format!("{}: {}", letter(i), d.note));
            }
            shared.charts.extend(d.charts.into_iter().map(|c| (i, c)));
        }
    }
    if by_experiment.is_empty() {
        return Ok(());
    }
    open_distributions(page);
    let several = by_experiment.len() > 1;
    for Shared {
        experiment,
        notes,
        mut charts,
    } in by_experiment
    {
        if several {
            page.push(&heading(&experiment));
        }
        if !notes.is_empty() {
            let notes = notes.join(" ");
            page.push(&format!("<p class=\"muted\">{}</p>\n", Esc(&notes)));
        }
        page.push("<div class=\"charts\">\n");
        while !charts.is_empty() {
            let title = charts[0].1.title.clone();
            let (same, others): (Vec<_>, Vec<_>) =
                charts.into_iter().partition(|(_, c)| c.title == title);
            charts = others;
            let wanted = slug(&format!("distribution {experiment} {title}"));
            for (spec, wanted) in together(same, &wanted) {
                page.chart(spec, wanted);
            }
        }
        page.push("</div>\n");
    }
    page.close_section();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::spec::{Columns, Num, axis, own};
    use crate::testing::{job, run_with};

    /// A chart of a run with a series for each name.
    fn chart(names: &[String]) -> Spec {
        let mut spec = own(
            "Latency".to_owned(),
            ChartKind::Line,
            axis("depth", "", true),
            axis("latency", "ns", true),
        );
        spec.series = names
            .iter()
            .map(|name| Columns {
                name: name.clone(),
                x: [1.0, 2.0].into_iter().collect(),
                y: vec![Some(Num(10.0)), Some(Num(20.0))],
                ..Columns::default()
            })
            .collect();
        spec
    }

    fn runs_of(runs: usize, series: usize) -> Vec<(Spec, String)> {
        let names: Vec<String> = (0..series).map(|i| format!("job {i}")).collect();
        let all = (0..runs).map(|run| (run, chart(&names))).collect();
        together(all, "latency")
    }

    #[test]
    fn runs_share_a_chart_as_long_as_their_series_can_be_told_apart() {
        let [(spec, _)] = &runs_of(4, 3)[..] else {
            panic!("three series of four runs fit one chart");
        };
        let told: std::collections::BTreeSet<_> =
            spec.series.iter().map(|s| (s.hue, s.dash)).collect();
        assert_eq!(told.len(), 12);

        let by_name = runs_of(RUNS_MAX, 4);
        assert_eq!(by_name.len(), 4);
        for (i, (spec, anchor)) in by_name.iter().enumerate() {
            assert_eq!(spec.title, format!("Latency: job {i}"));
            assert_eq!(anchor, &format!("latency-job-{i}"));
            // One series: the colours are the runs', too.
            let runs: Vec<_> = spec.series.iter().map(|s| (s.hue, s.dash)).collect();
            let expected: Vec<_> = (0..RUNS_MAX).map(|r| (Some(r), Some(r))).collect();
            assert_eq!(runs, expected);
        }
        assert_eq!(
            runs_of(RUNS_MAX, 25).len(),
            RUNS_MAX,
            "a chart for each run"
        );
    }

    #[test]
    fn what_a_large_page_leaves_out_is_said() {
        let runs: Vec<ReportData> = (0..2)
            .map(|_| ReportData::from_run(run_with(vec![job("a")])))
            .collect();
        let whole = page_of(&runs, &[], None, true).unwrap();
        let short = page_of(&runs, &[], None, false).unwrap();
        assert!(!whole.contains(LEFT_OUT) && short.contains(LEFT_OUT));
    }
}

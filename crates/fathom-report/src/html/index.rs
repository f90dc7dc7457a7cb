//! The index of runs: the history of each number, target by target, with links to the reports.

use std::fmt::Write as _;
use std::path::Path;

use fathom_telemetry::schema::Headline;

use super::escape::{Esc, slug};
use super::{Page, assemble};
use crate::error::ReportError;
use crate::format;
use crate::index::{Brief, Series, groups, is_flagged};
use crate::output::link_base;
use crate::text::capital;

/// A history's width and height, and the room at its edges, CSS pixels.
const SPARK: (f64, f64, f64) = (180.0, 30.0, 4.0);

/// One page over `runs`, the oldest first; links lead from the directory `out` to the runs' reports.
///
/// # Errors
/// Where the page cannot be encoded.
pub fn index_page(runs: &[Brief], out: &Path) -> Result<String, ReportError> {
    let mut page = Page::new(None);
    let hosts: std::collections::BTreeSet<_> = runs.iter().map(|r| &r.host).collect();
    page.push(&format!(
        "<header class=\"masthead\"><p class=\"eyebrow\">fathom runs</p>\
         <button type=\"button\" id=\"theme\" hidden title=\"Switch between light and dark\">Dark</button>\n\
         <h1>{} run{} of {} host{}</h1>\n<p class=\"muted\">A dot for each run, the latest on the right; hollow: it carries flags. \
         Dashes: the newest run with the label <code>baseline</code>. Whether something changed is for <code>fathom compare</code> to say.</p></header>\n",
        runs.len(),
        if runs.len() == 1 { "" } else { "s" },
        hosts.len(),
        if hosts.len() == 1 { "" } else { "s" },
    ));
    for group in groups(runs) {
        let title = group.title();
        page.open_section(&slug(&title), &capital(&title));
        if group.runs.iter().any(|r| r.simulated) {
            page.push("<p><span class=\"chip\">SIMULATED</span> Numbers of a device model, not of a device.</p>\n");
        }
        let all = group.series();
        if all.is_empty() {
            page.push("<p class=\"muted\">These runs have jobs only, no headline numbers: see their reports.</p>\n");
            page.push(&runs_of(&group.runs, out));
            page.close_section();
            continue;
        }
        page.push(
            "<div class=\"wide\"><table class=\"numbers\"><thead><tr><th scope=\"col\">Number</th><th scope=\"col\">History</th>\
             <th scope=\"col\" class=\"number\">Last</th><th scope=\"col\" class=\"number\">±</th><th scope=\"col\" class=\"number\">Runs</th></tr></thead><tbody>\n",
        );
        for series in all {
            page.push(&row(&series));
        }
        page.push("</tbody></table></div>\n");
        page.push(&runs_of(&group.runs, out));
        page.close_section();
    }
    assemble(
        &page,
        &format!("fathom: {} runs", runs.len()),
        "Made from each run's run.json; <code>fathom runs --html</code> remakes it.",
    )
}

fn row(series: &Series<'_>) -> String {
    let last: &Headline = series.last;
    let (value, half) = match &last.estimate {
        Some(e) => format::estimate_parts(e, &last.unit),
        None => (format::HOLE.to_owned(), String::new()),
    };
    let flagged = match last.flags.iter().any(|f| f.void) {
        true => " <span class=\"chip void\">void</span>",
        false if is_flagged(last) => " <span class=\"chip\">flags</span>",
        false => "",
    };
    format!(
        "<tr><th scope=\"row\">{}: {}{flagged}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        Esc(&capital(&last.group)),
        Esc(&last.label),
        spark(series),
        Esc(&value),
        Esc(half.trim_start_matches("± ")),
        series.points.len(),
    )
}

/// A line with a dot for each run.
fn spark(series: &Series<'_>) -> String {
    let (width, height, edge) = SPARK;
    let values = || series.points.iter().map(|p| p.value).chain(series.baseline);
    let (low, high) = values().fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    if !low.is_finite() {
        return String::new();
    }
    // From zero, so that scatter looks as small as it is.
    let y = |v: f64| edge + (1.0 - v / high.max(f64::MIN_POSITIVE)) * (height - 2.0 * edge);
    let step = (width - 2.0 * edge) / (series.points.len().max(2) - 1) as f64;
    let at: Vec<(f64, f64)> = (0..series.points.len())
        .map(|i| (edge + step * i as f64, y(series.points[i].value)))
        .collect();
    let unit = &series.last.unit;
    let mut svg = format!(
        "<svg class=\"spark\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{} to {} in {} runs\">",
        Esc(&format::value(low, unit)),
        Esc(&format::value(high, unit)),
        at.len()
    );
    if let Some(b) = series.baseline {
        let y = y(b);
        let _ = write!(
            svg,
            "<line class=\"baseline\" x1=\"0\" x2=\"{width}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
    }
    let line: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(svg, "<polyline points=\"{}\"/>", line.join(" "));
    for ((x, y), p) in at.iter().zip(&series.points) {
        let class = if p.flagged { " class=\"flagged\"" } else { "" };
        let _ = write!(
            svg,
            "<circle{class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"><title>{}: {}</title></circle>",
            Esc(p.started),
            Esc(&format::value(p.value, unit))
        );
    }
    svg + "</svg>"
}

/// The runs themselves, the newest first.
fn runs_of(runs: &[&Brief], out: &Path) -> String {
    let mut html = format!(
        "<details class=\"block\"><summary>{} run{}</summary>\n<div class=\"wide\"><table><thead><tr><th scope=\"col\">Started</th>\
         <th scope=\"col\">Labels</th><th scope=\"col\" class=\"number\">Numbers</th><th scope=\"col\">Flags</th></tr></thead><tbody>\n",
        runs.len(),
        if runs.len() == 1 { "" } else { "s" },
    );
    for run in runs.iter().rev() {
        let started = Esc(&run.started_words()).to_string();
        let link = link_base(out, &run.path).filter(|_| run.path.join("report.html").exists());
        let started = match link {
            Some(base) => format!("<a href=\"{base}report.html\">{started}</a>"),
            None => started,
        };
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{started}</th><td>{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            Esc(&run.labels_words()),
            run.headlines.len(),
            Esc(&run.flags_words()),
        );
    }
    html + "</tbody></table></div></details>\n"
}

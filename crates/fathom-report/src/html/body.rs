//! The beginning and the end of the page: what was measured, the headlines and what stands against
//! them, findings; all flags, the command line.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Finding, Headline, Run};
use fathom_telemetry::{Flag, Price};

use super::Page;
use super::escape::{Esc, slug, with_options};
use super::flags::{chips, flag_list};
use crate::data::ReportData;
use crate::format::{self, HOLE};
use crate::stamp::Stamp;
use crate::surroundings::limits;
use crate::terminal::{extra_label, extra_names, gain, groups, sentence};
use crate::text::{capital, shell_quoted};

/// What was run, on what, when.
pub(super) fn masthead(page: &mut Page, run: &Run) {
    let mut html = format!(
        "<header class=\"masthead\"><p class=\"eyebrow\">fathom {}</p>\
         <button type=\"button\" id=\"theme\" hidden title=\"Switch between light and dark\">Dark</button>\n<h1>{}</h1>\n",
        Esc(&run.command),
        Esc(run.target.place())
    );
    if !run.target.description.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", Esc(&run.target.description));
    }
    html.push_str("<ul class=\"facts\">");
    for (what, value) in facts(run) {
        let _ = write!(html, "<li>{} <b>{}</b></li>", Esc(what), Esc(&value));
    }
    html.push_str("</ul>\n");
    if let Some(stamp) = Stamp::of(run) {
        let _ = writeln!(html, "<p class=\"simulated\">{}</p>", stamp.sentence);
    }
    if run.finished.is_none() {
        html.push_str(
            "<p class=\"simulated\">This run did not finish; the page shows what was measured until then.</p>\n",
        );
    }
    html.push_str("</header>\n");
    page.push(&html);
}

fn facts(run: &Run) -> Vec<(&str, String)> {
    let mut facts = Vec::new();
    facts.push(("started", format::moment(&run.started)));
    let end = run
        .jobs
        .iter()
        .map(|j| j.start_ns.saturating_add(j.wall_ns));
    if let Some(end) = end.max().filter(|e| *e > 0) {
        facts.push(("took", format::wall(end)));
    }
    if let Some(p) = &run.profile {
        facts.push(("profile", p.clone()));
    }
    if run.target.size_bytes > 0 {
        let size = format::value(run.target.size_bytes as f64, "bytes");
        facts.push(("tested range", size));
    }
    facts.push(("jobs", format::grouped(run.jobs.len() as u64)));
    facts.push(("seed", run.seed.to_string()));
    facts.push(("fathom", run.tool_version.clone()));
    facts.extend(Price::of(run).map(|p| ("price", p.words())));
    facts.extend(limits(run).map(|l| ("limits", l)));
    facts.extend(run.labels.iter().map(|(k, v)| (k.as_str(), v.clone())));
    facts
}

/// The numbers of the screen, each once: a small table for each group, with a point and its interval.
pub(super) fn headlines(page: &mut Page, run: &Run) {
    if run.headlines.is_empty() {
        return;
    }
    page.push(
        "<section class=\"first\" id=\"headlines\"><h2>The numbers</h2>\n<div class=\"groups\">\n",
    );
    page.anchors.insert("headlines".to_owned());
    page.contents
        .push(("headlines".to_owned(), "The numbers".to_owned()));
    for group in groups(&run.headlines) {
        let all: Vec<&Headline> = run.headlines.iter().filter(|h| h.group == group).collect();
        let html = group_table(group, &all);
        page.push(&html);
    }
    let repeats = run.headlines.iter().filter_map(|h| h.estimate.as_ref());
    let note = if repeats.clone().any(|e| e.samples > 1) {
        "±: 95 % interval of the mean over repeats."
    } else {
        "One repeat each, so there are no intervals."
    };
    page.push(&format!("</div><p class=\"muted\">{note}</p>\n"));
    page.close_section();
}

fn group_table(group: &str, all: &[&Headline]) -> String {
    /// More columns leave no room for points.
    const EXTRAS_BESIDE_DOTS: usize = 2;
    let extras = extra_names(all.iter().copied());
    let mut html = format!(
        "<div class=\"wide\"><table class=\"numbers\"><caption>{}</caption><thead><tr><th scope=\"col\"><span class=\"hidden\">What</span></th>\
         <th scope=\"col\" class=\"number\">mean</th><th scope=\"col\" class=\"number\">±</th>",
        Esc(&capital(group))
    );
    for name in &extras {
        let _ = write!(
            html,
            "<th scope=\"col\" class=\"number\">{}</th>",
            Esc(&extra_label(name))
        );
    }
    let alike = all.iter().all(|h| h.unit == all[0].unit);
    let room = all.len() > 1 && alike && extras.len() <= EXTRAS_BESIDE_DOTS;
    let scale = room.then(|| Dots::of(all)).flatten();
    if let Some(scale) = &scale {
        let axis = if scale.log { "log" } else { "from zero" };
        let _ = write!(html, "<th scope=\"col\" class=\"dots\">{axis}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for h in all {
        html.push_str(&headline_row(h, &extras, scale.as_ref()));
    }
    html.push_str("</tbody></table></div>\n");
    html
}

fn headline_row(h: &Headline, extras: &[String], dots: Option<&Dots>) -> String {
    let void = h.flags.iter().any(|f| f.void);
    let class = if void { " class=\"void\"" } else { "" };
    let mut html = format!(
        "<tr{class}><th scope=\"row\">{}{}</th>",
        Esc(&capital(&h.label)),
        chips(&h.flags)
    );
    match &h.estimate {
        Some(e) => {
            let (value, half) = format::estimate_parts(e, &h.unit);
            let half = half.trim_start_matches("± ");
            let _ = write!(
                html,
                "<td class=\"number value\" title=\"{} {}, {} repeats\">{}</td><td class=\"number pm\">{half}</td>",
                e.value,
                Esc(&h.unit),
                e.samples,
                Esc(&value)
            );
        }
        None => {
            let reason = h
                .flags
                .first()
                .map_or("not measured", |f| f.detail.as_str());
            let _ = write!(
                html,
                "<td class=\"number value hole\" title=\"{0}\">{HOLE}</td><td class=\"reason\">{0}</td>",
                Esc(reason)
            );
        }
    }
    for name in extras {
        let value = h
            .extra
            .get(name)
            .map_or_else(String::new, |v| format::value(*v, &h.unit));
        let _ = write!(html, "<td class=\"number\">{}</td>", Esc(&value));
    }
    if let Some(dots) = dots {
        let _ = write!(html, "<td class=\"dots\">{}</td>", dots.draw(h, void));
    }
    html.push_str("</tr>\n");
    html
}

/// Where the points of a group lie: from zero, or by powers of ten where one would flatten the others.
struct Dots {
    log: bool,
    low: f64,
    high: f64,
}

impl Dots {
    const WIDTH: f64 = 120.0;

    fn of(all: &[&Headline]) -> Option<Self> {
        let values = all
            .iter()
            .filter_map(|h| h.estimate.as_ref())
            .flat_map(|e| [Some(e.value), e.low, e.high].into_iter().flatten());
        let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        if high <= 0.0 || low > high {
            return None;
        }
        let log = low > 0.0 && high / low >= 30.0;
        Some(Self {
            log,
            low: if log { low / 1.3 } else { low.min(0.0) },
            high,
        })
    }

    fn at(&self, v: f64) -> f64 {
        let share = if self.log {
            (v.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (v - self.low) / (self.high - self.low)
        };
        4.0 + share.clamp(0.0, 1.0) * (Self::WIDTH - 8.0)
    }

    fn draw(&self, h: &Headline, void: bool) -> String {
        let Some(e) = h.estimate.filter(|e| e.value.is_finite()) else {
            return String::new();
        };
        let class = if void { " class=\"void\"" } else { "" };
        let mut svg = format!(
            "<svg width=\"{0}\" height=\"14\" viewBox=\"0 0 {0} 14\" aria-hidden=\"true\"{class}><path class=\"base\" d=\"M4 7H{1}\"/>",
            Self::WIDTH,
            Self::WIDTH - 4.0
        );
        if let (Some(low), Some(high)) = (e.low, e.high) {
            let _ = write!(
                svg,
                "<path class=\"span\" d=\"M{:.1} 7H{:.1}\"/>",
                self.at(low),
                self.at(high)
            );
        }
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"7\" r=\"3.5\"/></svg>",
            self.at(e.value)
        );
        svg
    }
}

/// Adds a flag, or the place to the same flag. Places of one name (a random write's latency and its IOPS) are said once.
fn merge_flag<'a>(seen: &mut Vec<(&'a Flag, String)>, flag: &'a Flag, place: &str) {
    match seen.iter_mut().find(|(f, _)| *f == flag) {
        Some((_, places)) if places.split("; ").any(|p| p == place) => {}
        Some((_, places)) => {
            // A flag on hundreds of jobs names the first few of them.
            if places.matches("; ").count() < 5 {
                let _ = write!(places, "; {place}");
            } else if !places.ends_with('…') {
                places.push_str("; …");
            }
        }
        None => seen.push((flag, place.to_owned())),
    }
}

/// What follows from the numbers, with its evidence.
pub(super) fn findings(page: &mut Page, run: &Run) {
    if run.findings.is_empty() {
        return;
    }
    let (proposed, seen): (Vec<&Finding>, Vec<&Finding>) =
        run.findings.iter().partition(|f| f.proposes());
    let note = match run.findings.len() {
        1 => "one, with its evidence and what would refute it".to_owned(),
        n => format!("{n}, each with its evidence and what would refute it"),
    };
    page.open_fold("findings", "Findings", &note);
    if !proposed.is_empty() {
        list(page, &proposed, run);
        if !seen.is_empty() {
            page.push("<h3>Seen beside</h3>\n");
        }
    }
    if !seen.is_empty() {
        list(page, &seen, run);
    }
    page.close_fold();
}

fn list(page: &mut Page, findings: &[&Finding], run: &Run) {
    page.push("<ol class=\"findings\">\n");
    for f in findings {
        let html = finding(f, run);
        page.push(&html);
    }
    page.push("</ol>\n");
}

fn finding(f: &Finding, run: &Run) -> String {
    let mut html = format!("<li><div><p class=\"text\">{}</p>", Esc(&sentence(&f.text)));
    if !f.advice.is_empty() {
        let _ = write!(
            html,
            "<p class=\"advice\"><b>Do</b> {}</p>",
            with_options(&f.advice)
        );
    }
    if let Some(gained) = gain(f) {
        let _ = write!(html, "<p class=\"gain\"><b>Gain</b> {}</p>", Esc(&gained));
    }
    if !f.refuted_by.is_empty() {
        let _ = write!(
            html,
            "<p class=\"gain\"><b>Refuted by:</b> {}</p>",
            with_options(&f.refuted_by)
        );
    }
    let level = match f.confidence.as_str() {
        "strong" => 3,
        "moderate" => 2,
        _ => 1,
    };
    html.push_str("<p class=\"evidence\"><span class=\"confidence\">");
    for i in 0..3 {
        html.push_str(if i < level {
            "<i class=\"on\"></i>"
        } else {
            "<i></i>"
        });
    }
    let _ = write!(html, " {} evidence</span>", Esc(&f.confidence));
    for id in &f.evidence {
        let _ = write!(
            html,
            " · <a href=\"#{}\">{}</a>",
            slug(id),
            Esc(&title_of(run, id))
        );
    }
    const JOBS_SHOWN: usize = 4;
    for job in f.jobs.iter().take(JOBS_SHOWN) {
        if let Some(j) = run.jobs.get(*job) {
            let _ = write!(html, " · <a href=\"#job-{job}\">{}</a>", Esc(&j.name));
        }
    }
    if f.jobs.len() > JOBS_SHOWN {
        let _ = write!(html, " and {} more jobs", f.jobs.len() - JOBS_SHOWN);
    }
    html.push_str("</p></div></li>\n");
    html
}

/// The heading of a chart or table by its id.
fn title_of(run: &Run, id: &str) -> String {
    let charts = run.sections.iter().flat_map(|s| &s.charts);
    let tables = run.sections.iter().flat_map(|s| &s.tables);
    let sections = run.sections.iter().map(|s| (&s.id, &s.title));
    charts
        .map(|c| (&c.id, &c.title))
        .chain(tables.map(|t| (&t.id, &t.title)))
        .chain(sections)
        .find(|(i, title)| *i == id && !title.is_empty())
        .map_or_else(|| id.to_owned(), |(_, title)| title.clone())
}

/// Every flag of run, headlines, sections and jobs.
pub(super) fn all_flags(page: &mut Page, run: &Run) {
    let mut seen: Vec<(&Flag, String)> = Vec::new();
    for f in &run.flags {
        merge_flag(&mut seen, f, "the whole run");
    }
    for h in &run.headlines {
        for f in &h.flags {
            merge_flag(&mut seen, f, &h.label);
        }
    }
    for s in &run.sections {
        for f in &s.flags {
            merge_flag(&mut seen, f, &s.title);
        }
    }
    for j in &run.jobs {
        for f in &j.flags {
            merge_flag(&mut seen, f, &format!("job {}", j.name));
        }
    }
    let note = match seen.len() {
        0 => "none".to_owned(),
        n => n.to_string(),
    };
    page.open_fold("flags", "Every flag", &note);
    if seen.is_empty() {
        page.push(
            "<p class=\"muted\">Nothing stands against these numbers: every check passed.</p>\n",
        );
    }
    const FLAGS_SHOWN: usize = 200;
    if seen.len() > FLAGS_SHOWN {
        page.push(&format!(
            "<p class=\"muted\">The first {FLAGS_SHOWN} of {}; run.json has them all.</p>\n",
            seen.len()
        ));
        seen.truncate(FLAGS_SHOWN);
    }
    flag_list(page, seen);
    page.close_fold();
}

/// How to do it again.
pub(super) fn command(page: &mut Page, data: &ReportData, links: Option<&str>) {
    let run = &data.run;
    page.open_fold(
        "command",
        "Command line and raw data",
        "to do it again, and to ask more",
    );
    page.push(&format!(
        "<pre>{}</pre>\n<p class=\"muted\">Seed {}; the same seed gives the same offsets and the same schedule.</p>\n",
        Esc(&shell_quoted(&run.command_line)),
        run.seed
    ));
    if let Some(dir) = &data.dir {
        page.push(&raw_data(dir, links));
    }
    page.close_fold();
}

/// The run's files with what is in them, and links to them that begin with `links`.
fn raw_data(dir: &std::path::Path, links: Option<&str>) -> String {
    const FILES: [(&str, &str); 3] = [
        (
            "run.json",
            "every number of this page, each job and the environment",
        ),
        (
            "series.parquet",
            "counts and whole latency histograms, window by window",
        ),
        ("io.parquet", "one row for each I/O"),
    ];
    let mut html = format!(
        "<p>Raw data{} in <code>{}</code>:</p>\n<ul>",
        if links == Some("") {
            ", beside this page"
        } else {
            ""
        },
        Esc(&dir.to_string_lossy())
    );
    for (name, what) in FILES {
        let Ok(found) = std::fs::metadata(dir.join(name)) else {
            continue;
        };
        let size = format::value(found.len() as f64, "bytes");
        let name = match links {
            Some(base) => format!("<a href=\"{base}{name}\">{name}</a>"),
            None => name.to_owned(),
        };
        let _ = write!(html, "<li>{name} ({size}): {what}</li>");
    }
    html.push_str(
        "</ul>\n<p class=\"muted\"><code>fathom query</code> asks them in SQL; <code>fathom report --format csv</code> writes tables.</p>\n",
    );
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::FlagCode;

    #[test]
    fn a_flag_on_many_jobs_is_listed_once_with_the_first_places() {
        let f = Flag::new(FlagCode::CpuBound, "busy", "use more cores");
        let mut seen = Vec::new();
        for i in 0..100 {
            merge_flag(&mut seen, &f, &format!("job {i}"));
        }
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].1, "job 0; job 1; job 2; job 3; job 4; job 5; …");
    }

    #[test]
    fn places_of_one_name_are_said_once() {
        let f = Flag::new(FlagCode::NotSteady, "moved", "wait");
        let mut seen = Vec::new();
        for place in ["read", "write", "read", "write"] {
            merge_flag(&mut seen, &f, place);
        }
        assert_eq!(seen, [(&f, "read; write".to_owned())]);
    }
}

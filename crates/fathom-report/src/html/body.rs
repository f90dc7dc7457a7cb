//! The beginning and the end of the page: what was measured, the headlines and what stands against
//! them, findings; all flags, the command line.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Finding, Headline, Run};
use fathom_telemetry::{Flag, FlagCode};

use super::Page;
use super::escape::{Esc, slug, with_options};
use super::flags::{chips, flag_list};
use crate::data::ReportData;
use crate::format::{self, HOLE};
use crate::stamp::Stamp;
use crate::terminal::{extra_label, extra_names, gain, groups, sentence};
use crate::text::shell_quoted;

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
        let _ = write!(html, "<li>{what} <b>{}</b></li>", Esc(&value));
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

fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let started: String = run.started.replace('T', " ").replace('Z', " UTC");
    facts.push(("started", started));
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
    facts
}

/// The numbers of the screen.
pub(super) fn headlines(page: &mut Page, run: &Run) {
    if run.headlines.is_empty() {
        return;
    }
    page.push("<section class=\"first\" id=\"headlines\">");
    page.anchors.insert("headlines".to_owned());
    page.contents
        .push(("headlines".to_owned(), "Headlines".to_owned()));
    page.push(&format!("<p class=\"muted\">{}</p>\n", verdict(run)));
    for group in groups(&run.headlines) {
        let in_group: Vec<&Headline> = run.headlines.iter().filter(|h| h.group == group).collect();
        page.push(&format!(
            "<div class=\"group\"><h3>{}</h3>\n<div class=\"tiles\">\n",
            Esc(group)
        ));
        for h in in_group {
            let html = tile(h);
            page.push(&html);
        }
        page.push("</div></div>\n");
    }
    let mut seen: Vec<(&Flag, String)> = Vec::new();
    for h in &run.headlines {
        for f in h.flags.iter().filter(|f| f.code != FlagCode::Simulated) {
            merge_flag(&mut seen, f, &h.label);
        }
    }
    for f in run.flags.iter().filter(|f| f.code != FlagCode::Simulated) {
        merge_flag(&mut seen, f, "the whole run");
    }
    if !seen.is_empty() {
        page.push("<h3>Before you quote these numbers</h3>\n");
        flag_list(page, seen);
    }
    page.close_section();
}

/// How many of the headlines stand, as a sentence.
fn verdict(run: &Run) -> String {
    let headlines = &run.headlines;
    let void = |h: &&Headline| h.flags.iter().any(|f| f.void);
    let holes = headlines.iter().filter(|h| h.estimate.is_none()).count();
    let voided = headlines
        .iter()
        .filter(|h| h.estimate.is_some() && void(h))
        .count();
    let flagged = headlines
        .iter()
        .filter(|h| h.estimate.is_some() && !void(h))
        .filter(|h| h.flags.iter().any(|f| f.code != FlagCode::Simulated))
        .count();
    let clean = headlines.len() - holes - voided - flagged;
    let mut parts = Vec::new();
    if clean == headlines.len() {
        parts.push(format!("All {clean} numbers passed every check"));
    } else {
        parts.push(format!(
            "{clean} of {} numbers passed every check",
            headlines.len()
        ));
    }
    for (n, one, many) in [
        (flagged, "one carries a flag", "carry a flag"),
        (voided, "one is void", "are void"),
        (holes, "one could not be measured", "could not be measured"),
    ] {
        match n {
            0 => {}
            1 => parts.push(one.to_owned()),
            n => parts.push(format!("{n} {many}")),
        }
    }
    format!("{}. Intervals (±) are 95 % over repeats.", parts.join(", "))
}

fn tile(h: &Headline) -> String {
    let void = h.flags.iter().any(|f| f.void);
    let class = match (&h.estimate, void) {
        (None, _) => "tile hole",
        (_, true) => "tile void",
        _ => "tile",
    };
    let mut html = format!(
        "<div class=\"{class}\"><div class=\"label\">{}</div>",
        Esc(&h.label)
    );
    match &h.estimate {
        Some(e) => {
            let (value, half) = format::estimate_parts(e, &h.unit);
            let (number, unit) = value.split_once(' ').unwrap_or((value.as_str(), ""));
            let _ = write!(
                html,
                "<div class=\"value\">{}<span class=\"unit\">{}</span></div>",
                Esc(number),
                Esc(unit)
            );
            let interval = match (half.is_empty(), e.samples) {
                (true, _) => "one repeat, no interval".to_owned(),
                (false, n) => format!("{half} {} · {n} repeats", Esc(unit)),
            };
            let _ = write!(html, "<div class=\"interval\">{interval}</div>");
        }
        None => {
            let reason = h
                .flags
                .first()
                .map_or("not measured", |f| f.detail.as_str());
            let _ = write!(
                html,
                "<div class=\"value\">{HOLE}</div><div class=\"reason\">{}</div>",
                Esc(reason)
            );
        }
    }
    if !h.extra.is_empty() {
        html.push_str("<dl class=\"extra\">");
        for name in extra_names([h].into_iter()) {
            let value = format::optional(h.extra.get(&name).copied(), &h.unit);
            let _ = write!(
                html,
                "<dt>{}</dt><dd>{}</dd>",
                Esc(&extra_label(&name)),
                Esc(&value)
            );
        }
        html.push_str("</dl>");
    }
    html.push_str(&chips(&h.flags));
    html.push_str("</div>\n");
    html
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
    page.open_section(
        "findings",
        if proposed.is_empty() {
            "What was seen"
        } else {
            "Findings"
        },
    );
    if !proposed.is_empty() {
        list(page, &proposed, run);
        if !seen.is_empty() {
            page.push("<h3>Seen beside</h3>\n");
        }
    }
    if !seen.is_empty() {
        list(page, &seen, run);
    }
    page.close_section();
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
    page.open_section("flags", "Every flag");
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
    page.close_section();
}

/// How to do it again.
pub(super) fn command(page: &mut Page, data: &ReportData, links: Option<&str>) {
    let run = &data.run;
    page.open_section("command", "Command line and raw data");
    page.push(&format!(
        "<pre>{}</pre>\n<p class=\"muted\">Seed {}; the same seed gives the same offsets and the same schedule.</p>\n",
        Esc(&shell_quoted(&run.command_line)),
        run.seed
    ));
    if let Some(dir) = &data.dir {
        page.push(&raw_data(dir, links));
    }
    page.close_section();
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

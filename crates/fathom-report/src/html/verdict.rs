//! The first page: what limits, what to change, what it gains, how sure that is. Everything below is its evidence.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Finding, Run};

use super::Page;
use super::body::chips;
use super::escape::{Esc, slug, with_options};
use crate::format;
use crate::terminal::{directions, gain, ns, seen, sentence};

/// Findings, or jobs, that fit on the first page.
const SHOWN: usize = 4;

/// The verdict, before everything else.
pub(super) fn verdict(page: &mut Page, run: &Run) {
    if run.findings.is_empty() {
        if run.headlines.is_empty() && run.results.is_empty() && !run.jobs.is_empty() {
            measured(page, run);
        } else if !run.headlines.is_empty() {
            open(page, "first");
            page.push("<p>No change is proposed: these are measurements, and what stands against them is said with them.</p></section>\n");
        }
        return;
    }
    let counts = |f: &&Finding| f.confidence != "weak" && !f.advice.is_empty();
    let told: Vec<&Finding> = run.findings.iter().filter(counts).take(SHOWN).collect();
    open(page, "first verdict");
    if told.is_empty() {
        let found: Vec<&Finding> = run
            .findings
            .iter()
            .filter(|f| f.confidence != "weak")
            .collect();
        page.push("<p>No change is proposed: nothing that was measured shows one that would help.");
        if found.is_empty() {
            page.push(
                " Weak hints stand under <a href=\"#findings\">Findings</a>.</p></section>\n",
            );
            return;
        }
        page.push(" What was found:</p>\n<ul>");
        for f in found.into_iter().take(SHOWN) {
            page.push(&format!("<li>{}</li>\n", Esc(&sentence(&f.text))));
        }
        page.push("</ul></section>\n");
        return;
    }
    let mut html = String::from(
        "<div class=\"wide\"><table><thead><tr><th scope=\"col\">What was found</th><th scope=\"col\">What to do</th><th scope=\"col\">Gain</th><th scope=\"col\">Evidence</th></tr></thead><tbody>\n",
    );
    for f in &told {
        let gain = gain(f).unwrap_or_else(|| "not measured".to_owned());
        let evidence = match f.evidence.first() {
            Some(id) => format!("<a href=\"#{}\">{}</a>", slug(id), Esc(&f.confidence)),
            None => Esc(&f.confidence).to_string(),
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{evidence}</td></tr>",
            Esc(&sentence(&f.text)),
            with_options(&f.advice),
            Esc(&gain),
        );
    }
    html.push_str("</tbody></table></div>\n");
    let tried = told.iter().filter(|f| f.gain.is_some()).count();
    if tried == 0 {
        html.push_str("<p class=\"muted\">None of these changes was tried here; <code>fathom ab</code> tries two settings of a job in turns.</p>\n");
    }
    html.push_str("</section>\n");
    page.push(&html);
}

fn open(page: &mut Page, class: &str) {
    page.push(&format!("<section class=\"{class}\" id=\"verdict\">"));
    page.anchors.insert("verdict".to_owned());
    page.contents
        .push(("verdict".to_owned(), "In short".to_owned()));
    page.push("<h2>In short</h2>\n");
}

/// Where nothing was compared there is no change to propose: what each job delivered, and what stands against it.
fn measured(page: &mut Page, run: &Run) {
    open(page, "first");
    let mut html = String::from("<div class=\"wide\"><table><thead><tr>");
    for (i, name) in [
        "Job",
        "Op",
        "IOPS",
        "Bandwidth",
        "p50",
        "p99",
        "What stands against it",
    ]
    .iter()
    .enumerate()
    {
        let class = if (2..6).contains(&i) {
            " class=\"number\""
        } else {
            ""
        };
        let _ = write!(html, "<th scope=\"col\"{class}>{name}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for (index, job) in run.jobs.iter().take(SHOWN).enumerate() {
        let against = match chips(&job.flags) {
            none if none.is_empty() => "nothing: every check passed".to_owned(),
            chips => chips,
        };
        for (i, (direction, d)) in directions(job).enumerate() {
            let latency = seen(job, d);
            let (name, against) = match i {
                0 => (
                    format!("<a href=\"#job-{index}\">{}</a>", Esc(&job.name)),
                    against.as_str(),
                ),
                _ => (String::new(), ""),
            };
            let _ = write!(html, "<tr><td>{name}</td><td>{direction}</td>");
            for cell in [
                format::value(d.iops, "1/s"),
                format::value(d.bytes_per_second, "bytes/s"),
                ns(latency.p50),
                ns(latency.p99),
            ] {
                let _ = write!(html, "<td class=\"number\">{cell}</td>");
            }
            let _ = writeln!(html, "<td>{against}</td></tr>");
        }
    }
    html.push_str("</tbody></table></div>\n");
    if run.jobs.len() > SHOWN {
        let _ = writeln!(
            html,
            "<p class=\"muted\">The first {SHOWN} of {} jobs; all of them stand under <a href=\"#jobs\">All jobs</a>.</p>",
            run.jobs.len()
        );
    }
    html.push_str("<p class=\"muted\">These are measurements, no advice: <code>fathom survey</code> looks for what limits, <code>fathom ab</code> tries two settings in turns.</p>\n</section>\n");
    page.push(&html);
}

//! The first page: what limits, what to change, what it gains, how sure that is. Everything below is its evidence.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Finding, Run};

use super::Page;
use super::escape::{Esc, slug, with_options};
use super::flags::chips;
use crate::terminal::{delivered, gain, sentence};

/// Findings, or jobs, that fit on the first page.
const SHOWN: usize = 4;

/// The verdict, before everything else.
pub(super) fn verdict(page: &mut Page, run: &Run) {
    if run.findings.is_empty() {
        if run.headlines.is_empty() && run.sections.is_empty() && !run.jobs.is_empty() {
            measured(page, run);
        } else if !run.headlines.is_empty() {
            open(page, "first");
            page.push("<p>No change is proposed: these are measurements, and what stands against them is said with them.</p></section>\n");
        }
        return;
    }
    let sure = || run.findings.iter().filter(|f| f.confidence != "weak");
    let told: Vec<&Finding> = sure().filter(|f| f.proposes()).take(SHOWN).collect();
    open(page, "first verdict");
    if told.is_empty() {
        let mut html = String::from(
            "<p>No change is proposed: nothing that was measured shows one that would help.",
        );
        let seen: Vec<&Finding> = sure().take(SHOWN).collect();
        if seen.is_empty() {
            html.push_str(" Weak hints stand under <a href=\"#findings\">Findings</a>.</p>");
        } else {
            html.push_str(" What was seen:</p>\n<ul>");
            for f in seen {
                let _ = write!(html, "<li>{}", Esc(&sentence(&f.text)));
                if !f.advice.is_empty() {
                    let _ = write!(html, " {}", with_options(&sentence(&f.advice)));
                }
                html.push_str("</li>\n");
            }
            html.push_str("</ul>");
        }
        html.push_str("</section>\n");
        page.push(&html);
        return;
    }
    let mut html = String::from(
        "<div class=\"wide\"><table><thead><tr><th scope=\"col\">What was found</th><th scope=\"col\">What to do</th><th scope=\"col\">Gain</th><th scope=\"col\">Evidence</th></tr></thead><tbody>\n",
    );
    for f in &told {
        let gain = gain(f).unwrap_or_default();
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
        for (i, (direction, cells)) in delivered(job).into_iter().enumerate() {
            let (name, against) = match i {
                0 => (
                    format!("<a href=\"#job-{index}\">{}</a>", Esc(&job.name)),
                    against.as_str(),
                ),
                _ => (String::new(), ""),
            };
            let _ = write!(html, "<tr><td>{name}</td><td>{direction}</td>");
            for cell in cells {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::HOLE;
    use crate::testing::{job, run_with};

    #[test]
    fn a_job_that_delivered_nothing_is_a_row_of_holes() {
        let mut page = Page::new(None);
        verdict(&mut page, &run_with(vec![job("failed")]));
        assert!(page.body.contains(">failed</a>"), "{}", page.body);
        assert_eq!(page.body.matches(HOLE).count(), 4, "{}", page.body);
    }
}

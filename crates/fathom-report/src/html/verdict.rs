//! The first page: what limits, what to change, what it gains, how sure that is. Everything below is its evidence.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Finding, Run};

use super::Page;
use super::escape::{Esc, slug, with_options};
use super::flags::chips;
use crate::conclusion::{conclusion, flag_groups, no_change};
use crate::terminal::{delivered, gain, sentence};

/// Jobs that fit on the first page.
const SHOWN: usize = 4;

/// The verdict, before everything else; the numbers of jobs where no experiment made any.
pub(super) fn verdict(page: &mut Page, run: &Run) {
    let c = conclusion(run);
    page.push("<section class=\"first verdict\" id=\"verdict\">");
    page.anchors.insert("verdict".to_owned());
    page.contents
        .push(("verdict".to_owned(), "In short".to_owned()));
    page.push("<h2>In short</h2>\n<div class=\"answers\">\n");
    if !c.good_for.is_empty() {
        answer(page, "Good for", &told(&c.good_for));
    }
    if !c.seen.is_empty() {
        let title = if c.good_for.is_empty() {
            "What was seen"
        } else {
            "What limits it"
        };
        answer(page, title, &told(&c.seen));
    }
    let change = match c.change.is_empty() {
        true => vec![format!("{} {}", no_change(run), NEXT)],
        false => told(&c.change),
    };
    answer(page, "What to change", &change);
    let mut trust: Vec<String> = c.trust.iter().map(|t| Esc(t).to_string()).collect();
    if let Some(last) = trust.last_mut().filter(|_| !flag_groups(run).is_empty()) {
        last.push_str(" <a href=\"#flags\">All flags with remedies</a>");
    }
    answer(page, "How far to trust it", &trust);
    page.push("</div></section>\n");
    if run.headlines.is_empty() && run.sections.is_empty() && !run.jobs.is_empty() {
        measured(page, run);
    }
}

/// Where no change is known yet.
const NEXT: &str =
    "<code>fathom tune</code> tries settings, <code>fathom ab</code> compares two of yours.";

fn answer(page: &mut Page, title: &str, lines: &[String]) {
    let mut html = format!("<div><h3>{title}</h3><ul>\n");
    for line in lines {
        let _ = writeln!(html, "<li>{line}</li>");
    }
    html.push_str("</ul></div>\n");
    page.push(&html);
}

/// Findings as lines: the sentence, what to do, what it gains, how sure that is, where its evidence is.
fn told(findings: &[&Finding]) -> Vec<String> {
    let line = |f: &&Finding| {
        let mut html = Esc(&sentence(&f.text)).to_string();
        if !f.advice.is_empty() {
            let _ = write!(
                html,
                " <span class=\"do\">{}</span>",
                with_options(&sentence(&f.advice))
            );
        }
        if let Some(gain) = gain(f) {
            let _ = write!(html, " <b>{}</b>", Esc(&gain));
        }
        let sure = format!("{} evidence", f.confidence);
        let _ = match f.evidence.first() {
            Some(id) => write!(html, " <a href=\"#{}\">{}</a>", slug(id), Esc(&sure)),
            None => write!(html, " <span class=\"muted\">{}</span>", Esc(&sure)),
        };
        html
    };
    findings.iter().map(line).collect()
}

/// Where nothing was compared there is no change to propose: what each job delivered, and what stands against it.
fn measured(page: &mut Page, run: &Run) {
    page.open_section("measured", "What was measured");
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
    html.push_str("</section>\n");
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

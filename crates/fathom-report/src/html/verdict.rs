//! The first page: what limits, what to change, what it gains, how sure that is. Everything below is its evidence.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Finding, Run};

use super::Page;
use super::escape::{Esc, slug, with_options};
use crate::terminal::{gain, sentence};

/// Findings that fit on the first page.
const SHOWN: usize = 4;

/// The verdict, before everything else.
pub(super) fn verdict(page: &mut Page, run: &Run) {
    if run.findings.is_empty() {
        return;
    }
    let counts = |f: &&Finding| f.confidence != "weak" && !f.advice.is_empty();
    let shown: Vec<&Finding> = run.findings.iter().filter(counts).take(SHOWN).collect();
    page.push("<section class=\"first verdict\" id=\"verdict\">");
    page.anchors.insert("verdict".to_owned());
    page.contents
        .push(("verdict".to_owned(), "In short".to_owned()));
    page.push("<h2>In short</h2>\n");
    if shown.is_empty() {
        page.push("<p>No change is proposed: nothing that was measured shows one that would help. Weak hints stand under <a href=\"#findings\">Findings</a>.</p></section>\n");
        return;
    }
    let mut html = String::from(
        "<div class=\"wide\"><table><thead><tr><th>What was found</th><th>What to do</th><th>Gain</th><th>Evidence</th></tr></thead><tbody>\n",
    );
    for f in &shown {
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
    let measured = shown.iter().filter(|f| f.gain.is_some()).count();
    if measured == 0 {
        html.push_str("<p class=\"muted\">None of these changes was tried here; <code>fathom ab</code> tries two settings of a job in turns.</p>\n");
    }
    html.push_str("</section>\n");
    page.push(&html);
}

//! Flags on the page.

use std::fmt::Write;

use fathom_telemetry::{Flag, FlagCode};

use super::Page;
use super::escape::{Esc, with_options};
use crate::terminal::sentence;
use crate::text::{capital, human};

/// Small marks that lead to the list of flags.
pub(super) fn chips(flags: &[Flag]) -> String {
    let mut names: Vec<(&str, bool)> = flags
        .iter()
        .filter(|f| f.code != FlagCode::Simulated)
        .map(|f| (f.code.name(), f.void))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return String::new();
    }
    let mut html = String::from("<div class=\"chips\">");
    for (name, void) in names {
        let class = if void { "chip void" } else { "chip" };
        let text = human(name);
        let void = if void { "void: " } else { "" };
        let _ = write!(
            html,
            "<a class=\"{class}\" href=\"#flags\">{void}{text}</a>"
        );
    }
    html.push_str("</div>");
    html
}

/// Flags in words: what, the figures seen, what to try, where.
pub(super) fn flag_list<'a>(page: &mut Page, flags: impl IntoIterator<Item = (&'a Flag, String)>) {
    let mut flags: Vec<(&Flag, String)> = flags.into_iter().collect();
    if flags.is_empty() {
        return;
    }
    flags.sort_by_key(|(f, _)| !f.void);
    page.push("<ul class=\"flags\">\n");
    for (f, place) in flags {
        let class = if f.void { " class=\"void\"" } else { "" };
        let void = if f.void { "Void: " } else { "" };
        let name = capital(&human(f.code.name()));
        let mut html = format!(
            "<li{class}><span class=\"what\">{void}{name}.</span> {}",
            with_options(&sentence(&f.detail))
        );
        if !f.remedy.is_empty() {
            let _ = write!(html, " <b>Try:</b> {}", with_options(&sentence(&f.remedy)));
        }
        if !place.is_empty() {
            let _ = write!(html, " <span class=\"where\">({})</span>", Esc(&place));
        }
        html.push_str("</li>\n");
        page.push(&html);
    }
    page.push("</ul>\n");
}

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

/// Flags in words: what, the figures seen, what to try, where. Those of one kind with one remedy are one entry with a
/// count; the others' figures are folded in it.
pub(super) fn flag_list<'a>(page: &mut Page, flags: impl IntoIterator<Item = (&'a Flag, String)>) {
    let mut groups: Vec<Vec<(&Flag, String)>> = Vec::new();
    for (f, place) in flags {
        let kind = |g: &&mut Vec<(&Flag, String)>| {
            let first = g[0].0;
            (first.code, first.void, &first.remedy) == (f.code, f.void, &f.remedy)
        };
        match groups.iter_mut().find(kind) {
            Some(group) => group.push((f, place)),
            None => groups.push(vec![(f, place)]),
        }
    }
    if groups.is_empty() {
        return;
    }
    groups.sort_by_key(|g| (!g[0].0.void, std::cmp::Reverse(g.len())));
    let mut html = String::from("<ul class=\"flags\">\n");
    for group in groups {
        let (f, place) = &group[0];
        let class = if f.void { " class=\"void\"" } else { "" };
        let void = if f.void { "Void: " } else { "" };
        let name = capital(&human(f.code.name()));
        let count = match group.len() {
            1 => String::new(),
            n => format!(" ({n} times)"),
        };
        let _ = write!(
            html,
            "<li{class}><span class=\"what\">{void}{name}{count}.</span> {}",
            seen(f, place)
        );
        if !f.remedy.is_empty() {
            let remedy = with_options(&sentence(&f.remedy));
            let _ = write!(html, " <b>Try:</b> {}", capital(&remedy));
        }
        if group.len() > 1 {
            html.push_str("<details><summary>The others</summary><ul>\n");
            for (f, place) in &group[1..] {
                let _ = writeln!(html, "<li>{}</li>", seen(f, place));
            }
            html.push_str("</ul></details>");
        }
        html.push_str("</li>\n");
    }
    html.push_str("</ul>\n");
    page.push(&html);
}

/// The figures of a flag and where it stands.
fn seen(f: &Flag, place: &str) -> String {
    let detail = capital(&with_options(&sentence(&f.detail)));
    match place {
        "" => detail,
        place => format!("{detail} <span class=\"where\">({})</span>", Esc(place)),
    }
}

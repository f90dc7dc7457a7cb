//! The summary: target, headlines with intervals, flags, findings, where the rest is.

use std::path::Path;

use fathom_telemetry::Price;
use fathom_telemetry::schema::{Finding, Headline, Run};

use super::{Notes, flag_lines, gain, sentence, title};
use crate::conclusion::{conclusion as conclude, no_change};
use crate::format::{self, HOLE};
use crate::surroundings::limits;
use crate::text::{Align, Grid, Paint, Screen, clean, width, wrap};

/// Where the reader finds the rest; `None` where it was not kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Whereabouts<'a> {
    /// Run directory.
    pub run_directory: Option<&'a Path>,
    /// `report.html`.
    pub report: Option<&'a Path>,
}

/// Extra figures (p50, p99, …) beside a headline, where the width allows.
const EXTRAS_SHOWN: usize = 4;

/// The summary of a run, for a screen of about 40 lines. Ends with a line break.
pub fn summary(run: &Run, screen: &Screen, whereabouts: &Whereabouts<'_>) -> String {
    let mut out = title(run, screen);
    out.push_str(&screen.paint(Paint::Dim, &wrap(&facts(run), screen.width, 0)));
    out.push('\n');

    let mut notes = Notes::default();
    out.push_str(&headlines(run, screen, &mut notes));
    let run_marks = notes.marks(&run.flags);

    if !notes.flags.is_empty() {
        out.push_str(&heading("Before you quote these numbers", screen));
        out.push_str(&flag_lines(&notes.flags, screen));
        if !run_marks.is_empty() {
            out.push_str(&format!("  {run_marks} concerns the whole run.\n"));
        }
    }
    out.push_str(&conclusion(run, screen));
    out.push_str(&places(whereabouts, screen));
    out
}

fn heading(text: &str, screen: &Screen) -> String {
    format!("\n{}\n", screen.paint(Paint::Bold, text))
}

fn facts(run: &Run) -> String {
    let mut facts = Vec::new();
    if let Some(p) = &run.profile {
        facts.push(format!("{} profile", clean(p)));
    }
    facts.push(match run.jobs.len() {
        1 => "1 job".to_owned(),
        n => format!("{n} jobs"),
    });
    let end = run
        .jobs
        .iter()
        .map(|j| j.start_ns.saturating_add(j.wall_ns));
    if let Some(end) = end.max().filter(|e| *e > 0) {
        facts.push(format::wall(end));
    }
    if run.finished.is_none() {
        facts.push("did not finish".to_owned());
    }
    facts.push(format!("seed {}", run.seed));
    facts.push(format!("fathom {}", clean(&run.tool_version)));
    facts.extend(Price::of(run).map(|p| clean(&p.words())));
    facts.extend(limits(run).map(|l| clean(&l)));
    let labels = run.labels.iter();
    facts.extend(labels.map(|(k, v)| format!("{}={}", clean(k), clean(v))));
    facts.join(" · ")
}

/// Group names in order of first appearance.
pub(crate) fn groups(headlines: &[Headline]) -> Vec<&str> {
    let mut groups: Vec<&str> = Vec::new();
    for h in headlines {
        if !groups.contains(&h.group.as_str()) {
            groups.push(&h.group);
        }
    }
    groups
}

/// Names of extra figures in a group, in order of meaning: p50 before p99 before p99.9 before max.
pub(crate) fn extra_names<'a>(headlines: impl Iterator<Item = &'a Headline>) -> Vec<String> {
    let mut names: Vec<&String> = headlines.flat_map(|h| h.extra.keys()).collect();
    names.sort_by_key(|n| (extra_rank(n), (*n).clone()));
    names.dedup();
    names.into_iter().cloned().collect()
}

fn extra_rank(name: &str) -> u64 {
    match name {
        "min" => 0,
        "mean" => 1,
        "max" => u64::MAX - 1,
        _ => name
            .strip_prefix('p')
            .and_then(|p| p.replace('_', ".").parse::<f64>().ok())
            // A damaged run may name any number.
            .filter(|p| (0.0..=100.0).contains(p))
            .map_or(u64::MAX, |p| (p * 1e6) as u64 + 2),
    }
}

/// `p99_9` as people write it.
pub(crate) fn extra_label(name: &str) -> String {
    clean(&name.replace('_', "."))
}

fn headlines<'a>(run: &'a Run, screen: &Screen, notes: &mut Notes<'a>) -> String {
    if run.headlines.is_empty() {
        return String::new();
    }
    let groups = groups(&run.headlines);
    let every = extra_names(run.headlines.iter());
    // As many extra figures as leave the labels whole.
    let mut chosen = headline_grid(run, &groups, &[], notes);
    for n in 1..=every.len().min(EXTRAS_SHOWN) {
        let wider = headline_grid(run, &groups, &most_wanted(&every, n), notes);
        if wider.natural_width() > screen.width {
            break;
        }
        chosen = wider;
    }
    let grid = chosen;
    let group_rows: Vec<usize> = (0..groups.len())
        .map(|g| row_of_group(run, &groups[..g]))
        .collect();
    let mut out = String::new();
    for (i, line) in grid.lines(screen, 0).into_iter().enumerate() {
        if group_rows.contains(&i) {
            out.push('\n');
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// The `n` figures that say most, in order of their size: p99 before p50 before p99.9.
fn most_wanted(names: &[String], n: usize) -> Vec<String> {
    let wanted = |name: &String| match name.as_str() {
        "p99" => 0,
        "p50" => 1,
        "p99_9" => 2,
        _ => 3,
    };
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|i| (wanted(&names[*i]), *i));
    order.truncate(n);
    order.sort_unstable();
    order.into_iter().map(|i| names[i].clone()).collect()
}

/// All groups in one grid, so that their columns stand under each other.
fn headline_grid<'a>(
    run: &'a Run,
    groups: &[&str],
    extras: &[String],
    notes: &mut Notes<'a>,
) -> Grid {
    let mut align = vec![Align::Left, Align::Right, Align::Left];
    align.extend(extras.iter().map(|_| Align::Right));
    align.push(Align::Left);
    let mut grid = Grid::new(&align);
    for group in groups {
        let in_group = || run.headlines.iter().filter(|h| h.group == *group);
        let mut head = vec![
            (clean(group), Paint::Bold),
            (String::new(), Paint::None),
            (String::new(), Paint::None),
        ];
        head.extend(extras.iter().map(|name| {
            let used = in_group().any(|h| h.extra.contains_key(name));
            let label = if used {
                extra_label(name)
            } else {
                String::new()
            };
            (label, Paint::Dim)
        }));
        grid.row(head);
        for h in in_group() {
            grid.row(headline_row(h, extras, notes));
        }
    }
    grid
}

/// Row at which a group's heading stands: after headings and headlines of the groups before it.
fn row_of_group(run: &Run, before: &[&str]) -> usize {
    let headlines = run.headlines.iter();
    before.len()
        + headlines
            .filter(|h| before.contains(&h.group.as_str()))
            .count()
}

fn headline_row<'a>(
    h: &'a Headline,
    extras: &[String],
    notes: &mut Notes<'a>,
) -> Vec<(String, Paint)> {
    let void = h.flags.iter().any(|f| f.void);
    let (value, interval) = match &h.estimate {
        Some(e) => format::estimate_parts(e, &h.unit),
        None => (HOLE.to_owned(), String::new()),
    };
    let paint = if void { Paint::Red } else { Paint::Bold };
    let mut row = vec![
        (format!("  {}", clean(&h.label)), Paint::None),
        (value, paint),
        (interval, Paint::Dim),
    ];
    row.extend(extras.iter().map(|name| {
        let text = match h.extra.get(name) {
            Some(v) => format::value(*v, &h.unit),
            None => String::new(),
        };
        (text, Paint::None)
    }));
    row.push((
        notes.marks(&h.flags),
        if void { Paint::Red } else { Paint::Yellow },
    ));
    row
}

/// What a reader takes home: what it is good for, what was seen, what to change, how far to trust it.
pub fn conclusion(run: &Run, screen: &Screen) -> String {
    let c = conclude(run);
    let mut out = heading("Conclusion", screen);
    let kinds = [
        ("  good for  ", &c.good_for),
        ("  seen      ", &c.seen),
        ("  change    ", &c.change),
    ];
    let indent = width(kinds[0].0);
    let told_as = |mark: &str, text: &str| {
        let room = screen.width.saturating_sub(indent);
        format!("{mark}{}\n", wrap(text, room, indent))
    };
    let mut told = 0;
    for (mark, findings) in kinds {
        for f in findings {
            told += 1;
            out.push_str(&finding(f, mark, screen));
        }
    }
    if c.change.is_empty() {
        out.push_str(&told_as(kinds[2].0, no_change(run)));
    }
    let more = match run.findings.len() - told {
        0 => String::new(),
        n => format!(" {n} more in the report."),
    };
    // Where there are no headlines nothing else has told the flags.
    let kinds = if run.headlines.is_empty() {
        c.trust.len()
    } else {
        1
    };
    let trust = format!("{}{more}", c.trust[..kinds].join(" "));
    out.push_str(&screen.paint(Paint::Dim, &told_as("  trust     ", &trust)));
    out
}

fn finding(f: &Finding, number: &str, screen: &Screen) -> String {
    let indent = width(number);
    let mut text = sentence(&clean(&f.text));
    if f.confidence != "strong" && !f.confidence.is_empty() {
        text.push_str(&format!(" ({} evidence)", clean(&f.confidence)));
    }
    let room = screen.width.saturating_sub(indent);
    let mut out = format!("{number}{}\n", wrap(&text, room, indent));
    if !f.advice.is_empty() {
        let gained = gain(f).map(|g| format!(" (gain {g})"));
        let advice = clean(&f.advice) + &gained.unwrap_or_default();
        let advice = wrap(&advice, room.saturating_sub(2), indent + 2);
        let advice = screen.paint(Paint::Cyan, &format!("→ {advice}"));
        out.push_str(&format!("{}{advice}\n", " ".repeat(indent)));
    }
    out
}

fn places(w: &Whereabouts<'_>, screen: &Screen) -> String {
    let mut out = String::new();
    for (what, path) in [("Report", w.report), ("Run", w.run_directory)] {
        if let Some(path) = path {
            let what = screen.paint(Paint::Dim, &format!("{what:<7}"));
            out.push_str(&format!("{what} {}\n", clean(&path.to_string_lossy())));
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\n{out}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_figures_stand_in_their_order_and_no_name_is_a_number_too_large() {
        let names = ["max", "p18446744073710", "p99_9", "p50", "mean", "p99"];
        let headline = Headline {
            id: "a".into(),
            label: "a".into(),
            group: String::new(),
            unit: "ns".into(),
            estimate: None,
            extra: names.map(|n| (n.to_owned(), 1.0)).into(),
            jobs: Vec::new(),
            flags: Vec::new(),
        };
        assert_eq!(
            extra_names([&headline].into_iter()),
            ["mean", "p50", "p99", "p99_9", "max", "p18446744073710"]
        );
    }
}

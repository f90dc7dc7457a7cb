//! Markdown for issues and wikis: headlines, flags, findings, tables.

use fathom_telemetry::schema::{Cell, Finding, Headline, Run, Table};
use fathom_telemetry::{Flag, FlagCode};
use std::fmt::Write as _;

use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::format::{self, HOLE};
use crate::output::{Output, written};
use crate::stamp::Stamp;
use crate::terminal::{delivered, extra_label, extra_names, gain, groups, sentence};
use crate::text::{clean, shell_quoted};

/// The Markdown exporter.
pub(crate) struct Markdown;

impl Exporter for Markdown {
    fn name(&self) -> &'static str {
        "markdown"
    }
    fn about(&self) -> &'static str {
        "headlines, findings and tables as Markdown (report.md)"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        let text = markdown(&data.run);
        out.file("report.md", &mut |w| {
            written("report.md", w.write_all(text.as_bytes()))
        })
    }
}

/// The run as Markdown (GitHub's tables).
pub fn markdown(run: &Run) -> String {
    let mut out = format!(
        "# fathom {}: {}\n\n",
        escape(&run.command),
        escape(run.target.place())
    );
    if let Some(stamp) = Stamp::of(run) {
        let _ = writeln!(out, "**{}**\n", stamp.sentence);
    }
    if !run.target.description.is_empty() {
        let _ = writeln!(out, "{}\n", escape(&run.target.description));
    }
    let command = clean(&shell_quoted(&run.command_line)).replace('`', "'");
    // Not every reader takes markup in a code span for text.
    let command = if command.contains(['<', '&']) {
        format!("<code>{}</code>", escape(&command))
    } else {
        format!("`{command}`")
    };
    let _ = writeln!(
        out,
        "{command}, started {}, seed {}, fathom {}\n",
        escape(&run.started),
        run.seed,
        escape(&run.tool_version)
    );
    findings(run, &mut out);
    for group in groups(&run.headlines) {
        headline_table(group, &run.headlines, &mut out);
    }
    if run.headlines.is_empty() {
        jobs(run, &mut out);
    }
    flags("What stands against the whole run", &run.flags, &mut out);
    for s in &run.sections {
        let _ = writeln!(out, "## {}\n", escape(&s.title));
        if !s.text.is_empty() {
            let _ = writeln!(out, "{}\n", escape(&s.text));
        }
        for t in &s.tables {
            table(t, &mut out);
        }
        flags("What stands against this section", &s.flags, &mut out);
    }
    out
}

/// What to change and what was seen, before the numbers behind it.
fn findings(run: &Run, out: &mut String) {
    for (title, proposes) in [("Findings", true), ("Seen", false)] {
        let mut of = run.findings.iter().filter(|f| f.proposes() == proposes);
        let Some(first) = of.next() else { continue };
        let _ = write!(out, "## {title}\n\n");
        for f in std::iter::once(first).chain(of) {
            finding(f, out);
        }
        out.push('\n');
    }
}

fn finding(f: &Finding, out: &mut String) {
    let _ = write!(
        out,
        "- {} ({} evidence)",
        escape(&f.text),
        escape(&f.confidence)
    );
    if !f.advice.is_empty() {
        let _ = write!(out, "\n  → {}", escape(&f.advice));
    }
    if let Some(gained) = gain(f) {
        let _ = write!(out, "\n  Gain: {gained}");
    }
    if !f.refuted_by.is_empty() {
        let _ = write!(out, "\n  Refuted by: {}", escape(&f.refuted_by));
    }
    out.push('\n');
}

/// The jobs of a run that has no headlines.
fn jobs(run: &Run, out: &mut String) {
    if run.jobs.is_empty() {
        return;
    }
    out.push_str("## Jobs\n\n");
    let names = ["Job", "Op", "IOPS", "Bandwidth", "p50", "p99", "Against it"];
    row(names.map(str::to_owned), out);
    rule([false, false, true, true, true, true, false], out);
    for job in &run.jobs {
        let flags: Vec<&str> = job.flags.iter().map(|f| f.code.name()).collect();
        for (direction, [iops, bandwidth, p50, p99]) in delivered(job) {
            let (name, against) = (escape(&job.name), flags.join(", "));
            let direction = direction.to_owned();
            row([name, direction, iops, bandwidth, p50, p99, against], out);
        }
    }
    out.push('\n');
}

/// Text that Markdown does not interpret.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

fn row(cells: impl IntoIterator<Item = String>, out: &mut String) {
    out.push('|');
    for c in cells {
        let _ = write!(out, " {c} |");
    }
    out.push('\n');
}

fn rule(numbers: impl IntoIterator<Item = bool>, out: &mut String) {
    out.push('|');
    for right in numbers {
        out.push_str(if right { "---:|" } else { "---|" });
    }
    out.push('\n');
}

fn headline_table(group: &str, all: &[Headline], out: &mut String) {
    let headlines: Vec<&Headline> = all.iter().filter(|h| h.group == group).collect();
    let extras = extra_names(headlines.iter().copied());
    let _ = writeln!(out, "## {}\n", escape(group));
    let head = ["", "value (95 % interval)"].map(str::to_owned);
    row(
        head.into_iter()
            .chain(extras.iter().map(|e| escape(&extra_label(e))))
            .chain(["remarks".to_owned()]),
        out,
    );
    rule(
        [false, true]
            .into_iter()
            .chain(extras.iter().map(|_| true))
            .chain([false]),
        out,
    );
    for h in headlines {
        let value = h
            .estimate
            .as_ref()
            .map_or_else(|| HOLE.to_owned(), |e| format::estimate(e, &h.unit));
        let remarks: Vec<String> = h
            .flags
            .iter()
            .filter(|f| f.code != FlagCode::Simulated)
            .map(remark)
            .collect();
        row(
            [escape(&h.label), escape(&value)]
                .into_iter()
                .chain(extras.iter().map(|e| {
                    let v = h.extra.get(e).copied();
                    escape(&format::optional(v, &h.unit))
                }))
                .chain([remarks.join(" ")]),
            out,
        );
    }
    out.push('\n');
}

fn remark(f: &Flag) -> String {
    let void = if f.void { "**void** " } else { "" };
    let remedy = if f.remedy.is_empty() {
        String::new()
    } else {
        format!(" Try: {}", escape(&sentence(&f.remedy)))
    };
    format!("{void}{}{remedy}", escape(&sentence(&f.detail)))
}

fn flags(title: &str, flags: &[Flag], out: &mut String) {
    if flags.is_empty() {
        return;
    }
    let _ = writeln!(out, "{title}:\n");
    for f in flags {
        let _ = writeln!(out, "- {}", remark(f));
    }
    out.push('\n');
}

fn table(t: &Table, out: &mut String) {
    let _ = writeln!(out, "### {}\n", escape(&t.title));
    row(t.columns.iter().map(|c| escape(&c.label)), out);
    let is_text = |i: usize| {
        t.rows
            .iter()
            .any(|r| matches!(r.get(i), Some(Cell::Text(_))))
    };
    rule((0..t.columns.len()).map(|i| !is_text(i)), out);
    for r in &t.rows {
        row(
            t.columns
                .iter()
                .enumerate()
                .map(|(i, c)| escape(&cell(r.get(i), &c.unit))),
            out,
        );
    }
    out.push('\n');
}

/// A cell in the unit of its column, for people.
pub(crate) fn cell(cell: Option<&Cell>, unit: &str) -> String {
    match cell {
        Some(Cell::Number(v)) => format::value(*v, unit),
        Some(Cell::Text(t)) => t.clone(),
        Some(Cell::Estimate(e)) => format::estimate(e, unit),
        Some(Cell::Hole(())) | None => HOLE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job, run_with};
    use fathom_stats::Estimate;

    #[test]
    fn names_cannot_break_out_of_a_table_or_bring_markup() {
        let mut run = run_with(Vec::new());
        run.headlines = vec![Headline {
            id: "x".into(),
            label: "a|b <script>alert(1)</script>".into(),
            group: "Latency".into(),
            unit: "ns".into(),
            estimate: Some(Estimate::single(84_200.0)),
            extra: [("p99_9".to_owned(), 120_000.0)].into(),
            jobs: Vec::new(),
            flags: Vec::new(),
        }];
        let text = markdown(&run);
        assert!(
            text.contains("| a\\|b &lt;script&gt;alert(1)&lt;/script&gt; | 84.2 µs | 120 µs |  |"),
            "{text}"
        );
        assert!(text.contains("| p99.9 |"));
    }

    #[test]
    fn a_job_that_delivered_nothing_is_a_row_of_holes() {
        let text = markdown(&run_with(vec![job("failed")]));
        assert!(text.contains("| failed |  | — | — | — | — |  |"), "{text}");
    }
}

//! The whole run in one line for each experiment: what was measured when, what is void, where others were on the device.
//!
//! Plain SVG: it needs no script and no data of its own.

use std::fmt::Write as _;

use fathom_telemetry::FlagCode;
use fathom_telemetry::schema::{Job, Run};

use super::Page;
use super::escape::Esc;
use crate::format;
use crate::text::{capital, human};

/// Experiments that get a line; a run of more shows its first.
const LINES: usize = 12;
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const LINE: f64 = 20.0;

/// The timeline; nothing for runs whose jobs have no place in time, or of one job.
pub(super) fn timeline(page: &mut Page, run: &Run) {
    let end = |j: &Job| j.start_ns.saturating_add(j.wall_ns);
    let last = run.jobs.iter().map(end).max().unwrap_or(0) as f64;
    let first = run.jobs.iter().map(|j| j.start_ns).min().unwrap_or(0) as f64;
    if run.jobs.len() < 2 || last <= first {
        return;
    }
    let mut lines: Vec<&str> = Vec::new();
    for j in &run.jobs {
        if !lines.contains(&j.experiment.as_str()) {
            lines.push(&j.experiment);
        }
    }
    lines.truncate(LINES);
    let at = |ns: f64| LEFT + (ns - first) / (last - first) * (WIDTH - LEFT);
    let height = LINE * lines.len() as f64 + 22.0;
    let mut svg = format!(
        "<figure class=\"timeline\"><figcaption><span class=\"title\">The whole run: {}</span></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"When each experiment measured\">\n",
        format::wall((last - first) as u64)
    );
    for (i, line) in lines.iter().enumerate() {
        let name = if line.is_empty() { "jobs" } else { line };
        let y = LINE * i as f64;
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{:.0}\">{}</text>",
            y + 14.0,
            Esc(&capital(&human(name)).replace("Iops", "IOPS"))
        );
        for j in run.jobs.iter().filter(|j| j.experiment == *line) {
            let x = at(j.start_ns as f64);
            let others = j.flags.iter().any(|f| f.code == FlagCode::ForeignIo);
            let class = match (
                j.is_void(),
                others,
                j.flags.iter().any(|f| !f.code.describes()),
            ) {
                (true, _, _) => "void",
                (_, true, _) => "others",
                (_, _, true) => "flagged",
                _ => "clean",
            };
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"14\"><title>{}</title></rect>",
                y + 3.0,
                (at(end(j) as f64) - x - 0.6).max(1.2),
                Esc(&j.name)
            );
        }
    }
    for i in 0..=4 {
        let share = f64::from(i) / 4.0;
        let anchor = ["start", "middle", "middle", "middle", "end"][i as usize];
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
            LEFT + share * (WIDTH - LEFT),
            height - 4.0,
            if i == 0 {
                "0".to_owned()
            } else {
                format::wall((share * (last - first)) as u64)
            }
        );
    }
    svg.push_str("</svg><p class=\"muted key\"><i class=\"clean\"></i> every check passed <i class=\"flagged\"></i> flagged <i class=\"others\"></i> others used the device <i class=\"void\"></i> void</p></figure>\n");
    page.push(&svg);
}

//! The screen: a summary that fits one, and the full figures of each job.
//!
//! Knows neither standard output nor whether it is a terminal: the binary
//! passes a [`Screen`].

mod jobs;
mod summary;

pub(crate) use jobs::{cpu_per_io, delivered, directions, ns, seen};
pub use jobs::{job_detail, job_table, jobs};
pub use summary::{Whereabouts, conclusion, summary};
pub(crate) use summary::{extra_label, extra_names, groups};

use fathom_telemetry::schema::Run;
use fathom_telemetry::{Flag, FlagCode};

use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::output::{Output, written};
use crate::stamp::Stamp;
use crate::text::{Paint, Screen, clean, wrap};

/// `report.txt`: summary and jobs, 100 columns, no colour.
pub(crate) struct Terminal;

impl Exporter for Terminal {
    fn name(&self) -> &'static str {
        "terminal"
    }
    fn about(&self) -> &'static str {
        "the summary and every job as plain text (report.txt)"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        let screen = Screen::plain(100);
        let whereabouts = Whereabouts {
            run_directory: data.dir.as_deref(),
            report: None,
        };
        let text = format!(
            "{}\n{}",
            summary(&data.run, &screen, &whereabouts),
            jobs(&data.run, &screen)
        );
        out.file("report.txt", &mut |w| {
            written("report.txt", w.write_all(text.as_bytes()))
        })
    }
}

/// The first lines: what was run on what. A simulated run is stamped here.
fn title(run: &Run, screen: &Screen) -> String {
    let mut line = format!(
        "fathom {} · {}",
        clean(&run.command),
        clean(run.target.place())
    );
    if !run.target.description.is_empty() {
        line.push_str(&format!(" ({})", clean(&run.target.description)));
    }
    let mut out = screen.paint(Paint::Bold, &wrap(&line, screen.width - 2, 2));
    out.push('\n');
    out.push_str(&stamp(run, screen));
    out
}

/// The line that every output of a simulated or emulated run carries; empty for real ones.
pub fn stamp(run: &Run, screen: &Screen) -> String {
    match Stamp::of(run) {
        Some(stamp) => screen.paint(Paint::Yellow, stamp.sentence) + "\n",
        None => String::new(),
    }
}

/// Flags as a colleague would say them: what was seen, then what to try. Equal ones are said once.
fn flag_lines(flags: &[NumberedFlag<'_>], screen: &Screen) -> String {
    let mut out = String::new();
    for f in flags {
        let mark = format!("[{}]", f.number);
        let indent = 2 + mark.len() + 1;
        let paint = if f.flag.void {
            Paint::Red
        } else {
            Paint::Yellow
        };
        let mut text = sentence(&clean(&f.flag.detail));
        if f.flag.void {
            text.push_str(" Not usable.");
        }
        if !f.similar.is_empty() {
            text.push_str(&format!(" ({} more like it.)", f.similar.len()));
        }
        if !f.flag.remedy.is_empty() {
            text.push_str(&format!(" Try: {}", sentence(&clean(&f.flag.remedy))));
        }
        out.push_str(&format!(
            "  {} {}\n",
            screen.paint(paint, &mark),
            wrap(&text, screen.width.saturating_sub(indent), indent),
        ));
    }
    out
}

/// A gain with its interval, in words: `25 %, 21 to 29 %`; `None` where none was measured.
pub(crate) fn gain(f: &fathom_telemetry::schema::Finding) -> Option<String> {
    let g = f.gain?;
    let percent = |v: f64| {
        let p = 100.0 * v;
        if p.abs() < 10.0 {
            format!("{p:.1}")
        } else {
            format!("{p:.0}")
        }
    };
    let interval = g.low.zip(g.high).map_or_else(String::new, |(low, high)| {
        format!(", {} to {} %", percent(low), percent(high))
    });
    Some(format!("{} %{interval}", percent(g.value)))
}

/// A sentence ends with a full stop, also where its author forgot it.
pub(crate) fn sentence(text: &str) -> String {
    let t = text.trim();
    if t.is_empty() || t.ends_with(['.', '!', '?', ':']) {
        t.to_owned()
    } else {
        format!("{t}.")
    }
}

/// A flag with the number of its footnote.
struct NumberedFlag<'a> {
    number: usize,
    flag: &'a Flag,
    /// Other figures of the same kind.
    similar: Vec<&'a str>,
}

/// Footnotes: every flag once, in order of appearance; flags that differ only in their figures
/// share a note.
#[derive(Default)]
struct Notes<'a> {
    flags: Vec<NumberedFlag<'a>>,
}

impl<'a> Notes<'a> {
    /// The numbers of the notes that these flags get, as `[1,2]`; empty for none.
    fn marks(&mut self, flags: &'a [Flag]) -> String {
        let mut numbers: Vec<usize> = flags
            .iter()
            .filter(|f| f.code != FlagCode::Simulated)
            .map(|f| self.number(f))
            .collect();
        numbers.dedup();
        if numbers.is_empty() {
            return String::new();
        }
        let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        format!("[{}]", list.join(","))
    }

    fn number(&mut self, flag: &'a Flag) -> usize {
        let known = self.flags.iter_mut().find(|n| {
            n.flag.code == flag.code && n.flag.void == flag.void && n.flag.remedy == flag.remedy
        });
        if let Some(n) = known {
            let detail = flag.detail.as_str();
            if n.flag.detail != detail && !n.similar.contains(&detail) {
                n.similar.push(detail);
            }
            return n.number;
        }
        let number = self.flags.len() + 1;
        self.flags.push(NumberedFlag {
            number,
            flag,
            similar: Vec::new(),
        });
        number
    }
}

//! Progress on standard error: a live line on a terminal (or the full-screen view), nothing otherwise.

use std::io::IsTerminal;

use fathom_experiments::survey::Watcher;
use fathom_io::driver::Progress;
use fathom_telemetry::{Bytes, Nanos};
use indicatif::{ProgressBar, ProgressStyle};

use crate::view;

/// A line that shows where a run stands.
pub(crate) struct Line {
    bar: ProgressBar,
    length: u64,
    last: Progress,
    name: String,
}

impl Line {
    /// `length` in steps of the bar (milliseconds or jobs); 0 for a spinner.
    pub(crate) fn new(length: u64) -> Self {
        let bar = if view::shown() {
            view::position(0, length);
            ProgressBar::hidden()
        } else if std::io::stderr().is_terminal() {
            let bar = if length > 0 {
                ProgressBar::new(length)
            } else {
                ProgressBar::new_spinner()
            };
            let template = if length > 0 {
                "{bar:24.cyan/dim} {msg}"
            } else {
                "{spinner} {msg}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar
        } else {
            ProgressBar::hidden()
        };
        Self {
            bar,
            length,
            last: Progress::default(),
            name: String::new(),
        }
    }

    /// Names what is running now.
    pub(crate) fn name(&mut self, name: &str) {
        self.name = name.to_owned();
        view::name(name);
        self.last = Progress::default();
    }

    /// Shows live figures since the last call.
    pub(crate) fn show(&mut self, p: &Progress) {
        if self.bar.is_hidden() {
            return;
        }
        let seconds = p.elapsed.since(self.last.elapsed).as_secs_f64();
        if seconds > 0.0 {
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let iops = rate(p.ios, self.last.ios);
            let bandwidth = rate(p.bytes, self.last.bytes);
            let p99 = p.p99.map(|n| format!("  p99 {n}")).unwrap_or_default();
            self.bar.set_message(format!(
                "{:<22} {}  {:.0} MB/s{p99}",
                self.name,
                si(iops) + " IOPS",
                bandwidth / 1e6
            ));
        }
        self.last = *p;
    }

    /// Moves the bar.
    pub(crate) fn position(&self, at: u64) {
        self.bar.set_position(at);
        view::position(at, self.length);
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn si(v: f64) -> String {
    match v {
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// Shows a survey.
pub(crate) struct SurveyLine {
    line: Line,
    fill: Bytes,
}

impl SurveyLine {
    /// For `jobs` jobs and a scratch file of `fill` bytes.
    pub(crate) fn new(jobs: u32, fill: Bytes) -> Self {
        Self {
            line: Line::new(u64::from(jobs)),
            fill,
        }
    }
    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.line.clear();
    }
}

impl Watcher for SurveyLine {
    fn filling(&mut self, p: &Progress) {
        let share = (100 * p.bytes).checked_div(self.fill.0).unwrap_or(0);
        self.line.name = format!("filling {share} %");
        view::name(&self.line.name);
        self.line.show(p);
    }
    fn job(&mut self, done: u32, of: u32, name: &str) {
        self.line.position(u64::from(done));
        self.line.name(&format!("{}/{of} {name}", done + 1));
    }
    fn progress(&mut self, p: &Progress) {
        self.line.show(p);
    }
}

/// Shows a group of jobs that takes `time` in all.
pub(crate) fn group(time: Nanos) -> Line {
    Line::new(time.0 / 1_000_000)
}

//! Progress on standard error: a live line on a terminal (or the full-screen view), elsewhere a plain line now
//! and then.

use std::io::IsTerminal;

use fathom_bench::progress::ProgressSink;
use fathom_io::clock::monotonic;
use fathom_io::driver::Progress;
use fathom_telemetry::schema::Headline;
use fathom_telemetry::{Bytes, Nanos, say};
use indicatif::{ProgressBar, ProgressStyle};

use crate::view;

/// When plain lines are written: rarely enough for a log, and never in a short run.
struct Plain {
    begun: Nanos,
    next: Nanos,
}

impl Plain {
    const FIRST: Nanos = Nanos::from_secs(5);
    const APART_MAX: Nanos = Nanos::from_secs(60);

    fn new(now: Nanos) -> Self {
        Self {
            begun: now,
            next: now + Self::FIRST,
        }
    }

    /// Whether it is time for a line: after 5 s, then 10, 20, 40, and from then on every minute.
    fn due(&mut self, now: Nanos) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + now.since(self.begun).min(Self::APART_MAX);
        }
        due
    }
}

/// A line that shows where a run stands.
pub(crate) struct Line {
    bar: ProgressBar,
    /// Where there is no terminal.
    plain: Option<Plain>,
    length: u64,
    last: Progress,
    name: String,
}

impl Line {
    /// `length` in steps of the bar (milliseconds or jobs); 0 for a spinner.
    pub(crate) fn new(length: u64) -> Self {
        let mut plain = None;
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
            plain = Some(Plain::new(monotonic()));
            ProgressBar::hidden()
        };
        Self {
            bar,
            plain,
            length,
            last: Progress::default(),
            name: String::new(),
        }
    }

    /// On a terminal only, as other programs' scripts expect it.
    pub(crate) fn without_plain(mut self) -> Self {
        self.plain = None;
        self
    }

    /// Names what is running now.
    pub(crate) fn name(&mut self, name: &str) {
        self.name = name.to_owned();
        view::name(name);
        self.last = Progress::default();
    }

    /// Shows live figures since the last call.
    pub(crate) fn show(&mut self, p: &Progress) {
        if self.bar.is_hidden() && self.plain.is_none() {
            return;
        }
        let seconds = p.elapsed.since(self.last.elapsed).as_secs_f64();
        if seconds > 0.0 {
            if self.plain.as_mut().is_some_and(|w| !w.due(monotonic())) {
                return;
            }
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let iops = rate(p.ios, self.last.ios);
            let bandwidth = rate(p.bytes, self.last.bytes);
            let p99 = p.p99.map(|n| format!("  p99 {n}")).unwrap_or_default();
            let text = format!(
                "{:<22} {}  {:.0} MB/s{p99}",
                self.name,
                si(iops) + " IOPS",
                bandwidth / 1e6
            );
            if self.plain.is_some() {
                let share = (100 * self.bar.position()).checked_div(self.length);
                let share = share.map(|s| format!("{s:>3} %  ")).unwrap_or_default();
                say!("{share}{text}");
            } else {
                self.bar.set_message(say::one_line(&text));
            }
        }
        self.last = *p;
    }

    /// Shows what is done that is no job, and how far it is.
    pub(crate) fn part(&mut self, what: &str, percent: f64) {
        self.name = format!("{what} {percent:.0} %");
        view::name(&self.name);
        match &mut self.plain {
            Some(plain) => {
                if plain.due(monotonic()) {
                    say!("{}", self.name);
                }
            }
            None => self.bar.set_message(say::one_line(&self.name)),
        }
    }

    /// Moves the bar.
    pub(crate) fn position(&self, at: u64) {
        self.bar.set_position(at);
        view::position(at, self.length);
    }

    /// More steps than were known at the start.
    fn extend(&mut self, length: u64) {
        self.length = length;
        self.bar.set_length(length);
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
    parts: Parts,
}

/// Where a run of several parts stands, each of which counts its own jobs from 0.
#[derive(Default)]
struct Parts {
    /// Jobs of the parts that are over.
    before: u32,
    done: u32,
    of: u32,
}

impl Parts {
    /// `done` of `of` jobs of a part are done; returns how many of how many of all, where
    /// `planned` were announced.
    fn at(&mut self, done: u32, of: u32, planned: u32) -> (u32, u32) {
        if planned == 0 {
            return (done, of);
        }
        if done <= self.done {
            self.before += self.of;
        }
        (self.done, self.of) = (done, of);
        (self.before + done, planned.max(self.before + of))
    }
}

impl SurveyLine {
    /// For `jobs` jobs and a scratch file of `fill` bytes.
    pub(crate) fn new(jobs: u32, fill: Bytes) -> Self {
        Self {
            line: Line::new(u64::from(jobs)),
            fill,
            parts: Parts::default(),
        }
    }
    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.line.clear();
    }
}

impl ProgressSink for SurveyLine {
    fn filling(&mut self, p: &Progress) {
        let share = (100 * p.bytes).checked_div(self.fill.0).unwrap_or(0);
        self.line.name = format!("filling {share} %");
        view::name(&self.line.name);
        self.line.show(p);
    }
    fn purging(&mut self, by: &str, percent: f64) {
        self.line.part(&format!("purge by {by}"), percent);
    }
    fn job(&mut self, done: u32, of: u32, name: &str) {
        let (done, of) = self.parts.at(done, of, self.line.length as u32);
        if self.line.length > 0 {
            self.line.extend(u64::from(of));
        }
        self.line.position(u64::from(done));
        self.line.name(&format!("{}/{of} {name}", done + 1));
    }
    fn progress(&mut self, p: &Progress) {
        self.line.show(p);
    }
    fn so_far(&mut self, headlines: &dyn Fn() -> Vec<Headline>) {
        if view::shown() {
            view::headlines(headlines());
        }
    }
}

/// Shows a group of jobs that takes `time` in all.
pub(crate) fn group(time: Nanos) -> Line {
    Line::new(time.0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_become_rarer_up_to_one_a_minute() {
        let begun = Nanos::from_secs(1_000);
        let mut plain = Plain::new(begun);
        let written: Vec<u64> = (0..300)
            .filter(|s| plain.due(begun + Nanos::from_secs(*s)))
            .collect();
        assert_eq!(written, [5, 10, 20, 40, 80, 140, 200, 260]);
    }

    #[test]
    fn parts_that_count_from_nothing_are_counted_on() {
        let mut parts = Parts::default();
        let seen: Vec<(u32, u32)> = [(0, 1), (0, 2), (1, 2), (0, 2), (1, 2), (0, 4)]
            .map(|(done, of)| parts.at(done, of, 6))
            .into();
        assert_eq!(seen, [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 9)]);
        // Nothing was announced: what a part says of itself.
        assert_eq!(Parts::default().at(3, 4, 0), (3, 4));
    }
}

//! One screen from the model: text with styles, for any size; knows no terminal.

use fathom_report::{clean, format};
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{FlagCode, Nanos, SparseHistogram, histogram};

use super::model::{Model, RECENT, Slice};

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Strong,
    Soft,
    Warning,
    /// A heat map's cell, 0 (pale) to 7.
    Heat(u8),
    /// Marks on a heat map's axis and the curve above.
    Accent,
}

/// Pieces of a line.
pub(crate) type Line = Vec<(Style, String)>;

/// Smallest screen that is drawn on.
const WIDTH_MIN: usize = 50;
const HEIGHT_MIN: usize = 12;
/// From this width on words need not be short.
const WIDE: usize = 80;
/// Columns left of the heat map, for its axis.
const AXIS: usize = 9;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Lines besides head, map and lists, and the least that a map with lists below it has.
const FIXED: usize = 6;
const MAP_MIN: usize = 6;
/// Threads and disks that are listed, at most.
const THREADS_MAX: usize = 8;
const DISKS_MAX: usize = 3;
/// Loads that are over and listed, at most.
const DONE_MAX: usize = 10;

/// The screen, at most `height` lines of at most `width` letters.
pub(crate) fn screen(m: &Model, width: usize, height: usize) -> Vec<Line> {
    if width < WIDTH_MIN || height < HEIGHT_MIN {
        let text = format!("fathom needs {WIDTH_MIN} × {HEIGHT_MIN} letters here");
        return vec![vec![(Style::Plain, cut(&text, width))]];
    }
    let mut lines = vec![head(m, width), rule(width)];
    lines.push(rates(m));
    lines.push(percentiles(m, width));
    lines.push(Vec::new());
    let mut threads = threads(m, width);
    let disks = disks(m, width);
    // What is known so far says more than what each thread does now, and the run's numbers more than its loads.
    let room = height.saturating_sub(lines.len() + FIXED + MAP_MIN + disks.len());
    let done = match m.headlines.is_empty() {
        true => done(m, width, height),
        false => so_far(m, width, room),
    };
    let all = lines.len() + FIXED + threads.len() + disks.len() + done.len();
    if !done.is_empty() && (m.thread_count() < 2 || height < all + MAP_MIN) {
        threads.clear();
    }
    // The map takes what the lists leave; lists give way on a small screen.
    let fixed = lines.len() + FIXED;
    let lists = threads.len() + done.len() + disks.len();
    let room = height.saturating_sub(fixed + lists);
    let (map_rows, keep_lists) = if room >= MAP_MIN {
        (room, true)
    } else {
        (height.saturating_sub(fixed).max(4), false)
    };
    lines.push(curve(m, width));
    lines.extend(map(m, width, map_rows.min(28)));
    if keep_lists {
        lines.push(Vec::new());
        lines.extend(done);
        lines.extend(threads);
        lines.extend(disks);
    }
    lines.truncate(height - 1);
    while lines.len() < height - 1 {
        lines.push(Vec::new());
    }
    lines.push(keys(m));
    for line in &mut lines {
        fit(line, width);
    }
    lines
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Cuts a line to the width.
fn fit(line: &mut Line, width: usize) {
    let mut left = width;
    for (_, text) in line.iter_mut() {
        *text = cut(text, left);
        left -= text.chars().count();
    }
}

fn rule(width: usize) -> Line {
    vec![(Style::Soft, "─".repeat(width))]
}

fn head(m: &Model, width: usize) -> Line {
    let name = if m.name.is_empty() {
        let names: Vec<&str> = m.jobs.values().map(|j| j.name.as_str()).collect();
        clean(&names.join(", "))
    } else {
        clean(&m.name)
    };
    let elapsed = format!("{:.1} s", m.elapsed.as_secs_f64());
    let (at, of) = m.position;
    let bar = if of > 0 {
        let cells = if width < WIDE { 8 } else { 20 };
        let full = (at.min(of) as usize * cells).checked_div(of as usize);
        let full = full.unwrap_or(0);
        format!("{}{}", "━".repeat(full), "─".repeat(cells - full))
    } else {
        String::new()
    };
    let left = m
        .left()
        .map_or_else(String::new, |l| format!("  {} left", duration(l)));
    let right = format!("{elapsed}  {bar}{left}");
    // Of a long name its end gives way, not how far it is.
    let name = cut(&name, width.saturating_sub(10 + right.chars().count()));
    let used = 8 + name.chars().count() + right.chars().count();
    let gap = " ".repeat(width.saturating_sub(used).max(2));
    vec![
        (Style::Strong, "fathom  ".to_owned()),
        (Style::Plain, name),
        (Style::Plain, gap),
        (Style::Soft, right),
    ]
}

/// `40 s`, `3 min`.
fn duration(t: Nanos) -> String {
    match t.as_secs_f64() {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The run's numbers so far: the first ones that fit, and how many there are more.
fn so_far(m: &Model, width: usize, room: usize) -> Vec<Line> {
    let room = room.max(2);
    let all = m.headlines.len();
    let fit = if all > room { room - 1 } else { all };
    let label = width.saturating_sub(38).clamp(16, 36);
    // Flags stand in words where more than their beginning fits.
    let words = if width < 100 { 0 } else { width };
    let mut lines: Vec<Line> = Vec::new();
    for h in &m.headlines[..fit] {
        let (value, interval) = match &h.estimate {
            Some(e) => format::estimate_parts(e, &h.unit),
            None => (format::optional(None, &h.unit), String::new()),
        };
        let flags: Vec<FlagCode> = h.flags.iter().map(|f| f.code).collect();
        let void = h.flags.iter().any(|f| f.void);
        lines.push(vec![
            mark(void, &flags, "so far"),
            (
                Style::Plain,
                format!("{:<label$}", cut(&clean(&h.label), label)),
            ),
            (
                if void { Style::Soft } else { Style::Strong },
                format!("{value:>12}"),
            ),
            (Style::Soft, format!(" {interval:<16}")),
            (Style::Warning, against(&flags, words)),
        ]);
    }
    if all > fit {
        let more = format!("        {} more", all - fit);
        lines.push(vec![(Style::Soft, more)]);
    }
    lines
}

/// Loads that are over, with what they did: the last ones that fit.
fn done(m: &Model, width: usize, height: usize) -> Vec<Line> {
    let room = (height / 4).clamp(2, DONE_MAX);
    let name = width.saturating_sub(46).clamp(12, 40);
    let mut lines: Vec<Line> = Vec::new();
    for d in m.done.iter().skip(m.done.len().saturating_sub(room)) {
        let s = d.time.max(Nanos(1)).as_secs_f64();
        let rate = format::value(d.ios as f64 / s, "1/s").replace("/s", "");
        let verdict = m.verdict(d);
        let number = if verdict.void {
            Style::Soft
        } else {
            Style::Strong
        };
        lines.push(vec![
            mark(verdict.void, &verdict.flags, "done"),
            (
                Style::Plain,
                format!("{:<name$}", cut(&clean(&d.name), name)),
            ),
            (number, format!("{:>9} IOPS", rate.trim_end())),
            (
                Style::Plain,
                format!("{:>11}", format::value(d.bytes as f64 / s, "bytes/s")),
            ),
            (
                Style::Soft,
                format!("  p99 {}", percentile(&d.latency, 0.99)),
            ),
            (Style::Warning, against(&verdict.flags, width)),
        ]);
    }
    lines
}

/// Whether something stands against a number; as wide as `clear`: a narrow screen has it, too.
fn mark(void: bool, flags: &[FlagCode], clear: &str) -> (Style, String) {
    let (style, word) = match (void, flags.is_empty()) {
        (true, _) => (Style::Warning, "void"),
        (false, false) => (Style::Warning, "flag"),
        (false, true) => (Style::Soft, clear),
    };
    (style, format!(" {word:<w$} ", w = clear.len()))
}

/// What stands against a load, in words where there is room.
fn against(flags: &[FlagCode], width: usize) -> String {
    if flags.is_empty() || width < WIDE {
        return String::new();
    }
    let names: Vec<String> = flags.iter().map(|f| f.name().replace('-', " ")).collect();
    format!("  {}", names.join(", "))
}

fn keys(m: &Model) -> Line {
    let mut line = vec![(
        Style::Soft,
        " p pause the view   q end early and keep the results".to_owned(),
    )];
    if m.paused {
        line.insert(
            0,
            (Style::Warning, " PAUSED, measuring goes on ".to_owned()),
        );
    }
    if m.ending {
        line.insert(0, (Style::Warning, " ENDING … ".to_owned()));
    }
    line
}

fn seconds(m: &Model) -> f64 {
    m.slice.max(Nanos(1)).as_secs_f64()
}

fn rates(m: &Model) -> Line {
    let Some(now) = m.now() else {
        return vec![(Style::Soft, "waiting for the first window".to_owned())];
    };
    let s = seconds(m);
    let rate = |n: u64| format::value(n as f64 / s, "1/s").replace("/s", "");
    let mut line = vec![
        (
            Style::Strong,
            format!("{:>9} IOPS", rate(now.ios).trim_end()),
        ),
        (
            Style::Strong,
            format!("   {:>10}", format::value(now.bytes as f64 / s, "bytes/s")),
        ),
    ];
    if now.reads > 0 && now.reads < now.ios {
        let share = 100.0 * now.reads as f64 / now.ios as f64;
        line.push((Style::Soft, format!("   {share:.0} % reads")));
    }
    let errors: u64 = m.current().map(|s| s.errors).sum();
    if errors > 0 {
        line.push((Style::Warning, format!("   {errors} failed")));
    }
    line
}

fn percentiles(m: &Model, width: usize) -> Line {
    let mut recent = SparseHistogram::default();
    let columns = RECENT.0.div_ceil(m.slice.0.max(1)) as usize;
    for s in m.current().rev().take(columns) {
        recent.merge(&s.latency);
    }
    if recent.moments.count == 0 {
        return vec![(Style::Soft, "no I/O completed".to_owned())];
    }
    let gap = if width < WIDE { " " } else { "   " };
    let mut line = match width < WIDE {
        true => Vec::new(),
        false => vec![(Style::Soft, format!("{:>9}", m.kind()))],
    };
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        line.push((Style::Soft, format!("{gap}{name} ")));
        line.push((Style::Strong, percentile(&recent, q)));
    }
    line.push((Style::Soft, format!("{gap}max ")));
    line.push((Style::Strong, latency(Some(recent.moments.max))));
    line
}

/// A percentile; a dash where fewer than ten samples lie beyond it, as everywhere.
fn percentile(h: &SparseHistogram, q: f64) -> String {
    latency(h.quantile_supported(q, SAMPLES_BEYOND))
}

fn latency(ns: Option<u64>) -> String {
    format::optional(ns.map(|v| v as f64), "ns")
}

/// The columns that fit, the newest at the right; holes where nothing completed.
fn columns(m: &Model, width: usize) -> Vec<Option<&Slice>> {
    let n = width.saturating_sub(AXIS).max(1) as u64;
    let Some(last) = m.slices.back() else {
        return Vec::new();
    };
    let first = (last.index + 1).saturating_sub(n);
    let mut slices = m.slices.iter().skip_while(|s| s.index < first).peekable();
    (first..=last.index)
        .map(|i| slices.next_if(|s| s.index == i))
        .collect()
}

fn curve(m: &Model, width: usize) -> Line {
    let columns = columns(m, width);
    let most = columns.iter().flatten().map(|s| s.ios).max().unwrap_or(0);
    let text: String = columns
        .iter()
        .map(|c| match c {
            Some(s) if most > 0 => BARS[(s.ios * 7).div_ceil(most).min(7) as usize],
            _ => ' ',
        })
        .collect();
    vec![
        (Style::Soft, format!("{:>w$} ", "IOPS", w = AXIS - 1)),
        (Style::Accent, text),
    ]
}

/// Time × latency: how many I/Os of a moment took how long.
fn map(m: &Model, width: usize, rows: usize) -> Vec<Line> {
    let columns = columns(m, width);
    let with: Vec<&SparseHistogram> = columns
        .iter()
        .flatten()
        .map(|s| &s.latency)
        .filter(|h| h.moments.count > 0)
        .collect();
    let low = with.iter().map(|h| h.moments.min).min().unwrap_or(1).max(1);
    let high = with.iter().map(|h| h.moments.max).max().unwrap_or(2);
    let (low, high) = ((low as f64).ln(), (high as f64).ln());
    // At least an octave, so that a constant latency is a line and not a wall.
    let step = ((high - low) / rows as f64).max(std::f64::consts::LN_2 / rows as f64) * 1.000_001;
    let mut counts = vec![vec![0u64; columns.len()]; rows];
    for (x, column) in columns.iter().enumerate() {
        let Some(s) = column else { continue };
        for &(bucket, n) in &s.latency.buckets {
            let bucket = bucket as usize;
            let middle =
                histogram::lower_bound(bucket) as f64 + (histogram::width(bucket) - 1) as f64 / 2.0;
            let row = ((middle.max(1.0).ln() - low) / step).max(0.0) as usize;
            counts[row.min(rows - 1)][x] += n;
        }
    }
    let most = counts.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
    let labelled = (rows / 4).max(1);
    (0..rows)
        .rev()
        .map(|row| {
            let label = if row % labelled == 0 {
                latency(Some((low + step * row as f64).exp() as u64))
            } else {
                String::new()
            };
            let mut line = vec![(Style::Soft, format!("{label:>w$} ", w = AXIS - 1))];
            for n in &counts[row] {
                let style = match n {
                    0 => Style::Plain,
                    // Logarithmic: the one slow I/O among a million is what one looks for.
                    n => Style::Heat((1.0 + 6.0 * (*n as f64).ln() / most.ln().max(1e-9)) as u8),
                };
                let style = match style {
                    Style::Heat(h) => Style::Heat(h.min(7)),
                    other => other,
                };
                match line.last_mut() {
                    Some((last, text)) if *last == style => text.push(cell(style)),
                    _ => line.push((style, cell(style).to_string())),
                }
            }
            line
        })
        .collect()
}

/// A cell's letter: density without colour.
fn cell(style: Style) -> char {
    match style {
        Style::Heat(0..=1) => '·',
        Style::Heat(2..=3) => '░',
        Style::Heat(4..=5) => '▒',
        Style::Heat(6) => '▓',
        Style::Heat(_) => '█',
        _ => ' ',
    }
}

fn threads(m: &Model, width: usize) -> Vec<Line> {
    if m.threads.is_empty() {
        return Vec::new();
    }
    let hosts = m.threads.values().any(|t| t.host.is_some());
    let (one, column) = match hosts {
        true => ("host", width.saturating_sub(50).clamp(9, 24)),
        false => ("thread", 9),
    };
    let mut lines = vec![vec![(
        Style::Soft,
        format!(
            "{one:>column$}{:>12}{:>13}{:>12}{:>12}",
            "IOPS", "bandwidth", "p50", "p99"
        ),
    )]];
    let most = m.threads.values().map(|t| t.iops).fold(1.0, f64::max);
    let mut all: Vec<_> = m.threads.iter().collect();
    let total = m.thread_count().max(all.len());
    if hosts || total > THREADS_MAX {
        // The slowest tell most.
        all.sort_by(|a, b| a.1.iops.total_cmp(&b.1.iops));
        all.truncate(THREADS_MAX);
    }
    for ((job, thread), t) in all {
        // Several jobs at once: thread 0 of the second one is 1.0.
        let number = match (&t.host, m.jobs.len()) {
            (Some(host), 0 | 1) => clean(host),
            (Some(host), _) => format!("{job}.{}", clean(host)),
            (None, 0 | 1) => thread.to_string(),
            (None, _) => format!("{job}.{thread}"),
        };
        let number = cut(&number, column.saturating_sub(1));
        let recent = t.latency();
        let room = width.saturating_sub(53 + column).min(30);
        let bar = "▪".repeat((room as f64 * t.iops / most) as usize);
        lines.push(vec![
            (
                Style::Plain,
                format!(
                    "{number:>column$}{:>12}{:>13}{:>12}{:>12}  ",
                    format::value(t.iops, "1/s").replace("/s", "").trim_end(),
                    format::value(t.bytes_per_second, "bytes/s"),
                    percentile(&recent, 0.5),
                    percentile(&recent, 0.99),
                ),
            ),
            (Style::Accent, bar),
        ]);
    }
    if total > THREADS_MAX {
        lines.push(vec![(
            Style::Soft,
            format!("{:>column$} more {one}s, all faster", total - THREADS_MAX),
        )]);
    }
    lines
}

fn disks(m: &Model, width: usize) -> Vec<Line> {
    m.shown_disks()
        .into_iter()
        .take(DISKS_MAX)
        .map(|d| {
            if width < WIDE {
                let text = format!(
                    "{:>9} {} r/s {} w/s {} {:.0} % busy",
                    cut(&d.name, 9),
                    format::grouped(d.reads_per_second as u64),
                    format::grouped(d.writes_per_second as u64),
                    format::value(d.bytes_per_second, "bytes/s"),
                    100.0 * d.busy
                );
                return vec![(Style::Soft, text)];
            }
            vec![(
                Style::Soft,
                format!(
                    "{:>9}  {} reads/s  {} writes/s  {}  {} in flight  {:.0} % busy",
                    d.name,
                    format::grouped(d.reads_per_second as u64),
                    format::grouped(d.writes_per_second as u64),
                    format::value(d.bytes_per_second, "bytes/s"),
                    d.in_flight,
                    100.0 * d.busy
                ),
            )]
        })
        .collect()
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;

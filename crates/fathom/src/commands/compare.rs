//! `fathom compare`: two runs side by side, or the history of several.

use std::fmt::Write;
use std::path::Path;

use fathom_experiments::compare::{
    CONDITIONS, Comparison, History, HostPart, Mismatch, Row, Weight, WindowSource, change,
    compare as compare_runs, history, relative,
};
use fathom_report::{clean, format, markdown_text as escape, markup};
use fathom_stats::Estimate;
use fathom_stats::compare::Verdict;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::Run;
use fathom_telemetry::series::{FILE_NAME, SeriesReader};

use super::shopping::columns;
use crate::cli::CompareArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, REFUSED, refused};
use crate::screen;

/// A run and its windows.
type Opened = (Run, Box<dyn WindowSource>);

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    for name in &args.allow {
        if !CONDITIONS.iter().any(|c| c.0 == name) {
            let known: Vec<&str> = CONDITIONS.iter().map(|c| c.0).collect();
            return Err(refused(anyhow::anyhow!(
                "--allow {name}: no such condition; expected one of {}",
                known.join(", ")
            )));
        }
    }
    let threshold = percent(&args.threshold)?;
    let runs = runs(args)?;
    if args.junit && (args.devices || runs.len() != 2) {
        return Err(refused(anyhow::anyhow!(
            "--junit: expected two runs, or one and --baseline NAME: a test is better or worse than before"
        )));
    }
    match &runs[..] {
        all if args.devices => super::shopping::devices(args, all),
        [a, b] => two(args, threshold, a, b),
        all => several(args, threshold, all),
    }
}

/// The runs that were named, the baseline first.
fn runs(args: &CompareArgs) -> Result<Vec<Opened>, Failure> {
    let mut paths = args.runs.clone();
    if let Some(name) = args.baseline.as_ref().filter(|_| !args.devices) {
        paths.insert(0, super::runs::baseline(name, &args.runs[0])?);
    }
    if paths.len() < 2 && args.vs.is_none() {
        return Err(refused(anyhow::anyhow!(
            "one run is nothing to compare: expected two or more, --baseline NAME, or --devices with --vs PAPER"
        )));
    }
    let open = |path| {
        let (dir, run) = RunDir::open(path).map_err(refused)?;
        Ok((run, windows(dir.path())))
    };
    paths.iter().map(|path| open(path)).collect()
}

/// Two runs side by side.
fn two(args: &CompareArgs, threshold: f64, (a, wa): &Opened, (b, wb): &Opened) -> Outcome {
    let c = compare_runs(a, b, [wa.as_ref(), wb.as_ref()], &args.allow);
    let text = if args.json {
        serde_json::to_string_pretty(&c).map_err(refused)? + "\n"
    } else if args.markdown {
        markdown(&c, threshold)
    } else if args.junit {
        junit(&c, threshold)
    } else {
        terminal(&c, args.jobs, threshold)
    };
    screen::print(&text);
    if c.refused {
        let refusing = c.mismatches.iter();
        let allow: Vec<String> = refusing
            .filter(|m| m.weight == Weight::Refuses)
            .map(|m| format!("--allow {}", m.condition))
            .collect();
        say!(
            "fathom: not compared, because the conditions differ; where you know why, add {}",
            allow.join(" ")
        );
        return Ok(REFUSED);
    }
    let worse = c.worse(threshold).next().is_some();
    Ok(match (worse, c.overall) {
        (true, _) => FAILED,
        (false, Verdict::NotComparable) => {
            say!("fathom: nothing could be compared; the notes say why");
            REFUSED
        }
        _ => DONE,
    })
}

/// The history of several.
fn several(args: &CompareArgs, threshold: f64, runs: &[Opened]) -> Outcome {
    let with: Vec<(&Run, &dyn WindowSource)> = runs.iter().map(|(r, w)| (r, w.as_ref())).collect();
    let h = history(&with, &args.allow);
    let text = match args.json {
        true => serde_json::to_string_pretty(&h).map_err(refused)? + "\n",
        false => history_text(&h, args.markdown),
    };
    screen::print(&text);
    if let Some((i, m)) = h.mismatches.iter().find(|m| m.1.weight == Weight::Refuses) {
        say!(
            "fathom: run {} does not belong to this history: {}; where you know why, add --allow {}",
            i + 1,
            m.sentence("before", "now"),
            m.condition
        );
        return Ok(REFUSED);
    }
    // The last change decides: what was worse once and is better now is no failure.
    let worse = h.traces.iter().any(|t| {
        t.moves
            .last()
            .is_some_and(|m| m.verdict == Verdict::Worse && m.relative.abs() >= threshold)
    });
    Ok(if worse { FAILED } else { DONE })
}

/// The windows of a run. Without a series, jobs that were not repeated have no interval, which their row
/// says.
pub(super) fn windows(run: &Path) -> Box<dyn WindowSource> {
    match SeriesReader::open(&run.join(FILE_NAME)) {
        Ok(series) => Box::new(series),
        Err(_) => Box::new(()),
    }
}

/// `2%`, `2` → 0.02.
pub(super) fn percent(text: &str) -> Result<f64, Failure> {
    text.trim()
        .trim_end_matches('%')
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|v| (0.0..1000.0).contains(v))
        .map(|v| v / 100.0)
        .ok_or_else(|| {
            refused(anyhow::anyhow!(
                "--threshold {text}: expected percent, such as 2%"
            ))
        })
}

pub(super) fn shown(e: Option<&Estimate>, unit: &str) -> String {
    e.map_or_else(|| "–".into(), |e| format::estimate(e, unit))
}

pub(super) fn words(r: &Row) -> String {
    let doubt = !r.holds && matches!(r.verdict, Verdict::Better | Verdict::Worse);
    format!(
        "{}{}",
        r.verdict.words(),
        if doubt { " (may be chance)" } else { "" }
    )
}

fn cells(r: &Row) -> Vec<String> {
    vec![
        clean(&r.label),
        shown(r.a.as_ref(), &r.unit),
        shown(r.b.as_ref(), &r.unit),
        relative(r.difference.as_ref().map(|d| &d.relative)),
        words(r),
        clean(&r.notes.join("; ")),
    ]
}

const HEAD: [&str; 6] = ["", "A", "B", "B against A (95 %)", "verdict", ""];

/// What differs between A and the run called `other`.
pub(super) fn conditions(mismatches: &[Mismatch], other: char) -> Vec<String> {
    let there = format!("in {other}");
    let mut out: Vec<String> = mismatches
        .iter()
        .map(|m| clean(&m.sentence("in A", &there)))
        .collect();
    if mismatches.len() > 1 {
        out.push(format!(
            "{} conditions differ at once: a difference below has no single cause",
            mismatches.len()
        ));
    }
    out
}

/// The sentence at the end.
fn summary(c: &Comparison, threshold: f64) -> String {
    let count = |v| c.rows.iter().filter(|r| r.verdict == v && r.holds).count();
    let mean = c.geometric_mean.map_or_else(String::new, |g| {
        format!(" Geometric mean: {:.3} × (above 1 is better).", g)
    });
    let worse: Vec<String> = c.worse(threshold).map(|r| clean(&r.label)).collect();
    let worse = if worse.is_empty() {
        "Nothing got worse that holds.".to_owned()
    } else {
        format!("Worse: {}.", worse.join("; "))
    };
    format!(
        "{}: {} better, {} worse of {} metrics looked at together; single ones would differ by chance {:.1} times.{mean} {worse}",
        c.overall.words(),
        count(Verdict::Better),
        count(Verdict::Worse),
        c.rows.len(),
        c.expected_false_alarms
    )
}

fn terminal(c: &Comparison, jobs: bool, threshold: f64) -> String {
    let mut out = format!("A  {}\nB  {}\n", clean(&c.a), clean(&c.b));
    for line in conditions(&c.mismatches, 'B') {
        let _ = writeln!(out, "!  {line}");
    }
    let mut table = vec![HEAD.map(str::to_owned).to_vec()];
    table.extend(c.rows.iter().map(cells));
    if jobs {
        table.extend(c.jobs.iter().map(cells));
    }
    let _ = write!(out, "\n{}\n", columns(&table));
    if !c.hosts.is_empty() {
        let _ = writeln!(out, "{}", columns(&hosts(c)));
    }
    let _ = writeln!(out, "{}", summary(c, threshold));
    out
}

/// What each host did of the whole.
fn hosts(c: &Comparison) -> Vec<Vec<String>> {
    let head = ["host", "share in A", "in B", "slowest windows in A", "in B"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for row in &c.hosts {
        let none = || "–".to_owned();
        let share =
            |p: &Option<HostPart>| p.map_or_else(none, |p| format!("{:.1} %", 100.0 * p.share));
        let slowest = |p: &Option<HostPart>| p.map_or_else(none, |p| p.slowest_windows.to_string());
        table.push(vec![
            clean(&row.host),
            share(&row.a),
            share(&row.b),
            slowest(&row.a),
            slowest(&row.b),
        ]);
    }
    table
}

fn markdown(c: &Comparison, threshold: f64) -> String {
    let mut out = format!(
        "**{}**\n\nA: {}<br>B: {}\n\n",
        escape(&summary(c, threshold)),
        escape(&c.a),
        escape(&c.b)
    );
    for line in conditions(&c.mismatches, 'B') {
        let _ = writeln!(out, "- ⚠ {}", escape(&line));
    }
    out += "\n| metric | A | B | B against A (95 %) | verdict | notes |\n| --- | ---: | ---: | ---: | --- | --- |\n";
    for r in &c.rows {
        let cells: Vec<String> = cells(r).iter().map(|t| escape(t)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    if let [head, rows @ ..] = &hosts(c)[..]
        && !rows.is_empty()
    {
        let line = |row: &[String]| {
            format!(
                "| {} |\n",
                row.iter()
                    .map(|t| escape(t))
                    .collect::<Vec<_>>()
                    .join(" | ")
            )
        };
        let _ = write!(out, "\n{}| --- | ---: | ---: | ---: | ---: |\n", line(head));
        rows.iter().for_each(|row| out += &line(row));
    }
    out
}

fn history_text(h: &History, markdown: bool) -> String {
    let mut out = String::new();
    let name = if markdown { escape } else { clean };
    for (i, run) in h.runs.iter().enumerate() {
        let _ = writeln!(out, "{}  {}", i + 1, name(run));
        for (_, m) in h.mismatches.iter().filter(|m| m.0 == i) {
            let _ = writeln!(out, "   !  {}", name(&m.sentence("before", "now")));
        }
    }
    let mut head = vec![String::new()];
    head.extend((1..=h.runs.len()).map(|i| i.to_string()));
    head.push("changes".into());
    let mut table = vec![head];
    for t in &h.traces {
        let mut row = vec![clean(&t.label)];
        let why = |i: usize| t.why.get(i).cloned().flatten().unwrap_or_default();
        row.extend(t.values.iter().enumerate().map(|(i, v)| match v {
            Some(v) => format::estimate(v, &t.unit),
            None => clean(&why(i)),
        }));
        let moves: Vec<String> = t
            .moves
            .iter()
            .map(|m| {
                format!(
                    "{} at {} ({})",
                    change(m.relative),
                    m.run + 1,
                    m.verdict.words()
                )
            })
            .collect();
        row.push(moves.join("; "));
        table.push(row);
    }
    out.push('\n');
    if markdown {
        for (i, row) in table.iter().enumerate() {
            let row: Vec<String> = row.iter().map(|t| escape(t)).collect();
            let _ = writeln!(out, "| {} |", row.join(" | "));
            if i == 0 {
                let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
            }
        }
    } else {
        out += &columns(&table);
    }
    out
}

/// One suite: a failure for each metric that got worse by the threshold, a skip for what could not be compared, an error where nothing
/// was compared.
fn junit(c: &Comparison, threshold: f64) -> String {
    let worse: Vec<&Row> = c.worse(threshold).collect();
    // Where nothing was compared no test may look passed.
    let nothing = c.refused || c.overall == Verdict::NotComparable;
    let skipped = |r: &&Row| r.verdict == Verdict::NotComparable;
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuites><testsuite name=\"fathom compare\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
        c.rows.len() + usize::from(nothing),
        worse.len(),
        u8::from(nothing),
        c.rows.iter().filter(skipped).count()
    );
    let _ = writeln!(
        out,
        "  <properties><property name=\"a\" value=\"{}\"/><property name=\"b\" value=\"{}\"/></properties>",
        markup(&c.a),
        markup(&c.b)
    );
    if nothing {
        let mut why = conditions(&c.mismatches, 'B');
        why.push("nothing was compared".to_owned());
        let _ = writeln!(
            out,
            "  <testcase classname=\"fathom\" name=\"conditions\"><error message=\"{}\"/></testcase>",
            markup(&why.join("; "))
        );
    }
    for r in &c.rows {
        let _ = write!(
            out,
            "  <testcase classname=\"fathom\" name=\"{}\">",
            markup(&r.label)
        );
        let told = format!(
            "{} against {}: {}, {}. {}",
            shown(r.b.as_ref(), &r.unit),
            shown(r.a.as_ref(), &r.unit),
            relative(r.difference.as_ref().map(|d| &d.relative)),
            words(r),
            r.notes.join("; ")
        );
        let told = markup(told.trim());
        if worse.iter().any(|w| std::ptr::eq(*w, r)) {
            let _ = write!(out, "<failure message=\"{told}\"/>");
        } else if skipped(&r) {
            let _ = write!(out, "<skipped message=\"{told}\"/>");
        } else {
            let _ = write!(out, "<system-out>{told}</system-out>");
        }
        out.push_str("</testcase>\n");
    }
    out + "</testsuite></testsuites>\n"
}

//! What conditioning found: the course of the load, the verdict, burst and base, temperature, internal writes.

use fathom_stats::regimes::{Cause, Regimes};
use fathom_stats::steady::Verdict;
use fathom_telemetry::schema::{Cell, Finding, Mark, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode};

use super::recovery::Recovery;
use super::{ConditionOptions, Load};
use crate::notebook::Notebook;
use crate::parts::{axis, column, line_chart};

/// The course of the load, the verdict, and the two regimes where there are two.
pub(super) fn report(
    o: &ConditionOptions,
    load: &Load,
    found: Option<&Regimes>,
    recovery: Option<&Recovery>,
    book: &mut Notebook,
) {
    let Some(s) = &load.verdict else { return };
    let course = &load.course;
    let seconds = o.round.as_secs_f64();
    let (word, reasons) = match &s.verdict {
        Verdict::Steady => ("steady", Vec::new()),
        Verdict::NotSteady(r) => ("not steady", r.iter().map(|r| r.sentence()).collect()),
        Verdict::Undecided(r) => ("undecided", r.iter().map(|r| r.sentence()).collect()),
    };
    let points = course
        .iter()
        .enumerate()
        .map(|(i, v)| ((i + 1) as f64 * seconds, *v))
        .collect();
    let title = if word == "steady" {
        "Throughput of the load over time".to_owned()
    } else {
        format!("Throughput of the load over time: {word}")
    };
    let mut chart = line_chart(
        "condition-course",
        &title,
        axis("time", "s", false),
        axis("throughput", "bytes/s", false),
        vec![("load".into(), points)],
    );
    let mut rows = vec![vec![
        Cell::Text("fathom's verdict".into()),
        Cell::Text(word.into()),
    ]];
    let mut row =
        |name: &str, text: String| rows.push(vec![Cell::Text(name.into()), Cell::Text(text)]);
    row("rounds", course.len().to_string());
    row(
        "PTS rule",
        s.pts.map_or("not reached".into(), |p| {
            format!("met at round {}", p.first + 5)
        }),
    );
    for (name, values) in [
        ("temperature", ends(&load.celsius, "°C", 0)),
        (
            "internal writes per byte written",
            ends(&load.ratios, "", 2),
        ),
    ] {
        row(name, values);
    }
    if let Some(r) = found {
        chart.marks.push(Mark {
            x: Some(r.onset_seconds),
            y: None,
            label: "burst ends".into(),
        });
        for (name, text) in describe(r, recovery) {
            row(name, text);
        }
    }
    let mut section = Section {
        id: "condition-load".into(),
        title: "Steady state of the load".into(),
        text: format!(
            "Rounds of {} until the level stays within 10 % over a test of {}.{}",
            o.round,
            o.test,
            if reasons.is_empty() {
                String::new()
            } else {
                format!(" {}.", reasons.join("; "))
            }
        ),
        charts: vec![chart],
        tables: vec![Table {
            id: "condition-verdict".into(),
            title: "Verdict".into(),
            columns: vec![column("what", ""), column("value", "")],
            rows,
        }],
        ..Section::default()
    };
    let run = book.run_mut();
    if word != "steady" {
        let flag = Flag::new(
            FlagCode::NotSteady,
            format!("after {} rounds: {}", course.len(), reasons.join("; ")),
            "condition for longer, or quote what is measured next as not steady",
        );
        section.flags.push(flag.clone());
        run.flags.push(flag);
    }
    run.findings.push(Finding {
        id: "condition-verdict".into(),
        text: format!(
            "After {} rounds of {} the load is {word}{}{}",
            course.len(),
            o.round,
            s.level
                .map_or(String::new(), |l| format!(" at {}/s", Bytes(l as u64))),
            if reasons.is_empty() {
                ".".into()
            } else {
                format!(": {}.", reasons.join("; "))
            }
        ),
        advice: if word == "steady" {
            String::new()
        } else {
            "condition for longer before numbers are quoted as sustained".into()
        },
        confidence: "strong".into(),
        jobs: Vec::new(),
        evidence: vec!["condition-course".into()],
        refuted_by: "More rounds of the same load, with whose results it is judged otherwise."
            .into(),
        ..Finding::default()
    });
    let collected = load.collected();
    if let Some([rate, ratio]) = collected
        && found.is_none()
    {
        run.findings.push(Finding {
            id: "garbage-collection".into(),
            text: format!(
                "The load fell smoothly from {}/s to {}/s while internal writes per byte rose from {:.2} to {:.2}: garbage collection \
                 set in; no cache or credit was used up at once.",
                Bytes(rate.0 as u64),
                Bytes(rate.1 as u64),
                ratio.0,
                ratio.1
            ),
            advice: "plan sustained work by the last rate; more spare area keeps it higher".into(),
            confidence: "strong".into(),
            evidence: vec!["condition-course".into()],
            refuted_by: "The same fall with internal writes that stay where they were.".into(),
            ..Finding::default()
        });
    }
    if let Some(r) = found {
        run.findings.push(Finding {
            id: "burst-and-base".into(),
            text: format!(
                "The load ran at {}/s until {} were transferred, then at {}/s: {}{}.{}",
                Bytes(r.burst_per_second as u64),
                Bytes(r.burst_amount as u64),
                Bytes(r.base_per_second as u64),
                why(r),
                collected.map_or(String::new(), |[_, ratio]| format!(
                    "; internal writes per byte rose from {:.2} to {:.2} meanwhile, so garbage collection has its part in it",
                    ratio.0, ratio.1
                )),
                recovery.map_or(String::new(), |p| format!(
                    " Idle time that gives it back: {}.",
                    p.sentence()
                ))
            ),
            advice: "plan sustained work by the second number".into(),
            // Without a temperature what used it up is a guess.
            confidence: if r.onset_celsius.is_some() {
                "strong"
            } else {
                "moderate"
            }
            .into(),
            jobs: Vec::new(),
            evidence: vec!["condition-course".into()],
            refuted_by: "A longer run in which the first rate comes back without idle time.".into(),
            ..Finding::default()
        });
    }
    run.results.push(section);
}

/// First and last of what a disk reported over the rounds; a hole says that it did not.
fn ends(values: &[Option<f64>], unit: &str, digits: usize) -> String {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let space = if unit.is_empty() { "" } else { " " };
    match (known.first(), known.last()) {
        (Some(first), Some(last)) => {
            format!("{first:.digits$} to {last:.digits$}{space}{unit} (first and last round)")
        }
        _ => "not reported by this device".into(),
    }
}

/// Why the level fell.
pub(crate) fn why(r: &Regimes) -> String {
    match (r.cause, r.onset_celsius) {
        (Cause::Throttled, Some(c)) => format!("it was throttled at {c:.0} °C"),
        (Cause::UsedUp, Some(c)) => {
            format!("a cache or a credit was used up (the temperature was {c:.0} °C)")
        }
        _ => "a cache or a credit was used up, or the device slowed down: no temperature is known"
            .into(),
    }
}

/// The two regimes as rows of a table.
fn describe(r: &Regimes, recovery: Option<&Recovery>) -> Vec<(&'static str, String)> {
    let per_second = |v: f64| format!("{}/s", Bytes(v as u64));
    let estimate = if r.base_per_second > 0.0 {
        format!(
            "about {:.1} s (estimated from size and base rate; --recovery TIME measures it)",
            r.reserve / r.base_per_second
        )
    } else {
        "unknown".into()
    };
    vec![
        ("burst", per_second(r.burst_per_second)),
        ("base", per_second(r.base_per_second)),
        (
            "transferred before the fall",
            Bytes(r.burst_amount as u64).to_string(),
        ),
        ("cache or credit", Bytes(r.reserve as u64).to_string()),
        ("fall after", format!("{:.2} s", r.onset_seconds)),
        ("cause", why(r)),
        (
            "idle time to refill",
            recovery.map_or(estimate, Recovery::sentence),
        ),
    ]
}

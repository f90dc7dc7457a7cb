//! Tests over hours: write saturation (PTS § 10) and cross stimulus recovery (§ 12). No rounds: the course of
//! time is the result, so what is shown is the course, and regimes are named.

use fathom_stats::regimes::{Window, regimes};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Cell, Mark, Section, Table};

use super::steps::{Measured, Steps};
use super::tables::{headline, lines};
use crate::notebook::NotebookError;
use crate::parts::{axis, column};

/// Hours of write saturation, at most.
const HOURS: usize = 24;

/// 4 KiB random writes after a purge, until four times the range is written or 24 hours have passed.
pub(super) fn write_saturation(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    let (threads, qd) = (steps.options.threads, steps.options.qd);
    let goal = steps.options.range.0.saturating_mul(4);
    let mut minutes: Vec<Measured> = Vec::new();
    let mut written = 0u64;
    while written < goal && minutes.len() < HOURS * 60 {
        let Some(m) = steps.job(
            &format!("minute-{}", minutes.len() + 1),
            1.0,
            &[
                ("rw", "randwrite".into()),
                ("bs", "4k".into()),
                ("threads", threads.to_string()),
                ("qd", qd.to_string()),
            ],
        )?
        else {
            break;
        };
        written += m.written;
        minutes.push(m);
    }
    let unit = steps.options.unit.as_secs_f64();
    let windows: Vec<Window> = minutes
        .iter()
        .map(|m| Window {
            amount: m.written as f64,
            celsius: None,
        })
        .collect();
    let found = regimes(&windows, unit);
    let mut sum = 0.0;
    let by_bytes: Vec<(f64, f64)> = minutes
        .iter()
        .map(|m| {
            sum += m.written as f64;
            (sum, m.iops)
        })
        .collect();
    let by_time = |f: &dyn Fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        minutes
            .iter()
            .enumerate()
            .map(|(i, m)| ((i + 1) as f64 * unit, f(m)))
            .collect()
    };
    let last = &minutes[minutes.len().saturating_sub(5)..];
    let mut iops = lines(
        "pts-wsat-time",
        "IOPS over time",
        axis("time", "s", false),
        axis("IOPS", "1/s", false),
        vec![("4 KiB random write".into(), by_time(&|m| m.iops))],
    );
    let mut rows = vec![
        vec![
            Cell::Text("written".into()),
            Cell::Text(Bytes(written).to_string()),
        ],
        vec![
            Cell::Text("of the range".into()),
            Cell::Text(format!(
                "{:.2} ×",
                written as f64 / steps.options.range.0.max(1) as f64
            )),
        ],
    ];
    if let Some(r) = &found {
        iops.marks.push(Mark {
            x: Some(r.onset_seconds),
            y: None,
            label: "the level falls".into(),
        });
        for (name, text) in [
            ("burst", format!("{}/s", Bytes(r.burst_per_second as u64))),
            ("base", format!("{}/s", Bytes(r.base_per_second as u64))),
            (
                "written before the fall",
                Bytes(r.burst_amount as u64).to_string(),
            ),
            ("fall after", format!("{:.1} s", r.onset_seconds)),
        ] {
            rows.push(vec![Cell::Text(name.into()), Cell::Text(text)]);
        }
    }
    let section = Section {
        id: "pts-wsat".into(),
        title: "PTS: write saturation".into(),
        text: format!(
            "4 KiB random writes of {threads} threads × {qd} outstanding after a purge, until 4 × the range is written or 24 hours have passed."
        ),
        charts: vec![
            iops,
            lines(
                "pts-wsat-bytes",
                "IOPS over bytes written",
                axis("written", "bytes", false),
                axis("IOPS", "1/s", false),
                vec![("4 KiB random write".into(), by_bytes)],
            ),
            lines(
                "pts-wsat-latency",
                "Latency over time",
                axis("time", "s", false),
                axis("latency", "ns", true),
                vec![
                    ("mean".into(), by_time(&|m| m.mean_ns)),
                    ("largest".into(), by_time(&|m| m.max_ns)),
                ],
            ),
        ],
        tables: vec![Table {
            id: "pts-wsat-table".into(),
            title: "Write saturation".into(),
            columns: vec![column("what", ""), column("value", "")],
            rows,
        }],
        ..Section::default()
    };
    let values: Vec<f64> = last.iter().map(|m| m.iops).collect();
    let h = headline(
        "PTS write saturation",
        "wsat-last",
        "4 KiB random write, last five minutes",
        "1/s",
        &values,
        last.iter().map(|m| m.job).collect(),
    );
    steps.report(section, vec![h], None);
    Ok(())
}

/// Large sequential writes, small random ones, large sequential ones again: how long the third needs to be as the
/// first.
pub(super) fn cross_stimulus(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    let depth = steps.options.threads * steps.options.qd;
    let phases = [
        ("sequential 1 MiB", "write", "1m", 8),
        ("random 8 KiB", "randwrite", "8k", 6),
        ("sequential 1 MiB again", "write", "1m", 8),
    ];
    let unit = steps.options.unit.as_secs_f64();
    let mut at = 0.0;
    let mut courses: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut ends: Vec<(Vec<f64>, Vec<usize>)> = Vec::new();
    for (p, (name, rw, bs, hours)) in phases.iter().enumerate() {
        let mut course = Vec::new();
        let mut jobs = Vec::new();
        for minute in 0..hours * 60 {
            let Some(m) = steps.job(
                &format!("{}-{}", p + 1, minute + 1),
                1.0,
                &[
                    ("rw", (*rw).into()),
                    ("bs", (*bs).into()),
                    ("qd", depth.to_string()),
                ],
            )?
            else {
                break;
            };
            at += unit;
            course.push((at, m.bytes_per_second));
            jobs.push(m.job);
        }
        let tail = course.len().saturating_sub(30);
        ends.push((
            course[tail..].iter().map(|c| c.1).collect(),
            jobs[tail..].to_vec(),
        ));
        courses.push(((*name).to_owned(), course));
    }
    let level = |i: usize| super::tables::mean(&ends[i].0);
    // Recovered: the first minute of the third phase that reaches 95 % of the end of the first.
    let recovered = level(0).and_then(|first| {
        let start = courses[1].1.last()?.0;
        let back = courses[2].1.iter().find(|c| c.1 >= 0.95 * first)?;
        Some(back.0 - start)
    });
    let rows = courses
        .iter()
        .enumerate()
        .map(|(i, (name, _))| vec![Cell::Text(name.clone()), super::tables::cell(level(i))])
        .collect();
    let section = Section {
        id: "pts-xsr".into(),
        title: "PTS: cross stimulus recovery".into(),
        text: format!(
            "8 hours of sequential 1 MiB writes after a purge, 6 of random 8 KiB writes, 8 of sequential ones again, {depth} outstanding. {}",
            match recovered {
                Some(s) =>
                    format!("The third phase reaches 95 % of the end of the first after {s:.1} s."),
                None => "The third phase does not reach 95 % of the end of the first.".into(),
            }
        ),
        charts: vec![lines(
            "pts-xsr-time",
            "Throughput over time",
            axis("time", "s", false),
            axis("throughput", "bytes/s", false),
            courses.clone(),
        )],
        tables: vec![Table {
            id: "pts-xsr-table".into(),
            title: "Throughput at the end of each phase (30 minutes)".into(),
            columns: vec![column("phase", ""), column("throughput", "bytes/s")],
            rows,
        }],
        ..Section::default()
    };
    let headlines = ends
        .iter()
        .enumerate()
        .map(|(i, (values, jobs))| {
            headline(
                "PTS cross stimulus recovery",
                &format!("xsr-{}", i + 1),
                phases[i].0,
                "bytes/s",
                values,
                jobs.clone(),
            )
        })
        .collect();
    steps.report(section, headlines, None);
    Ok(())
}

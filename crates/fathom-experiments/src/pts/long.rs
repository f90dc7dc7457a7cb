//! Tests over hours: write saturation (PTS § 10) and cross stimulus recovery (§ 12). No rounds: the course of
//! time is the result, so what is shown is the course, and regimes are named.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, facts, table};
use fathom_io::JobSpec;
use fathom_io::job::Rw;
use fathom_stats::regimes::{Window, regimes};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Cell, Chart, Headline, Mark, Section};

use super::steps::{Measured, Steps, load, mixed};
use super::tables::{headline, lines, mean_of};
use super::{Found, Jobs, Loads, PtsOptions};

/// Hours of write saturation, at most.
const HOURS: usize = 24;

/// A minute of 4 KiB random writes.
fn minute(o: &PtsOptions) -> JobSpec {
    mixed(o, 0, 4 << 10, o.threads, o.qd)
}

/// What write saturation writes.
fn goal(o: &PtsOptions) -> Bytes {
    Bytes(o.range.0.saturating_mul(4))
}

pub(super) fn saturating(o: &PtsOptions) -> Loads {
    let all = JobSpec {
        bytes: Some(goal(o)),
        // A slow device is ended by its hours; most have written all of it before.
        time: None,
        ..minute(o)
    };
    Loads {
        after: vec![all],
        ..Loads::default()
    }
}

/// 4 KiB random writes after a purge, until four times the range is written or 24 hours have passed.
pub(super) fn write_saturation(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    let goal = goal(steps.options).0;
    let mut minutes: Vec<usize> = Vec::new();
    let mut written = 0u64;
    while written < goal && minutes.len() < HOURS * 60 {
        let name = format!("minute-{}", minutes.len() + 1);
        let Some(m) = steps.job(&name, minute(steps.options))? else {
            break;
        };
        written += m.written;
        minutes.push(m.job);
    }
    steps.keep(Jobs::WriteSaturation(minutes), None)
}

/// IOPS over time and over bytes, and latency over time; `unit` seconds are one of the minutes.
fn saturation_charts(minutes: &[Measured], unit: f64) -> Vec<Chart> {
    let mut sum = 0.0;
    let by_bytes: Vec<(f64, f64)> = minutes
        .iter()
        .map(|m| {
            sum += m.written as f64;
            (sum, m.iops)
        })
        .collect();
    let by_time = |f: &dyn Fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        let ends = (1..).map(|i| f64::from(i) * unit);
        ends.zip(minutes.iter().map(f)).collect()
    };
    let (time, iops) = (axis("time", "s", false), axis("IOPS", "IOPS", false));
    let random = |points| vec![("4 KiB random write".into(), points)];
    vec![
        lines(
            "pts-wsat-time",
            "IOPS over time",
            time.clone(),
            iops.clone(),
            random(by_time(&|m| m.iops)),
        ),
        lines(
            "pts-wsat-bytes",
            "IOPS over bytes written",
            axis("written", "bytes", false),
            iops,
            random(by_bytes),
        ),
        lines(
            "pts-wsat-latency",
            "Latency over time",
            time,
            axis("latency", "ns", true),
            vec![
                ("mean".into(), by_time(&|m| m.mean_ns)),
                ("largest".into(), by_time(&|m| m.max_ns)),
            ],
        ),
    ]
}

pub(super) fn show_saturation(found: &Found<'_>, minutes: &[usize]) -> (Section, Vec<Headline>) {
    let PtsOptions {
        threads,
        qd,
        unit,
        range,
        ..
    } = found.options;
    let unit = unit.as_secs_f64();
    let minutes = found.jobs(minutes);
    let written: u64 = minutes.iter().map(|m| m.written).sum();
    let windows: Vec<Window> = minutes
        .iter()
        .map(|m| Window {
            amount: m.written as f64,
            celsius: None,
        })
        .collect();
    let levels = regimes(&windows, unit);
    let last = &minutes[minutes.len().saturating_sub(5)..];
    let mut charts = saturation_charts(&minutes, unit);
    let times = written as f64 / range.0.max(1) as f64;
    let mut rows: Vec<(&str, Cell)> = vec![
        ("written", Bytes(written).to_string().into()),
        ("of the range", format!("{times:.2} ×").into()),
    ];
    if let Some(r) = &levels {
        charts[0].marks.push(Mark {
            x: Some(r.onset_seconds),
            y: None,
            label: "the level falls".into(),
        });
        let per_second = |v: f64| format!("{}/s", Bytes(v as u64)).into();
        let before = Bytes(r.burst_amount as u64).to_string();
        rows.extend([
            ("burst", per_second(r.burst_per_second)),
            ("base", per_second(r.base_per_second)),
            ("written before the fall", before.into()),
            ("fall after", format!("{:.1} s", r.onset_seconds).into()),
        ]);
    }
    let section = Section {
        id: "pts-wsat".into(),
        title: "PTS: write saturation".into(),
        text: format!(
            "4 KiB random writes of {threads} threads × {qd} outstanding after a purge, until 4 × the range is written or 24 hours have passed."
        ),
        charts,
        tables: vec![facts("pts-wsat-table", "Write saturation", rows)],
        ..Section::default()
    };
    let h = headline(
        "PTS write saturation",
        "wsat-last",
        "4 KiB random write, last five minutes",
        "IOPS",
        last,
        |m| m.iops,
    );
    (section, vec![h])
}

/// Name, pattern, block size and hours of each phase.
const PHASES: [(&str, Rw, u64, usize); 3] = [
    ("sequential 1 MiB", Rw::Write, 1 << 20, 8),
    ("random 8 KiB", Rw::RandWrite, 8 << 10, 6),
    ("sequential 1 MiB again", Rw::Write, 1 << 20, 8),
];

/// A phase's minutes.
fn phase(o: &PtsOptions, p: usize) -> impl Iterator<Item = (String, JobSpec)> {
    let (_, rw, bs, hours) = PHASES[p];
    let spec = JobSpec {
        qd: o.threads * o.qd,
        ..load(o, rw, bs, 1.0)
    };
    (0..hours * 60).map(move |minute| (format!("{}-{}", p + 1, minute + 1), spec.clone()))
}

pub(super) fn stimuli(o: &PtsOptions) -> Loads {
    let phases = (0..PHASES.len()).flat_map(|p| phase(o, p));
    Loads {
        after: phases.map(|p| p.1).collect(),
        ..Loads::default()
    }
}

/// Large sequential writes, small random ones, large sequential ones again: how long the third needs to be as the
/// first.
pub(super) fn cross_stimulus(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    let mut phases: Vec<Vec<usize>> = Vec::new();
    for p in 0..PHASES.len() {
        let jobs = steps.each(phase(steps.options, p))?;
        phases.push(jobs.iter().map(|m| m.job).collect());
    }
    steps.keep(Jobs::CrossStimulus(phases), None)
}

pub(super) fn show_recovery(found: &Found<'_>, phases: &[Vec<usize>]) -> (Section, Vec<Headline>) {
    let depth = found.options.threads * found.options.qd;
    let unit = found.options.unit.as_secs_f64();
    let phases: Vec<Vec<Measured>> = phases.iter().map(|p| found.jobs(p)).collect();
    let mut minute = 0;
    let courses: Vec<(String, Vec<(f64, f64)>)> = phases
        .iter()
        .zip(PHASES)
        .map(|(jobs, phase)| {
            let course = jobs.iter().map(|m| {
                minute += 1;
                (f64::from(minute) * unit, m.bytes_per_second)
            });
            (phase.0.to_owned(), course.collect())
        })
        .collect();
    let ends = phases.iter().zip(PHASES).map(|(jobs, phase)| {
        let tail = &jobs[jobs.len().saturating_sub(30)..];
        (phase.0, tail, mean_of(tail, |m| m.bytes_per_second))
    });
    let ends: Vec<(&str, &[Measured], Option<f64>)> = ends.collect();
    // Recovered: the first minute of the third phase that reaches 95 % of the end of the first.
    let recovered = ends.first().and_then(|e| e.2).and_then(|first| {
        let start = courses.get(1)?.1.last()?.0;
        let back = courses.get(2)?.1.iter().find(|c| c.1 >= 0.95 * first)?;
        Some(back.0 - start)
    });
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
        tables: vec![table(
            "pts-xsr-table",
            "Throughput at the end of each phase (30 minutes)",
            &ends,
            &[
                ("phase", "", &|e| e.0.into()),
                ("throughput", "bytes/s", &|e| e.2.into()),
            ],
        )],
        ..Section::default()
    };
    let headlines = ends.iter().enumerate().map(|(i, (name, jobs, _))| {
        headline(
            "PTS cross stimulus recovery",
            &format!("xsr-{}", i + 1),
            name,
            "bytes/s",
            jobs,
            |m| m.bytes_per_second,
        )
    });
    (section, headlines.collect())
}

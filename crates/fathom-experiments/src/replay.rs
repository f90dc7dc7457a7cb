//! Plays a trace on a bench: one job whose pattern and times come from the trace, and how well it kept them.

use std::collections::BTreeMap;

use fathom_io::JobSpec;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::job::{BlockSizes, OnError, Rw};
use fathom_io::replay::{FeedHandle, Fidelity, Layout, Pacing, Score, TraceFacts, start};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell, Column, Finding, Headline, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};

use crate::bench::{Bench, BenchError};
use crate::notebook::{Notebook, NotebookError};
use crate::parts::column;
use crate::survey::{self, Watcher};

/// Memory for buffers that the default depth keeps to.
const BUFFERS: u64 = 128 << 20;
/// Later than this is late.
const LATE_NS: u64 = 50_000;

/// How a trace is played.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// What to play, when, how fast.
    pub score: Score,
    /// What the first pass found.
    pub facts: TraceFacts,
    /// Outstanding I/Os, at most; by the size of requests where absent.
    pub qd: Option<u32>,
    /// Ends it after this much time.
    pub time: Option<Nanos>,
    /// Keeps one row per I/O.
    pub record: bool,
    /// An I/O error is counted, not the end.
    pub keep_going: bool,
}

/// Time that playing takes at its recorded pace.
pub fn expected_time(options: &ReplayOptions) -> Option<Nanos> {
    let whole = options.facts.duration().as_secs_f64() / options.score.speed;
    let whole = Nanos::from_secs_f64(whole);
    match options.score.pacing {
        Pacing::Timed => Some(options.time.map_or(whole, |t| t.min(whole))),
        Pacing::Fast | Pacing::Dependent => options.time,
    }
}

/// The job that plays the trace.
fn job(
    bench: &dyn Bench,
    options: &ReplayOptions,
    layout: &Layout,
    direct: bool,
) -> Result<(PlannedJob, FeedHandle), BenchError> {
    let limits = bench.limits();
    let facts = &options.facts;
    let longest = layout.longest();
    let has = |op: Op| facts.ios[op as usize] > 0;
    let rw = match (has(Op::Read), facts.modifies()) {
        (true, false) => Rw::RandRead,
        (false, true) => Rw::RandWrite,
        _ => Rw::RandMixed,
    };
    let data = facts.ios[0] + facts.ios[1];
    let spec = JobSpec {
        name: "replay".into(),
        rw,
        read_share: if data > 0 {
            (1000.0 * facts.ios[0] as f64 / data as f64).round() / 10.0
        } else {
            50.0
        },
        bs: BlockSizes::one(longest),
        align: Some(Bytes(if direct {
            u64::from(limits.direct_align.max(1))
        } else {
            1
        })),
        qd: options
            .qd
            .unwrap_or_else(|| (BUFFERS / longest).clamp(16, 256) as u32),
        direct,
        time: options.time,
        record: options.record,
        on_error: if options.keep_going {
            OnError::Continue
        } else {
            OnError::Stop
        },
        ..JobSpec::default()
    };
    let valid = spec.validate(&limits)?;
    let feed = start(options.score.clone(), layout.clone(), &facts.ops());
    let planned = PlannedJob {
        experiment: "replay".into(),
        ..PlannedJob::new(valid.playing(feed.clone())?)
    };
    Ok((planned, feed))
}

/// Plays the trace and keeps what came of it.
pub fn run(
    bench: &mut dyn Bench,
    direct: bool,
    layout: &Layout,
    options: &ReplayOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    if options.facts.ios[Op::Read as usize] > 0 {
        survey::prepare(bench, watcher)?;
    }
    if bench.interrupted() {
        return Ok(());
    }
    let (planned, feed) = job(bench, options, layout, direct)?;
    watcher.job(0, 1, "replay");
    let mut show = |p: &Progress| watcher.progress(p);
    let indices = book.measure(bench, &[planned], &mut show)?;
    let Some(fidelity) = feed.fidelity() else {
        return Ok(());
    };
    let index = indices.first().copied().unwrap_or(0);
    keep(options, layout, &fidelity, book, index);
    Ok(())
}

fn keep(options: &ReplayOptions, layout: &Layout, f: &Fidelity, book: &mut Notebook, index: usize) {
    let timed = options.score.pacing == Pacing::Timed;
    let merged = book.evidence().merged(index).cloned();
    let flags = flags(options, f, timed);
    let run = book.run_mut();
    let job = &mut run.jobs[index];
    job.flags.extend(flags);
    let job = job.clone();
    let started = f.started;
    let headline = |id: &str, label: &str, unit: &str, value: f64, n: u64| Headline {
        id: id.into(),
        label: label.into(),
        group: "Replay".into(),
        unit: unit.into(),
        estimate: Some(Estimate {
            value,
            low: None,
            high: None,
            samples: u32::try_from(n).unwrap_or(u32::MAX),
        }),
        extra: BTreeMap::new(),
        jobs: vec![index],
        flags: job.flags.clone(),
    };
    if timed && let Some(score) = f.score() {
        run.headlines.push(headline(
            "replay-fidelity",
            "Times between I/Os kept within 50 µs or 5 %",
            "ratio",
            score,
            started - 1,
        ));
    }
    for op in [Op::Read, Op::Write] {
        let Some(mean) = job.direction(op).and_then(|d| d.response_ns.mean) else {
            continue;
        };
        let mut h = headline(
            &format!("replay-{}-latency", op.name()),
            &format!(
                "{}, from its recorded time",
                if op == Op::Read { "Read" } else { "Write" }
            ),
            "ns",
            mean,
            job.direction(op).map_or(0, |d| d.ios),
        );
        if let Some(all) = merged.as_ref().and_then(|m| m[op as usize].as_ref()) {
            for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)] {
                if let Some(v) =
                    all.quantile_supported(q, fathom_telemetry::summary::SAMPLES_BEYOND)
                {
                    h.extra.insert(name.into(), v as f64);
                }
            }
        }
        run.headlines.push(h);
    }
    if timed && let (Some(score), Some(p99)) = (f.score(), f.gap_error.quantile(0.99)) {
        run.findings.push(Finding {
            id: "replay-fidelity".into(),
            text: format!(
                "{:.2} % of the times between I/Os were kept within 50 µs or 5 %; 99 % of them were off by at most {}",
                100.0 * score,
                Nanos(p99)
            ),
            advice: if score < 0.99 {
                "the target or the machine is slower than the trace: response latency includes the wait; lower --speed, or raise --qd".into()
            } else {
                String::new()
            },
            confidence: "strong".into(),
            jobs: vec![index],
            evidence: vec!["replay-fidelity-table".into()],
            refuted_by: "The log of I/Os of this run, whose starts are farther from the trace's times (fathom query).".into(),
            ..Finding::default()
        });
    }
    run.sections.push(section(options, layout, f, timed));
}

fn flags(options: &ReplayOptions, f: &Fidelity, timed: bool) -> Vec<Flag> {
    let mut flags = Vec::new();
    if let Some(e) = &f.error {
        let mut flag = Flag::new(
            FlagCode::NotChecked,
            format!("the trace could not be read to its end: {e}"),
            "the file changed while it was played: play it again",
        );
        flag.void = true;
        flags.push(flag);
    }
    let late = f.lag.count() - below(f, LATE_NS);
    if timed && late * 100 > f.started {
        flags.push(Flag::new(
            FlagCode::MissedSchedule,
            format!(
                "{late} of {} I/Os started more than 50 µs after their recorded time, by up to {}",
                f.started,
                Nanos(f.lag.moments().max)
            ),
            "response latency includes the wait; raise --qd, or lower --speed",
        ));
    }
    if f.idle_cut_ns > 0 {
        flags.push(Flag::new(
            FlagCode::NotSteady,
            format!(
                "{} of idle time was cut from the trace by --max-idle",
                Nanos(f.idle_cut_ns)
            ),
            "devices use idle time to recover: play it with its gaps for numbers that hold",
        ));
    }
    if options.facts.moved > 0 {
        flags.push(Flag::new(
            FlagCode::NotChecked,
            format!(
                "{} I/Os of the trace were out of order and start with the one before",
                options.facts.moved
            ),
            "sort the trace by time",
        ));
    }
    flags
}

/// I/Os that started within `ns` of their time.
fn below(f: &Fidelity, ns: u64) -> u64 {
    f.lag
        .to_sparse()
        .buckets
        .iter()
        .filter(|(b, _)| fathom_telemetry::histogram::lower_bound(*b as usize) <= ns)
        .map(|(_, n)| n)
        .sum()
}

fn section(options: &ReplayOptions, layout: &Layout, f: &Fidelity, timed: bool) -> Section {
    let facts = &options.facts;
    let text = |t: String| Cell::Text(t);
    let row = |name: &str, value: Cell| vec![Cell::Text(name.into()), value];
    let seconds = |ns: u64| text(format!("{:.3} s", ns as f64 / 1e9));
    let mut trace = vec![
        row(
            "file",
            text(clean(&options.score.path.display().to_string())),
        ),
        row("format", text(facts.format.name().into())),
        row("devices", Cell::Number(facts.devices.len() as f64)),
        row("recorded time", seconds(facts.duration().0)),
        row("range", text(layout.span.to_string())),
        row("placed", text(layout.words().into())),
    ];
    for op in Op::ALL {
        let (n, bytes) = (facts.ios[op as usize], facts.bytes[op as usize]);
        if n > 0 {
            trace.push(row(
                &format!("{}s", op.name()),
                text(format!("{n} ({})", Bytes(bytes))),
            ));
        }
    }
    if f.aligned > 0 {
        trace.push(row(
            "aligned to the target's blocks",
            Cell::Number(f.aligned as f64),
        ));
    }
    let quantiles = |name: &str, h: &fathom_telemetry::Histogram| -> Vec<Cell> {
        let q = |q: f64| {
            h.quantile_supported(q, fathom_telemetry::summary::SAMPLES_BEYOND)
                .map_or(Cell::Hole(()), |v| Cell::Number(v as f64))
        };
        let max = if h.is_empty() {
            Cell::Hole(())
        } else {
            Cell::Number(h.moments().max as f64)
        };
        vec![Cell::Text(name.into()), q(0.5), q(0.99), q(0.999), max]
    };
    let plain = |label: &str| Column {
        label: label.into(),
        unit: String::new(),
    };
    let mut tables = vec![Table {
        id: "replay-trace-table".into(),
        title: "The trace".into(),
        columns: vec![plain("what"), plain("value")],
        rows: trace,
    }];
    if timed {
        tables.push(Table {
            id: "replay-fidelity-table".into(),
            title: "Kept times".into(),
            columns: vec![
                plain("what"),
                column("p50", "ns"),
                column("p99", "ns"),
                column("p99.9", "ns"),
                column("largest", "ns"),
            ],
            rows: vec![
                quantiles("error of the time between two I/Os", &f.gap_error),
                quantiles("start after the recorded time", &f.lag),
            ],
        });
    }
    tables.push(Table {
        id: "replay-pace-table".into(),
        title: "Pace".into(),
        columns: vec![plain("what"), plain("value")],
        rows: vec![
            row("started", Cell::Number(f.started as f64)),
            row("recorded, speed counted", seconds(f.recorded_ns)),
            row("achieved", seconds(f.achieved_ns)),
            row(
                "times the reader of the trace was behind",
                Cell::Number(f.starved as f64),
            ),
        ],
    });
    let how = match options.score.pacing {
        Pacing::Timed => "Every I/O starts at its recorded time, whatever the target does",
        Pacing::Fast => "I/Os start in their order as fast as the depth allows",
        Pacing::Dependent => {
            "Every I/O starts after the one that had completed last before it, and the same time after it"
        }
    };
    Section {
        id: "replay".into(),
        title: "Replay".into(),
        text: format!(
            "{how}; speed × {}. Latency counts from that time.",
            options.score.speed
        ),
        tables,
        ..Section::default()
    }
}

fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

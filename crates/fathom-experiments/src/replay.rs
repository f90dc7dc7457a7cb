//! Plays a trace on a bench: one job whose pattern and times come from the trace, and how well it kept them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cost::{FILL_RATE, RunCost};
use fathom_bench::measurement::word;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts;
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Merged, Shown};
use fathom_io::JobSpec;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::job::{BlockSizes, OnError, Rw};
use fathom_io::replay::{
    Events, FeedHandle, Fidelity, Fit, Format, Layout, Pacing, Playing, Score, Share, TraceError,
    start, survey,
};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Finding, Headline, Job, Section};
use fathom_telemetry::summary::{LatencySummary, SAMPLES_BEYOND};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};
use serde::{Deserialize, Serialize};

/// Memory for buffers that the default depth keeps to.
const BUFFERS: u64 = 128 << 20;
/// Later than this is late.
const LATE_NS: u64 = 50_000;

/// Words of `--events`.
const EVENTS: [(&str, Events); 3] = [
    ("auto", Events::Auto),
    ("issue", Events::Issue),
    ("queue", Events::Queue),
];

/// How a trace is played.
#[derive(Debug, Clone, Args)]
pub struct ReplayOptions {
    /// File of the trace; for blktrace any of its files or their common name; for fathom's own a run directory
    pub trace: PathBuf,
    /// blktrace, fio, msr, spc, alibaba or fathom [default: by looking at it]
    #[arg(long)]
    pub format: Option<Format>,
    /// timed: at the recorded times, whatever the target does; fast: in order, as fast as the depth allows;
    /// dependent: after the I/O that had completed last, and the same time after it
    #[arg(long, default_value = "timed")]
    pub mode: Pacing,
    /// Factor of time: 10 plays an hour in six minutes
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub speed: f64,
    /// keep, scale or wrap offsets; auto keeps them where they fit and scales them where not
    #[arg(long, default_value = "auto")]
    pub lba: Fit,
    /// Cut gaps to this length (idle time is kept by default)
    #[arg(long, value_name = "DURATION")]
    pub max_idle: Option<Nanos>,
    /// Only this device of the trace, as the trace names it
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Start events of a blktrace: issue, queue or auto
    #[arg(long, default_value = "auto", value_parser = word(&EVENTS))]
    pub events: Events,
    /// Leave out everything that changes the target
    #[arg(long)]
    pub reads_only: bool,
    /// Outstanding I/Os, at most [default: 16 to 256, by the size of the requests]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub qd: Option<u32>,
    /// End after this much time
    #[arg(long, value_name = "DURATION")]
    pub time: Option<Nanos>,
    /// Through the page cache
    #[arg(long)]
    pub buffered: bool,
    /// Write one row per I/O to io.parquet
    #[arg(long)]
    pub record: bool,
    /// Count I/O errors and go on
    #[arg(long)]
    pub keep_going: bool,
    /// Which of its I/Os each of several hosts plays.
    #[arg(skip)]
    pub share: Share,
}

/// A factor of time.
fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|v| *v > 0.0 && *v <= 1e6)
        .ok_or_else(|| format!("{text} is not possible: expected a factor above 0, such as 10"))
}

impl ReplayOptions {
    /// Reads all of the trace, before anything is opened for writing, or made.
    ///
    /// # Errors
    /// The first record that is not what its format says; a trace that cannot be played so.
    pub fn checked(&self, stop: impl FnMut() -> bool) -> Result<Replay<'_>, TraceError> {
        let device = self.device.as_deref();
        let facts = survey(
            &self.trace,
            self.format,
            self.events,
            device,
            self.reads_only,
            stop,
        )?;
        if self.mode == Pacing::Dependent && facts.with_latency * 2 < facts.total() {
            return Err(TraceError::Unfit(format!(
                "--mode dependent: the trace does not say when its I/Os completed ({} of {} do): use --mode timed or fast",
                facts.with_latency,
                facts.total()
            )));
        }
        let score = Score {
            path: self.trace.clone(),
            format: facts.format,
            events: self.events,
            device: self.device.clone(),
            reads_only: self.reads_only,
            pacing: self.mode,
            speed: self.speed,
            idle_max: self.max_idle,
            share: self.share,
        };
        Ok(Replay {
            options: self,
            playing: Playing {
                score,
                facts,
                fit: self.lba,
            },
        })
    }
}

/// A trace that was checked, and how it is played.
#[derive(Debug, Clone)]
pub struct Replay<'a> {
    /// As typed.
    pub options: &'a ReplayOptions,
    /// What is played, with what the first pass found.
    pub playing: Playing,
}

impl Replay<'_> {
    /// Time and bytes. Played as fast as possible, a trace takes what its bytes take.
    pub fn run_cost(&self, fills: Bytes) -> RunCost {
        let f = &self.playing.facts;
        let changed = f.bytes[Op::Write as usize].saturating_add(f.bytes[Op::Trim as usize]);
        let moved = changed.saturating_add(f.bytes[Op::Read as usize]);
        let fast = Nanos::from_secs_f64(moved as f64 / FILL_RATE as f64);
        let mut cost = RunCost::filling(fills);
        cost.phase("playing the trace").work(
            1,
            self.expected_time().unwrap_or(fast),
            Bytes(changed),
        );
        cost
    }

    /// Time that playing takes at its recorded pace.
    fn expected_time(&self) -> Option<Nanos> {
        let (options, facts) = (self.options, &self.playing.facts);
        let whole = Nanos::from_secs_f64(facts.duration().as_secs_f64() / options.speed);
        match options.mode {
            Pacing::Timed => Some(options.time.map_or(whole, |t| t.min(whole))),
            Pacing::Fast | Pacing::Dependent => options.time,
        }
    }
}

/// The job that plays the trace.
fn job(
    bench: &dyn Bench,
    replay: &Replay<'_>,
    layout: &Layout,
    direct: bool,
) -> Result<(PlannedJob, FeedHandle), BenchError> {
    let limits = bench.limits();
    let (options, facts) = (replay.options, &replay.playing.facts);
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
    let feed = start(replay.playing.clone(), layout.clone());
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
    replay: &Replay<'_>,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    if replay.playing.facts.ios[Op::Read as usize] > 0 {
        fathom_bench::progress::prepare(bench, sink)?;
    }
    if bench.interrupted() {
        return Ok(());
    }
    let (planned, feed) = job(bench, replay, layout, direct)?;
    sink.job(0, 1, "replay");
    let mut show = |p: &Progress| sink.progress(p);
    let indices = book.measure(bench, &[planned], &mut show)?;
    let Some(fidelity) = feed.fidelity() else {
        return Ok(());
    };
    let index = indices.first().copied().unwrap_or(0);
    let flags = flags(&replay.playing, &fidelity);
    book.run_mut().jobs[index].flags.extend(flags);
    let hosts = book.run().jobs[index].hosts.len() as u32;
    let result = ReplayResult::new(&replay.playing, layout, &fidelity, index, hosts);
    book.found(&result)
}

/// How a trace was played, and how well its times were kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplayResult {
    /// Index of the job.
    pub job: usize,
    /// The trace, without control characters.
    pub file: String,
    /// Its format.
    pub format: String,
    /// Devices in it.
    pub devices: u32,
    /// From its first I/O to its last.
    pub recorded: Nanos,
    /// Its I/Os by operation.
    pub ios: [u64; 4],
    /// Bytes by operation.
    pub bytes: [u64; 4],
    /// Range that it reaches over.
    pub span: Bytes,
    /// How its offsets were placed on the target.
    pub placed: String,
    /// When I/Os started.
    pub pacing: Pacing,
    /// How much faster than recorded.
    pub speed: f64,
    /// I/Os started.
    pub started: u64,
    /// Share of the times between starts that were kept within 50 µs or 5 %.
    pub kept: Option<f64>,
    /// Error of the time between two starts, ns.
    pub gap_error_ns: LatencySummary,
    /// 99 % of these errors are at most so large, ns.
    pub gap_error_p99_ns: Option<u64>,
    /// Start after the recorded time, ns.
    pub lag_ns: LatencySummary,
    /// Recorded time from the first to the last start, speed and cuts counted, ns.
    pub asked_ns: u64,
    /// Achieved time from the first to the last start, ns.
    pub achieved_ns: u64,
    /// Times that the reader of the trace was behind.
    pub starved: u64,
    /// I/Os whose offset or length was aligned.
    pub aligned: u64,
    /// Hosts that played it at the same time; none where this one did.
    #[serde(default)]
    pub hosts: u32,
    /// Whether each of them played all of it.
    #[serde(default)]
    pub each: bool,
}

impl ReplayResult {
    fn new(playing: &Playing, layout: &Layout, f: &Fidelity, job: usize, hosts: u32) -> Self {
        let (score, facts) = (&playing.score, &playing.facts);
        Self {
            job,
            file: clean(&score.path.display().to_string()),
            format: facts.format.name().into(),
            devices: facts.devices.len() as u32,
            recorded: facts.duration(),
            ios: facts.ios,
            bytes: facts.bytes,
            span: layout.span,
            placed: layout.words().into(),
            pacing: score.pacing,
            speed: score.speed,
            started: f.started,
            kept: f.score(),
            gap_error_ns: LatencySummary::from(&f.gap_error),
            gap_error_p99_ns: f.gap_error.quantile(0.99),
            lag_ns: LatencySummary::from(&f.lag),
            asked_ns: f.recorded_ns,
            achieved_ns: f.achieved_ns,
            starved: f.starved,
            aligned: f.aligned,
            hosts,
            each: score.share == Share::Whole,
        }
    }

    fn headlines(&self, job: &Job, merged: Option<&Merged>) -> Vec<Headline> {
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
            jobs: vec![self.job],
            flags: job.flags.clone(),
        };
        let mut all = Vec::new();
        if let (Pacing::Timed, Some(kept)) = (self.pacing, self.kept) {
            let label = "Times between I/Os kept within 50 µs or 5 %";
            all.push(headline(
                "replay-fidelity",
                label,
                "ratio",
                kept,
                self.started.saturating_sub(1),
            ));
        }
        for (op, name) in [(Op::Read, "Read"), (Op::Write, "Write")] {
            let Some((mean, ios)) = job
                .direction(op)
                .and_then(|d| Some((d.response_ns.mean?, d.ios)))
            else {
                continue;
            };
            let id = format!("replay-{}-latency", op.name());
            let label = format!("{name}, from its recorded time");
            let mut h = headline(&id, &label, "ns", mean, ios);
            if let Some(all) = merged.and_then(|m| m[op as usize].as_ref()) {
                for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)] {
                    let v = all.quantile_supported(q, SAMPLES_BEYOND);
                    h.extra.extend(v.map(|v| (name.to_owned(), v as f64)));
                }
            }
            all.push(h);
        }
        all
    }

    fn finding(&self) -> Option<Finding> {
        let (kept, p99) = (self.kept?, self.gap_error_p99_ns?);
        Some(Finding {
            id: "replay-fidelity".into(),
            text: format!(
                "{:.2} % of the times between I/Os were kept within 50 µs or 5 %; 99 % of them were off by at most {}",
                100.0 * kept,
                Nanos(p99)
            ),
            advice: if kept < 0.99 {
                "the target or the machine is slower than the trace: response latency includes the wait; lower --speed, or raise --qd".into()
            } else {
                String::new()
            },
            confidence: "strong".into(),
            jobs: vec![self.job],
            evidence: vec!["replay-fidelity-table".into()],
            refuted_by: "The log of I/Os of this run, whose starts are farther from the trace's times (fathom query).".into(),
            ..Finding::default()
        })
    }

    fn section(&self) -> Section {
        let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9).into();
        let names = Op::ALL.map(|op| format!("{}s", op.name()));
        let mut trace = vec![
            ("file", self.file.as_str().into()),
            ("format", self.format.as_str().into()),
            ("devices", self.devices.into()),
            ("recorded time", seconds(self.recorded.0)),
            ("range", self.span.to_string().into()),
            ("placed", self.placed.as_str().into()),
        ];
        for (name, (n, bytes)) in names.iter().zip(self.ios.iter().zip(self.bytes)) {
            if *n > 0 {
                trace.push((name, format!("{n} ({})", Bytes(bytes)).into()));
            }
        }
        if self.hosts > 0 {
            let how = match self.each {
                true => format!("by each of {} hosts", self.hosts),
                false => format!("dealt to {} hosts in turns", self.hosts),
            };
            trace.push(("played", how.as_str().into()));
        }
        if self.aligned > 0 {
            trace.push((
                "aligned to the target's blocks",
                (self.aligned as f64).into(),
            ));
        }
        let mut tables = vec![parts::facts("replay-trace-table", "The trace", trace)];
        let of = |v: Option<u64>| v.map(|v| v as f64).into();
        if self.pacing == Pacing::Timed {
            tables.push(parts::table(
                "replay-fidelity-table",
                "Kept times",
                [
                    ("error of the time between two I/Os", &self.gap_error_ns),
                    ("start after the recorded time", &self.lag_ns),
                ],
                &[
                    ("what", "", &|r| r.0.into()),
                    ("p50", "ns", &|r| of(r.1.p50)),
                    ("p99", "ns", &|r| of(r.1.p99)),
                    ("p99.9", "ns", &|r| of(r.1.p99_9)),
                    ("largest", "ns", &|r| of(r.1.max)),
                ],
            ));
        }
        tables.push(parts::facts(
            "replay-pace-table",
            "Pace",
            vec![
                ("started", (self.started as f64).into()),
                ("recorded, speed counted", seconds(self.asked_ns)),
                ("achieved", seconds(self.achieved_ns)),
                (
                    "times the reader of the trace was behind",
                    (self.starved as f64).into(),
                ),
            ],
        ));
        let how = match self.pacing {
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
                self.speed
            ),
            tables,
            ..Section::default()
        }
    }
}

impl ExperimentResult for ReplayResult {
    const EXPERIMENT: &'static str = "replay";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        if let Some(job) = evidence.job(self.job) {
            let merged = evidence.merged(self.job);
            shown.headlines.extend(self.headlines(job, merged));
        }
        if self.pacing == Pacing::Timed {
            shown.findings.extend(self.finding());
        }
        shown.sections.push(self.section());
    }
}

fn flags(playing: &Playing, f: &Fidelity) -> Vec<Flag> {
    let timed = playing.score.pacing == Pacing::Timed;
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
    if playing.facts.moved > 0 {
        flags.push(Flag::new(
            FlagCode::NotChecked,
            format!(
                "{} I/Os of the trace were out of order and start with the one before",
                playing.facts.moved
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

fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

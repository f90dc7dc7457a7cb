//! `run.json`: everything that one invocation produced, except series and records.
//!
//! The schema is a contract with scripts: fields are added, never renamed or
//! removed without a new [`SCHEMA_VERSION`]. `docs/run.schema.json` describes it
//! and a test holds the two together.

use std::collections::BTreeMap;

use fathom_stats::Estimate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::Op;
use crate::summary::LatencySummary;
use crate::validity::Flag;

/// Version of `run.json`; raised when a field changes meaning or disappears.
pub const SCHEMA_VERSION: u32 = 2;

/// One invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// fathom's version.
    pub tool_version: String,
    /// What tells it from every other run, a random UUID; empty in runs of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
    /// Name of the run: the command, or the user's `--name`.
    pub name: String,
    /// The subcommand: `survey`, `run`, …
    pub command: String,
    /// The command line as typed, with what presets and `fathom.toml` added.
    pub command_line: Vec<String>,
    /// Start, RFC 3339 UTC.
    pub started: String,
    /// End, RFC 3339 UTC; absent while running (a killed run keeps what it had).
    pub finished: Option<String>,
    /// Profile of a survey: `quick`, `standard`, `full`.
    pub profile: Option<String>,
    /// Seed from which every job's seed derives.
    pub seed: u64,
    /// What was measured.
    pub target: Target,
    /// Whether any number here comes from a model.
    pub simulated: bool,
    /// What its owner calls it: `drive=A`, `note=after the firmware update`; also given afterwards, by `fathom runs --label`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Environment capsule: CPU, kernel, device, file system, versions (see `fathom-host`).
    pub environment: Value,
    /// The screen's numbers.
    pub headlines: Vec<Headline>,
    /// What each experiment found, as data: from these and the jobs everything shown is made.
    pub results: Vec<SavedResult>,
    /// Tables and charts, in reading order; made from `results` and `jobs`, and made anew by `fathom report`.
    pub sections: Vec<Section>,
    /// Every job with its measure.
    pub jobs: Vec<Job>,
    /// What follows from the numbers.
    pub findings: Vec<Finding>,
    /// Flags that concern the whole run.
    pub flags: Vec<Flag>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Target {
    /// As typed.
    pub name: String,
    /// `directory`, `file`, `block-device`, `null` or `simulated`.
    pub kind: String,
    /// File or device that received the I/O, where there is one.
    pub path: Option<String>,
    /// Bytes in the tested range.
    pub size_bytes: u64,
    /// Whole disk behind it (`nvme0n1`), where known.
    pub device: Option<String>,
    /// A line for people: model, file system, size.
    pub description: String,
}

impl Target {
    /// The target for readers who do not know where the command was typed: `.` by its full path.
    pub fn place(&self) -> &str {
        let path = self.path.as_deref().filter(|_| !self.name.contains(':'));
        match path.filter(|p| p.starts_with('/')) {
            Some(p) if self.kind == "directory" => p.rsplit_once('/').map_or(p, |(d, _)| d),
            Some(p) => p,
            None => &self.name,
        }
    }
}

/// A number of the summary, with its interval and what stands against it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Headline {
    /// Stable name, such as `randread-4k-qd1-latency`.
    pub id: String,
    /// For people: `4 KiB random read, one outstanding`.
    pub label: String,
    /// Group heading on the screen: `Latency`, `Bandwidth`, `IOPS`.
    pub group: String,
    /// `ns`, `bytes/s`, `1/s`, `ratio`.
    pub unit: String,
    /// Value with its 95 % interval over repeats; `None` is a visible hole (see `flags`).
    #[cfg_attr(test, schemars(with = "Option<tests::EstimateShape>"))]
    pub estimate: Option<Estimate>,
    /// Further figures: name (`p99`) to value in the same unit.
    pub extra: BTreeMap<String, f64>,
    /// Indices into [`Run::jobs`] of the evidence.
    pub jobs: Vec<usize>,
    /// What stands against the number.
    pub flags: Vec<Flag>,
}

/// What one experiment found: a value whose shape its experiment and version name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SavedResult {
    /// Stable name of the experiment: `curve`.
    pub experiment: String,
    /// Version of `data`; raised when a field of it changes meaning or disappears.
    pub version: u32,
    /// The value. Jobs stand in it as indices into [`Run::jobs`].
    pub data: Value,
}

/// Tables and charts of one experiment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Section {
    /// Stable name of the experiment: `depth-sweep`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// A short paragraph: what was done and how to read it.
    pub text: String,
    /// Charts in reading order.
    pub charts: Vec<Chart>,
    /// Tables in reading order.
    pub tables: Vec<Table>,
    /// What stands against the section.
    pub flags: Vec<Flag>,
}

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// Points joined by lines.
    Line,
    /// Bars over categories.
    Bar,
    /// Bars stacked: one bar per category, one series per layer.
    StackedBar,
    /// Points only.
    Scatter,
    /// Colour over x and y; each point's `z` is the colour.
    Heatmap,
}

/// One chart. Values are in the unit of the axis; the report picks prefixes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Chart {
    /// Stable name, unique in the run.
    pub id: String,
    /// Heading.
    pub title: String,
    /// How it is drawn.
    pub kind: ChartKind,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Colour of a heatmap: what its points' `z` shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub z: Option<Axis>,
    /// Names of the categories, where x counts categories (x = 0, 1, …).
    pub categories: Vec<String>,
    /// What is drawn.
    pub series: Vec<ChartSeries>,
    /// Vertical or horizontal marks (knee, published value).
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// `ns`, `bytes/s`, `1/s`, `bytes`, `s`, `%`, or empty for a plain number.
    pub unit: String,
    /// Logarithmic by default (the reader can toggle).
    pub log: bool,
}

/// One line, set of bars or layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChartSeries {
    /// Name in the legend.
    pub name: String,
    /// Its points, in drawing order.
    pub points: Vec<Point>,
}

/// A point with its interval. A failed cell has `y: null`: a hole, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Point {
    /// Horizontal value or category number.
    pub x: f64,
    /// Vertical value.
    pub y: Option<f64>,
    /// Lower end of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Colour value of a heatmap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub z: Option<f64>,
    /// Shown beside the point (`QD 32`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A mark in a chart: a line across at `x` or at `y`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mark {
    /// Vertical line here.
    pub x: Option<f64>,
    /// Horizontal line here.
    pub y: Option<f64>,
    /// Its name.
    pub label: String,
}

/// A table; cells are typed so that each exporter formats them its own way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Table {
    /// Stable name, unique in the run.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows; each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// A table's column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Column {
    /// Heading.
    pub label: String,
    /// Unit of its numbers, as in [`Axis::unit`].
    pub unit: String,
}

/// A table's cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Cell {
    /// Nothing could be measured.
    Hole(()),
    /// A number in the column's unit.
    Number(f64),
    /// Words.
    Text(String),
    /// A number with its interval.
    Estimate(#[cfg_attr(test, schemars(with = "tests::EstimateShape"))] Estimate),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(f64::from(number))
    }
}

impl From<Estimate> for Cell {
    fn from(estimate: Estimate) -> Self {
        Self::Estimate(estimate)
    }
}

/// Nothing is a hole.
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Hole(()), T::into)
    }
}

/// One job and its measure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Job {
    /// Name, unique in the run.
    pub name: String,
    /// Experiment that planned it, empty for `fathom run`.
    pub experiment: String,
    /// Which repeat of the same job (0-based).
    pub repeat: u32,
    /// The job as it was run (same keys as in a job file).
    pub spec: Value,
    /// Engine that was used: `uring`, `preadv`, `null`, `virtual`, `sim`.
    pub engine: String,
    /// What the engine could use (registered buffers, polling, …), for the record.
    pub engine_notes: Vec<String>,
    /// Start of the measured part after the run's start, ns.
    pub start_ns: u64,
    /// Length of the measured part (ramp-up left out), ns.
    pub wall_ns: u64,
    /// Process CPU time over the measured part, I/O workers included, ns.
    pub cpu_ns: u64,
    /// User part of `cpu_ns`.
    pub cpu_user_ns: u64,
    /// Requested depth over all threads.
    pub qd_requested: u32,
    /// Time-weighted mean number of outstanding I/Os.
    pub qd_achieved: f64,
    /// Share of time at each depth: `[depth, share]`, non-zero entries only.
    pub qd_distribution: Vec<(u32, f64)>,
    /// Reads; null where the job has none.
    pub read: Option<Direction>,
    /// Writes.
    pub write: Option<Direction>,
    /// Trims.
    pub trim: Option<Direction>,
    /// fsync and fdatasync.
    pub sync: Option<Direction>,
    /// Open loop only.
    pub open_loop: Option<OpenLoop>,
    /// What the device itself counted meanwhile.
    pub device: Option<DeviceDelta>,
    /// What came of data that the job left to caches; jobs on real targets that write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<WriteBack>,
    /// What kept the job's threads from running; jobs on real targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<HeldUp>,
    /// What each host of a fleet contributed, in the order of the hosts; empty where there was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostShare>,
    /// The first errors of each kind.
    pub errors: Vec<IoError>,
    /// What stands against the job.
    pub flags: Vec<Flag>,
}

impl Job {
    /// The direction that an operation is counted in.
    pub fn direction(&self, op: Op) -> Option<&Direction> {
        match op {
            Op::Read => self.read.as_ref(),
            Op::Write => self.write.as_ref(),
            Op::Trim => self.trim.as_ref(),
            Op::Sync => self.sync.as_ref(),
        }
    }

    /// I/Os per second over reads, writes and trims; syncs belong to the writes before them.
    pub fn iops(&self) -> f64 {
        let data = [&self.read, &self.write, &self.trim];
        data.into_iter().flatten().map(|d| d.iops).sum()
    }

    /// Whether a flag makes the job's numbers unusable.
    pub fn is_void(&self) -> bool {
        self.flags.iter().any(|f| f.void)
    }
}

/// What one host of a fleet contributed to a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostShare {
    /// Its name.
    pub host: String,
    /// Completed while all hosts measured.
    pub ios: u64,
    /// Transferred while all hosts measured.
    pub bytes: u64,
    /// Completed after the first host had ended: counted nowhere else.
    pub tail_ios: u64,
    /// Transferred then.
    pub tail_bytes: u64,
    /// Its own 99th percentile of response latency over reads, writes and trims, the highest; null where it has none.
    pub p99_ns: Option<u64>,
    /// Windows, of those counted, in which it transferred less than every other host.
    #[serde(default)]
    pub slowest_windows: u64,
    /// Length of its own measured part, ns.
    pub wall_ns: u64,
    /// Begin after the common start, ns.
    pub late_ns: i64,
    /// Its monotonic clock minus the controller's before the job, ns.
    pub clock_offset_ns: i64,
    /// That offset was known to this, ns.
    pub clock_bound_ns: u64,
    /// What its clock moved by against the controller's during the job, ns.
    pub clock_moved_ns: i64,
}

/// Totals of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Direction {
    /// Completed without error.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// `ios` per second of `wall_ns`.
    pub iops: f64,
    /// `bytes` per second of `wall_ns`.
    pub bytes_per_second: f64,
    /// Failed.
    pub errors: u64,
    /// Transferred less than asked for.
    pub short: u64,
    /// Intended start to hand-over.
    pub submit_ns: LatencySummary,
    /// Hand-over to completion.
    pub service_ns: LatencySummary,
    /// Intended start to completion.
    pub response_ns: LatencySummary,
}

/// What happened to the schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenLoop {
    /// Asked, I/Os per second.
    pub rate_asked: f64,
    /// Achieved, I/Os per second.
    pub rate_achieved: f64,
    /// I/Os that started more than 1 % of the mean gap, and at least 10 µs, after their time.
    pub late: u64,
    /// Scheduled before the end, never started.
    pub unissued: u64,
    /// Largest lateness, ns.
    pub lateness_max_ns: u64,
}

/// What the device counted during the job (from its statistics file).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceDelta {
    /// Name of the whole disk or partition whose counters these are.
    pub name: String,
    /// Reads completed.
    pub read_ios: u64,
    /// Reads merged.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// ms of all reads.
    pub read_ticks_ms: u64,
    /// Writes completed.
    pub write_ios: u64,
    /// Writes merged.
    pub write_merges: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// ms of all writes.
    pub write_ticks_ms: u64,
    /// Discards completed.
    pub discard_ios: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Flushes completed.
    pub flush_ios: u64,
    /// ms with at least one request in flight.
    pub busy_ms: u64,
    /// Bytes that the kernel fetched from storage meanwhile for this process and those that it started, from any device:
    /// tells the job's own reads from those of others.
    #[serde(default)]
    pub process_read_bytes: u64,
    /// Bytes that the jobs of the group moved while these were counted: the counters are read a moment after the
    /// measured part has begun, a short job's worth on a busy machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// What the devices counted that it is made of, one entry per step down, the bottom last; empty where it is made of
    /// nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<BelowDelta>,
}

impl DeviceDelta {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (a, b) = (earlier, self);
        let d = |x: u64, y: u64| y.saturating_sub(x);
        Self {
            name: b.name.clone(),
            read_ios: d(a.read_ios, b.read_ios),
            read_merges: d(a.read_merges, b.read_merges),
            read_bytes: d(a.read_bytes, b.read_bytes),
            read_ticks_ms: d(a.read_ticks_ms, b.read_ticks_ms),
            write_ios: d(a.write_ios, b.write_ios),
            write_merges: d(a.write_merges, b.write_merges),
            write_bytes: d(a.write_bytes, b.write_bytes),
            write_ticks_ms: d(a.write_ticks_ms, b.write_ticks_ms),
            discard_ios: d(a.discard_ios, b.discard_ios),
            discard_bytes: d(a.discard_bytes, b.discard_bytes),
            flush_ios: d(a.flush_ios, b.flush_ios),
            busy_ms: d(a.busy_ms, b.busy_ms),
            process_read_bytes: d(a.process_read_bytes, b.process_read_bytes),
            asked_bytes: a.asked_bytes.zip(b.asked_bytes).map(|(a, b)| d(a, b)),
            below: b
                .below
                .iter()
                .zip(&a.below)
                .map(|(b, a)| BelowDelta {
                    name: b.name.clone(),
                    read_bytes: d(a.read_bytes, b.read_bytes),
                    write_bytes: d(a.write_bytes, b.write_bytes),
                })
                .collect(),
        }
    }
}

/// What the devices one step further down counted, added up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BelowDelta {
    /// Their names: `vda`, or `sda+sdb`.
    pub name: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// The way of a job's data from memory to the device after its last I/O. It is not part of `wall_ns`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WriteBack {
    /// How long fdatasync took, ns.
    pub ns: u64,
    /// Bytes that were written from the start of the measured part until then, where the devices below count least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_write_bytes: Option<u64>,
    /// Which device counted that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
}

/// What kept a job from going on: others on the processors, limits of control groups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeldUp {
    /// Time that its threads (the kernel's workers for their rings included) were ready to run and did not, ns; their sum,
    /// ramp-up included.
    pub waited_ns: u64,
    /// The largest share of its time that one of them waited.
    pub waited_share: f64,
    /// Share of the time in which the processors had work that the hypervisor gave to other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// Share of their time that the processors it may use were busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<f64>,
    /// Time for which a control group's processor quota kept its processes from running, ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_throttled_ns: u64,
    /// Time for which the I/O cost controller kept its I/O waiting, ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub io_throttled_ns: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Errors of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IoError {
    /// Operation.
    pub op: Op,
    /// errno.
    pub errno: i32,
    /// Its text.
    pub message: String,
    /// Byte offset of the first.
    pub first_offset: u64,
    /// How many.
    pub count: u64,
}

/// A sentence with a number, its evidence, and what to change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Stable name.
    pub id: String,
    /// The sentence.
    pub text: String,
    /// What to change, or to do next, as a command or setting; empty where nothing is to be done.
    pub advice: String,
    /// `strong`, `moderate` or `weak`.
    pub confidence: String,
    /// Indices into [`Run::jobs`].
    pub jobs: Vec<usize>,
    /// Ids of charts and tables.
    pub evidence: Vec<String>,
    /// What the change gained where it was measured, or is expected to gain, as a share of what there is without it
    /// (0.25: a quarter more, or a quarter less waiting); findings are ranked by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<tests::EstimateShape>"))]
    pub gain: Option<Estimate>,
    /// What would show that it is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refuted_by: String,
    /// Whether it says what the target is good for: what it carries within an objective.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub good_for: bool,
}

impl Finding {
    /// Whether it proposes a change and says what that gains. Another one is what was seen on the way: where to look
    /// next, or what to know. A gain whose interval contains no effect proposes nothing.
    pub fn proposes(&self) -> bool {
        let gains = |g: &Estimate| g.value > 0.0 && g.low.is_none_or(|low| low > 0.0);
        !self.advice.is_empty() && self.gain.as_ref().is_some_and(gains)
    }

    /// Lowers the confidence to what the flags of its jobs leave: strong evidence needs clean jobs, and a void job is
    /// none. That numbers come from a model says nothing against them as the model's.
    pub fn weaken<'a>(&mut self, flags: impl IntoIterator<Item = &'a Flag>) {
        for flag in flags {
            if flag.void {
                self.confidence = "weak".into();
            } else if self.confidence == "strong" && !flag.code.describes() {
                self.confidence = "moderate".into();
            }
        }
    }

    /// The order in which findings are read: what gains most first (by the lower end of the interval, weak evidence
    /// after the rest), then those without a measured gain, strongest first.
    pub fn rank(all: &mut [Self]) {
        let level = |f: &Self| match f.confidence.as_str() {
            "strong" => 0,
            "moderate" => 1,
            _ => 2,
        };
        let key = |f: &Self| {
            let gain = f
                .gain
                .map_or(0.0, |g| g.low.unwrap_or(g.value / 2.0).max(0.0));
            (level(f) == 2, -gain, level(f))
        };
        all.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        });
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

//! Bursts: short loads with idle time between them that never saturate the device, seen I/O by I/O.
//!
//! Two questions. How fast is a burst of so many I/Os, from its first submission to its last completion
//! (a mean over seconds hides it)? And what does a light, paced background writer take from bursts of
//! sequential reads (Malventano, "Intel Optane 900P", 2017: 20 MB/s of writes beside 400 MB reads)?

use std::path::Path;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, defaults};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts::{self, axis, series};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_io::job::{Arrival, BlockSizes, Burst, Rw};
use fathom_io::{JobError, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::iolog::{IoLogReader, IoRow};
use fathom_telemetry::schema::{
    Axis, Chart, ChartKind, ChartSeries, Finding, Headline, Job, Point as Dot, Section,
};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};
use serde::{Deserialize, Serialize};

/// I/Os of the small bursts: random 4 KiB reads, all handed over at once.
const SIZES: [u32; 5] = [1, 4, 16, 64, 256];
/// Idle time after a small burst: long enough for queues to drain and cores to fall asleep.
const IDLE: Nanos = Nanos::from_millis(5);
/// Block of the sequential bursts and of the writer.
const BLOCK: u64 = 128 << 10;
/// Outstanding sequential reads.
const DEPTH: u32 = 8;
/// Slices of a sequential burst in the chart.
const SLICES: usize = 50;
/// Rows of a job kept for analysis; a burst job of seconds has far fewer.
const ROWS_MAX: usize = 4_000_000;

/// What is measured.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  fathom burst --size 2g                 bursts of 400 MB beside 20 MB/s of writes\n  fathom burst /dev/nvme0n1 --no-writer  reads only: needs no permission"
)]
pub struct BurstOptions {
    /// Bytes of one sequential burst (at most half the range)
    #[arg(long, default_value = "400000000")]
    pub burst: Bytes,
    /// Bytes per second of the writer beside it
    #[arg(long, default_value = "20000000")]
    pub writes: Bytes,
    /// Leave out the writer
    #[arg(long = "no-writer", action = clap::ArgAction::SetFalse)]
    pub writer: bool,
}

impl Default for BurstOptions {
    fn default() -> Self {
        defaults()
    }
}

/// Time of one group with sequential bursts: two bursts at 200 MB/s, and idle for as long.
fn sequential_time(plan: &Plan, options: &BurstOptions) -> Nanos {
    let one = burst_bytes(plan, options) as f64 / 200e6 * 1e9;
    Nanos((4.0 * one) as u64).max(plan.profile.job_time)
}

fn burst_bytes(plan: &Plan, options: &BurstOptions) -> u64 {
    let half = plan.limits.size / 2;
    (options.burst.0.min(half) / BLOCK).max(1) * BLOCK
}

/// One burst as its I/Os show it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Seen {
    ios: u64,
    bytes: u64,
    /// First submission to last completion, ns.
    lasted: u64,
}

impl Seen {
    fn iops(&self) -> f64 {
        self.ios as f64 / self.lasted.max(1) as f64 * 1e9
    }
}

impl Measurement for BurstOptions {
    const NAME: &'static str = "burst";
    const KEEPS_CPU: bool = true;
    const RECORDING: usize = 2;
    const ON_HOSTS: bool = true;

    fn check(&self) -> Result<(), String> {
        if self.burst.0 >= 1 << 20 && self.writes.0 >= 1 << 20 {
            return Ok(());
        }
        Err(format!(
            "--burst {} and --writes {}: expected 1m or more each",
            self.burst, self.writes
        ))
    }

    fn modifies(&self) -> bool {
        self.writer
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let repeats = plan.profile.repeats;
        let mut o = RunCost::filling(fills);
        o.phase("small bursts");
        for ios in SIZES {
            o.add(&small_job(plan, ios)?, repeats);
        }
        let [reader, writer] = sequential(plan, self)?;
        o.phase("sequential bursts");
        o.add(&reader, repeats);
        if self.writer {
            o.add(&reader, repeats);
            o.add_beside(&writer, repeats);
        }
        Ok(o)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut runner = self.begin(bench, plan, book, sink)?;
        let mut small = Vec::new();
        for ios in SIZES {
            small.push(Point::new(small_job(plan, ios).map_err(BenchError::from)?));
        }
        let mut alone = Vec::new();
        let mut beside = Vec::new();
        if runner.fill_up(&mut small, plan.profile.repeats)? {
            let [reader, writer] = sequential(plan, self).map_err(BenchError::from)?;
            'pairs: for pair in 0..plan.profile.repeats {
                // ABBA, so that drift favours neither.
                for k in [pair % 2 == 0, pair % 2 != 0] {
                    if k {
                        match runner.group(std::slice::from_ref(&reader), pair)? {
                            Some(jobs) => alone.extend(jobs),
                            None => break 'pairs,
                        }
                    } else if self.writer {
                        let mut named = reader.clone();
                        named.name = "burst-read-beside".into();
                        match runner.group(&[named, writer.clone()], pair)? {
                            Some(jobs) => beside.extend(jobs.chunks(2).map(|j| (j[0], j[1]))),
                            None => break 'pairs,
                        }
                    }
                }
            }
        }
        runner.end();
        book.finish_log()?;
        let (asked, sliced) = match alone.first().or(beside.first().map(|b| &b.0)) {
            Some(job) => {
                let spec: JobSpec = serde_json::from_value(book.run().jobs[*job].spec.clone())
                    .map_err(|e| NotebookError::Beside(e.to_string()))?;
                (spec.burst.unwrap_or(NO_BURST), true)
            }
            None => (NO_BURST, false),
        };
        let mut sizes = Vec::new();
        for point in small {
            let bytes = u64::from(point.spec.qd) * 4096;
            let rows = all_rows(book, &point.jobs)?;
            let seen = rows.iter().map(|r| whole(r, IDLE, bytes)).collect();
            sizes.push(Small { point, seen });
        }
        let reads = |jobs: Vec<usize>| -> Result<Reads, NotebookError> {
            let rows = all_rows(book, &jobs)?;
            Ok(Reads {
                seen: rows
                    .iter()
                    .map(|r| whole(r, asked.idle, asked.bytes))
                    .collect(),
                course: if sliced {
                    course(&rows.concat(), asked.idle, asked.bytes)
                } else {
                    Vec::new()
                },
                jobs,
            })
        };
        let found = BurstResult {
            small: sizes,
            size: Bytes(asked.bytes),
            alone: reads(alone)?,
            beside: reads(beside.iter().map(|b| b.0).collect())?,
            writers: beside.iter().map(|b| b.1).collect(),
            writer: self.writer,
        };
        book.found(&found)
    }
}

/// Where there is none.
const NO_BURST: Burst = Burst {
    ios: 0,
    bytes: 0,
    idle: Nanos::ZERO,
};

/// Every whole burst, as its I/Os showed it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BurstResult {
    small: Vec<Small>,
    /// Bytes of a sequential burst.
    size: Bytes,
    alone: Reads,
    beside: Reads,
    /// The writer's jobs, one for each of `beside`.
    writers: Vec<usize>,
    writer: bool,
}

/// Random reads in bursts of one size.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Small {
    point: Point,
    /// Bursts of each repeat.
    seen: Vec<Vec<Seen>>,
}

/// Sequential reads in bursts.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reads {
    jobs: Vec<usize>,
    /// Bursts of each job.
    seen: Vec<Vec<Seen>>,
    course: Vec<Dot>,
}

impl Reads {
    /// Mean burst bandwidth of each repeat whose numbers may be used.
    fn bandwidths(&self, evidence: &Evidence<'_>) -> Vec<f64> {
        let usable = |job: usize| evidence.job(job).is_some_and(|j| !j.is_void());
        self.jobs
            .iter()
            .zip(&self.seen)
            .filter(|(job, seen)| usable(**job) && !seen.is_empty())
            .map(|(_, seen)| {
                // Bytes over time, not a mean of rates: a slow burst counts for its length.
                let (b, t) = seen
                    .iter()
                    .fold((0u64, 0u64), |(b, t), s| (b + s.bytes, t + s.lasted));
                b as f64 / t.max(1) as f64 * 1e9
            })
            .collect()
    }
}

impl ExperimentResult for BurstResult {
    const EXPERIMENT: &'static str = "burst";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        report(self, evidence, shown);
    }
}

/// Rows of each job, by host.
fn all_rows(book: &Notebook, jobs: &[usize]) -> Result<Vec<Vec<Vec<IoRow>>>, NotebookError> {
    jobs.iter().map(|j| rows(book, *j)).collect()
}

fn small_job(plan: &Plan, ios: u32) -> Result<JobSpec, JobError> {
    let mut spec = plan.job(
        &format!("burst-{ios}"),
        &[("rw", "randread"), ("bs", "4k"), ("qd", &ios.to_string())],
    )?;
    spec.burst = Some(Burst {
        ios: u64::from(ios),
        bytes: 0,
        idle: IDLE,
    });
    spec.record = true;
    Ok(spec)
}

/// The sequential reader (in the first half of the range) and the paced writer (in the second).
fn sequential(plan: &Plan, options: &BurstOptions) -> Result<[JobSpec; 2], JobError> {
    let half = (plan.limits.size / 2) / BLOCK * BLOCK;
    let bytes = burst_bytes(plan, options);
    let time = sequential_time(plan, options);
    let mut reader = plan.job("burst-read", &[("rw", "read")])?;
    reader.bs = BlockSizes::one(BLOCK);
    (reader.qd, reader.time, reader.ramp) = (DEPTH, Some(time), Nanos::ZERO);
    reader.size = Some(Bytes(half.max(BLOCK)));
    // Idle as long as a burst takes at 200 MB/s, at most a second: spaced, not saturating.
    let idle = ((bytes as f64 / 200e6 * 1e9) as u64).clamp(20_000_000, 1_000_000_000);
    reader.burst = Some(Burst {
        ios: 0,
        bytes,
        idle: Nanos(idle),
    });
    reader.record = true;
    let mut writer = plan.job("burst-writer", &[("rw", "randwrite")])?;
    writer.rw = Rw::Write;
    writer.bs = BlockSizes::one(BLOCK);
    (writer.qd, writer.time, writer.ramp, writer.bytes) = (32, Some(time), Nanos::ZERO, None);
    (writer.offset, writer.size) = (Bytes(half), Some(Bytes(half.max(BLOCK))));
    writer.rate = Some(options.writes.0 as f64 / BLOCK as f64);
    writer.arrival = Arrival::Constant;
    writer.record = true;
    Ok([reader, writer])
}

/// Rows of a job that were completed without error, by submission; each host has bursts of its own.
fn rows(book: &Notebook, job: usize) -> Result<Vec<Vec<IoRow>>, NotebookError> {
    let files = book.dir().io_files();
    files.iter().map(|f| rows_of(f, job)).collect()
}

fn rows_of(file: &Path, job: usize) -> Result<Vec<IoRow>, NotebookError> {
    let mut reader = IoLogReader::open(file)?.only_job(job as u16);
    let mut all = Vec::new();
    loop {
        let batch = reader.next_batch()?;
        if batch.is_empty() || all.len() > ROWS_MAX {
            break;
        }
        all.extend(
            batch
                .iter()
                .filter(|r| r.error == 0 && r.submitted_ns >= 0 && r.op == Op::Read)
                .copied(),
        );
    }
    all.sort_by_key(|r| r.submitted_ns);
    Ok(all)
}

/// Cuts rows into bursts: a new one begins where everything had completed for at least half the idle time.
fn bursts(rows: &[IoRow], idle: Nanos) -> Vec<&[IoRow]> {
    let mut cuts = vec![0];
    let mut busy_until = i64::MIN;
    for (i, r) in rows.iter().enumerate() {
        if i > 0 && r.submitted_ns - busy_until > idle.0 as i64 / 2 {
            cuts.push(i);
        }
        busy_until = busy_until.max(r.completed_ns);
    }
    cuts.push(rows.len());
    cuts.windows(2)
        .filter(|w| w[1] > w[0])
        .map(|w| &rows[w[0]..w[1]])
        .collect()
}

fn seen(burst: &[IoRow]) -> Seen {
    let first = burst.iter().map(|r| r.submitted_ns).min().unwrap_or(0);
    let last = burst.iter().map(|r| r.completed_ns).max().unwrap_or(first);
    Seen {
        ios: burst.len() as u64,
        bytes: burst.iter().map(|r| u64::from(r.done)).sum(),
        lasted: (last - first).max(0) as u64,
    }
}

/// Bursts of a job, on all its hosts, that were not cut short by its start or its end: as many bytes as asked for.
fn whole(hosts: &[Vec<IoRow>], idle: Nanos, bytes: u64) -> Vec<Seen> {
    hosts
        .iter()
        .flat_map(|rows| bursts(rows, idle))
        .map(seen)
        .filter(|s| s.bytes == bytes)
        .collect()
}

fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * q).round() as usize])
}

/// Throughput of a sequential burst over its course: the mean of all whole bursts in [`SLICES`] slices of the
/// longest, bytes per second by ns since the start. A burst that has ended counts no more.
fn course(all: &[Vec<IoRow>], idle: Nanos, size: u64) -> Vec<Dot> {
    let bursts: Vec<(&[IoRow], Seen)> = all
        .iter()
        .flat_map(|r| bursts(r, idle))
        .map(|b| (b, seen(b)))
        .filter(|(_, s)| s.bytes == size)
        .collect();
    let longest = bursts.iter().map(|b| b.1.lasted).max().unwrap_or(0);
    let width = (longest / SLICES as u64).max(1);
    let mut slices = [(0u64, 0u64); SLICES];
    for (rows, seen) in &bursts {
        let start = rows.first().map_or(0, |r| r.submitted_ns);
        for (i, s) in slices.iter_mut().enumerate() {
            s.1 += seen.lasted.saturating_sub(i as u64 * width).min(width);
        }
        for r in *rows {
            let at = ((r.completed_ns - start).max(0) as u64 / width) as usize;
            slices[at.min(SLICES - 1)].0 += u64::from(r.done);
        }
    }
    slices
        .iter()
        .enumerate()
        // Few that are left at the very end would be noise.
        .filter(|(_, s)| 2 * s.1 >= bursts.len() as u64 * width)
        .map(|(i, (bytes, time))| Dot {
            x: (i as f64 + 0.5) * width as f64 / 1e9,
            y: Some(*bytes as f64 / *time as f64 * 1e9),
            ..Dot::default()
        })
        .collect()
}

fn report(found: &BurstResult, evidence: &Evidence<'_>, to: &mut Shown) {
    let mut section = Section {
        id: "burst".into(),
        title: "Bursts that do not saturate".into(),
        text: format!(
            "Random 4 KiB reads in bursts, all of a burst handed over at once, with {IDLE} of idle time after each; then spaced sequential bursts, alone and beside a paced writer. A burst lasts from its first submission to its last completion, taken from the records of its I/Os.{}",
            match evidence.run().jobs.iter().map(|j| j.hosts.len()).max() {
                Some(n) if n > 0 => format!(
                    " Each of {n} hosts has its own bursts at the same time; the writers share their rate."
                ),
                _ => String::new(),
            }
        ),
        ..Section::default()
    };
    random(found, evidence, &mut section, &mut to.headlines);
    let rates = Sequential::of(found, evidence);
    rates.show(found, &mut section, &mut to.headlines);
    to.findings.extend(rates.finding(found.size));
    to.sections.push(section);
}

fn chart(id: &str, title: &str, x: Axis, y: Axis, series: Vec<ChartSeries>) -> Chart {
    parts::chart(id, title, ChartKind::Line, x, y, series)
}

/// What random reads in bursts of one size gave.
struct Rates {
    ios: f64,
    bursts: usize,
    median: Option<Estimate>,
    /// The slowest 5 %, where there are enough to tell.
    slow: Option<f64>,
    fastest: Option<f64>,
}

impl Rates {
    fn of(Small { point, seen }: &Small, evidence: &Evidence<'_>) -> Self {
        let (mut per_repeat, mut all) = (Vec::new(), Vec::new());
        for (job, seen) in point.jobs.iter().zip(seen) {
            if evidence.job(*job).is_none_or(Job::is_void) {
                continue;
            }
            let mut sorted: Vec<f64> = seen.iter().map(Seen::iops).collect();
            sorted.sort_by(f64::total_cmp);
            per_repeat.extend(quantile(&sorted, 0.5));
            all.extend(sorted);
        }
        all.sort_by(f64::total_cmp);
        Self {
            ios: f64::from(point.spec.qd),
            bursts: all.len(),
            median: Estimate::mean_of(&per_repeat),
            slow: quantile(&all, 0.05).filter(|_| all.len() >= 200),
            fastest: all.last().copied(),
        }
    }
}

/// Random reads by size of the burst.
fn random(
    found: &BurstResult,
    evidence: &Evidence<'_>,
    section: &mut Section,
    headlines: &mut Vec<Headline>,
) {
    let of = |small: &Small| Rates::of(small, evidence);
    let rates: Vec<Rates> = found.small.iter().map(of).collect();
    for (small, r) in found.small.iter().zip(&rates) {
        headlines.push(headline(
            &format!("burst-{}-iops", r.ios),
            &format!("burst of {}, instantaneous, median", r.ios),
            "IOPS",
            r.median,
            &small.point.jobs,
        ));
    }
    let slow = |r: &Rates| Dot {
        x: r.ios,
        y: r.slow,
        ..Dot::default()
    };
    let median = rates.iter().map(|r| parts::point(r.ios, r.median));
    section.charts.push(chart(
        "burst-iops",
        "Instantaneous IOPS by size of the burst",
        axis("I/Os in the burst", "", true),
        axis("IOPS", "IOPS", false),
        vec![
            series("median", median.collect()),
            series("slowest 5 %", rates.iter().map(slow).collect()),
        ],
    ));
    section.tables.push(parts::table(
        "burst-table",
        "Random 4 KiB reads in bursts",
        &rates,
        &[
            ("I/Os in the burst", "", &|r| r.ios.into()),
            ("bursts", "", &|r| (r.bursts as f64).into()),
            ("IOPS, median", "IOPS", &|r| r.median.into()),
            ("bandwidth, median", "bytes/s", &|r| {
                r.median.map(|e| e.scale(4096.0)).into()
            }),
            ("slowest 5 %", "IOPS", &|r| r.slow.into()),
            ("fastest", "IOPS", &|r| r.fastest.into()),
        ],
    ));
}

/// Bandwidths of sequential bursts.
struct Sequential {
    alone: Option<Estimate>,
    beside: Option<Estimate>,
    deficit: Option<Estimate>,
    written: Option<Estimate>,
    jobs: Vec<usize>,
}

impl Sequential {
    fn of(found: &BurstResult, evidence: &Evidence<'_>) -> Self {
        let BurstResult { alone, beside, .. } = found;
        let (quiet, loaded) = (alone.bandwidths(evidence), beside.bandwidths(evidence));
        let lost = |(q, l): (&f64, &f64)| 100.0 * (1.0 - l / q);
        let pairs: Vec<f64> = quiet.iter().zip(&loaded).map(lost).collect();
        // Pairs only where every repeat gave a number: otherwise the partners would not match.
        let whole = quiet.len() == alone.jobs.len() && loaded.len() == beside.jobs.len();
        let written = |w: &usize| Some(evidence.job(*w)?.write.as_ref()?.bytes_per_second);
        let written: Vec<f64> = found.writers.iter().filter_map(written).collect();
        let both = alone.jobs.iter().chain(&beside.jobs);
        Self {
            alone: Estimate::mean_of(&quiet),
            beside: Estimate::mean_of(&loaded),
            deficit: Estimate::mean_of(&pairs).filter(|_| whole),
            written: Estimate::mean_of(&written),
            jobs: both.chain(&found.writers).copied().collect(),
        }
    }

    fn show(&self, found: &BurstResult, section: &mut Section, headlines: &mut Vec<Headline>) {
        let (alone, beside, size) = (&found.alone, &found.beside, found.size);
        if self.alone.is_none() && !alone.jobs.is_empty() {
            section.flags.push(Flag::new(
                FlagCode::TooFewSamples,
                format!("no sequential burst of {size} was completed in the time of a job"),
                "choose a smaller --burst, or a longer --profile",
            ));
        }
        headlines.push(headline(
            "burst-read-alone",
            "sequential burst, alone",
            "bytes/s",
            self.alone,
            &alone.jobs,
        ));
        if found.writer {
            headlines.push(headline(
                "burst-read-beside",
                "sequential burst, beside the writer",
                "bytes/s",
                self.beside,
                &beside.jobs,
            ));
            headlines.push(headline(
                "burst-deficit",
                "deficit beside the writer",
                "%",
                self.deficit,
                &self.jobs,
            ));
        }
        section.charts.push(chart(
            "burst-course",
            "Throughput over the course of a sequential burst",
            axis("since its start", "s", false),
            axis("throughput", "bytes/s", false),
            vec![
                series("alone", alone.course.clone()),
                series("beside the writer", beside.course.clone()),
            ],
        ));
        section.tables.push(parts::table(
            "burst-sequential",
            &format!("Sequential reads in bursts of {size}"),
            [self],
            &[
                ("alone", "bytes/s", &|s| s.alone.into()),
                ("beside the writer", "bytes/s", &|s| s.beside.into()),
                ("deficit", "%", &|s| s.deficit.into()),
                ("written meanwhile", "bytes/s", &|s| s.written.into()),
            ],
        ));
    }

    fn finding(&self, size: Bytes) -> Option<Finding> {
        let (d, a, b, w) = (self.deficit?, self.alone?, self.beside?, self.written?);
        let mb = |e: Estimate| e.value / 1e6;
        let shown = d.shows_effect();
        let verdict = match (shown, d.low, d.high) {
            (true, Some(low), Some(high)) if d.value < 0.0 => format!(
                "{:.0} % more (95 % interval {:.0} to {:.0} %)",
                -d.value, -high, -low
            ),
            (true, Some(low), Some(high)) => format!(
                "{:.0} % less (95 % interval {low:.0} to {high:.0} %)",
                d.value
            ),
            _ => "no difference shown".to_owned(),
        };
        let advice = match shown && d.value > 10.0 {
            true => {
                "Sequential read figures of this device hold only without writes: move background writes to another device, or expect this deficit."
            }
            false => "",
        };
        Some(Finding {
            id: "burst-deficit".into(),
            text: format!(
                "Beside {:.1} MB/s of writes, sequential bursts of {size} are read at {:.0} MB/s instead of {:.0} MB/s: {verdict}.",
                mb(w),
                mb(b),
                mb(a)
            ),
            advice: advice.into(),
            confidence: if shown { "strong" } else { "moderate" }.into(),
            jobs: self.jobs.clone(),
            evidence: vec!["burst-sequential".into(), "burst-course".into()],
            refuted_by: "The same bursts in turns with another --seed, whose interval holds 0."
                .into(),
            ..Finding::default()
        })
    }
}

fn headline(id: &str, label: &str, unit: &str, e: Option<Estimate>, jobs: &[usize]) -> Headline {
    parts::headline_of("Bursts", label, id, unit, e, jobs.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of `n` blocks, one after another, each of `ns`.
    fn burst(start: i64, n: usize, ns: i64) -> Vec<IoRow> {
        (0..n as i64)
            .map(|i| IoRow {
                job: 0,
                thread: 0,
                intended_ns: start,
                submitted_ns: start + i * ns,
                completed_ns: start + (i + 1) * ns,
                offset: 0,
                len: BLOCK as u32,
                done: BLOCK as u32,
                error: 0,
                op: Op::Read,
            })
            .collect()
    }

    #[test]
    fn a_course_keeps_its_level_to_the_end_whatever_bursts_ended_before() {
        let idle = Nanos::from_millis(10);
        let (fast, slow) = (burst(0, 1000, 10_000), burst(1_000_000_000, 1000, 11_000));
        // Cut short by the end of the job.
        let cut = burst(2_000_000_000, 300, 10_000);
        let rows = vec![[fast, slow, cut].concat()];
        let level = |ns: f64| BLOCK as f64 / ns * 1e9;
        let course = course(&rows, idle, 1000 * BLOCK);
        assert!(course.len() > 40);
        for dot in course {
            let y = dot.y.unwrap();
            assert!(
                (level(11_500.0)..level(9_500.0)).contains(&y),
                "{y} at {}",
                dot.x
            );
        }
    }
}

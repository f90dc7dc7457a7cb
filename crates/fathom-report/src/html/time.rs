//! Charts over time: percentiles, throughput and a latency heat map per job, chosen by a selector.
//!
//! Windows without any completion are gaps in the latency charts (nothing was measured) and zero in
//! the throughput chart (nothing was done): a stall must be seen.

use fathom_telemetry::schema::{ChartKind, Job};
use fathom_telemetry::series::JobSeries;
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{DirectionWindow, FlagCode, Op, SparseHistogram, histogram};

use super::Detail;
use super::spec::{Abscissa, Columns, Num, Spec, Variant, axis, own};

/// Windows of all jobs together that the page carries (about 35 bytes each), and the limits per job.
const WINDOWS_BUDGET: usize = 36_000;
const WINDOWS_MIN: u64 = 40;
const WINDOWS_MAX: u64 = 1_000;
/// The usual length of a window; shorter ones are bounded by three times the budget.
const WINDOW_NS: u64 = 100_000_000;
/// Columns of all heat maps together, and the limits per job.
const COLUMNS_BUDGET: usize = 5_000;
const COLUMNS_MIN: usize = 8;
const COLUMNS_MAX: usize = 120;
/// Rows of a heat map, at most.
const ROWS_MAX: usize = 44;
/// Jobs with charts over time; the CSV export has them all.
pub(crate) const JOBS_MAX: usize = 300;
/// A last window shorter than this share of the others is left out: its rate would be noise.
const PARTIAL_MIN: f64 = 0.3;

/// Name of the selector that the charts follow.
pub(crate) const GROUP: &str = "jobs";

/// How many windows of each job to ask for, so that all together keep the budget: short jobs leave
/// their share to long ones.
pub(crate) fn windows_per_job(jobs: &[Job], detail: Detail) -> usize {
    let budget = detail.of(WINDOWS_BUDGET) as u64;
    let jobs = &jobs[..jobs.len().min(JOBS_MAX)];
    let total = |most: u64| -> u64 {
        jobs.iter()
            .map(|j| (j.wall_ns / WINDOW_NS + 1).min(most))
            .sum()
    };
    let mut most = (3 * budget / (jobs.len() as u64).max(1)).clamp(WINDOWS_MIN, WINDOWS_MAX);
    while most > WINDOWS_MIN && total(most) > budget {
        most = (most * 9 / 10).max(WINDOWS_MIN);
    }
    most as usize
}

/// The three charts, with a variant per job.
pub(crate) struct OverTime {
    percentiles: Spec,
    throughput: Spec,
    heat: Spec,
    columns: usize,
    /// Indices into `Run::jobs` of the variants.
    pub(crate) jobs: Vec<usize>,
    /// The variant with the longest job: it has most to tell, so it is shown first.
    pub(crate) longest: usize,
    longest_ns: u64,
}

impl OverTime {
    /// No jobs yet; `jobs` is how many are expected.
    pub(crate) fn new(jobs: usize, detail: Detail) -> Self {
        let time = || axis("time since the job's start", "s", false);
        let chart = |title: &str, kind, y| Spec {
            group: Some(GROUP),
            height: Some(250),
            ..own(title.to_owned(), kind, time(), y)
        };
        let latency = || axis("latency", "ns", true);
        Self {
            percentiles: chart("Latency percentiles per window", ChartKind::Line, latency()),
            throughput: chart(
                "I/Os per second per window",
                ChartKind::Line,
                axis("IOPS", "IOPS", false),
            ),
            heat: Spec {
                z: Some(axis("I/Os", "", true)),
                even: true,
                ..chart("Where the I/Os fell", ChartKind::Heatmap, latency())
            },
            columns: (detail.of(COLUMNS_BUDGET) / jobs.max(1)).clamp(COLUMNS_MIN, COLUMNS_MAX),
            jobs: Vec::new(),
            longest: 0,
            longest_ns: 0,
        }
    }

    /// Adds a job's windows; nothing where it has none or the page is full.
    pub(crate) fn add(&mut self, index: usize, job: &Job, series: &JobSeries) {
        if series.windows.is_empty() || self.jobs.len() >= JOBS_MAX {
            return;
        }
        if job.wall_ns > self.longest_ns {
            (self.longest, self.longest_ns) = (self.jobs.len(), job.wall_ns);
        }
        self.jobs.push(index);
        let open_loop = job.open_loop.is_some();
        let ops: Vec<Op> = Op::ALL
            .into_iter()
            .filter(|op| {
                series
                    .windows
                    .iter()
                    .any(|w| w.directions[*op as usize].is_some())
            })
            .collect();
        let named = |op: &Op, what: &str| match ops.len() {
            1 => what.to_owned(),
            _ => format!("{} {what}", op.name()),
        };
        let mut percentiles = Vec::new();
        let mut throughput = Vec::new();
        for op in &ops {
            percentiles.extend(percentile_lines(series, *op, open_loop, |what| {
                named(op, what)
            }));
            throughput.push(rate_line(job, series, *op, named(op, "IOPS")));
        }
        let heat = heat_cells(series, self.columns, open_loop);
        let stamp = not_steady(job).then_some("not steady");
        let windows = series.windows.last().map_or(0, |w| w.index + 1);
        let span = Num::rounded(windows as f64 * series.width.as_secs_f64());
        let variant = |series| Variant {
            job: job.name.clone(),
            series,
            stamp,
            span,
        };
        self.percentiles.variants.push(variant(percentiles));
        self.throughput.variants.push(variant(throughput));
        self.heat.variants.push(variant(vec![heat]));
    }

    /// The charts; none without windows.
    pub(crate) fn charts(self) -> Vec<Spec> {
        if self.jobs.is_empty() {
            return Vec::new();
        }
        let mut charts = vec![self.percentiles, self.throughput, self.heat];
        for c in &mut charts {
            c.initial = self.longest;
        }
        charts
    }
}

/// Whether the job's level still moved.
pub(crate) fn not_steady(job: &Job) -> bool {
    job.flags.iter().any(|f| f.code == FlagCode::NotSteady)
}

fn latency(d: &DirectionWindow, open_loop: bool) -> &SparseHistogram {
    if open_loop { &d.response } else { &d.service }
}

/// Times of all windows from first to last, those without completions included.
fn times(series: &JobSeries) -> impl Iterator<Item = (u64, f64)> {
    let width = series.width.as_secs_f64();
    let last = series.windows.last().map_or(0, |w| w.index);
    (0..=last).map(move |i| (i, i as f64 * width))
}

fn percentile_lines(
    series: &JobSeries,
    op: Op,
    open_loop: bool,
    name: impl Fn(&str) -> String,
) -> Vec<Columns> {
    type Pick = fn(&SparseHistogram) -> Option<u64>;
    let lines: [(&str, Pick); 4] = [
        ("p50", |h| h.quantile_supported(0.5, SAMPLES_BEYOND)),
        ("p99", |h| h.quantile_supported(0.99, SAMPLES_BEYOND)),
        ("p99.9", |h| h.quantile_supported(0.999, SAMPLES_BEYOND)),
        ("max", |h| (h.moments.count > 0).then_some(h.moments.max)),
    ];
    lines
        .into_iter()
        .map(|(what, pick)| {
            let mut windows = series.windows.iter().peekable();
            let mut line = Columns {
                name: name(what),
                ..Columns::default()
            };
            for (index, _) in times(series) {
                let window = windows.next_if(|w| w.index == index);
                let d = window.and_then(|w| w.directions[op as usize].as_ref());
                let value = d.and_then(|d| pick(latency(d, open_loop)));
                line.y.push(value.map(|v| Num::rounded(v as f64)));
            }
            line.x = even(series, line.y.len());
            line
        })
        .filter(|line| line.y.iter().any(Option::is_some))
        .collect()
}

fn rate_line(job: &Job, series: &JobSeries, op: Op, name: String) -> Columns {
    let width = series.width.as_secs_f64();
    let end = job.wall_ns as f64 / 1e9;
    let mut line = Columns {
        name,
        ..Columns::default()
    };
    let mut windows = series.windows.iter().peekable();
    for (index, t) in times(series) {
        let ios = windows
            .next_if(|w| w.index == index)
            .and_then(|w| w.directions[op as usize].as_ref())
            .map_or(0, |d| d.ios);
        // The last window ends with the job.
        let length = if end > 0.0 {
            (end - t).min(width)
        } else {
            width
        };
        if length < width * PARTIAL_MIN {
            break;
        }
        line.y.push(Some(Num::rounded(ios as f64 / length)));
    }
    line.x = even(series, line.y.len());
    line
}

fn even(series: &JobSeries, n: usize) -> Abscissa {
    Abscissa::Even {
        step: Num::rounded(series.width.as_secs_f64()),
        n,
    }
}

/// Counts by time and latency, all operations together; rows are even on the logarithmic axis.
fn heat_cells(series: &JobSeries, columns: usize, open_loop: bool) -> Columns {
    let mut cells = Columns::default();
    let all = || {
        series.windows.iter().flat_map(|w| {
            w.directions
                .iter()
                .flatten()
                .map(|d| (w.index, latency(d, open_loop)))
        })
    };
    let Some(min) = all()
        .filter(|(_, h)| h.moments.count > 0)
        .map(|(_, h)| h.moments.min)
        .min()
    else {
        return cells;
    };
    let max = all().map(|(_, h)| h.moments.max).max().unwrap_or(min);
    let (low, high) = ((min.max(1) as f64).ln(), (max.max(1) as f64).ln());
    // Eighths of an octave, or coarser where that would be too many rows.
    let step = (std::f64::consts::LN_2 / 8.0).max((high - low) / (ROWS_MAX - 1) as f64);
    let span = series.windows.last().map_or(1, |w| w.index + 1);
    let merge = span.div_ceil(columns as u64).max(1);
    let width = series.width.as_secs_f64() * merge as f64;
    let mut counts = std::collections::BTreeMap::<(u64, u64), u64>::new();
    for (index, h) in all() {
        for &(bucket, n) in &h.buckets {
            let bucket = bucket as usize;
            let middle =
                histogram::lower_bound(bucket) as f64 + (histogram::width(bucket) - 1) as f64 / 2.0;
            let row = ((middle.max(1.0).ln() - low) / step).max(0.0) as u64;
            *counts.entry((index / merge, row)).or_default() += n;
        }
    }
    cells.x = counts
        .keys()
        .map(|(column, _)| (*column as f64 + 0.5) * width)
        .collect();
    for ((_, row), n) in counts {
        cells
            .y
            .push(Some(Num::rounded((low + (row as f64 + 0.5) * step).exp())));
        cells.z.push(Some(Num(n as f64)));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;
    use fathom_telemetry::{Histogram, Nanos, Window};

    fn series(windows: &[(u64, u64)]) -> JobSeries {
        let window = |&(index, ios): &(u64, u64)| {
            let mut h = Histogram::new();
            h.record_n(100_000, ios);
            let d = DirectionWindow {
                ios,
                service: h.to_sparse(),
                response: h.to_sparse(),
                ..DirectionWindow::default()
            };
            Window {
                index,
                directions: [Some(Box::new(d)), None, None, None],
            }
        };
        JobSeries {
            width: Nanos::from_secs(1),
            windows: windows.iter().map(window).collect(),
        }
    }

    #[test]
    fn a_stall_is_zero_throughput_and_a_gap_in_latency() {
        let s = series(&[(0, 5000), (2, 5000)]);
        let mut j = job("a");
        j.wall_ns = 3_000_000_000;
        let rate = rate_line(&j, &s, Op::Read, "IOPS".into());
        assert_eq!(rate.y, [5000.0, 0.0, 5000.0].map(|v| Some(Num(v))));
        let lines = percentile_lines(&s, Op::Read, false, str::to_owned);
        assert_eq!(lines[0].y[1], None);
        assert_eq!(lines[0].y[0], Some(Num(100_000.0)));
        assert!(
            lines.iter().all(|l| l.name != "p99.9"),
            "5 samples beyond are too few"
        );
    }

    #[test]
    fn the_last_window_is_as_long_as_the_job() {
        let s = series(&[(0, 5000), (1, 2500), (2, 10)]);
        let mut j = job("a");
        j.wall_ns = 1_500_000_000;
        let rate = rate_line(&j, &s, Op::Read, String::new());
        assert_eq!(rate.y, [5000.0, 5000.0].map(|v| Some(Num(v))));
    }

    #[test]
    fn short_jobs_leave_their_share_of_windows_to_long_ones() {
        let jobs = |n: usize, seconds: u64| -> Vec<Job> {
            let mut j = job("a");
            j.wall_ns = seconds * 1_000_000_000;
            vec![j; n]
        };
        let full = Detail { halvings: 0 };
        assert_eq!(windows_per_job(&jobs(100, 3), full), 1000);
        assert_eq!(windows_per_job(&jobs(10, 3600), full), 1000);
        let many = windows_per_job(&jobs(300, 3600), full);
        assert!((100..=120).contains(&many), "{many}");
    }

    #[test]
    fn the_heat_map_counts_every_io() {
        let cells = heat_cells(&series(&[(0, 7), (1, 8), (5, 9)]), 2, false);
        let total: f64 = cells.z.iter().flatten().map(|n| n.0).sum();
        assert_eq!(total, 24.0);
        assert_eq!(cells.z.len(), 2);
    }
}

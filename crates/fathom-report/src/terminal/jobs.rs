//! Every figure of a job, in the order in which one reads fio's output, and a table of many jobs.

use fathom_telemetry::LatencySummary;
use fathom_telemetry::schema::{Direction, Job, Run};

use super::{Notes, flag_lines};
use crate::format::{self, HOLE};
use crate::text::{Align, Cut, Grid, Paint, Screen, clean, wrap};

/// More jobs than this are shown as a table, a line each.
const DETAILED_JOBS: usize = 6;

/// All jobs: in detail where they are few, else as a table.
pub fn jobs(run: &Run, screen: &Screen) -> String {
    if run.jobs.len() > DETAILED_JOBS {
        return job_table(&run.jobs, screen);
    }
    let details: Vec<String> = run.jobs.iter().map(|j| job_detail(j, screen)).collect();
    details.join("\n")
}

/// The directions that a job has, with their names.
pub(crate) fn directions(job: &Job) -> impl Iterator<Item = (&'static str, &Direction)> {
    [
        ("read", &job.read),
        ("write", &job.write),
        ("trim", &job.trim),
        ("sync", &job.sync),
    ]
    .into_iter()
    .filter_map(|(name, d)| d.as_ref().map(|d| (name, d)))
}

/// The latency that a job's user sees.
pub(crate) fn seen<'a>(job: &Job, d: &'a Direction) -> &'a LatencySummary {
    if job.open_loop.is_some() {
        &d.response_ns
    } else {
        &d.service_ns
    }
}

/// What a job delivered in each direction: IOPS, bandwidth, median and p99 of the latency that its user sees.
/// A job that delivered nothing is a row of holes.
pub(crate) fn delivered(job: &Job) -> Vec<(&'static str, [String; 4])> {
    let mut rows: Vec<_> = directions(job)
        .map(|(name, d)| {
            let latency = seen(job, d);
            let cells = [
                format::below(d.iops, "IOPS", "IOPS"),
                format::value(d.bytes_per_second, "bytes/s"),
                ns(latency.p50),
                ns(latency.p99),
            ];
            (name, cells)
        })
        .collect();
    if rows.is_empty() {
        rows.push(("", [HOLE; 4].map(str::to_owned)));
    }
    rows
}

/// I/Os of all directions.
pub(crate) fn total_ios(job: &Job) -> u64 {
    directions(job).map(|(_, d)| d.ios).sum()
}

/// CPU time per I/O, ns; `None` without I/O.
pub(crate) fn cpu_per_io(job: &Job) -> Option<f64> {
    let ios = total_ios(job);
    // A model's run has no CPU time: a hole, not 0.
    (ios > 0 && job.cpu_ns > 0).then(|| job.cpu_ns as f64 / ios as f64)
}

pub(crate) fn ns(v: Option<u64>) -> String {
    format::optional(v.map(|v| v as f64), "ns")
}

/// One job with everything that was measured about it. Ends with a line break.
pub fn job_detail(job: &Job, screen: &Screen) -> String {
    let mut out = screen.paint(Paint::Bold, &clean(&job.name));
    out.push_str(&format!(
        "  {} · {} · depth {:.1} of {}\n",
        clean(&job.engine),
        format::wall(job.wall_ns),
        job.qd_achieved,
        job.qd_requested,
    ));
    let mut totals = Grid::new(&[
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Left,
    ]);
    let mut latency = Grid::new(&[
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
    ]);
    let head = ["", "min", "mean", "p50", "p90", "p99", "p99.9", "max"];
    latency.row(head.map(|h| (h.to_owned(), Paint::Dim)));
    for (name, d) in directions(job) {
        totals.row(totals_row(name, d));
        for (what, l) in [
            ("submit", &d.submit_ns),
            ("service", &d.service_ns),
            ("response", &d.response_ns),
        ] {
            if l.samples > 0 {
                latency.row(latency_row(&format!("{name} {what}"), l));
            }
        }
    }
    let nothing = directions(job).next().is_none();
    if nothing {
        out.push_str("  No I/O completed.\n");
    }
    for grid in [totals, latency].iter().filter(|_| !nothing) {
        for line in grid.lines(screen, 2) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    for (what, text) in remarks(job) {
        let what = screen.paint(Paint::Dim, &format!("{what:<9}"));
        out.push_str(&format!(
            "  {what} {}\n",
            wrap(&text, screen.width - 12, 12)
        ));
    }
    let mut notes = Notes::default();
    notes.marks(&job.flags);
    out.push_str(&flag_lines(&notes.flags, screen));
    out
}

fn totals_row(name: &str, d: &Direction) -> Vec<(String, Paint)> {
    let bandwidth = if name == "sync" {
        String::new()
    } else {
        format::value(d.bytes_per_second, "bytes/s")
    };
    let bytes = if name == "sync" {
        String::new()
    } else {
        format::value(d.bytes as f64, "bytes")
    };
    let mut trouble = Vec::new();
    if d.errors > 0 {
        trouble.push(format!("{} failed", format::grouped(d.errors)));
    }
    if d.short > 0 {
        trouble.push(format!("{} short", format::grouped(d.short)));
    }
    vec![
        (name.to_owned(), Paint::None),
        (
            // In full where it is read as a count, as in fio: `512,345 IOPS`.
            format!("{} IOPS", format::grouped(d.iops.round().max(0.0) as u64)),
            Paint::Bold,
        ),
        (bandwidth, Paint::Bold),
        (format!("{} I/Os", format::grouped(d.ios)), Paint::None),
        (bytes, Paint::None),
        (trouble.join(", "), Paint::Red),
    ]
}

fn latency_row(name: &str, l: &LatencySummary) -> Vec<(String, Paint)> {
    vec![
        (name.to_owned(), Paint::None),
        (ns(l.min), Paint::None),
        (format::optional(l.mean, "ns"), Paint::Bold),
        (ns(l.p50), Paint::None),
        (ns(l.p90), Paint::None),
        (ns(l.p99), Paint::Bold),
        (ns(l.p99_9), Paint::None),
        (ns(l.max), Paint::None),
    ]
}

/// What else is known, as label and text.
fn remarks(job: &Job) -> Vec<(&'static str, String)> {
    let mut remarks = Vec::new();
    // Virtual time has no CPU time.
    if let Some(per_io) = cpu_per_io(job).filter(|_| job.cpu_ns > 0) {
        let user = job.cpu_user_ns as f64 / (job.cpu_ns.max(1)) as f64;
        let cores = job.cpu_ns as f64 / (job.wall_ns.max(1)) as f64;
        remarks.push((
            "CPU",
            format!(
                "{} per I/O, {} of one core ({} in user mode)",
                format::value(per_io, "ns"),
                format::share(cores),
                format::share(user)
            ),
        ));
    }
    if let Some(text) = depth_shares(job) {
        remarks.push(("depth", text));
    }
    if let Some(o) = &job.open_loop {
        remarks.push((
            "schedule",
            format!(
                "{} asked, {} achieved; {} late (at most {}), {} never started",
                format::value(o.rate_asked, "IOPS"),
                format::value(o.rate_achieved, "IOPS"),
                format::grouped(o.late),
                format::value(o.lateness_max_ns as f64, "ns"),
                format::grouped(o.unissued),
            ),
        ));
    }
    if let Some(d) = &job.device {
        let mut text = format!(
            "{}: {} reads ({}), {} writes ({})",
            clean(&d.name),
            format::grouped(d.read_ios),
            format::value(d.read_bytes as f64, "bytes"),
            format::grouped(d.write_ios),
            format::value(d.write_bytes as f64, "bytes"),
        );
        if d.flush_ios > 0 {
            text.push_str(&format!(", {} flushes", format::grouped(d.flush_ios)));
        }
        remarks.push(("device", text));
    }
    if !job.engine_notes.is_empty() {
        remarks.push(("engine", clean(&job.engine_notes.join(", "))));
    }
    for e in &job.errors {
        remarks.push((
            "error",
            format!(
                "{}: {}",
                e.op.name(),
                clean(&format!("{} ({})", e.message, e.errno))
            ),
        ));
    }
    remarks
}

/// Share of time at the depths that matter (1 % and more), most frequent first.
fn depth_shares(job: &Job) -> Option<String> {
    let mut shares: Vec<(u32, f64)> = job
        .qd_distribution
        .iter()
        .copied()
        .filter(|(_, s)| *s >= 0.01)
        .collect();
    if shares.is_empty() || (shares.len() == 1 && shares[0].0 == job.qd_requested) {
        return None;
    }
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let list: Vec<String> = shares
        .iter()
        .take(6)
        .map(|(d, s)| format!("{d}: {}", format::share((s * 1000.0).round() / 1000.0)))
        .collect();
    Some(list.join(", "))
}

/// A line per job and direction. Ends with a line break.
pub fn job_table(jobs: &[Job], screen: &Screen) -> String {
    let mut align = vec![Align::Left, Align::Left];
    align.extend([Align::Right; 9]);
    align.push(Align::Left);
    let wide = screen.width >= 110;
    let mut grid = Grid::new(&align);
    grid.cut = Cut::Middle;
    let mut notes = Notes::default();
    let head = [
        "job",
        "dir",
        "IOPS",
        "bandwidth",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "max",
        "depth",
        "CPU/IO",
    ];
    grid.row(columns(head.map(str::to_owned).into(), wide).map(|h| (h, Paint::Dim)));
    for job in jobs {
        let marks = notes.marks(&job.flags);
        let paint = if job.is_void() {
            Paint::Red
        } else {
            Paint::None
        };
        let name = clean(&job.name);
        let mut any = false;
        for (direction, d) in directions(job) {
            any = true;
            let l = seen(job, d);
            let cells = vec![
                name.clone(),
                direction.to_owned(),
                format::below(d.iops, "IOPS", "IOPS"),
                format::value(d.bytes_per_second, "bytes/s"),
                format::optional(l.mean, "ns"),
                ns(l.p50),
                ns(l.p99),
                ns(l.p99_9),
                ns(l.max),
                format!("{:.1}", job.qd_achieved),
                format::optional(cpu_per_io(job), "ns"),
            ];
            let row = columns(cells, wide).map(|c| (c, paint));
            grid.row(row.chain([(marks.clone(), Paint::Yellow)]));
        }
        if !any {
            let cells = vec![name, HOLE.to_owned(), HOLE.to_owned()];
            let blank = if wide { 8 } else { 4 };
            let row = cells.into_iter().chain((0..blank).map(|_| HOLE.to_owned()));
            grid.row(row.map(|c| (c, paint)).chain([(marks, Paint::Yellow)]));
        }
    }
    let mut out = String::new();
    for line in grid.lines(screen, 0) {
        out.push_str(&line);
        out.push('\n');
    }
    if !notes.flags.is_empty() {
        out.push('\n');
        out.push_str(&flag_lines(&notes.flags, screen));
    }
    out
}

/// All columns on a wide screen, the essential ones on a narrow one.
fn columns(cells: Vec<String>, wide: bool) -> impl Iterator<Item = String> {
    const NARROW: [usize; 7] = [0, 1, 2, 3, 5, 6, 9];
    cells
        .into_iter()
        .enumerate()
        .filter(move |(i, _)| wide || NARROW.contains(i))
        .map(|(_, c)| c)
}

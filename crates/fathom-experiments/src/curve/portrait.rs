//! From the measured points to the device's portrait: knee, maximum, latency at shares of it.

use fathom_bench::cells::{Analysis, Cell};
use fathom_bench::parts::{self, axis, column, estimate, headline_of, number, op_of, series};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, ChartSeries, Finding, Headline, Mark, Point, Section,
    Table,
};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Nanos, Op};

use super::{CurveOptions, Latency, Measured, depth_of, loads};
use crate::knee::{
    Load, bootstrap, closed_knee, knee_latency, latency_at, mean, open_knee, plateau,
};

/// Shares of the maximum at which latency is compared with its base (Zhang et al. 2018, Fig. 7: 95 %).
const AT: [f64; 3] = [0.5, 0.8, 0.95];

/// Section, headlines and findings of a curve.
pub(super) fn analyse(measured: &Measured, options: &CurveOptions, seed: u64) -> Analysis {
    let found = Found::of(measured, seed);
    let what = format!("{} {}", options.bs.words(), options.rw.word());
    let mut a = Analysis {
        section: Section {
            id: "curve".into(),
            title: format!("Load curve, {what}"),
            text: "Closed loop: a fixed number of I/Os outstanding, each on a thread of its own until those are used up (column threads). Open loop: I/Os arrive at random times (Poisson) at a given rate, whatever the device does, and response latency counts from the intended start. The knee is where throughput divided by latency is largest.".into(),
            ..Section::default()
        },
        ..Analysis::default()
    };
    a.section.charts = vec![
        portrait(measured, &found),
        power(measured, &found),
        depth(measured),
    ];
    a.section.tables = vec![
        shares_table(&found),
        closed_table(measured),
        open_table(measured, &found),
    ];
    a.headlines = headlines(measured, &found, &what);
    a.findings = findings(measured, &found);
    a
}

/// The numbers that the portrait rests on.
struct Found {
    /// I/Os per second.
    max: Option<Estimate>,
    /// It was delivered in open loop.
    max_open: bool,
    /// Mean latency with one outstanding I/O, ns.
    base: Option<Estimate>,
    /// I/Os per second of largest power in open loop.
    knee: Option<Estimate>,
    /// Depth of largest power in closed loop.
    depth: Option<Estimate>,
    /// Response latency at the knee, ns.
    knee_latency: Option<Estimate>,
    /// For each share of [`AT`]: latency over base in closed loop, in open loop.
    rises: Vec<(Option<Estimate>, Option<Estimate>)>,
}

impl Found {
    fn of(measured: &Measured, seed: u64) -> Self {
        let all = |cells: &[Cell]| -> Vec<Vec<Load>> {
            cells
                .iter()
                .map(|c| loads(c, Latency::Response))
                .filter(|l| !l.is_empty())
                .collect()
        };
        let (closed, open) = (all(&measured.closed), all(&measured.open));
        let (max, max_open) = maximum(measured);
        let (closed_points, both) = (closed.len(), [closed.clone(), open.clone()].concat());
        let base = measured
            .closed
            .first()
            .filter(|c| depth_of(&c.spec) == 1)
            .and_then(Cell::mean_latency);
        let knee = bootstrap(&open, 6, seed, open_knee);
        let rises = AT
            .iter()
            .map(|share| {
                let closed = bootstrap(&closed, 3, seed, |l| {
                    let base = l.iter().find(|p| p.set == 1.0)?.latency;
                    Some(latency_at(l, share * plateau(l))? / base)
                });
                // Maximum and base come from the closed loop: what is not known of them belongs to the quotient.
                let open = bootstrap(&both, 3, seed, |l| {
                    let (closed, open) = l.split_at_checked(closed_points)?;
                    let base = closed.iter().find(|p| p.set == 1.0)?.latency;
                    Some(latency_at(open, share * plateau(closed))? / base)
                });
                (closed, open)
            })
            .collect();
        Self {
            max,
            max_open,
            base,
            knee,
            depth: bootstrap(&closed, 3, seed, closed_knee),
            knee_latency: bootstrap(&open, 6, seed, knee_latency),
            rises,
        }
    }

    /// The jobs that the maximum rests on.
    fn max_jobs<'a>(&self, closed: &'a [usize], open: &'a [usize]) -> &'a [usize] {
        if self.max_open { open } else { closed }
    }

    /// The knee as a share of the maximum.
    fn knee_share(&self) -> Option<Estimate> {
        Some(self.knee?.scale(1.0 / self.max?.value))
    }
}

/// The most that was delivered, and whether that was in open loop: by two percent more than in closed loop, since a loop that
/// others disturbed is no maximum beside rates above it.
fn maximum(measured: &Measured) -> (Option<Estimate>, bool) {
    let most = |cells: &[Cell]| {
        let rates = cells.iter().filter_map(Cell::iops);
        rates.max_by(|a, b| a.value.total_cmp(&b.value))
    };
    let (closed, open) = (most(&measured.closed), most(&measured.open));
    match (closed, open) {
        (Some(c), Some(o)) if o.value > 1.02 * c.value => (Some(o), true),
        (None, Some(o)) => (Some(o), true),
        _ => (closed, false),
    }
}

fn chart(
    id: &str,
    title: &str,
    x: fathom_telemetry::schema::Axis,
    y: fathom_telemetry::schema::Axis,
    series: Vec<ChartSeries>,
    marks: Vec<Mark>,
) -> Chart {
    Chart {
        marks,
        ..parts::chart(id, title, ChartKind::Line, x, y, series)
    }
}

/// Latency over throughput: the figure that everybody knows.
fn portrait(measured: &Measured, found: &Found) -> Chart {
    let label = |c: &Cell| match c.spec.rate {
        Some(_) => share_label(c, found),
        None => Some(format!("QD {}", depth_of(&c.spec))),
    };
    let line = |cells: &[Cell], y: &dyn Fn(&Cell) -> Option<Estimate>| -> Vec<Point> {
        cells
            .iter()
            .filter_map(|c| {
                let e = y(c);
                Some(Point {
                    x: c.iops()?.value,
                    y: e.map(|e| e.value),
                    low: e.and_then(|e| e.low),
                    high: e.and_then(|e| e.high),
                    label: label(c),
                    ..Point::default()
                })
            })
            .collect()
    };
    let p99 = |c: &Cell| c.percentile(op_of(c), 0.99).map(Estimate::single);
    let mut all = vec![series(
        "closed loop, mean",
        line(&measured.closed, &Cell::mean_latency),
    )];
    if !measured.open.is_empty() {
        all.push(series(
            "open loop, response",
            line(&measured.open, &Cell::mean_latency),
        ));
        all.push(series("open loop, service", line(&measured.open, &service)));
        all.push(series(
            "open loop, response p99",
            line(&measured.open, &p99),
        ));
    }
    let mark = |x: Option<Estimate>, name: &str| {
        x.map(|e| Mark {
            x: Some(e.value),
            y: None,
            label: name.into(),
        })
    };
    chart(
        "curve",
        "Throughput-latency curve",
        axis("IOPS", "IOPS", false),
        axis("latency", "ns", true),
        all,
        [mark(found.knee, "knee"), mark(found.max, "maximum")]
            .into_iter()
            .flatten()
            .collect(),
    )
}

fn share_label(c: &Cell, found: &Found) -> Option<String> {
    Some(format!("{:.0} %", 100.0 * c.spec.rate? / found.max?.value))
}

/// Power relative to its largest value, by share of the maximum: shows how sharp the knee is.
fn power(measured: &Measured, found: &Found) -> Chart {
    let max = found.max.map_or(f64::INFINITY, |m| m.value);
    let line = |cells: &[Cell]| {
        let points: Vec<Load> = cells
            .iter()
            .filter_map(|c| mean(loads(c, Latency::Response).iter()))
            .collect();
        let top = points.iter().map(Load::power).fold(0.0, f64::max);
        points
            .iter()
            .filter(|_| top > 0.0)
            .map(|p| Point {
                x: 100.0 * p.rate / max,
                y: Some(p.power() / top),
                ..Point::default()
            })
            .collect::<Vec<_>>()
    };
    let mut all = vec![series("closed loop", line(&measured.closed))];
    if !measured.open.is_empty() {
        all.push(series("open loop", line(&measured.open)));
    }
    chart(
        "curve-power",
        "Power: throughput divided by latency",
        axis("share of the maximum", "%", false),
        axis("relative to the largest", "ratio", false),
        all,
        Vec::new(),
    )
}

fn depth(measured: &Measured) -> Chart {
    let points = measured
        .closed
        .iter()
        .map(|c| fathom_bench::parts::point(f64::from(depth_of(&c.spec)), c.iops()))
        .collect();
    chart(
        "curve-depth",
        "IOPS by depth",
        axis("outstanding I/Os", "", true),
        axis("IOPS", "IOPS", false),
        vec![series("closed loop", points)],
        Vec::new(),
    )
}

fn shares_table(found: &Found) -> Table {
    let rows = AT
        .iter()
        .zip(&found.rises)
        .map(|(share, (closed, open))| {
            let ns = |r: &Option<Estimate>| r.zip(found.base).map(|(r, b)| r.scale(b.value));
            vec![
                TableCell::Number(100.0 * share),
                estimate(ns(closed)),
                estimate(*closed),
                estimate(ns(open)),
                estimate(*open),
            ]
        })
        .collect();
    Table {
        id: "curve-shares".into(),
        title: "Latency at shares of the maximum, and relative to one outstanding I/O".into(),
        columns: vec![
            column("share of maximum", "%"),
            column("closed loop", "ns"),
            column("times base", "ratio"),
            column("open loop, response", "ns"),
            column("times base", "ratio"),
        ],
        rows,
    }
}

fn closed_table(measured: &Measured) -> Table {
    let rows = measured
        .closed
        .iter()
        .map(|c| {
            let op = op_of(c);
            vec![
                TableCell::Number(f64::from(depth_of(&c.spec))),
                TableCell::Number(f64::from(c.spec.threads)),
                estimate(c.estimate(|j| Some(j.qd_achieved))),
                estimate(c.iops()),
                estimate(c.mean_latency()),
                number(c.percentile(op, 0.5)),
                number(c.percentile(op, 0.99)),
                number(c.percentile(op, 0.999)),
            ]
        })
        .collect();
    Table {
        id: "curve-closed".into(),
        title: "Closed loop".into(),
        columns: vec![
            column("requested QD", ""),
            column("threads", ""),
            column("achieved QD", ""),
            column("IOPS", "IOPS"),
            column("mean", "ns"),
            column("p50", "ns"),
            column("p99", "ns"),
            column("p99.9", "ns"),
        ],
        rows,
    }
}

fn open_table(measured: &Measured, found: &Found) -> Table {
    let rows = measured
        .open
        .iter()
        .map(|c| {
            let op = op_of(c);
            let asked = c.spec.rate.unwrap_or(0.0);
            vec![
                number(found.max.map(|m| 100.0 * asked / m.value)),
                TableCell::Number(asked),
                estimate(c.iops()),
                estimate(service(c)),
                estimate(c.mean_latency()),
                number(c.percentile(op, 0.5)),
                number(c.percentile(op, 0.99)),
                number(c.percentile(op, 0.999)),
                estimate(c.estimate(missed)),
            ]
        })
        .collect();
    Table {
        id: "curve-open".into(),
        title: "Open loop, Poisson arrivals".into(),
        columns: vec![
            column("share of maximum", "%"),
            column("asked", "IOPS"),
            column("achieved", "IOPS"),
            column("service", "ns"),
            column("response", "ns"),
            column("response p50", "ns"),
            column("p99", "ns"),
            column("p99.9", "ns"),
            column("missed schedule", "%"),
        ],
        rows,
    }
}

/// Percent of scheduled I/Os that started late or never.
fn missed(job: &fathom_telemetry::schema::Job) -> Option<f64> {
    let o = job.open_loop.as_ref()?;
    let ios: u64 = Op::ALL[..3]
        .iter()
        .filter_map(|op| job.direction(*op))
        .map(|d| d.ios)
        .sum();
    let scheduled = ios + o.unissued;
    (scheduled > 0).then(|| 100.0 * (o.late + o.unissued) as f64 / scheduled as f64)
}

fn service(c: &Cell) -> Option<Estimate> {
    let values: Vec<f64> = loads(c, Latency::Service)
        .iter()
        .map(|l| l.latency)
        .collect();
    Estimate::mean_of(&values)
}

fn headlines(measured: &Measured, found: &Found, what: &str) -> Vec<Headline> {
    let jobs = |cells: &[Cell]| -> Vec<usize> { cells.iter().flat_map(Cell::indices).collect() };
    let (closed, open) = (jobs(&measured.closed), jobs(&measured.open));
    let both = [closed.as_slice(), &open].concat();
    let group = format!("Load curve, {what}");
    let one = |id: &str, label: &str, unit: &str, e: Option<Estimate>, jobs: &[usize]| {
        headline_of(&group, label, id, unit, e, jobs.to_vec())
    };
    let mut all = vec![
        one(
            "curve-max",
            "maximum",
            "IOPS",
            found.max,
            found.max_jobs(&closed, &open),
        ),
        one(
            "curve-base",
            "latency, one outstanding",
            "ns",
            found.base,
            &closed,
        ),
        one(
            "curve-knee-depth",
            "outstanding I/Os at the knee (closed loop)",
            "",
            found.depth,
            &closed,
        ),
        one(
            "curve-rise-95",
            "latency at 95 % of maximum, times base (closed loop)",
            "ratio",
            found.rises.get(2).and_then(|r| r.0),
            &closed,
        ),
    ];
    if !open.is_empty() {
        all.extend([
            one("curve-knee", "knee (open loop)", "IOPS", found.knee, &open),
            one(
                "curve-knee-share",
                "knee as a share of the maximum",
                "ratio",
                found.knee_share(),
                &both,
            ),
            one(
                "curve-knee-latency",
                "response latency at the knee",
                "ns",
                found.knee_latency,
                &open,
            ),
            one(
                "curve-rise-80-open",
                "response latency at 80 % of maximum, times base",
                "ratio",
                found.rises.get(1).and_then(|r| r.1),
                &both,
            ),
        ]);
    }
    all
}

fn findings(measured: &Measured, found: &Found) -> Vec<Finding> {
    let mut all = Vec::new();
    if let (Some(k), Some(m), Some(l)) = (found.knee, found.max, found.knee_latency) {
        let interval = match (k.low, k.high) {
            (Some(low), Some(high)) => {
                format!(" (95 % interval {} to {})", grouped(low), grouped(high))
            }
            _ => String::new(),
        };
        all.push(Finding {
            id: "curve-knee".into(),
            text: format!(
                "The knee lies at {} IOPS{interval}, {:.0} % of the maximum of {}; a response takes {} there.",
                grouped(k.value),
                100.0 * k.value / m.value,
                grouped(m.value),
                Nanos(l.value as u64)
            ),
            advice: match found.depth {
                Some(d) => format!("Where latency matters, plan for at most {} IOPS, and keep about {:.0} I/Os outstanding: more adds waiting, not throughput.", grouped(k.value), d.value),
                None => format!("Where latency matters, plan for at most {} IOPS.", grouped(k.value)),
            },
            confidence: if k.relative_half_width().is_some_and(|w| w < 0.1) { "strong" } else { "moderate" }.into(),
            jobs: measured.closed.iter().chain(&measured.open).flat_map(Cell::indices).collect(),
            evidence: vec!["curve".into(), "curve-power".into(), "curve-open".into()],
            refuted_by: "Open-loop runs at this rate (fathom run --rate) whose response latency is far from the one said.".into(), ..Finding::default() });
    }
    if let Some((Some(rise), open)) = found.rises.last() {
        let beside = open.map_or(String::new(), |o| {
            format!(
                "; a response to requests that arrive at random takes {:.1} times the base",
                o.value
            )
        });
        all.push(Finding {
            id: "curve-rise".into(),
            text: format!(
                "At 95 % of the maximum latency is {:.0} % above its base{beside}.",
                100.0 * (rise.value - 1.0)
            ),
            advice: String::new(),
            confidence: "moderate".into(),
            jobs: measured.closed.iter().flat_map(Cell::indices).collect(),
            evidence: vec!["curve-shares".into()],
            refuted_by: "Open-loop runs at this rate (fathom run --rate) whose response latency is nearer to the base.".into(), ..Finding::default()
        });
    }
    all
}

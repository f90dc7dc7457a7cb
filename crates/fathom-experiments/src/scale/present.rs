//! What numbers of hosts show: throughput and latency, the law and what it says of more hosts, fairness, stragglers.

use fathom_bench::cells::Cell;
use fathom_bench::fairness::{behind, fairness, slowest_to_fastest, stragglers};
use fathom_bench::parts::{
    axis, chart, estimate, headline_of, number, op_of, point, series, table,
};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_stats::bootstrap::bootstrap_groups;
use fathom_stats::scalability::Law;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Job, Point, Section, Table};

use super::ScaleResult;

/// Resamples behind an interval of the law.
const RESAMPLES: usize = 500;
const SEED: u64 = 1;
/// A law that is further off at hosts that it has not seen says nothing of more.
const UNFIT: f64 = 0.1;
/// Numbers of hosts that a law rests on, without the one it is tried on.
const LEAST: usize = 3;

/// Hosts of a cell.
fn hosts(cell: &Cell) -> f64 {
    cell.spec.on_hosts.map_or(1, |h| h.places().len()) as f64
}

/// The cells' rates by repeat, and numbers of hosts.
struct Rates {
    hosts: Vec<f64>,
    rates: Vec<Vec<f64>>,
}

impl Rates {
    fn of(cells: &[Cell]) -> Self {
        let filled = || cells.iter().filter(|c| c.valid().next().is_some());
        Self {
            hosts: filled().map(hosts).collect(),
            rates: filled()
                .map(|c| c.valid().map(Job::iops).collect())
                .collect(),
        }
    }

    /// Without the largest number of hosts.
    fn smaller(&self) -> Self {
        let most = self.hosts.len().saturating_sub(1);
        Self {
            hosts: self.hosts[..most].to_vec(),
            rates: self.rates[..most].to_vec(),
        }
    }

    fn law(&self, rates: &[Vec<f64>]) -> Option<Law> {
        let points = self.hosts.iter().zip(rates);
        let points: Vec<(f64, f64)> = points
            .flat_map(|(n, rates)| rates.iter().map(|x| (*n, *x)))
            .collect();
        Law::fit(&points)
    }

    /// Something of the law, with the interval that the repeats give it.
    fn estimate(&self, what: impl Fn(&Law) -> Option<f64>) -> Option<Estimate> {
        bootstrap_groups(&self.rates, self.rates.len(), RESAMPLES, SEED, |rates| {
            what(&self.law(rates)?)
        })
    }
}

/// The law, and how far it was off where it had not looked.
struct Fitted {
    law: Law,
    /// Requests per second at the largest number of hosts, said by the smaller ones.
    foretold: f64,
    /// Said of the largest number of hosts by the smaller ones, against what was measured: a share.
    off: f64,
}

fn fitted(rates: &Rates) -> Option<Fitted> {
    let smaller = rates.smaller();
    if smaller.hosts.len() < LEAST {
        return None;
    }
    let most = *rates.hosts.last()?;
    let last = rates.rates.last()?;
    let measured = last.iter().sum::<f64>() / last.len() as f64;
    let seen = *smaller.hosts.last()?;
    let said = smaller.law(&smaller.rates)?.expected(most, seen);
    Some(Fitted {
        law: rates.law(&rates.rates)?,
        foretold: said,
        off: said / measured - 1.0,
    })
}

impl ExperimentResult for ScaleResult {
    const EXPERIMENT: &'static str = "scale";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let cells = evidence.cells(&self.points);
        let all: Vec<usize> = cells.iter().flat_map(Cell::indices).collect();
        let rates = Rates::of(&cells);
        let fitted = fitted(&rates);
        let what = format!(
            "{} of {}, {} outstanding on each host",
            self.options.rw.word(),
            self.options.bs.words(),
            self.options.qd
        );
        headlines(&cells, shown);
        shown
            .findings
            .extend(growth(&cells, &rates, fitted.as_ref(), &all));
        if let Some(most) = cells.last() {
            shown
                .findings
                .extend(stragglers(most).iter().map(|s| behind(s, most, "scale")));
        }
        let latency = |q: f64| {
            let of = |c: &Cell| point(hosts(c), c.percentile(op_of(c), q).map(Estimate::single));
            cells.iter().map(of).collect()
        };
        shown.sections.push(Section {
            id: "scale".into(),
            title: format!("Number of hosts, {what}"),
            text: text(fitted.as_ref()),
            charts: vec![
                throughput(&cells, fitted.as_ref()),
                chart(
                    "scale-latency",
                    "Latency by number of hosts",
                    ChartKind::Line,
                    axis("hosts", "", false),
                    axis("latency", "ns", true),
                    vec![series("p50", latency(0.5)), series("p99", latency(0.99))],
                ),
            ],
            tables: vec![by_hosts(&cells, fitted.as_ref())],
            ..Section::default()
        });
    }
}

fn text(fitted: Option<&Fitted>) -> String {
    let begin = "The same load on more and more hosts, in turns. Fairness is Jain's index: 1 where all hosts get alike.";
    match fitted {
        None => format!("{begin} A law of growth needs four numbers of hosts and more."),
        Some(f) => {
            let law = match f.law {
                Law::Universal {
                    contention,
                    coherency,
                    ..
                } => format!(
                    "universal scalability law: contention {contention:.4}, coherency {coherency:.6}"
                ),
                Law::Bounded { sharpness, .. } => {
                    format!("law of a bound that all share, met with sharpness {sharpness:.1}")
                }
            };
            format!(
                "{begin} Growth follows the {law}. Fitted without the largest number of hosts, the law was {:+.1} % off there.",
                100.0 * f.off
            )
        }
    }
}

/// What n hosts do, as a share of n times what one does.
fn efficiency(cells: &[Cell], c: &Cell) -> Option<Estimate> {
    let alone = cells.first().filter(|c| hosts(c) == 1.0)?.iops()?;
    let ratio = c.iops()?.gain_over(&alone);
    let share = |v: f64| (v + 1.0) / hosts(c);
    Some(Estimate {
        value: share(ratio.value),
        low: ratio.low.map(share),
        high: ratio.high.map(share),
        ..ratio
    })
}

/// Throughput and efficiency of the most hosts.
fn headlines(cells: &[Cell], shown: &mut Shown) {
    let Some(most) = cells.last() else {
        return;
    };
    let (group, n) = ("Many hosts", hosts(most));
    shown.headlines.push(headline_of(
        group,
        &format!("throughput of {n} hosts"),
        "scale-rate",
        "1/s",
        most.iops(),
        most.indices(),
    ));
    let jobs = cells.first().into_iter().chain([most]);
    shown.headlines.push(headline_of(
        group,
        &format!("scaling efficiency of {n} hosts"),
        "scale-efficiency",
        "ratio",
        efficiency(cells, most),
        jobs.flat_map(Cell::indices).collect(),
    ));
}

fn throughput(cells: &[Cell], fitted: Option<&Fitted>) -> Chart {
    let measured = cells.iter().map(|c| point(hosts(c), c.iops()));
    let mut all = vec![series("measured", measured.collect())];
    all.extend(fitted.map(|f| {
        let most = hosts(cells.last().unwrap_or(&cells[0]));
        let curve = (0..=40).map(|i| 1.0 + (1.25 * most - 1.0) * f64::from(i) / 40.0);
        let dot = |n: f64| Point {
            x: n,
            y: Some(f.law.expected(n, most)),
            ..Point::default()
        };
        series("law", curve.map(dot).collect())
    }));
    chart(
        "scale-rate",
        "Throughput by number of hosts",
        ChartKind::Line,
        axis("hosts", "", false),
        axis("requests", "1/s", false),
        all,
    )
}

fn by_hosts(cells: &[Cell], fitted: Option<&Fitted>) -> Table {
    let law = |c: &Cell| fitted.map(|f| f.law.at(hosts(c)));
    table(
        "scale-table",
        "By number of hosts",
        cells,
        &[
            ("hosts", "", &|c| number(Some(hosts(c)))),
            ("requests", "1/s", &|c| estimate(c.iops())),
            ("bandwidth", "bytes/s", &|c| estimate(c.bandwidth())),
            ("efficiency", "ratio", &|c| estimate(efficiency(cells, c))),
            ("law", "1/s", &|c| number(law(c))),
            ("said by fewer hosts", "1/s", &|c| {
                let last = cells.last().is_some_and(|l| hosts(l) == hosts(c));
                number(fitted.filter(|_| last).map(|f| f.foretold))
            }),
            ("p50", "ns", &|c| number(c.percentile(op_of(c), 0.5))),
            ("p99", "ns", &|c| number(c.percentile(op_of(c), 0.99))),
            ("fairness", "ratio", &|c| estimate(fairness(c))),
            ("slowest to fastest", "ratio", &|c| {
                number(slowest_to_fastest(c))
            }),
        ],
    )
}

/// What growth was seen, and what is to be expected of more hosts where the law holds.
fn growth(
    cells: &[Cell],
    rates: &Rates,
    fitted: Option<&Fitted>,
    jobs: &[usize],
) -> Option<Finding> {
    let most = cells.last()?;
    let n = hosts(most);
    let alone = cells.first().filter(|c| hosts(c) == 1.0)?.iops()?;
    let times = most.iops()?.gain_over(&alone);
    let interval = match (times.low, times.high) {
        (Some(low), Some(high)) => format!(" ({:.2} to {:.2})", low + 1.0, high + 1.0),
        _ => String::new(),
    };
    // Where not even growth is shown, no law of it is.
    let fitted = fitted.filter(|_| !times.holds_none());
    let fit = fitted.filter(|f| f.off.abs() <= UNFIT);
    let double = fit.and_then(|f| {
        let times = rates.estimate(|law| Some(law.expected(2.0 * n, n) / law.at(n)))?;
        // No better than it was where it had not looked.
        let off = f.off.abs();
        Some(Estimate {
            value: times.value - 1.0,
            low: times.low.map(|low| low * (1.0 - off) - 1.0),
            high: times.high.map(|high| high * (1.0 + off) - 1.0),
            ..times
        })
    });
    let mut text = format!(
        "{n} hosts do {:.2} times as much as one{interval}.",
        times.value + 1.0
    );
    if times.holds_none() {
        text +=
            " Neither growth nor its absence is shown: measure longer, or where nothing else runs.";
    }
    match (fitted, fit, double) {
        (Some(f), None, _) => {
            text += &format!(
                " No law of growth holds here: that of fewer hosts was {:+.0} % off at {n}, so nothing is said of more.",
                100.0 * f.off
            );
        }
        (_, Some(f), Some(gain)) => text += &of_more(f, n, &gain),
        _ => {}
    }
    Some(Finding {
        id: "scale-growth".into(),
        text,
        confidence: match (times.low.is_some(), fit.is_some()) {
            (true, true) => "strong",
            (true, false) => "moderate",
            _ => "weak",
        }
        .into(),
        jobs: jobs.to_vec(),
        evidence: vec!["scale-table".into(), "scale-rate".into()],
        refuted_by: "More hosts, whose throughput lies outside of what the law says.".into(),
        ..Finding::default()
    })
}

/// What twice as many hosts would change, by a law that fits.
fn of_more(f: &Fitted, n: f64, gain: &Estimate) -> String {
    let known = match (gain.low, gain.high) {
        (Some(low), Some(high)) => {
            format!(" ({:+.0} to {:+.0} %)", 100.0 * low, 100.0 * high)
        }
        _ => String::new(),
    };
    // What bounds all of them may lie beyond what was measured.
    let unless = match f.law {
        Law::Bounded { .. } => "",
        Law::Universal { .. } => " Without a bound that was not met yet,",
    };
    let mut text = format!(
        "{unless} {} hosts would change that by {:+.0} %{known}",
        2.0 * n,
        100.0 * gain.value
    );
    text += &match (f.law, f.law.knee().filter(|k| *k < n)) {
        (Law::Bounded { .. }, Some(knee)) => {
            format!(": from about {knee:.1} hosts on all share one bound.")
        }
        (Law::Universal { .. }, Some(knee)) => {
            format!(": more than about {knee:.0} hosts do less than fewer.")
        }
        (_, None) => ".".into(),
    };
    if gain.high.is_some_and(|high| high < 0.1) {
        text += " What all hosts share is the limit, not their number: its processors, network or disks.";
    }
    text
}

//! What neighbours show: the measured host's latency by their number.

use fathom_bench::cells::Cell;
use fathom_bench::parts::{axis, chart, estimate, headline, number, op_of, point, series, table};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{ChartKind, Finding, Section};

use super::{Beside, NeighbourResult};

/// The measured host and those beside it.
struct Row {
    neighbours: f64,
    measured: Cell,
    load: Option<Cell>,
}

/// A load that ended so much earlier than what it was to disturb had written all that it may.
const LASTED: f64 = 0.9;

impl Row {
    /// Without the repeats whose load did not last: they are counted in `cut`.
    fn of(step: &Beside, evidence: &Evidence<'_>, cut: &mut usize) -> Self {
        let mut measured = evidence.cell(&step.measured);
        let load = step.load.as_ref().map(|p| evidence.cell(p));
        if let Some(load) = &load {
            let mut lasted = load.repeats.iter().map(|r| r.1.wall_ns as f64);
            let all = measured.repeats.len();
            measured.repeats.retain(|(_, job)| {
                let beside = lasted.next().unwrap_or(0.0);
                beside >= LASTED * job.wall_ns as f64
            });
            *cut += all - measured.repeats.len();
        }
        Self {
            neighbours: f64::from(step.neighbours),
            measured,
            load,
        }
    }

    fn mean(&self) -> Option<Estimate> {
        self.measured.latency(op_of(&self.measured))
    }

    /// Of each repeat, so that it has an interval.
    fn p99(&self) -> Option<Estimate> {
        let op = op_of(&self.measured);
        self.measured
            .estimate(|j| Some(j.direction(op)?.response_ns.p99? as f64))
    }

    fn jobs(&self) -> Vec<usize> {
        let load = self.load.iter().flat_map(Cell::indices);
        self.measured.indices().into_iter().chain(load).collect()
    }
}

impl ExperimentResult for NeighbourResult {
    const EXPERIMENT: &'static str = "neighbour";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let mut cut = 0;
        let rows: Vec<Row> = self
            .steps
            .iter()
            .map(|step| Row::of(step, evidence, &mut cut))
            .collect();
        let (Some(alone), Some(most)) = (rows.first(), rows.last()) else {
            return;
        };
        let rate = alone.measured.spec.rate.unwrap_or(0.0);
        let group = "Beside neighbours";
        for (row, id) in [(alone, "neighbour-alone"), (most, "neighbour-most")] {
            let label = match row.neighbours {
                0.0 => "99th percentile alone".to_owned(),
                n => format!("99th percentile beside {n} loading hosts"),
            };
            let mut shown_of = headline(&row.measured, group, &label, id, "ns", row.p99());
            shown_of.jobs = row.jobs();
            shown.headlines.push(shown_of);
        }
        shown.findings.extend(cost(&rows));
        let line = |name: &str, of: &dyn Fn(&Row) -> Option<Estimate>| {
            let points = rows.iter().map(|r| point(r.neighbours, of(r)));
            series(name, points.collect())
        };
        let p50 = |r: &Row| r.measured.percentile(op_of(&r.measured), 0.5);
        let p999 = |r: &Row| r.measured.percentile(op_of(&r.measured), 0.999);
        shown.sections.push(Section {
            id: "neighbour".into(),
            title: "Latency of one host by the number of hosts that load the target".into(),
            text: format!(
                "The first host does {} of {} at {rate:.0} requests per second, each due at a moment of its own; beside it others do {} of {} with {} outstanding each.{}",
                self.options.rw.word(),
                self.options.bs.words(),
                self.options.load.word(),
                self.options.load_bs.words(),
                self.options.qd,
                match cut {
                    0 => String::new(),
                    n => format!(" In {n} repeats the loading hosts had written all that they may before the end: these are left out. Less --time, or --load randread."),
                }
            ),
            charts: vec![chart(
                "neighbour-latency",
                "Response latency by number of neighbours",
                ChartKind::Line,
                axis("loading hosts", "", false),
                axis("response latency", "ns", true),
                vec![
                    line("p50", &|r| p50(r).map(Estimate::single)),
                    line("p99", &Row::p99),
                    line("p99.9", &|r| p999(r).map(Estimate::single)),
                ],
            )],
            tables: vec![table(
                "neighbour-table",
                "By number of neighbours",
                &rows,
                &[
                    ("loading hosts", "", &|r| number(Some(r.neighbours))),
                    ("mean", "ns", &|r| estimate(r.mean())),
                    ("p50", "ns", &|r| number(p50(r))),
                    ("p99", "ns", &|r| estimate(r.p99())),
                    ("p99.9", "ns", &|r| number(p999(r))),
                    ("rate", "1/s", &|r| estimate(r.measured.iops())),
                    ("their bandwidth", "bytes/s", &|r| {
                        estimate(r.load.as_ref().and_then(Cell::bandwidth))
                    }),
                ],
            )],
            ..Section::default()
        });
    }
}

/// What all neighbours together cost, and what the first of them does.
fn cost(rows: &[Row]) -> Option<Finding> {
    let (alone, most) = (rows.first()?, rows.last()?);
    let times = |row: &Row| Some(row.mean()?.gain_over(&alone.mean()?));
    let all = times(most).filter(|_| rows.len() > 1)?;
    let times_as = |v: f64| match v + 1.0 {
        v if v < 10.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    };
    let said = |e: &Estimate| match (e.low, e.high) {
        (Some(low), Some(high)) => format!(
            "{} times ({} to {})",
            times_as(e.value),
            times_as(low),
            times_as(high)
        ),
        _ => format!("{} times", times_as(e.value)),
    };
    let n = most.neighbours;
    let hosts = |n: f64| match n {
        1.0 => "one loading host".to_owned(),
        n => format!("{n} loading hosts"),
    };
    let mut text = match all.holds_none() {
        true => format!(
            "No difference is shown between alone and beside {}: mean latency is {} as long.",
            hosts(n),
            said(&all)
        ),
        false => format!(
            "Beside {} a request of this host takes {} as long as alone{}.",
            hosts(n),
            said(&all),
            match (alone.p99(), most.p99()) {
                (Some(a), Some(b)) => format!(
                    "; the 99th percentile goes from {} to {}",
                    Nanos(a.value as u64),
                    Nanos(b.value as u64)
                ),
                _ => String::new(),
            }
        ),
    };
    if let Some(first) = rows.get(1).filter(|r| r.neighbours < n)
        && let Some(of_one) = times(first).filter(Estimate::shows_effect)
    {
        text += &format!(" One of them alone makes it {}.", said(&of_one));
    }
    Some(Finding {
        id: "neighbour-cost".into(),
        text,
        confidence: if all.low.is_some() { "strong" } else { "weak" }.into(),
        jobs: rows.iter().flat_map(Row::jobs).collect(),
        evidence: vec!["neighbour-table".into(), "neighbour-latency".into()],
        refuted_by: "Another seed or more repeats whose interval lies elsewhere.".into(),
        ..Finding::default()
    })
}

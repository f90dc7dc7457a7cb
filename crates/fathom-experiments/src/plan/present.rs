//! What a plan says: capacity beside what is asked for, until when that lasts, which target to take, and how the claims stood at
//! rates that were not looked at while they were made.

use fathom_bench::parts::{self, axis, chart, headline_of, number, point, series, table, text};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Section, Table};

use super::{PlanResult, Planned};
use crate::slo::{Judged, Step, words};

/// A growth that lasts longer is not told by the month.
const MANY_MONTHS: f64 = 120.0;

impl Judged<'_> {
    /// Whether a rate is carried; `None` between the largest that holds and the smallest that is broken, and within what
    /// the model leaves open.
    pub(super) fn covers(&self, rate: f64) -> Option<bool> {
        self.covers_within(rate, self.margin.exp())
    }

    fn covers_within(&self, rate: f64, wider: f64) -> Option<bool> {
        let at = |k: Option<usize>| k.map(|k| self.steps[k].rung.rate);
        if at(self.best).is_some_and(|b| b / wider >= rate) {
            return Some(true);
        }
        (at(self.broken).is_some_and(|b| b * wider <= rate)).then_some(false)
    }

    /// How many times what is carried a rate is, where it is not carried.
    pub(super) fn short_of(&self, rate: f64) -> Option<f64> {
        if self.covers(rate) == Some(true) {
            return None;
        }
        Some(rate / self.capacity()?.value)
    }

    /// Capacity over a rate: from the largest rate that holds to the smallest that is broken.
    fn over(&self, rate: f64) -> Option<Estimate> {
        let e = self.capacity()?;
        Some(Estimate {
            value: e.value / rate,
            low: e.low.map(|v| v / rate),
            high: e.high.map(|v| v / rate),
            samples: e.samples,
        })
    }
}

impl Planned {
    /// Its capacity, as wide as models that are as likely differ.
    pub(super) fn judged<'a>(&'a self, evidence: &Evidence<'_>) -> Judged<'a> {
        let found = self.likely.iter();
        let found = found.filter_map(|l| l.judged(evidence).capacity());
        let all: Vec<f64> = found.map(|e| e.value.ln()).collect();
        // The interval of a mean is narrower than that of one of them by the root of their number.
        let one = |mean: Estimate| Some((mean.high? - mean.value) * (all.len() as f64).sqrt());
        Judged {
            margin: Estimate::mean_of(&all).and_then(one).unwrap_or(0.0),
            ..self.found.judged(evidence)
        }
    }
}

/// A target as it is shown.
struct Row<'a> {
    planned: &'a Planned,
    judged: Judged<'a>,
    held_out: Vec<Step<'a>>,
    wider: Vec<(u32, Step<'a>)>,
    /// Response at the rate that is asked for, ns.
    now: Option<f64>,
}

impl<'a> Row<'a> {
    fn of(planned: &'a Planned, demand: f64, evidence: &Evidence<'_>) -> Self {
        let objective = planned.found.objective;
        let judged = planned.judged(evidence);
        let now = judged.steps.iter().find(|s| s.rung.rate == demand);
        let now = now.and_then(|s| s.longest(objective.percentile));
        let step = |rung| Step::of(rung, evidence, objective);
        Self {
            now,
            held_out: planned.held_out.iter().map(step).collect(),
            wider: (planned.wider.iter())
                .map(|w| (w.devices, step(&w.rung)))
                .collect(),
            planned,
            judged,
        }
    }

    fn source(&self) -> &'static str {
        match self.planned.simulated {
            true => "model",
            false => "measured",
        }
    }

    fn jobs(&self) -> Vec<usize> {
        let held = self.held_out.iter().flat_map(|s| s.cell.indices());
        let wider = self.wider.iter().flat_map(|w| w.1.cell.indices());
        let mut all = self.judged.jobs.clone();
        all.extend(held.chain(wider));
        let likely = self.planned.likely.iter().flat_map(|l| &l.rungs);
        all.extend(likely.flat_map(|r| r.point.jobs.iter().copied()));
        all
    }

    /// Rates at which what was seen is as said, against it, and open.
    fn checks(&self) -> [usize; 3] {
        let mut n = [0; 3];
        for step in &self.held_out {
            let place = match (self.judged.covers_within(step.rung.rate, 1.0), step.holds) {
                (Some(said), Some(seen)) => usize::from(said != seen),
                _ => 2,
            };
            n[place] += 1;
        }
        n
    }

    /// Months until the rate that is asked for, growing so many percent a month, is what is carried.
    fn months(&self, demand: f64, growth: f64) -> Option<[Option<f64>; 2]> {
        let over = self.judged.over(demand)?;
        let months = |times: f64| (times.max(1.0)).ln() / (1.0 + growth / 100.0).ln();
        Some([over.low.map(months), over.high.map(months)])
    }

    /// `20 to 22 months`.
    fn lasts(&self, demand: f64, growth: Option<f64>) -> String {
        let Some([Some(low), high]) = growth.and_then(|g| self.months(demand, g)) else {
            return String::new();
        };
        let told = |m: f64| format!("{m:.0}");
        match (self.judged.covers(demand), high) {
            (Some(false), _) => "not now".into(),
            (None, _) => "not shown".into(),
            _ if low > MANY_MONTHS => "more than ten years".into(),
            (_, None) => format!("at least {} months", told(low)),
            (_, Some(high)) if told(low) == told(high) => format!("{} months", told(low)),
            (_, Some(high)) => format!("{} to {} months", told(low), told(high)),
        }
    }

    fn verdict(&self, demand: f64) -> &'static str {
        match (self.checks()[1] > 0, self.judged.covers(demand)) {
            (true, _) => "contradicted",
            (_, Some(true)) => "carries it",
            (_, Some(false)) => "too slow",
            (_, None) => "not shown",
        }
    }

    /// What it carries, beside what is asked for.
    fn says(&self, result: &PlanResult, promise: &str) -> String {
        let demand = result.demand.rate;
        let name = &self.planned.target;
        let source = match self.planned.simulated {
            true => " (a model)",
            false => "",
        };
        let Some(e) = self.judged.capacity() else {
            let least = self.judged.broken.map(|b| self.judged.steps[b].rung.rate);
            return match least {
                Some(rate) => format!(
                    "{name}{source}: no rate that was tried keeps a {promise}; {} are too many.",
                    words(rate)
                ),
                None => format!(
                    "{name}{source}: nothing was shown of a {promise}: repeats are void, or have too few requests for the percentile."
                ),
            };
        };
        let end = e.high.map_or("more was not tried".to_owned(), |high| {
            format!("{} are too many", words(high))
        });
        let mut said = format!(
            "{name}{source} carries {} requests per second with a {promise} ({end})",
            words(e.value)
        );
        let times = self.judged.over(demand);
        let between = |low: f64, high: f64| {
            let (low, high) = (format!("{low:.1}"), format!("{high:.1}"));
            if low == high {
                low
            } else {
                format!("{low} to {high}")
            }
        };
        let span = |e: &Estimate| match (e.low, e.high) {
            (Some(low), Some(high)) => between(low, high),
            (_, None) => format!("at least {:.1}", e.value),
            _ => format!("{:.1}", e.value),
        };
        match (self.judged.covers(demand), times) {
            (Some(true), Some(times)) => {
                said += &format!(
                    ": {} times the {} that are asked for",
                    span(&times),
                    words(demand)
                );
                if let Some(now) = self.now {
                    let q = self.planned.found.objective.percentile;
                    said += &format!(", at which p{q} is {}", Nanos(now as u64));
                }
                let lasts = self.lasts(demand, result.growth);
                if let (Some(growth), false) = (result.growth, lasts.is_empty()) {
                    said += &format!("; growing by {growth} % a month that is enough for {lasts}");
                }
            }
            (Some(false), Some(times)) => {
                let need = |t: Option<f64>| t.map_or(f64::NAN, |t| 1.0 / t);
                let (low, high) = (need(times.high), need(times.low));
                said += &format!(
                    ": the {} that are asked for need {} times as much",
                    words(demand),
                    between(low, high)
                );
                said += &self.side_by_side();
            }
            _ => {
                said += &format!(
                    ": whether the {} that are asked for are carried was not shown",
                    words(demand)
                );
            }
        }
        said + "."
    }

    /// How many share what one does not carry.
    fn side_by_side(&self) -> String {
        let holds = self.wider.iter().find(|w| w.1.holds == Some(true));
        match (holds, self.wider.last()) {
            (Some((n, _)), _) => format!("; {n} of them side by side (RAID 0) hold it, simulated"),
            (None, Some((n, step))) => format!(
                "; {n} of them side by side (RAID 0): {}, simulated",
                step.verdict()
            ),
            (None, None) => String::new(),
        }
    }
}

impl ExperimentResult for PlanResult {
    const EXPERIMENT: &'static str = "plan";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let demand = self.demand.rate;
        let rows: Vec<Row<'_>> = (self.targets.iter())
            .map(|t| Row::of(t, demand, evidence))
            .collect();
        let Some(first) = self.targets.first() else {
            return;
        };
        let objective = first.found.objective;
        let promise = format!("p{} of at most {}", objective.percentile, objective.limit);
        shown.findings.extend(self.choice(&rows));
        for (i, row) in rows.iter().enumerate() {
            shown.headlines.push(headline_of(
                "Times what is asked for",
                &format!("capacity of {} ({})", row.planned.target, row.source()),
                &format!("plan-{}", i + 1),
                "ratio",
                row.judged.over(demand),
                row.jobs(),
            ));
            shown.findings.push(Finding {
                id: format!("plan-{}", i + 1),
                text: row.says(self, &promise),
                confidence: confidence(row, demand).into(),
                jobs: row.jobs(),
                evidence: vec!["plan-table".into()],
                refuted_by: "Another seed, or a longer --time, in which another rate is the largest that holds.".into(),
                ..Finding::default()
            });
        }
        shown.findings.push(checked(&rows));
        shown.findings.extend(beside(&rows, objective.percentile));
        shown.sections.push(self.section(&rows, &promise));
    }
}

/// As sure as the rates that hold it in lie close together, and nothing speaks against it.
fn confidence(row: &Row<'_>, demand: f64) -> &'static str {
    let near = row.judged.capacity().and_then(|e| Some(e.high? / e.low?));
    match (row.checks()[1], row.judged.covers(demand), near) {
        (1.., ..) | (_, None, _) => "weak",
        (0, Some(_), Some(near)) if near < 1.3 => "strong",
        _ => "moderate",
    }
}

/// What the rates that were held out showed.
fn checked(rows: &[Row<'_>]) -> Finding {
    let [right, wrong, open] = rows
        .iter()
        .map(Row::checks)
        .fold([0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
    let mut said = format!(
        "At rates that were not tried while capacities were looked for, {right} of {} verdicts are as said",
        right + wrong
    );
    if wrong > 0 {
        let names: Vec<&str> = (rows.iter())
            .filter(|r| r.checks()[1] > 0)
            .map(|r| r.planned.target.as_str())
            .collect();
        said += &format!(
            "; what is said of {} is not to be relied on",
            names.join(" and ")
        );
    }
    if open > 0 {
        said += &format!("; {open} showed nothing");
    }
    Finding {
        id: "plan-held-out".into(),
        text: said + ".",
        confidence: if wrong > 0 || right == 0 {
            "weak"
        } else {
            "strong"
        }
        .into(),
        jobs: (rows.iter())
            .flat_map(|r| r.held_out.iter().flat_map(|s| s.cell.indices()))
            .collect(),
        evidence: vec!["plan-held-out".into()],
        refuted_by: "Other rates at which the verdict is another one.".into(),
        ..Finding::default()
    }
}

/// How models answer beside what was measured, at the same rates.
fn beside(rows: &[Row<'_>], percentile: f64) -> Vec<Finding> {
    let Some((first, others)) = rows.split_first().filter(|r| !r.0.planned.simulated) else {
        return Vec::new();
    };
    let of_model = |row: &Row<'_>| {
        let ratios = row
            .held_out
            .iter()
            .zip(&first.held_out)
            .filter_map(|(m, r)| Some(m.longest(percentile)? / r.longest(percentile)?));
        let ratios: Vec<f64> = ratios.filter(|r| r.is_finite()).collect();
        let (low, high) = (
            ratios.iter().copied().reduce(f64::min)?,
            ratios.iter().copied().reduce(f64::max)?,
        );
        Some(Finding {
            id: format!("plan-model-{}", row.planned.target),
            text: format!(
                "At {} rates {} answers in {low:.2} to {high:.2} times the p{percentile} that was measured here: as far as this it stands for this target.",
                ratios.len(),
                row.planned.target
            ),
            confidence: "moderate".into(),
            jobs: [row.jobs(), first.jobs()].concat(),
            evidence: vec!["plan-held-out".into()],
            refuted_by: "Other rates at which the two lie further apart.".into(),
            ..Finding::default()
        })
    };
    others.iter().filter_map(of_model).collect()
}

impl PlanResult {
    /// Which of several to take: of those that carry it the cheapest, or that which carries most.
    fn choice(&self, rows: &[Row<'_>]) -> Option<Finding> {
        if rows.len() < 2 {
            return None;
        }
        let demand = self.demand.rate;
        let mut fit: Vec<&Row<'_>> = (rows.iter())
            .filter(|r| r.verdict(demand) == "carries it")
            .collect();
        let priced = rows.iter().all(|r| r.planned.price.is_some());
        let most = |r: &&Row<'_>| r.judged.capacity().map_or(0.0, |e| e.value);
        match priced {
            true => fit.sort_by(|a, b| {
                a.planned
                    .price
                    .unwrap_or(0.0)
                    .total_cmp(&b.planned.price.unwrap_or(0.0))
            }),
            false => fit.sort_by(|a, b| most(b).total_cmp(&most(a))),
        }
        let (text, jobs) = match fit.as_slice() {
            [] => (
                "None of the targets was shown to carry what is asked for.".to_owned(),
                rows.iter().flat_map(Row::jobs).collect(),
            ),
            [best, rest @ ..] => {
                let name = &best.planned.target;
                let price = best.planned.price.filter(|_| priced);
                let of = fit.len();
                let mut said = match (rest.is_empty(), price) {
                    (true, _) => format!("Only {name} was shown to carry what is asked for"),
                    (_, Some(price)) => {
                        format!("Of {of} that carry what is asked for, {name} costs least: {price}")
                    }
                    (_, None) => {
                        format!("Of {of} that carry what is asked for, {name} carries most")
                    }
                };
                if let (Some(next), Some(price), true) = (
                    rest.first(),
                    rest.first().and_then(|r| r.planned.price),
                    priced,
                ) {
                    said += &format!("; {} costs {price}", next.planned.target);
                }
                (said + ".", fit.iter().flat_map(|r| r.jobs()).collect())
            }
        };
        Some(Finding {
            id: "plan-choice".into(),
            text,
            // No surer than what is known of each.
            confidence: ["weak", "moderate", "strong"]
                .into_iter()
                .find(|c| fit.is_empty() || fit.iter().any(|r| confidence(r, demand) == *c))
                .unwrap_or("weak")
                .into(),
            jobs,
            evidence: vec!["plan-table".into()],
            refuted_by: "A model that answers otherwise than the device that it stands for: measure it before it is bought.".into(),
            ..Finding::default()
        })
    }

    /// What each target was seen to do at its rates, with the objective as a line.
    fn response(&self, rows: &[Row<'_>]) -> Chart {
        let demand = self.demand.rate;
        let objective = &rows[0].planned.found.objective;
        let q = objective.percentile;
        let line = |r: &Row<'_>| {
            let mut points: Vec<_> = (r.judged.steps.iter().chain(&r.held_out))
                .map(|s| point(s.rung.rate, s.longest(q).map(Estimate::single)))
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            series(&r.planned.target, points)
        };
        let mut lines: Vec<_> = rows.iter().map(line).collect();
        let ends = lines.iter().flat_map(|l| &l.points).map(|p| p.x);
        let (low, high) = ends.fold((demand, demand), |(l, h), x| (l.min(x), h.max(x)));
        let limit = Some(Estimate::single(objective.limit.0 as f64));
        let ends = [low, high].map(|x| point(x, limit));
        lines.push(series("objective", ends.into()));
        chart(
            "plan-response",
            &format!("Response (p{q}, the longest of reads, writes and syncs) by rate"),
            ChartKind::Line,
            axis("requests", "1/s", rows.len() > 1),
            axis(&format!("response, p{q}"), "ns", true),
            lines,
        )
    }

    fn section(&self, rows: &[Row<'_>], promise: &str) -> Section {
        let demand = self.demand.rate;
        let first = &rows[0].planned.found;
        let q = first.objective.percentile;
        let priced = rows.iter().any(|r| r.planned.price.is_some());
        let name: parts::ColumnOf<'_, &Row<'_>> = ("target", "", &|r| text(&r.planned.target));
        let carries: parts::ColumnOf<'_, &Row<'_>> =
            ("carries", "1/s", &|r| parts::estimate(r.judged.capacity()));
        let times: parts::ColumnOf<'_, &Row<'_>> = ("times what is asked for", "ratio", &|r| {
            parts::estimate(r.judged.over(demand))
        });
        let at = format!("p{q} at what is asked for");
        let now: parts::ColumnOf<'_, &Row<'_>> = (&at, "ns", &|r| number(r.now));
        let lasts: parts::ColumnOf<'_, &Row<'_>> =
            ("lasts", "", &|r| text(r.lasts(demand, self.growth)));
        let price: parts::ColumnOf<'_, &Row<'_>> = ("price", "", &|r| number(r.planned.price));
        let source: parts::ColumnOf<'_, &Row<'_>> = ("from", "", &|r| text(r.source()));
        let verdict: parts::ColumnOf<'_, &Row<'_>> = ("verdict", "", &|r| text(r.verdict(demand)));
        let mut columns = vec![name, carries, times, now];
        if self.growth.is_some() {
            columns.push(lasts);
        }
        if priced {
            columns.push(price);
        }
        columns.extend([source, verdict]);
        Section {
            id: "plan".into(),
            title: format!("Plan: {} requests per second, {promise}", words(demand)),
            text: format!(
                "{} in open loop; asked for are {} requests per second, from {}. Load and objective: {}. A capacity is the largest rate that holds; its interval ends at the smallest that is broken{}.",
                first.load,
                words(demand),
                self.demand.from,
                first.source,
                match rows.iter().any(|r| !r.planned.likely.is_empty()) {
                    true =>
                        ", wider by what a fitted model leaves open (other models that are as likely)",
                    false => "",
                }
            ),
            charts: vec![self.response(rows)],
            tables: vec![
                table("plan-table", "Targets", rows.iter(), &columns),
                held_out(rows, q),
            ],
            ..Section::default()
        }
    }
}

/// What was said of rates before they were tried.
fn held_out(rows: &[Row<'_>], q: f64) -> Table {
    let said = |r: &Row<'_>, s: &Step<'_>| match r.judged.covers(s.rung.rate) {
        Some(true) => "holds",
        Some(false) => "broken",
        None => "between",
    };
    table(
        "plan-held-out",
        "At rates that were not tried while capacities were looked for",
        rows.iter()
            .flat_map(|r| r.held_out.iter().map(move |s| (r, s))),
        &[
            ("target", "", &|(r, _)| text(&r.planned.target)),
            ("rate", "1/s", &|(_, s)| number(Some(s.rung.rate))),
            (&format!("p{q}"), "ns", &|(_, s)| number(s.longest(q))),
            ("said", "", &|(r, s)| text(said(r, s))),
            ("seen", "", &|(_, s)| text(s.verdict())),
        ],
    )
}

//! What is carried under the objective: the largest rate that holds, and the next that does not.

use fathom_bench::cells::Cell;
use fathom_bench::parts::{axis, chart, headline_of, number, point, series, table, text};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell as TableCell, ChartKind, Finding, Section};
use fathom_telemetry::{Nanos, Op};

use super::{Objective, Rung, SloResult, carried};

/// Heading, unit and value.
type Column<'c, 's> = (&'c str, &'c str, &'c dyn Fn(&&'s Step<'s>) -> TableCell);

/// A rate with its repeats and what they showed.
pub(crate) struct Step<'a> {
    pub(crate) rung: &'a Rung,
    pub(crate) cell: Cell,
    pub(crate) holds: Option<bool>,
}

impl Step<'_> {
    /// A rate, judged by its repeats.
    pub(crate) fn of<'a>(
        rung: &'a Rung,
        evidence: &Evidence<'_>,
        objective: Objective,
    ) -> Step<'a> {
        let cell = evidence.cell(&rung.point);
        let holds = rung.holds(&cell, objective);
        Step { rung, cell, holds }
    }

    /// The percentile of the objective over all repeats, ns.
    fn response(&self, op: Op, percentile: f64) -> Option<f64> {
        self.cell.percentile(op, percentile / 100.0)
    }

    /// What is promised of a rate that holds: no more than came and was answered.
    fn carries(&self) -> f64 {
        let answered = self.cell.iops().map_or(0.0, |e| e.value);
        self.rung.rate.min(answered)
    }

    /// The longest of reads, writes and syncs, ns.
    pub(crate) fn longest(&self, percentile: f64) -> Option<f64> {
        let all = [Op::Read, Op::Write, Op::Sync].map(|op| self.response(op, percentile));
        all.into_iter().flatten().reduce(f64::max)
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "broken",
            None => "not shown",
        }
    }
}

/// All rates, judged.
pub(crate) struct Judged<'a> {
    pub(crate) steps: Vec<Step<'a>>,
    /// The largest that holds.
    pub(crate) best: Option<usize>,
    /// The smallest that is broken.
    pub(crate) broken: Option<usize>,
    /// What else is open of the capacity, to both sides on its logarithm.
    pub(crate) margin: f64,
    /// Behind the number: the rate that holds, and the one that ends it.
    pub(crate) jobs: Vec<usize>,
}

impl Judged<'_> {
    /// Requests per second that are carried: from the largest rate that holds to the smallest that is broken.
    pub(crate) fn capacity(&self) -> Option<Estimate> {
        let best = &self.steps[self.best?];
        let wider = self.margin.exp();
        Some(Estimate {
            value: best.carries(),
            low: Some(best.carries() / wider),
            high: self.broken.map(|b| self.steps[b].rung.rate * wider),
            samples: best.cell.repeats.len() as u32,
        })
    }
}

impl SloResult {
    /// Judges every rate by its jobs.
    pub(crate) fn judged(&self, evidence: &Evidence<'_>) -> Judged<'_> {
        let rungs = self.rungs.iter();
        let steps: Vec<Step<'_>> = rungs
            .map(|r| Step::of(r, evidence, self.objective))
            .collect();
        let verdicts: Vec<Option<bool>> = steps.iter().map(|s| s.holds).collect();
        let best = carried(&verdicts);
        let broken = steps.iter().position(|s| s.holds == Some(false));
        let behind = [best, broken].into_iter().flatten();
        let mut jobs: Vec<usize> = behind.flat_map(|k| steps[k].cell.indices()).collect();
        jobs.sort_unstable();
        if jobs.is_empty() {
            jobs = steps.iter().flat_map(|s| s.cell.indices()).collect();
        }
        Judged {
            steps,
            best,
            broken,
            margin: 0.0,
            jobs,
        }
    }
}

impl ExperimentResult for SloResult {
    const EXPERIMENT: &'static str = "slo";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let judged = self.judged(evidence);
        let told = (judged.best, judged.broken);
        let (steps, jobs) = (&judged.steps, &judged.jobs);
        let promise = format!(
            "p{} of at most {}",
            self.objective.percentile, self.objective.limit
        );
        shown.headlines.push(headline_of(
            "Service level objective",
            &format!("{}: requests with a {promise}", self.load),
            "slo",
            "1/s",
            judged.capacity(),
            jobs.clone(),
        ));
        shown
            .findings
            .push(self.finding(steps, told, &promise, jobs.clone()));
        shown.sections.push(self.section(steps, &promise));
    }
}

impl SloResult {
    fn finding(
        &self,
        steps: &[Step<'_>],
        (best, broken): (Option<usize>, Option<usize>),
        promise: &str,
        jobs: Vec<usize>,
    ) -> Finding {
        let rate = |k: usize| words(steps[k].rung.rate);
        let bytes = |k: usize| {
            let bandwidth = steps[k].cell.bandwidth();
            bandwidth.map_or(String::new(), |b| format!(", {:.0} MB/s", b.value / 1e6))
        };
        let text = match (best, broken) {
            (Some(k), Some(b)) => format!(
                "Carries {} requests per second{} with a {promise} ({}); {} are too many: {}.",
                words(steps[k].carries()),
                bytes(k),
                self.load,
                rate(b),
                self.why(&steps[b])
            ),
            (Some(k), None) => format!(
                "Carries at least {} requests per second{} with a {promise} ({}); more was not tried.",
                words(steps[k].carries()),
                bytes(k),
                self.load
            ),
            (None, Some(b)) => format!(
                "No rate that was tried keeps a {promise} ({}): {} are too many, {}.",
                self.load,
                rate(b),
                self.why(&steps[b])
            ),
            (None, None) => format!(
                "Nothing was shown of a {promise} ({}): repeats are void, or have too few requests for the percentile.",
                self.load
            ),
        };
        // Between them nothing is claimed; how far they lie apart says how well it is known.
        let near = best.zip(broken);
        let near = near.is_some_and(|(k, b)| steps[b].rung.rate / steps[k].rung.rate < 1.3);
        Finding {
            id: "slo".into(),
            text,
            advice: match (best, broken) {
                (None, None) => "measure for longer: --time 10s".into(),
                _ => String::new(),
            },
            confidence: match (best, near) {
                (Some(_), true) => "strong",
                (None, _) if broken.is_none() => "weak",
                _ => "moderate",
            }
            .into(),
            jobs,
            evidence: vec!["slo-table".into()],
            refuted_by:
                "Another seed, or a longer --time, in which another rate is the largest that holds."
                    .into(),
            ..Finding::default()
        }
    }

    /// What ends a rate.
    fn why(&self, step: &Step<'_>) -> String {
        let q = self.objective.percentile;
        let over = [Op::Read, Op::Write, Op::Sync].into_iter().find_map(|op| {
            let v = step.response(op, q)?;
            (v > self.objective.limit.0 as f64)
                .then(|| format!("p{q} of {}s is {}", op.name(), Nanos(v as u64)))
        });
        over.unwrap_or_else(|| {
            let came = step.cell.iops().map_or(0.0, |e| e.value);
            format!("{} were answered", words(came))
        })
    }

    fn section<'s>(&self, steps: &'s [Step<'s>], promise: &str) -> Section {
        let q = self.objective.percentile;
        let ops = [
            (Op::Read, "reads"),
            (Op::Write, "writes"),
            (Op::Sync, "syncs"),
        ];
        let has = |op| steps.iter().any(|s| s.cell.merged[op as usize].is_some());
        let mut lines: Vec<_> = ops
            .iter()
            .filter(|(op, _)| has(*op))
            .map(|(op, name)| {
                let at =
                    |s: &Step<'_>| point(s.rung.rate, s.response(*op, q).map(Estimate::single));
                series(name, steps.iter().map(at).collect())
            })
            .collect();
        let limit = Estimate::single(self.objective.limit.0 as f64);
        let ends = [steps.first(), steps.last()].into_iter().flatten();
        lines.push(series(
            "objective",
            ends.map(|s| point(s.rung.rate, Some(limit))).collect(),
        ));
        let response = |op| move |s: &&'s Step<'s>| number(s.response(op, q));
        let (reads, writes, syncs) = (response(Op::Read), response(Op::Write), response(Op::Sync));
        let name = |what: &str| format!("p{q} of {what}");
        let names = ["reads", "writes", "syncs"].map(name);
        let mut columns: Vec<Column<'_, 's>> = vec![
            ("rate", "1/s", &|s| number(Some(s.rung.rate))),
            ("answered", "1/s", &|s| {
                fathom_bench::parts::estimate(s.cell.iops())
            }),
        ];
        for ((op, name), value) in [Op::Read, Op::Write, Op::Sync]
            .into_iter()
            .zip(&names)
            .zip([
                &reads as &dyn Fn(&&'s Step<'s>) -> TableCell,
                &writes,
                &syncs,
            ])
        {
            if has(op) {
                columns.push((name, "ns", value));
            }
        }
        columns.push(("objective", "", &|s| text(s.verdict())));
        Section {
            id: "slo".into(),
            title: format!("Service level objective: {promise}"),
            text: format!(
                "Open loop: {} come at random moments (Poisson), and each response counts from when its request was due. A rate holds where at least 95 % are answered and the percentile keeps within the limit, its interval and every repeat included. Load and objective: {}.",
                self.load, self.source
            ),
            charts: vec![chart(
                "slo-response",
                &format!("Response (p{q}) by rate"),
                ChartKind::Line,
                axis("requests", "1/s", false),
                axis(&format!("response, p{q}"), "ns", true),
                lines,
            )],
            tables: vec![table("slo-table", "By rate", steps, &columns)],
            ..Section::default()
        }
    }
}

/// A rate for people.
pub(crate) fn words(rate: f64) -> String {
    match rate {
        r if r >= 99_950.0 => format!("{:.0} k", r / 1e3),
        r if r >= 9_995.0 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

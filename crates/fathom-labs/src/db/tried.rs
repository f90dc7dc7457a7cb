//! Settings of a server, each against the server without it, in turns: what they change and how sure that is.

use fathom_bench::parts::{estimate, table as make_table, text};
use fathom_bench::results::Evidence;
use fathom_stats::Estimate;
use fathom_stats::compare::{Difference, Good, Verdict, paired};
use fathom_telemetry::schema::{Finding, Table};

use crate::conclude::percent;
use crate::loads::Line;

/// Where no difference is taken for one.
const LEVEL: f64 = 0.05;

/// A line with a setting, and the line of the same load without it.
pub(super) struct Pair<'a, S, M> {
    pub(super) with: &'a Line<S, M>,
    pub(super) without: &'a Line<S, M>,
    /// What was set.
    pub(super) setting: String,
    /// Which transactions.
    pub(super) load: String,
    /// In names of findings.
    pub(super) label: String,
}

/// One setting under one kind of transactions.
pub(super) struct Tried {
    setting: String,
    load: String,
    label: String,
    with: Option<Estimate>,
    without: Option<Estimate>,
    difference: Option<Difference>,
    jobs: Vec<usize>,
    /// Where such a setting is written down.
    place: &'static str,
    /// How many there are: by chance alone one in twenty of them would differ.
    all: usize,
}

/// Where a server reads its settings.
pub(super) fn place(postgres: bool) -> &'static str {
    match postgres {
        true => "in postgresql.conf",
        false => "in the section [mysqld] of the server's configuration",
    }
}

impl Tried {
    /// All that were tried.
    pub(super) fn all<S, M>(
        pairs: Vec<Pair<'_, S, M>>,
        evidence: &Evidence<'_>,
        place: &'static str,
    ) -> Vec<Self> {
        let all = pairs.len();
        let of = |pair: Pair<'_, S, M>| Self {
            with: pair.with.rate(evidence),
            without: pair.without.rate(evidence),
            // Repeats of one round belong together.
            difference: paired(&pair.with.over(pair.without, evidence), Good::More),
            jobs: [pair.with.jobs(), pair.without.jobs()].concat(),
            setting: pair.setting,
            load: pair.load,
            label: pair.label,
            place,
            all,
        };
        pairs.into_iter().map(of).collect()
    }

    /// What was shown, of as many comparisons as there were.
    fn shown(&self) -> Option<(Verdict, &Difference)> {
        let d = self.difference.as_ref()?;
        let sure = d.p.is_some_and(|p| p * self.all as f64 <= LEVEL);
        let is = [Verdict::Better, Verdict::Worse].contains(&d.verdict);
        (sure && is).then_some((d.verdict, d))
    }

    fn verdict(&self) -> String {
        match (self.shown(), &self.difference) {
            (Some((Verdict::Better, _)), _) => "better".into(),
            (Some(_), _) => "worse".into(),
            (None, Some(d)) => match (d.relative.low, d.relative.high) {
                (Some(low), Some(high)) => format!(
                    "{} ({:+.1} to {:+.1} %)",
                    match d.relative.holds_none() {
                        true => "no difference shown".to_owned(),
                        // Of so many by themselves one would look like this.
                        false => format!("nothing beyond the chance of {} comparisons", self.all),
                    },
                    low * 100.0,
                    high * 100.0
                ),
                _ => "no difference shown: one repeat has no interval".into(),
            },
            (None, None) => "not comparable".into(),
        }
    }

    /// What a reader takes home of it, where a difference was shown.
    fn finding(&self, id: &str) -> Option<Finding> {
        let (verdict, d) = self.shown()?;
        let better = verdict == Verdict::Better;
        let of = match self.all {
            1 => String::new(),
            n => format!(", of {n} comparisons"),
        };
        Some(Finding {
            id: format!("{id}-{}", self.label),
            text: format!(
                "{}: {} transactions change by {}{of}",
                self.setting,
                self.load,
                percent(&d.relative)
            ),
            advice: match better {
                true => format!("{} ({})", self.setting, self.place),
                false => String::new(),
            },
            confidence: "strong".into(),
            gain: better.then_some(d.relative),
            jobs: self.jobs.clone(),
            evidence: vec![format!("{id}-tried")],
            refuted_by: REFUTED_BY.into(),
            ..Finding::default()
        })
    }
}

/// What shows that a finding of either kind is wrong.
const REFUTED_BY: &str = "The same with --repeats 10, another --seed, and your own transactions.";

/// What was shown, and one sentence about all of which nothing was; `id` is that of the part of the report.
pub(super) fn findings(id: &str, all: &[Tried]) -> Vec<Finding> {
    let mut told: Vec<Finding> = all.iter().filter_map(|t| t.finding(id)).collect();
    let rest: Vec<&Tried> = all.iter().filter(|t| t.shown().is_none()).collect();
    if !rest.is_empty() {
        let said: Vec<String> = rest
            .iter()
            .map(|t| format!("{}, {} transactions: {}", t.setting, t.load, t.verdict()))
            .collect();
        told.push(Finding {
            id: format!("{id}-no-difference"),
            text: format!("{}.", said.join("; ")),
            confidence: "moderate".into(),
            jobs: rest.iter().flat_map(|t| t.jobs.clone()).collect(),
            evidence: vec![format!("{id}-tried")],
            refuted_by: REFUTED_BY.into(),
            ..Finding::default()
        });
    }
    told
}

/// Each against the server without it.
pub(super) fn table(id: &str, all: &[Tried]) -> Table {
    make_table(
        &format!("{id}-tried"),
        "Settings that were tried, each in turns with the server without it",
        all,
        &[
            ("transactions", "", &|t| text(t.load.clone())),
            ("setting", "", &|t| text(t.setting.clone())),
            ("without it", "1/s", &|t| estimate(t.without)),
            ("with it", "1/s", &|t| estimate(t.with)),
            ("change", "%", &|t| {
                estimate(t.difference.as_ref().map(|d| d.relative.scale(100.0)))
            }),
            ("verdict (95 %)", "", &|t| text(t.verdict())),
        ],
    )
}

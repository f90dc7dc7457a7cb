//! Settings of a server, each against the server without it, in turns: what they change and how sure that is.

use fathom_bench::parts::{estimate, table as make_table, text};
use fathom_bench::results::Evidence;
use fathom_stats::compare::{Difference, Good, Verdict, paired};
use fathom_telemetry::schema::{Finding, Table};

use super::Line;
use crate::conclude::percent;

/// Where no difference is taken for one.
const LEVEL: f64 = 0.05;

/// One setting under one kind of transactions.
pub(super) struct Tried<'a> {
    evidence: &'a Evidence<'a>,
    with: &'a Line,
    without: &'a Line,
    difference: Option<Difference>,
    /// Where such a setting is written down.
    place: &'static str,
    /// How many there are: by chance alone one in twenty of them would differ.
    all: usize,
}

impl<'a> Tried<'a> {
    /// All that were tried.
    pub(super) fn all(
        lines: &[&'a Line],
        evidence: &'a Evidence<'a>,
        place: &'static str,
    ) -> Vec<Self> {
        let (without, with): (Vec<&Line>, Vec<&Line>) =
            lines.iter().partition(|l| l.setting.tried.is_empty());
        let all = with.len();
        let of = |with: &'a Line| {
            let same = |l: &&&Line| l.setting.mix == with.setting.mix;
            let without: &'a Line = without.iter().find(same).copied()?;
            Some(Self {
                evidence,
                place,
                with,
                without,
                // Repeats of one round belong together.
                difference: paired(&with.over(without, evidence), Good::More),
                all,
            })
        };
        with.into_iter().filter_map(of).collect()
    }

    fn name(&self) -> String {
        self.with.setting.tried.join(", ")
    }

    fn mix(&self) -> &'static str {
        self.with.setting.mix.name()
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
    fn finding(&self) -> Option<Finding> {
        let (verdict, d) = self.shown()?;
        let (name, better) = (self.name(), verdict == Verdict::Better);
        let of = match self.all {
            1 => String::new(),
            n => format!(", of {n} comparisons"),
        };
        Some(Finding {
            id: format!("oltp-try-{}", self.with.setting.label()),
            text: format!(
                "{name}: {} transactions change by {}{of}",
                self.mix(),
                percent(&d.relative)
            ),
            advice: match better {
                true => {
                    format!("{name} ({})", self.place)
                }
                false => String::new(),
            },
            confidence: "strong".into(),
            gain: better.then_some(d.relative),
            jobs: self.jobs(),
            evidence: vec!["oltp-try-tried".into()],
            refuted_by: REFUTED_BY.into(),
            ..Finding::default()
        })
    }

    fn jobs(&self) -> Vec<usize> {
        [self.with.jobs(), self.without.jobs()].concat()
    }
}

/// What shows that a finding of either kind is wrong.
const REFUTED_BY: &str = "The same with --repeats 10, another --seed, and your own transactions.";

/// What was shown, and one sentence about all of which nothing was.
pub(super) fn findings(all: &[Tried<'_>]) -> Vec<Finding> {
    let mut told: Vec<Finding> = all.iter().filter_map(Tried::finding).collect();
    let rest: Vec<&Tried<'_>> = all.iter().filter(|t| t.shown().is_none()).collect();
    if !rest.is_empty() {
        let said: Vec<String> = rest
            .iter()
            .map(|t| format!("{}, {} transactions: {}", t.name(), t.mix(), t.verdict()))
            .collect();
        told.push(Finding {
            id: "oltp-try-no-difference".into(),
            text: format!("{}.", said.join("; ")),
            confidence: "moderate".into(),
            jobs: rest.iter().flat_map(|t| t.jobs()).collect(),
            evidence: vec!["oltp-try-tried".into()],
            refuted_by: REFUTED_BY.into(),
            ..Finding::default()
        });
    }
    told
}

/// Each against the server without it.
pub(super) fn table(all: &[Tried<'_>]) -> Table {
    make_table(
        "oltp-try-tried",
        "Settings that were tried, each in turns with the server without it",
        all,
        &[
            ("transactions", "", &|t| text(t.mix())),
            ("setting", "", &|t| text(t.name())),
            ("without it", "1/s", &|t| {
                estimate(t.without.rate(t.evidence))
            }),
            ("with it", "1/s", &|t| estimate(t.with.rate(t.evidence))),
            ("change", "%", &|t| {
                estimate(t.difference.as_ref().map(|d| d.relative.scale(100.0)))
            }),
            ("verdict (95 %)", "", &|t| text(t.verdict())),
        ],
    )
}

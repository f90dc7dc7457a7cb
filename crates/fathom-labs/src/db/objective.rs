//! How much a server carries: transactions come at their own times, more from step to step, until 99 % of them are no
//! longer answered within the objective.

use fathom_bench::parts::{estimate, headline_of, number, table, text};
use fathom_bench::results::Evidence;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Headline, Table};

use crate::loads::{Line, Repeat};

/// Steps: of what a closed loop does, percent.
pub(super) const SHARES: [u32; 7] = [20, 40, 60, 70, 80, 90, 100];

/// What was counted beside a step.
pub(super) trait Offered {
    /// Transactions per second that came; `None` in a closed loop.
    fn offered(&self) -> Option<f64>;
}

/// Whether a rate that was answered is not less than what was offered by 5 %, and by more than a Poisson number of that many
/// scatters in 99 of 100 cases.
fn keeps_up(answered: f64, offered: f64, seconds: f64) -> bool {
    answered + 2.33 * (offered / seconds).sqrt() >= 0.95 * offered
}

/// Steps of some transactions, from the least to the most.
pub(super) struct Steps<'a, S, M> {
    /// What the transactions are called.
    pub(super) name: &'a str,
    pub(super) lines: Vec<&'a Line<S, M>>,
    pub(super) objective: Nanos,
    pub(super) evidence: &'a Evidence<'a>,
}

/// The highest step that held, as did all below it; and the first that did not hold, or was not shown to.
type Found<'a, S, M> = (Option<&'a Line<S, M>>, Option<(&'a Line<S, M>, bool)>);

impl<'a, S, M: Offered> Steps<'a, S, M> {
    /// Whether the repeats of a step held the objective together, and each answered what came; `None` where that was not
    /// shown: one is void, or they have too few samples.
    fn holds(&self, line: &Line<S, M>) -> Option<bool> {
        let answered = |r: &Repeat<M>| {
            let seconds = r.job(self.evidence)?.wall_ns as f64 / 1e9;
            Some(keeps_up(
                r.rate(self.evidence)?,
                r.beside.offered()?,
                seconds,
            ))
        };
        let answered: Vec<bool> = line.repeats.iter().map(answered).collect::<Option<_>>()?;
        if answered.iter().any(|a| !a) {
            return Some(false);
        }
        let over = |q| {
            line.percentile(self.evidence, q)
                .map(|ns| ns > self.objective.0 as f64)
        };
        match over(0.99) {
            // Half of them do not hold what nearly all should.
            None => over(0.5).filter(|o| *o).map(|_| false),
            Some(over) => Some(!over),
        }
    }

    fn found(&self) -> Found<'a, S, M> {
        let mut held = None;
        for line in &self.lines {
            match self.holds(line) {
                Some(true) => held = Some(*line),
                other => return (held, Some((*line, other.is_some()))),
            }
        }
        (held, None)
    }

    fn offered(line: &Line<S, M>) -> f64 {
        line.mean(|r| r.beside.offered()).map_or(0.0, |e| e.value)
    }

    /// What was carried, with the step that broke.
    pub(super) fn sentence(&self) -> String {
        let (name, within) = (self.name, format!("p99 ≤ {}", self.objective));
        let (held, broke) = self.found();
        let broke = broke.map(|(line, shown)| {
            let rate = Self::offered(line);
            match shown {
                true => format!("{rate:.0} per second do not hold it"),
                false => format!("at {rate:.0} per second it was not shown: the step is void, or has too few samples"),
            }
        });
        match (held, broke) {
            (Some(held), Some(broke)) => format!(
                " It carries {:.0} {name} transactions per second at {within}; {broke}.",
                Self::offered(held)
            ),
            (Some(held), None) => format!(
                " It carries at least {:.0} {name} transactions per second at {within}, all that came.",
                Self::offered(held)
            ),
            (None, Some(broke)) => format!(" {name} transactions at {within}: {broke}."),
            (None, None) => String::new(),
        }
    }

    /// What was carried.
    pub(super) fn headline(&self, group: &str, id: &str) -> Headline {
        let (held, _) = self.found();
        headline_of(
            group,
            &format!("{}: carried at p99 ≤ {}", self.name, self.objective),
            id,
            "1/s",
            held.and_then(|l| l.rate(self.evidence)),
            held.map_or_else(Vec::new, Line::jobs),
        )
    }
}

/// All steps.
pub(super) fn steps_table<S, M: Offered>(id: &str, all: &[&Steps<'_, S, M>]) -> Table {
    let rows = all
        .iter()
        .flat_map(|s| s.lines.iter().map(move |l| (*s, *l)));
    let rows: Vec<_> = rows.collect();
    table(
        id,
        "What came, and how it was answered",
        &rows,
        &[
            ("transactions", "", &|(s, _)| text(s.name)),
            ("came", "1/s", &|(_, l)| {
                estimate(l.mean(|r| r.beside.offered()))
            }),
            ("answered", "1/s", &|(s, l)| estimate(l.rate(s.evidence))),
            ("p50", "ns", &|(s, l)| number(l.percentile(s.evidence, 0.5))),
            ("p99", "ns", &|(s, l)| {
                number(l.percentile(s.evidence, 0.99))
            }),
            ("objective", "", &|(s, l)| {
                text(match s.holds(l) {
                    Some(true) => "holds",
                    Some(false) => "broken",
                    None => "not shown",
                })
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::keeps_up;

    #[test]
    fn a_server_falls_behind_where_it_answers_fewer_than_came_by_more_than_chance() {
        // 92 came in half a second, and 79 were answered: 1.4 standard deviations.
        assert!(keeps_up(158.9, 183.2, 0.5));
        // The same for ten seconds is no chance, and a third is none in half of one.
        assert!(!keeps_up(158.9, 183.2, 10.0));
        assert!(!keeps_up(122.0, 183.2, 0.5));
        assert!(keeps_up(9_600.0, 10_000.0, 60.0) && !keeps_up(9_300.0, 10_000.0, 60.0));
    }
}

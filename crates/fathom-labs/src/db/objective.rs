//! How much a server carries: transactions come at their own times, more from step to step, until 99 % of them are no
//! longer answered within the objective.

use fathom_bench::parts::{estimate, headline_of, number, table, text};
use fathom_bench::results::Evidence;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Headline, Table};

use super::{Line, Mix, Repeat};

/// Whether a rate that was answered is not less than what was offered by 5 %, and by more than a Poisson number of that many
/// scatters in 99 of 100 cases.
fn keeps_up(answered: f64, offered: f64, seconds: f64) -> bool {
    answered + 2.33 * (offered / seconds).sqrt() >= 0.95 * offered
}

/// Whether the repeats of a step held the objective together, and each answered what came; `None` where that was not shown:
/// one is void, or they have too few samples.
fn holds(line: &Line, objective: Nanos, evidence: &Evidence<'_>) -> Option<bool> {
    let answered = |r: &Repeat| {
        let seconds = r.job(evidence)?.wall_ns as f64 / 1e9;
        Some(keeps_up(r.rate(evidence)?, r.beside.offered?, seconds))
    };
    let answered: Vec<bool> = line.repeats.iter().map(answered).collect::<Option<_>>()?;
    if answered.iter().any(|a| !a) {
        return Some(false);
    }
    let over = |q| {
        line.percentile(evidence, q)
            .map(|ns| ns > objective.0 as f64)
    };
    match over(0.99) {
        // Half of them do not hold what nearly all should.
        None => over(0.5).filter(|o| *o).map(|_| false),
        Some(over) => Some(!over),
    }
}

fn steps<'a>(lines: &[&'a Line], mix: Mix) -> Vec<&'a Line> {
    let open = lines.iter().copied().filter(|l| l.setting.load.is_some());
    open.filter(|l| l.setting.mix == mix).collect()
}

/// What was carried of some transactions.
pub(super) struct Carried<'a> {
    mix: Mix,
    objective: Nanos,
    evidence: &'a Evidence<'a>,
    /// The highest step that held, as did all below it.
    held: Option<&'a Line>,
    /// The first that did not hold, or was not shown to.
    broke: Option<(&'a Line, bool)>,
}

/// Goes up the steps of some transactions.
pub(super) fn carried<'a>(
    lines: &[&'a Line],
    mix: Mix,
    objective: Nanos,
    evidence: &'a Evidence<'a>,
) -> Carried<'a> {
    let mut found = Carried {
        mix,
        objective,
        evidence,
        held: None,
        broke: None,
    };
    for line in steps(lines, mix) {
        match holds(line, objective, evidence) {
            Some(true) => found.held = Some(line),
            other => {
                found.broke = Some((line, other.is_some()));
                break;
            }
        }
    }
    found
}

impl Carried<'_> {
    fn offered(line: &Line) -> f64 {
        line.mean(|r| r.beside.offered).map_or(0.0, |e| e.value)
    }

    pub(super) fn sentence(&self) -> String {
        let (name, within) = (self.mix.name(), format!("p99 ≤ {}", self.objective));
        let broke = self.broke.map(|(line, shown)| {
            let rate = Self::offered(line);
            match shown {
                true => format!("{rate:.0} per second do not hold it"),
                false => format!("at {rate:.0} per second it was not shown: the step is void, or has too few samples"),
            }
        });
        match (self.held, broke) {
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

    pub(super) fn headline(&self) -> Headline {
        headline_of(
            "InnoDB (MariaDB)",
            &format!("{}: carried at p99 ≤ {}", self.mix.name(), self.objective),
            &format!("oltp-objective-{}-carried", self.mix.name()),
            "1/s",
            self.held.and_then(|l| l.rate(self.evidence)),
            self.held.map_or_else(Vec::new, Line::jobs),
        )
    }
}

/// All steps.
pub(super) fn steps_table(lines: &[&Line], objective: Nanos, evidence: &Evidence<'_>) -> Table {
    let open: Vec<&Line> = Mix::ALL.into_iter().flat_map(|m| steps(lines, m)).collect();
    table(
        "oltp-objective-steps",
        "What came, and how it was answered",
        &open,
        &[
            ("transactions", "", &|l| text(l.setting.mix.name())),
            ("came", "1/s", &|l| estimate(l.mean(|r| r.beside.offered))),
            ("answered", "1/s", &|l| estimate(l.rate(evidence))),
            ("p50", "ns", &|l| number(l.percentile(evidence, 0.5))),
            ("p99", "ns", &|l| number(l.percentile(evidence, 0.99))),
            ("objective", "", &|l| {
                text(match holds(l, objective, evidence) {
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

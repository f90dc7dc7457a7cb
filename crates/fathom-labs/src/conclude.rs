//! What labs end with: settings that were measured in turns, each against the usual one or step by step, and how sure that is.

use fathom_bench::results::Evidence;
use fathom_stats::Estimate;
use fathom_stats::compare::{Difference, Good, Verdict, paired};
use fathom_telemetry::schema::Finding;

use crate::loads::Line;

/// Chance of a difference where there is none, of all comparisons of a finding together.
const LEVEL: f64 = 0.05;
/// What shows that such a finding is wrong.
const REFUTED_BY: &str = "The same with --repeats 10, another --seed, and your own load.";

/// `+38.0 % (+17.0 to +62.0)`.
pub(crate) fn percent(d: &Estimate) -> String {
    match (d.low, d.high) {
        (Some(low), Some(high)) => format!(
            "{:+.1} % ({:+.1} to {:+.1})",
            d.value * 100.0,
            low * 100.0,
            high * 100.0
        ),
        _ => format!("{:+.1} %", d.value * 100.0),
    }
}

/// Whether a difference is one, beyond the chance of so many comparisons.
fn shown(d: &Difference, comparisons: usize) -> bool {
    let is = [Verdict::Better, Verdict::Worse].contains(&d.verdict);
    is && d.p.is_some_and(|p| p * comparisons as f64 <= LEVEL)
}

/// A setting, and what was measured with it.
pub(crate) struct Choice<'a, S, M> {
    pub(crate) name: String,
    pub(crate) line: &'a Line<S, M>,
}

impl<S, M> Choice<'_, S, M> {
    fn over(&self, other: &Self, evidence: &Evidence<'_>) -> Option<Difference> {
        paired(&self.line.over(other.line, evidence), Good::More)
    }
}

/// How a finding is told.
pub(crate) struct Told<'a> {
    pub(crate) id: String,
    /// Whose rate it is, such as `write transactions`.
    pub(crate) of: &'a str,
    /// What was varied, such as `buffer pool`.
    pub(crate) what: &'a str,
    /// How a choice is made, by its number.
    pub(crate) advice: &'a dyn Fn(usize) -> String,
    /// Ids of tables.
    pub(crate) tables: Vec<String>,
}

fn jobs<S, M>(all: &[Choice<'_, S, M>]) -> Vec<usize> {
    all.iter().flat_map(|c| c.line.jobs()).collect()
}

/// The others against the one at `usual`; what was shown to be better is advised.
pub(crate) fn against<S, M>(
    all: &[Choice<'_, S, M>],
    usual: usize,
    told: &Told<'_>,
    evidence: &Evidence<'_>,
) -> Option<Finding> {
    let others = (0..all.len()).filter(|i| *i != usual);
    let each: Vec<(usize, Difference)> = others
        .filter_map(|i| Some((i, all[i].over(&all[usual], evidence)?)))
        .collect();
    let sure = |d: &Difference| shown(d, each.len());
    let name = |i: usize| &all[i].name;
    let words = |wanted: bool| {
        let some = each.iter().filter(|(_, d)| sure(d) == wanted);
        some.map(|(i, d)| format!("{} {}", name(*i), percent(&d.relative)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (differ, like) = (words(true), words(false));
    let mut text = format!("{}, {} {}", told.of, told.what, name(usual));
    match (differ.is_empty(), like.is_empty()) {
        (true, true) => return None,
        (true, false) => text.push_str(&format!(": no difference shown to {like}")),
        (false, true) => text.push_str(&format!(": instead {differ}")),
        (false, false) => {
            text.push_str(&format!(
                ": instead {differ}; no difference shown to {like}"
            ));
        }
    }
    let better = each
        .iter()
        .filter(|(_, d)| sure(d) && d.verdict == Verdict::Better)
        .max_by(|a, b| a.1.relative.value.total_cmp(&b.1.relative.value));
    Some(Finding {
        id: told.id.clone(),
        text,
        advice: better.map_or(String::new(), |b| (told.advice)(b.0)),
        confidence: if better.is_some() {
            "strong"
        } else {
            "moderate"
        }
        .into(),
        gain: better.map(|b| b.1.relative),
        jobs: jobs(all),
        evidence: told.tables.clone(),
        refuted_by: REFUTED_BY.into(),
        ..Finding::default()
    })
}

fn pairs_of(n: usize) -> usize {
    n * (n - 1) / 2
}

/// The first step beyond which none was shown to give more, and whether some differences are not known.
fn first_enough<S, M>(
    steps: &[Choice<'_, S, M>],
    evidence: &Evidence<'_>,
) -> Option<(usize, bool)> {
    let mut unsure = false;
    let mut more = |low: usize| {
        steps[low + 1..].iter().any(|high| {
            let d = high.over(&steps[low], evidence);
            unsure |= d.as_ref().is_none_or(|d| d.p.is_none());
            d.is_some_and(|d| d.verdict == Verdict::Better && shown(&d, pairs_of(steps.len())))
        })
    };
    let at = (0..steps.len()).find(|i| !more(*i))?;
    Some((at, unsure))
}

/// Of steps upwards the first beyond which none was shown to give more: what is enough.
pub(crate) fn enough<S, M>(
    steps: &[Choice<'_, S, M>],
    told: &Told<'_>,
    evidence: &Evidence<'_>,
) -> Option<Finding> {
    let [first, .., last] = steps else {
        return None;
    };
    let (at, unsure) = first_enough(steps, evidence)?;
    let (of, what) = (told.of, told.what);
    let gain = || steps[at].over(first, evidence).map(|d| d.relative);
    let rate = |c: &Choice<'_, S, M>| {
        let rate = c.line.rate(evidence);
        rate.map_or("nothing that can be used".into(), |r| {
            format!("{:.0} per second", r.value)
        })
    };
    let (text, proposes, confidence) = if unsure {
        (
            format!(
                "{of}: {} with {what} {}, {} with {}; one repeat shows no difference",
                rate(first),
                first.name,
                rate(last),
                last.name
            ),
            false,
            "weak",
        )
    } else if at == 0 {
        (
            format!(
                "{of}: no more than {what} {} was shown to help, up to {}: {}",
                first.name,
                last.name,
                rate(first)
            ),
            false,
            "moderate",
        )
    } else if at + 1 == steps.len() {
        let gain = gain().map_or(String::new(), |g| percent(&g));
        (
            format!(
                "{of}: {what} {} gives {gain} over {}; it is the edge of what was measured, more may help more",
                last.name, first.name
            ),
            false,
            "moderate",
        )
    } else {
        let gain = gain().map_or(String::new(), |g| percent(&g));
        (
            format!(
                "{of}: {what} {} gives {gain} over {}; no more than that was shown to help, up to {}",
                steps[at].name, first.name, last.name
            ),
            // That steps above it are no better does not yet show that it is better than the first.
            steps[at]
                .over(first, evidence)
                .is_some_and(|d| d.verdict == Verdict::Better && shown(&d, pairs_of(steps.len()))),
            "moderate",
        )
    };
    Some(Finding {
        id: told.id.clone(),
        text,
        advice: if proposes {
            (told.advice)(at)
        } else {
            String::new()
        },
        confidence: confidence.into(),
        gain: gain().filter(|_| proposes),
        jobs: jobs(steps),
        evidence: told.tables.clone(),
        refuted_by: REFUTED_BY.into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::Repeat;
    use fathom_bench::results::Merged;
    use fathom_telemetry::schema::{Direction, Job, Run};

    /// A run with the rates of each line, and the lines.
    fn run(rates: &[&[f64]]) -> (Run, Vec<Line<(), ()>>) {
        let mut run: Run = serde_json::from_value(serde_json::json!({
            "schema_version": 2, "tool_version": "", "name": "", "command": "", "command_line": [], "started": "",
            "finished": null, "profile": null, "seed": 1, "simulated": false, "environment": {}, "headlines": [],
            "target": {"name": "", "kind": "", "path": null, "size_bytes": 0, "device": null, "description": ""},
            "results": [], "sections": [], "jobs": [], "findings": [], "flags": [],
        }))
        .unwrap();
        let mut lines = Vec::new();
        for each in rates {
            let mut line = Line::new(());
            for iops in *each {
                run.jobs.push(Job {
                    wall_ns: 1_000_000_000,
                    write: Some(Direction {
                        iops: *iops,
                        ..Direction::default()
                    }),
                    ..Job::default()
                });
                line.repeats.push(Repeat {
                    jobs: vec![run.jobs.len() - 1],
                    operations: 1,
                    course: crate::loads::Course::default(),
                    beside: (),
                });
            }
            lines.push(line);
        }
        (run, lines)
    }

    fn told(rates: &[&[f64]], steps: bool) -> Option<Finding> {
        let (run, lines) = run(rates);
        let none: Vec<Merged> = Vec::new();
        let evidence = Evidence::new(&run, &none);
        let all: Vec<Choice<'_, (), ()>> = (0..)
            .zip(&lines)
            .map(|(i, line)| Choice {
                name: format!("{} MiB", 1 << i),
                line,
            })
            .collect();
        let told = Told {
            id: "x".into(),
            of: "writes",
            what: "a pool of",
            advice: &|i| format!("take {i}"),
            tables: Vec::new(),
        };
        match steps {
            true => enough(&all, &told, &evidence),
            false => against(&all, 0, &told, &evidence),
        }
    }

    #[test]
    fn what_is_enough_is_the_first_step_that_nothing_above_beats() {
        let slow = [100.0, 101.0, 99.0, 100.5];
        let fast = [200.0, 203.0, 198.0, 200.5];
        let like = [201.0, 200.0, 199.5, 202.0];
        let found = told(&[&slow, &fast, &like], true).unwrap();
        assert_eq!(found.advice, "take 1");
        assert!(found.proposes() && found.gain.unwrap().value > 0.9);
        assert!(
            found
                .text
                .contains("no more than that was shown to help, up to 4 MiB")
        );
        let edge = told(&[&slow, &fast], true).unwrap();
        assert!(
            !edge.proposes() && edge.text.contains("edge"),
            "{}",
            edge.text
        );
        let flat = told(&[&fast, &like], true).unwrap();
        assert!(
            flat.text.contains("no more than a pool of 1 MiB"),
            "{}",
            flat.text
        );
        // The last beats the first, the one between is not known to.
        let wild = [101.0, 190.0, 60.0, 200.0];
        let between = told(&[&slow, &wild, &like], true).unwrap();
        assert!(
            !between.proposes() && between.advice.is_empty(),
            "{}",
            between.text
        );
        let once = told(&[&slow[..1], &fast[..1]], true).unwrap();
        assert!(once.confidence == "weak" && once.text.contains("one repeat"));
    }

    #[test]
    fn others_are_held_against_the_usual_one_beyond_chance() {
        let usual = [100.0, 102.0, 99.0, 101.0];
        let better = [138.0, 141.0, 136.0, 139.0];
        let maybe = [104.0, 97.0, 103.0, 105.0];
        let found = told(&[&usual, &better, &maybe], false).unwrap();
        assert_eq!(found.advice, "take 1");
        assert!(
            found
                .text
                .starts_with("writes, a pool of 1 MiB: instead 2 MiB +3"),
            "{}",
            found.text
        );
        assert!(
            found.text.contains("no difference shown to 4 MiB"),
            "{}",
            found.text
        );
        let none = told(&[&usual, &maybe], false).unwrap();
        assert!(!none.proposes() && none.advice.is_empty());
    }
}

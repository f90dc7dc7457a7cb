//! Runs of different devices beside each other: what both measured is compared, what differs is described.
//!
//! Nothing is refused for a condition here: drives of two sizes, a model beside a drive, another host. Whoever buys wants
//! to know; whether a change made something worse is asked of [`super::compare`].

use std::collections::BTreeSet;

use fathom_stats::Estimate;
use fathom_stats::compare::{Good, Verdict, difference};
use fathom_telemetry::Price;
use fathom_telemetry::schema::Run;
use serde::Serialize;

use super::conditions::conditions;
use super::metrics::{Metric, WindowSource, metrics};

/// Something in which the runs differ, with what it is in each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Described {
    /// Name of the condition.
    pub condition: String,
    /// In each run, in the order given; absent where it is not known.
    pub values: Vec<Option<String>>,
}

/// What one run has of a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offer {
    /// The number.
    pub estimate: Option<Estimate>,
    /// Why there is none.
    pub why: Option<String>,
    /// How many times as good as the baseline, or as what was published, above 1 is better; absent for the baseline itself.
    pub times: Option<Estimate>,
    /// What the intervals say about it.
    pub verdict: Option<Verdict>,
    /// The number for each unit of the price; of throughputs only.
    pub per_price: Option<f64>,
    /// Flags, and options of the job that are not the baseline's.
    pub notes: Vec<String>,
}

/// One metric of all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Stable name, by which the runs are matched.
    pub id: String,
    /// For people.
    pub label: String,
    /// Unit.
    pub unit: String,
    /// Which direction is good; absent where none is, as of a depth: such numbers are shown and not judged.
    pub good: Option<Good>,
    /// In the order of the runs.
    pub offers: Vec<Offer>,
}

impl Line {
    /// Whether two runs have a number.
    pub fn matches(&self) -> bool {
        self.offers.iter().filter(|o| o.estimate.is_some()).count() > 1
    }
}

/// Several runs beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shopping {
    /// What each run was of, in the order given.
    pub runs: Vec<String>,
    /// Index of the one that the others are measured by.
    pub baseline: usize,
    /// What differs, besides the numbers.
    pub differs: Vec<Described>,
    /// Every metric that some run has.
    pub lines: Vec<Line>,
}

impl Shopping {
    /// Whether anything can be compared at all.
    pub fn matches(&self) -> bool {
        self.lines.iter().any(Line::matches)
    }
}

/// Puts runs beside each other. `prices` is empty, or has one for each run where that is known.
pub fn shopping(
    runs: &[(&Run, &dyn WindowSource)],
    baseline: usize,
    prices: &[Option<f64>],
) -> Shopping {
    let neutral = |(run, w): &(&Run, &dyn WindowSource)| metrics(run, *w).neutral;
    let neutral: Vec<Vec<Metric>> = runs.iter().map(neutral).collect();
    let judged: Vec<Vec<Metric>> = runs.iter().map(|(run, w)| offered(run, *w)).collect();
    let mut lines = lines(&judged, baseline, prices, true);
    lines.extend(self::lines(&neutral, baseline, prices, false));
    Shopping {
        runs: names(runs),
        baseline,
        differs: described(runs),
        lines,
    }
}

fn lines(all: &[Vec<Metric>], baseline: usize, prices: &[Option<f64>], judged: bool) -> Vec<Line> {
    let mut ids: Vec<&str> = Vec::new();
    for m in all.iter().flatten() {
        if !ids.contains(&m.id.as_str()) {
            ids.push(&m.id);
        }
    }
    let line = |id: &str| {
        let found: Vec<Option<&Metric>> = all
            .iter()
            .map(|run| run.iter().find(|m| m.id == id))
            .collect();
        let about = found.iter().flatten().next()?;
        let base = found.get(baseline).copied().flatten();
        let offers = found
            .iter()
            .enumerate()
            .map(|(i, m)| {
                let base = base.filter(|_| i != baseline && judged);
                offer(
                    *m,
                    base,
                    prices.get(i).copied().flatten().filter(|_| judged),
                )
            })
            .collect();
        Some(Line {
            id: id.to_owned(),
            label: about.label.clone(),
            unit: about.unit.clone(),
            good: judged.then_some(about.good),
            offers,
        })
    };
    ids.into_iter().filter_map(line).collect()
}

/// Headlines; jobs where there are none.
pub(super) fn offered(run: &Run, windows: &dyn WindowSource) -> Vec<Metric> {
    let m = metrics(run, windows);
    if m.headlines.is_empty() {
        m.jobs
    } else {
        m.headlines
    }
}

pub(super) fn offer(metric: Option<&Metric>, base: Option<&Metric>, price: Option<f64>) -> Offer {
    let Some(m) = metric else {
        return Offer {
            estimate: None,
            why: Some("not measured by this run".into()),
            times: None,
            verdict: None,
            per_price: None,
            notes: Vec::new(),
        };
    };
    // That a run is of a model is described with the other conditions.
    let simulated = fathom_telemetry::FlagCode::Simulated.name();
    let mut notes = m.notes.clone();
    notes.retain(|n| n != simulated);
    // Capacities stand on top.
    let differ = base.map_or_else(Vec::new, |b| b.differing_but(m, &["size".to_owned()]));
    if !differ.is_empty() {
        notes.push(format!("another {}", differ.join(", ")));
    }
    let against = base
        .and_then(|b| b.estimate)
        .zip(m.estimate)
        .and_then(|(b, e)| Some((difference(&b, &e, m.good)?, b)));
    let void = || {
        let flags = match m.notes.is_empty() {
            true => "no job was usable".to_owned(),
            false => m.notes.join(", "),
        };
        format!("void: {flags}")
    };
    Offer {
        estimate: m.estimate,
        why: m.estimate.is_none().then(void),
        times: against.map(|(d, _)| times(&d.relative, m.good)),
        verdict: against.map(|(d, _)| d.verdict),
        per_price: m
            .estimate
            .zip(price)
            .filter(|_| m.good == Good::More)
            .map(|(e, price)| e.value / price),
        notes,
    }
}

/// A relative difference as a factor, turned so that above 1 is better.
pub(super) fn times(relative: &Estimate, good: Good) -> Estimate {
    let turned = |v: f64| match good {
        Good::More => 1.0 + v,
        Good::Less => 1.0 / (1.0 + v),
    };
    let (low, high) = match good {
        Good::More => (relative.low, relative.high),
        Good::Less => (relative.high, relative.low),
    };
    // Below nothing there is no factor.
    let end = |v: Option<f64>| v.map(turned).filter(|v| v.is_finite() && *v > 0.0);
    Estimate {
        value: turned(relative.value),
        low: end(low),
        high: end(high),
        samples: relative.samples,
    }
}

/// What each run was of; runs of one name get their number.
fn names(runs: &[(&Run, &dyn WindowSource)]) -> Vec<String> {
    let place = |run: &Run| run.target.place().to_owned();
    let all: Vec<String> = runs.iter().map(|(run, _)| place(run)).collect();
    let same = |name: &String| all.iter().filter(|n| *n == name).count() > 1;
    all.iter()
        .enumerate()
        .map(|(i, name)| match same(name) {
            true => format!("{name} ({})", i + 1),
            false => name.clone(),
        })
        .collect()
}

fn described(runs: &[(&Run, &dyn WindowSource)]) -> Vec<Described> {
    let all: Vec<_> = runs
        .iter()
        .map(|(run, _)| {
            let mut c = conditions(run);
            let capacity = fathom_telemetry::Bytes(run.target.size_bytes).to_string();
            c.insert("size", capacity);
            let of_jobs = |f: &dyn Fn(&fathom_telemetry::schema::Job) -> Option<String>| {
                let set: BTreeSet<String> = run.jobs.iter().filter_map(f).collect();
                set.into_iter().collect::<Vec<_>>().join(" and ")
            };
            if let Some(price) = Price::of(run) {
                c.insert("price", price.words());
            }
            c.insert("engine", of_jobs(&|j| Some(j.engine.clone())));
            let through = |j: &fathom_telemetry::schema::Job| {
                let direct = j.spec.get("direct")?.as_bool()?;
                Some(if direct { "direct" } else { "buffered" }.to_owned())
            };
            c.insert("path", of_jobs(&through));
            c
        })
        .collect();
    let keys: BTreeSet<&str> = all.iter().flat_map(|c| c.keys().copied()).collect();
    keys.into_iter()
        .map(|key| Described {
            condition: key.to_owned(),
            values: all.iter().map(|c| c.get(key).cloned()).collect(),
        })
        .filter(|d| d.values.windows(2).any(|w| w[0] != w[1]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::noisy_run;
    use super::*;

    fn beside(runs: &[Run], baseline: usize, prices: &[Option<f64>]) -> Shopping {
        let none: &dyn WindowSource = &();
        let with: Vec<_> = runs.iter().map(|r| (r, none)).collect();
        shopping(&with, baseline, prices)
    }

    /// A drive of another name, size and kind: all that a comparison for regressions refuses.
    fn drive(name: &str, level: f64, bytes: u64) -> Run {
        let mut run = noisy_run(level, 0.001, 5, 7);
        run.target.name = name.into();
        run.target.size_bytes = bytes;
        run.simulated = bytes.is_multiple_of(2);
        run
    }

    #[test]
    fn drives_of_different_sizes_and_kinds_are_compared_in_the_order_given() {
        let runs = [
            drive("slow", 10_000.0, 480 << 30),
            drive("fast", 62_000.0, (400 << 30) + 1),
            drive("same", 10_000.0, 800 << 30),
        ];
        let s = beside(&runs, 0, &[]);
        assert_eq!(s.runs, ["slow", "fast", "same"]);
        let times: Vec<_> = s.lines[0].offers.iter().map(|o| o.times).collect();
        assert!(times[0].is_none(), "the baseline itself");
        assert!((times[1].unwrap().value - 6.2).abs() < 0.05);
        assert_eq!(s.lines[0].offers[1].verdict, Some(Verdict::Better));
        assert_eq!(
            s.lines[0].offers[2].verdict,
            Some(Verdict::NoDifferenceShown)
        );
        for condition in ["size", "simulated"] {
            let d = s.differs.iter().find(|d| d.condition == condition).unwrap();
            assert_eq!(d.values.len(), 3);
        }
        let turned = beside(&runs, 1, &[]);
        assert!((turned.lines[0].offers[0].times.unwrap().value - 1.0 / 6.2).abs() < 0.01);
    }

    #[test]
    fn a_number_that_is_missing_says_why() {
        let mut void = drive("b", 5.0, 1 << 30);
        void.headlines[0].estimate = None;
        let mut other = drive("c", 5.0, 1 << 30);
        other.headlines[0].id = "something-else".into();
        let s = beside(&[drive("a", 5.0, 1 << 30), void, other], 0, &[]);
        let why = |line: usize, run: usize| s.lines[line].offers[run].why.as_deref();
        assert!(why(0, 1).unwrap().starts_with("void"));
        assert_eq!(why(0, 2), Some("not measured by this run"));
        assert_eq!(why(1, 0), Some("not measured by this run"));
        assert!(!s.matches(), "no metric has two numbers");
    }

    #[test]
    fn a_price_divides_throughput_and_another_depth_is_a_note() {
        let mut deep = drive("b", 1_000.0, 1 << 30);
        for j in &mut deep.jobs {
            j.spec["qd"] = 8.into();
        }
        let s = beside(
            &[drive("a", 1_000.0, 1 << 30), deep],
            0,
            &[Some(100.0), Some(50.0)],
        );
        let offers = &s.lines[0].offers;
        assert!((offers[1].per_price.unwrap() / offers[0].per_price.unwrap() - 2.0).abs() < 0.01);
        assert_eq!(offers[1].notes, ["another qd"]);
        assert!(offers[1].times.is_some(), "compared all the same");
    }

    #[test]
    fn less_latency_is_more_times_as_good() {
        let e = Estimate {
            value: -0.5,
            low: Some(-0.6),
            high: Some(-0.2),
            samples: 3,
        };
        let t = times(&e, Good::Less);
        assert_eq!((t.value, t.high), (2.0, Some(2.5)));
        assert!((t.low.unwrap() - 1.25).abs() < 1e-9);
    }
}

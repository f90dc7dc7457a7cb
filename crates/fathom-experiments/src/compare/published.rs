//! Published figures beside what runs measured of the same load.
//!
//! They are numbers of other machines, most without an interval: how many times as good a run is, is said, and no
//! verdict.

use fathom_stats::Estimate;
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::Run;
use serde::Serialize;
use serde_json::Value;

use super::metrics::{Metric, WindowSource};
use super::shopping::{Offer, offer, offered, times};
use crate::reproduce::{self, PAPERS};

/// One published number beside a metric of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Row of docs/published-figures.csv.
    pub row: String,
    /// The device it is of.
    pub device: String,
    /// The metric, for people.
    pub label: String,
    /// The number, in the metric's unit.
    pub value: f64,
    /// The metric's unit.
    pub unit: String,
    /// What the list of figures says about it.
    pub note: String,
    /// What each run has of it, in the order of the runs; without a verdict.
    pub offers: Vec<Offer>,
}

/// What a paper published, beside the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// The paper's name.
    pub paper: String,
    /// Who wrote what.
    pub title: String,
    /// Figures of loads that some run measured.
    pub figures: Vec<Figure>,
}

impl Published {
    /// Whether some run has a number beside a figure.
    pub fn matches(&self) -> bool {
        let mut offers = self.figures.iter().flat_map(|f| &f.offers);
        offers.any(|o| o.times.is_some())
    }
}

/// Which metric of a run is of the published load.
#[derive(Clone, Copy)]
enum Of {
    /// A headline of a survey or a lab.
    Headline(&'static str),
    /// A job of fathom run: Han et al. ran fio with 512 KiB and 64 threads.
    Job { rw: &'static str, direct: bool },
}

impl Of {
    fn is(self, m: &Metric) -> bool {
        match self {
            Self::Headline(id) => m.id == id,
            Self::Job { rw, direct } => {
                m.unit == "IOPS" && m.specs.first().is_some_and(|s| is_han(s, rw, direct))
            }
        }
    }
}

const HAN_BLOCK: Bytes = Bytes(512 << 10);

/// Whether a job is that load and nothing else: paced, skewed or mixed it would be another.
fn is_han(spec: &Value, rw: &str, direct: bool) -> bool {
    const LOAD: [&str; 5] = ["rw", "bs", "threads", "qd", "direct"];
    const HOW_LONG_AND_WHERE: [&str; 7] =
        ["engine", "size", "offset", "time", "ramp", "bytes", "ios"];
    let Some(options) = spec.as_object() else {
        return false;
    };
    let known = |k: &String| LOAD.contains(&k.as_str()) || HOW_LONG_AND_WHERE.contains(&k.as_str());
    let block = spec["bs"].as_str().and_then(|b| b.parse().ok());
    options.keys().all(known)
        && spec["rw"] == rw
        && spec["direct"] == direct
        && (spec["threads"].as_u64(), spec["qd"].as_u64()) == (Some(64), Some(1))
        && block == Some(HAN_BLOCK)
}

const ZHANG: [(&str, Of); 10] = [
    ("D001", Of::Headline("randread-4k-qd1-latency")),
    ("Z013", Of::Headline("randread-4k-qd1-latency")),
    ("Z082", Of::Headline("randread-4k-max-iops")),
    ("Z071", Of::Headline("randread-4k-max-iops")),
    ("D012", Of::Headline("randwrite-4k-max-iops")),
    ("D014", Of::Headline("randwrite-4k-max-iops")),
    ("Z086", Of::Headline("read-128k-bandwidth")),
    ("Z088", Of::Headline("read-128k-bandwidth")),
    ("Z087", Of::Headline("write-128k-bandwidth")),
    ("Z089", Of::Headline("write-128k-bandwidth")),
];
const ONEILL: [(&str, Of); 3] = [
    ("O015", Of::Headline("mix-70-iops")),
    ("O017", Of::Headline("kv-insert-ops")),
    ("O020", Of::Headline("kv-update-ops")),
];
const SHROUT: [(&str, Of); 1] = [("S003", Of::Headline("randread-4k-qd1-latency"))];
/// First row of each device; its eight follow in the order of Table 1.
const HAN: [u32; 3] = [6, 14, 22];

fn rows(paper: &str) -> Vec<(String, Of)> {
    let named = |rows: &[(&str, Of)]| rows.iter().map(|r| (r.0.to_owned(), r.1)).collect();
    match paper {
        "zhang2018" => named(&ZHANG),
        "oneill2018" => named(&ONEILL),
        "shrout2017" => named(&SHROUT),
        "han2021" => {
            let loads = ["read", "randread", "write", "randwrite"]
                .into_iter()
                .flat_map(|rw| [false, true].map(|direct| Of::Job { rw, direct }));
            let of_device = |first: &u32| (*first..).map(|n| format!("H{n:03}")).zip(loads.clone());
            HAN.iter().flat_map(of_device).collect()
        }
        _ => Vec::new(),
    }
}

/// A published number in the unit of a metric; `None` where one does not follow from the other.
fn converted(value: f64, from: &str, to: &str) -> Option<f64> {
    Some(match (from, to) {
        ("us", "ns") => value * 1e3,
        ("MB/s", "bytes/s") => value * 1e6,
        ("MB/s", "IOPS") => value * 1e6 / HAN_BLOCK.0 as f64,
        ("IOPS" | "ops/s", "IOPS") | ("inserts/s" | "updates/s", "1/s") => value,
        _ => return None,
    })
}

/// What a run has of a metric, and how many times as good that is as what was published.
fn beside(metric: Option<&Metric>, published: f64) -> Offer {
    let mut it = offer(metric, None, None);
    if let (Some(m), Some(e)) = (metric, it.estimate.filter(|e| e.value > 0.0)) {
        let relative = |v: f64| v / published - 1.0;
        let relative = Estimate {
            value: relative(e.value),
            low: e.low.map(relative),
            high: e.high.map(relative),
            ..e
        };
        it.times = Some(times(&relative, m.good));
    }
    it
}

/// What `paper` published of the loads that `runs` measured.
///
/// # Errors
/// A sentence where there is no such paper.
pub fn published(paper: &str, runs: &[(&Run, &dyn WindowSource)]) -> Result<Published, String> {
    let all: Vec<Vec<Metric>> = runs.iter().map(|(run, w)| offered(run, *w)).collect();
    of_metrics(paper, &all)
}

fn of_metrics(paper: &str, runs: &[Vec<Metric>]) -> Result<Published, String> {
    let Some((_, title)) = PAPERS.iter().find(|p| p.0 == paper) else {
        return Err(reproduce::unknown(paper));
    };
    let figure = |(row, of): (String, Of)| {
        let found: Vec<Option<&Metric>> = runs
            .iter()
            .map(|run| run.iter().find(|m| of.is(m)))
            .collect();
        let about = *found.iter().flatten().next()?;
        let stated = reproduce::stated(&row)?;
        let value = converted(stated.number()?, &stated.unit, &about.unit)?;
        Some(Figure {
            row,
            device: stated.device,
            label: about.label.clone(),
            value,
            unit: about.unit.clone(),
            note: stated.note,
            offers: found.iter().map(|m| beside(*m, value)).collect(),
        })
    };
    Ok(Published {
        paper: paper.to_owned(),
        title: (*title).to_owned(),
        figures: rows(paper).into_iter().filter_map(figure).collect(),
    })
}

#[cfg(test)]
mod tests {
    use fathom_stats::compare::Good;

    use super::*;

    fn metric(id: &str, unit: &str, value: f64, spec: Value) -> Metric {
        Metric {
            id: id.into(),
            label: id.into(),
            unit: unit.into(),
            good: if unit == "ns" { Good::Less } else { Good::More },
            estimate: Some(Estimate {
                value,
                low: Some(value * 0.5),
                high: Some(value * 2.0),
                samples: 3,
            }),
            notes: Vec::new(),
            specs: vec![spec],
        }
    }

    #[test]
    fn every_row_that_is_named_is_a_number_that_converts() {
        for (paper, _) in PAPERS {
            for (row, of) in rows(paper) {
                let stated = reproduce::stated(&row);
                let unit = match of {
                    Of::Job { .. } => "IOPS",
                    Of::Headline(id) if id.ends_with("latency") => "ns",
                    Of::Headline(id) if id.ends_with("bandwidth") => "bytes/s",
                    Of::Headline(id) if id.starts_with("kv") => "1/s",
                    Of::Headline(_) => "IOPS",
                };
                let stated = stated.unwrap_or_else(|| panic!("{row} is no number"));
                assert!(
                    stated
                        .number()
                        .and_then(|n| converted(n, &stated.unit, unit))
                        .is_some(),
                    "{row}"
                );
            }
        }
    }

    #[test]
    fn less_latency_than_published_is_so_many_times_as_good_with_its_interval() {
        let run = vec![metric(
            "randread-4k-qd1-latency",
            "ns",
            6_750.0,
            Value::Null,
        )];
        let p = of_metrics("zhang2018", &[run, Vec::new()]).unwrap();
        let optane = p.figures.iter().find(|f| f.row == "Z013").unwrap();
        assert_eq!(
            (optane.value, optane.device.as_str()),
            (13_500.0, "Optane 900P")
        );
        let t = optane.offers[0].times.unwrap();
        assert_eq!((t.value, t.low, t.high), (2.0, Some(1.0), Some(4.0)));
        let second = &optane.offers[1];
        assert_eq!(second.why.as_deref(), Some("not measured by this run"));
    }

    #[test]
    fn a_number_beside_a_figure_keeps_its_flags_under_whatever_name_each_run_measured_it() {
        let spec =
            serde_json::json!({"rw": "read", "bs": "512k", "threads": 64, "qd": 1, "direct": true});
        let job = |name: &str, flags: &[&str]| Metric {
            notes: flags.iter().map(|f| (*f).to_owned()).collect(),
            ..metric(name, "IOPS", 5_000.0, spec.clone())
        };
        let mut void = job("c/iops", &["foreign-io"]);
        void.estimate = None;
        let (clean, flagged) = (job("a/iops", &[]), job("b/iops", &["foreign-io"]));
        let p = of_metrics("han2021", &[vec![clean], vec![flagged], vec![void.clone()]]).unwrap();
        for f in &p.figures {
            assert!(f.offers[0].notes.is_empty() && f.offers[0].times.is_some());
            assert_eq!(f.offers[1].notes, ["foreign-io"]);
            assert_eq!(f.offers[2].why.as_deref(), Some("void: foreign-io"));
        }
        assert!(p.matches());
        let only_void = of_metrics("han2021", &[vec![void]]).unwrap();
        assert!(!only_void.figures.is_empty() && !only_void.matches());
    }

    #[test]
    fn a_job_is_held_against_the_figure_of_its_load_only() {
        let spec = |rw: &str, direct: bool| serde_json::json!({"rw": rw, "bs": "512k", "threads": 64, "qd": 1, "direct": direct});
        let of = |spec| of_metrics("han2021", &[vec![metric("j/iops", "IOPS", 5_000.0, spec)]]);
        let rows = |spec| -> Vec<String> {
            of(spec)
                .unwrap()
                .figures
                .into_iter()
                .map(|f| f.row)
                .collect()
        };
        assert_eq!(rows(spec("read", true)), ["H007", "H015", "H023"]);
        assert_eq!(rows(spec("randwrite", false)), ["H012", "H020", "H028"]);
        for (option, other) in [("bs", "4k"), ("rate", "1000"), ("dist", "zipf:1.1")] {
            let mut spec = spec("read", true);
            spec[option] = other.into();
            assert!(rows(spec).is_empty(), "{option}={other}");
        }
        assert!(
            of_metrics("zhang2019", &[])
                .unwrap_err()
                .contains("zhang2018")
        );
    }
}

//! Another lab on the host and in a machine: its headlines beside each other. Each turn is a run of its own.

use std::path::Path;

use fathom_bench::parts::{axis, chart, estimate, point, series, table, text};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::Flag;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Headline, Run, Section};

use serde::{Deserialize, Serialize};

use crate::conclude::percent;

/// What came of the turns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sides {
    turns: Vec<Turn>,
}

/// One turn of the lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Turn {
    /// In a machine, or on the host.
    inside: bool,
    /// Where its run is kept.
    run: String,
    headlines: Vec<Headline>,
    /// What the lab says against its run.
    flags: Vec<Flag>,
}

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SidesResult {
    /// The lab, as it would be typed.
    lab: String,
    /// Of the machine.
    about: String,
    /// What is to be known of numbers from it.
    stamps: Vec<Flag>,
    sides: Sides,
}

impl SidesResult {
    /// The first run in a machine.
    pub fn first_inside(&self) -> Option<&str> {
        let mut inside = self.sides.turns.iter().filter(|t| t.inside);
        inside.next().map(|t| t.run.as_str())
    }
}

impl Sides {
    /// A run on the host or, where `inside`, in a machine.
    pub fn add(&mut self, inside: bool, run: Run, dir: &Path) {
        self.turns.push(Turn {
            inside,
            run: dir.display().to_string(),
            headlines: run.headlines,
            flags: run.flags,
        });
    }

    /// What is kept of them.
    pub fn result(self, lab: &str, about: String, stamps: Vec<Flag>) -> SidesResult {
        SidesResult {
            lab: lab.to_owned(),
            about,
            stamps,
            sides: self,
        }
    }

    /// Flags of the lab's runs: they hold for what is made of their numbers, too.
    pub fn flags(&self) -> impl Iterator<Item = Flag> + '_ {
        let side = |inside| if inside { "machine" } else { "host" };
        self.turns.iter().flat_map(move |t| {
            t.flags.iter().map(move |f| Flag {
                detail: format!("{}: {}", side(t.inside), f.detail),
                ..f.clone()
            })
        })
    }

    fn of(&self, inside: bool, id: &str) -> Vec<&Headline> {
        let turns = self.turns.iter().filter(|t| t.inside == inside);
        turns
            .filter_map(|t| t.headlines.iter().find(|h| h.id == id))
            .collect()
    }
}

/// A headline of the lab on both sides.
struct Both<'a> {
    of: &'a Headline,
    host: Vec<&'a Headline>,
    machine: Vec<&'a Headline>,
}

fn values(side: &[&Headline]) -> Vec<f64> {
    side.iter()
        .filter_map(|h| Some(h.estimate?.value))
        .collect()
}

fn mean(side: &[&Headline]) -> Option<Estimate> {
    Estimate::mean_of(&values(side))
}

impl Both<'_> {
    fn ratio(&self) -> Option<Estimate> {
        let (host, machine) = (values(&self.host), values(&self.machine));
        let ratios: Vec<f64> = host.iter().zip(&machine).map(|(h, m)| m / h).collect();
        Estimate::mean_of(&ratios)
    }

    /// What a machine leaves of what is counted by the second; no surer than what stands against its numbers.
    fn conclusion(&self, stamps: &[Flag]) -> Option<Finding> {
        let ratio = self.ratio().filter(|_| self.of.unit == "1/s")?;
        let change = Estimate {
            value: ratio.value - 1.0,
            low: ratio.low.map(|l| l - 1.0),
            high: ratio.high.map(|h| h - 1.0),
            ..ratio
        };
        let sure = match change.shows_effect() {
            true => "a machine changes it",
            false => "no difference shown",
        };
        Some(Finding {
            id: format!("vm-lab-{}", self.of.id),
            text: format!(
                "{}: {sure}, {} against the host{}",
                self.of.label,
                percent(&change),
                stamps
                    .first()
                    .map_or_else(String::new, |s| format!(" ({})", s.detail))
            ),
            confidence: if stamps.is_empty() { "moderate" } else { "low" }.into(),
            evidence: vec!["vm-lab-table".into()],
            refuted_by: "The same with more --repeats and another --seed.".into(),
            ..Finding::default()
        })
    }

    /// With the flags of all turns.
    fn headline(&self, name: &str, side: &[&Headline], stamps: &[Flag]) -> Headline {
        let mut flags = stamps.to_vec();
        for f in side.iter().flat_map(|h| &h.flags) {
            if !flags.iter().any(|g| g.code == f.code) {
                flags.push(f.clone());
            }
        }
        Headline {
            id: format!("{name}-{}", self.of.id),
            group: name.to_owned(),
            estimate: mean(side),
            extra: Default::default(),
            jobs: Vec::new(),
            flags,
            ..self.of.clone()
        }
    }
}

impl ExperimentResult for SidesResult {
    const EXPERIMENT: &'static str = "vm-lab";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        let mut all: Vec<Both<'_>> = Vec::new();
        let host = self.sides.turns.iter().filter(|t| !t.inside);
        for of in host.flat_map(|t| &t.headlines) {
            if !all.iter().any(|b| b.of.id == of.id) {
                all.push(Both {
                    of,
                    host: self.sides.of(false, &of.id),
                    machine: self.sides.of(true, &of.id),
                });
            }
        }
        let kept: Vec<&str> = self.sides.turns.iter().map(|t| t.run.as_str()).collect();
        let bars = all.iter().enumerate();
        let bars = bars.map(|(i, b)| point(i as f64, b.ratio())).collect();
        shown.sections.push(Section {
            id: "vm-lab".into(),
            title: format!("fathom {} in a machine", self.lab),
            text: format!(
                "{}. The lab ran on the host and in a machine over scratch files of the same size in the same directory, in turns (machine, host, host, machine); each turn is a run of its own: {}.",
                self.about,
                kept.join(", ")
            ),
            charts: vec![Chart {
                categories: all.iter().map(|b| b.of.label.clone()).collect(),
                ..chart(
                    "vm-lab-ratio",
                    "Machine over host",
                    ChartKind::Bar,
                    axis("", "", false),
                    axis("machine over host", "x", false),
                    vec![series("machine over host", bars)],
                )
            }],
            tables: vec![table(
                "vm-lab-table",
                "Host and machine",
                &all,
                &[
                    ("what", "", &|b| text(&b.of.label)),
                    ("unit", "", &|b| text(&b.of.unit)),
                    ("host", "", &|b| estimate(mean(&b.host))),
                    ("machine", "", &|b| estimate(mean(&b.machine))),
                    ("machine over host", "x", &|b| estimate(b.ratio())),
                ],
            )],
            flags: self.stamps.clone(),
        });
        for b in &all {
            shown.headlines.push(b.headline("host", &b.host, &[]));
            let machine = b.headline("machine", &b.machine, &self.stamps);
            shown.headlines.push(machine);
        }
        shown
            .findings
            .extend(all.iter().filter_map(|b| b.conclusion(&self.stamps)));
    }
}

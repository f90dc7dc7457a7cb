//! Another lab on each array: its headlines beside each other, by array. The other lab is a run of its own in a
//! directory of the array's file system.

use fathom_bench::parts::{axis, chart, estimate, number, point, series, table, text};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::{Notebook, NotebookError};
use fathom_stats::compare::{Good, Verdict, difference};
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Headline, Run, Section, Table};
use fathom_telemetry::{Flag, FlagCode};
use serde::{Deserialize, Serialize};

use crate::conclude::percent;
use fathom_system::array::Shape;

/// What came of all arrays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WithinResult {
    /// The lab, as it would be typed.
    lab: String,
    /// Of the arrays.
    about: String,
    /// Those on which it ran.
    arrays: Vec<OnArray>,
}

/// What the lab found on one array.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OnArray {
    title: String,
    slug: String,
    level: u32,
    members: u32,
    /// Where its run is kept.
    run: String,
    headlines: Vec<Headline>,
}

impl WithinResult {
    /// Nothing measured yet.
    pub fn new(lab: &str, about: &str) -> Self {
        Self {
            lab: lab.to_owned(),
            about: about.to_owned(),
            arrays: Vec::new(),
        }
    }

    /// Adds what came of an array: the lab's run and where it is kept, or why there is none, which is a flag.
    pub fn add(&mut self, book: &mut Notebook, shape: Shape, run: Result<(Run, String), String>) {
        let flags = &mut book.run_mut().flags;
        let (run, dir) = match run {
            Ok(run) => run,
            Err(why) => {
                return flags.push(Flag::new(
                    FlagCode::NotChecked,
                    format!("{} was not measured: {why}", shape.title()),
                    "the other arrays are not concerned",
                ));
            }
        };
        // What the lab says against its numbers holds here, too.
        flags.extend(run.flags.iter().map(|f| Flag {
            detail: format!("{}: {} ({dir})", shape.title(), f.detail),
            ..f.clone()
        }));
        self.arrays.push(OnArray {
            title: shape.title(),
            slug: shape.slug(),
            level: shape.level.number(),
            members: shape.members,
            run: dir,
            headlines: run.headlines,
        });
    }

    /// Arrays that were measured.
    pub fn arrays(&self) -> usize {
        self.arrays.len()
    }

    /// Of the arrays, for people.
    pub(crate) fn about(&self) -> &str {
        &self.about
    }

    /// A headline of the lab on each array: level, value, and what is to be said of it.
    pub(crate) fn by_level(&self, headline: &str) -> Vec<(u32, f64, String)> {
        let value = |a: &OnArray| {
            let h = a.headlines.iter().find(|h| h.id == headline)?;
            let flags: Vec<&str> = h.flags.iter().map(|f| f.code.name()).collect();
            let flags = match flags.is_empty() {
                true => String::new(),
                false => format!(", flagged {}", flags.join(", ")),
            };
            let said = format!("{}{flags}, run {}", a.title, a.run);
            Some((a.level, h.estimate?.value, said))
        };
        self.arrays.iter().filter_map(value).collect()
    }

    /// Keeps it. Without any array the run is void.
    ///
    /// # Errors
    /// Where the run directory fails.
    pub fn keep(&self, book: &mut Notebook) -> Result<(), NotebookError> {
        if self.arrays.is_empty() {
            super::none_measured(book);
        }
        book.found(self)
    }

    /// The lab's headlines, each once.
    fn known(&self) -> Vec<&Headline> {
        let mut known: Vec<&Headline> = Vec::new();
        for h in self.arrays.iter().flat_map(|a| &a.headlines) {
            if !known.iter().any(|k| k.id == h.id) {
                known.push(h);
            }
        }
        known
    }

    fn chart(&self, of: &Headline) -> Chart {
        let bars = self.arrays.iter().enumerate();
        let bars = bars.map(|(i, a)| point(i as f64, a.value(&of.id)));
        Chart {
            categories: self.arrays.iter().map(|a| a.title.clone()).collect(),
            ..chart(
                &format!("raid-lab-{}", of.id),
                &of.label,
                ChartKind::Bar,
                axis("array", "", false),
                axis(&of.label, &of.unit, false),
                vec![series(&of.label, bars.collect())],
            )
        }
    }

    fn table(&self, of: &Headline) -> Table {
        table(
            &format!("raid-lab-{}", of.id),
            &of.label,
            &self.arrays,
            &[
                ("array", "", &|a| text(&a.title)),
                ("level", "", &|a| number(Some(f64::from(a.level)))),
                ("members", "", &|a| number(Some(f64::from(a.members)))),
                (&of.label, &of.unit, &|a| estimate(a.value(&of.id))),
                ("run", "", &|a| text(&a.run)),
            ],
        )
    }
}

impl WithinResult {
    /// Which array does most of what is counted by the second, and which of the others were shown to do less.
    fn conclusion(&self, of: &Headline) -> Option<Finding> {
        let (best, most) = self
            .arrays
            .iter()
            .filter_map(|a| Some((a, a.value(&of.id)?)))
            .max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
        let others = self.arrays.iter().filter(|a| a.title != best.title);
        let each: Vec<String> = others
            .filter_map(|a| {
                let d = difference(&most, &a.value(&of.id)?, Good::More)?;
                let sure = match d.verdict {
                    Verdict::Worse => "",
                    _ => ", which was not shown",
                };
                Some(format!("{} {}{sure}", a.title, percent(&d.relative)))
            })
            .collect();
        (of.unit == "1/s" && !each.is_empty()).then(|| Finding {
            id: format!("raid-lab-{}-best", of.id),
            text: format!(
                "{}: {} does most, {:.0} per second; against it {}",
                of.label,
                best.title,
                most.value,
                each.join(", ")
            ),
            confidence: "moderate".into(),
            evidence: vec![format!("raid-lab-{}", of.id)],
            refuted_by: "The same with --repeats 5 and another --seed.".into(),
            ..Finding::default()
        })
    }
}

impl OnArray {
    fn value(&self, id: &str) -> Option<fathom_stats::Estimate> {
        self.headlines.iter().find(|h| h.id == id)?.estimate
    }
}

impl ExperimentResult for WithinResult {
    const EXPERIMENT: &'static str = "raid-lab";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        let known = self.known();
        shown.sections.push(Section {
            id: "raid-lab".into(),
            title: format!("fathom {} on arrays", self.lab),
            text: format!(
                "{} Each array is made anew; the lab runs in its file system, or on its device where it has none, and keeps a run of its own.",
                self.about
            ),
            charts: known.iter().map(|h| self.chart(h)).collect(),
            tables: known.iter().map(|h| self.table(h)).collect(),
            flags: Vec::new(),
        });
        for array in &self.arrays {
            // With its flags; its jobs are in the lab's own run.
            shown
                .headlines
                .extend(array.headlines.iter().map(|h| Headline {
                    id: format!("{}-{}", array.slug, h.id),
                    group: array.title.clone(),
                    jobs: Vec::new(),
                    ..h.clone()
                }));
        }
        shown
            .findings
            .extend(known.into_iter().filter_map(|h| self.conclusion(h)));
    }
}

//! Published figures beside ours: the experiments of four papers, run on the models of their devices.
//!
//! A row says what was published where, what the model gives, and whether that value was fitted or predicted.
//! Identifiers are those of `docs/published-figures.csv`.

pub mod contradictions;
mod han;
mod load;
mod oneill;
pub mod present;
mod published;
pub mod real;
mod shrout;
mod zhang;

use fathom_bench::cost::RunCost;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_io::{JobError, JobSpec};
use fathom_sim::SimError;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use load::{Load, Measured};

pub use han::{POINTS, Point};
pub use load::Models;
pub(crate) use published::stated;

/// Papers by their names on the command line, with their titles.
pub const PAPERS: &[(&str, &str)] = &[
    (
        "zhang2018",
        "Zhang et al. 2018: Optane in physical and virtualized environments",
    ),
    ("han2021", "Han et al. 2021: RAID of Optane devices"),
    ("oneill2018", "O'Neill 2018: Tupl on Optane"),
    ("shrout2017", "Shrout 2017: testing low-latency storage"),
];

/// Jobs of a paper on models, and as many random reads of 4 KiB on the first of them as take as long to simulate, in
/// thousands: arrays and machines take longer for each I/O, hours are sampled.
const SIMULATED: [(&str, u32, u64); 4] = [
    ("zhang2018", 125, 8_900),
    ("han2021", 108, 28_700),
    ("oneill2018", 2, 4_400),
    ("shrout2017", 58, 1_500),
];

/// What a paper takes on models, beside the model that says how fast I/Os are simulated here.
pub fn run_cost(paper: &str) -> (RunCost, &'static str) {
    let mut cost = RunCost::default();
    if let Some((_, jobs, thousands)) = SIMULATED.iter().find(|s| s.0 == paper) {
        let all = Bytes(thousands * 1000 * 4096);
        let spec = JobSpec {
            qd: 8,
            bytes: Some(all),
            ..JobSpec::default()
        };
        cost.phase("the paper's loads on models of its devices")
            .work(*jobs, Nanos::from_secs_f64(all.0 as f64 / 2e9), Bytes(0))
            .simulated_as(&spec, 1);
    }
    (cost, "sim:optane-900p")
}

/// Whether a model was fitted to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A parameter was chosen so that this value comes out.
    Fit,
    /// Arithmetic on rows that were fitted: it says nothing that they do not.
    Derived,
    /// It follows from parameters that were fitted to other values, and no fitted row determines it.
    Prediction,
    /// It was measured on a real target.
    Measured,
}

impl Role {
    /// In a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Derived => "derived",
            Self::Prediction => "prediction",
            Self::Measured => "measured",
        }
    }
}

/// One published value beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Identifier.
    pub id: String,
    /// Section, table or figure.
    pub place: String,
    /// What was measured.
    pub what: String,
    /// What ours is held against: as published, unless [`Row::printed`] says what was.
    pub published: Option<f64>,
    /// Smallest and largest, where the paper gives a range: then there is no single published value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Rows of the same paper that determine it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
    /// As printed, where the paper contradicts it and another of its values is used; the note says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<f64>,
    /// Ours.
    pub ours: Option<f64>,
    /// What the models of the paper's devices say, where ours was measured on a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// Of ours against the published value; of a share, against the smaller of it and the rest; of a range, beyond its
    /// nearer end, and none within.
    pub error_percent: Option<f64>,
    /// Fitted or predicted.
    pub role: Role,
    /// Contradictions of the paper, or why a number is missing.
    pub note: String,
}

impl Row {
    fn new(
        id: &str,
        place: &str,
        what: &str,
        published: f64,
        ours: f64,
        unit: &str,
        role: Role,
    ) -> Self {
        Self {
            id: id.into(),
            place: place.into(),
            what: what.into(),
            published: Some(published),
            range: None,
            from: Vec::new(),
            printed: None,
            ours: Some(ours),
            model: None,
            unit: unit.into(),
            error_percent: Some((ours / published - 1.0) * 100.0),
            role,
            note: String::new(),
        }
    }
    /// It is arithmetic on these rows.
    fn from(mut self, rows: &[&str]) -> Self {
        self.from = rows.iter().map(|r| (*r).to_owned()).collect();
        self
    }
    /// It is a part of a whole, %: 91 instead of 90 % lost is a tenth of what is left, not a hundredth.
    fn share(mut self) -> Self {
        if let (Some(p), Some(ours)) = (self.published, self.ours) {
            let smaller = p.min(100.0 - p);
            if smaller > 0.0 {
                self.error_percent = Some((ours - p) / smaller * 100.0);
            }
        }
        self
    }
    /// The paper gives a range.
    fn within(mut self, range: [f64; 2]) -> Self {
        self.published = None;
        self.range = Some(range);
        self.error_percent = self.ours.and_then(|ours| {
            let nearest = ours.clamp(range[0], range[1]);
            (ours != nearest).then_some((ours / nearest - 1.0) * 100.0)
        });
        self
    }
    /// The published value as the paper gives it: `2 to 3`.
    pub fn as_published(&self, number: impl Fn(f64) -> String) -> Option<String> {
        match self.range {
            Some([low, high]) => Some(format!("{} to {}", number(low), number(high))),
            None => self.published.map(number),
        }
    }
    fn note(mut self, note: &str) -> Self {
        self.note = note.into();
        self
    }
    /// The paper prints another value, which it contradicts elsewhere; `why` says so.
    fn printed(mut self, printed: f64, why: &str) -> Self {
        self.printed = Some(printed);
        self.note = format!("printed as {printed}: {why}");
        self
    }
    /// The paper says in words how values compare; `ours` shows whether the model's do, too.
    fn relation(
        id: &str,
        place: &str,
        what: &str,
        ours: f64,
        unit: &str,
        text: &str,
        holds: bool,
    ) -> Self {
        let verdict = if holds { "holds" } else { "does not hold here" };
        Self {
            published: None,
            error_percent: None,
            ..Self::new(id, place, what, f64::NAN, ours, unit, Role::Prediction)
        }
        .note(&format!("published as '{text}': {verdict}"))
    }
}

/// What rests on nothing but fitted rows is derived from them, whatever it was called; so is what has the very value of a
/// fitted row: it is the same load under another name.
fn settle(rows: &mut [Row]) {
    for i in 0..rows.len() {
        let r = &rows[i];
        let same = |f: &&Row| f.role == Role::Fit && f.unit == r.unit && f.ours == r.ours;
        if r.role == Role::Prediction && r.from.is_empty() && r.ours.is_some() {
            let fitted = rows.iter().find(same).map(|f| f.id.clone());
            rows[i].from.extend(fitted);
        }
    }
    loop {
        let known: Vec<&str> = rows
            .iter()
            .filter(|r| matches!(r.role, Role::Fit | Role::Derived))
            .map(|r| r.id.as_str())
            .collect();
        let determined = |r: &Row| {
            r.role != Role::Derived
                && !r.from.is_empty()
                && r.from.iter().all(|f| known.contains(&f.as_str()))
        };
        let found: Vec<usize> = (0..rows.len()).filter(|i| determined(&rows[*i])).collect();
        if found.is_empty() {
            return;
        }
        found.into_iter().for_each(|i| rows[i].role = Role::Derived);
    }
}

pub(crate) fn unknown(paper: &str) -> String {
    let near = fathom_sim::nearest_of(paper, PAPERS.iter().map(|p| p.0));
    let near = near.map_or_else(String::new, |n| format!(" (did you mean {n}?)"));
    let all: Vec<&str> = PAPERS.iter().map(|p| p.0).collect();
    format!(
        "'{paper}' is no paper that can be reproduced{near}: expected {}",
        all.join(", ")
    )
}

/// Why a paper could not be reproduced.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// No such paper.
    #[error("{}", unknown(.0))]
    UnknownPaper(String),
    /// A model.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The target.
    #[error("{0}")]
    Bench(String),
    /// A place that one target cannot show.
    #[error("none of the values that one target can show belongs to {0}: leave out --figure")]
    Figure(String),
    /// Someone asked to end.
    #[error("interrupted before all values were there; run it again: it begins anew")]
    Interrupted,
}

impl ReproduceError {
    /// What stands against a run that was interrupted.
    pub fn interrupted() -> Flag {
        Flag::new(
            FlagCode::Interrupted,
            Self::Interrupted.to_string(),
            "run it again: it begins anew",
        )
    }
}

/// A line chart beside the rows of its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// As [`Row::place`].
    pub place: String,
    /// Heading.
    pub title: String,
    /// Label and unit of the axes.
    pub x: (String, String),
    /// The same.
    pub y: (String, String),
    /// Names and points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
    /// Published values as lines across.
    pub marks: Vec<(String, f64)>,
}

/// What came of a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// Its name on the command line.
    pub paper: String,
    /// Values, those without a counterpart last.
    pub rows: Vec<Row>,
    /// Figures that are curves.
    pub curves: Vec<Curve>,
    /// Which values were fitted, and which are predictions.
    pub basis: String,
}

impl ExperimentResult for Reproduction {
    const EXPERIMENT: &'static str = "reproduce";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        shown.sections.extend(present::sections(self));
    }
}

/// Whether a row belongs to what `--figure` names: an identifier, or part of a place (`Fig. 4a`, `fig4a`, `table iii`).
pub fn is_figure(figure: &str, id: &str, place: &str) -> bool {
    let plain = |s: &str| -> String {
        s.to_lowercase()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric())
            .collect()
    };
    let wanted = plain(figure);
    if plain(id) == wanted {
        return true;
    }
    // "Table I" is not the beginning of "Table III".
    // "4.1 Fig.1a" is "Fig. 1a" of 4.1.
    let parts = place.split([',', '(', ')', ';']);
    let figures = place.match_indices("Fig").map(|(at, _)| &place[at..]);
    let figures = figures.map(|f| f.split([',', '(', ')', ';']).next().unwrap_or(f));
    parts.chain(figures).map(plain).any(|part| {
        part == wanted
            || (part.starts_with(&wanted)
                && wanted.ends_with(|c: char| c.is_ascii_digit())
                && !part[wanted.len()..].starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// All rows of a paper, on the models of its devices.
///
/// # Errors
/// Where the paper is not known, or someone asked to end.
pub fn reproduce(paper: &str, models: &mut Models<'_>) -> Result<Reproduction, ReproduceError> {
    let mut r = match paper {
        "zhang2018" => zhang::reproduce(models)?,
        "han2021" => han::reproduce(models)?,
        "oneill2018" => oneill::reproduce(models)?,
        "shrout2017" => shrout::reproduce(models)?,
        _ => return Err(ReproduceError::UnknownPaper(paper.to_owned())),
    };
    settle(&mut r.rows);
    let others = published::others(paper, &r.rows, published::On::Models);
    r.rows.extend(others);
    Ok(r)
}

#[cfg(test)]
mod tests;

//! Published figures beside ours: the experiments of four papers, run on the models of their devices.
//!
//! A row says what was published where, what the model gives, and whether that value was fitted or predicted.
//! Identifiers are those of `docs/published-figures.csv`; how each is come by says `docs/reproduced-figures.csv`.

pub mod contradictions;
mod curves;
mod engine;
mod expression;
mod load;
mod options;
pub mod present;
mod published;
pub mod real;
mod store;
mod table;

use fathom_bench::cost::RunCost;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_io::{JobError, JobSpec};
use fathom_sim::SimError;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use engine::Engine;
use published::On;

pub use curves::Point;
pub use load::Models;
pub use options::{ReproduceOptions, method};
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
    /// A line of the table of values.
    #[error("docs/reproduced-figures.csv is wrong: {0}")]
    Table(String),
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

/// Which values of a paper were fitted on the models, and which are predictions.
fn basis(paper: &str) -> &'static str {
    match paper {
        "zhang2018" => {
            "Fitted: II-B's latencies and shares, the bandwidths of Table III, the IOPS of III-B c in PE, of one and of six machines, and the \
    load curves of Fig. 7 but NAND's in VE; values that only restate these (ratios, percentages) are marked as fitted, too. Predictions: \
    what no parameter was chosen for."
        }
        "han2021" => {
            "Fitted: Table 1's direct rates, and 41 points of Fig. 1-5: RAID 0, 1 and 10 (Fig. 1-3), and of the parity writes \
    (Fig. 4b, 4d, 5b, 5d) the smallest and the largest array, with RAID 6 of six written directly (H108, a fifth below both its \
    neighbours: no cost per page follows it). Thirteen parameters, least squares of the relative errors. Predictions: every read of \
    RAID 5 and 6 and the parity writes between (15 points with a number), Table 1's buffered rates, Fig. 9, Table 2."
        }
        "oneill2018" => {
            "Fitted: I/Os per insert and per update, to the rates after 6 h (O017) and of the updates (O020). Predictions: the raw \
    rate and its ceiling, from a model that was fitted to another paper, inserts after the updates, and the dips of heat in shape."
        }
        _ => {
            "Fitted: the drop of the NAND drive's sequential reads beside writes (S018) chose how long programming keeps its media \
    from reading, and that a write spoils its read-ahead. Everything else is a prediction."
        }
    }
}

/// The published points of Han et al.'s arrays.
pub fn points() -> Vec<Point> {
    // A test holds that every line can be read.
    Point::all(&table::lines("han2021", On::Models)).unwrap_or_default()
}

/// All rows of a paper, on the models of its devices.
///
/// # Errors
/// Where the paper is not known, or someone asked to end.
pub fn reproduce(paper: &str, models: &mut Models<'_>) -> Result<Reproduction, ReproduceError> {
    if PAPERS.iter().all(|p| p.0 != paper) {
        return Err(ReproduceError::UnknownPaper(paper.to_owned()));
    }
    let lines = table::lines(paper, On::Models);
    let mut engine = Engine::new(&lines, models);
    let mut rows = Vec::new();
    engine.rows(|_| true, &mut rows)?;
    let curves = curves::of(paper, &mut engine, &rows)?;
    settle(&mut rows);
    let others = published::others(paper, &rows, On::Models);
    rows.extend(others);
    Ok(Reproduction {
        paper: paper.to_owned(),
        rows,
        curves,
        basis: basis(paper).into(),
    })
}

#[cfg(test)]
mod fit_tests;
#[cfg(test)]
mod tests;

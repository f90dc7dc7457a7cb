//! Results as data: what an experiment found is saved, and everything shown is made from it and the jobs.
//!
//! An experiment hands its result to [`Notebook::found`](crate::Notebook::found). At the end of the run, and again
//! whenever `fathom report` remakes its page, [`present`] turns the saved results into sections, headlines and findings,
//! so that an improved analysis applies to old runs, and nothing is ever read back from a label or a sentence.

use std::cell::OnceCell;
use std::path::PathBuf;

use fathom_io::JobSpec;
use fathom_telemetry::schema::{Finding, Headline, Job, Run, SavedResult, Section};
use fathom_telemetry::series::SeriesReader;
use fathom_telemetry::{Flag, Op};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cells::{Analysis, Cell};
use crate::notebook::Merged;

/// What an experiment found: a value that is saved in `run.json`, and how it is shown.
pub trait ExperimentResult: Serialize + DeserializeOwned {
    /// Stable name of the experiment.
    const EXPERIMENT: &'static str;
    /// Raised when a field changes meaning or disappears; an older value is then no longer shown anew.
    const VERSION: u32 = 1;
    /// Adds sections, headlines and findings; a pure function of the value and the evidence.
    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown);
}

/// What readers see of a run, in reading order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// Tables and charts.
    pub sections: Vec<Section>,
    /// The screen's numbers.
    pub headlines: Vec<Headline>,
    /// Sentences.
    pub findings: Vec<Finding>,
}

impl Shown {
    /// Adds what an analysis made.
    pub fn add(&mut self, analysis: Analysis) {
        self.sections.push(analysis.section);
        self.headlines.extend(analysis.headlines);
        self.findings.extend(analysis.findings);
    }
}

/// Repeats of one job: its specification and where they stand in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// The job; its name is the stem.
    pub spec: JobSpec,
    /// Indices in the run.
    pub jobs: Vec<usize>,
}

impl Point {
    /// Not run yet.
    pub fn new(spec: JobSpec) -> Self {
        Self {
            spec,
            jobs: Vec::new(),
        }
    }
}

/// Response latency of each job of a run, merged over threads and windows, by operation.
pub trait Histograms {
    /// Of one job; `None` where nothing was kept of it.
    fn of(&self, job: usize) -> Option<&Merged>;
}

impl Histograms for Vec<Merged> {
    fn of(&self, job: usize) -> Option<&Merged> {
        self.get(job)
    }
}

/// Those of a saved run, read from its series once they are asked for.
pub struct SavedHistograms {
    series: PathBuf,
    read: OnceCell<Vec<Merged>>,
}

impl SavedHistograms {
    /// Of the run whose `series.parquet` this is. Where it cannot be read there are none: percentiles become holes.
    pub fn of_series(series: PathBuf) -> Self {
        Self {
            series,
            read: OnceCell::new(),
        }
    }

    fn read(&self) -> Vec<Merged> {
        let mut all: Vec<Merged> = Vec::new();
        let Ok(reader) = SeriesReader::open(&self.series) else {
            return all;
        };
        let read = reader.each_row(None, |row| {
            let job = usize::from(row.job);
            if all.len() <= job {
                all.resize_with(job + 1, Merged::default);
            }
            all[job][row.op as usize]
                .get_or_insert_default()
                .merge_sparse(&row.window.response);
        });
        match read {
            Ok(()) => all,
            Err(_) => Vec::new(),
        }
    }
}

impl Histograms for SavedHistograms {
    fn of(&self, job: usize) -> Option<&Merged> {
        self.read.get_or_init(|| self.read()).get(job)
    }
}

/// What a result rests on.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    run: &'a Run,
    histograms: &'a dyn Histograms,
}

impl<'a> Evidence<'a> {
    /// Of a run and its histograms.
    pub fn new(run: &'a Run, histograms: &'a dyn Histograms) -> Self {
        Self { run, histograms }
    }

    /// The run; what is shown of it so far is not to be read.
    pub fn run(&self) -> &'a Run {
        self.run
    }

    /// A job by its index.
    pub fn job(&self, index: usize) -> Option<&'a Job> {
        self.run.jobs.get(index)
    }

    /// Response latency of a job, by operation.
    pub fn merged(&self, job: usize) -> Option<&'a Merged> {
        self.histograms.of(job)
    }

    /// What another experiment of the run found.
    pub fn result<T: ExperimentResult>(&self) -> Option<T> {
        result(self.run)
    }

    /// The point's repeats, gathered for analysis.
    pub fn cell(&self, point: &Point) -> Cell {
        let repeats: Vec<(usize, Job)> = point
            .jobs
            .iter()
            .filter_map(|i| Some((*i, self.job(*i)?.clone())))
            .collect();
        let mut merged = Merged::default();
        for (i, _) in repeats.iter().filter(|r| !r.1.is_void()) {
            let Some(m) = self.histograms.of(*i) else {
                continue;
            };
            for op in Op::ALL {
                if let Some(h) = &m[op as usize] {
                    merged[op as usize].get_or_insert_default().merge(h);
                }
            }
        }
        Cell {
            stem: point.spec.name.clone(),
            spec: point.spec.clone(),
            repeats,
            merged,
        }
    }

    /// The same for several.
    pub fn cells(&self, points: &[Point]) -> Vec<Cell> {
        points.iter().map(|p| self.cell(p)).collect()
    }
}

/// What an experiment of a run found, where it did and this version knows it.
pub fn result<T: ExperimentResult>(run: &Run) -> Option<T> {
    let saved = run
        .results
        .iter()
        .find(|r| r.experiment == T::EXPERIMENT && r.version == T::VERSION)?;
    T::deserialize(&saved.data).ok()
}

/// How results of one kind are shown.
#[derive(Clone, Copy)]
pub struct Presenter {
    /// Name of the experiment.
    pub experiment: &'static str,
    version: u32,
    present: fn(&SavedResult, &Evidence<'_>, &mut Shown) -> Result<(), serde_json::Error>,
}

impl Presenter {
    /// Of a kind of result.
    pub const fn of<T: ExperimentResult>() -> Self {
        Self {
            experiment: T::EXPERIMENT,
            version: T::VERSION,
            present: |saved, evidence, shown| {
                T::deserialize(&saved.data)?.present(evidence, shown);
                Ok(())
            },
        }
    }
}

/// Every kind of result of this room; a new one is a line here.
pub const PRESENTERS: &[Presenter] = &[
    Presenter::of::<crate::ab::AbResult>(),
    Presenter::of::<crate::applications::ApplicationsResult>(),
    Presenter::of::<crate::burst::BurstResult>(),
    Presenter::of::<crate::compression::CompressionResult>(),
    Presenter::of::<crate::condition::ConditionPlan>(),
    Presenter::of::<crate::condition::ConditionResult>(),
    Presenter::of::<crate::course::RegimesResult>(),
    Presenter::of::<crate::cpu::CpuResult>(),
    Presenter::of::<crate::curve::CurveResult>(),
    Presenter::of::<crate::endurance::EnduranceResult>(),
    Presenter::of::<crate::mix::MixResult>(),
    Presenter::of::<crate::pages::PagesResult>(),
    Presenter::of::<crate::pts::PtsResult>(),
    Presenter::of::<crate::replay::ReplayResult>(),
    Presenter::of::<crate::reproduce::Reproduction>(),
    Presenter::of::<crate::stack::StackReport>(),
    Presenter::of::<crate::survey::SurveyResult>(),
    Presenter::of::<crate::tune::TuneResult>(),
    Presenter::of::<crate::workload::Profile>(),
    Presenter::of::<crate::workload::WorkloadResult>(),
];

/// Why a run cannot be shown anew.
#[derive(Debug, thiserror::Error)]
pub enum PresentError {
    /// Another fathom wrote it.
    #[error(
        "the result of {experiment}, version {version}, is not one that this fathom shows; use the fathom that wrote the run"
    )]
    Unknown {
        /// Name of the experiment.
        experiment: String,
        /// Version of its result.
        version: u32,
    },
    /// The value is not what its version says.
    #[error("the result of {experiment} is damaged: {source}; restore run.json")]
    Damaged {
        /// Name of the experiment.
        experiment: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// Makes what is shown of a run from its results. `presenters` must know all of them.
///
/// # Errors
/// Where a result is of another version, or damaged.
pub fn shown(
    run: &Run,
    histograms: &dyn Histograms,
    presenters: &[Presenter],
) -> Result<Shown, PresentError> {
    let evidence = Evidence::new(run, histograms);
    let mut shown = Shown::default();
    for saved in &run.results {
        let experiment = || saved.experiment.clone();
        let presenter = presenters
            .iter()
            .find(|p| p.experiment == saved.experiment && p.version == saved.version)
            .ok_or_else(|| PresentError::Unknown {
                experiment: experiment(),
                version: saved.version,
            })?;
        (presenter.present)(saved, &evidence, &mut shown).map_err(|source| {
            PresentError::Damaged {
                experiment: experiment(),
                source,
            }
        })?;
    }
    Ok(shown)
}

/// Replaces what is shown of a saved run by what its results give. Where a result is missing that something shown would
/// need (runs of before, experiments that keep none yet) the run stays as it is.
///
/// # Errors
/// As [`shown`].
pub fn present_anew(
    run: &mut Run,
    histograms: &dyn Histograms,
    presenters: &[Presenter],
) -> Result<(), PresentError> {
    if run.results.is_empty() {
        return Ok(());
    }
    let mut again = shown(run, histograms, presenters)?;
    finish(run, &mut again);
    let lost = lacks(&run.sections, &again.sections, |s| &s.id)
        || lacks(&run.headlines, &again.headlines, |h| &h.id)
        || lacks(&run.findings, &again.findings, |f| &f.id);
    if !lost {
        (run.sections, run.headlines, run.findings) =
            (again.sections, again.headlines, again.findings);
    }
    Ok(())
}

/// Whether one of `before` has no successor of its name.
fn lacks<T>(before: &[T], after: &[T], id: fn(&T) -> &String) -> bool {
    before.iter().any(|b| !after.iter().any(|a| id(a) == id(b)))
}

/// What holds for everything shown, whoever made it: it is never better than its jobs.
pub(crate) fn finish(run: &Run, shown: &mut Shown) {
    crate::stamp::stamp(run, shown);
    for headline in &mut shown.headlines {
        for flag in flags_of(run, &headline.jobs) {
            if !headline.flags.iter().any(|f| f.code == flag.code) {
                headline.flags.push(flag.clone());
            }
        }
    }
    for finding in &mut shown.findings {
        finding.weaken(flags_of(run, &finding.jobs));
    }
    Finding::rank(&mut shown.findings);
}

/// What stands against jobs: one flag of each kind, the first that was seen.
fn flags_of<'a>(run: &'a Run, jobs: &[usize]) -> Vec<&'a Flag> {
    let mut flags: Vec<&Flag> = Vec::new();
    for flag in jobs
        .iter()
        .filter_map(|j| run.jobs.get(*j))
        .flat_map(|j| &j.flags)
    {
        match flags.iter_mut().find(|f| f.code == flag.code) {
            Some(known) if flag.void && !known.void => *known = flag,
            Some(_) => {}
            None => flags.push(flag),
        }
    }
    flags
}

//! Results as data: what an experiment found is saved, and everything shown is made from it and the jobs.
//!
//! An experiment hands its result to [`Notebook::found`](crate::Notebook::found). At the end of the run, and again
//! whenever `fathom report` remakes its page, [`crate::present`] turns the saved results into sections, headlines and findings,
//! so that an improved analysis applies to old runs, and nothing is ever read back from a label or a sentence.

use std::cell::OnceCell;
use std::path::PathBuf;

use fathom_io::JobSpec;
use fathom_telemetry::schema::{Finding, Headline, Job, Run, SavedResult, Section};
use fathom_telemetry::series::SeriesReader;
use fathom_telemetry::{Histogram, Op};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cells::{Analysis, Cell};

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

/// Merged latency of one job over its threads: response, by operation.
pub type Merged = [Option<Box<Histogram>>; 4];

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
    pub(crate) version: u32,
    pub(crate) present:
        fn(&SavedResult, &Evidence<'_>, &mut Shown) -> Result<(), serde_json::Error>,
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

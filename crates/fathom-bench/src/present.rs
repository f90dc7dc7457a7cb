//! Makes what is shown of a run from its results and jobs, and holds it to what its jobs allow.

use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell, Finding, Headline, Run};
use fathom_telemetry::units::never_negative;
use fathom_telemetry::{Flag, FlagCode};

use crate::drift;
use crate::results::{Evidence, ExperimentResult, Histograms, Presenter, Shown};

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

/// Replaces what is shown of a saved run by what its results give; runs of before results were saved stay as they are.
///
/// # Errors
/// As [`shown`].
pub fn present_anew(
    run: &mut Run,
    histograms: &dyn Histograms,
    presenters: &[Presenter],
) -> Result<(), PresentError> {
    if !run.results.is_empty() {
        let made = shown(run, histograms, presenters)?;
        finish(run, made);
    }
    Ok(())
}

/// What holds for everything shown, whoever made it: it is never better than its jobs. What names none may rest on any.
pub(crate) fn finish(run: &mut Run, mut shown: Shown) {
    drift::stamp(run, &mut shown);
    within_physics(&mut shown);
    held_down(run, &mut shown.headlines);
    for finding in &mut shown.findings {
        finding.weaken(&against(run, &finding.jobs));
        if finding.gain.is_some_and(|g| g.holds_none()) {
            finding.advice.clear();
        }
    }
    if let Some(mut finding) = limited(run) {
        // What it is about speaks for it; whatever else was wrong with its jobs does not.
        let mut flags = against(run, &finding.jobs);
        flags.retain(|f| f.code != FlagCode::CgroupLimited);
        finding.weaken(&flags);
        shown.findings.push(finding);
    }
    for section in &mut shown.sections {
        let its: Vec<usize> = (0..run.jobs.len())
            .filter(|j| drift::belongs(&run.jobs[*j], &section.id))
            .collect();
        let mut flags = of_many(run, &its);
        // "Not steady" has its own stamp; tests with a verdict of their own need none.
        flags.retain(|f| !f.code.describes() && f.code != FlagCode::NotSteady);
        add(&mut section.flags, flags);
    }
    Finding::rank(&mut shown.findings);
    (run.sections, run.headlines, run.findings) = (shown.sections, shown.headlines, shown.findings);
}

/// Numbers of a result while its run goes on, with what stands against them so far.
pub(crate) fn so_far<T: ExperimentResult>(evidence: &Evidence<'_>, result: &T) -> Vec<Headline> {
    let mut shown = Shown::default();
    result.present(evidence, &mut shown);
    within_physics(&mut shown);
    held_down(evidence.run(), &mut shown.headlines);
    shown.headlines
}

/// What stands against the jobs of a number stands against the number.
fn held_down(run: &Run, headlines: &mut [Headline]) {
    for headline in headlines {
        add(&mut headline.flags, against(run, &headline.jobs));
    }
}

/// The limits of control groups that held jobs back: of whatever was measured they are a bound that is neither the device's nor
/// a volume's, and the only one that its owner can lift by a word.
fn limited(run: &Run) -> Option<Finding> {
    let bound = |j: &usize| {
        run.jobs[*j]
            .flags
            .iter()
            .any(|f| f.code == FlagCode::CgroupLimited)
    };
    let mut jobs: Vec<usize> = (0..run.jobs.len()).filter(bound).collect();
    let (n, all) = (jobs.len(), run.jobs.len());
    // What is void for another reason is no evidence where others are.
    if jobs.iter().any(|j| !run.jobs[*j].is_void()) {
        jobs.retain(|j| !run.jobs[*j].is_void());
    }
    let flags = flags_of(run, &jobs);
    let flag = flags
        .into_iter()
        .find(|f| f.code == FlagCode::CgroupLimited)?;
    Some(Finding {
        id: "cgroup-limit".into(),
        text: format!(
            "A control group limits what was measured, in {n} of {all} jobs, not the device or a volume's credit: {}.",
            flag.detail
        ),
        advice: flag.remedy.clone(),
        // Its counters are the kernel's own.
        confidence: if n == all { "strong" } else { "moderate" }.into(),
        jobs,
        refuted_by: "The same numbers outside the group.".into(),
        ..Finding::default()
    })
}

/// Intervals of rates, times and their ratios end at 0. Where values below 0 stand beside them, they are differences.
fn within_physics(shown: &mut Shown) {
    for h in &mut shown.headlines {
        if let Some(e) = h.estimate.as_mut().filter(|_| never_negative(&h.unit)) {
            *e = e.from_nought();
        }
    }
    for section in &mut shown.sections {
        for table in &mut section.tables {
            for (i, column) in table.columns.iter().enumerate() {
                let mut cells: Vec<&mut Estimate> = table
                    .rows
                    .iter_mut()
                    .filter_map(|row| match row.get_mut(i) {
                        Some(Cell::Estimate(e)) => Some(e),
                        _ => None,
                    })
                    .collect();
                if never_negative(&column.unit) && cells.iter().all(|e| e.value >= 0.0) {
                    cells.iter_mut().for_each(|e| **e = e.from_nought());
                }
            }
        }
        for chart in &mut section.charts {
            for series in &mut chart.series {
                let points = &mut series.points;
                if never_negative(&chart.y.unit)
                    && points.iter().all(|p| p.y >= Some(0.0) || p.y.is_none())
                {
                    for p in points {
                        p.low = p.low.map(|l| l.max(0.0));
                    }
                }
            }
        }
    }
}

/// What stands against something shown of these jobs; of none that are named: of any.
fn against(run: &Run, jobs: &[usize]) -> Vec<Flag> {
    if jobs.is_empty() {
        let any: Vec<usize> = (0..run.jobs.len()).collect();
        return of_many(run, &any);
    }
    flags_of(run, jobs).into_iter().cloned().collect()
}

/// Flags of kinds that are not among them yet.
fn add(known: &mut Vec<Flag>, flags: Vec<Flag>) {
    for flag in flags {
        if !known.iter().any(|f| f.code == flag.code) {
            known.push(flag);
        }
    }
}

/// What stands against many jobs together: one void job does not void what may rest on the others.
fn of_many(run: &Run, jobs: &[usize]) -> Vec<Flag> {
    let all_void = jobs.iter().all(|j| run.jobs[*j].is_void());
    let soft = |f: &Flag| Flag {
        void: f.void && all_void,
        ..f.clone()
    };
    flags_of(run, jobs).into_iter().map(soft).collect()
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

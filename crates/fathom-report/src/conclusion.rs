//! The end of every run: what it is good for, what was seen to limit it, what to change, how far to trust it.
//!
//! Made from findings, headlines and flags; terminal and page say the same.

use fathom_telemetry::schema::{Finding, Job, Run};
use fathom_telemetry::{Flag, FlagCode};

use crate::text::{capital, human};

/// Findings of a kind that are told; the rest stands among the findings.
const TOLD: usize = 4;

/// The four answers.
pub(crate) struct Conclusion<'a> {
    /// What the target carries within an objective.
    pub(crate) good_for: Vec<&'a Finding>,
    /// What was seen beside: where the limit is, what to know.
    pub(crate) seen: Vec<&'a Finding>,
    /// Changes that were shown to help, with their gain.
    pub(crate) change: Vec<&'a Finding>,
    /// How many numbers stand, and what stands against the others.
    pub(crate) trust: Vec<String>,
}

/// What a reader takes home. Weak hints are left to the list of findings.
pub(crate) fn conclusion(run: &Run) -> Conclusion<'_> {
    let mut all = Conclusion {
        good_for: Vec::new(),
        seen: Vec::new(),
        change: Vec::new(),
        trust: trust(run),
    };
    for f in run.findings.iter().filter(|f| f.confidence != "weak") {
        let kind = match (f.good_for, f.proposes()) {
            (true, _) => &mut all.good_for,
            (_, true) => &mut all.change,
            _ => &mut all.seen,
        };
        if kind.len() < TOLD {
            kind.push(f);
        }
    }
    all
}

/// Where there is nothing to change.
pub(crate) fn no_change(run: &Run) -> &'static str {
    let jobs = || run.jobs.iter();
    if jobs().count() > 0 && jobs().all(|j| j.is_void()) {
        "No change is proposed: no job is usable."
    } else if run.findings.iter().any(Finding::proposes) {
        "Only weak hints: they stand among the findings, to be tested before they are believed."
    } else {
        "No change is proposed: nothing that was measured shows one that would help."
    }
}

/// Flags of one kind, wherever they stand.
pub(crate) struct FlagGroup<'a> {
    /// What all of them are.
    pub(crate) code: FlagCode,
    /// Whether one of them voids.
    pub(crate) void: bool,
    /// Headlines and jobs that carry it.
    pub(crate) numbers: usize,
    /// The first of them, whose words stand for all.
    pub(crate) first: &'a Flag,
}

/// Every flag of the run, its headlines and its jobs by kind, those that void first, then the most frequent.
pub(crate) fn flag_groups(run: &Run) -> Vec<FlagGroup<'_>> {
    let mut groups: Vec<FlagGroup<'_>> = Vec::new();
    let carriers = std::iter::once(&run.flags)
        .chain(run.sections.iter().map(|s| &s.flags))
        .chain(run.jobs.iter().map(|j| &j.flags));
    let headlines = run.headlines.iter().map(|h| &h.flags);
    for (flags, counts) in carriers
        .map(|f| (f, true))
        .chain(headlines.map(|f| (f, run.jobs.is_empty())))
    {
        let mut seen: Vec<FlagCode> = Vec::new();
        for flag in flags.iter().filter(|f| f.code != FlagCode::Simulated) {
            let at = groups.iter().position(|g| g.code == flag.code);
            let at = at.unwrap_or_else(|| {
                groups.push(FlagGroup {
                    code: flag.code,
                    void: false,
                    numbers: 0,
                    first: flag,
                });
                groups.len() - 1
            });
            let group = &mut groups[at];
            if flag.void && !group.void {
                (group.void, group.first) = (true, flag);
            }
            if counts && !seen.contains(&flag.code) {
                seen.push(flag.code);
                group.numbers += 1;
            }
        }
    }
    groups.sort_by_key(|g| (!g.void, std::cmp::Reverse(g.numbers)));
    groups
}

/// How many of the headlines stand, as a sentence; then what stands against jobs, most frequent first.
fn trust(run: &Run) -> Vec<String> {
    let mut said = Vec::new();
    if !run.headlines.is_empty() {
        said.push(standing(run));
    }
    let groups = flag_groups(run);
    const GROUPS: usize = 4;
    for g in groups.iter().take(GROUPS) {
        let void = if g.void { "Void: " } else { "" };
        let times = match g.numbers {
            0 | 1 => String::new(),
            n => format!(" ({n} times)"),
        };
        said.push(format!("{void}{}{times}.", capital(&human(g.code.name()))));
    }
    if groups.len() > GROUPS {
        said.push(format!("{} more kinds of flags.", groups.len() - GROUPS));
    }
    if said.is_empty() {
        said.push("Every check passed.".to_owned());
    }
    said
}

fn standing(run: &Run) -> String {
    let headlines = &run.headlines;
    let holes = headlines.iter().filter(|h| h.estimate.is_none()).count();
    let there = || headlines.iter().filter(|h| h.estimate.is_some());
    let void = there().filter(|h| h.flags.iter().any(|f| f.void)).count();
    let flagged = there()
        .filter(|h| !h.flags.iter().any(|f| f.void))
        .filter(|h| h.flags.iter().any(|f| f.code != FlagCode::Simulated))
        .count();
    let clean = headlines.len() - holes - void - flagged;
    // A number may rest on jobs that no headline names.
    let against = |j: &&Job| j.flags.iter().any(|f| !f.code.describes());
    let jobs = run.jobs.iter().filter(against).count();
    // What concerns the whole run concerns each of its numbers.
    let of_run = || run.flags.iter().filter(|f| !f.code.describes());
    let all = clean == headlines.len() && jobs == 0 && of_run().count() == 0;
    let mut parts = vec![match (all, clean) {
        (true, 1) => "The number passed every check".to_owned(),
        (true, _) => format!("All {clean} numbers passed every check"),
        (false, _) => format!("{clean} of {} numbers passed every check", headlines.len()),
    }];
    for (n, one, many) in [
        (flagged, "one carries a flag", "carry a flag"),
        (void, "one is void", "are void"),
        (holes, "one could not be measured", "could not be measured"),
    ] {
        match n {
            0 => {}
            1 => parts.push(one.to_owned()),
            n => parts.push(format!("{n} {many}")),
        }
    }
    match (of_run().count(), of_run().any(|f| f.void)) {
        (0, _) => {}
        (_, true) => parts.push("what was asked for is not whole".to_owned()),
        (_, false) => parts.push("a flag concerns the whole run".to_owned()),
    }
    if jobs > 0 {
        parts.push(format!("{jobs} of {} jobs carry flags", run.jobs.len()));
    }
    parts.join(", ") + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job, run_with};
    use fathom_telemetry::schema::Headline;
    use std::collections::BTreeMap;

    #[test]
    fn flags_of_a_kind_are_counted_once_for_each_job_and_void_ones_come_first() {
        let busy = Flag::new(FlagCode::CpuBound, "busy", "use more cores");
        let mut jobs: Vec<_> = (0..3).map(|i| job(&format!("job {i}"))).collect();
        for j in &mut jobs {
            j.flags = vec![busy.clone(), busy.clone()];
        }
        jobs[0].flags.push(Flag {
            void: true,
            ..Flag::new(FlagCode::NotSteady, "moved", "wait")
        });
        let run = run_with(jobs);
        let groups = flag_groups(&run);
        assert_eq!(groups.len(), 2);
        assert!(groups[0].void && groups[0].code == FlagCode::NotSteady);
        assert_eq!(groups[1].numbers, 3);
        assert_eq!(conclusion(&run).trust[1], "CPU bound (3 times).");
    }

    #[test]
    fn a_flag_of_the_run_stands_beside_numbers_that_passed() {
        let mut run = run_with(vec![job("a")]);
        run.headlines = vec![Headline {
            id: "iops".into(),
            label: "reads".into(),
            group: "IOPS".into(),
            unit: "1/s".into(),
            estimate: Some(fathom_stats::Estimate::single(1.0)),
            extra: BTreeMap::new(),
            jobs: vec![0],
            flags: Vec::new(),
        }];
        assert_eq!(conclusion(&run).trust[0], "The number passed every check.");
        run.flags = vec![Flag {
            void: true,
            ..Flag::new(FlagCode::NotChecked, "a part was left out", "install it")
        }];
        assert_eq!(
            conclusion(&run).trust[0],
            "1 of 1 numbers passed every check, what was asked for is not whole."
        );
    }

    #[test]
    fn weak_findings_and_gains_that_may_be_none_propose_nothing() {
        let mut run = run_with(vec![job("a")]);
        let gain = fathom_stats::Estimate {
            value: 0.2,
            low: Some(-0.1),
            high: Some(0.5),
            samples: 3,
        };
        run.findings = vec![Finding {
            advice: "fathom tune".into(),
            confidence: "strong".into(),
            gain: Some(gain),
            ..Finding::default()
        }];
        assert!(conclusion(&run).change.is_empty());
        assert!(no_change(&run).starts_with("No change"));
        run.findings[0].gain = Some(fathom_stats::Estimate {
            low: Some(0.1),
            ..gain
        });
        assert_eq!(conclusion(&run).change.len(), 1);
        run.findings[0].confidence = "weak".into();
        assert!(conclusion(&run).change.is_empty());
        assert!(no_change(&run).starts_with("Only weak hints"));
    }
}

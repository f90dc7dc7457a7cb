//! Repeats of the same job, found again: their histograms are merged, never their percentiles.

use fathom_telemetry::schema::{Job, Run};
use serde_json::Value;

/// A job and its repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobGroup {
    /// Name without the number of the repeat.
    pub(crate) name: String,
    /// Experiment that planned it.
    pub(crate) experiment: String,
    /// Indices into `Run::jobs`, in order of time.
    pub(crate) jobs: Vec<usize>,
}

/// All jobs in groups of repeats, in order of first appearance.
///
/// Two jobs are repeats of each other when they belong to the same experiment, their names differ
/// only in the number of the repeat, and their specifications only in name and seed. Void jobs
/// stand alone: merging them would spoil the others.
pub(crate) fn job_groups(run: &Run) -> Vec<JobGroup> {
    struct Entry<'a> {
        group: JobGroup,
        spec: Value,
        void: bool,
        first: &'a Job,
    }
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (index, job) in run.jobs.iter().enumerate() {
        let (stem, spec, void) = (name_stem(job), comparable_spec(&job.spec), job.is_void());
        let same = entries.iter_mut().find(|e| {
            e.group.experiment == job.experiment
                && e.group.name == stem
                && e.void == void
                && !void
                && e.spec == spec
        });
        match same {
            Some(e) => e.group.jobs.push(index),
            None => entries.push(Entry {
                group: JobGroup {
                    name: stem.to_owned(),
                    experiment: job.experiment.clone(),
                    jobs: vec![index],
                },
                spec,
                void,
                first: job,
            }),
        }
    }
    // A group of one keeps its full name, as do groups whose stems collide.
    let stems: Vec<(String, String)> = entries
        .iter()
        .map(|e| (e.group.experiment.clone(), e.group.name.clone()))
        .collect();
    for e in &mut entries {
        let key = (e.group.experiment.clone(), e.group.name.clone());
        let collides = stems.iter().filter(|s| **s == key).count() > 1;
        if e.group.jobs.len() == 1 || collides {
            e.group.name.clone_from(&e.first.name);
        }
    }
    entries.into_iter().map(|e| e.group).collect()
}

/// A job's name without the number of its repeat: `x-r2`, `x/2`, `x#2`, `x.3` (counted from 0 or 1).
fn name_stem(job: &Job) -> &str {
    let name = job.name.as_str();
    let closed = name.strip_suffix([')', ']']).unwrap_or(name);
    let without = closed.trim_end_matches(|c: char| c.is_ascii_digit());
    let Ok(number) = closed[without.len()..].parse::<u32>() else {
        return name;
    };
    if number != job.repeat && number != job.repeat + 1 {
        return name;
    }
    let word = ["repeat", "rep", "run", "r"]
        .iter()
        .find_map(|w| without.strip_suffix(w))
        .unwrap_or(without);
    let stem = word.trim_end_matches(['-', '_', '#', '.', '/', ' ', '~', '@', ':', '(', '[']);
    if stem.is_empty() || stem.len() == word.len() {
        return name;
    }
    stem
}

fn comparable_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        map.retain(|k, _| !matches!(k.as_str(), "name" | "seed" | "repeat"));
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job, run_with};

    fn named(name: &str, repeat: u32) -> Job {
        Job {
            repeat,
            experiment: "latency".into(),
            ..job(name)
        }
    }

    fn names(jobs: Vec<Job>) -> Vec<(String, Vec<usize>)> {
        job_groups(&run_with(jobs))
            .into_iter()
            .map(|g| (g.name, g.jobs))
            .collect()
    }

    #[test]
    fn interleaved_repeats_come_together_under_their_stem() {
        let jobs = vec![
            named("randread-qd1-r0", 0),
            named("randwrite-qd1-r0", 0),
            named("randread-qd1-r1", 1),
            named("randwrite-qd1-r1", 1),
        ];
        assert_eq!(
            names(jobs),
            [
                ("randread-qd1".to_owned(), vec![0, 2]),
                ("randwrite-qd1".to_owned(), vec![1, 3])
            ]
        );
    }

    #[test]
    fn a_number_that_belongs_to_the_name_is_not_taken_for_a_repeat() {
        let jobs = vec![named("qd1", 0), named("mix-1", 0), named("mix-2", 0)];
        assert_eq!(
            names(jobs).into_iter().map(|n| n.0).collect::<Vec<_>>(),
            ["qd1", "mix-1", "mix-2"]
        );
    }

    #[test]
    fn jobs_with_different_specifications_are_never_merged() {
        let mut jobs = vec![named("a/1", 0), named("a/2", 1)];
        jobs[1].spec = serde_json::json!({"bs": 8192});
        assert_eq!(names(jobs).len(), 2);
    }
}

//! "Not steady" stands on every chart that it concerns, whatever experiment drew it.
//!
//! Long jobs are judged one by one while they are kept ([`crate::steadiness`]). Short jobs say nothing alone, but every
//! experiment repeats its points in alternating order: where all of them moved together between the first and the last
//! repeat, the device was not steady meanwhile. Tests with a verdict of their own (conditioning, PTS) stamp themselves.

use std::collections::BTreeMap;

use fathom_stats::Estimate;
use fathom_stats::panel::{Dated, common_drift};
use fathom_telemetry::schema::{Job, Run, Section};
use fathom_telemetry::{Flag, FlagCode};

use crate::results::Shown;

/// Levels may move by this share over an experiment, as over a PTS window.
const TOLERANCE: f64 = 0.10;
/// Commands with rounds or pairs and a verdict of their own.
const JUDGED: [&str; 3] = ["pts", "condition", "tune"];

/// Marks the charts and tables of a section.
pub fn mark(section: &mut Section) {
    for title in section
        .charts
        .iter_mut()
        .map(|c| &mut c.title)
        .chain(section.tables.iter_mut().map(|t| &mut t.title))
    {
        title.push_str(": not steady");
    }
}

/// Stamps what jobs that were not steady went into: sections with their charts and tables, and headlines.
pub(crate) fn stamp(run: &Run, shown: &mut Shown) {
    if JUDGED.contains(&run.command.as_str()) {
        return;
    }
    let mut concerned: BTreeMap<usize, Flag> = BTreeMap::new();
    for (i, job) in run.jobs.iter().enumerate() {
        if let Some(f) = job.flags.iter().find(|f| f.code == FlagCode::NotSteady) {
            concerned.insert(i, f.clone());
        }
    }
    for (what, jobs, drift) in drifts(&run.jobs) {
        let percent = |v: Option<f64>| v.map_or(String::new(), |v| format!("{:+.0} %", 100.0 * v));
        let flag = Flag::new(
            FlagCode::NotSteady,
            format!(
                "{what} moved by {:+.0} % (95 %: {} to {}) from the first repeats to the last, all points together",
                100.0 * drift.value,
                percent(drift.low),
                percent(drift.high)
            ),
            "condition the device first (fathom condition --until-steady), or find what else was running",
        );
        for job in jobs {
            concerned.entry(job).or_insert_with(|| flag.clone());
        }
    }
    if concerned.is_empty() {
        return;
    }
    let of = |jobs: &mut dyn Iterator<Item = usize>| -> Vec<Flag> {
        let mut flags: Vec<Flag> = Vec::new();
        for f in jobs.filter_map(|j| concerned.get(&j)) {
            if flags.len() < 3 && !flags.contains(f) {
                flags.push(f.clone());
            }
        }
        flags
    };
    let jobs = &run.jobs;
    for section in &mut shown.sections {
        let told = section.flags.iter().any(|f| f.code == FlagCode::NotSteady);
        let mut its = (0..jobs.len()).filter(|j| belongs(&jobs[*j], &section.id));
        let flags = of(&mut its);
        if !told && !flags.is_empty() {
            mark(section);
            section.flags.extend(flags);
        }
    }
    for h in &mut shown.headlines {
        let told = h.flags.iter().any(|f| f.code == FlagCode::NotSteady);
        if !told {
            // One is enough beside a number; the section has the others.
            h.flags
                .extend(of(&mut h.jobs.iter().copied()).into_iter().take(1));
        }
    }
}

/// Whether a section shows a job: `mix-fill50` is a section of the experiment `mix`.
pub(crate) fn belongs(job: &Job, section: &str) -> bool {
    !job.experiment.is_empty()
        && section
            .strip_prefix(job.experiment.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Kinds of jobs whose levels moved by more than the tolerance: reads and writes may do so for themselves.
fn drifts(jobs: &[Job]) -> Vec<(&'static str, Vec<usize>, Estimate)> {
    let mut found = Vec::new();
    for (what, writes) in [("reads", false), ("loads with writes", true)] {
        let members: Vec<(usize, &Job, f64)> = jobs
            .iter()
            .enumerate()
            .filter(|(_, j)| (j.write.is_some() || j.trim.is_some()) == writes)
            .filter_map(|(i, j)| Some((i, j, level(j)?)))
            .collect();
        let drift = |only_free: bool| {
            let mut points: BTreeMap<String, Vec<Dated>> = BTreeMap::new();
            for (i, job, value) in members.iter().filter(|m| !only_free || !paced(m.1)) {
                let (at, value) = (*i as f64, *value);
                points
                    .entry(point_of(job))
                    .or_default()
                    .push(Dated { at, value });
            }
            common_drift(&points.into_values().collect::<Vec<_>>())
        };
        // Near saturation the latency of a schedule shouts at a whisper of the level: rates speak where they suffice.
        let Some(drift) = drift(true).or_else(|| drift(false)) else {
            continue;
        };
        let bounds = drift.low.zip(drift.high);
        if bounds.is_some_and(|(l, h)| l > TOLERANCE || h < -TOLERANCE) {
            found.push((what, members.iter().map(|m| m.0).collect(), drift));
        }
    }
    found
}

/// What repeats of a point have in common: the job without seed, and its name without the number of the repeat (one
/// spec may run inside and outside of a machine, or on one array after another: only the name tells them apart).
fn point_of(job: &Job) -> String {
    let number = format!(".{}", job.repeat + 1);
    let name = job.name.strip_suffix(&number).unwrap_or(&job.name);
    let mut spec = job.spec.clone();
    if let Some(o) = spec.as_object_mut() {
        o.remove("name");
        o.remove("seed");
    }
    // How processors were kept is part of the conditions.
    let cpu: Vec<&String> = job
        .engine_notes
        .iter()
        .filter(|n| n.starts_with("CPU"))
        .collect();
    format!("{} {name} {spec} {cpu:?}", job.experiment)
}

/// Whether a schedule decides the rate.
fn paced(job: &Job) -> bool {
    job.open_loop.is_some()
        || ["rate", "burst", "think"]
            .iter()
            .any(|key| job.spec.get(key).is_some())
}

/// What a job says of the device's level: its rate where it took what it could get, else the inverse of its latency,
/// because the rate of a schedule is the schedule's. `None` where nothing may be said.
fn level(job: &Job) -> Option<f64> {
    if job.is_void() || !job.errors.is_empty() || job.experiment.is_empty() {
        return None;
    }
    let data = || [&job.read, &job.write, &job.trim].into_iter().flatten();
    if !paced(job) {
        return Some(data().map(|d| d.iops).sum()).filter(|v| *v > 0.0);
    }
    // Where a schedule was not kept, latency describes the overload.
    let late = job
        .open_loop
        .as_ref()
        .is_some_and(|o| o.unissued > 0 || o.rate_achieved < 0.98 * o.rate_asked);
    let median = data().find_map(|d| d.service_ns.p50)?;
    (!late && median > 0).then(|| 1.0 / median as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::schema::{Axis, Chart, ChartKind, Direction, Headline};

    fn job(experiment: &str, name: &str, iops: f64, writes: bool) -> Job {
        let data = Some(Direction {
            ios: 1000,
            iops,
            ..Direction::default()
        });
        let (read, write) = if writes { (None, data) } else { (data, None) };
        let mut job: Job = serde_json::from_value(serde_json::json!({
            "name": name, "experiment": experiment, "repeat": 0, "spec": {"name": name, "qd": name.len()},
            "engine": "sim", "engine_notes": [], "start_ns": 0, "wall_ns": 1, "cpu_ns": 0, "cpu_user_ns": 0,
            "qd_requested": 1, "qd_achieved": 1.0, "qd_distribution": [], "read": null, "write": null, "trim": null,
            "sync": null, "open_loop": null, "device": null, "errors": [], "flags": []
        }))
        .unwrap();
        (job.read, job.write) = (read, write);
        job
    }

    fn section(id: &str) -> Section {
        let axis = Axis {
            label: String::new(),
            unit: String::new(),
            log: false,
        };
        Section {
            id: id.into(),
            charts: vec![Chart {
                id: format!("{id}-chart"),
                title: "A chart".into(),
                kind: ChartKind::Line,
                x: axis.clone(),
                y: axis,
                z: None,
                categories: Vec::new(),
                series: Vec::new(),
                marks: Vec::new(),
            }],
            ..Section::default()
        }
    }

    /// Six points of two experiments, three times; writes lose 40 % on the way.
    fn run() -> Run {
        let mut jobs = Vec::new();
        for round in 0..3 {
            for p in 0..6 {
                let level = 1000.0 * f64::from(p + 1) * (1.0 + 0.002 * f64::from((p + round) % 3));
                jobs.push(job("latency", &"x".repeat(p as usize + 1), level, false));
                let fallen = level * (1.0 - 0.2 * f64::from(round));
                jobs.push(job("iops", &"x".repeat(p as usize + 1), fallen, true));
            }
        }
        let headline = |id: &str, jobs| Headline {
            id: id.into(),
            label: String::new(),
            group: String::new(),
            unit: "1/s".into(),
            estimate: None,
            extra: BTreeMap::new(),
            jobs,
            flags: Vec::new(),
        };
        Run {
            schema_version: 1,
            run_id: String::new(),
            tool_version: String::new(),
            name: String::new(),
            command: "survey".into(),
            command_line: Vec::new(),
            started: String::new(),
            finished: None,
            profile: None,
            seed: 1,
            target: fathom_telemetry::schema::Target {
                name: String::new(),
                kind: String::new(),
                path: None,
                size_bytes: 1,
                device: None,
                description: String::new(),
            },
            simulated: true,
            labels: std::collections::BTreeMap::new(),
            environment: serde_json::Value::Null,
            headlines: vec![
                headline("reads", vec![0, 12]),
                headline("writes", vec![1, 13]),
            ],
            results: Vec::new(),
            sections: vec![
                section("latency"),
                section("iops"),
                section("iops-fill50"),
                section("mix"),
            ],
            jobs,
            findings: Vec::new(),
            flags: Vec::new(),
        }
    }

    /// Stamps what is shown of the run in place.
    fn stamp(run: &mut Run) {
        let mut shown = Shown {
            sections: std::mem::take(&mut run.sections),
            headlines: std::mem::take(&mut run.headlines),
            findings: Vec::new(),
        };
        super::stamp(run, &mut shown);
        (run.sections, run.headlines) = (shown.sections, shown.headlines);
    }

    #[test]
    fn charts_of_what_moved_are_stamped_and_the_others_are_not() {
        let mut run = run();
        stamp(&mut run);
        let stamped: Vec<bool> = run
            .sections
            .iter()
            .map(|s| s.charts[0].title.ends_with(": not steady") && !s.flags.is_empty())
            .collect();
        assert_eq!(stamped, [false, true, true, false]);
        assert!(run.headlines[0].flags.is_empty());
        assert_eq!(run.headlines[1].flags[0].code, FlagCode::NotSteady);
        let once = run.clone();
        stamp(&mut run);
        assert_eq!(run, once, "a second time changes nothing");
    }

    #[test]
    fn a_single_long_job_that_was_not_steady_stamps_its_section() {
        let mut run = run();
        run.jobs.truncate(12);
        run.jobs[0]
            .flags
            .push(Flag::new(FlagCode::NotSteady, "it fell", "wait"));
        stamp(&mut run);
        assert!(run.sections[0].charts[0].title.ends_with(": not steady"));
        assert!(!run.sections[1].charts[0].title.contains("not steady"));
        run.command = "pts".into();
        run.sections.push(section("latency"));
        stamp(&mut run);
        assert_eq!(run.sections[4].charts[0].title, "A chart");
    }

    #[test]
    fn one_spec_inside_and_outside_of_a_machine_is_two_points() {
        let mut run = run();
        run.jobs.clear();
        for repeat in 0..3u32 {
            for (place, slower) in [("pe", 1.0), ("ve", 2.5)] {
                for p in 0..4u32 {
                    let mut job = job("latency", "x", 1000.0 * f64::from(p + 1) / slower, false);
                    job.name = format!("{place}-{p}.{}", repeat + 1);
                    job.spec = serde_json::json!({"qd": p});
                    job.repeat = repeat;
                    run.jobs.push(job);
                }
            }
        }
        run.jobs.truncate(20);
        stamp(&mut run);
        assert!(run.sections.iter().all(|s| s.flags.is_empty()));
    }
}

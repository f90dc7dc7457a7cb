//! `fathom run`: one job from flags, or a file of jobs.

use std::path::Path;

use anyhow::Context;
use fathom_bench::cost::RunCost;
use fathom_bench::cpu::{CpuBench, CpuSetting};
use fathom_bench::{Bench, Notebook, NotebookError, RunMeta};
use fathom_experiments::cpu;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::job::{JobFile, OnError, jobs_from_toml};
use fathom_io::{JobSpec, Observer, Wanted};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use super::announce::Foreseen;
use super::finish::{self, command_line};
use super::open::{check_cpu, environment, foresee_jobs, mention_leftovers, open_on};
use crate::cli::RunArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::{progress, signals};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let (name, jobs) = jobs(args)?;
    let setting = args.cpu.setting;
    if !args.hosts.any() {
        mention_leftovers(&name);
    }
    let wanted = Wanted {
        create: super::open::may_create(),
        ..Wanted::by(&jobs, args.destroy.as_deref())
    };
    if args.dry_run {
        let (limits, fills) = foresee_jobs(&name, &wanted, Some(&args.hosts))?;
        let reads = jobs.iter().any(|j| j.rw.reads());
        let fills = if reads { fills } else { Bytes(0) };
        let cost = run_cost(&groups(&jobs, &limits)?, fills);
        let said = Foreseen::of("Jobs as given", &cost, &name).on(limits.hosts);
        return said.dry_run(args.out.json);
    }
    let control = signals::control().map_err(refused)?;
    let mut bench = open_on(&args.hosts, &name, &wanted, control)?;
    check_cpu(setting, &*bench)?;
    let limits = bench.limits();
    let groups = groups(&jobs, &limits)?;
    let recording: u32 = jobs_recording(&groups);
    let environment = environment(&*bench);
    let meta = RunMeta {
        name: jobs.first().map_or_else(
            || "run".to_owned(),
            |j| {
                if jobs.len() == 1 && j.name != "job" {
                    j.name.clone()
                } else {
                    "run".to_owned()
                }
            },
        ),
        command: "run".into(),
        command_line: command_line(),
        profile: None,
        seed: jobs.first().map_or(0, |j| j.seed),
        labels: args.out.labels.given(),
        environment,
    };
    let mut book = finish::notebook(&args.out, meta, &*bench, recording as usize)?;
    let mut kept = CpuBench::new(&mut *bench, setting);
    let mut measured = measure(&mut book, &mut kept, &groups);
    if measured.is_ok() && setting != CpuSetting::AsIs {
        let seed = book.run().seed;
        let mut line = progress::SurveyLine::new(0, Bytes(0));
        measured = cpu::compare_jobs(&mut *bench, &jobs, setting, seed, &mut book, &mut line);
        line.clear();
    }
    finish::finish(book, measured, bench, &args.out, |run, screen, places| {
        let mut text = fathom_report::terminal::stamp(run, screen);
        text += &fathom_report::terminal::jobs(run, screen);
        for flag in &run.flags {
            text += &format!("\n{}. Try: {}.\n", flag.detail, flag.remedy);
        }
        text += &fathom_report::terminal::conclusion(run, screen);
        if let Some(report) = places.report {
            text += &format!("\nreport {}\n", report.display());
        }
        text
    })
}

/// A group is a phase; its longest job takes the time.
fn run_cost(groups: &[Vec<PlannedJob>], fills: Bytes) -> RunCost {
    let mut cost = RunCost::filling(fills);
    let length = |p: &PlannedJob| {
        p.job
            .spec
            .time
            .map_or(Nanos(u64::MAX), |t| t + p.job.spec.ramp)
    };
    for group in groups {
        let specs: Vec<&JobSpec> = group.iter().map(|p| &p.job.spec).collect();
        let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
        cost.phase(&names.join(", "));
        let longest = (0..group.len()).max_by_key(|k| length(&group[*k]));
        for (k, spec) in specs.iter().enumerate() {
            if Some(k) == longest {
                cost.add(spec, 1);
            } else {
                cost.add_beside(spec, 1);
            }
        }
    }
    cost
}

/// Fills where something reads, then runs the groups one after another.
fn measure(
    book: &mut Notebook,
    bench: &mut dyn Bench,
    groups: &[Vec<PlannedJob>],
) -> Result<(), NotebookError> {
    if groups.iter().flatten().any(|p| p.job.spec.rw.reads()) {
        fill(bench)?;
    }
    for (done, group) in groups.iter().enumerate() {
        if bench.interrupted() {
            book.run_mut().flags.push(Flag::new(
                FlagCode::Interrupted,
                format!("{done} of {} groups of jobs were run", groups.len()),
                "run it again: it begins anew",
            ));
            break;
        }
        let time = group
            .iter()
            .filter_map(|p| p.job.spec.time.map(|t| t + p.job.spec.ramp))
            .max()
            .unwrap_or(Nanos::ZERO);
        let mut line = progress::group(time);
        let names: Vec<&str> = group.iter().map(|p| p.job.spec.name.as_str()).collect();
        line.name(&names.join(", "));
        let measured = book.measure(bench, group, &mut |p: &Progress| {
            line.position(p.elapsed.0 / 1_000_000);
            line.show(p);
        });
        line.clear();
        let indices = measured?;
        // An error that ends a job ends the run: the next job would measure a broken device.
        let failed = |i: &usize| {
            book.run()
                .jobs
                .get(*i)
                .is_some_and(|j| !j.errors.is_empty())
        };
        let mut jobs = group.iter().zip(&indices);
        if jobs.any(|(p, i)| p.job.spec.on_error == OnError::Stop && failed(i)) {
            break;
        }
    }
    Ok(())
}

/// Fills what fathom made, so that reads say something.
fn fill(bench: &mut dyn Bench) -> Result<(), NotebookError> {
    struct Show<'a>(&'a mut progress::Line);
    impl Observer for Show<'_> {
        fn progress(&mut self, p: &Progress) {
            self.0.show(p);
        }
    }
    let mut line = progress::Line::new(0);
    line.name(&format!("filling {}", bench.fills()));
    let prepared = bench.prepare(&mut Show(&mut line));
    line.clear();
    Ok(prepared.map(drop)?)
}

/// The target and the jobs as typed or as in the file, options of the command line on top.
fn jobs(args: &RunArgs) -> Result<(String, Vec<JobSpec>), Failure> {
    let mut file = match &args.jobs {
        Some(path) => read_jobs(path)?,
        None => JobFile {
            target: None,
            jobs: vec![JobSpec::default()],
        },
    };
    for job in &mut file.jobs {
        args.job.apply(job)?;
    }
    let target = args.target.clone().or(file.target).ok_or_else(|| {
        refused(anyhow::anyhow!("no target: name one on the command line, or at the top of the job file (target = \"/mnt/data\")"))
    })?;
    Ok((target, file.jobs))
}

fn read_jobs(path: &Path) -> Result<JobFile, Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| {
            format!(
                "cannot read the job file {}; check the path",
                path.display()
            )
        })
        .map_err(refused)?;
    jobs_from_toml(&text)
        .map_err(|e| refused(anyhow::Error::new(e).context(path.display().to_string())))
}

/// Jobs of one group name run together; the others one after another, in the order of the file.
fn groups(
    jobs: &[JobSpec],
    limits: &fathom_io::job::Limits,
) -> Result<Vec<Vec<PlannedJob>>, fathom_io::JobError> {
    let mut groups: Vec<(Option<String>, Vec<PlannedJob>)> = Vec::new();
    for job in jobs {
        let planned = PlannedJob::new(job.validate(limits)?);
        match groups
            .iter_mut()
            .find(|(name, _)| name.is_some() && *name == job.group)
        {
            Some((_, group)) => group.push(planned),
            None => groups.push((job.group.clone(), vec![planned])),
        }
    }
    Ok(groups.into_iter().map(|g| g.1).collect())
}

/// Threads that log at the same time, at most.
fn jobs_recording(groups: &[Vec<PlannedJob>]) -> u32 {
    groups
        .iter()
        .map(|g| {
            g.iter()
                .filter(|p| p.job.spec.record)
                .map(|p| p.seats().0)
                .sum()
        })
        .max()
        .unwrap_or(0)
}

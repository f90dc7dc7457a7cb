//! `fathom run`: one job from flags, or a file of jobs.

use std::path::Path;

use anyhow::Context;
use fathom_experiments::{Notebook, RunMeta};
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::job::{JobFile, jobs_from_toml};
use fathom_io::{JobSpec, Observer, Wanted};
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Flag, FlagCode, Nanos};

use super::finish::{self, capsule, command_line, out_on_target};
use super::open::open_bench;
use crate::cli::RunArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};
use crate::{progress, signals};

/// See the module.
pub(crate) fn run(args: &RunArgs) -> Outcome {
    let (name, jobs) = jobs(args)?;
    let control = signals::control().map_err(refused)?;
    let wanted = Wanted::by(&jobs, args.destroy.as_deref());
    let mut bench = open_bench(&name, &wanted, control)?;
    let limits = bench.limits();
    let groups = groups(&jobs, &limits)?;
    let recording: u32 = jobs_recording(&groups);
    let environment = capsule(bench.describe().path.as_deref().map(Path::new));
    let reads = jobs.iter().any(|j| j.rw.reads());
    if reads {
        let size = limits.size;
        let mut line = progress::Line::new(0);
        line.name(&format!("filling {}", fathom_telemetry::Bytes(size)));
        struct Show<'a>(&'a mut progress::Line);
        impl Observer for Show<'_> {
            fn progress(&mut self, p: &Progress) {
                self.0.show(p);
            }
        }
        let prepared = bench.prepare(&mut Show(&mut line));
        line.clear();
        prepared?;
    }
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
        environment,
    };
    let mut book = Notebook::create(
        &args.out.out,
        meta,
        bench.describe(),
        bench.simulated(),
        recording as usize,
    )?;
    if recording > 0 && out_on_target(&*bench, &args.out.out) {
        book.run_mut().flags.push(Flag::new(
            FlagCode::LogOnTestedDevice,
            "the I/O log is written to the device under test",
            "choose another device with --out",
        ));
    }
    let mut code = DONE;
    for group in &groups {
        let time = group
            .iter()
            .filter_map(|p| p.job.spec.time.map(|t| t + p.job.spec.ramp))
            .max()
            .unwrap_or(Nanos::ZERO);
        let mut line = progress::group(time);
        line.name(
            &group
                .iter()
                .map(|p| p.job.spec.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        );
        let measured = book.measure(&mut *bench, group, &mut |p: &Progress| {
            line.position(p.elapsed.0 / 1_000_000);
            line.show(p);
        });
        line.clear();
        if let Err(e) = measured {
            let _ = bench.close();
            return Err(e.into());
        }
        if bench.interrupted() {
            break;
        }
        // An error that ends a job ends the run: the next job would measure a broken device.
        if book.run().jobs.iter().any(|j| !j.errors.is_empty()) {
            code = FAILED;
            break;
        }
    }
    if book
        .run()
        .jobs
        .iter()
        .any(fathom_telemetry::schema::Job::is_void)
    {
        code = FAILED;
    }
    bench.close()?;
    finish::finish(book, &args.out, code, |run: &Run, screen, places| {
        let report = places
            .report
            .map(|r| format!("\nreport {}\n", r.display()))
            .unwrap_or_default();
        fathom_report::terminal::jobs(run, screen) + &report
    })
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

//! `fathom survey`: the main job.

use fathom_bench::Bench;
use fathom_bench::cpu::CpuBench;
use fathom_experiments::applications::{self, Application, ApplicationsResult};
use fathom_experiments::endurance::{EnduranceResult, Stated};
use fathom_experiments::survey;
use fathom_experiments::workload::WorkloadResult;
use fathom_sim::SimTarget;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;

use super::measure::{Measuring, checked};
use super::open::cpu_setting;
use super::watch;
use crate::cli::SurveyArgs;
use crate::exit::{Failure, Outcome, refused};

pub(crate) fn survey(args: &SurveyArgs) -> Outcome {
    let setting = cpu_setting(&args.cpu)?;
    let profile = args.workload.workload.as_deref().map(watch::read_profile);
    let profile = profile.transpose()?;
    let simulated = SimTarget::is_simulated(&args.measure.target);
    let stated = Stated {
        rated: args.rated_tbw,
        daily: args.daily_writes,
    };
    checked(
        &Measuring {
            name: "survey",
            args: &args.measure,
            modifies: true,
            cpu: setting,
            recording: 0,
            on_hosts: true,
            on_zones: false,
        },
        &|plan, fills| Ok(survey::run_cost(plan, fills, simulated)?),
        |bench| labs(args, bench),
        |bench, plan, book, sink, labs| {
            let before = bench.health();
            let mut kept = CpuBench::new(bench, setting).only("latency");
            let result = survey::run(&mut kept, plan, args.measure.seed, book, sink);
            let after = bench.health();
            // Of a survey that ends early, too: what it has measured is worth its report.
            let worn = EnduranceResult::of(book.run(), before.as_ref(), after.as_ref(), stated);
            if let Some(worn) = worn {
                book.found(&worn)?;
            }
            if let Some(profile) = &profile {
                book.found(&WorkloadResult {
                    profile: profile.clone(),
                })?;
            }
            if !labs.is_empty() {
                let of = |(lab, dir): &(Run, RunDir)| Application::of(lab, dir.path());
                book.found(&ApplicationsResult {
                    labs: labs.iter().map(of).collect(),
                })?;
            }
            result
        },
    )
}

/// Runs of labs on the same device (`--with`).
fn labs(args: &SurveyArgs, bench: &dyn Bench) -> Result<Vec<(Run, RunDir)>, Failure> {
    let about = bench.describe();
    let mut all = Vec::new();
    for path in &args.with {
        let (dir, run) = RunDir::open(path).map_err(refused)?;
        applications::belongs(&run, &about, bench.simulated())
            .map_err(|why| refused(anyhow::anyhow!("--with {}: {why}", path.display())))?;
        all.push((run, dir));
    }
    Ok(all)
}

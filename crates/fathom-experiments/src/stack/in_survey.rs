//! Latency by layer as an experiment of the survey: a few cases, and only where tracing is allowed.

use fathom_bench::bench::Bench;
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::cpu::CpuSetting;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_io::JobError;
use fathom_io::job::Engine;
use fathom_telemetry::Bytes;

use super::{Choice, PAIRS, Rung, StackOptions, StackPlan, StackReport, devices_of, refusal, run};

fn choices(plan: &Plan, seed: u64) -> [Choice; 2] {
    let choice = |patterns: &[&'static str], depths: &[u32]| Choice {
        patterns: patterns.to_vec(),
        direct: vec![plan.direct],
        engines: vec![Engine::Uring],
        options: StackOptions {
            rw: None,
            qd: depths.to_vec(),
            direct: false,
            buffered: false,
            engine: None,
            iopoll: false,
            bs: Bytes::kib(4),
            size: Bytes(plan.limits.size),
            time: plan.profile.job_time,
            rung: Rung::Best,
            what_if: false,
            seed,
        },
    };
    [
        choice(&["randread"], &[1, 32]),
        choice(&["randwrite"], &[1]),
    ]
}

/// Time and bytes that it adds to a survey.
pub(crate) fn run_cost(plan: &Plan) -> Result<RunCost, JobError> {
    let mut cases = Vec::new();
    // Nothing to split on null:, where nothing wears out either.
    let choices = choices(plan, 1).into_iter().filter(|_| plan.wears);
    for choice in choices {
        cases.extend(choice.cases()?);
    }
    Ok(super::run_cost(&cases, 0, Bytes(0)).as_one("latency by layer"))
}

/// Runs it, or says why not and what would enable it.
pub(crate) fn in_survey(
    bench: &mut dyn Bench,
    plan: &Plan,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    // Models have no kernel below them, and there is none below null: either.
    let Some(bench) = bench.real().filter(|b| !b.interrupted()) else {
        return Ok(());
    };
    if bench.target().is_null() {
        return Ok(());
    }
    let devices = devices_of(bench);
    let mut cases = Vec::new();
    for choice in choices(plan, plan.seed) {
        cases.extend(
            choice
                .cases()
                .map_err(fathom_bench::bench::BenchError::from)?,
        );
    }
    let refused = cases
        .first()
        .and_then(|spec| refusal(&devices, spec, Rung::Best));
    if let Some(why) = refused {
        return book.found(&StackReport {
            skipped: vec![why],
            ..StackReport::default()
        });
    }
    let plan = StackPlan {
        cases,
        rung: Rung::Best,
        rows: false,
        cpu: CpuSetting::AsIs,
    };
    let mut passes = 0;
    let total = plan.cases.len() as u32 * 2 * PAIRS;
    let mut last = String::new();
    let report = run(bench, &plan, book, &mut |name, progress| {
        if name != last {
            name.clone_into(&mut last);
            sink.job(passes, total, name);
            passes += 1;
        }
        sink.progress(progress);
    })?;
    book.found(&report)
}

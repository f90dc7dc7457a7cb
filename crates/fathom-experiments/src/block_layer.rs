//! What the block layer costs here: loads of an NVMe namespace through it, and as NVMe commands past it, in turns.

use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts;
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::runner::Runner;
use fathom_io::job::Engine;
use fathom_io::{JobSpec, Wanted};
use fathom_stats::compare::Verdict;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Finding, Section};
use serde::{Deserialize, Serialize};

use crate::ab::{self, AbResult, AbRow, BLOCK_JOBS, BLOCKS_MIN};
use crate::compare::relative;

/// A job of a block takes this part of what a job of the experiment around it takes.
const PART: u64 = 4;

/// Loads both ways.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BlockLayerResult {
    /// By the name of the load: A through the block layer, B past it.
    pub loads: Vec<(String, AbResult)>,
    /// Why nothing was compared, in a sentence.
    pub skipped: Option<String>,
}

/// Time of so many loads.
pub(crate) fn run_cost(plan: &Plan, loads: &[JobSpec]) -> RunCost {
    let mut cost = RunCost::default();
    if plan.commands {
        cost.phase("what the block layer costs");
        for spec in loads {
            cost.add(&shorter(spec, Engine::Uring), BLOCKS_MIN * BLOCK_JOBS);
        }
    }
    cost
}

fn shorter(spec: &JobSpec, engine: Engine) -> JobSpec {
    let part = |t: Nanos| Nanos(t.0 / PART);
    JobSpec {
        engine,
        time: spec.time.map(part),
        ramp: part(spec.ramp),
        ..spec.clone()
    }
}

/// Compares, where the target is a namespace that takes both.
pub(crate) fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    loads: &[JobSpec],
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let wanted = Wanted::by(loads, None);
    let real = bench.real().filter(|b| plan.commands && !b.interrupted());
    let Some(real) = real else {
        return Ok(());
    };
    let mut found = BlockLayerResult::default();
    if let Err(why) = real.target_mut().open_for_commands(&wanted) {
        found.skipped = Some(why);
        return book.found(&found);
    }
    let limits = bench.limits();
    let total = loads.len() as u32 * BLOCKS_MIN * BLOCK_JOBS;
    let mut runner = Runner::begin(bench, book, sink, "block-layer", plan.seed, total)?;
    for spec in loads {
        let ways = [Engine::Uring, Engine::UringCmd].map(|e| shorter(spec, e));
        for way in &ways {
            way.clone().validate(&limits).map_err(BenchError::from)?;
        }
        let ran = ab::turns(&mut runner, &ways, BLOCKS_MIN)?;
        let [a, b] = ways.map(|w| format!("engine={}", w.engine));
        let (seed, name) = (plan.seed, spec.name.clone());
        found.loads.push((name, AbResult { a, b, seed, ran }));
        if runner.ended() {
            break;
        }
    }
    runner.end();
    book.found(&found)
}

impl ExperimentResult for BlockLayerResult {
    const EXPERIMENT: &'static str = "block-layer";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let mut text = "The same loads through the block layer (io_uring) and past it, as NVMe commands (io_uring passthrough), in turns. The difference is what requests, scheduler, accounting and merging of the kernel cost on this machine.".to_owned();
        if let Some(why) = &self.skipped {
            text = format!("Not compared: {why}.");
        }
        let mut rows: Vec<(&str, AbRow)> = Vec::new();
        for (load, both) in &self.loads {
            let of = both.rows(evidence);
            shown.findings.extend(finding(load, both, &of));
            rows.extend(of.into_iter().map(|r| (load.as_str(), r)));
        }
        let mut section = Section {
            id: "block-layer".into(),
            title: "What the block layer costs".into(),
            text,
            ..Section::default()
        };
        for (id, title, unit) in [("latency", "Latency", "ns"), ("iops", "IOPS", "IOPS")] {
            let of_metric = rows.iter().filter(|r| match id {
                "iops" => r.1.id == id,
                _ => r.1.id != "iops",
            });
            let table = parts::table(
                &format!("block-layer-{id}"),
                title,
                of_metric,
                &[
                    ("load", "", &|r| r.0.into()),
                    ("metric", "", &|r| r.1.label.as_str().into()),
                    ("through it", unit, &|r| r.1.a.into()),
                    ("past it", unit, &|r| r.1.b.into()),
                    ("past it against through it", "%", &|r| {
                        r.1.relative.map(|e| e.scale(100.0)).into()
                    }),
                ],
            );
            section
                .tables
                .extend((!table.rows.is_empty()).then_some(table));
        }
        shown.sections.push(section);
    }
}

/// A sentence where the ways differ, by the metric that decides: the others say the same in other words.
fn finding(load: &str, both: &AbResult, rows: &[AbRow]) -> Option<Finding> {
    let row = rows.first()?;
    let (text, advice) = match row.verdict {
        Verdict::Better => (
            format!(
                "{load}: past the block layer {} {}.",
                row.label,
                relative(row.relative.as_ref())
            ),
            "Software that drives NVMe itself (io_uring passthrough, SPDK) can have this; everything else pays it for file systems, RAID and accounting.",
        ),
        Verdict::Worse => (
            format!(
                "{load}: past the block layer {} {}: stay with it.",
                row.label,
                relative(row.relative.as_ref())
            ),
            "",
        ),
        Verdict::NoDifferenceShown | Verdict::NotComparable => return None,
    };
    Some(Finding {
        id: format!("block-layer-{load}"),
        text,
        advice: advice.into(),
        confidence: "strong".into(),
        jobs: both.ran.iter().map(|(_, job)| *job).collect(),
        evidence: vec!["block-layer-iops".into()],
        refuted_by: "The same load in turns with more blocks: fathom ab TARGET --a engine=uring --b engine=uring-cmd.".into(),
        ..Finding::default()
    })
}

//! CPU realism: what idle cores add to latency, and what a loaded or wakeful system would see.

use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Cell, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::cpu::{CpuBench, CpuSetting};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts::{column, estimate, headline_of};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_bench::runner::Runner;
use fathom_io::{JobError, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell as TableCell, Finding, Job, Section, Table};
use fathom_telemetry::{Bytes, Nanos, Op};
use serde::{Deserialize, Serialize};

/// Patterns whose latency is compared, with one outstanding I/O.
const PATTERNS: [(&str, &str); 2] = [("read", "sequential read"), ("randread", "random read")];
/// Pairs of a job's short runs.
const JOB_PAIRS: u32 = 6;
/// Length of such a run, at most.
const JOB_TIME: Nanos = Nanos::from_millis(1000);

fn pairs(plan: &Plan) -> u32 {
    2 * plan.profile.repeats
}

/// One setting's job of a pattern.
fn job_of(plan: &Plan, rw: &str, setting: CpuSetting) -> Result<JobSpec, JobError> {
    plan.job(
        &format!("cpu-{rw}-{}", setting.word()),
        &[("rw", rw), ("bs", "4k"), ("qd", "1")],
    )
}

/// Loads under a setting and with the system as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CpuResult {
    setting: CpuSetting,
    told: Told,
    loads: Vec<Load>,
}

/// What is compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Load {
    /// Stable name.
    id: String,
    label: String,
    /// What it is in a sentence.
    thing: String,
    /// Whose latency counts.
    op: Op,
    /// Its job with the system as it is, and under the setting.
    points: [Point; 2],
}

/// How a comparison is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told {
    group: String,
    text: String,
}

/// Time of a comparison.
///
/// # Errors
/// Where the jobs do not fit the target.
pub fn run_cost(plan: &Plan) -> Result<RunCost, JobError> {
    let mut o = RunCost::filling(Bytes(0));
    o.phase("settings of the processors");
    for (rw, _) in PATTERNS {
        o.add(&job_of(plan, rw, CpuSetting::AsIs)?, 2 * pairs(plan));
    }
    Ok(o)
}

/// Compares 4 KiB reads under `setting` with the system as it is, in pairs of alternating order (ABBA).
///
/// # Errors
/// Where the bench or the run directory fails, or the setting is refused.
pub fn compare(
    bench: &mut dyn Bench,
    plan: &Plan,
    setting: CpuSetting,
    seed: u64,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let mut loads = Vec::new();
    for (rw, label) in PATTERNS {
        let job = |s| job_of(plan, rw, s).map_err(BenchError::from);
        loads.push(Load {
            id: rw.into(),
            label: label.into(),
            thing: format!("4 KiB {label}"),
            op: Op::Read,
            points: [job(CpuSetting::AsIs)?, job(setting)?].map(Point::new),
        });
    }
    let told = Told {
        group: "CPU realism, 4 KiB latency, one outstanding".into(),
        text: "4 KiB reads, one at a time".into(),
    };
    in_pairs(
        bench,
        loads,
        (setting, pairs(plan)),
        seed,
        (book, sink),
        told,
    )
}

/// Compares jobs of one's own under `setting` with the system as it is: runs of at most a second, in pairs
/// of alternating order.
///
/// # Errors
/// Where the bench or the run directory fails, or the setting is refused.
pub fn compare_jobs(
    bench: &mut dyn Bench,
    specs: &[JobSpec],
    setting: CpuSetting,
    seed: u64,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let loads: Vec<Load> = specs
        .iter()
        .enumerate()
        .filter_map(|(i, spec)| {
            let op = match (spec.rw.reads(), spec.rw.writes()) {
                (true, _) => Op::Read,
                (false, true) => Op::Write,
                _ => return None,
            };
            let job = |s: CpuSetting| JobSpec {
                name: format!("cpu-{}-{}", spec.name, s.word()),
                time: Some(spec.time.unwrap_or(JOB_TIME).min(JOB_TIME)),
                record: false,
                group: None,
                ..spec.clone()
            };
            Some(Load {
                id: format!("job-{}", i + 1),
                label: format!("{}, {}s", spec.name, op.name()),
                thing: format!("{} of job '{}'", op.name(), spec.name),
                op,
                points: [job(CpuSetting::AsIs), job(setting)].map(Point::new),
            })
        })
        .collect();
    let told = Told {
        group: "CPU realism".into(),
        text: "Each job alone, for at most a second at a time".into(),
    };
    in_pairs(bench, loads, (setting, JOB_PAIRS), seed, (book, sink), told)
}

fn in_pairs(
    bench: &mut dyn Bench,
    mut loads: Vec<Load>,
    (setting, pairs): (CpuSetting, u32),
    seed: u64,
    (book, sink): (&mut Notebook, &mut dyn ProgressSink),
    told: Told,
) -> Result<(), NotebookError> {
    if loads.is_empty() {
        return Ok(());
    }
    let mut bench = CpuBench::new(bench, CpuSetting::AsIs);
    let switch = bench.switch();
    let jobs = 2 * pairs * loads.len() as u32;
    let mut runner = Runner::begin(&mut bench, book, sink, "cpu", seed, jobs)?;
    let mut points: Vec<(CpuSetting, &mut Point)> = loads
        .iter_mut()
        .flat_map(|l| [CpuSetting::AsIs, setting].into_iter().zip(&mut l.points))
        .collect();
    'pairs: for pair in 0..pairs {
        for k in 0..points.len() {
            // The two settings of a load stay neighbours; who comes first alternates.
            let (s, point) = &mut points[if pair % 2 == 0 { k } else { k ^ 1 }];
            switch.set(*s);
            if !runner.repeat(point)? {
                break 'pairs;
            }
        }
    }
    runner.end();
    book.found(&CpuResult {
        setting,
        told,
        loads,
    })
}

/// Relative difference of paired repeats with its interval: −0.2 is a fifth less.
fn difference(as_is: &Cell, set: &Cell, op: Op) -> Option<Estimate> {
    let latency = |job: &Job| job.direction(op).and_then(|d| d.response_ns.mean);
    let relative: Vec<f64> = as_is
        .valid()
        .zip(set.valid())
        .filter_map(|(a, b)| Some(latency(b)? / latency(a)? - 1.0))
        .collect();
    Estimate::mean_of(&relative)
}

impl ExperimentResult for CpuResult {
    const EXPERIMENT: &'static str = "cpu";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let mut rows = Vec::new();
        for load in &self.loads {
            let [as_is, set] = [0, 1].map(|i| evidence.cell(&load.points[i]));
            let (a, b, d) = (
                as_is.latency(load.op),
                set.latency(load.op),
                difference(&as_is, &set, load.op),
            );
            rows.push(vec![
                TableCell::Text(load.label.clone()),
                estimate(a),
                estimate(b),
                estimate(d.map(|d| d.scale(100.0))),
            ]);
            let jobs: Vec<usize> = as_is.indices().into_iter().chain(set.indices()).collect();
            shown.headlines.push(headline_of(
                &self.told.group,
                &format!("{}, {} against as is", load.label, self.setting.word()),
                &format!("cpu-{}-difference", load.id),
                "%",
                d.map(|d| d.scale(100.0)),
                jobs.clone(),
            ));
            if let (Some(a), Some(b), Some(d)) = (a, b, d) {
                shown
                    .findings
                    .push(finding(load, self.setting, [a, b, d], jobs));
            }
        }
        shown.sections.push(Section {
            id: "cpu".into(),
            title: "CPU realism".into(),
            text: format!(
                "{}, with {} and with {}, in alternating order. The setting held for each job only.",
                self.told.text,
                CpuSetting::AsIs.words(),
                self.setting.words()
            ),
            tables: vec![Table {
                id: "cpu-table".into(),
                title: "Mean latency".into(),
                columns: vec![
                    column("load", ""),
                    column("as is", "ns"),
                    column(self.setting.word(), "ns"),
                    column("difference", "%"),
                ],
                rows,
            }],
            ..Section::default()
        });
    }
}

fn finding(
    load: &Load,
    setting: CpuSetting,
    [a, b, d]: [Estimate; 3],
    jobs: Vec<usize>,
) -> Finding {
    let shown = match (d.low, d.high) {
        (Some(low), Some(high)) if d.shows_effect() => Some((low, high)),
        _ => None,
    };
    let thing = &load.thing;
    let text = match shown {
        Some((low, high)) => format!(
            "A {thing} takes {} with {}, {} as the system is: {:+.0} % (95 % interval {:+.0} to {:+.0} %).",
            Nanos(b.value as u64),
            setting.words(),
            Nanos(a.value as u64),
            100.0 * d.value,
            100.0 * low,
            100.0 * high
        ),
        None => format!(
            "No difference in the latency of a {thing} was shown between the system as it is and {}.",
            setting.words()
        ),
    };
    let advice = match shown {
        Some((_, high)) if high < 0.0 => {
            "Latency measured on an idle machine includes waking its cores: quote the setting with the number, and compare only numbers of the same setting."
        }
        Some(_) => {
            "The setting costs latency here (a shared core or a virtual machine, most often): measure as the system is."
        }
        None => "",
    };
    Finding {
        id: format!("cpu-{}", load.id),
        text,
        advice: advice.into(),
        confidence: if shown.is_some() {
            "strong"
        } else {
            "moderate"
        }
        .into(),
        jobs,
        evidence: vec!["cpu-table".into()],
        gain: shown
            .filter(|(_, high)| *high < 0.0)
            .map(|(low, high)| Estimate {
                value: -d.value,
                low: Some(-high),
                high: Some(-low),
                samples: d.samples,
            }),
        refuted_by: format!(
            "The same pairs whose interval holds 0: run again with --cpu {} and another --seed.",
            setting.word()
        ),
        ..Finding::default()
    }
}

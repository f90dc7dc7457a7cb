//! Would it help? Each variant is really run, in turns with the base, and its gain given with the
//! interval over the pairs. Settings are put back after every single pass.

use fathom_bench::bench::{Bench, RealBench};
use fathom_bench::cpu::CpuSetting;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::schedule;
use fathom_io::JobSpec;
use fathom_io::job::Engine;
use fathom_stack::settings::{self, Changed};
use fathom_stack::{Devices, StackResult};
use fathom_stats::Estimate;
use serde::{Deserialize, Serialize};

use super::{PASS_IOS, Watch, devices_of, pass};

/// Pairs of base and variant.
const PAIRS: u32 = super::PAIRS;

/// A tested variant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WhatIf {
    /// What was changed.
    pub variant: String,
    /// How to make the change last.
    pub advice: String,
    /// Base mean without the slowest 5 % of each pass, ns.
    pub base_mean_ns: Option<f64>,
    /// Base minus variant, ns: positive where the variant is faster.
    pub gain_ns: Option<Estimate>,
    /// Why it could not be tested.
    pub why: Option<String>,
    /// Indices of its passes and the base's into the run's jobs.
    pub jobs: Vec<usize>,
}

/// Most variants that a case has: placement twice, engine, scheduler, polling, idle states twice.
pub const VARIANTS: u32 = 7;

enum Change {
    Spec(Box<dyn Fn(&mut JobSpec)>),
    Scheduler(String, String),
    /// Against the system as it is, whatever the other variants run under.
    Cpu(CpuSetting),
    Impossible(String),
}

struct Variant {
    name: String,
    advice: String,
    change: Change,
}

/// Cores kept awake, in one way or the other.
fn wakeful(setting: CpuSetting) -> Variant {
    let (name, advice) = match setting {
        CpuSetting::Busy => (
            "every core kept busy at the lowest priority",
            "a system whose cores have other work has it already: measure with --cpu busy what it sees",
        ),
        _ if settings::has_idle_states() => (
            "no idle states (wake-up latency 0 µs)",
            "hold /dev/cpu_dma_latency at 0, or tuned-adm profile latency-performance",
        ),
        // The request still keeps a guest's own idle loop awake on some hypervisors.
        _ => (
            "no idle states (this machine lists none of its own)",
            "hold /dev/cpu_dma_latency at 0, or tuned-adm profile latency-performance",
        ),
    };
    Variant {
        name: name.into(),
        advice: advice.into(),
        change: Change::Cpu(setting),
    }
}

fn variants(spec: &JobSpec, devices: &Devices, result: Option<&StackResult>) -> Vec<Variant> {
    let mut out = Vec::new();
    let mut add = |name: String, advice: String, change| {
        out.push(Variant {
            name,
            advice,
            change,
        })
    };
    if let Some((cpu, _)) = result.and_then(|r| r.interrupt_cpus.first()) {
        let cpu = u32::from(*cpu);
        add(
            format!("application on the interrupt's CPU {cpu}"),
            format!("taskset -c {cpu} PROGRAM, or --cpus {cpu}"),
            Change::Spec(Box::new(move |s| s.cpus = vec![cpu])),
        );
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
        if let Some(other) = (0..cpus).find(|c| *c != cpu) {
            add(
                format!("application on CPU {other}, away from the interrupt"),
                format!("taskset -c {other} PROGRAM, or --cpus {other}"),
                Change::Spec(Box::new(move |s| s.cpus = vec![other])),
            );
        }
    }
    let other = match spec.engine {
        Engine::Uring => Engine::Preadv,
        _ => Engine::Uring,
    };
    add(
        format!("{other} instead of {}", spec.engine),
        format!("--engine {other}"),
        Change::Spec(Box::new(move |s| s.engine = other)),
    );
    for disk in devices.top.iter().filter(|d| d.has_requests) {
        let mut names = settings::schedulers(&disk.name).into_iter();
        let now = names.next().unwrap_or_default();
        // The two ends: no scheduler at all, or the plainest one where none is in use.
        let wanted = if now == "none" { "mq-deadline" } else { "none" };
        if names.any(|n| n == wanted) {
            add(
                format!("scheduler {wanted} instead of {now} on {}", disk.name),
                format!("echo {wanted} > /sys/block/{}/queue/scheduler", disk.name),
                Change::Scheduler(disk.name.clone(), wanted.into()),
            );
        }
    }
    let polls = devices.top.iter().any(|d| d.polls);
    add(
        "polled completions instead of interrupts".into(),
        "--iopoll".into(),
        if polls && spec.direct {
            Change::Spec(Box::new(|s| {
                s.iopoll = true;
                s.engine = Engine::Uring;
            }))
        } else if polls {
            Change::Impossible("the page cache is not polled for: use --direct".into())
        } else {
            Change::Impossible(
                "the device has no poll queues (for NVMe: the kernel parameter nvme.poll_queues=N)"
                    .into(),
            )
        },
    );
    out.extend([CpuSetting::LowLatency, CpuSetting::Busy].map(wakeful));
    out
}

/// Tests every variant that fits this machine against the case, processors kept in `cpu`.
pub fn what_if(
    bench: &mut RealBench,
    cpu: CpuSetting,
    spec: &JobSpec,
    result: Option<&StackResult>,
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<Vec<WhatIf>, NotebookError> {
    let all = variants(spec, &devices_of(bench), result);
    test(bench, cpu, spec, all, book, watch)
}

/// Tests the case under `cpu` against the system as it is.
pub fn what_if_cpu(
    bench: &mut RealBench,
    cpu: CpuSetting,
    spec: &JobSpec,
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<Vec<WhatIf>, NotebookError> {
    test(bench, cpu, spec, vec![wakeful(cpu)], book, watch)
}

fn test(
    bench: &mut RealBench,
    cpu: CpuSetting,
    spec: &JobSpec,
    variants: Vec<Variant>,
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<Vec<WhatIf>, NotebookError> {
    let mut out = Vec::new();
    for variant in variants {
        if bench.interrupted() {
            break;
        }
        let mut pairs = Pairs::default();
        let why = pairs.run(bench, (cpu, spec), &variant, book, watch).err();
        out.push(WhatIf {
            variant: variant.name,
            advice: variant.advice,
            base_mean_ns: Estimate::mean_of(&pairs.bases).map(|e| e.value),
            gain_ns: Estimate::mean_of(&pairs.gains),
            why,
            jobs: pairs.jobs,
        });
    }
    Ok(out)
}

/// What the pairs of a variant and its base gave.
#[derive(Default)]
struct Pairs {
    /// Means of the bases, ns.
    bases: Vec<f64>,
    /// Bases minus variants, ns.
    gains: Vec<f64>,
    /// Indices of all passes.
    jobs: Vec<usize>,
}

impl Pairs {
    /// Runs them all, or until an interruption.
    ///
    /// # Errors
    /// Why the variant cannot be tested.
    fn run(
        &mut self,
        bench: &mut RealBench,
        (cpu, spec): (CpuSetting, &JobSpec),
        variant: &Variant,
        book: &mut Notebook,
        watch: Watch<'_>,
    ) -> Result<(), String> {
        if let Change::Impossible(why) = &variant.change {
            return Err(why.clone());
        }
        for pair in 0..PAIRS {
            let mut means = [None, None];
            // Base first in even pairs, variant first in odd ones.
            for side in [pair % 2, 1 - pair % 2] {
                if bench.interrupted() {
                    return Ok(());
                }
                let (kept, spec, scheduler) = variant.side(side == 1, cpu, spec, pair)?;
                let pass = pass(bench, kept, &spec, PASS_IOS, pair, None, watch)
                    .map_err(|e| e.to_string())?;
                drop(scheduler);
                means[side as usize] = pass.usual_mean();
                self.jobs.push(book.run().jobs.len());
                book.keep(pass.job);
            }
            if let [Some(base), Some(other)] = means {
                self.gains.push(base - other);
                self.bases.push(base);
            }
        }
        Ok(())
    }
}

impl Variant {
    /// How a pass of it, or of its base, runs: processors, job, and a scheduler that is put back when dropped.
    fn side(
        &self,
        changed: bool,
        cpu: CpuSetting,
        spec: &JobSpec,
        pair: u32,
    ) -> Result<(CpuSetting, JobSpec, Option<Changed>), String> {
        let side = if changed { "variant" } else { "base" };
        let mut spec = JobSpec {
            name: format!("what-if {side} {}", self.name),
            seed: schedule::seed(spec.seed, "what-if", &self.name, pair),
            ..spec.clone()
        };
        let mut kept = cpu;
        let mut scheduler = None;
        match &self.change {
            Change::Cpu(setting) => kept = if changed { *setting } else { CpuSetting::AsIs },
            Change::Spec(change) if changed => change(&mut spec),
            Change::Scheduler(disk, name) if changed => {
                scheduler = Some(Changed::scheduler(disk, name).map_err(|e| e.to_string())?);
            }
            Change::Spec(_) | Change::Scheduler(..) | Change::Impossible(_) => {}
        }
        Ok((kept, spec, scheduler))
    }
}

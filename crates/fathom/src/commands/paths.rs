//! `fathom paths`: block device or file system, past the page cache or through it.

use std::path::Path;

use fathom_bench::Plan;
use fathom_bench::cpu::CpuSetting;
use fathom_labs::paths::{self, PathsOptions};
use fathom_sim::SimTarget;
use fathom_system::filesystem::file_systems;
use fathom_telemetry::Bytes;

use super::measure::{Measuring, measure};
use crate::cli::{MeasureArgs, PathsArgs};
use crate::exit::{Failure, Outcome, refused};

/// The range where nobody said a size: as many bytes lie on every path.
const SIZE: Bytes = Bytes::mib(512);

pub(crate) fn paths(args: &PathsArgs) -> Outcome {
    let options = options(args)?;
    let target = &args.measure.target;
    let directory = Path::new(target).is_dir();
    let measured = MeasureArgs {
        size: args.measure.size.or(directory.then_some(SIZE)),
        ..args.measure.clone()
    };
    let options = PathsOptions {
        make: if directory { options.make } else { Vec::new() },
        ..options
    };
    let what = Measuring {
        name: "paths",
        args: &measured,
        modifies: options.writes,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    // Enough turns for intervals by resampling.
    let shaped = |plan: &Plan| {
        let mut plan = plan.clone();
        if args.measure.length.repeats.is_none() {
            plan.profile.repeats = plan.profile.repeats.max(5);
        }
        plan
    };
    measure(
        &what,
        &|plan, fills| Ok(paths::run_cost(&shaped(plan), &options, fills)?),
        |bench, plan, book, sink| paths::run(bench, &shaped(plan), &options, book, sink),
    )
}

fn options(args: &PathsArgs) -> Result<PathsOptions, Failure> {
    let share = |name: &str, v: f64| {
        if (0.0..=100.0).contains(&v) {
            return Ok(());
        }
        Err(refused(anyhow::anyhow!(
            "--{name} {v}: expected a share of 0 to 100 %"
        )))
    };
    share("read-share", args.read_share)?;
    share("memory", args.memory)?;
    let known = file_systems();
    let make: Vec<String> = args.make.iter().filter(|m| *m != "none").cloned().collect();
    if let Some(m) = make.iter().find(|m| !known.contains(&m.as_str())) {
        return Err(refused(anyhow::anyhow!(
            "--make: '{m}' is no file system that fathom makes: expected {}, or none",
            known.join(", ")
        )));
    }
    let target = &args.measure.target;
    // Reading a device or a file needs no permission; writing one does, and must not be asked for by default.
    let writable = SimTarget::is_simulated(target)
        || Path::new(target).is_dir()
        || !Path::new(target).exists()
        || args.measure.destroy.is_some();
    Ok(PathsOptions {
        threads: args.threads,
        read_share: args.read_share,
        writes: writable && !args.no_writes,
        make,
        memory: args.memory,
        seed: args.measure.seed,
    })
}

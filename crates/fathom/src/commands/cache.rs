//! `fathom cache`: how much of the data to keep in memory.

use fathom_bench::cpu::CpuSetting;
use fathom_labs::cache;
use fathom_sim::SimTarget;

use super::measure::{Measuring, measure};
use super::measured::typed;
use crate::cli::CacheArgs;
use crate::exit::{Outcome, refused};

pub(crate) fn cache(args: &CacheArgs) -> Outcome {
    let mut options = args.options.clone();
    options
        .follow(&typed(&args.measure))
        .map_err(|why| refused(anyhow::anyhow!(why)))?;
    let simulated = SimTarget::is_simulated(&args.measure.target);
    let what = Measuring {
        name: "cache",
        args: &args.measure,
        modifies: !simulated,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    measure(
        &what,
        &|plan, fills| cache::run_cost(plan, &options, simulated, fills).map_err(refused),
        |bench, plan, book, sink| cache::run(bench, plan, &options, book, sink),
    )
}

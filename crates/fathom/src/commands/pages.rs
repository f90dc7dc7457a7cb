//! `fathom pages`: the page that a store should use on this target.

use fathom_bench::cpu::CpuSetting;
use fathom_experiments::pages::{self, PagesOptions};

use super::measure::{Measuring, measure};
use crate::cli::PagesArgs;
use crate::exit::{Outcome, refused};

pub(crate) fn pages(args: &PagesArgs) -> Outcome {
    if !(0.0..=100.0).contains(&args.points) {
        return Err(refused(anyhow::anyhow!(
            "--points {}: expected a share of 0 to 100 %",
            args.points
        )));
    }
    if args.range.0 < 4096 {
        return Err(refused(anyhow::anyhow!(
            "--range {}: expected 4k or more, the smallest page",
            args.range
        )));
    }
    let (app, app_from) = match args.app {
        Some(app) => (app, "as given with --app"),
        None => {
            let measured = fathom_labs::kv::app_cost().map_err(crate::exit::failed)?;
            (
                measured,
                "a cached read of fathom's own B+tree, measured here",
            )
        }
    };
    let options = PagesOptions {
        app,
        app_from: app_from.into(),
        points: args.points,
        range: args.range,
        seed: args.measure.seed,
    };
    let what = Measuring {
        name: "pages",
        args: &args.measure,
        modifies: false,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    measure(
        &what,
        &|plan, fills| Ok(pages::run_cost(plan, fills)?),
        |bench, plan, book, sink| pages::run(bench, plan, &options, book, sink),
    )
}

//! `fathom pages`: the page that a store should use on this target.

use fathom_bench::cpu::CpuSetting;
use fathom_experiments::pages::{self, PagesOptions};

use super::measure::{Measuring, measure};
use crate::cli::PagesArgs;
use crate::exit::Outcome;

pub(crate) fn pages(args: &PagesArgs) -> Outcome {
    let (app, app_from) = match args.options.given {
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
        seed: args.measure.seed,
        ..args.options.clone()
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

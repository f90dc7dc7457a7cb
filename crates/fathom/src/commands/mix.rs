//! `fathom mix`: latency and IOPS over share of reads and depth, as a map.

use fathom_experiments::mix::{self, MixOptions};

use super::measure::{Measuring, measure};
use super::open::cpu_setting;
use crate::cli::MixArgs;
use crate::exit::Outcome;

pub(crate) fn mix(args: &MixArgs) -> Outcome {
    let mut fills = args.fill.clone();
    fills.sort_unstable();
    fills.dedup();
    let options = MixOptions {
        bs: args.bs,
        fills,
        seed: args.measure.seed,
    };
    let what = Measuring {
        name: "mix",
        args: &args.measure,
        modifies: true,
        cpu: cpu_setting(&args.cpu)?,
        recording: 0,
    };
    measure(
        &what,
        &|plan, fills| Ok(mix::run_cost(plan, &options, fills)?),
        |bench, plan, book, sink| mix::run(bench, plan, &options, book, sink),
    )
}

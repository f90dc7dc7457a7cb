//! `fathom burst`: spaced bursts, seen I/O by I/O, and the deficit beside a light writer.

use fathom_experiments::burst::{self, BurstOptions, RECORDING};

use super::measure::{Measuring, measure};
use super::open::cpu_setting;
use crate::cli::BurstArgs;
use crate::exit::{Outcome, refused};

pub(crate) fn burst(args: &BurstArgs) -> Outcome {
    if args.burst.0 < 1 << 20 || args.writes.0 < 1 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--burst {} and --writes {}: expected 1m or more each",
            args.burst,
            args.writes
        )));
    }
    let options = BurstOptions {
        burst: args.burst,
        writes: args.writes,
        writer: !args.no_writer,
        seed: args.measure.seed,
    };
    let what = Measuring {
        name: "burst",
        args: &args.measure,
        modifies: options.writer,
        cpu: cpu_setting(&args.cpu)?,
        recording: RECORDING,
    };
    measure(
        &what,
        &|plan, fills| Ok(burst::run_cost(plan, &options, fills)?),
        |bench, plan, book, sink| burst::run(bench, plan, &options, book, sink),
    )
}

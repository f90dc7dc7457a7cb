//! `fathom compress`: codecs beside the device, where they help and where they cost.

use fathom_bench::cpu::CpuSetting;
use fathom_experiments::compression::{self, CompressionOptions};

use super::measure::{Measuring, measure};
use crate::cli::CompressArgs;
use crate::exit::{Outcome, refused};

pub(crate) fn compress(args: &CompressArgs) -> Outcome {
    if !(0.0..=100.0).contains(&args.incompressible) {
        return Err(refused(anyhow::anyhow!(
            "--incompressible {}: expected a share of 0 to 100 %",
            args.incompressible
        )));
    }
    let options = CompressionOptions {
        sample: args.sample.clone(),
        incompressible: args.incompressible / 100.0,
        writes: !args.no_writes,
        seed: args.measure.seed,
    };
    // Before anything is opened: a sample that cannot be read leaves nothing behind.
    let sample = compression::load(&options).map_err(refused)?;
    let what = Measuring {
        name: "compress",
        args: &args.measure,
        modifies: options.writes,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
    };
    measure(
        &what,
        &|plan, fills| compression::run_cost(plan, &options, fills).map_err(refused),
        |bench, plan, book, sink| compression::run(bench, plan, &options, &sample, book, sink),
    )
}

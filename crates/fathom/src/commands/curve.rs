//! `fathom curve`: the throughput-latency curve, closed and open loop, with the knee.

use fathom_experiments::curve::{self, CurveOptions};
use fathom_experiments::workload::WorkloadResult;
use fathom_io::job::Rw;

use super::measure::{Measuring, measure};
use super::open::cpu_setting;
use crate::cli::CurveArgs;
use crate::exit::{Outcome, refused};

pub(crate) fn curve(args: &CurveArgs) -> Outcome {
    let rw: Rw = args
        .rw
        .parse()
        .map_err(|e: String| refused(anyhow::anyhow!("--rw: {e}")))?;
    if !(0.0..=100.0).contains(&args.read_share) {
        return Err(refused(anyhow::anyhow!(
            "--read-share: {} is not possible: expected 0 to 100",
            args.read_share
        )));
    }
    let workload = args
        .workload
        .as_deref()
        .map(super::watch::read_profile)
        .transpose()?;
    let options = CurveOptions {
        rw,
        bs: args.bs,
        read_share: args.read_share,
        depth_max: args.max_qd,
        open: !args.closed_only,
        seed: args.measure.seed,
    };
    let what = Measuring {
        name: "curve",
        args: &args.measure,
        modifies: rw.modifies(),
        cpu: cpu_setting(&args.cpu)?,
        recording: 0,
    };
    measure(
        &what,
        &|plan, fills| Ok(curve::run_cost(plan, &options, fills)?),
        |bench, plan, book, sink| {
            curve::run(bench, plan, &options, book, sink)?;
            match &workload {
                Some(profile) => book.found(&WorkloadResult {
                    profile: profile.clone(),
                }),
                None => Ok(()),
            }
        },
    )
}

//! `fathom kv`: the embedded B+tree on a target, beside its ceiling.

use fathom_bench::cpu::CpuSetting;
use fathom_labs::kv::{self, KvOptions};
use fathom_sim::SimTarget;

use super::measure::{Measuring, measure};
use super::measured::typed;
use crate::cli::KvArgs;
use crate::exit::{Failure, Outcome, refused};

pub(crate) fn kv(args: &KvArgs) -> Outcome {
    let options = options(args)?;
    let target = &args.measure.target;
    // Said before it is announced.
    if target == "null:" {
        return Err(refused(kv::no_bytes(target.clone())));
    }
    let simulated = SimTarget::is_simulated(target);
    let what = Measuring {
        name: "kv",
        args: &args.measure,
        modifies: !simulated,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: true,
        on_zones: false,
    };
    measure(
        &what,
        &|plan, fills| match simulated {
            true => kv::run_cost_on_model(plan, &options, target).map_err(refused),
            false => Ok(kv::run_cost(plan, &options, fills)),
        },
        |bench, plan, book, sink| kv::run(bench, plan, &options, book, sink),
    )
}

fn options(args: &KvArgs) -> Result<KvOptions, Failure> {
    let refuse = |why: String| refused(anyhow::anyhow!(why));
    let mut options = args.options.clone();
    options.follow(&typed(&args.measure)).map_err(refuse)?;
    let hosts = &args.measure.hosts;
    if hosts.any() {
        let unfit = |option: &str, why: &str| {
            let why = format!("{option}: {why}: leave it out, or leave out --hosts");
            Err(refuse(why))
        };
        if let Some(engine) = options.beside.first() {
            return unfit("--beside", &format!("{engine} runs on this machine only"));
        }
        if options.model.is_some() {
            let why = "a model's tree lies in the memory of this machine";
            return unfit(&args.measure.target, why);
        }
        if hosts.ranges()? != hosts.count()? {
            return unfit("--layout", "each host has a tree of its own");
        }
    }
    Ok(options)
}

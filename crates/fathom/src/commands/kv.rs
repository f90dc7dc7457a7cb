//! `fathom kv`: the embedded B+tree on a target, beside its ceiling.

use fathom_bench::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::cpu::CpuSetting;
use fathom_labs::kv::{self, ENGINES, Keys, KvOptions, WORKLOADS};
use fathom_sim::SimTarget;
use fathom_telemetry::Bytes;

use super::measure::{Measuring, measure};
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

/// Time and bytes, at most, of such a command line.
pub(super) fn run_cost(args: &KvArgs, plan: &Plan, fills: Bytes) -> Result<RunCost, Failure> {
    Ok(kv::run_cost(plan, &options(args)?, fills))
}

fn options(args: &KvArgs) -> Result<KvOptions, Failure> {
    let known = |name: &String| WORKLOADS.iter().any(|w| w.name == *name);
    if let Some(name) = args.workload.iter().find(|w| !known(w)) {
        let names: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
        return Err(refused(anyhow::anyhow!(
            "--workload: '{name}' is no workload: expected {}",
            names.join(", ")
        )));
    }
    let engines: Vec<&str> = ENGINES.iter().map(|e| e.name).collect();
    if let Some(name) = args
        .beside
        .iter()
        .find(|n| *n != "all" && !engines.contains(&n.as_str()))
    {
        return Err(refused(anyhow::anyhow!(
            "--beside: '{name}' is no engine: expected {}, or all",
            engines.join(", ")
        )));
    }
    let beside = if args.beside.iter().any(|n| n == "all") {
        engines.iter().map(|e| (*e).to_owned()).collect()
    } else {
        args.beside.clone()
    };
    let page = args.page.0;
    if !page.is_power_of_two() || !(4096..=65536).contains(&page) {
        return Err(refused(anyhow::anyhow!(
            "--page: {} is no size of a page: expected 4k, 8k, 16k, 32k or 64k",
            args.page
        )));
    }
    if !(args.cache > 0.0 && args.cache <= 100.0) {
        return Err(refused(anyhow::anyhow!(
            "--cache: {} is no share: expected more than 0 and at most 100 percent",
            args.cache
        )));
    }
    if args.measure.size.is_some_and(|s| s.0 < 64 << 20) {
        return Err(refused(anyhow::anyhow!(
            "--size: a tree and the raw device need 64m or more"
        )));
    }
    let simulated = SimTarget::is_simulated(&args.measure.target);
    if simulated && let Some(name) = beside.first() {
        return Err(refused(anyhow::anyhow!(
            "--beside: {name} keeps files, and {} has none: name a directory, or leave --beside out",
            args.measure.target
        )));
    }
    if simulated && args.buffered {
        return Err(refused(anyhow::anyhow!(
            "--buffered: on a model the tree goes past the page cache: leave --buffered out, or name a directory"
        )));
    }
    let (hosts, target) = (&args.measure.hosts, args.measure.target.as_str());
    if hosts.any() {
        let unfit = |option: &str, why: &str| {
            Err(refused(anyhow::anyhow!(
                "{option}: {why}: leave it out, or leave out --hosts"
            )))
        };
        if let Some(engine) = beside.first() {
            return unfit("--beside", &format!("{engine} runs on this machine only"));
        }
        if simulated {
            return unfit(target, "a model's tree lies in the memory of this machine");
        }
        if hosts.ranges()? != hosts.count()? {
            return unfit("--layout", "each host has a tree of its own");
        }
    }
    Ok(KvOptions {
        workloads: args.workload.clone(),
        threads: args.threads,
        keys: args.keys,
        value: args.value,
        page: args.page,
        cache: args.cache,
        commit: args.commit,
        buffered: args.buffered,
        keys_drawn: match args.distribution.as_str() {
            "zipf" => Keys::Zipf,
            "gaussian" => Keys::Gaussian,
            _ => Keys::Uniform,
        },
        beside,
        rate: args.rate,
        model: simulated.then_some(args.load),
        time: args.measure.length.time,
        seed: args.measure.seed,
    })
}

//! `fathom cache`: how much of the data to keep in memory.

use fathom_bench::cpu::CpuSetting;
use fathom_labs::cache::{self, CacheOptions, PRICES, Prices};
use fathom_labs::kv::Keys;
use fathom_sim::SimTarget;

use super::measure::{Measuring, measure};
use crate::cli::CacheArgs;
use crate::exit::{Failure, Outcome, refused};

pub(crate) fn cache(args: &CacheArgs) -> Outcome {
    let options = options(args)?;
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

fn options(args: &CacheArgs) -> Result<CacheOptions, Failure> {
    let refuse = |message: String| Err(refused(anyhow::anyhow!(message)));
    let mut shares = args.shares.clone();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    if let Some(s) = shares.iter().find(|s| !(**s > 0.0 && **s < 100.0)) {
        return refuse(format!(
            "--shares: {s} is no share: expected more than 0 and less than 100 percent"
        ));
    }
    let page = args.page.0;
    if !page.is_power_of_two() || !(4096..=65536).contains(&page) {
        return refuse(format!(
            "--page: {} is no size of a page: expected 4k, 8k, 16k, 32k or 64k",
            args.page
        ));
    }
    if u64::from(args.value) > page / 4 {
        return refuse(format!(
            "--value: {} bytes are too long: expected at most a quarter of a page ({})",
            args.value,
            page / 4
        ));
    }
    // A device that says nothing of itself is taken for flash.
    let optane = args.measure.target.to_ascii_lowercase().contains("optane");
    let (dram, xpoint, flash) = PRICES;
    let prices = Prices {
        dram: args.dram_price.unwrap_or(dram),
        device: args
            .device_price
            .unwrap_or(if optane { xpoint } else { flash }),
    };
    let fits = |p: f64| p > 0.0 && p.is_finite();
    if !fits(prices.dram) || !fits(prices.device) {
        return refuse("--dram-price, --device-price: expected dollars per GB, more than 0".into());
    }
    Ok(CacheOptions {
        keys: args.keys.iter().filter_map(|k| Keys::named(k)).collect(),
        shares,
        data: args.data,
        value: args.value,
        page: args.page,
        threads: args.threads,
        load: args.load,
        prices,
        seed: args.measure.seed,
    })
}

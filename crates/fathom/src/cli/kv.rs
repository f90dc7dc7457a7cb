//! Arguments of `kv`.

use clap::Args;
use fathom_experiments::pages::PagesOptions;
use fathom_labs::kv::KvOptions;

use super::MeasureArgs;

/// Arguments of `pages`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom pages .                             90 point requests to 10 ranges of 64 KiB\n  fathom pages /dev/nvme0n1 --points 50 --range 256k --app 20us\n  fathom pages sim:optane-900p --points 99\nt_app is what the application spends on a page: given, or that of fathom's own B+tree."
)]
pub(crate) struct PagesArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) options: PagesOptions,
}

/// Arguments of `kv`.
#[derive(Args)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) options: KvOptions,
}

//! Arguments of `cache`.

use clap::Args;
use fathom_labs::cache::CacheOptions;

use super::MeasureArgs;

/// Arguments of `cache`.
#[derive(Args)]
pub(crate) struct CacheArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) options: CacheOptions,
}

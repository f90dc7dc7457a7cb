//! Arguments of `app`.

use clap::Args;
use fathom_labs::app::copy::CopyOptions;

use super::{MkfsArgs, OutArgs};

/// Arguments of `app copy`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom app copy /mnt/data                     a generated set of photos, read and written there\n  fathom app copy /media/card /mnt/data         your files (only read) to the target\n  fathom app copy /mnt/data --bytes 37400000000 the whole set: 3,075 photos"
)]
pub(crate) struct CopyArgs {
    /// [SOURCE] TARGET: directories; without a source a set is generated on the target
    #[arg(required = true, num_args = 1..=2, value_name = "DIRECTORY")]
    pub(crate) places: Vec<String>,
    #[command(flatten)]
    pub(crate) options: CopyOptions,
    /// quick, standard or full: number of rounds
    #[arg(long, default_value = "quick")]
    pub(crate) profile: String,
    /// Rounds [default: the profile's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: Option<u32>,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed (--mkfs)
    #[arg(long, value_name = "SERIAL", requires = "mkfs")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) mkfs: MkfsArgs,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of the hidden process under test.
#[derive(Args)]
pub(crate) struct SwapLoadArgs {
    pub(crate) bytes: u64,
    pub(crate) threads: u32,
    pub(crate) milliseconds: u64,
    pub(crate) seed: u64,
}

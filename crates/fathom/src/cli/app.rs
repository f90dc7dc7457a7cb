//! Arguments of `app`.

use clap::{Args, Subcommand};
use fathom_telemetry::Bytes;

use super::{MeasureArgs, OutArgs};

/// What applications do with a directory.
#[derive(Subcommand)]
pub(crate) enum AppCommand {
    /// Ingest: read, write, copy and handle many files
    Copy(Box<CopyArgs>),
    /// A working set larger than memory, swapping to the target
    Swap(Box<SwapArgs>),
}

/// Arguments of `app copy`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom app copy /mnt/data                     a generated set of photos, read and written there\n  fathom app copy /media/card /mnt/data         your files (only read) to the target\n  fathom app copy /mnt/data --bytes 37400000000 the whole set: 3,075 photos"
)]
pub(crate) struct CopyArgs {
    /// [SOURCE] TARGET: directories; without a source a set is generated on the target
    #[arg(required = true, num_args = 1..=2, value_name = "DIRECTORY")]
    pub(crate) places: Vec<String>,
    /// Bytes of the generated set
    #[arg(long, default_value = "256m")]
    pub(crate) bytes: Bytes,
    /// Threads that work on files at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
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
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `app swap`.
#[derive(Args)]
#[command(
    mut_arg("target", |a| a.help("Directory that gets the swap file")),
    after_help = "Examples:\n  fathom app swap /mnt/data                     256m, of which 75, 50 and 25 % may be in memory\n  fathom app swap /mnt/data --bytes 8g --share 50 --time 60s\nNeeds root and a memory controller; the swap file is the machine's first choice while it is on."
)]
pub(crate) struct SwapArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Bytes of the working set
    #[arg(long, default_value = "256m")]
    pub(crate) bytes: Bytes,
    /// Shares of it that may be in memory, percent
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", default_values_t = [75.0, 50.0, 25.0])]
    pub(crate) share: Vec<f64>,
    /// Threads that touch it
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
}

/// Arguments of the hidden process under test.
#[derive(Args)]
pub(crate) struct SwapLoadArgs {
    pub(crate) bytes: u64,
    pub(crate) threads: u32,
    pub(crate) milliseconds: u64,
    pub(crate) seed: u64,
}

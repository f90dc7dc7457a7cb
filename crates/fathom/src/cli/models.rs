//! Arguments of `cache` and `paths`.

use clap::Args;

use super::MeasureArgs;

/// Arguments of `cache`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom cache . --size 2g                          three kinds of keys, 3 to 50 % cached\n  fathom cache /mnt/data --keys zipf --page 16k --threads 16\n  fathom cache sim:intel-s3510 --dram-price 3 --device-price 0.08\nPredicted: t_io (1 - H) + t_load H, from the device's latency and the hit share of the cache (Zhang et al. 2018, eq. 1). Measured: fathom's own B+tree with each cache, in turns."
)]
pub(crate) struct CacheArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Distributions of keys: uniform, zipf, gaussian
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", default_value = "uniform,zipf,gaussian", value_parser = ["uniform", "zipf", "gaussian"])]
    pub(crate) keys: Vec<String>,
    /// Cached shares of the data, percent
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PERCENT,…",
        default_value = "3,6,12.5,25,50"
    )]
    pub(crate) shares: Vec<f64>,
    /// Bytes of data [default: a sixteenth of the range; 64m on models]
    #[arg(long, value_name = "BYTES")]
    pub(crate) data: Option<fathom_telemetry::Bytes>,
    /// Bytes of a value, at most a quarter of a page
    #[arg(long, default_value_t = 100)]
    pub(crate) value: u32,
    /// Bytes of a page: 4k, 8k, 16k, 32k or 64k
    #[arg(long, default_value = "4k")]
    pub(crate) page: fathom_telemetry::Bytes,
    /// Threads, each with one request at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// On models: what a request takes that the cache answers (on real targets it is measured)
    #[arg(long, value_name = "DURATION", default_value = "1us")]
    pub(crate) load: fathom_telemetry::Nanos,
    /// Dollars per GB of memory [default: 13.13, Zhang et al. 2018, Table I]
    #[arg(long, value_name = "DOLLARS")]
    pub(crate) dram_price: Option<f64>,
    /// Dollars per GB of the target [default: the same table, 1.16 for Optane, else 0.68 for flash]
    #[arg(long, value_name = "DOLLARS")]
    pub(crate) device_price: Option<f64>,
}

/// Arguments of `paths`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom paths /mnt/data                  the file system there; for root others beside it\n  fathom paths . --make none              only the file system that is there\n  fathom paths /dev/sdx --destroy SERIAL  the block device itself, past the page cache and through it\n  fathom paths /dev/nvme0n1               reads only: needs no permission\nEach path gets the same jobs: random 4 KiB, sequential reads and writes of 128 KiB. What fathom makes lies in the target's directory and is removed; after a kill, fathom clean finds it."
)]
pub(crate) struct PathsArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Threads of the random job, each with one I/O at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Reads among its I/Os, percent
    #[arg(long, default_value_t = 50.0, value_name = "PERCENT")]
    pub(crate) read_share: f64,
    /// Leave out every job that writes, and what would be made beside the target
    #[arg(long)]
    pub(crate) no_writes: bool,
    /// File systems to make on loop devices in a directory (root): ext4, xfs, btrfs, or none
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,…",
        default_value = "ext4,xfs,btrfs"
    )]
    pub(crate) make: Vec<String>,
    /// Page cache for jobs through it, percent of the range (a control group; root); 0 for all memory
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    pub(crate) memory: f64,
}

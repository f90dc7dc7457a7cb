//! Arguments of `kv`.

use clap::Args;

use super::MeasureArgs;

/// Arguments of `pages`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom pages .                             90 point requests to 10 ranges of 64 KiB\n  fathom pages /dev/nvme0n1 --points 50 --range 256k --app 20us\n  fathom pages sim:optane-900p --points 99\nt_app is what the application spends on a page: given, or that of fathom's own B+tree."
)]
pub(crate) struct PagesArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Requests in a hundred that touch one record; the others read a range
    #[arg(long, default_value_t = 90.0, value_name = "PERCENT")]
    pub(crate) points: f64,
    /// Mean bytes of a range
    #[arg(long, default_value = "64k")]
    pub(crate) range: fathom_telemetry::Bytes,
    /// What the application spends on a page [default: measured with fathom's own B+tree]
    #[arg(long, value_name = "DURATION")]
    pub(crate) app: Option<fathom_telemetry::Nanos>,
}

#[derive(Args)]
#[command(
    mut_arg("target", |a| a.help("Directory, file made with --create, block device, or model (sim:NAME: the tree then lies in memory, its I/Os are the model's)")),
    after_help = "Examples:\n  fathom kv . --size 2g                              random updates and inserts, 16 threads, 5 % cached\n  fathom kv . --workload a,b,c,d,e,f --commit        YCSB, every commit logged and synced\n  fathom kv . --workload pages,caches --size 4g      sweeps of page and cache size\n  fathom kv . --beside all                            redb, SQLite, LMDB, fjall and Tupl on the same test, in turns\n  fathom kv /dev/sdx --destroy SERIAL --workload insert --time 1h\n  fathom kv sim:optane-900p --workload a,c --commit  on a model, in its own time\nThe tree lies in the first half of the range; the raw device is measured in the second half."
)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// update, insert (random, 8-byte keys, as O'Neill 2018), a to f (YCSB), pages, caches (sweeps)
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", default_values_t = ["update".to_owned(), "insert".to_owned()])]
    pub(crate) workload: Vec<String>,
    /// Threads
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Keys that the tree is filled with first [default: 40 % of its half of the range, at most 4 million]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: Option<u64>,
    /// Bytes of a value; 0 for none (YCSB then has 1000)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65536))]
    pub(crate) value: u32,
    /// Bytes of a page: 4k, 8k, 16k, 32k or 64k
    #[arg(long, default_value = "4k")]
    pub(crate) page: fathom_telemetry::Bytes,
    /// Cached share of the leaves, percent
    #[arg(long, default_value_t = 5.0)]
    pub(crate) cache: f64,
    /// Log and sync every commit (group commit); without, checkpoints every second make changes durable
    #[arg(long)]
    pub(crate) commit: bool,
    /// The tree through the page cache; it says something where the data are much larger than the memory
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Keys of update, insert and the sweeps: uniform, zipf or gaussian
    #[arg(long, default_value = "uniform", value_parser = ["uniform", "zipf", "gaussian"])]
    pub(crate) distribution: String,
    /// Engines to measure beside fathom's own, in turns: redb, sqlite, lmdb, fjall, tupl (Java), or all
    #[arg(long, value_delimiter = ',', value_name = "ENGINE,…")]
    pub(crate) beside: Vec<String>,
    /// Operations per second that come at random moments, whatever was answered (an open loop); latency counts from then on
    /// [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = super::loads::per_second)]
    pub(crate) rate: Option<f64>,
    /// On models: time of an operation beside its I/Os (what processors do is not modelled)
    #[arg(long, value_name = "DURATION", default_value = "1us")]
    pub(crate) load: fathom_telemetry::Nanos,
}

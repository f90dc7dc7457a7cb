//! Arguments of the commands for long, recorded and live loads: condition, pts, replay, watch.

use std::path::PathBuf;

use clap::Args;
use fathom_experiments::condition::ConditionOptions;
use fathom_experiments::pts::PtsOptions;
use fathom_experiments::replay::ReplayOptions;

use super::{CpuArgs, HostsArgs, OutArgs};

/// What commands that write much ask before they start.
#[derive(Args, Clone)]
pub(crate) struct WearArgs {
    /// The device's rated endurance in bytes (such as 300t), for the share that is used
    #[arg(long, value_name = "BYTES", help_heading = "Safety")]
    pub(crate) rated_tbw: Option<fathom_telemetry::Bytes>,
    /// Ask above so many bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "100g",
        help_heading = "Safety"
    )]
    pub(crate) ask_above: fathom_telemetry::Bytes,
    /// Agree to what is announced
    #[arg(long, help_heading = "Safety")]
    pub(crate) yes: bool,
}

/// Arguments of `condition`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom condition /dev/sdx --destroy SERIAL --dry-run\n  fathom condition /dev/sdx --destroy SERIAL --fill 50 --overwrite 1 --deletes 10 --idle 60s\n  fathom condition /dev/sdx --destroy SERIAL --until-steady \"rw=randwrite bs=4k qd=32\"\n  fathom condition /dev/sdx --destroy SERIAL --resume fathom-runs/20261120T120000Z-condition"
)]
pub(crate) struct ConditionArgs {
    /// Block device, a file that fathom makes or made, or sim:MODEL
    pub(crate) target: String,
    /// How to empty it first: auto (the first that it offers of format, sanitize-block, sanitize-crypto, secure-discard,
    /// discard, zeroes), none, one of these, format-crypto or sanitize-overwrite; a format or sanitize that reaches other
    /// namespaces of the drive wants all of them unused and blank
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub(crate) purge: String,
    /// The same as --purge none
    #[arg(long, conflicts_with = "purge")]
    pub(crate) no_purge: bool,
    #[command(flatten)]
    pub(crate) options: ConditionOptions,
    /// Go on where an interrupted run ended: its directory
    #[arg(long, value_name = "RUN")]
    pub(crate) resume: Option<PathBuf>,
    /// Size of the range, from the start of the target
    #[arg(long)]
    pub(crate) size: Option<fathom_telemetry::Bytes>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Say what would be done, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: HostsArgs,
    #[command(flatten)]
    pub(crate) wear: WearArgs,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `pts`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom pts /dev/nvme1n1 --destroy SERIAL --tests iops,tp,lat --dry-run\n  fathom pts sim:micron-mx500 --tests wsat --unit 10s\nTests: iops, tp, lat, wsat, hir, xsr, dirth. Each purges, conditions, and measures until the specification's rule\ncalls it steady (25 rounds at most); fathom's own verdict stands beside it."
)]
pub(crate) struct PtsArgs {
    /// Block device or sim:MODEL
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) options: PtsOptions,
    /// How to empty it before each test: auto (the first that it offers of format, sanitize-block, sanitize-crypto, secure-discard,
    /// discard, zeroes), one of these, format-crypto or sanitize-overwrite; a format or sanitize that reaches other
    /// namespaces of the drive wants all of them unused and blank
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub(crate) purge: String,
    #[command(flatten)]
    pub(crate) cpu: CpuArgs,
    /// Tested range [default: the whole target, as the specification wants]
    #[arg(long)]
    pub(crate) size: Option<fathom_telemetry::Bytes>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Say what would be done, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) wear: WearArgs,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `replay`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom replay hm_0.csv null:                   check a trace, and how well its times are kept\n  fathom replay Financial1.spc . --speed 10      an hour in six minutes, on a scratch file\n  fathom replay sda.blktrace.0 /dev/nvme0n1 --reads-only\n  fathom replay sda /dev/sdx --destroy SERIAL --mode dependent\nThe whole trace is checked first; where a record is malformed, nothing is written."
)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) options: ReplayOptions,
    /// Directory, file, block device or null:
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) hosts: HostsArgs,
    /// Every host plays all of the trace; without it its I/Os are dealt to the hosts in turns
    #[arg(long, requires = "hosts", help_heading = "Many hosts")]
    pub(crate) each_host: bool,
    /// Size of the scratch file, or of the range that is used
    #[arg(long)]
    pub(crate) size: Option<fathom_telemetry::Bytes>,
    /// Check the trace, say what would be done, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `watch`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom watch --time 60s                 all disks\n  fathom watch nvme0n1\n  fathom watch $(pidof mariadbd) --time 5m\n  fathom watch --listen 9464              for Prometheus: http://127.0.0.1:9464/metrics\n  fathom survey /mnt/data --workload fathom-runs/20261120T120000Z-watch\nNothing is written to what is watched. Without the right to trace, counters are read and the rest is said to be missing."
)]
pub(crate) struct WatchArgs {
    /// A process's number, or a whole disk by name or path [default: all disks]
    pub(crate) subject: Option<String>,
    /// For how long [default: 10s; with --listen until it is ended]
    #[arg(long, value_name = "DURATION")]
    pub(crate) time: Option<fathom_telemetry::Nanos>,
    /// Answer scrapers of metrics meanwhile: a port of this machine's loopback (9090, localhost:9090), or the path of a unix socket
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

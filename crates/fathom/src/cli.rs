//! The commands and their arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::job_args::JobArgs;

/// Measures what a storage stack really delivers, shows where each microsecond goes, and says what to configure.
#[derive(Parser)]
#[command(
    name = "fathom",
    version,
    max_term_width = 100,
    after_help = "Start with: fathom survey\nNothing is destroyed: reads need no permission, writes go only to files that fathom made, or to a\nblock device whose serial number you typed after --destroy.\nExit codes: 0 done, 1 the measurement failed or is void, 2 usage or refused for safety."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// The main job: latency, bandwidth, IOPS, depth sweep and mix, with a report
    Survey(SurveyArgs),
    /// One job from flags, or a file of jobs
    Run(Box<RunArgs>),
    /// Load curve: latency against throughput in closed and open loop, with the knee
    Curve(CurveArgs),
    /// Mix map: latency and IOPS over share of reads and depth
    Mix(MixArgs),
    /// Bursts that do not saturate, and what a light writer takes from sequential reads
    Burst(BurstArgs),
    /// Two runs: differences with intervals and a verdict; several runs: their history
    Compare(CompareArgs),
    /// One job with two settings, run in turns (A B B A), with a verdict
    Ab(Box<AbArgs>),
    /// Block devices and mounts: what they are, who uses them, whether fathom may read or write them
    Devices(DevicesArgs),
    /// Remake the report of a run, or export it
    Report(ReportArgs),
    /// Find scratch files that killed runs left behind, and remove them
    Clean(CleanArgs),
}

/// Where results go.
#[derive(Args, Clone)]
pub(crate) struct OutArgs {
    /// Directory that receives the run's directory
    #[arg(long, value_name = "DIR", default_value = fathom_telemetry::rundir::RUNS_DIR, help_heading = "Results")]
    pub(crate) out: PathBuf,
    /// Print run.json on standard output instead of the summary
    #[arg(long, help_heading = "Results")]
    pub(crate) json: bool,
}

/// Arguments of `survey`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom survey                          a scratch file in the current directory, removed afterwards\n  fathom survey /mnt/data --dry-run      say time and bytes to be written, and stop\n  fathom survey /dev/sdx --destroy SERIAL --profile full\n                                         a whole disk; its data is lost (serial: see fathom devices)"
)]
pub(crate) struct SurveyArgs {
    /// Directory, file, block device or null:
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// quick (under 3 minutes), standard (about 10) or full (about an hour)
    #[arg(long, default_value = "quick")]
    pub(crate) profile: String,
    /// Size of the scratch file, or of the tested range [default: by profile and free space]
    #[arg(long)]
    pub(crate) size: Option<fathom_telemetry::Bytes>,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL")]
    pub(crate) destroy: Option<String>,
    /// Processors while latency is measured: as-is, busy (a thread of the lowest priority on every core)
    /// or low-latency (no idle states; root); the difference to as-is is measured and reported
    #[arg(long, value_name = "SETTING", default_value = "as-is")]
    pub(crate) cpu: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// What is measured, how long, and what it may cost: the same for every measuring command.
#[derive(Args, Clone)]
pub(crate) struct MeasureArgs {
    /// Directory, file, block device or null:
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// quick, standard or full: length and number of repeats
    #[arg(long, default_value = "quick")]
    pub(crate) profile: String,
    /// Size of the scratch file, or of the tested range [default: by profile and free space]
    #[arg(long)]
    pub(crate) size: Option<fathom_telemetry::Bytes>,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `curve`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom curve                           random 4 KiB reads of a scratch file\n  fathom curve /dev/nvme0n1 --rw randread --profile standard\n  fathom curve . --rw randrw --read-share 70 --dry-run"
)]
pub(crate) struct CurveArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Pattern and direction, as in run
    #[arg(long, default_value = "randread")]
    pub(crate) rw: String,
    /// Block size
    #[arg(long, default_value = "4k")]
    pub(crate) bs: fathom_telemetry::Bytes,
    /// Share of reads where the pattern mixes, percent
    #[arg(long, default_value_t = 70.0)]
    pub(crate) read_share: f64,
    /// Largest depth over all threads
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_qd: u32,
    /// Leave out the open loop
    #[arg(long)]
    pub(crate) closed_only: bool,
    /// Processors while latency is measured: as-is, busy (a thread of the lowest priority on every core)
    /// or low-latency (no idle states; root); the difference to as-is is measured and reported
    #[arg(long, value_name = "SETTING", default_value = "as-is")]
    pub(crate) cpu: String,
}

/// Arguments of `mix`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom mix                             a scratch file in the current directory\n  fathom mix . --fill 10,50,90 --dry-run  one map at each fill level"
)]
pub(crate) struct MixArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Block size
    #[arg(long, default_value = "4k")]
    pub(crate) bs: fathom_telemetry::Bytes,
    /// Fill levels in percent: the rest is discarded, the range written once, then measured
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) fill: Vec<u32>,
}

/// Arguments of `burst`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom burst --size 2g                 bursts of 400 MB beside 20 MB/s of writes\n  fathom burst /dev/nvme0n1 --no-writer  reads only: needs no permission"
)]
pub(crate) struct BurstArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Bytes of one sequential burst (at most half the range)
    #[arg(long, default_value = "400000000")]
    pub(crate) burst: fathom_telemetry::Bytes,
    /// Bytes per second of the writer beside it
    #[arg(long, default_value = "20000000")]
    pub(crate) writes: fathom_telemetry::Bytes,
    /// Leave out the writer
    #[arg(long)]
    pub(crate) no_writer: bool,
}

/// Arguments of `run`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom run . --rw randread --bs 4k --qd 32 --size 1g --time 5s\n  fathom run . --rw randrw --read-share 70 --rate 20k --size 1g --time 10s --record\n  fathom run /dev/nvme0n1 --rw read --bs 128k --qd 16 --time 10s\n  fathom run . --jobs mixed.toml         [[job]] tables with the same names; jobs of one group run together"
)]
pub(crate) struct RunArgs {
    /// Directory, file, block device or null: (may stand in the job file instead)
    #[arg(required_unless_present = "jobs")]
    pub(crate) target: Option<String>,
    /// A TOML file of jobs; options on the command line then hold for all of them
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) jobs: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `compare`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom compare fathom-runs/BEFORE fathom-runs/AFTER\n  fathom compare base.json new.json --markdown --threshold 3%   for CI: exit 1 if a metric got worse by 3 % or more\n  fathom compare fathom-runs/*-survey                           the history of several runs\nExit codes: 0 nothing got worse, 1 something did, 2 not comparable (see --allow)."
)]
pub(crate) struct CompareArgs {
    /// Run directories or their run.json: A, B and, for a history, more
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// A condition that may differ, such as size or kernel (may be given several times)
    #[arg(long, value_name = "CONDITION")]
    pub(crate) allow: Vec<String>,
    /// Smallest worsening that fails, percent
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub(crate) threshold: String,
    /// Show every job too
    #[arg(long)]
    pub(crate) jobs: bool,
    /// Print Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `ab`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom ab . --size 1g --rw randread --a \"qd=16\" --b \"qd=32\"\n  fathom ab . --size 1g --qd 8 --a \"engine=uring\" --b \"engine=preadv\" --blocks 10\nOther job options hold for both. Exit codes: 0 B is not worse, 1 it is in some metric, 2 usage or refused."
)]
pub(crate) struct AbArgs {
    /// Directory, file, block device or null:
    pub(crate) target: String,
    /// Job options of A: \"qd=32 engine=preadv\" or \"--qd 32\"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) a: String,
    /// Job options of B
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) b: String,
    /// Blocks of A B B A
    #[arg(long, default_value_t = 8)]
    pub(crate) blocks: u32,
    /// Smallest worsening that fails, percent
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub(crate) threshold: String,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `devices`.
#[derive(Args)]
pub(crate) struct DevicesArgs {
    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show loop, RAM and zram devices without a medium too
    #[arg(long)]
    pub(crate) all: bool,
}

/// Arguments of `report`.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Run directory or its run.json [default: the newest in fathom-runs]
    pub(crate) run: Option<PathBuf>,
    /// Format: html (into the run directory), terminal, json, csv or markdown
    #[arg(long, default_value = "html")]
    pub(crate) format: String,
    /// Directory for exported files [default: the run directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print run.json on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `clean`.
#[derive(Args)]
pub(crate) struct CleanArgs {
    /// Directory to look in
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Only show them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

//! The commands and their arguments.

mod app;
mod hosts;
mod kv;
mod labs;
mod loads;
mod runs;
mod tune;
pub(crate) mod version;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fathom_bench::cpu::CpuSetting;
use fathom_experiments::reproduce::ReproduceOptions;
use fathom_experiments::stack::StackOptions;
use fathom_system::filesystem::{FileSystem, file_systems};
use fathom_telemetry::Nanos;

use crate::job_args::JobArgs;
pub(crate) use app::{CopyArgs, SwapLoadArgs};
pub(crate) use hosts::HostsArgs;
pub(crate) use kv::{KvArgs, PagesArgs};
pub(crate) use labs::{GuestArgs, RaidArgs, VmArgs};
pub(crate) use loads::{ConditionArgs, PtsArgs, ReplayArgs, WatchArgs, WearArgs};
pub(crate) use runs::{LabelArgs, QueryArgs, ReportArgs, RunsArgs};
pub(crate) use tune::{KeepSettingsArgs, TuneArgs};

/// Arguments of the far side of a lab.
#[derive(Args)]
pub(crate) struct GuestAgentArgs {}

/// Where results go.
#[derive(Args, Clone)]
pub(crate) struct OutArgs {
    /// Directory that receives the run's directory
    #[arg(long, value_name = "DIR", default_value = fathom_telemetry::rundir::RUNS_DIR, help_heading = "Results")]
    pub(crate) out: PathBuf,
    /// Print run.json on standard output instead of the summary; with --dry-run, phases, time and bytes
    #[arg(long, help_heading = "Results")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) labels: LabelArgs,
}

/// What weights results.
#[derive(Args, Default)]
pub(crate) struct WorkloadArgs {
    /// Weight what is measured by depth by a profile of fathom watch: one number for your workload
    #[arg(long, value_name = "PROFILE")]
    pub(crate) workload: Option<PathBuf>,
}

/// How the processors are kept while latency is measured.
#[derive(Args, Default)]
pub(crate) struct CpuArgs {
    /// Processors while latency is measured: as-is, busy (a thread of the lowest priority on every core)
    /// or low-latency (no idle states; root); the difference to as-is is measured and reported
    #[arg(long = "cpu", value_name = "SETTING", default_value = "as-is")]
    pub(crate) setting: CpuSetting,
}

/// How long and how often: the same for every measuring command.
#[derive(Args, Clone, Default)]
pub(crate) struct LengthArgs {
    /// Length of each measurement, what is left out at its start not counted [default: the profile's]
    #[arg(long, value_name = "DURATION")]
    pub(crate) time: Option<Nanos>,
    /// Left out at the start of each measurement [default: the profile's, at most a quarter of --time]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ramp: Option<Nanos>,
    /// Repeats of each measurement [default: the profile's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: Option<u32>,
}

/// What is measured, how long, and what it may cost: the same for every measuring command.
#[derive(Args, Clone)]
pub(crate) struct MeasureArgs {
    /// Directory, file, block device, null: or sim:MODEL (see fathom sim list)
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// quick, standard or full: length and number of repeats
    #[arg(long, default_value = "quick")]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) length: LengthArgs,
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
    pub(crate) mkfs: MkfsArgs,
    #[command(flatten)]
    pub(crate) hosts: HostsArgs,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// A file system between a device and what is measured.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct MkfsArgs {
    /// Make this file system on the block device, which --destroy permits, and work in a directory there: ext4, xfs or btrfs
    #[arg(id = "mkfs", long = "mkfs", value_name = "KIND", requires = "destroy", value_parser = file_system)]
    pub(crate) kind: Option<&'static FileSystem>,
}

pub(crate) fn file_system(name: &str) -> Result<&'static FileSystem, String> {
    FileSystem::named(name).ok_or_else(|| format!("expected {}", file_systems().join(", ")))
}

/// Arguments of `run`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom run . --rw randread --bs 4k --qd 32 --size 1g --time 5s\n  fathom run . --rw randrw --read-share 70 --rate 20k --size 1g --time 10s --record\n  fathom run /dev/nvme0n1 --rw read --bs 128k --qd 16 --time 10s\n  fathom run . --jobs mixed.toml         [[job]] tables with the same names; jobs of one group run together"
)]
pub(crate) struct RunArgs {
    /// Directory, file, block device, null: or sim:MODEL (may stand in the job file instead)
    #[arg(required_unless_present = "jobs")]
    pub(crate) target: Option<String>,
    /// A TOML file of jobs; options on the command line then hold for all of them
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) jobs: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) cpu: CpuArgs,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: HostsArgs,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `compare`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom compare fathom-runs/BEFORE fathom-runs/AFTER\n  fathom compare --baseline main fathom-runs/NEW                with the newest run labelled baseline=main\n  fathom compare base.json new.json --markdown --threshold 3%   for CI: exit 1 if a metric got worse by 3 % or more\n  fathom compare fathom-runs/*-survey                           the history of several runs\n  fathom compare --devices OPTANE SSD DISK --prices 549,120,60  which one to buy: sizes, hosts and kinds may differ\n  fathom compare --devices MINE --vs zhang2018                  beside what was published of the same loads\nExit codes: 0 nothing got worse, 1 something did, 2 not comparable (see --allow); with --devices 2 only where no metric is in two runs or published."
)]
pub(crate) struct CompareArgs {
    /// Run directories or their run.json: A, B and, for a history, more; with --baseline NAME, one will do
    #[arg(required = true, num_args = 1.., value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Devices beside each other: differing conditions are described, not refused; what several have is compared
    #[arg(long, conflicts_with_all = ["allow", "jobs"])]
    pub(crate) devices: bool,
    /// Compare with the newest run beside the first one that is labelled baseline=NAME; with --devices, the number of the
    /// run that the others are measured by [default: 1]
    #[arg(long, value_name = "NAME|N")]
    pub(crate) baseline: Option<String>,
    /// With --devices: what each costs, in the order of the runs; throughput is divided by it
    #[arg(
        long,
        value_name = "PRICE,…",
        requires = "devices",
        value_delimiter = ','
    )]
    pub(crate) prices: Vec<f64>,
    /// With --devices: the figures that a paper published of the same loads beside them (see fathom reproduce)
    #[arg(long, value_name = "PAPER", requires = "devices")]
    pub(crate) vs: Option<String>,
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
    /// Print JUnit's XML: a test per metric, for CI
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub(crate) junit: bool,
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
    /// Directory, file, block device, null: or sim:MODEL (see fathom sim list)
    pub(crate) target: String,
    /// Job options of A: \"qd=32 engine=preadv\" or \"--qd 32\"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) a: String,
    /// Job options of B
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) b: String,
    /// Blocks of A B B A or B A A B
    #[arg(long, default_value_t = fathom_experiments::ab::BLOCKS)]
    pub(crate) blocks: u32,
    /// Smallest worsening that fails, percent
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub(crate) threshold: String,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Serial number (or path, where there is none) of the block device whose data may be destroyed
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `stack`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom stack .                          4 KiB random reads and writes, QD 1 and 32, direct and buffered\n  fathom stack . --rw randread --qd 1 --direct --engine uring\n  fathom stack . --rw randread --qd 1 --direct --engine uring --what-if\n  fathom stack /var/lib/vm --pid $(pidof qemu-system-x86_64) --time 10s   the host's side, while the guest does I/O\n  fathom stack --combine GUEST-RUN HOST-RUN   guest software, virtualization, host software, device\nTracing needs root (or write access to tracefs); without, the reduced result says what is missing."
)]
pub(crate) struct StackArgs {
    /// Directory, file, block device or sim:MODEL, whose stages are its layers
    #[arg(default_value = ".")]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) options: StackOptions,
    #[command(flatten)]
    pub(crate) cpu: CpuArgs,
    /// Watch this process (a VMM) on the target's disk for --time instead of doing I/O: the host's side
    #[arg(long, value_name = "PID", conflicts_with_all = ["what_if", "record", "destroy", "rw", "direct", "buffered", "engine", "iopoll"], help_heading = "Virtual machines")]
    pub(crate) pid: Option<u32>,
    /// Put a guest's result and its host's (--pid) together: two run directories
    #[arg(long, num_args = 2, value_names = ["GUEST", "HOST"], conflicts_with_all = ["pid", "what_if", "record", "destroy"], help_heading = "Virtual machines")]
    pub(crate) combine: Vec<PathBuf>,
    /// Write one row per I/O with every boundary: stack-CASE.parquet, or stack-CASE.jsonl with --record=json
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "parquet", value_parser = ["parquet", "json"])]
    pub(crate) record: Option<String>,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
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

/// Arguments of `completions`.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// The command, such as survey or db mysql [default: fathom itself]
    pub(crate) command: Vec<String>,
    /// Print the names of all commands that have a page
    #[arg(long)]
    pub(crate) list: bool,
}

/// Arguments of `doctor`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom doctor            what works here, and one command that brings what packages can\n  fathom doctor --fetch    a kernel for guests of fathom vm, without installing anything"
)]
pub(crate) struct DoctorArgs {
    /// Bring a kernel for guests: Debian's (27 MB, unpacked into the cache, not installed)
    #[arg(long, conflicts_with = "json")]
    pub(crate) fetch: bool,
    /// Print JSON
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
    /// Remove targets that --create made, too
    #[arg(long)]
    pub(crate) kept: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `reproduce`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom reproduce zhang2018             every value on the models of the paper's devices\n  fathom reproduce han2021 --figure fig4  one figure\n  fathom reproduce zhang2018 --on .      the paper's experiments on a scratch file of its size here\n  fathom reproduce han2021 --on . --size 8g --time 5s --repeats 2\n                                         smaller and shorter than in the paper"
)]
pub(crate) struct ReproduceArgs {
    /// Run the paper's experiments on this target instead of on models: directory, file, device or sim:MODEL; a second one
    /// stands for the device that the paper holds its own against (NAND, SATA), and shows what the paper says of both
    #[arg(long, value_name = "TARGET")]
    pub(crate) on: Vec<String>,
    #[command(flatten)]
    pub(crate) options: ReproduceOptions,
    /// With --on: leave out the values that labs measure (fathom raid, vm, kv, db, compress)
    #[arg(long, requires = "on")]
    pub(crate) no_labs: bool,
    /// Take the values that labs measure from this run of fathom raid, vm, kv, db or compress; may be given several times
    #[arg(long, value_name = "RUN")]
    pub(crate) with: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) guest: GuestArgs,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Serial number (or path, where there is none) of a block device whose data may be destroyed; once for each
    #[arg(long, value_name = "SERIAL")]
    pub(crate) destroy: Vec<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Arguments of `sim fit`.
#[derive(Args)]
pub(crate) struct FitArgs {
    /// Run directories or their run.json, of one device
    #[arg(required = true, num_args = 1.., value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Measure what would narrow the predictions most, on the device of the runs, and fit again
    #[arg(long)]
    pub(crate) measure: bool,
    /// Of each load that --measure measures
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        requires = "measure"
    )]
    pub(crate) time: fathom_telemetry::Nanos,
    /// Where --measure keeps its run
    #[arg(
        long,
        value_name = "DIR",
        default_value = "fathom-runs",
        requires = "measure"
    )]
    pub(crate) out: PathBuf,
    /// Serial number (or path, where there is none) of the block device whose data --measure may destroy
    #[arg(
        long,
        value_name = "SERIAL",
        requires = "measure",
        help_heading = "Safety"
    )]
    pub(crate) destroy: Option<String>,
    /// File that receives the model [default: model.toml in the first run's directory]
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) file: Option<PathBuf>,
    /// Print model and residuals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with models.
#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Name them all
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a model's file, with the source of each value
    Show {
        /// Its name
        model: String,
        /// Print its values as JSON
        #[arg(long)]
        json: bool,
    },
    /// Fit a model to surveys of a device: its values and predictions with their intervals, what was held out beside what
    /// was predicted, and what to measure next; the model is a target then
    Fit(FitArgs),
    /// Formulas that need no simulation: cache hits, page size, RAID, key-value ceiling
    #[command(subcommand)]
    Model(FormulaCommand),
    /// Check a model file, or any simulated target
    Check {
        /// File or target
        target: String,
        /// Print what it stands for as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `fio`, which reads them itself.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct FioArgs {
    /// As fio takes them; see `fathom fio --help`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub(crate) args: Vec<String>,
}

/// The papers' formulas.
#[derive(Subcommand)]
pub(crate) enum FormulaCommand {
    /// Mean latency of reads through a cache (Zhang et al. 2018, eq. 1)
    Cache {
        /// Share of hits, percent
        #[arg(long)]
        hits: f64,
        /// Latency of the device
        #[arg(long)]
        io: fathom_telemetry::Nanos,
        /// Latency of the cache
        #[arg(long, default_value = "100ns")]
        load: fathom_telemetry::Nanos,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Ideal page size of a database (Zhang et al. 2018, eqs. 2-10)
    Page {
        /// A survey that gives the seek time (random minus sequential latency) and the bandwidth
        #[arg(long, value_name = "RUN")]
        run: Option<PathBuf>,
        /// Random minus sequential latency of the device, where no run gives it
        #[arg(long)]
        seek: Option<fathom_telemetry::Nanos>,
        /// Bandwidth of the device in GB/s, where no run gives it
        #[arg(long)]
        bandwidth: Option<f64>,
        /// Application, per page
        #[arg(long, default_value = "5us")]
        app: fathom_telemetry::Nanos,
        /// Software stack, per page of 4 KiB (fathom stack measures it)
        #[arg(long, default_value = "5.6us")]
        stack: fathom_telemetry::Nanos,
        /// Range requests per point request
        #[arg(long, default_value_t = 0.1)]
        ranges: f64,
        /// Mean size of a range request
        #[arg(long, default_value = "64k")]
        range: fathom_telemetry::Bytes,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Throughput to expect of an array, in multiples of one device (Han et al. 2021, and what md does)
    Raid {
        /// 0, 1, 5, 6 or 10
        level: u32,
        /// Devices
        devices: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Inserts per second of a key-value store that outgrows memory (O'Neill 2018)
    Kv {
        /// I/Os per second of the device
        #[arg(long)]
        iops: f64,
        /// I/Os per insert once nothing is in memory
        #[arg(long, default_value_t = 2.0)]
        ios: f64,
        /// Memory for pages
        #[arg(long, default_value = "16g")]
        memory: fathom_telemetry::Bytes,
        /// Data in the store
        #[arg(long)]
        data: Option<fathom_telemetry::Bytes>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

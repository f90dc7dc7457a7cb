//! Every command is one entry here. From the entries come the command line and its help in groups, how saved results are
//! shown, the labs that run inside of arrays and machines, and the index of the pages (a test holds docs/README.md to it).

use std::ffi::OsString;

use clap::{ArgMatches, Args, Command as Clap, CommandFactory, FromArgMatches, Parser, Subcommand};
use fathom_bench::results::Presenter;
use fathom_bench::steadiness::RegimesResult;
use fathom_experiments::{
    ab::AbResult,
    applications::ApplicationsResult,
    block_layer::BlockLayerResult,
    burst::{BurstOptions, BurstResult},
    coherence::{CoherenceOptions, CoherenceResult},
    compression::{CompressionOptions, CompressionResult},
    condition::{ConditionPlan, ConditionResult},
    cpu::CpuResult,
    curve::{CurveOptions, CurveResult},
    drive::DriveResult,
    endurance::EnduranceResult,
    metadata::{MetadataOptions, MetadataResult},
    mix::{MixOptions, MixResult},
    neighbour::{NeighbourOptions, NeighbourResult},
    pages::PagesResult,
    plan::{PlanOptions, PlanResult},
    pts::PtsResult,
    purge::PurgeResult,
    replay::ReplayResult,
    reproduce::Reproduction,
    scale::{ScaleOptions, ScaleResult},
    sizes::{SizesOptions, SizesResult},
    slo::{SloOptions, SloResult},
    stack::StackReport,
    survey::{SurveyOptions, SurveyResult},
    tune::TuneResult,
    workload::{Profile, WorkloadResult},
    zones::{ZonesOptions, ZonesResult},
};
use fathom_labs::{
    app::{copy::CopyResult, swap::SwapResult},
    cache::{CacheOptions, CacheResult},
    db::{oltp::OltpResult, rocksdb::RocksResult, scripted::SqlResult, tpcc::TpccResult},
    kv::KvResult,
    paths::{PathsOptions, PathsResult},
    raid::{RaidResult, within::WithinResult},
    vm::{VmResult, filesystems::FilesResult, layers::LayersResult, within::SidesResult},
};

use crate::cli::{
    AbArgs, CleanArgs, CompareArgs, CompletionsArgs, ConditionArgs, DevicesArgs, DoctorArgs,
    FioArgs, GuestAgentArgs, KeepSettingsArgs, KvArgs, ManArgs, PagesArgs, PtsArgs, QueryArgs,
    RaidArgs, ReplayArgs, ReportArgs, ReproduceArgs, RunArgs, RunsArgs, SimCommand, StackArgs,
    SwapLoadArgs, TuneArgs, VmArgs, WatchArgs,
};
use crate::commands::measured::Measured;
use crate::commands::{
    ab, app, clean, compare, condition, db, devices, doctor, fio, guest_agent, kv, measured, pages,
    pts, query, raid, replay, report, reproduce, run, runs, shell, sim, stack, tune, vm, watch,
};
use crate::exit::Outcome;
use crate::known::{Known, Nests, tell};

/// Where a command stands in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Measure,
    Explain,
    Labs,
    Compare,
    Tools,
    /// Fathom calls it by itself.
    Hidden,
}

/// Measures what a storage stack really delivers, shows where each microsecond goes, and says what to configure.
#[derive(Parser)]
#[command(
    name = "fathom",
    version = crate::cli::version::SHORT,
    long_version = crate::cli::version::long(),
    max_term_width = 100,
    after_help = "Start with: fathom survey\nNothing is destroyed: reads need no permission, writes go only to files that fathom made, or to a\nblock device whose serial number you typed after --destroy.\nExit codes: 0 done, 1 the measurement failed, is void or was cut short, 2 usage or refused for safety."
)]
pub(crate) struct Cli {
    /// Watch measuring commands on the full screen: rates, percentiles, a heat map of latency over time,
    /// threads, disks (keys: p pauses the view, q ends early and keeps the results)
    #[arg(long, global = true, help_heading = "Results")]
    pub(crate) tui: bool,
    /// Make a file of --size where the target does not exist; it stays (fathom clean lists it)
    #[arg(long, global = true, help_heading = "Safety")]
    pub(crate) create: bool,
    /// What the target costs: 549, $0.12/h or 35/month; $/GB and price-performance follow (compare --devices)
    #[arg(long, global = true, value_name = "PRICE", help_heading = "Results")]
    pub(crate) price: Option<fathom_telemetry::Price>,
    /// Ask the metadata service of AWS, Google Cloud or Azure what instance and volumes these are, and keep it with the run
    #[arg(long, global = true, help_heading = "Results")]
    pub(crate) cloud: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A command whose arguments were read.
pub(crate) type Ready = Box<dyn Fn() -> Outcome>;

/// A command.
struct Entry {
    name: &'static str,
    group: Group,
    /// Below docs/.
    page: &'static str,
    nests: Nests,
    about: &'static str,
    arguments: fn(Clap) -> Clap,
    ready: fn(&ArgMatches) -> Result<Ready, clap::Error>,
    /// How what it saves is shown.
    presenters: &'static [Presenter],
}

/// An entry: name, group, page, arguments and what they are handed to, results, help.
macro_rules! entry {
    ($name:literal $group:ident $page:literal $nests:ident, $args:ty => $run:path, [$($result:ty),*], $about:literal) => {
        entry!(@ $name $group $page $nests, $args => $run, [$($result),*], $about, <$args>::augment_args)
    };
    (of $name:literal $group:ident $page:literal $nests:ident, $args:ty => $run:path, [$($result:ty),*], $about:literal) => {
        entry!(@ $name $group $page $nests, $args => $run, [$($result),*], $about, |c| {
            <$args>::augment_subcommands(c).subcommand_required(true).arg_required_else_help(true)
        })
    };
    (@ $name:literal $group:ident $page:literal $nests:ident, $args:ty => $run:path, [$($result:ty),*], $about:literal, $augment:expr) => {
        Entry {
            name: $name,
            group: Group::$group,
            page: $page,
            nests: Nests::$nests,
            about: $about,
            arguments: $augment,
            ready: |matches| {
                let args = <$args>::from_arg_matches(matches)?;
                Ok(Box::new(move || $run(&args)))
            },
            presenters: &[$(Presenter::of::<$result>()),*],
        }
    };
}

/// In the order of the help.
#[rustfmt::skip]
const REGISTRY: &[Entry] = &[
    entry!("survey" Measure "../README.md" No, Measured<SurveyOptions> => measured::run, [SurveyResult, EnduranceResult, ApplicationsResult],
        "The main job: latency, bandwidth, IOPS, depth sweep and mix, with a report"),
    entry!("run" Measure "jobs.md" No, RunArgs => run::run, [],
        "One job from flags, or a file of jobs"),
    entry!("fio" Measure "fio.md" No, FioArgs => fio::of, [],
        "fio's command line and job files, fio's output: a drop-in for scripts"),
    entry!("curve" Measure "methodology.md" No, Measured<CurveOptions> => measured::run, [CurveResult],
        "Load curve: latency against throughput in closed and open loop, with the knee"),
    entry!("mix" Measure "methodology.md" No, Measured<MixOptions> => measured::run, [MixResult],
        "Mix map: latency and IOPS over share of reads and depth"),
    entry!("burst" Measure "methodology.md" No, Measured<BurstOptions> => measured::run, [BurstResult],
        "Bursts that do not saturate, and what a light writer takes from sequential reads"),
    entry!("sizes" Measure "../crates/fathom-experiments/src/sizes/page.md" No, Measured<SizesOptions> => measured::run, [SizesResult],
        "Latency and bandwidth by size of the request, with the size from which on bytes cost more"),
    entry!("slo" Measure "../crates/fathom-experiments/src/slo/page.md" No, Measured<SloOptions> => measured::run, [SloResult],
        "The most requests per second that keep a percentile of the response within a limit: oltp, log, video …"),
    entry!("scale" Measure "../crates/fathom-experiments/src/scale/page.md" No, Measured<ScaleOptions> => measured::run, [ScaleResult],
        "Throughput and latency by number of hosts: the law of growth, fairness, stragglers (--hosts)"),
    entry!("neighbour" Measure "../crates/fathom-experiments/src/neighbour/page.md" No, Measured<NeighbourOptions> => measured::run, [NeighbourResult],
        "Latency of one host beside others that load the same target (--hosts)"),
    entry!("coherence" Measure "../crates/fathom-experiments/src/coherence/page.md" No, Measured<CoherenceOptions> => measured::run, [CoherenceResult],
        "What a host sees of another's work, and when: data, attributes, names, appends, locks (--hosts)"),
    entry!("metadata" Measure "../crates/fathom-experiments/src/metadata/page.md" No, Measured<MetadataOptions> => measured::run, [MetadataResult],
        "Create, stat, list, read, rename and remove files per second, in own and in one shared directory (--hosts)"),
    entry!("zones" Measure "../crates/fathom-experiments/src/zones/page.md" No, Measured<ZonesOptions> => measured::run, [ZonesResult],
        "Zoned devices (ZNS, SMR): throughput by open zones, appends against writes, resets and finishes, limits"),
    entry!("condition" Measure "conditioning.md" No, ConditionArgs => condition::condition, [ConditionPlan, ConditionResult],
        "Bring a device into a known state: purge, fill, overwrite, then a load until it is steady"),
    entry!("pts" Measure "conditioning.md" No, PtsArgs => pts::pts, [PtsResult],
        "The SNIA performance test specification: IOPS, throughput, latency, write saturation and more"),
    entry!("replay" Measure "replay.md" No, ReplayArgs => replay::replay, [ReplayResult],
        "Play a recorded trace: blktrace, fio, MSR, SPC, Alibaba or fathom's own, with its timing"),

    entry!("stack" Explain "stack.md" No, StackArgs => stack::stack, [StackReport],
        "Latency by layer: where the microseconds of an I/O go"),
    entry!("watch" Explain "watch.md" No, WatchArgs => watch::watch, [Profile],
        "Record a live system's I/O profile, read only: sizes, reads, order, depth, idle time, bursts"),
    entry!("tune" Explain "tune.md" No, TuneArgs => tune::tune, [TuneResult],
        "What limits a target, and what to set: each setting tried, proved on another job, and put back"),
    entry!("pages" Explain "pages.md" No, PagesArgs => pages::pages, [PagesResult],
        "The page size that a store should use here: predicted from the costs of a page, measured beside"),
    entry!("cache" Explain "cache.md" No, Measured<CacheOptions> => measured::run, [CacheResult],
        "How much of the data to keep in memory: latency, throughput and price by cached share, predicted and measured"),
    entry!("plan" Explain "../crates/fathom-experiments/src/plan/page.md" No, Measured<PlanOptions> => measured::run, [PlanResult],
        "What a load needs: how much of it is carried, until when, and which target carries it at which price"),
    entry!("paths" Explain "paths.md" No, Measured<PathsOptions> => measured::run, [PathsResult],
        "Block device or file system, past the page cache or through it: the same jobs on each, with kernel threads' CPU"),
    entry!("compress" Explain "compression.md" No, Measured<CompressionOptions> => measured::run, [CompressionResult],
        "Compression beside the device: codecs on your data, where they help and where they cost"),

    entry!(of "db" Labs "databases.md" Directory, db::DbCommand => db::db, [OltpResult, RocksResult, SqlResult, TpccResult],
        "Databases: private servers on a directory, beside what fathom's own tree gets there"),
    entry!("kv" Labs "kv.md" Device, KvArgs => kv::kv, [KvResult],
        "Key-value operations on fathom's own B+tree, beside what the raw device allows"),
    entry!(of "app" Labs "databases.md" Directory, app::AppCommand => app::app, [CopyResult, SwapResult],
        "Applications: ingest of many files, swapping"),
    entry!("raid" Labs "raid.md" No, RaidArgs => raid::raid, [RaidResult, WithinResult],
        "Arrays against what arithmetic promises: RAID 0, 1, 5, 6, 10, degraded, rebuilding"),
    entry!("vm" Labs "vm.md" No, VmArgs => vm::vm, [VmResult, FilesResult, LayersResult, SidesResult],
        "What a hypervisor costs: the host beside a machine, and how many machines fill the device"),

    entry!("compare" Compare "compare.md" No, CompareArgs => compare::compare, [],
        "Two runs: differences with intervals and a verdict; several runs: their history"),
    entry!("ab" Compare "compare.md" No, AbArgs => ab::ab, [AbResult],
        "One job with two settings, run in turns (A B B A or B A A B), with a verdict"),
    entry!("reproduce" Compare "simulator.md" No, ReproduceArgs => reproduce::reproduce, [Reproduction],
        "The figures of a paper beside those of the device models"),

    entry!("report" Tools "report.md" No, ReportArgs => report::report, [],
        "Remake the report of a run, export it, or put several runs on one page"),
    entry!("runs" Tools "report.md" No, RunsArgs => runs::runs, [],
        "Every run here, with labels and notes; one page with the history of each number"),
    entry!("query" Tools "query.md" No, QueryArgs => query::query, [],
        "SQL over a run: its I/Os, windows, jobs and findings; ready-made queries"),
    entry!("devices" Tools "devices.md" No, DevicesArgs => devices::devices, [],
        "Block devices and mounts: what they are, who uses them, whether fathom may read or write them"),
    entry!(of "sim" Tools "simulator.md" No, SimCommand => sim::sim, [],
        "The device models: targets whose name begins with sim:"),
    entry!("doctor" Tools "building.md" No, DoctorArgs => doctor::doctor, [],
        "What works on this machine, what is missing, and the one command that brings it"),
    entry!("clean" Tools "safety.md" No, CleanArgs => clean::clean, [],
        "Find scratch files and settings that killed runs left behind: remove them, put them back"),

    entry!("completions" Tools "integrations.md" No, CompletionsArgs => shell::completions, [],
        "Completions for a shell, on standard output"),
    entry!("man" Tools "integrations.md" No, ManArgs => shell::man, [],
        "The man page of fathom or of a command, on standard output"),

    entry!("guest-agent" Hidden "" No, GuestAgentArgs => guest_agent::guest_agent, [],
        "The far side of a lab: the first process of a guest, or behind ssh"),
    entry!("keep-settings" Hidden "" No, KeepSettingsArgs => tune::keep_settings, [],
        "Puts settings back where fathom tune was killed"),
    entry!("swap-load" Hidden "" No, SwapLoadArgs => app::swap_load, [],
        "The process that a lab lets swap"),
];

/// Results that several commands save.
const SHARED: &[Presenter] = &[
    Presenter::of::<BlockLayerResult>(),
    Presenter::of::<CpuResult>(),
    Presenter::of::<DriveResult>(),
    Presenter::of::<PurgeResult>(),
    Presenter::of::<RegimesResult>(),
    Presenter::of::<WorkloadResult>(),
];

/// Whether there is such a command.
pub(crate) fn has(name: &str) -> bool {
    REGISTRY.iter().any(|e| e.name == name)
}

/// Tells commands of each other.
pub(crate) fn introduce() {
    tell(Known {
        presenters,
        labs,
        command_line: whole,
    });
}

/// The command line in which the commands among these words have their arguments. The others get theirs when clap asks for them:
/// to declare some forty commands costs more than the rest of a short one.
pub(crate) fn command_line(words: &[OsString]) -> Clap {
    with_arguments(|name| words.iter().any(|w| w == name))
}

/// The whole command line.
pub(crate) fn whole() -> Clap {
    with_arguments(|_| true)
}

fn with_arguments(of: impl Fn(&str) -> bool) -> Clap {
    Cli::command().mut_subcommands(|clap| match of(clap.get_name()) {
        true => arguments(clap).defer(|clap| clap),
        false => clap,
    })
}

/// A command with its arguments.
fn arguments(clap: Clap) -> Clap {
    let entry = REGISTRY.iter().find(|e| e.name == clap.get_name());
    match entry {
        Some(entry) => entry.arguments(clap),
        None => clap,
    }
}

fn presenters() -> Vec<Presenter> {
    let commands = REGISTRY.iter().flat_map(|e| e.presenters);
    commands.chain(SHARED).copied().collect()
}

fn labs() -> Vec<(String, Nests)> {
    let mut all = Vec::new();
    for entry in REGISTRY.iter().filter(|e| e.nests != Nests::No) {
        let clap = entry.arguments(entry.clap());
        let parts: Vec<&str> = clap.get_subcommands().map(Clap::get_name).collect();
        match parts.is_empty() {
            true => all.push((entry.name.to_owned(), entry.nests)),
            false => all.extend(
                parts
                    .iter()
                    .map(|p| (format!("{} {p}", entry.name), entry.nests)),
            ),
        }
    }
    all
}

impl Entry {
    /// Its name and what it is for.
    fn clap(&self) -> Clap {
        Clap::new(self.name)
            .about(self.about)
            .hide(self.group == Group::Hidden)
            .defer(arguments)
    }

    /// That with its arguments.
    fn arguments(&self, clap: Clap) -> Clap {
        let clap = (self.arguments)(clap).about(self.about);
        if self.group == Group::Hidden {
            return clap;
        }
        let more = clap.get_after_help().map(|h| format!("{h}\n"));
        let page = match self.page.strip_prefix("../") {
            Some(page) => page.to_owned(),
            None => format!("docs/{}", self.page),
        };
        clap.after_help(format!("{}More: {page}", more.unwrap_or_default()))
    }
}

/// The command that was typed.
pub(crate) struct Command(Ready);

impl Command {
    /// Does it.
    pub(crate) fn run(&self) -> Outcome {
        (self.0)()
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let entry = REGISTRY
            .iter()
            .find(|e| e.name == name)
            .ok_or_else(missing)?;
        (entry.ready)(matches).map(Self)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(clap: Clap) -> Clap {
        clap.subcommands(REGISTRY.iter().map(Entry::clap))
            .help_template(template())
    }
    fn augment_subcommands_for_update(clap: Clap) -> Clap {
        Self::augment_subcommands(clap)
    }
    fn has_subcommand(name: &str) -> bool {
        has(name)
    }
}

/// The help of `fathom` itself: clap knows no groups of commands.
fn template() -> String {
    const NAME: usize = 12;
    const WIDTH: usize = 100;
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let groups = [
        (Group::Measure, "Measure"),
        (Group::Explain, "Explain and decide"),
        (Group::Labs, "Labs"),
        (Group::Compare, "Compare"),
        (Group::Tools, "Tools"),
    ];
    for (group, title) in groups {
        text += &format!("\n{title}:\n");
        for entry in REGISTRY.iter().filter(|e| e.group == group) {
            let mut line = format!("  {:NAME$}", entry.name);
            for word in entry.about.split(' ') {
                if line.len() + word.len() >= WIDTH {
                    text += line.trim_end();
                    text.push('\n');
                    line = " ".repeat(NAME + 2);
                }
                line += word;
                line.push(' ');
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        whole().debug_assert();
    }

    #[test]
    fn a_command_that_is_asked_for_late_is_declared_like_the_others() {
        // Options of all commands come first where clap declares a command late, so the lines are sorted.
        fn help(mut root: Clap) -> Vec<Vec<String>> {
            root.build();
            let lines = |c: &mut Clap| {
                let text = c.render_long_help().to_string();
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort_unstable();
                lines
            };
            root.get_subcommands_mut().map(lines).collect()
        }
        let early = help(whole());
        let late = help(command_line(&["fathom".into(), "db".into()]));
        assert_eq!(early.len(), late.len());
        for (early, late) in early.iter().zip(&late) {
            assert_eq!(early, late);
        }
        assert!(early[0].iter().any(|l| l.contains("--profile")));
    }

    #[test]
    fn the_help_has_every_command_in_its_group() {
        let help = Cli::command().render_help().to_string();
        for entry in REGISTRY {
            let shown = help.contains(&format!("\n  {} ", entry.name));
            assert_eq!(
                shown,
                entry.group != Group::Hidden,
                "{}:\n{help}",
                entry.name
            );
        }
        let long: Vec<&str> = help.lines().filter(|l| l.len() > 100).collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn the_index_of_the_pages_has_every_command() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let index = std::fs::read_to_string(docs.join("README.md")).unwrap();
        for entry in REGISTRY.iter().filter(|e| e.group != Group::Hidden) {
            assert!(
                docs.join(entry.page).is_file(),
                "{}: {}",
                entry.name,
                entry.page
            );
            if entry.page.contains("crates/") {
                // In the experiment's own folder; the index says where these lie.
                assert!(index.contains("crates/fathom-experiments/src"));
                continue;
            }
            let row = index.lines().find(|l| {
                let named = l.contains(&format!("`fathom {}`", entry.name))
                    || l.contains(&format!("`{}`", entry.name));
                named && l.contains(&format!("({})", entry.page))
            });
            assert!(
                row.is_some(),
                "docs/README.md has no row with `{}` and {}",
                entry.name,
                entry.page
            );
        }
    }

    #[test]
    fn every_command_that_saves_results_is_presented_anew_in_a_test() {
        let tests = include_str!("../tests/cli/presented.rs");
        for entry in REGISTRY.iter().filter(|e| !e.presenters.is_empty()) {
            assert!(
                tests.contains(&format!("\"{} ", entry.name)),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn every_result_is_shown_by_one_entry() {
        let all = presenters();
        for (i, p) in all.iter().enumerate() {
            assert!(
                all[..i].iter().all(|q| q.experiment != p.experiment),
                "{}",
                p.experiment
            );
        }
    }

    #[test]
    fn labs_that_run_inside_of_others_are_known_by_what_is_typed() {
        let names: Vec<String> = labs().into_iter().map(|n| n.0).collect();
        assert_eq!(
            names,
            [
                "db mysql",
                "db tpcc",
                "db sql",
                "db rocksdb",
                "kv",
                "app copy",
                "app swap"
            ]
        );
    }
}

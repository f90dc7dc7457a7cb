//! One section into the shape of a job: what to do, where, and what to say of it.
//!
//! Sizes in percent and the end of the range wait for the target: [`Shape::settle`].

mod draws;
mod errors;
mod load;
mod pace;
mod place;
pub(crate) mod priority;
pub(crate) mod recipe;
mod settle;
mod spec;
mod terms_of_thread;
mod zoned;

use std::path::PathBuf;

use fathom_io::JobSpec;
use fathom_telemetry::Nanos;

use crate::FioError;
use crate::engine::Own;
use crate::feed::replay::Replay;
use crate::options::value::Quantity;
use crate::options::{EngineFate, Fate};
use crate::section::{self, Section};
use spec::Known;

/// Where the I/O goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere.
    Null,
    /// A file or device.
    Path(PathBuf),
    /// A model, by its name (`sim:MODEL`).
    Sim(String),
}

/// An amount or a place, perhaps relative to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything that is there.
    Whole,
    /// So many bytes.
    Bytes(u64),
    /// So much of the target.
    Percent(u64),
}

impl Extent {
    /// Of an offset nobody gave: nothing.
    fn or_none(self) -> Self {
        match self {
            Self::Whole => Self::Bytes(0),
            other => other,
        }
    }
    /// Of an option, which may count zones of so many bytes.
    fn of(s: &Section, option: &str, zone: Option<u64>) -> Result<Self, FioError> {
        let (q, job) = (s.quantity(option), s.name.as_str());
        match q {
            None | Some(Quantity::Plain(0)) => Ok(Self::Whole),
            Some(Quantity::Plain(v)) => u64::try_from(v).map(Self::Bytes).map_err(|_| {
                FioError::value(job, option, format!("{v} is not possible: expected a size"))
            }),
            Some(Quantity::Percent(p)) if p <= 100 => Ok(Self::Percent(p)),
            Some(Quantity::Percent(p)) => Err(FioError::value(
                job,
                option,
                format!("{p}% is not possible: expected at most 100%"),
            )),
            Some(Quantity::Zones(n)) => zone
                .and_then(|z| z.checked_mul(n))
                .map(Self::Bytes)
                .ok_or_else(|| {
                    FioError::value(
                        job,
                        option,
                        "zones are counted where zonemode=zbd is set: give bytes",
                    )
                }),
        }
    }
    fn bytes(self, whole: u64) -> u64 {
        match self {
            Self::Whole => whole,
            Self::Bytes(b) => b,
            Self::Percent(p) => (u128::from(whole) * u128::from(p) / 100) as u64,
        }
    }
}

/// fio's logs that the job asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// Prefix of the bandwidth log.
    pub bandwidth: Option<String>,
    /// Prefix of the latency logs.
    pub latency: Option<String>,
    /// Prefix of the IOPS log.
    pub iops: Option<String>,
    /// Prefix of the histogram log.
    pub histogram: Option<String>,
    /// Distance of histograms, ms.
    pub histogram_ms: u64,
    /// So many of fio's buckets are one, as a power of two.
    pub coarseness: u32,
    /// Compressed while they are written.
    pub packed: bool,
    /// Times are ms since 1970.
    pub epoch: bool,
    /// Distance of entries, ms.
    pub average_ms: u64,
    /// The name carries the job's number.
    pub per_job: bool,
    /// A column for offsets.
    pub offset: bool,
    /// The priority is in hexadecimal.
    pub priority: bool,
    /// A column for the time of issue.
    pub issue_time: bool,
    /// Mean and maximum of each period.
    pub both: bool,
    /// The maximum of each period.
    pub largest: bool,
}

impl Logs {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.bandwidth.is_some() || self.latency.is_some() || self.iops.is_some()
    }
    /// Whether histograms are kept.
    pub fn histograms(&self) -> bool {
        self.histogram.is_some() && self.histogram_ms > 0
    }
}

pub use errors::Errors;
pub use terms_of_thread::ThreadTerms;

/// `cgroup` and its companions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    /// Below where control groups are mounted.
    pub name: String,
    /// It stays when the job has ended.
    pub keep: bool,
    /// `cgroup_weight`.
    pub weight: Option<u64>,
}

impl ControlGroup {
    fn of(s: &Section) -> Option<Self> {
        let weight = s.positive("cgroup_weight");
        let name = s.text("cgroup");
        // As in fio a weight alone makes a group of the job's name.
        let name = name.or(weight.map(|_| s.name.as_str()))?;
        Some(Self {
            name: name.to_owned(),
            keep: s.flag("cgroup_nodelete", false),
            weight,
        })
    }
}

/// What ends with a job that ends (`exitall`, `exitall_on_error`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitWhat {
    /// Jobs of its group.
    Group,
    /// Jobs that run.
    Running,
    /// All, those that wait included.
    All,
}

impl ExitWhat {
    fn of(s: &Section) -> Self {
        match s.get("exit_what") {
            Some("stonewall") => Self::Running,
            Some("all") => Self::All,
            _ => Self::Group,
        }
    }
}

/// How files of a task are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// Blocks are allocated as they are written.
    pub sparse: bool,
    /// Filled before writes too.
    pub overwrite: bool,
    /// Never filled.
    pub bare: bool,
    /// As large as there is room.
    pub all_room: bool,
    /// Read once before the job, so that the page cache holds it.
    pub pre_read: bool,
    /// Made durable once it is laid out.
    pub durable: bool,
    /// How long its data lives, in the kernel's number; 0 where nothing is said.
    pub hint: u64,
}

impl Layout {
    fn of(s: &Section) -> Self {
        Self {
            sparse: matches!(s.get("fallocate"), Some("none" | "0" | "truncate")),
            overwrite: s.flag("overwrite", false),
            bare: s.flag("create_on_open", false),
            all_room: s.flag("fill_device", false),
            pre_read: s.flag("pre_read", false),
            durable: s.flag("create_fsync", true),
            hint: match s.get("write_hint") {
                Some("none") => 1,
                Some("short") => 2,
                Some("medium") => 3,
                Some("long") => 4,
                Some("extreme") => 5,
                _ => 0,
            },
        }
    }
}

/// How reads and writes are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unified {
    /// Apart.
    None,
    /// Together.
    Mixed,
    /// Both ways.
    Both,
}

/// What the output needs to know beside the measure.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Percentiles in ascending order.
    pub percentiles: Vec<f64>,
    /// Percentiles of submission, completion, total latency.
    pub percentiles_of: [bool; 3],
    /// Latencies that are left out: submission, completion, total.
    pub disabled: [bool; 3],
    /// No samples of bandwidth and IOPS.
    pub no_samples: bool,
    /// One result per group.
    pub group_reporting: bool,
    /// How reads and writes are shown.
    pub unified: Unified,
    /// Free text.
    pub description: String,
    /// Distance of bandwidth and IOPS samples.
    pub sample: [Nanos; 2],
    /// Errors are counted and do not end the job.
    pub continue_on_error: bool,
    /// Engine as asked for.
    pub engine: String,
    /// Whether that engine is synchronous.
    pub synchronous: bool,
    /// Depth as asked for.
    pub depth: u32,
    /// Latency target in µs, share that must hold it in percent, window in µs.
    pub latency: (u64, f64, u64),
    /// Appears in the output.
    pub stats: bool,
    /// Device counters in the output.
    pub disk_util: bool,
    /// fio's word for the pattern.
    pub rw: String,
    /// Smallest and largest block of reads, writes and trims.
    pub blocks: [(u64, u64); 3],
    /// Digits of numbers in the text form.
    pub digits: usize,
    /// Digits behind the point of percentiles in the text form.
    pub percentile_digits: usize,
    /// 1024 or 1000.
    pub kb_base: u64,
    /// 1 where bits are shown, otherwise bytes.
    pub unit_base: u64,
}

impl Terms {
    /// Unit of speeds in the text form.
    pub(crate) fn unit(&self) -> crate::output::num2str::Unit {
        match self.unit_base {
            1 => crate::output::num2str::Unit::BitPerSecond,
            _ => crate::output::num2str::Unit::BytePerSecond,
        }
    }
}

/// A job as far as its section alone decides it.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Range, amounts and seed are settled later.
    pub spec: JobSpec,
    /// Where.
    pub place: Place,
    /// Size that each file must have, or the least and the most.
    pub file_size: Option<(u64, u64)>,
    /// Range.
    pub size: Extent,
    /// Amount, where it differs from the range.
    pub io_size: Option<Extent>,
    /// Start of the range.
    pub offset: Extent,
    /// Added to the start for every clone.
    pub offset_increment: Extent,
    /// A percentage offset is rounded down to this.
    pub offset_align: u64,
    /// Duplicates are taken from this share of the size, percent.
    pub working_set: Option<u64>,
    /// Passes.
    pub loops: u64,
    /// The amount is no limit.
    pub time_based: bool,
    /// Wait before the start.
    pub start_delay: Nanos,
    /// Bytes of memory that are locked meanwhile.
    pub lockmem: u64,
    /// Has no I/O: it keeps a processor busy (cpuio), or a program runs (exec).
    pub computes: bool,
    /// Does its I/Os itself.
    pub(crate) own: Option<Own>,
    /// Bytes of the job, or of its group, that are not measured; 0 for none.
    pub ramp_size: u64,
    /// The control group that it runs in.
    pub group: Option<ControlGroup>,
    /// The scheduler of its disks.
    pub scheduler: Option<String>,
    /// Ends with the last job that has I/O.
    pub exit_on_io_done: bool,
    /// fsync when done.
    pub sync_at_end: bool,
    /// Remove the file afterwards, if it was made for this run.
    pub unlink: bool,
    /// Drop the file from the page cache first.
    pub invalidate: bool,
    /// Only lay the file out.
    pub create_only: bool,
    /// A missing file may be made.
    pub may_create: bool,
    /// An error ends others too.
    pub exit_all_on_error: bool,
    /// The end of any job ends others.
    pub exit_all: bool,
    /// Which others.
    pub exit_what: ExitWhat,
    /// How its files are made.
    pub layout: Layout,
    /// What its thread asks for itself.
    pub thread: ThreadTerms,
    /// Bytes per second that reads, writes and trims must reach, or the job fails; and over which time.
    pub rate_min: Option<([f64; 3], Nanos)>,
    /// The file system is synced at the end.
    pub sync_fs_at_end: bool,
    /// Commands of the shell before and after the job.
    pub commands: [Option<String>; 2],
    /// A fresh seed in every run.
    pub random_seed: bool,
    /// Offsets are seeded as in fio before 3.35.
    pub(crate) fixed_seeds: bool,
    /// Logs.
    pub logs: Logs,
    /// For the output.
    pub terms: Terms,
    /// What becomes of errors.
    pub errors: Errors,
    /// Ends when steady.
    pub steady: Option<crate::Steady>,
    /// Files beside the first.
    pub more: Vec<Place>,
    /// Where files are whose names come from the job's; `None` where they are named.
    pub base: Option<PathBuf>,
    /// What goes beyond a plain job.
    pub(crate) recipe: std::sync::Arc<recipe::Recipe>,
    /// I/Os to be replayed.
    pub(crate) replay: Option<std::sync::Arc<Replay>>,
    /// Options that are not served; `--lenient` goes on without them.
    pub ignored: Vec<FioError>,
    /// Options that change nothing that is measured, with the reason.
    pub accepted: Vec<String>,
}

/// Ten years.
pub const FOR_EVER: Nanos = Nanos(10 * 365 * 86_400 * 1_000_000_000);

impl Shape {
    /// Makes the shape of one clone of a section.
    pub(crate) fn of(s: &Section, clone: u32) -> Result<Self, FioError> {
        let fate = served(s)?;
        let (ignored, accepted) = unserved(s);
        let fake = matches!(fate, EngineFate::Null | EngineFate::Apart);
        // Objects have their places in their names.
        let apart = fate == EngineFate::Apart && s.engine() != "http";
        let (recipe, own, replay) = load(s, clone, fake, apart)?;
        let (logs, errors) = (place::logs(s), Errors::of(s)?);
        let known = Known {
            recipe: &recipe,
            replay: replay.as_ref(),
            logs: &logs,
            errors: &errors,
            fake,
            synchronous: spec::synchronous(fate),
            program: matches!(own, Some(Own::Exec(_))),
            depth: spec::depth(s)?,
        };
        let spec = known.spec(s, clone)?;
        let places = place::places(s, clone, fate, recipe.files)?;
        let mut more = match &replay {
            Some(r) if !fake => place::replayed(s, r),
            _ => places,
        };
        let first = more.remove(0);
        excluded(s, &recipe, &spec)?;
        let computes = known.computes(s);
        let zone = recipe.zoned.map(|z| z.size);
        let offset = offset(s, zone, place::end_of_file(s, &first, more.len())?)?;
        let calls = own.as_ref().is_some_and(Own::only_calls);
        let terms = terms(s, known, own.as_ref())?;
        Ok(Self {
            place: first,
            steady: crate::Steady::of(s)?,
            more,
            base: place::base(s, clone),
            replay: replay.map(std::sync::Arc::new),
            file_size: draws::span(s, "filesize").filter(|s| s.0 > 0 && !calls),
            size: size(Extent::of(s, "size", zone)?, own.as_ref(), computes),
            io_size: io_size(s, zone)?,
            offset,
            offset_increment: Extent::of(s, "offset_increment", zone)?.or_none(),
            offset_align: s.positive("offset_align").unwrap_or(spec.bs.min().0),
            working_set: pace::working_set(s),
            loops: s.number("loops").unwrap_or(1).max(1),
            time_based: computes || s.flag("time_based", false) && spec.time.is_some(),
            start_delay: Nanos(s.nanos("startdelay").unwrap_or(0)),
            lockmem: s.number("lockmem").unwrap_or(0),
            ramp_size: s.number("ramp_size").unwrap_or(0),
            group: ControlGroup::of(s),
            scheduler: s.text("ioscheduler").filter(|_| !fake).map(str::to_owned),
            computes,
            exit_on_io_done: s.flag("exit_on_io_done", false),
            sync_at_end: spec.rw.writes()
                && (s.flag("end_fsync", false) || s.flag("fsync_on_close", false)),
            unlink: s.flag("unlink", false),
            invalidate: s.flag("invalidate", true),
            create_only: s.flag("create_only", false),
            may_create: s.flag("allow_file_create", true),
            exit_all_on_error: s.flag("exitall_on_error", false),
            exit_all: s.flag("exitall", false),
            exit_what: ExitWhat::of(s),
            layout: Layout::of(s),
            thread: ThreadTerms::of(s)?,
            rate_min: pace::rate_min(s, &spec),
            sync_fs_at_end: s.flag("end_syncfs", false),
            commands: ["exec_prerun", "exec_postrun"].map(|n| s.text(n).map(str::to_owned)),
            random_seed: !s.flag("randrepeat", true) && !s.has("randseed"),
            fixed_seeds: draws::fixed_seeds(s)?,
            logs,
            errors,
            terms,
            own,
            ignored,
            accepted,
            spec,
            recipe: std::sync::Arc::new(recipe),
        })
    }
}

/// How its I/Os are drawn, the engine that does them itself, and those that are replayed.
fn load(
    s: &Section,
    clone: u32,
    fake: bool,
    apart: bool,
) -> Result<(recipe::Recipe, Option<Own>, Option<Replay>), FioError> {
    let mut recipe = recipe::Recipe::of(s, fake, apart)?;
    let own = Own::of(s, clone, || place::paths(s, clone, recipe.files))?;
    if let (Some(Own::Net(_)), Some(check)) = (&own, &mut recipe.check) {
        // What was sent cannot be read back here: the other end verifies it.
        check.read_back = false;
    }
    let replay = replayed(s, clone, &recipe)?;
    if let Some(r) = &replay {
        recipe.does = r.does;
    }
    Ok((recipe, own, replay))
}

/// How its engine is served; refuses one that is not here.
fn served(s: &Section) -> Result<EngineFate, FioError> {
    let fate = s.engine_fate();
    if fate != EngineFate::Missing {
        return Ok(fate);
    }
    Err(FioError::unsupported(
        &s.name,
        &format!("ioengine={}", s.get("ioengine").unwrap_or("psync")),
        match s.engine() {
            "http" => "this fathom was built without it: cargo build --release --features http",
            "rbd" | "rados" => {
                "only Ceph's own C++ library speaks its protocol; a mapped image (rbd map) is a block device for any engine"
            }
            "nfs" => {
                "only libnfs, a C library, speaks it without the kernel; a file on a mounted file system is one for any engine"
            }
            _ => "fathom fio --enghelp lists those that are",
        },
    ))
}

/// Options that are not served, and those that change nothing that is measured, with the reason.
fn unserved(s: &Section) -> (Vec<FioError>, Vec<String>) {
    let job = &s.name;
    let (mut ignored, mut accepted) = (Vec::new(), Vec::new());
    for set in &s.settings {
        let value = set.value.as_deref();
        let last = s.get(set.option.name) == Some(value.unwrap_or(""));
        if set.option.fate != Fate::Mapped && last && !set.option.is_default(value) {
            let text = match value {
                Some(v) => format!("{}={v}", set.option.name),
                None => set.option.name.to_owned(),
            };
            if set.option.fate == Fate::Harmless {
                accepted.push(format!("job '{job}': {text}: {}", set.option.note));
                continue;
            }
            ignored.push(FioError::unsupported(job, &text, set.option.note));
        }
    }
    (ignored, accepted)
}

/// The I/Os of `read_iolog`.
fn replayed(s: &Section, clone: u32, recipe: &recipe::Recipe) -> Result<Option<Replay>, FioError> {
    let skip = place::left_out(s)?;
    let Some(list) = &recipe.read_log else {
        return Ok(None);
    };
    let logs = section::names(list);
    let log = logs.get(clone as usize % logs.len().max(1));
    let scale = s.number("replay_scale").unwrap_or(1).max(1);
    let align = s.number("replay_align").unwrap_or(0);
    Replay::read(log.unwrap_or(list).as_ref(), scale, align, &skip)
        .map(Some)
        .map_err(|e| s.invalid("read_iolog", e.to_string()))
}

/// Refuses options that exclude each other.
fn excluded(s: &Section, recipe: &recipe::Recipe, spec: &JobSpec) -> Result<(), FioError> {
    let writes = recipe.does[1] || recipe.does[2];
    let again = s.flag("time_based", false) || s.number("loops").unwrap_or(1) > 1;
    if recipe.anew && !writes && again {
        return Err(s.invalid(
            "unlink_each_loop",
            "the file is gone when its second pass reads it: leave one of the two out",
        ));
    }
    if spec.ramp > Nanos::ZERO && s.number("ramp_size").unwrap_or(0) > 0 {
        return Err(s.invalid("ramp_size", "it excludes ramp_time: choose one"));
    }
    Ok(())
}

/// Start of the range: the end of the file (`end`) where the job appends to it.
fn offset(s: &Section, zone: Option<u64>, end: Option<u64>) -> Result<Extent, FioError> {
    match end {
        Some(end) => Ok(Extent::Bytes(end)),
        None => Extent::of(s, "offset", zone).map(Extent::or_none),
    }
}

/// The amount, where it differs from the range.
fn io_size(s: &Section, zone: Option<u64>) -> Result<Option<Extent>, FioError> {
    match s.quantity("io_size") {
        None | Some(Quantity::Plain(0)) => Ok(None),
        _ => Extent::of(s, "io_size", zone).map(Some),
    }
}

/// The range, where one of these needs none.
fn size(size: Extent, own: Option<&Own>, computes: bool) -> Extent {
    match (size, own) {
        // Any range does for what reads nothing.
        (Extent::Whole, _) if computes => Extent::Bytes(1 << 20),
        (_, Some(Own::Names(names))) => Extent::Bytes(names.bytes()),
        (Extent::Whole, Some(Own::Net(_))) => Extent::Bytes(1 << 50),
        _ => size,
    }
}

/// What the output says of it.
fn terms(s: &Section, known: Known<'_>, own: Option<&Own>) -> Result<Terms, FioError> {
    let survives = known.errors.survives_some();
    let mut terms = place::terms(s, known.recipe, known.synchronous, known.depth, survives)?;
    if own.is_some_and(Own::only_calls) {
        (terms.disabled[0], terms.disabled[2]) = (true, true);
    }
    // As in fio the speed of a network is one of bits.
    if matches!(own, Some(Own::Net(_))) && !s.has("unit_base") {
        terms.unit_base = 1;
    }
    Ok(terms)
}

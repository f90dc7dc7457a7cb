//! The same job through every path to the same bytes (O'Neill 2018): block device or file system, past the page cache or
//! through it, with what the kernel's own threads spend on it, and dips told apart from noise.
//!
//! On a directory fathom puts a loop device and file systems of its own beside the target's, all over files there, so
//! that what a file system takes can be told from what the device does.

mod report;
mod sites;

use std::path::Path as FsPath;

use clap::{ArgAction, Args};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed, percent};
use fathom_bench::progress::{Filling, ProgressSink, prepare};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{cut_short, seed, turns};
use fathom_bench::{Bench, BenchError, Notebook, NotebookError, Plan};
use fathom_io::driver::PlannedJob;
use fathom_io::{JobError, JobSpec};
use fathom_sim::SimTarget;
use fathom_stats::dips::{Dip, dips};
use fathom_telemetry::say;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::page_cache::forget;
use crate::skipped::{self, Skipped};
use fathom_system::SystemError;
use fathom_system::cgroup::Group;
use fathom_system::filesystem::{FileSystem, file_systems};
use fathom_system::kernel_threads::{Family, Snapshot};
use fathom_system::lab_dir::LabDir;
use sites::Site;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom paths /mnt/data                  the file system there; for root others beside it\n  fathom paths . --make none              only the file system that is there\n  fathom paths /dev/sdx --destroy SERIAL  the block device itself, past the page cache and through it\n  fathom paths /dev/nvme0n1               reads only: needs no permission\nEach path gets the same jobs: random 4 KiB, sequential reads and writes of 128 KiB. What fathom makes lies in the target's directory and is removed; after a kill, fathom clean finds it."
)]
pub struct PathsOptions {
    /// Threads of the random job, each with one I/O at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Reads among its I/Os, percent
    #[arg(long, default_value = "50", value_name = "PERCENT", value_parser = percent)]
    pub read_share: f64,
    /// Leave out every job that writes, and what would be made beside the target
    #[arg(long = "no-writes", action = ArgAction::SetFalse)]
    pub writes: bool,
    /// File systems to make on loop devices in a directory (root): ext4, xfs, btrfs, or none
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", default_value = "ext4,xfs,btrfs", value_parser = made_here)]
    pub make: Vec<String>,
    /// Page cache for jobs through it, percent of the range (a control group; root); 0 for all memory
    #[arg(long, default_value = "10", value_name = "PERCENT", value_parser = percent)]
    pub memory: f64,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
    /// Whether nobody said how often: then often enough for intervals by resampling.
    #[arg(skip)]
    #[serde(skip)]
    often: bool,
}

/// A file system that fathom makes, or none.
fn made_here(name: &str) -> Result<String, String> {
    let known = file_systems();
    match name == "none" || known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "'{name}' is no file system that fathom makes: expected {}, or none",
            known.join(", ")
        )),
    }
}

/// The range where nobody said a size: as many bytes lie on every path.
const SIZE: Bytes = Bytes::mib(512);
/// Enough turns for intervals by resampling.
const REPEATS: u32 = 5;

impl PathsOptions {
    fn shaped(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        if self.often {
            plan.profile.repeats = plan.profile.repeats.max(REPEATS);
        }
        plan
    }
}

impl Measurement for PathsOptions {
    const NAME: &'static str = "paths";

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        let target = FsPath::new(&typed.target);
        match target.is_dir() {
            true => typed.size = typed.size.or(Some(SIZE)),
            false => self.make.clear(),
        }
        self.make.retain(|m| m != "none");
        // Reading a device or a file needs no permission; writing one does, and must not be asked for by default.
        self.writes &= typed.destroys
            || target.is_dir()
            || !target.exists()
            || SimTarget::is_simulated(&typed.target);
        self.seed = typed.seed;
        self.often = typed.repeats.is_none();
        Ok(())
    }

    fn modifies(&self) -> bool {
        self.writes
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let (o, plan) = (self, &self.shaped(plan));
        let made = made(o);
        let own = if made.is_empty() { 0 } else { made.len() + 1 } as u32;
        let sites = 1 + own;
        let own = u64::from(own) * plan.limits.size;
        let mut all = RunCost::filling(Bytes(fills.0 + own));
        all.phase("paths");
        for load in loads(o) {
            for direct in modes(plan) {
                all.add(&job(plan, o, load, direct)?, sites * plan.profile.repeats);
            }
        }
        let idle = Nanos(IDLE.0 * u64::from(plan.profile.repeats));
        all.work(0, idle, Bytes(0));
        Ok(all)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let (options, plan) = (self, &self.shaped(plan));
        let mut skipped = Vec::new();
        let (place, mut sites) = sites(bench, plan, options, &mut skipped)?;
        prepare(bench, sink)?;
        sites = fill(sites, plan, sink, &mut skipped);
        let of = |site: usize| modes(plan).map(move |direct| Path { site, direct });
        let mut results = PathsResult {
            options: options.clone(),
            sites: sites.iter().map(Site::seen).collect(),
            paths: (0..sites.len()).flat_map(of).collect(),
            loads: loads(options),
            seen: Vec::new(),
            unlimited: None,
            simulated: bench.simulated(),
            skipped,
        };
        results.seen = vec![vec![Vec::new(); results.loads.len()]; results.paths.len()];
        let group = limit(bench, plan, options, &mut results);
        let total = results.paths.len() as u32 * results.loads.len() as u32 * plan.profile.repeats;
        let mut done = 0;
        'repeats: for repeat in 0..plan.profile.repeats {
            let idle = idle(bench);
            // In turns, so that a drift of the device favours no path.
            for p in turns(results.paths.len(), repeat) {
                let path = results.paths[p];
                for l in 0..results.loads.len() {
                    if bench.interrupted() {
                        break 'repeats;
                    }
                    let load = results.loads[l];
                    let name = format!("{} {}", load.id(), results.name(p));
                    sink.job(done, total, &name);
                    let own = sites[path.site].bench.as_mut().map(|b| b as &mut dyn Bench);
                    let mut pass = Pass {
                        bench: own.unwrap_or(&mut *bench),
                        plan,
                        options,
                        repeat,
                        idle: idle.as_ref(),
                        group: group.as_ref().filter(|_| !path.direct),
                    };
                    let seen = pass.measure(load, path.direct, &name, book, sink)?;
                    results.seen[p][l].push(seen);
                    done += 1;
                }
            }
        }
        if bench.interrupted() {
            book.run_mut().flags.push(cut_short(done, total));
        }
        drop(group);
        sites.into_iter().for_each(close);
        drop(place);
        skipped::missing(book, &results.skipped, false);
        book.found(&results)
    }
}

/// What each path is given to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Load {
    Random,
    Read,
    Write,
}

impl Load {
    const ALL: [Self; 3] = [Self::Random, Self::Read, Self::Write];

    const fn id(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    fn about(self, o: &PathsOptions) -> String {
        match self {
            Self::Random if o.writes => format!(
                "random 4 KiB, {:.0} % reads, {} threads",
                o.read_share, o.threads
            ),
            Self::Random => format!("random 4 KiB reads, {} threads", o.threads),
            Self::Read => "sequential reads of 128 KiB, one at a time".into(),
            Self::Write => "sequential writes of 128 KiB, one at a time".into(),
        }
    }
}

fn loads(o: &PathsOptions) -> Vec<Load> {
    let all = Load::ALL.into_iter();
    all.filter(|l| o.writes || *l != Load::Write).collect()
}

/// The job of a load. What is written is made durable on every path alike, or the page cache would have nothing to do.
fn job(plan: &Plan, o: &PathsOptions, load: Load, direct: bool) -> Result<JobSpec, JobError> {
    let share = o.read_share.to_string();
    let threads = o.threads.to_string();
    let mut how: Vec<(&str, &str)> = vec![("engine", "preadv"), ("qd", "1"), ("window", "20ms")];
    match load {
        Load::Random => how.extend([("bs", "4k"), ("threads", threads.as_str())]),
        _ => how.extend([("bs", "128k"), ("threads", "1")]),
    }
    match load {
        Load::Random if o.writes => how.extend([
            ("rw", "randrw"),
            ("read-share", share.as_str()),
            ("sync", "fdatasync:256"),
        ]),
        Load::Random => how.push(("rw", "randread")),
        Load::Read => how.push(("rw", "read")),
        Load::Write => how.extend([("rw", "write"), ("sync", "fdatasync:64")]),
    }
    let mut spec = plan.job(load.id(), &how)?;
    spec.direct = direct;
    Ok(spec)
}

/// File systems to be made.
fn made(o: &PathsOptions) -> Vec<&'static FileSystem> {
    let names = o.make.iter().filter(|_| o.writes);
    names.filter_map(|n| FileSystem::named(n)).collect()
}

/// Past the page cache, and through it.
fn modes(plan: &Plan) -> impl Iterator<Item = bool> + use<> {
    let direct = plan.direct;
    [true, false].into_iter().filter(move |d| direct || !d)
}

/// How long kernel threads are watched without a job in each repeat.
const IDLE: Nanos = Nanos::from_millis(300);
/// Of this process beside the page cache, where memory is limited: threads, buffers, histograms.
const OWN_MEMORY: u64 = 64 << 20;

/// One path: a site, and whether the page cache is passed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Path {
    site: usize,
    direct: bool,
}

/// One measurement of a load on a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Seen {
    /// Index of the job in the run.
    job: usize,
    /// I/Os and bytes per second.
    iops: f64,
    bytes: f64,
    /// Slowest hundredth, ns.
    p99: Option<f64>,
    /// CPU time of this process for each I/O, ns.
    cpu: f64,
    /// The same of the kernel's threads, by [`Family::ALL`], beyond what they take without a job.
    kernel: Option<[f64; 5]>,
    dips: Vec<Dip>,
    windows: usize,
}

/// What a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum SiteKind {
    /// Blocks without a file system.
    Device,
    /// A file in a file system.
    Files,
}

/// A site that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SiteSeen {
    name: String,
    /// Where its file lies, in words for who is to put one there; empty for blocks.
    place: String,
    kind: SiteKind,
    /// Sites of one group have the same device below.
    group: usize,
}

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathsResult {
    options: PathsOptions,
    sites: Vec<SiteSeen>,
    paths: Vec<Path>,
    loads: Vec<Load>,
    /// By path and load: one for each repeat that was measured.
    seen: Vec<Vec<Vec<Option<Seen>>>>,
    /// Why memory was not limited, where it was to be.
    unlimited: Option<String>,
    simulated: bool,
    skipped: Vec<Skipped>,
}

impl ExperimentResult for PathsResult {
    const EXPERIMENT: &'static str = "paths";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        report::present(self, shown);
        shown
            .sections
            .extend(skipped::skipped("paths", &self.skipped));
    }
}

/// The target, and what can be made beside it.
fn sites(
    bench: &mut dyn Bench,
    plan: &Plan,
    o: &PathsOptions,
    skipped: &mut Vec<Skipped>,
) -> Result<(Option<LabDir>, Vec<Site>), NotebookError> {
    let about = bench.describe();
    let (name, kind) = match about.kind.as_str() {
        "block-device" => ("block device", SiteKind::Device),
        "simulated" => ("model", SiteKind::Files),
        _ => ("file", SiteKind::Files),
    };
    let mut all = vec![Site::given(name.into(), kind)];
    let size = plan.limits.size >> 20 << 20;
    let made = made(o);
    if made.is_empty() {
        return Ok((None, all));
    }
    let dir = about.path.as_deref().and_then(|p| FsPath::new(p).parent());
    let (Some(dir), "directory") = (dir, about.kind.as_str()) else {
        return Ok((None, all));
    };
    if let Some((why, remedy)) = sites::unable() {
        skipped.push(Skipped::new(
            "loop device and file systems on it",
            why,
            remedy,
        ));
        return Ok((None, all));
    }
    let place = match LabDir::create(dir, sites::room(&made, size)) {
        Ok(place) => place,
        Err(e) => {
            skipped.push(Skipped::from_error("loop device and file systems on it", e));
            return Ok((None, all));
        }
    };
    let control = bench.control();
    for kind in std::iter::once(None).chain(made.into_iter().map(Some)) {
        match sites::make(&place, kind, size, &control) {
            Ok(site) => all.push(site),
            Err(e) => skipped.push(Skipped::from_error(&sites::name(kind), e)),
        }
    }
    Ok((Some(place), all))
}

/// Fills every site of fathom's own; one that cannot be filled is left out, and said.
fn fill(
    sites: Vec<Site>,
    plan: &Plan,
    sink: &mut dyn ProgressSink,
    skipped: &mut Vec<Skipped>,
) -> Vec<Site> {
    let mut all = Vec::new();
    for mut site in sites {
        let filled = match &mut site.bench {
            Some(own) if site.blank => write_once(own, plan, sink),
            Some(own) => prepare(own, sink).map_err(LabError::from),
            None => Ok(()),
        };
        match filled {
            Ok(()) => all.push(site),
            Err(e) => {
                skipped.push(Skipped::from_error(&site.name, e));
                close(site);
            }
        }
    }
    all
}

/// What cannot be closed stays, and is said: the results stand.
fn close(site: Site) {
    if let Err(e) = site.close() {
        say!("fathom: {e}");
    }
}

/// Writes a blank device once from end to end.
fn write_once(
    bench: &mut dyn Bench,
    plan: &Plan,
    sink: &mut dyn ProgressSink,
) -> Result<(), LabError> {
    let limits = bench.limits();
    let mut spec = JobSpec {
        name: "fill".into(),
        direct: plan.direct,
        size: Some(Bytes(limits.size)),
        ..JobSpec::default()
    };
    for (option, text) in [("rw", "write"), ("bs", "1m"), ("qd", "8")] {
        spec.set(option, text)?;
    }
    let planned = [PlannedJob::new(spec.validate(&limits)?)];
    let jobs = bench.run(&planned, None, &mut Filling(sink))?;
    match jobs.first().and_then(|j| j.errors.first()) {
        Some(e) => Err(LabError::Failed(format!(
            "the loop device could not be filled: {} at byte {}",
            e.message, e.first_offset
        ))),
        None => Ok(()),
    }
}

/// A control group for jobs through the page cache, where one is wanted and possible.
fn limit(
    bench: &dyn Bench,
    plan: &Plan,
    o: &PathsOptions,
    results: &mut PathsResult,
) -> Option<Group> {
    if o.memory <= 0.0 || bench.simulated() {
        return None;
    }
    let bytes = (plan.limits.size as f64 * o.memory / 100.0) as u64 + OWN_MEMORY;
    let made = Group::create("paths").and_then(|g| {
        g.limit(bytes)
            .and_then(|()| g.enter().map(drop))
            .map_err(|e| SystemError::Failed(e.to_string()))?;
        Ok(g)
    });
    match made {
        Ok(g) => Some(g),
        Err(e) => {
            results.unlimited = Some(e.to_string());
            None
        }
    }
}

/// What kernel threads take without a job: CPU time over time, by family.
fn idle(bench: &dyn Bench) -> Option<[f64; 5]> {
    if bench.simulated() {
        return None;
    }
    let before = Snapshot::take();
    let began = fathom_io::clock::monotonic();
    std::thread::sleep(IDLE.into());
    let after = Snapshot::take();
    let ns = fathom_io::clock::monotonic().since(began).0.max(1) as f64;
    Some(Family::ALL.map(|f| after.since(&before, f).0 as f64 / ns))
}

/// One job on one path.
struct Pass<'a> {
    bench: &'a mut dyn Bench,
    plan: &'a Plan,
    options: &'a PathsOptions,
    repeat: u32,
    idle: Option<&'a [f64; 5]>,
    group: Option<&'a Group>,
}

impl Pass<'_> {
    fn measure(
        &mut self,
        load: Load,
        direct: bool,
        name: &str,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<Seen>, NotebookError> {
        let mut spec = job(self.plan, self.options, load, direct).map_err(BenchError::from)?;
        let limits = self.bench.limits();
        spec.size = spec.size.map(|s| s.min(Bytes(limits.size)));
        spec.name = format!("{}.{}", name.replace([',', ' '], "-"), self.repeat + 1);
        // The same offsets on every path.
        spec.seed = seed(self.options.seed, "paths", load.id(), self.repeat);
        let planned = [PlannedJob {
            experiment: "paths".into(),
            repeat: self.repeat,
            ..PlannedJob::new(spec.validate(&limits).map_err(BenchError::from)?)
        }];
        if !direct {
            forget(self.bench);
        }
        let inside = match self.group.map(Group::enter).transpose() {
            Ok(inside) => inside,
            // With all memory it would be another measurement.
            Err(e) => {
                book.run_mut().flags.push(Flag::new(
                    FlagCode::NotChecked,
                    format!(
                        "{}: not measured: this process could not enter its memory group ({e})",
                        spec.name
                    ),
                    "run as root on the machine itself, or with --memory 0",
                ));
                return Ok(None);
            }
        };
        let before = self.idle.map(|_| Snapshot::take());
        let began = fathom_io::clock::monotonic();
        let jobs = book.measure(self.bench, &planned, &mut |p| sink.progress(p))?;
        let ns = fathom_io::clock::monotonic().since(began).0.max(1) as f64;
        let after = before.as_ref().map(|_| Snapshot::take());
        drop(inside);
        if !direct {
            forget(self.bench);
        }
        let Some(index) = jobs.first().copied() else {
            return Ok(None);
        };
        let measured = &book.run().jobs[index];
        let ios: u64 = data(measured).map(|d| d.ios).sum();
        if measured.is_void() || ios == 0 {
            return Ok(None);
        }
        let iops: f64 = data(measured).map(|d| d.iops).sum();
        let kernel = before.zip(after).zip(self.idle);
        let kernel = kernel.map(|((b, a), idle)| kernel_share((&b, &a), idle, ns, iops));
        let course = book.courses().first().map_or(&[][..], |c| c.as_slice());
        // The last window is rarely whole.
        let course = &course[..course.len().saturating_sub(1)];
        let slow = |op| {
            let d = measured.direction(op)?;
            d.service_ns.p99
        };
        Ok(Some(Seen {
            job: index,
            iops,
            bytes: data(measured).map(|d| d.bytes_per_second).sum(),
            p99: slow(Op::Read).max(slow(Op::Write)).map(|ns| ns as f64),
            cpu: measured.cpu_ns as f64 / ios as f64,
            kernel,
            dips: dips(course),
            windows: course.len(),
        }))
    }
}

/// CPU time of each family of kernel threads for one I/O, ns: what they have worked between two snapshots that are `ns`
/// apart, beyond what they do while nothing is asked of them (a share of the time).
fn kernel_share(
    (before, after): (&Snapshot, &Snapshot),
    idle: &[f64; 5],
    ns: f64,
    iops: f64,
) -> [f64; 5] {
    let mut each = [0.0; 5];
    for (i, family) in Family::ALL.into_iter().enumerate() {
        let busy = after.since(before, family).0 as f64 / ns - idle[i];
        each[i] = busy.max(0.0) * 1e9 / iops.max(1e-9);
    }
    each
}

fn data(j: &Job) -> impl Iterator<Item = &fathom_telemetry::schema::Direction> {
    [&j.read, &j.write].into_iter().flatten()
}

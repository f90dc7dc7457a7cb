//! A working set larger than memory: a process under a memory limit (control group) that swaps to the target, beside
//! the same process without a limit.
//!
//! See [`fathom_system::swap_file`] for what the swap file does to the rest of the machine.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed};
use fathom_bench::parts::{axis, chart, estimate, headline_of, number, point, series, table, text};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{cut_short, seed, turns};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_host::mounts::read_swaps;
use fathom_host::{CounterSource, HostRoot};
use fathom_io::JobError;
use fathom_io::driver::Progress;
use fathom_io::target::count;
use fathom_stats::Estimate;
use fathom_stats::rng::SplitMix64;
use fathom_system::cgroup::Group;
use fathom_system::lab_dir::LabDir;
use fathom_system::programs::ChildGuard;
use fathom_system::swap_file::Swap;
use fathom_telemetry::schema::{ChartKind, Finding, Section, Table};
use fathom_telemetry::{Bytes, Histogram, Nanos, Op};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::LabError;
use crate::confounders::{self, SettingsSeen};
use crate::db::directory;
use crate::loads::{self, About, Course, Load};
use crate::skipped::{self, Skipped};

/// Name of the hidden command that is the process under test.
pub const COMMAND: &str = "swap-load";
const PAGE: usize = 4096;
/// Words of a page.
const WORDS: usize = PAGE / 8;
/// What the process under test needs for itself: its group has to hold its program, stacks and histograms, too.
const PROGRAM: u64 = 16 << 20;

/// Seconds that filling and touching may take beside ten times of what touching is given.
const PATIENCE: u32 = 120;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    mut_arg("target", |a| a.help("Directory that gets the swap file")),
    after_help = "Examples:\n  fathom app swap /mnt/data                     256m, of which 75, 50 and 25 % may be in memory\n  fathom app swap /mnt/data --bytes 8g --share 50 --time 60s\nNeeds root and a memory controller; the swap file is the machine's first choice while it is on."
)]
pub struct SwapOptions {
    /// Bytes of the working set
    #[arg(long, default_value = "256m")]
    pub bytes: Bytes,
    /// Shares of it that may be in memory, percent
    #[arg(
        long = "share",
        value_delimiter = ',',
        value_name = "PERCENT,…",
        default_value = "75,50,25"
    )]
    pub shares: Vec<f64>,
    /// Threads that touch it
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Time of one measurement; by the profile where it is not given.
    #[arg(skip)]
    pub time: Option<Nanos>,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
}

fn time(plan: &Plan, options: &SwapOptions) -> Nanos {
    options.time.unwrap_or(Nanos(plan.profile.job_time.0 * 3))
}

/// What was counted beside a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counted {
    major_faults: f64,
}

/// A share in memory, percent; `None` without a limit.
type Line = loads::Line<Option<f64>, Counted>;
type Repeat = loads::Repeat<Counted>;

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SwapResult {
    options: SwapOptions,
    lines: Vec<Line>,
    skipped: Vec<Skipped>,
    /// What the kernel's settings of swapping were meanwhile.
    #[serde(default)]
    settings: SettingsSeen,
}

/// The kernel's settings of what is kept in memory and how it is swapped.
fn settings() -> Vec<(String, String)> {
    let said = |path: &str| {
        let text = fs::read_to_string(path).ok()?;
        let text = text.trim();
        // Of several the one in brackets is in use.
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        Some(chosen.map_or(text, |c| c.0).to_owned())
    };
    let all = [
        ("vm.swappiness", "/proc/sys/vm/swappiness"),
        ("vm.page-cluster", "/proc/sys/vm/page-cluster"),
        (
            "transparent_hugepage",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        ),
        ("zswap", "/sys/module/zswap/parameters/enabled"),
    ];
    let known = all
        .iter()
        .filter_map(|(name, path)| Some(((*name).to_owned(), said(path)?)));
    let areas = read_swaps(&HostRoot::real()).map_or(0, |a| a.len());
    known
        .chain([("other swap areas".to_owned(), areas.to_string())])
        .collect()
}

fn label(limit: Option<f64>) -> String {
    limit.map_or("all".to_owned(), |s| format!("{s} %"))
}

impl Measurement for SwapOptions {
    const NAME: &'static str = "app-swap";
    const IN_DIRECTORY: Option<&'static str> = Some(super::MAKE_ONE);

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        if let Some(share) = self.shares.iter().find(|s| !(5.0..=100.0).contains(*s)) {
            return Err(format!(
                "--share: {share} is out of range: expected 5 to 100 percent"
            ));
        }
        if self.bytes.0 < 32 << 20 {
            return Err(format!(
                "--bytes: {} are too few: expected 32m or more",
                self.bytes
            ));
        }
        // Without a limit comes first, always.
        self.shares.sort_by(|a, b| b.total_cmp(a));
        (self.time, self.seed) = (typed.time, typed.seed);
        typed.size = Some(super::SCRATCH);
        Ok(())
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, _: Bytes) -> Result<RunCost, JobError> {
        let options = self;
        let n = (options.shares.len() as u32 + 1) * plan.profile.repeats;
        let each = time(plan, options) + Nanos::from_secs(1);
        let pages = time(plan, options).as_secs_f64() * 200_000.0 * PAGE as f64;
        let mut cost = RunCost::default();
        cost.phase("programs").work(
            n,
            Nanos(each.0 * u64::from(n)),
            Bytes((options.bytes.0 + pages as u64) * u64::from(n)),
        );
        Ok(cost)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let options = self;
        let dir = directory(bench)?;
        let memory = free_memory();
        if options.bytes.0 > memory {
            return Err(LabError::Refused(format!(
            "--size: {} are more than the {} of memory that are free: the run without a limit would swap, too",
            options.bytes,
            Bytes(memory)
        ))
        .into());
        }
        let room = options.bytes.0 + (32 << 20);
        let place = LabDir::create(&dir, room).map_err(LabError::from)?;
        // One without a limit, then the limits from large to small.
        let limits = std::iter::once(None).chain(options.shares.iter().map(|s| Some(*s)));
        let mut result = SwapResult {
            options: options.clone(),
            lines: limits.map(Line::new).collect(),
            skipped: Vec::new(),
            settings: SettingsSeen::of(settings(), place.path()),
        };
        let set_up = Group::create("swap").and_then(|g| Ok((g, Swap::on(place.path(), room)?)));
        let set_up = set_up
            .map_err(|e| {
                result
                    .skipped
                    .push(Skipped::from_error("runs under a limit", e))
            })
            .ok();
        let device = CounterSource::locate(place.path()).ok();
        let mut lab = Lab {
            bench,
            options,
            time: time(plan, options),
            place: place.path(),
            device: device.as_ref(),
            book,
            sink,
        };
        let ended = lab.rounds(&mut result, set_up.as_ref().map(|s| &s.0), plan);
        drop(set_up);
        drop(place);
        skipped::missing(book, &result.skipped, true);
        book.found(&result)?;
        ended.map_err(NotebookError::from)
    }
}

fn free_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))
        .and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(u64::MAX, |kib| kib << 10)
}

struct Lab<'a> {
    bench: &'a dyn Bench,
    options: &'a SwapOptions,
    time: Nanos,
    place: &'a Path,
    device: Option<&'a CounterSource>,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
}

impl Lab<'_> {
    /// In turns; without a control group only what has no limit.
    fn rounds(
        &mut self,
        SwapResult { lines, skipped, .. }: &mut SwapResult,
        group: Option<&Group>,
        plan: &Plan,
    ) -> Result<(), LabError> {
        let total = lines.len() as u32 * plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..plan.profile.repeats {
            for i in turns(lines.len(), repeat) {
                let limit = lines[i].setting;
                let name = format!("{} in memory", label(limit));
                if limit.is_some() && (group.is_none() || skipped.iter().any(|s| s.what == name)) {
                    continue;
                }
                self.sink.job(done, total, &name);
                let measured = match self.bench.interrupted() {
                    false => self.one(group.zip(limit), limit, repeat),
                    true => Err(LabError::Failed("interrupted".into())),
                };
                match measured {
                    Ok(r) => lines[i].repeats.push(r),
                    Err(_) if self.bench.interrupted() => {
                        self.book.run_mut().flags.push(cut_short(done, total));
                        return Ok(());
                    }
                    // A limit that the process did not survive says nothing about the others.
                    Err(e) if limit.is_some() => skipped.push(Skipped::new(
                        name,
                        e.to_string(),
                        "its limit may leave too little beside the program: give a larger --share, or more --bytes",
                    )),
                    Err(e) => return Err(e),
                }
                done += 1;
            }
        }
        Ok(())
    }

    /// The process under test, in a group with so many bytes where there is one.
    fn command(&self, group: Option<(&Group, u64)>, seed: u64) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).args([
            self.options.bytes.0.to_string(),
            self.options.threads.to_string(),
            (self.time.0 / 1_000_000).to_string(),
            seed.to_string(),
        ]);
        if let Some((group, bytes)) = group {
            group.wait_at_limit(bytes)?;
            let members = group.members()?;
            // SAFETY: one system call between fork and exec on a descriptor that lives in the closure.
            unsafe {
                command.pre_exec(move || {
                    match libc::write(members.as_raw_fd(), b"0".as_ptr().cast(), 1) {
                        1 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                });
            }
        }
        Ok(command)
    }

    fn one(
        &mut self,
        group: Option<(&Group, f64)>,
        limit: Option<f64>,
        repeat: u32,
    ) -> Result<Repeat, LabError> {
        // The same touches under every limit.
        let seed = seed(self.options.seed, "app-swap", "touches", repeat);
        let group = group.map(|(group, share)| {
            let bytes = self.options.bytes.0 as f64 * share / 100.0;
            (group, bytes as u64 + PROGRAM)
        });
        let command = self
            .command(group, seed)
            .map_err(|e| LabError::Failed(format!("the process under test: {e}")))?;
        let errors = self.place.join("swap.log");
        let (mut kept, out) = ChildGuard::piped(command, &errors)?;
        let counters = || self.device.and_then(count);
        let (mut before, mut end) = (None, None);
        let (mut latency, mut rates, mut last) = (Histogram::new(), Vec::new(), (0.0, 0.0));
        let relieve = || {
            if let Some((group, bytes)) = group {
                group.relieve(bytes);
            }
        };
        for line in Lines::of(out, &relieve) {
            let mut words = line.split(' ');
            let what = words.next().unwrap_or_default();
            let numbers: Vec<f64> = words.filter_map(|w| w.parse().ok()).collect();
            match (what, &numbers[..]) {
                ("filled", _) => before = counters(),
                ("rate", [ms, touches]) => {
                    let rate = (touches - last.1) / (ms - last.0).max(1.0) * 1000.0;
                    rates.push((ms / 1000.0, rate));
                    last = (*ms, *touches);
                    self.sink.progress(&Progress {
                        elapsed: Nanos::from_millis(*ms as u64),
                        ios: *touches as u64,
                        ..Progress::default()
                    });
                }
                ("latency", [value, n]) => latency.record_n(*value as u64, *n as u64),
                ("end", [touches, seconds, faults]) => {
                    end = Some(([*touches, *seconds, *faults], counters()));
                }
                _ => {}
            }
            if self.bench.interrupted() {
                return Err(LabError::Failed("interrupted".into()));
            }
        }
        kept.succeed(&|| self.bench.interrupted())?;
        let ([touches, seconds, major_faults], after) =
            end.ok_or_else(|| kept.failure("nothing said (was it out of memory?)"))?;
        let course = Course::of_rates(&rates, Nanos::ZERO);
        let wall = Nanos((seconds * 1e9) as u64);
        // Half of the touches change what they touch.
        let kinds = [(Op::Write, latency)];
        let load = Load::of_histograms(&kinds, 0, self.options.threads, wall, course.clone());
        let about = About {
            experiment: "app-swap",
            name: &format!("swap-{}", limit.map_or("all".into(), |s| format!("{s}pc"))),
            repeat,
            engine: "memory",
            spec: json!({ "in_memory_percent": limit, "options": self.options, "seed": seed }),
            device: after.zip(before).map(|(a, b)| a.since(&b)),
            ours: true,
        };
        Ok(Repeat {
            jobs: vec![load.keep(self.book, about)],
            operations: touches as u64,
            course,
            beside: Counted { major_faults },
        })
    }
}

/// What a process says, line by line, until it has ended; meanwhile something is done now and then.
struct Lines<'a> {
    out: ChildStdout,
    read: Vec<u8>,
    meanwhile: &'a dyn Fn(),
}

impl<'a> Lines<'a> {
    fn of(out: ChildStdout, meanwhile: &'a dyn Fn()) -> Self {
        Self {
            out,
            read: Vec::new(),
            meanwhile,
        }
    }
}

impl Iterator for Lines<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let mut piece = [0; 4096];
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let rest = self.read.split_off(end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            (self.meanwhile)();
            let mut ready = [PollFd::new(&self.out, PollFlags::IN)];
            if matches!(poll(&mut ready, Some(&wait)), Ok(0) | Err(Errno::INTR)) {
                continue;
            }
            match self.out.read(&mut piece) {
                Ok(n) if n > 0 => self.read.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

/// The process under test: touches pages of a working set at random, half of the touches change them.
///
/// # Errors
/// Where there is not so much memory, or nobody reads what it says.
pub fn load(bytes: u64, threads: u32, time: Nanos, seed: u64) -> io::Result<()> {
    // Who waits for memory waits for ever where none becomes free.
    // SAFETY: sets a timer of this process; nobody else has one.
    unsafe { libc::alarm(PATIENCE + 10 * time.0.div_ceil(1_000_000_000) as u32) };
    let words = bytes as usize / 8;
    let pages = words / WORDS;
    // Filled with what no kernel compresses or merges.
    let memory: Vec<AtomicU64> = {
        let mut random = SplitMix64::new(seed);
        (0..pages * WORDS)
            .map(|_| AtomicU64::new(random.next_u64()))
            .collect()
    };
    let mut out = io::stdout().lock();
    writeln!(out, "filled")?;
    out.flush()?;
    let before = major_faults();
    let stop = AtomicBool::new(false);
    let touched: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let total = || -> u64 { touched.iter().map(|t| t.load(Ordering::Relaxed)).sum() };
    std::thread::scope(|scope| -> io::Result<()> {
        let workers: Vec<_> = touched
            .iter()
            .enumerate()
            .map(|(t, mine)| {
                let (stop, memory) = (&stop, &memory);
                fathom_io::threads::within(scope, move || {
                    let seed = seed ^ SplitMix64::new(t as u64 + 1).next_u64();
                    touch(memory, SplitMix64::new(seed), mine, stop)
                })
            })
            .collect::<io::Result<_>>()
            .inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        let start = fathom_io::clock::monotonic();
        let mut now = start;
        while now.since(start) < time {
            std::thread::sleep(std::time::Duration::from_millis(100));
            now = fathom_io::clock::monotonic();
            let ms = now.since(start).0 / 1_000_000;
            writeln!(out, "rate {ms} {}", total())?;
            out.flush()?;
        }
        let (n, seconds) = (total(), now.since(start).as_secs_f64());
        stop.store(true, Ordering::Relaxed);
        writeln!(out, "end {n} {seconds} {}", major_faults() - before)?;
        let mut latency = Histogram::new();
        for w in workers {
            if let Ok(h) = w.join() {
                latency.merge(&h);
            }
        }
        say_latency(&mut out, &latency)?;
        out.flush()
    })
}

/// Touches words of random pages until it is to stop; half of the touches change what they touch.
fn touch(
    memory: &[AtomicU64],
    mut random: SplitMix64,
    touched: &AtomicU64,
    stop: &AtomicBool,
) -> Histogram {
    let pages = memory.len() / WORDS;
    let clock = fathom_io::clock::Clock::new();
    let mut latency = Histogram::new();
    let mut last = clock.now();
    while !stop.load(Ordering::Relaxed) {
        let at = random.below(pages) * WORDS + random.below(WORDS);
        if random.next_u64() & 1 == 0 {
            memory[at].fetch_add(1, Ordering::Relaxed);
        } else {
            std::hint::black_box(memory[at].load(Ordering::Relaxed));
        }
        let now = clock.now();
        latency.record(now.since(last).0);
        last = now;
        touched.fetch_add(1, Ordering::Relaxed);
    }
    latency
}

/// Enough for percentiles: the value at each thousandth, and beyond.
fn say_latency(out: &mut impl Write, latency: &Histogram) -> io::Result<()> {
    let count = latency.count();
    let mut told = 0;
    for step in (1..=999)
        .map(|i| f64::from(i) / 1000.0)
        .chain([0.9999, 0.99999, 1.0])
    {
        let upto = (count as f64 * step) as u64;
        if let Some(v) = latency.quantile(step).filter(|_| upto > told) {
            writeln!(out, "latency {v} {}", upto - told)?;
            told = upto;
        }
    }
    Ok(())
}

/// Of this process, so far.
fn major_faults() -> u64 {
    // SAFETY: fills a structure of this function.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_majflt as u64
    }
}

impl ExperimentResult for SwapResult {
    const EXPERIMENT: &'static str = "app-swap";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let free = &self.lines[0];
        let slower = |l: &Line| Estimate::mean_of(&free.over(l, evidence));
        let limited = || {
            let lines = self.lines.iter().filter(|l| !l.repeats.is_empty());
            lines.filter_map(|l| Some((l, l.setting?, slower(l)?)))
        };
        let points: Vec<_> = limited()
            .map(|(_, share, e)| point(share, Some(e)))
            .collect();
        let last = limited().next_back().map_or(String::new(), |(_, share, e)| {
            format!(
                " With {share} % of its working set in memory, a process that swaps to this target is {:.0} times as slow.",
                e.value
            )
        });
        let slowdown = (!points.is_empty()).then(|| {
            chart(
                "app-swap-slower",
                "Slowdown by share in memory",
                ChartKind::Line,
                axis("in memory", "%", false),
                axis("slower by", "x", true),
                vec![series("slower by", points)],
            )
        });
        shown.sections.push(Section {
            id: "app-swap".into(),
            title: "Swapping".into(),
            text: format!(
                "A process with a working set of {} touches pages at random with {} threads, half of the touches change them; under a limit of its memory (its share of the working set, and {} for the program itself) it swaps to a file on the target. Slower by: the rate of the same process without a limit over its own.{last}",
                self.options.bytes,
                self.options.threads,
                Bytes(PROGRAM)
            ),
            charts: slowdown.into_iter().collect(),
            tables: vec![self.touches(evidence)],
            flags: Vec::new(),
        });
        shown.headlines.push(headline_of(
            "Swapping",
            "all in memory: touches",
            "app-swap-all",
            "1/s",
            free.rate(evidence),
            free.jobs(),
        ));
        shown.headlines.extend(limited().map(|(line, share, e)| {
            headline_of(
                "Swapping",
                &format!("{share} % in memory: slower by"),
                &format!("app-swap-{share}"),
                "x",
                Some(e),
                [free.jobs(), line.jobs()].concat(),
            )
        }));
        let least = limited().next_back();
        shown.findings.extend(
            least.map(|(line, share, e)| told([free.jobs(), line.jobs()].concat(), share, &e)),
        );
        shown.findings.extend(self.beside());
        shown
            .sections
            .extend(skipped::skipped("app-swap", &self.skipped));
    }
}

/// By how much a process is slower with such a share in memory, percent.
fn told(jobs: Vec<usize>, share: f64, e: &Estimate) -> Finding {
    let (low, high) = (e.low.unwrap_or(0.0), e.high.unwrap_or(f64::INFINITY));
    let verdict = match low > 1.0 || high < 1.0 {
        true => format!(
            "{:.0} times as slow (95 % interval {low:.0} to {high:.0})",
            e.value
        ),
        false => "not shown to be slower".to_owned(),
    };
    Finding {
        id: "app-swap-slower".into(),
        text: format!(
            "With {share} % of its working set in memory, a process that swaps to this target is {verdict}."
        ),
        confidence: "moderate".into(),
        jobs,
        evidence: vec!["app-swap-slower".into(), "app-swap-table".into()],
        refuted_by: "The same command with another --seed whose interval lies elsewhere.".into(),
        ..Finding::default()
    }
}

impl SwapResult {
    /// What was looked at beside it. (That all processors are used without a limit is meant so.)
    fn beside(&self) -> Option<Finding> {
        let jobs = self.lines.iter().flat_map(Line::jobs).collect();
        let words = self.settings.in_words()?;
        Some(confounders::beside(
            "app-swap",
            vec![words],
            jobs,
            "app-swap-table",
        ))
    }

    fn touches(&self, evidence: &Evidence<'_>) -> Table {
        let free = &self.lines[0];
        let device = |l: &Line, i: usize| estimate(l.mean(|r| r.device(evidence)[i]));
        table(
            "app-swap-table",
            "Touches, and what the device counted",
            &self.lines,
            &[
                ("in memory", "", &|l| text(label(l.setting))),
                ("touches", "1/s", &|l| estimate(l.rate(evidence))),
                ("slower by", "x", &|l| {
                    estimate(Estimate::mean_of(&free.over(l, evidence)))
                }),
                ("p50", "ns", &|l| number(l.percentile(evidence, 0.5))),
                ("p99", "ns", &|l| number(l.percentile(evidence, 0.99))),
                ("major faults per touch", "", &|l| {
                    estimate(l.mean(|r| r.per(r.beside.major_faults)))
                }),
                ("reads per touch", "", &|l| device(l, 0)),
                ("writes per touch", "", &|l| device(l, 1)),
                ("mean read", "bytes", &|l| {
                    estimate(l.mean(|r| {
                        let d = r.job(evidence)?.device.as_ref()?;
                        (d.read_ios > 0).then(|| d.read_bytes as f64 / d.read_ios as f64)
                    }))
                }),
            ],
        )
    }
}

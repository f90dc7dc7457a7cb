//! A working set larger than memory: a process under a memory limit (control group) that swaps to the target, beside
//! the same process without a limit.
//!
//! See [`fathom_system::swap_file`] for what the swap file does to the rest of the machine.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, number, point, series,
};
use fathom_experiments::survey::{Outlook, Watcher};
use fathom_experiments::{Bench, Notebook, NotebookError, Plan};
use fathom_host::{CounterSource, Counters};
use fathom_io::driver::Progress;
use fathom_stats::Estimate;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::schema::{Cell as TableCell, ChartKind, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode, Histogram, Nanos};

use crate::LabError;
use crate::db::directory;
use fathom_system::cgroup::Group;
use fathom_system::lab_dir::LabDir;
use fathom_system::programs::ChildGuard;
use fathom_system::swap_file::Swap;

/// Name of the hidden command that is the process under test.
pub const COMMAND: &str = "swap-load";
const PAGE: usize = 4096;

/// What is measured.
#[derive(Debug, Clone)]
pub struct SwapOptions {
    /// Bytes of the working set.
    pub bytes: Bytes,
    /// Shares of it that may be in memory, percent; without a limit comes first, always.
    pub shares: Vec<f64>,
    /// Threads that touch it.
    pub threads: u32,
    /// Time of one measurement; by the profile where it is not given.
    pub time: Option<Nanos>,
    /// Seed.
    pub seed: u64,
}

fn time(plan: &Plan, options: &SwapOptions) -> Nanos {
    options.time.unwrap_or(Nanos(plan.profile.job_time.0 * 3))
}

/// Time and bytes, at most.
pub fn outlook(plan: &Plan, options: &SwapOptions) -> Outlook {
    let n = (options.shares.len() as u32 + 1) * plan.profile.repeats;
    let each = time(plan, options) + Nanos::from_secs(1);
    let pages = time(plan, options).as_secs_f64() * 200_000.0 * PAGE as f64;
    Outlook {
        jobs: n,
        time: Nanos(each.0 * u64::from(n)),
        written_at_most: Bytes((options.bytes.0 + pages as u64) * u64::from(n)),
    }
}

/// One measurement.
struct Repeat {
    /// Touches per second.
    rate: f64,
    latency: Histogram,
    major_faults: f64,
    touches: f64,
    device: Option<Counters>,
}

/// Measures and puts a section into the notebook.
///
/// # Errors
/// Where the target cannot hold a swap file, or the run directory fails.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &SwapOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
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
    let limits: Vec<Option<f64>> = std::iter::once(None)
        .chain(options.shares.iter().map(|s| Some(*s)))
        .collect();
    let mut all: Vec<Vec<Repeat>> = limits.iter().map(|_| Vec::new()).collect();
    let mut skipped = Vec::new();
    let set_up = Group::create("swap").and_then(|g| Ok((g, Swap::on(place.path(), room)?)));
    let mut result = Ok(());
    let set_up = match set_up {
        Ok(s) => Some(s),
        Err(e) => {
            skipped.push(crate::skipped::Skipped::from_error("runs under a limit", e));
            None
        }
    };
    let device = CounterSource::locate(place.path()).ok();
    let total = limits.len() as u32 * plan.profile.repeats;
    let mut done = 0;
    'all: for repeat in 0..plan.profile.repeats {
        for k in 0..limits.len() {
            let i = if repeat % 2 == 0 {
                k
            } else {
                limits.len() - 1 - k
            };
            let limit = limits[i];
            if limit.is_some() && set_up.is_none() {
                continue;
            }
            if bench.interrupted() {
                break 'all;
            }
            let name = limit.map_or("all in memory".into(), |s| format!("{s} % in memory"));
            watcher.job(done, total, &name);
            done += 1;
            let group = set_up.as_ref().map(|s| &s.0).zip(limit);
            let lab = Lab {
                bench,
                options,
                time: time(plan, options),
                place: place.path(),
                device: device.as_ref(),
            };
            match lab.one(group, options.seed + u64::from(repeat), watcher) {
                Ok(r) => all[i].push(r),
                Err(_) if bench.interrupted() => break 'all,
                Err(e) => {
                    result = Err(e);
                    break 'all;
                }
            }
        }
    }
    drop(set_up);
    drop(place);
    report(book, options, &limits, &all);
    let run = book.run_mut();
    run.sections
        .extend(crate::skipped::skipped("app-swap", &skipped));
    if bench.interrupted() {
        run.flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{done} of {total} measurements were made"),
            "run again for the rest",
        ));
    }
    result.map_err(NotebookError::from)
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
}

impl Lab<'_> {
    fn one(
        &self,
        group: Option<(&Group, f64)>,
        seed: u64,
        watcher: &mut dyn Watcher,
    ) -> Result<Repeat, LabError> {
        let failed = |e: io::Error| LabError::Failed(format!("the process under test: {e}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(COMMAND).args([
            self.options.bytes.0.to_string(),
            self.options.threads.to_string(),
            (self.time.0 / 1_000_000).to_string(),
            seed.to_string(),
        ]);
        if let Some((group, share)) = group {
            let bytes = self.options.bytes.0 as f64 * share / 100.0;
            group.limit(bytes as u64).map_err(failed)?;
            let members = group.members().map_err(failed)?;
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
        let errors = self.place.join("swap.log");
        let (mut kept, out) = ChildGuard::piped(command, &errors)?;
        let counters = || self.device.and_then(|d| d.read().ok());
        let mut before = None;
        let mut repeat = None;
        let mut latency = Histogram::new();
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let what = words.next().unwrap_or_default();
            let numbers: Vec<f64> = words.filter_map(|w| w.parse().ok()).collect();
            match (what, &numbers[..]) {
                ("filled", _) => before = counters(),
                ("rate", [ms, touches]) => watcher.progress(&Progress {
                    elapsed: Nanos::from_millis(*ms as u64),
                    ios: *touches as u64,
                    ..Progress::default()
                }),
                ("latency", [value, n]) => latency.record_n(*value as u64, *n as u64),
                ("end", [touches, seconds, faults]) => {
                    let device = counters()
                        .zip(before.take())
                        .map(|(after, before)| after.since(&before));
                    repeat = Some(Repeat {
                        rate: touches / seconds,
                        latency: Histogram::new(),
                        major_faults: *faults,
                        touches: *touches,
                        device,
                    });
                }
                _ => {}
            }
            if self.bench.interrupted() {
                return Err(LabError::Failed("interrupted".into()));
            }
        }
        kept.succeed(&|| self.bench.interrupted())?;
        let mut repeat =
            repeat.ok_or_else(|| kept.failure("nothing said (was it out of memory?)"))?;
        repeat.latency = latency;
        Ok(repeat)
    }
}

/// The process under test: touches pages of a working set at random, half of the touches change them.
///
/// # Errors
/// Where there is not so much memory, or nobody reads what it says.
pub fn load(bytes: u64, threads: u32, time: Nanos, seed: u64) -> io::Result<()> {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let words = bytes as usize / 8;
    let each = PAGE / 8;
    let pages = words / each;
    // Filled with what no kernel compresses or merges.
    let memory: Vec<AtomicU64> = {
        let mut random = SplitMix64::new(seed);
        (0..pages * each)
            .map(|_| AtomicU64::new(random.next_u64()))
            .collect()
    };
    let mut out = io::stdout().lock();
    writeln!(out, "filled")?;
    out.flush()?;
    let faults = || {
        // SAFETY: fills a structure of this function.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage.ru_majflt as u64
        }
    };
    let before = faults();
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
                    let clock = fathom_io::clock::Clock::new();
                    let seed = seed ^ SplitMix64::new(t as u64 + 1).next_u64();
                    let mut random = SplitMix64::new(seed);
                    let mut latency = Histogram::new();
                    let mut last = clock.now();
                    while !stop.load(Ordering::Relaxed) {
                        let at = random.below(pages) * each + random.below(each);
                        if random.next_u64() & 1 == 0 {
                            memory[at].fetch_add(1, Ordering::Relaxed);
                        } else {
                            std::hint::black_box(memory[at].load(Ordering::Relaxed));
                        }
                        let now = clock.now();
                        latency.record(now.since(last).0);
                        last = now;
                        mine.fetch_add(1, Ordering::Relaxed);
                    }
                    latency
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
        writeln!(out, "end {n} {seconds} {}", faults() - before)?;
        let mut latency = Histogram::new();
        for w in workers {
            if let Ok(h) = w.join() {
                latency.merge(&h);
            }
        }
        // Enough for percentiles: the value at each thousandth, and beyond.
        let count = latency.count();
        let mut told = 0;
        for step in (1..=999)
            .map(|i| f64::from(i) / 1000.0)
            .chain([0.9999, 0.99999])
        {
            let upto = (count as f64 * step) as u64;
            if let Some(v) = latency.quantile(step).filter(|_| upto > told) {
                writeln!(out, "latency {v} {}", upto - told)?;
                told = upto;
            }
        }
        out.flush()
    })
}

fn report(book: &mut Notebook, options: &SwapOptions, limits: &[Option<f64>], all: &[Vec<Repeat>]) {
    let mean = |r: &[Repeat], f: &dyn Fn(&Repeat) -> Option<f64>| {
        let values: Vec<f64> = r.iter().filter_map(f).collect();
        Estimate::mean_of(&values)
    };
    let free = mean(&all[0], &|r| Some(r.rate));
    let slower = |r: &[Repeat]| {
        let ratios: Vec<f64> = all[0].iter().zip(r).map(|(a, b)| a.rate / b.rate).collect();
        Estimate::mean_of(&ratios)
    };
    let name = |l: &Option<f64>| l.map_or("all".to_owned(), |s| format!("{s} %"));
    let rows = limits
        .iter()
        .zip(all)
        .map(|(limit, r)| {
            let mut latency = Histogram::new();
            r.iter().for_each(|r| latency.merge(&r.latency));
            let q = |q| latency.quantile_supported(q, 10).map(|v| v as f64);
            let per = |f: fn(&Counters) -> u64| {
                estimate(mean(r, &|r| Some(f(r.device.as_ref()?) as f64 / r.touches)))
            };
            vec![
                TableCell::Text(name(limit)),
                estimate(mean(r, &|r| Some(r.rate))),
                estimate(slower(r)),
                number(q(0.5)),
                number(q(0.99)),
                estimate(mean(r, &|r| Some(r.major_faults / r.touches))),
                per(|c| c.read_ios),
                per(|c| c.write_ios),
                estimate(mean(r, &|r| {
                    let c = r.device.as_ref()?;
                    (c.read_ios > 0).then(|| c.read_bytes as f64 / c.read_ios as f64)
                })),
            ]
        })
        .collect();
    let points = limits
        .iter()
        .zip(all)
        .filter(|(l, r)| l.is_some() && !r.is_empty())
        .map(|(l, r)| point(l.unwrap_or(100.0), slower(r)))
        .collect::<Vec<_>>();
    let mut section = Section {
        id: "app-swap".into(),
        title: "Swapping".into(),
        text: format!(
            "A process with a working set of {} touches pages at random with {} threads, half of the touches change them; under a limit of its memory it swaps to a file on the target. Slower by: the rate of the same process without a limit over its own.",
            options.bytes, options.threads
        ),
        charts: if points.is_empty() {
            Vec::new()
        } else {
            vec![chart(
                "app-swap-slower",
                "Slowdown by share in memory",
                ChartKind::Line,
                axis("in memory", "%", false),
                axis("slower by", "x", true),
                vec![series("slower by", points)],
            )]
        },
        tables: vec![Table {
            id: "app-swap-table".into(),
            title: "Touches, and what the device counted".into(),
            columns: vec![
                column("in memory", ""),
                column("touches", "1/s"),
                column("slower by", "x"),
                column("p50", "ns"),
                column("p99", "ns"),
                column("major faults per touch", ""),
                column("reads per touch", ""),
                column("writes per touch", ""),
                column("mean read", "bytes"),
            ],
            rows,
        }],
        flags: Vec::new(),
    };
    let last = limits.iter().zip(all).rfind(|(_, r)| !r.is_empty());
    if let Some((Some(share), r)) = last
        && let Some(e) = slower(r)
    {
        section.text.push_str(&format!(
            " With {share} % of its working set in memory, a process that swaps to this target is {:.0} times as slow.",
            e.value
        ));
    }
    let run = book.run_mut();
    run.sections.push(section);
    run.headlines.push(headline_of(
        "Swapping",
        "all in memory: touches",
        "app-swap-all",
        "1/s",
        free,
        Vec::new(),
    ));
    for (limit, r) in limits.iter().zip(all) {
        let (Some(share), Some(e)) = (limit, slower(r)) else {
            continue;
        };
        run.headlines.push(headline_of(
            "Swapping",
            &format!("{share} % in memory: slower by"),
            &format!("app-swap-{share}"),
            "x",
            Some(e),
            Vec::new(),
        ));
    }
}

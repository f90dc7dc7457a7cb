//! `fathom watch`: the I/O profile of a live system, read only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_bench::Notebook;
use fathom_bench::cost::RunCost;
use fathom_experiments::workload::{Collector, PROFILE, Profile, facts};
use fathom_files::Existing;
use fathom_io::Control;
use fathom_io::clock::Clock;
use fathom_stack::event::{Event, Kind, rwbs};
use fathom_stack::watch::Watch;
use fathom_stack::{Disk, TraceError};
use fathom_telemetry::say;
use fathom_telemetry::schema::Target;
use fathom_telemetry::{Bytes, Nanos, Op};

use super::announce::Foreseen;
use super::finish::{capsule, meta};
use super::watch_listen::{Listener, Seen};
use super::watch_live::Live;
use crate::cli::WatchArgs;
use crate::exit::{DONE, Failure, Outcome, failed, refused};
use crate::{progress, screen, signals, view};

/// For how long, unless somebody says so.
const TIME: Nanos = Nanos::from_secs(10);
/// How often events are taken.
const EVERY: Duration = Duration::from_millis(20);
/// How often counters are read where there is no tracing.
const COUNTERS_EVERY: Duration = Duration::from_millis(5);

/// What is watched.
enum Subject {
    Disks(Vec<Disk>),
    Process(u32, Vec<Disk>),
}

pub(crate) fn watch(args: &WatchArgs) -> Outcome {
    let subject = subject(args.subject.as_deref())?;
    if args.dry_run {
        let of = match &subject {
            Subject::Disks(d) => names(d),
            Subject::Process(pid, _) => format!("process {pid}"),
        };
        let mut cost = RunCost::default();
        let (word, time) = match (args.time, &args.listen) {
            (None, Some(_)) => (" until it is ended", Nanos::ZERO),
            (time, _) => ("", time.unwrap_or(TIME)),
        };
        cost.phase(&format!("watching {of}{word}"))
            .work(0, time, Bytes(0));
        return Foreseen::of("Reading only", &cost, "").dry_run(args.out.json);
    }
    let control = signals::control().map_err(refused)?;
    let (name, disks, pid) = match &subject {
        Subject::Disks(d) => (names(d), d, None),
        Subject::Process(pid, d) => (format!("process {pid}"), d, Some(*pid)),
    };
    view::target(view::Target::Disks(
        disks.iter().map(|d| d.name.clone()).collect(),
    ));
    let listener = (args.listen.as_deref())
        .map(|address| Listener::begin(address, &name))
        .transpose()?;
    // Who is asked again and again goes on until somebody ends it.
    let time = match (args.time, &listener) {
        (Some(time), _) => time,
        (None, Some(_)) => Nanos(u64::MAX),
        (None, None) => TIME,
    };
    match time {
        Nanos(u64::MAX) => say!("Watching {name}, reading only; Ctrl-C ends it"),
        _ => say!(
            "Watching {name} for {:.0} s, reading only; Ctrl-C ends it early",
            time.as_secs_f64()
        ),
    }
    let listener = listener.as_ref();
    let profile = match Watch::start(disks) {
        Ok(watch) => events(watch, &name, pid, (time, &control), listener),
        Err(
            e @ (TraceError::Denied { .. } | TraceError::NotMounted | TraceError::NoBlockEvents),
        ) if pid.is_none() => {
            say!("fathom: no tracing here ({e}); counters are read instead");
            counters(disks, &name, (time, &control), listener, &e.to_string())?
        }
        Err(e) => return Err(refused(e)),
    };
    save(args, &name, &profile, control.interrupted())
}

fn names(disks: &[Disk]) -> String {
    let all: Vec<&str> = disks.iter().map(|d| d.name.as_str()).collect();
    all.join(", ")
}

/// A process by its number, a device by its name or path; all disks without either.
fn subject(text: Option<&str>) -> Result<Subject, Failure> {
    // Devices that only pass I/Os on would count them twice.
    let all = || -> Vec<Disk> {
        let mut names: Vec<String> = std::fs::read_dir("/sys/block")
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
            .iter()
            .filter(|n| !n.starts_with("loop") && !n.starts_with("ram"))
            .filter_map(|n| Disk::named(n))
            .filter(|d| d.has_requests)
            .collect()
    };
    let Some(text) = text else {
        return Ok(Subject::Disks(all()));
    };
    if let Ok(pid) = text.parse::<u32>() {
        if !Path::new("/proc").join(text).exists() {
            return Err(refused(anyhow::anyhow!(
                "process {pid}: it does not exist; see its number with ps"
            )));
        }
        return Ok(Subject::Process(pid, all()));
    }
    let name = std::fs::canonicalize(text)
        .ok()
        .and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| text.to_owned());
    match Disk::named(&name) {
        Some(d) => Ok(Subject::Disks(vec![d])),
        None => Err(refused(anyhow::anyhow!(
            "{text}: expected a process's number or a whole disk, such as vda or /dev/nvme0n1; see fathom devices"
        ))),
    }
}

/// Follows every I/O from the moment it is queued to its completion.
fn events(
    mut watch: Watch,
    name: &str,
    pid: Option<u32>,
    (time, control): (Nanos, &Control),
    listener: Option<&Listener>,
) -> Profile {
    let clock = Clock::new();
    let begin = clock.now();
    let mut collector: Option<Collector> = None;
    let mut threads = pid.map(tids);
    let mut last_ts = 0;
    let mut line = line(time);
    line.name(&format!("watching {name}"));
    let mut live = Live::new(name);
    loop {
        let over = clock.now().since(begin) >= time || control.interrupted();
        if let (Some(pid), Some(t)) = (pid, &mut threads) {
            // Threads that came since; those that have gone may still have I/Os to end.
            t.extend(tids(pid));
        }
        watch.poll(over, |e| {
            last_ts = e.ts;
            let c = collector.get_or_insert_with(|| Collector::new(name, e.ts));
            take(c, &mut live, e, threads.as_ref());
        });
        if let Some(l) = listener {
            let lost = watch.lost();
            l.answer(&mut || match &collector {
                Some(c) => seen(c, lost),
                None => seen(&Collector::new(name, 0), lost),
            });
        }
        let since = clock.now().since(begin);
        live.at(since);
        line.position(since.0 / 1_000_000);
        if over {
            break;
        }
        std::thread::sleep(EVERY);
    }
    line.clear();
    let lost = watch.lost();
    let wall = clock.now().since(begin).0;
    // Events carry the kernel's clock; what was idle before the first and after the last is part of the time.
    let mut profile = match collector {
        Some(c) => c.finish(last_ts),
        None => Collector::new(name, 0).finish(0),
    };
    let rest = wall.saturating_sub(profile.wall_ns);
    profile.wall_ns = wall;
    match profile.depth_by_time.iter_mut().find(|d| d.0 == 0) {
        Some(d) => d.1 += rest,
        None => profile.depth_by_time.insert(0, (0, rest)),
    }
    profile.lost = lost;
    profile
}

/// Progress; without an end there is no share of it.
fn line(time: Nanos) -> progress::Line {
    let length = if time == Nanos(u64::MAX) { 0 } else { time.0 };
    progress::Line::new(length / 1_000_000)
}

fn seen(c: &Collector, lost: u64) -> Seen {
    let (profile, latency) = c.so_far();
    Seen {
        ios: profile.ios,
        bytes: profile.bytes,
        outstanding: u64::from(c.outstanding()),
        latency: Some(latency.to_sparse()),
        lost,
    }
}

fn take(c: &mut Collector, live: &mut Live, e: &Event, threads: Option<&BTreeSet<u32>>) {
    let (offset, len) = (e.b.saturating_mul(512), u64::from(e.c) * 512);
    match e.kind {
        Kind::Queue => {
            if threads.is_some_and(|t| !t.contains(&e.tid)) {
                return;
            }
            let op = if e.flags & rwbs::DISCARD != 0 {
                Op::Trim
            } else if len == 0 {
                Op::Sync
            } else if e.flags & rwbs::WRITE != 0 {
                Op::Write
            } else {
                Op::Read
            };
            c.start(e.ts, e.a, op, offset, len);
        }
        Kind::Complete => {
            for ended in c.end(e.ts, e.a, offset, len) {
                live.ended(ended);
            }
        }
        _ => {}
    }
}

/// Threads of a process.
fn tids(pid: u32) -> BTreeSet<u32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// What counters tell anyone: rates, mean sizes, depth at moments. Sizes, order and bursts stay unknown.
fn counters(
    disks: &[Disk],
    name: &str,
    (time, control): (Nanos, &Control),
    listener: Option<&Listener>,
    why: &str,
) -> Result<Profile, Failure> {
    let read = || -> Result<[u64; 5], Failure> {
        let mut sum = [0u64; 5];
        for d in disks {
            let path = PathBuf::from("/sys/block").join(&d.name).join("stat");
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            let n: Vec<u64> = text
                .split_whitespace()
                .filter_map(|w| w.parse().ok())
                .collect();
            for (s, i) in sum.iter_mut().zip([0, 2, 4, 6, 8]) {
                *s += n.get(i).copied().unwrap_or(0);
            }
        }
        Ok(sum)
    };
    let clock = Clock::new();
    let begin = clock.now();
    let first = read()?;
    let mut depth: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
    let mut last = begin;
    let mut line = line(time);
    line.name(&format!("watching {name}"));
    let mut live = Live::new(name);
    let mut then = first;
    while last.since(begin) < time && !control.interrupted() {
        std::thread::sleep(COUNTERS_EVERY);
        let now = clock.now();
        let counted = read()?;
        let since = |i: usize| counted[i].saturating_sub(then[i]);
        live.count(since(0) + since(2), since(0), (since(1) + since(3)) * 512);
        live.at(now.since(begin));
        line.position(now.since(begin).0 / 1_000_000);
        then = counted;
        if let Some(l) = listener {
            let d = |i: usize| counted[i].saturating_sub(first[i]);
            l.answer(&mut || Seen {
                ios: [d(0), d(2), 0, 0],
                bytes: [d(1) * 512, d(3) * 512, 0, 0],
                outstanding: counted[4],
                latency: None,
                lost: 0,
            });
        }
        let outstanding = counted[4].min(1024) as u32;
        *depth.entry(outstanding).or_default() += now.since(last).0;
        last = now;
    }
    line.clear();
    let end = read()?;
    let d = |i: usize| end[i].saturating_sub(first[i]);
    Ok(Profile {
        profile_version: 1,
        source: name.to_owned(),
        wall_ns: last.since(begin).0,
        ios: [d(0), d(2), 0, 0],
        bytes: [d(1) * 512, d(3) * 512, 0, 0],
        depth_by_time: depth.into_iter().collect(),
        missing: vec![format!(
            "sizes, order, bursts and latency of single I/Os ({why})"
        )],
        ..Profile::default()
    })
}

fn save(args: &WatchArgs, name: &str, profile: &Profile, interrupted: bool) -> Outcome {
    let meta = meta("watch", 0, &args.out, capsule(None));
    let target = Target {
        name: name.to_owned(),
        kind: "live".into(),
        path: None,
        size_bytes: 0,
        device: None,
        description: "a live system, read only".into(),
    };
    let mut book = Notebook::create(&args.out.out, meta, target, false, 0)?;
    if profile.ios.iter().sum::<u64>() == 0 {
        say!("fathom: no I/O was seen");
    }
    let mut text = String::new();
    for (what, value) in facts(profile) {
        text += &format!("{what:<18} {value}\n");
    }
    book.found(profile)?;
    let (run, dir, _) = book.finish()?;
    let json = serde_json::to_string_pretty(profile).map_err(failed)? + "\n";
    let file = dir
        .write(PROFILE, Existing::None, json.as_bytes())
        .map_err(failed)?;
    let report = fathom_report::write_report(dir.path()).map_err(|e| {
        say!("fathom: the report could not be written: {e}");
    });
    if args.out.json {
        screen::json(&run)?;
    } else {
        let conclusion = fathom_report::terminal::conclusion(&run, &screen::screen());
        screen::print(&format!(
            "{text}{conclusion}\n{}profile {}\nweight a survey by it: fathom survey TARGET --workload {}\n",
            report.map_or_else(|()| String::new(), |r| format!("report {}\n", r.display())),
            file.display(),
            file.display()
        ));
    }
    if interrupted {
        say!("fathom: ended early; the profile is of the time until then");
    }
    Ok(DONE)
}

/// A saved profile, from its file or its run directory.
pub(crate) fn read_profile(path: &Path) -> Result<Profile, Failure> {
    Profile::read(path).map_err(|e| refused(anyhow::anyhow!("--workload {e}")))
}

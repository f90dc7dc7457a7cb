//! Ingest as a photographer does it (seed 003: 3,075 photos, 37.4 GB): read them, write them, copy them, handle their
//! names. The source is the user's, and only read, or a generated set on the target.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use fathom_bench::cost::{FILL_RATE, RunCost};
use fathom_bench::parts::{axis, chart, estimate, headline_of, point, series, table, text};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_files::create;
use fathom_host::CounterSource;
use fathom_io::clock::{monotonic, process_cpu};
use fathom_io::target::count;
use fathom_stats::Estimate;
use fathom_stats::rng::SplitMix64;
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::schema::{Chart, ChartKind, DeviceDelta, Finding, Job, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode, Histogram, Nanos, Op};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::photos::{Item, PHOTOS, list, named, sizes, write_random};
use crate::LabError;
use crate::confounders::{self, SettingsSeen};
use crate::db::directory;
use crate::loads::{self, About, Course, Load};

/// Bytes that are read or written at once.
const CHUNK: usize = 1 << 20;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Files of the user's own; a generated set where it is not given.
    #[arg(skip)]
    pub source: Option<PathBuf>,
    /// Bytes of the generated set
    #[arg(long, default_value = "256m")]
    pub bytes: Bytes,
    /// Threads that work on files at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
}

/// Time and bytes, at most. How fast files are copied is not known beforehand: 100 MB/s are taken.
pub fn run_cost(plan: &Plan, options: &CopyOptions) -> RunCost {
    let bytes = match &options.source {
        Some(source) => list(source).map_or(0, |l| l.iter().map(|i| i.bytes).sum()),
        None => options.bytes.0,
    };
    let repeats = u64::from(plan.profile.repeats);
    let mut cost = RunCost::default();
    if options.source.is_none() {
        cost.phase("making the files").fill(Bytes(bytes));
    }
    // Each repeat reads all, writes as much, and copies; much of the copy is in memory.
    let moved = 3 * repeats * bytes;
    cost.phase("copying and reading").work(
        4 * plan.profile.repeats,
        Nanos::from_secs_f64(moved as f64 / FILL_RATE as f64),
        Bytes(bytes * 2 * repeats),
    );
    cost
}

const PHASES: [&str; 4] = ["read", "write", "copy", "metadata"];

/// What the device of the source counted.
type OfSource = Option<DeviceDelta>;
/// A phase by its name.
type Line = loads::Line<String, OfSource>;
type Repeat = loads::Repeat<OfSource>;

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyResult {
    options: CopyOptions,
    files: usize,
    bytes: u64,
    lines: Vec<Line>,
    /// The file systems of source and target.
    #[serde(default)]
    file_systems: [SettingsSeen; 2],
}

/// Measures and puts a section into the notebook.
///
/// # Errors
/// Where source or target cannot be used, or the run directory fails.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &CopyOptions,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let dir = directory(bench)?;
    let own = match &options.source {
        Some(source) => list(source).map_err(|e| {
            NotebookError::from(LabError::Refused(format!(
                "{}: cannot be read: {e}; name a directory with files",
                source.display()
            )))
        })?,
        None => Vec::new(),
    };
    if options.source.is_some() && own.is_empty() {
        let source = options.source.as_deref().unwrap_or(Path::new(""));
        return Err(LabError::Refused(format!(
            "{}: holds no files: name a directory with files, or leave it out for a generated set",
            source.display()
        ))
        .into());
    }
    let total = match &options.source {
        Some(_) => own.iter().map(|i| i.bytes).sum(),
        None => options.bytes.0,
    };
    let place = LabDir::create(&dir, total * 2 + (16 << 20)).map_err(LabError::from)?;
    let mut lab = Lab {
        bench,
        options,
        place: place.path(),
        book,
        sink,
        lines: PHASES.map(|p| Line::new(p.to_owned())).into(),
    };
    let ended = lab.rounds(own, plan.profile.repeats);
    let lines = lab.lines;
    let failed = match ended {
        Ok(items) => {
            book.found(&CopyResult {
                options: options.clone(),
                files: items.len(),
                bytes: items.iter().map(|i| i.bytes).sum(),
                file_systems: [options.source.as_deref().unwrap_or(&dir), &dir]
                    .map(|d| SettingsSeen::of(Vec::new(), d)),
                lines,
            })?;
            None
        }
        Err(e) => Some(e),
    };
    drop(place);
    if bench.interrupted() {
        book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            "the lab was interrupted; whole rounds are kept",
            "run it again: it begins anew",
        ));
        return Ok(());
    }
    failed.map_or(Ok(()), |e| Err(e.into()))
}

struct Lab<'a> {
    bench: &'a dyn Bench,
    options: &'a CopyOptions,
    place: &'a Path,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
    lines: Vec<Line>,
}

impl Lab<'_> {
    /// Whole rounds over all files; a round that fails ends them, and those before it stand.
    fn rounds(&mut self, own: Vec<Item>, repeats: u32) -> Result<Vec<Item>, LabError> {
        let items = self.source(own)?;
        for repeat in 0..repeats {
            if !self.round(&items, repeat, repeats)? {
                break;
            }
        }
        Ok(items)
    }

    /// The set that is copied: the user's, or one that is made now.
    fn source(&mut self, own: Vec<Item>) -> Result<Vec<Item>, LabError> {
        if !own.is_empty() {
            return Ok(own);
        }
        let dir = self.place.join("source");
        create::private_dir(&dir).map_err(|e| broken(&dir, &e))?;
        let items: Vec<Item> = sizes(self.options.bytes.0, self.options.seed)
            .into_iter()
            .enumerate()
            .map(|(i, bytes)| Item {
                path: dir.join(format!("IMG_{i:05}.raw")),
                bytes,
            })
            .collect();
        self.sink.job(0, 1, "making photos");
        self.each(&items, &|item, buffer| {
            let mut random = SplitMix64::new(self.options.seed ^ item.bytes);
            let mut file = create::file(&item.path)?;
            write_random(&mut file, item.bytes, &mut random, buffer)?;
            file.sync_data()
        })?;
        Ok(items)
    }

    /// Does something with each file, in several threads; returns how long each took.
    fn each(
        &self,
        items: &[Item],
        what: &(dyn Fn(&Item, &mut Vec<u8>) -> io::Result<()> + Sync),
    ) -> Result<Histogram, LabError> {
        let next = AtomicUsize::new(0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let work = || -> Result<Histogram, LabError> {
            let mut buffer = vec![0; CHUNK];
            let mut latency = Histogram::new();
            while !stop.load(Ordering::Relaxed) {
                let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    break;
                };
                let began = monotonic();
                if let Err(e) = what(item, &mut buffer) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(broken(&item.path, &e));
                }
                latency.record(monotonic().since(began).0);
            }
            Ok(latency)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.options.threads)
                .map(|_| fathom_io::threads::within(scope, work))
                .collect::<Result<_, _>>()
                .map_err(|e| {
                    stop.store(true, Ordering::Relaxed);
                    LabError::Failed(e.to_string())
                })?;
            while !workers.iter().all(|w| w.is_finished()) {
                std::thread::sleep(std::time::Duration::from_millis(2));
                if self.bench.interrupted() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            let mut all = Histogram::new();
            for w in workers {
                let one = w.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?;
                all.merge(&one);
            }
            Ok(all)
        })
    }

    /// The four phases; whether all of them came to their end.
    fn round(&mut self, items: &[Item], repeat: u32, of: u32) -> Result<bool, LabError> {
        let written = self.place.join(format!("written-{repeat}"));
        let copied = self.place.join(format!("copied-{repeat}"));
        for dir in [&written, &copied] {
            create::private_dir(dir).map_err(|e| broken(dir, &e))?;
        }
        let from = items[0].path.parent().unwrap_or(self.place);
        let sources = [from, self.place].map(|p| CounterSource::locate(p).ok());
        let counters = || sources.each_ref().map(|s| s.as_ref().and_then(count));
        let mut round = Vec::new();
        for (i, name) in PHASES.iter().enumerate() {
            self.sink.job(repeat * 4 + i as u32, of * 4, name);
            // What was read or written before must not be in memory.
            forget(items);
            let before = counters();
            let (began, used) = (monotonic(), process_cpu());
            let latency = self.phase(name, items, &written, &copied)?;
            let (took, all) = (monotonic().since(began), process_cpu());
            let cpu = (all.0 - used.0, all.1 - used.1);
            if self.bench.interrupted() {
                return Ok(false);
            }
            let after = counters();
            let [from, to] = [0, 1].map(|i| Some(after[i].as_ref()?.since(before[i].as_ref()?)));
            round.push((latency, (took, cpu), from, to));
        }
        for dir in [written, copied] {
            let _ = fs::remove_dir_all(dir);
        }
        let bytes = items.iter().map(|i| i.bytes).sum();
        for (i, (latency, (took, cpu), from, to)) in round.into_iter().enumerate() {
            let name = PHASES[i];
            let bytes = if name == "metadata" { 0 } else { bytes };
            let op = if name == "read" { Op::Read } else { Op::Write };
            let threads = self.options.threads;
            let load = Load {
                // Files differ in size: nobody asks for a percentile of them.
                percentiles: false,
                noted: unread(name, bytes, from.as_ref()).into_iter().collect(),
                cpu,
                ..Load::of_histograms(&[(op, latency)], bytes, threads, took, Course::default())
            };
            let about = About {
                experiment: "app-copy",
                name: &format!("copy-{name}"),
                repeat,
                engine: "files",
                spec: json!({ "phase": name, "options": self.options }),
                device: to,
                ours: true,
            };
            self.lines[i].repeats.push(Repeat {
                jobs: vec![load.keep(self.book, about)],
                operations: items.len() as u64,
                course: Course::default(),
                beside: from,
            });
        }
        Ok(true)
    }

    /// How long each file took.
    fn phase(
        &self,
        name: &str,
        items: &[Item],
        written: &Path,
        copied: &Path,
    ) -> Result<Histogram, LabError> {
        match name {
            "read" => self.each(items, &|item, buffer| {
                let mut file = File::open(&item.path)?;
                while file.read(buffer)? > 0 {}
                Ok(())
            }),
            "write" => self.each(items, &|item, buffer| {
                let mut file = create::file(&named(written, item))?;
                let mut random = SplitMix64::new(item.bytes ^ 0x5eed);
                write_random(&mut file, item.bytes, &mut random, buffer)?;
                file.sync_data()
            }),
            "copy" => self.each(items, &|item, buffer| {
                let mut source = File::open(&item.path)?;
                let mut file = create::file(&named(copied, item))?;
                loop {
                    match source.read(buffer)? {
                        0 => break,
                        n => file.write_all(&buffer[..n])?,
                    }
                }
                file.sync_data()
            }),
            _ => self.metadata(items, copied, written),
        }
    }

    /// Looks at each file, makes a small one beside it (a rating), renames it, and removes what was written.
    fn metadata(
        &self,
        items: &[Item],
        copied: &Path,
        written: &Path,
    ) -> Result<Histogram, LabError> {
        let latency = self.each(items, &|item, _| {
            let file = named(copied, item);
            fs::metadata(&file)?;
            create::whole(&file.with_extension("xmp"), 0o600, b"rating=5\n")?;
            fs::rename(&file, file.with_extension("renamed"))?;
            fs::remove_file(named(written, item))
        })?;
        File::open(copied)
            .and_then(|d| d.sync_all())
            .map_err(|e| broken(copied, &e))?;
        Ok(latency)
    }
}

fn broken(path: &Path, e: &io::Error) -> LabError {
    LabError::Failed(format!(
        "{}: {e}; look for room with df, and at the kernel log",
        path.display()
    ))
}

/// Of what was to be read, the device of the source saw less than half.
fn unread(phase: &str, bytes: u64, from: Option<&DeviceDelta>) -> Option<Flag> {
    let read = from?.read_bytes;
    let reads = ["read", "copy"].contains(&phase);
    (reads && read < bytes / 2).then(|| {
        Flag::new(
            FlagCode::PageCacheAnswered,
            format!("{} were read, of which the device saw {}", Bytes(bytes), Bytes(read)),
            "have nobody else hold the files in memory, or name files that were not read before; a file system that compresses reads less, too",
        )
    })
}

fn forget(items: &[Item]) {
    for file in items.iter().filter_map(|i| File::open(&i.path).ok()) {
        // SAFETY: advice about an open file; no memory is involved.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

impl Repeat {
    /// What a phase took, s.
    fn seconds(&self, evidence: &Evidence<'_>) -> Option<f64> {
        Some(self.job(evidence)?.wall_ns as f64 / 1e9)
    }

    /// Bytes per second.
    fn bandwidth(&self, evidence: &Evidence<'_>) -> Option<f64> {
        let job = self.job(evidence)?;
        let rate = [&job.read, &job.write]
            .into_iter()
            .flatten()
            .next()?
            .bytes_per_second;
        (rate > 0.0).then_some(rate)
    }
}

impl ExperimentResult for CopyResult {
    const EXPERIMENT: &'static str = "app-copy";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        if self.lines.iter().all(|l| l.repeats.is_empty()) {
            return;
        }
        let o = &self.options;
        let source = o.source.as_deref();
        let source = source.map_or("a generated set".to_owned(), |s| s.display().to_string());
        let bars = self.lines.iter().enumerate();
        let bars = bars
            .map(|(i, l)| point(i as f64, l.mean(|r| r.seconds(evidence))))
            .collect();
        let copied = self.lines[2].mean(|r| r.bandwidth(evidence));
        let photos = copied.map_or(String::new(), |e| {
            let whole = PHOTOS.1 as f64 / e.value;
            format!(
                " At this rate the {} photos (37.4 GB) of Shrout 2017 are copied in {:.0} min {:.0} s.",
                PHOTOS.0,
                (whole / 60.0).floor(),
                whole % 60.0
            )
        });
        shown.sections.push(Section {
            id: "app-copy".into(),
            title: "Copying files".into(),
            text: format!(
                "{} files with {} from {source}, {} threads, each file synced when it is written, nothing in memory beforehand. Phases: read all; write as much; copy from source to target; metadata (look, add a small file, rename, remove).{photos}",
                self.files,
                Bytes(self.bytes),
                o.threads
            ),
            charts: vec![Chart {
                categories: PHASES.iter().map(|p| (*p).to_owned()).collect(),
                ..chart(
                    "app-copy-time",
                    "Time by phase",
                    ChartKind::Bar,
                    axis("phase", "", false),
                    axis("time", "s", false),
                    vec![series("time", bars)],
                )
            }],
            tables: vec![phases(&self.lines, evidence)],
            flags: Vec::new(),
        });
        shown.findings.extend(self.speeds(evidence));
        shown.findings.push(self.beside(evidence));
        for line in &self.lines {
            let name = &line.setting;
            let headline = |what: &str, id: &str, unit, value| {
                let (label, id) = (format!("{name}: {what}"), format!("app-copy-{name}{id}"));
                headline_of("Copying files", &label, &id, unit, value, line.jobs())
            };
            let seconds = line.mean(|r| r.seconds(evidence));
            shown.headlines.push(headline("time", "", "s", seconds));
            let bandwidth = line.mean(|r| r.bandwidth(evidence));
            shown.headlines.push(match bandwidth {
                Some(b) => headline("bandwidth", "-bandwidth", "bytes/s", Some(b)),
                None => headline("files", "-files", "1/s", line.rate(evidence)),
            });
        }
    }
}

impl CopyResult {
    /// What copying took, s, the mean of the rounds.
    pub(crate) fn copied_in(&self, evidence: &Evidence<'_>) -> Option<Estimate> {
        let copy = self.lines.iter().find(|l| l.setting == PHASES[2])?;
        copy.mean(|r| r.seconds(evidence))
    }

    /// What was looked at beside it.
    fn beside(&self, evidence: &Evidence<'_>) -> Finding {
        let jobs: Vec<usize> = self.lines.iter().flat_map(Line::jobs).collect();
        let mut facts = vec!["every file is synced when it is written; what was read or written before was dropped from the page cache".to_owned()];
        let repeats = || self.lines.iter().flat_map(|l| &l.repeats);
        let both =
            repeats().find_map(|r| Some((r.beside.as_ref()?, r.job(evidence)?.device.as_ref()?)));
        facts.extend(both.map(|(from, to)| match from.name == to.name {
            true => format!("source and target are on one device, {}: a copy reads and writes it at the same time", to.name),
            false => format!("the source is on {}, the target on {}", from.name, to.name),
        }));
        let [from, to] = self.file_systems.each_ref().map(SettingsSeen::in_words);
        facts.extend(from.as_ref().map(|w| format!("source: {w}")));
        facts.extend(
            to.filter(|_| from.is_some())
                .map(|w| format!("target: {w}")),
        );
        let used = confounders::processors(self.lines.iter(), evidence);
        facts.extend(used.map(|n| format!("copying took up to {n:.2} processors")));
        confounders::beside("app-copy", facts, jobs, "app-copy-table")
    }

    /// What somebody who copies files gets; `None` where a phase has no number.
    fn speeds(&self, evidence: &Evidence<'_>) -> Option<Finding> {
        let [read, write, copy, names] = self.lines.as_slice() else {
            return None;
        };
        let bandwidth = |l: &Line| l.mean(|r| r.bandwidth(evidence));
        let (r, w, c) = (bandwidth(read)?, bandwidth(write)?, bandwidth(copy)?);
        let mb = |v: f64| format!("{:.0} MB/s", v / 1e6);
        let interval = match (c.low, c.high) {
            (Some(low), Some(high)) => {
                format!(" (95 % interval {} to {})", mb(low.max(0.0)), mb(high))
            }
            _ => String::new(),
        };
        Some(Finding {
            id: "app-copy-speeds".into(),
            text: format!(
                "Files are read at {}, written at {} and copied at {}{interval}; {:.0} files/s are looked up, made, renamed and removed.",
                mb(r.value),
                mb(w.value),
                mb(c.value),
                names.rate(evidence)?.value
            ),
            confidence: "moderate".into(),
            jobs: self.lines.iter().flat_map(Line::jobs).collect(),
            evidence: vec!["app-copy-table".into()],
            refuted_by: "The same command with another --seed whose intervals lie elsewhere."
                .into(),
            ..Finding::default()
        })
    }
}

fn phases(lines: &[Line], evidence: &Evidence<'_>) -> Table {
    let size = |bytes: u64, ios: u64| (ios > 0).then(|| bytes as f64 / ios as f64);
    let to = |l: &Line, f: &dyn Fn(&Job, &DeviceDelta) -> Option<f64>| {
        estimate(l.mean(|r| {
            let job = r.job(evidence)?;
            f(job, job.device.as_ref()?)
        }))
    };
    let from = |l: &Line, f: &dyn Fn(&DeviceDelta) -> Option<f64>| {
        estimate(l.mean(|r| f(r.beside.as_ref()?)))
    };
    table(
        "app-copy-table",
        "Phases, and what the devices counted",
        lines,
        &[
            ("phase", "", &|l| text(&l.setting)),
            ("time", "s", &|l| estimate(l.mean(|r| r.seconds(evidence)))),
            ("files", "1/s", &|l| estimate(l.rate(evidence))),
            ("bandwidth", "bytes/s", &|l| {
                estimate(l.mean(|r| r.bandwidth(evidence)))
            }),
            ("reads of the source's device", "", &|l| {
                from(l, &|d| Some(d.read_ios as f64))
            }),
            ("mean size", "bytes", &|l| {
                from(l, &|d| size(d.read_bytes, d.read_ios))
            }),
            ("writes of the target's device", "", &|l| {
                to(l, &|_, d| Some(d.write_ios as f64))
            }),
            ("mean size", "bytes", &|l| {
                to(l, &|_, d| size(d.write_bytes, d.write_ios))
            }),
            ("target's device busy", "%", &|l| {
                to(l, &|job, d| {
                    let share = d.busy_ms as f64 * 1e6 / job.wall_ns as f64;
                    Some((share * 100.0).min(100.0))
                })
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_did_not_see_came_from_memory() {
        let read = |read_bytes| DeviceDelta {
            read_bytes,
            ..DeviceDelta::default()
        };
        assert!(unread("read", 1 << 20, Some(&read(0))).is_some());
        assert!(unread("read", 1 << 20, Some(&read(1 << 20))).is_none());
        assert!(unread("write", 1 << 20, Some(&read(0))).is_none());
        assert!(unread("copy", 1 << 20, None).is_none());
    }
}

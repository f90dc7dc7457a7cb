//! One section into the shape of a job: what to do, where, and what to say of it.
//!
//! Sizes in percent and the end of the range wait for the target: [`Shape::settle`].

use std::path::PathBuf;

use fathom_io::JobSpec;
use fathom_io::job::{Arrival, BlockSizes, Burst, Engine, OnError, Rw, SyncPolicy};
use fathom_telemetry::{Bytes, Nanos};

use crate::FioError;
use crate::options::value::{self, Quantity};
use crate::options::{EngineFate, Fate};
use crate::section::Section;

/// Where the I/O goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere.
    Null,
    /// A file or device.
    Path(PathBuf),
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
    fn of(q: Option<Quantity>, job: &str, option: &str) -> Result<Self, FioError> {
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
            Some(Quantity::Zones(_)) => Err(FioError::unsupported(
                job,
                option,
                "zones are not available",
            )),
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
    /// Distance of entries, ms.
    pub average_ms: u64,
    /// The name carries the job's number.
    pub per_job: bool,
}

impl Logs {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.bandwidth.is_some() || self.latency.is_some() || self.iops.is_some()
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
    /// Appears in the output.
    pub stats: bool,
    /// Device counters in the output.
    pub disk_util: bool,
}

/// A job as far as its section alone decides it.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Range, amounts and seed are settled later.
    pub spec: JobSpec,
    /// Where.
    pub place: Place,
    /// Size that the file must have.
    pub file_size: Option<u64>,
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
    /// Passes.
    pub loops: u64,
    /// The amount is no limit.
    pub time_based: bool,
    /// Wait before the start.
    pub start_delay: Nanos,
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
    /// An error ends every job.
    pub exit_all_on_error: bool,
    /// A fresh seed in every run.
    pub random_seed: bool,
    /// Logs.
    pub logs: Logs,
    /// For the output.
    pub terms: Terms,
    /// Options that are not served; `--lenient` goes on without them.
    pub ignored: Vec<FioError>,
}

/// Values that hold nothing back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caps {
    pub(crate) bytes: Option<u64>,
    pub(crate) time: Option<Nanos>,
}

impl Shape {
    /// Makes the shape of one clone of a section.
    pub(crate) fn of(s: &Section, clone: u32) -> Result<Self, FioError> {
        let job = &s.name;
        let fate = s.engine_fate();
        if fate == EngineFate::Missing {
            return Err(FioError::unsupported(
                job,
                &format!("ioengine={}", s.get("ioengine").unwrap_or("psync")),
                "choose psync, sync, vsync, pvsync, pvsync2, mmap, libaio, io_uring, posixaio or null",
            ));
        }
        let mut ignored = Vec::new();
        for set in &s.settings {
            let value = set.value.as_deref();
            let last = s.get(set.option.name) == Some(value.unwrap_or(""));
            if set.option.fate == Fate::Refused && last && !set.option.is_default(value) {
                let text = match value {
                    Some(v) => format!("{}={v}", set.option.name),
                    None => set.option.name.to_owned(),
                };
                ignored.push(FioError::unsupported(job, &text, set.option.note));
            }
        }
        let mut spec = JobSpec {
            name: job.clone(),
            rw: direction(s)?,
            direct: s.flag("direct", !s.flag("buffered", true)),
            on_error: OnError::Stop,
            ..JobSpec::default()
        };
        let synchronous = fate == EngineFate::Sync;
        spec.engine = match fate {
            EngineFate::Sync => Engine::Preadv,
            EngineFate::Null => Engine::Null,
            _ => Engine::Uring,
        };
        let depth = u32::try_from(s.number("iodepth").unwrap_or(1)).unwrap_or(u32::MAX);
        if depth > 65_536 {
            return Err(FioError::value(
                job,
                "iodepth",
                format!("{depth} is not possible: expected at most 65536"),
            ));
        }
        spec.qd = if synchronous { 1 } else { depth.max(1) };
        spec.bs = block_sizes(s, spec.rw)?;
        spec.align = align(s, &spec);
        spec.read_share = read_share(s);
        random(s, &mut spec)?;
        durability(s, &mut spec)?;
        pace(s, &mut spec)?;
        content(s, &mut spec);
        spec.iopoll = s.flag("hipri", false) && spec.engine == Engine::Uring;
        spec.sqpoll = s.flag("sqthread_poll", false);
        spec.batch = s
            .number("iodepth_batch_complete_min")
            .map_or(1, |n| n.clamp(1, u64::from(spec.qd)) as u32);
        spec.time = s.nanos("runtime").filter(|t| *t > 0).map(Nanos);
        spec.ramp = Nanos(s.nanos("ramp_time").unwrap_or(0));
        spec.ios = s.number("number_ios").filter(|n| *n > 0);
        spec.cpus = cpus(s, clone)?;
        let logs = logs(s, &mut ignored);
        if logs.any() {
            spec.window = Nanos::from_millis(logs.average_ms.clamp(1, 100));
        }
        let continue_on_error = s
            .get("continue_on_error")
            .is_some_and(|v| !matches!(v, "none" | "0"));
        if continue_on_error {
            spec.on_error = OnError::Continue;
        }
        let time_based = s.flag("time_based", false) && spec.time.is_some();
        let offset_increment = Extent::of(s.quantity("offset_increment"), job, "offset_increment")?;
        Ok(Self {
            place: place(s, clone, fate)?,
            file_size: s.number("filesize").filter(|n| *n > 0),
            size: Extent::of(s.quantity("size"), job, "size")?,
            io_size: match s.quantity("io_size") {
                None | Some(Quantity::Plain(0)) => None,
                q => Some(Extent::of(q, job, "io_size")?),
            },
            offset: match Extent::of(s.quantity("offset"), job, "offset")? {
                Extent::Whole => Extent::Bytes(0),
                other => other,
            },
            offset_increment: match offset_increment {
                Extent::Whole => Extent::Bytes(0),
                other => other,
            },
            offset_align: s
                .number("offset_align")
                .filter(|n| *n > 0)
                .unwrap_or(spec.bs.min().0),
            loops: s.number("loops").unwrap_or(1).max(1),
            time_based,
            start_delay: Nanos(s.nanos("startdelay").unwrap_or(0)),
            sync_at_end: spec.rw.writes()
                && (s.flag("end_fsync", false) || s.flag("fsync_on_close", false)),
            unlink: s.flag("unlink", false),
            invalidate: s.flag("invalidate", true),
            create_only: s.flag("create_only", false),
            may_create: s.flag("allow_file_create", true),
            exit_all_on_error: s.flag("exitall_on_error", false),
            random_seed: !s.flag("randrepeat", true) && !s.has("randseed"),
            logs,
            terms: terms(s, synchronous, depth, continue_on_error)?,
            ignored,
            spec,
        })
    }

    /// Bytes that the file must hold, where the section says it.
    pub fn wanted_size(&self, clone: u32, cap: Option<u64>) -> Option<u64> {
        let cut = |n: u64| cap.map_or(n, |c| n.min(c.max(self.spec.bs.max().0)));
        if let Some(size) = self.file_size {
            return Some(cut(size));
        }
        match (self.size, self.offset, self.offset_increment) {
            (Extent::Bytes(size), Extent::Bytes(start), Extent::Bytes(step)) => Some(
                cut(size)
                    .saturating_add(start)
                    .saturating_add(step.saturating_mul(u64::from(clone))),
            ),
            (Extent::Bytes(size), ..) => Some(cut(size)),
            _ => match self.io_size {
                Some(Extent::Bytes(n)) => Some(cut(n)),
                _ => None,
            },
        }
    }

    /// The job on a target of `target` bytes.
    pub fn settle(
        &self,
        clone: u32,
        target: u64,
        cap: Option<u64>,
        time_cap: Option<Nanos>,
    ) -> Result<JobSpec, FioError> {
        let caps = Caps {
            bytes: cap,
            time: time_cap,
        };
        let mut spec = self.spec.clone();
        let job = &self.spec.name;
        let unit = spec.bs.min().0.max(1);
        let largest = spec.bs.max().0;
        let mut start = self.offset.bytes(target);
        if matches!(self.offset, Extent::Percent(_)) {
            start -= start % self.offset_align.max(1);
        }
        start = start.saturating_add(
            self.offset_increment
                .bytes(target)
                .saturating_mul(u64::from(clone)),
        );
        let room = target.saturating_sub(start);
        let cut = |n: u64| caps.bytes.map_or(n, |c| n.min(c.max(largest)));
        let asked = match self.size {
            Extent::Percent(p) => Extent::Percent(p).bytes(target).min(room),
            other => other.bytes(room),
        };
        let mut range = cut(asked).min(room);
        // Like fio, whole blocks only.
        if range > unit {
            range -= range % unit;
        }
        if room == 0 || range < largest {
            return Err(FioError::value(
                job,
                "size",
                format!(
                    "{} from offset {} of a target of {} leaves no room for a block of {}: choose a larger size or file",
                    Bytes(asked),
                    Bytes(start),
                    Bytes(target),
                    Bytes(largest)
                ),
            ));
        }
        spec.offset = Bytes(start);
        spec.size = Some(Bytes(range));
        spec.time = match (spec.time, caps.time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if caps.time.is_some() {
            spec.ramp = spec.ramp.min(caps.time.unwrap_or_default());
        }
        spec.bytes = if self.time_based {
            None
        } else {
            let once = match self.io_size {
                Some(e) => cut(e.bytes(room)),
                None if self.file_size.is_some() && asked < room => asked,
                None => range.max(if self.file_size.is_some() {
                    cut(asked)
                } else {
                    range
                }),
            };
            let whole = if once > unit {
                once - once % unit
            } else {
                once
            };
            Some(Bytes(whole.saturating_mul(self.loops)))
        };
        if let Some(n) = spec.ios {
            spec.ios = Some(n.saturating_mul(self.loops));
        }
        Ok(spec)
    }
}

fn direction(s: &Section) -> Result<Rw, FioError> {
    let text = s.get("rw").unwrap_or("read");
    let (word, tail) = text.split_once(':').unwrap_or((text, ""));
    let random_every_time = word.starts_with("rand") && matches!(tail, "" | "1");
    if !tail.is_empty() && !random_every_time && tail != "0" {
        return Err(FioError::unsupported(
            &s.name,
            &format!("rw={text}"),
            "sequences inside a pattern are not available: use rw=read or rw=randread",
        ));
    }
    match word {
        "readwrite" => Ok(Rw::Mixed),
        "trimwrite" | "randtrimwrite" => Err(FioError::unsupported(
            &s.name,
            &format!("rw={text}"),
            "trims and writes do not mix: make two jobs",
        )),
        _ => word
            .parse()
            .map_err(|e: String| FioError::value(&s.name, "rw", e)),
    }
}

/// Which of fio's three values counts for a pattern; `None` where two of them do.
fn one_of<T: PartialEq + Clone>(rw: Rw, values: &[T; 3]) -> Option<T> {
    match (rw.reads(), rw.writes()) {
        (true, true) => (values[0] == values[1]).then(|| values[0].clone()),
        (true, false) => Some(values[0].clone()),
        (false, true) => Some(values[1].clone()),
        (false, false) => Some(values[2].clone()),
    }
}

fn block_sizes(s: &Section, rw: Rw) -> Result<BlockSizes, FioError> {
    let two = |option: &str| {
        FioError::unsupported(
            &s.name,
            &format!("{option}={}", s.get(option).unwrap_or("")),
            "reads and writes of one job have the same block sizes: make two jobs",
        )
    };
    let checked = |sizes: Vec<(u64, f64)>, option: &str| {
        let text = sizes
            .iter()
            .map(|(b, w)| format!("{b}:{w}"))
            .collect::<Vec<_>>()
            .join(",");
        text.parse::<BlockSizes>()
            .map_err(|e| FioError::value(&s.name, option, e))
    };
    if let Some(text) = s.get("bssplit") {
        let parts: Vec<&str> = text.split(',').collect();
        let pick = |i: usize| {
            parts
                .get(i)
                .or(parts.last())
                .copied()
                .unwrap_or("")
                .to_owned()
        };
        let split = one_of(rw, &[pick(0), pick(1), pick(2)]).ok_or_else(|| two("bssplit"))?;
        let entries: Vec<(u64, Option<f64>)> = split
            .split(':')
            .filter(|p| !p.is_empty())
            .filter_map(|p| {
                let (size, share) = p.split_once('/').unwrap_or((p, ""));
                match value::number(size, s.kb_base())? {
                    Quantity::Plain(v) => Some((u64::try_from(v).ok()?, value::float(share))),
                    _ => None,
                }
            })
            .collect();
        let known: f64 = entries.iter().filter_map(|e| e.1).sum();
        let open = entries.iter().filter(|e| e.1.is_none()).count().max(1) as f64;
        let rest = ((100.0 - known) / open).max(0.0);
        let weighted: Vec<(u64, f64)> = entries
            .iter()
            .map(|(b, w)| (*b, w.unwrap_or(rest)))
            .filter(|(_, w)| *w > 0.0)
            .collect();
        return checked(weighted, "bssplit");
    }
    if let Some(text) = s.get("bsrange") {
        let parts: Vec<&str> = text.split(',').collect();
        let pick = |i: usize| {
            parts
                .get(i)
                .or(parts.last())
                .copied()
                .unwrap_or("")
                .to_owned()
        };
        let range = one_of(rw, &[pick(0), pick(1), pick(2)]).ok_or_else(|| two("bsrange"))?;
        let ends: Vec<u64> = range
            .split(['-', ':'])
            .filter_map(|e| match value::number(e, s.kb_base())? {
                Quantity::Plain(v) => u64::try_from(v).ok(),
                _ => None,
            })
            .collect();
        let [a, b, ..] = ends[..] else {
            return Err(FioError::value(
                &s.name,
                "bsrange",
                "expected a range such as 4k-64k",
            ));
        };
        let (low, high) = (a.min(b).max(1), a.max(b));
        // Multiples of the smallest, as fio rounds; at most 256 of them.
        let count = (high / low).max(1);
        let step = count.div_ceil(256).max(1);
        let sizes = (1..=count)
            .step_by(usize::try_from(step).unwrap_or(1))
            .map(|n| (n * low, 1.0))
            .collect();
        return checked(sizes, "bsrange");
    }
    let Some(values) = s.per_direction("bs") else {
        return Ok(BlockSizes::one(4096));
    };
    let values = values.map(|v| if v == 0 { 4096 } else { v });
    let size = one_of(rw, &values).ok_or_else(|| two("bs"))?;
    checked(vec![(size, 1.0)], "bs")
}

fn align(s: &Section, spec: &JobSpec) -> Option<Bytes> {
    let values = s.per_direction("ba")?;
    let size = one_of(spec.rw, &values).unwrap_or(values[0]);
    (spec.rw.is_random() && size > 0 && size != spec.bs.min().0).then_some(Bytes(size))
}

fn read_share(s: &Section) -> f64 {
    // The later of the two holds.
    let last = s
        .settings
        .iter()
        .rev()
        .find(|x| matches!(x.option.name, "rwmixread" | "rwmixwrite"));
    match last.map(|x| x.option.name) {
        Some("rwmixread") => s.number("rwmixread").unwrap_or(50).min(100) as f64,
        Some(_) => 100.0 - s.number("rwmixwrite").unwrap_or(50).min(100) as f64,
        None => 50.0,
    }
}

fn random(s: &Section, spec: &mut JobSpec) -> Result<(), FioError> {
    spec.seed = s.number("randseed").unwrap_or(0x89);
    if !spec.rw.is_random() {
        return Ok(());
    }
    let text = s.get("random_distribution").unwrap_or("random");
    let mut parts = text.split(':');
    let word = parts.next().unwrap_or("random");
    let shape = parts.next();
    if parts.next().is_some() && matches!(word, "zipf" | "pareto" | "normal") {
        return Err(FioError::unsupported(
            &s.name,
            &format!("random_distribution={text}"),
            "a center is not available: leave it out",
        ));
    }
    let dist = match word {
        "random" => "uniform".to_owned(),
        "zipf" => format!("zipf:{}", shape.unwrap_or("1.1")),
        "pareto" => format!("pareto:{}", shape.unwrap_or("0.2")),
        "normal" => format!("gauss:{}", shape.unwrap_or("0")),
        _ => {
            return Err(FioError::unsupported(
                &s.name,
                &format!("random_distribution={text}"),
                "choose random, zipf, pareto or normal",
            ));
        }
    };
    spec.dist = dist
        .parse()
        .map_err(|e: String| FioError::value(&s.name, "random_distribution", e))?;
    spec.random_map = word == "random"
        && !s.flag("norandommap", false)
        && spec.bs.0.len() == 1
        && spec.align.is_none();
    Ok(())
}

fn durability(s: &Section, spec: &mut JobSpec) -> Result<(), FioError> {
    if !spec.rw.writes() {
        return Ok(());
    }
    let number = |name| {
        s.number(name)
            .filter(|n| *n > 0)
            .map(|n| n.min(u64::from(u32::MAX)) as u32)
    };
    let each = match s.get("sync") {
        Some("sync" | "1") => Some(SyncPolicy::Sync),
        Some("dsync") => Some(SyncPolicy::Fua),
        _ => None,
    };
    let policies: Vec<SyncPolicy> = [
        each,
        number("fsync").map(SyncPolicy::Fsync),
        number("fdatasync").map(SyncPolicy::Fdatasync),
    ]
    .into_iter()
    .flatten()
    .collect();
    match policies[..] {
        [] => {}
        [one] => spec.sync = one,
        _ => {
            return Err(FioError::unsupported(
                &s.name,
                "fsync with fdatasync or sync",
                "choose one of them",
            ));
        }
    }
    Ok(())
}

fn pace(s: &Section, spec: &mut JobSpec) -> Result<(), FioError> {
    let job = &s.name;
    let sum = |values: [u64; 3]| -> (u64, f64) {
        match (spec.rw.reads(), spec.rw.writes()) {
            (true, true) => {
                let total = values[0].saturating_add(values[1]);
                (total, 100.0 * values[0] as f64 / total.max(1) as f64)
            }
            (true, false) => (values[0], 100.0),
            (false, true) => (values[1], 0.0),
            (false, false) => (values[2], 0.0),
        }
    };
    let mean_block = {
        let weight: f64 = spec.bs.0.iter().map(|b| b.1).sum();
        spec.bs.0.iter().map(|(b, w)| b.0 as f64 * w).sum::<f64>() / weight.max(f64::MIN_POSITIVE)
    };
    let by_ios = s.per_direction("rate_iops").map(sum).filter(|r| r.0 > 0);
    let by_bytes = s.per_direction("rate").map(sum).filter(|r| r.0 > 0);
    let rate = match (by_ios, by_bytes) {
        (Some(_), Some(_)) => {
            return Err(FioError::value(
                job,
                "rate",
                "it excludes rate_iops: choose one",
            ));
        }
        (Some((n, share)), None) => Some((n as f64, share)),
        (None, Some((n, share))) => Some((n as f64 / mean_block, share)),
        (None, None) => None,
    };
    let think = s.nanos("thinktime").unwrap_or(0);
    if let Some((rate, share)) = rate {
        if think > 0 {
            return Err(FioError::unsupported(
                job,
                "thinktime with rate",
                "choose one of them",
            ));
        }
        spec.rate = Some(rate);
        spec.arrival = match s.get("rate_process") {
            Some("poisson") => Arrival::Poisson,
            _ => Arrival::Constant,
        };
        if spec.rw.reads() && spec.rw.writes() {
            spec.read_share = share;
        }
    } else if think > 0 {
        spec.burst = Some(Burst {
            ios: s.number("thinktime_blocks").unwrap_or(1).max(1),
            bytes: 0,
            idle: Nanos(think),
        });
        if s.nanos("thinktime_iotime").unwrap_or(0) > 0 {
            return Err(FioError::unsupported(
                job,
                "thinktime_iotime",
                "use thinktime_blocks",
            ));
        }
    }
    Ok(())
}

fn content(s: &Section, spec: &mut JobSpec) {
    spec.compress = if s.flag("zero_buffers", false) {
        100.0
    } else {
        s.number("buffer_compress_percentage").unwrap_or(0).min(100) as f64
    };
    spec.duplicate = s.number("dedupe_percentage").unwrap_or(0).min(100) as f64;
}

fn cpus(s: &Section, clone: u32) -> Result<Vec<u32>, FioError> {
    let mut list = Vec::new();
    if let Some(text) = s.get("cpus_allowed") {
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let bad = || {
                FioError::value(
                    &s.name,
                    "cpus_allowed",
                    format!("'{part}' is not a processor: expected 0 or 0-3"),
                )
            };
            let (a, b): (u32, u32) = (
                a.trim().parse().map_err(|_| bad())?,
                b.trim().parse().map_err(|_| bad())?,
            );
            if b > 65_535 {
                return Err(bad());
            }
            list.extend(a..=b);
        }
    } else if let Some(mask) = s.number("cpumask") {
        list.extend((0..64).filter(|i| mask >> i & 1 == 1));
    }
    if !list.is_empty() {
        let turn = clone as usize % list.len();
        list.rotate_left(turn);
    }
    Ok(list)
}

fn logs(s: &Section, ignored: &mut Vec<FioError>) -> Logs {
    let prefix = |name: &str| {
        s.get(name).map(|v| {
            if v.is_empty() {
                s.name.clone()
            } else {
                v.to_owned()
            }
        })
    };
    let mut logs = Logs {
        bandwidth: prefix("write_bw_log"),
        latency: prefix("write_lat_log"),
        iops: prefix("write_iops_log"),
        average_ms: s.number("log_avg_msec").unwrap_or(0),
        per_job: s.flag("per_job_logs", true),
    };
    if logs.any() && logs.average_ms == 0 {
        ignored.push(FioError::unsupported(
            &s.name,
            "a log of every I/O",
            "add log_avg_msec=100 (fathom run --record writes one row per I/O)",
        ));
        logs = Logs::default();
    }
    if logs.any()
        && s.get("log_window_value")
            .is_some_and(|v| !matches!(v, "avg" | "0"))
    {
        ignored.push(FioError::unsupported(
            &s.name,
            "log_window_value",
            "entries are averages",
        ));
    }
    logs
}

fn place(s: &Section, clone: u32, fate: EngineFate) -> Result<Place, FioError> {
    if fate == EngineFate::Null {
        return Ok(Place::Null);
    }
    let job = &s.name;
    if s.number("nrfiles").unwrap_or(1) > 1 {
        return Err(FioError::unsupported(
            job,
            &format!("nrfiles={}", s.get("nrfiles").unwrap_or("")),
            "a job has one file: use numjobs, or one larger file",
        ));
    }
    let mut names = s.get("filename").map(names).unwrap_or_default();
    if names.len() > 1 {
        return Err(FioError::unsupported(
            job,
            &format!("filename={}", s.get("filename").unwrap_or("")),
            "a job has one file: make a job for each",
        ));
    }
    let directories = s.get("directory").map(self::names).unwrap_or_default();
    let name = match names.pop() {
        Some(n) if n == "-" => {
            return Err(FioError::unsupported(job, "filename=-", "name a file"));
        }
        Some(n) => n,
        None => {
            let named = std::path::Path::new(job);
            if named.exists() && !named.is_file() && !named.is_dir() {
                return Ok(Place::Path(named.to_owned()));
            }
            s.get("filename_format")
                .filter(|f| !f.is_empty())
                .unwrap_or("$jobname.$jobnum.$filenum")
                .replace("$jobname", job)
                .replace("$jobnum", &clone.to_string())
                .replace("$filenum", "0")
                .replace("$clientuid", "localhost")
        }
    };
    let path = if directories.is_empty() {
        PathBuf::from(name)
    } else {
        PathBuf::from(&directories[clone as usize % directories.len()]).join(name)
    };
    Ok(Place::Path(path))
}

/// Names between colons; `\:` is a colon of the name.
fn names(text: &str) -> Vec<String> {
    text.replace("\\:", "\u{0}")
        .split(':')
        .filter(|n| !n.is_empty())
        .map(|n| n.replace('\u{0}', ":"))
        .collect()
}

fn terms(
    s: &Section,
    synchronous: bool,
    depth: u32,
    continue_on_error: bool,
) -> Result<Terms, FioError> {
    let mut percentiles: Vec<f64> = s
        .get("percentile_list")
        .unwrap_or("1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99")
        .split(':')
        .filter_map(value::float)
        .filter(|p| *p > 0.0 && *p <= 100.0)
        .collect();
    percentiles.sort_by(f64::total_cmp);
    let reduce = s.flag("gtod_reduce", false);
    let sample = |name: &str| Nanos::from_millis(s.number(name).unwrap_or(500).max(1));
    Ok(Terms {
        percentiles,
        percentiles_of: [
            s.flag("slat_percentiles", false),
            s.flag("clat_percentiles", true),
            s.flag("lat_percentiles", false),
        ],
        disabled: [
            reduce || s.flag("disable_slat", false),
            reduce || s.flag("disable_clat", false),
            reduce || s.flag("disable_lat", false),
        ],
        group_reporting: s.flag("group_reporting", false),
        unified: match s.get("unified_rw_reporting") {
            Some("mixed" | "1") => Unified::Mixed,
            Some("both" | "2") => Unified::Both,
            _ => Unified::None,
        },
        description: s.get("description").unwrap_or("").to_owned(),
        sample: [sample("bwavgtime"), sample("iopsavgtime")],
        continue_on_error,
        engine: s.engine().to_owned(),
        synchronous,
        depth,
        stats: s.flag("stats", true),
        disk_util: s.flag("disk_util", true),
    })
}

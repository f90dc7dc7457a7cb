//! The one table of job options: name, help, how to set, how to show.

use serde_json::{Value, json};

use super::types::{TextDuration, size_text};
use super::{
    Advice, BlockSizes, Burst, Command, Distribution, Engine, HostSpan, JobError, JobSpec, OnError,
    Rw, SyncCall,
};
use fathom_telemetry::{Bytes, Nanos};

/// One option of a job.
pub struct OptionDef {
    /// Name on the command line (after `--`), in job files and in JSON.
    pub name: &'static str,
    /// Name of its value in help; empty for a switch.
    pub value: &'static str,
    /// Heading in help.
    pub heading: &'static str,
    /// One or two lines that teach.
    pub help: &'static str,
    /// Sets it from text.
    pub set: fn(&mut JobSpec, &str) -> Result<(), String>,
    /// Its value for JSON; `None` where it is at its default and says nothing.
    pub get: fn(&JobSpec) -> Option<Value>,
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    low: T,
    high: T,
) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(v) if v >= low && v <= high => Ok(v),
        _ => Err(format!(
            "'{text}' is not possible: expected a number from {low} to {high}"
        )),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "" | "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("'{text}' is not possible: expected true or false")),
    }
}

fn unit<T: std::str::FromStr>(text: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|e: T::Err| e.to_string())
}

fn positive(text: &str) -> Result<Nanos, String> {
    let d: Nanos = unit(text)?;
    if d == Nanos::ZERO {
        return Err("a duration of zero is not possible: expected more, such as 1s".into());
    }
    Ok(d)
}

/// I/Os per second with fio-like decimal suffixes: `600k`, `1.5m`.
fn rate(text: &str) -> Result<f64, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, scale) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1e3),
        Some(b'm') => (&lower[..lower.len() - 1], 1e6),
        _ => (lower.as_str(), 1.0),
    };
    match digits.parse::<f64>() {
        Ok(v) if v > 0.0 && v * scale <= 1e9 => Ok(v * scale),
        _ => Err(format!(
            "'{text}' is not a rate: expected I/Os per second above 0, such as 600k"
        )),
    }
}

fn list(numbers: &[u32]) -> Option<Value> {
    let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
    (!numbers.is_empty()).then(|| json!(text.join(",")))
}

fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let mut list = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        let (a, b): (u32, u32) = (number(a, 0, 65_535)?, number(b, 0, 65_535)?);
        if a > b {
            return Err(format!(
                "'{part}' runs backwards: expected a range such as 0-3"
            ));
        }
        list.extend(a..=b);
    }
    Ok(list)
}

fn show<T: PartialEq + ToString>(value: &T, default: &T) -> Option<Value> {
    (value != default).then(|| json!(value.to_string()))
}

fn duration(value: Nanos) -> Option<Value> {
    (value != Nanos::ZERO).then(|| json!(TextDuration(value).to_string()))
}

macro_rules! option {
    ($heading:literal, $name:literal, $value:literal, $help:literal, |$s:ident, $t:ident| $set:expr, |$g:ident| $get:expr) => {
        OptionDef {
            name: $name,
            value: $value,
            heading: $heading,
            help: $help,
            set: |$s, $t| {
                $set;
                Ok(())
            },
            get: |$g| $get,
        }
    };
}

/// Every option of a job, in the order of help.
pub const OPTIONS: &[OptionDef] = &[
    option!(
        "Load",
        "name",
        "NAME",
        "Name of the job in results",
        |s, t| s.name = t.to_owned(),
        |s| Some(json!(s.name))
    ),
    option!(
        "Load",
        "group",
        "NAME",
        "Jobs of one group run at the same time; others one after another (job files)",
        |s, t| s.group = Some(t.to_owned()),
        |s| s.group.as_ref().map(|g| json!(g))
    ),
    option!(
        "Load",
        "on-hosts",
        "A-B",
        "Of a fleet (--hosts), only the hosts from the Ath to the Bth; the job's totals and rate are theirs (job files)",
        |s, t| s.on_hosts = Some(t.parse::<HostSpan>()?),
        |s| s.on_hosts.map(|h| json!(h.to_string()))
    ),
    option!(
        "Load",
        "rw",
        "PATTERN",
        "read, write, rw, randread, randwrite, randrw, trim or randtrim",
        |s, t| s.rw = t.parse::<Rw>()?,
        |s| Some(json!(s.rw.word()))
    ),
    option!(
        "Load",
        "read-share",
        "PERCENT",
        "Share of reads in rw and randrw [default: 50]",
        |s, t| s.read_share = number(t.trim_end_matches('%'), 0.0, 100.0)?,
        |s| (s.rw.reads() && s.rw.writes()).then(|| json!(s.read_share))
    ),
    option!(
        "Load",
        "bs",
        "SIZE",
        "Block size [default: 4k], or sizes with weights: 4k:70,64k:30",
        |s, t| s.bs = t.parse::<BlockSizes>()?,
        |s| Some(json!(s.bs.to_string()))
    ),
    option!(
        "Load",
        "qd",
        "N",
        "Outstanding I/Os per thread [default: 1]",
        |s, t| s.qd = number(t, 1, 65_536)?,
        |s| Some(json!(s.qd))
    ),
    option!(
        "Load",
        "threads",
        "N",
        "Threads, each with a ring of its own [default: 1]",
        |s, t| s.threads = number(t, 1, 4096)?,
        |s| Some(json!(s.threads))
    ),
    option!(
        "Path",
        "direct",
        "",
        "Bypass the page cache (default)",
        |s, t| s.direct = switch(t)?,
        |s| Some(json!(s.direct))
    ),
    option!(
        "Path",
        "buffered",
        "",
        "Go through the page cache",
        |s, t| s.direct = !switch(t)?,
        |_s| None
    ),
    option!(
        "Path",
        "drop-cache",
        "",
        "Buffered: the page cache forgets the range whenever a pass over it begins again",
        |s, t| s.drop_cache = switch(t)?,
        |s| s.drop_cache.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "advise",
        "ADVICE",
        "Buffered: what the kernel is told of the accesses to come, which decides how far it reads ahead: random, sequential or noreuse",
        |s, t| s.advise = Some(t.parse::<Advice>()?),
        |s| s.advise.map(|a| json!(a.word()))
    ),
    option!(
        "Path",
        "engine",
        "ENGINE",
        "uring (default), uring-cmd (NVMe commands past the block layer), libaio, posixaio, preadv (a depth of N is N threads), mmap (buffered) or null (no I/O)",
        |s, t| s.engine = t.parse::<Engine>()?,
        |s| Some(json!(s.engine.word()))
    ),
    option!(
        "Path",
        "command",
        "COMMAND",
        "In the place of plain writes append (to zones), write-zeroes or copy, of reads verify or compare (uring-cmd); of trims zone-reset or zone-finish (preadv, uring-cmd)",
        |s, t| s.command = t.parse::<Command>()?,
        |s| show(&s.command, &Command::Plain)
    ),
    option!(
        "Path",
        "placement",
        "LIST",
        "uring-cmd: writes name these placement handles in turn, such as 0,2-3 (flexible data placement)",
        |s, t| s.placement = numbers(t)?,
        |s| list(&s.placement)
    ),
    option!(
        "Path",
        "call",
        "CALL",
        "System call of the preadv engine: preadv2 (default), preadv, pread, or readv and read after an lseek",
        |s, t| s.call = t.parse::<SyncCall>()?,
        |s| (s.call != SyncCall::Preadv2).then(|| json!(s.call.word()))
    ),
    option!(
        "Path",
        "sync",
        "POLICY",
        "none (default), fsync[:N], fdatasync[:N], range-write[:N] (sync_file_range) after every N writes, fua or sync on each; several with + between",
        |s, t| s.sync = t.parse()?,
        |s| show(&s.sync, &super::SyncPolicy::NONE)
    ),
    option!(
        "Path",
        "iopoll",
        "",
        "io_uring polls for completions; the device needs poll queues",
        |s, t| s.iopoll = switch(t)?,
        |s| s.iopoll.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "nowait",
        "",
        "Calls carry RWF_NOWAIT: what would block fails with EAGAIN (uring, libaio, preadv)",
        |s, t| s.nowait = switch(t)?,
        |s| s.nowait.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "uncached",
        "",
        "Buffered: calls carry RWF_DONTCACHE, so that the page cache keeps nothing (uring, libaio, preadv)",
        |s, t| s.uncached = switch(t)?,
        |s| s.uncached.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "hipri",
        "",
        "preadv: calls carry RWF_HIPRI, so that the kernel polls where the device has poll queues",
        |s, t| s.hipri = switch(t)?,
        |s| s.hipri.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "hipri-share",
        "PERCENT",
        "Share of the calls that carry it, drawn for each [default: 100]",
        |s, t| s.hipri_share = number(t.trim_end_matches('%'), 0, 100)?,
        |s| (s.hipri_share != 100).then(|| json!(s.hipri_share))
    ),
    option!(
        "Path",
        "atomic",
        "",
        "Writes carry RWF_ATOMIC: the device does all of one or nothing (uring, libaio, preadv; direct, Linux 6.11)",
        |s, t| s.atomic = switch(t)?,
        |s| s.atomic.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "force-async",
        "N",
        "io_uring: every Nth request goes to a worker thread of the kernel's at once [default: 0, none]",
        |s, t| s.force_async = number(t, 0, u32::MAX)?,
        |s| (s.force_async > 0).then(|| json!(s.force_async))
    ),
    option!(
        "Path",
        "plain-files",
        "",
        "io_uring: files are not registered",
        |s, t| s.plain_files = switch(t)?,
        |s| s.plain_files.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "plain-buffers",
        "",
        "io_uring: buffers are not registered",
        |s, t| s.plain_buffers = switch(t)?,
        |s| s.plain_buffers.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "sqpoll",
        "",
        "A kernel thread submits; no system call per batch",
        |s, t| s.sqpoll = switch(t)?,
        |s| s.sqpoll.then_some(Value::Bool(true))
    ),
    option!(
        "Path",
        "cpus",
        "LIST",
        "Pin threads to these processors in turn, such as 0,2-3",
        |s, t| s.cpus = numbers(t)?,
        |s| list(&s.cpus)
    ),
    option!(
        "Where",
        "offset",
        "SIZE",
        "Start of the tested range [default: 0]",
        |s, t| s.offset = unit::<Bytes>(t)?,
        |s| (s.offset.0 > 0).then(|| json!(size_text(s.offset)))
    ),
    option!(
        "Where",
        "size",
        "SIZE",
        "Length of the tested range, and of a scratch file",
        |s, t| {
            let size: Bytes = unit(t)?;
            if size.0 == 0 {
                return Err("a range of 0 bytes is not possible: expected more, such as 1g".into());
            }
            s.size = Some(size);
        },
        |s| s.size.map(|v| json!(size_text(v)))
    ),
    option!(
        "Where",
        "open-zones",
        "N",
        "Zoned devices: zones that each thread writes at the same time, at their write pointers [default: --qd; for appends 1]",
        |s, t| s.open_zones = Some(number(t, 1, 65_536)?),
        |s| s.open_zones.map(|n| json!(n))
    ),
    option!(
        "Where",
        "copy-from",
        "SIZE",
        "Copies: start of what is copied, block for block, to the tested range [default: the end of the tested range]",
        |s, t| s.copy_from = Some(unit(t)?),
        |s| s.copy_from.map(|v| json!(size_text(v)))
    ),
    option!(
        "Where",
        "align",
        "SIZE",
        "Offsets are multiples of this [default: the smallest block]",
        |s, t| {
            let size: Bytes = unit(t)?;
            if size.0 == 0 {
                return Err("an alignment of 0 is not possible: expected 512 or more".into());
            }
            s.align = Some(size);
        },
        |s| s.align.map(|v| json!(size_text(v)))
    ),
    option!(
        "Where",
        "dist",
        "DIST",
        "uniform, zipf:THETA, pareto:H, gauss:PERCENT or hotspot:SIZE/SHARE",
        |s, t| s.dist = t.parse()?,
        |s| show(&s.dist, &Distribution::Uniform)
    ),
    option!(
        "Where",
        "random-map",
        "",
        "Visit every block once before any twice",
        |s, t| s.random_map = switch(t)?,
        |s| s.random_map.then_some(Value::Bool(true))
    ),
    option!(
        "Where",
        "seed",
        "N",
        "Seed of everything random [default: 1]",
        |s, t| s.seed = number(t, 0, u64::MAX)?,
        |s| Some(json!(s.seed))
    ),
    option!(
        "How long",
        "time",
        "DURATION",
        "Stop after this time, such as 5s; without any limit one pass over the range",
        |s, t| s.time = Some(positive(t)?),
        |s| s.time.and_then(duration)
    ),
    option!(
        "How long",
        "bytes",
        "SIZE",
        "Stop after so many bytes over all threads",
        |s, t| s.bytes = Some(unit(t)?),
        |s| s.bytes.map(|v| json!(size_text(v)))
    ),
    option!(
        "How long",
        "ios",
        "N",
        "Stop after so many I/Os over all threads",
        |s, t| s.ios = Some(number(t, 1, u64::MAX)?),
        |s| s.ios.map(|v| json!(v))
    ),
    option!(
        "How long",
        "ramp",
        "DURATION",
        "Run so long before measuring begins",
        |s, t| s.ramp = unit(t)?,
        |s| duration(s.ramp)
    ),
    option!(
        "How long",
        "ramp-counts",
        "",
        "What the ramp transfers counts in --bytes, and the pattern goes on after it, as in fio",
        |s, t| s.ramp_counts = switch(t)?,
        |s| s.ramp_counts.then_some(Value::Bool(true))
    ),
    option!(
        "When",
        "rate",
        "IOPS",
        "Open loop: so many I/Os per second over all threads, whatever the device does",
        |s, t| s.rate = Some(rate(t)?),
        |s| s.rate.map(|v| json!(v))
    ),
    option!(
        "When",
        "arrival",
        "PROCESS",
        "Open loop: poisson (default) or constant gaps",
        |s, t| s.arrival = t.parse()?,
        |s| s.rate.map(|_| json!(s.arrival.word()))
    ),
    option!(
        "When",
        "think",
        "DURATION",
        "Wait between a completion and the next I/O of its slot",
        |s, t| s.think = unit(t)?,
        |s| duration(s.think)
    ),
    option!(
        "When",
        "burst",
        "AMOUNT/IDLE",
        "Bursts with idle time between: 64/10ms (I/Os) or 1m/100ms (bytes), per thread",
        |s, t| s.burst = Some(t.parse::<Burst>()?),
        |s| s.burst.map(|b| json!(b.to_string()))
    ),
    option!(
        "When",
        "batch",
        "N",
        "Closed loop: wait for so many completions at once [default: 1]",
        |s, t| s.batch = number(t, 1, 65_536)?,
        |s| (s.batch != 1).then(|| json!(s.batch))
    ),
    option!(
        "When",
        "submit-batch",
        "N",
        "I/Os per hand-over to the kernel, each timed apart from the wait, so that a queue cannot merge neighbours; 0 for all that may start [default: 0]",
        |s, t| s.submit_batch = number(t, 0, 65_536)?,
        |s| (s.submit_batch != 0).then(|| json!(s.submit_batch))
    ),
    option!(
        "When",
        "complete-max",
        "N",
        "Completions taken at once, at most; 0 for all that are there [default: 0]",
        |s, t| s.complete_max = number(t, 0, 65_536)?,
        |s| (s.complete_max != 0).then(|| json!(s.complete_max))
    ),
    option!(
        "Data",
        "compress",
        "PERCENT",
        "Compressible share of written data [default: 0]",
        |s, t| s.compress = number(t.trim_end_matches('%'), 0.0, 100.0)?,
        |s| (s.compress > 0.0).then(|| json!(s.compress))
    ),
    option!(
        "Data",
        "compress-chunk",
        "SIZE",
        "Compressible and other bytes alternate in so many [default: 4k]",
        |s, t| {
            let n: Bytes = unit(t)?;
            if n.0 < 16 || n.0 > 1 << 30 {
                return Err(format!(
                    "chunks of {n} are not possible: expected 16 bytes to 1 GiB"
                ));
            }
            s.compress_chunk = n;
        },
        |s| (s.compress_chunk.0 != 4096).then(|| json!(size_text(s.compress_chunk)))
    ),
    option!(
        "Data",
        "duplicate",
        "PERCENT",
        "Share of written blocks that duplicate others [default: 0]",
        |s, t| s.duplicate = number(t.trim_end_matches('%'), 0.0, 100.0)?,
        |s| (s.duplicate > 0.0).then(|| json!(s.duplicate))
    ),
    option!(
        "Data",
        "duplicate-of",
        "N",
        "Duplicates are of so many blocks; 0: of the block written before [default: 1]",
        |s, t| s.duplicate_of = number(t, 0, 1 << 40)?,
        |s| (s.duplicate_of != 1).then(|| json!(s.duplicate_of))
    ),
    option!(
        "Data",
        "duplicate-shared",
        "",
        "The blocks that are repeated are those of every job",
        |s, t| s.duplicate_shared = switch(t)?,
        |s| s.duplicate_shared.then_some(Value::Bool(true))
    ),
    option!(
        "Data",
        "same-data",
        "",
        "Every buffer carries the same data in each of its writes",
        |s, t| s.same_data = switch(t)?,
        |s| s.same_data.then_some(Value::Bool(true))
    ),
    option!(
        "Data",
        "scramble",
        "",
        "Each write changes eight bytes of every sector of its buffer and leaves the rest: cheaper than fresh data, unique by sector, but alike to who looks at more than one buffer",
        |s, t| s.scramble = switch(t)?,
        |s| s.scramble.then_some(Value::Bool(true))
    ),
    option!(
        "Results",
        "record",
        "",
        "Write one row per I/O to io.parquet",
        |s, t| s.record = switch(t)?,
        |s| s.record.then_some(Value::Bool(true))
    ),
    option!(
        "Results",
        "window",
        "DURATION",
        "Width of the time series' windows, 1ms or more [default: 100ms]",
        |s, t| {
            let w = positive(t)?;
            if w < Nanos::from_millis(1) {
                return Err(format!(
                    "windows of {w} are not possible: expected 1ms or more"
                ));
            }
            s.window = w;
        },
        |s| (s.window != Nanos::from_millis(100))
            .then(|| json!(TextDuration(s.window).to_string()))
    ),
    option!(
        "Results",
        "on-error",
        "ACTION",
        "stop (default) or continue",
        |s, t| s.on_error = t.parse()?,
        |s| show(&s.on_error, &OnError::Stop)
    ),
];

/// The option of this name; underscores count as hyphens.
pub fn find(name: &str) -> Result<&'static OptionDef, JobError> {
    let wanted = name.replace('_', "-");
    OPTIONS
        .iter()
        .find(|o| o.name == wanted)
        .ok_or_else(|| JobError::UnknownOption {
            name: name.to_owned(),
            nearest: OPTIONS
                .iter()
                .map(|o| (distance(o.name, &wanted), o.name))
                .filter(|(d, n)| *d <= 1 + n.len() / 3)
                .min()
                .map(|(_, n)| n),
        })
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.chars().enumerate() {
            let substitute = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(test)]
mod tests;

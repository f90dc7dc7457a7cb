//! The loads that search, and the loads that prove: never the same job.
//!
//! A setting that was chosen because it won a job has won it by luck too. The held-out job has other seeds, other
//! block sizes and another depth.

use fathom_bench::cells::Plan;
use fathom_io::job::{JobError, JobSpec};
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadId {
    /// Small random reads, one outstanding: every layer's latency.
    One,
    /// Small random reads of one thread, many outstanding: what a processor pays for each.
    Core,
    /// Small random reads of many threads: what is shared.
    Deep,
    /// Small random writes of many threads.
    Writes,
    /// Reads in order through the page cache.
    Stream,
    /// Writes through the page cache.
    WriteBack,
    /// Random reads of a working set through the page cache.
    Cached,
}

/// A load: the job that searches and the one that proves.
pub struct Load {
    /// Which.
    pub id: LoadId,
    /// For choosing.
    pub search: JobSpec,
    /// For proving.
    pub held_out: JobSpec,
    /// What the proof is done with, in a sentence.
    pub held_out_words: &'static str,
    /// Runs before each pass and counts for nothing.
    pub warm: Option<JobSpec>,
    /// The page cache forgets the file before each pass.
    pub cold: bool,
}

/// Written by one pass through the page cache, at most.
pub(super) const WRITE_BACK_BYTES: u64 = 32 << 20;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Length of a pass; `None` where the number of I/Os ends it.
    pub time: Option<Nanos>,
    /// Left out at its start.
    pub ramp: Nanos,
    /// I/Os of a pass.
    pub ios: Option<u64>,
    /// Pairs of the search.
    pub pairs: u32,
    /// Blocks of four passes ([`crate::ab::block`]) of the proof.
    pub blocks: u32,
    /// Length of one part of the sustained load.
    pub slice: Nanos,
    /// Size of a working set.
    pub working_set: Bytes,
    /// Threads of loads with many.
    pub threads: u32,
}

impl Effort {
    /// For a target on this machine: passes of `pass`, or of a quarter of the profile's jobs.
    pub fn real(plan: &Plan, pass: Option<Nanos>) -> Self {
        let time = pass.unwrap_or(Nanos(plan.profile.job_time.0 / 4));
        Self {
            time: Some(time),
            ramp: Nanos(time.0 / 10),
            ios: None,
            pairs: 4,
            blocks: crate::ab::BLOCKS.max(plan.profile.repeats),
            slice: Nanos(plan.profile.job_time.0 / 4),
            working_set: Bytes(plan.limits.size),
            threads: plan.threads,
        }
    }

    /// For a model: virtual time costs nothing, so the sustained load lasts ten minutes.
    pub fn model(working_set: Bytes) -> Self {
        Self {
            time: None,
            ramp: Nanos::ZERO,
            ios: Some(5_000),
            pairs: 4,
            blocks: crate::ab::BLOCKS,
            slice: Nanos::from_millis(12_500),
            working_set,
            threads: 8,
        }
    }
}

/// Rows of the table below: id, whether direct, search options, held-out options, and its words.
type Row = (
    LoadId,
    bool,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
    &'static str,
);

const ROWS: [Row; 7] = [
    (
        LoadId::One,
        true,
        &[("rw", "randread"), ("bs", "4k")],
        &[("rw", "randread"), ("bs", "4k:70,8k:30")],
        "random reads of 4 and 8 KiB, one outstanding",
    ),
    (
        LoadId::Core,
        true,
        &[("rw", "randread"), ("bs", "4k"), ("qd", "64")],
        &[("rw", "randread"), ("bs", "4k:80,8k:20"), ("qd", "48")],
        "random reads of 4 and 8 KiB, 48 outstanding from one thread",
    ),
    (
        LoadId::Deep,
        true,
        &[("rw", "randread"), ("bs", "4k"), ("qd", "16")],
        &[("rw", "randread"), ("bs", "4k:80,8k:20"), ("qd", "12")],
        "random reads of 4 and 8 KiB, 12 outstanding from each of several threads",
    ),
    (
        LoadId::Writes,
        true,
        &[("rw", "randwrite"), ("bs", "4k"), ("qd", "8")],
        &[("rw", "randwrite"), ("bs", "4k:80,8k:20"), ("qd", "6")],
        "random writes of 4 and 8 KiB, 6 outstanding from each of several threads",
    ),
    (
        LoadId::Stream,
        false,
        &[("rw", "read"), ("bs", "128k")],
        &[("rw", "read"), ("bs", "32k:50,64k:50"), ("align", "32k")],
        "reads of 32 and 64 KiB in order through the page cache",
    ),
    (
        LoadId::WriteBack,
        false,
        &[("rw", "randwrite"), ("bs", "4k")],
        &[("rw", "randwrite"), ("bs", "4k:50,16k:50")],
        "random writes of 4 and 16 KiB through the page cache",
    ),
    (
        LoadId::Cached,
        false,
        &[("rw", "randread"), ("bs", "4k")],
        &[("rw", "randread"), ("bs", "4k:50,8k:50")],
        "random reads of 4 and 8 KiB of the working set through the page cache",
    ),
];

/// The loads among `wanted` that this target allows.
///
/// # Errors
/// Never with options that exist.
pub fn loads(plan: &Plan, effort: &Effort, wanted: &[LoadId]) -> Result<Vec<Load>, JobError> {
    let mut out = Vec::new();
    for (id, direct, search, held_out, held_out_words) in ROWS {
        if !wanted.contains(&id) || direct && !plan.direct {
            continue;
        }
        let threads = match id {
            LoadId::Deep | LoadId::Writes => effort.threads,
            _ => 1,
        };
        let range = match id {
            LoadId::Cached => effort.working_set.0.min(plan.limits.size),
            _ => plan.limits.size,
        };
        let job = |name: &str, options: &[(&str, &str)]| -> Result<JobSpec, JobError> {
            let mut spec = plan.job(name, options)?;
            spec.direct = direct;
            spec.threads = threads;
            spec.size = Some(Bytes(range));
            spec.time = effort.time;
            spec.ramp = effort.ramp;
            spec.ios = effort.ios;
            if let Some(time) = effort.time {
                // A ramp-up lasts whole windows.
                spec.window = Nanos((time.0 / 10).max(1_000_000));
            }
            // The page cache is faster than any time is short: bytes end these passes, and there is no ramp-up that
            // could use them up. Reads make one pass, because a second one would read memory.
            let bytes = match id {
                LoadId::Stream => Some(range),
                LoadId::WriteBack => Some((range / 4).min(WRITE_BACK_BYTES)),
                _ if effort.ios.is_some() => None,
                _ => spec.bytes.map(|b| b.0),
            };
            if matches!(id, LoadId::Stream | LoadId::WriteBack) {
                spec.ramp = Nanos::ZERO;
            }
            spec.bytes = bytes.map(Bytes);
            Ok(spec)
        };
        let name = format!("tune-{}", word(id));
        let warm = (id == LoadId::Cached)
            .then(|| -> Result<JobSpec, JobError> {
                let mut spec = job("tune-warm", &[("rw", "read"), ("bs", "1m")])?;
                (spec.time, spec.ios, spec.bytes) = (None, None, Some(Bytes(range)));
                Ok(spec)
            })
            .transpose()?;
        out.push(Load {
            id,
            search: job(&name, search)?,
            held_out: job(&format!("{name}-held-out"), held_out)?,
            held_out_words,
            warm,
            cold: id == LoadId::Stream,
        });
    }
    Ok(out)
}

/// A short name for jobs.
pub fn word(id: LoadId) -> &'static str {
    match id {
        LoadId::One => "one",
        LoadId::Core => "core",
        LoadId::Deep => "deep",
        LoadId::Writes => "writes",
        LoadId::Stream => "stream",
        LoadId::WriteBack => "write-back",
        LoadId::Cached => "cached",
    }
}

/// The load under which a device warms: large reads in order, for as long as it takes.
///
/// # Errors
/// Never with options that exist.
pub fn sustained(plan: &Plan, effort: &Effort) -> Result<JobSpec, JobError> {
    let mut spec = plan.job(
        "tune-sustained",
        &[("rw", "read"), ("bs", "1m"), ("qd", "8")],
    )?;
    spec.time = Some(effort.slice);
    spec.ramp = Nanos::ZERO;
    Ok(spec)
}

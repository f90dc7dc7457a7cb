//! A job: one homogeneous load, as its user states it.
//!
//! Each option is defined once, in [`options`]: command line, job file, JSON and
//! help all come from that table.

mod command;
mod file;
mod limits;
pub mod options;
mod sync;
mod types;
mod validate;

pub use file::{JobFile, jobs_from_toml};
pub use limits::Limits;
pub use options::{OPTIONS, OptionDef};
pub use sync::{Each, Flush, SyncPolicy};
pub use types::{
    Advice, Arrival, BlockSizes, Burst, Command, Distribution, Engine, HostSpan, OnError, Rw,
    SyncCall, TextDuration,
};
pub use validate::ValidJob;

use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What is wrong with a job.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    /// No such option.
    #[error("unknown option '{name}'{}: see 'fathom run --help'", nearest.map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default())]
    UnknownOption {
        /// As typed.
        name: String,
        /// The nearest known one.
        nearest: Option<&'static str>,
    },
    /// A value that its option cannot take.
    #[error("{option}: {message}")]
    Value {
        /// The option.
        option: String,
        /// What is wrong, what was expected.
        message: String,
    },
    /// A job file that is not TOML or has no jobs.
    #[error("job file: {0}")]
    File(String),
}

impl JobError {
    pub(crate) fn value(option: &str, message: impl Into<String>) -> Self {
        Self::Value {
            option: option.to_owned(),
            message: message.into(),
        }
    }
}

/// One homogeneous load. Build it with [`JobSpec::default`] and field updates, or with [`JobSpec::set`].
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Name, unique in a run.
    pub name: String,
    /// Jobs of the same group run at the same time.
    pub group: Option<String>,
    /// The hosts of a fleet that run it; all where none are named.
    pub on_hosts: Option<HostSpan>,
    /// Pattern and direction.
    pub rw: Rw,
    /// Share of reads in a mixed job, percent.
    pub read_share: f64,
    /// Block sizes with weights.
    pub bs: BlockSizes,
    /// Outstanding I/Os per thread.
    pub qd: u32,
    /// Threads, each with a ring of its own.
    pub threads: u32,
    /// Bypass the page cache.
    pub direct: bool,
    /// How I/O reaches the kernel.
    pub engine: Engine,
    /// What it does in the place of plain reads, writes or discards.
    pub command: Command,
    /// Zones that each thread writes at the same time; as many as `qd` where absent, one for appends.
    pub open_zones: Option<u32>,
    /// First byte of what a copy is made of; the end of the tested range where absent.
    pub copy_from: Option<Bytes>,
    /// Numbers of the reclaim unit handles that writes name in turn (FDP); none where empty.
    pub placement: Vec<u32>,
    /// The system call of the preadv engine.
    pub call: SyncCall,
    /// What makes writes durable.
    pub sync: SyncPolicy,
    /// Start of the tested range.
    pub offset: Bytes,
    /// Length of the tested range; the whole target where absent.
    pub size: Option<Bytes>,
    /// Offsets are multiples of this; the smallest block size where absent.
    pub align: Option<Bytes>,
    /// Random offsets visit every block once before any twice.
    pub random_map: bool,
    /// How random offsets are distributed.
    pub dist: Distribution,
    /// Seed of everything random in the job.
    pub seed: u64,
    /// Stop after this much time (ramp-up not included).
    pub time: Option<Nanos>,
    /// Stop after so many bytes over all threads.
    pub bytes: Option<Bytes>,
    /// Stop after so many I/Os over all threads.
    pub ios: Option<u64>,
    /// Left out of the results at the start.
    pub ramp: Nanos,
    /// Wait between a completion and the next I/O of its slot.
    pub think: Nanos,
    /// Open loop: I/Os per second over all threads.
    pub rate: Option<f64>,
    /// Open loop: the arrival process.
    pub arrival: Arrival,
    /// Bursts with idle time between them.
    pub burst: Option<Burst>,
    /// Compressible share of written data, percent.
    pub compress: f64,
    /// Compressible and other bytes alternate in so many.
    pub compress_chunk: Bytes,
    /// Share of written blocks that duplicate others, percent.
    pub duplicate: f64,
    /// Duplicates are of so many blocks; 0 for the block before.
    pub duplicate_of: u64,
    /// The blocks that are repeated are those of every job.
    pub duplicate_shared: bool,
    /// Every buffer carries the same data in each of its writes.
    pub same_data: bool,
    /// Each write changes eight bytes of every sector of its buffer and leaves the rest, as fio does unless told otherwise.
    pub scramble: bool,
    /// Write one row per I/O to `io.parquet`.
    pub record: bool,
    /// Width of the windows of the time series.
    pub window: Nanos,
    /// io_uring: poll for completions (needs poll queues).
    pub iopoll: bool,
    /// io_uring: a kernel thread submits.
    pub sqpoll: bool,
    /// Calls carry RWF_NOWAIT: what would block fails with EAGAIN.
    pub nowait: bool,
    /// Buffered calls carry RWF_DONTCACHE: the page cache keeps nothing of them.
    pub uncached: bool,
    /// preadv2 and pwritev2 carry RWF_HIPRI: the kernel polls where the device has poll queues.
    pub hipri: bool,
    /// Share of those calls that carry it, percent.
    pub hipri_share: u8,
    /// Writes carry RWF_ATOMIC: the device does all of one or nothing.
    pub atomic: bool,
    /// io_uring: every such request goes to a worker of the kernel's at once (IOSQE_ASYNC); 0 for none.
    pub force_async: u32,
    /// io_uring: files are not registered.
    pub plain_files: bool,
    /// io_uring: buffers are not registered.
    pub plain_buffers: bool,
    /// Completions to wait for at once in closed loop.
    pub batch: u32,
    /// I/Os handed over in one call, and the hand-over timed apart from the wait; 0 for all that may start.
    pub submit_batch: u32,
    /// What the ramp transfers counts in [`JobSpec::bytes`], and the pattern goes on after it.
    pub ramp_counts: bool,
    /// Completions taken at once, at most; 0 for all that are there.
    pub complete_max: u32,
    /// Buffered: the page cache forgets the range whenever a pass over it begins again.
    pub drop_cache: bool,
    /// Buffered: what the kernel is told of the accesses to come.
    pub advise: Option<Advice>,
    /// Processors to pin threads to, in turn.
    pub cpus: Vec<u32>,
    /// What an I/O error does.
    pub on_error: OnError,
}

impl Default for JobSpec {
    fn default() -> Self {
        Self {
            name: "job".into(),
            group: None,
            on_hosts: None,
            rw: Rw::RandRead,
            read_share: 50.0,
            bs: BlockSizes::one(4096),
            qd: 1,
            threads: 1,
            direct: true,
            engine: Engine::Uring,
            command: Command::Plain,
            open_zones: None,
            copy_from: None,
            placement: Vec::new(),
            call: SyncCall::Preadv2,
            sync: SyncPolicy::NONE,
            offset: Bytes(0),
            size: None,
            align: None,
            random_map: false,
            dist: Distribution::Uniform,
            seed: 1,
            time: None,
            bytes: None,
            ios: None,
            ramp: Nanos::ZERO,
            think: Nanos::ZERO,
            rate: None,
            arrival: Arrival::Poisson,
            burst: None,
            compress: 0.0,
            compress_chunk: Bytes(4096),
            duplicate: 0.0,
            duplicate_of: 1,
            duplicate_shared: false,
            same_data: false,
            scramble: false,
            record: false,
            window: Nanos::from_millis(100),
            iopoll: false,
            nowait: false,
            uncached: false,
            hipri: false,
            hipri_share: 100,
            atomic: false,
            force_async: 0,
            plain_files: false,
            plain_buffers: false,
            sqpoll: false,
            batch: 1,
            submit_batch: 0,
            ramp_counts: false,
            complete_max: 0,
            drop_cache: false,
            advise: None,
            cpus: Vec::new(),
            on_error: OnError::Stop,
        }
    }
}

impl JobSpec {
    /// Sets an option from its text, as typed on the command line or in a job file.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), JobError> {
        let option = options::find(name)?;
        (option.set)(self, text).map_err(|message| JobError::value(option.name, message))
    }
}

/// As a map of the options that differ from their default, plus those that always matter.
impl Serialize for JobSpec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(
            OPTIONS
                .iter()
                .filter_map(|o| (o.get)(self).map(|v| (o.name, v))),
        )
    }
}

/// From such a map, as it stands in `run.json`.
impl<'de> Deserialize<'de> for JobSpec {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let map = serde_json::Map::<String, serde_json::Value>::deserialize(d)?;
        let mut spec = Self::default();
        for (name, value) in map {
            let text = match value {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            spec.set(&name, &text).map_err(de::Error::custom)?;
        }
        Ok(spec)
    }
}

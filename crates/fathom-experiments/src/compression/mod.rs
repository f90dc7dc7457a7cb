//! Compression beside the device: where it helps reads, writes, capacity and cache, and where it costs
//! (Zhang et al. 2018, Table III: 128 KiB chunks, one core and all cores).
//!
//! Codecs run on real chunks in memory, the device runs real jobs; both in interleaved repeats. What
//! follows from the two is arithmetic ([`advice`]).

use std::path::PathBuf;
use std::sync::{Barrier, OnceLock};

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, percent};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::runner::{Point, Runner};
use fathom_bench::schedule;
use fathom_io::JobError;
use fathom_io::clock::monotonic;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

pub mod advice;
pub mod codecs;
pub mod data;
mod report;

use advice::Speed;
use codecs::{CODECS, Codec};
use data::{CHUNK, Sample};

/// What is measured.
#[derive(Clone, Args)]
#[command(
    after_help = "Examples:\n  fathom compress --size 1g --sample /var/lib/mysql   your data, beside the storage here\n  fathom compress /dev/nvme0n1 --no-writes            reads only: needs no permission\n  fathom compress sim:optane-900p --incompressible 50"
)]
pub struct CompressionOptions {
    /// File or directory to take chunks of 128 KiB from, only read; may be given several times
    /// [default: generated text]
    #[arg(long)]
    pub sample: Vec<PathBuf>,
    /// Share of incompressible bytes in generated data, %
    #[arg(long, default_value = "30", value_name = "PERCENT", value_parser = percent)]
    pub incompressible: f64,
    /// Leave out the device's writes
    #[arg(long)]
    pub no_writes: bool,
    /// What was read of the sample when it was looked at.
    #[arg(skip)]
    read: OnceLock<Sample>,
}

/// Jobs of the device, and whether each writes.
const JOBS: [(&str, &str, &str, bool); 4] = [
    ("chunk-read", "read", "128k", false),
    ("chunk-write", "write", "128k", true),
    ("one-chunk", "randread", "128k", false),
    ("one-page", "randread", "4k", false),
];

/// Time of one loop of a codec: a fifth of a job's.
fn loop_time(plan: &Plan) -> Nanos {
    Nanos(plan.profile.job_time.0 / 5).max(Nanos::from_millis(50))
}

/// Loops of one codec in a repeat: encode and decode, on one core and on all.
const LOOPS: u32 = 4;

/// Time in which every codec encodes and decodes a chunk, here.
fn one_of_each(options: &CompressionOptions, seed: u64) -> Nanos {
    let sample = data::generated(options.incompressible / 100.0, 1, seed);
    let begin = monotonic();
    for codec in CODECS {
        // What fails now fails, and is said, when it is measured.
        let _ = encoded(codec, &sample);
    }
    monotonic().since(begin)
}

fn points(plan: &Plan, options: &CompressionOptions) -> Result<Vec<Point>, JobError> {
    let threads = plan.threads.to_string();
    JOBS.iter()
        .filter(|j| !options.no_writes || !j.3)
        .map(|(name, rw, bs, _)| {
            let mut how = vec![("rw", *rw), ("bs", *bs)];
            if !name.starts_with("one-") {
                how.extend([("qd", "16"), ("threads", threads.as_str())]);
            }
            Ok(Point::new(plan.job(name, &how)?))
        })
        .collect()
}

/// Repeats of a codec's rates, plain bytes per second.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Name of the codec.
    pub codec: String,
    /// Plain over packed bytes; 0 where it did not run.
    pub ratio: f64,
    /// Encoding on one core.
    pub encode: Vec<f64>,
    /// Decoding on one core.
    pub decode: Vec<f64>,
    /// Encoding on all cores together.
    pub encode_all: Vec<f64>,
    /// Decoding on all cores together.
    pub decode_all: Vec<f64>,
}

/// Codecs and the device that they stand beside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompressionResult {
    /// Where the chunks came from, in words.
    pub sample: String,
    /// Cores that ran codecs together.
    pub cores: u32,
    /// The codecs' rates.
    pub codecs: Vec<Rates>,
    /// The device's jobs.
    pub points: Vec<Point>,
}

impl Rates {
    fn speed(&self, repeat: usize) -> Option<Speed> {
        Some(Speed {
            ratio: self.ratio,
            encode: *self.encode.get(repeat)?,
            decode: *self.decode.get(repeat)?,
            encode_all: *self.encode_all.get(repeat)?,
            decode_all: *self.decode_all.get(repeat)?,
        })
    }
}

impl Measurement for CompressionOptions {
    const NAME: &'static str = "compress";

    /// Before anything is opened: a sample that cannot be read leaves nothing behind.
    fn check(&self) -> Result<(), String> {
        if !self.sample.is_empty() {
            let read = data::sampled(&self.sample, data::CHUNKS_MAX);
            let _ = self.read.set(read.map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    fn modifies(&self) -> bool {
        !self.no_writes
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let mut o = RunCost::filling(fills);
        o.phase("the device");
        for job in &points(plan, self)? {
            o.add(&job.spec, plan.profile.repeats);
        }
        let loops = CODECS.len() as u32 * LOOPS * plan.profile.repeats;
        let codecs = Nanos(loop_time(plan).0 * u64::from(loops));
        let one = one_of_each(self, plan.seed);
        o.phase("codecs, each over the whole sample once")
            .work_here(Nanos(one.0 * data::CHUNKS_MAX as u64));
        o.phase("codecs").work_here(codecs);
        Ok(o)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let made = || data::generated(self.incompressible / 100.0, data::CHUNKS_MAX, plan.seed);
        let sample = self.read.get_or_init(made);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let mut points = points(plan, self).map_err(BenchError::from)?;
        let loops = CODECS.len() as u32 * plan.profile.repeats;
        let total = points.len() as u32 * plan.profile.repeats + loops;
        let mut all: Vec<Rates> = CODECS
            .iter()
            .map(|c| Rates {
                codec: c.name.into(),
                ..Rates::default()
            })
            .collect();
        // Encoded once: the densest take longer over the whole sample than all loops.
        let mut packed: Vec<Vec<Vec<u8>>> = vec![Vec::new(); CODECS.len()];
        let mut runner = Runner::begin(bench, book, sink, "compression", plan.seed, total)?;
        'repeats: for repeat in 0..plan.profile.repeats {
            // The device in every repeat too: what drifts meanwhile meets both.
            if !runner.fill_up(&mut points, repeat + 1)? {
                break;
            }
            for k in schedule::turns(CODECS.len(), repeat) {
                if !runner.beside(CODECS[k].name) {
                    break 'repeats;
                }
                let beside = |e: std::io::Error| NotebookError::Beside(e.to_string());
                if packed[k].is_empty() {
                    packed[k] = encoded(&CODECS[k], sample).map_err(beside)?;
                }
                let time = loop_time(plan);
                measure(&CODECS[k], sample, &packed[k], time, cores, &mut all[k])
                    .map_err(beside)?;
            }
        }
        runner.end();
        book.found(&CompressionResult {
            sample: sample.source.clone(),
            cores,
            codecs: all,
            points,
        })
    }
}

/// The sample's chunks, encoded.
///
/// # Errors
/// Where the codec fails, or gives back other data than it took.
fn encoded(codec: &Codec, sample: &Sample) -> std::io::Result<Vec<Vec<u8>>> {
    let mut coder = (codec.make)()?;
    let mut packed = Vec::with_capacity(sample.chunks.len());
    let mut plain = vec![0; CHUNK];
    for chunk in &sample.chunks {
        let mut out = Vec::new();
        coder.encode(chunk, &mut out)?;
        coder.decode(&out, &mut plain)?;
        if plain != *chunk {
            return Err(std::io::Error::other(format!(
                "{} gave back other data than it took: its numbers would mean nothing",
                codec.name
            )));
        }
        out.shrink_to_fit();
        packed.push(out);
    }
    Ok(packed)
}

/// One repeat of a codec: its four loops.
fn measure(
    codec: &Codec,
    sample: &Sample,
    packed: &[Vec<u8>],
    time: Nanos,
    cores: u32,
    rates: &mut Rates,
) -> std::io::Result<()> {
    let stored: usize = packed.iter().map(Vec::len).sum();
    rates.ratio = (sample.chunks.len() * CHUNK) as f64 / stored.max(1) as f64;
    for (encodes, threads, into) in [
        (true, 1, &mut rates.encode),
        (false, 1, &mut rates.decode),
        (true, cores, &mut rates.encode_all),
        (false, cores, &mut rates.decode_all),
    ] {
        into.push(rate(codec, sample, packed, encodes, threads, time)?);
    }
    Ok(())
}

/// Plain bytes per second of one thread over the sample for `time`, as every rate here is measured; `packed` holds its
/// chunks encoded. For comparisons with other loops.
///
/// # Errors
/// Where the codec fails.
pub fn one_core(
    codec: &Codec,
    sample: &Sample,
    packed: &[Vec<u8>],
    encodes: bool,
    time: Nanos,
) -> std::io::Result<f64> {
    rate(codec, sample, packed, encodes, 1, time)
}

/// Plain bytes per second of `threads` threads that each go over the chunks for `time`.
fn rate(
    codec: &Codec,
    sample: &Sample,
    packed: &[Vec<u8>],
    encodes: bool,
    threads: u32,
    time: Nanos,
) -> std::io::Result<f64> {
    let start = Barrier::new(threads as usize);
    let one = |thread: usize| -> std::io::Result<f64> {
        let mut coder = (codec.make)()?;
        let (mut out, mut plain) = (Vec::with_capacity(2 * CHUNK), vec![0; CHUNK]);
        let chunks = &sample.chunks;
        // Threads begin apart, so that they do not share a chunk in the cache.
        let mut at = thread * chunks.len() / threads as usize;
        // The state and the buffers are warm when the clock starts.
        coder.encode(&chunks[at], &mut out)?;
        start.wait();
        let begin = monotonic();
        let mut bytes = 0u64;
        loop {
            if encodes {
                coder.encode(&chunks[at], &mut out)?;
            } else {
                coder.decode(&packed[at], &mut plain)?;
            }
            bytes += CHUNK as u64;
            at = (at + 1) % chunks.len();
            let spent = monotonic().since(begin);
            if spent >= time {
                return Ok(bytes as f64 / spent.as_secs_f64());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads as usize)
            .map(|t| fathom_io::threads::within(scope, move || one(t)))
            .collect::<Result<_, _>>()?;
        let mut sum = 0.0;
        for t in threads {
            sum += t
                .join()
                .map_err(|_| std::io::Error::other(format!("{} panicked", codec.name)))??;
        }
        Ok(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_counts_plain_bytes_and_more_threads_do_more() {
        let sample = data::generated(0.5, 4, 1);
        let codec = CODECS.iter().find(|c| c.name == "lz4").unwrap();
        let mut rates = Rates::default();
        let packed = encoded(codec, &sample).unwrap();
        let time = Nanos::from_millis(20);
        measure(codec, &sample, &packed, time, 2, &mut rates).unwrap();
        assert!(rates.ratio > 1.1 && rates.ratio < 4.0, "{rates:?}");
        // Any machine codes between 1 MB/s and 100 GB/s with it.
        for v in [
            &rates.encode,
            &rates.decode,
            &rates.encode_all,
            &rates.decode_all,
        ] {
            assert!(v.len() == 1 && v[0] > 1e6 && v[0] < 1e11, "{rates:?}");
        }
    }
}

//! Options of `fathom stack`, and the cases that follow from them.

use clap::Args;
use fathom_bench::measurement::word;
use fathom_io::job::{BlockSizes, Engine};
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::{Bytes, Nanos};

use super::PAIRS;

/// Words of `--rw`.
const PATTERNS: [(&str, &str); 4] = [
    ("randread", "randread"),
    ("randwrite", "randwrite"),
    ("read", "read"),
    ("write", "write"),
];
/// Words of `--engine`.
const ENGINES: [(&str, Engine); 3] = [
    ("uring", Engine::Uring),
    ("preadv", Engine::Preadv),
    ("uring-cmd", Engine::UringCmd),
];
/// Words of `--rung`.
const RUNGS: [(&str, Rung); 3] = [
    ("best", Rung::Best),
    ("perf", Rung::Perf),
    ("unprivileged", Rung::Unprivileged),
];

/// Which evidence to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// The best that is allowed.
    Best,
    /// perf_event_open, though a trace instance may be allowed.
    Perf,
    /// What anyone may see.
    Unprivileged,
}

/// What `fathom stack` measures.
#[derive(Debug, Clone, Args)]
pub struct StackOptions {
    /// Only randread or only randwrite [default: both]
    #[arg(long, value_parser = word(&PATTERNS))]
    pub rw: Option<&'static str>,
    /// Outstanding I/Os, several with commas
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1u32, 32], value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qd: Vec<u32>,
    /// Only direct I/O [default: both]
    #[arg(long, conflicts_with = "buffered")]
    pub direct: bool,
    /// Only through the page cache
    #[arg(long)]
    pub buffered: bool,
    /// Only this engine [default: uring and preadv; of an NVMe namespace uring-cmd, too]
    #[arg(long, value_parser = word(&ENGINES))]
    pub engine: Option<Engine>,
    /// Ask the device for completions instead of waiting for its interrupt (direct, uring; needs poll queues)
    #[arg(long, conflicts_with = "buffered")]
    pub iopoll: bool,
    /// Block size
    #[arg(long, default_value = "4k")]
    pub bs: Bytes,
    /// Size of the scratch file, or of the tested range
    #[arg(long, default_value = "256m")]
    pub size: Bytes,
    /// Time of a case's traced passes together; as long again untraced
    #[arg(long, default_value = "1500ms")]
    pub time: Nanos,
    /// Evidence: best (what is allowed), perf (perf_event_open) or unprivileged (what anyone may see)
    #[arg(long, default_value = "best", value_parser = word(&RUNGS))]
    pub rung: Rung,
    /// Test what would help on the first case: placement, engine, scheduler, polling, idle states
    #[arg(long)]
    pub what_if: bool,
    /// Seed of everything random.
    #[arg(skip)]
    pub seed: u64,
}

/// The cases: every combination that neither options nor target rule out.
#[derive(Debug, Clone)]
pub struct Choice {
    /// As typed.
    pub options: StackOptions,
    /// `randread`, `randwrite`.
    pub patterns: Vec<&'static str>,
    /// Direct, buffered.
    pub direct: Vec<bool>,
    /// Engines.
    pub engines: Vec<Engine>,
}

impl Choice {
    /// What the options leave open; `commands` says whether the target is an NVMe namespace that takes them.
    pub fn new(options: StackOptions, commands: bool) -> Self {
        let direct = options.direct || options.iopoll;
        Self {
            patterns: match options.rw {
                Some(rw) => vec![rw],
                None => vec!["randread", "randwrite"],
            },
            direct: match (direct, options.buffered) {
                (true, _) => vec![true],
                (_, true) => vec![false],
                _ => vec![true, false],
            },
            engines: match options.engine {
                Some(engine) => vec![engine],
                None if options.iopoll => vec![Engine::Uring],
                None if commands => vec![Engine::Uring, Engine::Preadv, Engine::UringCmd],
                None => vec![Engine::Uring, Engine::Preadv],
            },
            options,
        }
    }

    /// The jobs, the plainest first: reads before writes, direct before buffered.
    ///
    /// # Errors
    /// Where a job cannot be so.
    pub fn cases(&self) -> Result<Vec<JobSpec>, JobError> {
        let options = &self.options;
        let mut cases = Vec::new();
        for direct in &self.direct {
            for rw in &self.patterns {
                for qd in &options.qd {
                    // Commands know no page cache.
                    let fits = |e: &&Engine| *direct || **e != Engine::UringCmd;
                    for engine in self.engines.iter().filter(fits) {
                        let path = if *direct { "direct" } else { "buffered" };
                        let polled = if options.iopoll { "-polled" } else { "" };
                        let mut spec = JobSpec {
                            name: format!("{rw}-qd{qd}-{path}-{engine}{polled}"),
                            iopoll: options.iopoll,
                            direct: *direct,
                            qd: *qd,
                            engine: *engine,
                            bs: BlockSizes::one(options.bs.0),
                            size: Some(options.size),
                            seed: options.seed,
                            time: Some(Nanos(options.time.0 / u64::from(PAIRS))),
                            record: true,
                            ..JobSpec::default()
                        };
                        spec.set("rw", rw)?;
                        cases.push(spec);
                    }
                }
            }
        }
        Ok(cases)
    }
}

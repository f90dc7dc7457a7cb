//! What `fathom kv` can be asked for.

use clap::Args;
use clap::builder::PossibleValuesParser;
use fathom_bench::measurement::{Typed, per_second, percent, word};
use fathom_sim::SimTarget;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::PAGES;
use super::engines::ENGINES;
use super::keys::Keys;
use super::workloads::WORKLOADS;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    mut_arg("target", |a| a.help("Directory, file made with --create, block device, or model (sim:NAME: the tree then lies in memory, its I/Os are the model's)")),
    after_help = "Examples:\n  fathom kv . --size 2g                              random updates and inserts, 16 threads, 5 % cached\n  fathom kv . --workload a,b,c,d,e,f --commit        YCSB, every commit logged and synced\n  fathom kv . --workload pages,caches --size 4g      sweeps of page and cache size\n  fathom kv . --beside all                            redb, SQLite, LMDB, fjall and Tupl on the same test, in turns\n  fathom kv /dev/sdx --destroy SERIAL --workload insert --time 1h\n  fathom kv sim:optane-900p --workload a,c --commit  on a model, in its own time\nThe tree lies in the first half of the range; the raw device is measured in the second half."
)]
pub struct KvOptions {
    /// update, insert (random, 8-byte keys, as O'Neill 2018), a to f (YCSB), pages, caches (sweeps)
    #[arg(long = "workload", value_delimiter = ',', value_name = "NAME,…", default_value = "update,insert", value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|w| w.name)), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// Threads
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Keys that the tree is filled with first [default: 40 % of its half of the range, at most 4 million]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: Option<u64>,
    /// Bytes of a value; 0 for none (YCSB then has 1000)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65536))]
    pub value: u32,
    /// Bytes of a page: 4k, 8k, 16k, 32k or 64k
    #[arg(long, default_value = "4k", value_parser = page)]
    pub page: Bytes,
    /// Cached share of the leaves, percent
    #[arg(long, default_value = "5", value_parser = cached)]
    pub cache: f64,
    /// Log and sync every commit (group commit); without, checkpoints every second make changes durable
    #[arg(long)]
    pub commit: bool,
    /// The tree through the page cache; it says something where the data are much larger than the memory
    #[arg(long)]
    pub buffered: bool,
    /// Keys of update, insert and the sweeps: uniform, zipf or gaussian
    #[arg(long = "distribution", value_name = "DISTRIBUTION", default_value = "uniform", value_parser = word(&Keys::NAMED))]
    pub keys_drawn: Keys,
    /// Engines to measure beside fathom's own, in turns: redb, sqlite, lmdb, fjall, tupl (Java), or all
    #[arg(long, value_delimiter = ',', value_name = "ENGINE,…", value_parser = PossibleValuesParser::new(ENGINES.iter().map(|e| e.name).chain(["all"])), hide_possible_values = true)]
    pub beside: Vec<String>,
    /// Operations per second that come at random moments, whatever was answered (an open loop); latency counts from then on
    /// [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = per_second)]
    pub rate: Option<f64>,
    /// On models: time of an operation beside its I/Os (what processors do is not modelled)
    #[arg(long = "load", value_name = "DURATION", default_value = "1us")]
    #[serde(default)]
    pub model: Option<Nanos>,
    /// Time of one measurement; by the profile where it is not given.
    #[arg(skip)]
    pub time: Option<Nanos>,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
}

/// Bytes of a page on the command line.
pub(crate) fn page(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e| format!("{e}"))?;
    match PAGES.contains(&bytes.0) {
        true => Ok(bytes),
        false => Err(format!(
            "'{text}' is no size of a page: expected 4k, 8k, 16k, 32k or 64k"
        )),
    }
}

fn cached(text: &str) -> Result<f64, String> {
    percent(text)
        .ok()
        .filter(|v| *v > 0.0)
        .ok_or_else(|| format!("{text} is no share: expected more than 0 and at most 100 percent"))
}

impl KvOptions {
    /// Takes what follows from the rest of the command line.
    ///
    /// # Errors
    /// In one sentence: what is not possible on this target.
    pub fn follow(&mut self, typed: &Typed) -> Result<(), String> {
        if self.beside.iter().any(|n| n == "all") {
            self.beside = ENGINES.iter().map(|e| e.name.to_owned()).collect();
        }
        if typed.size.is_some_and(|s| s.0 < 64 << 20) {
            return Err("--size: a tree and the raw device need 64m or more".into());
        }
        let target = &typed.target;
        if !SimTarget::is_simulated(target) {
            self.model = None;
        } else if let Some(name) = self.beside.first() {
            return Err(format!(
                "--beside: {name} keeps files, and {target} has none: name a directory, or leave --beside out"
            ));
        } else if self.buffered {
            return Err("--buffered: on a model the tree goes past the page cache: leave --buffered out, or name a directory".into());
        }
        (self.time, self.seed) = (typed.time, typed.seed);
        Ok(())
    }
}

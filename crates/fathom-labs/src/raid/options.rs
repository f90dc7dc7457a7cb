//! What `fathom raid` can be asked for, of the arrays and what they are measured with.

use clap::{ArgAction, Args};
use fathom_bench::measurement::word;
use fathom_io::job::Rw;
use fathom_sim::raid::Level;
use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct RaidOptions {
    /// Settings that every array gets: name=value, such as stripe_cache_size=8192
    #[arg(long = "set", value_delimiter = ',', value_name = "SETTING,…", value_parser = setting)]
    pub sets: Vec<(String, String)>,
    /// Settings to prove against those that it has, in runs that take turns: name=value
    #[arg(long = "try", value_name = "SETTING", value_parser = setting)]
    pub tries: Vec<(String, String)>,
    /// Blocks of A B B A or B A A B for each setting that is tried
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    pub blocks: u32,
    /// 0, 1, 5, 6, 10
    #[arg(long, value_delimiter = ',', value_name = "LEVEL,…", default_value = "0,1,5,6,10", value_parser = level)]
    pub levels: Vec<Level>,
    /// Numbers of members: 2,4,8 or 2..8; those that a level cannot have are left out
    #[arg(long, value_name = "N,…", default_value = "2,3,4,6,8", value_parser = numbers)]
    // By its path: clap would take a Vec for an option that is given several times, each time with one number.
    pub members: std::vec::Vec<u32>,
    /// Bytes of a chunk, several with commas
    #[arg(long = "chunk", value_delimiter = ',', value_name = "SIZE,…", default_value = "512k", value_parser = chunk)]
    pub chunks: Vec<Bytes>,
    /// Large blocks
    #[arg(long = "bs", value_name = "BS", default_value = "512k", value_parser = block)]
    pub block: Bytes,
    /// Small blocks, written at random; 0 leaves them out
    #[arg(long, default_value = "4k", value_parser = small)]
    // By its path: 0 is none, not an option that was left out.
    pub small: std::option::Option<Bytes>,
    /// Threads, each with one I/O outstanding
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Only direct, or only buffered I/O [default: both]
    #[arg(long = "only", value_name = "WAY", default_values = ["direct", "buffered"], hide_default_value = true, value_parser = word(&[("direct", true), ("buffered", false)]))]
    pub direct: Vec<bool>,
    /// Patterns: read, randread, write, randwrite
    #[arg(long = "rw", value_delimiter = ',', value_name = "RW,…", default_value = "read,randread,write,randwrite", value_parser = word(&[("read", Rw::Read), ("randread", Rw::RandRead), ("write", Rw::Write), ("randwrite", Rw::RandWrite)]))]
    pub patterns: Vec<Rw>,
    /// Leave out arrays that lack a member
    #[arg(long = "no-degraded", action = ArgAction::SetFalse)]
    pub degraded: bool,
    /// Leave out arrays that fill a new member
    #[arg(long = "no-rebuild", action = ArgAction::SetFalse)]
    pub rebuild: bool,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
}

#[cfg(test)]
impl Default for RaidOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            ..fathom_bench::measurement::defaults()
        }
    }
}

fn level(text: &str) -> Result<Level, String> {
    let number = text.trim().parse().ok();
    number
        .and_then(Level::from_number)
        .ok_or_else(|| format!("RAID {text} is not known: expected 0, 1, 5, 6 or 10"))
}

fn setting(text: &str) -> Result<(String, String), String> {
    let cut = text.split_once('=');
    cut.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("'{text}': expected name=value, such as stripe_cache_size=8192"))
}

fn bytes(text: &str, fits: impl Fn(u64) -> bool, expected: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e| format!("{e}"))?;
    match fits(bytes.0) {
        true => Ok(bytes),
        false => Err(format!("'{text}' is not possible: expected {expected}")),
    }
}

fn chunk(text: &str) -> Result<Bytes, String> {
    let fits = |n: u64| n.is_power_of_two() && (4096..=64 << 20).contains(&n);
    bytes(text, fits, "powers of two from 4k to 64m")
}

fn block(text: &str) -> Result<Bytes, String> {
    let fits = |n: u64| n >= 512 && n.is_multiple_of(512);
    bytes(text, fits, "a multiple of 512")
}

fn small(text: &str) -> Result<Option<Bytes>, String> {
    match text {
        "0" => Ok(None),
        _ => block(text).map(Some),
    }
}

//! What `fathom vm` can be asked for, of the machines and what they are measured with.

use clap::{ArgAction, Args};
use fathom_system::filesystem::file_systems;
use serde::{Deserialize, Serialize};

use super::backend::{Knob, Setup};
use crate::LabError;
use crate::numbers::numbers;

/// Depths of the load curve.
const CURVE: [u32; 9] = [1, 2, 4, 8, 12, 16, 24, 32, 64];

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct VmOptions {
    /// Numbers of machines that run together: 1,2,4 or 1..8
    #[arg(long = "vms", value_name = "N,…", default_value = "1,2,4,6,8", value_parser = numbers)]
    // By its path: clap would take a Vec for an option that is given several times, each time with one number.
    pub machines: std::vec::Vec<u32>,
    /// Settings of every machine: name=value, several with commas
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    #[serde(skip)]
    pub(super) set: String,
    /// Settings of every machine.
    #[arg(skip)]
    pub setup: Setup,
    /// Settings to prove against that in interleaved runs; may be given several times
    #[arg(long = "try", value_name = "SETTINGS")]
    #[serde(skip)]
    pub(super) tried: Vec<String>,
    /// Settings to be tried against it, each alone.
    #[arg(skip)]
    pub tries: Vec<Setup>,
    /// Outstanding I/Os of the loads that want many
    #[arg(long = "qd", value_name = "QD", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Threads that share them out [default: as many on models, else 4 at most]
    #[arg(long = "threads", value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[serde(skip)]
    pub(super) asked: Option<u32>,
    /// Threads that share them out.
    #[arg(skip)]
    pub threads: u32,
    /// Blocks of A B B A or B A A B for each setting that is tried
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    pub blocks: u32,
    /// Leave out the load curves
    #[arg(long)]
    #[serde(skip)]
    pub(super) no_curve: bool,
    /// Depths of the load curve; empty leaves it out.
    #[arg(skip)]
    pub curve: Vec<u32>,
    /// Leave out the machine with a disk that does nothing
    #[arg(long = "no-floor", action = ArgAction::SetFalse)]
    pub floor: bool,
    /// Leave out latency by layer on both sides
    #[arg(long = "no-layers", action = ArgAction::SetFalse)]
    pub layers: bool,
    /// Leave out writes
    #[arg(long = "no-writes", action = ArgAction::SetFalse)]
    pub writes: bool,
    /// File systems to lay a machine's disk on, made on the target beside a part without one; as root
    #[arg(long = "fs", value_name = "FS,…", value_delimiter = ',', value_parser = below_a_machine())]
    pub files: Vec<String>,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
}

/// What a machine's disk may lie on: nothing, or a file system that labs make.
fn below_a_machine() -> clap::builder::PossibleValuesParser {
    std::iter::once("raw").chain(file_systems()).into()
}

impl VmOptions {
    /// Settings of every machine, of those that there are.
    ///
    /// # Errors
    /// Where there is no such one.
    pub fn setup_of(&self, knobs: &[Knob]) -> Result<Setup, LabError> {
        Setup::parse(&self.set, knobs)
    }

    /// As they hold for machines with these settings, and so many `threads` where nobody said how many.
    ///
    /// # Errors
    /// Where a setting is not among them.
    pub fn of(&self, knobs: &[Knob], threads: u32, seed: u64) -> Result<Self, LabError> {
        let tries = self.tried.iter().map(|t| Setup::parse(t, knobs));
        Ok(Self {
            setup: self.setup_of(knobs)?,
            tries: tries.collect::<Result<_, _>>()?,
            threads: self.asked.unwrap_or(threads),
            curve: match self.no_curve {
                true => Vec::new(),
                false => CURVE.to_vec(),
            },
            seed,
            ..self.clone()
        })
    }
}

#[cfg(test)]
impl Default for VmOptions {
    fn default() -> Self {
        Self {
            threads: 64,
            curve: CURVE.to_vec(),
            seed: 1,
            ..fathom_bench::measurement::defaults()
        }
    }
}

//! An experiment or lab with a command of its own, as that command sees it: its options are declared once, and what they
//! cost and do follows from them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command};
use fathom_io::JobError;
use fathom_io::job::Rw;
use fathom_telemetry::{Bytes, Nanos};

use crate::bench::{Bench, BenchError};
use crate::cells::Plan;
use crate::cost::RunCost;
use crate::notebook::{Notebook, NotebookError};
use crate::progress::ProgressSink;
use crate::results::Point;
use crate::runner::Runner;

/// What was typed beside an experiment's own options.
#[derive(Debug, Clone)]
pub struct Typed {
    /// The target, as it was typed.
    pub target: String,
    /// Bytes of the scratch file, or of the range.
    pub size: Option<Bytes>,
    /// Length of a measurement.
    pub time: Option<Nanos>,
    /// Left out at its start.
    pub ramp: Option<Nanos>,
    /// Of each measurement.
    pub repeats: Option<u32>,
    /// Of everything random.
    pub seed: u64,
    /// Whether the data of a device may be destroyed.
    pub destroys: bool,
}

/// Options of an experiment. Target, profile, time, repeats, seed and where results go are the same for all, and come
/// with the [`Plan`].
pub trait Measurement: Args + Clone {
    /// Of the command, its runs, and the streams of its seeds.
    const NAME: &'static str;
    /// Whether processors can be kept busy or awake for it (`--cpu`), and the difference be measured.
    const KEEPS_CPU: bool = false;
    /// The one of its experiments for which they are, where it is not all of it.
    const KEEPS_CPU_OF: Option<&'static str> = None;
    /// Whether a recorded profile can weight what it finds (`--workload`).
    const WEIGHTED: bool = false;
    /// Threads that record each I/O at the same time; 0 for no log.
    const RECORDING: usize = 0;
    /// Whether it runs on a fleet as on one host: nothing of it looks below the target, or leads its load from here.
    const ON_HOSTS: bool = false;

    /// Whether it writes on devices with zones only where their write pointers are.
    const ON_ZONES: bool = false;

    /// Where it works on files of a directory that fathom makes in the target, instead of on one file or device: hosts that
    /// it needs.
    const FILES_OF_HOSTS: Option<u32> = None;

    /// Where it works in a directory alone: what to say of a target that is none.
    const IN_DIRECTORY: Option<&'static str> = None;

    /// Takes what follows from the rest of the command line; an experiment that knows its size better than the profile says
    /// it there.
    ///
    /// # Errors
    /// In one sentence: the option, what was expected.
    fn settle(&mut self, _typed: &mut Typed) -> Result<(), String> {
        Ok(())
    }

    /// Refuses what no single option shows to be impossible.
    ///
    /// # Errors
    /// In one sentence: the option, what was expected.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Refuses a target that it could do nothing with, before anything is made.
    ///
    /// # Errors
    /// In one sentence: the target, what was expected.
    fn fits(&self, _bench: &dyn Bench) -> Result<(), String> {
        Ok(())
    }

    /// Whether any of its jobs writes.
    fn modifies(&self) -> bool;

    /// Time and bytes, at most. `fills` is the size of the scratch file that is to be filled.
    ///
    /// # Errors
    /// Where the jobs do not fit the target.
    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError>;

    /// Prepares the target, and runs jobs of this name.
    ///
    /// # Errors
    /// Where the jobs do not fit the target, or it cannot be filled.
    fn begin<'a>(
        &self,
        bench: &'a mut dyn Bench,
        plan: &Plan,
        book: &'a mut Notebook,
        sink: &'a mut dyn ProgressSink,
    ) -> Result<Runner<'a>, NotebookError> {
        let jobs = self
            .run_cost(plan, Bytes(0))
            .map_err(BenchError::from)?
            .jobs();
        Runner::begin(bench, book, sink, Self::NAME, plan.seed, jobs)
    }

    /// Brings every point to the repeats of the plan, in turns.
    ///
    /// # Errors
    /// As [`Measurement::run`].
    fn measure(
        &self,
        mut points: Vec<Point>,
        (bench, plan): (&mut dyn Bench, &Plan),
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<Vec<Point>, NotebookError> {
        let mut runner = self.begin(bench, plan, book, sink)?;
        runner.fill_up(&mut points, plan.profile.repeats)?;
        runner.end();
        Ok(points)
    }

    /// Measures, and keeps what was found. An interruption is no error.
    ///
    /// # Errors
    /// Where the bench or the run directory fails.
    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError>;
}

/// Options of which none was given: each default stands once, in its declaration.
pub fn defaults<O: Args>() -> O {
    // Those that some declarations speak of.
    let common = ["target", "size", "profile"].map(|name| Arg::new(name).long(name));
    let command = O::augment_args(Command::new("fathom").args(common));
    let matches = command.get_matches_from(["fathom"]);
    O::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
}

/// Refuses a pattern that reads and writes, or does neither: of more than one load there is no single latency.
///
/// # Errors
/// In one sentence.
pub fn one_direction(option: &str, rw: Rw) -> Result<(), String> {
    match rw.reads() == rw.writes() {
        false => Ok(()),
        true => Err(format!(
            "{option}: {} is more than one load: expected read, write, randread or randwrite",
            rw.word()
        )),
    }
}

/// A share on the command line, percent.
///
/// # Errors
/// Where it is no number from 0 to 100.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok();
    number
        .filter(|v| (0.0..=100.0).contains(v))
        .ok_or_else(|| format!("'{text}' is not possible: expected 0 to 100 %"))
}

/// A rate on the command line: so many a second.
///
/// # Errors
/// Where it is no number from 0.001 to 1e9.
pub fn per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.001..=1e9).contains(&n) => Ok(n),
        _ => Err("expected a number from 0.001 to 1000000000".into()),
    }
}

/// One of these words, for what stands beside it.
pub fn word<T: Clone + Send + Sync>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(words.iter().map(|w| w.0));
    names.map(|word| {
        let known = words.iter().find(|w| w.0 == word);
        known.unwrap_or(&words[0]).1.clone()
    })
}

//! The spine: what every experiment and lab stands on, and that knows none of them.
//!
//! An experiment plans jobs and hands them to a [`runner::Runner`]: it takes turns, derives seeds, runs them on a
//! [`Bench`] and keeps them in the [`Notebook`]. What the experiment found is data ([`results`]); everything shown is
//! made from it ([`mod@present`]), and is never better than the jobs behind it.

pub mod bench;
pub mod cells;
pub mod cost;
pub mod cpu;
pub mod drift;
pub mod fairness;
pub mod foresight;
mod hosts;
pub mod measurement;
pub mod notebook;
pub mod parts;
pub mod present;
pub mod profile;
pub mod progress;
pub mod results;
pub mod runner;
pub mod schedule;
pub mod sim_bench;
pub mod steadiness;

pub use bench::{Bench, BenchError, RealBench};
pub use cells::{Analysis, Cell, Experiment, Plan};
pub use measurement::Measurement;
pub use notebook::{Notebook, NotebookError, RunMeta};
pub use sim_bench::SimBench;

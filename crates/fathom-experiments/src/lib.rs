//! Experiments: plan jobs, then turn their measures into tables, charts and findings.
//!
//! An experiment is one file that implements [`Experiment`] and one line in
//! [`survey::EXPERIMENTS`] (or the command that owns it). It knows neither rings nor
//! HTML: jobs go through a [`Bench`], results into [`fathom_telemetry::schema`].

pub mod ab;
pub mod applications;
pub mod bench;
pub mod burst;
pub mod cells;
pub mod compare;
pub mod compression;
pub mod condition;
mod course;
pub mod cpu;
pub mod curve;
pub mod endurance;
pub mod knee;
pub mod mix;
pub mod notebook;
pub mod outlook;
pub mod pages;
pub mod parts;
pub mod pts;
pub mod replay;
pub mod reproduce;
pub mod results;
pub mod runner;
pub mod schedule;
pub mod sim_bench;
pub mod sim_fit;
pub mod stack;
mod stamp;
pub mod survey;
pub mod tune;
pub mod workload;

pub use bench::{Bench, BenchError, RealBench};
pub use cells::{Analysis, Cell, Experiment, Plan};
pub use notebook::{Notebook, NotebookError, RunMeta};
pub use sim_bench::SimBench;

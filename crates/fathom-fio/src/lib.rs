//! fio's options, job files and output, translated to fathom's jobs and from its measures.
//!
//! This room knows what fio's users write and read. How a job runs it does not know: it
//! hands out [`Task`]s and takes [`Measure`]s back.

mod aux_files;
mod cmdline;
mod convert;
mod engine;
mod error;
mod feed;
mod guide;
mod jobfile;
mod measure;
mod merge;
pub mod options;
pub mod output;
mod plan;
mod profile;
mod section;
mod slices;
mod steady;
mod translate;

pub use cmdline::{Format, Invocation, Purpose, Trigger};
pub use convert::to_toml;
pub use engine::Names;
pub use error::FioError;
pub use feed::FlowGroup;
pub use feed::classes::ByPriority;
pub use feed::lifetimes::Lifetimes;
pub use feed::locks::FileLock;
pub use feed::sums::speeds as checksum_speeds;
pub use guide::{Around, Guided, guide};
pub use jobfile::{Script, parse_job_file};
pub use measure::{Measure, Rusage, Totals, merge};
pub use output::progress;
pub use plan::{Task, Terms, plan};
pub use section::{Section, names};
pub use slices::Slices;
pub use steady::Steady;
pub use translate::{
    ControlGroup, Errors, ExitWhat, Extent, FOR_EVER, Layout, Logs, Place, Shape, ThreadTerms,
};

//! Where the microseconds go: the latency of an I/O split by layer, from kernel events.
//!
//! A pass of a job is traced through a private tracefs instance ([`session`]), its events are turned
//! into the lives of bios ([`chain`]), joined with the application's records ([`join`]) and cut into
//! layers ([`layer`]). Where tracing is not allowed, [`reduced`] says what the system tells anyone.
//! This room knows no experiments: it neither plans jobs nor judges what a layer should cost.

pub mod analysis;
pub mod boundary;
pub mod chain;
pub mod device;
pub mod error;
pub mod event;
pub mod host;
pub mod join;
pub mod layer;
mod perf;
pub mod reduced;
pub mod rows;
pub mod session;
pub mod settings;
mod source;
mod stacked;
pub mod tracefs;
pub mod watch;

pub use analysis::{StackAnalysis, StackResult};
pub use boundary::Boundary;
pub use device::{Devices, Disk};
pub use error::TraceError;
pub use join::{Answer, Join, Joined, Manner};
pub use layer::{Layer, Naming, Owner};
pub use session::{Backend, Session, Trace, TraceConfig};

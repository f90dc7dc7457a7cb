//! The load generator: jobs, the driver that runs them, and the ports to storage.
//!
//! The load logic (which I/O next, when, at which depth) is written once, in
//! [`load::Worker`], generic over a [`port::Port`] and its clock. Real ports block
//! in [`driver`]; the simulator steps the same worker in virtual time. This room
//! does not know who asked or how results are shown.

pub mod buffer;
pub mod clock;
pub mod driver;
pub mod files;
pub mod job;
pub mod load;
pub mod port;
pub mod replay;
pub mod target;
pub mod thread_terms;
pub mod threads;
pub mod validity;

pub use driver::{Control, DriveError, Observer, PlannedJob};
pub use job::{JobError, JobSpec};
pub use target::{Share, Target, TargetError, Wanted};

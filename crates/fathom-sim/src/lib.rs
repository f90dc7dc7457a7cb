//! Simulated storage behind the driver's port: devices, hosts, arrays and virtual machines whose truth is known.
//!
//! [`SimTarget::parse`] reads a target string, [`SimTarget::open`] gives it state, and
//! [`Simulation::run_group`] runs jobs on it with the same load logic and results as on
//! real storage. This room does not know the kernel, nor who asked.

mod cache;
mod device;
mod error;
mod fault;
mod host;
mod machine;
pub mod math;
mod model;
mod processor;
mod raid;
mod simulation;
mod target;

pub use device::Condition;
pub use error::SimError;
pub use fault::Fault;
pub use model::{
    Buffer, Endurance, Hdd, Kind, Listed, Media, Model, Nand, Pipeline, Ram, SlcCache, Thermal,
    check, list, show,
};
pub use simulation::Simulation;
pub use target::{OPTIONS, SimTarget};

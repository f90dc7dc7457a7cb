//! Device, host, VM and RAID models that stand where a kernel would: the `sim:` targets.
//!
//! A [`Simulation`] is a `World` of the driver: it says what a submission costs the host and when its
//! completion becomes visible. It knows neither experiments nor the kernel, and reads no clock.

pub mod analytic;
pub mod device;
pub mod fast;
pub mod fault;
pub mod fitted;
pub mod flash;
pub mod guest;
pub mod hits;
pub mod host;
pub mod level;
pub mod model;
pub mod pace;
pub mod page_cache;
pub mod parameters;
pub mod raid;
pub mod simulation;
pub mod spread;
pub mod target;
pub mod thermal;
pub mod trace;

pub use device::Device;
pub use model::{CATALOG, Model, SimError, nearest_of};
pub use simulation::Simulation;
pub use target::{Shape, SimTarget};

#[cfg(test)]
mod scalars;

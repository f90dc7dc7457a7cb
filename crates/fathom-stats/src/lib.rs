//! Statistics for measurements: a number and its uncertainty travel together.
//!
//! This room knows nothing of storage. It holds estimates with confidence
//! intervals, tests of distributions, comparisons of two estimates, jumps and regimes
//! of a series, and the verdict on steady state.

mod ahead;
pub mod autocorrelation;
pub mod bootstrap;
pub mod change_point;
pub mod compare;
mod decay;
pub mod dips;
mod estimate;
mod ks;
pub mod panel;
pub mod regimes;
pub mod rng;
pub mod scalability;
mod season;
pub mod steady;

pub use estimate::Estimate;
pub use ks::{ks_distance, ks_p_value};
pub use season::Swing;
